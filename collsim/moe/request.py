"""A request about experts, checked as a whole: every fault at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from collsim.core.errors import Fault, Faults, InputError
from collsim.core.units import format_count
from collsim.library import Profile, load_profile
from collsim.library.multiprocessors import multiprocessors_of
from collsim.moe.expert_placement import PLACEMENTS, Placement, placed
from collsim.moe.flows import FORWARDS, MODES
from collsim.moe.gating import Int, Popularity, balanced_choices, popularity_of, read_counts
from collsim.moe.kernel_costs import Kernel, kernel_for, load_kernel
from collsim.moe.models import Model, load_model, model_names
from collsim.moe.result import MoeRefusal
from collsim.simulation.request.prepare import Machine
from collsim.simulation.request.tolerance import parse_tolerance
from collsim.simulation.request.values import read_choice, read_name, read_whole
from collsim.topology import Topology

__all__ = ["PHASES", "Laws", "MoeRequest", "ask", "sm_faults"]

PHASES = {"prefill": (4096, "normal"), "decode": (128, "low_latency")}
"""Tokens of each rank and mode in the tests that come with DeepEP (tests/test_internode.py, test_low_latency.py)."""
MOST_SMS, MOST_TOKENS, MOST_RANKS, MOST_COPIES, MOST_SEEDS = 1024, 1 << 24, 1 << 20, 1 << 16, 10_000
USUAL_MODEL = "deepseek-v3"
"""Where no model is named and no figure says one of its own."""
OWN_MODEL = ("experts", "top_k", "hidden")
"""Figures that say a model without a name, all of them."""
ANY_MODEL = Model("any", experts=1, top_k=1, hidden=1)
"""Stand-in for a model that could not be read, so that the rest is checked as well."""


@dataclass(frozen=True, slots=True)
class Laws:
    """Laws of the popularity of experts, as of `collsim.moe.gating.popularity_of`; *counts* may be a file.

    *balanced*: no law at all, the experts of each token lie as far apart as they can, token after token.
    """

    skew: float | None = None
    sigma: float | None = None
    counts: Any = None
    balanced: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MoeRequest:
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
    profile: Profile | None
    """Of the library, in the mode ``all_to_all``."""
    laws: Laws
    """As given."""
    redundant: int
    forward: str
    """One of `collsim.moe.flows.FORWARDS`."""
    refused: tuple[MoeRefusal, ...] = ()
    """Numbers of ranks over which the experts do not spread."""

    def tokens_of(self, n_ranks: int) -> Int:
        """Return int64[n_ranks], the tokens of each rank."""
        if isinstance(self.tokens, int):
            return np.full(n_ranks, self.tokens, dtype=np.int64)
        return np.array(self.tokens, dtype=np.int64)


def ask(
    topo: Any,
    model: str | Model | None,
    *,
    laws: Laws,
    machine: Machine,
    figures: Mapping[str, Any],
    ep: int | Sequence[int] | None = None,
    tokens: int | Sequence[int] | None = None,
    mode: str | None = None,
    phase: str = "prefill",
    expert_placement: str = "contiguous",
    redundant: int = 0,
    kernel: str | Kernel = "auto",
    sms: int | None = None,
    seeds: Sequence[int] | None = None,
    tolerance: float | str | None = "auto",
    load_only: bool = False,
    forward: str = "direct",
    profile: str | Profile = "auto",
) -> MoeRequest:
    """Check a question as of `collsim.moe.simulate_moe`; *laws* are of the routing, *machine* changes the topology.

    *figures* are those of the model that are said. Without its name they say one of their own, if they have any of
    `OWN_MODEL`, which are then needed all.

    Raises
    ------
    InputError
        Every fault at once.
    """
    faults = Faults()
    ep, tokens, drawn = (_numbers(v, w, faults) for v, w in ((ep, "ep"), (tokens, "tokens"), (seeds, "seeds")))
    seeds = (drawn,) if isinstance(drawn, int) else drawn
    sms, redundant = _number(sms, "sms", faults), _number(redundant, "redundant", faults) or 0
    chosen = _model(model, figures, faults)
    topology = faults.attempt(machine.of, topo)
    phase = read_choice(phase, "phase", "phase", tuple(PHASES), faults)
    usual_tokens, usual_mode = PHASES.get(phase, PHASES["prefill"])
    mode = mode.replace("-", "_") if isinstance(mode, str) else mode
    mode = usual_mode if mode is None else read_choice(mode, "mode", "mode", MODES, faults)
    if load_only and mode == "all_to_all":
        hint = "leave it out: the library's calls are always simulated"
        faults.append(Fault("asked for in mode all_to_all", "load_only", hint))
    limit = faults.attempt(parse_tolerance, tolerance)
    each = usual_tokens if tokens is None else tokens
    faults += [*sm_faults(sms, topology), *_number_faults(each, seeds, redundant)]
    popularity = faults.attempt(_popularity, chosen, laws, max(seeds[0], 0) if seeds else 0)
    sizes, unfit = _sizes(ep, each, topology)
    kernels = faults.attempt(_kernel, kernel, mode, topology, max(sizes, default=None))
    constants = None
    if mode == "all_to_all" or profile != "auto":
        constants = faults.attempt(load_profile, profile, topology)
    faults += unfit
    weight, where = (popularity.weight, sizes) if chosen and popularity and sizes else (np.ones(1), [1])
    copies = min(redundant, MOST_COPIES)
    by = read_name(expert_placement, "expert_placement", "placement", PLACEMENTS, faults).replace("-", "_")
    by = by or PLACEMENTS[0]
    places, unplaced = _places(weight, where, by, copies, faults)
    forward = read_choice(forward, "forward", "forward", FORWARDS, faults)
    if forward == "rail" and kernels is not None and kernels.flow_mode(mode) != "low_latency":
        hint = "leave it out: --mode low-latency with kernels that do not relay has messages to forward"
        faults.append(Fault(f"kernels {kernels.name} in mode {mode} have a way of their own", "forward", hint))
    faults.raise_any()
    assert chosen is not None
    assert topology is not None
    assert popularity is not None
    assert kernels is not None
    return MoeRequest(
        topology, chosen, popularity, mode, kernels, sms or kernels.sms, each,
        places, None if seeds is None else tuple(seeds), limit, load_only,
        constants if mode == "all_to_all" else None,
        laws, redundant, forward, tuple(unplaced),
    )  # fmt: skip


def _places(
    weight: Any, sizes: Sequence[int], by: str, copies: int, faults: Faults
) -> tuple[list[Placement], list[MoeRefusal]]:
    """Return the placements, and the numbers of ranks that have none; if all have none, that is a fault of each."""
    found, refused, wrong = [], [], Faults()
    for n in sizes:
        own = Faults()
        place = own.attempt(placed, weight, n, by, redundant=copies)
        if place is None:
            refused += [MoeRefusal(n, fault.what, fault.hint) for fault in own]
            wrong += own
        else:
            found.append(place)
    if not found:
        faults += wrong
    return found, refused


def _model(name: str | Model | None, figures: Mapping[str, Any], faults: Faults) -> Model | None:
    """Return the model; figures are checked beside a name that nobody knows, too."""
    if name is None and all(figures.get(each) is None for each in OWN_MODEL):
        name = USUAL_MODEL
    if not isinstance(name, str | Model | None):
        faults.attempt(load_model, str(name))
        return None
    if isinstance(name, str) and name.strip().lower() not in model_names():
        usual = {"experts": MOST_RANKS * max(figures.get("groups") or 1, 1), "top_k": 1, "hidden": 1}
        given = {key: value for key, value in figures.items() if value is not None}
        faults.attempt(load_model, None, **{**usual, **given})
    inner = Faults()
    found = inner.attempt(load_model, name, **figures)
    faults += [replace(fault, where="expert_groups") if fault.where == "groups" else fault for fault in inner]
    return found


def _popularity(model: Model | None, laws: Laws, seed: int) -> Popularity:
    """Return the popularity of the experts; without a model, only raise what is wrong whatever the model."""
    counts = laws.counts
    faults: list[Fault] = []
    if isinstance(counts, str | Path):
        try:
            counts = read_counts(counts)
        except InputError as error:
            faults += [
                Fault(f"{fault.where}: {fault.what}" if fault.where else fault.what, "counts", fault.hint)
                for fault in error.faults
            ]
            counts = np.ones(0, dtype=np.int64)
    try:
        found = popularity_of(model or ANY_MODEL, skew=laws.skew, sigma=laws.sigma, counts=counts, seed=seed)
    except InputError as error:
        alien = model is None or bool(faults)
        faults += [fault for fault in error.faults if not (alien and fault.where == "counts")]
        found = popularity_of(ANY_MODEL)
    if laws.balanced:
        others = (("skew", laws.skew), ("sigma", laws.sigma), ("counts", laws.counts))
        taken = [name for name, value in others if value is not None]
        faults += [Fault(f"given with {name}", "balanced", "give one of them") for name in taken]
        found = balanced_choices(model or ANY_MODEL)
    if faults:
        raise InputError(*faults)
    return found


def _kernel(kernel: str | Kernel, mode: str, topology: Topology | None, ranks: int | None) -> Kernel:
    """Return the kernels, those of that name, or those for the GPU and so many ranks; they need costs for the mode."""
    if not isinstance(kernel, str | os.PathLike | Kernel):
        raise InputError(Fault(f"{kernel!r:.60} names no kernels", "kernel", 'pass a name, such as "deepep_v1"'))
    gpu = topology.labels.get("gpu.model", "") if topology is not None else ""
    cluster = topology.cluster if topology is not None else None
    over_nodes = cluster is not None and (ranks is None or ranks > cluster.node.n_gpus)
    network = cluster.spec.network if cluster is not None and over_nodes else ""
    name = kernel_for(gpu, mode, ranks, network) if kernel == "auto" else kernel
    found = name if isinstance(name, Kernel) else load_kernel(name)
    if mode in MODES and mode not in found.costs:
        hint = f"leave it out, or ask for --mode {next(iter(found.costs))}"
        raise InputError(Fault(f"{found.name} has no costs in mode {mode}", "kernel", hint))
    return found


def _numbers(value: Any, where: str, faults: list[Fault]) -> int | tuple[int, ...] | None:
    """Return a whole number, several of them, or None; those that are none are left out, with a fault each."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return _number(value, where, faults)
    read = [_number(each, where, faults) for each in value]
    return tuple(each for each in read if each is not None)


