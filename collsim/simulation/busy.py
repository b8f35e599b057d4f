"""What is busy beside hops that stand for classes, step by step, counted among the hops of all pipelines.

Which hops those are is found once; only for how many chunks each is busy differs from size to size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collsim.core.arrays import distinct, entries_of, spread
from collsim.fabric.fabric import Float, Int
from collsim.library.costs.channel_costs import Bool, Use
from collsim.library.costs.network_costs import Steps, steps_of
from collsim.simulation.hop_rows import Rows
from collsim.simulation.lowering import end_rates_Bps, joined, narrowest_Bps

__all__ = ["Busy", "Written"]

AT_ONCE = 512
"""So many classes are looked at in one go, so that what is needed for it stays small."""


class Written(NamedTuple):
    """Transfers of the hops that stand for classes, chunk by chunk."""

    n_chunks: Int
    """int64[pipes]"""
    of_class: Int
    """In order."""
    step: Int


class _Met(NamedTuple):
    """Hops that share something with some that stand for classes: a line each of a table of steps."""

    n_lines: int
    line: Int
    pipe: Int
    begin: Int
    weight: Float

    def table(self, n_chunks: Int, n_steps: int) -> Float:
        """Return float64[n_lines, n_steps]: the sum of the weights on each line while their hops are busy."""
        size, at = self.n_lines * n_steps, self.line * n_steps + self.begin
        table: Float = np.bincount(at, self.weight, size).astype(np.float64, copy=False)
        table -= np.bincount(at + n_chunks[self.pipe], self.weight, size)
        by_step = table.reshape(self.n_lines, n_steps)
        return np.cumsum(by_step, axis=1, out=by_step)

    def busy(self, n_chunks: Int, n_steps: int, line: Int, step: Int) -> Float:
        """Return float64[n]: the entries of that table on each *line* in each *step*, of weights in whole numbers.

        Chains have as many steps as hops, so that the table would be mostly of entries that nobody asks for.
        """
        begin, wanted = self.line * n_steps + self.begin, line * n_steps + step
        return _sum_to(begin, self.weight, wanted) - _sum_to(begin + n_chunks[self.pipe], self.weight, wanted)


def _sum_to(at: Int, weight: Float, wanted: Int) -> Float:
    """Return float64[n]: the sum of the weights of all that are *at* no more than *wanted*, which is int64[n]."""
    order = np.argsort(at, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.asarray(total[np.searchsorted(at[order], wanted, side="right")])


class _Labelled(NamedTuple):
    """Hops with the labels of classes, and the line of each class."""

    met: _Met
    line: Int


class _Crossed(NamedTuple):
    """Hops that share links between nodes with classes, and the links of each of these, in CSR."""

    met: _Met
    classes: Int
    """Those that lead between nodes."""
    ptr: Int
    line: Int
    capacity_Bps: Float


class Busy:
    """What is busy beside the rows *stand*, each of which stands for a class."""

    def __init__(self, rows: Rows, stand: Int) -> None:
        hops, pipes = rows.hops, rows.pipes
        src, dst, run = hops.src, hops.dst, hops.run
        own = rows.hop[stand]
        self._rows, self._stand = rows, stand
        self.weight = (pipes.lanes * pipes.copies).astype(np.float64)
        self.deepest = np.maximum.reduceat(hops.depth, hops.first[:-1])[pipes.shape]
        rates_Bps = end_rates_Bps(src, dst, run, rows.schedule.groups)
        self.out_Bps, self.in_Bps = (rate[own] for rate in rates_Bps)
        lowest = int(min(src.min(), dst.min()))
        sender, receiver = src - lowest, dst - lowest
        n_ends = int(max(sender.max(), receiver.max())) + 1
        pair = sender * n_ends + receiver
        straight = joined(src, dst, run)
        self.straight = straight[own]
        self.by_sender, self.by_pair = self._labelled(sender, sender[own]), None
        if not (rates_Bps[1] >= rates_Bps[0]).all():
            self.by_pair = self._labelled(pair, pair[own])
        self.by_way, self.by_opposite = self.by_sender, None
        if straight.any():
            label = np.where(straight, pair + n_ends, sender)
            back = receiver[own] * n_ends + sender[own] + n_ends
            self.by_way = self._labelled(label, label[own])
            self.by_opposite = self._labelled(label, np.where(self.straight, back, -1))
        number = hops.ways.number[own]
        alone = (run.single or run.trunks).take(number, np.ones(len(own)))
        self.alone_Bps = narrowest_Bps(alone, run.trunk_capacity_Bps)
        self.crossed = self._crossed(number, own) if hops.ways.across[own].any() else None
        del self._rows, self._stand

    def _met(self, n_lines: int, line: Int, row: Int, share: Float | float = 1.0) -> _Met:
        """Return the rows that are met, each with its share of what its channels put there."""
        pipe = self._rows.pipe[row]
        return _Met(n_lines, line, pipe, self._rows.hops.depth[self._rows.hop[row]], self.weight[pipe] * share)

    def _labelled(self, label: Int, wanted: Int) -> _Labelled:
        """Return the hops whose label some class wants."""
        values, place = distinct(wanted)
        at = np.minimum(np.searchsorted(values, label), len(values) - 1)
        row = np.flatnonzero((values[at] == label)[self._rows.hop])
        return _Labelled(self._met(len(values), at[self._rows.hop[row]], row), place)

    def _crossed(self, number: Int, own: Int) -> _Crossed:
        """Return the hops between nodes that share links with classes, which take the ways *number*."""
        rows, hops, run = self._rows, self._rows.hops, self._rows.hops.run
        classes = np.flatnonzero(hops.ways.across[own])
        ptr, entry = entries_of(run.trunks.ptr, number[classes])
        links, line = distinct(run.trunks.link[entry])
        line_of = np.full(len(run.trunk_capacity_Bps), -1, dtype=np.int32)
        line_of[links] = np.arange(len(links))
        touched = np.zeros(len(run.trunks.latency_s), dtype=np.bool_)
        crossing = np.flatnonzero(line_of[run.trunks.link] >= 0)
        touched[np.searchsorted(run.trunks.ptr, crossing, side="right") - 1] = True
        out = np.flatnonzero((hops.ways.across & touched[hops.ways.number])[rows.hop])
        on_ptr, on_entry = entries_of(run.trunks.ptr, hops.ways.number[rows.hop[out]])
        on = line_of[run.trunks.link[on_entry]].astype(np.int64)
        met = np.flatnonzero(on >= 0)
        row = np.repeat(out, np.diff(on_ptr))[met]
        found = self._met(len(links), on[met], row, run.trunks.weight[on_entry[met]])
        return _Crossed(found, classes, ptr, line, run.trunk_capacity_Bps[links])

    def _steps(self, at: Written) -> int:
        """Return how many steps a table needs."""
        return int((self.deepest + at.n_chunks).max(initial=0)) + 1

    def _beside(self, labelled: _Labelled, at: Written) -> Float:
        """Return float64[n_transfers]: channels busy under the label of each class in the step."""
        return labelled.met.busy(at.n_chunks, self._steps(at), labelled.line[at.of_class], at.step)

    def use(self, at: Written, lanes: Float, adds: Bool) -> Use:
        """Return the channels and ways out that transfers of *lanes* share; *adds* says which of them are reduced."""
        by_sender = self._beside(self.by_sender, at)
        alone_Bps = self.out_Bps[at.of_class]
        if self.by_pair is not None:
            alone_Bps = np.minimum(alone_Bps, self.in_Bps[at.of_class] * by_sender / self._beside(self.by_pair, at))
        active, duplex = by_sender, np.zeros(len(at.of_class), dtype=np.bool_)
        if self.by_opposite is not None:
            straight = self.straight[at.of_class]
            active = self._beside(self.by_way, at)
            duplex = straight & (self._beside(self.by_opposite, at) > 0)
            alone_Bps = np.where(straight, self.alone_Bps[at.of_class], alone_Bps)
        return Use(lanes, spread(active, 1), alone_Bps, duplex, adds)

    def steps(self, at: Written, use: Use, across: Bool) -> Steps | None:
        """Return the transfers between nodes, if there are any."""
        if self.crossed is None:
            return None
        met, classes, ptr, line, capacity_Bps = self.crossed
        share_Bps = met.table(at.n_chunks, self._steps(at))
        idle = ~(share_Bps > 1e-9)
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(capacity_Bps[:, None], share_Bps, out=share_Bps)
        share_Bps[idle] = np.inf
        moving = np.flatnonzero(across)
        of_class, step = at.of_class[moving], at.step[moving]
        shared_Bps = np.empty(len(moving))
        for start in range(0, len(classes), AT_ONCE):
            part = classes[start : start + AT_ONCE]
            span = slice(int(ptr[start]), int(ptr[start + len(part)]))
            begins = ptr[start : start + len(part)] - ptr[start]
            least_Bps = np.minimum.reduceat(share_Bps[line[span]], begins, axis=0)
            theirs = slice(*np.searchsorted(of_class, (part[0], part[-1] + 1)).tolist())
            shared_Bps[theirs] = least_Bps[np.searchsorted(part, of_class[theirs]), step[theirs]]
        return steps_of(use, moving, self.alone_Bps[of_class], shared_Bps)
