from itertools import pairwise

import numpy as np
import pytest

from collsim.collectives import ALGORITHMS, ScheduleRequest, algorithm, algorithms_for, matrix_size_bytes
from collsim.collectives.pat import gather_messages, messages_per_rank
from collsim.collectives.pipeline import Hop, pipelined
from collsim.core.errors import InputError, UnknownNameError
from collsim.core.operations import OPERATIONS, operation
from collsim.library.costs.channel_costs import FAMILIES, PEER_FAMILIES
from collsim.library.library import PROTOCOLS
from collsim.schedule.message_parts import BATCH, channel_of_part, n_parts, part_sizes
from collsim.schedule.verifier import verify

KIB, MIB, GIB = 2**10, 2**20, 2**30


def build(op, algo, n, size_bytes, **options):
    return algorithm(op, algo).build(ScheduleRequest(operation(op), n, size_bytes, **options))


def rounds(transfers):
    """Return when the last transfer ends if each takes one unit of time and nothing is shared."""
    ends = np.zeros(len(transfers), dtype=np.int64)
    for i in range(len(transfers)):
        ends[i] = 1 + max((ends[dep] for dep in transfers.deps_of(i)), default=0)
    return int(ends.max())


# The table of algorithms


@pytest.mark.parametrize(
    "op",
    list(OPERATIONS),
)
def test_every_operation_has_algorithms_with_different_names(op):
    names = [entry.name for entry in algorithms_for(op)]
    assert names
    assert len(set(names)) == len(names)


def test_every_algorithm_says_what_it_is_and_where_it_is_published():
    for entry in ALGORITHMS:
        assert entry.title
        assert entry.source
        assert set(entry.ops) <= set(OPERATIONS)
        assert {entry.family_for(op) for op in entry.ops} <= {*FAMILIES, *PEER_FAMILIES}
        assert set(entry.protocols) <= set(PROTOCOLS)
    pairs = [(op, entry.name) for entry in ALGORITHMS for op in entry.ops]
    assert len(pairs) == len(set(pairs))


def test_an_unknown_algorithm_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match='did you mean "tree"'):
        algorithm("all_reduce", "tre")


@pytest.mark.parametrize(
    ("op", "algo"), [(op, entry.name) for entry in ALGORITHMS if entry.where == "anywhere" for op in entry.ops]
)
def test_no_bytes_at_all_still_make_a_schedule(op, algo):
    matrix = np.diag([1, 2, 3]) if op == "all_to_all_v" else None
    schedule = build(op, algo, 3, 3 if op == "all_to_all_v" else 0, channels=4, matrix_bytes=matrix)
    verify(schedule)
    assert schedule.chunks.size_bytes.sum() == 0


# Rounds


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_round_of_pairwise_waits_for_what_the_rank_sent_and_for_what_it_got(n):
    """Neither of the two partners of a round may be busy with it when the next one begins."""
    transfers = build("all_to_all", "pairwise", n, n * 4096).phases[0].materialise()
    assert len(transfers) == n * (n - 1)
    before = {
        i: [(int(transfers.src[j]), int(transfers.dst[j])) for j in transfers.deps_of(i)] for i in range(len(transfers))
    }
    for i, pairs in before.items():
        rank, distance = int(transfers.src[i]), int(transfers.dst[i] - transfers.src[i]) % n
        ends = [(rank, (rank + distance - 1) % n), ((rank - distance + 1) % n, rank)]
        assert sorted(pairs) == (sorted(ends) if distance > 1 else [])


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_messages_of_a_root_are_in_the_rounds_that_an_all_to_all_has_for_them(op):
    """In round d rank r sends to rank r + d, so a root 3 of 8 hears of rank 2 first and serves rank 4 first."""
    rows = build(op, "nccl_p2p", 8, 8 * 4096, root=3, channels=32).phases[0].materialise()
    others = rows.src if op == "gather" else rows.dst
    assert others.tolist() == [(3 + (-d if op == "gather" else d)) % 8 for d in range(1, 8)]
    whole = build("all_to_all", "nccl_p2p", 8, 8 * 4096, channels=32).phases[0].materialise()
    served, all_served = (
        {*zip(each.src.tolist(), each.dst.tolist(), each.channel.tolist(), strict=True)} for each in (rows, whole)
    )
    assert served <= all_served


# Pipelines

CHAIN = tuple(Hop(i, i + 1, i, i + 1) for i in range(4))


def test_a_pipeline_waits_for_data_program_order_and_credit():
    transfers = pipelined([CHAIN], [5], slots=3).materialise()
    hop, chunk = 1, 4
    waits = {divmod(dep, len(CHAIN)) for dep in transfers.deps_of(chunk * len(CHAIN) + hop)}
    assert waits == {(4, 0), (3, 1), (1, 2)}  # its data, the chunk before, and the next hop three chunks earlier


