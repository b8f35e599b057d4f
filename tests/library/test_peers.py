"""Who reaches whose memory, and what those do that do not: by the rules of NCCL, and by what the wires then carry."""

from pathlib import Path

import networkx as nx
import pytest

import collsim
from collsim.core.errors import InputError
from collsim.library import load_profile, read_environment, system_of
from collsim.library.calls import Call
from collsim.library.choice import choose
from collsim.library.peers import peer_level
from collsim.topology import load_topology
from collsim.topology.peers import LEVELS, sockets, staged

SWITCHES = load_topology("pcie_gen5_8gpu")
CARDS = load_topology("rtx_pro_6000_8gpu")
MIB = 2**20


def level(topology, ranks, *words):
    return peer_level(topology, range(ranks), read_environment(words))


def _written(tmp_path, topology):
    path = tmp_path / "copy.yaml"
    path.write_text(topology.to_yaml("copy"))
    return path


def mine(tmp_path, *changes):
    """Return a machine like `rtx_pro_6000_8gpu` with parts of its file replaced."""
    text = CARDS.to_yaml("mine")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_topology(path)


class TestLevel:
    """NCCL src/graph/paths.cc, ncclTopoCheckP2p: not across sockets, but for pairs on AMD, unless the user says so."""

    def test_by_default(self):
        assert level(CARDS, 2) == level(CARDS, 8) == "PXB"  # a host of Intel
        assert [level(load_topology("l40s_8gpu"), n) for n in (2, 3, 8)] == ["SYS", "PXB", "PXB"]  # one of AMD

    def test_what_the_user_says_goes_before(self):
        for word in LEVELS:
            assert level(CARDS, 8, f"NCCL_P2P_LEVEL={word}") == word
        assert [level(CARDS, 8, f"NCCL_P2P_LEVEL={n}") for n in range(7)] == [
            "LOC",
            "PIX",
            "PXB",
            "PHB",
            "SYS",
            "SYS",
            "SYS",
        ]
        assert level(CARDS, 8, "NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=SYS") == "LOC"
        assert level(CARDS, 8, "NCCL_P2P_DISABLE=0") == "PXB"

    def test_cards_whose_driver_gives_no_access(self, tmp_path):
        card = mine(tmp_path, ("RTX PRO 6000 Blackwell Server Edition", "GeForce RTX 5090"))
        assert level(card, 8) == level(card, 8, "NCCL_P2P_LEVEL=SYS") == "NVL"

    def test_linked_gpus_are_asked_nothing(self):
        assert level(load_topology("hgx_h100"), 8, "NCCL_P2P_LEVEL=SYS") == ""
        assert level(load_topology("hgx_h100"), 8, "NCCL_P2P_DISABLE=1") == "LOC"

    def test_an_unknown_level(self):
        with pytest.raises(InputError, match='unknown level "PBH"'):
            read_environment(["NCCL_P2P_LEVEL=PBH"])


