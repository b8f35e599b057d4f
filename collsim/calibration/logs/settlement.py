"""Settlement of a table: operation, ranks, nodes, cells and the run, from its rows, the text around it and overrides.

An override beats all; otherwise what the program printed comes first, then comments, the rows, the name of the file.
This module imports only `operations` and the modules of the reader below it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from collsim.calibration.logs.comments import Comments, alike, disagreements, unread
from collsim.calibration.logs.facts import Device, Facts
from collsim.calibration.logs.inference import (
    MOST_STRAYS,
    Ratios,
    Signs,
    factor,
    possible_ops,
    ranks_of_ratio,
    read_signs,
)
from collsim.calibration.logs.log_types import NO_INTEGER, LogRun, Table
from collsim.core.operations import DTYPES, OPERATIONS

__all__ = ["BLOCK_COLUMNS", "Known", "Settlement"]

BLOCK_COLUMNS = ("time_s", "algbw_Bps", "busbw_Bps", "wrong")
NO_IN_PLACE = frozenset({"all_to_all", "all_to_all_v", "send_recv"})
FLAT = re.compile(r"0000:00:[0-9a-fA-F]{2}\b")
"""Address of a GPU on the first bus of its machine. Where GPUs are plugged in, that bus holds bridges and no GPU;
virtual machines (QEMU, Firecracker, Cloud Hypervisor) put devices there that they hand on."""
UNJUDGED = frozenset({"all_to_all_v", "hypercube"})
"""Operations that the rows cannot deny."""


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge beyond one table: overrides, the file's facts, environment and name, comments before it."""

    overrides: Mapping[str, Any]
    shared: Facts
    environment: Mapping[str, str]
    file_op: str | None
    comments: Comments = field(default_factory=dict)


