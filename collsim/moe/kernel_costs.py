"""Costs of kernels that dispatch and combine: start, rate of the GPU, share of the network, time per message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, inf, isfinite, log2
from pathlib import Path
from typing import Any

from collsim.core.errors import UnknownNameError

__all__ = ["Costs", "Kernel", "kernel_for", "kernel_names", "load_kernel"]

FILE = Path(__file__).parent / "kernels.yaml"
NEAR = 2
"""Numbers of tokens within this factor of the measured one are not told to be far off."""
WIDEST = 2.5
"""Factor either way of times that no measurement backs. Chosen."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one operation in one mode.

    A rank's copying takes ``(L^p + S^p)^(1/p)``: L seconds for its bytes at the rate of its links, S for the work of
    its SMs, p as of `collsim.moe.timing`. Costs without work of SMs have one rate for both.

    Attributes
    ----------
    start_s : float
        Launch and flags: before and after bytes flow. In mode ``all_to_all`` only this figure counts: what a
        call from a framework takes beyond the same call of nccl-tests, which the costs of the library are fitted to.
    start_Bps : float
        Rate at which a lone token passes through one group of threads: its bytes lengthen the start.
    expert_s, peer_s, network_s : float
        What the start grows by for each expert (a flag each), for each doubling of ranks, and for leaving the node and
        each doubling of nodes.
    node_efficiency : float
        Part of its links within the node that a GPU can send or receive at once with many SMs.
    token_s, copy_s, token_Bps, copy_Bps : float
        Work of one SM: for each token of the rank, for each copy of it that is sent or received, the own rank's
        included, and the rates at which it passes over the bytes of both.
    crowding : float
        How much longer each SM works for every further one.
    ring_tokens : float
        Tokens that a sending SM hands to the receiving one at once: the last come that much later.
    network_work : float
        How much copying a byte to or from the network takes, in bytes within the node.
    network_efficiency : float
        Part of the line rate of adapters.
    message_s : float
        What each message to another node keeps the adapter of its sender busy beside its bytes.
    prepare_s, prepare_token_s, prepare_nodes_s : float
        Time of the step before, which counts tokens and tells the other ranks: once, for each token of a rank, and for
        each doubling of nodes. It is told apart from the time of the operation.
    """

    start_s: float
    start_Bps: float = inf
    expert_s: float = 0.0
    peer_s: float = 0.0
    network_s: float = 0.0
    node_efficiency: float = 1.0
    token_s: float = 0.0
    copy_s: float = 0.0
    token_Bps: float = inf
    copy_Bps: float = inf
    crowding: float = 0.0
    ring_tokens: float = 0.0
    network_work: float = 0.0
    network_efficiency: float = 1.0
    message_s: float = 0.0
    prepare_s: float = 0.0
    prepare_token_s: float = 0.0
    prepare_nodes_s: float = 0.0

    @property
    def by_sm(self) -> bool:
        """True if there is work of SMs."""
        return bool(self.token_s or self.copy_s or isfinite(self.token_Bps) or isfinite(self.copy_Bps))

    def begin_s(self, *, token_bytes: int, experts: int, ranks: int, nodes: int) -> float:
        """Return the start of an operation among so many experts, ranks and nodes."""
        hops = 1 + log2(nodes) if nodes > 1 else 0.0  # one leaves the node however many there are
        grown = experts * self.expert_s + log2(ranks) * self.peer_s + hops * self.network_s
        return self.start_s + token_bytes / self.start_Bps + grown

    def before_s(self, *, tokens: float, nodes: int) -> float:
        """Return the time of the step before, for the most tokens that a rank has."""
        return self.prepare_s + tokens * self.prepare_token_s + log2(nodes) * self.prepare_nodes_s


@dataclass(frozen=True, slots=True)
class Kernel:
    """A library of kernels on some GPUs: its costs by mode and operation, and where they come from.

    *fit* says which published rows the costs are fitted to. *sms* SMs copy by default; of so many the rate within the
    node is ``sms / (sms + half_sms)`` of what endless would reach. *relayed* kernels send one copy of a token to each
    node and rank in low-latency mode too. *gpu_sms* are those of the whole GPU, among which low-latency kernels share
    out the experts; 0 where no cost is told by them.
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
    gpu_sms: int = 0
    width: Mapping[str, float] = field(default_factory=dict)
    """By mode, the factor either way that 19 of 20 rows which no fit has seen lie within."""

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
        (least, most), (few, many) = self.extent[mode]["ranks"], self._tokens(mode)
        far = [f"{n} ranks" for n in ranks if not least <= n <= most]
        ends = dict.fromkeys((min(tokens), max(tokens)))
        far += [f"{n} tokens a rank" for n in ends if not few / NEAR <= n <= many * NEAR]
        if not far:
            return None
        known = f"{_span(least, most)} ranks with {_span(few, many)} tokens each"
        return f"kernels {self.name} were measured on {known} in mode {mode}: {', '.join(far)} are an extrapolation"

    def _tokens(self, mode: str) -> tuple[int, int]:
        """Return the least and the most tokens of a rank in the measured rows."""
        told = self.extent[mode]["tokens"]
        return (told, told) if isinstance(told, int) else (told[0], told[1])

    def flow_mode(self, mode: str) -> str:
        """Return the mode whose flows the kernels send in a mode."""
        return "normal" if self.relayed and mode == "low_latency" else mode

    def share_of(self, sms: int) -> float:
        """Return the part of the rate that so many SMs reach."""
        return sms / (sms + self.half_sms)

    def busy_sms(self, mode: str, sms: int, experts: int) -> int:
        """Return how many SMs copy: in low latency each takes equally many experts, as few as fill the GPU."""
        if mode != "low_latency" or not self.gpu_sms:
            return sms
        return ceil(experts / ceil(experts / self.gpu_sms))

    def near(self, mode: str, gpu: str, ranks: int, tokens: Sequence[int]) -> bool:
        """Return True if measured rows of the kernels come near a question."""
        return self.told(gpu) is None and self.outside(mode, [ranks], tokens) is None

    def within(self, mode: str, gpu: str, ranks: int, tokens: Sequence[int]) -> tuple[float, str]:
        """Return the factor either way that nine of ten measured times lie within, and why it is wider than usual.

        On other GPUs and with other tokens than measured it is squared. Where no row has so many ranks it is `WIDEST`,
        as networks differ by so much, and where no row tells anything.
        """
        if self.kind != "fitted" or mode not in self.width:
            return WIDEST, f"no row in mode {mode} tells how far kernels {self.name} are off"
        if mode in self.extent:
            least, most = self.extent[mode]["ranks"]
            if not least <= ranks <= most:
                return WIDEST, f"rows of kernels {self.name} in mode {mode} have {_span(least, most)} ranks"
        if self.near(mode, gpu, ranks, tokens):
            return self.width[mode], ""
        return min(self.width[mode] ** 2, WIDEST), "another GPU, or other tokens, than measured"


