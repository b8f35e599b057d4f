"""What is left of a wiring in which something has failed or become slow, told by the links that it happened to.

A machine has millions of links, and few of them fail: all but those are whole, and nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collsim.topology.model import Wiring
from collsim.topology.selecting import Selection

__all__ = ["Wreck", "wreck_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Wreck:
    """What has become of some links of a wiring; all others are whole.

    Attributes
    ----------
    alive : bool[n_nodes]
        Nodes that are left.
    links, src, dst, count : int64[n]
        Links that something happened to, in order, with their ends and the cables that they had.
    cables : int64[n]
        Cables that are left of each.
    share : float64[n]
        The part of its rate that each cable has.
    """

    alive: Mask
    links: Ints
    src: Ints
    dst: Ints
    count: Ints
    cables: Ints
    share: Floats

    def left(self, wiring: Wiring, links: Ints) -> Ints:
        """Return int64[n]: cables that are left of any links of the wiring."""
        cables = wiring.link_count[links].copy()
        here = np.isin(links, self.links)
        cables[here] = self.cables[np.searchsorted(self.links, links[here])]
        return cables

    def short(self, wiring: Wiring) -> Ints:
        """Return which of *links* lead from GPUs that are left into switches, and are not whole."""
        hurt = np.flatnonzero((self.src < wiring.n_gpus) & self.alive[self.src] & (self.cables < self.count))
        return hurt[[wiring.node_kinds[node] == "switch" for node in self.dst[hurt].tolist()]]


def wreck_of(wiring: Wiring, gone: Sequence[Selection], slow: Sequence[tuple[Selection, float]]) -> Wreck:
    """Return what is left; of two figures for one link the lower counts, and cables lost twice are two cables."""
    alive = np.ones(wiring.n_nodes, dtype=np.bool_)
    for selection in gone:
        alive[list(selection.nodes)] = False
    of_gone, of_slow = [_links_of(wiring, one) for one in gone], [_links_of(wiring, one) for one, _ in slow]
    links = np.unique(np.concatenate([*of_gone, *of_slow, np.zeros(0, dtype=np.int64)]))
    src, dst, count = wiring.link_src[links], wiring.link_dst[links], wiring.link_count[links]
    lost, share = np.zeros(len(links), dtype=np.int64), np.ones(len(links))
    for selection, own in zip(gone, of_gone, strict=True):
        lost[np.searchsorted(links, own)] += _cables_of(wiring, own, selection.cables)
    for (selection, part), own in zip(slow, of_slow, strict=True):
        at, cables = np.searchsorted(links, own), _cables_of(wiring, own, selection.cables)
        share[at] = np.minimum(share[at], 1 - (1 - part) * cables / count[at])
    cables = np.maximum(count - lost, 0) * (alive[src] & alive[dst])
    return Wreck(alive, links, src, dst, count, cables, share)


def _cables_of(wiring: Wiring, links: Ints, cables: int | None) -> Ints:
    """Return how many cables of each link are meant; where a bundle is listed cable by cable, its first ones."""
    count = wiring.link_count[links]
    if cables is None:
        return count
    ends = wiring.link_src[links] * wiring.n_nodes + wiring.link_dst[links]
    before = np.cumsum(count) - count
    return np.asarray(np.clip(cables - (before - before[np.searchsorted(ends, ends)]), 0, count), dtype=np.int64)


def _links_of(wiring: Wiring, selection: Selection) -> Ints:
    """Return the links that a selection names, or that meet in a node that it names."""
    if selection.links:
        return np.array(selection.links, dtype=np.int64)
    named = np.zeros(wiring.n_nodes, dtype=np.bool_)
    named[list(selection.nodes)] = True
    return np.flatnonzero(named[wiring.link_src] | named[wiring.link_dst])
