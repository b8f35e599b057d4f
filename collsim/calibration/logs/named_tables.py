"""Tables with named columns and JSON documents: csv exports, pipes between columns, ``-J`` reports, JSON lines.

This module imports only `log_rows` and `log_facts`.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collsim.calibration.logs.facts import Device, Facts, encoded_version, op_name, op_of_program, read_command
from collsim.calibration.logs.printed_rows import (
    MAX_SIZE_BYTES,
    REDUCTIONS,
    Block,
    Layout,
    RawRow,
    choice_of,
    dtype_name,
    number,
)

__all__ = [
    "Columns",
    "json_head",
    "json_record",
    "json_values",
    "learn_config",
    "read_columns",
    "read_record",
    "record_of_line",
]

MAX_FAILED_SCANS = 200
MAX_HEAD_CHARS = 1 << 20

_ROLES = (
    ("wrong", r"#?wrong|nwrong|errors?|check_?result|res(?:ult)?|correct(?:ness)?"),
    ("busbw", r"(?:peak_?)?bus_?(?:bw|bandwidth)"),
    ("algbw", r"alg(?:o|orithm)?_?(?:bw|bandwidth)"),
    ("time", r"(?:avg_?|mean_?)?(?:time|latency|lat)(?:_?avg)?"),
    ("size", r"(?:message_?|msg_?|data_?|total_?)?(?:size|n?bytes)"),
    ("count", r"count|elements?|elems?|n"),
    ("dtype", r"(?:data_?)?type|dtype"),
    ("root", r"root"),
    ("redop", r"redop|reduction|reduce_?op"),
    ("op", r"collective|operation|op"),
    ("label", r"test|name|benchmark"),
    ("inplace", r"in_?place"),
    ("ranks", r"n?_?ranks|n_?gpus|gpus|np|world_?size"),
    ("nodes", r"n?_?nodes|num_?nodes"),
    ("cputime", r"cpu_?time"),
    ("clock", r"hip_?evt|hip_?event"),
    ("algo", r"algo(?:rithm)?"),
    ("proto", r"proto(?:col)?"),
    ("channels", r"n_?ch(?:annels?)?|channels"),
)
_ROLE = tuple((role, re.compile(pattern)) for role, pattern in _ROLES)
_IN_PLACE = re.compile(r"(?:^|_)(?:in_?place|ip|in)(?:_|$)")
_OUT_OF_PLACE = re.compile(r"(?:^|_)(?:out_?of_?place|oop|out)(?:_|$)")
_UNIT = re.compile(
    r"[_(\[]+(gb/?ps|gbs|[kmg]i?b/?s|ns|us|µs|μs|ms|s|sec|usec|msec|b|bytes|elems|elements|count)[)\]:]*$"
)
_TIME_UNITS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3}
_TIME_UNITS |= {"s": 1e6, "sec": 1e6, "seconds": 1e6}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_BLOCK_ROLES = frozenset({"time", "algbw", "busbw", "wrong", "clock"})
_CHOICE_ROLES = ("algo", "proto", "channels")
GAP = re.compile(r" {20,}")
"""Where the cells of a half should be."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: *roles* as (role, in place, time unit in us); *separator* None is white space."""

    roles: tuple[tuple[str, bool, float], ...]
    separator: str | None
    cpu_time: bool

    @property
    def has_types(self) -> bool:
        """True if a column holds the data type, by which rows are found without this header."""
        return any(role == "dtype" for role, _, _ in self.roles)

    @property
    def layout(self) -> Layout | None:
        """Root or not and the cells of either block, for rows that are read cell by cell."""
        names = [role for role, _, _ in self.roles if role not in ("stamp", *_CHOICE_ROLES)]
        times = [index for index, role in enumerate(names) if role in ("time", "cputime")]
        if not 1 <= len(times) <= 2:
            return None
        first = (times[1] if len(times) == 2 else len(names)) - times[0]
        clocks = names[times[0] : times[0] + first].count("clock")
        second = len(names) - times[1] if len(times) == 2 else 0
        choice = self.roles[-1][0] in _CHOICE_ROLES
        return Layout("root" in names[: times[0]], first, second, clocks, choice)

    def cells(self, text: str) -> list[str] | None:
        """Return the cells of a line, empty ones for a half that is blank; None if they are not those of the names."""
        if self.separator:
            found = text.strip().strip("|").split(self.separator)
            return found if len(found) == len(self.roles) else None
        found = text.split()
        starts = [index for index, (role, _, _) in enumerate(self.roles) if role == "time"]
        if len(starts) == 2 and len(found) == len(self.roles) - starts[1] + starts[0]:
            blank = [""] * (starts[1] - starts[0])
            at = starts[0] if GAP.search(text.strip()) else starts[1]
            found = [*found[:at], *blank, *found[at:]]
        return found if len(found) == len(self.roles) else None


