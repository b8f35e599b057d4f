"""All-to-alls on large damaged clusters, by a sample of the nodes: beside the simulation of every message."""

import numpy as np
import pytest

from collsim import simulate
from collsim.report import render
from collsim.simulation import damage_sample, exchanges
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged

BLOCKS = (4 << 10, 64 << 10, 256 << 10)
NODES, RANKS = 64, 512


def both(monkeypatch, **broken):
    """Return the rows of 64 nodes by every message, and by a sample of half of them."""
    sizes = [block * RANKS for block in BLOCKS]
    exact = simulate("h100_rail", "all_to_all", sizes, nodes=NODES, **broken)
    assert all("part" not in row.path for row in exact)
    monkeypatch.setattr(exchanges, "LEAST_UNEVEN", RANKS - 1)
    monkeypatch.setattr(damage_sample, "MOST_RANKS", RANKS // 2)
    return exact.rows, simulate("h100_rail", "all_to_all", sizes, nodes=NODES, **broken).rows


@pytest.mark.parametrize(
    ("broken", "most"),
    [
        ({"fail": "nic:node3/2"}, 0.005),
        ({"fail": ["nic:node3/2", "nic:node40/2", "nic:node50/5"]}, 0.01),
        ({"fail": ["nic:node3/2", "nic:node3/4", "nic:node3/5"]}, 0.08),
        ({"degrade": {"nic:node3/2": "50%"}}, 0.08),
        ({"fail": "leaf:1"}, 0.01),
        ({"fail": "spine:0"}, 0.001),
        ({"fail": "switch:n3.nvsw0"}, 0.01),
        ({"degrade": {"spine:0": "10%"}}, 0.1),
        ({"degrade": {"link:leaf0-spine0": "10%"}}, 0.1),
    ],
)
def test_times_are_near_those_of_every_message_and_between_the_sides_that_rows_state(broken, most, monkeypatch):
    exact, found = both(monkeypatch, **broken)
    for row, whole in zip(found, exact, strict=True):
        assert "delay of a part" in row.path
        assert row.time_s == pytest.approx(whole.time_s, rel=most)
        assert row.bracket_lo_s * (1 - 1e-4) <= whole.time_s <= row.bracket_hi_s * (1 + 1e-4)


TENTH = [("leaf:1", "leaf1"), ("spine:2", "spine2"), ("link:n1.nic0-leaf0", "n1.nic0"), ("nic:node3/2", "n3.nic2")]


@pytest.mark.parametrize(("degraded", "name"), TENTH)
def test_what_is_slower_is_what_limits_a_sample_too(degraded, name, monkeypatch):
    """Rows named a link of the machine in order, which is hardly busy, though the delay was nine tenths of the time."""
    for rows in both(monkeypatch, degrade={degraded: "10%"}):
        row = rows[-1]
        limit = row.limits[0]
        assert row.slowdown > 2
        assert name in limit.name
        assert name in row.limited_by
        assert limit.time_s > row.time_s / 2
        assert 0.5 < limit.utilisation <= 1


def test_bytes_and_delay_of_a_link_are_one_part_of_the_time(monkeypatch):
    """At half its rate a spine is busiest, though it delays by less than wires take in order."""
    exact, found = both(monkeypatch, degrade={"spine:2": "40%"})
    for row in (exact[-1], found[-1]):
        (wire,) = [limit for limit in row.limits if limit.utilisation is not None]
        assert "spine2" in wire.name
        assert sum(limit.time_s for limit in row.limits) <= row.time_s * (1 + 1e-9)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast"])
@pytest.mark.parametrize(("degraded", "name"), TENTH)
def test_what_is_slower_is_what_limits_where_it_carries_the_time(op, degraded, name):
    row = simulate("h100_rail", op, "1G", nodes=NODES, degrade={degraded: "10%"}).rows[0]
    assert (row.slowdown > 2) == (name in row.limited_by)


def test_bytes_of_cables_that_are_gone_go_over_those_that_are_left():
    """Of eight equal ways up each leaf loses one; a way at half its rate has as much to carry as before."""
    machine, half = load_topology("h100_rail", {"scale_out.nodes": "64"}), {"spine:0": "50%"}
    broken = {"gone": ("spine:0", {}), "slow": ([], half), "both": ("spine:1", half), "below": ("nic:node3/2", {})}
    narrowed = {text: damage_sample._narrowed(damaged(machine, *what)) for text, what in broken.items()}
    assert {text: found.share for text, found in narrowed.items()} == pytest.approx(
        {"gone": 1 / 7, "slow": 1.0, "both": 2 * 8 / 7 - 1, "below": 0.0}
    )
    assert (narrowed["slow"].link, narrowed["slow"].links) == ("leaf0->spine0", 32)


def test_what_all_nodes_have_lost_is_not_counted_twice(monkeypatch):
    exact, found = both(monkeypatch, fail=[f"nic:node{node}/2" for node in range(NODES)])
    for row, whole in zip(found, exact, strict=True):
        assert row.time_s == pytest.approx(whole.time_s, rel=0.02)


@pytest.mark.parametrize(
    ("topo", "asked"),
    [
        ("h100_rail", {"nodes": 129, "fail": "nic:node128/5"}),
        ("h100_rail", {"nodes": 129, "fail": "nic:node3/5", "algo": "nccl_p2p"}),
        ("h100_rail", {"nodes": 256, "fail": "spine:0"}),
        ("polaris", {"fail": "nic:node3/1"}),
    ],
)
def test_large_machines_are_answered_between_two_sides(topo, asked):
    row = simulate(topo, "all_to_all", "256M", **asked).rows[0]
    assert "delay of a part" in row.path
    assert row.lower_bound_s <= row.bracket_lo_s <= row.time_s <= row.bracket_hi_s
    assert row.bracket_lo_s <= max(row.healthy_time_s, row.lower_bound_s)


def test_the_table_says_between_what():
    text = render(simulate("h100_rail", "all_to_all", "256M", nodes=129, fail="nic:node3/5"))
    assert "1 row: the delay by what has failed was simulated among some of the nodes" in text
    assert "from: what the busiest link needs" not in text


def test_more_of_what_fails_takes_no_less():
    once, thrice = (
        simulate("h100_rail", "all_to_all", "1G", nodes=129, fail=fail).rows[0].time_s
        for fail in ("nic:node3/2", ["nic:node3/2", "nic:node3/4", "nic:node3/5"])
    )
    assert once < thrice


@pytest.mark.parametrize(("n", "hurt"), [(16, [5]), (16, [1, 2, 3, 70]), (8, list(range(60))), (16, list(range(100)))])
def test_a_sample_has_damaged_nodes_of_every_loss_and_no_node_twice(n, hurt):
    lost = np.zeros(100)
    lost[hurt] = 1.0
    lost[hurt[-1]] = 7.0
    chosen = damage_sample._chosen(lost, n)
    assert len(chosen) == n == len(set(chosen.tolist()))
    assert chosen.tolist() == sorted(chosen.tolist())
    assert hurt[-1] in chosen
    assert (lost[chosen] > 0).sum() <= max(n // 4, n - int((lost == 0).sum()), 1)


LARGE = [
    ("h100_rail", 129, {"nic:n3.nic5": "10%"}, "n3.nic5", 48.75e9 / 10),
    ("h100_rail", 256, {"link:n0.gpu0-n0.nvsw0": "10%"}, "n0.gpu0", 125e9 / 10),
    ("mi355x_pollara", 256, {"link:n0.gpu0-n0.gpu1": "10%"}, "n0.gpu", 76.8e9 / 10),
]


@pytest.mark.parametrize(("topo", "nodes", "degraded", "name", "rate_Bps"), LARGE)
def test_what_is_slower_owns_its_delay_and_the_wires_what_they_take_in_order(topo, nodes, degraded, name, rate_Bps):
    asked = {"size": "256M", "nodes": nodes}
    row, order = (simulate(topo, "all_to_all", degrade=more, **asked).rows[0] for more in (degraded, {}))
    delay_s = row.time_s - order.time_s
    wires = {limit.name: limit for limit in row.limits if limit.utilisation is not None}
    (own,) = [limit for link, limit in wires.items() if name in link]
    in_order = next(limit for limit in order.limits if limit.utilisation is not None)
    beside = in_order.name in wires
    assert own.time_s == pytest.approx(delay_s + (0.0 if beside else in_order.time_s), rel=1e-6)
    assert not beside or wires[in_order.name].time_s == pytest.approx(in_order.time_s, rel=1e-9)
    assert own.name in row.limited_by
    assert row.bottleneck[0].utilisation == pytest.approx(max(limit.utilisation for limit in wires.values()), rel=1e-6)


def test_bounds_and_sides_know_what_a_slower_link_needs(monkeypatch):
    """Of the machine in order the busiest link needs a tenth of it; nodes simulated one by one show it anyway."""
    for exact, found in zip(*both(monkeypatch, degrade={"nic:n3.nic5": "10%"}), strict=True):
        assert found.algo_bound_s == pytest.approx(exact.algo_bound_s, rel=1e-6)
        assert exact.bottleneck[0].link in {"n3.nic5->leaf5", "leaf5->n3.nic5"}
        needs_s = exact.bottleneck[0].utilisation * exact.time_s
        assert found.bottleneck[0].utilisation * found.time_s == pytest.approx(needs_s, rel=1e-6)
        assert found.algo_bound_s <= found.bracket_lo_s * (1 + 1e-9)
        assert found.bracket_lo_s >= needs_s * (1 - 1e-6)
        assert [found.bottleneck[0].utilisation] == [each.utilisation for each in found.limits if each.utilisation]
        assert found.bottleneck_links == 2


@pytest.mark.parametrize("broken", [{"fail": "nic:n3.nic5"}, {"degrade": {"nic:n3.nic5": "10%"}}])
def test_no_bound_of_its_own_is_below_that_of_all(broken):
    row = simulate("h100_rail", "all_to_all", "64M", nodes=129, **broken).rows[0]
    assert row.lower_bound_s <= row.algo_bound_s <= row.time_s


def test_without_delay_is_the_time_in_order():
    row = simulate("h100_rail", "all_to_all", "64M", nodes=256, degrade={"link:n0.gpu0-n0.nvsw0": "10%"}).rows[0]
    assert row.bracket_lo_s == row.healthy_time_s
