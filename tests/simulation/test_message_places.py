"""Places in nodes that stand for others: the example of the two modules, message by message."""

from dataclasses import replace

import numpy as np
import pytest

from collsim.collectives import ScheduleRequest
from collsim.core.operations import operation
from collsim.library import load_profile
from collsim.simulation.message_places import few_messages
from collsim.simulation.place_kinds import places_of
from collsim.simulation.runs import layout_of, prepare
from collsim.topology import load_topology
from collsim.topology.failures.degrade import damaged


def four_nodes(*failed):
    """Return the request and the run of an exchange between four nodes of eight GPUs on rails."""
    topology = damaged(load_topology("h100_rail", {"scale_out.nodes": "4"}), failed, {})
    run = prepare(topology, load_profile("ideal"))
    spread = {"nodes": 4, "layout": layout_of(run), "channels": 4, "peer_channels": 1}
    return replace(ScheduleRequest(operation("all_to_all"), 32, 32 * 3_000_000), **spread), run


def test_a_place_with_a_lost_adapter_is_of_a_kind_of_its_own():
    places = places_of(*four_nodes("nic:node3/2"))
    assert places.kind.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert places.kept.tolist() == [0, 1, 2]
    assert len(places.src) == 4 * 8 * 7 + 4 * 3 * 8  # all of a node, and the same place in two
    assert (places.like[places.like] == places.like).all()
    for end in (places.src, places.dst):
        assert np.isin(places.place[end[places.like]], places.kept).all()
        assert (places.kind[places.place[end[places.like]]] == places.kind[places.place[end]]).all()
        assert (places.node[end[places.like]] == places.node[end]).all()


def test_places_that_all_differ_stand_for_none():
    assert places_of(*four_nodes(*(f"nic:node{place % 4}/{place}" for place in range(7)))) is None


def test_messages_stand_for_those_to_all_of_a_kind():
    """Six others of the first kind and one of the second; place 2 reaches the seven of the first by two messages."""
    few = few_messages(*four_nodes("nic:node3/2"))
    transfers, place, inside = few.lowered.transfers, few.places.place, ~few.lowered.across
    ends = zip(place[transfers.src[inside]].tolist(), place[transfers.dst[inside]].tolist(), strict=True)
    lanes = dict(zip(ends, few.lanes[inside].tolist(), strict=True))
    assert lanes == {(0, 1): 6, (1, 0): 6, (0, 2): 1, (1, 2): 1, (2, 0): 3.5, (2, 1): 3.5}
    assert set(few.lanes[~inside].tolist()) == {1}


def test_what_crosses_a_link_counts_for_all_that_is_like_it():
    """Where all places are alike, two of eight put on each of their links what all pairs put there."""
    few = few_messages(*four_nodes())
    places = few.places
    assert places.kept.tolist() == [0, 1]
    whole = np.bincount(places.routes.link, places.routes.weight)
    simulated = np.isin(places.place[places.src], places.kept) & np.isin(places.place[places.dst], places.kept)
    row_of = {number: row for row, number in enumerate(few.lowered.used.tolist())}
    counted = np.zeros(len(whole))
    for number in places.ways.number[simulated].tolist():
        span = slice(*few.routes.ptr[row_of[number] : row_of[number] + 2])
        np.add.at(counted, few.routes.link[span], few.routes.weight[span])
    assert (counted > 0).sum() > 8
    assert counted[counted > 0] == pytest.approx(whole[counted > 0], rel=1e-12)
