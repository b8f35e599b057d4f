"""Ways found by a search of one's own: collsim's routes have the same links, shares and latencies."""

import numpy as np
import pytest

from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import find_routes
from collsim.topology import load_topology
from collsim.topology.cluster.scale_out import build_cluster, cluster_spec
from collsim.topology.failures.degrade import damaged

from .reading import Hashed, Search, links_of

FABRICS = [
    ("single_switch", {"radix": 64}),
    ("rail", {"radix": 8}),
    ("rail", {"radix": 4}),
    ("rail_only", {"radix": 8}),
    ("fat_tree", {"radix": 8}),
    ("fat_tree", {"radix": 8, "oversubscription": 3}),
    ("fat_tree", {"radix": 4}),
    ("fat_tree", {"radix": 8, "fail": "link:leaf0-spine1:1"}),
    ("fat_tree", {"radix": 8, "fail": "spine:0"}),
    ("dragonfly", {"radix": 8, "group_switches": 2, "switch_endpoints": 4, "global_links": 2}),
]


def fabric_of(node, fabric, fail=None, **figures):
    part = load_topology(node, {"gpu.count": "4"})
    asked = cluster_spec(part, nodes=4, fabric=fabric, network="infiniband", **figures)
    return build_fabric(damaged(build_cluster(part, asked), fail))


def pairs(fabric):
    return [(src, dst) for src in range(fabric.n_ranks) for dst in range(fabric.n_ranks) if src != dst]


@pytest.mark.parametrize("node", ["hgx_h100", "mi300x_ubb8"])
@pytest.mark.parametrize(("kind", "figures"), FABRICS)
def test_sprayed_routes(kind, figures, node):
    fabric = fabric_of(node, kind, routing="spray", **figures)
    routes, links, search = find_routes(fabric), links_of(fabric), Search(fabric)
    for src, dst in pairs(fabric):
        ways, pair = search.ways(src, dst), src * fabric.n_ranks + dst
        expected = np.zeros(fabric.n_links)
        for way, share in ways:
            expected[list(way)] += share
        span = slice(int(routes.ptr[pair]), int(routes.ptr[pair + 1]))
        found = np.bincount(routes.link[span], weights=routes.weight[span], minlength=fabric.n_links)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        slowest_s = max(sum(links[link].latency_s for link in way) for way, _ in ways)
        assert routes.latency_s[pair] == pytest.approx(slowest_s, rel=1e-9)


@pytest.mark.parametrize(("kind", "figures"), [row for row in FABRICS if "fail" not in row[1]])
def test_hashed_routes(kind, figures):
    """The hash gives each flow one of the shortest ways, and not all flows the same."""
    fabric = fabric_of("mi300x_ubb8", kind, routing="ecmp", **figures)
    search, hashed = Search(fabric), Hashed(fabric)
    choices = set()
    for src, dst in pairs(fabric):
        ways = [way for way, _ in search.ways(src, dst)]
        choices.add((len(ways), ways.index(hashed.ways(src, dst)[0][0])))
    several = {count for count, _ in choices if count > 1}
    assert all(len([one for one in choices if one[0] == count]) > 1 for count in several)
