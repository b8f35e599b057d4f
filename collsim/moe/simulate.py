"""`simulate_moe`: a request about experts to its result, by flows and their time on the fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collsim._version import __version__
from collsim.core.errors import Fault, ModelError
from collsim.core.progress import INTERRUPTED, interrupted, keeps_done, steps
from collsim.fabric.fabric import Fabric, build_fabric
from collsim.fabric.routing import Routes, find_routes
from collsim.library import Profile, load_profile
from collsim.moe.counts import Counts, Members, counted, expected, pooled
from collsim.moe.expert_placement import Placement
from collsim.moe.flows import OPS, byte_matrix, copies_of, flows_of, logical_bytes
from collsim.moe.kernel_costs import Kernel
from collsim.moe.models import Model
from collsim.moe.request import Laws, MoeRequest, ask
from collsim.moe.result import Busy, MoeRefusal, MoeResult, MoeRow
from collsim.moe.timing import OpTime, Work, laid_on, load_of, time_flows
from collsim.simulation.idle_settings import idle_settings
from collsim.simulation.provenance import is_calibrated, topology_summary
from collsim.simulation.request.prepare import Machine
from collsim.simulation.request.tolerance import AUTO
from collsim.simulation.result import LinkLoad
from collsim.simulation.same_without import same_without
from collsim.simulation.what_ifs import unread_changes
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["answer", "simulate_moe"]

FEW_TOKENS = 1 << 20
"""Of at most so many tokens five samples are taken, of more one: a sample of a million takes some three seconds."""
SAMPLES = (0, 1, 2, 3, 4)
MOST_IN_MATRIX = 256
"""Of more ranks a result holds no byte matrix."""
MOST_SHOWN = 8
"""Links, GPUs and ranks that a row names."""

SATURATED = 0.5
"""A link that is busy for a smaller share of the time is not what limits an operation."""


def simulate_moe(
    topo: str | Path | Topology | nx.Graph[Any],
    model: str | Model | None = None,
    *,
    ep: int | Sequence[int] | None = None,
    tokens: int | Sequence[int] | None = None,
    mode: str | None = None,
    phase: str = "prefill",
    skew: float | None = None,
    sigma: float | None = None,
    counts: Any = None,
    balanced: bool = False,
    expert_placement: str = "contiguous",
    redundant: int = 0,
    kernel: str | Kernel = "auto",
    sms: int | None = None,
    seeds: Sequence[int] | None = None,
    tolerance: float | str | None = "auto",
    load_only: bool = False,
    forward: str = "direct",
    profile: str | Profile = "auto",
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    racks: int | None = None,
    fabric: str | None = None,
    network: str | None = None,
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
    experts: int | None = None,
    top_k: int | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    shared_experts: int | None = None,
    expert_groups: int | None = None,
    group_limit: int | None = None,
    dispatch: str | None = None,
    combine: str | None = None,
) -> MoeResult:
    """Predict how long dispatch and combine of a layer with experts take.

    Parameters
    ----------
    topo : str, path, Topology or networkx graph
        As of `collsim.simulate`.
    model : str, Model or None
        Name of a preset, whose figures ``experts`` to ``combine`` change. None: ``deepseek-v3``, or a model of your own
        if one of *experts*, *top_k* and *hidden* is given, which then are needed all.
    ep : int or sequence of int, optional
        Over how many ranks the experts are spread: the first so many GPUs. Default: all there are.
    tokens : int or sequence of int, optional
        Of each rank; a sequence has one entry per rank. Default: that of the phase.
    mode : {"normal", "low_latency", "all_to_all"}, optional
        Default: that of the phase.
    phase : {"prefill", "decode"}
        4,096 tokens in normal mode, or 128 in low-latency mode.
    skew, sigma, counts
        How popular experts are: `collsim.moe.gating.popularity_of`; *counts* may be a file. Default: all equally.
    balanced : bool
        Tokens take experts in turn, as far apart as there are: `collsim.moe.gating.balanced_choices`.
    expert_placement : {"contiguous", "round_robin", "balanced"}
        Which experts each rank holds: neighbours, dealt out in turn, or by popularity.
    redundant : int
        Copies of experts beyond one each.
    kernel : str or Kernel
        Whose costs count: ``auto`` takes those fitted for the GPU.
    sms : int, optional
        SMs that copy; by default as many as the kernel takes.
    seeds : sequence of int, optional
        One sample of the routing for each. Default: expected loads where they are known, else five samples, or one of
        more than a million tokens.
    tolerance : float or str, optional
        As of `collsim.simulate`.
    load_only : bool
        Take what the busiest link or GPU needs with expected loads as the time, without a simulation.
    forward : {"direct", "rail"}
        How low-latency messages leave a node: from the sender's adapter, or over the links of the node to the GPU on
        the target's rail and from there.
    profile : str or Profile
        Of the library, for the mode ``all_to_all``.
    nodes, gpus_per_node, racks, fabric, network, overrides, fail, degrade
        As of `collsim.simulate`.
    experts, top_k, hidden, layers, shared_experts, expert_groups, group_limit, dispatch, combine
        Figures of the model, as of `collsim.moe.models.Model`.

    Raises
    ------
    InputError
        Whatever is wrong with the request.
    ModelError
        Ranks cannot reach each other.

    Examples
    --------
    >>> result = simulate_moe("hgx_h100", ep=8, tokens=4096)
    >>> [row.op for row in result.rows]
    ['dispatch', 'combine']
    """
    figures = {
        "experts": experts, "top_k": top_k, "hidden": hidden, "layers": layers, "shared_experts": shared_experts,
        "groups": expert_groups, "group_limit": group_limit, "dispatch": dispatch, "combine": combine,
    }  # fmt: skip
    cluster = {
        "nodes": nodes, "gpus_per_node": gpus_per_node, "racks": racks, "fabric": fabric, "network": network
    }  # fmt: skip
    question = ask(
        topo, model, ep=ep, tokens=tokens, mode=mode, phase=phase,
        laws=Laws(skew, sigma, counts, balanced), expert_placement=expert_placement, redundant=redundant,
        kernel=kernel, sms=sms, seeds=seeds, tolerance=tolerance, load_only=load_only,
        forward=forward, profile=profile, machine=Machine(overrides, fail, degrade, cluster), figures=figures,
    )  # fmt: skip
    return answer(question)


def answer(question: MoeRequest, *, doubts: bool = True) -> MoeResult:
    """Return dispatch and combine for each number of ranks; those without an answer are in ``refused``.

    *doubts* asks again without the settings of which nothing but the times tells whether they matter.

    Raises
    ------
    ModelError
        No number of ranks has an answer: they cannot reach each other.
    """
    rows: list[MoeRow] = []
    refused: list[MoeRefusal] = []
    errors: list[ModelError] = []
    for place in question.placements:
        try:
            rows += _unless_interrupted(question, place)
        except ModelError as error:
            errors.append(error)
            refused += [MoeRefusal(place.n_ranks, fault.what, fault.hint) for fault in error.faults]
    if not rows and interrupted():
        raise KeyboardInterrupt
    if not rows:
        raise errors[0]
    found = _result(question, tuple(rows), (*question.refused, *refused))
    return replace(found, warnings=(*found.warnings, *_in_vain(question, found))) if doubts else found


def _in_vain(question: MoeRequest, found: MoeResult) -> tuple[str, ...]:
    """Return warnings of settings that change nothing: those that nothing here reads, and those without effect."""

    def times_of(other: Topology) -> list[float]:
        return [row.time_s for row in answer(replace(question, topology=other), doubts=False).rows]

    if not question.topology.settings:
        return ()
    idle = idle_settings(question.topology, (), found.warnings)
    times = [row.time_s for row in found.rows]
    return (*idle, *same_without(question.topology, times, times_of, told_before=(*found.warnings, *idle)))


def _unless_interrupted(question: MoeRequest, placement: Placement) -> list[MoeRow]:
    """Return dispatch and combine for one number of ranks; raise `ModelError` if it was interrupted."""
    try:
        if not interrupted():
            return _rows(question, placement)
    except KeyboardInterrupt:
        if not keeps_done():
            raise
    raise ModelError(Fault(INTERRUPTED, "", "ask for it again"))


def _rows(question: MoeRequest, placement: Placement) -> list[MoeRow]:
    """Return dispatch and combine for one number of ranks."""
    n = placement.n_ranks
    gpus = list(range(n))
    fabric = build_fabric(_smallest(question.topology, n), gpus, efficiency=False, latency=False, network_counts=False)
    members = Members.of(fabric.wiring.coordinates.node[fabric.rank_node])
    samples = list(_samples(question, placement, members))
    if question.mode == "all_to_all":
        from collsim.moe.library_calls import called

        time = called(question, gpus)
        return [_row(question, placement, fabric, op, [(seed, c, time(c, op)) for seed, c in samples]) for op in OPS]
    routes = find_routes(fabric)
    timed: dict[str, list[tuple[int | None, Counts, OpTime]]] = {op: [] for op in OPS}
    for op, (seed, c) in steps([(op, sample) for op in OPS for sample in samples], "sample"):
        timed[op].append((seed, c, _timed(question, fabric, routes, c, op)))
    return [_row(question, placement, fabric, op, timed[op]) for op in OPS]


def _smallest(topology: Topology, n_ranks: int) -> Topology:
    """Return the node of a cluster in order if the ranks are all on one, else the topology."""
    cluster = topology.cluster
    alone = cluster is not None and topology.damage is None and n_ranks <= cluster.node.n_gpus
    return cluster.node if alone and cluster is not None else topology


def _samples(question: MoeRequest, placement: Placement, members: Members) -> Iterator[tuple[int | None, Counts]]:
    """Return the counts of each sample with its seed, or the expected ones."""
    model, tokens = question.model, question.tokens_of(placement.n_ranks)
    if question.seeds is None and question.popularity.is_even:
        known = expected(model, placement, members, tokens)
        if known is not None:
            yield None, known
            return
    if question.seeds is None and (question.load_only or question.popularity.balanced):
        rng = np.random.default_rng([0, 3])
        yield None, pooled(model, question.popularity, placement, members, tokens=tokens, rng=rng)
        return
    usual = SAMPLES if tokens.sum() <= FEW_TOKENS else SAMPLES[:1]
    for seed in usual if question.seeds is None else question.seeds:
        rng = np.random.default_rng([seed, 2])
        yield seed, counted(model, question.popularity, placement, members, tokens=tokens, rng=rng)


def _timed(question: MoeRequest, fabric: Fabric, routes: Routes, counts: Counts, op: str) -> OpTime:
    """Return the time of one operation with one sample."""
    kernel, model, members = question.kernel, question.model, counts.members
    costs = kernel.costs[question.mode][op]
    begin_s = costs.begin_s(
        token_bytes=model.token_bytes(op), experts=model.experts, ranks=members.n_ranks, nodes=members.n_nodes
    )
    if question.forward == "rail" and members.n_nodes > 1:
        begin_s += model.token_bytes(op) / costs.start_Bps  # one more group of threads passes the first token on
    costs = replace(costs, start_s=begin_s)
    laid = laid_on(fabric, routes, flows_of(counts, model, op, kernel.flow_mode(question.mode), question.forward))
    share, work = kernel.share_of(question.sms), _work(question, counts, op) if costs.by_sm else None
    if question.load_only:
        return load_of(laid, costs, share=share, work=work)
    return time_flows(
        laid, costs, share=share, chunk_tokens=kernel.chunk_tokens, work=work, tolerance=question.tolerance
    )


def _work(question: MoeRequest, counts: Counts, op: str) -> Work:
    """Return what the SMs of each rank have to do."""
    kernel, mode = question.kernel, question.mode
    copies = copies_of(counts, kernel.flow_mode(mode), question.forward)
    out, into = copies if op == "dispatch" else reversed(copies)
    sms = kernel.busy_sms(mode, question.sms, question.model.experts)
    return Work(counts.tokens, out, into, question.model.token_bytes(op), sms)


def _row(
    question: MoeRequest, placement: Placement, fabric: Fabric, op: str,
    timed: Sequence[tuple[int | None, Counts, OpTime]],
) -> MoeRow:  # fmt: skip
    """Return the row of one operation: everything but the times is of the median sample."""
    order = sorted(range(len(timed)), key=lambda i: timed[i][2].time_s)
    seed, counts, time = timed[order[(len(order) - 1) // 2]]
    received = counts.pairs.sum(axis=0)
    load = received / received.mean() if received.any() else received
    names = [fabric.rank_name(rank) for rank in range(fabric.n_ranks)]
    model, mode = question.model, question.kernel.flow_mode(question.mode)
    matrix = byte_matrix(counts, model, op, mode) if fabric.n_ranks <= MOST_IN_MATRIX else np.zeros((0, 0), np.int64)
    busy = time.bottleneck or _busy(fabric, time)
    low_s, high_s = _interval(question, placement.n_ranks, time.time_s)
    return MoeRow(
        op=op,
        ranks=placement.n_ranks,
        node_sizes=tuple(np.bincount(counts.members.node).tolist()),
        experts=len(placement.expert),
        time_s=time.time_s,
        times_s=tuple(each.time_s for _, _, each in timed),
        time_lo_s=low_s,
        time_hi_s=high_s,
        prepare_s=_prepare_s(question, op, counts),
        load_s=time.load_s,
        lower_bound_s=time.bound_s,
        node_bytes=time.node_bytes / fabric.n_ranks,
        network_bytes=time.network_bytes / fabric.n_ranks,
        logical_bytes=float(logical_bytes(counts, model, op, mode).mean()),
        matrix_bytes=tuple(tuple(row) for row in matrix.tolist()),
        imbalance=float(load.max(initial=0.0)),
        hot=tuple(Busy(names[int(i)], float(load[i])) for i in np.argsort(-load, kind="stable")[:MOST_SHOWN]),
        bottleneck=busy[:MOST_SHOWN],
        limit_kind=_limit(fabric, time, busy),
        seed=seed,
        path=time.path,
        tolerance=time.tolerance,
    )


def _interval(question: MoeRequest, ranks: int, time_s: float) -> tuple[float | None, float | None]:
    """Return the least and the most that a measured time is expected to be; None where the library's costs count."""
    if question.profile is not None:
        return None, None
    factor, _ = question.kernel.within(*_where(question, ranks))
    return time_s / factor, time_s * factor


