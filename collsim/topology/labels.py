"""Words of topology files that code chooses by: labels of GPUs and links, kinds of fabric, kinds of routing."""

from __future__ import annotations

__all__ = ["DISTANCES", "FABRICS", "KIND_LABELS", "MEMORY_FACT", "READ_FACT", "ROUTINGS"]

KIND_LABELS = ("gpu.model", "link.type", "switch.model", "cpu.model")
"""Labels that the choice of a library and of a profile goes by; copies as a file or a graph keep them."""

MEMORY_FACT = "cpu.memory_bandwidth"
"""Memory of a socket, through which GPUs without peer access copy."""
READ_FACT = "cpu.read_rate"
"""What the kernels of one GPU read of that memory."""

FABRICS = ("rail", "rail_only", "fat_tree", "dragonfly", "single_switch")
"""Kinds of fabric between nodes; `collsim.topology.cluster.spec` says what each is."""

ROUTINGS = ("adaptive", "ecmp", "spray")
"""Ways in which a network spreads flows over equal routes."""

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways over PCIe, nearest first, as nvidia-smi names them: one switch, several, a host bridge, a socket, two."""
