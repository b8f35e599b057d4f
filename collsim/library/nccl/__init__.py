"""NCCL's own decisions, as its sources make them: versions, graphs, cost model, channels, point-to-point."""
