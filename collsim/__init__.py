"""collsim predicts how long collective communication takes on GPU clusters, and says why.

Everything public is imported on first use, so that ``import collsim`` costs nothing.

Examples
--------
>>> import collsim
>>> result = collsim.simulate("mi300x_ubb8", "all_reduce", "1G", algo="all_pairs", profile="ideal")
>>> f"{result.busbw_Bps / 1e9:.0f} GB/s"
'448 GB/s'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from collsim._version import __version__

if TYPE_CHECKING:
    from collsim.calibration.fit import calibrate
    from collsim.calibration.validate import validate
    from collsim.calibration.verdicts import Validation
    from collsim.core.errors import CollsimError, InputError, ModelError
    from collsim.diagnosis import Diagnosis, diagnose
    from collsim.moe import MoeResult, simulate_moe
    from collsim.schedule import Schedule
    from collsim.serving import ServingResult, simulate_serving
    from collsim.simulation.compare import compare
    from collsim.simulation.comparison import Comparison
    from collsim.simulation.result import Result
    from collsim.simulation.simulate import simulate
    from collsim.timeline import TimelineResult, WhatIf, simulate_timeline
    from collsim.topology import Topology, load_topology

__all__ = [
    "CollsimError",
    "Comparison",
    "Diagnosis",
    "InputError",
    "ModelError",
    "MoeResult",
    "Result",
    "Schedule",
    "ServingResult",
    "TimelineResult",
    "Topology",
    "Validation",
    "WhatIf",
    "__version__",
    "calibrate",
    "compare",
    "diagnose",
    "load_topology",
    "simulate",
    "simulate_moe",
    "simulate_serving",
    "simulate_timeline",
    "validate",
]

HOME = {
    "CollsimError": "core.errors",
    "Comparison": "simulation.comparison",
    "Diagnosis": "diagnosis",
    "InputError": "core.errors",
    "ModelError": "core.errors",
    "MoeResult": "moe",
    "Result": "simulation.result",
    "Schedule": "schedule",
    "ServingResult": "serving",
    "TimelineResult": "timeline",
    "Topology": "topology",
    "Validation": "calibration.verdicts",
    "WhatIf": "timeline",
    "load_topology": "topology",
    "simulate": "simulation.simulate",
    "simulate_moe": "moe",
    "simulate_serving": "serving",
    "simulate_timeline": "timeline",
    "calibrate": "calibration.fit",
    "compare": "simulation.compare",
    "diagnose": "diagnosis",
    "validate": "calibration.validate",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in HOME:
        raise AttributeError(f"module 'collsim' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"collsim.{HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
