"""``collsim schedule``: show, export, import, check, compare and run what ranks send to each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import (
    OPTIONS,
    SCHEDULE_OPTIONS,
    complete,
    formats,
    schedule_options,
    screen_options,
    with_options,
)
from collsim.cli.output import (
    check_sources,
    check_suffix,
    check_targets,
    named_files,
    output_format,
    screen_of,
    write,
    write_page,
)
from collsim.cli.run import checked_request
from collsim.core.errors import Fault, Faults, InputError, VerificationError
from collsim.simulation.request.fields import BOUNDS, FIELDS, SCALE_OUT

if TYPE_CHECKING:
    from collsim.schedule import Schedule

__all__ = ["schedule"]

DEFAULT_SIZE = "1M"
FIRST_BYTES = 2**20
"""An algorithm of MSCCL is read at this size first, for its operation and ranks."""
RUN_OPTIONS = {
    name: OPTIONS[name]
    for name in (
        "topo", *SCALE_OUT, *BOUNDS, "size", "rank_list", "proto", "dtype", "profile", "overrides", "fail", "degrade",
    )
}  # fmt: skip
"""The flags of a schedule that is there already: nothing of what chooses or shapes one."""


@click.group()
def schedule() -> None:
    """Show, export, import, check, compare and run schedules: who sends what to whom, and after what.

    \b
    Examples:
      collsim schedule show --topo hgx_h100 --op all_reduce --algo tree --size 1M
      collsim schedule export --topo mi300x_ubb8 --op all_gather --algo pat --size 1M -o pat.json
      collsim schedule check pat.json
      collsim schedule diff pat.json mine.json
      collsim schedule import my_algorithm.xml --size 1M -o mine.json
      collsim schedule run my_algorithm.xml --topo dgx_a100 --size 64K,1M
    """  # noqa: D301 - \b keeps the lines that follow it as they are


@schedule.command("show")
@schedule_options
@click.option("--rows", default="40", show_default=True, metavar="N", help="Show at most so many transfers.")
@click.pass_context
def schedule_show(context: click.Context, /, *, rows: str, **flags: Any) -> None:
    """Show the schedule of one algorithm at one size, step by step.

    \b
    Example:
      collsim schedule show --topo mi300x_ubb8 --op all_reduce --algo ring --size 1M --channels 1
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.report.schedule import schedule_text

    faults = _faults(context)
    count = faults.attempt(lambda: _count(rows))
    built = _built(flags, faults)
    write_page(schedule_text(built, count or 0))


@schedule.command("export")
@schedule_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Write there; a name in .gz is compressed, one in .xml is for MSCCL; - is stdout.",
)
@click.pass_context
def schedule_export(context: click.Context, /, *, output: str, **flags: Any) -> None:
    """Write the schedule of one algorithm at one size to a file.

    \b
    Examples:
      collsim schedule export --topo hgx_h100 --op all_reduce --algo ring --size 1M -o ring.json
      collsim schedule export --topo hgx_h100 --op all_reduce --algo ring --size 1M --channels 2 -o ring.xml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.schedule.json_files import as_text, save

    faults = _faults(context)
    sources = [*named_files(flags["topo"], flags["profile"]), *filter(None, [flags["matrix"]])]
    check_targets({"output": output}, faults, sources)
    hint = "end it in .json or .json.gz, or in .xml for MSCCL"
    faults.attempt(lambda: check_suffix(output, (".json", ".gz", ".xml"), hint))
    built = _built(flags, faults)
    if output.endswith(".xml"):
        from collsim.importing.msccl_export import schedule_xml, unstated

        text = faults.attempt(schedule_xml, built)
        faults.raise_any()
        assert text is not None
        write(text, output)
        for told in unstated(built, text):
            click.echo(f"warning: {told}", err=True)
    elif output == "-":
        write(as_text(built), None)
    else:
        save(built, output)


@schedule.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def schedule_check(files: tuple[str, ...]) -> None:
    """Prove that schedules do what their operation promises: nothing lost, doubled or read too early.

    \b
    Example:
      collsim schedule check ring.json mine.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.core.input_files import name_of_input
    from collsim.schedule import load, verify

    unreadable = Faults()
    wrong: list[Fault] = []
    for file in files:
        loaded, name = unreadable.attempt(load, file), name_of_input(file)
        if loaded is None:
            continue
        try:
            verify(loaded)
        except (InputError, VerificationError) as error:
            found = [Fault(fault.what, f"{name}: {fault.where}".rstrip(": "), fault.hint) for fault in error.faults]
            (wrong if isinstance(error, VerificationError) else unreadable).extend(found)
        else:
            click.echo(f"{name}: ok ({loaded.op} by {loaded.algo}, {loaded.n_ranks} ranks)")
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

    faults = Faults()
    before, after = faults.attempt(load, first), faults.attempt(load, second)
    faults.raise_any()
    assert before is not None
    assert after is not None
    lines = diff(before, after)
    if lines:
        write("".join(f"{line}\n" for line in lines), None)
        click.get_current_context().exit(1)


