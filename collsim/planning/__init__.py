"""Planning: clusters compared by whole workloads, tuning files for libraries, and tables for serving planners."""

from collsim.planning.workload_comparison import WorkloadComparison
from collsim.planning.workloads import compare_workloads

__all__ = ["WorkloadComparison", "compare_workloads"]