def test_a_chain_takes_its_length_plus_its_chunks_and_with_one_slot_twice_as_long():
    assert rounds(pipelined([CHAIN], [10], slots=8).materialise()) == 4 + 9
    assert rounds(pipelined([CHAIN], [10], slots=1).materialise()) == 4 + 2 * 9


def test_channels_of_a_pipeline_are_numbered_one_after_the_other():
    back = tuple(Hop(4 - i, 3 - i, i, i + 1) for i in range(4))
    transfers = pipelined([CHAIN, back, CHAIN], [2, 1, 2], slots=8).materialise()
    assert transfers.channel.tolist() == [0] * 8 + [1] * 4 + [2] * 8
    assert transfers.chunk.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert transfers.deps_of(16) == [12]
    assert transfers.src[8] == 4


# Trees and chains


@pytest.mark.parametrize(("n", "depth"), [(2, 1), (3, 2), (8, 3), (9, 4), (16, 4), (64, 6)])
def test_tree_all_reduce_overlaps_up_and_down(n, depth):
    schedule = build("all_reduce", "tree", n, 10 * MIB, channels=1, chunk_bytes=MIB)
    assert rounds(schedule.phases[0].materialise()) == 2 * depth + 10 - 1


def test_tree_takes_two_channels_unless_told_otherwise():
    assert build("all_reduce", "tree", 8, MIB).parameters == {"channels": 2, "trees": 2, "slots": 8}
    assert build("all_reduce", "tree", 8, MIB, channels=1).parameters["trees"] == 1
    assert build("all_reduce", "tree", 8, MIB, default_channels=24).parameters["channels"] == 24


def test_first_half_of_the_channels_uses_the_first_tree():
    phase = build("all_reduce", "tree", 8, 4 * MIB, channels=4).phases[0].materialise()
    roots = [
        set(phase.dst[phase.channel == c]) - set(phase.src[(phase.channel == c) & phase.reduces]) for c in range(4)
    ]
    assert roots == [{0}, {0}, {7}, {7}]


def test_tree_loads_all_ranks_alike_but_the_roots():
    phase = build("all_reduce", "tree", 16, 64 * MIB).phases[0].materialise()
    sent = np.bincount(phase.src, minlength=16)
    assert sent[1:15].tolist() == [sent[1]] * 14
    assert sent[0] == sent[15] < sent[1]


@pytest.mark.parametrize("algo", ["ring", "tree"])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_the_root_sends_or_receives_everything_once(op, algo):
    schedule = build(op, algo, 7, 5 * MIB, root=4, channels=4)
    phase = schedule.phases[0].materialise()
    at_root = phase.src == 4 if op == "broadcast" else phase.dst == 4
    assert phase.size_bytes(schedule.chunks)[at_root].sum() == 5 * MIB
    assert not np.any(phase.dst == 4 if op == "broadcast" else phase.src == 4)


def test_a_chain_follows_its_ring_from_the_root():
    rings = np.array([[0, 2, 1, 3], [0, 3, 1, 2]])
    phase = build("broadcast", "ring", 4, 2 * KIB, root=1, channels=2, rings=rings).phases[0].materialise()
    assert list(zip(phase.src.tolist(), phase.dst.tolist(), strict=True)) == [
        *[(1, 3), (3, 0), (0, 2)],
        *[(1, 2), (2, 0), (0, 3)],
    ]


