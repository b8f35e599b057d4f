"""Costs of kernels that dispatch and combine: start, rate of the GPU, share of the network, time per message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from collsim.core.errors import UnknownNameError

__all__ = ["Costs", "Kernel", "kernel_for", "kernel_names", "load_kernel"]

FILE = Path(__file__).parent / "kernels.yaml"
NEAR = 2
"""Numbers of tokens within this factor of the measured one are not told to be far off."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one operation in one mode.

    Attributes
    ----------
    start_s : float
        Launch, counts and flags: before and after bytes flow. In mode ``all_to_all`` only this figure counts: what a
        call from a framework takes beyond the same call of nccl-tests, which the costs of the library are fitted to.
    node_efficiency : float
        Part of its links within the node that a GPU can send or receive at once with many SMs.
    network_work : float
        How much of a GPU's rate a byte to or from the network takes, in bytes within the node.
    network_efficiency : float
        Part of the line rate of adapters.
    message_s : float
        What each message to another node keeps the adapter of its sender busy beside its bytes.
    """

    start_s: float
    node_efficiency: float = 1.0
    network_work: float = 0.0
    network_efficiency: float = 1.0
    message_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A library of kernels on some GPUs: its costs by mode and operation, and where they come from.

    *fit* says which published rows the costs are fitted to. *sms* SMs copy by default; of so many the rate within the
    node is ``sms / (sms + half_sms)`` of what endless would reach. *relayed* kernels send one copy of a token to each
    node and rank in low-latency mode too.
    """

    name: str
    title: str
    kind: str
    source: str
    fit: str
    sms: int
    half_sms: float
    chunk_tokens: int
    costs: dict[str, dict[str, Costs]]
    measured: tuple[str, ...] = ()
    """Beginnings of the GPU models that were measured."""
    extent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Least and most ranks and the tokens of a rank in the measured rows, by mode."""
    relayed: bool = False

    def told(self, gpu: str) -> str | None:
        """Return a warning about the costs on a GPU; None if they were fitted to measurements of it."""
        if self.kind != "fitted":
            return f"kernels {self.name} are {self.kind}, not fitted to measurements: {self.source}"
        if gpu.startswith(self.measured):
            return None
        return f"kernels {self.name} were measured on {', '.join(self.measured)}: carried over to {gpu or 'this GPU'}"

    def outside(self, mode: str, ranks: Sequence[int], tokens: Sequence[int]) -> str | None:
        """Return a doubt about ranks, or tokens of a rank, that no measured row comes near; None if all do."""
        if mode not in self.extent:
            return None
        (least, most), measured = self.extent[mode]["ranks"], self.extent[mode]["tokens"]
        far = [f"{n} ranks" for n in ranks if not least <= n <= most]
        ends = dict.fromkeys((min(tokens), max(tokens)))
        far += [f"{n} tokens a rank" for n in ends if not measured / NEAR <= n <= measured * NEAR]
        if not far:
            return None
        known = f"{least} to {most} ranks with {measured} tokens each"
        return f"kernels {self.name} were measured on {known} in mode {mode}: {', '.join(far)} are an extrapolation"

    def flow_mode(self, mode: str) -> str:
        """Return the mode whose flows the kernels send in a mode."""
        return "normal" if self.relayed and mode == "low_latency" else mode

    def share_of(self, sms: int) -> float:
        """Return the part of the rate that so many SMs reach."""
        return sms / (sms + self.half_sms)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    import yaml

    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["kernels"])


def kernel_names() -> list[str]:
    """Return the names of the kernels that come with collsim."""
    return sorted(_entries())


def load_kernel(name: str) -> Kernel:
    """Return kernels by name.

    Raises
    ------
    UnknownNameError
    """
    if name not in _entries():
        raise UnknownNameError("kernel", name, kernel_names(), "kernel")
    entry = dict(_entries()[name])
    costs = {
        mode: {op: Costs(**figures) for op, figures in by_op.items()} for mode, by_op in entry.pop("costs").items()
    }
    del entry["gpus"]
    return Kernel(name=name, costs=costs, measured=tuple(entry.pop("measured")), **entry)


def kernel_for(gpu: str, mode: str) -> str:
    """Return the name of the kernels that are meant for a GPU in a mode, else of the default ones."""
    for name, entry in _entries().items():
        if mode in entry["costs"] and any(gpu.startswith(each) for each in entry["gpus"]):
            return name
    return "default"
