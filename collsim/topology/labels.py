"""Words of topology files that code chooses by: labels of GPUs and links, kinds of fabric, kinds of routing."""

from __future__ import annotations

__all__ = ["FABRICS", "KIND_LABELS", "ROUTINGS"]

KIND_LABELS = ("gpu.model", "link.type", "switch.model")
"""Labels that the choice of a library and of a profile goes by; copies as a file or a graph keep them."""

FABRICS = ("rail", "rail_only", "fat_tree", "dragonfly", "single_switch")
"""Kinds of fabric between nodes; `collsim.topology.cluster.spec` says what each is."""

ROUTINGS = ("adaptive", "ecmp", "spray")
"""Ways in which a network spreads flows over equal routes."""
