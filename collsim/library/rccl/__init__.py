"""RCCL beside NCCL: boards, tables, several nodes."""
