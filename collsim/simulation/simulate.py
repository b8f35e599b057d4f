"""The only conductor: topology + operation + size -> Result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collsim._version import __version__
from collsim.collectives import algorithm
from collsim.core.errors import Fault, InputError
from collsim.core.operations import BLOCK_GRAIN_BYTES, operation
from collsim.core.progress import interrupted
from collsim.library import Profile, load_library, load_profile
from collsim.library.costs.hosts import as_hosted, host_words
from collsim.library.costs.profile_files import AUTO
from collsim.schedule import Schedule
from collsim.simulation.before_after import beside, library_effects
from collsim.simulation.concurrent import Party
from collsim.simulation.draws import refuse_unhashed
from collsim.simulation.idle_settings import idle_settings
from collsim.simulation.parties import answerable, free_share_of
from collsim.simulation.plans import Told
from collsim.simulation.provenance import (
    achievable,
    approximations,
    beyond_library,
    config_of,
    disturbances,
    equal_draws,
    exchanges_as_fitted,
    is_calibrated,
    lacking,
    left_to_others,
    left_to_plugin,
    roundings,
    set_by_cloud,
    topology_summary,
    uncalibrated,
    unnamed_library,
    waits_for_host,
    warnings_of,
)
from collsim.simulation.request.fields import Request
from collsim.simulation.request.prepare import Prepared, prepare
from collsim.simulation.request.request import CHOICES
from collsim.simulation.result import Result, Row
from collsim.simulation.rows import tables_of
from collsim.simulation.runs import prepare as run_of
from collsim.simulation.same_without import same_without
from collsim.simulation.selection import built, no_sharp, request_of
from collsim.simulation.settled import (
    as_called,
    judged_by,
    peer_levels,
    peers_in_words,
    reachable,
    why_not,
    with_errors,
    with_library,
)
from collsim.simulation.what_ifs import effects_of_changes, idle_variables
from collsim.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

    from collsim.simulation.quotient.scaled import Scaled

__all__ = ["AsIf", "build_schedule", "contested", "predict", "simulate"]

AsIf = Callable[[Topology, Profile], tuple[Topology, Profile]]
"""Changes of a settled machine and of its constants."""

MOST_WRITTEN = {"pairs": 128, "ranks": 512, None: 512}
"""Ranks of a schedule that is written out, by what its transfers grow with (chosen): NCCL's all-to-all of 1 GiB on 512
made a file of 900 MB."""


def simulate(
    topo: str | Path | Topology | nx.Graph[Any],
    op: str | Sequence[str],
    size: int | str | Sequence[int | str] | None = None,
    *,
    min_bytes: int | str | None = None,
    max_bytes: int | str | None = None,
    step_bytes: int | str | None = None,
    step_factor: float | str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    racks: int | None = None,
    fabric: str | None = None,
    network: str | None = None,
    ranks: int | Sequence[int] | None = None,
    rank_list: Sequence[int] | None = None,
    algo: str | Sequence[str] = "auto",
    channels: int | None = None,
    chunk: int | str | None = None,
    dtype: str = "float",
    redop: str = "sum",
    root: int = 0,
    profile: str | Profile = "auto",
    proto: str | None = None,
    library: str | None = None,
    environment: Mapping[str, str] | None = None,
    launch: str = "stream",
    registered: bool | str = False,
    reduce: bool = True,
    tolerance: float | str | None = "auto",
    bracket: bool = False,
    gpus_per_thread: int = 1,
    one_process: bool = False,
    host: str = "auto",
    split: str | None = None,
    groups: Any = None,
    over: str | None = None,
    placement: str | Path | None = None,
    load: str | Sequence[str] = (),
    hash_seeds: str | Sequence[int] | None = None,
    overrides: Mapping[str, str] | Sequence[str] | None = None,
    matrix: Any = None,
    fail: str | Sequence[str] | None = None,
    degrade: Mapping[str, str | float] | Sequence[str] | None = None,
) -> Result:
    """Predict how long collectives take.

    Parameters
    ----------
    topo : str, path, Topology or networkx graph
        Name in the zoo, topology file, or the thing itself. Every edge of a graph has ``bandwidth_Bps``, bytes/s in one
        direction, and ``latency_s``; it may have ``efficiency`` (1) and ``count`` (1, parallel links). A node is a GPU
        unless ``kind`` is ``switch``, ``nic`` or ``cpu``, and may have ``rank`` and ``latency_s``.
    op : str or sequence of str
        Operation, such as ``all_reduce`` or ``alltoall``.
    size : int, str or sequence of them, optional
        The size column of nccl-tests: bytes, or text such as ``64M``. Default: 1 MiB to 1 GiB by factors of two.
        The matrix decides for ``all_to_all_v``.
    min_bytes, max_bytes, step_bytes, step_factor : int, float or str, optional
        A range of sizes instead, as ``-b``, ``-e``, ``-i`` and ``-f`` of nccl-tests say it.
    nodes : int, optional
        Make a cluster of so many: each is one of *topo*.
    gpus_per_node : int, optional
        The first so many GPUs of each node take part.
    racks : int, optional
        Over how many racks with leaf switches of their own the nodes are dealt.
    fabric : str, optional
        Switches between nodes: ``rail``, ``rail_only``, ``fat_tree``, ``dragonfly`` or ``single_switch``.
    network : str, optional
        ``infiniband``, ``spectrum_x``, ``roce``, ``ultra_ethernet``, ``efa`` or ``slingshot``; by default that of the
        adapters.
    ranks : int or sequence of int, optional
        How many ranks: the first so many GPUs. Several numbers are several runs.
    rank_list : sequence of int, optional
        Use exactly these GPUs, in this order.
    algo : str or sequence of str
        A name; ``auto``: what the library would choose, as ``best`` if none is known; ``best``: the fastest in the
        simulator of what the library could run and of all algorithms with any protocol; ``all``: one row for each
        algorithm, with the fastest of its protocols. Of several, those that cannot run are in ``refused``.
    channels : int, optional
        Channels (CTAs) that share the work; by default as many as the library of the profile has, or else suit the
        fabric. ``best`` and ``all`` try no others, although more may be faster.
    chunk : int or str, optional
        Largest chunk of a channel.
    dtype, redop, root
        As in nccl-tests.
    profile : str or Profile
        ``auto``: calibrated for the topology or for its nearest relative, else ``default``; a name, such as ``ideal``;
        a file.
    proto : str, optional
        ``LL``, ``LL128`` or ``Simple``; by default what the library takes, the fastest with ``best`` and ``all``, and
        Simple with a name.
    library : str, optional
        ``auto`` then follows the choice of this library, such as ``nccl-2.28`` or ``rccl-2.28``; by default that of
        the profile.
    environment : mapping, optional
        Variables that change its choice: ``{"NCCL_ALGO": "Ring"}``.
    launch : str
        ``stream``, or ``graph`` for calls that a captured graph replays.
    registered : bool or str
        Whether the user registered the buffers with the library (``-R 1`` of the tests); ``symmetric``: as windows that
        all ranks have at the same place (``-R 2``).
    reduce : bool
        Whether to look for transfers that have to behave alike and to simulate them as one: same times, less work.
    tolerance : float or str, optional
        How far the end of a transfer may be moved, as a part of the time that it takes, so that irregular traffic takes
        less work: ``0`` is exact, ``1%`` usual; ``auto`` is exact unless that takes much longer than ten seconds, and
        1 % then (docs/irregular.md).
    bracket : bool
        Whether a time within a tolerance comes with one from below, the load of the busiest link, and one from above.
    gpus_per_thread : int
        How many GPUs each host thread starts work on, one after the other (``-g`` of the tests).
    one_process : bool
        Whether all ranks are threads of one process (``-t`` or ``-g`` of the tests alone).
    host : str
        Kind of host that starts the calls, ``bare`` or ``virtual``, or the time that a call takes at least because of
        it, such as ``8 us``; ``auto``: bare, or the host of a profile of your own logs.
    split : str, optional
        Groups as nccl-tests makes them, all running at once: ``MOD 8``, ``DIV 8``, ``AND 0x7``, ``OR 0x7``, or a
        hexadecimal mask.
    groups : str, mapping or sequence of sequences of int, optional
        Groups by a layout, such as ``tp=8,dp=16`` (the first dimension varies fastest), or rank by rank.
    over : str, optional
        Which dimensions of the layout communicate; by default the first.
    placement : str or path, optional
        Which GPU each rank runs on: ``block``, ``cyclic``, a host file, or ``slurm:topology.conf:tux[0-3]``.
    load : str or sequence of str, optional
        Background traffic: ``link:gpu0->nvsw0=30%``.
    hash_seeds : str or sequence of int, optional
        Repeat every run with these seeds of the hash of a network with ECMP, such as ``1-100``: rows are of the median
        draw, with the times of all in ``draw_times_s``.
    overrides : mapping or sequence of str, optional
        Figures of the topology to change: ``{"link.bandwidth": "80 GB/s"}`` or ``["link.bandwidth=80 GB/s"]``.
    matrix : int array of shape (n, n), str or path, optional
        Bytes from row to column, for ``all_to_all_v``.
    fail : str or sequence of str, optional
        What has failed: ``link:gpu0-gpu1``, ``switch:nvsw2``, ``gpu:gpu5``, ... (docs/failures.md).
    degrade : mapping or sequence of str, optional
        What runs at part of its rate: ``{"link:gpu0-gpu1": "50%"}``.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        Whatever is wrong with the request, all of it at once.
    ModelError
        Ranks cannot reach each other, or the schedule deadlocks.

    Examples
    --------
    >>> result = simulate("hgx_h100", "all_to_all", "1G", profile="ideal")
    >>> round(result.busbw_Bps / 1e9, 3)
    450.0
    >>> simulate("hgx_h100", "all_reduce", "64M", nodes=4, fabric="rail", network="infiniband").rows[0].ranks
    32
    """
    asked = locals()  # the parameters, each under its name
    return predict(*prepare(**asked))


def predict(
    topology: Topology,
    constants: Profile,
    question: Request,
    groups: Sequence[Sequence[int]],
    *,
    as_if: AsIf | None = None,
    doubts: bool = True,
    compares: bool = True,
    traced: bool = False,
) -> Result:
    """Answer a checked question: simulate every run, operation and size; *groups* holds the GPUs of each run.

    *as_if* returns the machine and the constants that are simulated instead of those at which everything else was
    settled, such as without latencies; rows then have their `loads`. *doubts* asks again without the settings of which
    nothing but the times tells whether they matter. *compares*: rows of a machine on which something failed have the
    one in order beside them. *traced*: rows have every transfer of all groups in their loads,
    where no contest decides what runs; the question does not let transfers stand for others (*reduce*).

    Raises
    ------
    InputError
        Every size rounds down to zero bytes.
    ModelError
        Ranks cannot reach each other, or a schedule deadlocks.
    """
    asked = Prepared(topology, constants, question, [list(group) for group in groups])
    topology, constants = reachable(topology, constants, groups, loaded=bool(question.load))
    if question.hash_seeds:
        refuse_unhashed(topology)
    plain = asked._replace(topology=topology, constants=constants)
    config = config_of(topology, constants, groups, question)
    question, left_out = with_library(topology, constants, question)
    constants = as_called(topology, constants, question)
    shipped, constants = constants, as_hosted(constants, question.host, question.library)
    traced = traced and not contested(question)
    told = Told(left_out, keeps_loads=traced or as_if is not None, traced=traced)
    judged = judged_by(topology, groups, question)
    launched = constants.launched(question.launch, registered=bool(question.registered))
    as_fitted = exchanges_as_fitted(constants, peer_levels(topology, constants, groups, question))
    sure = with_errors(launched, constants, judged) if as_fitted else replace(launched, accuracy={})
    simulated = (topology, sure) if as_if is None else as_if(topology, sure)
    groups, parties, healthy = answerable(*simulated, question, groups, told, compares=compares)
    rows, skipped = _rows(parties, healthy, question, told)
    read = warnings_of(judged, constants, question, as_fitted=as_fitted)
    effects = effects_of_changes(topology, constants, parties[0].runs[0])
    warnings = (
        *read,
        *effects,
        *(idle := idle_settings(topology, rows, effects)),
        *(_in_vain(asked, rows, (*effects, *idle)) if doubts and as_if is None else ()),
        *(() if question.of_log else idle_variables([run for party in parties for run in party.runs], question, read)),
        *_warnings_of_parties(parties, groups, question),
        *approximations(question, rows),
        *_of_library(plain, launched, rows),
        *lacking(launched, rows),
        *uncalibrated(topology, rows),
        *beyond_library(rows, told.of_library, question),
        *left_to_others(topology, question, rows),
        *left_to_plugin(told.by_plugin, rows),
        *set_by_cloud(topology, question, rows),
        *roundings(skipped),
        *left_out,
    )
    return Result(
        version=__version__,
        config=config,
        topology=topology_summary(
            topology,
            constants,
            library_effects([party.runs[0] for party in parties], question),
            peers_in_words(topology, constants, groups, question),
        ),
        profile={
            "name": constants.name,
            "sha256": constants.sha256,
            "calibrated": as_fitted and is_calibrated(judged, constants),
            "constants": launched.describe(over_nodes=judged.cluster is not None)
            + achievable(parties[0].runs[0].fabric, free_share_of(parties[0].runs[0].topology, question)),
            "derived": constants.derived or None,
            "host": _host(shipped, question, rows),
            "library": None if question.library is None else question.library.name,
        },
        rows=tuple(rows),
        warnings=warnings,
        skipped=tuple(skipped),
        refused=tuple(told.refused),
    )


def _of_library(plain: Prepared, launched: Profile, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return that the library of the profile, if it runs here and nobody named one, would run the rows otherwise."""
    topology, constants, question, _ = plain
    if question.library is not None or not constants.library or not set(question.algo).isdisjoint(CHOICES):
        return ()
    library = load_library(constants.library)
    if why_not(library, topology):
        return ()
    named = replace(question, library=library)
    hosted = as_hosted(as_called(topology, constants, named), question.host, library)
    there = hosted.launched(question.launch, registered=bool(question.registered))
    return unnamed_library(launched, there, library, rows)


