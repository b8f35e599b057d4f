"""``collsim report``: results, logs and explanations as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from collsim.cli.output import check_suffix, check_targets, patience, write
from collsim.core.errors import Faults

__all__ = ["report", "write_report"]

SUFFIXES = (".html", ".htm")


def write_report(
    files: str | Path | Iterable[str | Path], output: str | Path, *, explain: bool = True, what_ifs: bool = True
) -> None:
    """Write a report on files of results and logs: one HTML file that needs no network.

    Parameters
    ----------
    files : str, Path or iterable of them
        JSON that ``collsim run``, ``compare``, ``validate``, ``moe``, ``diagnose``, ``timeline``, ``explain``,
        ``sweep``, ``tune`` or ``serve`` wrote, and logs of nccl-tests or rccl-tests, whose points are drawn over the
        curves of their operation and ranks.
    output : str or Path
        The file, whole or not there.
    explain : bool
        Whether to simulate again what explains the largest size of each run.
    what_ifs : bool
        Whether an explanation says what would help most.

    Raises
    ------
    InputError
        Every file that cannot be shown, or the output cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_report("examples/h100_all_reduce.log", f"{folder}/report.html", explain=False)
    ...     Path(f"{folder}/report.html").read_text().count('class="m"')
    6
    """
    from collsim.core.atomic_files import write_text
    from collsim.explanation.gathering import gather
    from collsim.report.document_check import check_document
    from collsim.report.html import report_html

    named = [files] if isinstance(files, str | Path) else list(files)
    faults = Faults()
    check_output(str(output), map(str, named), faults)
    faults.raise_any()
    write_text(report_html(gather(named, check_document, explain=explain, what_ifs=what_ifs)), str(output))


def check_output(output: str | None, files: Iterable[str], faults: Faults) -> None:
    """Check the file of a report before any work is done for it: it must replace none of those that are read."""
    check_targets({"output": output}, faults, files)
    faults.attempt(check_suffix, output, SUFFIXES, "end it in .html: a report is HTML")


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="FILE", help="Write there.  [default: stdout]")
@click.option("--no-explain", is_flag=True, help="Only what the files hold: simulate nothing.")
@click.option("--no-what-ifs", is_flag=True, help="Do not simulate what would make runs faster.")
@click.option("-q", "--quiet", is_flag=True, help="No notices on stderr.")
@click.pass_context
def report(
    context: click.Context,
    /,
    *,
    files: tuple[str, ...],
    output: str | None,
    no_explain: bool,
    no_what_ifs: bool,
    quiet: bool,
) -> None:
    """Make one HTML file of results and measured logs, which needs no network to be read.

    \b
    Examples:
      collsim run --topo hgx_h100 --op all_reduce -o run.json
      collsim report run.json -o report.html
      collsim report run.json all_reduce.log -o report.html
      collsim report validate.json moe.json --no-explain -o report.html

    FILE is JSON of collsim run, compare, validate, moe, diagnose, timeline, explain, sweep, tune or serve, or a log
    of nccl-tests or rccl-tests. The largest size of each run is simulated again, to say where its time goes and what
    would help.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.explanation.gathering import gather
    from collsim.report.document_check import check_document
    from collsim.report.html import report_html

    faults = Faults(lambda where: place_of(context, where, None))
    check_output(output, files, faults)
    with patience(quiet):
        contents = faults.attempt(
            gather, files, check_document, explain=not (no_explain or faults), what_ifs=not no_what_ifs
        )
    faults.raise_any()
    assert contents is not None
    if not quiet:
        for note in contents.notes:
            click.echo(f"warning: {note}", err=True)
    write(report_html(contents), output)
