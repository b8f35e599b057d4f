"""Models with experts: which tokens go where, as which bytes, and how long dispatch and combine take.

Data flows one way: models, routing, placement -> counts -> flows -> timing -> simulation -> result; comparing asks the
same of several systems, and contrast is what that says.
"""

from collsim.moe.comparing import compare_moe
from collsim.moe.contrast import MoeComparison
from collsim.moe.kernels import kernel_names
from collsim.moe.models import Model, load_model, model_names
from collsim.moe.result import MoeResult, MoeRow
from collsim.moe.simulation import simulate_moe

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
