"""The command line: thin commands over the library; everything heavy is imported inside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from collsim._version import __version__
from collsim.errors import CollsimError, Fault, InputError, nearest
from collsim.options import complete, formats, request_options, zoo

if TYPE_CHECKING:
    from collsim.configuration import Configuration
    from collsim.flags import Faults
    from collsim.result import Result

__all__ = ["main"]

CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "COLLSIM", "max_content_width": 110}
DEBUG = "COLLSIM_DEBUG"
"""With this environment variable set, an unexpected error shows its traceback."""
LONGEST_MESSAGE = 2_000
RIVALS = (
    (("size",), ("min_bytes", "max_bytes", "step_bytes", "step_factor")),
    (("step_bytes",), ("step_factor",)),
    (("ranks",), ("rank_list",)),
)
"""Flags that exclude each other; one from the command line silences those from the environment or a file."""


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="collsim")
def cli() -> None:
    """Predict how long collective communication takes on GPU clusters, and why.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all
      collsim run --topo hgx_h100 --op all_reduce -b 1M -e 1G -f 4 --algo all
      collsim topo list

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a check failed, 2 wrong request or file,
    3 the model has no answer, 130 interrupted.
    """  # noqa: D301 - \b keeps the lines that follow it as they are


def main() -> None:
    """Run the command line; every error becomes a message and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="collsim", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        _refuse_usage(error)
    except CollsimError as error:
        _show(error.faults)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _leave_pipe()
    except MemoryError:
        _show([Fault("out of memory", "", "ask for fewer ranks, smaller sizes or one algorithm")])
        sys.exit(3)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        hint = f"this is a defect of collsim: please report the command with what {DEBUG}=1 shows"
        _show([Fault(f"{type(error).__name__}: {error}", "", hint)])
        sys.exit(1)


def _show(faults: Sequence[Fault]) -> None:
    for fault in faults:
        text = "".join(char if char.isprintable() or char == "\n" else "?" for char in str(fault))
        short = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} ..."
        click.echo(f"error: {short}", err=True)


def _refuse_usage(error: click.ClickException) -> NoReturn:
    """Say what is wrong with the words of the command line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "collsim"
        what, hint = error.format_message().rstrip("."), f"{path} --help lists what there is"
        if isinstance(error, click.exceptions.NoSuchOption) and context is not None:
            flags = [flag for option in context.command.params for flag in option.opts]
            near = nearest(error.option_name, flags)
            what = f'no such flag "{error.option_name}"'
            hint = f'did you mean "{near}"? {hint}' if near else hint
        _show([Fault(what, "", hint)])
    sys.exit(error.exit_code)


def _leave_pipe() -> NoReturn:
    """Leave quietly: whoever read the output has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _load_config(context: click.Context, _: click.Parameter, file: str | None) -> Configuration | None:
    """Read a configuration and let it stand behind flags and environment variables."""
    if file is None:
        return None
    from collsim.configuration import read_configuration

    config = read_configuration(file)
    context.default_map = dict(config.flags)
    return config


