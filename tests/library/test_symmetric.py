"""NCCL's kernels on symmetric memory: who takes them, up to which size with lines, and what they cost."""

import csv
from pathlib import Path

import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.library import Call, choose, load_library, load_profile, read_environment, system_of, with_symmetric
from collsim.library.engines import symmetric
from collsim.topology import load_topology

KIB, MIB, GIB = 2**10, 2**20, 2**30
ROWS = Path(__file__).parents[2] / "tools" / "data" / "symmetric.csv"


@pytest.fixture(scope="module")
def h200():
    return system_of(load_topology("hgx_h200"), [0, 1], nvls=False)


def chosen(system, op, size, library="nccl-2.32", *, symmetric=True, **more):
    return choose(Call(op, 2, size, registered=True, symmetric=symmetric, **more), system, library)


def test_lines_carry_small_calls_and_loads_and_stores_large_ones(h200):
    """By NCCL's model an all-reduce of two moves twice the lines of a gather: it leaves them at half the size."""

    def last(op):
        sizes = [KIB << power for power in range(20)]
        return max(size for size in sizes if chosen(h200, op, size).algo == "symmetric_ll")

    assert last("all_gather") == 2 * last("all_reduce")
    assert chosen(h200, "all_reduce", GIB).algo == "symmetric_store"
    assert chosen(h200, "all_reduce", 8).proto == "LL"


def test_only_symmetric_buffers_of_versions_that_have_the_kernels_take_them(h200):
    assert chosen(h200, "all_reduce", MIB, symmetric=False).algo == "ring"
    assert chosen(h200, "all_reduce", MIB, "nccl-2.26").algo == "ring"
    assert chosen(h200, "all_reduce", MIB, redop="max").algo == "ring"
    assert chosen(h200, "broadcast", MIB).algo == "ring"
    a100 = system_of(load_topology("dgx_a100"), [0, 1])
    assert chosen(a100, "all_reduce", MIB).algo == "ring"
    forced = choose(Call("all_reduce", 2, MIB, symmetric=True), h200, "nccl-2.32", read_environment(["NCCL_ALGO=Ring"]))
    assert forced.algo == "ring"


def test_switches_that_add_are_a_doubt(h200):
    with_switches = system_of(load_topology("hgx_h200"), [0, 1])
    assert with_switches.nvls
    assert "switches" in chosen(with_switches, "all_reduce", MIB).doubts[0]
    assert chosen(h200, "all_reduce", MIB).doubts == ()


def test_an_all_reduce_adds_as_slowly_as_a_scatter_and_stores_as_fast_as_a_gather():
    time_s = {
        op: simulate("hgx_h200", op, "1G", ranks=2, library="nccl-2.32", registered="symmetric").time_s
        for op in ("all_reduce", "reduce_scatter", "all_gather")
    }
    assert time_s["all_reduce"] == pytest.approx(time_s["reduce_scatter"] + time_s["all_gather"], rel=0.02)
    assert time_s["reduce_scatter"] > time_s["all_gather"]


def test_measured_rows_from_a_mebibyte_on_are_met():
    with ROWS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["size_bytes"]) >= MIB]
    errors = []
    for op in dict.fromkeys(row["op"] for row in rows):
        own = {int(row["size_bytes"]): float(row["out_of_place_us"]) * 1e-6 for row in rows if row["op"] == op}
        options = {"library": "nccl-2.32", "registered": "symmetric", "host": "virtual"}
        result = simulate("hgx_h200", op, list(own), ranks=2, **options)
        errors += [abs(row.time_s / own[row.size_bytes] - 1) for row in result.rows]
    assert np.median(errors) < 0.05


def test_messages_go_as_registered_ones():
    symmetric, registered = (
        simulate("hgx_h200", "all_to_all", "64M", ranks=2, library="nccl-2.32", registered=how).time_s
        for how in ("symmetric", True)
    )
    assert symmetric == registered


def test_kernels_carried_over_say_so():
    carried = with_symmetric(load_profile("hgx_b200"), load_topology("hgx_b200"))
    assert "carried over to hgx_b200" in carried.title
    assert not carried.calibrated


def test_a_way_to_register_that_nobody_has_is_refused():
    with pytest.raises(InputError, match="true, false or symmetric"):
        simulate("hgx_h200", "all_reduce", "1M", registered="windows")


@pytest.mark.parametrize("topo", ["hgx_h200", "hgx_b200"])
def test_large_gathers_move_binary_gigabytes_a_second(topo):
    """Eight GiB more, of which seven come from others, take seven over the rate of all blocks in GiB/s longer."""
    architecture = "hopper" if topo == "hgx_h200" else "blackwell"
    block = symmetric.BLOCK_GIBPS[architecture][1]
    rate = symmetric._soft_least(symmetric.BLOCKS * block, symmetric.PEAK_GIBPS[architecture], block)
    system, library = system_of(load_topology(topo)), load_library("nccl-2.32")
    calls = [Call("all_gather", 8, size * 2**33, symmetric=True, registered=True) for size in (1, 2)]
    first, second = (symmetric.symmetric_choice(call, system, library).predicted_s for call in calls)
    assert second - first == pytest.approx(7 / rate, rel=1e-6)
