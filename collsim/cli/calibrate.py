"""``collsim calibrate``: from measured logs to a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.of_logs import log_options, told_of_logs
from collsim.cli.options import complete, profiles
from collsim.cli.output import check_targets, named_files, patience, write, write_page
from collsim.core.errors import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collsim.calibration.findings import Calibration

__all__ = ["calibrate"]


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@log_options
@click.option("-o", "--output", metavar="FILE", help="Write the profile there, for --profile of the other commands.")
@click.option("--plot", metavar="FILE", help="Draw the residuals there, as SVG.")
@click.option("--name", metavar="NAME", help="Of the profile.  [default: that of the topology]")
@click.option(
    "--start",
    default="auto",
    show_default=True,
    metavar="NAME|FILE",
    **complete(profiles, files=True),
    help="Profile that the fit starts from, also for what no row depends on; auto: of the topology or a relative.",
)
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr while it works.")
@click.pass_context
def calibrate(context: click.Context, /, *, output: str | None, plot: str | None, quiet: bool, **flags: Any) -> None:
    """Fit the constants of a library on a system to logs of nccl-tests or rccl-tests.

    Prints what was fitted with its 90 % interval, what these logs do not tell and which measurement would, and the
    errors: of the fitted rows, and of each operation and number of ranks predicted from all others if there are some.

    \b
    Examples:
      collsim calibrate logs/*.log --topo hgx_h100 -o mine.yaml --plot residuals.svg
      collsim run --topo hgx_h100 --op all_reduce --profile mine.yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.library import read_environment
    from collsim.report.calibration import calibration_table

    faults = Faults(lambda where: place_of(context, where, None))
    sources = [*flags["logs"], *named_files(flags["topo"], flags["start"])]
    check_targets({"output": output, "plot": plot}, faults, sources)
    _check_suffix("output", output, (".yaml", ".yml"), "--profile knows a file by that", faults)
    _check_suffix("plot", plot, (".svg",), "the drawing is SVG", faults)
    with patience(quiet):
        found = _fitted(flags, faults)
    if not quiet:
        for warning in read_environment(flags["environment"]).warnings:
            click.echo(f"warning: {warning}", err=True)
    if output is not None:
        from collsim.calibration.profile_writer import as_yaml
        from collsim.core.units import format_count

        files = sorted({entry.file for entry in found.residuals})
        names = [Path(file).name for file in files[:3]]
        named = f"{', '.join(names)}{', ...' if len(files) > 3 else ''}"
        write(as_yaml(found, f"{format_count(len(files), 'log')}: {named}"), output)
    if plot is not None:
        from collsim.report.svg.residual_plot import residual_plot

        write(residual_plot(found.residuals, f"Predicted over measured time, {found.profile.title}"), plot)
    write_page(calibration_table(found))


def _check_suffix(name: str, file: str | None, suffixes: Sequence[str], why: str, faults: Faults) -> None:
    """Refuse a file whose name does not say what is written to it; stdout and devices have any name."""
    from collsim.core.errors import Fault

    if not file or file == "-" or file.startswith("/dev/") or file.endswith(tuple(suffixes)):
        return
    faults.append(Fault(f'"{file[:200]}" does not end in {" or ".join(suffixes)}', name, why))


def _fitted(flags: dict[str, Any], faults: Faults) -> Calibration:
    """Check everything that was asked, read the logs, raise all that is wrong, and fit."""
    from collsim.calibration.fit import fit_profile, gather_rows

    asked = {**{key: flags[key] for key in ("name", "start")}, **told_of_logs(flags, faults)}
    read = faults.attempt(lambda: gather_rows(flags["logs"], flags["topo"], **asked))
    faults.raise_any()
    assert read is not None
    rows, skipped, topology = read
    found = faults.attempt(lambda: fit_profile(rows, topology, name=flags["name"], start=flags["start"]))
    faults.raise_any()
    assert found is not None
    return replace(found, skipped=tuple(skipped))
