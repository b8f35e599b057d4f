"""Cells of named columns that say what a row measured: operation, ranks, nodes, type, reduction, root.

An empty cell says nothing, so that the row takes over what is known; one that holds something unreadable would make
it the row of another call, so that the row is dropped. This module imports only `log_rows`, `log_facts`, `operations`
and `errors`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from collsim.calibration.logs.facts import op_in_words, op_name, op_of_program
from collsim.calibration.logs.printed_rows import MISSING, REDUCTIONS, dtype_name, number
from collsim.core.errors import nearest
from collsim.core.operations import ALIASES, DTYPE_ALIASES, DTYPES, OPERATIONS

__all__ = ["cell_fault", "op_of_record", "whole_number"]

MOST_RANKS = 10**7
"""Far more than any cluster has: a larger number is damage."""
SHOWN = 20
_SMALL_FLOAT = re.compile(r"f(?:p|loat)?[468]_?e\dm\d\w*", re.IGNORECASE)
"""Names of small floats, known or not yet: they change nothing but rounding."""


def op_of_record(record: Mapping[Any, Any]) -> str | None:
    """Return the operation that a record names, in its column of operations or in one of names.

    >>> op_of_record({"op": "ncclAllReduce"}), op_of_record({"label": "all_gather_perf"}), op_of_record({"op": "sum"})
    ('all_reduce', 'all_gather', None)
    """
    return _op(_cell(record, "op")) or op_in_words(_cell(record, "op")) or _op(_cell(record, "label"))


def _op(text: str) -> str | None:
    bare = text.lower().removeprefix("nccl").removeprefix("rccl")
    return op_name(bare) or ALIASES.get(bare) or op_of_program(text)


def whole_number(record: Mapping[Any, Any], role: str) -> int | None:
    """Return a number of ranks or nodes, or None."""
    found = number(_cell(record, role))
    return int(found[0]) if found and 1 <= found[0] < MOST_RANKS and found[0] == int(found[0]) else None


def cell_fault(record: Mapping[Any, Any], given: Collection[str], names_ops: bool) -> str | None:
    """Return the first unreadable cell of a record: its value and what it may have meant; None if all can be read.

    *given* are the columns that an override replaces; *names_ops* says whether the column of names names operations.
    """
    faults = (
        None if "op" in given else _op_fault(record, names_ops),
        *(None if role in given else _number_fault(record, role) for role in ("ranks", "nodes")),
        None if "dtype" in given else _dtype_fault(_cell(record, "dtype")),
        None if "redop" in given else _redop_fault(_cell(record, "redop")),
        _root_fault(_cell(record, "root")),
    )
    return next((fault for fault in faults if fault), None)


def _cell(record: Mapping[Any, Any], role: str) -> str:
    """Return the text of a cell; empty if it says nothing."""
    text = str(record.get(role, "")).strip()
    return "" if text.lower() in MISSING else text


def _op_fault(record: Mapping[Any, Any], names_ops: bool) -> str | None:
    text = _cell(record, "op")
    if text.lower() in REDUCTIONS:
        text = ""
    text = text or (_cell(record, "label") if names_ops else "")
    return _unknown("operation", text, list(OPERATIONS)) if text and not op_of_record(record) else None


def _number_fault(record: Mapping[Any, Any], role: str) -> str | None:
    text = _cell(record, role)
    if not text or whole_number(record, role):
        return None
    return f'{role} "{text[:SHOWN]}" is not a whole number above 0'


def _dtype_fault(text: str) -> str | None:
    if not text or dtype_name(text) or _SMALL_FLOAT.fullmatch(text):
        return None
    return _unknown("data type", text, [*DTYPES, *DTYPE_ALIASES])


def _redop_fault(text: str) -> str | None:
    known = text.lower().removeprefix("nccl") in REDUCTIONS
    return None if not text or known else _unknown("reduction", text, sorted(REDUCTIONS - {"none"}))


def _root_fault(text: str) -> str | None:
    found = number(text)
    if not text or (found and -1 <= found[0] < MOST_RANKS and found[0] == int(found[0])):
        return None
    return f'root "{text[:SHOWN]}" is not the number of a rank'


def _unknown(kind: str, text: str, known: list[str]) -> str:
    near = nearest(text, known)
    return f'unknown {kind} "{text[:SHOWN]}"' + (f'; did you mean "{near}"?' if near else "")
