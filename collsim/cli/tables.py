"""``collsim tables``: nccl-tests and DeepEP as predicted, in the layout that a serving planner reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from collsim.cli.options import OPTIONS, complete, models, operations, with_options
from collsim.cli.output import check_suffix, check_targets, named_files, patience, write
from collsim.cli.run import place_of
from collsim.core.errors import PARTLY, Faults
from collsim.simulation.request.fields import SCALE_OUT

__all__ = ["tables"]

MACHINE = (
    "topo",
    *(name for name in SCALE_OUT if name != "nodes"),
    "overrides",
    "fail",
    "degrade",
    "profile",
    "library",
)
LISTS = ("elements", "ranks", "tokens", "sms", "nodes")


def machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say which machine."""
    return with_options(command, [OPTIONS[name] for name in MACHINE])


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@machine_options
@click.option(
    "--kind",
    default="nccl",
    show_default=True,
    metavar="NAME",
    **complete(lambda: ("nccl", "deepep", "deepep_ll")),
    help="nccl: nccl-tests; deepep: DeepEP in normal mode; deepep_ll: in low-latency mode.",
)
@click.option("--nodes", metavar="N[,N...]", help="Nodes; of DeepEP a list.  [default: 1]")
@click.option("--op", metavar="OP[,OP...]", **complete(operations), help="Of nccl.  [default: the four of the layout]")
@click.option("-d", "--dtype", metavar="TYPE[,TYPE...]", help="Of nccl.  [default: half,int8]")
@click.option(
    "--ranks", metavar="N[,N...]", help="GPUs; of DeepEP one number.  [default: of nccl powers of two, of DeepEP all]"
)
@click.option("--elements", metavar="N[,N...]", help="Of nccl: elements.  [default: 256 to 512 Mi, factor 2]")
@click.option("--model", metavar="NAME[,NAME...]", **complete(models), help="Of DeepEP.  [default: deepseek-v3]")
@click.option("--tokens", metavar="N[,N...]", help="Of DeepEP: tokens of a rank.  [default: powers of two]")
@click.option("--sms", metavar="N[,N...]", help="Of DeepEP: SMs.  [default: those of the kernel]")
@click.option("-o", "--output", metavar="FILE", help="Write there: .csv, .txt or .parquet.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def tables(context: click.Context, /, *, kind: str, output: str | None, quiet: bool, **flags: Any) -> None:
    """Write the tables that serving planners read, for any topology: nccl-tests and DeepEP, as predicted.

    \b
    Examples:
      collsim tables --topo mi355x_ubb8 --kind nccl -o nccl_perf.txt
      collsim tables --topo vr200_nvl144 --kind deepep_ll --tokens 64,128 -o wideep_deepep_ll_perf.parquet

    The layout is that of NVIDIA's AIConfigurator; docs/tune.md says what the columns hold.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli import texts
    from collsim.planning.tables import answer_table, prepare_table

    faults = Faults(lambda where: place_of(context, where, None))
    check_targets({"output": output}, faults, named_files(flags["topo"], flags["profile"]))
    suffixes = (".csv", ".txt", ".parquet")
    faults.attempt(check_suffix, output, suffixes, "end it in .csv, .txt or .parquet")
    asked: dict[str, Any] = {"overrides": texts.read_overrides(flags["overrides"], faults)}
    asked["degrade"] = texts.read_shares(flags["degrade"], faults)
    for name, text in flags.items():
        if name in LISTS and text is not None:
            asked[name] = faults.attempt(texts.read_counts, text, name)
        elif name in ("op", "dtype", "model") and text is not None:
            asked[name] = [each.strip() for each in text.split(",")]
        elif name in SCALE_OUT and text is not None:
            asked[name] = text
        elif name not in asked and name not in LISTS and text is not None and text != ():
            asked[name] = list(text) if isinstance(text, tuple) else text
    topo = asked.pop("topo", None)
    known = {name: value for name, value in asked.items() if value is not None}
    prepared = faults.attempt(lambda: prepare_table(topo, kind, **known))
    faults.raise_any()
    assert prepared is not None
    with patience(quiet):
        found = answer_table(prepared)
    if output is not None and output.endswith(".parquet"):
        _write_parquet(found.to_parquet, output)
    else:
        write(found.to_csv(), output)
    for line in found.refused:
        click.echo(f"error: {line}", err=True)
    if found.refused:
        context.exit(PARTLY)


def _write_parquet(writer: Callable[[str], None], file: str) -> None:
    """Write a Parquet file; without the library that does, say what to install."""
    from collsim.core.errors import Fault, InputError

    try:
        writer(file)
    except ImportError as error:
        what, _, hint = str(error).partition(": ")
        raise InputError(Fault(what, "output", hint)) from None