class TestWires:
    def way(self, topology, word, src, dst):
        """Return the nodes between two GPUs, by the routes of a run."""
        from collsim.fabric.fabric import build_fabric
        from collsim.fabric.routing import find_routes

        seen = staged(topology, word)
        routes = find_routes(build_fabric(seen))
        route = src * seen.n_gpus + dst
        links = routes.link[routes.ptr[route] : routes.ptr[route + 1]]
        into = {int(seen.wiring.link_src[link]): int(seen.wiring.link_dst[link]) for link in links}
        nodes, here = [], into[src]
        while here != dst:
            nodes.append(seen.wiring.node_names[here])
            here = into[here]
        return nodes

    def test_peers_behind_a_switch(self):
        assert self.way(SWITCHES, "PXB", 0, 1) == ["pcie0"]
        assert self.way(SWITCHES, "LOC", 0, 1) == ["pcie0", "cpu0", "cpu0.memory", "cpu0.out", "pcie0.out"]

    def test_peers_of_a_socket(self):
        assert self.way(SWITCHES, "PHB", 0, 2) == ["pcie0", "cpu0", "cpu0.out", "pcie1"]
        assert self.way(SWITCHES, "PXB", 0, 2) == ["pcie0", "cpu0", "cpu0.memory", "cpu0.out", "pcie1"]

    def test_peers_of_two_sockets_meet_in_the_memory_of_the_receiver(self):
        assert self.way(SWITCHES, "SYS", 0, 4) == ["pcie0", "cpu0", "cpu1", "pcie2"]
        assert self.way(SWITCHES, "PHB", 0, 4) == ["pcie0", "cpu0", "cpu1.memory", "cpu1.out", "pcie2"]

    def test_a_bridge_serves_its_pair_only(self, tmp_path):
        bridge = "links:\n  - {a: gpu0, b: gpu1, bandwidth: 300 GB/s}\n"
        pair = mine(tmp_path, ("links:\n", bridge))
        assert self.way(pair, "PXB", 0, 1) == []
        assert self.way(pair, "PXB", 0, 2) == ["cpu0", "cpu0.memory", "cpu0.out"]
        assert self.way(pair, "LOC", 0, 1) == ["cpu0", "cpu0.memory", "cpu0.out"]

    def test_every_byte_crosses_the_memory_twice(self):
        """Eight cards, four on a socket: each socket's memory takes what its four receive, in and out."""
        wiring = staged(CARDS, "PXB").wiring
        into = [link for link in range(wiring.n_links) if wiring.link_name(link) == "cpu0->cpu0.memory"]
        assert wiring.link_bandwidth_Bps[into[0]] == pytest.approx(409.6e9 / 2)
        slow = load_topology("rtx_pro_6000_8gpu", {"cpu.memory_bandwidth": "40 GB/s"})
        row = collsim.simulate(slow, "all_gather", "64M", algo="ring").rows[0]
        assert row.time_s >= 4 * (7 / 8 * 64 * MIB) / 20e9  # four receive 7/8 of all through half of 40 GB/s
        assert ".memory" in row.bottleneck[0].link
        direct = collsim.simulate(
            slow, "all_gather", "64M", library="nccl-2.29", environment={"NCCL_P2P_LEVEL": "SYS"}
        ).rows[0]
        assert direct.time_s < row.time_s / 2

    def test_kernels_read_the_memory_of_some_hosts_slowly(self):
        """What a GPU reads binds each rank, with lines that carry flags twice; nothing where peers are reached."""
        slow = load_topology("rtx_pro_6000_8gpu", {"cpu.read_rate": "2 GB/s"})
        reads_s = 7 / 8 * 64 * MIB / 2e9
        by = {
            proto: collsim.simulate(slow, "all_gather", "64M", algo="ring", proto=proto).rows[0].time_s
            for proto in ("LL", "Simple")
        }
        assert by["Simple"] == pytest.approx(reads_s, rel=0.1)
        assert by["LL"] == pytest.approx(2 * reads_s, rel=0.1)
        direct, usual = (
            collsim.simulate(card, "all_gather", "64M", environment={"NCCL_P2P_LEVEL": "SYS"}).rows[0].time_s
            for card in (slow, CARDS)
        )
        assert direct == usual

    def test_a_switch_reads_for_all_gpus_below_it(self):
        """Two GPUs on each switch: together they read twice as fast as one."""
        wiring = staged(load_topology("pcie_gen5_8gpu", {"cpu.read_rate": "2 GB/s"}), "PXB").wiring
        rates = {
            wiring.link_name(n): wiring.link_bandwidth_Bps[n] * wiring.link_efficiency[n] for n in range(wiring.n_links)
        }
        assert rates["cpu0.out->pcie0"] == pytest.approx(4e9)
        assert rates["pcie0->gpu0"] > 50e9

    def test_messages_to_all_are_bound_between_sockets_and_a_ring_is_not(self):
        """Four send four blocks each across, at 40 GB/s together; of a ring one flow crosses."""
        rows = {op: collsim.simulate(CARDS, op, "512M").rows[0] for op in ("all_to_all", "all_gather")}
        assert rows["all_to_all"].time_s == pytest.approx(16 * 64 * MIB / 40e9, rel=0.03)
        assert "cpu" in rows["all_to_all"].bottleneck[0].link
        assert rows["all_gather"].time_s > 1.2 * 7 * 64 * MIB / 40e9

    def test_sockets(self):
        assert [SWITCHES.wiring.node_names[node] for node in sockets(SWITCHES.wiring, [0, 7])] == ["cpu0", "cpu1"]
        assert sockets(load_topology("hgx_h100").wiring, [0]) == [-1]


