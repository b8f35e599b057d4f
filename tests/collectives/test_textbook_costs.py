"""What each algorithm costs when a rank sends and receives one message at a time: messages, bytes and time.

A message of b bytes takes A + b B; formulas are those of Thakur, Rabenseifner and Gropp (2005) and Chan et al. (2007).
"""

import numpy as np
import pytest

from collsim.collectives import ScheduleRequest, algorithm
from collsim.collectives.binomial import branches
from collsim.collectives.folding import fold, halvings
from collsim.core.operations import operation

A, B = 1000.0, 1.0
SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 64]
POWERS = [2, 4, 8, 16, 32, 64]


class Costs:
    """Counts of one schedule of *m* bytes on *n* ranks."""

    def __init__(self, op, algo, n, m, **options):
        self.schedule = algorithm(op, algo).build(ScheduleRequest(operation(op), n, m, **options))
        rows = self.schedule.materialise()
        self.moves = rows.src != rows.dst
        size_bytes = rows.size_bytes(self.schedule.chunks)
        ends = np.zeros(len(rows))
        for i in range(len(rows)):
            ends[i] = max((ends[dep] for dep in rows.deps_of(i)), default=0) + (A + B * size_bytes[i]) * self.moves[i]
        self.time = ends.max()
        self.messages = int(np.count_nonzero(self.moves))
        self.sent = np.bincount(rows.src, size_bytes, minlength=n).tolist()
        self.received = np.bincount(rows.dst, size_bytes, minlength=n).tolist()


def rounds_of(n):
    """Return ceil(lg n)."""
    return (n - 1).bit_length()


