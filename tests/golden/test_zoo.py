"""Every shipped topology adds up to the vendor's figures, and every figure says where it comes from."""

import numpy as np
import pytest

from collsim.topology import STATUSES, describe, load_topology, zoo_names

ZOO = zoo_names()

# name: GPUs, GB/s per GPU in one direction and in both, TB/s of all GPUs in both directions
TOTALS = {
    "mi300x_ubb8": (8, 448.0, 896.0, 7.168),  # 7 links x 64
    "mi355x_ubb8": (8, 537.6, 1075.2, 8.6016),  # 7 links x 76.8
    "hgx_h100": (8, 450.0, 900.0, 7.2),  # 18 links x 25
    "hgx_b200": (8, 900.0, 1800.0, 14.4),  # 18 links x 50
    "gb200_nvl72": (72, 900.0, 1800.0, 129.6),  # 18 links x 50; the datasheet rounds to 130 TB/s
    "mi400_ualoe72": (72, 1800.0, 3600.0, 259.2),  # 72 lanes x 25; the announcement rounds to 260 TB/s
}

# name: switches, ports used of ports, links from a GPU to each switch, links per GPU, cables
SWITCHES = {
    "hgx_h100": (4, 40, 64, [5, 4, 4, 5], 18, 144),
    "hgx_b200": (2, 72, 72, [9, 9], 18, 144),
    "gb200_nvl72": (18, 72, 72, [1] * 18, 18, 1296),
    "mi400_ualoe72": (12, 432, 512, [6] * 12, 72, 5184),
}


def test_all_are_covered():
    assert set(TOTALS) == set(ZOO)
    assert set(SWITCHES) == {name for name in ZOO if load_topology(name).wiring.coordinates.kind == "switched"}


@pytest.mark.parametrize("name", ZOO)
def test_totals(name):
    gpus, uni, bidi, total = TOTALS[name]
    shown = describe(load_topology(name))
    assert shown["ranks"] == gpus
    assert shown["per_gpu_uni_Bps"] == pytest.approx(uni * 1e9, rel=1e-12)
    assert shown["per_gpu_uni_max_Bps"] == shown["per_gpu_uni_Bps"]
    assert shown["per_gpu_bidi_Bps"] == pytest.approx(bidi * 1e9, rel=1e-12)
    assert shown["total_bidi_Bps"] == pytest.approx(total * 1e12, rel=1e-12)
    assert shown["total_uni_Bps"] * 2 == pytest.approx(shown["total_bidi_Bps"], rel=1e-12)
    assert shown["connected"]


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_switches(name):
    count, used, ports, links, per_gpu, cables = SWITCHES[name]
    shown = describe(load_topology(name))
    assert shown["switches"]["count"] == count
    assert shown["switches"]["ports_used"] == used
    assert shown["switches"]["ports"] == ports
    assert shown["switches"]["links_per_gpu"] == links
    assert shown["links_per_gpu"] == per_gpu
    assert shown["physical_links"] == cables


@pytest.mark.parametrize("name", ["mi300x_ubb8", "mi355x_ubb8"])
def test_meshes(name):
    shown = describe(load_topology(name))
    assert (shown["physical_links"], shown["bundles"], shown["links_per_gpu"], shown["switches"]) == (28, 56, 7, {})
    # 4 x 4 pairs of GPUs cross the middle
    assert shown["bisection_uni_Bps"] == pytest.approx(16 / 7 * shown["per_gpu_uni_Bps"])


@pytest.mark.parametrize(
    ("name", "gpus", "uni"),
    # a group of k GPUs of a mesh uses k - 1 links of each
    [("mi300x_ubb8", 2, 64.0), ("mi300x_ubb8", 4, 192.0), ("mi355x_ubb8", 2, 76.8), ("mi355x_ubb8", 4, 230.4)],
)
def test_part_of_a_mesh(name, gpus, uni):
    shown = describe(load_topology(name, {"gpu.count": str(gpus)}))
    assert shown["per_gpu_uni_Bps"] == pytest.approx(uni * 1e9)


def test_ratios():
    uni = {name: describe(load_topology(name))["per_gpu_uni_Bps"] for name in ZOO}
    assert uni["gb200_nvl72"] / uni["mi355x_ubb8"] == pytest.approx(1.674, abs=5e-4)
    assert uni["mi355x_ubb8"] / uni["mi300x_ubb8"] == pytest.approx(1.2)
    nic = load_topology("mi355x_ubb8").fact("nic.bandwidth").value
    assert uni["gb200_nvl72"] / nic == pytest.approx(18.0)
    helios = load_topology("mi400_ualoe72")
    scale_out = 72 * 2 * helios.fact("nic.per_gpu").value * helios.fact("nic.bandwidth").value
    assert scale_out == pytest.approx(43.2e12)


@pytest.mark.parametrize("name", ZOO)
def test_every_figure_has_its_provenance(name):
    topology = load_topology(name)
    assert topology.name == name
    for fact in topology.facts:
        if fact.where == "default":
            assert fact.path in ("link.per_pair",)  # not used by a switched domain
            continue
        assert fact.status in STATUSES
        assert fact.status not in ("user", "set"), fact
        assert len(fact.source) > 10, fact
        assert fact.where.startswith(f"topologies/{name}.yaml:")
    paths = {fact.path for fact in topology.facts}
    assert {"gpu.count", "link.bandwidth", "link.latency", "link.efficiency", "nic.bandwidth"} <= paths
    assert topology.title
    assert topology.labels["gpu.model"]


@pytest.mark.parametrize("name", ZOO)
def test_latency_is_that_of_hardware(name):
    """One GPU to another takes less than an LL hop of the library, which includes the protocol; Ethernet may differ."""
    topology = load_topology(name)
    wiring = topology.wiring
    assert all(fact.status in ("assumed", "estimate") for fact in topology.facts if fact.path.endswith(".latency"))
    links = 2 if wiring.coordinates.kind == "switched" else 1
    path = links * wiring.link_latency_s.max() + wiring.node_latency_s.max()
    assert 0.3e-6 < path < (1.1e-6 if name == "mi400_ualoe72" else 0.8e-6)
    assert np.all(wiring.link_efficiency > 0.6)


def test_achievable_rates():
    usable = {name: describe(load_topology(name))["per_gpu_achievable_uni_Bps"] / 1e9 for name in ZOO}
    assert usable["hgx_h100"] == pytest.approx(370.8, rel=1e-3)  # 18 x 20.6
    assert usable["hgx_b200"] == pytest.approx(721.8, rel=1e-3)  # 18 x 40.1
    assert usable["mi300x_ubb8"] == pytest.approx(336.0, rel=1e-3)  # 7 x 48
    assert usable["mi355x_ubb8"] == pytest.approx(367.5, rel=1e-3)
    assert usable["mi400_ualoe72"] == pytest.approx(1640.0, rel=1e-3)


@pytest.mark.parametrize(("name", "method"), [("hgx_h100", "NVLS"), ("gb200_nvl72", "NVLS"), ("mi355x_ubb8", None)])
def test_in_network_reduction(name, method):
    assert load_topology(name).in_network_reduction == method
