"""The flags that say what to simulate, with the names that a shell completes; reading no file, they cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

__all__ = [
    "comparison_options",
    "complete",
    "expert_options",
    "formats",
    "operations",
    "profiles",
    "request_options",
    "scale_out_options",
    "scale_out_overrides",
    "scale_out_place",
    "schedule_options",
    "zoo",
]


def complete(names: Callable[[], Sequence[str]], *, files: bool = False) -> dict[str, Any]:
    """Return the option settings that complete the last of several names in a shell, without reading any file."""

    def completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return {"shell_complete": completed}


def zoo() -> Sequence[str]:
    """Return the names of the shipped topologies."""
    from collsim.topology import cluster_names, zoo_names

    return (*zoo_names(), *cluster_names())


def fabrics() -> Sequence[str]:
    from collsim.topology import FABRICS

    return FABRICS


def networks() -> Sequence[str]:
    from collsim.topology import network_names

    return network_names()


def scale_out_overrides(flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of ``scale_out`` that flags set."""
    return {f"scale_out.{name}": flags[name] for name in SCALE_OUT if flags.get(name) is not None}


def scale_out_place(where: str) -> str:
    """Return the parameter that set what *where* names, if it is one of `SCALE_OUT`; else *where*.

    >>> scale_out_place("--set scale_out.nodes"), scale_out_place("--set link.bandwidth")
    ('nodes', '--set link.bandwidth')
    """
    name = where.removeprefix("--set scale_out.")
    return name if name != where and name in SCALE_OUT else where


def operations() -> Sequence[str]:
    """Return the names of the operations."""
    from collsim.core.operations import OPERATIONS

    return list(OPERATIONS)


def dtypes() -> Sequence[str]:
    from collsim.core.operations import DTYPES

    return list(DTYPES)


def reductions() -> Sequence[str]:
    from collsim.core.operations import REDUCTIONS

    return REDUCTIONS


def algorithms() -> Sequence[str]:
    return ["auto", "best", "all", *named_algorithms()]


def named_algorithms() -> Sequence[str]:
    from collsim.collectives import ALGORITHMS

    return list(dict.fromkeys(entry.name for entry in ALGORITHMS))


def profiles() -> Sequence[str]:
    """Return the names of the shipped profiles."""
    from collsim.library import profile_names

    return ["auto", *profile_names()]


def models() -> Sequence[str]:
    """Return the names of the models with experts."""
    from collsim.moe.models import model_names

    return model_names()


def formats() -> Sequence[str]:
    """Return the names of the output formats."""
    from collsim.report import FORMATS

    return list(FORMATS)


SCALE_OUT: dict[str, Callable[..., Any]] = {
    "nodes": click.option("--nodes", metavar="N", help="Build a cluster of N such nodes."),
    "gpus_per_node": click.option(
        "--gpus-per-node", metavar="G", help="Use the first G GPUs of each node.  [default: all]"
    ),
    "racks": click.option(
        "--racks",
        metavar="R",
        help="Deal the nodes to R racks with leaf switches of their own.  [default: as ports allow]",
    ),
    "fabric": click.option(
        "--fabric",
        metavar="NAME",
        **complete(fabrics),
        help="Switches between nodes: rail, rail_only, fat_tree, dragonfly or single_switch.  [default: rail]",
    ),
    "network": click.option(
        "--network",
        metavar="NAME",
        **complete(networks),
        help="infiniband, spectrum_x, roce, ultra_ethernet, efa or slingshot.  [default: the adapter's]",
    ),
}
"""The flags that make a cluster of a node, by the key of ``scale_out`` that each sets."""

