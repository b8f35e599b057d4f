"""Trees of NVLS over nodes wait for the heads of a node, as NVLS on one node does."""

import pytest

from collsim import simulate
from collsim.topology import load_topology

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


@pytest.mark.parametrize("size", ["256M", "8G"])
def test_two_nodes_are_no_faster_than_one(size):
    """A channel turns to all heads of its node in trees too, and every GPU moves as much as alone."""
    asked = {"op": "all_reduce", "size": size, "library": "nccl-2.29"}
    alone = simulate("hgx_b300", **asked).rows[0]
    both = simulate(load_topology("hgx_b300", scale_out={"nodes": 2}), algo="nvls_tree", **asked).rows[0]
    assert (alone.algo, both.algo) == ("nvls", "nvls_tree")
    assert both.time_s > alone.time_s
