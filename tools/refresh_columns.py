"""Write the tables of docs/output.md that say what columns and fields mean, from the columns and fields themselves.

    python tools/refresh_columns.py

A test compares the two. Neighbours with the same meaning share a line.
"""

from __future__ import annotations

import argparse
import pathlib
import re
from collections.abc import Iterable
from itertools import groupby

from collsim.report.sheet import escaped
from collsim.report.table import COLUMNS, LIMITS
from collsim.simulation.result import FIELDS

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "output.md"
UNITS = {"B": "bytes", "elem": "elements", "GB/s": "1e9 bytes/s", "x": ""}
"""Headings of columns in words."""
SUFFIXES = {"s": "s", "bytes": "bytes", "Bps": "bytes/s"}
"""The end of a key and the unit that it stands for."""
BLOCK = re.compile(r"(<!-- (columns of the table|fields of a row): [^>]*-->\n).*?(<!-- end -->)", re.DOTALL)


def table(first: str, lines: Iterable[tuple[str, str, str]]) -> str:
    """Markdown table of names, units and meanings."""
    text = f"| {first} | Unit | Meaning |\n| --- | --- | --- |\n"
    for meaning, alike in groupby(lines, key=lambda line: line[2]):
        names, units, _ = zip(*alike, strict=True)
        unit = f" {units[0]} " if units[0] else " "
        text += f"| {', '.join(f'`{name}`' for name in names)} |{unit}| {escaped(meaning)} |\n"
    return text


def refreshed(page: str) -> str:
    """The page with the lines of today's columns and fields."""
    columns = [
        (column.name, UNITS.get(column.unit.strip("()"), column.unit.strip("()")), column.meaning)
        for column in (*COLUMNS, *LIMITS)
    ]
    fields = [(entry.key, SUFFIXES.get(entry.key.rpartition("_")[2], ""), entry.meaning) for entry in FIELDS]
    tables = {"columns of the table": table("Column", columns), "fields of a row": table("Field of a row", fields)}
    return BLOCK.sub(lambda match: f"{match[1]}{tables[match[2]]}{match[3]}", page)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
