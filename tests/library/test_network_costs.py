"""Steps between nodes: turns and arrivals that others fill, which constants hold where, and fits of them."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

import collsim
from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.fit import fit_profile
from collsim.calibration.log_placement import predicted
from collsim.calibration.profile_writer import as_yaml
from collsim.core.errors import InputError, SpecError
from collsim.core.units import parse_size_bytes
from collsim.engine import Problem, solve
from collsim.library import load_profile
from collsim.library.costs.channel_costs import Protocol, Use
from collsim.library.costs.network_costs import Steps
from collsim.library.costs.profile import NetworkCosts, Scatter
from collsim.library.costs.profile_files import network_for
from collsim.simulation.arrivals import with_arrivals
from collsim.topology import load_topology

LIBRARY = "nccl-2.28"
LINK_BPS = 50e9


def cluster(name="hgx_h100", **scale_out):
    return load_topology(name, scale_out={"nodes": 4, **scale_out})


def with_costs(family="ring", proto="Simple", **figures):
    """Return the profile of H100 with bare steps between nodes, but for some figures."""
    profile = load_profile("hgx_h100", cluster())
    costs = profile.network.protocol(proto, family)
    bare = {"turn_s": 0.0, "message_overhead_s": 0.0, "channel_rate_Bps": 1e15, "link_share": 1.0, "base_s": 0.0}
    families = {**profile.network.families, family: {proto: replace(costs, **bare | figures)}}
    return replace(profile, network=replace(profile.network, families=families))


def ring_s(profile, size, channels=4, nodes=4):
    row = collsim.simulate(
        cluster(nodes=nodes, gpus_per_node=1), "all_gather", size, algo="ring", channels=channels, profile=profile
    ).rows[0]
    return row.time_s


@pytest.mark.parametrize("key", ["turn_s", "message_overhead_s"])
def test_other_channels_fill_the_overhead_of_a_step(key):
    """With four channels an overhead far shorter than their steps costs next to nothing; alone it costs itself."""
    size, overhead_s, steps = "512M", 10e-6, 3
    loss_s = {
        channels: ring_s(with_costs(**{key: overhead_s}), size, channels) - ring_s(with_costs(), size, channels)
        for channels in (1, 4)
    }
    chunks = 2**29 / 4 / 2**21
    assert loss_s[1] >= 0.9 * steps * overhead_s
    assert loss_s[4] < 0.01 * chunks * overhead_s
    short_s = ring_s(with_costs(**{key: overhead_s}), "4K") - ring_s(with_costs(), "4K")
    assert short_s == pytest.approx(steps * overhead_s, rel=0.2)  # nothing fills it


@pytest.mark.parametrize("link_share", [1.0, 0.5])
@pytest.mark.parametrize("size", ["1M", "8M", "64M"])
def test_nothing_fills_the_overhead_of_a_channel_that_is_alone(size, link_share):
    """Half an adapter is what it can have, not what others leave it: every chunk of 2 MiB waits all of its overhead."""
    costs = {"link_share": link_share}
    loss_s = ring_s(with_costs(message_overhead_s=10e-6, **costs), size, 1) - ring_s(with_costs(**costs), size, 1)
    chunks = max(parse_size_bytes(size, "size") / 4 / 2**21, 1)  # of the block of a rank
    assert loss_s == pytest.approx(3 * chunks * 10e-6, rel=1e-3)


@pytest.mark.parametrize(("active", "left"), [(1.0, 1.0), (1e6, 0.0)])
def test_a_step_waits_for_its_turn_and_for_the_arrival_less_what_others_fill(active, left):
    """Both overheads are left of a channel alone: the turn before its bytes, the hand-over behind them."""
    no = np.array([False])
    use = Use(lanes=np.ones(1), active=np.array([active]), alone_Bps=np.array([LINK_BPS]), duplex=no, adds=no)
    costs = Protocol(message_overhead_s=0.0, channel_rate_Bps=np.inf)
    turn_s, late_s = Steps(use).waits_s(costs, np.array([2.0**20]), np.array([np.inf]), (np.array([3e-6]), 5e-6))
    assert turn_s[0] == pytest.approx(3e-6 * left, abs=1e-9)
    assert late_s[0] == pytest.approx(5e-6 * left, abs=1e-9)


@pytest.mark.parametrize(("wire_bytes", "copied"), [(4096, 0), (8192, 8192), (16384, 16384), (65536, 16384)])
def test_a_host_copies_long_messages_for_all_channels_of_an_adapter(wire_bytes, copied):
    """LL: twice the payload on the wire. Two channels of 8 KiB get half of 1 GB/s each, of 4 KiB half of the link; of
    longer messages the first 16 KiB are copied, and the rest the receiver's adapter reads itself."""
    no = np.array([False])
    use = Use(lanes=np.ones(1), active=np.array([2.0]), alone_Bps=np.array([LINK_BPS]), duplex=no, adds=no)
    costs = Protocol(message_overhead_s=0.0, channel_rate_Bps=np.inf, wire_efficiency=0.5, host_rate_Bps=1e9)
    rate_Bps = Steps(use).rates_Bps(costs, np.array([wire_bytes / 2]), np.array([np.inf]))
    assert rate_Bps[0] == pytest.approx((1e9 * wire_bytes / copied if copied else LINK_BPS) / 2 / 2)


