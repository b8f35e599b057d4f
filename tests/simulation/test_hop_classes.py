"""What the first rounds tell apart is kept between them, and messages between sizes: answers stay the same."""

import numpy as np
import pytest

from collsim import simulate
from collsim.engine import symmetry
from collsim.simulation import hop_classes


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
