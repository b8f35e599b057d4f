"""The command line: thin commands over the library; everything heavy is imported inside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from collsim._version import __version__
from collsim.errors import CollsimError, Fault, InputError

__all__ = ["main"]

CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "COLLSIM", "max_content_width": 110}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="collsim")
def cli() -> None:
    r"""Predict how long collective communication takes on GPU clusters, and why.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all
      collsim run --topo hgx_h100 --op all_reduce -b 1M -e 1G -f 4 --algo all
      collsim topo list
    """


def main() -> None:
    """Run the command line; every error of collsim becomes a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CollsimError as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the size flags of nccl-tests."""
    for option in reversed(
        (
            click.option("-b", "--min-bytes", "--minbytes", metavar="SIZE", help="Smallest size, such as 1M."),
            click.option("-e", "--max-bytes", "--maxbytes", metavar="SIZE", help="Largest size, such as 1G."),
            click.option("-i", "--step-bytes", "--stepbytes", metavar="SIZE", help="Step between sizes. [default: 1M]"),
            click.option(
                "-f", "--step-factor", "--stepfactor", type=float, help="Factor between sizes, instead of -i."
            ),
            click.option("--size", metavar="SIZE[,SIZE...]", help="Exactly these sizes."),
        )
    ):
        command = option(command)
    return command


@cli.command()
@click.option("--topo", required=True, metavar="NAME|FILE", help="Topology: a name of `collsim topo list` or a file.")
@click.option("--op", required=True, metavar="OP[,OP...]", help="Collective, such as all_to_all; nccl spellings work.")
@size_options
@click.option("--ranks", metavar="N[,N...]", help="Use the first N GPUs.  [default: all]")
@click.option("--rank-list", metavar="LIST", help="Use exactly these GPUs, such as 0,3,5-7.")
@click.option(
    "--algo",
    default="auto",
    metavar="NAME[,NAME...]",
    show_default=True,
    help="Algorithm; auto and best: the fastest in the simulator; all: a row for each.",
)
@click.option("--channels", type=int, help="Channels (CTAs) that share the work.  [default: what suits the fabric]")
@click.option("--chunk", metavar="SIZE", help="Largest chunk of a channel.  [default: the algorithm's]")
@click.option("-d", "--dtype", "--datatype", default="float", show_default=True, help="Data type.")
@click.option("--redop", default="sum", show_default=True, help="Reduction operator.")
@click.option("-r", "--root", default=0, show_default=True, help="Root rank of broadcast and reduce.")
@click.option("--matrix", metavar="FILE", help="Bytes from row to column, for all_to_all_v.")
@click.option(
    "--profile", default="default", show_default=True, metavar="NAME|FILE", help="Constants; ideal: bare wires."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help='Change a figure: link.bandwidth="80 GB/s".'
)
@click.option("--format", "form", metavar="FORMAT", help="table, nccl, csv, json, jsonl or md.  [default: table]")
@click.option("-o", "--output", metavar="FILE", help="Write there; the suffix chooses the format.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings on stderr.")
def run(topo: str, op: str, form: str | None, output: str | None, quiet: bool, **flags: Any) -> None:
    r"""Predict how long a collective takes, by size.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all -b 1M -e 1G -f 2
      collsim run --topo hgx_h100 --op all_reduce --size 64M,1G --algo all --profile ideal
      collsim run --topo mi300x_ubb8 --op all_reduce --ranks 2,4,8 --set link.bandwidth="80 GB/s"
    """
    from collsim.report import render

    target = _output_format(form, output)
    request = _request(flags)
    from collsim.simulation import simulate

    result = simulate(topo, op.split(","), **request)
    if not quiet:
        for warning in result.warnings:
            click.echo(f"warning: {warning}", err=True)
    _write(render(result, target), output)


@cli.group()
def topo() -> None:
    """List, show and check topologies."""


@topo.command("list")
def topo_list() -> None:
    """List the systems that come with collsim."""
    from collsim.topology import load_topology, zoo_names

    for name in zoo_names():
        click.echo(f"{name:<16} {load_topology(name).title}")


@topo.command("show")
@click.argument("name", metavar="NAME|FILE")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure.")
@click.option("--format", "form", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def topo_show(name: str, overrides: tuple[str, ...], form: str) -> None:
    """Show links, totals per GPU, switches, and where every figure comes from."""
    from collsim.report.topology import topology_text
    from collsim.topology import load_topology

    click.echo(topology_text(load_topology(name, _overrides(overrides)), form), nl=False)


@topo.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def topo_check(files: tuple[str, ...]) -> None:
    """Check topology files; report every fault of every file."""
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


def _request(flags: dict[str, Any]) -> dict[str, Any]:
    """Turn flags into arguments of `simulate`; every fault of the flags at once."""
    faults: list[Fault] = []

    def attempt(parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except InputError as error:
            faults.extend(error.faults)
            return None

    steps = {name: flags.pop(name) for name in ("min_bytes", "max_bytes", "step_bytes", "step_factor", "size")}
    matrix = flags.pop("matrix")
    request = {
        **flags,
        "algo": flags["algo"].split(","),
        "size": attempt(lambda: _sizes(**steps)),
        "ranks": attempt(lambda: _counts(flags["ranks"])),
        "rank_list": attempt(lambda: _rank_list(flags["rank_list"])),
        "overrides": attempt(lambda: _overrides(flags["overrides"])),
        "matrix": attempt(lambda: _matrix(matrix)),
    }
    if faults:
        raise InputError(*faults)
    return request


def _sizes(
    min_bytes: str | None, max_bytes: str | None, step_bytes: str | None, step_factor: float | None, size: str | None
) -> list[int] | None:
    """Return the sizes that the flags ask for; None if they ask for none."""
    from collsim.units import parse_size_bytes

    given = {"-b": min_bytes, "-e": max_bytes, "-i": step_bytes}
    if size is not None:
        if any(given.values()) or step_factor is not None:
            raise InputError(Fault("--size and the flags -b -e -i -f exclude each other", "--size"))
        return _all_of(size.split(","), lambda text: parse_size_bytes(text, "--size", allow_zero=False))
    if step_factor is None and not any(given.values()):
        return None
    if step_factor is not None and step_bytes is not None:
        raise InputError(Fault("-i and -f exclude each other", "-i", "give a step or a factor"))
    flags = [flag for flag, text in given.items() if text is not None]
    parsed = dict(
        zip(flags, _all_of(flags, lambda flag: parse_size_bytes(str(given[flag]), flag, allow_zero=False)), strict=True)
    )
    last = parsed.get("-e", parsed.get("-b", 2**30) if step_factor is None and step_bytes is None else 2**30)
    first = parsed.get("-b", min(2**20, last))
    return _steps(first, last, parsed.get("-i", 2**20), step_factor)


def _steps(first: int, last: int, step: int, factor: float | None) -> list[int]:
    """Return first, ..., last in steps or by factors."""
    if last < first:
        raise InputError(Fault(f"the largest size {last} is below the smallest {first}", "-e", "swap -b and -e"))
    if factor is not None and not 1.0 < factor < float("inf"):
        raise InputError(Fault(f"factor {factor:g} does not grow", "-f", "give a factor above 1, such as 2"))
    if factor is None and (last - first) // step >= MOST_SIZES:
        raise InputError(Fault(f"{(last - first) // step + 1} sizes", "-i", f"at most {MOST_SIZES}; use -f 2"))
    sizes = [first]
    while (following := max(int(sizes[-1] * factor), sizes[-1] + 1) if factor else sizes[-1] + step) <= last:
        sizes.append(following)
        if len(sizes) > MOST_SIZES:
            raise InputError(Fault(f"more than {MOST_SIZES} sizes", "-f", "give a larger factor, such as 2"))
    return sizes


MOST_SIZES = 10_000


def _counts(text: str | None) -> list[int] | None:
    """Return the numbers of ranks in a comma-separated list."""
    return None if text is None else _all_of(text.split(","), lambda part: _whole(part, "--ranks"))


def _rank_list(text: str | None) -> list[int] | None:
    """Return the GPUs in a list such as 0,3,5-7."""
    if text is None:
        return None
    ranks: list[int] = []
    for first, last in _all_of(text.split(","), _span):
        ranks.extend(range(first, last + 1))
    return ranks


def _span(part: str) -> tuple[int, int]:
    ends = [_whole(end, "--rank-list") for end in part.split("-", 1)]
    if ends[-1] < ends[0] or ends[-1] - ends[0] >= 2**20:
        raise InputError(Fault(f'range "{part}" runs backwards or is too long', "--rank-list", "write 5-7"))
    return ends[0], ends[-1]


def _whole(text: str, where: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit() or len(text) > 12:
        raise InputError(Fault(f'"{text}" is not a whole number', where, "separate numbers by commas: 2,4,8"))
    return int(text)


def _all_of(items: list[Any], parse: Callable[[Any], Any]) -> list[Any]:
    """Parse every item, and report all that fail."""
    faults: list[Fault] = []
    parsed = []
    for item in items:
        try:
            parsed.append(parse(item))
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(*faults)
    return parsed


def _overrides(entries: tuple[str, ...]) -> dict[str, str]:
    """Return PATH=VALUE entries as a mapping."""
    overrides: dict[str, str] = {}
    faults = []
    for entry in entries:
        path, equals, value = entry.partition("=")
        if not equals or not path.strip() or not value.strip():
            faults.append(Fault(f'"{entry}" is not PATH=VALUE', "--set", 'write --set link.bandwidth="80 GB/s"'))
        elif path.strip() in overrides:
            faults.append(Fault(f'"{path.strip()}" is set twice', "--set", "keep one of the two"))
        overrides[path.strip()] = value.strip()
    if faults:
        raise InputError(*faults)
    return overrides


def _matrix(path: str | None) -> Any:
    if path is None:
        return None
    from collsim.byte_matrix import load_byte_matrix

    return load_byte_matrix(path)


def _output_format(form: str | None, output: str | None) -> str:
    """Return the format asked for, else the one that the file name suggests, else a table."""
    from collsim.errors import UnknownNameError
    from collsim.report import FORMATS, SUFFIXES

    if form is not None and form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS, "--format")
    return form or SUFFIXES.get(Path(output or "").suffix, "table")


def _write(text: str, output: str | None) -> None:
    """Print *text*, or write it to a file that is either whole or not there."""
    if output is None:
        click.echo(text, nl=False)
        return
    path = Path(output)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(Fault(f"cannot write the output: {error.strerror}", output)) from None