@cache
def _entries() -> dict[str, dict[str, Any]]:
    import yaml

    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["kernels"])


def _span(least: int, most: int) -> str:
    """Return a range of numbers, or the number that it is.

    >>> _span(8, 16), _span(4, 4)
    ('8 to 16', '4')
    """
    return f"{least}" if least == most else f"{least} to {most}"


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
        raise UnknownNameError("kernel", str(name), kernel_names(), "kernel")
    entry = dict(_entries()[name])
    costs = {
        mode: {op: Costs(**figures) for op, figures in by_op.items()} for mode, by_op in entry.pop("costs").items()
    }
    del entry["gpus"]
    entry.pop("networks", None)
    return Kernel(name=name, costs=costs, measured=tuple(entry.pop("measured")), **entry)


def kernel_for(gpu: str, mode: str, ranks: int | None = None, network: str = "") -> str:
    """Return the name of the kernels that are meant for a GPU in a mode, else of the default ones.

    Those for the *network* between the nodes that the ranks are on come first: its adapters run no others. Of several
    the first counts that was measured with so many ranks, else the first.
    """
    meant = {
        name: entry
        for name, entry in _entries().items()
        if mode in entry["costs"] and any(gpu.startswith(each) for each in entry["gpus"])
    }
    on_it = {name: entry for name, entry in meant.items() if network in entry.get("networks", ())}
    anywhere = {name: entry for name, entry in meant.items() if "networks" not in entry}
    for name, entry in (on_it or anywhere).items():
        least, most = entry.get("extent", {}).get(mode, {}).get("ranks", (0, 0))
        if ranks is not None and least <= ranks <= most:
            return name
    return next(iter(on_it or anywhere), "default")
