"""Models with experts: which tokens go where, as which bytes, and how long dispatch and combine take.

Data flows one way: models, gating, expert_placement -> counts -> flows -> timing -> simulate -> result; compare asks
the same of several systems, and comparison is what that says.
"""

from collsim.moe.compare import compare_moe
from collsim.moe.comparison import MoeComparison
from collsim.moe.kernel_costs import kernel_names
from collsim.moe.models import Model, load_model, model_names
from collsim.moe.result import MoeResult, MoeRow
from collsim.moe.simulate import simulate_moe

__all__ = [
    "Model",
    "MoeComparison",
    "MoeResult",
    "MoeRow",
    "compare_moe",
    "kernel_names",
    "load_model",
    "model_names",
    "simulate_moe",
]
