"""Diagnosis: from measured logs to the probable cause, by simulating every cause and comparing whole curves.

Data flows one way: causes -> curves -> fit -> subjects -> ranking -> judgement; findings are what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collsim.core.lazy_names import names_from

if TYPE_CHECKING:
    from collsim.diagnosis.findings import Diagnosis
    from collsim.diagnosis.judgement import diagnose

__all__ = ["Diagnosis", "diagnose"]

HOME = {"Diagnosis": "findings", "diagnose": "judgement"}

__getattr__ = names_from(__name__, HOME)