@pytest.mark.parametrize(("op", "algo"), [("all_reduce", "tree"), ("broadcast", "tree"), ("reduce", "ring")])
def test_equal_channels_merge(op, algo):
    schedule = build(op, algo, 16, 64 * MIB, channels=32)
    transfers, merged = schedule.phases[0].materialise(), schedule.merged().phases[0].materialise()
    shapes = 1 if algo == "ring" else 2
    assert len(merged) * 32 == len(transfers) * shapes
    assert set(merged.copies.tolist()) == {32 // shapes}


@pytest.mark.parametrize("n", [2, 3, 8])
def test_an_up_down_chain_has_the_first_rank_of_its_ring_as_head(n):
    rings = np.stack([np.arange(n), np.roll(np.arange(n), -1)])
    phase = build("all_reduce", "chain", n, 2 * MIB, channels=2, rings=rings).phases[0].materialise()
    for channel, ring in enumerate(rings.tolist()):
        mine = np.flatnonzero(phase.channel == channel)[: 2 * (n - 1)]  # of the first chunk
        assert phase.step[mine].tolist() == list(range(2 * (n - 1)))
        hops = list(zip(phase.src[mine].tolist(), phase.dst[mine].tolist(), phase.reduces[mine].tolist(), strict=True))
        path = list(pairwise(ring))
        assert hops == [*((b, a, True) for a, b in reversed(path)), *((a, b, False) for a, b in path)]


# PAT


@pytest.mark.parametrize(
    ("n", "block_bytes", "messages"),
    [
        (16, 256, 4),
        (16, 512 * KIB, 15),
        (64, 64 * KIB, 10),
        (128, 64 * KIB, 18),
        (128, 256 * KIB, 64),
        (256, 8 * KIB, 9),
        (100, 64 * KIB, 17),
        (100, 256 * KIB, 52),
    ],
)
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_pat_sends_as_many_messages_as_nccl(op, n, block_bytes, messages):
    schedule = build(op, "pat", n, n * block_bytes, chunk_bytes=512 * KIB)
    assert messages_per_rank(schedule).tolist() == [messages] * n


def test_pat_repeats_the_pass_for_blocks_larger_than_a_chunk():
    schedule = build("all_gather", "pat", 16, 16 * 1280 * KIB, chunk_bytes=512 * KIB)
    assert messages_per_rank(schedule).tolist() == [15 + 15 + len(gather_messages(16, 256 * KIB, 512 * KIB))] * 16


def test_pat_takes_smaller_chunks_for_less_data():
    assert build("all_gather", "pat", 16, GIB).parameters["chunk_bytes"] == 512 * KIB
    assert build("all_gather", "pat", 16, 8 * MIB).parameters["chunk_bytes"] == 256 * KIB
    assert build("reduce_scatter", "pat", 16, 8 * MIB).parameters["chunk_bytes"] == 512 * KIB
    assert build("reduce_scatter", "pat", 16, MIB, channels=2).parameters["chunk_bytes"] == 64 * KIB


def test_pat_all_reduce_is_a_reduce_scatter_and_then_an_all_gather():
    schedule = build("all_reduce", "pat", 12, 12 * KIB, channels=2)
    assert [bool(np.all(phase.reduces)) for phase in schedule.phases] == [True, False]
    assert messages_per_rank(schedule).tolist() == [2 * 2 * 4] * 12


# Point to point


@pytest.mark.parametrize(
    ("message_bytes", "n", "channels", "parts"),
    [
        (0, 4, 32, 1),
        (64 * KIB, 4, 32, 1),
        (64 * KIB + 1, 4, 32, 2),
        (128 * MIB, 4, 32, 8),
        (128 * MIB + 1, 4, 32, 16),
        (512 * MIB, 4, 32, 32),
        (4 * GIB, 4, 32, 32),
        (MIB, 72, 32, 1),
        (MIB, 3, 32, 8),
        (MIB, 2, 1, 1),
    ],
)
def test_parts_of_a_message(message_bytes, n, channels, parts):
    assert n_parts(message_bytes, n, channels) == parts


@pytest.mark.parametrize(("message_bytes", "parts"), [(0, 1), (1, 4), (10000, 2), (MIB + 1, 16), (4096 * 3, 8)])
def test_parts_are_aligned_and_complete(message_bytes, parts):
    sizes = part_sizes(message_bytes, parts)
    assert sizes.sum() == message_bytes
    assert np.all(sizes[:-1] % 4096 == 0)
    assert np.all(sizes[1:] > 0)
    assert len(sizes) <= parts


def test_rounds_share_the_channels_of_four_ranks_without_overlap():
    used = [{channel_of_part(distance, part, 32) for part in range(8)} for distance in range(4)]
    assert set.union(*used) == set(range(32))
    assert sum(len(channels) for channels in used) == 32


def test_channels_are_rounded_up_to_a_power_of_two():
    assert build("all_to_all", "nccl_p2p", 4, 4 * MIB, channels=24).parameters["channels"] == 32
    assert build("all_to_all", "nccl_p2p", 4, 4 * MIB, channels=100).parameters["channels"] == 64


def test_a_channel_starts_its_next_batch_when_the_rank_is_done_with_the_one_before():
    n, channels = 72, 4
    phase = build("all_to_all", "nccl_p2p", n, n * KIB, channels=channels).phases[0].materialise()
    order = {int(d): [] for d in range(channels)}
    for distance in range(n):
        order[channel_of_part(distance, 0, channels)].append(distance)
    for i in range(len(phase)):
        distance = int(phase.dst[i] - phase.src[i]) % n
        place = order[int(phase.channel[i])].index(distance)
        batch = order[int(phase.channel[i])][max(place // BATCH - 1, 0) * BATCH : place // BATCH * BATCH]
        me = int(phase.src[i])
        expected = {(me, (me + d) % n) for d in batch if d} | {((me - d) % n, me) for d in batch if d}
        assert {(int(phase.src[d]), int(phase.dst[d])) for d in phase.deps_of(i)} == expected
        assert phase.step[i] == place // BATCH


def messages_of(phase, chunks):
    """Return (src, dst, channel, bytes) of each transfer with what it waits for, in the same form."""
    sizes = phase.size_bytes(chunks)
    looks = [(int(phase.src[i]), int(phase.dst[i]), int(phase.channel[i]), int(sizes[i])) for i in range(len(phase))]
    return {looks[i]: {looks[dep] for dep in phase.deps_of(i)} for i in range(len(phase))}


@pytest.mark.parametrize(("n", "channels"), [(3, 8), (20, 2), (40, 4)])
def test_equal_messages_of_all_to_all_v_run_as_in_all_to_all(n, channels):
    block = 300 * KIB
    matrix = np.full((n, n), block)
    one = build("all_to_all", "nccl_p2p", n, n * block, channels=channels)
    other = build("all_to_all_v", "nccl_p2p", n, n * block, channels=channels, matrix_bytes=matrix)
    uniform = messages_of(one.phases[0].materialise(), one.chunks)
    general = messages_of(other.phases[0], other.chunks)
    assert set(uniform) == set(general)
    for message, waits in uniform.items():
        src, dst = message[:2]
        assert {wait for wait in general[message] if src in wait[:2]} == waits  # and the same at the receiver
        assert all({src, dst} & set(wait[:2]) for wait in general[message])


def test_ranks_fill_their_batches_at_their_own_pace():
    n, root = 20, 3
    gather = build("gather", "nccl_p2p", n, n * KIB, root=root, channels=1)
    phase = gather.phases[0]
    assert phase.src.tolist() == [(root - distance) % n for distance in range(1, n)]
    for i in range(len(phase)):  # the root's own block comes first
        batch = (i + 1) // BATCH
        assert phase.deps_of(i) == list(range(max((batch - 1) * BATCH - 1, 0), batch * BATCH - 1))
    assert phase.step.tolist() == [(i + 1) // BATCH for i in range(n - 1)]  # of the root: senders have one message each
    scatter = build("scatter", "nccl_p2p", n, n * KIB, root=root, channels=1).phases[0]
    assert scatter.step.tolist() == [(i + 1) // BATCH for i in range(n - 1)]
    assert [scatter.deps_of(i) for i in range(n - 1)] == [phase.deps_of(i) for i in range(n - 1)]


def test_messages_of_all_to_all_v_are_cut_by_their_own_size():
    matrix = np.array([[0, 1, 0], [5 * MIB, 0, 0], [70 * KIB, 0, 7]])
    schedule = build("all_to_all_v", "nccl_p2p", 3, matrix_size_bytes(matrix), channels=8, matrix_bytes=matrix)
    phase, sizes = schedule.phases[0], schedule.chunks.size_bytes
    parts = {(int(a), int(b)): sizes[(phase.src == a) & (phase.dst == b)].tolist() for a, b in ((0, 1), (1, 0), (2, 0))}
    assert parts == {(0, 1): [1], (1, 0): [1310720 * 2] * 2, (2, 0): [36 * KIB, 34 * KIB]}
    assert len(phase) == 5


def test_send_recv_in_parts():
    schedule = build("send_recv", "nccl_p2p", 4, 256 * MIB, channels=32)
    assert schedule.parameters["parts"] == 16
    assert schedule.chunks.size_bytes.tolist() == [16 * MIB] * 64


def test_send_recv_over_all_channels():
    phase = build("send_recv", "neighbour", 3, MIB, channels=5).phases[0].materialise()
    assert phase.dst.tolist() == [1, 2, 0]
    assert phase.lanes.tolist() == [5] * 3


def test_all_to_all_v_sends_what_is_not_empty():
    matrix = np.array([[9, 1, 0], [0, 9, 2], [0, 0, 9]])
    schedule = build("all_to_all_v", "direct", 3, 11, matrix_bytes=matrix)
    phase = schedule.phases[0].materialise()
    assert (phase.src.tolist(), phase.dst.tolist()) == ([0, 1], [1, 2])
    assert schedule.chunks.size_bytes.tolist() == [1, 2]


@pytest.mark.parametrize("matrix", [None, np.ones((2, 3), dtype=np.int64), np.ones((4, 4), dtype=np.int64)])
def test_all_to_all_v_needs_a_matrix_that_fits(matrix):
    with pytest.raises(InputError, match="byte matrix"):
        build("all_to_all_v", "direct", 3, 3, matrix_bytes=matrix)


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_a_batch_of_messages_comes_after_those_it_waits_for(op):
    """Steps of NCCL's messages rise along every wait: those of the root decide, whose batches are full."""
    rows = build(op, "nccl_p2p", 20, 20 * KIB, channels=1, root=3).phases[0].materialise()
    later = np.repeat(rows.step, np.diff(rows.dep_ptr))
    assert len(later)
    assert (rows.step[rows.dep] < later).all()
