"""Types of what `collsim.simulate_moe` takes beside a topology, a model and ranks, for functions that pass it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collsim.library import Profile
from collsim.moe.kernel_costs import Kernel
from collsim.simulation.request.arguments import OfMachine

__all__ = ["Arguments"]


class Arguments(OfMachine, total=False):
    """The arguments of `collsim.simulate_moe`, each under its name; its docstring says what they mean."""

    tokens: int | Sequence[int] | None
    mode: str | None
    phase: str
    skew: float | None
    sigma: float | None
    counts: Any
    balanced: bool
    expert_placement: str
    redundant: int
    kernel: str | Kernel
    sms: int | None
    seeds: Sequence[int] | None
    tolerance: float | str | None
    load_only: bool
    forward: str
    profile: str | Profile
    nodes: int | None
    experts: int | None
    top_k: int | None
    hidden: int | None
    layers: int | None
    shared_experts: int | None
    expert_groups: int | None
    group_limit: int | None
    dispatch: str | None
    combine: str | None
