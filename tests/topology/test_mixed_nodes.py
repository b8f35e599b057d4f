"""Clusters whose nodes differ: wiring, routes, what the library sees, and what cannot be mixed."""

from dataclasses import replace

import numpy as np
import pytest

from collsim import simulate
from collsim.calibration.cases import MeasuredCase
from collsim.calibration.log_placement import misfit
from collsim.core.errors import SpecError, UnsupportedError
from collsim.fabric.fabric import build_fabric
from collsim.library import Call, choose, load_profile, system_of
from collsim.library.nccl.graphs import nccl_graphs
from collsim.schedule import verify
from collsim.simulation.request.request import ask
from collsim.simulation.simulate import build_schedule
from collsim.topology import load_topology, parse_topology
from collsim.topology.failures.degrade import damaged


def mixed(*kinds, **scale_out):
    """Return a cluster of so many nodes of each kind."""
    entries = ", ".join(f"{{node: {name}, nodes: {nodes}}}" for name, nodes in kinds)
    more = "".join(f", {key}: {value}" for key, value in scale_out.items())
    return parse_topology(f"schema: collsim.topology/1\nscale_out: {{mix: [{entries}]{more}}}\n", "mix.yaml")


def times(topology, op, **asked):
    return [(row.algo, row.proto, row.time_s) for row in simulate(topology, op, ["1M", "64M"], **asked).rows]


ARRAYS = (
    "link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency", "node_latency_s",
)  # fmt: skip


@pytest.mark.parametrize("scale_out", [{}, {"fabric": "fat_tree", "racks": 2}, {"gpus_per_node": 3}], ids=str)
def test_equal_kinds_are_one_cluster(scale_out):
    whole = load_topology("hgx_h100", scale_out={"nodes": 4, **scale_out})
    parts = mixed(("hgx_h100", 1), ("hgx_h100", 3), **scale_out)
    assert parts.wiring.node_names == whole.wiring.node_names
    assert parts.wiring.node_kinds == whole.wiring.node_kinds
    for name in ARRAYS:
        assert np.array_equal(getattr(parts.wiring, name), getattr(whole.wiring, name)), name
    assert parts.cluster.plan == whole.cluster.plan
    for op in ("all_reduce", "all_to_all"):
        assert times(parts, op) == times(whole, op)


def test_every_node_has_its_own_links_and_adapters():
    topology = mixed(("hgx_h100", 1), ("hgx_b300", 2), network="infiniband")
    wiring, names = topology.wiring, topology.wiring.node_names
    rate = dict(zip(((names[a], names[b]) for a, b in zip(wiring.link_src, wiring.link_dst, strict=True)),
                    wiring.link_bandwidth_Bps.tolist(), strict=True))  # fmt: skip
    assert sum(value for (a, b), value in rate.items() if a == "n0.gpu3" and "nvsw" in b) == 450e9
    assert sum(value for (a, b), value in rate.items() if a == "n2.gpu3" and "nvsw" in b) == 900e9
    assert [rate[f"n{node}.nic5", "leaf0"] for node in range(3)] == [50e9, 100e9, 100e9]
    assert rate["n0.gpu0", "n0.nic0"] < rate["n1.gpu0", "n1.nic0"]  # buses too
    assert "n0.nvsw3" in names
    assert "n1.nvsw2" not in names  # four switches here, two there


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_ranks_on_nodes_of_one_kind_run_as_on_a_cluster_of_that_kind(op):
    topology = mixed(("hgx_b200", 2), ("dgx_a100", 2), network="infiniband")
    for first, name in ((0, "hgx_b200"), (16, "dgx_a100")):
        alone = load_topology(
            name, scale_out={"nodes": 2, "network": "infiniband", "radix": 64, "port_rate": "400 Gb/s"}
        )
        assert times(topology, op, rank_list=list(range(first, first + 16))) == times(alone, op)


def test_a_ring_is_as_fast_as_its_slowest_adapters():
    asked = {"algo": "ring", "channels": 8, "profile": "ideal", "ranks": 16}
    slow, fast = (load_topology(name, scale_out={"nodes": 2}) for name in ("dgx_a100", "hgx_h100"))
    (slow_s, fast_s, mixed_s) = (
        simulate(topology, "all_gather", "1G", **asked).rows[0].time_s
        for topology in (slow, fast, mixed(("dgx_a100", 1), ("hgx_h100", 1)))
    )
    assert mixed_s == pytest.approx(slow_s, rel=1e-6)
    assert mixed_s > 1.9 * fast_s


@pytest.mark.parametrize(
    ("op", "algo"),
    [
        ("all_reduce", "ring"), ("all_reduce", "tree"), ("all_reduce", "hierarchical"), ("all_gather", "ring"),
        ("reduce_scatter", "hierarchical"), ("all_to_all", "nccl_p2p"), ("all_to_all", "nccl_pxn"),
    ],
)  # fmt: skip
def test_schedules_do_what_they_promise(op, algo):
    topology = mixed(("hgx_h100", 2), ("hgx_b200", 1), gpus_per_node=4)
    question = ask(op, "1M", algo)
    verify(build_schedule(topology, load_profile("auto", topology), question, [list(range(12))]))
    assert times(topology, op, algo=algo)[1][2] > 0


