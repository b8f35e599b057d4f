"""An all-to-all over relays by classes of its messages: the same times as with every message, whatever failed."""

import random
from dataclasses import replace

import numpy as np
import pytest

from collsim import simulate
from collsim.collectives import ScheduleRequest, algorithm
from collsim.core.errors import CollsimError
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.simulation import exchanges, message_classes, plans
from collsim.simulation.lowering import lower
from collsim.simulation.runs import layout_of, prepare
from collsim.topology import load_topology

SIZES = ["256K", "64M", "3000000000"]


def compare(monkeypatch, topo, **asked):
    """Return rows by classes; every figure has to be that of all messages."""
    monkeypatch.setattr(exchanges, "LEAST_RANKS", 0)
    monkeypatch.setattr(plans, "stands_for_all", lambda *_: False)
    whole = simulate(topo, "all_to_all", SIZES, reduce=False, **asked)
    found = simulate(topo, "all_to_all", SIZES, **asked)
    for row, exact in zip(found, whole, strict=True):
        assert row.time_s == pytest.approx(exact.time_s, rel=1e-9)
        assert row.critical_s == pytest.approx(exact.critical_s, rel=1e-6, abs=1e-12)
        assert row.bottleneck_links == exact.bottleneck_links
        assert [link.utilisation for link in row.bottleneck] == pytest.approx(
            [link.utilisation for link in exact.bottleneck], rel=1e-9
        )
        for tier, other in zip(row.tiers, exact.tiers, strict=True):
            assert (tier.tier, tier.total_bytes) == (other.tier, pytest.approx(other.total_bytes, rel=1e-9))
        assert [(limit.kind, limit.time_s) for limit in row.limits] == [
            (limit.kind, pytest.approx(limit.time_s, rel=1e-6, abs=1e-12)) for limit in exact.limits
        ]
    return found.rows, whole.rows


@pytest.mark.parametrize(
    ("topo", "asked"),
    [
        ("h100_rail", {"nodes": 4}),
        ("h100_rail", {"nodes": 5, "fail": "nic:node0/1"}),
        ("h100_rail", {"nodes": 5, "gpus_per_node": 7, "fail": "nic:node2/5"}),
        ("h100_rail", {"nodes": 5, "gpus_per_node": 4, "racks": 5, "fail": "leaf:1"}),
        ("h100_rail", {"nodes": 4, "racks": 2, "overrides": {"scale_out.radix": "16"}, "fail": "spine:1"}),
        ("h100_rail", {"nodes": 4, "gpus_per_node": 4, "degrade": {"nic:node1/2": "50%"}}),
        ("mi325x_thor2", {"nodes": 3, "fail": "nic:node0/1"}),
    ],
)
def test_classes_take_as_long_as_all_messages(topo, asked, monkeypatch):
    rows, whole = compare(monkeypatch, topo, **asked)
    assert all(row.path.startswith("classes") for row in rows if row.algo == "nccl_pxn")
    assert sum(row.classes for row in rows) <= sum(row.classes for row in whole)


def test_one_failure_among_many_nodes_leaves_few_classes():
    healthy, damaged = (
        simulate("h100_rail", "all_to_all", ["1M", "512M"], nodes=40, **broken)
        for broken in ({}, {"fail": "nic:node3/5"})
    )
    for row, other in zip(damaged, healthy, strict=True):
        assert row.path.startswith("classes")
        assert "nearly" not in row.path
        assert row.time_s > other.time_s


def test_classes_are_laid_as_their_messages():
    topology = load_topology("h100_rail", {"scale_out.nodes": "5"})
    run = prepare(topology, load_profile("ideal"))
    spread = {"nodes": 5, "layout": layout_of(run), "channels": 4, "peer_channels": 1}
    request = replace(ScheduleRequest(operation("all_to_all"), 40, 40 * 3_000_000), **spread)
    picked = algorithm("all_to_all", "nccl_pxn")
    whole, found = lower(picked.build(request), run), message_classes.classed(picked, request, run, "float")
    assert len(found.transfers) < len(whole.transfers)
    for of in (lambda part: part.use.active, lambda part: part.steps.use.active, lambda part: part.size_bytes):
        assert looks(found, of) == looks(whole, of)
    for side, carried in zip((~whole.across, whole.across), found.carried, strict=True):
        sent = np.bincount(whole.route[side], whole.size_bytes[side], len(whole.used))
        routes = run.routes.take(whole.used, whole.copies.astype(float))
        assert carried == pytest.approx(routes.link_bytes(sent, run.fabric.n_links), rel=1e-12)


def looks(part, of):
    """Return the kinds of transfers by step, node and a figure."""
    steps = part.transfers.step.tolist()
    return set(zip(steps, part.across.tolist(), np.round(of(part), 6).tolist(), strict=True))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60))
def test_classes_of_any_damage(seed, monkeypatch):
    draw = random.Random(seed)
    nodes, gpus = draw.randint(2, 9), draw.choice([2, 4, 6, 7, 8])
    asked = {"nodes": nodes, "gpus_per_node": gpus, "racks": draw.choice([1, nodes])}
    asked["fabric"] = draw.choice(["rail", "fat_tree", "rail_only"])
    node, gpu = draw.randrange(nodes), draw.randrange(gpus)
    broken = [f"nic:node{node}/{gpu}", f"leaf:{gpu}", "spine:0", f"link:n{node}.gpu{gpu}-n{node}.nvsw1", None]
    if (what := draw.choice(broken)) is not None:
        asked[draw.choice(["fail", "fail", "degrade"])] = what
    if "degrade" in asked:
        asked["degrade"] = {asked["degrade"]: "60%"}
    try:
        simulate("h100_rail", "all_to_all", "1M", **asked)
    except CollsimError:
        pytest.skip("no such machine, or no way is left")
    compare(monkeypatch, "h100_rail", **asked)
