"""The joint law of steps between nodes: what networks share, and what one site tells of another."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from collsim.library import load_profile

TOOLS = Path(__file__).parents[2] / "tools"
STARTS = load_profile(str(TOOLS / "starts" / "between.yaml")).network.families


@pytest.fixture(scope="module")
def joint():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("joint_networks")


def law_with(joint, **factors):
    law = joint.Law(STARTS)
    law.all_places()
    logs = np.array([term.start for term in law.terms.values()])
    for name, factor in factors.items():
        logs[list(law.terms).index(name.replace("__", "."))] += math.log(factor)
    return law, logs


def test_before_any_log_all_networks_cost_what_stood_before(joint):
    law, logs = law_with(joint)
    for network in joint.JOINT:
        for family, protocols in law.starts.items():
            for proto, start in protocols.items():
                costs = law.costs(network, family, proto, logs)
                late_s = joint.LATE_S if network in joint.LATE_NETWORKS else 0.0
                late_s += joint.COPIED_S if network in joint.WITHOUT_GPUDIRECT else 0.0
                assert costs.message_overhead_s == pytest.approx(start.message_overhead_s + late_s)
                assert costs.channel_rate_Bps == pytest.approx(start.channel_rate_Bps)


def test_a_factor_of_nodes_moves_their_network_alone(joint):
    law, logs = law_with(joint, slingshot__nodes__wait__LL=2.0)
    start = STARTS["ring"]["LL"]
    for network, factor in (("slingshot", 2), ("slingshot_a100", 1), ("infiniband", 1)):
        costs = law.costs(network, "ring", "LL", logs)
        assert costs.message_overhead_s == pytest.approx(factor * start.message_overhead_s)
        assert costs.turn_s == pytest.approx(factor * start.turn_s)
        assert law.costs(network, "ring", "LL128", logs).turn_s == pytest.approx(STARTS["ring"]["LL128"].turn_s)


def test_steps_over_efa_arrive_later_by_one_time_with_every_kernel_but_leave_the_host_as_it_is(joint):
    law, logs = law_with(joint)
    _, later = law_with(joint, efa__late=2.0)
    for network in joint.LATE_NETWORKS:  # GPUDirect or not, adapters of any generation
        for family, protocols in law.starts.items():
            for proto in protocols:
                before, after = (law.costs(network, family, proto, each) for each in (logs, later))
                assert after.message_overhead_s - before.message_overhead_s == pytest.approx(joint.LATE_S)
                assert after.turn_s == before.turn_s
    assert law.costs("infiniband", "ring", "LL", later) == law.costs("infiniband", "ring", "LL", logs)


def test_only_nodes_without_gpudirect_pass_through_the_memory_of_their_hosts(joint):
    law, logs = law_with(joint)
    _, later = law_with(joint, host__copied=2.0)
    for network in joint.JOINT:  # p4d has the adapters of p3dn, and GPUDirect
        before, after = (law.costs(network, "ring", "LL", each) for each in (logs, later))
        copied_s = joint.COPIED_S if network == "efa_v1" else 0.0
        assert after.message_overhead_s - before.message_overhead_s == pytest.approx(copied_s, abs=1e-12)


def test_the_interval_of_a_sum_is_that_of_its_parts(joint):
    law, logs = law_with(joint, efa__late=2.0)
    covariance = np.zeros((len(logs), len(logs)))
    place = list(law.terms).index("efa.late")
    covariance[place, place] = 0.1**2
    found = joint.Joint(law, logs, covariance, (), np.zeros(0), np.zeros((0, len(logs))))
    told = {constant.name: constant for constant in found.constants("efa")}["ring.LL.message_overhead"]
    late_s, all_s = 2 * joint.LATE_S, 2 * joint.LATE_S + STARTS["ring"]["LL"].message_overhead_s
    assert told.value == pytest.approx(all_s)
    assert math.log(told.high / told.value) == pytest.approx(joint.NORMAL_90 * 0.1 * late_s / all_s)


def test_hosts_copy_lines_of_ll_over_slingshot_alone(joint):
    law, logs = law_with(joint)
    for network, proto, copied in (("slingshot", "LL", True), ("slingshot", "Simple", False), ("efa", "LL", False)):
        assert math.isfinite(law.costs(network, "ring", proto, logs).host_rate_Bps) == copied


def test_hosts_of_one_kind_copy_at_one_rate(joint):
    law, logs = law_with(joint, slingshot_a100__host_rate=2.0)
    for network, factor in (("slingshot", 1), ("slingshot_a100", 2), ("slingshot_h100", 2)):
        assert law.costs(network, "ring", "LL", logs).host_rate_Bps == pytest.approx(factor * joint.HOST_RATE)


def test_the_channel_rate_of_nvls_is_no_part_of_the_fit(joint):
    law, _ = law_with(joint)
    assert not any("nvls" in name and "rate" in name for name in law.terms)


def test_shares_and_steps_over_infiniband_stay_below_their_most(joint):
    law, logs = law_with(joint)
    costs = law.costs("infiniband", "ring", "Simple", logs + 3.0)
    assert costs.link_share == 1.0
    assert costs.message_overhead_s == pytest.approx(20e-6)


@pytest.mark.parametrize(("part", "missing"), [("nodes", ".nodes."), ("rates", ".rate"), ("late steps", ".late")])
def test_a_part_of_the_law_can_be_left_out(joint, part, missing):
    law = joint.Law(STARTS, [part])
    law.all_places()
    assert not any(missing in name for name in law.terms)


def test_the_fit_of_a_like_law_begins_where_the_other_ended(joint):
    law, logs = law_with(joint, ring__LL__turn_s=2.0, efa__late=3.0)
    found = joint.Joint(law, logs, np.eye(len(logs)), (), np.zeros(0), np.zeros((0, len(logs))))
    for part in ("rates", "pooling"):
        less = joint.Law(STARTS, [part])
        logs_near = joint.begin_near(less, found).tolist()
        begun = dict(zip(less.terms, logs_near, strict=True))
        name = "slingshot.ring.LL.turn_s" if part == "pooling" else "ring.LL.turn_s"
        assert begun[name] == pytest.approx(math.log(2 * STARTS["ring"]["LL"].turn_s))