def _number(value: Any, where: str, faults: list[Fault]) -> int | None:
    """Return a whole number, or None; None with the fault added if it is neither."""
    before = len(faults)
    number = None if value is None else read_whole(value, where, where, "give a whole number, such as 8", faults)
    return number if len(faults) == before else None


def sm_faults(sms: int | None, topology: Topology | None) -> list[Fault]:
    """Return what is wrong with a number of SMs: more than the GPU has, where that is known."""
    model = "" if topology is None else topology.labels.get("gpu.model", "")
    known = multiprocessors_of(model)
    most = MOST_SMS if known is None else known.number
    if sms is None or 1 <= sms <= most:
        return []
    has = f", {model} has {most}" if known is not None and sms > most else ""
    return [Fault(f"{sms} SMs{has}", "sms", f"give 1 to {most}")]


def _number_faults(tokens: int | Sequence[int], seeds: Sequence[int] | None, redundant: int) -> list[Fault]:
    """Return the faults of numbers that can be judged by themselves."""
    faults = [
        Fault(f"{each} tokens", "tokens", f"give 0 to {MOST_TOKENS} for each rank")
        for each in dict.fromkeys([tokens] if isinstance(tokens, int) else tokens)
        if not 0 <= each <= MOST_TOKENS
    ]
    if redundant > MOST_COPIES:
        faults.append(Fault(f"{redundant} more copies", "redundant", f"give 0 to {MOST_COPIES}"))
    if seeds is not None and len(seeds) > MOST_SEEDS:
        faults.append(Fault(f"{len(seeds):,} seeds", "seeds", f"at most {MOST_SEEDS:,}"))
    elif seeds is not None and (not len(seeds) or min(seeds) < 0):
        faults.append(
            Fault("no seed" if not len(seeds) else f"a seed of {min(seeds)}", "seeds", "give 0 or more, such as 0-4")
        )
    return faults