class TestLibrary:
    def test_channels_and_rates_are_the_least(self):
        system = system_of(mixed(("hgx_b300", 2), ("hgx_h100", 2)))
        assert (system.architecture, [other.architecture for other in system.others]) == ("hopper", ["blackwell"])
        call = Call("all_reduce", 32, 2**28, n_nodes=4)
        graphs = nccl_graphs(call, system)
        alone = [nccl_graphs(call, replace(one, others=())) for one in (system, *system.others)]
        assert alone[0]["ring"] != alone[1]["ring"]
        for algo in ("ring", "tree", "nvls"):
            for figure in ("channels", "intra_GBps", "inter_GBps"):
                assert getattr(graphs[algo], figure) == min(getattr(found[algo], figure) for found in alone)
        assert choose(call, system, "nccl-2.28").algo == "nvls_tree"

    def test_nvls_needs_all_nodes(self):
        assert not system_of(mixed(("hgx_h100", 1), ("dgx_a100", 1))).nvls
        assert system_of(mixed(("hgx_h100", 1), ("dgx_a100", 1), ("hgx_h100", 1)), [*range(8), *range(16, 24)]).nvls
        algos = {algo for algo, _, _ in times(mixed(("hgx_h100", 1), ("dgx_a100", 1)), "all_reduce", algo="all")}
        assert "ring" in algos
        assert "nvls_tree" not in algos

    @pytest.mark.parametrize(
        ("kinds", "library", "has"),
        [
            (("hgx_h100", "hgx_b200"), "nccl-2.28", True),
            (("hgx_h100", "hgx_b200"), "nccl-2.27", False),
            (("hgx_h100", "dgx_a100"), "nccl-2.28", False),
            (("hgx_h100", "hgx_h200"), "nccl-2.27", True),
        ],
    )
    def test_ll128_between_architectures(self, kinds, library, has):
        system = system_of(mixed(*((kind, 1) for kind in kinds)))
        choice = choose(Call("all_reduce", 16, 2**20, n_nodes=2), system, library)
        assert ("LL128" in {candidate.proto for candidate in choice.candidates}) == has

    def test_profile_of_the_slowest_in_use(self):
        topology = mixed(("hgx_b200", 2), ("hgx_h100", 1), ("dgx_a100", 1))
        for gpus, name in ((range(32), "dgx_a100"), (range(24), "hgx_h100"), (range(16), "hgx_b200")):
            result = simulate(topology, "all_reduce", "1M", rank_list=list(gpus), algo="ring")
            assert (result.profile["name"], result.profile["calibrated"]) == (name, False)
            assert result.rows[0].time_lo_s is None
        assert any("nodes differ (hgx_b200, hgx_h100, dgx_a100)" in warning for warning in result.warnings)

    def test_steps_between_nodes_are_those_of_the_slowest_in_use(self):
        topology = mixed(("hgx_h100", 1), ("dgx_a100", 1), ("hgx_h100", 1), network="infiniband")
        for gpus, name in ((range(16), "dgx_a100"), ([*range(8), *range(16, 24)], "hgx_h100")):
            alone = load_topology(name, scale_out={"nodes": 2, "network": "infiniband"})
            network = load_profile("auto", topology, gpus).network
            assert name in network.systems
            assert network == load_profile("auto", alone).network
            result = simulate(topology, "all_reduce", "1M", rank_list=list(gpus), algo="ring")
            assert any(f"between nodes, constants fitted to {' and '.join(network.systems)} stand in" in warning
                       for warning in result.warnings)  # fmt: skip

    def test_no_library_for_two_vendors(self):
        topology = mixed(("hgx_h100", 1), ("mi300x_ubb8", 1), network="roce")
        with pytest.raises(UnsupportedError, match="hopper and gfx942"):
            system_of(topology)
        result = simulate(topology, "all_reduce", "1M")
        assert any("auto is the fastest in the simulator" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("nic: {bandwidth: 400 Gb/s}\nscale_out: {mix: [{node: hgx_h100, nodes: 2}, {node: hgx_b200, nodes: 2}]}",
         [("mix.yaml:2: nic", "is of one node")]),
        ("scale_out:\n  nodes: 4\n  mix:\n  - {node: hgx_h100, nodes: 2}\n  - {node: gb200_nvl72, nodes: 1}",
         [("mix.yaml:2: scale_out.gpus_per_node", "8 and 72 GPUs"), ("mix.yaml:3: scale_out.nodes", "the mix says")]),
        ("scale_out:\n  mix:\n  - {node: hgx_h100, nodes: 2}\n  - {node: mi250x_node, nodes: 1}\n  network: roce",
         [("mix.yaml:5: scale_out.mix[1].node", "1 for 2 GPUs, not 1 for a GPU")]),
        ("scale_out:\n  mix:\n  - {node: hgx_h100, nodes: 2}\n  - {node: mi355x_ubb8, nodes: 1}",
         [("mix.yaml:2: scale_out.network", "different networks")]),
        ("scale_out:\n  mix:\n"
         "  - {node: hgx_h100, nodes: 2}\n  - {node: hgx_h1000, nodes: 1}\n  - {node: h100_rail, nodes: 1}",
         [("mix.yaml:5: scale_out.mix[1].node", 'unknown topology "hgx_h1000"'), ("mix.yaml:6", "cluster already")]),
        ("scale_out:\n  mix:\n  - {node: hgx_h100, nodes: 0}\n  - {nod: x, nodes: 1}",
         [("mix.yaml:4: scale_out.mix[0].nodes", "1 or more"), ("mix.yaml:5", 'key "node" is missing'),
          ("mix.yaml:5", 'unknown key "nod"; did you mean "node"?')]),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed(text, faults):
    with pytest.raises(SpecError) as caught:
        parse_topology(f"schema: collsim.topology/1\n{text}\n", "mix.yaml")
    assert len(caught.value.faults) == len(faults)
    for fault, (where, what) in zip(caught.value.faults, faults, strict=True):
        assert fault.where.startswith(where)
        assert what in fault.what


class TestFailures:
    @pytest.mark.parametrize("fail", ["switch:n2.nvsw1", "nic:node0/3", "gpu:node1/2", "link:n3.gpu0-n3.nvsw*"])
    def test_equal_kinds_fail_as_one_cluster(self, fail):
        whole = load_topology("hgx_h100", scale_out={"nodes": 4, "fabric": "fat_tree", "radix": 16})
        parts = mixed(("hgx_h100", 1), ("hgx_h100", 3), fabric="fat_tree", radix=16)
        asked = {"fail": fail, "rank_list": [node * 8 + gpu for node in range(4) for gpu in (0, 1, 3, 4)]}
        for op in ("all_reduce", "all_to_all"):
            found = [simulate(topology, op, "64M", **asked) for topology in (parts, whole)]
            assert [row.to_dict() for row in found[0].rows] == [
                row.to_dict() | {"time_lo_s": None, "time_hi_s": None} for row in found[1].rows
            ]
            assert found[0].topology["damage"] == found[1].topology["damage"]

    @pytest.mark.parametrize(
        ("fail", "slowdown"),
        [
            ("nic:node0/1", 8 / 7),  # seven adapters of 25 GB/s carry what eight did
            ("nic:node1/1", 1),  # and seven of 50 GB/s carry the 200 GB/s of the other node
            ("switch:n1.nvsw0", 1),  # 13 of 18 NVLinks are 325 GB/s; seven of eight rings at 25 GB/s are 175
        ],
    )
    def test_by_hand_on_bare_wires(self, fail, slowdown):
        topology = mixed(("dgx_a100", 1), ("hgx_h100", 2), network="infiniband")
        asked = {"algo": "ring", "channels": 8, "profile": "ideal", "fail": fail}
        assert simulate(topology, "all_gather", "1G", **asked).rows[0].slowdown == pytest.approx(slowdown, rel=1e-5)

    def test_links_of_the_poorest_node_of_each_kind_count(self):
        topology = mixed(("hgx_h100", 2), ("dgx_a100", 2), network="infiniband")
        for fail, a100, h100 in (("switch:n1.nvsw0", 12, 13), ("switch:n3.nvsw1", 10, 18)):
            system = system_of(damaged(topology, fail))
            assert (system.architecture, system.links_per_gpu) == ("ampere", a100)
            assert [(other.architecture, other.links_per_gpu) for other in system.others] == [("hopper", h100)]

    def test_nvls_is_off_where_switches_are_missing(self):
        topology = damaged(mixed(("hgx_h100", 2), ("dgx_a100", 1), network="infiniband"), "switch:n1.nvsw0")
        assert "NVLS is off for GPUs of node 1: switch n1.nvsw0 is missing" in topology.damage.effects
        assert not system_of(topology, range(16)).nvls
        assert not build_fabric(topology, range(16)).node_in_network
        assert build_fabric(mixed(("hgx_h100", 2), ("dgx_a100", 1)), range(16)).node_in_network == "NVLS"


def test_a_log_does_not_say_which_nodes_it_ran_on():
    topology = mixed(("hgx_h100", 1), ("hgx_b200", 1))
    assert "nodes of the cluster differ" in str(misfit(MeasuredCase("all_reduce", 16, 1024, nodes=2), topology))


def test_a_mixed_cluster_is_a_graph():
    topology = mixed(("hgx_h100", 1), ("hgx_b200", 1))
    again = load_topology(topology.graph)
    assert (again.n_gpus, again.wiring.n_links) == (16, topology.wiring.n_links)


def test_figures_of_one_node_cannot_be_set():
    text = "schema: collsim.topology/1\nscale_out: {mix: [{node: hgx_h100, nodes: 1}, {node: hgx_b200, nodes: 1}]}"
    with pytest.raises(SpecError, match="is of one node"):
        parse_topology(text, "mix.yaml", {"link.bandwidth": "30 GB/s"})
    assert parse_topology(text, "mix.yaml", {"scale_out.fabric": "fat_tree"}).cluster.spec.fabric == "fat_tree"
