"""What crosses each tier, on which rails, and in which shapes, where algorithms run over several nodes."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import collsim
from collsim.collectives import NodeLayout, ScheduleRequest, algorithm, node_rings
from collsim.collectives.node_layout import spread_order
from collsim.collectives.node_p2p import peer_order, root_order, turns_of
from collsim.collectives.node_rings import local_path
from collsim.collectives.node_tree import chained_parents, node_parents
from collsim.core.errors import UnsupportedError
from collsim.core.operations import operation
from collsim.schedule import ChunksBuilder, Schedule, TransfersBuilder, diff, find_faults, group_label, load, save
from collsim.schedule.forms import EVERY
from collsim.schedule.in_network import members_of, point_to_point, ranks_of
from collsim.topology import load_topology

MIB = 2**20


def traffic(schedule, per_node, per_rack=None):
    """Return int64[n, 3]: what each rank sends inside its node, to other nodes, and to other racks of *per_rack*."""
    n = schedule.n_ranks
    sent = np.zeros((n, 3), dtype=np.int64)
    for phase in schedule.phases:
        transfers = phase.materialise()
        sizes = transfers.size_bytes(schedule.chunks)
        for src, dst, size in zip(transfers.src.tolist(), transfers.dst.tolist(), sizes.tolist(), strict=True):
            wide = src if src < 0 else dst if dst < 0 else None
            members = () if wide is None else members_of(wide, n, schedule.groups)
            if members:  # every member sends what a switch adds; a multicast leaves its sender once
                tier = int(len({rank // per_node for rank in members}) > 1)
                sent[list(members) if src < 0 else [src], tier] += size
                continue
            sent[src, int(src // per_node != dst // per_node)] += size
            sent[src, 2] += size * int(per_rack is not None and src // per_rack != dst // per_rack)
    return sent


def build(op, algo, nodes, per_node, size_bytes, **more):
    name = operation(op)
    return algorithm(op, algo).build(ScheduleRequest(name, nodes * per_node, size_bytes, 4, nodes=nodes, **more))


@pytest.mark.parametrize(("nodes", "g"), [(2, 8), (5, 4), (16, 8), (3, 1)])
class TestBytes:
    def test_hierarchical(self, nodes, g):
        size = nodes * g * 4096
        once = size // g * (nodes - 1) // nodes
        for op, times in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
            sent = traffic(build(op, "hierarchical", nodes, g, size), g)
            assert np.all(sent[:, 1] == times * once)
            assert np.all(sent[:, 0] == times * size * (g - 1) // g)

    def test_rings_cross_once_per_node_and_channel(self, nodes, g):
        n, size = nodes * g, nodes * g * g * 4096
        sent = traffic(build("all_reduce", "ring", nodes, g, size, channels=g), g)
        per_node = sent[:, 1].reshape(nodes, g).sum(axis=1)
        assert np.all(per_node == 2 * size * (n - 1) // n)
        assert np.all(sent[:, 1] == sent[0, 1])  # one exit per GPU

    def test_trees_send_the_data_up_and_down_every_edge(self, nodes, g):
        size = 2 * g * 4096
        sent = traffic(build("all_reduce", "tree", nodes, g, size, channels=2 * g), g)
        assert sent[:, 1].sum() == 2 * size * (nodes - 1)
        assert sent[:, 1].reshape(nodes, g).sum(axis=1).max() <= 2 * size  # of both trees no node has more

    def test_nvls_trees_send_slices(self, nodes, g):
        size = 2 * g * 4096
        sent = traffic(build("all_reduce", "nvls_tree", nodes, g, size, channels=2), g)
        assert sent[:, 1].sum() == 2 * size * (nodes - 1)
        assert np.all(sent[:, 1].reshape(nodes, g) == sent[:, 1].reshape(nodes, g)[:, :1])
        assert np.all(sent[:, 0] == (size + size // g if g > 1 else 0))
        assert sent[:, 1].reshape(nodes, g).sum(axis=1).max() <= 2 * size

    def test_sharp_sends_a_slice_whatever_the_number_of_nodes(self, nodes, g):
        size = g * 8192
        for algo in ("collnet_direct", "collnet_chain", "nvls_sharp"):
            sent = traffic(build("all_reduce", algo, nodes, g, size, channels=g), g)
            assert np.all(sent[:, 1] == size // g), algo
        sent = traffic(build("all_reduce", "collnet_direct", nodes, g, size, channels=1), g)
        assert np.all(sent[:, 0] == 2 * size * (g - 1) // g)

    def test_all_to_all(self, nodes, g):
        n, block = nodes * g, 65536
        plain = build("all_to_all", "nccl_p2p", nodes, g, n * block, channels=16)
        relayed = build("all_to_all", "nccl_pxn", nodes, g, n * block, channels=16)
        for schedule, extra in ((plain, 0), (relayed, (n - g) * (g - 1) * block // g)):
            sent = traffic(schedule, g)
            assert np.all(sent[:, 1] == (n - g) * block)
            assert np.all(sent[:, 0] == (g - 1) * block + extra)


def test_three_levels_cut_the_data_at_each():
    racks, nodes, g = 3, 4, 2
    size, layout = racks * nodes * g * 4096, NodeLayout.blocks([g] * (racks * nodes), racks)
    sent = traffic(
        build("all_reduce", "hierarchical_racks", racks * nodes, g, size, layout=layout), g, per_rack=nodes * g
    )
    assert np.all(sent[:, 2] == 2 * size // (g * nodes) * (racks - 1) // racks)
    assert np.all(sent[:, 1] - sent[:, 2] == 2 * size // g * (nodes - 1) // nodes)


def test_channels_of_nvls_trees_take_both_trees_in_turn():
    """Channel 2 goes the way of channel 0, channel 3 that of channel 1."""
    schedule = build("all_reduce", "nvls_tree", 6, 2, 4 * 2**20, channels=4)
    transfers = schedule.materialise()
    ways = [
        {*zip(transfers.src[on].tolist(), transfers.dst[on].tolist(), strict=True)}
        for on in (transfers.channel == channel for channel in range(4))
    ]
    assert ways[0] == ways[2] != ways[1] == ways[3]


@pytest.mark.parametrize("racks", [2, 3])
def test_racks_from_two_on_are_a_level(racks):
    layout = NodeLayout.blocks([2] * (2 * racks), racks)
    assert layout.nodes_of_racks("hierarchical_racks") == tuple((2 * rack, 2 * rack + 1) for rack in range(racks))


def test_racks_must_be_equal():
    for racks, text in ((3, "not racks with 1, 2 of the nodes"), (1, "all nodes share leaf switches")):
        with pytest.raises(UnsupportedError, match=text):
            build("all_reduce", "hierarchical_racks", 4, 2, 4096, layout=NodeLayout.blocks([2] * 4, racks))
    with pytest.raises(UnsupportedError, match="not racks with 1, 2 of the nodes"):
        NodeLayout.blocks([2] * 3, 2).nodes_of_racks("hierarchical_racks")


@pytest.mark.parametrize(("algo", "kib"), [("collnet_direct", 512), ("collnet_chain", 256), ("nvls_sharp", 128)])
def test_chunks_of_sharp_are_those_of_nccl(algo, kib):
    """Largest chunks that src/enqueue.cc lets go: so many KiB, and the rest in one that is smaller."""
    chunks = build("all_reduce", algo, 2, 4, 8 * MIB + 4096, channels=1).chunks.size_bytes
    assert chunks.max() == kib * 2**10
    assert np.all(chunks[chunks < chunks.max()] <= 4096)


def test_direct_heads_are_few():
    with pytest.raises(UnsupportedError, match="up to 8 GPUs"):
        build("all_reduce", "collnet_direct", 2, 9, 9 * 4096)


def test_pieces_of_a_hierarchy_flow_behind_each_other():
    whole = build("all_reduce", "hierarchical", 4, 2, 8 * 4096)
    cut = build("all_reduce", "hierarchical", 4, 2, 8 * 4096, chunk_bytes=1024)
    assert (whole.parameters["pieces"], cut.parameters["pieces"]) == (1, 4)
    transfers = cut.materialise()
    first_of_second = int(np.flatnonzero(transfers.chunk[transfers.chunk_ptr[:-1]] >= 8)[0])
    waits = transfers.deps_of(first_of_second)
    assert waits
    assert all(transfers.src[row] == transfers.src[first_of_second] for row in waits)  # its sender, nobody's data


# Rings


@pytest.mark.parametrize("g", [2, 4, 6, 8])
def test_paths_in_a_node_use_every_link_of_a_mesh_once(g):
    hops = [hop for entry in range(g) for hop in zip(local_path(g, entry), local_path(g, entry)[1:], strict=False)]
    assert len(hops) == len(set(hops)) == g * (g - 1)
    assert [local_path(g, entry)[0] for entry in range(g)] == list(range(g))


@pytest.mark.parametrize("g", [3, 5, 7, 9, 15])
def test_paths_of_an_odd_number_share_the_links_of_a_mesh(g):
    """Their g (g - 1) hops cannot all be different in general, but no link
    serves more than two, and no two channels enter or leave at the same GPU."""
    paths = [local_path(g, entry) for entry in range(g)]
    hops = Counter(hop for path in paths for hop in pairwise(path))
    assert max(hops.values()) <= 2
    assert [path[0] for path in paths] == sorted(path[-1] for path in paths) == list(range(g))
    assert all(sorted(path) == list(range(g)) for path in paths)


@pytest.mark.parametrize("nodes", [2, 4, 16, 3, 7])
@pytest.mark.parametrize("g", [2, 4, 8])
def test_rings_stay_on_their_rails(nodes, g):
    for channel, ring in enumerate(node_rings(NodeLayout.blocks([g] * nodes)).tolist()):
        assert sorted(ring) == list(range(nodes * g))
        assert ring[0] == spread_order(g)[channel]
        hops = zip(ring, [*ring[1:], ring[0]], strict=True)
        off_rail = [(a, b) for a, b in hops if a // g != b // g and a % g != b % g]
        assert len(off_rail) == nodes % 2  # on an odd number of nodes the hop that closes the ring


@pytest.mark.parametrize("algo", ["ring", "tree"])
def test_every_adapter_that_gpus_share_carries_its_part(algo):
    """Two adapters of a node carry twice what one does, and four four times, though there are as few channels."""
    rates = []
    for shared_by in (8, 4, 2):
        topology = load_topology("dgx_a100", {"scale_out.nodes": "2", "nic.shared_by": str(shared_by)})
        rates.append(collsim.simulate(topology, "all_reduce", "4G", algo=algo, library="nccl-2.28").rows[0].busbw_Bps)
    assert np.array(rates) / rates[0] == pytest.approx([1, 2, 4], rel=0.02)


def test_every_gpu_is_entry_of_one_ring():
    for g in (1, 3, 5, 8):
        rings = node_rings(NodeLayout.blocks([g] * 4))
        assert sorted(rings[:, 0].tolist()) == list(range(g))


# Trees


@pytest.mark.parametrize("n", range(2, 33))
def test_second_children_come_after_their_parents_in_the_first_tree(n):
    parents, second = node_parents(n, 0)
    for node in range(1, n):
        low = node & -node
        expected = (node ^ low) | 2 * low
        assert parents[node] == (expected if expected < n else node - low)
        assert second[node] == (node > parents[node])
    mirrored, moved = node_parents(n, 1)
    for node in range(n):
        own = (n - 1 - node) if n % 2 == 0 else (node - 1) % n
        above = parents[own]
        assert moved[node] == second[own]
        assert mirrored[node] == (-1 if above < 0 else n - 1 - above if n % 2 == 0 else (above + 1) % n)


@pytest.mark.parametrize(("pattern", "entries"), [("balanced", {0, 1}), ("split", {1}), ("plain", {0})])
def test_where_children_enter(pattern, entries):
    g, chain = 4, 2
    parents = chained_parents(NodeLayout.blocks([g] * 8), chain, 0, pattern)
    found = set()
    for rank, parent in enumerate(parents.tolist()):
        if parent >= 0 and rank // g != parent // g:
            assert rank % g == chain  # a node sends from x0
            found.add((parent % g - chain) % g)
    assert found == entries


@pytest.mark.parametrize("nodes", [2, 5, 8, 16])
def test_rail_trees_join_equal_local_indices(nodes):
    for chain in range(8):
        for tree in (0, 1):
            parents = chained_parents(NodeLayout.blocks([8] * nodes), chain, tree, "rail").tolist()
            edges = [(a, b) for a, b in enumerate(parents) if b >= 0 and a // 8 != b // 8]
            assert len(edges) == nodes - 1
            assert all(a % 8 == b % 8 for a, b in edges)


# Messages


@pytest.mark.parametrize(("nodes", "g"), [(2, 8), (3, 4), (5, 6), (9, 1)])
def test_peer_order_meets_everybody_once_in_permutations(nodes, g):
    turns = peer_order(NodeLayout.blocks([g] * nodes))
    n = nodes * g
    assert len(turns) == n
    assert all(sorted(turn.partner) == list(range(n)) for turn in turns)
    assert all(len({turn.partner[rank] for turn in turns}) == n for rank in range(n))


@pytest.mark.parametrize(("nodes", "g", "used"), [(2, 8, 2), (3, 8, 3), (2, 4, 2), (2, 7, 13), (2, 6, 6), (3, 1, 2)])
def test_groups_of_an_all_to_all_share_a_channel(nodes, g, used):
    """Groups have gcd(8, g) ranks and a channel each; of groups of one, a rank's own block needs none."""
    schedule = build("all_to_all", "nccl_p2p", nodes, g, nodes * g * 4096, channels=32)
    assert len({channel for phase in schedule.phases for channel in phase.materialise().channel.tolist()}) == used


