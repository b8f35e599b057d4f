"""``collsim run``: a collective on a topology, by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import column_option, complete, formats, request_options, scale_out_place, screen_options
from collsim.cli.output import check_suffix, check_targets, named_files, output_format, patience, screen_of, write
from collsim.core.errors import PARTLY, Faults, InputError
from collsim.simulation.request.fields import BY_NAME, SCALE_OUT, RequestField

if TYPE_CHECKING:
    from collsim.cli.config import Configuration
    from collsim.simulation.request.prepare import Prepared
    from collsim.simulation.result import Result, Row

__all__ = ["checked_request", "load_config", "place_of", "requested", "run", "without_rivals"]

RIVALS = (
    (("size",), ("min_bytes", "max_bytes", "step_bytes", "step_factor")),
    (("step_bytes",), ("step_factor",)),
    (("ranks",), ("rank_list",)),
    (("placement",), ("rank_list",)),
    (("split",), ("groups", "over")),
)
"""Flags that exclude each other; one from the command line silences those from the environment or a file."""


READ_FIRST = ("overrides", "gpus_per_thread", "ranks", "rank_list", "channels", "environment")
"""Flags whose faults are told before those of others."""


def load_config(context: click.Context, _: click.Parameter, file: str | None) -> Configuration | None:
    """Read a configuration and let it stand behind flags and environment variables."""
    if file is None:
        return None
    from collsim.cli.config import read_configuration

    config = read_configuration(file)
    context.default_map = dict(config.flags)
    return config


@click.command(context_settings={"auto_envvar_prefix": "COLLSIM"})
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
    callback=load_config,
    help="Take what no flag says from there: a saved configuration or a result in JSON.",
)
@click.option("--save-config", metavar="FILE", help="Write what was asked, in full, for --config.")
@click.option("--perfetto", metavar="FILE", help="Write one run as a trace there, for ui.perfetto.dev.")
@screen_options
@column_option
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
    perfetto: str | None,
    quiet: bool,
    wide: bool,
    verbose: bool,
    columns: str | None,
    **flags: Any,
) -> None:
    """Predict how long a collective takes, by size.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all -b 1M -e 1G -f 2
      collsim run --topo hgx_h100 --op all_reduce --size 64M,1G --algo all --profile ideal
      collsim run --topo mi300x_ubb8 --op all_reduce --ranks 2,4,8 --set link.bandwidth="80 GB/s"
      collsim run --topo hgx_b200 --op all_gather --format csv -o all_gather.csv --save-config run.json
      collsim run --topo hgx_h100 --op all_reduce --split "MOD 4"
      collsim run --config run.json --ranks 4
      collsim run --topo hgx_h100 --op all_reduce --size 64M --perfetto trace.json

    \b
    What planners ask:
      tensor, pipeline, data parallel  --nodes 4 --groups tp=8,pp=2,dp=2 --over dp
      half the rails                   --nodes 4 --set nic.shared_by=2
      two adapters for each GPU        --nodes 4 --set nic.per_gpu=2
      800 Gb/s instead of 400          --nodes 4 --set nic.bandwidth="800 Gb/s"
      leaf switches 2:1                --nodes 16 --fabric fat_tree --set scale_out.oversubscription=2
      a broken link                    --fail link:gpu0-gpu1
      a machine of my own              --topo my_node.yaml, as collsim topo --help has it
      a torus, a NetworkX graph        in Python: collsim.simulate(graph, "all_reduce"); every
                                       edge has bandwidth_Bps (bytes/s) and latency_s (seconds)
      experts over 64 GPUs             collsim moe --ep 64

    A flag goes before its environment variable (COLLSIM_TOPO, COLLSIM_PROFILE, ...), and that before --config.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.core.progress import interrupted
    from collsim.report import render
    from collsim.report.wires import check_sets
    from collsim.simulation.request.placement import files_of
    from collsim.simulation.result import refusal_lines

    faults = Faults(lambda where: place_of(context, where, config))
    sets = check_sets(columns, faults)
    target = faults.attempt(lambda: output_format(form, output))
    sources = [*named_files(flags["topo"], flags["profile"]), *filter(None, [flags["matrix"]])]
    sources += files_of(flags["placement"])
    check_targets({"output": output, "save_config": save_config, "perfetto": perfetto}, faults, sources)
    hint = "end it in .json: a configuration is JSON"
    faults.attempt(lambda: check_suffix(save_config, (".json",), hint, "save_config"))
    if config is not None:  # --save-config may renew it, unless that would lose the rows of a result
        targets = {"output": output, "perfetto": perfetto} | ({"save_config": save_config} if config.has_rows else {})
        check_targets(targets, faults, [config.file])
    with patience(quiet, keeps_done=True):
        result, traced = _simulated(without_rivals(context, flags), config, faults, perfetto is not None)
        is_part = interrupted()
    if not quiet:
        for warning in (*result.warnings, *_stale(context, config, result)):
            click.echo(f"warning: {warning}", err=True)
    screen = screen_of(None if is_part else output, wide=wide, verbose=verbose, columns=sets)
    if is_part:  # files are whole or not there
        write(render(result, target or "table", screen), None)
        raise KeyboardInterrupt
    if save_config is not None:
        from collsim.cli.config import as_configuration

        write(as_configuration(result), save_config)
    if traced is not None:
        from collsim.report.run_trace import run_trace_text

        write(run_trace_text(traced, str(result.topology["name"])), perfetto)
    write(render(result, target or "table", screen), output)
    if result.refused:
        for line in refusal_lines(result.refused):
            click.echo(f"error: {line}", err=True)
        context.exit(PARTLY)


