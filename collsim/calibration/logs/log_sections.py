"""Rows and facts of one table, gathered line by line, and the Test that they make in the end.

This module imports only the other modules of the reader.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any

from collsim.calibration.logs.facts import Facts
from collsim.calibration.logs.inference import Ratios
from collsim.calibration.logs.log_types import LISTED_DROPS, ZERO_BYTES, Dropped, Table, Test
from collsim.calibration.logs.printed_rows import (
    ANY_UNIT,
    LONGEST_TIME,
    OTHERS_BIT,
    UNITS,
    Block,
    RawRow,
    agreement,
    others_of,
)
from collsim.calibration.logs.settlement import BLOCK_COLUMNS, Known, Settlement

__all__ = ["LogSection"]

HALVES = ("", "in_place_")
SHOWN = 80
SHORTEST_S = 1e-9
"""A clock of a host or a GPU tells no less; no launch takes so little."""
LONGEST_S = 1e6
"""Twelve days: no operation runs so long."""


class LogSection:
    """A table under way."""

    def __init__(self, facts: Facts, source: str, first_line: int) -> None:
        self.facts, self.source = facts, source
        self.first_line = self.last_line = first_line
        self.table = Table()
        self.masks = (array("H"), array("H"))
        self.ratios = Ratios()
        self.drops: list[Dropped] = []
        self.n_dropped = 0
        self.warnings: list[str] = []
        self.averages = 0
        self.last_reduces: bool | None = None

    def drop(self, line: int, reason: str, text: str = "") -> None:
        """Count a line that is not taken, and list it if the list is not full."""
        self.n_dropped += 1
        self.last_line = max(self.last_line, line)
        if len(self.drops) < LISTED_DROPS:
            shown = " ".join("".join(c if c.isprintable() else "?" for c in text[: 4 * SHOWN]).split())
            self.drops.append(Dropped(line, reason, shown[:SHOWN]))

    def add(self, row: RawRow, text: str = "") -> None:
        """Take a row if at least one half of it is sound."""
        self.last_line = row.line
        if row.size == 0:
            self.drop(row.line, ZERO_BYTES, text)
            return
        masks = [self._mask(row, row.out, "out-of-place"), self._mask(row, row.into, "in-place")]
        if masks == [0, 0]:
            if row.out is None and row.into is None:
                self.drop(row.line, "no half of the row is whole", text)
            return
        for store, mask in zip(self.masks, masks, strict=True):
            store.append(mask)
        row.out, row.into = row.out if masks[0] else None, row.into if masks[1] else None
        speaking = row.out or row.into
        if speaking:
            self.ratios.append(speaking.algbw, speaking.algbw_step, speaking.busbw, speaking.busbw_step)
        self.table.append(row)

    def _mask(self, row: RawRow, half: Block | None, name: str) -> int:
        if half is None:
            return 0
        mask = half.units
        if mask < 0:
            mask = agreement(row.size, others_of(row.size, row.count, row.dtype), half)
        if not mask:
            what = f"{name} time {half.time:g} and algbw {half.algbw:g} do not belong to {row.size} bytes"
            if not 0 < half.time < LONGEST_TIME:
                what = f"{name} time {half.time:g} is {'no measurement' if half.time > 0 else 'not positive'}"
            self.drop(row.line, what)
        return mask

    def finish(self, known: Known) -> list[Test]:
        """Return the tests: one, or one for each process that printed into the same table; empty ones included."""
        self._settle_units()
        if self.facts.cpu_time and len(self.table):
            for line in self.table.raw("line"):
                self.drop(line, "the time is that of the host's calls (-C)")
            self._keep(bytearray(len(self.table)))
        return [self._test(table, ratios, known, first=i == 0) for i, (table, ratios) in enumerate(self._part_copies())]

    def _settle_units(self) -> None:
        """Find the pair of units on which most rows agree, turn numbers into SI, drop what does not agree."""
        out, into = self.masks
        seen = Counter(mask for masks in self.masks for mask in masks if mask)
        bits = range(len(UNITS) + 1)
        best = max(bits, key=lambda bit: (sum(n for mask, n in seen.items() if mask >> bit & 1), -bit))
        _, per_second, _, rate_unit = UNITS[best] if best < len(UNITS) else UNITS[0]
        good = 1 << best
        wanted = bytearray(1 if (a | b) & good else 0 for a, b in zip(out, into, strict=True))
        for masks, prefix in zip((out, into), HALVES, strict=True):
            for index in [index for index, mask in enumerate(masks) if mask and not mask & good]:
                self._forget_half(index, prefix, "time and algbw are in other units than in the rest of the table")
            self.table.divide(prefix + "time_s", per_second)
            self.table.multiply(prefix + "algbw_Bps", rate_unit)
            self.table.multiply(prefix + "busbw_Bps", rate_unit)
        self._forget_impossible(wanted)
        if good == OTHERS_BIT:
            for index in range(len(self.table)):
                self._restore_own_share(index)
        self._keep(wanted)
        if len(self.table) and best and any(mask != ANY_UNIT for mask in seen):
            self.warnings.append(_unit_note(best))

    def _forget_impossible(self, wanted: bytearray) -> None:
        """Forget halves whose time, in seconds, no operation takes, and rows of which nothing is left."""
        times = [self.table.raw(prefix + "time_s") for prefix in HALVES]
        for prefix, column in zip(HALVES, times, strict=True):
            for index, time_s in enumerate(column):
                if wanted[index] and not (math.isnan(time_s) or SHORTEST_S <= time_s <= LONGEST_S):
                    self._forget_half(index, prefix, f"time of {time_s:.3g} s is no measurement")
                    wanted[index] = any(not math.isnan(half[index]) for half in times)

    def _forget_half(self, index: int, prefix: str, reason: str) -> None:
        line = self.table.raw("line")[index]
        self.drop(line, f"{'in-place' if prefix else 'out-of-place'} {reason}")
        for name in BLOCK_COLUMNS:
            self.table.raw(prefix + name)[index] = math.nan

    def _restore_own_share(self, index: int) -> None:
        """Bring algbw back to size / time where it counted only what leaves the rank."""
        size, count = self.table.raw("size_bytes")[index], self.table.raw("count")[index]
        share = others_of(size, count, self.table.name("dtype", index))
        scale = share / (share - 1) if share > 1 else 1.0
        for prefix in HALVES:
            self.table.raw(prefix + "algbw_Bps")[index] *= scale
        self.ratios.low[index] /= scale
        self.ratios.high[index] /= scale

    def _keep(self, wanted: bytearray) -> None:
        if all(wanted):
            return
        self.table = self.table.keep(wanted)
        self.ratios = self.ratios.keep(wanted)

    def _part_copies(self) -> list[tuple[Table, Ratios]]:
        """Part the rows of several processes that printed the same table into one stream."""
        if self.facts.copies < 2 or not len(self.table):
            return [(self.table, self.ratios)]
        seen: Counter[tuple[Any, ...]] = Counter()
        copy_of = []
        keys = zip(*(self.table.column(name) for name in ("size_bytes", "dtype", "redop", "root")), strict=True)
        for key in keys:
            copy_of.append(seen[key])
            seen[key] += 1
        copies = max(copy_of) + 1
        if copies < 2 or copies > self.facts.copies:
            return [(self.table, self.ratios)]
        self.warnings.append(f"{copies} processes printed the same table into one stream: it was parted")
        parts = []
        for copy in range(copies):
            wanted = bytearray(index == copy for index in copy_of)
            parts.append((self.table.keep(wanted), self.ratios.keep(wanted)))
        return parts

    def _test(self, table: Table, ratios: Ratios, known: Known, *, first: bool) -> Test:
        settled = Settlement(self.facts, table, ratios, known, list(self.warnings) if first else [])
        settled.settle()
        for line, reason in settled.lost:
            self.drop(line, reason)
        return Test(
            op=settled.op,
            ranks=settled.ranks,
            nodes=settled.nodes,
            rows=settled.table,
            run=settled.run(),
            source=self.source,
            first_line=self.first_line,
            last_line=self.last_line,
            dropped=tuple(self.drops) if first else (),
            n_dropped=self.n_dropped if first else 0,
            warnings=tuple(settled.notes),
            contradictions=tuple(settled.contradictions),
            no_op=settled.no_op,
            no_ranks=settled.no_ranks,
        )


def _unit_note(best: int) -> str:
    if 1 << best == OTHERS_BIT:
        return "algbw counted only the bytes that leave a rank; it is brought back to size / time"
    time_unit, _, rate_unit, _ = (str(part) for part in UNITS[best])
    return f"times are in {time_unit} and rates in {rate_unit}, whatever the header says: size / time shows it"
