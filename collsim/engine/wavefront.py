"""Steps round a ring, row by row: what a chain of transfers takes when none of them waits for a link.

Every rank of a ring sends to the next one in every step, as soon as its own step before is done and what it passes on
has arrived. If each transfer takes as long as it takes, whatever the others do, the times of a step follow from those
of the step before, and only these two rows are kept. Imports NumPy, and inside the call that needs it Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["Chain", "RingTurn", "Row", "march", "periodic", "warm_up"]

PLAIN_WORK = 2_000_000
"""Up to so many transfers NumPy is as fast as it takes to load the compiled loop, 0.3 s."""
PLAIN_STEPS = 10_000
"""And up to so many steps, each of which costs it some microseconds."""


class Chain(NamedTuple):
    """Costs in seconds of a transfer at each of n places of a ring, by the kind of its size."""

    wait_s: Floats
    """[kinds, n]: before its bytes flow."""
    flow_s: Floats
    """[kinds, n]: while they flow."""
    late_s: Floats
    """[kinds, n]: from then until the next place has them."""


class RingTurn(NamedTuple):
    """Several times round the ring with the same chunks."""

    kind: Ints
    """[n]: the kind of the chunk that starts at each place."""
    distances: Ints
    """[steps]: from how many places before comes the chunk that is sent in each step."""

    @property
    def is_even(self) -> bool:
        """True if all chunks are of one kind."""
        return bool((self.kind == self.kind[0]).all())


Row = tuple[Floats, Floats, Floats]
"""When each place has sent, when the next one has that, and the latency until it was sent."""


def march(chain: Chain, turns: Sequence[RingTurn], ready_s: Floats) -> Row:
    """Return when each place has sent its last chunk, when the next has it, and how long its slowest chain waited.

    Parameters
    ----------
    chain : Chain
    turns : list of RingTurn
    ready_s : float64[n]
        When each place can start.

    Returns
    -------
    float64[n], float64[n], float64[n]
        The last is the part of the first that is latency: waits, and bytes on their way.
    """
    n, steps = chain.wait_s.shape[1], sum(len(turn.distances) for turn in turns)
    row = ready_s.astype(np.float64), np.full(n, -np.inf), np.zeros(n)
    plain = steps <= PLAIN_STEPS and steps * n <= PLAIN_WORK
    for turn in turns:
        length = len(turn.distances)
        # The first step of a turn by hand: what arrives there belongs to the turn before, or nothing arrives yet. The
        # second too, if an odd number would be left.
        by_hand = length if plain else min(2 - length % 2, length)
        for distance in turn.distances[:by_hand].tolist():
            row = _one_step(chain, np.roll(turn.kind, distance), row)
        if length > by_hand:
            rest = turn._replace(distances=turn.distances[by_hand:])
            row = (_equal_steps if turn.is_even else _mixed_steps)(chain, rest, row)
    return row


def warm_up() -> None:
    """Load the compiled loops."""
    kinds = np.zeros(2, dtype=np.int64)
    for chain in (Chain(*np.ones((3, 2, 2))), Chain(*np.zeros((3, 2, 2)))):
        row = march(chain, [RingTurn(kinds, np.zeros(1, dtype=np.int64))], np.zeros(2))
        for steps in (_equal_steps, _mixed_steps):
            steps(chain, RingTurn(kinds, np.zeros(2, dtype=np.int64)), row)


def _equal_steps(chain: Chain, turn: RingTurn, row: Row) -> Row:
    """Return the row after an even number of steps with chunks of one kind."""
    from collsim.engine.wavefront_kernels import bare, uniform

    wait_s, flow_s, late_s = (column[turn.kind[0]] for column in chain)
    finish_s, spent_s = (np.concatenate([column[-1:], column]) for column in (row[0], row[2]))
    if not (wait_s.any() or late_s.any() or spent_s.any()):
        bare(finish_s, np.empty(len(finish_s)), flow_s.copy(), len(turn.distances))
        return finish_s[1:], finish_s[1:].copy(), spent_s[1:]
    spare = np.empty((2, len(finish_s)))
    uniform(finish_s, spent_s, *spare, wait_s.copy(), wait_s + flow_s, np.roll(late_s, 1), len(turn.distances))
    return finish_s[1:], finish_s[1:] + late_s, spent_s[1:]


def _mixed_steps(chain: Chain, turn: RingTurn, row: Row) -> Row:
    """Return the row after an even number of steps with chunks of several sizes."""
    from collsim.engine.wavefront_kernels import mixed

    rows = np.concatenate([np.stack(row)[:, -1:], np.stack(row)], axis=1)
    kinds = np.concatenate([turn.kind, turn.kind])
    took_s = np.ascontiguousarray(chain.wait_s + chain.flow_s)
    mixed(rows, np.empty_like(rows), chain.wait_s.copy(), took_s, chain.late_s.copy(), kinds, turn.distances)
    return rows[0, 1:].copy(), rows[1, 1:].copy(), rows[2, 1:].copy()


def _one_step(chain: Chain, kind: Ints, before: Row) -> Row:
    """Return the next row: when every place has sent, when that has arrived, and the latency until it was sent."""
    wait_s, flow_s, late_s = (column[kind, np.arange(len(kind))] for column in chain)
    finish_s, arrive_s, spent_s = before
    got_s = np.roll(arrive_s, 1)
    came_s = np.roll(spent_s + (arrive_s - finish_s), 1)
    spent_s = np.where(got_s > finish_s, came_s, spent_s) + wait_s
    finish_s = np.maximum(finish_s, got_s) + (wait_s + flow_s)
    return finish_s, finish_s + late_s, spent_s


def periodic(chain: Chain, turns: Sequence[RingTurn], ready_s: Floats) -> tuple[Chain, Sequence[RingTurn], Floats]:
    """Return the first places of a ring that repeats itself, which stand for all; else the ring itself."""
    if not all(turn.is_even for turn in turns):
        return chain, turns, ready_s
    rows = np.concatenate([*chain, ready_s[None]])
    n = rows.shape[1]
    for period in _divisors(n):
        whole = rows.reshape(len(rows), n // period, period)
        if (whole == whole[:, :1]).all():
            break
    short = [RingTurn(turn.kind[:period], turn.distances) for turn in turns]
    return Chain(*(column[:, :period] for column in chain)), short, ready_s[:period]


def _divisors(n: int) -> list[int]:
    """Return the divisors of n, in order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