@dataclass(slots=True)
class Settlement:
    """A table on its way to a Test; *lost* are the lines that it costs, *contradictions* what others say otherwise."""

    facts: Facts
    table: Table
    ratios: Ratios
    known: Known
    notes: list[str]
    op: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    lost: list[tuple[int, str]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    no_op: str = ""
    """Why what the text says of the operation is not taken."""
    no_ranks: str = ""
    """The same of the ranks."""

    def settle(self) -> None:
        """Decide everything, in the order in which one thing rests on another."""
        overrides = self.known.overrides
        signs = read_signs(self.table, self.ratios)
        printed = _printed_ranks(self.facts)
        self._note_comments()
        self.op = overrides.get("op") or self._find_op(signs, overrides.get("ranks") or printed)
        self.ranks = overrides.get("ranks") or self._find_ranks(signs, printed)
        nodes = self._find_nodes()
        self.nodes = overrides.get("nodes") or nodes
        self._deny({"op": self.facts.op, "ranks": printed, "nodes": nodes})
        if self.op in OPERATIONS and self.ranks:
            self._judge_ratios(self.op, self.ranks)
        self._fix_cells()
        self.table.op, self.table.ranks, self.table.nodes = self.op, self.ranks, self.nodes
        if len(self.table):
            self._note_gaps()
            self._note_rows()

    def _note_comments(self) -> None:
        """Say what of the comments before the table cannot be read, and what is said twice, each time otherwise."""
        faults = unread(self.known.comments)
        asked = {kind for kind in faults if self.known.overrides.get(kind)}
        self.no_op, self.no_ranks = faults.get("op", ""), faults.get("ranks", "")
        self.notes += [fault for kind, fault in faults.items() if kind not in asked and kind != "library"]
        printed = self.facts.printed_versions
        if any(not alike(version, printed[-1]) for version in printed):
            self.notes.append(f"the log prints versions {' and '.join(printed)}: {self.facts.library_version} is taken")
        family, version = self._printed_library()
        self.notes += disagreements(self.known.comments, family, version)

    def _printed_library(self) -> tuple[str | None, str | None]:
        """Return library and version as the log prints them, for this table or one before."""
        facts, shared = self.facts, self.known.shared
        return facts.library or shared.library, facts.library_version or shared.library_version

    def _find_op(self, signs: Signs, ranks: int | None) -> str | None:
        facts = self.facts
        loosely = possible_ops(signs, None, strict=False) | UNJUDGED
        if facts.op:
            if len(self.table) and facts.op not in loosely:
                self.notes.append(f"the rows do not look like {facts.op}, which {facts.op_source} names")
            return facts.op
        allowed = possible_ops(signs, ranks)
        for guess, origin in ((facts.op_hint, "the text around the table"), (self.known.file_op, "the file's name")):
            if guess in allowed | loosely:
                self.notes.append(f"the operation, {guess}, is taken from {origin}")
                if allowed and guess not in allowed | UNJUDGED:
                    self.notes.append(f"but the rows look like {' or '.join(sorted(allowed))}")
                return guess
            if guess:
                self.no_op = f"{origin} names {guess}, which the rows contradict"
                self.notes.append(self.no_op)
        if len(allowed) == 1 and len(self.table) and signs.ratio:
            self.notes.append(f"the operation, {min(allowed)}, is inferred from the rows")
            return min(allowed)
        return None

    def _find_ranks(self, signs: Signs, printed: int | None) -> int | None:
        """Return the ranks: as printed if the rows agree, else by the rows."""
        if self.op not in OPERATIONS:
            alone = signs.ratio is not None and signs.ratio[1] < 0.1
            by_blocks = signs.blocks if (signs.blocks or 1) > 1 else None
            return printed or by_blocks or (1 if alone else None)
        by_rows = _ranks_by_rows(self.op, signs, self.ratios)
        if by_rows is None or (printed and by_rows[0] <= printed <= by_rows[1]):
            return printed
        if printed and self._only_strays(self.op, printed):
            return printed
        if printed and (self.facts.devices or self.facts.told_ranks or self.facts.processes):
            where = "list of ranks" if self.facts.devices else "text"
            self.notes.append(f"the {where} says {printed} ranks, the rows {_span(*by_rows)}; the rows are believed")
        return self._choose(*by_rows)

    def _only_strays(self, op: str, printed: int) -> bool:
        """Return True if so few rows contradict the printed number of ranks that they can be dropped."""
        telling = self.ratios.telling()
        few = len(self.ratios.strays(factor(op, printed))) <= MOST_STRAYS * len(telling)
        return bool(telling) and few and not OPERATIONS[op].blocked

    def _choose(self, least: int, greatest: int) -> int | None:
        """Return the one number of ranks in a span, or its one multiple of 8."""
        if least == greatest:
            return least
        eights = range(-(-least // 8) * 8, min(greatest, least + 64) + 1, 8)
        if len(eights) == 1:
            self.notes.append(f"busbw / algbw allows {_span(least, greatest)} ranks; {eights[0]} is taken")
            return eights[0]
        self.notes.append(f"busbw / algbw allows {_span(least, greatest)} ranks: which is not known")
        return None

    def _find_nodes(self) -> int | None:
        """Return the nodes by the hosts of the list of ranks if it is whole, else by comments or the launcher."""
        told = self.facts.told_nodes or self.facts.nodes_flag
        devices = self.facts.devices
        if not devices or not self.ranks:
            return told
        per_process = _ranks_per_process(self.facts)
        group = devices[min(devices)].group
        members = [device for device in devices.values() if device.group == group]
        listed = len(members) * (per_process if _first_of_each(self.facts, per_process) else 1)
        if listed < self.ranks and not self.facts.devices_cut:
            return told
        hosts = len({device.host for device in members})
        if told and told != hosts and len(members) == len(devices):
            self.contradictions.append(f"the list of ranks shows {hosts} hosts, the text says {told} nodes")
            self.notes.append(self.contradictions[-1])
        return hosts

    def _deny(self, printed: Mapping[str, Any]) -> None:
        """Say which of the caller's overrides the log denies."""
        for name, value in printed.items():
            asked = self.known.overrides.get(name)
            if asked and value and asked != value:
                self.contradictions.append(f"the log says {name} {value}; {asked} is taken, as asked")

    def _judge_ratios(self, op: str, ranks: int) -> None:
        """Drop the few rows whose busbw contradicts the rest; say so if it is not few."""
        strays = self.ratios.strays(factor(op, ranks))
        if not strays:
            return
        if len(strays) > MOST_STRAYS * len(self.ratios.telling()):
            self.notes.append(f"busbw / algbw is not that of {op} over {ranks} ranks in {len(strays)} rows")
            return
        wanted = bytearray(b"\x01" * len(self.table))
        for stray in strays:
            wanted[stray] = 0
        self._lose(wanted, f"busbw / algbw is not that of {op} over {ranks} ranks")

    def _lose(self, wanted: bytearray, reason: str) -> None:
        """Drop the rows that are not wanted."""
        lines = self.table.raw("line")
        self.lost += [(line, reason) for line, take in zip(lines, wanted, strict=True) if not take]
        self.table = self.table.keep(wanted)

    def _fix_cells(self) -> None:
        """Fill in what the columns lack, mend counts, and clear the in-place half where it means nothing."""
        table, overrides = self.table, self.known.overrides
        table.fill("dtype", overrides.get("dtype"), self.facts.dtype)
        table.fill("redop", overrides.get("redop"), self.facts.redop)
        if self.op in NO_IN_PLACE:
            table.clear(*("in_place_" + name for name in BLOCK_COLUMNS))
            if any(math.isnan(time) for time in table.raw("time_s")):
                wanted = bytearray(not math.isnan(time) for time in table.raw("time_s"))
                self._lose(wanted, f"only an in-place half, which means nothing for {self.op}")
        if self.op in OPERATIONS and OPERATIONS[self.op].rooted and self.ranks:
            wanted = bytearray(root < (self.ranks or 0) for root in self.table.raw("root"))
            if not all(wanted):
                self._lose(wanted, f"the root is none of the {self.ranks} ranks, 0 to {self.ranks - 1}")
        if self.facts.deviations:
            self.table.clear("wrong", "in_place_wrong")
        self._mend_counts()

    def _mend_counts(self) -> None:
        if self.op not in OPERATIONS or self.op == "all_to_all_v":
            return
        op, mended, table = OPERATIONS[self.op], 0, self.table
        if op.blocked and not self.ranks:
            return
        counts, types = table.raw("count"), table.column("dtype")
        for index, size in enumerate(table.raw("size_bytes")):
            element = DTYPES.get(types[index] or "")
            if element:
                count = op.count(size, self.ranks or 1, element)
                mended += counts[index] not in (count, NO_INTEGER)
                counts[index] = count
        if mended:
            self.notes.append(f"{mended} counts that contradict size and type were replaced")

    def _note_gaps(self) -> None:
        """Say what is missing and what looks wrong in the rows."""
        table = self.table
        values = (("op", self.op), ("ranks", self.ranks), ("nodes", self.nodes))
        missing = [name for name, value in values if value is None]
        if missing:
            flags = ", ".join(f"--{name}" for name in missing)
            self.notes.append(f"not in the log: {', '.join(missing)}; add {flags}")
        strange = {name for name in table.column("dtype") if name is not None and name not in DTYPES}
        if strange:
            self.notes.append(f"unknown data types: {', '.join(sorted(strange)[:8])}")
        wrong = sum(a > 0 or b > 0 for a, b in zip(table.raw("wrong"), table.raw("in_place_wrong"), strict=True))
        if wrong:
            self.notes.append(f"{wrong} rows have wrong results (#wrong > 0)")
        halves = sum(math.isnan(time) for time in table.raw("time_s"))
        if halves:
            self.notes.append(f"{halves} rows have no out-of-place half")
        if self.facts.launch_known and self.facts.printed_busbw is None:
            self.notes.append("the closing lines are missing: the log may be cut off")
        if self.facts.failed:
            self.notes.append("the log says that the test failed (out of bounds values)")

    def _note_rows(self) -> None:
        """Say what about the run a calibration must know."""
        run = self.run()
        if run.launch is None:
            self.notes.append("not in the log: stream or graph launch; add --launch")
        if (run.aggregated or 1) > 1:
            self.notes.append(f"{run.aggregated} operations are aggregated in each launch (-m)")
        if run.blocking:
            self.notes.append("the host waited after every operation (-z)")
        if run.split and run.groups == 1 and self.ranks == len(self.facts.devices):
            self.notes.append(f"NCCL_TESTS_SPLIT={run.split} had no effect: all {self.ranks} ranks are in one group")

    def run(self) -> LogRun:
        """Return the description of the run, from the facts and the caller's overrides."""
        facts, overrides, shared = self.facts, self.known.overrides, self.known.shared
        graphs = facts.graph_launches
        launch = "graph" if graphs else "stream" if facts.launch_known or graphs == 0 or facts.command else None
        environment = {**self.known.environment, **facts.environment}
        joined = facts.split or Facts(environment=environment).split
        groups: dict[int, list[int]] = {}
        for rank, device in sorted(facts.devices.items()):
            groups.setdefault(device.group, []).append(rank)
        named, printed = self._printed_library()
        library = overrides.get("library") or named or facts.noted_library or _library_of(facts)
        printed = printed or facts.compiled_version
        noted = facts.noted_version if named in (None, facts.noted_library) and not printed else None
        return LogRun(
            program=facts.program or shared.program,
            program_version=facts.program_version or shared.program_version,
            library=library,
            library_version=overrides.get("library_version") or printed or noted,
            library_line=facts.noted_line if noted else None,
            library_fault="" if printed else unread(self.known.comments).get("library", ""),
            launch=overrides.get("launch") or launch,
            graph_launches=graphs,
            registered=_chosen(overrides.get("registered"), facts.registered, 0 if facts.command else None),
            blocking=_chosen(overrides.get("blocking"), facts.blocking, 0 if facts.command else None),
            average=facts.average,
            cpu_time=facts.cpu_time,
            split=joined,
            groups=len(groups) or None,
            members=tuple(map(tuple, groups.values())) if len(groups) > 1 else (),
            threads=facts.threads,
            gpus_per_thread=facts.gpus_per_thread,
            iterations=facts.iterations,
            warmups=facts.warmups,
            aggregated=facts.aggregated,
            validation=facts.validation,
            hosts=tuple(dict.fromkeys(device.host for _, device in sorted(facts.devices.items()))),
            gpus=tuple(dict.fromkeys(device.name for _, device in sorted(facts.devices.items()))),
            seats=_seats(facts, environment),
            virtual=bool(facts.devices) and all(map(_is_handed_on, facts.devices.values())),
            environment=MappingProxyType(environment),
            command=facts.command,
            printed_busbw_Bps=facts.printed_busbw,
            failed=facts.failed,
        )


def _is_handed_on(device: Device) -> bool:
    """Return True if a GPU is one that a host hands on to a virtual machine: by its address, or its name."""
    return bool(FLAT.match(device.address)) or device.name.endswith(" VF")


def _seats(facts: Facts, environment: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return host and device of each rank; nothing unless every rank is listed, each with a device of its own."""
    devices = [device for _, device in sorted(facts.devices.items())]
    if sorted(facts.devices) != list(range(len(devices))) or _first_of_each(facts, _ranks_per_process(facts)):
        return ()
    hosts: dict[str, int] = {}
    visible = _visible(environment)
    seats = tuple((hosts.setdefault(one.host, len(hosts)), visible.get(one.number, one.number)) for one in devices)
    return seats if len(set(seats)) == len(seats) and all(number >= 0 for _, number in seats) else ()


def _visible(environment: Mapping[str, str]) -> dict[int, int]:
    """Return the device that each number stands for where a variable lists the visible ones."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        listed = environment.get(name, "").split(",")
        if all(number.strip().isdigit() for number in listed):
            return {place: int(number) for place, number in enumerate(listed)}
    return {}


def _ranks_per_process(facts: Facts) -> int:
    return (facts.threads or 1) * (facts.gpus_per_thread or 1) * facts.ranks_per_gpu


def _printed_ranks(facts: Facts) -> int | None:
    """Return the ranks of one communicator by the list of ranks or, without one, by the command and the comments."""
    per_process = _ranks_per_process(facts)
    if facts.devices:
        groups = Counter(device.group for device in facts.devices.values())
        if len(groups) > 1:
            return groups[facts.devices[min(facts.devices)].group]
        processes = len(facts.devices) if _first_of_each(facts, per_process) else 1
        return max(max(facts.devices) + 1, per_process * processes)
    if facts.processes and (facts.threads or facts.command or not facts.told_ranks):
        return facts.processes * per_process
    return facts.told_ranks or (per_process if per_process > 1 else None)


def _first_of_each(facts: Facts, per_process: int) -> bool:
    """Return True if only the first rank of each process is listed, as in JSON reports."""
    return per_process > 1 and all(rank % per_process == 0 for rank in facts.devices)


def _ranks_by_rows(op: str, signs: Signs, ratios: Ratios) -> tuple[int, int] | None:
    by_ratio = ranks_of_ratio(op, ratios)
    blocks = signs.blocks or 1
    if OPERATIONS[op].blocked and blocks > 1 and (by_ratio is None or by_ratio[0] <= blocks <= by_ratio[1]):
        return blocks, blocks
    return by_ratio


def _span(least: int, greatest: int) -> str:
    return str(least) if least == greatest else f"{least} to {greatest}"


def _chosen(*values: int | None) -> int | None:
    return next((int(value) for value in values if value is not None), None)


def _library_of(facts: Facts) -> str | None:
    names = " ".join(device.name for device in facts.devices.values()).lower()
    if facts.program == "rccl-tests" or "amd" in names or "instinct" in names or "radeon" in names:
        return "RCCL"
    nvidia = any(word in names for word in ("nvidia", "tesla", "geforce", "quadro"))
    return "NCCL" if nvidia else None