def _where(question: MoeRequest, ranks: int) -> tuple[str, str, int, Sequence[int]]:
    """Return mode, GPU, ranks, and the tokens of each or of all: what measured rows are compared with."""
    tokens = [question.tokens] if isinstance(question.tokens, int) else question.tokens
    return question.mode, question.topology.labels.get("gpu.model", ""), ranks, tokens


def _prepare_s(question: MoeRequest, op: str, counts: Counts) -> float:
    """Return the time of the step before the operation."""
    costs = question.kernel.costs.get(question.mode, {}).get(op)
    if costs is None:
        return 0.0
    return costs.before_s(tokens=float(counts.tokens.max(initial=0.0)), nodes=counts.members.n_nodes)


def _busy(fabric: Fabric, time: OpTime) -> tuple[LinkLoad, ...]:
    """Return links and GPUs by the part of the time that they are busy, busiest first."""
    if time.time_s <= 0:
        return ()
    links = time.link_busy_s / time.time_s
    n = fabric.n_ranks
    found = [LinkLoad(fabric.wiring.link_name(int(i)), float(links[i])) for i in np.argsort(-links)[:MOST_SHOWN]]
    for port in np.argsort(-time.port_load)[:MOST_SHOWN]:
        what = "sends" if port < n else "receives"
        found.append(LinkLoad(f"{fabric.rank_name(int(port) % n)} {what}", float(time.port_load[port])))
    return tuple(sorted((each for each in found if each.utilisation > 0), key=lambda each: -each.utilisation))