OPTIONS: dict[str, Callable[..., Any]] = {
    "topo": click.option(
        "--topo",
        metavar="NAME|FILE",
        **complete(zoo, files=True),
        help="Topology: a name that `collsim topo list` prints, or a YAML file.",
    ),
    **SCALE_OUT,
    "op": click.option(
        "--op",
        metavar="OP[,OP...]",
        **complete(operations),
        help="Collective, such as all_to_all; the spellings of nccl-tests work too.",
    ),
    "min_bytes": click.option("-b", "--min-bytes", "--minbytes", metavar="SIZE", help="Smallest size.  [default: 1M]"),
    "max_bytes": click.option("-e", "--max-bytes", "--maxbytes", metavar="SIZE", help="Largest size.  [default: 1G]"),
    "step_bytes": click.option(
        "-i", "--step-bytes", "--stepbytes", metavar="SIZE", help="Step between sizes.  [default: 1M]"
    ),
    "step_factor": click.option(
        "-f", "--step-factor", "--stepfactor", metavar="X", help="Factor between sizes, instead of a step."
    ),
    "size": click.option(
        "--size", metavar="SIZE[,SIZE...]", help="Exactly these sizes.  [default: 1M to 1G, factor 2]"
    ),
    "ranks": click.option("--ranks", metavar="N[,N...]", help="Use the first N GPUs.  [default: all]"),
    "rank_list": click.option(
        "--rank-list", metavar="LIST", help="Use exactly these GPUs, in this order, such as 0,3,5-7."
    ),
    "placement": click.option(
        "--placement",
        metavar="NAME|FILE",
        **complete(lambda: ("block", "cyclic", "slurm:"), files=True),
        help="Which GPU each rank runs on: block, cyclic, a host file, or slurm:topology.conf:HOSTS.  [default: block]",
    ),
    "split": click.option(
        "--split",
        metavar="SPLIT",
        help='Groups that run at once, as nccl-tests makes them: "MOD 8", "DIV 8", "AND 0x7", "OR 0x7", or a hex mask.',
    ),
    "groups": click.option(
        "--groups",
        metavar="LAYOUT|LISTS",
        help='Groups by a layout, such as tp=8,dp=16 (the first varies fastest), or by lists: "0,1;2,3".',
    ),
    "over": click.option(
        "--over", metavar="NAME[,NAME...]", help="Dimensions of the layout that communicate.  [default: the first]"
    ),
    "algo": click.option(
        "--algo",
        default="auto",
        metavar="NAME[,NAME...]",
        show_default=True,
        **complete(algorithms),
        help="Algorithm; auto: the library's choice; best: the fastest in the simulator; all: a row for each.",
    ),
    "proto": click.option(
        "--proto", metavar="NAME", help="Protocol: LL, LL128 or Simple.  [default: the library's, else Simple]"
    ),
    "library": click.option(
        "--library",
        metavar="NAME",
        help="Library that auto follows: nccl-2.28, rccl-2.28, ...  [default: the profile's]",
    ),
    "environment": click.option(
        "--env",
        "environment",
        multiple=True,
        metavar="NAME=VALUE",
        allow_from_autoenv=False,
        help="A variable that changes the library's choice: NCCL_ALGO=Ring.",
    ),
    "channels": click.option(
        "--channels", metavar="N", help="Channels (CTAs) that share the work.  [default: what suits]"
    ),
    "chunk": click.option("--chunk", metavar="SIZE", help="Largest chunk of a channel.  [default: the algorithm's]"),
    "dtype": click.option(
        "-d",
        "--dtype",
        "--datatype",
        default="float",
        show_default=True,
        metavar="TYPE",
        **complete(dtypes),
        help="Data type.",
    ),
    "redop": click.option(
        "--redop", default="sum", show_default=True, metavar="OP", **complete(reductions), help="Reduction operator."
    ),
    "root": click.option(
        "-r",
        "--root",
        default="0",
        show_default=True,
        metavar="RANK",
        help="Root rank of a rooted operation.",
    ),
    "matrix": click.option("--matrix", metavar="FILE", help="Bytes from row to column, for all_to_all_v."),
    "profile": click.option(
        "--profile",
        default="auto",
        show_default=True,
        metavar="NAME|FILE",
        **complete(profiles, files=True),
        help="Constants of the library; auto: calibrated for the topology, if any; ideal: bare wires.",
    ),
    "launch": click.option(
        "--launch",
        default="stream",
        show_default=True,
        metavar="NAME",
        **complete(lambda: ("stream", "graph")),
        help="How calls are launched; graph: a captured graph replays them.",
    ),
    "gpus_per_thread": click.option(
        "-g",
        "--gpus-per-thread",
        "--ngpus",
        "gpus_per_thread",
        default="1",
        show_default=True,
        metavar="N",
        help="GPUs that each host thread starts work on, one after the other.",
    ),
    "registered": click.option(
        "--registered", is_flag=True, help="The user registered the buffers with the library (-R 1 of the tests)."
    ),
    "reduce": click.option(
        "--reduce/--no-reduce",
        default=True,
        help="Look for transfers that have to behave alike, or not: same times, other work.",
    ),
    "tolerance": click.option(
        "--tolerance",
        default="auto",
        show_default=True,
        metavar="SHARE",
        help="How far ends of irregular transfers may be moved: 0 is exact, 1% usual; auto: exact unless that is slow.",
    ),
    "bracket": click.option(
        "--bracket", is_flag=True, help="With a tolerance, also times on both sides: the load of links, and from above."
    ),
    "load": click.option(
        "--load",
        multiple=True,
        metavar="LINKS=SHARE",
        allow_from_autoenv=False,
        help='Background traffic on links: "link:gpu0->nvsw*=30%"; a-b means both directions.',
    ),
    "hash_seeds": click.option(
        "--hash-seeds",
        metavar="LIST",
        help="Draw the hash of an ECMP network again for each seed, such as 1-100: median, p95 and extremes.",
    ),
    "overrides": click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        allow_from_autoenv=False,
        help='Change a figure of the topology: link.bandwidth="80 GB/s".',
    ),
    "fail": click.option(
        "--fail",
        multiple=True,
        metavar="WHAT",
        allow_from_autoenv=False,
        help="What has failed: link:gpu0-gpu1, switch:nvsw2, nic:node3/5, gpu:gpu5, leaf:2; globs work.",
    ),
    "degrade": click.option(
        "--degrade",
        multiple=True,
        metavar="WHAT=SHARE",
        allow_from_autoenv=False,
        help="What runs at part of its rate: link:gpu0-gpu1=50%.",
    ),
}
"""The flags of a request by the name of their parameter."""