@cli.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
@request_options
@click.option(
    "--format",
    "form",
    envvar="COLLSIM_FORMAT",
    metavar="FORMAT",
    **complete(formats),
    help="table, nccl, csv, json, jsonl or md.  [default: table]",
)
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    callback=_load_config,
    help="Take what no flag says from there: a saved configuration or a result in JSON.",
)
@click.option("--save-config", metavar="FILE", help="Write what was asked, in full, for --config.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    form: str | None,
    output: str | None,
    config: Configuration | None,
    save_config: str | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Predict how long a collective takes, by size.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all -b 1M -e 1G -f 2
      collsim run --topo hgx_h100 --op all_reduce --size 64M,1G --algo all --profile ideal
      collsim run --topo mi300x_ubb8 --op all_reduce --ranks 2,4,8 --set link.bandwidth="80 GB/s"
      collsim run --topo hgx_b200 --op all_gather --format csv -o all_gather.csv --save-config run.json
      collsim run --config run.json --ranks 4

    A flag goes before its environment variable (COLLSIM_TOPO, COLLSIM_PROFILE, ...), and that before --config.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.flags import Faults
    from collsim.report import check_writable, render

    faults = Faults(lambda where: _place(context, where, config))
    target = faults.attempt(lambda: _output_format(form, output))
    for file in (output, save_config):
        if file not in (None, "-"):
            faults.attempt(partial(check_writable, str(file)))
    result = _simulated(_without_rivals(context, flags), config, faults)
    if not quiet:
        for warning in (*result.warnings, *_stale(context, config, result)):
            click.echo(f"warning: {warning}", err=True)
    if save_config is not None:
        from collsim.configuration import as_configuration

        _write(as_configuration(result), save_config)
    _write(render(result, target or "table"), output)


def _simulated(flags: dict[str, Any], config: Configuration | None, faults: Faults) -> Result:
    """Check everything that was asked, raise all that is wrong with it, and simulate."""
    request = _request(flags, config, faults)
    from collsim.library import load_profile
    from collsim.question import ask, rank_groups
    from collsim.topology import load_topology

    topo, profile, ranks, rank_list, overrides = (
        request.pop(name) for name in ("topo", "profile", "ranks", "rank_list", "overrides")
    )
    question = faults.attempt(lambda: ask(**request))
    constants = faults.attempt(lambda: load_profile(profile))
    topology = None
    if topo is None:
        hint = "give a name that `collsim topo list` prints, or a YAML file"
        faults.add([Fault("no topology is named", "topo", hint)])
    else:
        topology = faults.attempt(lambda: load_topology(topo, overrides))
    if topology is not None and question is not None:
        faults.attempt(lambda: rank_groups(topology, ranks, rank_list, question))
    faults.raise_any()
    assert topology is not None
    assert constants is not None
    from collsim.simulation import simulate

    result = faults.attempt(lambda: simulate(topology, **request, ranks=ranks, rank_list=rank_list, profile=constants))
    faults.raise_any()
    assert result is not None
    from dataclasses import replace

    return replace(result, config={**result.config, "topo": topo, "profile": profile})


def _request(flags: dict[str, Any], config: Configuration | None, faults: Faults) -> dict[str, Any]:
    """Return the arguments of `simulate`; what could not be read is left out, its faults kept."""
    from collsim import flags as texts

    def read(name: str, parse: Callable[[str], Any]) -> Any:
        text = flags[name]
        return None if text is None else faults.attempt(lambda: parse(text))

    steps = {name: flags[name] for name in ("min_bytes", "max_bytes", "step_bytes", "step_factor", "size")}
    set_here = texts.read_overrides(flags["overrides"], faults)
    ops = _names(flags["op"])
    return {
        "topo": flags["topo"],
        "profile": flags["profile"],
        "op": ops,
        "algo": _names(flags["algo"]),
        "size": faults.attempt(lambda: texts.read_sizes(**steps)),
        "ranks": read("ranks", texts.read_counts),
        "rank_list": read("rank_list", texts.read_rank_list),
        "channels": read("channels", lambda text: texts.read_number(text, "channels")),
        "chunk": flags["chunk"],
        "dtype": flags["dtype"],
        "redop": flags["redop"],
        "root": read("root", lambda text: texts.read_number(text, "root", "such as 0")) or 0,
        "matrix": _matrix(flags["matrix"], ops, config, faults),
        "overrides": {**(config.overrides if config else {}), **set_here},
    }


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def _matrix(file: str | None, ops: Sequence[str], config: Configuration | None, faults: Faults) -> Any:
    """Return the byte matrix of the flag, else that of the configuration if an operation still needs it."""
    if file is not None:
        from collsim.byte_matrix import load_byte_matrix

        return faults.attempt(lambda: load_byte_matrix(file))
    from collsim.operations import OPERATIONS

    spellings = ("all_to_all_v", *OPERATIONS["all_to_all_v"].aliases)
    wanted = any(op.lower().replace("-", "_") in spellings for op in ops)
    return config.matrix_bytes if config is not None and wanted else None


def _source(context: click.Context, name: str) -> int:
    """Return 3 for a value from the command line, 2 from the environment, 1 from a file, 0 for a default."""
    sources = click.core.ParameterSource
    order = {sources.COMMANDLINE: 3, sources.ENVIRONMENT: 2, sources.DEFAULT_MAP: 1}
    source = context.get_parameter_source(name)
    return 0 if source is None else order.get(source, 0)


def _without_rivals(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Drop values whose rivals come from a nearer place: -b on the command line silences a size in a file."""
    kept = dict(flags)
    for groups in RIVALS:
        nearest_of = [max(_source(context, name) for name in group) for group in groups]
        for group, nearness in zip(groups, nearest_of, strict=True):
            if nearness < max(nearest_of):
                kept.update(dict.fromkeys(group))
    return kept


def _place(context: click.Context, where: str, config: Configuration | None) -> str:
    """Return where the user wrote the value of the parameter that *where* names; other places stay as they are."""
    name = where.removeprefix("--").replace(" ", "_").replace("-", "_")
    name = {"set": "overrides", "format": "form"}.get(name, name)
    if name == "size" and not _source(context, "size"):
        name = next((end for end in ("min_bytes", "max_bytes") if _source(context, end)), name)
    option = next((param for param in context.command.params if param.name == name), None)
    if option is None:
        return where
    if config is not None and _source(context, name) == 1:
        return f"{config.file}: config.{CONFIG_KEYS.get(name, name)}"
    if _source(context, name) == 2:
        variable = option.envvar or f"{context.auto_envvar_prefix}_{name.upper()}"
        return f"{variable} in the environment"
    return min(option.opts, key=len)


CONFIG_KEYS = {"ranks": "rank_lists", "rank_list": "rank_lists", "chunk": "chunk_bytes"}


def _stale(context: click.Context, config: Configuration | None, result: Result) -> list[str]:
    """Say whether what the configuration names has changed, unless flags changed it."""
    if config is None or any(_source(context, name) > 1 for name in ("topo", "profile", "overrides")):
        return []
    return config.changes(result)


@cli.group()
def topo() -> None:
    """List, show and check topologies.

    \b
    Examples:
      collsim topo list
      collsim topo show gb200_nvl72
      collsim topo check my_cluster.yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are


@topo.command("list")
def topo_list() -> None:
    """List the systems that come with collsim."""
    from collsim.topology import load_topology, zoo_names

    for name in zoo_names():
        click.echo(f"{name:<16} {load_topology(name).title}")


@topo.command("show")
@click.argument("name", metavar="NAME|FILE", **complete(zoo, files=True))
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure.")
@click.option("--format", "form", default="table", show_default=True, metavar="FORMAT", help="table, json or yaml.")
def topo_show(name: str, overrides: tuple[str, ...], form: str) -> None:
    """Show links, totals per GPU, switches, and where every figure comes from.

    \b
    Examples:
      collsim topo show hgx_h100
      collsim topo show mi355x_ubb8 --set link.bandwidth="80 GB/s" --format yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.errors import UnknownNameError
    from collsim.flags import Faults, read_overrides
    from collsim.report.topology import topology_text
    from collsim.topology import load_topology

    faults = Faults(lambda where: {"--topo": "NAME", "overrides": "--set"}.get(where, where))
    if form not in (forms := ("table", "json", "yaml")):
        faults.add(UnknownNameError("format", form, forms, "--format").faults)
    changed = read_overrides(overrides, faults)
    topology = faults.attempt(lambda: load_topology(name, changed))
    faults.raise_any()
    assert topology is not None
    _write(topology_text(topology, form), None)


@topo.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def topo_check(files: tuple[str, ...]) -> None:
    """Check topology files; report every fault of every file.

    \b
    Example:
      collsim topo check cluster_a.yaml cluster_b.yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.topology import check_file

    faults: list[Fault] = []
    for file in files:
        try:
            found = check_file(file)
        except InputError as error:
            faults.extend(error.faults)
        else:
            click.echo(f"{file}: ok ({found.n_gpus} GPUs, {found.wiring.n_links} directed links)")
    if faults:
        raise InputError(*faults)


def _output_format(form: str | None, output: str | None) -> str:
    """Return the format asked for, else the one that the file name suggests, else a table."""
    from collsim.errors import UnknownNameError
    from collsim.report import FORMATS, SUFFIXES

    if form is not None:
        if form not in FORMATS:
            raise UnknownNameError("format", form, FORMATS, "form")
        return form
    suffix = os.path.splitext(output or "")[1].lower()  # noqa: PTH122 - a path class is slower to import
    if suffix and suffix not in SUFFIXES:
        hint = f"end it in {', '.join(SUFFIXES)}, or add --format"
        raise InputError(Fault(f'the suffix "{suffix}" names no format', "output", hint))
    return SUFFIXES.get(suffix, "table")


def _write(text: str, file: str | None) -> None:
    """Write to *file*; to stdout if there is none, or if it is called -."""
    if file not in (None, "-"):
        from collsim.report import write_text

        write_text(text, str(file))
        return
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_pipe()
