"""Chunks that flow one after another along the edges of a chain or a tree, on many channels at once.

What waits for what is told in `collsim.schedule.pipelines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from collsim.schedule import Pipelines, Shape

__all__ = ["Hop", "pipelined"]


class Hop(NamedTuple):
    """One edge of a pipeline: *src* passes every chunk to *dst*, from stage *sender* to stage *receiver*."""

    src: int
    dst: int
    sender: int
    receiver: int
    reduces: bool = False


def pipelined(hops: Sequence[Shape | tuple[Hop, ...]], n_chunks: Sequence[int], slots: int) -> Pipelines:
    """Return the transfers of all channels: channel c sends *n_chunks[c]* chunks along *hops[c]*.

    Chunk ids count up over the channels, in order. The hops of a channel must be listed such that each comes after
    those from which its data arrive.
    """
    found = {id(shape): shape for shape in hops}  # to compare many hops takes a while
    kinds: dict[Shape | tuple[Hop, ...], int] = {}
    number = {key: kinds.setdefault(shape, len(kinds)) for key, shape in found.items()}
    counts = np.array(n_chunks, dtype=np.int64)
    ones = np.ones(len(counts), dtype=np.int64)
    return Pipelines(
        shapes=tuple(kind if isinstance(kind, Shape) else _shape(kind) for kind in kinds),
        shape=np.array([number[id(shape)] for shape in hops], dtype=np.int64),
        n_chunks=counts,
        first_chunk=np.cumsum(counts) - counts,
        channel=np.arange(len(counts)),
        lanes=ones,
        copies=ones,
        slots=max(slots, 1),
    )


def _shape(hops: tuple[Hop, ...]) -> Shape:
    """Return the hops as columns."""
    return Shape.of_table(np.fromiter(chain.from_iterable(hops), np.int64, 5 * len(hops)).reshape(-1, 5).T)
