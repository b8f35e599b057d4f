"""``collsim explain``: one run, taken apart on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import complete, request_options
from collsim.cli.output import check_targets, named_files, output_format, patience, write, write_page
from collsim.cli.run import load_config, requested, without_rivals
from collsim.core.errors import Faults, InputError

if TYPE_CHECKING:
    from collsim.cli.config import Configuration
    from collsim.explanation.findings import Explanation

__all__ = ["explain"]

FORMATS = ("table", "json")


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@request_options
@click.option(
    "--format", "form", envvar="COLLSIM_FORMAT", metavar="FORMAT", **complete(lambda: FORMATS), help="table or json."
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    callback=load_config,
    help="Take what no flag says from there: a saved configuration or a result in JSON.",
)
@click.option("--no-what-ifs", is_flag=True, help="Do not simulate what would make it faster.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def explain(
    context: click.Context,
    /,
    *,
    form: str | None,
    output: str | None,
    config: Configuration | None,
    no_what_ifs: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Explain one run: what was chosen and why, what its time is made of, and what would help most.

    \b
    Examples:
      collsim explain --topo hgx_h100 --op all_reduce --size 64M
      collsim explain --topo h100_rail --nodes 4 --op all_reduce --size 1G
      collsim explain --topo mi300x_ubb8 --op all_to_all --size 64M --fail link:gpu0-gpu1
      collsim explain --config run.json --size 64M --format json -o explained.json

    Flags are those of collsim run, for one operation, one size and one algorithm (auto and best are one).
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.run import place_of
    from collsim.report.explanation import explanation_json, explanation_text
    from collsim.simulation.request.placement import files_of

    faults = Faults(lambda where: place_of(context, where, config))
    target = faults.attempt(lambda: output_format(form, output, FORMATS))
    sources = [*named_files(flags["topo"], flags["profile"]), *filter(None, [flags["matrix"]])]
    sources += [*files_of(flags["placement"]), *([config.file] if config is not None else [])]
    check_targets({"output": output}, faults, sources)
    with patience(quiet):
        found = _explained(without_rivals(context, flags), config, faults, what_ifs=not no_what_ifs)
    if not quiet:
        for warning in found.result.warnings:
            click.echo(f"warning: {warning}", err=True)
    if target == "json":
        write(explanation_json(found), output)
    else:
        write_page(explanation_text(found), output)


def _explained(
    flags: dict[str, Any], config: Configuration | None, faults: Faults, *, what_ifs: bool
) -> Explanation:  # fmt: skip
    """Check everything that was asked, raise all that is wrong with it, and explain."""
    from collsim.explanation.account import checked, explained

    asked = requested(flags, config, faults)
    unread = flags["matrix"] is not None and asked["matrix"] is None
    try:
        checked(asked)
    except InputError as error:  # a matrix that was given but could not be read is not called absent
        faults += [fault for fault in error.faults if not (unread and fault.where == "matrix")]
    faults.raise_any()
    found = faults.attempt(explained, asked, what_ifs=what_ifs)
    faults.raise_any()
    assert found is not None
    return found
