"""Planted faults: real schedules are broken in one place, and the verifier must say so in the right words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collsim.collectives import algorithm
from collsim.collectives.algorithm import ScheduleRequest
from collsim.core.errors import UnsupportedError, VerificationError
from collsim.core.operations import operation
from collsim.schedule import (
    EVERY,
    Chunks,
    ChunksBuilder,
    OrbitsBuilder,
    Schedule,
    Transfers,
    TransfersBuilder,
    find_faults,
    verify,
)
from collsim.schedule.contract import contract_faults
from collsim.schedule.forms import frozen, sealed
from collsim.schedule.structure import rank_names

from ..memory import peak_bytes
from ..property.depth import deep_but

SIZES = [2, 3, 5, 8]


def build(name, op, n, *, size_bytes=None, channels=1, **more):
    request = ScheduleRequest(operation(op), n, n * 48 if size_bytes is None else size_bytes, channels=channels, **more)
    return algorithm(op, name).build(request)


class Rows:
    """One phase of a schedule as lists that a test can damage."""

    def __init__(self, schedule, phase=0):
        self.schedule, self.phase = schedule, phase
        t = schedule.phases[phase].materialise()
        self.src, self.dst, self.channel, self.step = (
            t.src.tolist(),
            t.dst.tolist(),
            t.channel.tolist(),
            t.step.tolist(),
        )
        self.reduces, self.reads_input = t.reduces.tolist(), t.reads_input.tolist()
        self.chunks = [t.chunks_of(i) for i in range(len(t))]
        self.deps = [t.deps_of(i) for i in range(len(t))]

    def find(self, **wanted):
        """The first row with these values."""
        return next(
            i for i in range(len(self.src)) if all(getattr(self, key)[i] == value for key, value in wanted.items())
        )

    def drop(self, row):
        for name in ("src", "dst", "channel", "step", "reduces", "reads_input", "chunks", "deps"):
            del getattr(self, name)[row]
        self.deps = [[d - (d > row) for d in deps if d != row] for deps in self.deps]

    def repeat(self, row, *, deps):
        for name in ("src", "dst", "channel", "step", "reduces", "reads_input", "chunks"):
            getattr(self, name).append(getattr(self, name)[row])
        self.deps.append(list(deps))

    def done(self):
        builder = TransfersBuilder()
        for i in range(len(self.src)):
            builder.add(
                self.src[i],
                self.dst[i],
                self.chunks[i],
                self.deps[i],
                channel=self.channel[i],
                step=self.step[i],
                reduces=self.reduces[i],
                reads_input=self.reads_input[i],
            )
        phases = list(self.schedule.phases)
        phases[self.phase] = builder.build()
        return replace(self.schedule, phases=tuple(phases))


def words(schedule):
    with pytest.raises(VerificationError) as caught:
        verify(schedule)
    return str(caught.value)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 16])
@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ring", "all_reduce"),
        ("ring", "all_gather"),
        ("ring", "reduce_scatter"),
        ("all_pairs", "all_reduce"),
        ("all_pairs", "all_gather"),
        ("all_pairs", "reduce_scatter"),
        ("one_shot", "all_reduce"),
        ("direct", "all_to_all"),
    ],
)
def test_generated_schedules_are_right(name, op, n):
    for channels in (1, 3):
        assert find_faults(build(name, op, n, channels=channels, element_bytes=4)) == []


@pytest.mark.parametrize("n", SIZES)
def test_lost_chunk(n):
    rows = Rows(build("ring", "all_gather", n))
    rows.drop(rows.find(step=0, src=0))
    text = words(rows.done())
    if n > 2:
        assert "early read: 1 -> 2 (channel 0, step 1) sends chunk 0, which rank 1 does not have yet" in text
    assert "lost chunk: chunk 0 of rank 0 is never delivered to rank 1" in text


@pytest.mark.parametrize("n", SIZES)
def test_lost_message(n):
    rows = Rows(build("direct", "all_to_all", n))
    chunk = rows.chunks[rows.find(src=1, dst=0)][0]
    rows.drop(rows.find(src=1, dst=0))
    assert f"lost chunk: chunk {chunk} of rank 1 is never delivered to rank 0" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
def test_lost_contribution(n):
    rows = Rows(build("all_pairs", "all_reduce", n))
    rows.drop(rows.find(src=0, dst=1))
    assert f"lost contribution: chunk 1 at {rank_names(list(range(n)))} lacks rank 0" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
def test_missing_final_delivery(n):
    rows = Rows(build("all_pairs", "all_reduce", n), phase=1)
    rows.drop(rows.find(src=1, dst=0))
    others = [rank for rank in range(n) if rank != 0]
    assert f"at the end: lost contribution: chunk 1 at rank 0 lacks {rank_names(others)}" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
def test_double_add_by_a_repeated_transfer(n):
    rows = Rows(build("one_shot", "all_reduce", n))
    row = rows.find(src=0, dst=1)
    rows.repeat(row, deps=[row])
    text = words(rows.done())
    assert "double add: 0 -> 1 (channel 0, step 0) adds to chunk 0 at rank 1 what it holds already, from rank 0" in text


@pytest.mark.parametrize("n", SIZES)
def test_double_add_by_a_wrong_flag(n):
    rows = Rows(build("ring", "all_reduce", n))
    row = rows.find(step=n - 1, src=0)
    rows.reduces[row] = True
    chunk = rows.chunks[row][0]
    assert f"double add: 0 -> 1 (channel 0, step {n - 1}) adds to chunk {chunk} at rank 1" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
def test_overwriting_instead_of_adding(n):
    rows = Rows(build("ring", "reduce_scatter", n))
    rows.reduces[rows.find(step=n - 2, src=0)] = False
    assert "lost contribution: chunk 1 at rank 1 lacks rank 1" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
def test_adding_where_there_is_nothing(n):
    rows = Rows(build("ring", "all_gather", n))
    rows.reduces[rows.find(step=0, src=0)] = True
    text = words(rows.done())
    assert "nothing to add to: 0 -> 1 (channel 0, step 0) adds to chunk 0, but rank 1 has no copy of it" in text


@pytest.mark.parametrize("n", [3, 5, 8])
def test_wrong_peer(n):
    rows = Rows(build("direct", "all_to_all", n))
    row = rows.find(src=0, dst=1)
    rows.dst[row] = 2
    assert f"lost chunk: chunk {rows.chunks[row][0]} of rank 0 is never delivered to rank 1" in words(rows.done())
    rows = Rows(build("all_pairs", "all_gather", n))
    rows.dst[rows.find(src=0, dst=1)] = 2
    text = words(rows.done())
    assert "lost chunk: chunk 0 of rank 0 is never delivered to rank 1" in text
    assert (
        "two writes in no order: 0 -> 2 (channel 0, step 1) and 0 -> 2 (channel 0, step 1) both write chunk 0" in text
    )
    assert "duplicate delivery: 0 -> 2 (channel 0, step 1) brings chunk 0, which rank 2 already has" in text


@pytest.mark.parametrize("n", SIZES)
def test_dependency_cycle(n):
    rows = Rows(build("ring", "all_reduce", n))
    first, last = rows.find(step=0, src=0), rows.find(step=2 * n - 3, src=0)
    rows.deps[first].append(last)
    text = words(rows.done())
    assert "dependency cycle: 0 -> 1 (channel 0, step 0) waits for 0 -> 1" in text
    assert "none of these transfers can ever start" in text


def test_cycle_around_a_ring_names_its_length():
    rows = OrbitsBuilder(np.arange(9))
    rows.add(1, [(0, 0)])
    rows.deps[0] = [(0, -1)]
    schedule = replace(build("ring", "all_gather", 9), phases=(rows.build(),))
    assert "3 more waits for 0 -> 1 (channel 0, step 0)" in words(schedule)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_early_read_of_a_sum(n):
    rows = Rows(build("ring", "all_reduce", n))
    row = rows.find(step=1, src=1)
    rows.deps[row] = [d for d in rows.deps[row] if rows.src[d] != 0]
    text = words(rows.done())
    assert "is read before it has arrived" in text
    assert "1 -> 2 (channel 0, step 1) sends it without waiting for 0 -> 1 (channel 0, step 0)" in text


@pytest.mark.parametrize("n", [3, 5, 8])
def test_early_read_is_reported_once(n):
    rows = Rows(build("ring", "all_gather", n))
    row = rows.find(step=1, src=1)
    rows.deps[row] = []
    faults = find_faults(rows.done())
    assert [fault.what for fault in faults] == [
        "chunk 0 at rank 1 is read before it has arrived: 1 -> 2 (channel 0, step 1) sends it without waiting for "
        "0 -> 1 (channel 0, step 0)"
    ]
    assert "depend on the earlier one" in faults[0].hint


def test_write_while_reading():
    chunks = ChunksBuilder()
    chunks.add([10], EVERY, EVERY)
    rows = TransfersBuilder()
    collected = rows.add(0, 1, [0], reduces=True)
    summed = rows.add(1, 2, [0], [collected], reduces=True)
    rows.add(2, 0, [0], [summed])
    rows.add(2, 1, [0], [summed])
    sound = Schedule("all_reduce", "by_hand", 3, 10, chunks.build(), (rows.build(),))
    assert find_faults(sound) == []
    rows.deps[3] = [collected]
    text = words(replace(sound, phases=(rows.build(),)))
    assert "overwritten before it was read: 2 -> 1 (channel 0, step 0) changes it without waiting for 1 -> 2" in text


@pytest.mark.parametrize("n", [3, 5, 8])
def test_swapped_chunks(n):
    rows = Rows(build("ring", "all_gather", n))
    a, b = rows.find(step=n - 2, src=0), rows.find(step=n - 2, src=1)
    rows.chunks[a], rows.chunks[b] = rows.chunks[b], rows.chunks[a]
    text = words(rows.done())
    assert "lost chunk" in text
    assert "duplicate delivery" in text or "early read" in text


@pytest.mark.parametrize("n", SIZES)
def test_duplicate_delivery(n):
    rows = Rows(build("ring", "all_gather", n))
    row = rows.find(step=0, src=0)
    rows.repeat(row, deps=[i for i in range(len(rows.src)) if 1 in (rows.src[i], rows.dst[i])])
    text = words(rows.done())
    assert "duplicate delivery: 0 -> 1 (channel 0, step 0) brings chunk 0, which rank 1 already has" in text


def test_finished_chunk_overwritten():
    rows = Rows(build("one_shot", "all_reduce", 4))
    row = rows.find(src=0, dst=1)
    rows.repeat(row, deps=range(len(rows.src)))
    rows.reduces[-1] = False
    text = words(rows.done())
    assert "finished chunk overwritten: 0 -> 1 (channel 0, step 0) replaces chunk 0, complete at rank 1" in text
    assert "lost contribution: chunk 0 at rank 1 lacks ranks 1-3" in text


@pytest.mark.parametrize("n", [3, 5, 8])
def test_two_writes_in_no_order(n):
    rows = Rows(build("all_pairs", "all_gather", n))
    row = rows.find(src=0, dst=1)
    rows.repeat(row, deps=[])
    rows.src[-1] = 2
    rows.reads_input[-1] = False
    rows.deps[-1] = [rows.find(src=0, dst=2)]
    text = words(rows.done())
    assert (
        "two writes in no order: 0 -> 1 (channel 0, step 1) and 2 -> 1 (channel 0, step 1) both write chunk 0" in text
    )


@pytest.mark.parametrize("n", [3, 5, 8])
def test_input_that_was_never_there(n):
    rows = Rows(build("ring", "all_gather", n))
    rows.reads_input[rows.find(step=1, src=1)] = True
    text = words(rows.done())
    assert "1 -> 2 (channel 0, step 1) reads chunk 0 from the input of rank 1, but only rank 0 has it as input" in text


@pytest.mark.parametrize("n", SIZES)
def test_reading_the_input_instead_of_the_sum(n):
    rows = Rows(build("ring", "all_reduce", n))
    rows.reads_input[rows.find(step=n - 1, src=0)] = True
    assert "lost contribution" in words(rows.done())


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("rank", [-2, 10**6])
def test_rank_out_of_range(n, name, rank):
    rows = Rows(build("ring", "all_reduce", n))
    getattr(rows, name)[3] = rank
    text = words(rows.done())
    assert f"names rank {rank}" in text
    assert f"phases[0].rows[3].{name}" in text
    assert f"ranks are 0 to {n - 1}" in text


def test_structure_faults_are_all_named():
    chunks = ChunksBuilder()
    chunks.add([10, -1], [EVERY, 7], EVERY)
    rows = TransfersBuilder()
    rows.add(0, 0, [0], channel=-1, lanes=0)
    rows.add(0, 1, [5])
    rows.add(0, 1, [0, 0], [2, 9])
    text = words(Schedule("all_reduce", "by_hand", 2, 10, chunks.build(), (rows.build(),)))
    for part in (
        "chunks.rows[1].size_bytes: chunk 1 has -1 bytes",
        "chunks.rows[1].source: the source of chunk 1 is rank 7",
        "rows[0].channel: channel is -1",
        "rows[0].lanes: lanes is 0",
    ):
        assert part in text
    rows.rows[0] = (0, 0, 0, 0, False, False, 1)
    text = words(Schedule("all_reduce", "by_hand", 2, 10, Chunks([10, 0], [-1, -1], [-1, -1]), (rows.build(),)))
    for part in (
        "rank 0 sends to itself (channel 0, step 0)",
        "0 -> 1 (channel 0, step 0) carries chunk 5",
        "carries chunk 0 twice",
        "row 2 waits for itself",
        "row 2 waits for row 9",
    ):
        assert part in text


def test_orbits_faults():
    rows = OrbitsBuilder(np.array([[0, 1, 2], [0, 1, 1]]))
    rows.add(1, [(0, 0)])
    base = build("ring", "all_gather", 3)
    assert "order[1]: an order must name every rank once" in words(replace(base, phases=(rows.build(),)))
    rows = OrbitsBuilder(np.arange(3))
    rows.add(3, [(0, 0), (0, 3)])
    rows.add(1, [(1, 0)], [(0, 0), (4, 0), (1, 3)], channel=1)
    text = words(replace(base, phases=(rows.build(),)))
    for part in (
        "every rank sends to itself (channel 0, step 0)",
        "row 0 carries member 0 of family 0 twice",
        "row 1 carries chunk family 1",
        "row 1 waits for row 4",
        "row 1 waits for itself",
        "row 1 of channel 1 waits for row 0 of channel 0",
    ):
        assert part in text
    rows = OrbitsBuilder(np.arange(4))
    rows.add(1, [(0, 0)])
    assert "order has the shape (1, 4)" in words(replace(base, phases=(rows.build(),)))


def test_arrays_that_do_not_fit():
    base = build("direct", "all_to_all", 3)
    good = base.materialise()
    columns = {name: getattr(good, name) for name in Transfers.__slots__}
    for name, value in (("dst", good.dst[:-1]), ("chunk_ptr", good.chunk_ptr[::-1]), ("dep_ptr", good.dep_ptr + 1)):
        text = words(replace(base, phases=(Transfers(**{**columns, name: value}),)))
        assert name in text
    assert "different lengths" in words(replace(base, chunks=Chunks([1, 2], [0], [1])))
    assert "the schedule has no phase" in words(replace(base, phases=()))
    assert "a phase cannot be a str" in words(replace(base, phases=("ring",)))
    assert "verify the schedule before merging" in words(build("ring", "all_reduce", 4, channels=2).merged())


class TestContract:
    def test_wrong_total(self):
        text = words(replace(build("ring", "all_reduce", 4), size_bytes=193))
        assert "all chunks together hold 192 bytes, not the 193 of the buffer" in text

    @pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
    def test_wrong_block(self, op):
        schedule = build("all_pairs", op, 4)
        sizes = schedule.chunks.size_bytes.copy()
        sizes[2] -= 1
        chunks = replace(schedule.chunks, size_bytes=sizes)
        assert "the block of rank 2 holds 47 bytes, not 48" in words(replace(schedule, chunks=chunks))

    def test_uneven_blocks(self):
        schedule = replace(build("all_pairs", "all_gather", 4), size_bytes=197)
        assert "197 bytes do not cut into 4 equal blocks" in words(schedule)

    def test_wrong_message(self):
        schedule = build("direct", "all_to_all", 3)
        sizes = schedule.chunks.size_bytes.copy()
        sizes[0] = 5
        text = words(replace(schedule, chunks=replace(schedule.chunks, size_bytes=sizes)))
        assert "the block from rank 0 to rank 1 holds 5 bytes, not 48" in text

    def test_missing_message(self):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([5, 5], [0, 1], [1, 1])
        rows.add(0, 1, [0])
        text = words(Schedule("all_to_all", "by_hand", 2, 10, chunks.build(), (rows.build(),)))
        assert "there is no block from rank 1 to rank 0" in text
        nothing = TransfersBuilder().build()
        one = replace(build("direct", "all_to_all", 3), chunks=Chunks([16], [0], [1]), phases=(nothing,))
        assert "1 chunks cannot hold a block for each of 6 ordered pairs" in words(one)

    def test_own_block_may_be_there(self):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([5, 5, 5, 5], [0, 1, 0, 1], [1, 0, 0, 1])
        rows.add(0, 1, [0])
        rows.add(1, 0, [1])
        assert find_faults(Schedule("all_to_all", "by_hand", 2, 10, chunks.build(), (rows.build(),))) == []

    def test_wrong_operation(self):
        text = words(replace(build("ring", "all_gather", 4), op="all_reduce"))
        assert "the source of chunk 0 is rank 0 (and 3 more chunks)" in text
        assert "in all_reduce the source of a chunk is every rank" in text

    def test_unknown_operation(self):
        text = words(replace(build("ring", "all_gather", 4), op="all_gahter"))
        assert 'did you mean "all_gather"' in text

    @pytest.mark.parametrize("op", ["broadcast", "reduce"])
    def test_root(self, op):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        ends = (1, EVERY) if op == "broadcast" else (EVERY, 1)
        chunks.add([10], *ends)
        for rank in (0, 2):
            rows.add(*((1, rank) if op == "broadcast" else (rank, 1)), [0], reduces=op == "reduce")
        schedule = Schedule(op, "by_hand", 3, 10, chunks.build(), (rows.build(),), {"root": 1})
        assert find_faults(schedule) == []
        assert f"parameters.root: {op} needs a root\n" in words(replace(schedule, parameters={}))
        assert "needs a root, not 3" in words(replace(schedule, parameters={"root": 3}))
        end = "source" if op == "broadcast" else "target"
        text = words(replace(schedule, parameters={"root": 2}))
        assert f"in {op} the {end} of a chunk is the root, rank 2" in text

    @pytest.mark.parametrize("op", ["gather", "scatter"])
    @pytest.mark.parametrize("own", [False, True])
    def test_rooted_blocks(self, op, own):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        for rank in range(3):
            if rank != 1 or own:
                ends = (rank, 1) if op == "gather" else (1, rank)
                chunk = chunks.add([4], *ends)
                if rank != 1:
                    rows.add(*ends, [chunk])
        schedule = Schedule(op, "by_hand", 3, 12, chunks.build(), (rows.build(),), {"root": 1})
        assert find_faults(schedule) == []
        assert "the block of rank 0 holds 4 bytes, not 5" in words(replace(schedule, size_bytes=15))

    def test_send_recv(self):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([7, 7, 7], [0, 1, 2], [1, 2, 0])
        for rank in range(3):
            rows.add(rank, (rank + 1) % 3, [rank])
        schedule = Schedule("send_recv", "by_hand", 3, 7, chunks.build(), (rows.build(),))
        assert find_faults(schedule) == []
        assert "rank 0 sends 7 bytes, not 8" in words(replace(schedule, size_bytes=8))
        astray = replace(schedule, chunks=Chunks([7] * 3, [0, 1, 2], [1, 2, 1]))
        assert "chunk 2 goes from rank 2 to rank 1" in words(astray)

    def test_all_to_all_v(self):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([7, 3, 2], [0, 1, 0], [1, 0, 0])
        rows.add(0, 1, [0])
        rows.add(1, 0, [1])
        schedule = Schedule("all_to_all_v", "by_hand", 2, 9, chunks.build(), (rows.build(),))
        assert find_faults(schedule) == []
        assert "rank 0 sends 9 bytes, more than the buffer of 8" in words(replace(schedule, size_bytes=8))


class TestExchange:
    """Recursive doubling: in each step, pairs swap their partial sums."""

    def schedule(self, n, *, after_both=True):
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([8], EVERY, EVERY)
        sent = {}
        for step in range(n.bit_length() - 1):
            before, sent = sent, {}
            for rank in range(n):
                peer = rank ^ (1 << step)
                deps = [i for i, (a, b) in before.items() if {a, b} & ({rank, peer} if after_both else {rank})]
                sent[rows.add(rank, peer, [0], deps, step=step, reduces=True)] = (rank, peer)
        return Schedule("all_reduce", "doubling", n, 8, chunks.build(), (rows.build(),))

    @pytest.mark.parametrize("n", [2, 4, 8, 16])
    def test_both_read_before_either_adds(self, n):
        assert find_faults(self.schedule(n)) == []

    def test_the_receiver_must_be_ready(self):
        assert "no order" in (text := words(self.schedule(8, after_both=False))) or "before it was read" in text

    def test_other_labels_are_no_exchange(self):
        rows = Rows(self.schedule(2))
        rows.step[1] = 1
        assert "is read before it has arrived" in words(rows.done())

    def test_one_after_the_other_adds_twice(self):
        rows = Rows(self.schedule(2))
        rows.deps[1] = [0]
        text = words(rows.done())
        assert (
            "double add: 1 -> 0 (channel 0, step 0) adds to chunk 0 at rank 0 what it holds already, from rank 0"
            in text
        )

    def test_who_reads_between_the_two_sides_is_told_of_the_first(self):
        """By its place in the order, as with every race: rank 1 sends on after the first side, before the second."""
        chunks, rows = ChunksBuilder(), TransfersBuilder()
        chunks.add([8], EVERY, EVERY)
        rows.add(0, 1, [0], reduces=True)
        rows.add(1, 2, [0], reduces=True)
        rows.add(1, 0, [0], reduces=True)
        text = words(Schedule("all_reduce", "by_hand", 3, 8, chunks.build(), (rows.build(),)))
        assert "chunk 0 at rank 1 is read before it has arrived: 1 -> 2" in text
        assert "without waiting for 0 -> 1" in text
        assert "overwritten before it was read" not in text


def test_many_faults_are_counted():
    rows = Rows(build("direct", "all_to_all", 8))
    for _ in range(30):
        rows.drop(0)
    with pytest.raises(VerificationError) as caught:
        verify(rows.done())
    assert len(caught.value.faults) == 21
    assert str(caught.value).endswith("... and 10 more faults")
    assert len(find_faults(rows.done())) == 30


def test_phases_order_what_a_rank_does():
    schedule = build("all_pairs", "all_reduce", 4)
    joined = replace(schedule, phases=(schedule.materialise(),))
    assert find_faults(joined) == []
    twice = words(replace(schedule, phases=(schedule.phases[0], *schedule.phases)))
    assert "phase 1: double add: 0 -> 1 (channel 0, step 0) adds to chunk 1" in twice
    assert "lost contribution" in words(replace(schedule, phases=schedule.phases[::-1]))


def test_rank_names():
    assert rank_names([3]) == "rank 3"
    assert rank_names([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"


@pytest.mark.parametrize(
    "case",
    deep_but(
        [("all_pairs", "all_reduce"), ("direct", "all_to_all")],
        [("ring", "all_reduce"), ("one_shot", "all_reduce"), ("all_pairs", "all_reduce"), ("direct", "all_to_all")],
    ),
)
def test_sixty_four_ranks_in_little_memory(case):
    name, op = case
    schedule = build(name, op, 64, channels=2, size_bytes=64 * 2**20)
    found, peak = peak_bytes(lambda: find_faults(schedule))
    assert found == []
    assert peak < 2**26


def edited(op, name, n_ranks):
    """A sound schedule of 8 ranks that claims to be of *n_ranks*."""
    schedule = algorithm(op, name).build(ScheduleRequest(operation(op), 8, 2**20 * 8, channels=4))
    return replace(schedule, phases=(schedule.materialise(),), n_ranks=n_ranks, size_bytes=n_ranks * 64)


@pytest.mark.parametrize("n_ranks", [10**4, 10**6])
@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("all_reduce", "tree"),
        ("all_reduce", "nvls"),
        ("all_gather", "ring"),
        ("all_gather", "nvls"),
        ("reduce_scatter", "all_pairs"),
        ("all_to_all", "direct"),
        ("broadcast", "tree"),
        ("reduce", "tree"),
        ("gather", "direct"),
        ("scatter", "direct"),
        ("send_recv", "neighbour"),
    ],
)
def test_far_too_many_ranks_are_found_in_little_memory(op, name, n_ranks):
    schedule = edited(op, name, n_ranks)
    found, peak = peak_bytes(lambda: find_faults(schedule))
    assert 0 < len(found) < 500
    assert peak < 2**20 + 32 * n_ranks


def test_idle_ranks_are_counted():
    text = words(edited("all_reduce", "tree", 10**6))
    assert "999992 of 1000000 ranks take part in no transfer" in text
    assert "the highest rank that a transfer names is 7" in text


def test_long_lists_are_cut():
    found = find_faults(edited("gather", "direct", 10**4))
    assert any("... and " in fault.what and "more ranks like these" in fault.what for fault in found)


def test_switches_of_too_many_ranks_are_refused():
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    chunks.add([10], 0, EVERY)
    rows.add(0, EVERY, [0])
    schedule = Schedule("broadcast", "by_hand", 10**6, 10, chunks.build(), (rows.build(),), {"root": 0})
    with pytest.raises(UnsupportedError, match="1000000 ranks"):
        find_faults(schedule)
    assert find_faults(replace(schedule, n_ranks=100)) == []


def test_missing_blocks_of_an_exchange():
    schedule = algorithm("all_to_all", "direct").build(ScheduleRequest(operation("all_to_all"), 4, 4 * 64))
    chunks = schedule.chunks
    target = chunks.target.copy()
    target[chunks.source == 2] = np.where(target[chunks.source == 2] == 3, 1, target[chunks.source == 2])
    text = "\n".join(fault.what for fault in contract_faults(replace(schedule, chunks=replace(chunks, target=target))))
    assert "there is no block from rank 2 to rank 3" in text
    assert "the block from rank 2 to rank 1 holds 128 bytes, not 64" in text


def test_only_what_switches_carry_out_is_too_much_to_write_out(monkeypatch):
    """Where a single entry is too much, schedules with such transfers are refused, those from rank to rank are not."""
    monkeypatch.setattr("collsim.schedule.verifier.MAX_ENTRIES", 1)
    for name in ("ring", "tree", "chain", "all_pairs"):
        assert find_faults(build(name, "all_reduce", 4)) == []
    with pytest.raises(UnsupportedError, match="by the switches"):
        find_faults(build("nvls", "all_reduce", 4))


@pytest.mark.parametrize(("name", "op"), [("ring", "all_reduce"), ("tree", "all_reduce"), ("direct", "all_to_all")])
def test_arrays_of_a_schedule_are_read_only(name, op):
    schedule = build(name, op, 4)
    rows = [phase.materialise() for phase in schedule.phases]
    arrays = [value for part in (schedule.chunks, *rows) for value in map(part.__getattribute__, part.__slots__)]
    arrays = [value for value in arrays if isinstance(value, np.ndarray)]
    assert len(arrays) > 8
    assert not any(value.flags.writeable for value in arrays)


@pytest.mark.parametrize("given", [[1, 2], np.arange(3), np.arange(6)[::2], np.ones(2)])
def test_what_a_form_is_given_is_copied_and_read_only(given):
    held = frozen(given)
    assert not held.flags.writeable
    assert held is not given
    assert held is frozen(held)
    assert held.tolist() == list(given)
    assert not sealed(np.array(given)).flags.writeable
