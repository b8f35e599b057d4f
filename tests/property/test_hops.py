"""Classes of hops stand for all transfers: same times as with every one of them, on whole and on broken machines."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import load_topology, simulate
from collsim.core.errors import CollsimError
from collsim.report import render
from collsim.simulation import hop_classes, hops

RUNS = (
    ("all_reduce", "tree"), ("all_reduce", "nvls_tree"), ("broadcast", "ring"), ("reduce", "ring"),
    ("all_gather", "ring"), ("reduce_scatter", "ring"),
)  # fmt: skip
CLUSTERS = ("h100_rail", "mi355x_pollara", "polaris", "frontier", "mi325x_thor2")
DAMAGE = (None, "nic:node1/2", "gpu:n0.gpu1", "nic:node0/0")


def times(cluster, run, *, classes, nodes, size, **asked):
    """Return the times of the rows of a run, with every transfer or with classes however few transfers there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hops, "LEAST_TRANSFERS", 0)
        op, algo = run
        overrides = {"scale_out.nodes": str(nodes)}
        return simulate(cluster, op, size, algo=algo, overrides=overrides, reduce=classes, **asked).rows[0]


@settings(max_examples=16)
@given(
    st.sampled_from(CLUSTERS), st.sampled_from(RUNS), st.integers(2, 9), st.sampled_from(["64K", "1M", "4M"]),
    st.sampled_from(["Simple", "LL128"]), st.integers(1, 9), st.sampled_from(DAMAGE),
    st.sampled_from(["auto", "ideal"]),
)  # fmt: skip
def test_classes_take_as_long_as_all_transfers(cluster, run, nodes, size, proto, channels, fail, profile):
    asked = {"nodes": nodes, "size": size, "channels": channels, "fail": fail, "profile": profile}
    if run[1] != "nvls_tree":
        asked["proto"] = proto
    try:
        whole = times(cluster, run, classes=False, **asked)
    except CollsimError:
        return  # the machine has no such switches or GPUs
    found = times(cluster, run, classes=True, **asked)
    assert found.time_s == pytest.approx(whole.time_s, rel=1e-9)
    assert found.bottleneck[0].utilisation == pytest.approx(whole.bottleneck[0].utilisation, rel=1e-9)
    assert found.classes <= whole.classes


@pytest.mark.parametrize("run", RUNS[:2])
def test_nodes_that_are_nearly_alike_take_nearly_as_long(run, monkeypatch):
    asked = {"nodes": 24, "size": "4M"}
    exact = times("h100_rail", run, classes=True, **asked)
    monkeypatch.setattr(hop_classes, "MOST_EXACT", 0)
    near = times("h100_rail", run, classes=True, **asked)
    assert "nearly alike" in near.path
    assert "nearly alike" not in exact.path
    assert near.time_s == pytest.approx(exact.time_s, rel=0.01)
    monkeypatch.setattr(hop_classes, "MOST_NEAR", 0)
    coarsest = times("h100_rail", run, classes=True, **asked)
    assert coarsest.classes < near.classes < exact.classes * 1.01
    assert coarsest.time_s == pytest.approx(exact.time_s, rel=0.06)


def test_chains_cut_for_their_hops_take_as_long(monkeypatch):
    asked = {"nodes": 80, "size": "64K", "channels": 1, "profile": "auto", "proto": "LL"}
    whole = times("h100_rail", ("broadcast", "ring"), classes=True, **asked)
    monkeypatch.setattr(hops, "LONGEST", 200)
    cut = times("h100_rail", ("broadcast", "ring"), classes=True, **asked)
    assert cut.classes < whole.classes / 2
    assert cut.time_s == pytest.approx(whole.time_s, rel=0.005)


