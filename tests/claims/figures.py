"""Published figures that no topology file holds: memory, compute, power, prices and measured rates, with their source.

What a topology file does hold (links, switches, adapters, memory bandwidth) is read from there and not repeated here.
"""

from dataclasses import dataclass

SEMI_2025 = "SemiAnalysis, 20 June 2025, on MI350X and MI400"
TUTORIAL = "ROCm tutorial on MI300X against H100"


@dataclass(frozen=True)
class Figure:
    value: float
    status: str
    source: str


FIGURES = {
    # capacity of memory, GB
    "mi300x.memory_GB": Figure(192, "datasheet", "AMD Instinct MI300X datasheet"),
    "mi355x.memory_GB": Figure(288, "datasheet", "AMD Instinct MI355X datasheet"),
    "mi455x.memory_GB": Figure(432, "announced", "AMD Advancing AI 2025, MI400 series"),
    "h100.memory_GB": Figure(80, "datasheet", "NVIDIA H100 SXM datasheet"),
    "b200.memory_GB": Figure(180, "datasheet", SEMI_2025),
    "gb200.memory_GB": Figure(192, "estimate", f"{SEMI_2025}; other lists have 186"),
    "rubin.memory_GB": Figure(288, "announced", "NVIDIA Vera Rubin NVL72"),
    # bandwidth of memory that was announced first, TB/s; the topology files hold the later figures
    "mi455x.memory_2025_TBps": Figure(19.6, "announced", "AMD Advancing AI 2025, MI400 series"),
    "rubin.memory_2025_TBps": Figure(13, "announced", "NVIDIA GTC 2025; recalled, not looked up again"),
    # dense compute, TFLOPS
    "mi300x.fp16_TFLOPS": Figure(1307, "datasheet", "AMD Instinct MI300X datasheet"),
    "mi300x.fp8_TFLOPS": Figure(2614, "datasheet", "AMD Instinct MI300X datasheet"),
    "h100.fp16_TFLOPS": Figure(989.5, "datasheet", "NVIDIA H100 SXM datasheet, half of the figure with sparsity"),
    "h100.fp8_TFLOPS": Figure(1979, "datasheet", "NVIDIA H100 SXM datasheet, half of the figure with sparsity"),
    "mi350x.fp8_TFLOPS": Figure(4600, "datasheet", SEMI_2025),
    "mi355x.fp8_TFLOPS": Figure(5000, "datasheet", SEMI_2025),
    "mi355x.fp6_TFLOPS": Figure(10000, "datasheet", SEMI_2025),
    "mi355x.fp4_TFLOPS": Figure(10000, "datasheet", SEMI_2025),
    "b200.fp6_TFLOPS": Figure(4500, "datasheet", SEMI_2025),
    "gb200.fp6_TFLOPS": Figure(5000, "datasheet", SEMI_2025),
    "b300.fp4_TFLOPS": Figure(13500, "datasheet", SEMI_2025),
    "mi455x.fp4_TFLOPS": Figure(40_000, "announced", "AMD Advancing AI 2025, MI400 series"),
    "mi455x.fp8_TFLOPS": Figure(20_000, "announced", "AMD Advancing AI 2025, MI400 series"),
    # power of one GPU, W
    "mi350x.power_W": Figure(1000, "datasheet", SEMI_2025),
    "mi355x.power_W": Figure(1400, "datasheet", SEMI_2025),
    "b200.power_W": Figure(1000, "datasheet", SEMI_2025),
    "b300.power_W": Figure(1200, "datasheet", SEMI_2025),
    "gb200.power_W": Figure(1200, "datasheet", SEMI_2025),
    # dies in a package that computes
    "gb200.dies": Figure(2, "datasheet", "NVIDIA GB200, two dies in each Blackwell GPU"),
    "b300.dies": Figure(2, "datasheet", "NVIDIA B300, two dies in each Blackwell GPU"),
    "rubin.dies": Figure(2, "announced", "NVIDIA GTC 2025, Vera Rubin NVL144"),
    "rubin_ultra.dies": Figure(4, "announced", "NVIDIA GTC 2025, Rubin Ultra NVL576"),
    "quantum_2.ports_400G": Figure(64, "datasheet", "NVIDIA QM9700 datasheet"),
    "quantum_2.latency_low_ns": Figure(150, "datasheet", "NVIDIA, Quantum-2, less than 130 to 150 ns"),
    "quantum_2.latency_high_ns": Figure(330, "datasheet", "NVIDIA, Quantum-2, about 330 ns"),
    "tomahawk_5.ports_400G": Figure(128, "datasheet", "Broadcom Tomahawk 5 datasheet"),
    "mi250x.host_per_gcd_GBps": Figure(36, "datasheet", "OLCF Frontier User Guide, in each direction"),
    # price of a card, thousand USD, and of a cluster for each GPU, USD
    "mi300x.price_low_kUSD": Figure(15, "estimate", TUTORIAL),
    "mi300x.price_high_kUSD": Figure(20, "estimate", TUTORIAL),
    "h100.price_low_kUSD": Figure(30, "estimate", TUTORIAL),
    "h100.price_high_kUSD": Figure(40, "estimate", TUTORIAL),
    "b200.capex_USD": Figure(44_954, "estimate", SEMI_2025),
    "mi355x.capex_USD": Figure(24_711, "estimate", SEMI_2025),
    "b200.capex_USD_per_h": Figure(1.54, "estimate", SEMI_2025),
    "mi355x.capex_USD_per_h": Figure(0.85, "estimate", SEMI_2025),
    # the flexible I/O of an MI400 package, Gb/s of one lane
    "mi400.lanes": Figure(144, "announced", SEMI_2025),
    "mi400.pcie6_Gbps": Figure(64, "announced", SEMI_2025),
    "mi400.infinity_fabric_Gbps": Figure(64, "announced", SEMI_2025),
    "mi400.ualink_Gbps": Figure(128, "announced", SEMI_2025),
    "mi400.xgmi4_Gbps": Figure(128, "announced", SEMI_2025),
    "mi400.ethernet_Gbps": Figure(212, "announced", SEMI_2025),
    "xgmi.lanes": Figure(16, "datasheet", "AMD Instinct MI300X datasheet, 16 lanes in an xGMI link"),
    "mi300x.lane_GTps": Figure(32, "datasheet", "AMD Instinct MI300X datasheet, PCIe 5 signalling"),
    "helios.trays": Figure(18, "announced", "AMD ROCm blog, Introducing CDNA 5 and Helios (August 2026)"),
    "pytorch.bucket_MiB": Figure(25, "constant", "PyTorch, DistributedDataParallel, bucket_cap_mb"),
    # measured busbw of an all-reduce, GB/s
    "mi300x.all_reduce_16MB_GBps": Figure(197, "measured", "AMD ROCm blog on RCCL bandwidth and xGMI on MI300X"),
    "mi300x.all_reduce_256MB_GBps": Figure(305.6, "measured", "AMD ROCm blog on RCCL bandwidth and xGMI on MI300X"),
    "mi300x.all_reduce_16GB_GBps": Figure(319.0, "measured", "AMD ROCm blog on RCCL bandwidth and xGMI on MI300X"),
    "mi355x.two_nodes_all_to_all_1GB_GBps": Figure(
        89.44, "measured", "rccl-tests on 2 x 8 gfx950, Pollara, RCCL 2.27.7"
    ),
    "h100.two_nodes_all_to_all_16GB_GBps": Figure(
        92.04, "measured", "xxrjun/nccl-tests-cluster, 2 x 8 H100, InfiniBand, NCCL 2.29.2"
    ),
    "mi300x.thor_2_all_to_all_16GB_GBps": Figure(
        50, "estimate", "ROCm/cvs, 2 x 8 MI300X, the least to pass; not a run"
    ),
    "mi300x.two_nodes_8GB_GBps": Figure(357.0, "measured", "OCI oci-hpc-oke, 16 MI300X"),
    "mi350x.all_reduce_8GB_GBps": Figure(367.5, "measured", "AMD system acceptance guide, MI350X, in place"),
    "mi350x.all_reduce_8GB_out_of_place_GBps": Figure(361.0, "measured", "AMD system acceptance guide, MI350X"),
    "mi355x.acceptance_GBps": Figure(350, "measured", "AMD system acceptance guide, RCCL page, the least"),
    "mi355x.other_acceptance_GBps": Figure(304, "measured", "AMD system acceptance guide, MI355X page, the least"),
    "h100.all_reduce_16MB_GBps": Figure(234, "measured", "Azure AI benchmarking guide, 8 H100"),
    "h100.all_reduce_268MB_GBps": Figure(423, "measured", "Azure AI benchmarking guide, 8 H100"),
    "h100.all_reduce_8GB_GBps": Figure(478.9, "measured", "Azure AI benchmarking guide, 8 H100"),
    "b200.all_reduce_8GB_GBps": Figure(838.0, "measured", "stas00, ml-engineering, 8 B200, 8 GiB, NVLS"),
    "b200.ring_8GB_GBps": Figure(682.2, "measured", "stas00, ml-engineering, 8 B200, 8 GiB, NVLS off"),
    "b200.one_node_16GB_GBps": Figure(845.7, "measured", "stas00, ml-engineering, 8 B200, 16 GiB"),
    "b200.four_nodes_16GB_GBps": Figure(381.8, "measured", "stas00, ml-engineering, 32 B200, EFA, 16 GiB"),
    "sharp.coreweave_GBps": Figure(386.6, "measured", "CoreWeave nccl-tests, H100 with SHARP, 8 GB"),
    "sharp.azure_GBps": Figure(450, "estimate", "Azure, expected for 64 H100 with SHARP, 16 GB; not a run"),
}


def figure(name: str) -> float:
    """Return a published figure, in the unit that its name ends with."""
    return FIGURES[name].value
