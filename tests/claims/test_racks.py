"""Claims on racks and what leaves them: SemiAnalysis, June 2025; AMD Advancing AI 2025; an article on Helios."""

import pytest

from collsim.core.errors import InputError
from collsim.topology import describe, load_topology

from .figures import figure
from .measures import EXACT, fact, pair_GBps, rounds_to, row, scale_out_GBps, uni_GBps

HELIOS = "mi400_ualoe72"
DOMAINS = {
    "hgx_b200": 8,
    "hgx_b300": 8,
    "mi350x_ubb8": 8,
    "mi355x_ubb8": 8,
    "gb200_nvl72": 72,
    "gb300_nvl72": 72,
}


def size_of(topo):
    """Return the GPUs in one scale-up domain, all of them joined."""
    shown = describe(load_topology(topo))
    assert shown["connected"]
    return shown["ranks"]


@pytest.mark.parametrize("topo", DOMAINS)
def test_C061_gpus_in_one_domain(topo):
    """A board has 8 GPUs in one scale-up domain, a rack of GB200 or GB300 has 72."""
    assert size_of(topo) == DOMAINS[topo]
    # one hop from any GPU to any other: the last one gets as much from the first as its neighbour does
    assert pair_GBps(topo, 0, DOMAINS[topo] - 1) == pytest.approx(pair_GBps(topo, 0, 1), **EXACT)


def test_C062_mi355x_has_a_tenth_of_the_domain_of_gb200():
    """8 of 72 is 0.11."""
    ratio = size_of("mi355x_ubb8") / size_of("gb200_nvl72")
    assert ratio == pytest.approx(1 / 9)
    assert rounds_to(ratio, "0.1")


def test_C067_mi400_rack_uses_tomahawk_6():
    """The rack uses Tomahawk 6, an Ethernet switch of 102.4 Tb/s, not a UALink switch."""
    topology = load_topology(HELIOS)
    assert "Tomahawk 6" in topology.labels["switch.model"]
    assert "Ethernet" in topology.labels["link.type"]
    ports, lane_Bps = fact(HELIOS, "switch.ports"), fact(HELIOS, "link.bandwidth")
    assert ports * lane_Bps * 8 == pytest.approx(102.4e12, **EXACT)
    # 432 of 512 lanes are used: 86.4 Tb/s
    used = describe(topology)["switches"]["ports_used"]
    assert used * lane_Bps * 8 == pytest.approx(86.4e12, **EXACT)


def test_C068_mi400_rack_is_one_domain_of_72():
    """72 logical GPUs, each of which reaches any other with all of its 1.8 TB/s."""
    assert size_of(HELIOS) == 72
    assert pair_GBps(HELIOS, 0, 71) == pytest.approx(1800.0, **EXACT)


def test_C069_mi400_rack_keeps_up_with_vr200():
    """Both racks have 1.8 TB/s for each of 72 GPUs, so the bare wire takes the same time; NVLS is what differs."""
    racks = (HELIOS, "vr200_nvl144")
    assert [uni_GBps(topo) for topo in racks] == [1800.0, 1800.0]
    for op, algo in (("all_to_all", "direct"), ("all_reduce", "all_pairs"), ("send_recv", "nccl_p2p")):
        amd, nvidia = (row(topo, op, "1G", algo=algo).time_s for topo in racks)
        assert amd == pytest.approx(nvidia, rel=1e-6), op
    # Ethernet switches only forward: with NVLS the rack of NVIDIA reduces up to 2 x 71/73 = 1.95 times faster
    amd, nvidia = (row(topo, "all_reduce", "1G").time_s for topo in racks)
    assert 1.5 < amd / nvidia < 142 / 73


def test_C070_mi500_connects_256_packages():
    """UAL256 has 256 packages; what a link carries is not public, so it is marked as assumed and can be set."""
    topo = "mi500_ual256"
    assert size_of(topo) == 256
    assert load_topology(topo).fact("gpu.count").status == "announced"
    assert load_topology(topo).fact("link.bandwidth").status == "assumed"
    doubled = load_topology(topo, {"link.bandwidth": "50 GB/s"})
    assert describe(doubled)["per_gpu_uni_Bps"] == pytest.approx(2e9 * uni_GBps(topo), **EXACT)


def test_C071_vr300_connects_144_packages():
    """NVL576 counts dies: four in each of 144 packages, and a package is one GPU to the library."""
    assert size_of("vr300_nvl576") == 144
    assert size_of("vr300_nvl576") * figure("rubin_ultra.dies") == 576


@pytest.mark.parametrize("topo", ["gb200_nvl72", "gb300_nvl72"])
def test_C072_nvl72_has_144_dies(topo):
    """72 logical GPUs with two dies each."""
    assert size_of(topo) == 72
    assert size_of(topo) * figure("gb200.dies") == 144


def test_C073_half_of_144_lanes_make_the_scale_up():
    """A package has 144 lanes; the 72 that go to the switches carry 1.8 TB/s in one direction."""
    lanes = describe(load_topology(HELIOS))["links_per_gpu"]
    assert lanes * 2 == figure("mi400.lanes")
    assert lanes * fact(HELIOS, "link.bandwidth") / 1e9 == pytest.approx(1800.0, **EXACT)


