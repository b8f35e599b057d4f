"""What only a real process shows: imports, time, pipes, signals, encodings, completion."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
from click import Command

from collsim import __version__
from collsim.cli import COMMANDS

from .conftest import GUARD_S, PROGRAM, ROOT

HEAVY = ("numpy", "numba", "networkx", "scipy", "rich", "pydantic", "yaml")
PROBE = """
import sys
try:
    {action}
except SystemExit as leaving:
    assert not leaving.code
print("loaded:", *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""


def loaded(action, heavy=HEAVY):
    """Return which of *heavy* a fresh interpreter has loaded after *action*."""
    probe = PROBE.format(action=action, heavy=heavy)
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    return found.stderr.splitlines()[-1].split()[1:]


def called(*arguments):
    return f"sys.argv = ['collsim', *{list(arguments)}]; from collsim.cli import main; main()"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["topo", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments):
    assert loaded(called(*arguments)) == []


def test_help_imports_no_command():
    commands = tuple(f"collsim.cli.{name}" for name in COMMANDS)
    assert loaded(called("--help"), commands) == []
    assert loaded(called("topo", "--help"), commands) == ["collsim.cli.topo"]


@pytest.mark.parametrize("name", COMMANDS)
def test_lines_of_help_are_those_of_the_commands(name):
    line, command = Command(name, help=COMMANDS[name]), getattr(import_module(f"collsim.cli.{name}"), name)
    assert not command.hidden
    for width in (20, 45, 80, 200):
        assert line.get_short_help_str(width) == command.get_short_help_str(width)


def test_import_loads_nothing_heavy():
    assert loaded("import collsim") == []
    assert loaded("import collsim; dir(collsim); collsim.InputError; collsim.load_topology") == []


def test_one_node_runs_without_compiler_and_graphs():
    action = called("run", "--topo", "mi355x_ubb8", "--op", "all_to_all", "-q")
    assert loaded(action, ("numba", "networkx", "scipy", "rich", "pandas", "polars")) == []


def test_one_node_imports_only_what_it_uses():
    rare = ("numpy.ma", "concurrent.futures", "collsim.schedule.json_files", "collsim.schedule.verifier")
    rare += (
        "collsim.topology.failures.degrade",
        "collsim.library.rccl.board",
        "collsim.core.slurm",
        "collsim.fabric.cluster_router",
    )
    assert loaded(called("run", "--topo", "hgx_h100", "--op", "all_reduce,all_to_all", "-q"), rare) == []


def test_version(process):
    assert process("--version").out == f"collsim, version {__version__}\n"
    try:
        assert version("collsim") == __version__
    except ModuleNotFoundError:
        pytest.skip("collsim is not installed")


def test_help_shows_lines_to_paste(process):
    for arguments in (["--help"], ["run", "--help"], ["topo", "--help"], ["topo", "show", "--help"]):
        text = process(*arguments).out
        assert "\n    collsim " in text
        assert "\b" not in text
    assert "COLLSIM_TOPO" in process("run", "--help").out


@pytest.mark.parametrize("form", ["table", "json"])
def test_reader_that_leaves_early(form):
    command = [sys.executable, "-c", PROGRAM, "run", "--topo", "mi300x_ubb8", "--op", "all_reduce"]
    command += ["--size", "1M,2M", "--algo", "all_pairs", "--format", form, "-q"]
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    os.close(write)
    assert (found.returncode, found.stderr) == (0, b"")


def test_interrupt():
    code = "import sys, time, collsim.cli.run as c\n"
    code += f"c._simulated = lambda *_: (print('busy', flush=True), time.sleep({GUARD_S}))\n"
    command = [sys.executable, "-c", code + PROGRAM, "run", "--topo", "mi300x_ubb8", "--op", "all_reduce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stdout.readline() == "busy\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=GUARD_S)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "interrupted: files that were not finished were not written"


def test_terminal_without_unicode(process, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "{schema: collsim.topology/1, title: ring ⇄ ring, builder: full_mesh, gpu: {count: 4}, "
        "link: {bandwidth: 9 GB/s, latency: 1 us}}",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    outcome = process("topo", "show", file, env=environment)
    assert outcome.code == 0
    assert "ring \\u21c4 ring" in outcome.out


def completions(words, current):
    environment = {
        **os.environ, "_COLLSIM_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["collsim", *words]),
        "COMP_CWORD": str(len(words) + (current == "")),
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    return [line.split(",", 1)[1] for line in found.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--topo", "mi3"], {"mi300x_ubb8", "mi355x_ubb8"}),
        (["run", "--op", "all_to_all,all_r"], {"all_to_all,all_reduce"}),
        (["run", "--algo", "all"], {"all", "all_pairs"}),
        (["run", "--profile", "id"], {"ideal"}),
        (["run", "--format", "js"], {"json", "jsonl"}),
        (["run", "-d", "bf"], {"bfloat16"}),
        (["topo", "show", "hgx_"], {"hgx_b200", "hgx_h100"}),
    ],
)
def test_completion(words, expected):
    found = completions(words, words[-1])
    assert expected <= set(found)
    assert all(name.startswith(words[-1]) for name in found)


def test_completion_of_files(tmp_path):
    assert completions(["run", "--topo", "./my"], "./my") == ["./my"]


PRINTING = [
    ("--help",),
    ("--version",),
    ("topo", "list"),
    ("topo", "show", "hgx_h100"),
    ("topo", "draw", "hgx_h100"),
    ("topo", "check", "examples/two_boards.yaml"),
    ("run", "--topo", "hgx_h100", "--op", "all_gather", "--size", "1M", "-q"),
    ("schedule", "show", "--topo", "hgx_h100", "--op", "all_gather", "--algo", "ring"),
]


@pytest.mark.parametrize("buffering", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_full_stdout(arguments, buffering):
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-c", PROGRAM, *arguments]
        found = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=environment
        )
    assert found.stderr.startswith("error: cannot write to stdout: No space left on device\n")
    assert "defect" not in found.stderr
    assert (found.returncode, found.stderr.count("\n")) == (2, 2)


def shell(line):
    """Run a line in which $COLLSIM stands for the command."""
    environment = {**os.environ, "PROGRAM": PROGRAM, "PYTHON": sys.executable}
    line = line.replace("collsim", '"$PYTHON" -c "$PROGRAM"', 1)
    return subprocess.run(line, shell=True, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_closed_stdout(arguments):
    found = shell(f"collsim {' '.join(arguments)} >&-")
    assert found.returncode == 2
    assert found.stderr.startswith("error: cannot write to stdout: it is closed\n")


def test_closed_stdout_that_nobody_needs(tmp_path):
    flags = "run --topo hgx_h100 --op all_gather --size 1M -q"
    assert shell(f"collsim {flags} -o {tmp_path}/result.csv >&-").returncode == 0
    assert (tmp_path / "result.csv").read_text().startswith("topology,")


def test_full_stderr_keeps_the_exit_code():
    assert shell("collsim run 2>/dev/full").returncode == 2
