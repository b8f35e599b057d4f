"""The command line: one file per command, thin over the library; everything heavy is imported inside them."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, cast

import click

from collsim._version import __version__
from collsim.cli.output import ClosedStream, discard_stdout, leave_pipe, stdout_failure
from collsim.core import process
from collsim.core.errors import CollsimError, Fault, defect, nearest
from collsim.core.old_names import OldName

__all__ = ["main"]

CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "COLLSIM", "max_content_width": 110}
DEBUG = "COLLSIM_DEBUG"
"""With this environment variable set, an unexpected error shows its traceback."""
COMMANDS = {
    "calibrate": "Fit the constants of a library on a system to logs of nccl-tests or rccl-tests.",
    "compare": "Predict how long a collective takes on several systems, and how many times as fast as the first each "
    "one is.",
    "diagnose": "Say whether logs of nccl-tests or rccl-tests are healthy, and what would explain those that are not.",
    "doctor": "Say what collsim runs on, and where it keeps compiled code.",
    "explain": "Explain one run: what was chosen and why, what its time is made of, and what would help most.",
    "moe": "Predict how long dispatch and combine of a layer with experts take, and what limits them.",
    "report": "Make one HTML file of results and measured logs, which needs no network to be read.",
    "run": "Predict how long a collective takes, by size.",
    "schedule": "Show, export, import, check, compare and run schedules: who sends what to whom, and after what.",
    "serve": "Predict tokens a second and the time of a token of models with experts that serve requests as they come.",
    "sweep": "Answer every point of a grid: topologies, nodes, operations, sizes, figures of the machine, models with "
    "experts.",
    "tables": "Write the tables that serving planners read, for any topology: nccl-tests and DeepEP, as predicted.",
    "timeline": "Predict how long a whole step takes, from a profiler's trace or a workload, and what would change it.",
    "topo": "List, show, draw, check and import topologies.",
    "tune": "Find the best algorithm, protocol and channels of a library by size, beside what it chooses by itself.",
    "validate": "Compare logs of nccl-tests or rccl-tests with the model, row by row, and say whether they are "
    "healthy.",
}
"""Every command, in a module of its name, and the first sentence of its help."""
_SHOW_WARNING = warnings.showwarning
LONGEST_MESSAGE = 2_000
CALLED_BACK_S = 0.01
"""How long a call back from C may go on before it is interrupted again, chosen; a longer one is, once more."""
COLLECT_AFTER = 100_000
"""Objects between two rounds of garbage collection: nearly all live as long as the command, so looking at them every
700 takes a tenth of the time of a small run."""


class LazyGroup(click.Group):
    """Commands that are imported when they are run: until then a line of help stands for each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(commands=[click.Command(name, help=line) for name, line in COMMANDS.items()], **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command itself and the arguments that follow."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and getattr(import_module(f"{__name__}.{found.name}"), str(found.name)), rest


@click.group(cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(__version__, "-V", "--version", prog_name="collsim")
def cli() -> None:
    """Predict how long collective communication takes on GPU clusters, and why.

    \b
    Examples:
      collsim run --topo mi355x_ubb8 --op all_to_all
      collsim run --topo hgx_h100 --op all_reduce -b 1M -e 1G -f 4 --algo all
      collsim compare mi355x_ubb8 hgx_b200 --op all_to_all
      collsim explain --topo hgx_h100 --op all_reduce --size 64M
      collsim moe --topo hgx_h100 --nodes 8 --ep 8,64 --model deepseek-v3
      collsim timeline rank0.json.gz --env NCCL_MAX_NCHANNELS=8
      collsim serve serving.yaml
      collsim sweep grid.yaml -o results.jsonl --pareto cost,time
      collsim validate all_reduce.log --topo hgx_h100
      collsim diagnose all_reduce.log --topo hgx_h100
      collsim report run.json all_reduce.log -o report.html
      collsim tune --topo hgx_h100 --nodes 4 -o tuner.csv
      collsim topo list
      collsim doctor

    Operations: all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_v, broadcast, reduce, gather, scatter,
    send_recv. Systems: collsim topo list. Algorithms (--algo all), libraries, fabrics and networks: collsim run --help.
    Models with experts: collsim moe --list-models.

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a check failed, 2 wrong request or file,
    3 the model has no answer, 4 a part of what was asked is answered and the rest refused, 130 interrupted.
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    if process.ours:
        _keep_memory()


MEMORY = ((-3, 2**30), (-1, 2**31 - 1))
"""What `mallopt` is told in malloc.h: M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, in bytes."""


def main() -> None:
    """Run the command line; every error becomes a message and an exit code."""
    _settle_process()
    try:
        code = cli(prog_name="collsim", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _leave_interrupted()
    except click.ClickException as error:
        _refuse_usage(error)
    except CollsimError as error:
        _show(error.faults)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        leave_pipe()
    except MemoryError:
        _show([Fault("out of memory", "", "ask for fewer ranks, smaller sizes or one algorithm")])
        sys.exit(3)
    except Exception as error:
        if os.environ.get(DEBUG) and not stdout_failure(error):
            raise
        _fail(error)
    if isinstance(code, int) and code:  # of a command that left by itself, such as a comparison that found something
        sys.exit(code)


def _settle_process() -> None:
    """Set what belongs to the process rather than to a command: collection, threads, streams and interruptions."""
    process.ours = True
    gc.set_threshold(COLLECT_AFTER)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # to start threads takes longer than all our small products
    warnings.simplefilter("always", OldName)
    warnings.showwarning = _say_old_name
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _interrupt_again
    if sys.stdout is None:
        sys.stdout = ClosedStream()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _keep_memory() -> None:
    """Have freed memory taken again: measured, fresh pages take 1.1 of 4.4 s of a broadcast over 128 MI355X nodes.

    Of the C library of GNU; others are left as they are.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        for parameter, size_bytes in MEMORY:
            library.mallopt(parameter, size_bytes)


def _say_old_name(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Say in one line what a name of before is called now; other warnings stay as Python prints them."""
    if issubclass(category, OldName):
        click.echo(f"warning: {message}", err=True)
    else:
        _SHOW_WARNING(message, category, *where, **more)


def _interrupt_again(lost: Any) -> None:
    """Repeat an interruption that came while C called back into Python, as compilers do: Python only prints those."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)
        return
    again = threading.Timer(CALLED_BACK_S, _thread.interrupt_main)
    again.daemon = True
    again.start()


def _leave_interrupted() -> NoReturn:
    """Say so, and leave at once: threads that still compute are not waited for, nor is a second interruption told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        click.echo("interrupted: files that were not finished were not written", err=True)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(130)
    sys.exit(130)


def _show(faults: Sequence[Fault]) -> None:
    for fault in faults:
        text = "".join(char if char.isprintable() or char == "\n" else "?" for char in str(fault))
        short = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} ..."
        with suppress(OSError):  # nobody would read that stderr is full
            click.echo(f"error: {short}", err=True)


def _fail(error: Exception) -> NoReturn:
    """Say that stdout takes nothing more, or that collsim is wrong."""
    if reason := stdout_failure(error):
        discard_stdout()
        _show([Fault(f"cannot write to stdout: {reason}", "", "check where stdout goes")])
        sys.exit(2)
    _show([Fault(f"{type(error).__name__}: {error}", "", defect(f"what {DEBUG}=1 shows"))])
    sys.exit(1)


def _as_setting(flag: str, flags: Sequence[str]) -> str:
    """Return how ``--set`` sets the figure of a topology that has the name of a flag; empty if none has."""
    from collsim.topology.files.overrides import known_paths

    name = flag.lstrip("-").replace("-", "_")
    path = next((path for path in known_paths() if path.rpartition(".")[2] == name), "")
    return f"--set {path}=VALUE" if path and "--set" in flags else ""


MOST_COMMANDS = 3
"""Commands that have a flag which another lacks: so many are named (chosen)."""


def _commands_with(flag: str) -> list[str]:
    """Return the commands, groups left out, that have exactly this flag."""
    context = click.Context(cli)
    found = {name: cli.resolve_command(context, [name])[1] for name in COMMANDS}
    names = [
        f"collsim {name}"
        for name, command in found.items()
        if command is not None and any(flag in param.opts for param in command.params)
    ]
    return names if len(names) <= MOST_COMMANDS else [*names[:MOST_COMMANDS], "others"]


def _form_of(flag: str, words: Sequence[str]) -> str:
    """Return how a flag is written that stands without its value, and what it says; *words* are the command line."""
    context, command, rest = click.Context(cli, info_name="collsim"), cast("click.Command", cli), [*words]
    while isinstance(command, click.Group) and rest:
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    option = next(param for param in command.params if flag in (*param.opts, *param.secondary_opts))
    first = (getattr(option, "help", None) or "").partition(". ")[0].rstrip(".")
    return f"write {flag} {option.make_metavar(context)}: {first[:1].lower()}{first[1:]}"


def _refuse_usage(error: click.ClickException) -> NoReturn:
    """Say what is wrong with the words of the command line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "collsim"
        what, where, hint = error.format_message().rstrip("."), "", f"{path} --help lists what there is"
        if isinstance(error, click.exceptions.NoSuchOption) and context is not None:
            flags = [flag for option in context.command.params for flag in option.opts]
            near = nearest(error.option_name, flags)
            near = _as_setting(error.option_name, flags) or near
            what = f'no such flag "{error.option_name}"'
            others = [] if near and near.startswith("--set") else _commands_with(error.option_name)
            hint = f'did you mean "{near}"? {hint}' if near and not others else hint
            hint = f"it is one of {', '.join(others)}; {hint}" if others else hint
        elif type(error) is click.exceptions.BadOptionUsage:
            what, where, hint = (
                "there is no value behind it",
                error.option_name,
                _form_of(error.option_name, sys.argv[1:]),
            )
        elif type(error) is click.BadParameter and isinstance(error.param, click.Option) and context is not None:
            from collsim.cli.run import place_of

            what, where = error.message.rstrip("."), place_of(context, error.param.name or "", None)
        _show([Fault(what, where, hint)])
    sys.exit(error.exit_code)