class TestChoice:
    """NCCL src/graph/search.cc and tuning.cc."""

    @pytest.mark.parametrize(
        ("topo", "ranks", "channels", "GBps"),
        [
            ("l40s_8gpu", 2, 4, 12.0),  # a port of 24: two rings of 12, each twice
            ("l40s_8gpu", 8, 2, 15.0),  # 16 between sockets of AMD: one of 15
            ("rtx_pro_6000_8gpu", 2, 4, 24.0),  # a port of 48: two of 24
            ("rtx_pro_6000_8gpu", 8, 2, 20.0),  # 22 between sockets of Intel: one of 20
        ],
    )
    def test_channels(self, topo, ranks, channels, GBps):
        system = system_of(load_topology(topo), list(range(ranks)))
        choice = choose(Call("all_reduce", ranks, 64 * MIB), system, "nccl-2.28")
        assert (choice.communicator_channels, choice.channel_GBps) == (channels, GBps)

    def test_no_rate_fits_between_old_sockets(self, tmp_path):
        """Blackwell's list ends at 18 GB/s: behind 16 the search gives up and keeps one channel."""
        system = system_of(mine(tmp_path, ("Intel Xeon 6", "AMD EPYC 9005")))
        choice = choose(Call("all_reduce", 8, 64 * MIB), system, "nccl-2.28")
        assert (choice.communicator_channels, choice.channel_GBps) == (2, 0.1)

    def test_no_lines_of_128_bytes(self):
        system = system_of(CARDS)
        for size in (4096, MIB, 64 * MIB):
            choice = choose(Call("all_reduce", 8, size), system, "nccl-2.28")
            assert {row.proto for row in choice.candidates} == {"LL", "Simple"}

    def test_slots_of_messages(self):
        choice = choose(Call("all_to_all", 8, 64 * MIB), system_of(CARDS), "nccl-2.28")
        assert (choice.point_to_point.step_bytes, choice.point_to_point.channels_per_peer) == (128 * 1024, 2)


class TestHeader:
    def test_it_says_how_gpus_exchange(self):
        result = collsim.simulate("l40s_8gpu", "all_reduce", "1M", ranks=[2, 8])
        assert result.topology["peers"].startswith("2 ranks: all GPUs reach each other's memory (P2P)")
        assert "8 ranks: GPUs of one tree of PCIe switches" in result.topology["peers"]
        assert collsim.simulate("hgx_h100", "all_reduce", "1M").topology["peers"] is None

    def test_what_was_fitted_to_another_way_is_not_calibrated(self):
        pair, eight = (collsim.simulate("l40s_8gpu", "all_reduce", "1M", ranks=n) for n in (2, 8))
        assert load_profile("l40s_8gpu").peers == ("SYS",)
        assert (pair.profile["calibrated"], eight.profile["calibrated"]) == (True, False)
        assert any("these exchange in another way" in text for text in eight.warnings)
        assert eight.rows[0].time_lo_s is None

    def test_a_variable_that_changes_the_way_is_not_said_to_do_nothing(self):
        def warned(**environment):
            result = collsim.simulate("rtx_pro_6000_8gpu", "all_reduce", "1M", environment=environment)
            return any("changes nothing here" in text for text in result.warnings)

        assert not warned(NCCL_P2P_LEVEL="SYS")
        assert warned(NCCL_P2P_LEVEL="PXB")

    def test_gpus_that_nobody_names_are_taken_for_cards_with_such_ports(self):
        assert "Blackwell is assumed" in " ".join(system_of(SWITCHES).doubts)


