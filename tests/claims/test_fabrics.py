"""Claims on adapters and on the switches between nodes; SemiAnalysis on MI300X against H100, and of June 2025."""

import networkx as nx
import pytest

from collsim.errors import SpecError
from collsim.topology import load_topology, plan_topology

from .figures import figure
from .measures import EXACT, pair_GBps, scale_out_GBps


def two_nodes_GBps(topo, network=None):
    """Return what GPU 0 of one node sends to GPU 0 of another when nobody else sends."""
    two = load_topology(topo, scale_out={"nodes": 2, "network": network})
    return pair_GBps(two, 0, two.n_gpus // 2)


def islands(topology):
    """Return how many GPUs each part has that links of scale-up join: the graph without adapters."""
    graph = topology.graph.to_undirected()
    graph.remove_nodes_from([node for node, kind in graph.nodes(data="kind") if kind == "nic"])
    parts = [sum(graph.nodes[node]["kind"] == "gpu" for node in part) for part in nx.connected_components(graph)]
    return [gpus for gpus in parts if gpus]


@pytest.mark.parametrize(
    ("topo", "network"), [("hgx_h100", "infiniband"), ("hgx_h200", "spectrum_x"), ("mi300x_ubb8", "roce")]
)
def test_C016_one_adapter_of_400_gbps_for_each_gpu(topo, network):
    """ConnectX-7, BlueField-3 or Thor-2: 50 GB/s between two nodes."""
    assert two_nodes_GBps(topo, network) == pytest.approx(50.0, **EXACT)


@pytest.mark.parametrize(
    ("claim", "network", "ports"),
    [
        pytest.param("C017", "spectrum_x", figure("tomahawk_5.ports_400G"), id="C017"),
        pytest.param("C018", "infiniband", figure("quantum_2.ports_400G"), id="C018"),
    ],
)
def test_C017_C018_one_tier_joins_as_many_gpus_as_a_switch_has_ports(claim, network, ports):
    """128 GPUs on 51.2T Ethernet, 64 on Quantum-2, with 400 Gb/s each; more are refused."""
    asked = {"fabric": "single_switch", "network": network}
    assert plan_topology("hgx_h100", scale_out={"nodes": ports // 8, **asked})[2].switches == 1
    with pytest.raises(SpecError, match=rf"at most {ports // 8} nodes fit \({ports} GPUs\)"):
        plan_topology("hgx_h100", scale_out={"nodes": ports // 8 + 1, **asked})


def test_C019_eight_rails():
    """GPU i of every node is on leaf i: one switch along the rail, three across."""
    topology = load_topology("hgx_h100", scale_out={"nodes": 16})
    cluster = topology.cluster
    assert cluster.spec.rails == 8
    assert cluster.nic_leaf.reshape(16, 8).tolist() == [list(range(8))] * 16
    graph = topology.graph.to_undirected()
    graph.remove_nodes_from([node for node, kind in graph.nodes(data="kind") if kind == "gpu"])

    def switches(a, b):
        return sum(graph.nodes[node]["kind"] == "switch" for node in nx.shortest_path(graph, a, b))

    assert switches("n0.nic3", "n15.nic3") == 1
    assert switches("n0.nic3", "n15.nic4") == 3


def test_C028_spectrum_x_reaches_100k_gpus():
    """Three tiers of 51.2T switches with 400G ports."""
    plan = plan_topology("hgx_h100", scale_out={"nodes": 12_500, "network": "spectrum_x"})[2]
    assert (plan.tiers, plan.leaves) == (3, 1568)  # 196 blocks of 64 nodes, 8 rails


def test_C029_512k_gpus():
    """k^3/4 for 128 ports is 524,288."""
    plan = plan_topology("hgx_h100", scale_out={"nodes": 524_288 // 8, "network": "spectrum_x"})[2]
    assert plan.cables["nic_leaf"] == 524_288 >= 512_000
    with pytest.raises(SpecError, match="at most 65,536 nodes"):
        plan_topology("hgx_h100", scale_out={"nodes": 65_537, "network": "spectrum_x"})


def test_C058_mi355x_rack_is_16_islands():
    """128 GPUs are 16 servers of 8 without a link of scale-up between them."""
    assert islands(load_topology("mi355x_rack128")) == [8] * 16


@pytest.mark.parametrize("topo", ["hgx_b200", "gb200_nvl72", "mi350x_ubb8", "mi355x_ubb8"])
def test_C063_scale_out_of_400_gbps(topo):
    """B200, GB200, MI350X and MI355X have 400 Gb/s for each GPU."""
    assert scale_out_GBps(topo) == 50.0
    assert two_nodes_GBps(topo) == pytest.approx(50.0, **EXACT)


@pytest.mark.parametrize("topo", ["hgx_b300", "gb300_nvl72"])
def test_C064_scale_out_of_800_gbps(topo):
    """B300 and GB300 have 800 Gb/s for each GPU."""
    assert scale_out_GBps(topo) == 100.0
    assert two_nodes_GBps(topo) == pytest.approx(100.0, **EXACT)


def test_C066_h100_rack_is_8_islands():
    """64 GPUs are 8 HGX servers."""
    assert islands(load_topology("hgx_h100", scale_out={"nodes": 8})) == [8] * 8
