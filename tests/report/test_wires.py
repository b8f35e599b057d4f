"""Columns that tell wires from bandwidths of benchmarks, against arithmetic by hand."""

import pytest

import collsim
from collsim.core.errors import Faults
from collsim.report import Screen, render, render_comparison
from collsim.report.wires import check_sets, wire_notes, wires_of
from collsim.topology import load_topology

GIB = 2**30
TWO = load_topology("hgx_h100", scale_out={"nodes": 2})


def tiers(op, algo, topo=TWO, **options):
    row = collsim.simulate(topo, op, "1G", algo=algo, **options).rows[0]
    return row, {load.tier: load for load in row.tiers}


def test_bytes_of_a_ring_over_nodes():
    """Of 2 (n-1)/n S each GPU sends to the next; eight rings leave a node at eight adapters, one part each."""
    row, found = tiers("all_reduce", "ring", profile="ideal")
    each = 2 * 15 / 16 * GIB
    assert found["adapter"].sent_bytes == pytest.approx(each / 8, rel=1e-6)
    assert found["adapter"].node_bytes == pytest.approx(each, rel=1e-6)
    assert found["node"].sent_bytes == pytest.approx(each * 7 / 8, rel=1e-6)
    assert found["node"].total_bytes + found["bus"].total_bytes == pytest.approx(16 * each, rel=1e-6)
    assert row.algo_bound_s == pytest.approx(each / 8 / 50e9, rel=1e-6)
    assert row.lower_bound_s < row.algo_bound_s <= row.time_s * (1 + 1e-9)


def test_no_wire_is_faster_than_its_line():
    for op, algo in (("all_reduce", "nvls_tree"), ("all_to_all", "auto"), ("all_gather", "ring")):
        row, found = tiers(op, algo, library="nccl-2.28")
        assert found
        assert all(load.sent_bytes / row.time_s <= load.line_Bps * (1 + 1e-9) for load in found.values())


def test_classes_carry_what_all_transfers_do():
    topo = load_topology("hgx_h100", scale_out={"nodes": 16})
    alike, whole = (tiers("all_reduce", "ring", topo, reduce=reduce)[1] for reduce in (True, False))
    for tier, load in whole.items():
        assert alike[tier].sent_bytes == pytest.approx(load.sent_bytes, rel=1e-6)
        assert alike[tier].total_bytes == pytest.approx(load.total_bytes, rel=1e-6)


def test_a_tree_on_two_nodes_shows_more_than_the_wire_and_says_so():
    topo = load_topology("hgx_h100", {"scale_out.nodes": "2", "nic.shared_by": "8"})
    rows = collsim.simulate(topo, "all_reduce", "1G", algo=["tree", "ring"], library="nccl-2.28").rows
    (note,) = wire_notes(map(wires_of, rows))
    assert note.startswith("tree: busbw is above the rate of the adapters")
    assert "1.8" in note  # 2 (n-1)/n S of busbw, S on the wire: 15/8


def test_an_all_to_all_shows_more_than_an_adapter_carries_and_says_so():
    """A seventh of what a rank sends stays in one of six nodes: more than 50 GB/s, as NVIDIA/nccl-tests#267 asks."""
    topo = load_topology("hgx_h100", {"scale_out.nodes": "6", "scale_out.network": "roce"})
    rows = collsim.simulate(topo, "all_to_all", "8G").rows
    (note,) = wire_notes(map(wires_of, rows))
    assert rows[0].busbw_Bps > 50e9
    assert "messages within the node" in note
    assert "an adapter carries 47.9 GB/s" in note
    many = collsim.simulate(load_topology("hgx_h100", {"scale_out.nodes": "32"}), "all_to_all", "1G").rows
    assert wire_notes(map(wires_of, many)) == []


def test_sets_of_columns():
    result = collsim.simulate(TWO, "all_reduce", "1G", algo="ring", profile="ideal")
    plain, more = (render(result, "table", Screen(columns=sets)) for sets in ((), ("rates", "bytes", "bounds")))
    assert "adapter wire" not in plain
    assert all(name in more for name in ("GPU wire", "adapter wire", "bus sends", "own bound", "own eff"))
    compared = collsim.compare(["hgx_h100", "hgx_h200"], "all_reduce", "1G", profile="ideal")
    assert "GPU wire" in render_comparison(compared, "table", Screen(columns=("rates",)))


def test_unknown_sets_are_refused_with_the_nearest():
    faults = Faults()
    assert check_sets("bytes,rats", faults) == ("bytes",)
    assert 'did you mean "rates"?' in str(faults[0])


def test_a_threshold_between_numbers_of_ranks_is_not_the_librarys_alone():
    moving = collsim.simulate("hgx_h200", "all_reduce", "8G", ranks=[4, 8], library="nccl-2.22")
    steady = collsim.simulate("hgx_h200", "all_reduce", "8G", ranks=[7, 8], library="nccl-2.22")
    assert "a tuner plug-in (NCCL_TUNER_PLUGIN" in " ".join(render(moving, "table").replace("#", "").split())
    assert "NCCL_TUNER_PLUGIN" not in render(steady, "table")
