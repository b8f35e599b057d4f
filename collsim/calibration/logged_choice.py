"""The library's own choice, as its log prints it, beside that of the model.

This module imports only the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from collsim.calibration.verdicts import JudgedCase
from collsim.core.units import format_size

__all__ = ["choice_notes"]

FAMILIES = {
    "chain": "tree", "nvls_tree": "nvlstree", "sharp": "collnet", "collnetdirect": "collnet", "collnetchain": "collnet",
}  # fmt: skip
"""Names of one algorithm in the library's words: on one domain its tree is a chain."""


def choice_notes(rows: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield how the choices that a log prints compare with those of the prediction; rows are in order of size."""
    told = [row for row in rows if row.logged and row.logged.algo]
    if not told:
        return
    alike = sum(_alike(row) for row in told)
    yield f"the log prints what the library ran: predicted alike in {alike} of {len(told)} rows"
    for (logged, ran), group in groupby((row for row in told if not _alike(row)), key=_both):
        found = list(group)
        first, last = (format_size(row.case.size_bytes) for row in (found[0], found[-1]))
        yield f"{'at ' + first if first == last else f'from {first} to {last}'} it ran {logged}, predicted is {ran}"


def _alike(row: JudgedCase) -> bool:
    """Return True if algorithm and protocol are those of the log; channels are left to the reader."""
    assert row.logged is not None
    logged, ran = row.logged, FAMILIES.get(row.algo, row.algo)
    return _family(logged.algo or "") == ran and (logged.proto is None or logged.proto == row.proto)


def _family(algo: str) -> str:
    bare = algo.replace("_", "")
    return FAMILIES.get(bare, bare)


def _both(row: JudgedCase) -> tuple[str, str]:
    assert row.logged is not None
    logged = row.logged
    return _text(logged.algo, logged.proto, logged.channels), _text(row.algo, row.proto, row.channels)


def _text(algo: str | None, proto: str | None, channels: int | None) -> str:
    return f"{algo}{f'/{proto}' if proto else ''}{f' on {channels} channels' if channels else ''}"
