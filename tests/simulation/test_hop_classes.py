"""What the first rounds tell apart is kept between them, and messages between sizes: answers stay the same."""

import numpy as np
import pytest

from collsim import simulate
from collsim.engine import symmetry
from collsim.simulation import hop_classes, hops


def test_rounds_that_are_kept_say_the_same(monkeypatch):
    compared = []

    def alike(hops, rounds, most, kept):
        found = symmetry.alike_hops(hops, rounds, most, kept)
        for column, again in zip(found, symmetry.alike_hops(hops, rounds, most), strict=True):
            np.testing.assert_array_equal(column, again)
        compared.append((rounds, bool(kept)))
        return found

    monkeypatch.setattr(hop_classes, "alike_hops", alike)
    monkeypatch.setattr(hop_classes, "MOST_EXACT", 200)
    monkeypatch.setattr(hop_classes, "MOST_NEAR", 300)
    rows = simulate("h100_rail", "all_reduce", ["256M"], nodes=12, algo="tree", channels=4).rows
    assert "nearly alike" in rows[0].path
    assert {True} == {kept for rounds, kept in compared}
    assert len(compared) > 2


def test_links_that_are_loaded_nearly_alike_are_one_kind_where_hops_cross_too_many(monkeypatch):
    """Each class of a dragonfly's hops crosses thousands of kinds of links, which the engine would all look at."""
    asked = {"topo": "alps", "op": "all_reduce", "nodes": 256, "algo": "tree", "size": ["8M", "128M"]}
    exact = simulate(**asked).rows
    monkeypatch.setattr(hop_classes, "MOST_EXACT", 0)
    monkeypatch.setattr(hop_classes, "MOST_NEAR_HOPS", 0)
    for row, whole in zip(simulate(**asked).rows, exact, strict=True):
        assert "nearly alike" in row.path
        assert "nearly alike" not in whole.path
        assert row.time_s == pytest.approx(whole.time_s, rel=0.05)


ALONE = (
    ({"topo": "alps", "nodes": 64, "algo": "tree", "size": ["1M", "64M", "256M"]}, 40_000),
    ({"topo": "h100_rail", "nodes": 12, "algo": "tree", "size": ["4M", "256M"]}, 5_000),
    ({"topo": "polaris", "nodes": 24, "op": "broadcast", "algo": "ring", "size": ["1M", "64M"]}, 8_000),
    ({"topo": "alps", "nodes": 640, "size": ["1G", "2G"]}, None),
)
"""Runs, and how many kinds of links their hops may cross: of so few nodes as many as some of the sizes do."""


@pytest.mark.parametrize(("asked", "most_hops"), ALONE)
def test_a_size_takes_as_long_among_others_as_alone(asked, most_hops, monkeypatch):
    """Classes are kept for other sizes, but which of them a size takes is for its own chunks to say."""
    if most_hops is not None:
        monkeypatch.setattr(hops, "LEAST_TRANSFERS", 0)
        monkeypatch.setattr(hop_classes, "MOST_EXACT", 0)
        monkeypatch.setattr(hop_classes, "MOST_ROUNDS", 1)
        monkeypatch.setattr(hop_classes, "MOST_NEAR_HOPS", most_hops)
    few, told_apart = set(), hop_classes._told_apart

    def told(*args):
        classes = told_apart(*args)
        few.add((classes.rounds, classes.few_links))
        return classes

    monkeypatch.setattr(hop_classes, "_told_apart", told)
    asked = {"op": "all_reduce"} | asked
    sizes = asked.pop("size")
    alone = {size: as_told(simulate(size=size, **asked)) for size in sizes}
    assert {(1, False), (1, True)} <= few  # sizes at which hops look at all links, and others
    for order in (sizes, sizes[::-1]):
        assert as_told(simulate(size=order, **asked)) == [alone[size][0] for size in order]


def as_told(result):
    """Return the times of a result, and what they rest on."""
    return [(row.time_s, row.path, row.bracket_lo_s, row.bracket_hi_s, row.classes) for row in result.rows]


@pytest.mark.parametrize("more", [{}, {"fabric": "fat_tree", "nodes": 132}])
def test_sizes_of_an_exchange_do_not_depend_on_those_before(more):
    sizes = ["8M", "65M", "4G"]
    asked = {"topo": "h100_rail", "op": "all_to_all", "nodes": 33} | more
    together = simulate(size=sizes, **asked).rows
    assert all("nearly alike" in row.path for row in together)
    for size, row in zip(sizes, together, strict=True):
        alone = simulate(size=size, **asked).rows[0]
        assert (row.time_s, row.limits, row.tiers) == (alone.time_s, alone.limits, alone.tiers)


def test_messages_that_a_channel_serves_at_once():
    """Those of its own step: two in step 0 of channel 0, three in step 1, which is not step 0 of channel 1."""
    from collsim.simulation.exchanges import _at_once

    channel, step, count = (np.array(each) for each in ([0, 0, 0, 1, 1], [0, 0, 1, 0, 1], [1, 1, 3, 4, 5]))
    assert _at_once(channel, step, count).tolist() == [2, 2, 3, 4, 5]


def test_links_are_told_apart_where_loads_differ_by_more_than_a_step():
    """Loads that grow by 2 % are all of their own, what is 0.05 % apart is one; kinds are never mixed."""
    load = np.concatenate([100 * 1.02 ** np.arange(8), [100.05, 100]])
    n = len(load)
    told = symmetry.Hops(
        route_ptr=np.array([0, n]), route_link=np.arange(n), route_weight=load, route=np.zeros(1, dtype=np.int64),
        own=np.zeros(1, dtype=np.uint64), wait_ptr=np.zeros(2, dtype=np.int64), wait=np.zeros(0, dtype=np.int32),
        lag=np.zeros(0, dtype=np.int32), link=(np.ones(n),),
    )  # fmt: skip
    kind = np.append(np.zeros(n - 1, dtype=np.int64), 1)
    assert hop_classes._nearly_alike(told, kind).tolist() == [*range(8), 0, 8]