SCHEDULE_OPTIONS = {
    name: OPTIONS[name]
    for name in (
        "topo", *SCALE_OUT, "op", "algo", "size", "ranks", "rank_list", "channels", "chunk", "dtype", "root", "matrix",
        "profile", "overrides", "fail", "degrade",
    )
} | {
    "op": click.option(
        "--op",
        metavar="OP",
        **complete(operations),
        help="One collective, such as all_to_all; the spellings of nccl-tests work too.",
    ),
    "algo": click.option(
        "--algo", metavar="NAME", **complete(named_algorithms), help="One algorithm by name, such as ring.  [required]"
    ),
    "size": click.option("--size", metavar="SIZE", help="Exactly one size.  [default: 1M]"),
    "ranks": click.option("--ranks", metavar="N", help="Use the first N GPUs.  [default: all]"),
}  # fmt: skip
"""The flags of one schedule; what only chooses among several answers is not among them."""


COMPARISON_OPTIONS = {name: option for name, option in OPTIONS.items() if name != "topo"} | {
    "ranks": click.option(
        "--ranks", metavar="N[,N...]", help="Use the first N GPUs.  [default: as many as every system has]"
    ),
    "split": click.option(
        "--split",
        metavar="SPLIT[,SPLIT...]",
        help='Groups that run at once, as nccl-tests makes them: "MOD 8", ...; none: one group.',
    ),
    "algo": click.option(
        "--algo",
        default="auto",
        metavar="NAME",
        show_default=True,
        **complete(algorithms),
        help="Algorithm; auto: the library's choice on each system; best: the fastest in the simulator.",
    ),
}
"""The flags of a request to several systems, which hold for all of them."""


