"""GPUs as timelines see them: multiprocessors, and what kernels that run at once take from each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from collsim.library.multiprocessors import multiprocessors_of

__all__ = ["Gpu", "gpu_of"]

FILE = Path(__file__).parent / "gpus.yaml"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU.

    Attributes
    ----------
    topology : str
        System of the zoo that has it; empty if none is known.
    sms : int
        Multiprocessors.
    add_slowdown, copy_slowdown : float
        How many times longer the channels of a collective that adds, and of one that copies, take for their bytes
        while other kernels keep the multiprocessors busy.
    stream_slowdown : float
        The same of both while a kernel streams memory.
    wave_s : float
        What a matrix product that fills the GPU takes longer, once, if multiprocessors are held.
    p2p_busy : float
        Share of the channels of an all-to-all that are busy.
    sustained_duty : float
        Share of the time for which tensor cores may run at the full clock within the power of the GPU.
    clock_exponent : float
        With which power of the time of a step the clock rises that its power allows.
    known : bool
        False: kernels are taken not to disturb each other.
    """

    name: str
    topology: str
    sms: int
    add_slowdown: float = 1.0
    copy_slowdown: float = 1.0
    stream_slowdown: float = 1.0
    wave_s: float = 0.0
    p2p_busy: float = 1.0
    sustained_duty: float = 1.0
    clock_exponent: float = 0.5
    known: bool = True

    def held(self, op: str, channels: int) -> int:
        """Return how many multiprocessors a collective holds."""
        share = self.p2p_busy if op in ("all_to_all", "send_recv") else 1.0
        return max(1, min(self.sms - 1, round(channels * share)))

    def speed(self, work_s: float, recorded_s: float, new_s: float, scale: float = 1.0) -> float:
        """Return the clock in a step that takes *new_s*, over that in one that took *recorded_s*.

        *work_s* is how long kernels were busy in the latter; at the same clock they take *scale* times as long in the
        former, with as much power. Power is what limits the clock of matrix products: of the
        energy that it allows, a step that takes longer has more, so that the clock may rise, up to the full one.

        >>> gpu = Gpu("one", "", 132, sustained_duty=0.4, clock_exponent=0.5)
        >>> round(gpu.speed(0.9, 1.0, 1.21), 3), round(gpu.speed(0.3, 1.0, 2.0), 3)
        (1.1, 1.0)
        >>> round(gpu.speed(0.9, 1.0, 0.5, scale=0.5), 3)
        1.0
        """
        if work_s <= 0 or recorded_s <= 0:
            return 1.0
        e = self.clock_exponent
        clock = min(1.0, (self.sustained_duty * recorded_s / work_s) ** (e / (1 + e)))  # of the trace
        new = min(1.0, (self.sustained_duty * new_s / (work_s * scale * clock)) ** e)
        return float(new / clock)


@cache
def _table() -> dict[str, dict[str, Any]]:
    import yaml

    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["gpus"])


def gpu_of(name: str, sms: int = 0) -> Gpu:
    """Return the GPU of a name such as "NVIDIA H200"; one without contention if its figures are not known.

    >>> gpu_of("NVIDIA H100 80GB HBM3").topology, gpu_of("NVIDIA A10", 72).known
    ('hgx_h100', False)
    """
    from collsim.core.units import parse_time_s

    for key, entry in _table().items():
        if any(re.search(rf"\b{one}\b", name, re.IGNORECASE) for one in entry["names"]):
            figures = {k: v["value"] for k, v in entry.items() if isinstance(v, dict)}
            if "wave" in figures:
                figures["wave_s"] = parse_time_s(figures.pop("wave"))
            own = next(filter(None, map(multiprocessors_of, entry["names"])))
            return Gpu(key, entry["topology"], own.number, **figures, known="add_slowdown" in figures)
    return Gpu(name or "unknown", "", sms or 132, known=False)
