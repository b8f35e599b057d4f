"""Every shipped topology adds up to the vendor's figures, and every figure says where it comes from."""

import numpy as np
import pytest

from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import find_routes
from collsim.simulation.simulate import simulate
from collsim.topology import STATUSES, describe, load_topology, zoo_names

ZOO = zoo_names()

# name: GPUs, GB/s per GPU in one direction and in both, TB/s of all GPUs in both directions
TOTALS = {
    "mi250x_8oam": (16, 350.0, 700.0, 11.2),  # every GCD: 7 links x 50
    "mi300x_ubb8": (8, 448.0, 896.0, 7.168),  # 7 links x 64
    "mi325x_ubb8": (8, 448.0, 896.0, 7.168),  # 7 links x 64
    "mi350x_ubb8": (8, 537.6, 1075.2, 8.6016),  # 7 links x 76.8
    "mi355x_ubb8": (8, 537.6, 1075.2, 8.6016),  # 7 links x 76.8
    "dgx1_v100": (8, 150.0, 300.0, 2.4),  # 6 links x 25
    "dgx2_v100": (16, 150.0, 300.0, 4.8),  # 6 links x 25
    "dgx_a100": (8, 300.0, 600.0, 4.8),  # 12 links x 25
    "hgx_h100": (8, 450.0, 900.0, 7.2),  # 18 links x 25
    "hgx_h20": (8, 450.0, 900.0, 7.2),  # 18 links x 25
    "hgx_h200": (8, 450.0, 900.0, 7.2),  # 18 links x 25
    "hgx_h800": (8, 200.0, 400.0, 3.2),  # 8 links x 25
    "gh200_nvl32": (32, 450.0, 900.0, 28.8),  # 18 links x 25; 14.4 TB/s in one direction
    "hgx_b200": (8, 900.0, 1800.0, 14.4),  # 18 links x 50
    "hgx_b300": (8, 900.0, 1800.0, 14.4),  # 18 links x 50
    "gb200_nvl72": (72, 900.0, 1800.0, 129.6),  # 18 links x 50; the datasheet rounds to 130 TB/s
    "gb300_nvl72": (72, 900.0, 1800.0, 129.6),  # 18 links x 50
    "vr200_nvl144": (72, 1800.0, 3600.0, 259.2),  # 36 links x 50; the announcement rounds to 260 TB/s
    "vr300_nvl576": (144, 5200.0, 10400.0, 1497.6),  # 52 links x 100; the announcement has 1.5 PB/s
    "mi400_ualoe72": (72, 1800.0, 3600.0, 259.2),  # 72 lanes x 25; the announcement rounds to 260 TB/s
    "mi500_ual256": (256, 1800.0, 3600.0, 921.6),  # 72 lanes x 25, as MI455X
    "pcie_gen5_8gpu": (8, 63.0, 126.0, 1.008),  # one link x 63
    "l40s_8gpu": (8, 31.5, 63.0, 0.504),  # one link x 31.5
    "rtx_pro_6000_8gpu": (8, 63.0, 126.0, 1.008),  # one link x 63
}
# the four even GCDs have 4 + 2 + 1 links to others, the odd ones 4 + 1 + 1: 350 and 300 GB/s
MI250X = (8, 300.0, 350.0, 2 * 4 * (0.350 + 0.300))

# name: switches, ports used of ports, links from a GPU to each switch, links per GPU, cables
SWITCHES = {
    "dgx2_v100": (12, 16, 18, [1] * 6, 6, 144),  # 16 x 6 to the GPUs, 6 x 8 between the boards
    "dgx_a100": (6, 16, 36, [2] * 6, 12, 96),
    "hgx_h100": (4, 40, 64, [5, 4, 4, 5], 18, 144),
    "hgx_h20": (4, 40, 64, [5, 4, 4, 5], 18, 144),
    "hgx_h200": (4, 40, 64, [5, 4, 4, 5], 18, 144),
    "hgx_h800": (4, 16, 64, [2] * 4, 8, 64),
    "gh200_nvl32": (18, 32, 64, [1] * 18, 18, 576),
    "hgx_b200": (2, 72, 72, [9, 9], 18, 144),
    "hgx_b300": (2, 72, 72, [9, 9], 18, 144),
    "gb200_nvl72": (18, 72, 72, [1] * 18, 18, 1296),
    "gb300_nvl72": (18, 72, 72, [1] * 18, 18, 1296),
    "vr200_nvl144": (36, 72, 72, [1] * 36, 36, 2592),
    "vr300_nvl576": (52, 144, 144, [1] * 52, 52, 7488),
    "mi400_ualoe72": (12, 432, 512, [6] * 12, 72, 5184),
    "mi500_ual256": (36, 512, 512, [2] * 36, 72, 18432),
    "pcie_gen5_8gpu": (4, 3, None, [1], 1, 15),  # 8 GPUs, 4 uplinks, 3 between the sockets
}
OUTLINES = ("vr300_nvl576", "mi500_ual256")
"""Announced systems whose rates are placeholders."""


