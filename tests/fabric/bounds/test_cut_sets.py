"""Cuts of many ranks: sets of few ranks say the same as tables of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collsim.core.operations import OPERATIONS
from collsim.fabric.bounds import cut_sets
from collsim.fabric.bounds import lower as bounds
from collsim.fabric.bounds.cut_sets import Sides, sparse_capacities, sparse_sides
from collsim.fabric.bounds.lower import _capacities, find_cuts, lower_bound
from collsim.fabric.fabric import build_fabric
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged

CLUSTERS: list[dict[str, Any]] = [
    {"nodes": 8, "radix": 16},
    {"nodes": 6, "radix": 16, "fabric": "fat_tree", "oversubscription": 3},
    {"nodes": 4, "fabric": "rail_only"},
    {"nodes": 9, "fabric": "dragonfly", "radix": 16, "gpus_per_node": 4},
]


def test_sets_and_tables() -> None:
    rng = np.random.default_rng(3)
    inside = rng.random((40, 9)) < 0.4
    sides = Sides.of_table(inside)
    both = np.concatenate([inside, ~inside])
    for cuts, table in ((sides, inside), (sides.complements(), ~inside), (sides.and_more(sides.complements()), both)):
        assert np.array_equal(cuts.table(), table)
        assert np.array_equal(cuts.sizes(), table.sum(axis=1))
        assert np.array_equal(cuts.leavers(), (table & ~np.roll(table, -1, axis=1)).sum(axis=1))
        for rank in range(9):
            assert np.array_equal(cuts.holds(rank), table[:, rank])
        for cut in range(len(cuts)):
            assert np.array_equal(cuts.inside(cut), np.flatnonzero(table[cut]))


@pytest.mark.parametrize("figures", CLUSTERS)
def test_capacities_of_few_ranks_against_tables(figures: dict[str, Any]) -> None:
    """Nodes between the ranks are tried from one side only: never less than from both, and as little nearly always."""
    run = prepare(load_topology("hgx_h100", scale_out={"port_rate": "400 Gb/s", **figures}), load_profile("ideal"))
    some, nodes = sparse_sides(run.fabric)
    sides = some.and_more(nodes)
    for cuts in (sides, sides.complements()):
        found = sparse_capacities(run.fabric, run.used, cuts)
        dense = _capacities(run.fabric, run.used, cuts.table())
        assert np.all(found >= dense * (1 - 1e-12))
        assert np.mean(found <= dense * (1 + 1e-12)) > 0.9
    single = np.arange(run.fabric.n_ranks)
    np.testing.assert_allclose(
        sparse_capacities(run.fabric, run.used, sides)[single], run.cuts.egress_Bps[single], rtol=1e-12
    )


@pytest.mark.parametrize("figures", CLUSTERS)
@pytest.mark.parametrize("degrade", [{}, {"link:n1.gpu2-n1.nvsw0": "50%", "link:n2.nic3-leaf*": "50%"}])
def test_one_cut_for_all_that_are_alike(
    figures: dict[str, Any], degrade: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cut by itself, and all of many ranks at once, carry what one for all that are alike does."""
    topology = load_topology("hgx_h100", scale_out={"port_rate": "400 Gb/s", **figures})
    run = prepare(damaged(topology, None, degrade), load_profile("ideal"))
    some, nodes = sparse_sides(run.fabric)
    sides = some.and_more(some.complements()).and_more(nodes).and_more(nodes.complements())
    wiring, used = run.fabric.wiring, run.used
    links = wiring.link_src[used], wiring.link_dst[used], run.fabric.raw_capacity_Bps[used]
    stands = cut_sets._stands_for(run.fabric, links, sides)
    assert len(np.unique(stands)) < len(sides)
    found = sparse_capacities(run.fabric, run.used, sides)
    monkeypatch.setattr(cut_sets, "MANY", 3)
    np.testing.assert_allclose(sparse_capacities(run.fabric, run.used, sides), found, rtol=1e-12)
    monkeypatch.setattr(cut_sets, "MANY", 1 << 20)
    monkeypatch.setattr(cut_sets, "_stands_for", lambda fabric, links, sides: np.arange(len(sides)))
    np.testing.assert_allclose(sparse_capacities(run.fabric, run.used, sides), found, rtol=1e-12)


@pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8", "dgx1_v100"])
def test_directions_that_differ(name: str) -> None:
    """What leaves a set of ranks is not what enters it: links into the lower half are a third as fast."""
    fabric = build_fabric(load_topology(name))
    slow = fabric.wiring.link_dst < fabric.wiring.n_nodes // 2
    fabric = replace(fabric, raw_capacity_Bps=np.where(slow, 1 / 3, 1.0) * fabric.raw_capacity_Bps)
    some, _ = sparse_sides(fabric)
    used = np.ones(fabric.n_links, dtype=np.bool_)
    for cuts in (some, some.complements()):
        np.testing.assert_allclose(
            sparse_capacities(fabric, used, cuts), _capacities(fabric, used, cuts.table()), rtol=1e-12
        )


@pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8", "dgx1_v100"])
def test_one_node(name: str) -> None:
    fabric = build_fabric(load_topology(name))
    some, nodes = sparse_sides(fabric)
    used = np.ones(fabric.n_links, dtype=np.bool_)
    assert len(nodes) == 0
    np.testing.assert_allclose(
        sparse_capacities(fabric, used, some), _capacities(fabric, used, some.table()), rtol=1e-12
    )


@pytest.mark.parametrize("figures", CLUSTERS)
def test_bounds_of_few_cuts_are_no_higher(figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare(load_topology("hgx_h100", scale_out={"port_rate": "400 Gb/s", **figures}), load_profile("ideal"))
    monkeypatch.setattr(bounds, "MOST_IN_TABLES", 4)
    few = find_cuts(run.fabric, run.used, run.cuts.latency_s)
    np.testing.assert_allclose(few.egress_Bps, run.cuts.egress_Bps, rtol=1e-12)
    np.testing.assert_allclose(few.node_egress_Bps, run.cuts.node_egress_Bps, rtol=1e-12)
    for op in OPERATIONS.values():
        if op.name != "all_to_all_v":
            found, whole = (lower_bound(op, 2**20, cuts, 3 if op.rooted else 0) for cuts in (few, run.cuts))
            assert found.time_s <= whole.time_s * (1 + 1e-12)
            assert found.time_s >= whole.time_s / 1.5