def test_rings_whose_chunks_differ_are_simulated_whole_while_that_is_quick(monkeypatch):
    """Channels with unequal chunks drift apart, which classes of equal ones do not show."""
    asked = {"op": "all_reduce", "size": "1M", "algo": "ring", "nodes": 7, "proto": "LL"}
    found, whole = (simulate("h100_rail", **asked, reduce=each).rows[0] for each in (True, False))
    assert (found.time_s, found.path) == (whole.time_s, "transfers, kernel")
    monkeypatch.setattr(hops, "LEAST_UNEVEN", 0)
    equal = simulate("h100_rail", **asked).rows[0]
    assert equal.path.endswith("equal chunks")
    assert whole.time_s < equal.time_s < whole.time_s * 1.021


def test_chains_that_go_on_at_a_pace_say_that_they_are_near(monkeypatch):
    asked = {"nodes": 3, "size": "64M", "channels": 1, "profile": "auto", "proto": "LL"}
    whole = times("h100_rail", ("broadcast", "ring"), classes=True, **asked)
    monkeypatch.setattr(hops, "MOST_LONG", 2000)
    cut = times("h100_rail", ("broadcast", "ring"), classes=True, **asked)
    assert "nearly" not in whole.path
    assert "nearly alike" in cut.path
    assert cut.time_s == pytest.approx(whole.time_s, rel=0.005)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_chains_with_too_many_chunks_go_on_at_the_pace_of_their_busiest_link(op, monkeypatch):
    """On wiring where some links carry many chains, classes that are only nearly alike took a third of the time."""
    asked = {"nodes": 2, "size": "64M", "chunk": "64K", "channels": 16, "profile": "auto", "proto": "Simple"}
    whole = times("mi250x_8oam", (op, "ring"), classes=True, **asked)
    monkeypatch.setattr(hop_classes, "MOST_EXACT", whole.classes * 2 // 3)
    monkeypatch.setattr(hop_classes, "TIMES_WHOLE", 1)
    monkeypatch.setattr(hop_classes, "LEAST_CHUNKS", 8)
    cut = times("mi250x_8oam", (op, "ring"), classes=True, **asked)
    assert cut.classes < whole.classes
    assert "nearly alike" in cut.path
    assert cut.time_s == pytest.approx(whole.time_s, rel=0.15)


def test_a_last_chunk_that_is_smaller_is_counted_too():
    """Hops were taken as alike that are not, for one chunk too many: 29 % too short."""
    cluster = load_topology("frontier", {"scale_out.nodes": "32"})
    asked = {"fail": "nic:node1/0", "profile": "ideal", "algo": "ring", "size": 1_618_841_600}
    row, every = (simulate(cluster, "broadcast", reduce=reduce, **asked).rows[0] for reduce in (True, False))
    assert row.time_s == pytest.approx(every.time_s, rel=1e-9)
    assert "nearly" not in row.path


def test_a_pace_that_has_not_settled_is_told(monkeypatch):
    """Chunks of a long chain still drift apart after a hundred: 5 % too long, and the row says that it may be 7 %."""
    monkeypatch.setattr(hop_classes, "TIMES_WHOLE", 1)
    asked = {"overrides": {"scale_out.nodes": "32"}, "fail": "nic:node1/0", "profile": "ideal", "algo": "ring"}
    result = simulate("frontier", "broadcast", 1_618_841_600, **asked)
    (row,) = result.rows
    told = row.method.pace_share
    assert row.time_s == pytest.approx(0.0303862803, rel=told)  # every transfer
    assert "1 row: chunks beyond the first ones follow at a pace that still changed" in render(result)


def test_all_chunks_that_are_simulated_are_no_more_than_can_be(monkeypatch):
    monkeypatch.setattr(hop_classes, "TIMES_WHOLE", 1)
    for most in (30_000, 60_000, 90_000):
        monkeypatch.setattr(hop_classes, "MOST_EXACT", most)
        asked = {"overrides": {"scale_out.nodes": "8"}, "profile": "ideal", "algo": "ring", "fail": "nic:node1/0"}
        row = simulate("frontier", "broadcast", "1600M", **asked).rows[0]
        assert most * 0.98 < row.classes <= most
        assert "nearly" in row.path


@pytest.mark.parametrize("cluster", ["frontier", "polaris"])
@pytest.mark.parametrize("part", [8, 4, 3, 2, 1.5])
def test_classes_that_were_told_apart_no_further_are_not_taken_as_exact(cluster, part, monkeypatch):
    """Beyond so many they are too many to be of use; half as many were taken as exact, and were 1 % off."""
    asked = {"nodes": 40, "size": "64K", "channels": 4, "profile": "ideal", "proto": "Simple"}
    exact = times(cluster, ("all_reduce", "tree"), classes=True, **asked)
    monkeypatch.setattr(hop_classes, "MOST_EXACT", int(exact.classes / part))
    found = times(cluster, ("all_reduce", "tree"), classes=True, **asked)
    assert ("nearly" in found.path) is (exact.classes > hop_classes.TIMES_WHOLE * hop_classes.MOST_EXACT)
    if "nearly" not in found.path:
        assert found.time_s == pytest.approx(exact.time_s, rel=1e-9)


@pytest.mark.parametrize("order", [1, -1])
def test_classes_are_told_apart_further_for_sizes_with_fewer_chunks(order, monkeypatch):
    """What was given up for many chunks is taken up again where so many classes have few."""
    monkeypatch.setattr(hop_classes, "MOST_EXACT", 1500)
    sizes = ["64K", "512K", "4M"][::order]
    asked = {"channels": 4, "profile": "ideal", "proto": "Simple", "chunk": "64K"}
    run = ("all_reduce", "tree")
    alone = [times("frontier", run, classes=True, nodes=40, size=size, **asked) for size in sizes]
    monkeypatch.setattr(hops, "LEAST_TRANSFERS", 0)
    together = simulate("frontier", run[0], sizes, algo=run[1], overrides={"scale_out.nodes": "40"}, **asked).rows
    assert {"nearly" in row.path for row in together} == {True, False}
    assert [(row.time_s, row.path, row.classes) for row in together] == [
        (row.time_s, row.path, row.classes) for row in alone
    ]


@pytest.mark.parametrize("split", ["MOD 8", "DIV 16"])
def test_groups_that_share_no_link_take_as_long_by_classes(split):
    asked = {"nodes": 4, "size": "16M", "split": split, "profile": "auto", "channels": 4}
    found, whole = (times("h100_rail", ("all_reduce", "tree"), classes=each, **asked) for each in (True, False))
    assert found.classes < whole.classes
    assert "classes" in found.path
    assert found.time_s == pytest.approx(whole.time_s, rel=1e-9)
    assert len({group.time_s for group in found.group_times}) == 1


@pytest.mark.parametrize("run", [("all_reduce", "tree"), ("broadcast", "ring")])
def test_no_size_jumps_where_classes_take_over(run):
    """More bytes take longer, and no longer than in proportion, also from the last whole simulation to classes."""
    op, algo = run
    sizes = [round(2**20 * 1.25**step) // 4 * 4 for step in range(16)]
    asked = {"algo": algo, "proto": "Simple", "chunk": "32K", "channels": 2, "overrides": {"scale_out.nodes": "9"}}
    rows = simulate("h100_rail", op, sizes, **asked).rows
    paths = ["classes" in row.path for row in rows]
    assert paths == sorted(paths)
    assert len(set(paths)) == 2, "sizes do not lie around the change"
    for small, large in pairwise(rows):
        off = 1.1 if "nearly" in large.path and "nearly" not in small.path else 1.0  # docs/scale.md says how far
        assert small.time_s < large.time_s <= small.time_s * large.size_bytes / small.size_bytes * off


def test_rings_whose_channels_meet_on_adapters_are_told_apart_far_enough():
    """By what is one wait away alone they take 1.4 times as long."""
    wiring = {"nodes": 9, "fabric": "rail", "network": "slingshot", "radix": 16}
    cluster = load_topology("mi250x_node", scale_out=wiring)
    asked = {"size": "16M", "proto": "LL", "channels": 7}
    near, every = (simulate(cluster, "reduce_scatter", reduce=reduce, **asked).rows[0] for reduce in (True, False))
    assert "classes" in near.path
    assert near.time_s == pytest.approx(every.time_s, rel=0.02)
