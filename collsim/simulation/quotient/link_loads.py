"""Loads of the links of a whole machine, by what units of each kind do, and the busiest of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collsim.fabric.fabric import Float, Int
from collsim.simulation.plans import EQUALLY_BUSY
from collsim.simulation.quotient.frames import UNIT
from collsim.simulation.quotient.representatives import Miniature

__all__ = ["UnitBytes", "alike", "carried"]


class UnitBytes(NamedTuple):
    """Bytes on the links of units; units with one label have the same."""

    label: Int
    """int64[m]: of each unit in order."""
    table: Float
    """float64[labels, spots]: bytes on each of its links."""


def alike(*columns: Int) -> tuple[Int, Int]:
    """Return int64[n], equal numbers for equal rows of *columns*, and the first row of each."""
    which, first = np.zeros(len(columns[0]), dtype=np.int64), np.zeros(1, dtype=np.int64)
    for column in columns:
        _, own = np.unique(column, return_inverse=True)  # both are below n, so their product fits
        _, first, which = np.unique(which * len(own) + own, return_index=True, return_inverse=True)
    return which.astype(np.int64), first.astype(np.int64)


def carried(
    mini: Miniature, capacity_Bps: Float, units: Int, parts: Sequence[UnitBytes], above: Float
) -> tuple[Float, Int]:
    """Return float64[n_links] of the part, bytes on each link, and int64[n_links], how many such links there are.

    Only the busiest link of the part stands for others: for all of the whole that are within `EQUALLY_BUSY` of it.

    Parameters
    ----------
    mini : Miniature
    capacity_Bps : float64[n_links]
        Of the part.
    units : int64[m]
        Units of the whole, in order.
    parts : sequence of UnitBytes
        What is on their links, to be added up.
    above : float64[spots, owners]
        Bytes on links of blocks and pods.
    """
    spot, owner, own = mini.link_spot, mini.link_owner, mini.link_level == UNIT
    kind, first = alike(*(part.label for part in parts))
    bytes_of = np.sum([part.table[part.label[first]] for part in parts], axis=0)
    link_bytes = np.zeros(len(spot))
    place = np.minimum(np.searchsorted(units, owner), len(units) - 1)
    own &= units[place] == owner
    link_bytes[own] = bytes_of[kind[place[own]], spot[own]]
    higher = mini.link_level > UNIT
    link_bytes[higher] = above[spot[higher], owner[higher]]
    # What is not in the part could carry what stands for it there could.
    speed_Bps, above_Bps = np.full(bytes_of.shape, np.inf), np.full(len(above), np.inf)
    for number, unit in enumerate(mini.kinds.first[mini.kinds.kind[units[first]]].tolist()):
        here = (mini.link_level == UNIT) & (owner == unit)
        speed_Bps[number, spot[here]] = capacity_Bps[here]
    np.minimum.at(above_Bps, spot[higher], capacity_Bps[higher])
    above_Bps = np.repeat(above_Bps[:, None], above.shape[1], axis=1)
    above_Bps[spot[higher], owner[higher]] = capacity_Bps[higher]
    busy_s, above_s = bytes_of / speed_Bps, above / above_Bps
    busiest = int((link_bytes / capacity_Bps).argmax())
    least_s = (1 - EQUALLY_BUSY) * link_bytes[busiest] / capacity_Bps[busiest]
    bundles = np.zeros(len(above), dtype=np.int64)
    bundles[spot] = mini.link_bundles
    members = np.zeros(len(spot), dtype=np.int64)
    members[busiest] = int((busy_s >= least_s).sum(axis=1) @ np.bincount(kind))
    members[busiest] += int((above_s >= least_s).sum(axis=1) @ bundles) if least_s else 0
    return link_bytes, members