def links_between(name):
    """Return the physical links of every pair that is wired, in both orders."""
    pairs = {(row["a"], row["b"]): row["links"] for row in describe(load_topology(name))["wiring_table"]}
    return pairs | {(b, a): links for (a, b), links in pairs.items()}


def test_all_are_covered():
    assert {*TOTALS, "mi250x_node"} == set(ZOO)
    assert set(SWITCHES) == {name for name in ZOO if "switch" in load_topology(name).wiring.node_kinds}


@pytest.mark.parametrize("name", sorted(TOTALS))
def test_totals(name):
    gpus, uni, bidi, total = TOTALS[name]
    shown = describe(load_topology(name))
    assert shown["ranks"] == gpus
    assert shown["per_gpu_uni_Bps"] == pytest.approx(uni * 1e9, rel=1e-12)
    assert shown["per_gpu_uni_max_Bps"] == shown["per_gpu_uni_Bps"]
    assert shown["per_gpu_bidi_Bps"] == pytest.approx(bidi * 1e9, rel=1e-12)
    assert shown["per_gpu_bidi_max_Bps"] == shown["per_gpu_bidi_Bps"]
    assert shown["total_bidi_Bps"] == pytest.approx(total * 1e12, rel=1e-12)
    assert shown["total_uni_Bps"] * 2 == pytest.approx(shown["total_bidi_Bps"], rel=1e-12)
    assert shown["connected"]


# bits of the memory bus of a GPU, Gb/s of each
MEMORIES = {
    "dgx1_v100": (4096, 1.75), "dgx2_v100": (4096, 1.75),  # HBM2
    "dgx_a100": (5120, 3.2), "mi250x_8oam": (4096, 3.2), "mi250x_node": (4096, 3.2),  # HBM2e; of a die
    "hgx_h100": (5120, 5.23), "hgx_h800": (5120, 5.23), "hgx_h20": (6144, 5.23),
    "mi300x_ubb8": (8192, 5.2),  # HBM3
    "hgx_h200": (6144, 6.25), "gh200_nvl32": (6144, 6.25), "mi325x_ubb8": (8192, 6.0),  # HBM3e, as the next
    "mi350x_ubb8": (8192, 8.0), "mi355x_ubb8": (8192, 8.0), "hgx_b200": (8192, 8.0), "hgx_b300": (8192, 8.0),
    "gb200_nvl72": (8192, 8.0), "gb300_nvl72": (8192, 8.0),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORIES)
def test_memories_of_gpus(name):
    bits, each_Gbps = MEMORIES[name]
    value = load_topology(name).fact("gpu.memory_bandwidth").value
    assert value == pytest.approx(bits * each_Gbps * 1e9 / 8, rel=0.03)  # datasheets round


def test_totals_of_the_mi250x_node():
    gpus, least, most, total = MI250X
    shown = describe(load_topology("mi250x_node"))
    assert shown["ranks"] == gpus
    assert (shown["per_gpu_uni_Bps"], shown["per_gpu_uni_max_Bps"]) == (least * 1e9, most * 1e9)
    assert (shown["per_gpu_bidi_Bps"], shown["per_gpu_bidi_max_Bps"]) == (2 * least * 1e9, 2 * most * 1e9)
    assert shown["total_bidi_Bps"] == pytest.approx(total * 1e12)
    assert shown["physical_links"] == 4 * 4 + 2 * 2 + 6
    assert shown["connected"]


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_switches(name):
    count, used, ports, links, per_gpu, cables = SWITCHES[name]
    shown = describe(load_topology(name))
    assert shown["switches"]["count"] == count
    assert shown["switches"]["ports_used"] == used
    assert shown["switches"]["ports"] == ports
    assert shown["switches"]["links_per_gpu"] == links
    planes = [run["links"] for run in shown["switches"]["planes"] for _ in range(run["switches"])]
    assert planes == (links if shown["kind"] == "switched" else [])
    assert shown["links_per_gpu"] == per_gpu
    assert shown["physical_links"] == cables