def _sizes(
    ep: int | Sequence[int] | None, tokens: int | Sequence[int], topology: Topology | None
) -> tuple[list[int], list[Fault]]:
    """Return the numbers of ranks that are possible, and what is wrong with the others."""
    listed = None if isinstance(tokens, int) else len(tokens)
    most, name = (MOST_RANKS, "any machine") if topology is None else (topology.n_gpus, topology.name)
    if ep is None:
        sizes = [] if topology is None and listed is None else [listed or most]
    else:
        sizes = [ep] if isinstance(ep, int) else list(dict.fromkeys(ep))
    faults = [] if ep is None or sizes else [Fault("no number of ranks", "ep", "give one or more, such as 8,16")]
    for n in sizes:
        where = "tokens" if ep is None and listed else "ep"
        if n < 2:
            faults.append(Fault(f"{n} ranks exchange nothing", where, f"give 2 to {most}"))
        elif n > most:
            faults.append(
                Fault(f"{n} ranks, {name} has {format_count(most, 'GPU')}", where, f"add --nodes, or give 2 to {most}")
            )
        if listed is not None and n != listed:
            faults.append(Fault(f"tokens are given for {listed} ranks, not {n}", "tokens", f"give {n} numbers, or one"))
    return [n for n in sizes if 2 <= n <= most and n == (listed or n)], faults
