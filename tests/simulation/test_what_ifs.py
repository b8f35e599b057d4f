"""What-ifs on calibrated systems: links, loads, latencies and memories count beside the constants of a profile.

Each expectation is a law of the wires: what a link carried during u of a time t takes it u t / r at r of its rate,
whatever a library does; nothing arrives before the latency of its way; what takes no part changes nothing.
"""

import functools
import itertools

import numpy as np
import pytest

import collsim
from collsim.core.operations import OPERATIONS
from collsim.fabric.fabric import build_fabric
from collsim.topology import load_topology, zoo_names
from collsim.topology.zoo import cluster_names
from tests.property.depth import deep_but

USUAL_NODES = ("hgx_h100", "dgx2_v100", "mi300x_ubb8")
ALL_NODES = (
    "hgx_h100", "hgx_h200", "hgx_b200", "hgx_b300", "dgx_a100", "dgx1_v100", "dgx2_v100", "gh200_nvl32", "gb200_nvl72",
    "gb300_nvl72", "vr200_nvl144", "mi250x_node", "mi300x_ubb8", "mi325x_ubb8", "mi350x_ubb8", "mi355x_ubb8",
)  # fmt: skip
NODES = deep_but(USUAL_NODES, ALL_NODES)
"""Systems with a profile of their own, fitted or derived."""
CLUSTERS = deep_but(("h100_rail",), ("h100_rail", "alps", "polaris", "mi355x_pollara"))
"""Clusters of each kind of network that was fitted."""
COLLECTIVES = tuple(name for name in OPERATIONS if name != "all_to_all_v")
ROUNDING = 1e-9
SOFT = 1e-6
"""The floor of the host and the time on the device meet softly: of a hop that is added so much may be hidden."""
HOP_S = 10e-6
ROOTED = ("gather", "scatter")
"""Bytes of calls in a row flow one way only: latencies need not show."""


def rows(topo, op, size="64M", **changes):
    """Return the rows of all that the fabric can carry out and of what the library chooses, by algorithm."""
    whole = load_topology(topo)
    ranks = min(whole.n_gpus, 8 if whole.cluster is None else 2 * whole.cluster.node.n_gpus)
    result = collsim.simulate(topo, op, size, ranks=ranks, algo=["all", "auto"], **changes)
    return {(row.algo, row.proto): row for row in result.rows}


@functools.cache
def usual(topo, op):
    """Return the rows of a system as it ships."""
    return rows(topo, op)


def same(before, after):
    """Return pairs of rows with one algorithm and protocol: the library may choose another one after a change."""
    pairs = [(row, after[key]) for key, row in before.items() if key in after]
    assert pairs
    return pairs


def refuse_faster_than_wires(before, after, rate, slowed=""):
    """Assert that no row is faster than its busiest link at *rate*, a part of what it had.

    Links with *slowed* in their names have it; where others are the busiest, the row is at least no faster than before.
    """
    bound = 0
    for row, slow in same(before, after):
        busiest = max((load.utilisation for load in row.bottleneck if slowed in load.link), default=0.0)
        assert slow.time_s >= busiest * row.time_s / rate * (1 - ROUNDING), row.algo
        assert slow.time_s >= row.time_s * (1 - ROUNDING), row.algo
        bound += busiest > 0
    assert bound


@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("topo", NODES)
class TestLinksOfANode:
    def test_half_the_rate(self, topo, op):
        refuse_faster_than_wires(usual(topo, op), rows(topo, op, degrade=["link:*-*=50%"]), 0.5)

    def test_background_load(self, topo, op):
        """A load of 40 % leaves 0.6 of a link, one of 80 % leaves 0.2."""
        light, heavy = (rows(topo, op, load=[f"link:*-*={load}"]) for load in ("40%", "80%"))
        refuse_faster_than_wires(usual(topo, op), light, 0.6)
        assert all(more.time_s > less.time_s for less, more in same(light, heavy))

    def test_latency_adds_a_hop(self, topo, op):
        more_s = load_topology(topo).fact("link.latency").value + HOP_S
        for row, later in same(usual(topo, op), rows(topo, op, overrides=[f"link.latency={more_s * 1e9:.3f} ns"])):
            added_s = 0.0 if op in ROOTED else HOP_S * (1 - SOFT)
            assert later.time_s >= row.time_s + added_s, row.algo


