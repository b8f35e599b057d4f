"""The wiring of clusters: ports, planes, groups and what a router relies on; files, overrides and refusals."""

import dataclasses
import pickle

import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import InputError, SpecError
from collsim.topology import (
    Wiring,
    build_cluster,
    cluster_names,
    cluster_spec,
    load_topology,
    network_names,
    parse_topology,
    plan_topology,
    zoo_names,
)
from collsim.topology.cluster.links import _dealt
from collsim.topology.cluster.networks import load_network, network_for
from collsim.topology.cluster.plan import capacity
from collsim.topology.failures.degrade import damaged
from collsim.topology.summary import is_connected

SMALL = {"radix": "16", "port_rate": "400 Gb/s"}
SYSTEMS = {
    "one switch": ("hgx_h100", {"nodes": 8}),
    "two nodes": ("mi355x_ubb8", {"nodes": 2}),
    "rails": ("hgx_h100", {"nodes": 40}),
    "rails, uneven": ("hgx_h100", {"nodes": 37}),
    "rails, two to one": ("hgx_h100", {"nodes": 64, "oversubscription": 2}),
    "rails, more up than down": ("mi355x_ubb8", {"nodes": 64, "oversubscription": "0.862"}),
    "rails, three tiers": ("hgx_h100", SMALL | {"nodes": 72, "tiers": 3}),
    "rails, three tiers, uneven": ("hgx_h100", SMALL | {"nodes": 61, "tiers": 3}),
    "rails, three tiers, two to one": ("hgx_h100", SMALL | {"nodes": 61, "tiers": 3, "oversubscription": 2}),
    "racks": ("gb200_nvl72", {"nodes": 5}),
    "racks with three adapters for a GPU": ("mi400_ualoe72", {"nodes": 3}),
    "rail only": ("hgx_h100", {"nodes": 30, "fabric": "rail_only"}),
    "rail only, two tiers": ("hgx_h100", SMALL | {"nodes": 40, "fabric": "rail_only"}),
    "rail only, three tiers": ("hgx_h100", SMALL | {"nodes": 140, "fabric": "rail_only"}),
    "fat tree": ("hgx_h100", {"nodes": 33, "fabric": "fat_tree"}),
    "fat tree, three tiers": ("hgx_h100", SMALL | {"nodes": 65, "fabric": "fat_tree"}),
    "fat tree of racks": ("gb200_nvl72", {"nodes": 4, "fabric": "fat_tree"}),
    "fat tree of shared adapters": ("mi250x_node", {"nodes": 50, "fabric": "fat_tree"}),
    "rails of equal racks": ("hgx_h100", {"nodes": 12, "racks": 3}),
    "rail only, in racks": ("hgx_h100", {"nodes": 12, "racks": 3, "fabric": "rail_only"}),
    "fat tree, racks of two leaves": ("mi355x_rack128", {"nodes": 32, "racks": 2, "fabric": "fat_tree"}),
    "fat tree, racks of three leaves": ("hgx_h100", SMALL | {"nodes": 4, "racks": 2, "fabric": "fat_tree"}),
    "three tiers of racks": ("hgx_h100", SMALL | {"nodes": 72, "racks": 36, "fabric": "fat_tree"}),
    "dragonfly, one group": ("polaris", {"nodes": 100}),
    "dragonfly": ("polaris", {"nodes": 560}),
    "dragonfly, odd": ("alps", {"nodes": 700}),
}


@pytest.fixture(scope="module", params=SYSTEMS)
def cluster(request):
    name, scale_out = SYSTEMS[request.param]
    return load_topology(name, scale_out=scale_out)


def switches_of(topology):
    """Return the cluster, and for each switch the cables that leave it."""
    wiring, cluster = topology.wiring, topology.cluster
    cables = np.bincount(wiring.link_src, wiring.link_count, minlength=wiring.n_nodes)[cluster.first_leaf :]
    return cluster, cables


