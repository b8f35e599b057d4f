"""Rounds of messages that all differ: each waits for the whole batch before, at both of its ends."""

from __future__ import annotations

import numpy as np
import pytest

from collsim.collectives.nccl_p2p_v import _Works
from collsim.schedule.message_parts import BATCH


@pytest.mark.parametrize(("n_ranks", "n", "channels", "rounds"), [(2, 1, 1, 1), (4, 40, 2, 12), (9, 700, 3, 90)])
def test_a_message_waits_for_the_batches_before_at_both_ends(n_ranks, n, channels, rounds):
    rng = np.random.default_rng(n)
    src = rng.integers(0, n_ranks, n)
    dst = (src + 1 + rng.integers(0, n_ranks - 1, n)) % n_ranks
    number, channel = np.sort(rng.integers(0, rounds, n)), rng.integers(0, channels, n)
    works = _Works.of(np.concatenate([src, dst]), np.tile(channel, 2), np.tile(number, 2))
    ptr, dep = works.batches_before(*np.split(works.of_end, 2))

    def batch_of(rank, row):
        turns = np.unique(number[((src == rank) | (dst == rank)) & (channel == channel[row])])
        return int(np.searchsorted(turns, number[row])) // BATCH

    for row in range(n):
        expected = {
            other
            for rank in (src[row], dst[row])
            for other in np.flatnonzero(((src == rank) | (dst == rank)) & (channel == channel[row]))
            if batch_of(rank, other) == batch_of(rank, row) - 1
        }
        assert dep[ptr[row] : ptr[row + 1]].tolist() == sorted(expected)
