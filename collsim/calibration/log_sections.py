"""Rows and facts of one table, gathered line by line, and the Test that they make in the end.

This module imports only the other modules of the reader and `operations`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from collsim.calibration.log_facts import Facts
from collsim.calibration.log_inference import (
    MOST_STRAYS,
    Ratios,
    Signs,
    factor,
    possible_ops,
    ranks_of_ratio,
    read_signs,
)
from collsim.calibration.log_rows import ANY_UNIT, OTHERS_BIT, UNITS, Block, RawRow, agreement, others_of
from collsim.calibration.log_types import LISTED_DROPS, NO_INTEGER, Dropped, Run, Table, Test
from collsim.operations import DTYPES, OPERATIONS

__all__ = ["Overrides", "Section"]

Overrides = Mapping[str, Any]
NO_IN_PLACE = frozenset({"all_to_all", "all_to_all_v", "send_recv"})
HALVES = ("", "in_place_")
SHOWN = 80


class Section:
    """A table under way."""

    def __init__(self, facts: Facts, source: str, first_line: int) -> None:
        self.facts, self.source = facts, source
        self.first_line = self.last_line = first_line
        self.table = Table()
        self.masks = (bytearray(), bytearray())
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
            self.drop(row.line, "zero bytes: nothing is left of the size after rounding", text)
            return
        others = others_of(row.size, row.count, row.dtype)
        masks = [self._mask(row, others, half, name) for half, name in ((row.out, "out-of-place"), (row.into, "in-place"))]
        if masks == [0, 0]:
            if row.out is None and row.into is None:
                self.drop(row.line, "no half of the row is whole", text)
            return
        for store, mask in zip(self.masks, masks, strict=True):
            store.append(mask)
        out, into = (half if mask else None for half, mask in zip((row.out, row.into), masks, strict=True))
        speaking = out or into
        if speaking:
            self.ratios.append(speaking.algbw, speaking.algbw_step, speaking.busbw, speaking.busbw_step)
        self.table.append(
            size_bytes=row.size,
            count=row.count,
            dtype=row.dtype,
            redop=row.redop,
            root=row.root,
            line=row.line,
            **_cells(out, ""),
            **_cells(into, "in_place_"),
        )

    def _mask(self, row: RawRow, others: int, half: Block | None, name: str) -> int:
        if half is None:
            return 0
        mask = agreement(row.size, others, half)
        if not mask:
            what = f"{name} time {half.time:g} and algbw {half.algbw:g} do not belong to {row.size} bytes"
            self.drop(row.line, what if half.time > 0 else f"{name} time {half.time:g} is not positive")
        return mask

    def finish(self, overrides: Overrides, shared: Facts, sticky: Mapping[str, str], file_op: str | None) -> list[Test]:
        """Return the tests: one, or one for each process that printed into the same table; empty ones included."""
        self._settle_units()
        parts = self._part_copies()
        return [self._test(part, ratios, overrides, shared, sticky, file_op, i) for i, (part, ratios) in enumerate(parts)]

    def _settle_units(self) -> None:
        """Find the pair of units on which most rows agree, turn numbers into SI, drop what does not agree."""
        out, into = self.masks
        seen = Counter(mask for masks in self.masks for mask in masks if mask)
        bits = range(len(UNITS) + 1)
        best = max(bits, key=lambda bit: (sum(n for mask, n in seen.items() if mask >> bit & 1), -bit))
        _, time_unit, _, rate_unit = UNITS[best] if best < len(UNITS) else UNITS[0]
        wanted = bytearray(len(out))
        for index in range(len(out)):
            for masks, prefix in zip((out, into), HALVES, strict=True):
                if masks[index] >> best & 1:
                    wanted[index] = 1
                elif masks[index]:
                    self._forget_half(index, prefix, "time and algbw are in other units than in the rest of the table")
            self._scale(index, time_unit, rate_unit)
        self._keep(wanted)
        if len(self.table) and best and any(mask != ANY_UNIT for mask in seen):
            self.warnings.append(_unit_note(best))

    def _forget_half(self, index: int, prefix: str, reason: str) -> None:
        line = self.table.raw("line")[index]
        self.drop(line, f"{'in-place' if prefix else 'out-of-place'} {reason}")
        for name in ("time_s", "algbw_Bps", "busbw_Bps", "wrong"):
            self.table.raw(prefix + name)[index] = math.nan

    def _scale(self, index: int, time_unit: float, rate_unit: float) -> None:
        for prefix in HALVES:
            self.table.raw(prefix + "time_s")[index] *= time_unit
            self.table.raw(prefix + "algbw_Bps")[index] *= rate_unit
            self.table.raw(prefix + "busbw_Bps")[index] *= rate_unit

    def _keep(self, wanted: bytearray) -> None:
        if all(wanted):
            return
        self.table = self.table.keep(wanted)
        for name in ("low", "high"):
            column = getattr(self.ratios, name)
            setattr(self.ratios, name, type(column)("d", (x for x, take in zip(column, wanted, strict=True) if take)))

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
        self.warnings.append(f"{copies} processes printed the same table into one stream; it was parted into {copies}")
        parts = []
        for copy in range(copies):
            wanted = bytearray(index == copy for index in copy_of)
            ratios = Ratios(*(type(c)("d", (x for x, w in zip(c, wanted, strict=True) if w)) for c in (self.ratios.low, self.ratios.high)))
            parts.append((self.table.keep(wanted), ratios))
        return parts

    def _test(
        self, table: Table, ratios: Ratios, overrides: Overrides, shared: Facts, sticky: Mapping[str, str],
        file_op: str | None, index: int,
    ) -> Test:  # fmt: skip
        notes = list(self.warnings) if index == 0 else []
        facts = self.facts
        signs = read_signs(table, ratios)
        printed = _printed_ranks(facts)
        ranks_known = overrides.get("ranks") or printed
        op = overrides.get("op") or _settle_op(facts, signs, ranks_known, file_op, notes, bool(len(table)))
        ranks = overrides.get("ranks") or _settle_ranks(op, printed, facts, ratios, signs, notes)
        if overrides.get("ranks") and op in OPERATIONS and len(ratios.strays(factor(op, ranks))) > MOST_STRAYS * len(table):
            notes.append(f"busbw / algbw is not that of {op} over the given {ranks} ranks")
        nodes = overrides.get("nodes") or _settle_nodes(facts, ranks, notes)
        if op in OPERATIONS and ranks:
            table = self._drop_strays(table, ratios, op, ranks, notes)
        _fix_cells(table, op, ranks, overrides, facts, notes)
        table.op, table.ranks, table.nodes = op, ranks, nodes
        _note_gaps(table, op, ranks, nodes, notes)
        run = _run(facts, overrides, shared, sticky)
        notes += _run_notes(run, facts, ranks) if len(table) else []
        drops, n_dropped = (tuple(self.drops), self.n_dropped) if index == 0 else ((), 0)
        return Test(
            op, ranks, nodes, table, run, self.source, self.first_line, self.last_line, drops, n_dropped, tuple(notes)
        )  # fmt: skip

    def _drop_strays(self, table: Table, ratios: Ratios, op: str, ranks: int, notes: list[str]) -> Table:
        strays = ratios.strays(factor(op, ranks))
        if not strays or len(strays) > MOST_STRAYS * len(table):
            return table
        wanted = bytearray(b"\x01" * len(table))
        for stray in strays:
            wanted[stray] = 0
            self.drop(table.raw("line")[stray], f"busbw / algbw is not that of {op} over {ranks} ranks")
        notes.append(f"{len(strays)} rows whose busbw contradicts the rest were dropped")
        return table.keep(wanted)


def _cells(half: Block | None, prefix: str) -> dict[str, float | None]:
    names = [prefix + name for name in ("time_s", "algbw_Bps", "busbw_Bps", "wrong")]
    values = (half.time, half.algbw, half.busbw, half.wrong) if half else (None,) * 4
    return dict(zip(names, values, strict=True))


def _unit_note(best: int) -> str:
    if 1 << best == OTHERS_BIT:
        return "algbw counts only the bytes that leave a rank"
    time_unit, _, rate_unit, _ = (str(part) for part in UNITS[best])
    return f"times are in {time_unit} and rates in {rate_unit}, whatever the header says: size / time shows it"


def _printed_ranks(facts: Facts) -> int | None:
    """Return the ranks of one communicator by the list of ranks or, without one, by the command and the comments."""
    per_process = (facts.threads or 1) * (facts.gpus_per_thread or 1) * facts.ranks_per_gpu
    if facts.devices:
        groups = Counter(device.group for device in facts.devices.values())
        if len(groups) > 1:
            return groups[facts.devices[min(facts.devices)].group]
        listed = max(facts.devices) + 1
        return max(listed, per_process * (len(facts.devices) if _first_of_each(facts, per_process) else 1))
    if facts.processes and facts.threads:
        return facts.processes * per_process
    return facts.told_ranks or (per_process if per_process > 1 else None)


def _first_of_each(facts: Facts, per_process: int) -> bool:
    """Whether only the first rank of each process is listed, as JSON reports do."""
    return per_process > 1 and all(rank % per_process == 0 for rank in facts.devices)


def _settle_op(
    facts: Facts, signs: Signs, ranks: int | None, file_op: str | None, notes: list[str], has_rows: bool
) -> str | None:
    allowed = possible_ops(signs, ranks)
    if facts.op:
        by_rows = facts.op in allowed or facts.op in ("all_to_all_v", "hypercube") or not has_rows
        if not by_rows and not facts.op in possible_ops(signs, None):
            notes.append(f"the rows do not look like {facts.op}, which {facts.op_source} names")
        return facts.op
    allowed |= possible_ops(signs, None)
    for guess, origin in ((facts.op_hint, "the text around the table"), (file_op, "the name of the file")):
        if guess and (guess in allowed or guess in ("all_to_all_v", "hypercube")):
            notes.append(f"the operation, {guess}, is taken from {origin}")
            return guess
    if len(allowed) == 1 and has_rows and signs.ratio:
        notes.append(f"the operation, {min(allowed)}, is inferred from the rows")
        return min(allowed)
    return None


def _settle_ranks(
    op: str | None, printed: int | None, facts: Facts, ratios: Ratios, signs: Signs, notes: list[str]
) -> int | None:
    """Return the ranks: as printed if the rows agree, else by the rows."""
    if op not in OPERATIONS:
        return printed or (signs.blocks if op == "hypercube" else None)
    by_rows = (signs.blocks, signs.blocks) if OPERATIONS[op].blocked and signs.blocks else ranks_of_ratio(op, ratios)
    if by_rows is None:
        return printed
    least, greatest = by_rows
    if printed is not None and (facts.devices or facts.told_ranks or facts.processes):
        if least <= printed <= greatest:
            return printed
        if len(ratios.strays(factor(op, printed))) <= MOST_STRAYS * len(ratios.telling()) and not OPERATIONS[op].blocked:
            return printed
        where = "list of ranks" if facts.devices else "text"
        notes.append(f"the {where} says {printed} ranks, the rows {_span(least, greatest)}; the rows are believed")
    round_ones = [n for n in range(-(-least // 8) * 8, min(greatest, least + 1000) + 1, 8)]
    if least == greatest:
        return least
    if len(round_ones) == 1:
        notes.append(f"busbw / algbw allows {_span(least, greatest)} ranks; {round_ones[0]} is taken")
        return round_ones[0]
    notes.append(f"busbw / algbw allows {_span(least, greatest)} ranks: which is not known")
    return None


def _span(least: int, greatest: int) -> str:
    return str(least) if least == greatest else f"{least} to {greatest}"


def _settle_nodes(facts: Facts, ranks: int | None, notes: list[str]) -> int | None:
    """Return the nodes by the hosts of the list of ranks if it is whole, else by the comments or the launcher."""
    told = facts.told_nodes or facts.nodes_flag
    devices = facts.devices
    per_process = (facts.threads or 1) * (facts.gpus_per_thread or 1) * facts.ranks_per_gpu
    groups = {device.group for device in devices.values()}
    group = devices[min(devices)].group if devices else 0
    members = [device for device in devices.values() if device.group == group or len(groups) == 1]
    listed = len(members) * (per_process if _first_of_each(facts, per_process) else 1)
    if not devices or not ranks or (listed < ranks and not facts.devices_cut):
        return told
    hosts = len({device.host for device in members})
    if told and told != hosts and len(groups) == 1:
        notes.append(f"the list of ranks shows {hosts} hosts, the text says {told} nodes")
    return hosts


def _fix_cells(
    table: Table, op: str | None, ranks: int | None, overrides: Overrides, facts: Facts, notes: list[str]
) -> None:
    """Fill in what the columns lack, mend counts, and clear the in-place half where it means nothing."""
    table.fill("dtype", overrides.get("dtype"), facts.dtype)
    table.fill("redop", overrides.get("redop"), facts.redop)
    if op in NO_IN_PLACE:
        for name in ("time_s", "algbw_Bps", "busbw_Bps", "wrong"):
            column = table.raw("in_place_" + name)
            column[:] = type(column)("d", [math.nan]) * len(column)
    if op not in OPERATIONS or op == "all_to_all_v" or (OPERATIONS[op].blocked and not ranks):
        return
    mended = 0
    counts, sizes, types = table.raw("count"), table.raw("size_bytes"), table.column("dtype")
    for index, size in enumerate(sizes):
        element = DTYPES.get(types[index] or "")
        if element:
            count = OPERATIONS[op].count(size, ranks or 1, element)
            mended += counts[index] not in (count, NO_INTEGER)
            counts[index] = count
    if mended:
        notes.append(f"{mended} counts that contradict size and type were replaced")


def _note_gaps(table: Table, op: str | None, ranks: int | None, nodes: int | None, notes: list[str]) -> None:
    """Say what is missing and what looks wrong in a table that has rows."""
    if not len(table):
        return
    missing = [name for name, value in (("op", op), ("ranks", ranks), ("nodes", nodes)) if value is None]
    if missing:
        notes.append(f"not in the log: {', '.join(missing)}; give {', '.join(f'{name}=' for name in missing)}")
    strange = {name for name in table.column("dtype") if name is not None and name not in DTYPES}
    if strange:
        notes.append(f"unknown data types: {', '.join(sorted(strange))}")
    wrong = sum(w > 0 or v > 0 for w, v in zip(table.raw("wrong"), table.raw("in_place_wrong"), strict=True))
    if wrong:
        notes.append(f"{wrong} rows have wrong results (#wrong > 0)")
    halves = sum(math.isnan(time) for time in table.raw("time_s"))
    if halves:
        notes.append(f"{halves} rows have no out-of-place half")


def _run(facts: Facts, overrides: Overrides, shared: Facts, sticky: Mapping[str, str]) -> Run:
    graphs = facts.graph_launches
    launch = "graph" if graphs else "stream" if facts.launch_known or graphs == 0 or facts.command else None
    environment = {**sticky, **facts.environment}
    joined = facts.split or Facts(environment=environment).split
    groups = {device.group for device in facts.devices.values()}
    library = overrides.get("library") or facts.library or shared.library or _library_of(facts)
    version = facts.library_version or shared.library_version or facts.compiled_version
    return Run(
        program=facts.program or shared.program,
        program_version=facts.program_version or shared.program_version,
        library=library,
        library_version=overrides.get("library_version") or version,
        launch=overrides.get("launch") or launch,
        graph_launches=graphs,
        registered=_chosen(overrides.get("registered"), facts.registered, 0 if facts.command else None),
        blocking=_chosen(overrides.get("blocking"), facts.blocking, 0 if facts.command else None),
        average=facts.average,
        cpu_time=facts.cpu_time,
        split=joined,
        groups=len(groups) or None,
        threads=facts.threads,
        gpus_per_thread=facts.gpus_per_thread,
        iterations=facts.iterations,
        warmups=facts.warmups,
        aggregated=facts.aggregated,
        validation=facts.validation,
        hosts=tuple(dict.fromkeys(device.host for _, device in sorted(facts.devices.items()))),
        gpus=tuple(dict.fromkeys(device.name for _, device in sorted(facts.devices.items()))),
        environment=MappingProxyType(environment),
        command=facts.command,
        printed_busbw_Bps=facts.printed_busbw,
    )


def _chosen(*values: int | None) -> int | None:
    return next((int(value) for value in values if value is not None), None)


def _library_of(facts: Facts) -> str | None:
    names = " ".join(device.name for device in facts.devices.values()).lower()
    if facts.program == "rccl-tests" or "amd" in names or "instinct" in names or "radeon" in names:
        return "RCCL"
    nvidia = any(word in names for word in ("nvidia", "tesla", "geforce", "quadro"))
    return "NCCL" if nvidia else None


def _run_notes(run: Run, facts: Facts, ranks: int | None) -> list[str]:
    notes = []
    if run.launch is None:
        notes.append("not in the log: stream or graph launch; give launch=")
    if (run.aggregated or 1) > 1:
        notes.append(f"{run.aggregated} operations are aggregated in each launch (-m)")
    if run.blocking:
        notes.append("the host waited after every operation (-z)")
    if run.split and facts.devices and run.groups == 1 and ranks == len(facts.devices):
        notes.append(f"NCCL_TESTS_SPLIT={run.split} had no effect: all {ranks} ranks are in one group")
    return notes
