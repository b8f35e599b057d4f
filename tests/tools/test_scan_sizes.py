"""The scan for jumps and falls: which sizes it looks at, what it finds, and that its page is what it finds."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = 2**12
"""A size that the law has no row for."""


@pytest.fixture
def scanner(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("scan_sizes")


@pytest.fixture
def made(scanner, monkeypatch):
    """Times of a law of (bytes) to (microseconds, channels), by one algorithm."""

    def use(law):
        def simulate(topo, op, sizes, **options):
            rows = [
                SimpleNamespace(
                    requested_bytes=size, size_bytes=size, time_s=law(size)[0] * 1e-6, channels=law(size)[1]
                )
                for size in sizes
                if size != REFUSED
            ]
            return SimpleNamespace(rows=rows)

        monkeypatch.setattr(scanner.collsim, "simulate", simulate)
        monkeypatch.setattr(scanner, "choice_of", lambda row, case: scanner.Choice("a", row.channels, 0, 0))
        return scanner.scan((scanner.Case("dgx_a100"), "all_reduce"))

    return use


def test_sizes_are_two_percent_apart_and_hold_powers_of_two(scanner):
    found = scanner.sizes()
    assert (found[0], found[-1]) == (2**10, 2**30)
    assert max(b / a for a, b in pairwise(found)) <= 1 + 2 / 64
    assert {2**power for power in range(10, 31, 5)} <= set(found)
    assert all(size % (2 ** (size.bit_length() - 1) // 64) == 0 for size in found)


def test_falls_and_jumps_are_found_between_the_neighbours_where_they_are(scanner, made):
    [fall] = made(lambda size: (size * 1e-3 / (2 if size > 10**6 else 1), 2 if size > 10**6 else 1))
    assert fall.falls
    assert fall.before.size_bytes <= 10**6 < fall.after.size_bytes <= 1.04 * 10**6
    assert (fall.switch, fall.what) == ("channels", "channels of a")
    [jump] = made(lambda size: (size * 1e-3 * (2 if size > 10**6 else 1), 2 if size > 10**6 else 1))
    assert not jump.falls
    assert jump.ratio == pytest.approx(2, rel=0.04)
    assert made(lambda size: (size * 1e-3 * (1.2 if size > 10**6 else 1), 2 if size > 10**6 else 1)) == []


def test_a_fall_without_a_switch_is_a_fault(scanner, made):
    [fall] = made(lambda size: (size * 1e-3 / (2 if size > 10**6 else 1), 1))
    assert fall.switch == ""


def test_the_page_holds_what_is_found_today(scanner):
    """Of one system, which takes two seconds; ``--write`` takes all: every kind of switch there stands on the page."""
    case = scanner.Case("dgx_a100")
    page = (ROOT / "docs" / "jumps.md").read_text(encoding="utf-8")
    events = scanner.scan((case, "all_gather")) + scanner.scan((case, "send_recv"))
    assert events
    assert all(event.switch for event in events)
    assert all(f"| {event.what} |" in page for event in events)
