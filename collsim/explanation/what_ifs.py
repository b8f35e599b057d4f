"""What-ifs: every change simulated, and ranked by what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collsim.core.errors import CollsimError
from collsim.explanation.bench import Bench
from collsim.explanation.changes import Change, changed_arguments
from collsim.explanation.findings import WhatIf
from collsim.simulation.request.prepare import prepare
from collsim.simulation.result import Result
from collsim.simulation.simulate import predict

__all__ = ["changed", "what_ifs_of"]

IDLE = " changes nothing"
"""What warnings of settings that are not needed have in common: no doubt about the time."""


def changed(asked: Mapping[str, Any], change: Change) -> Result:
    """Return the result of a run with a change; raises as `collsim.simulate` does."""
    return predict(*prepare(**changed_arguments(asked, change)), as_if=change.constants)


def what_ifs_of(
    bench: Bench, asked: Mapping[str, Any], changes: Sequence[Change]
) -> tuple[tuple[WhatIf, ...], dict[tuple[str, str], float]]:
    """Return what every change gains, the most first, and the simulated seconds of the library's contenders."""
    found: list[WhatIf] = []
    contenders: dict[tuple[str, str], float] = {}
    known = bench.result.warnings
    for change in changes:
        try:
            result = changed(asked, change)
        except CollsimError as error:
            found.append(WhatIf(change.title, change.flags, None, 0.0, refused=error.faults[0].what))
            continue
        row = result.rows[0]
        doubts = tuple(text for text in result.warnings if text not in known and IDLE not in text)
        gain_s = bench.row.time_s - row.time_s
        found.append(WhatIf(change.title, change.flags, row.time_s, gain_s, row.label, doubts, channels=row.channels))
        if change.contender:
            contenders[change.contender] = row.time_s
    return tuple(sorted(found, key=lambda each: (each.time_s is None, -each.gain_s))), contenders