def read_columns(text: str) -> Columns | None:
    """Return the columns if *text* is a table's line of names."""
    lower = text.strip().lstrip("#").strip().lower()
    if not ("time" in lower or "lat" in lower) or not ("bw" in lower or "bandwidth" in lower or "size" in lower):
        return None
    separator = next((mark for mark in ("|", ",", ";", "\t") if lower.count(mark) >= 2), None)
    names = [name.strip(" \"':*`") for name in (lower.strip("|").split(separator) if separator else lower.split())]
    roles = [_role(name) for name in names]
    found = [role for role, _, _ in roles]
    if not ({"time", "cputime"} & set(found)) or not ({"size", "count"} & set(found)) or len(names) > 64:
        return None
    seen: set[str] = set()
    for index, (role, in_place, unit) in enumerate(roles):
        if role in _BLOCK_ROLES and role in seen and not in_place:
            roles[index] = (role, True, unit)
        elif role in _BLOCK_ROLES and not in_place:
            seen.add(role)
    return Columns(tuple(roles), separator, "cputime" in found)


def _role(name: str) -> tuple[str, bool, float]:
    """Return (role, in place, time unit in us) of a column's name."""
    if name == "timestamp":
        return "stamp", False, 1.0
    key = re.sub(r"[\s\-]+", "_", name)
    key, unit = _strip_unit(key)
    in_place = bool(_IN_PLACE.search(key)) and not _OUT_OF_PLACE.search(key)
    core = _OUT_OF_PLACE.sub("_", _IN_PLACE.sub("_", key)).strip("_") or key
    for role, pattern in _ROLE:
        if pattern.fullmatch(core):
            return role, in_place and role in _BLOCK_ROLES, unit
    return "other", False, 1.0


def _strip_unit(key: str) -> tuple[str, float]:
    unit = 1.0
    match = _UNIT.search(key)
    if match and key != "n_bytes":
        unit = _TIME_UNITS.get(match[1], 1.0)
        key = key[: match.start()]
    return key.rstrip("_:"), unit


def record_of_line(text: str, columns: Columns) -> dict[str, Any] | None:
    """Return the cells of a line by role, the block's cells under (role, in place); None if the line is no row."""
    cells = columns.cells(text)
    if cells is None:
        return None
    record: dict[Any, Any] = {}
    for (role, in_place, unit), cell in zip(columns.roles, cells, strict=True):
        value = cell.strip(" \"'`*")
        record[(role, in_place) if role in _BLOCK_ROLES else role] = value
        if role == "time":
            record["unit", in_place] = unit
    return record


def read_record(record: Mapping[Any, Any], line: int) -> RawRow | str:
    """Return the row of a record, or why it is none."""
    size = _size(str(record.get("size", "")))
    dtype = str(record["dtype"]).strip() if record.get("dtype") else None
    if size is None:
        return "no size in bytes"
    count = number(str(record.get("count", "")))
    root = number(str(record.get("root", "")).strip())
    halves = [_half(record, in_place) for in_place in (False, True)]
    if str(record.get("inplace", "0")).lower() in ("1", "true", "yes"):
        halves = [None, halves[0]]
    if halves == [None, None]:
        return "no time"
    redop = record.get("redop") or (record.get("op") if str(record.get("op")).lower() in REDUCTIONS else None)
    return RawRow(
        size=size,
        count=int(count[0]) if count and math.isfinite(count[0]) and 0 <= count[0] < MAX_SIZE_BYTES else None,
        dtype=(dtype_name(dtype) or dtype[:40]) if dtype else None,
        redop=str(redop).lower().removeprefix("nccl")[:20] if redop else None,
        root=int(root[0]) if root and math.isfinite(root[0]) and abs(root[0]) < 1e7 else None,
        out=halves[0],
        into=halves[1],
        line=line,
        choice=choice_of([str(record.get(role) or "-") for role in _CHOICE_ROLES]),
    )


def _half(record: Mapping[Any, Any], in_place: bool) -> Block | None:
    time = number(str(record.get(("time", in_place), "")))
    if time is None or not 0 < time[0] < math.inf:
        return None
    unit = float(record.get(("unit", in_place), 1.0))
    found = [number(str(record.get((role, in_place), ""))) for role in ("algbw", "busbw")]
    rates = [rate if rate and math.isfinite(rate[0]) else (math.nan, 0.0) for rate in found]
    wrong = number(str(record.get(("wrong", in_place), ""))) or (math.nan, 0.0)
    return Block(time[0] * unit, time[1] * unit, *rates[0], *rates[1], wrong[0] if wrong[0] >= 0 else math.nan)