@pytest.mark.parametrize(
    "case",
    deep_but(
        [*zip(itertools.cycle(USUAL_NODES), COLLECTIVES, strict=False)], [*itertools.product(ALL_NODES, COLLECTIVES)]
    ),
    ids=str,
)
def test_half_the_efficiency_is_half_the_rate(case):
    topo, op = case
    half = load_topology(topo).fact("link.efficiency").value / 2
    refuse_faster_than_wires(usual(topo, op), rows(topo, op, overrides=[f"link.efficiency={half}"]), 0.5)


@pytest.mark.parametrize(
    "op", deep_but(("all_reduce", "all_to_all"), ("all_reduce", "all_gather", "all_to_all", "broadcast", "send_recv"))
)
@pytest.mark.parametrize("topo", CLUSTERS)
class TestLinksBetweenNodes:
    def test_half_the_rate(self, topo, op):
        refuse_faster_than_wires(usual(topo, op), rows(topo, op, degrade=["link:*nic*-*=50%"]), 0.5, "nic")

    def test_background_load(self, topo, op):
        light, heavy = (rows(topo, op, load=[f"link:*nic*-*={load}"]) for load in ("40%", "80%"))
        refuse_faster_than_wires(usual(topo, op), light, 0.6, "nic")
        assert all(more.time_s > less.time_s for less, more in same(light, heavy))

    def test_latency_adds_a_hop(self, topo, op):
        """At 16 KiB; the steps of many channels that fill an adapter hide each other's waits."""
        more_s = load_topology(topo).fact("scale_out.link_latency").value + HOP_S
        before, later = (
            rows(topo, op, "16K", overrides=changes) for changes in ([], [f"scale_out.link_latency={more_s * 1e9} ns"])
        )
        assert all(b.time_s >= a.time_s + HOP_S * (1 - SOFT) for a, b in same(before, later))


class TestSharedLinks:
    @pytest.mark.parametrize("oversubscription", [2, 4])
    def test_oversubscription_slows_all_to_all(self, oversubscription):
        """Of 4 nodes, 8 ranks of 64 MiB each send 3/4 of it out of their node: up to the spines at 1/2 or 1/4 rate."""
        network = ["scale_out.nodes=4", "scale_out.fabric=fat_tree", "scale_out.radix=16"]
        uplinks = [*network, f"scale_out.oversubscription={oversubscription}"]
        even, uneven = (
            collsim.simulate("hgx_h100", "all_to_all", "64M", overrides=changes).rows[0]
            for changes in (network, uplinks)
        )
        assert even.algo == uneven.algo == "nccl_pxn"
        assert uneven.time_s >= 0.75 * 2**26 * oversubscription / 50e9
        assert uneven.time_s > 0.8 * oversubscription * even.time_s

    @pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
    def test_groups_share_oversubscribed_links(self, op):
        """Eight groups of a GPU of each of 4 nodes send eight times as much over the uplinks as one of them alone."""
        network = [
            "scale_out.nodes=4",
            "scale_out.fabric=fat_tree",
            "scale_out.radix=16",
            "scale_out.oversubscription=4",
        ]
        told = {"overrides": network, "algo": "direct" if op == "all_to_all" else "ring"}
        alone = collsim.simulate("hgx_h100", op, "64M", rank_list=[0, 8, 16, 24], **told).rows[0]
        together = collsim.simulate("hgx_h100", op, "64M", split="MOD 8", **told).rows[0]
        moved = {"all_reduce": 1.5, "all_gather": 0.75, "all_to_all": 0.75}[op] * 2**26
        assert together.time_s >= moved * 4 / 50e9
        assert together.time_s > alone.time_s

    def test_load_on_the_way_counts_beside_the_load_of_another_group(self):
        """Two pairs of a mesh on links of their own do not meet; a load on the links of one slows it alone."""
        both = collsim.simulate("mi300x_ubb8", "send_recv", "64M", groups=[[0, 1], [2, 3]])
        loaded = collsim.simulate(
            "mi300x_ubb8", "send_recv", "64M", groups=[[0, 1], [2, 3]], load=["link:gpu0->gpu1=50%"]
        )
        first, second = ([group.time_s for group in result.rows[0].group_times] for result in (both, loaded))
        assert first[0] == pytest.approx(first[1], rel=1e-12)
        assert second[0] > 1.3 * first[0]
        assert second[1] == pytest.approx(first[1], rel=1e-12)


