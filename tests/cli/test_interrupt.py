"""An interrupted command: exit code 130, one line, no traceback, and no file that is not whole."""

import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import GUARD_S, PROGRAM, ROOT, outcome

LOG = ROOT / "tests/data/logs/07_rccl_tests.log"
COMMANDS = {
    "run": ("run", "--topo", "hgx_h100", "--nodes", "4", "--op", "all_reduce,all_to_all", "--algo", "all"),
    "draws": (
        *("run", "--topo", "hgx_h100", "--nodes", "8", "--fabric", "fat_tree", "--network", "roce", "--algo", "ring"),
        *("--op", "all_reduce", "--set", "scale_out.radix=16", "--hash-seeds", "1-400", "--size", "64M"),
    ),
    "compare": ("compare", "hgx_h100", "hgx_b200", "--nodes", "4", "--op", "all_reduce,all_to_all", "--algo", "best"),
    "moe": ("moe", "--topo", "hgx_h100", "--nodes", "8", "--ep", "8,16,32,64", "--skew", "1.0", "--seeds", "0-99"),
    "validate": ("validate", str(LOG), "--topo", "mi300x_ubb8"),
    "calibrate": ("calibrate", str(ROOT / "examples/h100_all_reduce.log"), "--topo", "hgx_h100"),
}
BUSY = """
import sys
from collsim.core import errors
attempt = errors.Faults.attempt
def told(self, *values, **named):
    if {number} <= (count := getattr(told, "count", 0) + 1):
        print("busy", file=sys.stderr, flush=True)
    told.count = count
    return attempt(self, *values, **named)
errors.Faults.attempt = told
"""
"""Says that a command is at work when it looks at its n-th argument."""


CALLED_BACK = """
import ctypes, signal
from collsim.core import errors
attempt = errors.Faults.attempt
def told(self, *values, **named):
    errors.Faults.attempt = attempt
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
    return attempt(self, *values, **named)
errors.Faults.attempt = told
"""
"""Interrupts a command while C calls back into Python, where no exception can get out."""


def interrupted(arguments, number, delay_s, folder):
    """Return the outcome of a command that is interrupted so long after it is at work."""
    command = [sys.executable, "-c", BUSY.format(number=number) + PROGRAM, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, **pipes, cwd=folder, env=environment) as running:
        assert running.stderr.readline() == "busy\n"
        time.sleep(delay_s)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=GUARD_S)
    said = "".join(line for line in err.splitlines(keepends=True) if line != "busy\n")
    return outcome(running.returncode, out, said)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_interrupt_at_any_time(name, delay_s, tmp_path):
    arguments = [*COMMANDS[name], "-o", "mine.yaml" if name == "calibrate" else "out.csv"]
    found = interrupted(arguments, 1, delay_s, tmp_path)
    assert "Traceback" not in found.err
    if found.code != 130:  # it was done before
        assert found.code in (0, 1, -signal.SIGINT)  # the last while Python itself ends
        return
    assert [line for line in found.err.splitlines() if line and not line.startswith("warning: ")] == [
        "interrupted: files that were not finished were not written"
    ]
    assert list(tmp_path.iterdir()) == []


def test_interrupt_within_a_call_back_from_c(tmp_path):
    command = [sys.executable, "-c", CALLED_BACK + PROGRAM, *COMMANDS["draws"]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"capture_output": True, "text": True}
    ended = subprocess.run(command, check=False, **pipes, cwd=tmp_path, env=environment, timeout=GUARD_S)
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
    assert "interrupted: files that were not finished were not written" in ended.stderr


def test_an_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    from collsim.core import atomic_files

    file = tmp_path / "rows.csv"
    file.write_text("old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_files.shutil, "copymode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.write_text("new", str(file))
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.csv"]
    assert file.read_text() == "old"