@pytest.mark.parametrize(
    ("protocol", "total_GBps"),
    [("pcie6", 1152), ("infinity_fabric", 1152), ("ualink", 2304), ("xgmi4", 2304), ("ethernet", 3816)],
)
def test_C074_144_lanes_by_protocol(protocol, total_GBps):
    """The lanes run at 64 Gb/s (PCIe 6, Infinity Fabric), 128 (UALink, xGMI4) or 212 (over Ethernet)."""
    lane_Gbps = figure(f"mi400.{protocol}_Gbps")
    assert figure("mi400.lanes") * lane_Gbps / 8 == total_GBps


def test_C074_212_on_the_wire_carries_200():
    """A lane of 212 Gb/s is one of 200G with the bits of its error correction: 0.943 of it is data."""
    data_Gbps = fact(HELIOS, "link.bandwidth") * 8 / 1e9
    assert data_Gbps == pytest.approx(200, **EXACT)
    assert data_Gbps / figure("mi400.ethernet_Gbps") == pytest.approx(0.943, abs=5e-4)


def test_C141_a_domain_of_8_to_1024():
    """UALink grows the scale-up domain from 8 to 1024 GPUs."""
    assert size_of("mi355x_ubb8") == 8
    grown = {"gpu.count": "1024", "switch.planes": "72", "switch.links_per_plane": "1", "switch.ports": "1024"}
    topology = load_topology("mi500_ual256", grown)
    shown = describe(topology)
    assert (shown["ranks"], shown["connected"], shown["switches"]["ports_used"]) == (1024, True, 1024)
    assert shown["per_gpu_uni_Bps"] == pytest.approx(1.8e12, **EXACT)
    ends = row(topology, "all_to_all", "64M", rank_list=[0, 1, 255, 256, 511, 512, 1022, 1023])
    assert ends.busbw_Bps == pytest.approx(1.8e12, **EXACT)
    # the switches must have as many ports, or the file is refused
    with pytest.raises(InputError, match="512"):
        load_topology("mi500_ual256", grown | {"switch.ports": "512"})


def test_C142_vulcano_is_an_adapter_of_800g():
    """Helios joins MI400 with Vulcano adapters of 800 Gb/s, that is 100 GB/s each."""
    topology = load_topology(HELIOS)
    assert "Vulcano" in topology.labels["nic.model"]
    assert "MI455X" in topology.labels["gpu.model"]
    assert fact(HELIOS, "nic.bandwidth") == 800e9 / 8 == 100e9


def test_C147_300_gb_per_s_leave_the_rack_for_each_gpu():
    """300 GB/s of each GPU are called UALink, but are its three adapters: scale-out, a sixth of the scale-up."""
    assert fact(HELIOS, "nic.per_gpu") == 3
    assert scale_out_GBps(HELIOS) == pytest.approx(300.0, **EXACT)
    assert uni_GBps(HELIOS) / scale_out_GBps(HELIOS) == pytest.approx(6, **EXACT)


def test_C148_helios_has_260_tb_per_s_in_both_directions():
    """All GPUs together have 259.2 TB/s in both directions; an all-to-all sends 129.6 TB/s."""
    total_TBps = describe(load_topology(HELIOS))["total_bidi_Bps"] / 1e12
    assert total_TBps == pytest.approx(259.2, **EXACT)
    assert round(total_TBps, -1) == 260
    found = row(HELIOS, "all_to_all")
    assert found.ranks * found.busbw_Bps / 1e12 == pytest.approx(129.6, **EXACT)


def test_C149_43_tb_per_s_leave_helios():
    """All adapters of the rack together have 43.2 TB/s in both directions."""
    total_TBps = 2 * size_of(HELIOS) * scale_out_GBps(HELIOS) / 1e3
    assert total_TBps == pytest.approx(43.2, **EXACT)
    assert rounds_to(total_TBps, "43")


def test_C150_helios_has_72_gpus():
    """18 trays of 4."""
    assert size_of(HELIOS) == 72 == figure("helios.trays") * 4


def test_C153_a_host_link_of_1_6_tb_per_s_is_faster_than_any_adapter():
    """The bus of an adapter is a parameter: 121 GB/s of PCIe 6 carry its 100, so 1.6 TB/s change nothing, 63 would."""
    ends = [*range(8), *range(72, 80)]

    def time_s(**bus):
        topology = load_topology(HELIOS, {f"nic.{key}": text for key, text in bus.items()}, scale_out={"nodes": 2})
        return row(topology, "all_to_all", rank_list=ends, algo="direct").time_s

    assert scale_out_GBps(HELIOS) / fact(HELIOS, "nic.per_gpu") == pytest.approx(100.0, **EXACT)
    assert time_s(bus_bandwidth="1600 GB/s") == time_s() == pytest.approx(2**30 / 2 / 300e9, **EXACT)
    assert time_s(bus_bandwidth="63 GB/s") / time_s() == pytest.approx(100 / 63, **EXACT)
