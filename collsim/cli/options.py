"""The flags that say what to simulate, with the names that a shell completes; reading no file, they cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click

from collsim.core.old_names import OLD_ARGUMENTS, warn_of
from collsim.simulation.request.fields import BOUNDS, BY_NAME, SCALE_OUT

__all__ = [
    "comparison_options",
    "complete",
    "expert_options",
    "formats",
    "operations",
    "profiles",
    "request_options",
    "scale_out_options",
    "scale_out_place",
    "schedule_options",
    "screen_options",
    "tuning_options",
    "with_options",
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


def scale_out_place(where: str) -> str:
    """Return the parameter that set what *where* names, if it is one of `SCALE_OUT`; else *where*.

    >>> scale_out_place("--set scale_out.nodes"), scale_out_place("--set link.bandwidth")
    ('nodes', '--set link.bandwidth')
    """
    place, _, name = where.rpartition("scale_out.")
    ours = place == "--set " or place.startswith("topologies/")  # nobody writes to the files that are shipped
    return name if ours and name in SCALE_OUT else where


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


NAMES: dict[str, dict[str, Any]] = {
    "zoo": complete(zoo, files=True),
    "operations": complete(operations),
    "algorithms": complete(algorithms),
    "named_algorithms": complete(named_algorithms),
    "dtypes": complete(dtypes),
    "reductions": complete(reductions),
    "profiles": complete(profiles, files=True),
    "launches": complete(lambda: ("stream", "graph")),
    "registrations": complete(lambda: ("symmetric",)),
    "hosts": complete(lambda: ("auto", "bare", "virtual")),
    "placements": complete(lambda: ("block", "cyclic", "slurm:"), files=True),
    "fabrics": complete(fabrics),
    "networks": complete(networks),
}
"""Shell completions, by the word for them in `FIELDS`."""

SHOWN = (
    "topo", *SCALE_OUT, "op", *BOUNDS, "size",
    "ranks", "rank_list", "placement", "split", "groups", "over", "algo", "proto", "library", "environment",
     "channels", "chunk", "dtype", "redop", "root", "matrix", "profile", "launch", "gpus_per_thread",
    "one_process", "host", "registered", "reduce", "tolerance", "bracket", "load", "hash_seeds", "overrides", "fail",
    "degrade",
)  # fmt: skip
"""The order in which help shows the fields of a request; what is not named comes last."""


def option(name: str, **changed: Any) -> Callable[..., Any]:
    """Return the flag of a field of a request, with some of the field *changed* for a command."""
    field = replace(BY_NAME[name], **changed)
    settings: dict[str, Any] = {"help": field.help, "metavar": field.metavar, **NAMES.get(field.complete, {})}
    flags = field.flags or (f"--{name.replace('_', '-')}",)
    if field.kind == "flag":
        settings |= {"default": True} if field.default else {"is_flag": True}
        flags = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",) if field.default else flags
    elif field.kind == "optional":
        settings |= {"is_flag": False, "flag_value": "yes"}
    elif field.several:
        settings |= {"multiple": True, "allow_from_autoenv": False}
    elif field.default is not None:
        settings |= {"default": field.flag_default, "show_default": True}
    return click.option(*flags, name, **settings)


def _in_order(names: Iterable[str]) -> list[str]:
    """Return the names of fields in the order in which help shows them."""
    return sorted(names, key=lambda name: SHOWN.index(name) if name in SHOWN else len(SHOWN))


OPTIONS: dict[str, Callable[..., Any]] = {name: option(name) for name in _in_order(BY_NAME)}
"""The flags of a request by the name of their parameter."""

SCHEDULE_OPTIONS = {
    name: OPTIONS[name]
    for name in (
        "topo", *SCALE_OUT, "op", "algo", "size", "ranks", "rank_list", "channels", "chunk", "dtype", "root", "matrix",
        "profile", "overrides", "fail", "degrade",
    )
} | {
    "op": option(
        "op", metavar="OP", help="One collective, such as all_to_all; the spellings of nccl-tests work too."
    ),
    "algo": option(
        "algo",
        default=None,
        metavar="NAME",
        complete="named_algorithms",
        help="One algorithm by name, such as ring.  [required]",
    ),
    "size": option("size", metavar="SIZE", help="Exactly one size.  [default: 1M]"),
    "ranks": option("ranks", metavar="N", help="Use the first N GPUs.  [default: all]"),
}  # fmt: skip
"""The flags of one schedule; what only chooses among several answers is not among them."""


COMPARISON_OPTIONS = {name: entry for name, entry in OPTIONS.items() if name != "topo"} | {
    "ranks": option("ranks", help="Use the first N GPUs.  [default: as many as every system has]"),
    "split": option(
        "split",
        metavar="SPLIT[,SPLIT...]",
        help='Groups that run at once, as nccl-tests makes them: "MOD 8", ...; none: one group.',
    ),
    "algo": option(
        "algo",
        metavar="NAME",
        help="Algorithm; auto: the library's choice on each system; best: the fastest in the simulator.",
    ),
}
"""The flags of a request to several systems, which hold for all of them."""


FOUND_BY_TUNING = (
    "algo",
    "proto",
    "channels",
    "chunk",
    "matrix",
    "split",
    "groups",
    "over",
    "hash_seeds",
    "load",
    "root",
)
"""Fields of a request that tuning finds, or that no rule of a tuner can depend on."""
TUNING_OPTIONS = {name: entry for name, entry in OPTIONS.items() if name not in FOUND_BY_TUNING} | {
    "op": option("op", default="all_reduce,all_gather,reduce_scatter", help="Collectives to tune."),
}
"""The flags of a machine and of the calls to tune for."""


EXPERT_OPTIONS: dict[str, Callable[..., Any]] = {
    **{name: OPTIONS[name] for name in ("topo", *SCALE_OUT)},
    "ep": click.option(
        "--ep", metavar="N[,N...]", help="Spread the experts over the first N GPUs.  [default: all of the machine]"
    ),
    "model": click.option(
        "--model",
        metavar="NAME",
        **complete(models),
        help="A model that --list-models prints; flags below change it.  [default: deepseek-v3, or one of your own "
        "if --experts, --topk or --hidden is given]",
    ),
    "experts": click.option("--experts", metavar="E", help="Routed experts of a layer."),
    "top_k": click.option("--topk", "--top-k", "top_k", metavar="K", help="Experts that each token takes."),
    "hidden": click.option("--hidden", metavar="H", help="Elements of a token."),
    "layers": click.option("--layers", metavar="L", help="Layers with experts."),
    "expert_groups": click.option("--expert-groups", metavar="G", help="Equal groups of experts."),
    "group_limit": click.option("--group-limit", metavar="M", help="A token takes experts of at most M groups."),
    "dispatch": click.option("--dispatch", metavar="TYPE", help="Data type of tokens in dispatch: fp8, bf16 or nvfp4."),
    "combine": click.option("--combine", metavar="TYPE", help="Data type of tokens in combine: fp8, bf16 or nvfp4."),
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
    "balanced": click.option(
        "--balanced", is_flag=True, help="Tokens take experts in turn, as far apart as there are."
    ),
    "expert_placement": click.option(
        "--expert-placement",
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
    "forward": click.option(
        "--forward",
        default="direct",
        show_default=True,
        metavar="NAME",
        **complete(lambda: ("direct", "rail")),
        help="Low-latency messages to other nodes: direct, or by the GPU of the target's rail.",
    ),
    "profile": option("profile", help="Constants of the library, for --mode all-to-all."),
    **{name: OPTIONS[name] for name in ("overrides", "fail", "degrade")},
    "compare": click.option(
        "--compare",
        metavar="TOPO[,TOPO...]",
        **complete(zoo, files=True),
        help="Ask the same of these systems, and say how many times as fast as the first each is.",
    ),
}
"""The flags of a question about experts."""


class Renamed(click.Command):
    """Command that still takes flags by their names of before, with a warning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace old flags by those of now."""
        known = {flag for option in self.params for flag in option.opts}
        for i, text in enumerate(args):
            flag, equals, value = text.partition("=")
            new = "--" + OLD_ARGUMENTS.get(flag.removeprefix("--"), "").replace("_", "-")
            if flag not in known and new in known:
                warn_of(flag, new)
                args[i] = f"{new}{equals}{value}"
        return super().parse_args(ctx, args)


def screen_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say how much of a table a terminal shows."""
    wide = click.option("--wide", is_flag=True, help="All columns, however wide the terminal is.")
    verbose = click.option("-v", "--verbose", is_flag=True, help="On a terminal: all lines above the table.")
    return wide(verbose(command))


def column_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag that asks for more columns of a table."""
    return click.option(
        "--columns",
        metavar="SET[,SET...]",
        **complete(lambda: ("rates", "bytes", "bounds")),
        help="More columns: rates of wires, bytes sent by tier, bounds of the algorithm that ran.",
    )(command)


def expert_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which experts exchange what on which machine."""
    return with_options(command, EXPERT_OPTIONS.values())


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what to simulate."""
    return with_options(command, OPTIONS.values())


def comparison_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what to simulate on each of several systems."""
    return with_options(command, COMPARISON_OPTIONS.values())


def tuning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which machine and which calls to tune."""
    return with_options(command, TUNING_OPTIONS.values())


def scale_out_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that make a cluster of a node."""
    return with_options(command, [OPTIONS[name] for name in SCALE_OUT])


def schedule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which one schedule to build: one operation, size, group of ranks and named algorithm."""
    return with_options(command, SCHEDULE_OPTIONS.values())


def with_options(command: Callable[..., Any], options: Iterable[Callable[..., Any]]) -> Callable[..., Any]:
    """Add options, in the order in which help shows them."""
    for option in reversed([*options]):
        command = option(command)
    return command
