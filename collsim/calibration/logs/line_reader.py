"""The line reader: tells rows, headers, debug text and noise apart and fills Sections with them.

This module imports only the other modules of the reader.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from collsim.calibration.logs.cells import cell_fault, op_of_record, whole_number
from collsim.calibration.logs.comments import Comments, read_comment, says_the_same, with_statement
from collsim.calibration.logs.facts import Facts, learn, learn_debug, op_name, op_of_program
from collsim.calibration.logs.log_sections import LogSection
from collsim.calibration.logs.log_types import Test
from collsim.calibration.logs.named_tables import (
    Columns,
    json_head,
    json_record,
    json_values,
    learn_config,
    read_columns,
    read_record,
    record_of_line,
)
from collsim.calibration.logs.printed_rows import (
    RawRow,
    RowStart,
    find_row,
    number,
    split_cells,
    too_large,
)
from collsim.calibration.logs.settlement import Known
from collsim.calibration.logs.streams import LONGEST_TEXT, Stream

__all__ = ["LogReader"]

MAX_JSON_CHARS = 1 << 26
MAX_STREAMS = 10_000
MAX_CELLS = 64
MAX_ROWS = 200_000
"""A longer table is handed out in parts, so that memory does not grow with the file."""

_MPI_TAG = re.compile(r"\[(?:[\w.-]+@)?\d+,(?:mpirank[:=])?(\d+)\]\s?(?:<std(?:out|err|diag)>)?:")
_PREFIX = re.compile(
    r"\[pod/(?P<pod>[^\]\s]{1,200})\]\s?"
    r"|\s{0,6}(?P<srun>\d{1,6}):\s"
    r"|\[(?:default)?(?P<proxy>\d{1,6})\]:?\s"
    r"|\((?:\w+ )?pid=(?P<ray>\d+)(?:, ip=[\d.]+)?\)\s"
    r"|(?P<compose>[A-Za-z][\w.-]{0,60})\s+\|\s"
    r"|(?P<host>[A-Za-z][\w.-]{0,60}):\s(?=\s*(?:#|\d))"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?\]?:?\s?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?\s"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?\s(?:[\w.-]+ [\w./-]+(?:\[\d+\])?:\s)?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w.]+:\d+\]\s"
    r"|(?:stdout|stderr) [FP]\s"
    r"|\[?(?:INFO|DEBUG|NOTICE)\]?(?:\s*[:|-]\s*|\s)(?![A-Z]*:)"
    r"|>\s?"
)
_DEBUG = re.compile(
    r"(?:(\S{0,255}):\d+:\d+\s+)?\[-?\d+\]\s+(?:\S{1,255}:\d+\s+)?NCCL (?:INFO|WARN|TRACE|CALL|ABORT|VERSION)\b"
)
_GLUED = re.compile(r"^(-?\d+(?:\.\d+)?(?:e[+-]\d+)?|N/A)(?=[A-Za-z])(.*)$")
_NUMBERS_ONLY = re.compile(r"[\s\d.,eE+\-NAna/]+")
_MARKER = re.compile(r"nThread|Collective test starting|-tests version|_perf\b|_perf_mpi\b")


class LogReader:
    """Takes lines one by one; finished tests wait in *done*."""

    def __init__(self, overrides: Mapping[str, Any], file_op: str | None) -> None:
        self.overrides, self.file_op = overrides, file_op
        self.done: deque[Test] = deque()
        self.seen = 0
        self.marks: set[str] = set()
        self._streams: dict[str, Stream] = {}
        self._shared, self._sticky = Facts(), dict[str, str]()
        self._comments: Comments = {}
        self._fresh: set[str] = set()
        self._json: list[str] = []
        self._json_line = self._json_depth = self._json_chars = 0
        self._no_json = False
        self._last = 0

    @property
    def has_rows(self) -> bool:
        """True if a row was seen that no finished test holds yet."""
        return any(stream.has_rows for stream in self._streams.values())

    def feed(self, line: int, text: str) -> None:
        """Read one line."""
        self._last = line
        self.seen += 1
        if self._json:
            self._feed_json(text)
            return
        if len(text) > LONGEST_TEXT and text.lstrip()[:1] not in ("{", "["):
            self._stream("").section(line).drop(line, f"a line of {len(text)} characters", text)
            return
        stripped = text.lstrip()
        if stripped[:1] in ("{", "[") and not self._no_json and _looks_like_json(stripped):
            self._json_line, self._json_depth, self._json_chars = line, 0, 0
            self._feed_json(text)
            return
        self._feed_text(line, text)

    def close(self) -> None:
        """Finish what is under way."""
        if self._json:
            self._end_json()
        for stream in self._streams.values():
            stream.flush()
            self._finish(stream)

    def _feed_text(self, line: int, text: str) -> None:
        label = ""
        if "[" in text and (tags := _MPI_TAG.findall(text)):
            label, text = tags[0], _MPI_TAG.sub(" ", text)
        if " NCCL " in text and (match := _DEBUG.search(text)):
            text = self._debug(label, text, match)
        if not text or text.isspace():
            return
        start = find_row(text, line, at_start=True)
        if start is None:
            label, text = _strip_prefix(label, text)
            start = find_row(text, line)
        stream = self._stream(label)
        if start is not None and self._row(stream, start):
            return
        self._other(stream, line, text)

    def _debug(self, label: str, text: str, match: re.Match[str]) -> str:
        """Learn from debug text and return what stands before it, less the host name that a cell is glued to."""
        learn_debug(text[match.start() :], self._stream(label).facts)
        head = text[: match.start()]
        if match[1] and (glued := _GLUED.match(match[1])):
            head += glued[1]
        return head

    def _row(self, stream: Stream, start: RowStart) -> bool:
        """Take the beginning of a row; False if the line is only prose that looks like one."""
        redop, root, blocks, fault = split_cells(start, stream.facts.layout)
        if not start.known_type and not start.rest and stream.has_rows:
            fault = "the row ends too early"
        elif not start.known_type and (fault or not blocks or start.count is None):
            return False
        if start.count is None and (fault or not blocks) and redop is None:
            return False
        stream.flush()
        section = self._open(stream, start.line, redop)
        if fault:
            section.drop(start.line, fault, start.text)
            return True
        stream.pending, stream.parsed = start, (redop, root, blocks, fault)
        if len(blocks) == 2:
            stream.flush()
        return True

    def _other(self, stream: Stream, line: int, text: str) -> None:
        """Read a line that does not begin a row: a row's continuation, a header, a record, or noise."""
        bare = text.strip()
        if stream.pending is not None and _continues(bare):
            stream.pending.rest += bare.split()
            stream.parsed = split_cells(stream.pending, stream.facts.layout)
            blocks, fault = stream.parsed[2:]
            if len(blocks) == 2 or fault or len(stream.pending.rest) > 24:
                stream.flush()
            return
        if stream.columns is not None and self._record_line(stream, line, text):
            return
        stream.flush()
        if _NUMBERS_ONLY.fullmatch(bare) and len(bare.split()) >= 3 and "." in bare:
            self._open(stream, line, None).drop(line, "the beginning of the row is missing", text)
            return
        if too_large(text):
            self._open(stream, line, None).drop(line, "the size is more than any buffer holds", text)
            return
        self._header(stream, line, text)

    def _header(self, stream: Stream, line: int, text: str) -> None:
        text = stream.whole_command(text)
        if "oncluded" in text or not text:
            return
        is_marker = "_perf" in text or "nThread" in text or "-tests version" in text or "starting" in text
        if is_marker and _MARKER.search(text) and _begins_test(text):
            self._begin(stream, line, text)
        elif "time" in text and ("algbw" in text or "size" in text.lower()):
            self._columns(stream, text)
        elif ("time" in text.lower() or "lat" in text.lower()) and (columns := read_columns(text)):
            self._columns(stream, text, columns)
        elif "-place" in text and "of-place" not in text and "algbw" not in text:
            stream.facts.in_place_only, stream.facts.in_place_first = True, False
        elif "out-of-place" in text:
            if stream.has_rows:
                self._next_table(stream)
            stream.facts.in_place_only = False
            stream.facts.in_place_first = -1 < text.find("in-place") < text.find("out-of-place")
        learn(text, stream.facts, self._sticky)
        for kind, said in read_comment(text, line):
            self._comments = with_statement(self._comments, kind, said, fresh=kind in self._fresh)
            self._fresh.add(kind)
        self._share(stream.facts)
        if "Avg bus bandwidth" in text:
            self.marks.add("an average")
            self._average(stream)

    def _columns(self, stream: Stream, text: str, columns: Columns | None = None) -> None:
        columns = columns or read_columns(text)
        if columns is None:
            return
        self.marks.add("a line of column names")
        if stream.has_rows:
            self._next_table(stream)
        stream.facts.deviations = bool(re.search(r"\berror\b", text))
        stream.facts.cpu_time = stream.facts.cpu_time or columns.cpu_time
        if columns.has_types and columns.separator is None:
            stream.facts.layout, stream.columns = columns.layout, None
        else:
            stream.columns = columns

    def _begin(self, stream: Stream, line: int, text: str) -> None:
        """Begin a new test where its first line is seen."""
        self.marks.add("the header of a test")
        if stream.has_rows:
            self._next_table(stream, keep=False)
        if "nThread" in text:
            if stream.facts.threads is not None and stream.facts.launch_known:
                stream.facts.devices = {}
            stream.facts.copies += 1
        stream.section(line)

    def _next_table(self, stream: Stream, keep: bool = True) -> None:
        """Finish a table; the next one without a header of its own inherits what is known."""
        self._finish(stream)
        stream.facts = stream.facts.for_next() if keep else Facts()
        stream.op_before = stream.facts.op

    def _average(self, stream: Stream) -> None:
        if stream.current is None:
            return
        stream.current.averages += 1
        if stream.current.averages >= stream.facts.copies:
            before = stream.facts
            self._finish(stream)
            stream.before, stream.facts, stream.columns = before, Facts(), None

    def _open(self, stream: Stream, line: int, redop: str | None) -> LogSection:
        """Return the section for a row, a new one where copying operations turn into reducing ones."""
        if not stream.has_rows and stream.before is not None and stream.facts.threads is None:
            stream.inherit()
        self._hear(stream)
        section = stream.section(line)
        reduces = None if redop is None else redop != "none"
        if None not in (section.last_reduces, reduces) and reduces != section.last_reduces and len(section.table):
            self._next_table(stream)
            self._hear(stream)
            stream.facts.op = stream.facts.op_hint = None
            section = stream.section(line)
        elif len(section.table) >= MAX_ROWS:
            section.warnings.append(f"a table of more than {MAX_ROWS} rows was parted")
            self._next_table(stream)
            self._hear(stream)
            section = stream.section(line)
        section.last_reduces = section.last_reduces if reduces is None else reduces
        return section

    def _hear(self, stream: Stream) -> None:
        """Give the facts of a table that begins what comments say; behind new ones a table without a header begins."""
        if stream.has_rows:
            if says_the_same(stream.comments or {}, self._comments):
                return
            self._next_table(stream)
        stream.hear(self._comments, self._fresh)
        self._fresh.clear()

    def _record_line(self, stream: Stream, line: int, text: str) -> bool:
        columns = stream.columns
        if columns is None or (columns.separator and columns.separator not in text):
            return False
        record = record_of_line(text, columns)
        if record is None:
            fault = f"not the {len(columns.roles)} cells of the line of names"
            return self._no_record(stream, line, text, fault)
        row = read_record(record, line)
        if isinstance(row, str):
            return self._no_record(stream, line, text, row) or bool(columns.separator)
        if stream.facts.in_place_first and columns.separator is None:
            row.out, row.into = row.into, row.out
        if reason := self._cell_fault(stream, record):
            stream.section(line).drop(line, reason, text)
            return True
        self._take_record(stream, row, record, text)
        return True

    def _cell_fault(self, stream: Stream, record: dict[Any, Any]) -> str | None:
        names_ops = stream.record_key is not None and stream.record_key[0] is not None
        return cell_fault(record, self.overrides, names_ops)

    @staticmethod
    def _no_record(stream: Stream, line: int, text: str, fault: str) -> bool:
        """Drop a line that begins like a row; False if it does not."""
        first = re.split(r"[,;|\t]", text.strip().strip("|"), maxsplit=1)[0]
        if not (first.strip()[:1].isdigit() or op_name(first)) or len(text.split()) > MAX_CELLS:
            return False
        stream.section(line).drop(line, fault, text)
        return True

    def _take_record(self, stream: Stream, row: RawRow, record: dict[Any, Any], text: str = "") -> None:
        """Add the row of a record to the table of its operation, ranks and nodes."""
        ranks, nodes = (whole_number(record, key) for key in ("ranks", "nodes"))
        op = op_of_record(record)
        if stream.has_rows and stream.record_key not in (None, (op, ranks, nodes)):
            self._next_table(stream)
        self._hear(stream)
        stream.record_key = (op, ranks, nodes)
        facts = stream.facts
        if op:
            facts.op, facts.op_source = op, "the column of operations"
        facts.told_ranks, facts.told_nodes = ranks or facts.told_ranks, nodes or facts.told_nodes
        half = stream.half
        same = half and (half.size, half.dtype, half.redop, half.root) == (row.size, row.dtype, row.redop, row.root)
        if half and same and row.out is None and half.into is None:
            half.into = row.into
            stream.flush()
            return
        stream.flush()
        stream.section(row.line)
        if "inplace" in record and row.into is None:
            stream.half = row
        else:
            stream.section(row.line).add(row, text)

    def _feed_json(self, text: str) -> None:
        """Collect the lines of a JSON value until its braces close."""
        self._json.append(text)
        self._json_chars += len(text)
        self._json_depth += text.count("{") + text.count("[") - text.count("}") - text.count("]")
        if self._json_depth <= 0 or self._json_chars > MAX_JSON_CHARS:
            self._end_json()

    def _end_json(self) -> None:
        lines, self._json = self._json, []
        text = "\n".join(lines)
        stream = self._stream("")
        whole = self._json_depth <= 0
        taken = 0
        if not whole and (head := json_head(text)):
            self._json_value(stream, head, self._json_line)
        for value in json_values(text):
            taken += self._json_value(stream, value, self._json_line)
        if not taken:
            self._no_json = True
            for offset, piece in enumerate(lines):
                self._feed_text(self._json_line + offset, piece)
            self._no_json = False
        elif not whole:
            stream.section(self._json_line).drop(self._last, "the JSON text ends too early", text[-80:])

    def _json_value(self, stream: Stream, value: Any, line: int) -> int:
        """Read a JSON value and return how many things it taught."""
        if not isinstance(value, dict):
            return 0
        if isinstance(value.get("log"), str):
            self._feed_text(line, value["log"].rstrip("\r\n"))
            return 1
        if "results" in value or "config" in value or "nthreads" in value or "args" in value:
            self.marks.add("a JSON report")
            if stream.has_rows:
                self._next_table(stream, keep=False)
            learn_config(value, stream.facts)
            results = value.get("results")
            rows = [self._json_row(stream, item, line) for item in results] if isinstance(results, list) else []
            average = value.get("average_bus_bandwidth")
            if isinstance(average, dict) and isinstance(average.get("bandwidth"), (int, float)):
                stream.facts.printed_busbw = float(average["bandwidth"]) * 1e9
            return 1 + sum(rows)
        if "rank" in value and "hostname" in value:
            learn_config({"devices": [value]}, stream.facts)
            return 1
        return self._json_row(stream, value, line)

    def _json_row(self, stream: Stream, value: Any, line: int) -> int:
        if not isinstance(value, dict) or "size" not in {str(key).lower() for key in value} | _SIZES & set(value):
            return 0
        half = value.get("out_of_place") or value.get("in_place")
        if isinstance(half, dict) and "cpu_time" in half:
            stream.facts.cpu_time = True
        record = json_record(value)
        if not any(isinstance(key, tuple) for key in record):
            return 0
        row = read_record(record, line)
        fault = row if isinstance(row, str) else self._cell_fault(stream, record)
        if fault or isinstance(row, str):
            stream.section(line).drop(line, str(fault), json.dumps(value)[:200])
        else:
            self._take_record(stream, row, record)
        return 1

    def _finish(self, stream: Stream) -> None:
        stream.flush()
        if stream.current is not None:
            section, stream.current = stream.current, None
            general = self._streams.get("", stream).facts
            sticky = {**self._sticky, **general.environment}
            if stream.label and section.facts.op is None:
                section.facts.op, section.facts.op_source = general.op, general.op_source
                section.facts.op_hint = section.facts.op_hint or general.op_hint
                section.facts.command = section.facts.command or general.command
            comments, stream.comments = stream.comments or {}, None
            self.done.extend(section.finish(Known(self.overrides, self._shared, sticky, self.file_op, comments)))

    def _share(self, facts: Facts) -> None:
        for name in ("program", "program_version", "library", "library_version", "compiled_version"):
            if (value := getattr(facts, name)) is not None:
                setattr(self._shared, name, value)

    def _stream(self, label: str) -> Stream:
        if label not in self._streams:
            if len(self._streams) >= MAX_STREAMS:
                return self._streams[""] if "" in self._streams else next(iter(self._streams.values()))
            self._streams[label] = Stream(label)
        return self._streams[label]


_SIZES = {"size_bytes", "message_size", "bytes", "nbytes", "msg_size", "data_size"}


def _looks_like_json(text: str) -> bool:
    bare = text.rstrip()
    return bare in ("{", "[") or bare[:2] in ('{"', "[{") or bare[:3] in ('{ "', "[ {")


def _begins_test(text: str) -> bool:
    return "nThread" in text or "-tests version" in text or op_of_program(text) is not None


def _continues(bare: str) -> bool:
    cells = bare.split()
    return bool(cells) and len(cells) <= 17 and all(number(cell) is not None for cell in cells)


def _strip_prefix(label: str, text: str) -> tuple[str, str]:
    """Return the label of the process and the text behind labels and time stamps."""
    position = 0
    for _ in range(6):
        match = _PREFIX.match(text, position)
        if match is None or match.end() == position:
            break
        found = next((value for value in match.groupdict().values() if value), "")
        label = label or found
        position = match.end()
    return label, text[position:]