EXPERT_OPTIONS: dict[str, Callable[..., Any]] = {
    **{name: OPTIONS[name] for name in ("topo", *SCALE_OUT)},
    "ep": click.option(
        "--ep", metavar="N[,N...]", help="Spread the experts over the first N GPUs.  [default: all of the machine]"
    ),
    "model": click.option(
        "--model",
        metavar="NAME",
        **complete(models),
        help="A model that --list-models prints; flags below change it.  [default: deepseek-v3]",
    ),
    "experts": click.option("--experts", metavar="E", help="Routed experts of a layer."),
    "top_k": click.option("--topk", "--top-k", "top_k", metavar="K", help="Experts that each token takes."),
    "hidden": click.option("--hidden", metavar="H", help="Elements of a token."),
    "layers": click.option("--layers", metavar="L", help="Layers with experts."),
    "groups": click.option("--groups", metavar="G", help="Equal groups of experts."),
    "group_limit": click.option("--group-limit", metavar="M", help="A token takes experts of at most M groups."),
    "dispatch": click.option("--dispatch", metavar="TYPE", help="Data type of tokens in dispatch: fp8 or bf16."),
    "combine": click.option("--combine", metavar="TYPE", help="Data type of tokens in combine: fp8 or bf16."),
    "tokens": click.option(
        "--tokens",
        metavar="N|LIST",
        help="Tokens of every rank, or of each: 256x8,64x24.  [default: 4096 of prefill, 128 of decode]",
    ),
    "mode": click.option(
        "--mode",
        metavar="NAME",
        **complete(lambda: ("normal", "low-latency", "all-to-all")),
        help="normal, low-latency or all-to-all.  [default: normal of prefill, low-latency of decode]",
    ),
    "phase": click.option(
        "--phase",
        default="prefill",
        show_default=True,
        metavar="NAME",
        **complete(lambda: ("prefill", "decode")),
        help="prefill or decode: usual tokens and mode.",
    ),
    "skew": click.option("--skew", metavar="S", help="The k-th most popular expert has weight k^-S (Zipf); 0: even."),
    "sigma": click.option("--sigma", metavar="X", help="Popularity is log-normal of this width, instead of --skew."),
    "counts": click.option(
        "--counts", metavar="FILE", help="Tokens of each expert, or the experts of each token a line, as measured."
    ),
    "placement": click.option(
        "--placement",
        default="contiguous",
        show_default=True,
        metavar="NAME",
        **complete(lambda: ("contiguous", "round_robin", "balanced")),
        help="Experts on ranks: contiguous, round_robin or balanced (by popularity).",
    ),
    "redundant": click.option("--redundant", metavar="N", help="Copies of experts beyond one each.  [default: 0]"),
    "kernel": click.option(
        "--kernel",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="Kernels that --list-kernels prints; auto: those for the GPU.",
    ),
    "sms": click.option("--sms", metavar="N", help="SMs that copy.  [default: the kernels']"),
    "seeds": click.option(
        "--seeds",
        metavar="LIST",
        help="Samples of the routing, such as 0-9.  [default: expected loads if known, else 5 samples]",
    ),
    "tolerance": OPTIONS["tolerance"],
    "load_only": click.option(
        "--load-only", is_flag=True, help="The time is what the busiest link or GPU needs; nothing is simulated."
    ),
    "profile": click.option(
        "--profile",
        default="auto",
        show_default=True,
        metavar="NAME|FILE",
        **complete(profiles, files=True),
        help="Constants of the library, for --mode all-to-all.",
    ),
    **{name: OPTIONS[name] for name in ("overrides", "fail", "degrade")},
    "compare": click.option(
        "--compare",
        metavar="TOPO[,TOPO...]",
        **complete(zoo, files=True),
        help="Ask the same of these systems, and say how many times as fast as the first each is.",
    ),
}
"""The flags of a question about experts."""


def expert_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which experts exchange what on which machine."""
    return _with_options(command, EXPERT_OPTIONS)


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what to simulate."""
    return _with_options(command, OPTIONS)


def comparison_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what to simulate on each of several systems."""
    return _with_options(command, COMPARISON_OPTIONS)


def scale_out_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that make a cluster of a node."""
    return _with_options(command, SCALE_OUT)


def schedule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which one schedule to build: one operation, size, group of ranks and named algorithm."""
    return _with_options(command, SCHEDULE_OPTIONS)


def _with_options(command: Callable[..., Any], options: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options.values()):
        command = option(command)
    return command
