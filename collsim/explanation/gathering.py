"""Gathering of a report: files read as documents and logs, and their runs explained."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collsim.calibration.logs.reading import read_log
from collsim.core.errors import CollsimError, Fault, Faults, SpecError
from collsim.core.input_files import beside, name_of_input, read_input_or_stdin
from collsim.core.operations import operation
from collsim.explanation.account import explained
from collsim.explanation.contents import Contents, Document, Measured
from collsim.explanation.findings import Explanation

__all__ = ["READABLE", "asked_of", "gather"]

READABLE = (
    "collsim.result/1", "collsim.compare/1", "collsim.validate/1", "collsim.diagnose/1", "collsim.moe/1",
    "collsim.timeline/1", "collsim.explain/1", "collsim.sweep_result/1", "collsim.tune/1", "collsim.serving_result/1",
    "collsim.moe_compare/1", "collsim.compare_workload/1",
)  # fmt: skip
"""Schemas of the documents that a report shows."""
HINT = ("name a JSON file of collsim run, compare, validate, moe, diagnose, timeline, explain, sweep, tune or serve, "
        "or a log")  # fmt: skip
OURS = re.compile(rb'^\s*\{\s*"schema"\s*:\s*"collsim\.')
"""How a document of a command begins."""
POINTS = b'{"schema": "collsim.sweep_point/1"'
"""How a file of JSON lines of a sweep begins."""
LOOKED_AT = 4096
MAX_FILE_BYTES = 2**28
MOST_EXPLAINED = 3
"""Runs of one document that are explained, each at its largest size (chosen)."""


Check = Callable[[Mapping[str, Any], str], None]
"""What refuses a document, which it gets with the name of its file."""


def gather(files: Iterable[str | Path], check: Check, *, explain: bool = True, what_ifs: bool = True) -> Contents:
    """Read files of results and of logs, and explain the runs among them.

    Parameters
    ----------
    files : iterable of str or Path
        JSON that a command wrote, and measured logs, in any order; ``-`` is stdin.
    check : callable
        Raises `SpecError` if a document is not as its schema says.
    explain : bool
        Whether to simulate what explains the largest size of each run.
    what_ifs : bool
        Whether an explanation says what would help.

    Raises
    ------
    InputError
        Every file that is neither; there is none.
    """
    faults, documents, measured = Faults(), [], []
    for file in map(str, files):
        found = faults.attempt(_read, file, check)
        if isinstance(found, Document):
            documents.append(found)
        elif found is not None:
            measured += found
    if not documents and not measured and not faults:
        faults.append(Fault("there is nothing to report", "files", "name JSON files of collsim run, or logs"))
    asked = {document.name: faults.attempt(_runs, document) or [] for document in documents if explain}
    faults.raise_any()
    told: list[tuple[str, Explanation]] = []
    notes: list[str] = []
    for name, runs in asked.items():
        for run in runs[:MOST_EXPLAINED]:
            try:
                told.append((name, explained(run, what_ifs=what_ifs)))
            except CollsimError as error:
                notes.append(f"{name}: {run['op']} is not explained: {error.faults[0].what}")
    return Contents(tuple(documents), tuple(measured), tuple(told), tuple(notes))


def _read(file: str, check: Check) -> Document | list[Measured]:
    """Return a document, or the tests of a log; a pipe can be read only once."""
    content, name = _content(file), name_of_input(file)
    document = _document(content, name)
    if document is None:
        return _measured(name, content)
    schema = document.get("schema")
    if schema not in READABLE:
        raise SpecError(Fault(f'a report does not show "{schema}"', name, HINT))
    if missing := [key for key in _needed(str(schema)) if not document.get(key)]:
        raise SpecError(Fault(f"{schema} without {', '.join(missing)}", name, "write it again with this version"))
    check(document, name)
    return Document(name, document)


def _content(file: str) -> bytes:
    """Return what is in a file, or comes from stdin."""
    if not file:
        raise SpecError(Fault("the name of a file is empty", "FILE", HINT))
    try:
        content = read_input_or_stdin(file, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", file, beside(file) + HINT)) from None
    if len(content) > MAX_FILE_BYTES:
        raise SpecError(Fault(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB", file, HINT))
    if not content.strip():
        raise SpecError(Fault("the file is empty", file, HINT))
    return content


def _needed(schema: str) -> tuple[str, ...]:
    """Return the keys without which a document shows nothing."""
    return {
        "collsim.result/1": ("config", "topology", "results"), "collsim.compare/1": ("systems", "rows"),
        "collsim.validate/1": ("topology", "rows"), "collsim.moe/1": ("topology", "results"),
        "collsim.diagnose/1": ("topology", "logs"), "collsim.explain/1": ("config", "row"),
        "collsim.sweep_result/1": ("points",), "collsim.tune/1": ("sizes",), "collsim.serving_result/1": ("jobs",),
        "collsim.moe_compare/1": ("systems", "rows"), "collsim.compare_workload/1": ("systems",),
    }.get(schema, ())  # fmt: skip


def _document(content: bytes, file: str) -> dict[str, Any] | None:
    """Return the JSON document of a command; None for anything else, such as the JSON report of nccl-tests.

    Raises
    ------
    SpecError
        It is a document of a command, but broken.
    """
    if not content.removeprefix(BOM_UTF8).lstrip().startswith(b"{"):
        return None
    if content.startswith(POINTS):
        return _points(content, file)
    ours = OURS.search(content[:LOOKED_AT].removeprefix(BOM_UTF8)) is not None
    try:
        found = json.loads(content.decode("utf-8-sig"), parse_constant=_no_figure)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        place, what = (f"{file}:{line}", getattr(error, "msg", "")) if line else (file, str(error))
        if ours:
            raise SpecError(
                Fault(f"not JSON: {what}", place, "the file may be cut: copy it again as a whole")
            ) from None
        return None
    return found if ours or str(found.get("schema", "")).startswith("collsim.") else None


def _points(content: bytes, file: str) -> dict[str, Any]:
    """Return the points of a sweep, a line each, as one document; of a point with two lines the later counts."""
    points: dict[str, Any] = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):  # a kill tears the last
        try:
            point = json.loads(line, parse_constant=_no_figure)
            points[str(point["key"])] = point
        except (ValueError, KeyError, TypeError, RecursionError):
            hint = "copy it again as a whole, or leave the line out"
            raise SpecError(Fault("no point of a sweep", f"{file}:{number}", hint)) from None
    return {"schema": "collsim.sweep_result/1", "objectives": [], "front": [], "points": list(points.values())}


def _no_figure(text: str) -> None:
    raise ValueError(f"{text} is no figure")


def _measured(file: str, content: bytes) -> list[Measured]:
    """Return the tests of a log whose operation and ranks are known, out of place."""
    log = read_log(file, content)
    found = []
    for test in log.tests:
        if test.op is None or test.ranks is None:
            continue
        factor = operation(test.op).busbw_factor(test.ranks)
        points = tuple(
            (row.size_bytes, row.size_bytes * factor / row.time_s) for row in test.rows if row.time_s and row.size_bytes
        )
        if points:
            found.append(Measured(Path(file).name, test.op, test.ranks, points))
    if not found:
        raise SpecError(Fault("no row whose operation and ranks are known", file, "see collsim validate"))
    return found


def _runs(document: Document) -> list[dict[str, Any]]:
    """Return the arguments of the runs of a document that can be explained, each at its largest size.

    Raises
    ------
    SpecError
        The document is not as its schema says.
    """
    try:
        return _found_runs(document)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"not as {document.schema} says: {type(error).__name__} {error}"
        raise SpecError(Fault(what, document.name, "write it again with this version")) from None


def _found_runs(document: Document) -> list[dict[str, Any]]:
    content = document.content
    if document.schema in ("collsim.result/1", "collsim.explain/1"):
        rows = content.get("results") or [content["row"]]
        return [asked_of(content["config"], rows, op) for op in dict.fromkeys(row["op"] for row in rows)]
    if document.schema == "collsim.compare/1":
        found = []
        for place, system in enumerate(content["systems"]):
            runs = [row["runs"][place] for row in content["rows"] if row["runs"][place]]
            found += [asked_of(system["configs"][0], runs, runs[0]["op"])] if runs and system["configs"] else []
        return found
    return []


def asked_of(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], op: str) -> dict[str, Any]:
    """Return the arguments of `collsim.simulate` for the largest size of an operation, of the most ranks.

    *config* is that of a document, *rows* are its rows.
    """
    own = [row for row in rows if row["op"] == op]
    row = max(own, key=lambda each: (each["ranks"] * each["groups"], each["requested_bytes"], -each["time_s"]))
    renamed = {"chunk_bytes": "chunk", "matrix_bytes": "matrix"}
    left_out = ("op", "size", "algo", "rank_lists")
    asked = {renamed.get(key, key): value for key, value in config.items() if key not in left_out}
    lists = config.get("rank_lists")
    gpus = max(lists, key=len) if lists else None
    if not asked.get("matrix") or op != "all_to_all_v":
        asked["size"] = row["requested_bytes"]
        asked["matrix"] = None
    name = row.get("asked") or row["algo"]
    asked |= {"topo": config["topo"], "op": op, "algo": row["algo"] if name == "all" else name, "rank_list": gpus}
    if name == "all":
        asked["proto"] = row["proto"]
    return {key: value for key, value in asked.items() if value is not None}
