"""Forms against naive loops, merging, phases and joins, builders, and differences between schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.collectives import algorithm
from collsim.collectives.algorithm import ScheduleRequest
from collsim.core.errors import VerificationError
from collsim.core.operations import operation
from collsim.schedule import (
    EVERY,
    Chunks,
    ChunksBuilder,
    Circles,
    OrbitsBuilder,
    Schedule,
    Transfers,
    TransfersBuilder,
    diff,
    split_bytes,
    verify,
)

DOCS = Path(__file__).parents[2] / "docs" / "schedules.md"


def unrolled(schedule):
    """Return a schedule with a row for each step of circles."""
    phases = (phase.orbits() if isinstance(phase, Circles) else phase for phase in schedule.phases)
    return replace(schedule, phases=tuple(phases))


def build(name, op, n, *, size_bytes=None, channels=1, **more):
    request = ScheduleRequest(operation(op), n, n * 48 if size_bytes is None else size_bytes, channels=channels, **more)
    return unrolled(algorithm(op, name).build(request))


@given(st.integers(0, 10**15), st.integers(1, 500), st.integers(1, 64))
def test_split_bytes(total_bytes, parts, grain_bytes):
    pieces = split_bytes(total_bytes, parts, grain_bytes)
    assert len(pieces) == parts
    assert pieces.dtype == np.int64
    assert int(pieces.sum()) == total_bytes
    assert np.all(pieces[:-1] % grain_bytes == 0)
    whole = pieces // grain_bytes
    assert np.all(np.diff(whole) <= 0)
    assert whole[0] - whole[-1] <= 1
    assert pieces[-1] % grain_bytes == total_bytes % grain_bytes


@st.composite
def orbits(draw):
    n = draw(st.integers(1, 6))
    orders = [draw(st.permutations(range(n))) for _ in range(draw(st.integers(1, 3)))]
    families = draw(st.integers(1, 3))
    member = st.tuples(st.integers(0, families - 1), st.integers(-2 * n, 2 * n))
    builder = OrbitsBuilder(np.array(orders))
    for row in range(draw(st.integers(0, 5))):
        deps = st.tuples(st.integers(0, max(row - 1, 0)), st.integers(-2 * n, 2 * n))
        builder.add(
            draw(st.integers(-n, n)),
            draw(st.lists(member, max_size=3)),
            draw(st.lists(deps, max_size=3)) if row else (),
            channel=draw(st.integers(0, 4)),
            step=row,
            reduces=draw(st.booleans()),
            reads_input=draw(st.booleans()),
            lanes=draw(st.integers(1, 3)),
        )
    return builder.build()


@given(orbits())
def test_orbits_materialise_like_a_loop(phase):
    found, n = phase.materialise(), phase.order.shape[1]
    assert len(found) == len(phase.channel) * n
    for row in range(len(phase.channel)):
        order = phase.order[phase.channel[row] % len(phase.order)]
        carried = range(phase.chunk_ptr[row], phase.chunk_ptr[row + 1])
        waits = range(phase.dep_ptr[row], phase.dep_ptr[row + 1])
        for p in range(n):
            i = row * n + p
            assert found.src[i] == order[p]
            assert found.dst[i] == order[(p + phase.shift[row]) % n]
            for name in ("channel", "step", "reduces", "reads_input", "lanes", "copies"):
                assert getattr(found, name)[i] == getattr(phase, name)[row]
            members = [order[(p + phase.chunk_offset[e]) % n] for e in carried]
            assert found.chunks_of(i) == [phase.chunk_family[e] * n + m for e, m in zip(carried, members, strict=True)]
            assert found.deps_of(i) == [phase.dep_row[e] * n + (p + phase.dep_shift[e]) % n for e in waits]


@pytest.mark.parametrize(
    ("name", "op"),
    [("ring", "all_reduce"), ("ring", "all_gather"), ("all_pairs", "all_reduce"), ("direct", "all_to_all")],
)
@pytest.mark.parametrize("channels", [1, 2, 5, 8])
@pytest.mark.parametrize("form", ["as built", "transfers"])
def test_merging_keeps_bytes_and_counts(name, op, channels, form):
    n = 4
    schedule = build(name, op, n, channels=channels, size_bytes=n * 4 * 1000, element_bytes=4)
    if form == "transfers":
        schedule = replace(schedule, phases=tuple(phase.materialise() for phase in schedule.phases))
    merged = schedule.merged()
    for before, after in zip(schedule.phases, merged.phases, strict=True):
        assert type(before) is type(after)
        full, small = before.materialise(), after.materialise()
        assert int(small.copies.sum()) == len(full)
        assert len(small) <= len(full)
        total = int((small.copies * small.size_bytes(schedule.chunks)).sum())
        assert total == int(full.size_bytes(schedule.chunks).sum())
        looks = Counter()
        for i, (src, dst, step, copies) in enumerate(
            zip(*(getattr(small, key).tolist() for key in ("src", "dst", "step", "copies")), strict=True)
        ):
            looks[src, dst, step, int(small.size_bytes(schedule.chunks)[i])] += copies
        sizes = full.size_bytes(schedule.chunks).tolist()
        assert looks == Counter(zip(full.src.tolist(), full.dst.tolist(), full.step.tolist(), sizes, strict=True))
    assert merged.merged().phases[0].copies.tolist() == merged.phases[0].copies.tolist()


def test_equal_channels_merge_into_one():
    schedule = build("ring", "all_reduce", 4, channels=4, size_bytes=4 * 4 * 64)
    assert set(schedule.merged().phases[0].channel.tolist()) == {0}
    assert set(schedule.merged().phases[0].copies.tolist()) == {4}


def test_channels_that_differ_stay_apart():
    rows = TransfersBuilder()
    for channel, sizes in enumerate(([0], [1], [0])):
        first = rows.add(0, 1, sizes, channel=channel)
        rows.add(1, 0, sizes, [first], channel=channel)
    phase = rows.build().merged(Chunks([5, 6], [0, 0], [1, 1]))
    assert phase.copies.tolist() == [2, 2, 1, 1]
    assert phase.channel.tolist() == [0, 0, 1, 1]
    assert [phase.deps_of(i) for i in range(4)] == [[], [0], [], [2]]


def test_channels_that_wait_for_each_other_stay_apart():
    rows = TransfersBuilder()
    first = rows.add(0, 1, [0], channel=0)
    rows.add(0, 1, [0], [first], channel=1)
    phase = rows.build()
    assert phase.merged(Chunks([5], [0], [1])) is phase


def test_joins_between_phases():
    chunks = ChunksBuilder()
    chunks.add([8], EVERY, EVERY)
    one, two = TransfersBuilder(), TransfersBuilder()
    one.add(0, 1, [0], reduces=True)
    one.add(2, 1, [0], reduces=True)
    first = two.add(1, 0, [0], step=1)
    two.add(0, 2, [0], [first], step=2)
    schedule = Schedule("all_reduce", "by_hand", 3, 8, chunks.build(), (one.build(), two.build()))
    verify(schedule)
    whole = schedule.materialise()
    assert len(whole) == 2 + 3 + 2
    assert whole.src.tolist() == [0, 2, 0, 1, 2, 1, 0]
    assert whole.dst.tolist() == [1, 1, 0, 1, 2, 0, 2]
    assert [whole.deps_of(i) for i in range(7)] == [[], [], [0], [0, 1], [1], [3, 2], [2, 4, 5]]
    assert [whole.chunks_of(i) for i in range(7)] == [[0], [0], [], [], [], [0], [0]]
    assert whole.size_bytes(schedule.chunks).tolist() == [8, 8, 0, 0, 0, 8, 8]
    verify(replace(schedule, phases=(whole,)))


def test_three_phases_chain():
    phase = build("all_pairs", "all_gather", 3).phases[0]
    schedule = replace(build("all_pairs", "all_gather", 3), phases=(phase,) * 3)
    whole = schedule.materialise()
    n_rows = len(phase.materialise())
    assert len(whole) == 3 * n_rows + 2 * 3
    last_join = 2 * n_rows + 3
    for rank in range(3):
        deps = whole.deps_of(last_join + rank)
        assert all(rank in (whole.src[d], whole.dst[d]) for d in deps)
        assert set(deps) >= {i for i in range(n_rows + 3, last_join) if rank in (whole.src[i], whole.dst[i])}


def test_empty_phase():
    assert len(TransfersBuilder().build()) == 0
    assert len(OrbitsBuilder(np.arange(3)).build().materialise()) == 0
    schedule = build("all_pairs", "all_gather", 3)
    verify(replace(schedule, phases=(TransfersBuilder().build(), *schedule.phases)))


def test_builders_number_what_they_add():
    chunks = ChunksBuilder()
    assert chunks.add([1, 2, 3], 0, EVERY) == 0
    assert chunks.add(4, [1], [2]) == 3
    assert chunks.add([5, 6], [0, 1], [1, 0]) == 4
    table = chunks.build()
    assert len(table) == 6
    assert table.source.tolist() == [0, 0, 0, 1, 0, 1]
    assert table.target.tolist() == [-1, -1, -1, 2, 1, 0]
    rows = TransfersBuilder()
    assert rows.add(0, 1, [0]) == 0
    assert rows.add(1, 2, [1, 2], [0, 0], channel=3, step=4, reduces=True, reads_input=True, lanes=5) == 1
    built = rows.build()
    assert built.deps_of(1) == [0]
    assert built.chunks_of(1) == [1, 2]
    assert (built.channel[1], built.step[1], built.lanes[1], built.copies[1]) == (3, 4, 5, 1)
    assert built.reduces.tolist() == built.reads_input.tolist() == [False, True]


def test_arrays_are_frozen():
    schedule = build("ring", "all_reduce", 3)
    for array in (schedule.chunks.size_bytes, schedule.phases[0].shift, schedule.materialise().dep):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


class TestDiff:
    def test_equal(self):
        for name, op in (("ring", "all_reduce"), ("direct", "all_to_all"), ("all_pairs", "all_reduce")):
            assert diff(build(name, op, 5, channels=2), build(name, op, 5, channels=2)) == []

    def test_form_and_numbering_do_not_count(self):
        schedule = build("ring", "all_reduce", 4, channels=2)
        rows = schedule.materialise()
        order = np.random.default_rng(1).permutation(len(rows))
        number = np.argsort(order)
        builder = TransfersBuilder()
        for i in order.tolist():
            builder.add(
                int(rows.src[i]),
                int(rows.dst[i]),
                rows.chunks_of(i),
                number[rows.deps_of(i)].tolist(),
                channel=int(rows.channel[i]),
                step=int(rows.step[i]),
                reduces=bool(rows.reduces[i]),
            )
        shuffled = replace(schedule, phases=(builder.build(),))
        assert diff(schedule, shuffled) == []
        verify(shuffled)

    def test_head_and_chunks(self):
        a = build("all_pairs", "all_gather", 3)
        sizes = a.chunks.size_bytes + np.array([0, 1, 0])
        b = replace(
            a, algo="other", size_bytes=7, parameters={"channels": 2}, chunks=replace(a.chunks, size_bytes=sizes)
        )
        lines = diff(a, b)
        assert lines[:4] == [
            "algo: all_pairs in a, other in b",
            "size_bytes: 144 in a, 7 in b",
            "parameters.channels: 1 in a, 2 in b",
            "chunk 1: 48 bytes from rank 1 to every rank in a, 49 bytes from rank 1 to every rank in b",
        ]
        assert "other size: 1 -> 0 (channel 0, step 1) copies chunks [1], 48 bytes in a, 49 bytes in b" in lines

    def test_transfers(self):
        a = build("ring", "all_reduce", 3)
        flags = a.phases[0].reduces.copy()
        flags[0] = False
        lines = diff(a, replace(a, phases=(replace(a.phases[0], reduces=flags),)))
        assert len(lines) == 6
        assert lines[0] == "only in a: 0 -> 1 (channel 0, step 0) adds chunks [2], 48 bytes"
        assert lines[3] == "only in b: 0 -> 1 (channel 0, step 0) copies chunks [2], 48 bytes"

    def test_dependencies(self):
        a = build("ring", "all_gather", 3)
        deps = a.phases[0].dep_shift.copy()
        deps[0] = 1
        lines = diff(a, replace(a, phases=(replace(a.phases[0], dep_shift=deps),)))
        assert len(lines) == 6
        assert all(" waits for " in line for line in lines)

    def test_dependencies_of_twins(self):
        def schedule(*deps):
            rows = TransfersBuilder()
            for wait in deps:
                rows.add(0, 1, [0], wait)
            return Schedule("broadcast", "x", 2, 5, Chunks([5], [0], [-1]), (rows.build(),), {"root": 0})

        chain, star = schedule([], [0], [1]), schedule([], [0], [0])
        assert diff(chain, chain) == []
        assert diff(chain, star) == [
            "transfers that look alike wait for transfers that look alike, but not for the same ones"
        ]

    def test_grouping_of_dependencies(self):
        def schedule(*deps):
            rows = TransfersBuilder()
            rows.add(0, 1, [0])
            rows.add(0, 2, [0])
            for wait in deps:
                rows.add(1, 2, [0], wait, step=1)
            return Schedule("broadcast", "x", 3, 5, Chunks([5], [0], [-1]), (rows.build(),), {"root": 0})

        (line,) = diff(schedule([0, 1], []), schedule([0], [1]))
        assert line.startswith("other combinations: transfers like 1 -> 2 (channel 0, step 1)")

    def test_phases(self):
        a = build("all_pairs", "all_reduce", 3)
        lines = diff(a, replace(a, phases=a.phases[:1]))
        assert lines[0] == "phases: 2 in a, 1 in b"
        assert lines[1] == "phase 1: only in a: 0 -> 1 (channel 0, step 1) copies chunks [0], 48 bytes"

    def test_many_lines_are_counted(self):
        lines = diff(build("ring", "all_reduce", 16), build("all_pairs", "all_reduce", 16))
        assert len(lines) == 41
        assert lines[-1].startswith("... and ")

    def test_broken_arrays_are_refused(self):
        a = build("direct", "all_to_all", 3)
        rows = a.materialise()
        broken = Transfers(**{**{name: getattr(rows, name) for name in Transfers.__slots__}, "dst": rows.dst + 7})
        with pytest.raises(VerificationError, match="names rank"):
            diff(a, replace(a, phases=(broken,)))
