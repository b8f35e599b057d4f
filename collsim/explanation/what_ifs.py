"""What-ifs: every change simulated, and ranked by what it gains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
SAME_DELAY = "the delay by what has failed is taken to be as long as without the change"
MOST_DELAYS = 1
"""Of so many changes the delay by what has failed is simulated too: one or two seconds each (chosen)."""


def changed(asked: Mapping[str, Any], change: Change) -> Result:
    """Return the result of a run with a change; raises as `collsim.simulate` does."""
    prepared = prepare(**changed_arguments(asked, change))
    return predict(*prepared, as_if=change.constants, doubts=False, compares=False)


def what_ifs_of(
    bench: Bench, asked: Mapping[str, Any], changes: Sequence[Change], in_order: Bench | None = None
) -> tuple[tuple[WhatIf, ...], dict[tuple[str, str], float]]:
    """Return what every change gains, the most first, and the simulated seconds of the library's contenders.

    Where the time is that of the machine *in order* and a delay by what has failed, changes are simulated there and
    the delay is taken to stay; `MOST_DELAYS` of those that then gain most are simulated with theirs.
    """
    if in_order is None:
        found = [_gain(bench, asked, change) for change in changes]
    else:
        late_s = bench.row.time_s - in_order.row.time_s
        whole = {**asked, "fail": (), "degrade": ()}
        found = [_gain(bench, whole, change, late_s * (not _mends(change))) for change in changes]
        gains = [each.gain_s if each.time_s is not None and not _mends(change) else -math.inf
                 for each, change in zip(found, changes, strict=True)]  # fmt: skip
        for place in np.argsort(gains)[::-1][:MOST_DELAYS].tolist():
            if gains[place] > 0:
                found[place] = _gain(bench, asked, changes[place])
    contenders = {
        change.contender: each.time_s
        for each, change in zip(found, changes, strict=True)
        if change.contender and each.time_s is not None
    }
    return tuple(sorted(found, key=lambda each: (each.time_s is None, -each.gain_s))), contenders


def _mends(change: Change) -> bool:
    """Return True if nothing has failed after a change."""
    return not {"fail", "degrade"}.isdisjoint(change.arguments)


def _gain(bench: Bench, asked: Mapping[str, Any], change: Change, late_s: float = 0.0) -> WhatIf:
    """Return what a change gains if the call then ends *late_s* later than simulated."""
    try:
        result = changed(asked, change)
    except CollsimError as error:
        return WhatIf(change.title, change.flags, None, 0.0, refused=error.faults[0].what)
    row, known = result.rows[0], bench.result.warnings
    doubts = [text for text in result.warnings if text not in known and IDLE not in text] + [SAME_DELAY] * (late_s > 0)
    time_s = row.time_s + late_s
    gain_s = bench.row.time_s - time_s
    return WhatIf(change.title, change.flags, time_s, gain_s, row.label, tuple(doubts), channels=row.channels)
