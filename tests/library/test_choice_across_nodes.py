"""The library's choice over several nodes: channels, candidates, protocol by size, relays, and what it leads to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collsim.collectives import NodeLayout, ScheduleRequest, algorithm
from collsim.core.errors import UnsupportedError
from collsim.core.operations import operation
from collsim.library import Call, Choice, Graph, System, choose, load_library, load_profile, read_environment, system_of
from collsim.library.nccl.cluster_graphs import nvls_across, ring_across, tree_across
from collsim.library.nccl.graphs import nccl_graphs
from collsim.library.nccl.versions import nccl_constants
from collsim.library.rccl import across
from collsim.schedule import verify
from collsim.simulation.request.request import ask
from collsim.simulation.runs import layout_of, prepare
from collsim.simulation.selection import library_choice, request_of
from collsim.simulation.simulate import simulate
from collsim.topology import Topology, load_topology

KIB, MIB = 2**10, 2**20


@pytest.fixture(scope="module")
def h100() -> System:
    return replace(system_of(load_topology("hgx_h100")), cpu_vendor="intel")


@pytest.fixture(scope="module")
def mi300x() -> System:
    return system_of(load_topology("mi300x_ubb8"))


@pytest.fixture(scope="module")
def mi355x() -> System:
    return system_of(load_topology("mi355x_ubb8"))


def call(op: str, nodes: int, g: int, size: int, **more: str) -> Call:
    n = nodes * g
    return Call(op, n, size // (16 * n) * 16 * n if operation(op).blocked else size, n_nodes=nodes, **more)


class TestNccl:
    """Eight H100 with 400 Gb/s each: the adapters carry 48 GB/s behind PCIe 5."""

    @pytest.mark.parametrize(
        ("distance", "library", "host", "offered"),
        [
            ("", "nccl-2.23", "amd", True), ("PIX", "nccl-2.23", "amd", True), ("PXB", "nccl-2.23", "amd", True),
            ("PHB", "nccl-2.23", "amd", False), ("SYS", "nccl-2.30", "amd", False),
            ("PHB", "nccl-2.23", "arm", False), ("PHB", "nccl-2.30", "arm", True),
        ],
    )  # fmt: skip
    def test_ll128_wants_adapters_beside_the_gpu(
        self, h100: System, distance: str, library: str, host: str, offered: bool
    ) -> None:
        """``typeInter <= PATH_PXB``, later also over C2C, unless NCCL_PROTO is set (src/graph/tuning.cc)."""
        system = replace(h100, nic_distance=distance, cpu_vendor=host)
        asked = call("all_reduce", 2, 8, MIB)
        assert ("LL128" in {row.proto for row in choose(asked, system, library).candidates}) == offered
        given = read_environment({"NCCL_PROTO": "LL128,Simple"})
        assert "LL128" in {row.proto for row in choose(asked, system, library, given).candidates}
        assert "LL128" in {row.proto for row in choose(call("all_reduce", 1, 8, MIB), system, library).candidates}

    @pytest.mark.parametrize(("nodes", "last_lines", "first_chunks"), [(2, MIB, 2 * MIB), (8, 256 * KIB, MIB)])
    def test_alps_leaves_lines_where_its_logs_fall(self, nodes: int, last_lines: int, first_chunks: int) -> None:
        """921 us at 1 MiB and 129 at 2 MiB on two nodes, 518 at 256 KiB and 256 at 1 MiB on eight (tools/data/alps)."""
        system = system_of(load_topology("alps"))
        protos = [
            choose(call("all_reduce", nodes, 4, size), system, "nccl-2.23").proto for size in (last_lines, first_chunks)
        ]
        assert protos == ["LL", "Simple"]

    @pytest.mark.parametrize(("algo", "proto"), [("tree", "LL"), ("tree", "Simple"), ("nvls_tree", "Simple")])
    def test_trees_go_up_and_down_once_more_for_twice_the_nodes(self, h100: System, algo: str, proto: str) -> None:
        """``2 * log2i(nNodes) * interLat`` in src/graph/tuning.cc."""
        hop_us = nccl_constants((2, 28)).net_us[algo][("LL", "LL128", "Simple").index(proto)]
        latency_s = {}
        for nodes in (4, 8, 16):
            rows = choose(call("all_reduce", nodes, 8, MIB), h100, "nccl-2.28").candidates
            latency_s[nodes] = next(row.latency_s for row in rows if (row.algo, row.proto) == (algo, proto))
        assert latency_s[8] - latency_s[4] == pytest.approx(2 * hop_us * 1e-6)
        assert latency_s[16] - latency_s[8] == pytest.approx(2 * hop_us * 1e-6)

    @pytest.mark.parametrize(("g", "channels", "rate"), [(1, 2, 24), (2, 4, 24), (4, 8, 24), (8, 8, 48)])
    def test_rings(self, h100: System, g: int, channels: int, rate: float) -> None:
        # One channel per adapter at 48 GB/s; up to four of them are doubled at half the rate. Twice as many run,
        # 4, 8, 16 and 16, which are the channels that all-to-alls of ten nodes pointed to.
        ring = ring_across(call("all_reduce", 10, g, MIB), h100)
        assert (ring.channels, ring.intra_GBps, ring.inter_GBps) == (channels, rate, rate)
        choice = choose(call("all_to_all", 10, g, 2**30), h100, "nccl-2.28")
        assert choice.point_to_point is not None
        assert choice.point_to_point.channels == 2 * channels
        assert choice.point_to_point.step_bytes == 128 * KIB

    def test_rings_of_slower_adapters(self) -> None:
        a100 = System("ampere", True, 20.0, links_per_gpu=12, nic_GBps=25.0)
        ring = ring_across(call("all_reduce", 4, 8, MIB), a100)
        assert (ring.channels, ring.inter_GBps) == (8, 24.0)  # PCIe 4; below 25 GB/s nothing is doubled

    def test_trees_of_fast_links_are_faster_inside(self) -> None:
        b200 = System("blackwell", True, 40.1, links_per_gpu=18, nic_GBps=50.0)
        asked = call("all_reduce", 2, 8, MIB)
        ring = ring_across(asked, b200)
        assert (ring.channels, ring.inter_GBps) == (8, 48)
        tree = tree_across(asked, b200, ring)
        assert (tree.channels, tree.intra_GBps, tree.inter_GBps) == (8, 96, 48)

    def test_heads_leave_room_for_their_own_traffic(self, h100: System) -> None:
        assert nvls_across(call("all_reduce", 2, 8, MIB), h100) == Graph(8, 40.0, 48.0)
        rack = system_of(load_topology("gb200_nvl72"))
        assert nvls_across(call("all_reduce", 2, 72, MIB), rack).channels == 32

    def test_small_calls_take_trees_and_large_ones_rings_or_nvls_trees(self, h100: System) -> None:
        def algos(g: int, *words: str) -> list[str]:
            environment = read_environment(words)
            return [
                choose(call("all_reduce", 10, g, size), h100, "nccl-2.28", environment).algo
                for size in (8 * KIB, 16 * MIB, 8 * 2**30)
            ]

        assert algos(8) == ["tree", "nvls_tree", "ring"]
        assert algos(8, "NCCL_NVLS_ENABLE=0") == ["tree", "tree", "ring"]
        assert algos(1) == ["tree", "ring", "ring"]

    def test_pat_needs_one_rank_per_node(self, h100: System) -> None:
        small = [choose(call("all_gather", 16 // g, g, 64 * KIB), h100, "nccl-2.28").algo for g in (1, 2)]
        assert small == ["pat", "ring"]
        averages = call("reduce_scatter", 16, 1, 64 * KIB, redop="avg")
        assert choose(replace(averages, redop="sum"), h100, "nccl-2.28").algo == "pat"
        assert choose(averages, h100, "nccl-2.28").algo == "ring"

    def test_collnet_runs_where_it_is_enabled(self, h100: System) -> None:
        asked = call("all_reduce", 8, 8, 64 * MIB)
        rows = {row.algo for row in choose(asked, h100, "nccl-2.28").candidates}
        assert not rows & {"collnet_direct", "collnet_chain", "nvls"}
        on = read_environment(["NCCL_COLLNET_ENABLE=1"])
        assert {"collnet_direct", "collnet_chain", "nvls"} <= {
            row.algo for row in choose(asked, h100, "nccl-2.28", on).candidates
        }
        chosen = [
            choose(asked, h100, "nccl-2.28", read_environment(["NCCL_COLLNET_ENABLE=1", f"NCCL_ALGO={name}"])).algo
            for name in ("CollnetDirect", "CollnetChain", "NVLS")
        ]
        assert chosen == ["collnet_direct", "collnet_chain", "nvls_sharp"]

    def test_collnet_deals_bytes_evenly(self, h100: System) -> None:
        """It has no cells of 32 KiB: the shares of 1 MiB differ by an element at most."""
        on = read_environment(["NCCL_COLLNET_ENABLE=1", "NCCL_ALGO=CollnetDirect"])
        shares = choose(call("all_reduce", 4, 8, MIB), h100, "nccl-2.28", on).shares_bytes
        assert len(shares) > 1
        assert sum(shares) == MIB
        assert max(shares) - min(shares) <= 4

    def test_latency_of_sharp_does_not_grow_with_nodes(self, h100: System) -> None:
        def latency(nodes: int, algo: str) -> float:
            on = read_environment(["NCCL_COLLNET_ENABLE=1"])
            rows = choose(call("all_reduce", nodes, 8, MIB), h100, "nccl-2.28", on).candidates
            return next(row.latency_s for row in rows if row.algo == algo and row.proto == "Simple")

        assert latency(4, "collnet_chain") == latency(128, "collnet_chain")
        hop = 2 * 14e-6  # one level of the tree more, up and down
        assert latency(8, "tree") - latency(4, "tree") == pytest.approx(hop)
        assert latency(8, "ring") - latency(4, "ring") > 4 * hop

    def test_messages_take_relays_unless_told_otherwise(self, h100: System) -> None:
        def algo(nodes: int, g: int, *words: str) -> str:
            return choose(call("all_to_all", nodes, g, 64 * MIB), h100, "nccl-2.28", read_environment(words)).algo

        assert (algo(2, 8), algo(8, 1), algo(1, 8)) == ("nccl_pxn", "nccl_p2p", "nccl_p2p")
        assert algo(2, 8, "NCCL_PXN_DISABLE=1") == "nccl_p2p"
        rooted = [choose(call(op, 2, 8, 64 * MIB), h100, "nccl-2.28").algo for op in ("gather", "scatter")]
        assert rooted == ["nccl_pxn", "nccl_pxn"]

    def test_ports_of_one_card_are_one_adapter(self) -> None:
        """NCCL_IB_MERGE_NICS, on by default (NCCL src/transport/net_ib.cc); two cards of full rate stay two."""

        def algo(node: str, per_gpu: int, rate: str, library: str = "nccl-2.28", *words: str) -> tuple[str, int]:
            told = {"nic.per_gpu": str(per_gpu), "nic.bandwidth": rate, "scale_out.nodes": "2"}
            system = system_of(load_topology(node, told))
            choice = choose(call("all_reduce", 2, 8, 1024 * MIB), system, library, read_environment(words))
            return choice.algo, choice.search_channels

        one = algo("hgx_h100", 1, "400 Gb/s")
        assert one == algo("hgx_h100", 2, "200 Gb/s") == ("nvls_tree", 8)
        assert algo("hgx_h100", 2, "200 Gb/s", "nccl-2.28", "NCCL_IB_MERGE_NICS=0") == ("ring", 16)
        assert algo("hgx_h100", 2, "200 Gb/s", "nccl-2.18")[0] != "nvls_tree"
        two = algo("hgx_b200", 2, "400 Gb/s", "nccl-2.28", "NCCL_ALGO=ring")
        assert two[1] > algo("hgx_b200", 1, "400 Gb/s", "nccl-2.28", "NCCL_ALGO=ring")[1]
        # 16 x 100 Gb/s, as OCI's BM.GPU.B4.8: 10.9 ms measured for 1 GiB, which the ring takes and the tree does not
        assert algo("dgx_a100", 1, "200 Gb/s") == algo("dgx_a100", 2, "100 Gb/s") == ("ring", 8)

    def test_adapters_of_efa_are_one(self) -> None:
        told = {"nic.per_gpu": "4", "nic.bandwidth": "100 Gb/s", "nic.model": "EFA", "scale_out.nodes": "2"}
        system = system_of(load_topology("hgx_h100", told))
        assert (system.nics_per_gpu, system.nic_GBps) == (1, 50.0)

    def test_adapters_that_gpus_share_count_once(self) -> None:
        shared = {"nic.shared_by": "2", "nic.bandwidth": "200 Gb/s", "scale_out.nodes": "2"}
        system = system_of(load_topology("dgx_a100", shared))  # whose own file gives every GPU an adapter
        assert (system.nics_per_gpu, system.nic_GBps) == (0.5, 12.5)
        graph = ring_across(call("all_reduce", 2, 8, MIB), system)
        assert graph.channels * graph.inter_GBps <= 4 * 25

    def test_the_ring_wins_where_two_gpus_share_an_adapter(self) -> None:
        found = simulate(load_topology("polaris"), "all_reduce", "1G", ranks=8, library="nccl-2.18").rows[0]
        assert found.algo == "ring"  # 52 ms on Polaris: 36 GB/s of bus bandwidth, on two nodes as on eight

    def test_the_host_is_that_of_the_file(self) -> None:
        amd, intel = ({"scale_out.nodes": "2", "cpu.model": model} for model in ("EPYC 7742", "Xeon 8380"))
        vendors = [system_of(load_topology("dgx_a100", told)).cpu_vendor for told in (amd, intel)]
        assert vendors == ["amd", "intel"]
        chosen = [
            simulate(load_topology("dgx_a100", told), "all_reduce", "256K", library="nccl-2.28").rows[0]
            for told in (amd, intel)
        ]
        assert [row.proto for row in chosen] == ["LL128", "LL"]  # LL is slower on hosts of AMD, as NCCL reckons

    def test_rounds_between_two_groups_share_channels(self, h100: System) -> None:
        choice = choose(call("all_to_all", 4, 8, 64 * KIB), h100, "nccl-2.28")
        assert choice.point_to_point is not None
        assert (choice.point_to_point.parts, choice.channels) == (1, 4)  # four groups of eight, one part each

    def test_messages_through_the_network_have_no_ll(self, h100: System) -> None:
        assert choose(call("all_to_all", 1, 8, 64 * KIB), h100, "nccl-2.28").proto == "LL"
        assert choose(call("all_to_all", 2, 8, 64 * KIB), h100, "nccl-2.28").proto == "Simple"

    def test_graphs_of_a_log_come_first(self, h100: System) -> None:
        known = replace(h100, graphs=(("ring", Graph(6, 40.0, 40.0)),))
        graphs = nccl_graphs(call("all_reduce", 4, 8, MIB), known)
        assert graphs["ring"].channels == graphs["tree"].channels == 6
        assert not any("counted from links" in doubt for doubt in choose(call("all_reduce", 4, 8, MIB), known).doubts)


class TestWhatLogsLeaveLlAt:
    """Sizes at which training logs of tools/data jump from LL to another protocol."""

    @pytest.mark.parametrize(
        ("topo", "library", "op", "nodes", "last", "first", "then"),
        [
            ("alps", "nccl-2.23", "all_reduce", 2, MIB, 2 * MIB, ("tree", "Simple")),
            ("alps", "nccl-2.23", "all_reduce", 4, MIB, 2 * MIB, ("tree", "Simple")),
            ("alps", "nccl-2.23", "all_reduce", 8, 512 * KIB, MIB, ("tree", "Simple")),
            ("polaris", "nccl-2.18", "all_reduce", 2, 128 * KIB, 256 * KIB, ("tree", "Simple")),
            ("polaris", "nccl-2.18", "all_gather", 2, 512 * KIB, MIB, ("ring", "Simple")),
        ],
    )  # fmt: skip
    def test_over_slingshot(
        self, topo: str, library: str, op: str, nodes: int, last: int, first: int, then: tuple[str, str]
    ) -> None:
        system, plain = system_of(load_topology(topo), range(4 * nodes)), read_environment({})
        before, after = (choose(call(op, nodes, 4, size), system, library, plain) for size in (last, first))
        assert before.proto == "LL"
        assert (after.algo, after.proto) == then


def test_trees_whose_ways_meet_at_one_gpu(h100: System) -> None:
    a100 = System("ampere", True, 20.0, links_per_gpu=12, nic_GBps=25.0)
    asked = (call("all_reduce", 2, 8, MIB), call("all_reduce", 2, 1, MIB))

    def one_parent(system: System, each: Call) -> bool:
        return tree_across(each, system, ring_across(each, system)).one_parent

    assert [one_parent(h100, each) for each in asked] == [True, True]
    assert [one_parent(replace(h100, nics_per_gpu=0.5), each) for each in asked] == [False, True]
    assert [one_parent(a100, each) for each in asked] == [False, True]


class TestRccl:
    def test_channels(self, mi300x: System, mi355x: System) -> None:
        def most(system: System, library: str) -> int:
            return choose(call("all_reduce", 2, 8, 2**30), system, library).communicator_channels

        assert most(mi300x, "rccl-2.27") == most(mi355x, "rccl-2.28") == 64
        assert most(mi355x, "rccl-2.30") == 48

    def test_channels_follow_the_protocol_that_the_size_decides(self, mi355x: System) -> None:
        # LL128 of 2 x 8 ranks: one line of 8 bytes per thread and channel; with LL it would be 8 bytes for each rank
        assert choose(Call("reduce", 16, 2**17, n_nodes=2), mi355x, "rccl-2.28").channels == 8

    @pytest.mark.parametrize(
        ("size", "proto"), [(256 * KIB, "LL"), (256 * KIB + 4096, "LL128"), (64 * MIB, "LL128"), (80 * MIB, "Simple")]
    )
    def test_sizes_decide_the_protocol(self, mi355x: System, size: int, proto: str) -> None:
        assert choose(call("all_reduce", 2, 8, size), mi355x, "rccl-2.28").proto == proto

    def test_more_boards_keep_ll128_longer(self, mi355x: System) -> None:
        assert choose(call("all_reduce", 4, 8, 200 * MIB), mi355x, "rccl-2.28").proto == "LL128"

    def test_a_named_protocol_is_left_alone(self, mi355x: System) -> None:
        simple = read_environment(["NCCL_PROTO=Simple"])
        assert choose(call("all_reduce", 2, 8, MIB), mi355x, "rccl-2.28", simple).proto == "Simple"

    def test_gathers_of_mi355x_take_channels_by_size(self, mi355x: System) -> None:
        channels = [choose(call("all_gather", 2, 8, 16 * block), mi355x, "rccl-2.27").communicator_channels
                    for block in (4 * KIB, 256 * KIB, 8 * MIB)]  # fmt: skip
        assert channels == [64, 64, 64]
        used = [len(choose(call("all_gather", 2, 8, 16 * block), mi355x, "rccl-2.27").shares_bytes)
                for block in (512 * KIB, 8 * MIB)]  # fmt: skip
        assert used == [32, 64]

    def test_relays_from_so_many_ranks_on(self, mi300x: System, mi355x: System) -> None:
        def relayed(system: System, nodes: int) -> bool:
            return choose(call("all_to_all", nodes, 8, 2**30), system, "rccl-2.28").algo == "nccl_pxn"

        assert [relayed(mi300x, nodes) for nodes in (2, 4, 8)] == [False, False, True]
        assert [relayed(mi355x, nodes) for nodes in (2, 4, 8)] == [False, True, True]

    def test_slots_grow_with_ranks(self, mi355x: System) -> None:
        def step(nodes: int) -> int:
            shape = choose(call("all_to_all", nodes, 8, 2**30), mi355x, "rccl-2.28").point_to_point
            assert shape is not None
            return shape.step_bytes

        assert [step(nodes) for nodes in (2, 4)] == [256 * KIB, 512 * KIB]

    def test_gathers_on_many_boards_are_hierarchical(self, mi300x: System) -> None:
        found = [choose(call("all_gather", nodes, 8, size), mi300x, "rccl-2.28").algo
                 for nodes, size in ((4, 16 * MIB), (8, 16 * MIB), (8, 64 * MIB), (16, 64 * MIB))]  # fmt: skip
        assert found == ["ring", "hierarchical", "ring", "hierarchical"]
        assert choose(call("all_gather", 8, 8, 16 * MIB), mi300x, "rccl-2.27").algo == "ring"

    @pytest.mark.parametrize(
        ("op", "nodes", "limit"),
        [
            *(
                ("all_gather", nodes, limit)
                for nodes, limit in ((4, 0), (8, 32), (15, 32), (16, 64), (31, 64), (32, 128))
            ),
            *(("reduce_scatter", nodes, limit) for nodes, limit in ((4, 0), (8, 64), (15, 64), (16, 128), (32, 128))),
        ],
    )
    def test_sizes_up_to_which_boards_are_passed_one_level_after_the_other(
        self, mi300x: System, op: str, nodes: int, limit: int
    ) -> None:
        """MiB of the whole, by the number of boards, in RCCL 2.28."""
        library = load_library("rccl-2.28")
        sizes = [max(limit, 16) * MIB, max(limit, 16) * MIB + 16 * 8 * nodes]
        found = [
            across.backend_of(replace(call(op, nodes, 8, MIB), size_bytes=size), mi300x, library) for size in sizes
        ]
        assert [(backend or ("none",))[0] for backend in found] == (["hierarchical", "none"] if limit else ["none"] * 2)

    @pytest.mark.parametrize(
        ("name", "op", "nodes", "limit"),
        [
            *(("mi300x", "all_gather", nodes, 4) for nodes in (2, 4, 7)),
            *(("mi355x", "all_gather", nodes, 2 * nodes) for nodes in (2, 4, 7)),
            *(("mi300x", "reduce_scatter", nodes, 0) for nodes in (2, 7)),
            *(("mi355x", "reduce_scatter", nodes, limit) for nodes, limit in ((2, 0), (3, 0), (4, 8), (7, 8))),
        ],
    )
    def test_sizes_up_to_which_all_peers_are_sent_to(
        self, mi300x: System, mi355x: System, name: str, op: str, nodes: int, limit: int
    ) -> None:
        """MiB of the whole, from RCCL 2.28 on; sums only where messages are relayed; only whole boards."""
        system = {"mi300x": mi300x, "mi355x": mi355x}[name]

        def backend(size: int, g: int = 8, library: str = "rccl-2.28") -> str:
            asked = replace(call(op, nodes, g, MIB), size_bytes=size)
            return (across.backend_of(asked, system, load_library(library)) or ("none",))[0]

        size = max(limit, 1) * MIB
        assert [backend(size), backend(size + 1)] == (["direct", "none"] if limit else ["none"] * 2)
        assert backend(KIB, library="rccl-2.27") == "none"
        assert backend(KIB, g=5) == "none"


@pytest.mark.parametrize("nodes", [2, 3, 8])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8"])
def test_every_choice_can_be_built(op: str, nodes: int, name: str) -> None:
    system = system_of(load_topology(name))
    for size in (64 * KIB, 16 * MIB):
        asked = call(op, nodes, 8, size)
        choice: Choice = choose(asked, system, "rccl-2.28" if system.is_amd else "nccl-2.28")
        request = ScheduleRequest(
            operation(op), asked.n_ranks, asked.size_bytes, 4, nodes=nodes, channels=min(choice.channels, 4),
            chunk_bytes=max(asked.size_bytes // 8, 1), layout=NodeLayout.blocks([8] * nodes),
        )  # fmt: skip
        verify(algorithm(op, choice.algo).build(request))


@pytest.fixture(scope="module")
def two_nodes() -> Topology:
    topology = load_topology("hgx_h100")
    nodes = np.arange(8) // 4
    coordinates = replace(topology.wiring.coordinates, kind="irregular", node=nodes, local=np.arange(8) % 4)
    return replace(topology, wiring=replace(topology.wiring, coordinates=coordinates))


class TestRuns:
    """Eight GPUs behind one switch that count as two nodes of four: choice and request follow the coordinates."""

    def test_requests_know_the_nodes(self, two_nodes: Topology) -> None:
        run = prepare(two_nodes, load_profile("ideal"), [0, 4, 1, 5])
        assert layout_of(run).nodes == ((0, 2), (1, 3))
        question = ask("all_reduce", "1M", "auto", library="nccl-2.28")
        request = request_of(operation("all_reduce"), MIB, run, question)
        assert request.nodes == 2
        assert sorted(request.rings[0].tolist()) == [0, 1, 2, 3]
        picked, asked, proto = library_choice(request, run, question)
        wanted = choose(Call("all_reduce", 4, MIB, n_nodes=2), system_of(two_nodes, [0, 4, 1, 5]), "nccl-2.28")
        assert (picked.name, proto, asked.channels) == (wanted.algo, wanted.proto, wanted.channels)
        verify(picked.build(asked))

    def test_uneven_nodes_have_no_choice(self, two_nodes: Topology) -> None:
        with pytest.raises(UnsupportedError, match="different numbers of ranks"):
            simulate(two_nodes, "all_reduce", "1M", ranks=5, library="nccl-2.28", profile="ideal")

    def test_all_shows_what_several_nodes_add(self, two_nodes: Topology) -> None:
        several = {row.algo for row in simulate(two_nodes, "all_reduce", "64K", algo="all", profile="ideal").rows}
        alone = {row.algo for row in simulate("hgx_h100", "all_reduce", "64K", algo="all", profile="ideal").rows}
        assert several - alone == {"hierarchical", "hierarchical_doubling"}

    def test_switches_for_some_ranks_wait_for_routes(self, two_nodes: Topology) -> None:
        with pytest.raises(UnsupportedError, match="switches that"):
            simulate(two_nodes, "all_reduce", "1M", algo="nvls_tree", profile="ideal")


@pytest.mark.parametrize(("topo", "channels"), [("mi355x_ubb8", 8), ("mi300x_ubb8", 8)])
def test_one_gpu_of_a_mesh(topo: str, channels: int) -> None:
    """A GPU that takes part alone in its domain needs no link there: the adapters decide, as behind switches."""
    system = system_of(load_topology(topo, scale_out={"nodes": 4}), [0, 8, 16, 24])
    assert (system.switched, system.links) == (False, ((0,),))
    library = "rccl-2.27" if system.is_amd else "nccl-2.28"
    for op in ("all_reduce", "all_to_all"):
        choice = choose(call(op, 4, 1, 2**30), system, library)
        assert (choice.algo, choice.channels) == ("ring" if op == "all_reduce" else "nccl_p2p", channels)
    for split in ("MOD 8", "AND 0x7"):
        (row,) = simulate(load_topology(topo, scale_out={"nodes": 2}), "all_reduce", "1M", split=split).rows
        assert (row.groups, row.ranks) == (8, 2)


def test_two_gpus_without_a_link_between_them_have_no_choice() -> None:
    with pytest.raises(UnsupportedError, match="PCIe"):
        system_of(load_topology("dgx1_v100"), [0, 5])


@pytest.mark.parametrize(
    ("library", "nodes", "rate"),
    [
        ("nccl-2.18", 2, 0.7 * 8 * 40),  # 0.70 n / (2 (n - 1)) of the links inside
        ("nccl-2.18", 4, 0.7 * 4 / 6 * 8 * 40),
        ("nccl-2.20", 2, 5 / 6 * 8 * 40),  # the slower of links inside and adapters, half of these from three nodes on
        ("nccl-2.22", 4, 5 / 6 * 8 * 24),
        ("nccl-2.26", 16, 5 / 6 * 8 * 24),
    ],
)
def test_bandwidth_of_nvls_trees_before_heads_had_efficiencies(library: str, nodes: int, rate: float) -> None:
    """NCCL src/graph/tuning.cc of 2.18.3, 2.20.3, 2.22.3 and 2.26, with heads of 40 GB/s inside and 48 outside."""
    system = System("hopper", True, 20.6, links_per_gpu=18, nvls=True, nic_GBps=50.0)
    rows = choose(call("all_reduce", nodes, 8, 256 * MIB), system, library).candidates
    found = next(row for row in rows if row.algo == "nvls_tree")
    assert found.bandwidth_Bps == pytest.approx(rate * 1e9)