@schedule.command("import")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--size", default=DEFAULT_SIZE, show_default=True, metavar="SIZE", help="Exactly one size.")
@click.option("-o", "--output", metavar="FILE", help="Write there; a name in .gz is compressed.  [default: stdout]")
def schedule_import(file: str, size: str, output: str | None) -> None:
    """Make a schedule of an algorithm of MSCCL, of one size, and prove that it does what its collective promises.

    FILE is XML, - is stdin.

    \b
    Examples:
      collsim schedule import my_algorithm.xml --size 1M -o mine.json
      generate_algorithm | collsim schedule import - --size 1M -o mine.json
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.importing import import_schedule
    from collsim.schedule.json_files import as_text, save

    faults = Faults(lambda where: {"size": "--size", "output": "-o"}.get(where, where))
    check_sources([file], faults)
    check_targets({"output": output}, faults, [file])
    hint = "end it in .json or .json.gz: a schedule is JSON"
    faults.attempt(lambda: check_suffix(output, (".json", ".gz"), hint))
    made = faults.attempt(import_schedule, file, size, where="--size") if file else None
    faults.raise_any()
    assert made is not None
    if output in (None, "-"):
        write(as_text(made), None)
        return
    save(made, str(output))
    what = f"{made.op} by {made.algo}, {made.n_ranks} ranks, {made.size_bytes} bytes, {made.n_transfers} transfers"
    write(f"{output}: ok ({what})\n", None)


@schedule.command("run")
@click.argument("file", metavar="FILE", type=click.Path())
@partial(with_options, options=RUN_OPTIONS.values())
@click.option("--format", "form", metavar="FORMAT", **complete(formats), help="As of collsim run.  [default: table]")
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@screen_options
@click.pass_context
def schedule_run(
    context: click.Context,
    /,
    *,
    file: str,
    form: str | None,
    output: str | None,
    wide: bool,
    verbose: bool,
    **flags: Any,
) -> None:
    """Predict how long a saved schedule, or an algorithm of MSCCL, takes on a machine, by size; - is stdin.

    \b
    Examples:
      collsim schedule run my_algorithm.xml --topo dgx_a100 -b 64K -e 4M -f 4
      collsim schedule run pat.json --topo mi300x_ubb8
      collsim schedule import my_algorithm.xml | collsim schedule run - --topo dgx_a100
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.report import render
    from collsim.simulation.written import predict_written

    faults = _faults(context)
    target = faults.attempt(lambda: output_format(form, output))
    check_targets({"output": output}, faults, [file, *named_files(flags["topo"], flags["profile"])])
    check_sources([file], faults)
    made = faults.attempt(lambda: _read(file)) if file else None
    if made is None:
        faults.raise_any()
    assert made is not None
    first, at = made
    given = any(flags[name] for name in ("size", "min_bytes", "max_bytes", "step_bytes", "step_factor"))
    chosen = {} if given or at is not None else {"size": str(first.size_bytes)}
    chosen |= {} if flags["rank_list"] else {"ranks": str(first.n_ranks)}
    absent = {field.name: field.flag_default for field in FIELDS if field.name not in RUN_OPTIONS}
    asked = checked_request({**absent, **flags, "op": first.op, **chosen}, None, faults)
    result = faults.attempt(predict_written, at or first, asked, flags["proto"])
    faults.raise_any()
    assert result is not None
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)
    write(render(result, target or "table", screen_of(output, wide=wide, verbose=verbose)), output)


