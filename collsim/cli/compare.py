"""``collsim compare``: the same collectives on several systems, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import column_option, comparison_options, complete, screen_options, zoo
from collsim.cli.output import check_targets, named_files, output_format, patience, screen_of, write
from collsim.cli.run import place_of, requested, without_rivals
from collsim.core.errors import PARTLY, Fault, Faults

if TYPE_CHECKING:
    from collsim.planning import WorkloadComparison
    from collsim.report import Screen
    from collsim.simulation.comparison import Comparison

__all__ = ["compare"]


def comparison_formats() -> tuple[str, ...]:
    from collsim.report import COMPARISON_FORMATS

    return COMPARISON_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("topos", nargs=-1, metavar="TOPO...", **complete(zoo, files=True))
@comparison_options
@click.option("--workload", metavar="FILE", help="Compare by a step or by dispatch and combine: a workload, as YAML.")
@click.option("--compute-scale", metavar="X", help="Of a workload: let kernels take X times as long.")
@click.option("--cost", is_flag=True, help="Also dollars and joules, at public prices, and what decides each row.")
@click.option("--price", multiple=True, metavar="NAME=USD", help="Dollars an hour of one GPU of a system.")
@click.option("--power", multiple=True, metavar="NAME=WATTS", help="Power of one GPU of a system.")
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
    workload: str | None,
    compute_scale: str | None,
    cost: bool,
    price: tuple[str, ...],
    power: tuple[str, ...],
    columns: str | None,
    **flags: Any,
) -> None:
    """Predict how long a collective takes on several systems, and how many times as fast as the first each one is.

    \b
    Examples:
      collsim compare mi355x_rack128 gb200_nvl72 --op all_to_all,all_reduce --ranks 72 --split "none,MOD 8"
      collsim compare mi300x_ubb8 mi355x_ubb8 hgx_h100 --op all_reduce --size 1M,1G --profile ideal
      collsim compare hgx_h100 "hgx_h100,link.bandwidth=50 GB/s" --op all_gather --format md
      collsim compare mi355x_ubb8 hgx_b200 --op all_reduce --size 64M --cost --price hgx_b200=2.50
      collsim compare hgx_h100 "hgx_b200,workload.flops=1300e12" --workload examples/llama_step.yaml

    Behind the name of a system stand what to change of it alone: NAME,PATH=VALUE,PATH=VALUE. Flags hold for all.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli import texts
    from collsim.core.progress import interrupted
    from collsim.report import COMPARISON_FORMATS, render_comparison
    from collsim.report.comparison import refused_lines
    from collsim.report.wires import check_sets
    from collsim.simulation.request.placement import PLACEMENTS

    faults = Faults(lambda where: "TOPO" if where in ("topo", "topos") else place_of(context, where, None))
    sets = check_sets(columns, faults)
    target = faults.attempt(lambda: output_format(form, output, COMPARISON_FORMATS))
    hosts = None if flags["placement"] in PLACEMENTS else flags["placement"]
    sources = [*named_files(*topos, flags["profile"]), *filter(None, [flags["matrix"], hosts, workload])]
    check_targets({"output": output}, faults, sources)
    own = {where: texts.read_prices(told, where, faults) for where, told in (("price", price), ("power", power))}
    screen = screen_of(output, wide=wide, verbose=verbose, columns=sets)
    if workload is not None or compute_scale is not None:
        if workload is None:
            faults.append(Fault("there is no workload", "compute_scale", "add --workload FILE"))
        with patience(quiet):
            found = _compared_workload(
                context, (topos, workload or ""), {**flags, "compute_scale": compute_scale}, own, faults
            )
        _show_workload(context, found, target or "table", output, screen)
        return
    with patience(quiet, keeps_done=True):
        comparison = _compared(topos, without_rivals(context, flags), {"cost": cost, **own}, faults)
        is_part = interrupted()
    if not quiet:
        for warning in comparison.warnings:
            click.echo(f"warning: {warning}", err=True)
    write(render_comparison(comparison, target or "table", screen), None if is_part else output)
    if is_part:  # files are whole or not there
        raise KeyboardInterrupt
    if comparison.refused:
        for line in refused_lines(comparison):
            click.echo(f"error: {line}", err=True)
        context.exit(PARTLY)


def _compared(
    topos: tuple[str, ...], flags: dict[str, Any], costs: dict[str, Any], faults: Faults
) -> Comparison:  # fmt: skip
    """Check everything that was asked, raise all that is wrong with it, and simulate."""
    request = requested({**flags, "topo": None}, None, faults)
    del request["topo"]
    from collsim.simulation.compare import answer, prepare

    cases = faults.attempt(lambda: prepare(topos, **request, **costs))
    faults.raise_any()
    assert cases is not None
    comparison = faults.attempt(lambda: answer(cases))
    faults.raise_any()
    assert comparison is not None
    return comparison


def _compared_workload(
    context: click.Context,
    asked_of: tuple[tuple[str, ...], str],
    flags: dict[str, Any],
    own: dict[str, dict[str, str]],
    faults: Faults,
) -> WorkloadComparison:
    """Check everything that was asked of a workload, raise all that is wrong with it, and simulate."""
    from collsim.cli import texts
    from collsim.planning import compare_workloads
    from collsim.simulation.request.fields import BY_NAME

    given = {name: value for name, value in flags.items() if _is_given(context, name)}
    asked: dict[str, Any] = {}
    for name, text in given.items():
        kind = BY_NAME[name].kind if name in BY_NAME else "decimal"
        if kind == "pairs":
            asked[name] = texts.PAIRS[name](text, faults)
        elif kind == "decimal":
            asked[name] = faults.attempt(texts.read_decimal, text, name)
        elif name in ("nodes", "ranks", "gpus_per_node", "racks"):
            asked[name] = faults.attempt(texts.read_number, text, name)
        else:
            asked[name] = list(text) if isinstance(text, tuple) else text
    asked |= own
    sound = not faults
    found = faults.attempt(lambda: compare_workloads(*asked_of, **asked)) if sound else None
    faults[:] = [_in_flags(context, fault) for fault in faults] if sound else faults
    faults.raise_any()
    assert found is not None
    return found


def _in_flags(context: click.Context, fault: Fault) -> Fault:
    """Return a fault of a whole file with its flag, and one whose hint lists arguments with flags in their place."""
    workload = context.params["workload"]
    if workload and fault.where == Fault("", workload).where:  # a fault cuts long names
        return replace(fault, where=f"--workload: {fault.where}")
    _, told, names = fault.hint.partition("it takes ")
    params = {param.name: max(param.opts, key=len) for param in context.command.params}
    if not told or fault.where not in params:  # a fault of the file has the words of the file
        return fault
    return replace(fault, hint=f"{told}{', '.join(params[name] for name in names.split(', ') if name in params)}")


def _is_given(context: click.Context, name: str) -> bool:
    """Return True if the command line or the environment has a flag."""
    from click.core import ParameterSource

    return context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)


def _show_workload(
    context: click.Context, found: WorkloadComparison, target: str, output: str | None, screen: Screen
) -> None:  # fmt: skip
    from collsim.report.workloads import render_workloads

    write(render_workloads(found, target, screen), output)
    for run in found.refused:
        click.echo(f"error: {run.label} is refused: {run.error}", err=True)
    if found.refused:
        context.exit(PARTLY)
