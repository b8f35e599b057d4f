"""Trees of NVLS over racks wait for the heads that a rack has beyond those of the fits, as one rack does."""

import pytest

from collsim import simulate
from collsim.simulation import demand

SIZES = ["16M", "256M", "1G", "8G"]


@pytest.mark.parametrize("nodes", [2, 4])
def test_several_racks_are_hardly_faster_than_one(nodes):
    """Each GPU of a rack moves as much as in the rack alone, and then waits for the others: without the heads 0.73."""
    asked = {"op": "all_reduce", "size": SIZES, "profile": "auto"}
    one, several = (simulate("gb200_racks", nodes=n, **asked) for n in (1, nodes))
    for alone, both in zip(one, several, strict=True):
        assert (alone.algo, both.algo) == ("nvls", "nvls_tree")
        assert both.time_s > 0.85 * alone.time_s
        assert both.lower_bound_s <= both.time_s


@pytest.mark.parametrize(("topo", "waits"), [("hgx_h100", False), ("gb200_racks", True)])
def test_more_heads_wait_only_beyond_those_of_the_fits(topo, waits, monkeypatch):
    asked = {"op": "all_reduce", "size": "1G", "algo": "nvls_tree", "nodes": 2, "profile": "auto"}
    found = simulate(topo, **asked).time_s
    monkeypatch.setattr(demand, "HEADS_OF_FITS", 1000)
    assert (found > 1.05 * simulate(topo, **asked).time_s) == waits
    assert (found == simulate(topo, **asked).time_s) != waits
