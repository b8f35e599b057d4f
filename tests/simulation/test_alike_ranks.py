"""Ranks that are all alike: the transfers of one rank take as long as those of all, and bounds are none too high."""

import numpy as np
import pytest

from collsim import simulate
from collsim.collectives import ScheduleRequest, algorithm, algorithms_for
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.schedule import Circles, Orbits
from collsim.simulation import plans
from collsim.simulation.alike_ranks import are_alike, laid_once
from collsim.simulation.concurrent import with_costs, with_lowered
from collsim.simulation.lowering import lower
from collsim.simulation.request.request import PROTOCOLS
from collsim.simulation.runs import prepare
from collsim.simulation.timing import least_call_s, time_lowered
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged

KIND = [
    (op, entry.name)
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
    for entry in algorithms_for(op)
    if not entry.libraries and not entry.in_network
]


def run_of(topo="mi400_ualoe72", profile="default", ranks=12):
    topology = load_topology(topo)
    return prepare(topology, load_profile(profile, topology), range(ranks))


def schedule_of(op, name, run, size_bytes, channels=4):
    n = run.fabric.n_ranks
    request = ScheduleRequest(operation(op), n, size_bytes, 4, channels=channels)
    return algorithm(op, name).build(request)


def timings(lowered, proto):
    part = with_costs(with_lowered(lowered, "Simple"), proto)
    both = part.costs, part.network
    chained = [least_call_s(lowered, part.run, both, chained=flag) for flag in (False, True)]
    return time_lowered(lowered, part.run, *both), chained


@pytest.mark.parametrize(("op", "name"), KIND)
def test_one_rank_stands_for_all(op, name):
    seen = 0
    for topo, profile in (("mi400_ualoe72", "default"), ("mi400_ualoe72", "ideal"), ("gb200_nvl72", "gb200_nvl72")):
        run = run_of(topo, profile)
        schedule = schedule_of(op, name, run, 12 * 4 * 4 * 977)
        once = laid_once(schedule, run, "float")
        orbits = all(isinstance(phase, Orbits | Circles) for phase in schedule.phases)
        if once is None:
            assert not orbits or (topo == "gb200_nvl72" and algorithm(op, name).cost_law == "grouped")
            continue
        seen += 1
        assert not once.bounds
        assert len(once.transfers) < 2 + schedule.n_transfers / 12
        for proto in PROTOCOLS:
            (found, least), (all_of_it, _) = timings(once, proto), timings(lower(schedule, run), proto)
            assert found.time_s == pytest.approx(all_of_it.time_s, rel=1e-9)
            assert found.link_bytes == pytest.approx(all_of_it.link_bytes, rel=1e-9)
            assert found.critical_s == pytest.approx(all_of_it.critical_s, rel=1e-9)
            assert max(least) <= found.time_s * (1 + 1e-9)
    assert seen or not orbits


@pytest.mark.parametrize("name", ["ring", "all_pairs", "pat"])
def test_uneven_chunks_give_bounds(name):
    run = run_of()
    for size_bytes in (4 * 1013, 4 * 100_003, 64 << 20):
        schedule = schedule_of("all_reduce", name, run, size_bytes)
        once = laid_once(schedule, run, "float")
        assert once.bounds
        whole_s = timings(lower(schedule, run), "Simple")[0].time_s
        part = with_lowered(once, "Simple")
        for chained in (False, True):
            assert least_call_s(once, part.run, (part.costs, part.network), chained=chained) <= whole_s


def test_a_link_that_differs_is_seen():
    topology = load_topology("mi400_ualoe72")
    assert are_alike(run_of())
    lost = damaged(topology, ["link:gpu3-ualoe2"])
    assert not are_alike(prepare(lost, load_profile("default", lost), range(12)))
    assert are_alike(prepare(lost, load_profile("default", lost), range(4, 12)))
    free = np.ones(topology.wiring.n_links)
    free[topology.wiring.find_links(np.array([2]), topology.wiring.n_gpus + np.array([1]))] = 0.5
    assert not are_alike(prepare(topology, load_profile("default", topology), range(12), free_share=free))
    assert not are_alike(run_of("mi300x_ubb8", ranks=8))


def test_the_same_wins(monkeypatch):
    ops = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
    asked = {"size": ["4K", "1M", "1000004", "256M"], "ranks": 9, "reduce": True}
    found = simulate("mi400_ualoe72", ops, **asked)
    assert "classes, reference" in {row.path for row in found.rows}
    monkeypatch.setattr(plans, "laid_once", lambda *_: None)
    expected = simulate("mi400_ualoe72", ops, **asked)
    names = ("op", "algo", "proto", "channels", "bound", "bottleneck_links")
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert [getattr(row, name) for name in names] == [getattr(other, name) for name in names]
        assert row.time_s == pytest.approx(other.time_s, rel=1e-9)
        assert [load.link for load in row.bottleneck] == [load.link for load in other.bottleneck]


def test_every_transfer_is_simulated_where_that_is_asked():
    found = simulate("mi400_ualoe72", "all_gather", "1M", ranks=9, algo="ring", reduce=False)
    assert found.rows[0].path.startswith("transfers")


def test_no_time_is_that_of_a_bound():
    """While algorithms compete the smallest of uneven chunks stand for all; the time printed is that of all chunks."""
    size_bytes = 4 * 1013
    run = run_of()
    schedule = schedule_of("all_reduce", "all_pairs", run, size_bytes)
    assert laid_once(schedule, run, "float").size_bytes.max() < lower(schedule, run).size_bytes.max()
    best = simulate("mi400_ualoe72", "all_reduce", [size_bytes, 1_000_004], ranks=12, algo="best")
    for row in best.rows:
        named = simulate("mi400_ualoe72", "all_reduce", row.requested_bytes, ranks=12, algo=row.algo, proto=row.proto)
        assert named.rows[0].time_s == pytest.approx(row.time_s, rel=1e-12)


def test_of_hundreds_of_ranks_few_routes_are_kept():
    topology = load_topology("mi500_ual256")
    run = prepare(topology, load_profile("default", topology), range(256))
    assert len(run.routes.latency_s) < 300
    assert are_alike(run)