def _limit(fabric: Fabric, time: OpTime, busy: Sequence[LinkLoad]) -> str:
    """Return the main limit of the operation: library, start, GPU, network or node links."""
    if time.path.startswith("library"):
        return "library"
    if not busy or busy[0].utilisation < SATURATED:
        return "start"
    if busy[0].link.endswith((" sends", " receives")):
        return "GPU"
    link = fabric.wiring.link_names.index(busy[0].link)
    kinds = {fabric.wiring.node_kinds[int(end[link])] for end in (fabric.wiring.link_src, fabric.wiring.link_dst)}
    return "network" if "nic" in kinds or kinds == {"switch"} else "node links"


def _result(question: MoeRequest, rows: tuple[MoeRow, ...], refused: tuple[MoeRefusal, ...]) -> MoeResult:
    kernel, topology, profile = question.kernel, question.topology, question.profile
    told = kernel.told(topology.labels.get("gpu.model", "")) if question.mode in kernel.costs else None
    tokens = [question.tokens] if isinstance(question.tokens, int) else question.tokens
    far = kernel.outside(question.mode, [place.n_ranks for place in question.placements], tokens)
    warnings = [text for text in (told, far if profile is None else None) if text]
    if question.mode != "all_to_all":
        warnings += unread_changes(question.topology, "kernels with experts have constants of their own")
    sizes = [place.n_ranks for place in question.placements]
    calibrated = all(kernel.near(*_where(question, n)) for n in sizes)
    runs = {
        "name": kernel.name, "title": kernel.title, "source": kernel.source, "kind": kernel.kind,
        "fit": kernel.fit, "calibrated": calibrated,
    }  # fmt: skip
    if profile is None and question.mode in kernel.costs:
        reasons = {kernel.within(*_where(question, n)) for n in sizes}
        warnings += [f"intervals are as wide as a factor {f:.3g}: {why}" for f, why in sorted(reasons) if why]
    if profile is not None:
        runs = {
            "name": profile.name,
            "title": profile.title or profile.name,
            "source": f"{profile.describe(over_nodes=topology.cluster is not None)}; start of a call: {kernel.name}",
            "kind": "fitted" if is_calibrated(topology, profile) else "assumed",
            "fit": kernel.fit, "calibrated": is_calibrated(topology, profile),
        }  # fmt: skip
    if any(row.tolerance for row in rows):
        warnings.append("irregular traffic was solved within a tolerance: docs/irregular.md")
    if question.load_only:
        warnings.append("times are what the busiest link or GPU needs, without a simulation")
    return MoeResult(
        version=__version__,
        config={
            "mode": question.mode, "sms": None if profile is not None else question.sms,
            "tolerance": AUTO if question.tolerance is None else question.tolerance,
            "ep": [place.n_ranks for place in question.placements],
            "tokens": question.tokens if isinstance(question.tokens, int) else list(question.tokens),
            "skew": question.laws.skew, "sigma": question.laws.sigma, "balanced": question.laws.balanced,
            "redundant": question.redundant,
            "seeds": None if question.seeds is None else list(question.seeds), "load_only": question.load_only,
            "forward": question.forward,
            "overrides": dict(topology.settings),
            "fail": [] if topology.damage is None else list(topology.damage.fail),
            "degrade": {} if topology.damage is None else dict(topology.damage.degrade),
        },
        topology=topology_summary(topology, load_profile("ideal")),
        model=asdict(question.model),
        kernel=runs,
        routing=question.popularity.name,
        expert_placement=question.placements[0].name,
        rows=rows,
        refused=refused,
        warnings=tuple(warnings),
    )  # fmt: skip
