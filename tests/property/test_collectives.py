"""Every generator, every number of ranks: the schedule does what its operation promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.collectives import ALGORITHMS, ScheduleRequest, algorithm
from collsim.collectives.all_to_all_v import matrix_size_bytes
from collsim.collectives.pat import gather_messages, messages_per_rank, scatter_messages
from collsim.collectives.rings import balanced_rings
from collsim.collectives.tree import binary_tree, double_tree, rooted_trees
from collsim.core.operations import operation
from collsim.schedule.verifier import verify

CASES = [(op, entry.name) for entry in ALGORITHMS if entry.where == "anywhere" for op in entry.ops]
EVERY_RUN = (*range(2, 18), 23, 24, 25, 31, 32, 33, 64)
OTHERS = sorted({*range(2, 65)} - {*EVERY_RUN})
RANKS = [pytest.param(EVERY_RUN, id="few"), pytest.param(OTHERS, marks=pytest.mark.deep, id="other")]
"""In every run all small numbers, those about powers of two and about the numbers of chunks below, and the largest."""


def request(name, n, *, elements, element_bytes, channels, chunks, **more):
    """Return a request in which every channel has about so many chunks."""
    op = operation(name)
    size_bytes = op.rounded_size_bytes(elements * element_bytes * (16 if op.blocked else 1), n, element_bytes)
    if name == "all_to_all_v":
        matrix = np.random.default_rng(n).integers(0, 3, (n, n)) * 1000
        matrix[0, 1] = 7
        more, size_bytes = {"matrix_bytes": matrix, **more}, matrix_size_bytes(matrix)
    share = size_bytes // (channels * (1 if op.rooted else n))
    more = {
        "chunk_bytes": max(share // (3 if op.rooted else chunks), element_bytes),
        "slots": 2,
        "root": 2 * n // 3,
        **more,
    }
    return ScheduleRequest(op, n, size_bytes, element_bytes, channels=channels, **more)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("op", "algo"), CASES)
def test_schedule_is_right_for_a_size_that_divides(op, algo, ranks):
    for n in ranks:
        chunks = 2 if n <= 32 else 1
        asked = request(op, n, elements=12 * n, element_bytes=4, channels=2, chunks=chunks)
        verify(algorithm(op, algo).build(asked))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("op", "algo"), CASES)
def test_schedule_is_right_for_a_size_that_does_not_divide(op, algo, ranks):
    for n in ranks:
        chunks = 2 if n <= 24 else 1
        asked = request(op, n, elements=13 * n + 5, element_bytes=2, channels=3, chunks=chunks, rings=balanced_rings(n))
        schedule = algorithm(op, algo).build(asked)
        verify(schedule)
        if algo in ("ring", "pat"):
            per_chunk = 1 if asked.op.rooted else n
            assert len(schedule.chunks) > 3 * per_chunk, n  # more than one chunk per channel


@pytest.mark.parametrize("ranks", RANKS)
def test_tree_all_reduce_is_right_over_many_chunks(ranks):
    for n in ranks:
        asked = ScheduleRequest(operation("all_reduce"), n, 1234, 2, channels=3, chunk_bytes=60, slots=3)
        verify(algorithm("all_reduce", "tree").build(asked))


@settings(max_examples=150)
@given(
    case=st.sampled_from(CASES),
    n=st.integers(2, 12),
    elements=st.integers(1, 3000),
    element_bytes=st.sampled_from([1, 2, 4, 8]),
    channels=st.integers(1, 9),
    chunk=st.integers(8, 4096),
    slots=st.integers(1, 9),
    root=st.integers(0, 11),
)
def test_schedule_is_right_whatever_is_asked(case, n, elements, element_bytes, channels, chunk, slots, root):
    op, algo = case
    size_bytes = max(operation(op).rounded_size_bytes(elements * element_bytes, n, element_bytes), 0)
    matrix = None
    if op == "all_to_all_v":
        matrix = np.random.default_rng(elements).integers(0, 3, (n, n))
        size_bytes = matrix_size_bytes(matrix)
    asked = ScheduleRequest(
        operation(op),
        n,
        size_bytes,
        element_bytes,
        root=root % n,
        channels=channels,
        chunk_bytes=max(chunk, size_bytes // 50 + 1),
        slots=slots,
        matrix_bytes=matrix,
    )
    schedule = algorithm(op, algo).build(asked)
    verify(schedule)
    sizes = schedule.chunks.size_bytes
    for phase in schedule.phases:
        transfers = phase.materialise()
        merged = phase.merged(schedule.chunks).materialise()
        moved = merged.size_bytes(schedule.chunks) * merged.copies
        assert moved.sum() == sizes[transfers.chunk].sum()


def test_trees_of_an_all_reduce():
    for n in range(2, 200):
        trees = double_tree(n)
        for parents in trees:
            check_tree(parents, n)
        both = interior(trees[0]) & interior(trees[1])
        assert n == 2 or both == (set() if n % 2 == 0 else {0}), n


@pytest.mark.parametrize("n", range(2, 65))
def test_trees_below_a_root(n):
    for root in {0, 1, n // 2, n - 1}:
        trees = rooted_trees(n, root)
        for parents in trees:
            check_tree(parents, n)
            assert parents[root] == -1
            assert np.count_nonzero(parents == root) == 1
        assert interior(trees[0]) & interior(trees[1]) == {root}


def check_tree(parents, n):
    """Check that all ranks hang below one root, not too deep, with at most two children each."""
    root = np.flatnonzero(parents == -1)
    assert len(root) == 1
    assert np.bincount(parents[parents >= 0], minlength=n).max() <= 2
    for start in range(n):
        rank, depth = start, 0
        while rank != root[0]:
            rank, depth = parents[rank], depth + 1
            assert depth <= n.bit_length()  # floor(log2 n) + 1


def interior(parents):
    return {int(parent) for parent in parents if parent >= 0}


def test_the_tree_of_eight():
    assert binary_tree(8).tolist() == [-1, 2, 4, 2, 0, 6, 4, 6]


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 16, 31, 64, 100, 128])
@pytest.mark.parametrize("block_bytes", [1, 64 * 1024, 200_000, 512 * 1024])
def test_pat_moves_every_block_once_in_messages_that_fit(n, block_bytes):
    for messages in (gather_messages(n, block_bytes, 512 * 1024), scatter_messages(n, block_bytes, 512 * 1024)):
        blocks = [block for message in messages for block in message.blocks]
        assert sorted(blocks) == list(range(1, n))
        assert all(len(message.blocks) * block_bytes <= 512 * 1024 for message in messages)
        assert all(message.blocks for message in messages)
    asked = ScheduleRequest(operation("all_gather"), n, n * block_bytes, chunk_bytes=512 * 1024)
    counts = messages_per_rank(algorithm("all_gather", "pat").build(asked))
    assert np.all(counts == len(gather_messages(n, block_bytes, 512 * 1024)))
