"""Routes of many pairs at once are those of one after the other; links that stand for others change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collsim.fabric.cluster_router import Router
from collsim.fabric.cluster_routes import between_nodes
from collsim.fabric.ecmp import Hash, HashedFlow
from collsim.fabric.fabric import Fabric, build_fabric
from collsim.fabric.routes import RouteBlock, Routes, assemble, merge_trunks
from collsim.topology import Topology, load_topology
from collsim.topology.failures.degrade import damaged

from .scalar_router import ScalarRouter

CLUSTERS: dict[str, dict[str, Any]] = {
    "rail": {"nodes": 6, "radix": 16},
    "rail, two blocks": {"nodes": 16, "radix": 16, "gpus_per_node": 3},
    "rail_only": {"nodes": 4, "fabric": "rail_only"},
    "fat_tree": {"nodes": 6, "fabric": "fat_tree", "radix": 16},
    "three tiers": {"nodes": 4, "fabric": "fat_tree", "radix": 8, "tiers": 3},
    "dragonfly": {"nodes": 10, "fabric": "dragonfly", "radix": 16, "gpus_per_node": 4},
    "ecmp": {"nodes": 6, "fabric": "fat_tree", "radix": 16, "routing": "ecmp"},
    "ecmp rail": {"nodes": 12, "radix": 16, "routing": "ecmp", "gpus_per_node": 4, "flows_per_pair": 3},
    "shared adapters": {"node": "dgx_a100", "nodes": 3},
    "no switches inside": {"node": "mi300x_ubb8", "nodes": 4, "fabric": "fat_tree", "radix": 32},
    "sockets": {"node": "pcie_gen5_8gpu", "nodes": 3, "fabric": "rail"},
}
FAILURES: dict[str, list[str]] = {
    "rail": ["nic:n1.nic2", "link:n2.gpu1-n2.nvsw0", "link:n3.gpu0-n3.nvsw*"],
    "rail_only": ["nic:n0.nic1"],
    "fat_tree": ["nic:n2.nic0", "nic:n2.nic1", "switch:n4.nvsw1"],
    "three tiers": ["nic:n1.nic5"],
    "no switches inside": ["link:n0.gpu0-n0.gpu3", "nic:n2.nic7"],
}


def cluster_of(name: str) -> Topology:
    figures = dict(CLUSTERS[name])
    return load_topology(figures.pop("node", "hgx_h100"), scale_out={"port_rate": "400 Gb/s", **figures})


def one_by_one(fabric: Fabric, pairs: np.ndarray) -> Routes:
    """The routes of pairs, each found by itself."""
    router = ScalarRouter(fabric)
    parts, flows = [], []
    for pair in pairs.tolist():
        (links, shares, latency_s), hashed = router.path(*divmod(pair, fabric.n_ranks))
        parts.append(RouteBlock.of_one(pair, latency_s, links, shares))
        flows += [HashedFlow(pair, *flow) for flow in hashed]
    if flows:
        parts.append(Hash(flows, router.trunks, router.before, router.spans).drawn(1))
    return assemble(np.ones(fabric.n_ranks**2), parts)


def columns_of(routes: Routes) -> tuple[np.ndarray, ...]:
    return routes.ptr, routes.link, routes.weight, routes.latency_s


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("fails", [False, True])
def test_bulk_is_one_by_one(name: str, fails: bool) -> None:
    if fails and name not in FAILURES:
        return
    topology = damaged(cluster_of(name), FAILURES[name]) if fails else cluster_of(name)
    rng = np.random.default_rng(len(name))
    ranks = rng.permutation(topology.n_gpus)[: max(topology.n_gpus // 2, 12)].tolist()
    fabric = build_fabric(topology, ranks)
    n = fabric.n_ranks
    pairs = np.flatnonzero((rng.random(n * n) < 0.5) & ~np.eye(n, dtype=bool).ravel())
    ways = between_nodes(fabric, pairs)
    found = assemble(np.ones(n * n), ways.drawn(1))
    for got, expected in zip(columns_of(found), columns_of(one_by_one(fabric, pairs)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CLUSTERS if "ecmp" not in name])
@pytest.mark.parametrize("fails", [False, True])
def test_links_that_stand_for_others_change_nothing(name: str, fails: bool) -> None:
    topology = damaged(cluster_of(name), FAILURES[name]) if fails and name in FAILURES else cluster_of(name)
    fabric = build_fabric(topology)
    n, rng = fabric.n_ranks, np.random.default_rng(0)
    pairs = np.flatnonzero(~np.eye(n, dtype=bool))
    whole = assemble(np.ones(n * n), between_nodes(fabric, pairs).drawn(1))
    ways = between_nodes(fabric, pairs, bundles=True)
    few = replace(assemble(np.ones(n * n), ways.drawn(1)), bundles=ways.bundles)
    for got, expected in zip(columns_of(few.expanded()), columns_of(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert np.array_equal(few.used_links(fabric.n_links), whole.used_links(fabric.n_links))
    carried = rng.random(n * n)
    np.testing.assert_allclose(
        few.link_bytes(carried, fabric.n_links), whole.link_bytes(carried, fabric.n_links), rtol=1e-12, atol=0
    )
    capacity_Bps = fabric.capacity_Bps * rng.choice([0.5, 1.0], fabric.n_links)
    narrowest = []
    for routes in (few, whole):
        trunks, capacity = merge_trunks(routes, capacity_Bps)
        rate_Bps = np.full(n * n, np.inf)
        owner = np.repeat(np.arange(n * n), np.diff(trunks.ptr))
        np.minimum.at(rate_Bps, owner, capacity[trunks.link] / trunks.weight)
        narrowest.append(rate_Bps)
    np.testing.assert_allclose(*narrowest, rtol=1e-12)


def test_a_whole_rail_fabric_is_asked_once_for_each_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, lanes = [], Router.lanes
    monkeypatch.setattr(Router, "lanes", lambda self, a, b: asked.append((a, b)) or lanes(self, a, b))
    fabric = build_fabric(cluster_of("rail, two blocks"))
    pairs = np.flatnonzero(~np.eye(fabric.n_ranks, dtype=np.bool_))
    between_nodes(fabric, pairs)
    assert len(asked) == 2 * 3**2  # on the same leaves, and on others
