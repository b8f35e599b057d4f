"""``collsim tune``: the best algorithm, protocol and channels of a library by size, for its tuner plugin."""

from __future__ import annotations

from typing import Any

import click

from collsim.cli.options import complete, screen_options, tuning_options
from collsim.cli.output import check_targets, named_files, output_format, patience, screen_of, write
from collsim.cli.run import place_of, requested, without_rivals
from collsim.core.errors import Faults
from collsim.simulation.request.fields import BY_NAME

__all__ = ["tune"]


def tuning_formats() -> tuple[str, ...]:
    from collsim.report.tuning import TUNING_FORMATS

    return TUNING_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@tuning_options
@click.option("--band", metavar="SHARE", help="Error of a ratio of times, such as 10%.  [default: the profile's]")
@click.option("--no-channels", is_flag=True, help="Leave the number of channels to the library.")
@click.option(
    "--format",
    "form",
    envvar="COLLSIM_FORMAT",
    metavar="FORMAT",
    **complete(tuning_formats),
    help="table, csv (the rules, as NCCL's example tuner plugin reads them) or json.  [default: table]",
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@screen_options
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def tune(
    context: click.Context,
    /,
    *,
    band: str | None,
    no_channels: bool,
    form: str | None,
    output: str | None,
    wide: bool,
    verbose: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Find the best algorithm, protocol and channels of a library by size, beside what it chooses by itself.

    \b
    Examples:
      collsim tune --topo hgx_h100 --op all_reduce -b 64K -e 1G
      collsim tune --topo hgx_h100 --nodes 4 -b 64K -e 1G -f 2 -o tuner.csv
      collsim tune --topo mi300x_ubb8 --op all_gather --band 10% --format csv

    Only ranges of sizes whose predicted gain exceeds the error of the model become rules. NCCL and RCCL read them with
    NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=tuner.csv.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.core.units import parse_fraction
    from collsim.planning.tuner import check_tuning
    from collsim.planning.tuner import tune as tuned
    from collsim.report.tuning import TUNING_FORMATS, render_tuning

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, output, TUNING_FORMATS))
    check_targets({"output": output}, faults, named_files(flags["topo"], flags["profile"]))
    whole = {name: flags.get(name, field.flag_default) for name, field in BY_NAME.items()}
    asked = requested(without_rivals(context, whole), None, faults)
    request = {name: value for name, value in asked.items() if name in flags}
    share = None if band is None else faults.attempt(parse_fraction, band, "band", allow_zero=True)
    if faults:  # what else is wrong, without an hour of simulation before it is told
        faults.attempt(lambda: check_tuning(**request, band=share))
    faults.raise_any()
    with patience(quiet):
        found = faults.attempt(lambda: tuned(**request, band=share, search_channels=not no_channels))
    faults.raise_any()
    assert found is not None
    if not quiet:
        for warning in found.warnings:
            click.echo(f"warning: {warning}", err=True)
    write(render_tuning(found, target or "table", screen_of(output, wide=wide, verbose=verbose)), output)
