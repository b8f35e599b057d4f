"""Rings of a machine that a small part stands for: bounds on their pace that agree, and such that do not."""

from contextlib import nullcontext

import numpy as np
import pytest

from collsim.engine.wavefront import Chain, RingTurn
from collsim.simulation.quotient.cluster_hierarchy import _refuse_overlap, _State
from collsim.simulation.quotient.cluster_rings import OutOfStepError, stream_of, turns_of, walk
from collsim.simulation.quotient.link_loads import UnitBytes
from collsim.simulation.quotient.paces import Paces, _Crossings, _Loads

PLACES, STEPS = 6, 10
TURN = RingTurn(np.zeros(PLACES, dtype=np.int64), np.arange(STEPS))


def paces(*flows_s, slower=1.0, in_step=False):
    """Return the paces of a stream for each flow time in seconds; the upper bound takes *slower* times as long."""

    def chains(factor):
        return [
            Chain(np.zeros((1, PLACES)), np.full((1, PLACES), flow * factor), np.zeros((1, PLACES))) for flow in flows_s
        ]

    at_cap = [np.zeros(PLACES, dtype=np.bool_) for _ in flows_s]
    return Paces(chains(1.0), chains(slower), in_step, at_cap, carried=None, above=np.zeros((0, 0)))


def ends_s(found, **options):
    n = len(found.slow)
    return walk(found, [[TURN]] * n, np.zeros((n, PLACES)), **options).got_s


@pytest.mark.parametrize("everywhere", [False, True])
def test_bounds_that_differ_by_rounding_are_the_same(everywhere):
    assert ends_s(paces(2.0, slower=1 + 1e-12), everywhere=everywhere) == pytest.approx(STEPS * 2.0, rel=1e-11)


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("slower", [1 + 1e-8, 1 + 1e-6, 1.01, 2.0])
def test_bounds_that_differ_are_no_answer(slower, everywhere):
    with pytest.raises(OutOfStepError, match="out of step"):
        ends_s(paces(2.0, slower=slower), everywhere=everywhere)


def test_only_the_end_has_to_agree_unless_all_places_count():
    """A place that may be late does not matter if another one takes longer whatever happens."""
    found = paces(2.0)
    hold = np.full(PLACES, 1.0)
    hold[3] = 5.0  # the ring waits for this one
    fast, slow = (np.array([hold]), np.array([hold + 0.5 * (np.arange(PLACES) == 0)]))
    chains = [[found.fast[0]._replace(flow_s=flow)] for flow in (fast, slow)]
    found = Paces(*chains, False, found.at_cap, carried=None, above=found.above)
    turn = [[RingTurn(TURN.kind, np.zeros(1, dtype=np.int64))]]
    assert walk(found, turn, np.zeros((1, PLACES))).got_s.max() == 5.0
    with pytest.raises(OutOfStepError):
        walk(found, turn, np.zeros((1, PLACES)), everywhere=True)


def test_streams_that_must_keep_in_step_may_not_differ():
    assert ends_s(paces(2.0, 2.0, in_step=True)).tolist() == [[STEPS * 2.0] * PLACES] * 2
    assert ends_s(paces(2.0, 3.0)).max(axis=1).tolist() == [STEPS * 2.0, STEPS * 3.0]
    with pytest.raises(OutOfStepError):
        ends_s(paces(2.0, 3.0, in_step=True))


def test_chunks_of_each_leg_have_kinds_of_their_own():
    """Sizes fall within a leg; those of steps that add come before those of steps that copy."""
    sizes, steps = np.array([10, 9, 10, 7]), np.arange(3)
    legs = [(steps, True), (steps, False)]
    stream = stream_of(0, [sizes], legs)
    assert stream.kinds == ((10, True), (9, True), (7, True), (10, False), (9, False), (7, False))
    assert stream.sent_bytes == 2 * (36 - 10)
    assert [turn.kind.tolist() for turn in turns_of(sizes, stream, legs)] == [[0, 1, 0, 2], [3, 4, 3, 5]]
    alike = stream_of(0, [sizes], [(steps, False), (steps, False)])
    assert alike.kinds == ((10, False), (9, False), (7, False))


@pytest.mark.parametrize(("ring_link", "late", "refused"), [(0, 1, True), (1, 1, False), (0, 0, False)])
def test_rings_may_not_pass_links_that_a_late_unit_still_exchanges_over(ring_link, late, refused):
    """Two units of one kind, two links in each; messages take link 0."""
    ready_s = np.array([[1.0, 1.0], [1.0, 1.0 + late]])
    both = np.zeros(2, dtype=np.int64)
    exchange = UnitBytes(both, np.array([[5.0, 0.0]]))
    rings = UnitBytes(both, np.array([[0.0, 0.0]]))
    rings.table[0, ring_link] = 3.0
    with pytest.raises(OutOfStepError) if refused else nullcontext():
        _refuse_overlap(_State(ready_s, np.zeros((2, 2))), exchange, rings)


@pytest.mark.parametrize(
    ("beside", "hops_left", "above", "alone"),
    [(0.0, 3, False, True), (2.0, 3, False, False), (0.0, 2, False, False), (0.0, 3, True, False)],
)
def test_what_crosses_a_link_at_once(beside, hops_left, above, alone):
    """One hop of one unit alone; not beside hops of the unit before, nor other hops of its own, nor on links above."""
    one = np.zeros(1, dtype=np.int64)
    table = np.zeros((3, 1, 2, 1))
    table[:2, 0, :, 0] = np.array([[1.0, beside], [50.0, 10 * beside]])  # weight and rate alone, own and beside
    first_left, last_left = (np.full((1, 2, 1), left) for left in (3, hops_left))
    cross = _Crossings(one, one, np.ones(1), one, one, one, one)
    loads = _Loads(
        cross, 1, table, first_left, last_left, np.array([[7.0], [8.0]]), np.zeros((1, 1)), np.array([above])
    )
    found = loads.around(one, (0, 0))
    assert found.at_once.tolist() == [alone]
    assert (found.weight[0], found.offered_Bps[0]) == ((7.0, 8.0) if above else (1 + beside, 50 + 10 * beside))


@pytest.mark.parametrize(("far", "beside"), [(0, 20.0), (1, 300.0)])
def test_links_carry_the_hops_of_the_unit_on_their_side(far, beside):
    """A link of the unit that a hop leaves also has hops of the unit before, one of the unit it enters those after."""
    table = np.zeros((3, 3, 2, 1))
    table[0, :, 1 - far, 0] = [0.0, 20.0, 300.0]  # of kinds: the own unit, the one before, the one after
    table[0, 0, far, 0] = 1.0
    none, at = np.zeros((3, 2, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
    cross = _Crossings(at, at, np.ones(1), at, at + far, at, at)
    loads = _Loads(cross, 1, table, none, none, np.zeros((2, 1)), np.zeros((1, 1)), np.array([False]))
    assert loads.around(at, (1, 2)).weight.tolist() == [1 + beside]
