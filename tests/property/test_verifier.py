"""Random damage to right schedules: what the verifier passes must come out right in every order it could run in.

The oracle shares nothing with the verifier: it carries schedules out with counters of contributions, each transfer
reading when it starts and writing when it ends, in random interleavings.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.collectives import algorithm
from collsim.collectives.algorithm import ScheduleRequest
from collsim.core.operations import operation
from collsim.schedule import EVERY, Chunks, Schedule, Transfers, TransfersBuilder, find_faults, verifier

CASES = [
    ("ring", "all_reduce"),
    ("ring", "all_gather"),
    ("ring", "reduce_scatter"),
    ("all_pairs", "all_reduce"),
    ("all_pairs", "all_gather"),
    ("one_shot", "all_reduce"),
    ("direct", "all_to_all"),
    ("doubling", "all_reduce"),
]
FIELDS = ["src", "dst", "chunk", "dep", "reduces", "reads_input", "channel", "step", "lanes", "copies"]


def build(case, n, channels):
    name, op = case
    if name == "doubling":
        return doubling(4)
    schedule = algorithm(op, name).build(ScheduleRequest(operation(op), n, n * 24, channels=channels))
    return replace(schedule, phases=tuple(phase.materialise() for phase in schedule.phases))


def doubling(n):
    """In each step, pairs of ranks swap their partial sums."""
    rows, sent = TransfersBuilder(), {}
    for step in range(n.bit_length() - 1):
        before, sent = sent, {}
        for rank in range(n):
            peer = rank ^ (1 << step)
            deps = [i for i, pair in before.items() if pair & {rank, peer}]
            sent[rows.add(rank, peer, [0], deps, step=step, reduces=True)] = {rank, peer}
    return Schedule("all_reduce", "doubling", n, 8, Chunks([8], [EVERY], [EVERY]), (rows.build(),))


def with_columns(schedule, number, **columns):
    phase = schedule.phases[number]
    changed = Transfers(**{**{name: getattr(phase, name) for name in Transfers.__slots__}, **columns})
    return replace(schedule, phases=(*schedule.phases[:number], changed, *schedule.phases[number + 1 :]))


def without_entry(ptr, values, entry):
    ptr = ptr.copy()
    ptr[ptr > entry] -= 1
    return ptr, values[[i for i in range(len(values)) if i != entry]]


def without_row(schedule, number, row):
    phase = schedule.phases[number]
    rows = [i for i in range(len(phase)) if i != row]
    renumber = {old: new for new, old in enumerate(rows)}
    chunks = [phase.chunks_of(i) for i in rows]
    deps = [[renumber[d] for d in phase.deps_of(i) if d != row] for i in rows]
    columns = {name: getattr(phase, name)[rows] for name in ("src", "dst", "channel", "step", "lanes", "copies")}
    columns |= {name: getattr(phase, name)[rows] for name in ("reduces", "reads_input")}
    for name, lists in (("chunk", chunks), ("dep", deps)):
        columns[name] = [value for items in lists for value in items]
        columns[f"{name}_ptr"] = [sum(map(len, lists[:i])) for i in range(len(lists) + 1)]
    return with_columns(schedule, number, **columns)


@st.composite
def damaged(draw):
    n = draw(st.integers(2, 5))
    schedule = build(draw(st.sampled_from(CASES)), n, draw(st.integers(1, 2)))
    number = draw(st.integers(0, len(schedule.phases) - 1))
    phase = schedule.phases[number]
    row = draw(st.integers(0, len(phase) - 1))
    kind = draw(st.sampled_from(["drop", "src", "dst", "reduces", "reads_input", "chunk", "drop_dep", "dep", "swap"]))
    if kind == "drop":
        return without_row(schedule, number, row)
    if kind in ("src", "dst", "chunk", "dep"):
        values = getattr(phase, kind).copy()
        if len(values):
            limit = {"chunk": len(schedule.chunks), "dep": len(phase)}.get(kind, n)
            values[draw(st.integers(0, len(values) - 1))] = draw(st.integers(0, limit - 1))
        return with_columns(schedule, number, **{kind: values})
    if kind in ("reduces", "reads_input"):
        values = getattr(phase, kind).copy()
        values[row] ^= True
        return with_columns(schedule, number, **{kind: values})
    if kind == "drop_dep" and len(phase.dep):
        ptr, dep = without_entry(phase.dep_ptr, phase.dep, draw(st.integers(0, len(phase.dep) - 1)))
        return with_columns(schedule, number, dep_ptr=ptr, dep=dep)
    other = draw(st.integers(0, len(phase) - 1))
    dst = phase.dst.copy()
    dst[[row, other]] = dst[[other, row]]
    return with_columns(schedule, number, dst=dst)


def partners(rows: Transfers, deps: list[set[int]]) -> dict[int, int]:
    """Return the other side of every transfer that is one side of an exchange."""

    def waits(i, j):
        seen, stack = set(), [i]
        while stack:
            new = deps[stack.pop()] - seen
            seen |= new
            stack += new
        return j in seen

    def look(i, a, b):
        return rows.channel[i], rows.step[i], a[i], b[i], bool(rows.reduces[i] and not rows.reads_input[i])

    return {
        i: j
        for i in range(len(rows))
        for j in range(len(rows))
        if look(i, rows.src, rows.dst) == look(j, rows.dst, rows.src) and look(i, rows.src, rows.dst)[-1]
        if set(rows.chunks_of(i)) & set(rows.chunks_of(j)) and not waits(i, j) and not waits(j, i)
    }


def carry_out(schedule: Schedule, random: Random) -> dict[tuple[int, int], Counter[int]]:
    """Return what every rank holds at the end of one random interleaving."""
    n, source = schedule.n_ranks, schedule.chunks.source.tolist()
    start = {
        (rank, chunk): Counter([rank] if source[chunk] in (EVERY, rank) else [])
        for rank in range(n)
        for chunk in range(len(source))
    }
    held = dict(start)
    rows = schedule.materialise()
    deps = [set(rows.deps_of(i)) for i in range(len(rows))]
    partner, moved = partners(rows, deps), {}
    waiting, running, done = list(range(len(rows))), [], set()
    while waiting or running:
        ready = [i for i in waiting if deps[i] <= done]
        assert ready or running, "deadlock"
        if ready and (not running or random.random() < 0.5):
            i = random.choice(ready)
            waiting.remove(i)
            copies = start if rows.reads_input[i] else held
            payload = {c: copies[rows.src[i], c] for c in rows.chunks_of(i)}
            if partner.get(i) in done:  # both sides of an exchange read before either adds
                payload = {c: value - moved[partner[i]].get(c, Counter()) for c, value in payload.items()}
            running.append((i, payload))
            continue
        i, payload = running.pop(random.randrange(len(running)))
        for chunk, value in payload.items():
            place = (rows.dst[i], chunk)
            held[place] = held[place] + value if rows.reduces[i] else value
        moved[i] = payload
        done.add(i)
    return held


def right(schedule, held):
    n = schedule.n_ranks
    for chunk, (source, target) in enumerate(zip(schedule.chunks.source, schedule.chunks.target, strict=True)):
        wanted = Counter(range(n) if source == EVERY else [int(source)])
        if any(held[rank, chunk] != wanted for rank in (range(n) if target == EVERY else [int(target)])):
            return False
    return True


@settings(max_examples=250)
@given(damaged(), st.integers(0, 2**32))
def test_what_passes_comes_out_right(schedule, seed):
    if find_faults(schedule):
        return
    random = Random(seed)
    for _ in range(6):
        assert right(schedule, carry_out(schedule, random))


@settings(max_examples=150)
@given(damaged(), st.integers(1, 4))
def test_trimming_the_sets_changes_nothing(schedule, every):
    untrimmed = find_faults(schedule)
    with mock.patch.object(verifier, "TRIM_EVERY", every):
        assert find_faults(schedule) == untrimmed


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(2, 5), st.integers(1, 2), st.randoms(use_true_random=False))
def test_the_oracle_agrees_on_right_schedules(case, n, channels, random):
    schedule = build(case, n, channels)
    assert find_faults(schedule) == []
    assert right(schedule, carry_out(schedule, random))


@settings(max_examples=200)
@given(st.data())
def test_no_damage_makes_it_crash(data):
    schedule = build(data.draw(st.sampled_from(CASES)), data.draw(st.integers(2, 4)), 1)
    junk = st.one_of(st.integers(-3, 20), st.integers(-(2**63), 2**63 - 1))
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(schedule.phases) - 1))
        name = data.draw(st.sampled_from([*FIELDS, "chunk_ptr", "dep_ptr"]))
        values = getattr(schedule.phases[number], name).copy()
        if len(values):
            values[data.draw(st.integers(0, len(values) - 1))] = data.draw(junk)
        schedule = with_columns(schedule, number, **{name: values})
    if data.draw(st.booleans()):
        columns = {name: getattr(schedule.chunks, name).copy() for name in ("size_bytes", "source", "target")}
        column = columns[data.draw(st.sampled_from(sorted(columns)))]
        column[data.draw(st.integers(0, len(column) - 1))] = data.draw(junk)
        schedule = replace(schedule, chunks=Chunks(**columns))
    for fault in find_faults(schedule):
        assert fault.what


@settings(max_examples=100)
@given(st.sampled_from(CASES), st.integers(2, 6), st.data())
def test_a_lost_transfer_is_always_noticed(case, n, data):
    schedule = build(case, n, data.draw(st.integers(1, 2)))
    number = data.draw(st.integers(0, len(schedule.phases) - 1))
    row = data.draw(st.integers(0, len(schedule.phases[number]) - 1))
    assert find_faults(without_row(schedule, number, row))