def _read(file: str) -> tuple[Schedule, Callable[[int], Schedule] | None]:
    """Return the schedule in a file, and what makes it at other sizes: an algorithm of MSCCL has any."""
    from collsim.core.input_files import name_of_input
    from collsim.importing.msccl import read_msccl
    from collsim.importing.msccl_schedules import schedule_of
    from collsim.schedule import load
    from collsim.schedule.packed_files import read_schedule_file
    from collsim.topology.files.foreign import format_of

    content = read_schedule_file(file)  # once: a pipe can be read only once
    form = format_of(content)
    if form is None or form.key != "msccl":
        return load(file, content), None
    program = read_msccl(content, name_of_input(file))
    at = partial(schedule_of, program)
    return at(FIRST_BYTES), at


def _faults(context: click.Context) -> Faults:
    """Return where to collect what is wrong with the flags."""
    from collsim.cli.run import place_of

    return Faults(lambda where: place_of(context, where, None))


def _count(text: str) -> int:
    """Return a number of rows."""
    from collsim.cli.texts import read_number

    hint = "give 0 or more, such as 100"
    count = read_number(text, "rows", hint)
    if count < 0:
        raise InputError(Fault(f"{count} rows", "rows", hint))
    return count


ABSENT = {field.name: field.flag_default for field in FIELDS if field.name not in SCHEDULE_OPTIONS}
"""Fields of a request that the flags of one schedule leave out, since they change nothing that is sent."""


def _built(flags: dict[str, Any], faults: Faults) -> Schedule:
    """Return the one schedule that the flags ask for."""
    from collsim.cli.run import without_rivals
    from collsim.simulation.simulate import build_schedule

    single = _single(without_rivals(click.get_current_context(), flags), faults)
    asked = checked_request({**ABSENT, **single}, None, faults)
    built = faults.attempt(build_schedule, *asked)
    faults.raise_any()
    assert built is not None
    return built


def _single(flags: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the flags with what is not exactly one replaced by something harmless, its faults kept."""
    examples = {"op": "--op all_reduce", "size": "--size 1M", "ranks": "--ranks 8"}
    for name, example in examples.items():
        if flags[name] and "," in flags[name]:
            what = f"{flags[name]} is not one {'number of ranks' if name == 'ranks' else name}"
            faults.append(Fault(what, name, f"a schedule has exactly one, such as {example}"))
            flags = {**flags, name: flags[name].partition(",")[0]}
    if flags["size"] is None and flags["matrix"] is None:
        flags = {**flags, "size": DEFAULT_SIZE}
    algo = flags["algo"]
    if algo is None or "," in algo or algo in ("auto", "best", "all"):
        what = "no algorithm is named" if algo is None else f"{algo} is not one algorithm"
        faults.append(Fault(what, "algo", _algorithms_of(flags["op"])))
        flags = {**flags, "algo": "auto"}
    return flags


def _algorithms_of(op: str | None) -> str:
    """Return a hint with the algorithms of an operation."""
    from collsim.collectives import ALGORITHMS

    names = dict.fromkeys(entry.name for entry in ALGORITHMS if op in entry.ops)
    return f"name one of {', '.join(names)}" if names else "name one, such as ring"
