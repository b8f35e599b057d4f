"""Sweeps of kernels that dispatch and combine, their sets, and what collsim predicts for them without an engine."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from split import assigned

from collsim.moe.counts import Members, expected
from collsim.moe.expert_placement import placed
from collsim.moe.flows import message_bytes
from collsim.moe.kernel_costs import Costs
from collsim.moe.models import Model
from collsim.moe.timing import SHARPNESS

__all__ = ["Array", "Sweep", "family", "part", "predicted_s", "sweeps", "traffic"]

ROWS = Path(__file__).parent / "data" / "moe_kernels.csv"
SITE = "aiconfigurator"
FEWEST = 2
"""Sweeps of each operation of a kernel that the hash has to leave to be fitted."""
Array = NDArray[np.float64]

GPUS = {"H100": (450e9, 132), "B200": (900e9, 148), "GB200": (900e9, 152)}
"""Bytes per second of a GPU's links within the node, one way (datasheets, as in the zoo), and its SMs."""
NIC_BPS = 50e9


@dataclass(frozen=True, slots=True)
class Sweep:
    """Times over tokens of one operation with one setting: float64[n] of each, seconds, *prepare_s* 0 where none is."""

    gpu: str
    kernel: str
    gpus_per_node: int
    nodes: int
    ranks: int
    hidden: int
    top_k: int
    experts: int
    sms: int
    dtype: str
    op: str
    tokens: Array
    time_s: Array
    prepare_s: Array

    @property
    def name(self) -> str:
        """As a log would be called."""
        setting = f"{self.kernel}-ep{self.ranks}-h{self.hidden}-k{self.top_k}-e{self.experts}-{self.dtype}"
        sms = f"-sm{self.sms}" if self.sms else ""
        return f"{self.gpu}-{self.gpus_per_node}x{self.nodes}__{self.op}__{setting}{sms}__{SITE}"

    @property
    def mode(self) -> str:
        """The mode of `collsim moe`."""
        return "low_latency" if self.kernel.endswith("_ll") or "low_latency" in self.kernel else "normal"

    @property
    def balanced(self) -> bool:
        """True if tokens take experts in turn: the benchmark of the NVLink kernels."""
        return "nvlink" in self.kernel


@cache
def sweeps() -> tuple[Sweep, ...]:
    """Return all sweeps of moe_kernels.csv."""
    whole = ("gpus_per_node", "nodes", "ranks", "hidden", "top_k", "experts", "sms")
    made = []
    with ROWS.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            tokens, time_us, before_us = (
                np.array(line.pop(name).split(), dtype=np.float64) for name in ("tokens", "time_us", "prepare_us")
            )
            prepare_s = before_us / 1e6 if len(before_us) else np.zeros(len(tokens))
            numbers = {name: int(line.pop(name)) for name in whole}
            times = {"tokens": tokens, "time_s": time_us / 1e6, "prepare_s": prepare_s}
            made.append(Sweep(**line, **numbers, **times))  # type: ignore[arg-type]
    return tuple(made)


@cache
def _sets() -> dict[str, str]:
    """Return the set of each sweep by its name."""
    found = {each.name: assigned(each.name) for each in sweeps()}
    sets: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in sweeps():
        sets[family(each), each.gpu][each.op].append(found[each.name])
    for each in sweeps():
        if any(got.count("train") < FEWEST for got in sets[family(each), each.gpu].values()):
            found[each.name] = "all"
    return found


def family(sweep: Sweep) -> str:
    """Return the kernels of a sweep, whichever version of the engine ran them."""
    return sweep.kernel.removesuffix("_0.5.6")


def part(sweep: Sweep) -> str:
    """Return "train", "test", or "all" where the hash leaves an operation of the kernel nothing to fit."""
    return _sets()[sweep.name]


# --- closed form -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per token of a rank: copies in its node, own included, those to other ranks, and copies to other nodes."""

    copies: float
    inside: float
    across: float


@cache
def traffic(mode: str, nodes: int, ranks: int, top_k: int, experts: int, *, balanced: bool) -> Traffic:
    """Return the copies of a token with even experts; over nodes at most four of them, as the tests of DeepEP route."""
    if mode == "low_latency":
        return Traffic(top_k, top_k * (ranks // nodes - 1) / ranks, top_k * (nodes - 1) / nodes)
    if balanced:
        reached = min(top_k, ranks)
        return Traffic(reached, reached * (ranks - 1) / ranks, 0.0)
    groups, limit = (nodes, min(nodes, 4)) if nodes > 1 else (1, 0)
    model = Model("any", experts=experts, top_k=top_k, hidden=1, groups=groups, group_limit=limit)
    members = Members.of(np.arange(ranks) // (ranks // nodes))
    place = placed(np.full(experts, 1 / experts), ranks, "contiguous", redundant=0)
    counts = expected(model, place, members, np.ones(ranks, dtype=np.int64))
    assert counts is not None
    copies = float(counts.to_rank[0].sum())
    return Traffic(copies, copies * (1 - nodes / ranks), float(counts.to_node[0].sum()) * (nodes - 1) / nodes)


def predicted_s(sweep: Sweep, costs: Costs, default_sms: int) -> Array:
    """Return float64[n], the times that collsim predicts; tests compare them with `collsim.moe.simulate_moe`."""
    link_Bps, gpu_sms = GPUS[sweep.gpu]
    model = Model("any", experts=sweep.experts, top_k=sweep.top_k, hidden=sweep.hidden,
                  dispatch=sweep.dtype, combine=sweep.dtype)  # fmt: skip
    token = model.token_bytes(sweep.op)
    each = {far: message_bytes(model, sweep.op, sweep.mode, over_network=far) for far in (False, True)}
    sms = sweep.sms or default_sms
    if sweep.mode == "low_latency":
        sms = ceil(sweep.experts / ceil(sweep.experts / gpu_sms))
    flow = traffic(sweep.mode, sweep.nodes, sweep.ranks, sweep.top_k, sweep.experts, balanced=sweep.balanced)
    far_bytes = flow.across * each[True]
    own_s = costs.token_s + token / costs.token_Bps + flow.copies * (costs.copy_s + token / costs.copy_Bps)
    busy_s = (own_s + costs.network_work * far_bytes / costs.copy_Bps) * (1 / sms + costs.crowding)
    link_s = flow.inside * each[False] / (link_Bps * costs.node_efficiency)
    copy_s = (link_s**SHARPNESS + busy_s**SHARPNESS) ** (1 / SHARPNESS)
    nic_s = far_bytes / (NIC_BPS * costs.network_efficiency)
    begin_s = costs.begin_s(token_bytes=token, experts=sweep.experts, ranks=sweep.ranks, nodes=sweep.nodes)
    ring_s = np.minimum(sweep.tokens / (sms / 2), costs.ring_tokens) / 2 * own_s
    return np.asarray(begin_s + ring_s + sweep.tokens * max(copy_s, nic_s))
