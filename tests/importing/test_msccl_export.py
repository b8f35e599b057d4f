"""Schedules as algorithms of MSCCL: read again they move the same between the same ranks, and are right."""

from collections import Counter

import pytest

from collsim.importing import import_schedule
from collsim.importing.msccl import read_msccl
from collsim.importing.msccl_export import schedule_xml
from collsim.importing.msccl_schedules import schedule_of
from collsim.schedule import load, verify
from collsim.simulation.simulate import simulate
from collsim.simulation.written import simulate_schedule
from tests.cli.conftest import collsim  # noqa: F401 - a fixture
from tests.importing.test_msccl import program

SIZE = 2**20
WRITTEN = (
    ("hgx_h100", "all_reduce", "ring"), ("hgx_h100", "all_reduce", "tree"), ("mi300x_ubb8", "all_reduce", "all_pairs"),
    ("hgx_h100", "all_gather", "ring"), ("mi300x_ubb8", "all_gather", "pat"), ("mi300x_ubb8", "reduce_scatter", "pat"),
    ("mi300x_ubb8", "all_reduce", "rabenseifner"), ("mi300x_ubb8", "all_gather", "bruck"),
    ("hgx_h100", "reduce_scatter", "ring"), ("hgx_h100", "all_to_all", "direct"),
)  # fmt: skip


def exported(run, folder, topo, op, algo, name, size="1M"):
    flags = ("--topo", topo, "--op", op, "--algo", algo, "--size", size, "--channels", "2", "--profile", "ideal")
    return run("schedule", "export", *flags, "-o", folder / name)


def carried(schedule):
    """How often each chunk goes from which rank to which."""
    all_of = schedule.materialise()
    ptr, chunk = all_of.chunk_ptr, all_of.chunk.tolist()
    moves = zip(all_of.src.tolist(), all_of.dst.tolist(), ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
    return Counter((src, dst, each) for src, dst, low, high in moves for each in chunk[low:high])


@pytest.mark.parametrize(("topo", "op", "algo"), WRITTEN)
def test_what_is_written_is_the_same_algorithm(collsim, tmp_path, topo, op, algo):  # noqa: F811
    for name in ("a.json", "a.xml"):
        found = exported(collsim, tmp_path, topo, op, algo, name)
        assert found.code == 0
        shared = name == "a.xml" and load(tmp_path / "a.json").materialise().lanes.max() > 1
        assert ("channels share each transfer" in found.err) == shared
    before, after = load(tmp_path / "a.json"), import_schedule(tmp_path / "a.xml", SIZE)
    verify(after)
    assert (after.op, after.algo, after.n_ranks, after.size_bytes) == (op, algo, before.n_ranks, before.size_bytes)
    chunks, again = before.chunks, after.chunks
    ends = [sorted(zip(c.source.tolist(), c.target.tolist(), c.size_bytes.tolist(), strict=True))
            for c in (chunks, again)]  # fmt: skip
    others = [[end for end in found if end[0] != end[1] or end[0] < 0] for found in ends]  # what stays is copied
    assert others[0] == others[1]
    pairs = [Counter((src, dst) for src, dst, _ in carried(each).elements()) for each in (before, after)]
    assert pairs[0] == pairs[1]
    times_s = [simulate_schedule(each, topo, profile="ideal").time_s for each in (before, after)]
    assert times_s[1] == pytest.approx(times_s[0], rel=1e-9), "the same steps take as long"


def test_an_algorithm_of_msccl_comes_back():
    schedule = import_schedule("examples/imports/msccl_ring.xml", SIZE)
    assert carried(schedule)
    text = schedule_xml(schedule)
    assert text.count("<tb ") == 2 * 4, "each GPU sends to one and receives from one"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("hgx_h100", "all_reduce", "nvls"), "nvls lets switches add and copy, MSCCL none"),
        (("hgx_h100", "broadcast", "tree"), "MSCCL has no broadcast"),
    ],
)
def test_what_msccl_cannot_say_is_refused(collsim, tmp_path, asked, why):  # noqa: F811
    found = exported(collsim, tmp_path, *asked, "a.xml")
    assert found.code == 2
    assert f"error: -o: {why}" in found.err
    assert "write .json" in found.err
    assert not (tmp_path / "a.xml").exists()


@pytest.mark.parametrize("algo", ["ring", "tree", "chain"])
def test_with_the_constants_of_a_library_it_takes_as_long_too(collsim, tmp_path, algo):  # noqa: F811
    flags = ("--topo", "dgx_a100", "--op", "all_reduce", "--algo", algo, "--size", "1M", "--channels", "2")
    for name in ("a.json", "a.xml"):
        assert collsim("schedule", "export", *flags, "-o", tmp_path / name).code == 0
    run = simulate("dgx_a100", "all_reduce", SIZE, algo=algo, channels=2)
    saved = simulate_schedule(load(tmp_path / "a.json"), "dgx_a100")
    written = simulate_schedule(import_schedule(tmp_path / "a.xml", SIZE), "dgx_a100")
    assert saved.time_s == pytest.approx(run.time_s, rel=1e-9)
    assert written.time_s == pytest.approx(run.time_s, rel=1e-6)


def test_messages_that_become_several_are_told(collsim, tmp_path):  # noqa: F811
    found = exported(collsim, tmp_path, "dgx_a100", "all_gather", "pat", "a.xml", size="32K")
    assert "48 transfers of pat are 112 sends of MSCCL, of chunks that lie side by side" in found.err
    assert "sends of MSCCL" not in exported(collsim, tmp_path, "dgx_a100", "all_gather", "ring", "a.xml").err


def test_what_is_sent_is_what_was_there_before_anything_was_added():
    """Both GPUs send what they had, and add what arrives: a sum that is sent would be added twice."""

    def blocks(gpu):
        return [(1 - gpu, 1 - gpu, [("s", ("i", 0), ("s", 0)), ("r", ("i", 0), ("s", 0)), ("re", ("s", 0), ("i", 0))])]

    schedule = schedule_of(program("allreduce", 2, 1, blocks), SIZE)
    text = schedule_xml(schedule)
    again = schedule_of(read_msccl(text.encode(), "own.xml"), SIZE)
    assert schedule_xml(again) == text
    assert carried(again) == carried(schedule)
    assert again.materialise().reads_input.all()