def test_a_copy_as_a_file_keeps_host_and_memory(tmp_path):
    assert load_topology(_written(tmp_path, load_topology("l40s_8gpu"))).fact("cpu.read_rate").value == 1.9e9
    copy = mine(tmp_path)
    assert copy.labels["cpu.model"] == "Intel Xeon 6"
    assert copy.fact("cpu.memory_bandwidth").value == 409.6e9


def test_cards_without_access_reach_what_a_user_measured(tmp_path):
    """Eight GeForce cards over PCIe 5, four on a socket: busbw 35 GB/s with 4, 28 with 8, all-reduce of 8 GiB."""
    card = mine(tmp_path, ("RTX PRO 6000 Blackwell Server Edition", "GeForce RTX 5090"))
    found = collsim.simulate(card, "all_reduce", "8G", ranks=[4, 8])
    assert [row.busbw_Bps / 1e9 for row in found] == pytest.approx([35, 28], rel=0.25)
    assert not found.profile["calibrated"]
    assert any("no constants were fitted to this machine" in text for text in found.warnings)


@pytest.mark.parametrize(("size", "measured_us"), [(8, 6.21), (1024, 7.01), (4096, 7.62)])
def test_tiny_calls_of_a_healthy_pair_of_cards(size, measured_us):
    """Two RTX 4070 Ti SUPER (nccl-tests with an open driver, all-reduce); within the tolerance of `validate`."""
    row = collsim.simulate("pcie_gen5_8gpu", "all_reduce", size, ranks=2).rows[0]
    assert row.time_s * 1e6 == pytest.approx(measured_us, rel=0.25)


def test_bridges_in_a_box_of_pcie_say_that_no_channel_rate_was_fitted_to_them():
    file = Path(__file__).parents[2] / "examples/bridged_box.yaml"
    found = collsim.simulate(file, "send_recv", "64M", ranks=2)
    (told,) = [each for each in found.warnings if "bridges" in each]
    assert told.startswith("gpu0-gpu1, gpu2-gpu3: ")
    assert "channel_rate" in found.rows[0].limited_by
    assert "channel_rate" in told
    for topo, asked in ((file, {"profile": "ideal"}), ("pcie_gen5_8gpu", {}), ("hgx_h100", {})):
        warnings = collsim.simulate(topo, "send_recv", "64M", ranks=2, **asked).warnings
        assert not [each for each in warnings if "bridges" in each]


def test_bridges_between_gpus_that_meet_in_switches_alone_say_so_too():
    graph = nx.Graph(**{"gpu.model": "NVIDIA L40S"})
    graph.add_nodes_from([f"gpu{number}" for number in range(4)], kind="gpu")
    graph.add_node("plx0", kind="switch")
    graph.add_edges_from([(f"gpu{number}", "plx0") for number in range(4)], bandwidth_Bps=63e9, latency_s=150e-9)
    alone = graph.copy()
    graph.add_edge("gpu0", "gpu1", bandwidth_Bps=300e9, latency_s=250e-9)
    asked = {"ranks": 2, "profile": "rtx_pro_6000_8gpu", "library": "nccl-2.28"}
    found, bare = (collsim.simulate(each, "send_recv", "64M", **asked) for each in (graph, alone))
    assert "channel_rate" in found.rows[0].limited_by
    assert [each for each in found.warnings if each.startswith("gpu0-gpu1: bridges")]
    assert not [each for each in bare.warnings if "bridges" in each]