@pytest.mark.parametrize("name", ["mi300x_ubb8", "mi325x_ubb8", "mi350x_ubb8", "mi355x_ubb8"])
def test_meshes(name):
    shown = describe(load_topology(name))
    assert (shown["physical_links"], shown["bundles"], shown["links_per_gpu"], shown["switches"]) == (28, 56, 7, {})
    # 4 x 4 pairs of GPUs cross the middle
    assert shown["bisection_uni_Bps"] == pytest.approx(16 / 7 * shown["per_gpu_uni_Bps"])


@pytest.mark.parametrize(
    ("name", "gpus", "uni"),
    [
        # a group of k GPUs of a mesh uses k - 1 links of each
        ("mi300x_ubb8", 2, 64.0),
        ("mi300x_ubb8", 4, 192.0),
        ("mi325x_ubb8", 4, 192.0),
        ("mi350x_ubb8", 4, 230.4),
        ("mi355x_ubb8", 2, 76.8),
        ("mi355x_ubb8", 4, 230.4),
        ("dgx1_v100", 4, 100.0),  # a fully wired quad, 4 links of each GPU
        ("mi250x_node", 2, 200.0),  # one package
        ("dgx2_v100", 8, 150.0),  # one board
        ("pcie_gen5_8gpu", 4, 63.0),  # one socket
        ("dgx_a100", 4, 300.0),  # a switch serves any number
        ("vr300_nvl576", 72, 5200.0),
    ],
)
def test_part_of_a_system(name, gpus, uni):
    topology = load_topology(name, {"gpu.count": str(gpus)})
    assert topology.n_gpus == gpus
    shown = describe(topology)
    assert shown["per_gpu_uni_Bps"] == pytest.approx(uni * 1e9)
    assert shown["connected"]


