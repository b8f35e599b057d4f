"""The command of sweeps: output, exit codes, faults at their place, and progress on a terminal alone."""

import io
import json
import sys
from pathlib import Path

import pytest

GRID = """\
schema: collsim.sweep/1
base: {topo: hgx_h100, op: all_to_all, profile: ideal}
grid:
  ranks: [2, 4]
  size: [1M, 2M]
"""


class Terminal(io.StringIO):
    """Stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def invoke(collsim, tmp_path):
    """Run `collsim sweep` on a grid."""

    def call(grid, *arguments):
        file = tmp_path / "grid.yaml"
        file.write_text(grid)
        return collsim("sweep", file, *arguments)

    return call


def test_table_has_the_axes_and_what_came_out(invoke):
    found = invoke(GRID)
    rows = [line.split() for line in found.out.splitlines() if not line.startswith("#")]
    assert [row[:2] for row in rows] == [["2", "1M"], ["2", "2M"], ["4", "1M"], ["4", "2M"]]
    assert (found.code, found.err) == (0, "")
    assert len(json.loads(invoke(GRID, "--format", "json").out)["points"]) == 4
    assert len(invoke(GRID, "--format", "csv").out.splitlines()) == 5


def test_with_a_file_stdout_is_the_front_alone(invoke, tmp_path):
    file = tmp_path / "a.jsonl"
    found = invoke(GRID, "-o", file)
    assert (found.code, found.out) == (0, "")
    assert "4 points in" in found.err
    again = invoke(GRID, "-o", file, "--pareto", "gpus,time")
    assert "4 of them there before" in again.err
    assert "no other of the same operation and size" in again.out


def test_exit_codes(invoke):
    partly = invoke(GRID.replace("[2, 4]", "[2, 99]"))
    assert partly.code == 4
    assert "99 ranks on 8 GPUs" in partly.err
    assert "failed" in partly.out
    assert invoke(GRID.replace("[2, 4]", "[98, 99]")).code == 2


def test_faults_of_flags_and_grid_are_told_together(invoke):
    found = invoke(GRID.replace("ranks", "rank"), "--jobs", "x", "--pareto", "tme,cost", "--format", "tble")
    assert found.code == 2
    for part in ("--jobs", 'did you mean "time"', 'did you mean "ranks"', 'did you mean "table"'):
        assert part in found.err


def test_progress_on_a_terminal_alone(invoke, monkeypatch, capsys):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    invoke(GRID)
    assert "4/4" in screen.getvalue()
    assert "point/s" in screen.getvalue()
    quiet = Terminal()
    monkeypatch.setattr(sys, "stderr", quiet)
    invoke(GRID, "-q")
    assert quiet.getvalue() == ""


def test_interrupted_says_where_it_goes_on(invoke, monkeypatch, tmp_path):
    from collsim.sweeps import workers

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "answered", stop)
    found = invoke(GRID, "-o", tmp_path / "a.jsonl")
    assert found.code == 130
    assert "the same command goes on there" in found.err


def test_shipped_example_is_a_grid():
    from collsim.sweeps.grid import read_grid

    assert len(read_grid(Path(__file__).parents[2] / "examples/sweep.yaml")) == 36
