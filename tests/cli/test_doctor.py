"""What collsim runs on; kernels compiled ahead, by many processes at once, and where nothing can be kept."""

import logging
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from collsim import __version__
from collsim.cli import output
from collsim.cli.notices import compiling_notice

from .conftest import GUARD_S, ROOT

LARGE = ("run", "--topo", "hgx_h100", "--nodes", "4", "--op", "all_reduce", "--size", "256M", "--format", "csv")
ALIKE = ("run", "--topo", "hgx_h100", "--nodes", "16", "--op", "all_reduce", "--algo", "ring", "--size", "1M")
NOTICE = "compiling the engine, "
REDUCE = """
import sys
from collsim.engine import Problem, checked
from collsim.engine.symmetry import reduced
p = Problem([3.0] * 2, [0, 1, 2], [0, 1], [1.0] * 2, [0, 1], [6.0] * 2, [0.0] * 2, [1.0] * 2, [0, 0, 0], [])
print(reduced(checked(p), most=2).ids.tolist())
from collsim.engine.refinement import hashed, refine, topological
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in (hashed, refine, topological)), file=sys.stderr)
"""


def cached_in(folder, **others):
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder), **others}


def test_what_it_runs_on(collsim):
    outcome = collsim("doctor")
    said = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert (outcome.code, outcome.err) == (0, "")
    assert said["collsim"] == __version__
    assert said["python"].endswith(sys.executable)
    assert said["numpy"] == np.__version__
    assert {"scipy", "numba", "kernels"} <= set(said)


def test_a_package_that_is_broken(collsim, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    outcome = collsim("doctor")
    assert outcome.code == 1
    assert outcome.err.startswith("error: scipy cannot be imported")


def test_compiling_ahead_serves_later_runs(process, tmp_path):
    """Of a machine that has kernels all but one are taken from there, which is quicker."""
    there, environment, missing = os.environ.get("NUMBA_CACHE_DIR"), cached_in(tmp_path), 11
    if there and "all kernels were there" in process("doctor", "--warm").out:
        shutil.copytree(there, tmp_path, ignore=shutil.ignore_patterns("*.tmp.*"), dirs_exist_ok=True)
        for file in tmp_path.rglob("refinement.hashed-*"):
            file.unlink()
            missing = 1
    first = process("doctor", "--warm", env=environment)
    assert first.code == 0, first.err
    assert f"are kept in {tmp_path}{os.sep}" in first.out
    assert f"compiled {missing} kernel{'s' * (missing > 1)} in " in first.out
    assert "all kernels were there" in process("doctor", "--warm", env=environment).out
    for flags in (
        ("--algo", "tree", "--degrade", "link:n0.gpu0-n0.nvsw0=50%"),
        ("--no-reduce", "--algo", "ring", "--nodes", "8"),
    ):
        run = process(*LARGE, *flags, env=environment)
        assert run.code == 0
        assert "kernel" in run.out
        assert NOTICE not in run.progress


@pytest.mark.parametrize("processes", [2, pytest.param(10, marks=pytest.mark.deep)])
def test_many_processes_that_start_cold(tmp_path, processes):
    command = [sys.executable, "-c", REDUCE]
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=cached_in(tmp_path)
        )
        for _ in range(processes)
    ]
    found = [running.communicate(timeout=GUARD_S) for running in started]
    assert {out for out, _ in found} == {"[0, 0]\n"}
    assert {err for _, err in found} <= {f"{compiled}\n" for compiled in range(4)}  # the library says no more
    later = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=cached_in(tmp_path))
    assert (later.stdout, later.stderr) == ("[0, 0]\n", "0\n")


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    """The environment of a read-only install without a home: of one that not even root could write to."""
    folder = tmp_path_factory.mktemp("install")
    for name in ("collsim", "topologies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "collsim/engine/__pycache__").write_text("no folder")
    dropped = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": str(folder), "HOME": f"{os.devnull}/home", "PYTHONDONTWRITEBYTECODE": "1"}


def test_nothing_can_be_kept(process, nowhere, tmp_path):
    outcome = process("doctor", env=nowhere, cwd=tmp_path)
    assert outcome.code == 0
    assert "kept nowhere" in outcome.out
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in outcome.out
    outcome = process("doctor", "--warm", env=nowhere, cwd=tmp_path)
    assert outcome.code == 1
    assert "kept nowhere" in outcome.out
    assert outcome.err.startswith("error: no folder can keep compiled kernels\n  hint: set NUMBA_CACHE_DIR")


def test_a_run_where_nothing_can_be_kept(process, nowhere, tmp_path):
    outcome = process(*LARGE, env=nowhere, cwd=tmp_path)
    assert outcome.code == 0
    assert outcome.out == process(*LARGE).out
    assert outcome.progress.count(NOTICE) == 1
    assert "in each process" in outcome.progress
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("home", [None, "/nonexistent/home"])
def test_no_home_but_a_folder_that_was_named(process, nowhere, tmp_path, home):
    environment = {**nowhere, "NUMBA_CACHE_DIR": str(tmp_path / "new")}
    environment.pop("HOME")
    environment |= {"HOME": home} if home else {}
    outcome = process("doctor", env=environment)
    assert outcome.code == 0
    assert f"are kept in {tmp_path / 'new'}" in outcome.out


def test_a_named_folder_that_cannot_be_written(process):
    outcome = process("doctor", env=cached_in(f"{os.devnull}/cache"))
    assert outcome.code == 0
    assert f"hint     {os.devnull}/cache cannot be written" in outcome.out


def test_kernels_that_are_not_compiled(process):
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    assert "NUMBA_DISABLE_JIT is set" in process("doctor", env=environment).out
    outcome = process("doctor", "--warm", env=environment)
    assert outcome.code == 1
    assert outcome.err.startswith("error: NUMBA_DISABLE_JIT: kernels are not compiled")


def test_the_notice_comes_once(capsys):
    log = logging.getLogger("collsim.engine")
    with compiling_notice():
        log.info("compiling %s", "one")
        log.info("compiling %s", "two")
    log.info("compiling %s", "three")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count(NOTICE) == said.err.count("\n") == 1


def test_a_long_run_is_told(monkeypatch, capsys):
    said = threading.Event()
    monkeypatch.setattr(output, "PATIENCE_S", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(output.click, "echo", lambda text, err: (print(text, file=sys.stderr), said.set()))  # noqa: T201
    with output.patience():
        assert said.wait(GUARD_S)
    assert capsys.readouterr() == ("", "still working\n")


def test_a_short_run_is_told_nothing(monkeypatch, capsys):
    monkeypatch.setattr(output, "PATIENCE_S", GUARD_S)
    with output.patience():
        (timer,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    timer.join(GUARD_S)
    assert not timer.is_alive()
    assert capsys.readouterr() == ("", "")


def test_a_quiet_run_says_nothing(process, tmp_path):
    outcome = process(*ALIKE, "--profile", "ideal", "-q", env=cached_in(tmp_path))
    assert (outcome.code, outcome.err, outcome.progress) == (0, "", "")
    assert list(tmp_path.iterdir())
