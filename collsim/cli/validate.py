"""``collsim validate``: measured logs beside the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from collsim.cli.of_logs import experts_told, machine_of, measured_options, told_of_logs
from collsim.cli.options import Renamed, column_option, complete, screen_options
from collsim.cli.output import check_targets, named_files, output_format, patience, screen_of, write
from collsim.core.errors import PARTLY, Faults

if TYPE_CHECKING:
    from collsim.calibration.verdicts import Validation

__all__ = ["validate"]


def validation_formats() -> tuple[str, ...]:
    from collsim.report import VALIDATION_FORMATS

    return VALIDATION_FORMATS


@click.command(cls=Renamed, context_settings={"auto_envvar_prefix": "COLLSIM"})
@measured_options
@click.option(
    "--margin",
    metavar="X",
    help="Where there is no interval, times may differ by a factor of 1 + X.  [default: 25%]",
)
@click.option("--min-busbw", metavar="RATE", help='Exit code 1 if no row of a log reaches this, such as "350 GB/s".')
@click.option("--strict", is_flag=True, help="Exit code 1 as well if a row is outside the interval or margin.")
@click.option(
    "--format",
    "form",
    envvar="COLLSIM_FORMAT",
    metavar="FORMAT",
    **complete(validation_formats),
    help="table, csv or json.  [default: table]",
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@screen_options
@column_option
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def validate(
    context: click.Context,
    /,
    *,
    form: str | None,
    output: str | None,
    quiet: bool,
    wide: bool,
    verbose: bool,
    columns: str | None,
    strict: bool,
    min_busbw: str | None,
    **flags: Any,
) -> None:
    """Compare logs of nccl-tests or rccl-tests with the model, row by row, and say whether they are healthy.

    \b
    Examples:
      collsim validate all_reduce.log --topo hgx_h100
      collsim validate logs/*.log --topo mi300x_ubb8 --format csv -o errors.csv
      mpirun ... | collsim validate - --topo hgx_b200 --strict
      collsim validate two_nodes.log --topo dgx_a100 --set nic.bandwidth="100 Gb/s" --min-busbw "45 GB/s"

    Exit code 1: a row has wrong results or is faster than the wires allow, or a log says that its test failed; with
    --strict also if a row is outside the interval of its prediction, or outside 25 % where the profile has no interval;
    with --min-busbw also if the best row of a log has less. Exit code 4: the model has no answer for some of the rows.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.report import VALIDATION_FORMATS, render_validation
    from collsim.report.wires import check_sets

    faults = Faults(lambda where: place_of(context, where, None))
    sets = check_sets(columns, faults)
    target = faults.attempt(lambda: output_format(form, output, VALIDATION_FORMATS))
    check_targets({"output": output}, faults, [*flags["logs"], *named_files(flags["topo"], flags["profile"])])
    gate_Bps = None if min_busbw is None else faults.attempt(_rate, min_busbw)
    if told := experts_told(flags, faults, form=target or "table", causes=False):
        write(told[0], output)
        context.exit(1 if strict and told[1] else 0)
    with patience(quiet):
        validation = _validated(flags, faults)
    if not quiet:
        for warning in validation.warnings:
            click.echo(f"warning: {warning}", err=True)
    screen = screen_of(output, wide=wide, verbose=verbose, columns=sets)
    write(render_validation(validation, target or "table", screen), output)
    below = [] if gate_Bps is None else validation.below(gate_Bps)
    for log, best_Bps in below:
        click.echo(f"below --min-busbw: {log.file}:{log.line} reaches {best_Bps / 1e9:.4g} of {min_busbw}", err=True)
    if validation.flagged or validation.failed or below or (strict and validation.outside):
        context.exit(1)
    if validation.refused:
        context.exit(PARTLY)


def _rate(text: str) -> float:
    """Return the rate of ``--min-busbw`` in bytes/s."""
    from collsim.core.units import parse_bandwidth_Bps

    return parse_bandwidth_Bps(text, "min_busbw")


def _validated(flags: dict[str, Any], faults: Faults) -> Validation:
    """Check everything that was asked, raise all that is wrong with it, and compare."""
    from collsim.calibration.gathered import gather
    from collsim.calibration.health import MARGIN
    from collsim.calibration.validate import compare
    from collsim.core.units import parse_fraction

    told = told_of_logs(flags, faults)
    machine, rank_list = machine_of(flags, faults)
    text = flags["margin"]
    margin = MARGIN if text is None else faults.attempt(lambda: parse_fraction(text, "margin"))
    gathered = faults.attempt(
        lambda: gather(
            flags["logs"], flags["topo"], profile=flags["profile"], machine=machine, rank_list=rank_list, **told
        )
    )
    faults.raise_any()
    assert gathered is not None
    assert margin is not None
    return compare(gathered, margin)