def _in_vain(asked: Prepared, rows: Sequence[Row], told_before: Sequence[str]) -> tuple[str, ...]:
    """Return warnings of settings without which all takes as long.

    Measured logs set none to try, and draws of hashes take their time once.
    """
    topology, constants, question, groups = asked
    if question.of_log or question.hash_seeds or not topology.settings:
        return ()

    def times(found: Sequence[Row]) -> list[tuple[str, float]]:
        return [(row.label, row.time_s) for row in found]

    def times_of(other: Topology) -> list[tuple[str, float]]:
        of_other = load_profile(AUTO, other) if constants.source == AUTO else constants
        return times(predict(other, of_other, question, groups, doubts=False).rows)

    return same_without(
        topology, times(rows), times_of, told_before=told_before, environment=question.environment,
        ops=[op.name for op in question.ops],
    )  # fmt: skip


def _host(shipped: Profile, question: Request, rows: Sequence[Row]) -> str | None:
    """Return what was assumed of the host, where it decides much of some time."""
    return host_words(shipped, question.host, question.launch) or None if any(map(waits_for_host, rows)) else None


def _rows(
    parties: Sequence[Party | Scaled],
    healthy: Sequence[Party | Scaled | None],
    question: Request,
    told: Told,
) -> tuple[list[Row], list[Row]]:
    """Return the rows of all runs, and those of sizes of which nothing remains; raise if no other row is left."""
    rows: list[Row] = []
    skipped: list[Row] = []
    for party, before in zip(parties, healthy, strict=True):
        tables = _tables(party, question, told)
        answered = any(each for named in tables for each in named)  # else there is nothing to compare with
        others = tables if before is None or not answered else _tables(before, question, Told())
        for named, other in zip(tables, others, strict=True):
            table = [row for each in named for row in each] if before is None else beside(named, other)
            (skipped if table and table[0].size_bytes == 0 else rows).extend(table)
    if not rows:
        if interrupted():
            raise KeyboardInterrupt
        told.raise_errors()
        smallest = max(
            BLOCK_GRAIN_BYTES * row.ranks if operation(row.op).blocked else question.element_bytes for row in skipped
        )
        raise InputError(
            Fault("every size rounds down to zero bytes", "size", f"the smallest that works is {smallest}")
        )
    return rows, skipped