def folded(n):
    """Return the largest power of two up to n, its logarithm, and how many ranks are left over."""
    lg = n.bit_length() - 1
    return 1 << lg, lg, n - (1 << lg)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_binomial(op, n):
    m = 840
    costs = Costs(op, "binomial", n, m, root=n // 2)
    assert costs.messages == n - 1
    assert costs.time == rounds_of(n) * (A + m * B)
    at_root = costs.sent if op == "broadcast" else costs.received
    assert at_root[n // 2] == rounds_of(n) * m


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_binomial_of_blocks(op, n):
    m = 16 * n
    costs = Costs(op, "binomial", n, m, root=n - 1)
    assert costs.messages == n - 1
    assert costs.time == rounds_of(n) * A + (n - 1) * 16 * B  # for any n: the root has all blocks pass one by one
    assert (costs.sent if op == "scatter" else costs.received)[n - 1] == m - 16


def test_binomial_tree_of_six():
    edges = [[(e.parent, e.child, list(e.subtree)) for e in level] for level in branches(6)]
    assert edges == [[(0, 4, [4, 5])], [(0, 2, [2, 3])], [(0, 1, [1]), (2, 3, [3]), (4, 5, [5])]]


@pytest.mark.parametrize("n", SIZES)
def test_van_de_geijn(n):
    m = 16 * n
    costs = Costs("broadcast", "scatter_allgather", n, m, root=1)
    if n in POWERS:
        assert costs.time == (rounds_of(n) + n - 1) * A + 2 * (m - 16) * B
    assert costs.time <= (rounds_of(n) + n - 1) * A + 2 * (m - 16) * B
    assert costs.received == [0 if rank == 1 else m for rank in range(n)]  # nothing comes twice


@pytest.mark.parametrize("n", SIZES)
def test_recursive_doubling_all_gather(n):
    m = 16 * n
    p, lg, extra = folded(n)
    costs = Costs("all_gather", "recursive_doubling", n, m)
    assert costs.messages == p * lg + 2 * extra
    assert costs.received == [m - 16] * n
    if not extra:
        assert costs.time == lg * A + (m - 16) * B
    else:  # first one block, last all but one; in between blocks of up to two ranks
        between = costs.time - (lg + 2) * A - m * B
        assert 0 < between <= 2 * (p - 1) * 16 * B


@pytest.mark.parametrize("n", SIZES)
def test_recursive_halving_reduce_scatter(n):
    m = 16 * n
    p, lg, extra = folded(n)
    costs = Costs("reduce_scatter", "recursive_halving", n, m)
    assert costs.messages == p * lg + 2 * extra
    assert costs.time == Costs("all_gather", "recursive_doubling", n, m).time + bool(extra) * 16 * B
    if not extra:
        assert costs.time == lg * A + (m - 16) * B
        assert costs.sent == [m - 16] * n


@pytest.mark.parametrize("n", SIZES)
def test_bruck_all_gather(n):
    m = 16 * n
    costs = Costs("all_gather", "bruck", n, m)
    assert costs.messages == n * rounds_of(n)
    assert costs.time == rounds_of(n) * A + (m - 16) * B
    assert costs.sent == [m - 16] * n


@pytest.mark.parametrize("n", SIZES)
def test_bruck_all_to_all(n):
    costs = Costs("all_to_all", "bruck", n, 16 * n)
    forwarded = sum(places.bit_count() for places in range(n))
    assert costs.messages == n * rounds_of(n)
    assert costs.time == rounds_of(n) * A + forwarded * 16 * B
    if n in POWERS:
        assert costs.time == rounds_of(n) * (A + 16 * n / 2 * B)
    assert costs.sent == [forwarded * 16] * n


@pytest.mark.parametrize("n", SIZES)
def test_pairwise_all_to_all(n):
    m = 16 * n
    costs = Costs("all_to_all", "pairwise", n, m)
    assert costs.messages == n * (n - 1)
    assert costs.time == (n - 1) * A + (m - 16) * B
    assert costs.sent == costs.received == [m - 16] * n


@pytest.mark.parametrize("n", SIZES)
def test_recursive_doubling_all_reduce(n):
    m = 840
    p, lg, extra = folded(n)
    costs = Costs("all_reduce", "recursive_doubling", n, m)
    assert costs.messages == p * lg + 2 * extra
    assert costs.time == (lg + 2 * bool(extra)) * (A + m * B)


@pytest.mark.parametrize("n", SIZES)
def test_rabenseifner_all_reduce(n):
    p, lg, extra = folded(n)
    m = 16 * p
    costs = Costs("all_reduce", "rabenseifner", n, m)
    assert costs.messages == 2 * p * lg + 2 * extra
    assert costs.time == 2 * lg * A + 2 * (m - 16) * B + 2 * bool(extra) * (A + m * B)
    if not extra:
        assert costs.sent == costs.received == [2 * (m - 16)] * n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("op", "passes"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_ring(op, passes, n):
    m = 16 * n
    costs = Costs(op, "ring", n, m)
    assert costs.messages == passes * n * (n - 1)
    assert costs.time == passes * ((n - 1) * A + (m - 16) * B)
    assert costs.sent == [passes * (m - 16)] * n


@pytest.mark.parametrize("n", SIZES)
def test_chain_all_reduce(n):
    costs = Costs("all_reduce", "chain", n, 10 * 64, chunk_bytes=64)
    hops = 2 * (n - 1)
    assert costs.messages == hops * 10
    assert costs.time == (hops + 9) * (A + 64 * B)  # up and down overlap: full duplex
    assert costs.sent == [640, *[1280] * (n - 2), 640]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_direct_gather_and_scatter(op, n):
    costs = Costs(op, "direct", n, 16 * n, root=n - 1)
    assert costs.messages == n - 1
    assert costs.time == A + 16 * B
    assert (costs.received if op == "gather" else costs.sent)[n - 1] == 16 * (n - 1)


@pytest.mark.parametrize(
    ("op", "algo"),
    [
        ("all_reduce", "rabenseifner"),
        ("all_reduce", "recursive_doubling"),
        ("all_gather", "recursive_doubling"),
        ("reduce_scatter", "recursive_halving"),
        ("all_gather", "bruck"),
        ("all_to_all", "bruck"),
        ("all_to_all", "pairwise"),
    ],
)
@pytest.mark.parametrize("n", [8, 13])
def test_a_rank_sends_and_receives_one_message_per_step(op, algo, n):
    rows = algorithm(op, algo).build(ScheduleRequest(operation(op), n, 16 * n)).materialise()
    for end in (rows.src, rows.dst):
        assert np.unique(np.stack([end, rows.step]), axis=1).shape[1] == len(rows)


@pytest.mark.parametrize("n", range(2, 70))
def test_fold(n):
    team = fold(n)
    p = len(team.members)
    assert p & (p - 1) == 0
    assert p <= n < 2 * p
    assert sorted([*team.members, *(rank for rank, _ in team.pairs)]) == list(range(n))
    assert [team.members[member] for member in team.member_of[list(team.members)]] == list(team.members)
    assert all(team.members[team.member_of[rank]] == neighbour == rank + 1 for rank, neighbour in team.pairs)


def test_halving_in_any_order_ends_with_what_each_owns():
    owner = np.array([3, 0, 0, 2, 1, 3, 1, 2])
    for distances in ((2, 1), (1, 2)):
        _, kept = list(halvings(owner, distances))[-1]
        assert kept == [[1, 2], [4, 6], [3, 7], [0, 5]]


def test_halving_goes_far_first_and_rabenseifner_near_first():
    far = algorithm("reduce_scatter", "recursive_halving").build(
        ScheduleRequest(operation("reduce_scatter"), 8, 8 * 16)
    )
    near = algorithm("all_reduce", "rabenseifner").build(ScheduleRequest(operation("all_reduce"), 8, 8 * 16))
    for schedule, distances in ((far, [4, 2, 1]), (near, [1, 2, 4, 4, 2, 1])):
        rows = schedule.materialise()
        assert [sorted(set(np.abs(rows.src - rows.dst)[rows.step == s].tolist())) for s in np.unique(rows.step)] == [
            [distance] for distance in distances
        ]


def test_channels_carry_a_message_together():
    for op, algo in (("all_reduce", "rabenseifner"), ("all_to_all", "bruck"), ("broadcast", "binomial")):
        schedule = algorithm(op, algo).build(ScheduleRequest(operation(op), 6, 6 * 16, channels=5))
        assert set(schedule.phases[0].materialise().lanes.tolist()) == {5}
        assert schedule.parameters["channels"] == 5
