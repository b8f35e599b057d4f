"""Labels of a topology that the choice of a library and of a profile goes by."""

from __future__ import annotations

__all__ = ["KIND_LABELS"]

KIND_LABELS = ("gpu.model", "link.type", "switch.model")
"""Labels that the choice of a library and of a profile goes by; copies as a file or a graph keep them."""
