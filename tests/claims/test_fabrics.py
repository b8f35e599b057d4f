"""Claims on adapters and on the switches between nodes; SemiAnalysis on MI300X against H100, and of June 2025."""

import networkx as nx
import pytest

import collsim
from collsim.core.errors import SpecError
from collsim.topology import describe, load_topology, plan_topology

from .figures import figure
from .measures import EXACT, fact, pair_GBps, row, scale_out_GBps

SPRAYING = ("spectrum_x", "ultra_ethernet")
"""Networks whose packets take all paths: of one the adapter sorts them, of the other they are placed as they come."""


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


@pytest.mark.parametrize(("topo", "rate", "adapters"), [("hgx_h100", "100 Gb/s", 4), ("hgx_h200", "200 Gb/s", 2)])
def test_C043_h100_and_h200_over_efa(topo, rate, adapters):
    """EFAv2 has four adapters of 100 Gb/s for a GPU, EFAv3 two of 200: 50 GB/s, of which packets carry 0.96."""
    figures = {"nic.bandwidth": rate, "nic.per_gpu": str(adapters)}
    two = load_topology(topo, figures, scale_out={"nodes": 2, "network": "efa"})
    assert two.cluster.spec.routing == "spray"
    assert pair_GBps(two, 0, 8) == pytest.approx(50.0, **EXACT)
    message = {"matrix": [[0, 2**30], [0, 0]], "rank_list": [0, 8], "algo": "direct"}
    usable = 2**30 / row(two, "all_to_all_v", None, "default", **message).time_s / 1e9
    assert 0.93 * 50 < usable < 0.97 * 50
    # what a step between nodes costs is fitted to a log of p5, which has H100
    found = collsim.simulate(two, "all_reduce", "64M", library="nccl-2.28")
    assert any("constants fitted to p5_efa stand in" in warning for warning in found.warnings)


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


def ring_GBps(topo, **figures):
    """Return the busbw of a ring over 8 servers, two on a leaf, whose steps between leaves go over two spines."""
    scale_out = {"nodes": 8, "fabric": "fat_tree", "radix": 32, **figures}
    return row(load_topology(topo, scale_out=scale_out), "all_reduce", algo="ring").busbw_Bps / 1e9


def test_C076_pollara_sprays_and_needs_no_order():
    """Packets take all paths, so that no two flows collide; as RoCEv2 they would, each on the path of its hash."""
    assert load_topology("mi355x_ubb8", scale_out={"nodes": 2}).cluster.spec.routing == "spray"
    assert ring_GBps("mi355x_ubb8") == pytest.approx(400, rel=1e-4)
    assert ring_GBps("mi355x_ubb8", network="roce") < 0.6 * 400


def test_C077_bluefield_3_puts_packets_in_order():
    """It sorts, Ultra Ethernet places directly: both spray, and the bare wire takes the same time, as none waits."""
    sorting, placing = (load_topology("hgx_h100", scale_out={"nodes": 2, "network": name}) for name in SPRAYING)
    assert sorting.cluster.spec.routing == placing.cluster.spec.routing == "spray"
    for op, algo in (("all_gather", "ring"), ("all_reduce", "tree"), ("all_to_all", "direct")):
        assert row(sorting, op, algo=algo).time_s == row(placing, op, algo=algo).time_s, op
    # with a leaf for every two servers as well: packets on many paths, yet nobody waits for the order
    leaves = {"nodes": 8, "fabric": "fat_tree", "radix": 32}
    over_spines = [load_topology("hgx_h100", scale_out={**leaves, "network": name}) for name in SPRAYING]
    rates = [row(topology, "all_reduce", algo="ring").busbw_Bps / 1e9 for topology in over_spines]
    assert rates == pytest.approx([400, 400], rel=1e-4)


def test_C078_what_an_offload_of_all_gather_could_save():
    """Ring and PAT run; what the adapter takes off the host is not known, but at most launch and latency."""
    cluster = load_topology("mi355x_ubb8", scale_out={"nodes": 8})

    def waiting(size, algo):
        found = row(cluster, "all_gather", size, profile="auto", split="MOD 8", algo=algo)
        return (found.critical_s["launch"] + found.critical_s["latency"]) / found.time_s

    for algo in ("ring", "pat"):
        assert waiting("64K", algo) > 0.9, algo
        assert waiting("1G", algo) < 0.1, algo


@pytest.mark.parametrize(
    ("topo", "adapter", "network"),
    [
        ("mi355x_cx7", "ConnectX-7", "roce"),
        ("mi355x_thor2", "Thor-2", "roce"),
        ("mi355x_pollara", "Pollara 400", "ultra_ethernet"),
    ],
)
def test_C079_mi355x_with_three_adapters(topo, adapter, network):
    """All have 400 Gb/s, so one flow is as fast; between leaves those whose switches hash collide."""
    two = load_topology(topo, {"scale_out.nodes": "2"})
    assert (two.labels["gpu.model"], two.cluster.spec.network) == ("Instinct MI355X", network)
    assert adapter in two.labels["nic.model"]
    assert scale_out_GBps(topo) == 50.0
    assert pair_GBps(two, 0, 8) == pytest.approx(50.0, **EXACT)


def test_C130_30000_mi355x_can_be_planned():
    """3,750 servers on rails need three tiers of 128-port switches, 64 servers to a block of eight leaves."""
    shown = describe(load_topology("mi355x_ubb8", scale_out={"nodes": 3750}))
    plan = shown["plan"]
    assert shown["ranks"] == 30_000
    assert (plan["tiers"], plan["blocks"], plan["leaves"]) == (3, 59, 59 * 8)
    assert (plan["spines"], plan["cores"]) == (472, 236)
    assert plan["cables"] == {"nic_leaf": 30_000, "leaf_spine": 472 * 64, "spine_core": 472 * 64}
    # two ends of every cable, all of them longer than passive copper
    assert plan["transceivers"] == 2 * sum(plan["cables"].values()) == 180_832


def test_C139_pollara_has_400_gbps():
    """50 GB/s between two servers, over Ultra Ethernet."""
    assert fact("mi355x_ubb8", "nic.bandwidth") == 400e9 / 8
    assert "Pollara 400" in load_topology("mi355x_ubb8").labels["nic.model"]
    assert two_nodes_GBps("mi355x_ubb8", "ultra_ethernet") == pytest.approx(50.0, **EXACT)
