"""What RCCL adds to NCCL's decisions: boards, tables, several nodes."""
