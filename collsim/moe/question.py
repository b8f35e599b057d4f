"""What is asked about experts, checked as a whole: every fault at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from collsim.errors import Fault, InputError, nearest
from collsim.moe.flows import MODES
from collsim.moe.kernels import Kernel, kernel_for, load_kernel
from collsim.moe.models import Model, load_model
from collsim.moe.placement import Placement, placed
from collsim.moe.routing import Int, Popularity, popularity_of, read_counts
from collsim.tolerance import parse_tolerance
from collsim.topology import Topology, load_topology

__all__ = ["PHASES", "Question", "ask"]

T = TypeVar("T")
PHASES = {"prefill": (4096, "normal"), "decode": (128, "low_latency")}
"""Tokens of each rank and mode in the tests that come with DeepEP (tests/test_internode.py, test_low_latency.py)."""
MOST_SMS, MOST_TOKENS = 1024, 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A checked question: *placements* has one for each number of ranks, *seeds* is None for expected loads."""

    topology: Topology
    model: Model
    popularity: Popularity
    mode: str
    kernel: Kernel
    sms: int
    tokens: int | Sequence[int]
    placements: Sequence[Placement]
    seeds: tuple[int, ...] | None
    tolerance: float | None
    load_only: bool

    def tokens_of(self, n_ranks: int) -> Int:
        """Return int64[n_ranks], the tokens of each rank."""
        if isinstance(self.tokens, int):
            return np.full(n_ranks, self.tokens, dtype=np.int64)
        return np.array(self.tokens, dtype=np.int64)


def ask(
    topo: Any,
    model: str | Model | None,
    *,
    ep: int | Sequence[int] | None,
    tokens: int | Sequence[int] | None,
    mode: str | None,
    phase: str,
    laws: Mapping[str, Any],
    placement: str,
    redundant: int,
    kernel: str | Kernel,
    sms: int | None,
    seeds: Sequence[int] | None,
    tolerance: float | str | None,
    load_only: bool,
    machine: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> Question:
    """Check a question as of `collsim.moe.simulate_moe`; *laws* are of the routing, *machine* changes the topology.

    Raises
    ------
    InputError
        Every fault at once.
    """
    faults: list[Fault] = []

    def attempt(get: Callable[[], T]) -> T | None:
        try:
            return get()
        except InputError as error:
            faults.extend(error.faults)
            return None

    chosen = model if isinstance(model, Model) else attempt(lambda: load_model(model, **figures))
    topology = attempt(lambda: _topology(topo, **machine))
    if phase not in PHASES:
        faults.append(Fault(f'"{phase}" is no phase', "phase", f"choose one of {', '.join(PHASES)}"))
    usual_tokens, usual_mode = PHASES.get(phase, PHASES["prefill"])
    mode = usual_mode if mode is None else mode.replace("-", "_")
    if mode not in MODES:
        near = nearest(mode, MODES)
        hint = (f"did you mean {near}? " if near else "") + f"known: {', '.join(MODES)}"
        faults.append(Fault(f'"{mode}" is no mode', "mode", hint))
    limit = attempt(lambda: parse_tolerance(tolerance))
    each = usual_tokens if tokens is None else tokens
    faults += _number_faults(each, sms, seeds)
    counts = laws.get("counts")
    table = attempt(lambda: read_counts(counts)) if isinstance(counts, str | Path) else counts
    seed = seeds[0] if seeds else 0
    popularity = attempt(lambda: popularity_of(chosen, **{**laws, "counts": table}, seed=seed)) if chosen else None
    kernels = attempt(lambda: _kernel(kernel, mode, topology)) if topology is not None and mode in MODES else None
    sizes = attempt(lambda: _sizes(ep, each, topology)) if topology is not None else None
    places: list[Placement] = []
    if popularity is not None and sizes:
        found = [attempt(lambda n=n: placed(popularity.weight, n, placement, redundant=redundant)) for n in sizes]  # type: ignore[misc]
        places = [place for place in found if place is not None]
    if faults:
        raise InputError(*dict.fromkeys(faults))
    assert chosen is not None
    assert topology is not None
    assert popularity is not None
    assert kernels is not None
    return Question(
        topology, chosen, popularity, mode, kernels, sms or kernels.sms, each, places,
        None if seeds is None else tuple(seeds), limit, load_only,
    )  # fmt: skip


def _topology(topo: Any, overrides: Any = None, fail: Any = None, degrade: Any = None) -> Topology:
    topology = load_topology(topo, overrides or ())
    if fail or degrade:
        from collsim.topology.failing import damaged

        topology = damaged(topology, fail, degrade)
    return topology


def _kernel(kernel: str | Kernel, mode: str, topology: Topology) -> Kernel:
    """Return the kernels, those of that name, or those for the GPU; they need costs for the mode."""
    name = kernel_for(topology.labels.get("gpu.model", ""), mode) if kernel == "auto" else kernel
    found = name if isinstance(name, Kernel) else load_kernel(name)
    if mode != "all_to_all" and mode not in found.costs:
        hint = f"leave it out, or ask for --mode {next(iter(found.costs))}"
        raise InputError(Fault(f"{found.name} has no costs in mode {mode}", "kernel", hint))
    return found


def _number_faults(tokens: int | Sequence[int], sms: int | None, seeds: Sequence[int] | None) -> list[Fault]:
    """Return what is wrong with numbers that need nothing else to be judged."""
    faults = [
        Fault(f"{each} tokens", "tokens", f"give 0 to {MOST_TOKENS} for each rank")
        for each in dict.fromkeys([tokens] if isinstance(tokens, int) else tokens)
        if not 0 <= each <= MOST_TOKENS
    ]
    if sms is not None and not 1 <= sms <= MOST_SMS:
        faults.append(Fault(f"{sms} SMs", "sms", f"give 1 to {MOST_SMS}"))
    if seeds is not None and (not len(seeds) or min(seeds) < 0):
        faults.append(
            Fault("no seed" if not len(seeds) else f"a seed of {min(seeds)}", "seeds", "give 0 or more, such as 0-4")
        )
    return faults


def _sizes(ep: int | Sequence[int] | None, tokens: int | Sequence[int], topology: Topology) -> list[int]:
    """Return the numbers of ranks."""
    listed = None if isinstance(tokens, int) else len(tokens)
    sizes = [listed or topology.n_gpus] if ep is None else [ep] if isinstance(ep, int) else list(ep)
    faults = []
    for n in dict.fromkeys(sizes):
        if not 2 <= n <= topology.n_gpus:
            what = f"{n} ranks, {topology.name} has {topology.n_gpus} GPUs"
            hint = "add --nodes, or " * (n > topology.n_gpus) + f"give 2 to {topology.n_gpus}"
            faults.append(Fault(what, "ep", hint))
        elif listed is not None and n != listed:
            faults.append(Fault(f"tokens are given for {listed} ranks, not {n}", "tokens", f"give {n} numbers, or one"))
    if faults:
        raise InputError(*faults)
    return sizes