@pytest.mark.parametrize(("nodes", "levels"), [(2, 1), (4, 2), (8, 3)])
def test_steps_of_nvls_trees_grow_with_connections_and_levels(nodes, levels):
    """A thread serves 4 (n - 1) / n connections of a channel over n nodes, and heads agree at every level: so do they
    wait longer than the bytes, which pass on bare steps, and a chunk passes 2 levels of hops."""

    def time_s(**figures):
        topology = cluster(nodes=nodes)
        profile = with_costs("nvls", **figures)
        asked = {"algo": "nvls_tree", "library": LIBRARY, "profile": profile}
        return collsim.simulate(topology, "all_reduce", 2**22, **asked).rows[0].time_s

    bare_s = time_s()
    assert time_s(base_s=1e-3) - bare_s == pytest.approx(levels * 1e-3, rel=0.05)
    late_s = time_s(message_overhead_s=1e-3) - bare_s
    assert late_s >= 0.95 * 2 * levels * 2 * (nodes - 1) / nodes * 1e-3


def test_channels_share_the_adapter_and_its_share():
    size = 2**30
    for share in (1.0, 0.5):
        time_s = ring_s(with_costs(link_share=share), size)
        efficiency = load_topology("hgx_h100", scale_out={"nodes": 4}).cluster.spec.efficiency
        assert time_s == pytest.approx(3 / 4 * size / (share * efficiency * LINK_BPS), rel=0.02)
    one = ring_s(with_costs(channel_rate_Bps=5e9), size, channels=1)
    assert one == pytest.approx(3 / 4 * size / 5e9, rel=0.02)


def test_who_waits_for_bytes_waits_until_they_have_arrived():
    """Two transfers one after the other: the receiver of the first goes on 7 s later, its sender at once."""
    problem = Problem(
        capacity_Bps=np.array([1.0]), route_ptr=np.array([0, 1]), route_link=np.array([0]),
        route_weight=np.array([1.0]), route=np.array([0, 0, 0]), size_bytes=np.array([10.0, 1.0, 1.0]),
        latency_s=np.zeros(3), cap_Bps=np.full(3, np.inf), dep_ptr=np.array([0, 0, 1, 2]), dep=np.array([0, 0]),
    )  # fmt: skip
    late = with_arrivals(problem, np.array([0]), np.array([7.0]), np.array([True, False]))
    found = solve(late)
    assert found.ready_s[:3].tolist() == [0.0, 17.0, 10.0]
    assert found.finish_s.tolist() == [10.0, 18.0, 11.0, 17.0]


def test_messages_of_a_batch_share_the_rate_of_their_channel():
    profile = with_costs("messages", channel_rate_Bps=4e9, one_way_rate_Bps=4e9, softness=np.inf)
    asked = {"algo": "nccl_p2p", "channels": 4, "profile": profile}
    row = collsim.simulate(cluster(gpus_per_node=1), "send_recv", "256M", **asked).rows[0]
    parts = row.size_bytes / row.time_s / 4e9
    assert parts == pytest.approx(round(parts), rel=0.03)  # so many channels, each at its rate
    assert round(parts) in (1, 2, 4)


def test_messages_over_nodes_pay_the_base_between_nodes_once():
    asked = {"algo": "nccl_p2p", "channels": 4}
    costs = {"channel_rate_Bps": 4e9, "one_way_rate_Bps": 4e9}
    with_base, bare = (
        collsim.simulate(cluster(gpus_per_node=2), "all_to_all", "4M", profile=profile, **asked).rows[0].time_s
        for profile in (with_costs("messages", base_s=50e-6, **costs), with_costs("messages", **costs))
    )
    assert with_base - bare == pytest.approx(50e-6, rel=0.02)


