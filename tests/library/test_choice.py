"""Library, environment, system and the parts of a choice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collsim import simulate
from collsim.core.errors import InputError, UnsupportedError
from collsim.library import (
    Call,
    Choice,
    Graph,
    PointToPoint,
    System,
    choose,
    load_library,
    read_environment,
    system_of,
)
from collsim.library.calls import LL, SIMPLE
from collsim.library.environment import ANY_SIZE, with_protocol
from collsim.library.library import PROTOCOLS
from collsim.library.nccl.channels import deal, launch, nvls_channels
from collsim.library.nccl.graphs import nccl_graphs
from collsim.library.nccl.point_to_point import channels_used
from collsim.library.nccl.protocols import AMD_LINES, NVIDIA_LINES, Lines, chunk_of
from collsim.library.nccl.versions import nccl_constants
from collsim.library.rccl.tables import MODELS, correction
from collsim.schedule.message_parts import channel_of_part, n_parts
from collsim.topology import load_topology

KIB, MIB = 2**10, 2**20
H100 = System("hopper", True, 20.6, links_per_gpu=18)
VERSIONS = [f"nccl-2.{minor}" for minor in range(18, 31)]


@pytest.mark.parametrize("name", ["nccl-2.28", "NCCL 2.28.9", "nccl_2.28.9+cuda13.0", "nccl-2.28.3-1"])
def test_library_names(name: str) -> None:
    assert load_library(name).name == "nccl-2.28"


@pytest.mark.parametrize(
    ("name", "hint"), [("nccl-3.1", "nccl-2.30"), ("nccl-1.3", "nccl-2.18"), ("mpi-4", "rccl-2.18 to")]
)
def test_unknown_libraries_name_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnsupportedError, match=hint):
        load_library(name)


def test_a_newer_version_takes_the_newest_constants_and_says_so() -> None:
    assert load_library("nccl-2.32.3").known.name == "nccl-2.30"
    newest, newer = (simulate("hgx_h100", "all_reduce", "1G", library=f"nccl-2.{minor}") for minor in (30, 31))
    assert newest.rows[0].time_s == newer.rows[0].time_s
    assert "the constants of nccl-2.31 are not known: those of nccl-2.30 are taken" in newer.warnings


def test_an_algorithm_is_chosen_only_by_versions_that_have_it() -> None:
    """NVLS came with 2.17, its tree with 2.18, PAT with 2.23; older versions take the constants of 2.18."""
    assert load_library("nccl-2.16.5").known.name == "nccl-2.18"
    system = replace(H100, nvls=True, nic_GBps=50.0)
    kinds = {
        "nvls": (Call("all_reduce", 8, 256 * MIB), (2, 17)),
        "nvls_tree": (Call("all_reduce", 16, 256 * MIB, n_nodes=2), (2, 18)),
        "pat": (Call("all_gather", 2, 64 * KIB, n_nodes=2), (2, 23)),
        "tree": (Call("all_reduce", 16, KIB, n_nodes=2), (2, 4)),
    }
    for algo, (call, since) in kinds.items():
        for minor in range(31):
            rows = choose(call, system, f"nccl-2.{minor}").candidates
            assert (algo in {row.algo for row in rows}) == ((2, minor) >= since), (algo, minor)
    gathered = {
        minor: {row.algo for row in choose(Call("all_gather", 8, MIB), system, f"nccl-2.{minor}").candidates}
        for minor in (16, 18, 20, 28)
    }
    assert gathered == {16: {"ring"}, 18: {"ring"}, 20: {"ring", "nvls"}, 28: {"ring", "nvls"}}


def test_what_is_no_name_is_shown_in_brief() -> None:
    with pytest.raises(InputError, match=r"library \['x{38} is not a name"):
        load_library(["x" * 99])  # type: ignore[arg-type]


def test_history_of_constants() -> None:
    of = {minor: nccl_constants((2, minor)) for minor in range(18, 31)}
    assert of[18] == of[19] != of[20] != of[21]
    assert of[19].nvlink_us["tree"][SIMPLE] == of[23].nvlink_us["tree"][SIMPLE] == 4.0
    assert of[20].nvlink_us["tree"][SIMPLE] == of[22].net_us["tree"][SIMPLE] == 28.0
    assert [of[minor].base_us["tree"][SIMPLE] for minor in (18, 20, 22, 23)] == [0.0, 0.0, 0.0, 8.4]
    assert [of[minor].nvlink_us["nvls"][SIMPLE] for minor in (18, 20, 21)] == [0.0, 23.0, 25.0]
    assert [of[minor].pat_ratio for minor in (22, 23, 25, 26, 30)] == [0.0, 0.85, 0.85, 0.75, 0.75]
    assert [of[minor].nvls_ratio is None for minor in (26, 27)] == [False, True]
    assert of[18].ll_max[2][0] == 87.7
    assert of[26].ring_ll128[3][0] == 73.4
    assert of[29].ring_ll128[3] == (34.5, 34.6, 34.5)
    assert [of[minor].cell_bytes for minor in (21, 22, 23, 28, 29)] == [0, 512, 16 * KIB, 16 * KIB, 32 * KIB]


def test_bytes_dealt_evenly_are_in_doubt_before_2_22() -> None:
    evenly = "bytes are assumed to be dealt evenly to the channels in this version"
    call = Call("all_reduce", 8, MIB)
    doubted = {minor: evenly in choose(call, H100, f"nccl-2.{minor}").doubts for minor in (18, 21, 22, 30)}
    assert doubted == {18: True, 21: True, 22: False, 30: False}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_every_version_chooses_and_deals_out_every_byte(version: str, op: str) -> None:
    for n in (2, 3, 8):
        for size in (0, 16 * n, 4800 * n, 10**6 * n, 2**26 * n):
            call = Call(op, n, size)
            choice = choose(call, replace(H100, nvls=True), version)
            assert sum(choice.shares_bytes) == call.buffer_bytes
            assert len(choice.shares_bytes) == choice.channels <= choice.communicator_channels
            assert min(choice.shares_bytes) >= 0
            assert choice.chunk_bytes > 0
            assert choice.predicted_s is not None


@pytest.mark.parametrize("size", [8, 100 * KIB, 512 * KIB, 3 * MIB + 4, 100 * MIB])
@pytest.mark.parametrize("proto", [LL, SIMPLE])
@pytest.mark.parametrize("cell", [0, 512, 16 * KIB, 32 * KIB])
@pytest.mark.parametrize("channels", [1, 2, 7, 24])
def test_dealing_keeps_bytes_and_elements(size: int, proto: int, cell: int, channels: int) -> None:
    shares = deal(Call("all_reduce", 8, size), proto, channels, 24, cell, rounded=cell == 32 * KIB)
    assert sum(shares) == size
    assert all(share > 0 and share % 4 == 0 for share in shares)
    assert len(shares) <= 24


def test_threads_shrink_after_channels() -> None:
    found = [launch(size, "ring", LL, channels=24, threads=512, per_thread=32) for size in (2**19, 2**14, 2**13, 8)]
    assert [(one.channels, one.threads) for one in found] == [(24, 512), (1, 512), (1, 256), (1, 96)]


@pytest.mark.parametrize(
    ("name", "n", "channels", "rate"),
    [
        ("hgx_h100", 8, 12, 30.0),
        ("hgx_h100", 2, 12, 30.0),
        ("dgx_a100", 8, 12, 20.0),
        ("dgx2_v100", 16, 6, 20.0),
        ("dgx1_v100", 8, 6, 20.0),
        ("hgx_b200", 8, 16, 45.0),
    ],
)
def test_rings_of_the_search(name: str, n: int, channels: int, rate: float) -> None:
    ring = nccl_graphs(Call("all_reduce", n, MIB), system_of(load_topology(name)))["ring"]
    assert (ring.channels, ring.intra_GBps) == (channels, rate)


def test_h800_has_fewer_links_and_as_many_channels_as_fit() -> None:
    ring = nccl_graphs(Call("all_reduce", 8, MIB), replace(H100, links_per_gpu=8))["ring"]
    assert (ring.channels, ring.intra_GBps) == (8, 20.0)


@pytest.mark.parametrize(
    ("n", "expected"), [(2, Graph(2, 60.0, 60.0)), (4, Graph(4, 60.0, 60.0)), (8, Graph(8, 40.0, 60.0))]
)
def test_heads_of_nvls(n: int, expected: Graph) -> None:
    assert nccl_graphs(Call("all_reduce", n, MIB), replace(H100, nvls=True))["nvls"] == expected


def test_ring_beats_nvls_on_few_gpus() -> None:
    system = replace(H100, nvls=True)
    assert [choose(Call("all_reduce", n, 256 * MIB), system).algo for n in (2, 4, 8)] == ["ring", "ring", "nvls"]


@pytest.mark.parametrize(("architecture", "expected"), [("hopper", [16, 16]), ("blackwell", [24, 32])])
def test_channels_of_nvls(architecture: str, expected: list[int]) -> None:
    # NCCL src/transport/nvls.cc: on one domain, on several
    system = System(architecture, True, 40.1, links_per_gpu=18, nvls=True)
    calls = [Call("all_reduce", n, 256 * MIB, n_nodes=nodes) for n, nodes in ((8, 1), (32, 4))]
    assert [nvls_channels(call, system, read_environment()) for call in calls] == expected
    asked = read_environment({"NCCL_NVLS_NCHANNELS": 20, "NCCL_MAX_CTAS": 18, "NCCL_MIN_NCHANNELS": 64})
    assert [nvls_channels(call, system, asked) for call in calls] == [18, 18]
    assert nvls_channels(calls[0], system, read_environment({"NCCL_MIN_CTAS": 28})) == 28


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        # no row for 4 dies: the tables of all other boards. 288 GB/s * 0.34 * 4/6; 12 + 6 * 2.2 us, 17 + 6 * 2.5 us
        ("mi250x_node", 4, {"ring LL128": (25.2, 65.28), "tree Simple": (32.0, 131.04), "ring LL": (16.8, 7.68)}),
        # 8 dies have no LL128. 288 GB/s * 8/14, LL a fifth of it; 17 + 14 * 3.6 us, 12 + 14 * 0.8 us
        ("mi250x_node", 8, {"ring Simple": (67.4, 164.571), "ring LL": (23.2, 32.914), "tree Simple": (52.0, 252.0)}),
        # 16 dies: 161.4 GB/s whatever the wiring. 161.4 * 0.41 * 16/30; 161.4 * 1.61 / 2; 12 + 30 * 2.2 us
        (
            "mi250x_8oam",
            16,
            {"ring LL128": (78.0, 35.293), "tree Simple": (92.0, 129.927), "ring Simple": (125.0, 86.08)},
        ),
    ],
)
def test_boards_of_mi250(name: str, ranks: int, expected: dict[str, tuple[float, float]]) -> None:
    # src/graph/tuning.cc of RCCL, at 1 MiB: latency in us and bandwidth in GB/s
    choice = choose(Call("all_reduce", ranks, MIB), system_of(load_topology(name)), "rccl-2.28")
    found = {f"{row.algo} {row.proto}": (row.latency_s * 1e6, row.bandwidth_Bps / 1e9) for row in choice.candidates}
    assert choice.channels == 32
    assert ("ring LL128" in found) == (ranks != 8)
    for row, figures in expected.items():
        assert found[row] == pytest.approx(figures, rel=1e-5), row
    assert "MI200" in " ".join(choice.doubts)


@pytest.mark.parametrize("model", ["AMD Instinct MI250X", "AMD Instinct MI250", "AMD Instinct MI210"])
def test_gpus_of_the_mi200_series(model: str) -> None:
    topology = load_topology("mi250x_node", {"gpu.model": model})
    assert system_of(topology).architecture == "gfx90a"


def test_nvls_needs_arithmetic_in_the_switch() -> None:
    system = replace(H100, nvls=True)
    calls = [Call("all_reduce", 8, 256 * MIB, dtype=d, redop=r) for d, r in (("float", "max"), ("half", "max"))]
    assert [choose(call, system).algo for call in calls] == ["ring", "nvls"]
    assert choose(Call("all_reduce", 8, 256 * MIB, dtype="f8e4m3"), system).algo == "ring"
    disabled = read_environment({"NCCL_NVLS_ENABLE": "0"})
    assert choose(Call("all_reduce", 8, 256 * MIB), system, environment=disabled).algo == "ring"


def test_chunks_and_slices() -> None:
    def chunk(op: str, variables: dict[str, str], size: int = 256 * MIB, n: int = 4) -> tuple[int, int, int]:
        choice = choose(Call(op, n, size), H100, "nccl-2.28", read_environment(variables))
        return choice.chunk_bytes, choice.slices, choice.slots_per_chunk

    assert chunk("all_reduce", {}) == (2 * MIB, 2, 4)
    assert chunk("broadcast", {}) == (512 * KIB, 1, 1)
    assert chunk("all_reduce", {"NCCL_PROTO": "LL"}) == (32 * KIB, 1, 1)
    assert chunk("all_reduce", {"NCCL_PROTO": "LL128", "NCCL_ALGO": "Ring"}) == (576000, 1, 1)
    assert chunk("all_reduce", {"NCCL_PROTO": "Simple", "NCCL_ALGO": "Tree"}) == (512 * KIB, 1, 1)
    assert chunk("all_reduce", {"NCCL_BUFFSIZE": str(MIB)}) == (512 * KIB, 2, 4)


def test_chunks_of_trees_fill_their_depth_with_rccl_alone() -> None:
    """Two boards of eight are eight hops deep: 64 rounds of 512 KiB, 32 of 128 KiB, 8 of 64 KiB (src/enqueue.cc)."""
    call = Call("all_reduce", 16, MIB, n_nodes=2)

    def chunk(lines: Lines, share: int) -> int:
        return chunk_of(call, "tree", SIMPLE, share, lines=lines, environment=read_environment()).payload_bytes

    shares = {32 * MIB: 512, 32 * MIB - 1: 256, 16 * MIB - 1: 128, 4 * MIB: 128, 4 * MIB - 1: 64, 512 * KIB - 1: 32}
    assert {share: chunk(AMD_LINES, share) // KIB for share in shares} == shares
    assert {chunk(NVIDIA_LINES, share) for share in shares} == {512 * KIB}


def test_nvls_chunk_follows_the_size() -> None:
    system = replace(H100, nvls=True)
    environment = read_environment({"NCCL_ALGO": "NVLS"})
    sizes = [power * MIB for power in (1, 32, 256, 2048)]
    chunks = [choose(Call("all_reduce", 8, size), system, environment=environment).chunk_bytes for size in sizes]
    assert chunks == [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB]


@pytest.mark.parametrize(
    ("algo", "op", "nodes", "whole", "limits"),
    [
        # 64 rounds of 512 KiB over depth 2 and 8 heads, then 8 of 128 KiB, then 8 of 64 KiB
        ("collnet_direct", "all_reduce", 4, 512, {512: 256, 256: 128, 16: 64, 8: 32}),
        # the same over a depth of 8 and one head, from 256 KiB
        ("collnet_chain", "all_reduce", 4, 256, {128: 128, 8: 64, 4: 32}),
        # 64 rounds of 128 KiB on 8 heads, 8 of 64 KiB, 2 of 32 KiB
        ("nvls", "all_reduce", 1, 128, {64: 64, 4: 32, 0.5: 16}),
        # 4 rounds of 128 KiB on 8 heads, 1 of 64 KiB; from 4 nodes on never more than 64 KiB
        ("nvls_tree", "all_reduce", 2, 128, {4: 64, 0.5: 32}),
        ("nvls_tree", "all_reduce", 3, 128, {4: 64, 0.5: 32}),
        ("nvls_tree", "all_reduce", 4, 64, {0.5: 32}),
        # 32 and 16 rounds of all blocks
        ("pat", "all_gather", 1, 512, {16: 256, 8: 128, 4: 64, 2: 64}),
        ("pat", "reduce_scatter", 1, 512, {8: 256, 4: 128, 2: 64, 1: 64}),
    ],
)
def test_chunks_shrink_with_the_rounds(algo: str, op: str, nodes: int, whole: int, limits: dict[float, int]) -> None:
    """*limits*: below so many MiB on a channel, a chunk of so many KiB; at them still the one before (enqueue.cc)."""
    call = Call(op, 8 * nodes, MIB, n_nodes=nodes)

    def chunk(spread: float) -> float:
        share = int(spread * MIB) // (8 * nodes if call.operation.blocked else 1)
        found = chunk_of(call, algo, SIMPLE, share, lines=NVIDIA_LINES, environment=read_environment())
        return found.payload_bytes / KIB

    before: float = whole
    assert chunk(4096) == whole
    for limit, smaller in limits.items():
        assert (chunk(limit), chunk(limit - 1e-4)) == (before, smaller)
        before = smaller


def test_one_protocol_for_collectives_and_messages() -> None:
    asked = {"NCCL_PROTO": "LL128", "RCCL_OVERRIDE_PROTO": "LL", "NCCL_ALGO": "Ring"}
    assert with_protocol(asked, None) == asked
    for proto, threshold in (("Simple", "0"), ("LL128", "0"), ("LL", str(ANY_SIZE))):
        messages = {"NCCL_P2P_LL_THRESHOLD": threshold}
        assert with_protocol(asked, proto) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": proto} | messages


def test_the_tree_of_one_domain_is_a_chain() -> None:
    environment = read_environment({"NCCL_ALGO": "Tree"})
    choice = choose(Call("all_reduce", 4, MIB), H100, environment=environment)
    assert (choice.algo, choice.library_algo, choice.threads) == ("chain", "TREE", 640)


def test_efficiency_of_protocols() -> None:
    def share(library: str, system: System, proto: str) -> float:
        variables = {"NCCL_PROTO": proto, "NCCL_ALGO": "ring"}
        return choose(Call("all_reduce", 8, MIB), system, library, read_environment(variables)).efficiency

    mi300x = system_of(load_topology("mi300x_ubb8"))
    assert [share("nccl-2.28", H100, proto) for proto in PROTOCOLS] == [0.5, 0.9375, 1.0]
    assert [share("rccl-2.27", mi300x, proto) for proto in PROTOCOLS] == [0.5, 0.875, 1.0]


def test_point_to_point_agrees_with_the_schedule() -> None:
    for n in (2, 4, 8):
        for size in (1, KIB, 70 * KIB, MIB, 200 * MIB):
            choice = choose(Call("all_to_all", n, size * n), H100)
            shape = choice.point_to_point
            assert shape is not None
            assert shape.parts == n_parts(size, n, shape.channels)
            used = {
                (channel_of_part(number, 0, shape.channels) + part) % shape.channels
                for number in range(n)
                for part in range(shape.parts)
            }
            assert choice.channels == len(used)


def test_parts_of_several_domains_are_small() -> None:
    shape = PointToPoint(32, 4, 1, 128 * KIB)
    sizes = (0, 64 * KIB, 128 * KIB, MIB)
    assert [n_parts(size, 16, 32, 4, step_bytes=128 * KIB, n_domains=2) for size in sizes] == [1, 1, 2, 4]
    assert channels_used(Call("send_recv", 16, MIB), replace(shape, parts=4)) == 4


def test_small_messages_take_ll() -> None:
    protos = [choose(Call("all_to_all", 8, 8 * size), H100).proto for size in (16 * KIB, 64 * KIB, MIB)]
    assert protos == ["LL", "Simple", "Simple"]


def test_registration_is_reported() -> None:
    calls = [
        Call("send_recv", 2, MIB),
        Call("send_recv", 2, MIB, registered=True),
        Call("send_recv", 2, MIB, launch="graph"),
    ]
    assert [choose(call, H100).zero_copy for call in calls] == [False, True, True]
    off = read_environment({"NCCL_GRAPH_REGISTER": "0"})
    assert not choose(calls[2], H100, environment=off).zero_copy


def test_fp8_rings_of_many_ranks_are_avoided() -> None:
    choice = choose(Call("all_reduce", 16, 16 * MIB, dtype="f8e4m3"), replace(H100, nvls=True))
    assert choice.library_algo == "TREE"


def test_a_log_may_give_the_graphs() -> None:
    system = replace(H100, graphs=(("ring", Graph(16, 24.0, 24.0)),), links_per_gpu=4)
    choice = choose(Call("all_reduce", 4, 64 * MIB), system)
    assert (choice.search_channels, choice.communicator_channels) == (16, 32)


def test_several_domains_run_on_graphs_of_a_log() -> None:
    graphs = (("ring", Graph(8, 48.0, 48.0)), ("nvls", Graph(8, 40.0, 45.0)))
    system = replace(H100, nvls=True, graphs=graphs, cpu_vendor="intel")
    large = [choose(Call("all_reduce", 32, size, n_nodes=4), system, "nccl-2.28").algo for size in (64 * MIB, 2**30)]
    assert large == ["nvls_tree", "ring"]
    small = choose(Call("all_reduce", 32, 1024, n_nodes=4), system, "nccl-2.28")
    assert (small.algo, small.proto) == ("tree", "LL")
    one_per_node = choose(Call("all_gather", 16, 4096, n_nodes=16), system, "nccl-2.28")
    assert one_per_node.algo in ("pat", "ring")


def test_messages_to_other_domains_use_few_channels() -> None:
    graphs = (("ring", Graph(8, 48.0, 48.0)),)
    system = replace(system_of(load_topology("hgx_h100")), graphs=graphs)
    assert (system.nics_per_gpu, system.nic_GBps) == (1, 50.0)

    def per_peer(n_nodes: int, version: str, *words: str) -> int:
        call = Call("all_to_all", 8 * n_nodes, 2**30, n_nodes=n_nodes)
        choice = choose(call, system, version, read_environment(words))
        assert choice.point_to_point is not None
        assert choice.doubts
        return choice.point_to_point.channels_per_peer

    assert [per_peer(n, "nccl-2.30") for n in (2, 8, 64)] == [4, 2, 1]
    assert [per_peer(n, "nccl-2.21") for n in (2, 8, 64)] == [2, 1, 1]
    assert per_peer(2, "nccl-2.30", "NCCL_NCHANNELS_PER_NET_PEER=1") == 1


def test_several_domains_without_graphs_or_adapters_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="adapters of a GPU are not known"):
        choose(Call("all_reduce", 16, MIB, n_nodes=2), H100)


@pytest.mark.parametrize("name", ["mi400_ualoe72", "mi500_ual256"])
def test_systems_without_a_known_library_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError):
        system_of(load_topology(name))


def test_rubin_is_a_guess_and_says_so() -> None:
    assert choose(Call("all_reduce", 8, MIB), system_of(load_topology("vr200_nvl144"))).doubts


def test_library_and_system_must_match() -> None:
    with pytest.raises(InputError, match="take a version of nccl"):
        choose(Call("all_reduce", 8, MIB), H100, "rccl-2.27")


def test_gpus_without_links_between_them_are_refused() -> None:
    topology = load_topology("dgx1_v100")
    with pytest.raises(UnsupportedError, match="PCIe"):
        system_of(topology, ranks=[0, 5])
    with pytest.raises(UnsupportedError, match="no ring"):
        choose(Call("all_reduce", 3, MIB), system_of(topology, ranks=[0, 1, 5]))


def test_a_mesh_has_only_so_many_gpus() -> None:
    with pytest.raises(InputError, match="at most 8"):
        choose(Call("all_reduce", 9, MIB), system_of(load_topology("dgx1_v100")))


def test_all_faults_of_a_call_are_told() -> None:
    with pytest.raises(InputError) as caught:
        Call("all_reduce", 1, -5, dtype="floot", n_nodes=3)
    assert len(caught.value.faults) == 4


class TestEnvironment:
    def test_lists(self) -> None:
        environment = read_environment({"NCCL_ALGO": "ring;allreduce:^Ring,NVLSTree", "NCCL_PROTO": "^LL128"})
        assert environment.names("NCCL_ALGO", "broadcast") == {"ring"}
        assert environment.permits("NCCL_ALGO", "all_reduce", "tree")
        assert not environment.permits("NCCL_ALGO", "all_reduce", "nvls_tree")
        assert [environment.permits("NCCL_PROTO", "reduce", proto) for proto in PROTOCOLS] == [True, False, True]

    @pytest.mark.parametrize(
        ("word", "hint"),
        [
            ("NCCL_MAX_NCHANNEL=8", "NCCL_MAX_NCHANNELS"),
            ("NCCL_PROTOS=LL", "NCCL_PROTO"),
            ("NCCL_TUNER_PLUGIN=x.so", "not modelled"),
            ("NCCL_ALGO=Rings", "known: tree, ring"),
            ("NCCL_ALGO=ring;tree", "names no operation"),
            ("NCCL_ALGO=gather:ring", "unknown operation"),
            ("NCCL_MAX_NCHANNELS=many", "whole number"),
            ("NCCL_ALGO", "NCCL_ALGO=VALUE"),
            ("nccl_algo=Ring", 'did you mean "NCCL_ALGO"'),
            ("NCLL_ALGO=Ring", 'did you mean "NCCL_ALGO"'),
            ("NCCL_P2P_DISABEL=1", 'did you mean "NCCL_P2P_DISABLE"'),
            ("NCCL_NVLS_ENABLE=banana", "NCCL_NVLS_ENABLE=0, 1 or 2"),
            ("NCCL_BUFFSIZE=0", "no size"),
            ("NCCL_BUFFSIZE=-1", "no size"),
            ("NCCL_LL_BUFFSIZE=1000000000000", "too many"),
        ],
    )
    def test_bad_variables(self, word: str, hint: str) -> None:
        with pytest.raises(InputError, match=hint):
            read_environment([word])

    def test_a_name_with_a_blank_is_refused(self) -> None:
        with pytest.raises(InputError, match='did you mean "NCCL_ALGO"'):
            read_environment({"NCCL_ALGO ": "Ring"})

    def test_all_faults_at_once(self) -> None:
        with pytest.raises(InputError) as caught:
            read_environment(["NCCL_ALGOS=ring", "NCCL_MAX_CTAS=x", "NCCL_PROTO=LL256"])
        assert len(caught.value.faults) == 3

    def test_harmless_variables_and_others_warn(self) -> None:
        environment = read_environment({"NCCL_DEBUG": "INFO", "NCCL_IB_TC": "106", "PATH": "/bin"})
        assert len(environment.warnings) == 3
        assert environment.warnings[2] == "PATH is no variable of NCCL or RCCL and is ignored"

    def test_variables_of_other_programs_are_no_misspellings(self) -> None:
        names = ("CUDA_VISIBLE_DEVICES", "HSA_NO_SCRATCH_RECLAIM", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "UCX_TLS")
        assert len(read_environment(dict.fromkeys(names, "0")).warnings) == len(names)

    def test_numbers_may_be_numbers(self) -> None:
        assert read_environment({"NCCL_MAX_NCHANNELS": 4}).number("NCCL_MAX_NCHANNELS", 0) == 4

    @pytest.mark.parametrize("name", ["NCCL_SHM_DISABLE"])
    def test_the_default_of_what_is_not_modelled_is_taken(self, name: str) -> None:
        assert read_environment({name: "0"}).warnings == ()
        with pytest.raises(InputError, match="not modelled"):
            read_environment({name: "1"})

    @pytest.mark.parametrize(
        ("word", "taken"),
        [
            ("NCCL_MAX_NCHANNELS=0", "taken as 1,"),
            ("NCCL_MAX_NCHANNELS=-4", "taken as 1,"),
            ("NCCL_MAX_CTAS=-4", "too low and is ignored"),
            ("NCCL_MIN_CTAS=0", "too low and is ignored"),
            ("NCCL_NTHREADS=100", "no multiple of 32 and is taken as 512"),
            ("NCCL_NTHREADS=1024", "taken as 512"),
            ("NCCL_LL128_NTHREADS=64", "taken as 160"),
            ("NCCL_NTHREADS=256", ""),
            ("NCCL_MAX_NCHANNELS=-2", ""),
        ],
    )
    def test_what_the_library_makes_of_a_number_is_told(self, word: str, taken: str) -> None:
        warnings = read_environment([word]).warnings
        assert len(warnings) == bool(taken)
        assert taken in "".join(warnings)

    def test_ctas_that_are_too_low_change_nothing(self) -> None:
        assert "NCCL_MAX_CTAS" not in read_environment({"NCCL_MAX_CTAS": "0"}).numbers

    def test_everything_is_excluded(self) -> None:
        environment = read_environment({"NCCL_PROTO": "^LL,LL128,Simple"})
        with pytest.raises(InputError, match="NCCL_PROTO, which excludes every name, leaves no algorithm"):
            choose(Call("broadcast", 4, MIB), H100, environment=environment)

    def test_old_names_and_hexadecimal(self) -> None:
        environment = read_environment({"NCCL_MAX_NRINGS": "0x8"})
        assert environment.number("NCCL_MAX_NCHANNELS", 0) == 8

    def test_nothing_left(self) -> None:
        with pytest.raises(InputError, match="leaves no algorithm for broadcast"):
            choose(Call("broadcast", 4, MIB), H100, environment=read_environment({"NCCL_ALGO": "Tree"}))

    def test_ctas_bound_nvls_but_channels_do_not(self) -> None:
        system = replace(H100, nvls=True)
        call = Call("all_reduce", 8, 256 * MIB)
        channels = [
            choose(call, system, environment=read_environment([word])).channels
            for word in ("NCCL_MAX_NCHANNELS=4", "NCCL_MAX_CTAS=8", "NCCL_NVLS_NCHANNELS=12")
        ]
        assert channels == [16, 8, 12]

    def test_threads(self) -> None:
        def threads(text: str) -> int:
            environment = read_environment({"NCCL_NTHREADS": text, "NCCL_PROTO": "LL"})
            return choose(Call("all_reduce", 4, 64 * MIB), H100, environment=environment).threads

        assert [threads(text) for text in ("256", "32", "1024", "100")] == [256, 96, 512, 512]


class TestRccl:
    @pytest.fixture(scope="class")
    @staticmethod
    def mi300x() -> System:
        return system_of(load_topology("mi300x_ubb8"))

    def choice(self, system: System, op: str, size: int, version: str, **variables: str) -> Choice:
        return choose(Call(op, system_ranks(system), size), system, version, read_environment(variables))

    def test_correction_vectors_have_27_entries(self) -> None:
        for model in MODELS.values():
            for vector in (*model.tree, *model.ring):
                assert len(correction(vector)) == 27, vector

    def test_mi300x_has_28_rings_and_56_channels(self, mi300x: System) -> None:
        choice = self.choice(mi300x, "all_reduce", 256 * MIB, "rccl-2.27")
        assert (choice.search_channels, choice.channel_GBps, choice.channels) == (28, 12.0, 56)
        assert choice.doubts

    def test_msccl_covers_small_all_reduces_of_older_versions(self, mi300x: System) -> None:
        found = [self.choice(mi300x, "all_reduce", size, "rccl-2.22") for size in (64 * KIB, 256 * KIB, MIB, 32 * MIB)]
        assert [(one.algo, one.proto, one.channels) for one in found] == [
            ("all_pairs", "LL", 4),
            ("all_pairs", "LL", 8),
            ("all_pairs", "Simple", 8),
            ("ring", "Simple", 56),
        ]
        off = self.choice(mi300x, "all_reduce", 64 * KIB, "rccl-2.22", RCCL_MSCCL_ENABLE="0")
        forced = self.choice(mi300x, "all_reduce", 64 * KIB, "rccl-2.22", NCCL_PROTO="Simple")
        assert {off.algo, forced.algo} == {"ring"}

    @pytest.mark.parametrize(
        ("size", "launch", "version", "backend", "without"),
        [
            (32, "graph", "rccl-2.22", "MSCCLPP", "RING"),
            (MIB, "graph", "rccl-2.22", "MSCCLPP", "MSCCL"),
            (16, "graph", "rccl-2.22", "RING", "RING"),
            (MIB + 32, "graph", "rccl-2.22", "RING", "RING"),
            (MIB, "stream", "rccl-2.22", "MSCCL", "MSCCL"),
            (MIB, "graph", "rccl-2.28", "RING", "RING"),
        ],
    )
    def test_mscclpp_runs_in_graphs(
        self, mi300x: System, size: int, launch: str, version: str, backend: str, without: str
    ) -> None:
        """Up to 1 MiB, multiples of 32 bytes (RCCL src/init.cc)."""
        call, off = Call("all_reduce", 8, size, launch=launch), read_environment({"RCCL_MSCCLPP_ENABLE": "0"})
        assert choose(call, mi300x, version, read_environment()).library_algo == backend
        assert choose(call, mi300x, version, off).library_algo == without

    def test_msccl_wants_a_chunk_for_each_rank_and_channel(self, mi300x: System) -> None:
        found = [
            self.choice(mi300x, "all_reduce", size, "rccl-2.22").algo for size in (512, KIB, KIB + 4, 64 * KIB - 4)
        ]
        assert found == ["ring", "all_pairs", "ring", "ring"]
        peers = [self.choice(mi300x, "all_to_all", size, "rccl-2.22") for size in (4 * MIB, 16 * MIB, 64 * MIB)]
        assert [(one.algo, one.channels, one.peer_channels) for one in peers] == [
            ("direct", 32, 8),
            ("direct", 8, None),
            ("nccl_p2p", 32, None),
        ]

    def test_direct_access_covers_newer_versions(self, mi300x: System) -> None:
        found = [self.choice(mi300x, "all_reduce", size, "rccl-2.30").library_algo for size in (8 * MIB, 16 * MIB)]
        assert found == ["DDA", "RING"]

    def test_warp_speed_can_start_elsewhere(self) -> None:
        system = system_of(load_topology("mi355x_ubb8"))
        found = self.choice(system, "all_reduce", 64 * MIB, "rccl-2.28", RCCL_WARP_SPEED_AR_THRESHOLD=str(128 * MIB))
        assert found.channels == 56

    def test_two_and_four_ranks(self, mi300x: System) -> None:
        channels = [choose(Call("all_reduce", n, 256 * MIB), mi300x, "rccl-2.28").communicator_channels for n in (2, 4)]
        assert channels == [32, 24]

    def test_messages_of_a_mesh(self, mi300x: System) -> None:
        choice = self.choice(mi300x, "all_to_all", 256 * MIB, "rccl-2.28")
        shape = choice.point_to_point
        assert shape is not None
        assert (choice.algo, shape.channels, shape.channels_per_peer, shape.parts) == ("nccl_p2p", 64, 4, 4)

    def test_gathers_of_little_data_take_ll(self, mi300x: System) -> None:
        scatter = self.choice(mi300x, "reduce_scatter", 8 * 352128, "rccl-2.27")
        assert scatter.proto == "LL"
        assert self.choice(mi300x, "reduce_scatter", 8 * 352256, "rccl-2.27").proto == "Simple"

    def test_mi250x_chooses_from_its_own_tables(self) -> None:
        system = system_of(load_topology("mi250x_8oam"))
        choice = choose(Call("all_reduce", 16, 256 * MIB), system, "rccl-2.22")
        assert (choice.algo, choice.proto) == ("ring", "Simple")

    def test_several_boards_say_that_no_log_was_compared(self, mi300x: System) -> None:
        for op in ("all_reduce", "all_to_all"):
            assert "no debug line" in " ".join(choose(Call(op, 16, MIB, n_nodes=2), mi300x, "rccl-2.28").doubts)


def system_ranks(system: System) -> int:
    return len(system.links)


@pytest.mark.parametrize(("topology", "gave_up"), [("pcie_gen5_8gpu", True), ("hgx_h100", False)])
def test_the_reason_says_where_estimates_are_no_times(topology, gave_up):
    """Where no ring fits any rate of its list, NCCL goes on with one channel of 0.1 GB/s: 64 MiB then take a second."""
    found = choose(Call("all_reduce", 8, 2**26), system_of(load_topology(topology)), "nccl-2.28")
    assert ("reckons with 0.1 GB/s: estimates that rank, no times" in found.why) == gave_up
    assert (found.candidates[0].predicted_s > 1) == gave_up