def _simulated(
    flags: dict[str, Any], config: Configuration | None, faults: Faults, trace: bool
) -> tuple[Result, Row | None]:
    """Check everything that was asked, raise all that is wrong with it, and simulate; with a *trace* once more."""
    from collsim.cli.several import one_of_each

    asked = checked_request(one_of_each(flags, faults), config, faults)
    from dataclasses import replace

    from collsim.simulation.simulate import predict

    if trace:
        from collsim.simulation.traced import traced

        result, row = faults.attempt(traced, asked) or (None, None)
    else:
        result, row = faults.attempt(predict, *asked), None
    faults.raise_any()
    assert result is not None
    named = {"topo": flags["topo"], "profile": flags["profile"]}
    if not any(flags[name] for name in ("ranks", "rank_list", "placement")):
        named["rank_lists"] = None  # all there are, also where the same is asked of another topology
    return replace(result, config={**result.config, **named}), row


def checked_request(flags: dict[str, Any], config: Configuration | None, faults: Faults) -> Prepared:
    """Return the request of flags and configuration, checked and with its machine; raise every fault at once."""
    request = requested(flags, config, faults)
    from collsim.simulation.request.prepare import prepare

    unread = flags["matrix"] is not None and request["matrix"] is None
    prepared = None
    try:
        prepared = prepare(**request)
    except InputError as error:  # a matrix that was given but could not be read is not called absent
        faults += [fault for fault in error.faults if not (unread and fault.where == "matrix")]
    faults.raise_any()
    assert prepared is not None
    return prepared


def requested(flags: dict[str, Any], config: Configuration | None, faults: Faults) -> dict[str, Any]:
    """Return the arguments of `simulate`; what could not be read is left out, its faults kept."""
    rest = [name for name in BY_NAME if name not in READ_FIRST]
    return {name: _value(BY_NAME[name], flags, config, faults) for name in (*READ_FIRST, *rest)}


def _value(field: RequestField, flags: dict[str, Any], config: Configuration | None, faults: Faults) -> Any:
    """Return the argument of `simulate` that a flag and the configuration say; its default if that cannot be read."""
    from collsim.cli import texts

    name, text = field.name, flags[field.name]
    value: Any = text
    match field.kind:
        case "words":
            value = _names(text)
        case "sizes":
            value = None if text is None else _names(text)
        case "rank_lists" if text is not None:
            value = faults.attempt(texts.read_counts if name == "ranks" else texts.read_rank_list, text)
        case "number":
            number = None if text is None else faults.attempt(texts.read_number, text, name, field.example)
            value = field.default if number is None else number
        case "optional":
            value = {None: False, False: False, "yes": True}.get(text, text)
        case "matrix":
            value = _matrix(text, _names(flags["op"]), config, faults)
        case "pairs":
            typed = texts.PAIRS[name](text, faults)
            value = {**(_beside(typed, name, flags, config) if config else {}), **typed}
    return [*config.fail, *text] if name == "fail" and config else value


