"""Algorithms of MSCCL as schedules: what they move, that they are right, and how long they take."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from collsim.core.errors import InputError, VerificationError
from collsim.importing import import_schedule
from collsim.importing.msccl import read_msccl
from collsim.importing.msccl_schedules import _Machine, schedule_of
from collsim.schedule import diff, find_faults, load, save
from collsim.simulation.written import simulate_schedule

RING = Path(__file__).parents[2] / "examples/imports/msccl_ring.xml"


def program(coll, n, chunks, blocks, *, in_place=1, proto="Simple"):
    """An algorithm of one channel; *blocks* has each GPU's thread blocks: (send, recv, [(type, src, dst)])."""
    lines = [
        f'<algo name="own" proto="{proto}" nchannels="1" nchunksperloop="{chunks}" ngpus="{n}" coll="{coll}" '
        f'inplace="{in_place}">'
    ]
    for gpu in range(n):
        lines.append(f'<gpu id="{gpu}">')
        for number, (send, recv, steps) in enumerate(blocks(gpu)):
            lines.append(f'<tb id="{number}" send="{send}" recv="{recv}" chan="0">')
            for place, (kind, source, target) in enumerate(steps):
                ends = f'srcbuf="{source[0]}" srcoff="{source[1]}" dstbuf="{target[0]}" dstoff="{target[1]}"'
                lines.append(f'<step s="{place}" type="{kind}" {ends} cnt="1" depid="-1" deps="-1"/>')
            lines.append("</tb>")
        lines.append("</gpu>")
    return read_msccl("\n".join([*lines, "</algo>"]).encode(), "own.xml")


def test_a_ring_moves_what_a_ring_moves():
    schedule = import_schedule(RING, "1M")
    transfers = schedule.materialise()
    sent = transfers.size_bytes(schedule.chunks)
    assert schedule.n_transfers == 2 * 4 * 3
    assert sent[transfers.src == 0].sum() == 2 * 2**20 * 3 // 4  # 2 S (n - 1) / n
    assert transfers.reduces.sum() == 4 * 3
    assert find_faults(schedule) == []


def test_saved_and_loaded_it_is_the_same(tmp_path):
    schedule = import_schedule(RING, "64K")
    save(schedule, tmp_path / "ring.json")
    assert diff(schedule, load(tmp_path / "ring.json")) == []


def test_on_bare_wires_it_takes_as_long_as_the_ring_of_the_library():
    own = simulate_schedule(partial(import_schedule, RING), "dgx_a100", "64M", profile="ideal").rows[0]
    share = 2 * 2**26 * 3 / 4 / 300e9  # each GPU sends 2 S (n - 1) / n over its 12 links of 25 GB/s
    assert own.time_s == pytest.approx(share, rel=1e-6)


def test_pairs_that_add_in_scratch():
    def blocks(gpu):
        other = 1 - gpu
        steps = [("s", ("i", 0), ("s", 0)), ("r", ("i", 0), ("s", 0)), ("re", ("s", 0), ("i", 0))]
        return [(other, other, steps)]

    schedule = schedule_of(program("allreduce", 2, 1, blocks), 2**16)
    transfers = schedule.materialise()
    assert find_faults(schedule) == []
    assert transfers.reduces.all()
    assert transfers.reads_input.all()


def test_an_all_gather_out_of_place_and_an_all_to_all():
    def gather(gpu):
        other = 1 - gpu
        copy = (-1, -1, [("cpy", ("i", 0), ("o", gpu))])
        return [copy, (other, other, [("s", ("i", 0), ("o", gpu)), ("r", ("i", 0), ("o", other))])]

    def exchange(gpu):
        other = 1 - gpu
        copy = (-1, -1, [("cpy", ("i", gpu), ("o", gpu))])
        return [copy, (other, other, [("s", ("i", other), ("o", gpu)), ("r", ("i", gpu), ("o", other))])]

    for coll, blocks in (("allgather", gather), ("alltoall", exchange)):
        schedule = schedule_of(program(coll, 2, 2, blocks, in_place=0), 2**16)
        assert find_faults(schedule) == []
        assert schedule.n_transfers == 2