def _warnings_of_parties(
    parties: Sequence[Party | Scaled], groups: Sequence[Sequence[int]], question: Request
) -> tuple[str, ...]:
    """Return warnings about the groups: links that they share, draws that are all the same, SHARP that is off."""
    told = disturbances(question, shared=any(party.shares_links for party in parties))
    if question.hash_seeds:
        told += equal_draws(len(group) for group, party in zip(groups, parties, strict=True) if not party.meets_hash)
    off = dict.fromkeys(filter(None, (no_sharp(run, question) for party in parties for run in party.runs)))
    return (*told, *(f"SHARP is off: {why}" for why in off))


def _tables(party: Party | Scaled, question: Request, told: Told) -> list[list[list[Row]]]:
    """Return the rows of every operation and size, for each algorithm or choice that was asked for."""
    if isinstance(party, Party):
        return tables_of(party, question, told)
    return party.tables(question, told)


def contested(question: Request) -> bool:
    """Return True if what runs is the fastest of several in the simulator."""
    return any(name in CHOICES and not (name == "auto" and question.library) for name in question.algo)


def build_schedule(
    topology: Topology, constants: Profile, question: Request, groups: Sequence[Sequence[int]]
) -> Schedule:
    """Return the schedule of a question that asks for one operation, algorithm, size and group.

    Raises
    ------
    InputError
        The question asks for more than one, leaves the algorithm open, or is of more ranks than can be written out.
    """
    op, named = question.ops[0], [name for name in question.algo if name not in CHOICES]
    several = {
        "op": question.ops[1:],
        "size": question.sizes_of(op)[1:],
        "ranks": groups[1:],
        "algo": [] if len(named) == len(question.algo) == 1 else question.algo,
    }
    hint = "a schedule has one operation, size, group of ranks and named algorithm"
    faults = [Fault(f"{name} does not name exactly one", name, hint) for name, rest in several.items() if rest]
    growth = algorithm(op.name, named[0]).growth if named else None
    if len(groups[0]) > MOST_WRITTEN[growth]:
        what = f"the schedule of {len(groups[0]):,} ranks is too long to write out"
        few = f"ask for at most {MOST_WRITTEN[growth]} ranks: more do the same in more steps"
        faults.append(Fault(what, "ranks", f"{few}; collsim run predicts how long they take"))
    if faults:
        raise InputError(*faults)
    topology, constants = reachable(topology, constants, groups)
    run = run_of(topology, constants, groups[0])
    return built(algorithm(op.name, named[0]), request_of(op, question.sizes_of(op)[0], run, question), question)
