"""``collsim diagnose``: from measured logs to the probable cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from collsim.cli.of_logs import experts_told, machine_of, measured_options, told_of_logs
from collsim.cli.options import complete
from collsim.cli.output import check_targets, named_files, output_format, patience, write, write_page
from collsim.core.errors import Faults

if TYPE_CHECKING:
    from collsim.diagnosis.findings import Diagnosis

__all__ = ["diagnose"]


def diagnosis_formats() -> tuple[str, ...]:
    from collsim.report import DIAGNOSIS_FORMATS

    return DIAGNOSIS_FORMATS


def cause_names() -> tuple[str, ...]:
    from collsim.diagnosis.causes import all_causes

    return tuple(cause.name for cause in all_causes())


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@measured_options
@click.option(
    "--causes",
    metavar="NAME[,NAME...]",
    **complete(cause_names),
    help="Look at these causes only.  [default: all that the system can have]",
)
@click.option(
    "--format",
    "form",
    envvar="COLLSIM_FORMAT",
    metavar="FORMAT",
    **complete(diagnosis_formats),
    help="table, json or svg (a picture of the first log that is not healthy).  [default: table]",
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def diagnose(
    context: click.Context, /, *, form: str | None, output: str | None, quiet: bool, **flags: Any
) -> None:  # fmt: skip
    """Say whether logs of nccl-tests or rccl-tests are healthy, and what would explain those that are not.

    Every cause is simulated at the sizes of the log and its whole curve compared with the measured one.

    \b
    Examples:
      collsim diagnose all_reduce.log --topo hgx_h100
      collsim diagnose two_nodes.log --topo dgx_a100 --set nic.shared_by=2
      collsim diagnose pairs/*.log --topo hgx_h100 --format json -o pairs.json
      collsim diagnose all_reduce.log --topo mi300x_ubb8 -o all_reduce.svg

    Exit code 1: a log is faulty, has wrong results or is faster than the wires allow.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.report import DIAGNOSIS_FORMATS, render_diagnosis

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, output, DIAGNOSIS_FORMATS))
    check_targets({"output": output}, faults, [*flags["logs"], *named_files(flags["topo"], flags["profile"])])
    if told := experts_told(flags, faults, form=target or "table", causes=True):
        write(told[0], output)
        context.exit(int(told[1]))
    with patience(quiet):
        found = _diagnosed(flags, faults)
    if not quiet:
        for warning in found.warnings:
            click.echo(f"warning: {warning}", err=True)
    show = write_page if target in (None, "table") else write
    show(render_diagnosis(found, target or "table"), output)
    if found.verdict in ("faulty", "broken"):
        context.exit(1)


def _diagnosed(flags: dict[str, Any], faults: Faults) -> Diagnosis:
    """Check everything that was asked, raise all that is wrong with it, and diagnose."""
    from collsim.calibration.gathered import gather
    from collsim.diagnosis.judgement import chosen_causes, diagnosed

    machine, rank_list = machine_of(flags, faults)
    options = {"profile": flags["profile"], "rank_list": rank_list, **told_of_logs(flags, faults)}
    names = None if flags["causes"] is None else [name.strip() for name in flags["causes"].split(",")]
    causes = faults.attempt(chosen_causes, names)
    gathered = faults.attempt(lambda: gather(flags["logs"], flags["topo"], machine=machine, **options))
    faults.raise_any()
    assert gathered is not None
    assert causes is not None
    return diagnosed(gathered, flags["topo"], machine, causes)