def matrix(n, *pairs):
    """Return int[n, n] with 64 MiB from the first to the second of each pair."""
    table = np.zeros((n, n), dtype=np.int64)
    table[tuple(np.transpose(pairs))] = 2**26
    return table


@pytest.mark.parametrize("topo", [*(node for node in NODES if "mi250x_node" not in str(node)), *CLUSTERS])
class TestWhatTakesNoPart:
    """All but MI250X, whose GPUs 1 and 2 have no link: others forward what they send."""

    @pytest.mark.parametrize("damage", ["gpu:gpu0=50%", "gpu:gpu3=10%"])
    def test_messages_past_a_slow_gpu(self, topo, damage):
        """GPUs 0 and 3 neither send nor receive, and forward nothing."""
        whole = load_topology(topo)
        slow = damage if whole.cluster is None else damage.replace("gpu:gpu", "gpu:node0/")
        asked = {"matrix": matrix(4, (1, 2)), "rank_list": [0, 1, 2, 3]}
        row = collsim.simulate(topo, "all_to_all_v", degrade=[slow], **asked).rows[0]
        assert row.time_s == pytest.approx(row.healthy_time_s, rel=ROUNDING)

    @pytest.mark.parametrize("op", ["send_recv", "all_reduce", "all_to_all"])
    def test_groups_without_the_slow_gpu(self, topo, op):
        whole = load_topology(topo)
        slow = "gpu:gpu0=50%" if whole.cluster is None else "gpu:node0/0=50%"
        row = collsim.simulate(topo, op, "64M", rank_list=[1, 2], degrade=[slow]).rows[0]
        assert row.time_s == pytest.approx(row.healthy_time_s, rel=ROUNDING)


class TestSlowGpus:
    def test_a_slow_receiver_takes_what_its_links_can(self):
        """256 MiB into 225 GB/s are 1193 us; the channels of the sender alone reach 356 GB/s, 754 us."""
        row = self.into(2)
        assert row.healthy_time_s == pytest.approx(754.3e-6, rel=0.001)
        assert 2**28 / 225e9 < row.time_s < 1.3 * 2**28 / 225e9

    def test_a_slow_sender_too(self):
        assert 2**28 / 225e9 < self.into(1).time_s < 1.3 * 2**28 / 225e9

    def into(self, slow):
        table = matrix(8, (1, 2)) * 4
        return collsim.simulate("hgx_h100", "all_to_all_v", matrix=table, degrade=[f"gpu:gpu{slow}=50%"]).rows[0]

    def test_one_slow_child_of_a_root(self):
        """A scatter sends 1/8 to each: the way into one GPU at half rate is still four times as wide as its share."""
        row = collsim.simulate("hgx_h100", "scatter", "256M", algo="direct", degrade=["gpu:gpu5=50%"]).rows[0]
        assert row.time_s == pytest.approx(row.healthy_time_s, rel=0.01)

    def test_a_ring_is_as_slow_as_its_slowest_gpu(self):
        """14 steps of 32 MiB through 225 GB/s; with all GPUs at half rate nothing is slower."""
        one, all_of_them = (
            collsim.simulate("hgx_h100", "all_reduce", "256M", algo="ring", degrade=[f"gpu:{which}=50%"]).rows[0]
            for which in ("gpu5", "*")
        )
        assert 14 * 2**25 / 225e9 < one.time_s <= all_of_them.time_s * (1 + ROUNDING)


class TestMemory:
    @pytest.mark.parametrize(
        ("op", "moved"), [("all_gather", 2 * 7 / 8), ("reduce_scatter", 3 * 7 / 8), ("all_reduce", 5 * 7 / 8)]
    )
    @pytest.mark.parametrize("topo", ["hgx_h100", "mi300x_ubb8"])
    def test_rings_read_and_write(self, topo, op, moved):
        """A ring reads what it sends and writes what arrives, 7/8 of the buffer each; it reads as much to add to it."""
        row = collsim.simulate(topo, op, "256M", algo="ring", overrides=["gpu.memory_bandwidth=100 GB/s"]).rows[0]
        least_s = moved * 2**28 / 100e9
        assert least_s < row.time_s < 1.05 * least_s

    @pytest.mark.parametrize("topo", [*zoo_names(), *cluster_names()])
    def test_no_shipped_memory_binds(self, topo):
        assert build_fabric(load_topology(topo), [0, 1], efficiency=False, latency=False).memory_Bps is None