def _size(text: str) -> int | None:
    """Return a size in bytes; ``64M`` and ``64MiB`` are binary, ``64MB`` could mean two things and is none."""
    match = _SIZE.fullmatch(text.strip().replace(",", ""))
    if match is None or (match[2] and not match[3] and text.strip()[-1] in "bB"):
        return None
    size = float(match[1]) * 1024.0 ** _POWERS[match[2].upper()]
    return int(match[1]) if match[1].isdigit() and not match[2] and size <= MAX_SIZE_BYTES else (
        int(size) if size == int(min(size, MAX_SIZE_BYTES)) else None
    )  # fmt: skip


def json_values(text: str) -> Iterator[Any]:
    """Yield the outermost objects of a JSON text, or of what is left of it, as far as they are whole."""
    decoder = json.JSONDecoder()
    position, failures = text.find("{"), 0
    while position >= 0 and failures < MAX_FAILED_SCANS:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            failures += 1
            end = position + 1
        else:
            yield value
        position = text.find("{", end)


def json_head(text: str) -> dict[str, Any]:
    """Return the arguments, the environment and the version of a ``-J`` report that is cut off."""
    head: dict[str, Any] = {}
    for key in ("args", "env", "nccl_version"):
        if match := re.search(rf'"{key}"\s*:\s*', text[:MAX_HEAD_CHARS]):
            with contextlib.suppress(ValueError, RecursionError):
                head[key] = json.JSONDecoder().raw_decode(text, match.end())[0]
    return head


def json_record(value: Mapping[str, Any]) -> dict[Any, Any]:
    """Return a record of a JSON object that has a size and times of its own."""
    record: dict[Any, Any] = {}
    for key, cell in value.items():
        role, flagged, unit = _role(str(key).lower())
        if isinstance(cell, (dict, list)) or role == "other":
            continue
        text = "n/a" if cell is None else repr(cell) if isinstance(cell, float) else str(cell)
        record[(role, flagged) if role in _BLOCK_ROLES else role] = text.strip()
        if role == "time":
            record["unit", flagged] = unit
    for key, flagged in (("out_of_place", False), ("in_place", True)):
        if isinstance(value.get(key), dict):
            inner = json_record(value[key])
            record |= {(role[0], flagged): cell for role, cell in inner.items() if isinstance(role, tuple)}
    return record


def learn_config(value: Mapping[str, Any], facts: Facts) -> None:
    """Add what the head of a ``-J`` report says: arguments, environment, versions, settings, devices."""
    arguments = value.get("args")
    if isinstance(arguments, list) and arguments:
        command = " ".join(str(part) for part in arguments)
        op = op_of_program(command) or op_name(str(arguments[0]).rsplit("/", 1)[-1])
        if op:
            facts.op, facts.op_source = op, "the arguments"
        read_command(command, facts)
    for entry in value.get("env") or () if isinstance(value.get("env"), list) else ():
        key, mark, text = str(entry).partition("=")
        if mark and len(facts.environment) < 1000:
            facts.environment[key] = text
    if isinstance(value.get("nccl_version"), int):
        facts.library, facts.library_version = "NCCL", encoded_version(value["nccl_version"])
    for part in (value, value.get("config")):
        if isinstance(part, dict):
            _learn_settings(part, facts)


def _learn_settings(config: Mapping[str, Any], facts: Facts) -> None:
    names = {
        "nthreads": "threads", "ngpus": "gpus_per_thread", "graph": "graph_launches", "warmup_iters": "warmups",
        "iterations": "iterations", "aggregated_iterations": "aggregated", "validation": "validation",
    }  # fmt: skip
    for key, name in names.items():
        if isinstance(config.get(key), int):
            setattr(facts, name, int(config[key]))
    if "graph" in config:
        facts.launch_known = True
    if "blocking_collectives" in config and facts.blocking is None:
        facts.blocking = int(str(config["blocking_collectives"]).lower() in ("1", "true"))
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) else ():
        _learn_device(device, facts)


def _learn_device(device: Any, facts: Facts) -> None:
    if not isinstance(device, dict) or not isinstance(device.get("rank"), int):
        return
    group, pid = (int(device[key]) if isinstance(device.get(key), int) else 0 for key in ("group", "pid"))
    number = device["device"] if isinstance(device.get("device"), int) else -1
    entry = Device(group, str(device.get("hostname", ""))[:200], str(device.get("device_info", ""))[:80], pid, number)
    facts.devices.setdefault(int(device["rank"]), entry)
