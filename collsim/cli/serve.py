"""``collsim serve``: models with experts under requests as they come, and what jobs on one fabric cost each other."""

from __future__ import annotations

import click

from collsim.cli.options import complete, zoo
from collsim.cli.output import check_targets, named_files, output_format, patience, screen_of, write, write_page
from collsim.core.errors import Faults

__all__ = ["serve"]


def serving_formats() -> tuple[str, ...]:
    from collsim.report.serving import SERVING_FORMATS

    return SERVING_FORMATS


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--topo", metavar="NAME|FILE", **complete(zoo, files=True), help="Serve on this system.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure of the topology.")
@click.option("--seed", metavar="N", help="Of arrivals, lengths and jitter.  [default: that of the file]")
@click.option(
    "--format", "form", envvar="COLLSIM_FORMAT", metavar="FORMAT", **complete(serving_formats), help="table or json."
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def serve(
    context: click.Context,
    /,
    *,
    file: str,
    topo: str | None,
    overrides: tuple[str, ...],
    seed: str | None,
    form: str | None,
    output: str | None,
    quiet: bool,
) -> None:
    """Predict tokens a second and the time of a token of models with experts that serve requests as they come.

    \b
    Examples:
      collsim serve examples/serving.yaml
      collsim serve examples/serving.yaml --set link.bandwidth="100 GB/s"
      collsim serve examples/serving.yaml --seed 2 -o served.json

    docs/serving.md describes the file: jobs with their arrivals, batches and kernels; failures in time, jitter.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli import texts
    from collsim.cli.run import place_of
    from collsim.report.serving import SERVING_FORMATS, render_serving
    from collsim.serving import simulate_serving

    faults = Faults(lambda where: place_of(context, where, None))
    target = faults.attempt(lambda: output_format(form, output, SERVING_FORMATS))
    check_targets({"output": output}, faults, [file, *named_files(topo)])
    changes = texts.read_overrides(overrides, faults)
    number = None if seed is None else faults.attempt(lambda: texts.read_number(seed, "seed"))
    faults.raise_any()
    with patience(quiet):
        found = faults.attempt(lambda: simulate_serving(file, topo=topo, overrides=changes, seed=number))
    faults.raise_any()
    assert found is not None
    if not quiet:
        for note in found.notes:
            click.echo(f"warning: {note}", err=True)
    screen = screen_of(output, wide=False, verbose=True)
    show = write_page if target in (None, "table") else write
    show(render_serving(found, target or "table", screen), output)
