"""GPU names of logs and of topologies: are they the same machine?

This module imports only `topology`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from collsim.topology import Topology

__all__ = ["model_numbers", "other_gpus"]

_NUMBER = re.compile(r"\b((?:GH|GB|[AHBVPKMTL])\d{1,4}|MI\d{2,3}A?)[A-Z]{0,2}\b")
"""Data centre GPUs of both vendors, as drivers and datasheets write them; no memory or socket is written so."""


def model_numbers(name: str) -> set[str]:
    """Return the model numbers in the name of a GPU; none if it is a name that says nothing.

    Letters behind a number are left out, because one name stands for several ("MI250X/MI250") and virtual GPUs have
    some of their own; but not the A of MI300A, whose GPU is wired otherwise.

    >>> model_numbers("NVIDIA H100 80GB HBM3"), model_numbers("H100 SXM5"), model_numbers("AMD Instinct MI300X VF")
    ({'H100'}, {'H100'}, {'MI300'})
    >>> model_numbers("NVIDIA Graphics Device"), model_numbers("AMD Radeon Graphics")
    (set(), set())
    """
    return set(_NUMBER.findall(name.upper()))


def other_gpus(names: Iterable[str], topology: Topology) -> str | None:
    """Return a sentence on GPUs of a log that are not those of *topology*; None if there are none, or nobody knows."""
    model = topology.labels.get("gpu.model", "")
    known = model_numbers(model)
    others = [name for name in names if known and model_numbers(name) and not model_numbers(name) & known]
    return f"the log names {', '.join(others)}, {topology.name} has {model}" if others else None
