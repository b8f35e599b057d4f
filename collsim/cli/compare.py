"""``collsim compare``: the same collectives on several systems, side by side."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import column_option, comparison_options, complete, screen_options, zoo
from collsim.cli.output import check_targets, named_files, output_format, patience, screen_of, write
from collsim.cli.run import place_of, requested, without_rivals
from collsim.core.errors import PARTLY, Faults

if TYPE_CHECKING:
    from collsim.simulation.comparison import Comparison

__all__ = ["compare"]


def comparison_formats() -> tuple[str, ...]:
    from collsim.report import COMPARISON_FORMATS

    return COMPARISON_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("topos", nargs=-1, metavar="TOPO...", **complete(zoo, files=True))
@comparison_options
@click.option(
    "--format",
    "form",
    envvar="COLLSIM_FORMAT",
    metavar="FORMAT",
    **complete(comparison_formats),
    help="table, csv, json or md.  [default: table]",
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@screen_options
@column_option
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def compare(
    context: click.Context,
    /,
    *,
    topos: tuple[str, ...],
    form: str | None,
    output: str | None,
    quiet: bool,
    wide: bool,
    verbose: bool,
    columns: str | None,
    **flags: Any,
) -> None:
    """Predict how long a collective takes on several systems, and how many times as fast as the first each one is.

    \b
    Examples:
      collsim compare mi355x_rack128 gb200_nvl72 --op all_to_all,all_reduce --ranks 72 --split "none,MOD 8"
      collsim compare mi300x_ubb8 mi355x_ubb8 hgx_h100 --op all_reduce --size 1M,1G --profile ideal
      collsim compare hgx_h100 "hgx_h100,link.bandwidth=50 GB/s" --op all_gather --format md

    Behind the name of a system stand what to change of it alone: NAME,PATH=VALUE,PATH=VALUE. Flags hold for all.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.report import COMPARISON_FORMATS, render_comparison
    from collsim.report.comparison import refused_lines
    from collsim.report.wires import check_sets
    from collsim.simulation.request.placement import PLACEMENTS

    faults = Faults(lambda where: "TOPO" if where in ("topo", "topos") else place_of(context, where, None))
    sets = check_sets(columns, faults)
    target = faults.attempt(lambda: output_format(form, output, COMPARISON_FORMATS))
    hosts = None if flags["placement"] in PLACEMENTS else flags["placement"]
    sources = [*named_files(*topos, flags["profile"]), *filter(None, [flags["matrix"], hosts])]
    check_targets({"output": output}, faults, sources)
    with nullcontext() if quiet else patience():
        comparison = _compared(topos, without_rivals(context, flags), faults)
    if not quiet:
        for warning in comparison.warnings:
            click.echo(f"warning: {warning}", err=True)
    screen = screen_of(output, wide=wide, verbose=verbose, columns=sets)
    write(render_comparison(comparison, target or "table", screen), output)
    if comparison.refused:
        for line in refused_lines(comparison):
            click.echo(f"error: {line}", err=True)
        context.exit(PARTLY)


def _compared(topos: tuple[str, ...], flags: dict[str, Any], faults: Faults) -> Comparison:
    """Check everything that was asked, raise all that is wrong with it, and simulate."""
    request = requested({**flags, "topo": None}, None, faults)
    del request["topo"]
    from collsim.simulation.compare import answer, prepare

    cases = faults.attempt(lambda: prepare(topos, **request))
    faults.raise_any()
    assert cases is not None
    comparison = faults.attempt(lambda: answer(cases))
    faults.raise_any()
    assert comparison is not None
    return comparison
