"""Ways from leaf to leaf in pieces are those that a router finds way by way."""

import numpy as np
import pytest

from collsim.fabric.climbs import Climbs
from collsim.fabric.cluster_router import Router
from collsim.fabric.fabric import build_fabric
from collsim.fabric.routes import Routes, assemble
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged

SMALL = {"scale_out": {"nodes": 16, "fabric": "rail"}, "overrides": {"scale_out.radix": "8"}}
TALL = {"scale_out": {"nodes": 10, "fabric": "fat_tree"}, "overrides": {"scale_out.radix": "16"}}
UNEVEN = {"scale_out": {"nodes": 30, "fabric": "rail"}, "overrides": {"scale_out.radix": "12"}}


def router_of(cluster, fail=()):
    topology = load_topology("hgx_h100", **cluster)
    if fail:
        topology = damaged(topology, fail, None)
    return Router(build_fabric(topology))


@pytest.mark.parametrize("cluster", [SMALL, TALL, UNEVEN])
@pytest.mark.parametrize("fail", [(), ("spine:1",), ("leaf:3",), ("link:leaf0-spine0",)])
def test_pieces_are_the_ways_of_the_router(cluster, fail):
    router, plain = router_of(cluster, fail), router_of(cluster, fail)
    climbs = Climbs(router)
    leaves = np.flatnonzero(router.cluster.switch_tier == 0).tolist()
    ends = [(a, b) for a in leaves[:7] for b in leaves if router.is_joined(a, b)]
    assert [(a, b) for a in leaves[:7] for b in leaves if plain.between_leaves(a, b) is not None] == ends
    ways = [climbs.way(a, b) for a, b in ends]
    whole = climbs.blocks(ways, bundles=False)[0]
    few, bundles = climbs.blocks(ways, bundles=True)
    plain_ones = np.ones(len(ways))
    routes = assemble(plain_ones, [whole])
    short = assemble(plain_ones, [few])
    again = Routes(short.ptr, short.link, short.weight, short.latency_s, plain_ones, bundles=bundles).expanded()
    assert bundles is not None
    assert len(few.link) < len(whole.link)
    for row, (a, b) in enumerate(ends):
        links, shares, latency_s = plain.between_leaves(a, b)
        order = np.argsort(links)
        for found in (routes, again):
            own = slice(found.ptr[row], found.ptr[row + 1])
            assert found.link[own].tolist() == np.array(links, dtype=np.int64)[order].tolist()
            np.testing.assert_allclose(found.weight[own], np.array(shares)[order], rtol=1e-12)
            assert found.latency_s[row] == pytest.approx(latency_s, rel=1e-12)


def test_a_way_that_is_lost_in_one_direction_is_left_in_the_other():
    whole = router_of(SMALL)
    first, wiring = whole.cluster.first_leaf, whole.machine.wiring
    leaves = np.flatnonzero(whole.cluster.switch_tier == 0).tolist()
    cut_off = set(whole.below(leaves[0]))
    down = [link for spine in cut_off for link in np.flatnonzero(wiring.link_dst == first + spine)
            if whole.cluster.switch_tier[wiring.link_src[link] - first] == 2]  # fmt: skip
    router = router_of(SMALL, tuple(f"link!:{wiring.link_name(int(link))}" for link in down))
    behind = [leaf for leaf in leaves if cut_off & set(whole.below(leaf))]
    assert 0 < len(behind) < len(leaves)
    for a in leaves:
        for b in leaves:
            left = b not in behind or a in behind
            assert (router.is_joined(a, b), router.between_leaves(a, b) is not None) == (left, left), (a, b)


def test_busiest_link_of_a_way_is_found_among_those_that_follow_others():
    router = router_of(SMALL)
    climbs = Climbs(router)
    leaves = np.flatnonzero(router.cluster.switch_tier == 0).tolist()
    ways = [climbs.way(a, b) for a in leaves for b in leaves]
    block, bundles = climbs.blocks(ways, bundles=True)
    found = assemble(np.ones(len(ways)), [block])
    routes = Routes(found.ptr, found.link, found.weight, found.latency_s, np.ones(len(ways)), bundles=bundles)
    busy_s = np.round(np.random.default_rng(7).random(router.machine.wiring.n_links), 1)  # with ties
    whole = routes.expanded()
    wanted = [
        int(own[np.argmax(busy_s[own])]) if len(own) else -1
        for own in (whole.link[a:b] for a, b in zip(whole.ptr[:-1], whole.ptr[1:], strict=True))
    ]
    assert routes.busiest(busy_s).tolist() == wanted
    assert len(set(wanted)) > 10
