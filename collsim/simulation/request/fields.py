"""The fields of a request: one row of `FIELDS` says all there is to know of a field, and `Request` holds it checked.

A field is a parameter of `collsim.simulate`, a flag of ``collsim run`` and, if it has a *key*, part of the
configuration that a result records. To add one: a row here with its attribute of `Request`, the parameter of
`simulate`, and the place where it matters. The command line reads this table whatever it is asked, so nothing heavy is
imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collsim.simulation.request.field_kinds import (
    BYTES,
    COUNT,
    MAYBE_COUNT,
    MAYBE_TEXT,
    PAIRS,
    TEXT,
    TEXTS,
    TRUTH,
    RequestField,
)

if TYPE_CHECKING:
    from collsim.core.operations import Operation
    from collsim.fabric.fabric import Int
    from collsim.library import Library
    from collsim.simulation.request.groups import Grouping
    from collsim.simulation.request.loads import Load

__all__ = ["BOUNDS", "BY_NAME", "FIELDS", "SCALE_OUT", "Request", "RequestField"]


FIELDS: tuple[RequestField, ...] = (
    RequestField(
        "topo",
        help="Topology: a name that `collsim topo list` prints, or a YAML file.",
        kind="topo",
        metavar="NAME|FILE",
        complete="zoo",
        wanted="the name or the file of a topology",
        schema={**TEXT, "minLength": 1, "description": "name or file of the topology"},
    ),
    RequestField(
        "op",
        help="Collective: all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_v, broadcast, reduce, gather, "
        "scatter or send_recv; the spellings of nccl-tests work too.",
        kind="words",
        attribute="ops",
        metavar="OP[,OP...]",
        complete="operations",
        wanted="a list of operations",
        schema={"type": "array", "items": {"$ref": "#/$defs/op"}, "description": "operations", "minItems": 1},
    ),
    RequestField(
        "size",
        help="Exactly these sizes.  [default: 1M to 1G, factor 2]",
        kind="sizes",
        attribute="sizes",
        metavar="SIZE[,SIZE...]",
        wanted="a list of sizes",
        schema={
            "type": ["array", "null"],
            "items": COUNT,
            "description": "requested sizes, bytes; null if the matrix decides",
        },
    ),
    RequestField(
        "min_bytes",
        help="Smallest size.  [default: 1M]",
        kind="bound",
        flags=("-b", "--min-bytes", "--minbytes"),
        metavar="SIZE",
        key=None,
    ),
    RequestField(
        "max_bytes",
        help="Largest size.  [default: 1G]",
        kind="bound",
        flags=("-e", "--max-bytes", "--maxbytes"),
        metavar="SIZE",
        key=None,
    ),
    RequestField(
        "step_bytes",
        help="Step between sizes.  [default: 1M]",
        kind="bound",
        flags=("-i", "--step-bytes", "--stepbytes"),
        metavar="SIZE",
        key=None,
    ),
    RequestField(
        "step_factor",
        help="Factor between sizes, instead of a step.",
        kind="bound",
        flags=("-f", "--step-factor", "--stepfactor"),
        metavar="X",
        key=None,
    ),
    RequestField("nodes", help="Build a cluster of N such nodes.", kind="scale_out", metavar="N", key=None),
    RequestField(
        "gpus_per_node",
        help="Use the first G GPUs of each node.  [default: all]",
        kind="scale_out",
        metavar="G",
        key=None,
    ),
    RequestField(
        "racks",
        help="Deal the nodes to R racks with leaf switches of their own.  [default: as ports allow]",
        kind="scale_out",
        metavar="R",
        key=None,
    ),
    RequestField(
        "fabric",
        help="Switches between nodes: rail, rail_only, fat_tree, dragonfly or single_switch.  [default: rail]",
        kind="scale_out",
        metavar="NAME",
        complete="fabrics",
        key=None,
    ),
    RequestField(
        "network",
        help="infiniband, spectrum_x, roce, ultra_ethernet, efa, slingshot, tcpxo or tcpx.  [default: the adapter's]",
        kind="scale_out",
        metavar="NAME",
        complete="networks",
        key=None,
    ),
    RequestField(
        "ranks",
        help="Use the first N GPUs.  [default: all]",
        kind="rank_lists",
        metavar="N[,N...]",
        key="rank_lists",
        wanted="a list of lists of GPUs, which may be several only if each starts 0, 1, 2",
        schema={
            "type": ["array", "null"],
            "items": {**BYTES, "description": "GPUs of one run, in rank order", "minItems": 2},
            "description": "GPUs of each run; null: all",
            "minItems": 1,
        },
    ),
    RequestField(
        "rank_list",
        help="Use exactly these GPUs, in this order, such as 0,3,5-7.",
        kind="rank_lists",
        metavar="LIST",
        key="rank_lists",
    ),
    RequestField(
        "algo",
        "auto",
        help="Algorithm, such as ring; auto: the library's choice; best: the fastest with any protocol, on the "
        "library's channels; all: a row for each that there is.",
        kind="words",
        metavar="NAME[,NAME...]",
        complete="algorithms",
        wanted="a list of algorithms",
        schema={**TEXTS, "description": "names of algorithms, or auto, best, all", "minItems": 1},
    ),
    RequestField(
        "channels",
        help="Channels (CTAs) that share the work; more than the library has may be faster.  [default: the library's]",
        kind="number",
        check="checks:channels",
        metavar="N",
        wanted="a whole number",
        schema={**MAYBE_COUNT, "description": "channels; null: as many as the library has, or else suit the fabric"},
    ),
    RequestField(
        "chunk",
        help="Largest chunk of a channel.  [default: the algorithm's]",
        kind="size",
        check="checks:chunk",
        attribute="chunk_bytes",
        metavar="SIZE",
        key="chunk_bytes",
        wanted="a whole number",
        schema={**MAYBE_COUNT, "description": "largest chunk of a channel, bytes; null: the algorithm's"},
    ),
    RequestField(
        "dtype",
        "float",
        help="Data type: float, double, half, bfloat16, f8e4m3, f8e5m2, int8, int32, int64, uint8, uint32 or uint64.",
        flags=("-d", "--dtype", "--datatype"),
        metavar="TYPE",
        complete="dtypes",
        wanted="a data type",
        schema={"$ref": "#/$defs/dtype"},
    ),
    RequestField(
        "redop",
        "sum",
        help="Reduction operator: sum, prod, min, max or avg.",
        check="checks:redop",
        metavar="OP",
        complete="reductions",
        wanted="a reduction operator",
        schema={**TEXT, "description": "reduction operator", "enum": ["sum", "prod", "min", "max", "avg"]},
    ),
    RequestField(
        "root",
        0,
        help="Root rank of a rooted operation.",
        kind="number",
        check="checks:root",
        flags=("-r", "--root"),
        metavar="RANK",
        example="such as 0",
        wanted="a whole number",
        schema={"type": "integer", "minimum": 0, "description": "root rank"},
    ),
    RequestField(
        "profile",
        "auto",
        help="Constants of the library; auto: calibrated for the topology, if any; ideal: bare wires.",
        metavar="NAME|FILE",
        complete="profiles",
        wanted="the name or the file of a profile",
        schema={**TEXT, "minLength": 1, "description": "name or file of the profile; auto: the one for the topology"},
    ),
    RequestField(
        "proto",
        help="Protocol: LL, LL128 or Simple.  [default: the library's; best, all: the fastest; a name: Simple]",
        check="checks:proto",
        metavar="NAME",
        wanted="the name of a protocol",
        schema={
            **MAYBE_TEXT,
            "enum": ["LL", "LL128", "Simple", None],
            "description": "protocol; null: the library's, else Simple",
        },
    ),
    RequestField(
        "library",
        help="Library that auto follows: nccl-2.18 to nccl-2.30, rccl-2.18 to rccl-2.31, vllm, sglang or trtllm.  "
        "[default: the profile's]",
        check="checks:library",
        metavar="NAME",
        wanted="a library and its version",
        schema={
            **MAYBE_TEXT,
            "description": "library that auto follows; null: the profile's, without one the fastest in the simulator",
        },
    ),
    RequestField(
        "environment",
        help="A variable that changes the library's choice: NCCL_ALGO=Ring.",
        kind="pairs",
        check="checks:environment",
        flags=("--env",),
        metavar="NAME=VALUE",
        schema={**PAIRS, "description": "variables that change the library's choice"},
    ),
    RequestField(
        "launch",
        "stream",
        help="How calls are launched; graph: a captured graph replays them.",
        check="checks:launch",
        metavar="NAME",
        complete="launches",
        wanted="a way to launch",
        schema={"enum": ["stream", "graph"], "description": "how calls are launched"},
    ),
    RequestField(
        "registered",
        False,
        help="The user registered the buffers with the library (-R 1 of the tests); symmetric: as windows (-R 2).",
        kind="optional",
        check="checks:registered",
        metavar="[symmetric]",
        complete="registrations",
        wanted='true, false or "symmetric"',
        schema={
            "enum": [False, True, "symmetric"],
            "description": "whether the user registered the buffers, and if so whether as symmetric windows",
        },
    ),
    RequestField(
        "reduce",
        True,
        help="Look for transfers that have to behave alike, or not: same times, other work.",
        kind="flag",
        wanted="true or false",
        schema={**TRUTH, "description": "whether transfers that have to behave alike were simulated as one"},
    ),
    RequestField(
        "tolerance",
        "auto",
        help="How far ends of irregular transfers may be moved: 0 is exact, 1% usual; auto: exact unless that is slow.",
        kind="share",
        check="tolerance:parse_tolerance",
        metavar="SHARE",
        wanted="auto or a part such as 0.01",
        schema={
            "anyOf": [{"const": "auto"}, {"type": "number", "minimum": 0, "maximum": 0.1}],
            "description": "how far ends of transfers may be moved, as a part of the time that each takes; 0: exact; "
            "auto: exact unless that takes long",
        },
    ),
    RequestField(
        "bracket",
        False,
        help="With a tolerance, also times on both sides: the load of links, and from above.",
        kind="flag",
        wanted="true or false",
        schema={**TRUTH, "description": "whether a time within a tolerance was to come with times on both sides of it"},
    ),
    RequestField(
        "gpus_per_thread",
        1,
        help="GPUs that each host thread starts work on, one after the other.",
        kind="number",
        check="checks:gpus_per_thread",
        flags=("-g", "--gpus-per-thread", "--ngpus"),
        metavar="N",
        wanted="a whole number",
        schema={**COUNT, "description": "GPUs that each host thread starts work on, one after the other"},
    ),
    RequestField(
        "one_process",
        False,
        help="All ranks are threads of one process, as with -t or -g of the tests alone.",
        kind="flag",
        wanted="true or false",
        schema={**TRUTH, "description": "whether all ranks are threads of one process"},
    ),
    RequestField(
        "host",
        "auto",
        help="Kind of host that starts the calls, bare or virtual, or how long it takes at least, such as 8us.",
        check="checks:host",
        metavar="KIND",
        complete="hosts",
        wanted="a kind of host or a time",
        schema={"type": "string", "description": "kind of host that starts the calls, or the time that it takes"},
    ),
    RequestField(
        "split",
        help='Groups that run at once, as nccl-tests makes them: "MOD 8", "DIV 8", "AND 0x7", "OR 0x7", or a hex mask.',
        attribute="grouping",
        metavar="SPLIT",
        wanted="a split of nccl-tests",
        schema={**MAYBE_TEXT, "description": "groups as nccl-tests splits them, such as MOD 8; null: no split"},
    ),
    RequestField(
        "groups",
        help='Groups by a layout, such as tp=8,dp=16 (the first varies fastest), or by lists: "0,1;2,3".',
        attribute="grouping",
        metavar="LAYOUT|LISTS",
        wanted="a layout or lists of ranks",
        schema={**MAYBE_TEXT, "description": "layout or lists of ranks that form groups; null: none"},
    ),
    RequestField(
        "over",
        help="Dimensions of the layout that communicate.  [default: the first]",
        attribute="grouping",
        metavar="NAME[,NAME...]",
        wanted="dimensions of the layout",
        schema={**MAYBE_TEXT, "description": "dimensions of the layout that communicate; null without a layout"},
    ),
    RequestField(
        "placement",
        help="Which GPU each rank runs on: block, cyclic, a host file, or slurm:topology.conf:HOSTS.  [default: block]",
        metavar="NAME|FILE",
        complete="placements",
        key=None,
    ),
    RequestField(
        "load",
        (),
        help='Background traffic on links: "link:gpu0->nvsw*=30%"; a-b means both directions.',
        kind="texts",
        check="loads:parse_loads",
        metavar="LINKS=SHARE",
        wanted="a list of loads on links",
        schema={**TEXTS, "description": "background traffic on links"},
    ),
    RequestField(
        "hash_seeds",
        help="Draw the hash of an ECMP network again for each seed, such as 1-100: median, p95 and extremes.",
        check="hash_seeds:parse_seeds",
        metavar="LIST",
        wanted="seeds such as 1-100",
        schema={
            **MAYBE_TEXT,
            "minLength": 1,
            "description": "seeds of the hash of the network, each a draw; null: one draw",
        },
    ),
    RequestField(
        "overrides",
        help='Change a figure that `collsim topo show` lists: link.bandwidth="80 GB/s".',
        kind="pairs",
        flags=("--set",),
        metavar="PATH=VALUE",
        schema={**PAIRS, "description": "what --set changed: path to value"},
    ),
    RequestField(
        "matrix",
        help="Bytes from row to column, for all_to_all_v.",
        kind="matrix",
        attribute="matrix_bytes",
        metavar="FILE",
        key="matrix_bytes",
        schema={
            "type": ["array", "null"],
            "items": BYTES,
            "description": "bytes from row to column; null without all_to_all_v",
        },
    ),
    RequestField(
        "fail",
        help="What has failed: link:gpu0-gpu1, switch:nvsw2, nic:node3/5, gpu:gpu5, leaf:2; globs work.",
        kind="texts",
        metavar="WHAT",
        schema={"type": "array", "items": {**TEXT, "minLength": 1}, "description": "what --fail names"},
    ),
    RequestField(
        "degrade",
        help="What runs at part of its rate: link:gpu0-gpu1=50%.",
        kind="pairs",
        metavar="WHAT=SHARE",
        schema={**PAIRS, "description": "what --degrade names: thing to the part of its rate that remains"},
    ),
)
"""In the order of the parameters of `simulate` and of the keys of a configuration."""

BY_NAME: Mapping[str, RequestField] = {entry.name: entry for entry in FIELDS}
SCALE_OUT = tuple(entry.name for entry in FIELDS if entry.kind == "scale_out")
"""The fields that make a cluster of a node, each called as the key of ``scale_out`` that it sets."""
BOUNDS = tuple(entry.name for entry in FIELDS if entry.kind == "bound")
"""The fields that say a range of sizes, as the flags of nccl-tests do."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request; what is None was left to collsim.

    Attributes
    ----------
    ops : tuple of Operation
    sizes : tuple of int
        Requested sizes in bytes.
    algo : tuple of str
        Names of algorithms or of `CHOICES`.
    channels, chunk_bytes : int or None
    dtype : str
    element_bytes : int
    redop : str
    root : int
    matrix_bytes : int64[n, n] or None
    proto : str or None
        Protocol; None leaves it to the library, else Simple.
    library : Library or None
        Whose choice ``auto`` follows; None: the fastest in the simulator.
    environment : mapping
        NCCL and RCCL variables that change the library's choice.
    launch : str
        ``stream`` or ``graph``.
    registered : bool or str
        Whether the user registered the buffers, ``symmetric`` if as windows.
    reduce : bool
        Whether transfers that have to behave alike are simulated as one.
    tolerance : float or None
        How far ends of transfers may be moved, as a part of the time that each takes; None: exact unless that takes
        too long.
    bracket : bool
        Whether an answer within a tolerance comes with times on both sides of it.
    one_process : bool
        Whether all ranks are threads of one process.
    host : str
        `collsim.library.costs.hosts`.
    gpus_per_thread : int
        How many GPUs each host thread starts the work of.
    grouping : Split, ParallelLayout, Lists or None
        How the ranks of a run form groups that all run at once; None: one group.
    load : tuple of Load
    hash_seeds : tuple of int
        Draws of the hash of the network; none: one draw, that of the topology.
    at_once : bool
        Whether no transfer waits for another: no flag asks for it, explanations do.
    of_log : bool
        Whether a log asks: its sizes are rounded already, and its variables were set for reasons of its own.
    one_of_many : bool
        Whether more questions follow, so that it pays to load the compiled engine.
    """

    ops: tuple[Operation, ...]
    sizes: tuple[int, ...]
    algo: tuple[str, ...]
    channels: int | None
    chunk_bytes: int | None
    dtype: str
    element_bytes: int
    redop: str
    root: int
    matrix_bytes: Int | None
    proto: str | None = None
    library: Library | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    launch: str = "stream"
    registered: bool | str = False
    reduce: bool = True
    tolerance: float | None = None
    bracket: bool = False
    gpus_per_thread: int = 1
    one_process: bool = False
    host: str = "auto"
    grouping: Grouping | None = None
    load: tuple[Load, ...] = ()
    hash_seeds: tuple[int, ...] = ()
    at_once: bool = False
    of_log: bool = False
    one_of_many: bool = False

    def size_of(self, op: Operation, requested_bytes: int, n_ranks: int) -> int:
        """Return the bytes that *op* moves for a requested size, 0 if nothing is left of it."""
        rounded = op.whole_size_bytes if self.of_log else op.rounded_size_bytes
        return rounded(requested_bytes, n_ranks, self.element_bytes)

    def groups_of(self, gpus: Sequence[int]) -> list[list[int]]:
        """Return the GPUs of each group of a run whose rank i is on GPU ``gpus[i]``."""
        if self.grouping is None:
            return [list(gpus)]
        return [[gpus[rank] for rank in group] for group in self.grouping.groups(len(gpus))]

    def sizes_of(self, op: Operation) -> tuple[int, ...]:
        """Return the requested sizes of *op*: the matrix decides for all_to_all_v."""
        if op.name == "all_to_all_v" and self.matrix_bytes is not None:
            from collsim.collectives import matrix_size_bytes

            return (matrix_size_bytes(self.matrix_bytes),)
        return self.sizes
