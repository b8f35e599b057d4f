"""Results as text: one function per format, one table of formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from collsim.core.atomic_files import check_writable, write_text
from collsim.core.errors import UnknownNameError, chosen
from collsim.report.data import as_csv, as_json, as_jsonl
from collsim.report.json_schemas import schema
from collsim.report.nccl import as_nccl
from collsim.report.sheet import WHOLE, Screen
from collsim.report.table import as_markdown, as_table
from collsim.simulation.result import Result

if TYPE_CHECKING:
    from collsim.calibration.verdicts import Validation
    from collsim.diagnosis.findings import Diagnosis
    from collsim.simulation.comparison import Comparison

__all__ = [
    "COMPARISON_FORMATS",
    "DIAGNOSIS_FORMATS",
    "FORMATS",
    "SUFFIXES",
    "VALIDATION_FORMATS",
    "WHOLE",
    "Screen",
    "check_writable",
    "render",
    "render_comparison",
    "render_diagnosis",
    "render_validation",
    "schema",
    "write_text",
]

FORMATS: dict[str, Callable[[Result], str]] = {
    "table": as_table,
    "nccl": as_nccl,
    "csv": as_csv,
    "json": as_json,
    "jsonl": as_jsonl,
    "md": as_markdown,
}

SUFFIXES = {
    ".txt": "table", ".log": "nccl", ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".md": "md", ".svg": "svg",
}  # fmt: skip
"""The format that a file name asks for."""


VALIDATION_FORMATS = ("table", "csv", "json")
"""The formats of a comparison with logs."""
DIAGNOSIS_FORMATS = ("table", "json", "svg")
"""The formats of a diagnosis of logs."""
COMPARISON_FORMATS = ("table", "csv", "json", "md")
"""The formats of a comparison of systems."""


def render(result: Result, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *result* in one of `FORMATS`, ending in a newline; a table as a *screen* has room for it.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    if form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS, "--format")
    return as_table(result, screen) if form == "table" else FORMATS[form](result)


def render_validation(validation: Validation, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *validation* in one of `VALIDATION_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    from collsim.report.validation import validation_csv, validation_json, validation_table

    forms = dict(zip(VALIDATION_FORMATS, (validation_table, validation_csv, validation_json), strict=True))
    writer = chosen("format", form, forms, "--format")
    return validation_table(validation, screen) if form == "table" else writer(validation)


def render_diagnosis(diagnosis: Diagnosis, form: str = "table") -> str:
    """Return *diagnosis* in one of `DIAGNOSIS_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    from collsim.report.diagnosis import diagnosis_json, diagnosis_text
    from collsim.report.svg.diagnosis_chart import diagnosis_chart

    forms = dict(zip(DIAGNOSIS_FORMATS, (diagnosis_text, diagnosis_json, diagnosis_chart), strict=True))
    return chosen("format", form, forms, "--format")(diagnosis)


def render_comparison(comparison: Comparison, form: str = "table", screen: Screen = WHOLE) -> str:
    """Return *comparison* in one of `COMPARISON_FORMATS`, ending in a newline.

    Raises
    ------
    UnknownNameError
        No such format.
    """
    from collsim.report import comparison as sheets

    writers = (sheets.comparison_table, sheets.comparison_csv, sheets.comparison_json, sheets.comparison_markdown)
    forms = dict(zip(COMPARISON_FORMATS, writers, strict=True))
    writer = chosen("format", form, forms, "--format")
    return sheets.comparison_table(comparison, screen) if form == "table" else writer(comparison)
