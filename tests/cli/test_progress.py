"""Progress of long work on a terminal alone, and what an interruption leaves of it."""

import io
import sys

import pytest

from collsim.cli import output
from collsim.core import progress

from .conftest import ROOT

LOG = str(ROOT / "examples/h100_all_reduce.log")
HASHED = ("--topo", "hgx_h100", "--nodes", "8", "--fabric", "fat_tree", "--network", "roce", "--algo", "ring",
          "--op", "all_reduce", "--set", "scale_out.radix=16", "--size", "1M")  # fmt: skip
LONG = {
    "row": ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M,2M,4M"),
    "draw": ("run", *HASHED, "--hash-seeds", "1-9"),
    "sample": ("moe", "--topo", "hgx_h100", "--ep", "8", "--skew", "1", "--tokens", "64", "--seeds", "0-4"),
    "slope": ("calibrate", LOG, "--topo", "hgx_h100"),
    "cause": ("diagnose", LOG, "--topo", "hgx_h100", "--causes", "nvls_off,few_channels"),
    "test": ("validate", LOG, "--topo", "hgx_h100"),
    "choice": ("tune", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M"),
}


class Terminal(io.StringIO):
    """Stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def outlived(monkeypatch):
    """Let an interrupted command leave by an exception: it does not wait for threads that still draw."""
    monkeypatch.setattr("os._exit", sys.exit)


@pytest.mark.parametrize("what", LONG)
def test_a_terminal_is_told_how_far_the_work_is_and_nothing_else_is(collsim, monkeypatch, what):
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    screen = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", screen)
        collsim(*LONG[what])
    assert f"{what}/s" in screen.getvalue() or f"s/{what}" in screen.getvalue()
    assert "0%|" in screen.getvalue()
    found = collsim(*LONG[what])
    assert "%|" not in found.err
    assert "working" not in found.err + found.progress


def stopping(monkeypatch, place, name, after):
    """Let the call of a function behind so many others be where the user interrupts."""
    module, calls = __import__(place, fromlist=[name]), []
    true = getattr(module, name)

    def call(*arguments, **named):
        calls.append(name)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return true(*arguments, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def rows_of(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_rows_that_are_done_are_left(collsim, monkeypatch, tmp_path):
    whole = rows_of(collsim(*LONG["row"]).out)
    calls = stopping(monkeypatch, "collsim.simulation.rows", "_candidates", 2)
    found = collsim(*LONG["row"])
    assert (found.code, len(calls)) == (130, 3)
    assert [row.split() for row in rows_of(found.out)[:2]] == [row.split() for row in whole[:2]]
    assert progress.INTERRUPTED in rows_of(found.out)[2]
    assert found.err.splitlines()[-1] == "interrupted: files that were not finished were not written"
    calls.clear()
    found = collsim(*LONG["row"], "-o", tmp_path / "rows.csv")
    lines = found.out.splitlines()  # in the format of the file
    assert (found.code, len(lines), lines[3].endswith(progress.INTERRUPTED)) == (130, 4, True)
    assert list(tmp_path.iterdir()) == []


def test_draws_that_are_done_are_left(collsim, monkeypatch):
    import json

    def three(items, what):
        yield from items if what == "row" else items[:3]
        if what == "draw":
            raise KeyboardInterrupt

    monkeypatch.setattr("collsim.simulation.rows.steps", three)
    found = collsim(*LONG["draw"], "--format", "json", "-q")
    assert found.code == 130
    (row,) = json.loads(found.out)["results"]
    assert len(row["draw_times_s"]) == 4, "the first seed and three that were drawn again"


def test_systems_and_numbers_of_ranks_that_are_done_are_left(collsim, monkeypatch):
    with monkeypatch.context() as patched:
        stopping(patched, "collsim.simulation.rows", "_candidates", 1)
        compared = collsim("compare", "hgx_h100", "hgx_b200", "--op", "all_reduce", "--size", "1M", "-q")
    assert compared.code == 130
    assert "hgx_b200" in compared.out
    assert progress.INTERRUPTED in compared.out
    stopping(monkeypatch, "collsim.moe.simulate", "_rows", 1)
    experts = collsim("moe", "--topo", "hgx_h100", "--ep", "4,8", "--load-only", "-q")
    assert experts.code == 130
    assert [row.split()[:2] for row in rows_of(experts.out)[:2]] == [["4", "1"], ["4", "1"]]
    assert progress.INTERRUPTED in experts.out


def test_nothing_done_leaves_nothing(collsim, monkeypatch):
    stopping(monkeypatch, "collsim.simulation.rows", "_candidates", 0)
    found = collsim(*LONG["row"])
    assert (found.code, found.out) == (130, "")


def test_python_is_interrupted_as_ever(monkeypatch):
    import collsim

    stopping(monkeypatch, "collsim.simulation.rows", "_candidates", 1)
    with pytest.raises(KeyboardInterrupt):
        collsim.simulate("hgx_h100", "all_reduce", ["1M", "2M"])