def test_steps_that_receive_and_send_at_once_pass_pieces_on():
    def chain(gpu):
        last = 3
        if gpu == 0:
            return [(1, -1, [("s", ("o", 0), ("o", 0))])]
        return [(gpu + 1 if gpu < last else -1, gpu - 1, [("rcs" if gpu < last else "r", ("o", 0), ("o", 0))])]

    # only the block of GPU 0 travels: the others are lacking, and that is told
    with pytest.raises(VerificationError, match="GPU 0 ends with nothing in o\\[1\\], not with chunk 1"):
        schedule_of(program("allgather", 4, 4, chain), 2**20)


@pytest.mark.parametrize(
    ("proto", "size_bytes", "pieces"),
    [("Simple", 2**20, 2), ("Simple", 2**18, 2), ("Simple", 2**17, 1), ("Simple", 2**14, 1), ("LL", 2**20, 8),
     ("LL128", 2**19, 4), ("LL", 2**18, 2), ("LL", 2**17, 1)],
)  # fmt: skip
def test_chunks_are_cut_down_to_32_kib(proto, size_bytes, pieces):
    """A ring of four GPUs whose chunks are a quarter of the size, of which each is sent three times."""

    def ring(gpu):
        steps = [("s", ("o", gpu), ("o", gpu))]
        steps += [("rcs", ("o", (gpu - k) % 4), ("o", (gpu - k) % 4)) for k in (1, 2)]
        return [((gpu + 1) % 4, (gpu - 1) % 4, [*steps, ("r", ("o", (gpu - 3) % 4), ("o", (gpu - 3) % 4))])]

    schedule = schedule_of(program("allgather", 4, 4, ring, proto=proto), size_bytes)
    assert find_faults(schedule) == []
    assert schedule.n_transfers == 4 * 3 * pieces
    assert set(schedule.chunks.size_bytes.tolist()) == {size_bytes // 4 // pieces}


def test_two_gpus_that_wait_for_each_other_are_stuck():
    def blocks(gpu):
        other = 1 - gpu
        return [(other, other, [("r", ("i", 0), ("s", 0)), ("s", ("i", 0), ("s", 0)), ("re", ("s", 0), ("i", 0))])]

    with pytest.raises(VerificationError) as caught:
        schedule_of(program("allreduce", 2, 1, blocks), 2**16)
    assert "GPU 0, thread block 0 waits for ever at step 0 (r)" in str(caught.value)
    assert len(caught.value.faults) == 2


def test_ranks_and_size_have_to_be_those_of_the_schedule():
    schedule = import_schedule(RING, "64K")
    with pytest.raises(InputError, match="the schedule is of 4 ranks, not of 8"):
        simulate_schedule(schedule, "dgx_a100", rank_list=range(8))
    with pytest.raises(InputError, match="the schedule is of 65536 bytes, not of 131072"):
        simulate_schedule(schedule, "dgx_a100", "128K")
    with pytest.raises(InputError, match="a size of 0 bytes"):
        import_schedule(RING, 0)
    with pytest.raises(InputError, match="round down to nothing"):
        import_schedule(RING, 1)


@pytest.mark.parametrize(
    ("op", "place", "name"),
    [
        ("all_gather", ("i", 1), ("o", 7)),  # three chunks of each: the own part of rank 2 begins at 6
        ("all_gather", ("o", 1), ("o", 1)),
        ("reduce_scatter", ("o", 1), ("i", 7)),
        ("reduce_scatter", ("i", 1), ("i", 1)),
        ("all_reduce", ("o", 1), ("i", 1)),
        ("all_reduce", ("s", 1), ("s", 1)),
    ],
)
def test_in_place_a_chunk_has_one_name(op, place, name):
    machine = SimpleNamespace(program=SimpleNamespace(in_place=True, op=op, per_rank=3))
    assert _Machine.place(machine, 2, place) == name


def test_a_size_that_is_none_names_the_argument():
    with pytest.raises(InputError, match=r'^size: size "x" is not a number'):
        import_schedule(RING, "x")
