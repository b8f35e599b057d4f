"""Multiprocessors of GPUs, which NVIDIA calls SMs and AMD compute units, by part of ``gpu.model``."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Multiprocessors", "multiprocessors_of"]


class Multiprocessors(NamedTuple):
    """How many multiprocessors a GPU has, and where that is from."""

    number: int
    status: str
    source: str


OF_MODELS = {
    "V100": Multiprocessors(80, "datasheet", "NVIDIA V100 white paper"),
    "A100": Multiprocessors(108, "datasheet", "NVIDIA A100"),
    "A800": Multiprocessors(108, "datasheet", "NVIDIA A100, of which it is a variant with fewer links"),
    "H100": Multiprocessors(132, "datasheet", "NVIDIA H100 SXM5"),
    "H800": Multiprocessors(132, "datasheet", "NVIDIA H100 SXM5, of which it is a variant with fewer links"),
    "H20": Multiprocessors(78, "measured", "deepseek-ai/DeepEP issue 389, as CUDA tells its users"),
    "H200": Multiprocessors(132, "datasheet", "NVIDIA H200 SXM"),
    "GH200": Multiprocessors(132, "datasheet", "NVIDIA GH200, with an H100"),
    "B200": Multiprocessors(148, "datasheet", "NVIDIA B200"),
    "GB200": Multiprocessors(152, "measured", "runs of DeepEP on GB200 in NVIDIA AIConfigurator 0.12.0"),
    "B300": Multiprocessors(160, "announced", "NVIDIA at Hot Chips 2025: Blackwell Ultra"),
    "GB300": Multiprocessors(160, "announced", "NVIDIA at Hot Chips 2025: Blackwell Ultra"),
    "L40S": Multiprocessors(142, "datasheet", "NVIDIA L40S: 18,176 CUDA cores, 128 in each"),
    "RTX PRO 6000": Multiprocessors(188, "datasheet", "NVIDIA RTX PRO 6000 Blackwell: 24,064 CUDA cores, 128 in each"),
    "MI250X": Multiprocessors(110, "datasheet", "AMD Instinct MI250X: 220 compute units in two GCDs"),
    "MI250": Multiprocessors(104, "datasheet", "AMD Instinct MI250: 208 compute units in two GCDs"),
    "MI300X": Multiprocessors(304, "datasheet", "AMD Instinct MI300X: compute units"),
    "MI325X": Multiprocessors(304, "datasheet", "AMD Instinct MI325X: compute units"),
    "MI350X": Multiprocessors(256, "datasheet", "AMD Instinct MI350X: compute units"),
    "MI355X": Multiprocessors(256, "datasheet", "AMD Instinct MI355X: compute units"),
}
"""Those whose number is public; kernels can run on no more."""


def multiprocessors_of(model: str) -> Multiprocessors | None:
    """Return how many multiprocessors a GPU has; None of one whose number is not known.

    >>> multiprocessors_of("H100 SXM5").number, multiprocessors_of("Instinct MI355X").number
    (132, 256)
    >>> multiprocessors_of("Rubin") is None
    True
    """
    return next((found for name, found in OF_MODELS.items() if re.search(rf"\b{name}\b", model)), None)
