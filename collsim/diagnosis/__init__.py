"""Diagnosis: from measured logs to the probable cause, by simulating every cause and comparing whole curves."""

from __future__ import annotations

from collsim.diagnosis.diagnose import diagnose
from collsim.diagnosis.findings import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