class TestWhatIsSaid:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("link.latency=10 us", "9.85 us per link is added to steps"),
            ("link.latency=1 ns", "hold 150 ns, and no log tells what less would save"),
            ("switch.latency=1 us", "800 ns per switch is added to steps"),
            ("link.efficiency=0.412", "rates are 50.0% of those at 0.824"),
            ("link.efficiency=0.9", 'changes nothing: constants of profile "hgx_h100" hold what the library reaches'),
            ("switch.in_network_efficiency=0.425", "rates are 50.0% of those at 0.85"),
            ("gpu.memory_bandwidth=2 TB/s", "changes nothing: links never need more than 1.35 TB/s of it"),
            ("gpu.memory_bandwidth=1 TB/s", "is shared by all that GPUs read, write and add"),
            ("nic.bandwidth=100 Gb/s", "changes nothing within one node"),
            ("switch.ports=72", "changes nothing: it is only compared with the wiring"),
        ],
    )
    def test_of_a_figure(self, change, said):
        """What is said to change nothing changes nothing, and the other way round."""
        usual, changed = (
            collsim.simulate("hgx_h100", "all_reduce", "64M", algo=["ring", "nvls"], overrides=overrides)
            for overrides in ([], [change])
        )
        assert any(warning.startswith(change) and said in warning for warning in changed.warnings), changed.warnings
        equal = [a.time_s == b.time_s for a, b in zip(usual.rows, changed.rows, strict=True)]
        assert all(equal) == ("changes nothing" in said or "no log" in said)

    def test_bare_wires(self):
        result = collsim.simulate("hgx_h100", "all_reduce", "64M", profile="ideal", overrides=["link.latency=1 us"])
        assert any("link.latency=1 us changes nothing" in warning for warning in result.warnings)

    def test_latency_that_counts_needs_no_words(self):
        result = collsim.simulate("hgx_h100", "all_reduce", "64M", profile="default", overrides=["link.latency=1 us"])
        assert not any(warning.startswith("link.latency") for warning in result.warnings)

    def test_a_file_that_extends_a_shipped_one(self, tmp_path):
        """It says the same as an override, and takes as long."""
        file = tmp_path / "late.yaml"
        file.write_text("schema: collsim.topology/1\nextends: hgx_h100\nlink: {latency: 10 us}\n")
        own = collsim.simulate(file, "all_reduce", "64M", algo="ring")
        override = collsim.simulate("hgx_h100", "all_reduce", "64M", algo="ring", overrides=["link.latency=10 us"])
        assert own.rows[0].time_s == override.rows[0].time_s
        assert any(warning.startswith("link.latency=10 us: 9.85 us per link") for warning in own.warnings)

    @pytest.mark.parametrize(
        ("variables", "idle"),
        [
            ({"NCCL_NVLS_ENABLE": "0"}, []),
            ({"NCCL_NET_OVERHEAD": "5"}, ["NCCL_NET_OVERHEAD"]),
            ({"NCCL_ALGO": "Ring", "NCCL_P2P_NET_CHUNKSIZE": "65536"}, ["NCCL_P2P_NET_CHUNKSIZE"]),
            ({"NCCL_MAX_NRINGS": "4"}, ["NCCL_MAX_NRINGS"]),
        ],
    )
    def test_of_variables(self, variables, idle):
        """One that changes the choice at some size is not said to do nothing."""
        result = collsim.simulate("hgx_h100", "all_reduce", ["64M"], environment=variables)
        found = [warning.partition("=")[0] for warning in result.warnings if "changes nothing here" in warning]
        assert found == idle

    def test_of_kernels_with_experts(self):
        """They have constants of their own and wires at line rate: as fast, and the reason is said."""
        usual, late = (
            collsim.simulate_moe("hgx_h100", "deepseek-v3", ep=8, overrides=changes)
            for changes in ([], ["link.latency=1 ms"])
        )
        assert [row.time_s for row in usual.rows] == [row.time_s for row in late.rows]
        assert "link.latency=1 ms changes nothing: kernels with experts have constants of their own" in late.warnings


def test_words_and_counts_without_effect_are_told():
    asked = {"nodes": 4, "profile": "ideal"}
    settings = (("scale_out.radix", "32", True), ("nic.distance", "sys", True), ("nic.shared_by", "2", False))
    for path, value, idle in settings:
        found = collsim.simulate("hgx_h100", "all_reduce", "1M", overrides={path: value}, algo="ring", **asked)
        told = f"{path}={value} changes nothing: the same times without it"
        assert (told in found.warnings) == idle
