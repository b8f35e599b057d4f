"""Variables that take another path between nodes or GPUs, against the arithmetic of what the bytes then cross."""

import pytest

import collsim
from collsim.core.errors import CollsimError, InputError
from collsim.library import read_environment
from collsim.topology import load_topology
from collsim.topology.cluster.bonds import bond_share

GPUS = 16


def busbw(topology, op="all_to_all", size="1G", **variables):
    return collsim.simulate(topology, op, size, environment=variables).rows[0].busbw_Bps


@pytest.fixture(scope="module")
def cluster():
    return load_topology("hgx_h100", scale_out={"nodes": 2})


def test_sockets_bound_the_part_that_crosses(cluster):
    """Of an all-to-all 8 of 15 parts cross, by an adapter for each GPU, none of which carries above 4.7 GB/s."""
    crossing = busbw(cluster, NCCL_IB_DISABLE="1") * 8 / 15
    assert 0.5 * 4.7e9 < crossing <= 4.7e9
    assert busbw(cluster, NCCL_NET="Socket") == busbw(cluster, NCCL_IB_DISABLE="1")


def test_without_gpudirect_half_the_bus_is_left(cluster):
    spec = cluster.cluster.spec
    half_Bps = spec.bus_rate_Bps / 2 * spec.bus_efficiency
    assert busbw(cluster, NCCL_NET_GDR_LEVEL="LOC") * 8 / 15 <= half_Bps < busbw(cluster) * 8 / 15


def test_variables_that_say_the_usual_change_nothing(cluster):
    result = collsim.simulate(cluster, "all_to_all", "1G", environment={"NCCL_NET_GDR_LEVEL": "SYS"})
    assert result.rows[0].busbw_Bps == busbw(cluster)
    assert "NCCL_NET_GDR_LEVEL=SYS changes nothing on this network" in result.warnings
    assert result.profile["calibrated"]


def test_another_path_is_not_what_was_calibrated(cluster):
    result = collsim.simulate(cluster, "all_to_all", "1G", environment={"NCCL_NET": "Socket"})
    assert not result.profile["calibrated"]
    assert result.rows[0].time_lo_s is None


def test_a_failed_adapter_counts_on_another_transport_too(cluster):
    """Seven of eight adapters carry what all did."""
    variables = {"NCCL_NET": "Socket"}
    row = collsim.simulate(cluster, "all_to_all", "1G", environment=variables, fail=["nic:n0.nic0"]).rows[0]
    assert row.slowdown == pytest.approx(8 / 7, rel=0.02)


@pytest.mark.parametrize("variable", [{"NCCL_PXN_DISABLE": "1"}, {"NCCL_P2P_PXN_LEVEL": "0"}])
def test_without_relays_messages_for_other_rails_cross_the_spines(variable):
    """Four nodes of eight rails: of what adapters send 7 of 8 parts are for other rails, and spines carry half
    of what leaves do."""
    figures = {"nodes": 4, "fabric": "rail", "radix": 8, "oversubscription": 2}
    narrow = load_topology("hgx_h100", scale_out=figures)
    row = collsim.simulate(narrow, "all_to_all", "1G", environment=variable).rows[0]
    crossing_bytes = row.size_bytes * 24 / 32 * 7 / 8
    up_Bps = narrow.cluster.spec.nic_rate_Bps / 2
    assert crossing_bytes / up_Bps <= row.time_s <= 1.15 * crossing_bytes / up_Bps
    assert row.time_s > 1.6 * collsim.simulate(narrow, "all_to_all", "1G").rows[0].time_s


@pytest.mark.parametrize("op", ["all_to_all", "gather"])
def test_without_relays_nothing_joins_rails_that_no_switch_joins(op):
    apart = load_topology("hgx_h100", scale_out={"nodes": 2, "fabric": "rail_only"})
    assert collsim.simulate(apart, op, "1M").rows
    with pytest.raises(CollsimError, match="only switches join rails"):
        collsim.simulate(apart, op, "1M", environment={"NCCL_PXN_DISABLE": "1"})


def test_queue_pairs_of_bonded_ports():
    """Mean over hashes by hand: of 4 pairs on 2 ports 6 of 16 ways split 2:2, 8 split 3:1, 2 use one port."""
    assert bond_share(2, 4) == pytest.approx((6 * 4 / 4 + 8 * 4 / 6 + 2 * 4 / 8) / 16)
    bond = load_topology("hgx_h100", {"nic.ports": "2", "nic.bandwidth": "200 Gb/s"}, scale_out={"nodes": 2})
    rates = [busbw(bond, NCCL_IB_QPS_PER_CONNECTION=pairs) for pairs in ("1", "4", "8")]
    assert rates == sorted(rates)
    assert rates[1] / rates[0] == pytest.approx(bond_share(2, 4) / bond_share(2, 1), rel=0.02)


def test_without_peer_access_gpus_meet_in_their_host():
    """A ring over the host's memory sends and receives on one PCIe 5 x16 bus of 63 GB/s, far below NVLink."""
    result = collsim.simulate("hgx_h100", "all_reduce", "1G", environment={"NCCL_P2P_DISABLE": "1"})
    assert 10e9 < result.rows[0].busbw_Bps < 63e9
    assert result.rows[0].algo == "ring"
    assert result.rows[0].time_lo_s is None


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("NCCL_IB_DISABLE=yes", "write NCCL_IB_DISABLE=1"),
        ("NCCL_NET_GDR_LEVEL=PBH", 'unknown level "PBH"'),
        ("NCCL_IB_QPS_PER_CONNECTION=0", "1 to 128"),
    ],
)
def test_bad_values_are_refused(word, told):
    with pytest.raises(InputError, match="NCCL") as error:
        read_environment([word])
    assert told in str(error.value)


