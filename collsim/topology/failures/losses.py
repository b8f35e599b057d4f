"""Losses: what is left of a wiring in which something failed or became slow, told by the links that it happened to.

A machine has millions of links, and few of them fail: all but those are whole, and nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collsim.topology.failures.selectors import Selection, ends_of, keyed, places_of
from collsim.topology.wiring import LinkBundles, Wiring

__all__ = ["Wreck", "are_switches", "wreck_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Wreck:
    """Damage to some links of a wiring; all others are whole.

    Attributes
    ----------
    alive : bool[n_nodes]
        Nodes that are left.
    keys : int64[n]
        Links that something happened to, in order; see `collsim.topology.failures.selectors.keyed`.
    links : LinkBundles
        What they were.
    cables : int64[n]
        Cables that are left of each.
    share : float64[n]
        The part of its rate that each cable has.
    """

    alive: Mask
    keys: Ints
    links: LinkBundles
    cables: Ints
    share: Floats

    @property
    def nominal_Bps(self) -> Floats:
        """float64[n]: the rate that each link should have with the cables that are left."""
        return np.asarray(self.links.bandwidth_Bps * (self.cables / self.links.parallel))

    @property
    def rate_Bps(self) -> Floats:
        """float64[n]: the rate that each link has."""
        return self.nominal_Bps * self.share

    def left(self, keys: Ints, links: LinkBundles) -> Ints:
        """Return int64[n]: cables that are left of any links."""
        cables = links.parallel.copy()
        here = np.isin(keys, self.keys)
        cables[here] = self.cables[np.searchsorted(self.keys, keys[here])]
        return cables

    def short(self, wiring: Wiring) -> Ints:
        """Return which of the links lead from GPUs that are left into switches, and are not whole."""
        src, dst = self.links.src, self.links.dst
        hurt = np.flatnonzero((src < wiring.n_gpus) & self.alive[src] & (self.cables < self.links.parallel))
        return hurt[are_switches(wiring, dst[hurt])]

    def is_lost(self, selection: Selection) -> bool:
        """Return True if no cable is left of all links that a selection names."""
        return not self.cables[_chosen(selection, self.keys, self.links)].any()

    def numbers(self, wiring: Wiring) -> Ints:
        """Return the numbers of the links in the wiring."""
        return wiring.find_links(self.links.src, self.links.dst) + places_of(self.keys)


def are_switches(wiring: Wiring, nodes: Ints) -> Mask:
    """Return bool[n]: which nodes are switches."""
    return np.array([wiring.node_kinds[node] == "switch" for node in nodes.tolist()], dtype=np.bool_)


def wreck_of(wiring: Wiring, gone: Sequence[Selection], slow: Sequence[tuple[Selection, float]]) -> Wreck:
    """Return the damage; of two figures for one link the lower counts, and cables lost twice are two cables."""
    alive = np.ones(wiring.n_nodes, dtype=np.bool_)
    for selection in gone:
        alive[list(selection.nodes)] = False
    chosen = [*gone, *(selection for selection, _ in slow)]
    named = [node for selection in chosen for node in selection.nodes]
    of_links = np.array([key for selection in chosen for key in selection.links], dtype=np.int64)
    keys, links = keyed(wiring, np.unique([*named, *ends_of(wiring, of_links)[0].tolist()]).astype(np.int64))
    near = np.isin(links.src, named) | np.isin(links.dst, named) | np.isin(keys, of_links)
    keys, links = keys[near], links.take(np.flatnonzero(near))
    lost, share = np.zeros(len(keys), dtype=np.int64), np.ones(len(keys))
    for selection in gone:
        own = _chosen(selection, keys, links)
        lost[own] += _cables_of(selection, keys[own], links.parallel[own])
    for selection, part in slow:
        own = _chosen(selection, keys, links)
        cables = _cables_of(selection, keys[own], links.parallel[own])
        share[own] = np.minimum(share[own], 1 - (1 - part) * cables / links.parallel[own])
    left = np.maximum(links.parallel - lost, 0) * (alive[links.src] & alive[links.dst])
    return Wreck(alive, keys, links, left, share)


def _chosen(selection: Selection, keys: Ints, links: LinkBundles) -> Ints:
    """Return which links a selection names, or meet in a node that it names."""
    if selection.links:
        return np.searchsorted(keys, selection.links)
    return np.flatnonzero(np.isin(links.src, selection.nodes) | np.isin(links.dst, selection.nodes))


def _cables_of(selection: Selection, keys: Ints, count: Ints) -> Ints:
    """Return the number of selected cables of each link; where a bundle is listed cable by cable, its first ones."""
    if selection.cables is None:
        return count
    first = np.searchsorted(keys, keys - places_of(keys))
    before = np.cumsum(count) - count
    return np.asarray(np.clip(selection.cables - (before - before[first]), 0, count), dtype=np.int64)