def test_group_distances_are_triangular():
    turns = peer_order(NodeLayout.blocks([8] * 8))
    assert [turn.partner[0] // 8 for turn in turns[::8]] == [0, 1, 3, 6, 2, 7, 5, 4]


def test_pxn_stays_on_rails_and_sends_the_messages_of_a_node_as_one():
    schedule = build("all_to_all", "nccl_pxn", 4, 8, 32 * 64, channels=16)
    transfers = schedule.materialise()
    network = transfers.src // 8 != transfers.dst // 8
    assert np.all(transfers.src[network] % 8 == transfers.dst[network] % 8)
    assert np.all(np.diff(transfers.chunk_ptr)[network] == 8)
    assert network.sum() == 32 * 3  # of 32 * 24 messages


@pytest.mark.parametrize("root", [0, 11])
@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_pxn_spreads_a_scatter_over_the_adapters_of_the_node_and_a_gather_ends_at_one(op, root):
    """A sender takes the rail of its target, a receiver its own adapter (NCCL src/transport/net.cc)."""
    nodes, g, block = 4, 8, MIB
    schedule = build(op, "nccl_pxn", nodes, g, nodes * g * block, channels=16, root=root)
    transfers = schedule.materialise()
    network = transfers.src // g != transfers.dst // g
    assert np.all(transfers.src[network] % g == transfers.dst[network] % g)
    sent = traffic(schedule, g)[:, 1]
    assert sent.sum() == (nodes - 1) * g * block
    if op == "scatter":
        own = [rank for rank in range(nodes * g) if rank // g == root // g]
        assert sent[own].tolist() == [(nodes - 1) * block] * g
    else:
        assert set(transfers.dst[network].tolist()) == {root}


def test_a_scatter_takes_as_long_as_all_adapters_of_the_roots_node():
    from collsim import simulate

    nodes, g, size, rate = 4, 8, 2**30, 12.5e9  # adapters so slow that NVLink does not matter
    told = {"nic.bandwidth": "100 Gb/s"}
    times = {
        op: simulate("h100_rail", op, size, ranks=nodes * g, profile="ideal", library="nccl-2.28", overrides=told)
        for op in ("scatter", "gather")
    }
    outside = (nodes - 1) / nodes * size
    assert outside / (g * rate) < times["scatter"].rows[0].time_s < 1.05 * outside / (g * rate)
    assert outside / rate < times["gather"].rows[0].time_s < 1.01 * outside / rate


def test_pxn_relays_send_long_messages_while_they_receive_them():
    from collsim import simulate

    schedule = build("all_to_all", "nccl_pxn", 2, 8, 16 * 2**23, channels=16)
    transfers = schedule.materialise()
    network = np.flatnonzero(transfers.src // 8 != transfers.dst // 8)
    assert len(network) > 16  # one for each target and piece
    row = simulate("h100_rail", "all_to_all", "8G", ranks=16, algo="nccl_pxn", profile="ideal").rows[0]
    # Messages inside the node come first, here on all channels. Whole messages would be in NVLink as long once more.
    inside_s = 7 / 8 * 2**32 / 450e9
    assert inside_s < row.time_s - row.lower_bound_s < 1.5 * inside_s


# Transfers by switches that serve some of the ranks


def in_two_groups() -> tuple[ChunksBuilder, TransfersBuilder]:
    """All-reduce of one chunk on two nodes of two: into the first GPUs, over the network, out to the nodes."""
    chunks, rows = ChunksBuilder(), TransfersBuilder()
    chunks.add(8, EVERY, EVERY)
    sums = [rows.add(group_label(node), 2 * node, [0], reduces=True) for node in (0, 1)]
    total = rows.add(group_label(2), group_label(2), [0], sums, reduces=True)
    for node in (0, 1):
        rows.add(2 * node, group_label(node), [0], [total])
    return chunks, rows


def made(chunks, rows, groups=((0, 1), (2, 3), (0, 2))):
    return Schedule("all_reduce", "mine", 4, 8, chunks.build(), (rows.build(),), groups=groups)


def test_groups_are_written_out_from_rank_to_rank():
    schedule = made(*in_two_groups())
    assert find_faults(schedule) == []
    flat = point_to_point(schedule.materialise(), 4, schedule.groups)
    assert list(zip(flat.src.tolist(), flat.dst.tolist(), strict=True)) == [
        (1, 0), (3, 2), (2, 0), (0, 2), (0, 1), (2, 3),
    ]  # fmt: skip
    assert [flat.deps_of(i) for i in range(6)] == [[], [], [0, 1], [2], [3], [3]]
    assert flat.reduces.tolist() == [True, True, True, False, False, False]
    ptr, ranks = ranks_of(schedule.materialise(), 4, schedule.groups)
    assert ranks[ptr[2] : ptr[3]].tolist() == [0, 2]


def test_a_network_that_does_not_wait_for_its_heads_is_found():
    chunks, rows = in_two_groups()
    rows.deps[2] = [0]
    assert any("without waiting" in fault.what for fault in find_faults(made(chunks, rows)))


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (((0, 1), (2, 3)), "names rank -4"),
        (((0, 1), (2, 3), (0,)), "group 2 is"),
        (((0, 1), (2, 3), (0, 9)), "group 2 is"),
        (((0, 1), (1, 3), (0, 2)), "rank 2 is no member"),
    ],
)
def test_groups_that_cannot_be(groups, text):
    faults = find_faults(made(*in_two_groups(), groups))
    assert any(text in fault.what for fault in faults), faults


def test_files_and_differences_know_groups(tmp_path):
    schedule = build("all_reduce", "nvls_sharp", 2, 2, 64)
    save(schedule, tmp_path / "a.json")
    again = load(tmp_path / "a.json")
    assert again.groups == schedule.groups
    assert diff(schedule, again) == []
    other = replace(schedule, groups=(schedule.groups[0][::-1], *schedule.groups[1:]))
    assert [line.split(":")[0] for line in diff(schedule, other)] == ["groups"]


def test_phases_join_the_members_of_a_group():
    chunks, rows = in_two_groups()
    schedule = made(chunks, rows)
    twice = replace(schedule, phases=schedule.phases * 2)
    merged = twice.materialise()
    first_again = len(schedule.phases[0]) + 4
    assert merged.deps_of(first_again) == [5, 6]  # the joins of ranks 0 and 1


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("sizes", [[2, 2], [8] * 5, [6, 3], [4] * 3])
def test_rounds_of_a_root_are_its_part_of_all_rounds(sizes, gathers):
    layout, root = NodeLayout.blocks(sizes), sum(sizes) // 3
    found = [(block, other) for block, others in root_order(layout, root, gathers=gathers) for other in others.tolist()]
    if gathers:
        assert found == [(turn.block, turn.partner.index(root)) for turn in peer_order(layout)]
    else:
        assert found == [(turn.block, turn.partner[root]) for turn in peer_order(layout)]


@pytest.mark.parametrize("node_of_rank", [[0] * 8 + [1] * 8, [1, 0, 1, 0, 1, 0], [0] * 6 + [1] * 3, [0, 1, 2] * 8])
def test_each_message_has_the_round_of_the_order_of_peers(node_of_rank):
    layout = NodeLayout.from_nodes(node_of_rank)
    ranks, seen = np.arange(len(node_of_rank)), []
    for turn in peer_order(layout):
        (found,) = set(turns_of(layout, ranks, np.array(turn.partner)).tolist())
        seen.append(found)
    assert sorted(seen) == ranks.tolist()


@pytest.mark.parametrize("algo", ["collnet_direct", "nvls_sharp", "nvls_tree"])
@pytest.mark.parametrize(("nodes", "g"), [(2, 1), (3, 1), (2, 2), (3, 4)])
def test_every_group_of_a_schedule_sends_or_receives(algo, nodes, g):
    schedule = build("all_reduce", algo, nodes, g, 2**20)
    transfers = schedule.materialise()
    ends = {int(rank) for ends in (transfers.src, transfers.dst) for rank in ends}
    assert {rank for rank in ends if rank < 0} == {group_label(number) for number in range(len(schedule.groups))}