def _beside(typed: Mapping[str, str], name: str, flags: Mapping[str, Any], config: Configuration) -> Mapping[str, str]:
    """Return the pairs of a configuration that nothing nearer says, in whatever spelling."""
    own: Mapping[str, str] = getattr(config, name)
    if name != "overrides" or not own:
        return own
    from collsim.topology.files.overrides import full_path

    nearer = {full_path(path) for path in typed}
    nearer |= {f"scale_out.{key}" for key in SCALE_OUT if flags.get(key) is not None}
    return {path: value for path, value in own.items() if full_path(path) not in nearer}


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def _matrix(file: str | None, ops: Sequence[str], config: Configuration | None, faults: Faults) -> Any:
    """Return the byte matrix of the flag, else that of the configuration if an operation still needs it."""
    if file is not None:
        from collsim.simulation.request.matrices import load_byte_matrix

        return faults.attempt(lambda: load_byte_matrix(file))
    from collsim.core.operations import OPERATIONS

    spellings = ("all_to_all_v", *OPERATIONS["all_to_all_v"].aliases)
    wanted = any(op.lower().replace("-", "_") in spellings for op in ops)
    return config.matrix_bytes if config is not None and wanted else None


def _source(context: click.Context, name: str) -> int:
    """Return 3 for a value from the command line, 2 from the environment, 1 from a file, 0 for a default."""
    sources = click.core.ParameterSource
    order: dict[Any, int] = {sources.COMMANDLINE: 3, sources.ENVIRONMENT: 2, sources.DEFAULT_MAP: 1}
    return order.get(context.get_parameter_source(name), 0)


def without_rivals(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Drop values whose rivals come from a nearer place: -b on the command line silences a size in a file.

    A figure of a cluster that --set says is a rival of its flag; --set has no variable of the environment.
    """
    kept = dict(flags)
    for groups in RIVALS:
        nearest_of = [max(_source(context, name) for name in group) for group in groups]
        for group, nearness in zip(groups, nearest_of, strict=True):
            if nearness < max(nearest_of):
                kept.update(dict.fromkeys(group))
    if flags.get("overrides") and any(_source(context, name) == 2 for name in SCALE_OUT):
        from collsim.topology.files.overrides import full_path

        typed = {full_path(text.partition("=")[0]) for text in flags["overrides"]}
        silent = (key for key in SCALE_OUT if f"scale_out.{key}" in typed and _source(context, key) == 2)
        kept.update(dict.fromkeys(silent))
    return kept


def place_of(context: click.Context, where: str, config: Configuration | None) -> str:
    """Return where the user wrote the value of the parameter that *where* names; other places stay as they are."""
    if (flag := scale_out_place(where)) != where and (_source(context, flag) or not where.startswith("--")):
        where = flag
    name = where.removeprefix("--").replace(" ", "_").replace("-", "_")
    name = {"set": "overrides", "format": "form", "env": "environment"}.get(name, name)
    if config is not None and (apart := _apart(context, where, config)):
        return apart
    if name == "size" and not _source(context, "size"):
        name = next((end for end in ("max_bytes", "min_bytes") if _source(context, end)), name)
    if name == "ranks" and not _source(context, "ranks"):  # then what was typed instead says how many there are
        name = next((other for other in ("rank_list", "placement", "fail") if _source(context, other)), name)
    option = next((param for param in context.command.params if param.name == name), None)
    if option is None:
        named = next(
            (param for param in context.command.params if where and context.params.get(param.name) == where), None
        )
        return f"{min(named.opts, key=len)}: {where}" if isinstance(named, click.Option) else where
    if config is not None and _source(context, name) == 1:
        return f"{config.file}: config.{BY_NAME[name].config_key if name in BY_NAME else name}"
    if _source(context, name) == 2:
        variable = option.envvar or f"{context.auto_envvar_prefix}_{name.upper()}"
        return f"{variable} in the environment"
    return min(option.opts, key=len)


def _apart(context: click.Context, where: str, config: Configuration) -> str:
    """Return the place in the file of changes and failures, which stand beside those of flags; empty for a flag."""
    flag, _, path = where.partition(" ")
    key = {"--set": "overrides", "--env": "environment"}.get(flag, flag.removeprefix("--"))
    own, typed = getattr(config, key, None), context.params.get(key)
    if key in ("fail", "degrade", "environment") and own and not typed:
        return f"{config.file}: config.{key}"
    written = key == "overrides" and own and path in own
    return (
        f"{config.file}: config.{key}.{path}"
        if written and not any(text.startswith(path) for text in typed or ())
        else ""
    )


def _stale(context: click.Context, config: Configuration | None, result: Result) -> list[str]:
    """Say whether what the configuration names has changed, unless flags changed it."""
    if config is None or any(
        _source(context, name) > 1 for name in ("topo", "profile", "overrides", "fail", "degrade")
    ):
        return []
    return config.changes(result)
