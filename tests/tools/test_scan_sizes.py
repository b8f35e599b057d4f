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


def test_a_fall_is_named_by_what_the_library_switched(scanner):
    """More rounds are a reason to take longer, not for a fall; transfers that meet come last."""
    case, most = scanner.Case("dgx_a100"), scanner.Choice("ring/LL", 4, 0, 2**15, 2**14, 1)
    before = scanner.Point(2**16, 2.0, most)

    def switch(time_s, meets=False, **changed):
        after = scanner.Point(2**16 + 2**10, time_s, most._replace(**changed))
        return scanner.Event(case, "broadcast", before, after, meets).switch

    assert switch(1.9, channels=5, rounds=2) == "channels"
    assert switch(1.9, cells_bytes=2**15, rounds=2) == "cells"
    assert switch(1.9, rounds=2) == ""
    assert switch(1.9, rounds=2, meets=True) == "links"
    assert switch(2.9, rounds=2) == "rounds"
    assert switch(2.9, copied=True) == "copies"
    assert switch(1.9, copied=True) == ""


@pytest.mark.parametrize(
    ("shares", "chunk", "chunks", "found"),
    [
        ((), 2**15, 1, (0, 0)),
        ((2**16,), 2**15, 1, (0, 2)),
        ((2**16, 2**16, 2**10), 2**15, 1, (2**16, 2)),
        ((2**16, 2**16), 2**16 - 8, 1, (0, 2)),
        ((2**16, 2**16 - 4), 2**13, 4, (0, 2)),
    ],
)
def test_cells_and_rounds_are_counted_from_what_each_channel_gets(scanner, shares, chunk, chunks, found):
    assert scanner.dealt(SimpleNamespace(shares_bytes=shares, chunk_bytes=chunk), chunks) == found


def test_messages_that_hosts_copy_are_a_switch(scanner):
    """Lines of LL double the bytes: 2 KiB of a broadcast are 4 KiB on the wire, the longest that Slingshot's plug-in
    copies piecewise.
    """
    case = scanner.Case("alps", 0, 8)
    rows = scanner.collsim.simulate("alps", "broadcast", [2048, 2080], ranks=8).rows
    before, after = (scanner.Point(row.size_bytes, row.time_s, scanner.choice_of(row, case)) for row in rows)
    event = scanner.Event(case, "broadcast", before, after)
    assert (event.switch, event.what) == ("copies", "copies of ring/LL")
    assert event.ratio > scanner.JUMP


def test_transfers_that_meet_are_told_from_a_law_that_falls(scanner, monkeypatch):
    """Chunks of a reduce on two boxes meet on a link at one size and miss each other at the next; timed on links that
    hold nobody up they take longer. A law that falls there too is a fault.
    """
    case, sizes = scanner.Case("dgx1_v100", 2), (31488, 32256)
    rows = scanner.collsim.simulate("dgx1_v100", "all_reduce", sizes, nodes=2).rows
    before, after = (scanner.Point(row.size_bytes, row.time_s, scanner.choice_of(row, case)) for row in rows)
    assert after.time_s < before.time_s
    assert before.choice[: scanner.N_SWITCHES] == after.choice[: scanner.N_SWITCHES]
    assert scanner.meets(case, "all_reduce", before, after)
    took_s = iter((2.0, 1.0, 2.0, 1.0))
    monkeypatch.setattr(scanner, "device_s", lambda observation, profile, wide: next(took_s))
    assert not scanner.meets(case, "all_reduce", before, after)


def test_the_page_holds_what_is_found_today(scanner):
    """Of one system, which takes two seconds; ``--write`` takes all: every kind of switch there stands on the page."""
    case = scanner.Case("dgx_a100")
    page = (ROOT / "docs" / "jumps.md").read_text(encoding="utf-8")
    events = scanner.scan((case, "all_gather")) + scanner.scan((case, "send_recv"))
    assert events
    assert all(event.switch for event in events)
    assert all(f"| {event.what} |" in page for event in events)
