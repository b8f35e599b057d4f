"""``collsim schedule``: show, export, check and compare what ranks send to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import request_options
from collsim.cli.output import write
from collsim.errors import Fault, InputError, VerificationError

if TYPE_CHECKING:
    from collsim.schedule import Schedule

__all__ = ["schedule"]


@click.group()
def schedule() -> None:
    """Show, export, check and compare schedules: who sends what to whom, and after what.

    \b
    Examples:
      collsim schedule show --topo hgx_h100 --op all_reduce --algo tree --size 1M
      collsim schedule export --topo mi300x_ubb8 --op all_gather --algo pat --size 1M -o pat.json
      collsim schedule check pat.json
      collsim schedule diff pat.json mine.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are


@schedule.command("show")
@request_options
@click.option("--rows", default=40, show_default=True, help="Show at most so many transfers.")
@click.pass_context
def schedule_show(context: click.Context, /, *, rows: int, **flags: Any) -> None:
    """Show the schedule of one algorithm at one size, step by step.

    \b
    Example:
      collsim schedule show --topo mi300x_ubb8 --op all_reduce --algo ring --size 1M --channels 1
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.report.schedule import schedule_text

    write(schedule_text(_built(context, flags), rows), None)


@schedule.command("export")
@request_options
@click.option("-o", "--output", metavar="FILE", required=True, help="Write there; a name in .gz is compressed.")
@click.pass_context
def schedule_export(context: click.Context, /, *, output: str, **flags: Any) -> None:
    """Write the schedule of one algorithm at one size to a file.

    \b
    Example:
      collsim schedule export --topo hgx_h100 --op all_reduce --algo ring --size 1M -o ring.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.schedule import save

    save(_built(context, flags), output)


@schedule.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def schedule_check(files: tuple[str, ...]) -> None:
    """Prove that schedules do what their operation promises: nothing lost, doubled or read too early.

    \b
    Example:
      collsim schedule check ring.json mine.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.schedule import load, verify

    unreadable: list[Fault] = []
    wrong: list[Fault] = []
    for file in files:
        try:
            loaded = load(file)
            verify(loaded)
        except InputError as error:
            unreadable.extend(error.faults)
        except VerificationError as error:
            wrong.extend(Fault(fault.what, f"{file}: {fault.where}".rstrip(": "), fault.hint) for fault in error.faults)
        else:
            click.echo(f"{file}: ok ({loaded.op} by {loaded.algo}, {loaded.n_ranks} ranks)")
    if unreadable:
        raise InputError(*unreadable, *wrong)
    if wrong:
        raise VerificationError(*wrong)


@schedule.command("diff")
@click.argument("first", metavar="FILE")
@click.argument("second", metavar="FILE")
def schedule_diff(first: str, second: str) -> None:
    """Say how two schedules differ; exit code 1 if they do.

    \b
    Example:
      collsim schedule diff ring.json mine.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.schedule import diff, load

    faults: list[Fault] = []
    loaded: list[Schedule] = []
    for file in (first, second):
        try:
            loaded.append(load(file))
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(*faults)
    lines = diff(loaded[0], loaded[1])
    if lines:
        write("".join(f"{line}\n" for line in lines), None)
        click.get_current_context().exit(1)


def _built(context: click.Context, flags: dict[str, Any]) -> Schedule:
    """Return the one schedule that the flags ask for."""
    from collsim.cli.flags import Faults
    from collsim.cli.runs import checked_request, place_of, without_rivals
    from collsim.simulation import build_schedule

    faults = Faults(lambda where: place_of(context, where, None))
    asked = checked_request(without_rivals(context, flags), None, faults)
    built = faults.attempt(lambda: build_schedule(*asked))
    faults.raise_any()
    assert built is not None
    return built
