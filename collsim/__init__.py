"""collsim predicts how long collective communication takes on GPU clusters, and says why.

Six functions answer most questions; their arguments are called as the flags of the command line.

simulate(topo, op, size, ...)
    How long a collective takes, by size, and what limits it.
compare(topos, op, size, ...)
    The same on several systems, and how many times as fast as the first each one is.
simulate_moe(topo, model, ep=...)
    Dispatch and combine of a layer with experts.
simulate_timeline(file, topo=...)
    A whole step, from a profiler's trace or a workload, and what would change it.
validate(logs, topo)
    Rows of measured logs beside the model.
systems()
    The shipped systems, as records.

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
    from collsim.cli.report import write_report
    from collsim.cli.trace import write_trace
    from collsim.core.errors import CollsimError, InputError, ModelError
    from collsim.diagnosis import Diagnosis, diagnose
    from collsim.explanation import Explanation, explain
    from collsim.importing import ImportedTopology, import_schedule, import_topology
    from collsim.moe import MoeComparison, MoeResult, compare_moe, simulate_moe
    from collsim.planning import PlannerTable, Tuning, WorkloadComparison, compare_workloads, planner_table, tune
    from collsim.schedule import Schedule
    from collsim.serving import ServingResult, simulate_serving
    from collsim.simulation.compare import compare
    from collsim.simulation.comparison import Comparison
    from collsim.simulation.result import Result
    from collsim.simulation.simulate import simulate
    from collsim.sweeps import SweepResult, sweep
    from collsim.timeline import TimelineResult, WhatIf, simulate_timeline
    from collsim.topology import Topology, load_topology, systems

__all__ = [
    "CollsimError",
    "Comparison",
    "Diagnosis",
    "Explanation",
    "ImportedTopology",
    "InputError",
    "ModelError",
    "MoeComparison",
    "MoeResult",
    "PlannerTable",
    "Result",
    "Schedule",
    "ServingResult",
    "SweepResult",
    "TimelineResult",
    "Topology",
    "Tuning",
    "Validation",
    "WhatIf",
    "WorkloadComparison",
    "__version__",
    "calibrate",
    "compare",
    "compare_moe",
    "compare_workloads",
    "diagnose",
    "explain",
    "import_schedule",
    "import_topology",
    "load_topology",
    "planner_table",
    "simulate",
    "simulate_moe",
    "simulate_serving",
    "simulate_timeline",
    "sweep",
    "systems",
    "tune",
    "validate",
    "write_report",
    "write_trace",
]

HOME = {
    "CollsimError": "core.errors",
    "Comparison": "simulation.comparison",
    "Diagnosis": "diagnosis",
    "Explanation": "explanation",
    "ImportedTopology": "importing",
    "InputError": "core.errors",
    "ModelError": "core.errors",
    "MoeComparison": "moe",
    "MoeResult": "moe",
    "PlannerTable": "planning",
    "Result": "simulation.result",
    "Schedule": "schedule",
    "ServingResult": "serving",
    "SweepResult": "sweeps",
    "TimelineResult": "timeline",
    "Topology": "topology",
    "Tuning": "planning",
    "Validation": "calibration.verdicts",
    "WhatIf": "timeline",
    "WorkloadComparison": "planning",
    "load_topology": "topology",
    "planner_table": "planning",
    "simulate": "simulation.simulate",
    "simulate_moe": "moe",
    "simulate_serving": "serving",
    "simulate_timeline": "timeline",
    "sweep": "sweeps",
    "systems": "topology",
    "tune": "planning",
    "calibrate": "calibration.fit",
    "compare": "simulation.compare",
    "compare_moe": "moe",
    "compare_workloads": "planning",
    "diagnose": "diagnosis",
    "explain": "explanation",
    "import_schedule": "importing",
    "import_topology": "importing",
    "validate": "calibration.validate",
    "write_report": "cli.report",
    "write_trace": "cli.trace",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in HOME:
        raise AttributeError(f"module 'collsim' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"collsim.{HOME[name]}"), name)
    if callable(value) and not isinstance(value, type):
        from collsim.simulation.request.callers import called_from_python

        value = called_from_python(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
