"""``collsim timeline``: a whole step, from a profiler's trace or a workload, and what it would take elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import complete, profiles, zoo
from collsim.cli.output import check_suffix, check_targets, named_files, output_format, patience, write, write_page
from collsim.core.errors import Fault, Faults, InputError

if TYPE_CHECKING:
    from collsim.timeline.result import TimelineResult

__all__ = ["timeline"]


def timeline_formats() -> tuple[str, ...]:
    from collsim.report.timeline import TIMELINE_FORMATS

    return TIMELINE_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--topo", metavar="NAME|FILE", **complete(zoo, files=True), help="Run the step on this system.")
@click.option("--nodes", metavar="N", help="Run it on a cluster of N such nodes: groups of all ranks grow to fill it.")
@click.option("--ranks", metavar="N", help="Let groups of all ranks have N ranks, each with as many bytes as before.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable of the library.")
@click.option("--compute-scale", default="1", metavar="X", help="Let all other kernels take X times as long.")
@click.option("--fail", multiple=True, metavar="WHAT", help="Take a link, adapter or switch away.")
@click.option("--degrade", multiple=True, metavar="WHAT=SHARE", help="Leave a share of the rate of links.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure of the topology.")
@click.option(
    "--profile",
    metavar="NAME|FILE",
    **complete(profiles, files=True),
    help="Constants of the library.  [default: auto]",
)
@click.option("--library", metavar="NAME", help="Such as nccl-2.28.  [default: that of the profile]")
@click.option("--steps", metavar="N", help="How many steps the trace holds.  [default: marks or repetition tell]")
@click.option("--recorded-on", metavar="NAME|FILE", **complete(zoo, files=True), help="Where the trace was recorded.")
@click.option(
    "--format", "form", envvar="COLLSIM_FORMAT", metavar="FORMAT", **complete(timeline_formats), help="table or json."
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option("--perfetto", metavar="FILE", help="Write the step as a trace there, for ui.perfetto.dev.")
@click.option("--svg", metavar="FILE", help="Draw the step there.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def timeline(
    context: click.Context,
    /,
    *,
    files: tuple[str, ...],
    form: str | None,
    output: str | None,
    perfetto: str | None,
    svg: str | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Predict how long a whole step takes, from a profiler's trace or a workload, and what would change it.

    \b
    Examples:
      collsim timeline rank0.json.gz
      collsim timeline rank0.json.gz rank1.json.gz
      collsim timeline rank0.json.gz --env NCCL_MAX_NCHANNELS=8
      collsim timeline rank0.json.gz --topo hgx_b200 --compute-scale 0.45
      collsim timeline rank0.json.gz --nodes 4 --svg step.svg --perfetto step.json
      collsim timeline step.yaml --topo hgx_h100

    A trace is what torch.profiler exports of one rank; those of further ranks say how long the first waited for them.
    Without flags the step is replayed as it was recorded.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.report.timeline import TIMELINE_FORMATS, perfetto_text, render_timeline

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, output, TIMELINE_FORMATS))
    sources = [*files, *named_files(flags["topo"], flags["profile"], flags["recorded_on"])]
    check_targets({"output": output, "perfetto": perfetto, "svg": svg}, faults, sources)
    faults.attempt(lambda: check_suffix(svg, (".svg",), "end it in .svg: the drawing is SVG", "svg"))
    with patience(quiet):
        found = _answered(files, flags, faults)
    if not quiet:
        for note in found.notes:
            click.echo(f"warning: {note}", err=True)
    if svg is not None:
        from collsim.report.svg.timeline_chart import timeline_svg

        write(timeline_svg(found), svg)
    if perfetto is not None:
        write(perfetto_text(found), perfetto)
    show = write_page if target in (None, "table") else write
    show(render_timeline(found, target or "table"), output)


def _positive(number: int, name: str) -> int:
    """Return a number that is 1 or more."""
    if number < 1:
        raise InputError(Fault(f"{number} is less than 1", name, "give 1 or more"))
    return number


def _answered(files: tuple[str, ...], flags: dict[str, Any], faults: Faults) -> TimelineResult:
    """Check everything that was asked, raise all that is wrong with it, and simulate."""
    from collsim.cli import texts
    from collsim.timeline.simulate import simulate_timeline
    from collsim.timeline.what_if import WhatIf

    def count(name: str) -> int | None:
        text = flags[name]
        return None if text is None else faults.attempt(lambda: _positive(texts.read_number(text, name), name))

    options = {
        "fail": list(flags["fail"]),
        "degrade": texts.read_shares(flags["degrade"], faults),
        "overrides": texts.read_overrides(flags["overrides"], faults),
        "profile": flags["profile"],
        "library": flags["library"],
    }
    ranks, nodes, steps = (count(name) for name in ("ranks", "nodes", "steps"))
    environment = texts.read_settings(flags["environment"], faults)
    scale = faults.attempt(lambda: texts.read_decimal(flags["compute_scale"], "compute_scale"))
    faults.raise_any()
    what_if = WhatIf(flags["topo"], ranks, nodes, environment, 1.0 if scale is None else scale, options)
    found = faults.attempt(lambda: simulate_timeline(files, what_if, steps=steps, recorded_on=flags["recorded_on"]))
    faults.raise_any()
    assert found is not None
    return found