def test_queue_pairs_spread_what_a_hash_sends():
    """Each queue pair has a hash of its own: many are nearer to an even load than one."""
    fabric = {"nodes": 4, "racks": 4, "fabric": "fat_tree", "network": "roce"}
    hashed = load_topology("hgx_h100", {"scale_out.routing": "ecmp"}, scale_out=fabric)
    one, many = (busbw(hashed, NCCL_IB_QPS_PER_CONNECTION=pairs) for pairs in ("1", "16"))
    assert many > 1.2 * one
    assert one == busbw(hashed)


def test_without_peers_the_gpus_of_each_node_meet_in_its_memory(cluster):
    """A ring of two nodes passes every byte of 30/16 of the size through the memory of a socket, twice; a rank alone on
    its node has no peers."""
    rate_Bps = busbw(cluster, "all_reduce", NCCL_P2P_DISABLE="1")
    assert rate_Bps < 307.2e9 / 2 / 3 < busbw(cluster, "all_reduce") / 5  # three of four GPUs write to their own socket
    alone, usual = (
        collsim.simulate(cluster, "all_reduce", "1G", environment=variables, rank_list=[0, 8]).rows
        for variables in ({"NCCL_P2P_DISABLE": "1"}, {})
    )
    assert alone == usual
    result = collsim.simulate(cluster, "all_reduce", "1G", environment={"NCCL_P2P_DISABLE": "1"})
    assert not result.profile["calibrated"]
    assert not any("changes nothing" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NCCL_SOCKET_NTHREADS", "nic.bandwidth"),
        ("NCCL_NSOCKS_PERTHREAD", "nic.bandwidth"),
        ("NCCL_CROSS_NIC", "rails"),
        ("NCCL_NET_GDR_READ", "NCCL_NET_GDR_LEVEL"),
    ],
)
def test_variables_that_are_ignored_say_why(name, reason):
    (told,) = read_environment({name: "1"}).warnings
    assert told.startswith(f"{name} is not modelled and is ignored: ")
    assert reason in told


@pytest.mark.parametrize(
    ("variables", "shared_by"),
    [
        ({"NCCL_IB_HCA": "=mlx5_0,mlx5_2,mlx5_5:1,mlx5_7"}, 2), ({"NCCL_IB_HCA": "mlx5_0"}, 8),
        ({"NCCL_IB_HCA": "mlx5"}, 1), ({"NCCL_IB_HCA": "^mlx5_1"}, 1), ({"NCCL_SOCKET_IFNAME": "eth0"}, 1),
        ({"NCCL_SOCKET_IFNAME": "eth0", "NCCL_NET": "Socket"}, 8),
    ],
)  # fmt: skip
def test_names_of_adapters_leave_so_many(variables, shared_by):
    """As many as `nic.shared_by` leaves; an interface carries data over sockets only."""
    used, fewer = (
        load_topology("hgx_h100", figures, scale_out={"nodes": 2})
        for figures in ({}, {"nic.shared_by": str(shared_by)})
    )
    others = {name: value for name, value in variables.items() if name == "NCCL_NET"}
    found, expected = (
        [row.time_s for row in collsim.simulate(machine, op, ["1M", "1G"], environment=given).rows]
        for op in ("all_gather",)
        for machine, given in ((used, variables), (fewer, others))
    )
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("variables", "slot_bytes"), [({}, 2**17), ({"NCCL_P2P_NET_CHUNKSIZE": str(2**19)}, 2**19)])
def test_over_a_long_way_eight_slots_of_each_connection_are_in_flight(variables, slot_bytes):
    """Of a message of 4 GiB nearly all waits for round trips; over short ways nothing does."""
    far = load_topology("hgx_h100", {"scale_out.link_latency": "5 ms"}, scale_out={"nodes": 2})
    size = 2**32
    (row,) = collsim.simulate(far, "send_recv", size, environment=variables, rank_list=[0, 8]).rows
    windows = size / row.channels / (8 * slot_bytes)  # each channel has a connection
    assert row.time_s == pytest.approx(windows * 2 * 2 * 5e-3, rel=0.01)


@pytest.mark.parametrize(("topo", "nodes", "op"), [("mi300x_ubb8", 1, "broadcast"), ("hgx_h100", 64, "all_reduce")])
def test_every_call_is_longer_by_the_skew_of_starts(topo, nodes, op):
    """Nobody is done before the last rank has begun; on 512 GPUs, too, of which some stand for others."""
    scale_out = {"nodes": nodes} if nodes > 1 else None
    machines = [load_topology(topo, figures, scale_out=scale_out) for figures in ({}, {"cpu.start_skew": "200 us"})]
    times = [[row.time_s for row in collsim.simulate(machine, op, ["64K", "1G"]).rows] for machine in machines]
    assert times[1] == pytest.approx([time_s + 200e-6 for time_s in times[0]], rel=1e-9)