@pytest.mark.parametrize("name", [name for name, (_, scale_out) in SYSTEMS.items() if "racks" in scale_out])
def test_no_leaf_serves_two_racks(name):
    system, scale_out = SYSTEMS[name]
    topology = load_topology(system, scale_out=scale_out)
    found, racks = topology.cluster, scale_out["racks"]
    rack = found.nic_node // (found.spec.nodes // racks)
    served = {(int(leaf), int(number)) for leaf, number in zip(found.nic_leaf, rack, strict=True)}
    assert len(served) == found.plan.leaves
    pods = topology.wiring.coordinates.pod
    assert (pods == np.arange(topology.n_gpus) // (topology.n_gpus // racks)).all()
    assert np.bincount(found.nic_leaf).max() == found.plan.leaf_ports


@pytest.mark.parametrize(
    ("scale_out", "what", "hint"),
    [
        ({"nodes": 16, "racks": 3}, "16 nodes do not fill 3 racks evenly", "one of 1, 2, 4, 8, 16"),
        ({"nodes": 128, "racks": 2}, "racks of 64 nodes do not fit under leaves of 64 ports", "at most 32 nodes"),
        (
            {"nodes": 66, "racks": 66, "tiers": 2},
            "66 nodes with 8 adapters each do not fit on 2 tiers",
            "at most 8 nodes",
        ),
        ({"nodes": 8, "racks": 2, "tiers": 1}, "one tier of switches cannot join racks", "leave out tiers"),
        (
            {"nodes": 8, "racks": 2, "fabric": "single_switch"},
            "a single_switch has no leaves for each rack",
            "fat_tree",
        ),
    ],
)
def test_racks_that_cannot_be(scale_out, what, hint):
    with pytest.raises(SpecError) as caught:
        load_topology("hgx_h100", scale_out=scale_out)
    assert what in caught.value.faults[0].what
    assert hint in caught.value.faults[0].hint


def test_as_many_nodes_fit_as_textbooks_say():
    """A full tree of switches with k ports ends k, k²/2 or k³/4 adapters; rails without spines are trees of their own.

    Al-Fares, Loukissas and Vahdat, SIGCOMM 2008.
    """
    spec = load_topology("hgx_h100", scale_out={"nodes": 2}).cluster.spec
    for radix in (16, 32, 64):
        adapters = {1: radix, 2: radix**2 // 2, 3: radix**3 // 4}
        for tiers, ends in adapters.items():
            nodes = ends // spec.node_nics
            expected = {"fat_tree": nodes, "rail": nodes, "rail_only": nodes * spec.rails}
            expected["single_switch"] = nodes if tiers == 1 else 0
            found = {
                fabric: capacity(dataclasses.replace(spec, fabric=fabric, radix=radix, tiers=tiers))
                for fabric in expected
            }
            assert found == expected, (radix, tiers)


def test_no_switch_uses_more_ports_than_it_has(cluster):
    found, cables = switches_of(cluster)
    assert len(cables) == found.plan.switches
    assert cables.max() <= found.spec.radix
    assert cables.min() >= 1


def test_bundles_are_sorted_and_duplex(cluster):
    wiring = cluster.wiring
    key = wiring.link_src * wiring.n_nodes + wiring.link_dst
    assert (np.diff(key) > 0).all()
    back = wiring.find_links(wiring.link_dst, wiring.link_src)
    assert (back >= 0).all()
    assert (wiring.link_count[back] == wiring.link_count).all()
    assert not wiring.link_bandwidth_Bps.flags.writeable
    assert is_connected(wiring)


def test_cables_are_those_planned(cluster):
    found, wiring = cluster.cluster, cluster.wiring
    up = np.concatenate([found.nic_up, found.up_link])
    twice = wiring.link_count[found.up_link].sum() / 2 if found.spec.fabric == "dragonfly" else 0  # peers, at both ends
    assert wiring.link_count[up].sum() - twice == sum(found.plan.cables.values())
    tier = found.switch_tier
    assert np.bincount(tier, minlength=3).tolist() == [found.plan.leaves, found.plan.spines, found.plan.cores]


def test_load_of_upper_tiers_differs_by_one_cable(cluster):
    found, wiring = cluster.cluster, cluster.wiring
    into = np.zeros(found.plan.switches, dtype=np.int64)
    np.add.at(into, found.up_switch, wiring.link_count[found.up_link])
    sizes = [np.ptp(into[found.switch_tier == 2])] if found.plan.cores else []
    groups = range(found.plan.groups if found.plan.spines else 0)
    sizes += [np.ptp(into[(found.switch_tier == 1) & (found.switch_group == group)]) for group in groups]
    assert max(sizes, default=0) <= 1


def test_leaves_of_a_group_share_its_spines(cluster):
    found = cluster.cluster
    for leaf in range(found.plan.leaves if found.plan.spines else 0):
        above = found.up_switch[found.up_ptr[leaf] : found.up_ptr[leaf + 1]]
        group = (found.switch_tier == 1) & (found.switch_group == found.switch_group[leaf])
        assert above.tolist() == np.flatnonzero(group).tolist()


def test_every_core_reaches_every_group_of_its_plane(cluster):
    found = cluster.cluster
    spine = np.repeat(np.arange(found.plan.switches), np.diff(found.up_ptr))
    for core in np.flatnonzero(found.switch_tier == 2):
        below = spine[found.up_switch == core]
        plane = found.switch_plane[core]
        groups = np.unique(found.switch_group[(found.switch_tier == 0) & (found.switch_plane == plane)])
        assert np.unique(found.switch_group[below]).tolist() == groups.tolist()
        assert (found.switch_plane[below] == plane).all()


def test_arrays_name_links_of_the_wiring(cluster):
    found, wiring = cluster.cluster, cluster.wiring
    first = found.first_leaf
    low = np.repeat(np.arange(found.plan.switches), np.diff(found.up_ptr))
    assert (wiring.link_src[found.up_link] == first + low).all()
    assert (wiring.link_dst[found.up_link] == first + found.up_switch).all()
    assert (wiring.link_src[found.down_link] == first + found.up_switch).all()
    nics = found.first_nic + np.arange(len(found.nic_leaf))
    assert (wiring.link_src[found.nic_up] == nics).all()
    assert (wiring.link_dst[found.nic_up] == first + found.nic_leaf).all()
    assert (wiring.link_dst[found.nic_down] == nics).all()
    gpu = np.repeat(np.arange(wiring.n_gpus), np.diff(found.nic_ptr))
    assert (wiring.find_links(gpu, found.nic_of) >= 0).all()
    kinds = np.array(wiring.node_kinds)
    assert set(kinds[found.first_nic : first]) == {"nic"}
    assert set(kinds[first:]) == {"switch"}


def test_coordinates(cluster):
    found, place = cluster.cluster, cluster.wiring.coordinates
    n = found.node.n_gpus
    assert place.kind == "cluster"
    assert (place.node == np.arange(cluster.n_gpus) // n).all()
    assert (place.local == np.arange(cluster.n_gpus) % n).all()
    first_nic = found.nic_of[found.nic_ptr[:-1]] - found.first_nic
    assert (found.nic_node[first_nic] == place.node).all()
    assert (found.nic_rail[first_nic] == place.rail).all()
    assert len(place.plane) == cluster.wiring.n_nodes - cluster.n_gpus


def test_gpu_i_of_every_node_shares_a_leaf():
    found = load_topology("hgx_h100", scale_out={"nodes": 30}).cluster
    assert found.nic_leaf.reshape(30, 8).tolist() == [list(range(8))] * 30


def test_a_dragonfly_joins_all_switches_of_a_group_and_all_groups():
    found = load_topology("polaris").cluster
    each = found.plan.leaves // found.plan.groups
    for switch in range(found.plan.leaves):
        peers = found.up_switch[found.up_ptr[switch] : found.up_ptr[switch + 1]]
        mine = found.switch_group[switch]
        inside = [peer for peer in range(mine * each, (mine + 1) * each) if peer != switch]
        assert peers[: each - 1].tolist() == inside
    low = np.repeat(np.arange(found.plan.leaves), np.diff(found.up_ptr))
    pairs = set(zip(found.switch_group[low].tolist(), found.switch_group[found.up_switch].tolist(), strict=True))
    assert len(pairs) == found.plan.groups**2


def test_cables_are_dealt_in_turn():
    low, high, count = _dealt(3, 5, 4)
    assert count.sum() == 15
    assert np.bincount(low, count).tolist() == [5, 5, 5]
    assert np.bincount(high, count).tolist() == [4, 4, 4, 3]


def test_names():
    wiring = load_topology("hgx_h100", scale_out={"nodes": 16}).wiring
    assert [wiring.node_names[i] for i in (0, 13, 128, 192, 320, 328, 329)] == [
        "n0.gpu0", "n1.gpu5", "n0.nvsw0", "n0.nic0", "leaf0", "spine0", "spine1",
    ]  # fmt: skip


def test_rates_and_latencies():
    topology = load_topology("hgx_h100", {"fabric.nic_cable": "10 m"}, scale_out={"nodes": 16})
    found, wiring = topology.cluster, topology.wiring
    bus = wiring.find_links(np.array([0]), found.nic_of[:1])[0]
    assert wiring.link_bandwidth_Bps[bus] == 63e9
    link = found.nic_up[0]
    assert wiring.link_bandwidth_Bps[link] == 50e9
    assert wiring.link_efficiency[link] == 0.975
    assert wiring.link_latency_s[link] == pytest.approx(60e-9 + 10 * 5e-9)
    assert wiring.node_latency_s[found.first_leaf] == pytest.approx(150e-9)
    assert wiring.node_latency_s[found.first_nic] == pytest.approx(250e-9)
    assert wiring.link_bandwidth_Bps[found.up_link].sum() == pytest.approx(128 * 50e9)


def test_overrides():
    plain = load_topology("hgx_h100", scale_out={"nodes": 64}).cluster.plan
    halved = load_topology("hgx_h100", ["fabric.oversubscription=2"], scale_out={"nodes": 64}).cluster.plan
    # 42 + 21 of 64 ports: 64 nodes make two blocks of 32, 16 cables up from each of 16 leaves
    assert (plain.leaf_up, halved.leaf_up, halved.spines) == (32, 16, 4)
    faster = load_topology("hgx_h100", {"nic.bandwidth": "800 Gb/s"}, scale_out={"nodes": 64})
    assert faster.cluster.spec.radix == 144
    assert faster.wiring.link_bandwidth_Bps[faster.cluster.nic_up[0]] == 100e9
    assert faster.fact("scale_out.radix").note == "XDR Quantum-X800 Q3400"
    assert faster.fact("nic.bus_bandwidth").value == 121e9
    slow = load_topology("hgx_h100", {"network.switch_latency": "1 us"}, scale_out={"nodes": 2})
    assert slow.wiring.node_latency_s[slow.cluster.first_leaf] == 1e-6


def test_the_first_gpus_of_each_node():
    topology = load_topology("hgx_h100", scale_out={"nodes": 10, "gpus_per_node": 2})
    whole = load_topology("hgx_h100", scale_out={"nodes": 10})
    assert topology.n_gpus == 20
    assert topology.cluster.plan == whole.cluster.plan  # the others are unused, not unbuilt
    assert topology.cluster.nic_leaf.tolist() == [0, 1] * 10
    assert topology.cluster.node.wiring.coordinates.kind == "switched"


def test_a_node_from_a_graph_or_a_topology():
    node = load_topology("mi325x_ubb8")
    found = build_cluster(node, cluster_spec(node, nodes=4, fabric="fat_tree"))
    assert found.cluster.spec.network == "roce"
    assert load_topology(node, scale_out={"nodes": 4, "fabric": "fat_tree"}).wiring.n_links == found.wiring.n_links
    with pytest.raises(InputError, match="no network adapters"):
        load_topology(node.graph, scale_out={"nodes": 4})
    with pytest.raises(InputError, match="is a cluster already"):
        load_topology(found, scale_out={"nodes": 4})
    with pytest.raises(SpecError, match='did you mean "nodes"'):
        cluster_spec(node, nods=4)


@pytest.mark.parametrize("figures", [{"builder": "x"}, {"fabric": "builder"}])
def test_no_fault_of_a_cluster_is_lost(figures):
    with pytest.raises(SpecError, match="builder") as caught:
        cluster_spec(load_topology("hgx_h100"), nodes=2, **figures)
    assert caught.value.faults


def test_one_node_stays_as_it_is():
    node, alone = load_topology("hgx_h100"), load_topology("hgx_h100", scale_out={"nodes": 1})
    assert alone.cluster is None
    assert alone.wiring.node_names == node.wiring.node_names
    first = simulate("h100_rail", "all_reduce", "1M", ranks=8, algo="ring", profile="ideal").rows[0]
    assert first.time_s == simulate(node, "all_reduce", "1M", algo="ring", profile="ideal").rows[0].time_s


def test_runs_over_nodes():
    two = load_topology("hgx_h100", scale_out={"nodes": 2})
    row = simulate(two, "all_to_all", "1G", algo="direct", profile="ideal").rows[0]
    # 8 of 16 blocks of every GPU leave through its adapter of 50 GB/s
    assert row.time_s == pytest.approx(2**30 / 2 / 50e9, rel=1e-3)
    shared = load_topology("pcie_gen5_8gpu", scale_out={"nodes": 2})
    inside = simulate(shared, "all_to_all", "64M", rank_list=[0, 1, 8, 9], algo="direct", profile="ideal")
    assert inside.rows[0].time_s > 0


FILE = """schema: collsim.topology/1
title: ours
nic: {bandwidth: 200 Gb/s, per_gpu: 1}
scale_out: {node: hgx_h200, nodes: 6, fabric: fat_tree, oversubscription: 2}
"""


def test_files(tmp_path):
    topology = parse_topology(FILE, "ours.yaml")
    assert (topology.title, topology.n_gpus) == ("ours", 48)
    assert topology.cluster.spec.radix == 40  # HDR switches for adapters of 200 Gb/s
    assert topology.fact("link.efficiency").where.startswith("topologies/hgx_h100.yaml:")
    (tmp_path / "node.yaml").write_text(
        "{schema: collsim.topology/1, builder: full_mesh, gpu: {count: 4}, link: {bandwidth: 25 GB/s}, "
        "nic: {bandwidth: 100 Gb/s}}"
    )
    path = tmp_path / "all.yaml"
    path.write_text("{schema: collsim.topology/1, scale_out: {node: node.yaml, nodes: 3, network: roce}}")
    assert load_topology(path).n_gpus == 12
    path.write_text("{schema: collsim.topology/1, extends: h100_rail, scale_out: {nodes: 3}}")
    assert load_topology(path).n_gpus == 24
    path.write_text("{schema: collsim.topology/1, scale_out: {node: all.yaml, nodes: 3}}")
    with pytest.raises(SpecError, match="cannot extend itself"):
        load_topology(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("nodes: 6", "nodes: 0"), r"ours\.yaml:4: scale_out\.nodes: count \"0\""),
        (("nodes: 6, ", ""), r"ours\.yaml:4: scale_out.*number of nodes is missing"),
        (("fat_tree", "fat_tre"), 'did you mean "fat_tree"'),
        (("fabric:", "network: infinband, fabric:"), 'did you mean "infiniband"'),
        (("oversubscription: 2", "oversubscription: no"), "is not a ratio"),
        (("oversubscription: 2", "oversubscripton: 2"), 'did you mean "oversubscription"'),
        (("oversubscription: 2", "nic_cable: 5"), 'write metres, such as "30 m"'),
        (("oversubscription: 2", "gpus_per_node: 9"), "at most 8"),
        (("oversubscription: 2", "rails: 3"), "one of 1, 2, 4, 8"),
        (("oversubscription: 2", "tiers: 4"), "1 to 3"),
        (("nodes: 6", "nodes: 999999"), "at most 131,072 nodes"),
        (("fat_tree, oversubscription: 2", "single_switch"), "at most 5 nodes fit"),
        (("fat_tree", "dragonfly"), "no leaves with uplinks"),
        (("200 Gb/s", "3200 Gb/s"), "has no switch for adapters of 3200 Gb/s"),
        (("oversubscription: 2", "port_rate: 100 Gb/s, radix: 64"), "slower than the adapters"),
        (("hgx_h200", "hgx_h2000"), 'did you mean "hgx_h200"'),
    ],
)
def test_faults(change, message):
    text = FILE.replace(*change)
    assert text != FILE
    with pytest.raises(SpecError, match=message):
        parse_topology(text, "ours.yaml")


def test_counts_need_a_cluster():
    with pytest.raises(SpecError, match="is no cluster"):
        plan_topology("hgx_h100")


@pytest.mark.parametrize("name", network_names())
def test_networks(name):
    network = load_network(name)
    assert network.name == name
    rates = [switch.port_rate.si for switch in network.switches]
    assert rates == sorted(rates)
    figures = [network.switch_latency, network.nic_latency, network.link_latency, network.efficiency]
    for figure in [*figures, *(switch.ports for switch in network.switches)]:
        assert figure.status
        assert len(figure.source) > 10


def test_networks_of_adapters():
    models = {load_topology(name).labels.get("nic.model", "") for name in zoo_names()}
    assert {network_for(model) for model in models} >= {"infiniband", "roce", "ultra_ethernet", "slingshot"}
    assert network_for("something else") == "infiniband"
    assert load_network("infiniband").in_network_reduction.value.text == "SHARP"
    assert not load_network("roce").in_network_reduction.si


def test_names_of_clusters_are_no_names_of_nodes():
    assert not set(cluster_names()) & set(zoo_names())
    for name in cluster_names():
        assert plan_topology(name)[0].name == name


def test_written_out_it_loads_to_the_same_arrays():
    topology = load_topology("mi355x_ubb8", scale_out={"nodes": 2})
    again = parse_topology(topology.to_yaml())
    for name in ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "node_latency_s"):
        assert (getattr(topology.wiring, name) == getattr(again.wiring, name)).all(), name
    assert again.wiring.node_kinds == topology.wiring.node_kinds
    assert type(topology).from_graph(topology.graph).wiring.node_kinds == topology.wiring.node_kinds


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_made_later_is_what_was_counted(system, routing):
    name, figures = SYSTEMS[system]
    wiring = load_topology(name, scale_out={**figures, "routing": routing}).wiring
    links, cables = wiring.n_links, wiring.n_physical_links
    whole = dataclasses.replace(wiring)
    assert (type(whole), whole.n_links, whole.n_physical_links) == (Wiring, links, cables)
    rng = np.random.default_rng(1)
    for count in (1, 3, whole.n_nodes // 2, whole.n_nodes):
        nodes = rng.choice(whole.n_nodes, count, replace=False)
        for part, column in zip(wiring.around(nodes), whole.around(nodes), strict=True):
            np.testing.assert_array_equal(part, column)
    names = tuple(wiring.node_names)
    assert names == wiring.node_names
    assert [wiring.node_names.index(name) for name in names] == list(range(whole.n_nodes))
    assert [wiring.node_names[node] for node in range(whole.n_nodes)] == list(names)
    others = ("n00.gpu0", "leaf", "leaf01", f"n{figures['nodes']}.gpu0", "gpu0", "n0.gpu0x", 3)
    assert not any(other in wiring.node_names for other in others)


FAILURES = ("nic:n1.nic1", "gpu:n1.gpu[01]", "leaf:0", "link!:n1.nic1->*", "link:leaf0-*:1")
COVERING = [
    (system, ("adaptive", "ecmp")[(number + place) % 2], fail)
    for number, system in enumerate(SYSTEMS)
    for place, fail in enumerate(FAILURES)
]
"""Every two of a system, a routing and a failure."""


@pytest.mark.parametrize(("system", "routing", "fail"), COVERING)
def test_what_is_left_is_what_was_counted(system, routing, fail):
    name, figures = SYSTEMS[system]
    topology = load_topology(name, scale_out={**figures, "routing": routing})
    left = damaged(topology, fail)
    counted = left.wiring.n_gpus, left.wiring.n_links, left.wiring.n_physical_links
    whole = dataclasses.replace(left.wiring)
    assert counted == (whole.n_gpus, whole.n_links, whole.n_physical_links)
    before = topology.wiring
    for name in ("link_src", "link_dst"):
        ends = [before.node_names[node] for node in getattr(before, name)[left.damage.links].tolist()]
        assert ends == [whole.node_names[node] for node in getattr(whole, name).tolist()]


def test_a_cluster_made_later_is_copied_whole():
    topology = damaged(load_topology("hgx_h100", scale_out={"nodes": 3}), "nic:n1.nic1")
    again = pickle.loads(pickle.dumps(topology))
    assert again.wiring.node_names == topology.wiring.node_names
    for one, other in ((again.wiring, topology.wiring), (again.cluster, topology.cluster)):
        arrays = [name for name in type(one).__slots__ if isinstance(getattr(one, name), np.ndarray)]
        assert all((getattr(one, name) == getattr(other, name)).all() for name in arrays)
