"""A schedule on the fabric: what transfers share with others, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from collsim import simulate
from collsim.collectives import algorithm
from collsim.library import load_profile
from collsim.simulation.lowering import _of_ends, lower
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.selection import built, library_choice, request_of
from collsim.simulation.timing import kernel_costs
from collsim.topology import load_topology

IDEAL = load_profile("ideal")


def lowered(topology, op, algo, size=2**24, ranks=None, **options):
    question = ask(op, size, algo, **options)
    run = prepare(topology, IDEAL, ranks)
    request = request_of(question.ops[0], question.sizes[0], run, question)
    return lower(built(algorithm(op, algo), request, question), run)


def test_a_ring_with_ll_hands_on_whole_shares():
    """77777 B are 9722 B for each of 8 ranks, 9712 B in whole 16 B; two channels get unlike shares of them."""
    question = ask("reduce_scatter", 77777, "auto", library="nccl-2.28")
    run = prepare(load_topology("hgx_h100"), IDEAL)
    picked, asked, proto = library_choice(request_of(question.ops[0], question.sizes[0], run, question), run, question)
    assert (picked.name, proto, len(asked.share_bytes), sum(asked.share_bytes)) == ("ring", "LL", 2, 9712)
    least, most = sorted(asked.share_bytes)
    assert least < most == asked.chunk_bytes
    schedule = built(picked, asked, question)
    sizes = [phase.materialise().size_bytes(schedule.chunks).tolist() for phase in schedule.phases]
    assert {size for phase in sizes for size in phase} == {least, most}


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_channels_to_the_next_node_share_its_adapter(channels):
    """One GPU in each of four nodes: every transfer leaves, and all channels of a step pass one adapter of 50 GB/s."""
    topology = load_topology("hgx_h100", scale_out={"nodes": 4, "gpus_per_node": 1})
    found = lowered(topology, "all_gather", "ring", channels=channels)
    assert found.across.all()
    assert not found.added.any()
    assert found.steps.use.alone_Bps == pytest.approx(np.full(len(found.transfers), 50e9))
    assert found.steps.use.active == pytest.approx(np.full(len(found.transfers), channels))


def test_steps_inside_a_node_are_not_of_the_network():
    """A ring of two nodes with two GPUs each: of every four transfers of a step two lead to the other node."""
    topology = load_topology("hgx_h100", scale_out={"nodes": 2})
    found = lowered(topology, "all_gather", "ring", ranks=[0, 1, 8, 9], channels=1)
    ends = np.stack([found.transfers.src, found.transfers.dst]) // 2
    assert (found.across == (ends[0] != ends[1])).all()
    assert found.across.sum() * 2 == len(found.transfers)
    inside = found.steps.use.alone_Bps[~found.across]
    assert np.isinf(inside).all()
    assert (found.steps.use.active[~found.across] == 1).all()
    assert lowered(load_topology("hgx_h100"), "all_gather", "ring", channels=1).steps is None


def test_messages_in_both_directions_of_a_link():
    """On a mesh each pair has a link of its own; all-to-all uses both directions, a broadcast one."""
    mesh = load_topology("mi300x_ubb8")
    both = lowered(mesh, "all_to_all", "direct")
    assert both.use.duplex.all()
    assert both.use.alone_Bps == pytest.approx(np.full(len(both.transfers), 64e9))
    one = lowered(mesh, "scatter", "direct")
    assert not one.use.duplex.any()


@pytest.mark.parametrize(
    ("ranks", "overlap"), [(range(8), True), (range(8, 16), True), (range(16), False), ([0, 8], False), ([7, 8], False)]
)
def test_calls_in_a_row_overlap_inside_a_node_only(ranks, overlap):
    topology = load_topology("hgx_h100", scale_out={"nodes": 2})
    profile = load_profile("hgx_h100", topology)
    run = prepare(topology, profile, ranks)
    in_a_row = [
        (proto, family)
        for family, protocols in profile.families.items()
        for proto, costs in protocols.items()
        if costs.back_to_back
    ]
    assert in_a_row
    for proto, family in in_a_row:
        assert kernel_costs(run, proto, family).back_to_back is overlap, (proto, family)
        found = kernel_costs(run, proto, family)
        assert found.overlaps is not overlap
        assert replace(found, back_to_back=True, overlaps=False) == profile.protocol(proto, family)


def test_what_a_group_sends_or_gets_is_as_slow_as_the_slowest_of_its_members():
    rates, groups = np.array([4.0, 1.0, 3.0, 2.0]), ((0, 2), (3,))
    assert _of_ends(rates, np.array([-1, -2, -3, 2, 0]), groups).tolist() == [1.0, 3.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("profile", ["ideal", "auto"])
def test_a_slow_gpu_holds_back_sums_in_the_switches(profile):
    asked = {"op": "all_reduce", "size": "1G", "algo": "nvls", "profile": profile}
    whole, slow = (simulate("hgx_h100", **asked, **more).time_s for more in ({}, {"degrade": {"gpu:gpu3": "25%"}}))
    assert slow > 1.5 * whole
