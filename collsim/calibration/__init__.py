"""Measurements to model constants: the reader of benchmark logs."""

from __future__ import annotations

from collsim.calibration.logs.log_types import Dropped, Log, LogRow, LogRun, Table, Test
from collsim.calibration.logs.reading import read_log, read_tests

__all__ = ["Dropped", "Log", "LogRow", "LogRun", "Table", "Test", "read_log", "read_tests"]