def test_pairs_of_mi250x():
    # 4 links of 50 GB/s in a package: 200 in each direction, 400 in both
    for name in ("mi250x_node", "mi250x_8oam"):
        rows = {(row["a"], row["b"]): row for row in describe(load_topology(name))["wiring_table"]}
        packages = [rows[f"gpu{gcd}", f"gpu{gcd + 1}"] for gcd in range(0, load_topology(name).n_gpus, 2)]
        assert {(row["links"], row["bandwidth_Bps"], row["duplex"]) for row in packages} == {(4, 200e9, True)}
        others = [row for row in rows.values() if row not in packages]
        assert {row["bandwidth_Bps"] for row in others} == {50e9, 100e9}
    # the pairs of RCCL topo_8p_90a.xml
    table = links_between("mi250x_node")
    pairs = {(int(a[3:]), int(b[3:])) for a, b in table if a < b}
    inside = {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert pairs == inside | {(0, 2), (0, 6), (1, 3), (1, 5), (2, 4), (3, 7), (4, 6), (5, 7)}
    # 8 links of a GCD: 1 to the host, and 1 of every odd one to the network adapter
    ends = [sum(links for (a, _), links in table.items() if a == f"gpu{gcd}") for gcd in range(8)]
    assert ends == [7, 6] * 4
    # 7 links of every GCD of the 16
    ends = links_between("mi250x_8oam")
    assert {sum(links for (a, _), links in ends.items() if a == f"gpu{gcd}") for gcd in range(16)} == {7}


def test_pairs_of_dgx1():
    table = links_between("dgx1_v100")
    assert set(table.values()) == {1, 2}  # 25 and 50 GB/s in each direction
    for a in range(8):
        peers = {b: table[f"gpu{a}", f"gpu{b}"] for b in range(8) if (f"gpu{a}", f"gpu{b}") in table}
        assert len(peers) == 4
        assert sum(peers.values()) == 6
        assert {b for b in peers if b // 4 == a // 4} == {b for b in range(8) if b // 4 == a // 4} - {a}
    # 2 + 2 + 1 + 1 links join the two quads
    assert sum(links for (a, b), links in table.items() if a < "gpu4" <= b) == 6


# NV1 and NV2 of every GPU with the others, from nvidia-smi topo -m of a DGX-1V
DGX1 = [
    {1: 1, 2: 1, 3: 2, 4: 2},
    {0: 1, 2: 2, 3: 1, 5: 2},
    {0: 1, 1: 2, 3: 2, 6: 1},
    {0: 2, 1: 1, 2: 2, 7: 1},
    {0: 2, 5: 1, 6: 1, 7: 2},
    {1: 2, 4: 1, 6: 2, 7: 1},
    {2: 1, 4: 1, 5: 2, 7: 2},
    {3: 1, 4: 2, 5: 1, 6: 2},
]
# the same links as TE-CCL dgx1.py numbers the GPUs
TE_CCL = [
    {1: 2, 2: 1, 3: 1, 4: 2},
    {0: 2, 2: 1, 3: 2, 5: 1},
    {0: 1, 1: 1, 3: 2, 6: 2},
    {0: 1, 1: 2, 2: 2, 7: 1},
    {0: 2, 5: 2, 6: 1, 7: 1},
    {1: 1, 4: 2, 6: 1, 7: 2},
    {2: 2, 4: 1, 5: 1, 7: 2},
    {3: 1, 4: 1, 5: 2, 6: 2},
]


def test_gpus_of_dgx1_are_numbered_as_the_machine_numbers_them():
    expected = {(f"gpu{a}", f"gpu{b}"): links for a, peers in enumerate(DGX1) for b, links in peers.items()}
    assert links_between("dgx1_v100") == expected
    assert sum(expected.values()) == 2 * 24
    renumbered = [0, 2, 3, 1, 4, 6, 7, 5]
    for a, peers in enumerate(DGX1):
        assert {renumbered[b]: links for b, links in peers.items()} == TE_CCL[renumbered[a]]


def test_boards_of_dgx2():
    table = links_between("dgx2_v100")
    trunks = {pair: links for pair, links in table.items() if pair[0].startswith("nvsw") and pair[1].startswith("nvsw")}
    assert trunks == {(f"nvsw{s}", f"nvsw{(s + 6) % 12}"): 8 for s in range(12)}
    # 48 links x 25 GB/s between the boards: all that 8 GPUs can send, 2.4 TB/s for both directions
    assert sum(trunks.values()) // 2 * 25e9 == 8 * 150e9


@pytest.mark.parametrize(
    ("name", "source", "target", "hops"),
    [
        ("mi250x_node", 0, 1, [1]),  # one hop for all of it
        ("mi250x_node", 0, 7, [1, 1]),  # through GCD 6
        ("mi250x_node", 0, 3, [0.5, 0.5, 0.5, 0.5]),  # half through GCD 1, half through GCD 2
        ("dgx1_v100", 0, 4, [1]),
        ("dgx1_v100", 0, 5, [0.5] * 4),  # half through GPU 1, half through GPU 4: one link is the narrowest of each way
        ("dgx1_v100", 0, 7, [1 / 3] * 2 + [2 / 3] * 2),  # a third by GPU 3, which has one link there, the rest by 4
        ("dgx2_v100", 0, 7, [1 / 6] * 12),  # one switch, six ways
        ("dgx2_v100", 0, 8, [1 / 6] * 18),  # two switches, six ways
        ("pcie_gen5_8gpu", 0, 1, [1] * 2),  # their switch
        ("pcie_gen5_8gpu", 0, 2, [1] * 4),  # and the root complex
        ("pcie_gen5_8gpu", 0, 4, [1] * 5),  # and the link between the sockets
    ],
)
def test_routes(name, source, target, hops):
    fabric = build_fabric(load_topology(name))
    routes = find_routes(fabric)
    pair = slice(*routes.ptr[source * fabric.n_ranks + target :][:2])
    assert sorted(routes.weight[pair]) == pytest.approx(sorted(hops))


@pytest.mark.parametrize("name", [name for name in ZOO if load_topology(name).n_gpus <= 16])
def test_collectives_run(name):
    fastest = describe(load_topology(name))["per_gpu_uni_max_Bps"]
    for op in ("all_reduce", "all_to_all"):
        for row in simulate(name, op, "1M", profile="ideal").rows:
            assert row.time_s * (1 + 1e-9) >= row.lower_bound_s > 0
            # no GPU sends faster than its links; switches that reduce send less than busbw reckons with
            if row.algo != "nvls":
                assert row.busbw_Bps <= fastest


def test_ratios():
    uni = {name: describe(load_topology(name))["per_gpu_uni_Bps"] for name in ZOO}
    assert uni["gb200_nvl72"] / uni["mi355x_ubb8"] == pytest.approx(1.674, abs=5e-4)
    assert uni["mi355x_ubb8"] / uni["mi300x_ubb8"] == pytest.approx(1.2)
    assert uni["vr200_nvl144"] / uni["gb300_nvl72"] == pytest.approx(2.0)
    nic = load_topology("mi355x_ubb8").fact("nic.bandwidth").value
    assert uni["gb200_nvl72"] / nic == pytest.approx(18.0)
    assert describe(load_topology("gh200_nvl32"))["total_uni_Bps"] == pytest.approx(14.4e12)


# name: GB/s of one GPU to other nodes, in one direction
SCALE_OUT = {
    "mi250x_node": 12.5,  # 4 x 200 Gb/s for 8 GCDs
    "mi250x_8oam": 12.5,
    "dgx1_v100": 6.25,  # 4 x 100 Gb/s for 8 GPUs
    "dgx2_v100": 6.25,  # 8 x 100 Gb/s for 16 GPUs
    "dgx_a100": 25.0,
    "hgx_h100": 50.0,
    "hgx_h20": 50.0,
    "hgx_h200": 50.0,
    "hgx_h800": 50.0,
    "gh200_nvl32": 50.0,
    "hgx_b200": 50.0,
    "hgx_b300": 100.0,
    "gb200_nvl72": 50.0,
    "gb300_nvl72": 100.0,
    "vr200_nvl144": 200.0,  # 2 x 800 Gb/s
    "vr300_nvl576": 400.0,  # 115.2 TB/s for both directions of 144
    "mi300x_ubb8": 50.0,
    "mi325x_ubb8": 50.0,
    "mi350x_ubb8": 50.0,
    "mi355x_ubb8": 50.0,
    "mi400_ualoe72": 300.0,  # 43.2 TB/s for both directions of 72
    "mi500_ual256": 300.0,
    "pcie_gen5_8gpu": 25.0,  # 400 Gb/s for 2 GPUs
    "l40s_8gpu": 25.0,
    "rtx_pro_6000_8gpu": 25.0,
}


@pytest.mark.parametrize("name", ZOO)
def test_scale_out(name):
    facts = {fact.path: fact.value for fact in load_topology(name).facts}
    rate = facts["nic.bandwidth"] * facts.get("nic.per_gpu", 1) / facts.get("nic.shared_by", 1)
    assert rate == pytest.approx(SCALE_OUT[name] * 1e9)


@pytest.mark.parametrize("name", ZOO)
def test_every_figure_has_its_provenance(name):
    topology = load_topology(name)
    assert topology.name == name
    files = tuple(f"topologies/{stem}.yaml:" for stem in (name, topology.labels.get("extends")) if stem)
    for fact in topology.facts:
        assert fact.status in STATUSES
        assert fact.status not in ("user", "set"), fact
        assert len(fact.source) > 10, fact
        assert fact.where.startswith(files), fact
    paths = {fact.path for fact in topology.facts}
    assert {"gpu.count", "link.bandwidth", "link.latency", "link.efficiency", "nic.bandwidth"} <= paths
    assert topology.title
    assert topology.labels["gpu.model"]


def test_shipped_files_extend_one_level():
    bases = {name: load_topology(name).labels.get("extends") for name in ZOO}
    assert {base for base in bases.values() if base and bases[base]} == set()
    for name, base in bases.items():
        own = [fact for fact in load_topology(name).facts if fact.where.startswith(f"topologies/{name}.yaml")]
        assert {"gpu.count", "gpu.memory_bandwidth"} <= {fact.path for fact in own} or not base


@pytest.mark.parametrize("name", OUTLINES)
def test_outlines_say_so(name):
    topology = load_topology(name)
    placeholders = [fact.path for fact in topology.facts if fact.status == "assumed"]
    assert {"link.bandwidth", "switch.planes", "switch.ports", "link.latency", "switch.latency"} <= set(placeholders)
    assert topology.fact("gpu.count").status == "announced"
    assert "outline" in topology.title
    assert "placeholders" in topology.labels["notes"]
    changed = load_topology(name, ["gpu.count=72", "link.bandwidth=50 GB/s", "switch.planes=10"])
    assert describe(changed)["per_gpu_uni_Bps"] == 50e9 * 10 * topology.fact("switch.links_per_plane").value


PATHS = {
    "dgx1_v100": 1000,  # 2 links x 500
    "dgx2_v100": 850,  # 3 links x 150, 2 switches x 200
    "mi250x_node": 1000,  # 2 links x 500
    "mi250x_8oam": 2500,  # 5 links x 500
    "pcie_gen5_8gpu": 1290,  # 5 links x 150, 2 switches x 120, 2 root complexes x 150
}


@pytest.mark.parametrize("name", ZOO)
def test_latency_is_that_of_hardware(name):
    """One hop takes less than an LL hop of the library, which includes the protocol; Ethernet may differ."""
    topology = load_topology(name)
    wiring = topology.wiring
    assert all(fact.status in ("assumed", "estimate") for fact in topology.facts if fact.path.endswith(".latency"))
    links = 2 if {"switch", "cpu"} & set(wiring.node_kinds) else 1
    switch_s = max(
        (s for s, kind in zip(wiring.node_latency_s, wiring.node_kinds, strict=True) if kind != "gpu"), default=0
    )
    path = links * wiring.link_latency_s.max() + switch_s
    assert 0.3e-6 < path < (1.1e-6 if name in ("mi400_ualoe72", "mi500_ual256") else 0.8e-6)
    assert np.all(wiring.link_efficiency > 0.6)
    if name in PATHS:
        assert find_routes(build_fabric(topology)).latency_s.max() == pytest.approx(PATHS[name] * 1e-9)


def test_achievable_rates():
    usable = {name: describe(load_topology(name))["per_gpu_achievable_uni_Bps"] / 1e9 for name in ZOO}
    for name in ("hgx_h100", "hgx_h20", "hgx_h200", "gh200_nvl32"):
        assert usable[name] == pytest.approx(370.8, rel=1e-3)  # 18 x 20.6
    assert usable["hgx_h800"] == pytest.approx(164.8, rel=1e-3)  # 8 x 20.6
    for name in ("hgx_b200", "hgx_b300", "gb200_nvl72", "gb300_nvl72"):
        assert usable[name] == pytest.approx(721.8, rel=1e-3)  # 18 x 40.1
    assert usable["dgx1_v100"] == usable["dgx2_v100"] == pytest.approx(120.0, rel=1e-3)  # 6 x 20.0
    assert usable["dgx_a100"] == pytest.approx(240.0, rel=1e-3)  # 12 x 20.0
    assert usable["mi250x_node"] == pytest.approx(6 * 36.0, rel=1e-3)
    assert usable["mi300x_ubb8"] == usable["mi325x_ubb8"] == pytest.approx(336.0, rel=1e-3)  # 7 x 48
    assert usable["mi350x_ubb8"] == usable["mi355x_ubb8"] == pytest.approx(367.5, rel=1e-3)
    assert usable["mi400_ualoe72"] == pytest.approx(1640.0, rel=1e-3)
    assert usable["pcie_gen5_8gpu"] == pytest.approx(55.4, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("dgx_a100", None),
        ("dgx2_v100", None),
        ("hgx_h100", "NVLS"),
        ("hgx_h200", "NVLS"),
        ("hgx_h800", "NVLS"),
        ("gh200_nvl32", "NVLS"),
        ("gb200_nvl72", "NVLS"),
        ("gb300_nvl72", "NVLS"),
        ("mi355x_ubb8", None),
        ("pcie_gen5_8gpu", None),
    ],
)
def test_in_network_reduction(name, method):
    assert load_topology(name).in_network_reduction == method


@pytest.mark.parametrize("name", ZOO)
def test_every_figure_can_be_set(name):
    topology = load_topology(name)
    values = {"B/s": "10 GB/s", "s": "1 us", "fraction": "50%"}
    for fact in topology.facts:
        value = values.get(fact.unit, fact.text)
        changed = load_topology(name, [(fact.path, value)]).fact(fact.path)
        assert (changed.text, changed.status, changed.where) == (value, "set", f"--set {fact.path}")
        assert changed.note.startswith(f"was {fact.text}")
