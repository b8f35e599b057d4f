"""Planning: clusters compared by whole workloads, tuning files for libraries, and tables for serving planners."""

from collsim.planning.tables import PlannerTable, planner_table
from collsim.planning.tuner import tune
from collsim.planning.tuning import Tuning
from collsim.planning.workload_comparison import WorkloadComparison
from collsim.planning.workloads import compare_workloads

__all__ = ["PlannerTable", "Tuning", "WorkloadComparison", "compare_workloads", "planner_table", "tune"]
