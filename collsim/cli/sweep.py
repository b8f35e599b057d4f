"""``collsim sweep``: every point of a grid, on all cores or on a Dask cluster, to a file that survives a kill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collsim.cli.options import complete, screen_options
from collsim.cli.output import Progress, named_files, output_format, screen_of, write
from collsim.cli.run import place_of
from collsim.core.errors import PARTLY, Fault, Faults, InputError

if TYPE_CHECKING:
    from collsim.sweeps import SweepResult

__all__ = ["sweep"]

MOST_TOLD = 10
"""Failed points that stderr names."""


def sweep_formats() -> tuple[str, ...]:
    from collsim.report.sweep import SWEEP_FORMATS

    return SWEEP_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("file", metavar="GRID", type=click.Path())
@click.option("-o", "--output", metavar="FILE", help="Append each point there: .jsonl, or .parquet once all are done.")
@click.option("--jobs", metavar="N", help="Processes.  [default: one for each core]")
@click.option("--dask", metavar="ADDRESS", help="Answer on the workers of this Dask scheduler: tcp://HOST:8786.")
@click.option("--retry-failed", is_flag=True, help="Ask points again that FILE has as failed.")
@click.option("--pareto", metavar="NAME,NAME", help="Show the points that none beats in these: cost,time, ...")
@click.option(
    "--format", "form", envvar="COLLSIM_FORMAT", metavar="FORMAT", **complete(sweep_formats), help="table, csv or json."
)
@screen_options
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary on stderr.")
@click.pass_context
def sweep(
    context: click.Context,
    /,
    *,
    file: str,
    output: str | None,
    jobs: str | None,
    dask: str | None,
    retry_failed: bool,
    pareto: str | None,
    form: str | None,
    wide: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Answer every point of a grid: topologies, nodes, operations, sizes, figures of the machine, models with experts.

    \b
    Examples:
      collsim sweep examples/sweep.yaml
      collsim sweep examples/sweep.yaml -o results.jsonl --jobs 8 --pareto cost,time
      collsim sweep examples/sweep.yaml -o results.parquet --dask tcp://scheduler:8786

    With -o each point is appended as it is done. Killed at any moment, the same command goes on where it was: points
    are told by all that they ask and by the version of collsim. A point that fails is recorded with its error, and
    the others go on (exit code 4); it is asked again with --retry-failed. docs/sweep.md describes the file.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli import texts
    from collsim.report.sweep import SWEEP_FORMATS, render_sweep
    from collsim.sweeps import sweep as answer

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, None, SWEEP_FORMATS))
    number = None if jobs is None else faults.attempt(texts.read_number, jobs, "jobs")
    if output is not None and output in named_files(file):
        faults.append(Fault(f"it would replace {file}, which this command reads", "output", "write to another file"))
    progress = Progress(quiet)
    if faults:  # nothing is answered, but what else is wrong is told with them
        faults.attempt(_checked, file, pareto)
    faults.raise_any()
    try:
        found = faults.attempt(_installed, partial(answer, file, output, jobs=number, dask=dask, pareto=pareto,
                                                   retry_failed=retry_failed,
                                                   progress=partial(progress, "point")))  # fmt: skip
    except KeyboardInterrupt:
        progress.close()
        if output is not None and any(map(Path.exists, (Path(output), Path(f"{output}.jsonl")))):
            click.echo(f"points that are done are in {output}: the same command goes on there", err=True)
        raise
    progress.close()
    faults.raise_any()
    assert found is not None
    _tell(found, output, quiet)
    if output is None or found.objectives or form is not None:
        write(render_sweep(found, target or "table", screen_of(None, wide=wide, verbose=verbose)), None)
    if found.failed:
        context.exit(PARTLY if len(found.failed) < len(found) else max(row["exit_code"] for row in found.failed))


def _installed(answer: Callable[[], SweepResult]) -> SweepResult:
    """Return the answer; what is not installed is a fault of the request."""
    try:
        return answer()
    except ImportError as error:
        what, _, hint = str(error).partition(": ")
        raise InputError(Fault(what, "dask", hint)) from None


def _checked(file: str, pareto: str | None) -> None:
    """Check the grid and the objectives beside flags that are wrong."""
    from collsim.sweeps.grid import read_grid
    from collsim.sweeps.pareto import objectives_of

    faults = Faults()
    faults.attempt(read_grid, file)
    if pareto is not None:
        faults.attempt(objectives_of, pareto)
    faults.raise_any()


def _tell(found: SweepResult, output: str | None, quiet: bool) -> None:
    """Say on stderr what was done, and which points failed."""
    for row in found.failed[:MOST_TOLD]:
        asked = ", ".join(f"{name}={row['asked'].get(name)}" for name in found.axes)
        click.echo(f"error: {asked}: {row['error']}", err=True)
    if len(found.failed) > MOST_TOLD:
        click.echo(f"error: {len(found.failed) - MOST_TOLD} more points failed: see their error", err=True)
    if output is not None and not quiet:
        kept = f", {found.kept} of them there before" if found.kept else ""
        others = f"; {found.others} records of other grids or versions are left there" if found.others else ""
        click.echo(f"{len(found)} points in {output}{kept}{others}", err=True)