@pytest.mark.parametrize(("network", "together"), [("slingshot", 2), ("infiniband", 1)])
def test_two_chunks_of_a_tree_of_simple_pass_as_one_over_slingshot_alone(network, together):
    asked = {"op": "all_reduce", "size": "64M", "library": LIBRARY}
    asked["environment"] = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
    nodes = cluster("dgx_a100", nodes=2, network=network)
    for topology, chunks in ((nodes, together), ("dgx_a100", 1)):  # within a node they follow one another
        usual, cut, other = (
            collsim.simulate(topology, **asked, chunk=chunk).rows[0].time_s
            for chunk in (None, chunks * 512 * 1024, (3 - chunks) * 512 * 1024)
        )
        assert usual == pytest.approx(cut, rel=1e-12)
        assert usual != pytest.approx(other, rel=1e-3)


class TestCopiesOfTheHost:
    """Over Slingshot the host copies what lines of LL bring (fi_cxi(7), FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD)."""

    def found(self, topology, threshold=None, **asked):
        set_to = {} if threshold is None else {"FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD": str(threshold)}
        asked = {"op": "all_reduce", "size": "512K", "ranks": 8, "library": "nccl-2.23"} | asked
        return collsim.simulate(topology, environment={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", **set_to}, **asked)

    def test_hosts_of_grace_copy_as_fast_as_those_of_x86_with_a_threshold_above_what_they_copy(self):
        usual, low, high = (self.found("alps", threshold) for threshold in (None, 4096, 2**24))
        assert low.rows[0].time_s == usual.rows[0].time_s
        assert any(
            "=4096 is taken as the default of 4096: on this network it counts from 16384" in text
            for text in low.warnings
        )
        assert not any("FI_CXI" in text for text in high.warnings)
        grace_Bps, x86_Bps = (
            load_profile("auto", load_topology(name)).network.protocol("LL", "ring").host_rate_Bps
            for name in ("alps", "polaris")
        )
        steps, payload = 2 * (8 - 1), 512 * 1024 / 8 / 4  # all adapters of a node send in every step of a ring
        saved_s = steps * 2 * payload * (1 / grace_Bps - 1 / x86_Bps)  # lines: flags are half of what is on the wire
        assert usual.rows[0].time_s - high.rows[0].time_s == pytest.approx(saved_s, rel=0.05)

    def test_hosts_of_x86_copy_as_fast_anyway(self):
        usual, high = (self.found("polaris", threshold) for threshold in (None, 2**24))
        assert high.rows[0].time_s == usual.rows[0].time_s
        assert any(f"{2**24} changes nothing on this network" in text for text in high.warnings)

    @pytest.mark.parametrize("value", ["16K", "abc", "-5", "-2", str(2**63)])
    def test_what_is_no_number_of_bytes_is_refused_with_one_that_counts(self, value):
        with pytest.raises(InputError) as refused:
            self.found("alps", value)
        assert "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=16384" in refused.value.faults[0].hint

    def test_elsewhere_nothing_is_copied(self):
        for topology in ("h100_rail", "alps"):
            asked = {"ranks": 16} if topology == "h100_rail" else {"ranks": 4}
            usual, high = (self.found(topology, threshold, **asked) for threshold in (None, 2**24))
            assert high.rows[0].time_s == usual.rows[0].time_s


class TestWhichConstants:
    def test_by_network_and_gpu(self):
        names = {
            (node, network): load_profile("auto", cluster(node, network=network)).network.name
            for node, network in (
                ("hgx_h100", "infiniband"), ("hgx_b200", "infiniband"), ("dgx_a100", "infiniband"),
                ("hgx_h100", "efa"), ("dgx_a100", "efa"),
                ("hgx_h100", "roce"), ("mi300x_ubb8", "roce"), ("mi355x_ubb8", "ultra_ethernet"),
            )
        }  # fmt: skip
        assert list(names.values()) == [
            "infiniband", "infiniband", "infiniband_a100", "efa", "efa_a100", "infiniband", "roce", "ultra_ethernet",
        ]  # fmt: skip

    def test_h100_on_slingshot_has_adapters_as_gh200_and_hosts_as_a100(self):
        gpus = "H100 SXM5", "GH200", "A100 SXM4"
        found, grace, x86 = (network_for("slingshot", gpu, LIBRARY).families for gpu in gpus)
        for family in ("ring", "chain"):
            rates = [costs[family]["LL"].host_rate_Bps for costs in (found, grace, x86)]
            assert rates[0] == rates[2] > rates[1]
        shares = [costs["ring"]["Simple"].link_share for costs in (found, grace, x86)]
        assert shares[0] == shares[1] > shares[2]

    def test_one_node_and_bare_wires_have_none_of_their_own(self):
        assert load_profile("hgx_h100").network == load_profile("default").network
        assert load_profile("ideal", cluster()).network == NetworkCosts()

    def test_a_kernel_without_costs_has_those_of_rings(self):
        network = load_profile("default").network
        ring = network.families["ring"]["Simple"]
        for family in ("ring", "chain", "nvls", "messages", "direct", "fan"):
            assert network.protocol("Simple", family) == ring
        assert network.protocol("LL", "rooted") == network.families["ring"]["LL"]
        assert network.protocol("Simple", "rooted") == replace(ring, turn_s=ring.turn_s / 2)  # one slice, not two
        assert network.protocol("Simple", "sharp") == network.families["sharp"]["Simple"]

    def test_intervals_where_logs_were_fitted_whatever_the_number_of_nodes(self):
        asked = {"op": "all_reduce", "size": "1G", "library": LIBRARY}
        fitted = collsim.simulate(cluster(nodes=6), **asked)
        assert fitted.profile["calibrated"]
        row = fitted.rows[0]
        assert row.time_lo_s < row.time_s < row.time_hi_s
        other = collsim.simulate(cluster(network="spectrum_x"), **asked)
        assert other.profile["calibrated"] is False
        assert other.rows[0].time_lo_s is not None  # errors of sites left out hold for another network of the law
        changed = collsim.simulate(load_topology("h100_rail", {"nic.bandwidth": "200 Gb/s"}), ranks=16, **asked)
        assert changed.rows[0].time_lo_s is None
        assert any("stand in for those of" in warning for warning in other.warnings)

    def test_a_network_whose_rows_fix_no_number_is_not_called_calibrated(self):
        asked = {"op": "all_reduce", "size": "1G", "library": "rccl-2.22"}
        found = collsim.simulate(load_topology("mi300x_ubb8", scale_out={"nodes": 2, "network": "roce"}), **asked)
        assert found.profile["calibrated"] is False
        assert "5 rows fix 0 of 4 free numbers: the others, and other ranks" in found.profile["constants"]
        told = "between nodes, constants are not calibrated: rccl-2.22 over nodes of mi300x_roce, fitted to 1 log"
        assert any(warning.startswith(told) for warning in found.warnings)

    def test_groups_inside_nodes_run_and_are_judged_as_one_node(self):
        asked = {"op": "all_reduce", "size": "64M", "library": LIBRARY}
        alone = collsim.simulate("hgx_h100", **asked)
        topology = load_topology("h100_rail")
        for where in ({"rank_list": list(range(8, 16))}, {"ranks": 16, "split": "DIV 8"}):
            inside = collsim.simulate(topology, **asked, **where)
            assert inside.profile["calibrated"]
            assert inside.rows[0].algo == "nvls"
            for key in ("time_s", "time_lo_s", "time_hi_s"):
                assert getattr(inside.rows[0], key) == pytest.approx(getattr(alone.rows[0], key), rel=1e-9)

    def test_derived_nodes_and_steps_of_sharp_are_not_called_measured(self):
        derived = collsim.simulate(load_topology("polaris"), "all_reduce", "64M", ranks=8, library="nccl-2.18")
        assert not derived.profile["calibrated"]
        sharp = collsim.simulate(
            cluster(), "all_reduce", "64M", library=LIBRARY, environment={"NCCL_COLLNET_ENABLE": "1"}
        )
        assert (sharp.rows[0].algo, sharp.rows[0].time_lo_s) == ("nvls_sharp", None)
        assert any("no log of SHARP" in warning for warning in sharp.warnings)

    def test_where_no_log_has_these_gpus_intervals_reach_twice_as_far_from_1_mib_on(self):
        reach = {}
        for node, network, library in (
            ("hgx_h100", "infiniband", LIBRARY), ("hgx_b200", "infiniband", LIBRARY), ("hgx_h100", "roce", LIBRARY),
            ("mi300x_ubb8", "roce", "rccl-2.22"), ("mi355x_ubb8", "ultra_ethernet", "rccl-2.27"),
            ("mi355x_ubb8", "roce", "rccl-2.27"), ("mi250x_node", "slingshot", "rccl-2.22"),
        ):  # fmt: skip
            topology = load_topology(node, scale_out={"nodes": 2, "network": network})
            rows = collsim.simulate(topology, "all_gather", ["64K", "1G"], library=library).rows
            reach[node, network] = [np.log(row.time_hi_s / row.time_s) for row in rows]
        small, large = np.array(list(reach.values())).T
        assert small == pytest.approx(small[0], rel=0.5)  # hosts of another kind may add to that
        assert large / large[0] == pytest.approx([1, 2, 2, 1, 1, 2, 2], rel=1e-6)

    def test_a_wide_interval_says_why(self):
        asked = {"op": "all_reduce", "size": ["1M", "1G"], "library": LIBRARY}
        wide, narrow = collsim.simulate(cluster(nodes=32), **asked).rows
        assert "sites differ" in wide.wide_because
        assert "logs have at most 10 nodes" in wide.wide_because
        assert narrow.wide_because == ""
        for row in (wide, narrow):
            assert bool(row.wide_because) == (row.time_hi_s > 2.5 * row.time_s or row.time_lo_s < row.time_s / 2.5)

    def test_many_nodes_may_take_longer_than_any_law_says(self):
        asked = {"op": "reduce_scatter", "size": "1G", "library": LIBRARY}
        ratios = []
        for nodes in (63, 64):
            topology = cluster(nodes=nodes, gpus_per_node=1)
            row = collsim.simulate(topology, ranks=nodes, **asked).rows[0]
            ratios.append(row.time_hi_s / row.time_s)
        assert ratios[1] == pytest.approx(2.5 * ratios[0], rel=0.05)  # one node more reaches a little further too

    def test_beyond_the_nodes_of_the_fit_intervals_reach_further(self):
        asked = {"op": "all_gather", "size": "1G", "library": LIBRARY}
        reach = []
        for nodes in (5, 10, 20, 40):
            row = collsim.simulate(cluster(nodes=nodes, gpus_per_node=1), ranks=nodes, **asked).rows[0]
            reach.append(np.log(row.time_hi_s / row.time_s))
        assert np.array(reach) / reach[0] == pytest.approx([1.0, 1.0, 2**0.5, 3**0.5], rel=1e-6)


def made_rows(topology, profile, ops=("all_gather", "all_reduce"), per_node=(1, 2)):
    rows = []
    for op in ops:
        for each in per_node:
            case = MeasuredCase(op, 4 * each, nodes=4, library=LIBRARY, environment=(("NCCL_PROTO", "Simple"),))
            case = replace(case, environment=(("NCCL_ALGO", "Ring"), *case.environment))
            sizes = [2**power for power in range(14, 31, 2)]
            found = {row.requested_bytes: row.time_s for row in predicted(case, sizes, topology, profile).rows}
            rows += [Measured(replace(case, size_bytes=s), f"{op}{each}.log", 1, t, None, 0) for s, t in found.items()]
    return rows


class TestFits:
    def test_constants_that_made_the_times_come_back(self, tmp_path):
        topology = load_topology("h100_rail")
        start = load_profile("hgx_h100", topology)
        costs = replace(start.network.protocol("Simple", "ring"), turn_s=20e-6, link_share=0.8)
        families = {**start.network.families, "ring": {**start.network.families["ring"], "Simple": costs}}
        truth = replace(start, network=replace(start.network, families=families))
        found = fit_profile(made_rows(topology, truth), topology, name="mine")
        constants = {entry.name: entry for entry in found.constants}
        assert found.over_nodes
        assert constants["ring.link_share"].value == pytest.approx(0.8, rel=0.02)
        both_s = constants["ring.Simple.turn"].value + constants["ring.Simple.message_overhead"].value
        assert both_s == pytest.approx(20e-6 + costs.message_overhead_s, rel=0.1)
        assert max(abs(entry.predicted_s / entry.measured_s - 1) for entry in found.residuals) < 0.05

        file = tmp_path / "mine.yaml"
        file.write_text(as_yaml(found, "made rows"), encoding="utf-8")
        again = load_profile(file, topology)
        assert again.families == start.families
        kept = again.network.protocol("Simple", "ring")
        assert kept.link_share == pytest.approx(constants["ring.link_share"].value, rel=1e-3)
        assert again.network.systems == ("h100_rail",)
        row = collsim.simulate(topology, "all_gather", "1G", ranks=32, library=LIBRARY, profile=str(file)).rows[0]
        assert row.time_lo_s is not None

    def test_rows_of_one_node_tell_nothing(self):
        rows = [
            Measured(MeasuredCase("all_reduce", 8, 2**power, nodes=1), "a.log", 1, 1e-3, None, 0)
            for power in (20, 24, 28)
        ]
        with pytest.raises(InputError, match="0 rows over several nodes can be predicted, 3 are needed"):
            fit_profile(rows, load_topology("h100_rail"))


def test_faults_of_a_network_section_are_told_at_once(tmp_path):
    file = tmp_path / "mine.yaml"
    text = {
        "schema": "collsim.profile/1", "name": "mine", "extends": "hgx_h100",
        "network": {"title": 3, "systems": "h100_rail", "families": {"rings": {}, "ring": {"Simple": {"turns": "1"}}}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(text), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_profile(file)
    words = str(caught.value)
    for word in ("title is not a text", "systems is not a list of names", '"rings"', '"turns"'):
        assert word in words


def test_intervals_of_trees_that_no_log_shows_are_those_of_rings_twice_as_far():
    ring = Scatter(low=0.9, high=1.2, median=0.05, p90=0.1, rows=40, logs=3)
    unseen = NetworkCosts(accuracy={"ring": {"large": ring}}).scatters()
    assert (unseen["chain"]["large"].low, unseen["chain"]["large"].high) == pytest.approx((0.9**2, 1.2**2))
    assert unseen["ring"]["large"] == ring
    tree = replace(ring, low=0.8)
    seen = NetworkCosts(accuracy={"ring": {"large": ring}, "chain": {"large": tree}}).scatters()
    assert seen["chain"]["large"] == tree
    assert NetworkCosts().scatters() == {}


class TestMoreNodesThanThoseOfTheFit:
    RING = Scatter(low=0.5, high=2.0, median=0.1, p90=0.4, rows=40, logs=9)

    def costs(self, nodes=4):
        tree = replace(self.RING, low=0.25, high=4.0)
        return NetworkCosts(nodes=nodes, accuracy={"ring": {"large": self.RING}, "chain": {"large": tree}})

    def test_errors_of_doublings_add_in_squares(self):
        reach = [self.costs().beyond(nodes, "ring", 2**20) / np.log(2) for nodes in (2, 4, 8, 64, 4 * 2**9)]
        assert reach == pytest.approx([0, 0, 1, 2, 3])
        assert self.costs(nodes=0).beyond(64, "ring", 2**20) == 0.0

    def test_what_a_doubling_adds_is_that_of_measured_nodes_whatever_else_makes_an_interval_wide(self):
        costs = self.costs()
        assert costs.beyond(64, "chain", 2**20) == costs.beyond(64, "ring", 2**20)
        both = self.RING.widened(3).farther(np.log(2) * 4)
        assert (np.log(both.high), np.log(both.low)) == pytest.approx((5 * np.log(2), -5 * np.log(2)))

    def test_messages_are_as_far_off_on_many_nodes_as_on_few(self):
        assert [self.costs().beyond(1024, family, 2**20) for family in ("messages", "direct")] == [0.0, 0.0]
        asked = {"op": "all_to_all", "size": "1G", "library": LIBRARY}
        few, many = (
            collsim.simulate(cluster(nodes=nodes, gpus_per_node=1), ranks=nodes, **asked).rows[0] for nodes in (8, 32)
        )
        assert many.time_hi_s / many.time_s == pytest.approx(few.time_hi_s / few.time_s)

    @pytest.mark.parametrize(("topo", "op", "most"), [("h100_rail", "all_reduce", 25), ("h100_rail", "all_to_all", 12)])
    def test_intervals_of_two_thousand_nodes_stay_within_what_can_be_read(self, topo, op, most):
        for row in collsim.simulate(topo, op, ["64K", "1M", "32M", "1G"], nodes=2048).rows:
            assert row.time_s / most < row.time_lo_s < row.time_hi_s < most * row.time_s
            hardly = max(row.time_hi_s / row.time_s, row.time_s / row.time_lo_s) > 10
            assert ("nothing measured tells more" in row.wide_because) == hardly
