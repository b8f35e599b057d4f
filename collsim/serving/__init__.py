"""Serving: models with experts under requests as they come, step by step, on one fabric, with failures in time.

Data flows one way: spec -> decode, fabric_sharing -> cluster -> simulate -> result. SimPy drives what is dynamic
(arrivals, batches, failures); what a step takes between two events is simulated as a whole by `collsim.timeline`.
"""

from collsim.serving.result import JobResult, ServingResult
from collsim.serving.simulate import simulate_serving

__all__ = ["JobResult", "ServingResult", "simulate_serving"]
