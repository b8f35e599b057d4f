"""What-ifs: what is to be different from a trace or a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypedDict, Unpack

from collsim.core.errors import Fault, Faults, InputError
from collsim.core.operations import MOST_RANKS

__all__ = ["Changes", "WhatIf", "across", "asked_for", "gpus_of"]

OPTIONS = ("fail", "degrade", "overrides", "profile", "library")
"""Changes that `collsim.simulate` takes as they are."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is to be different from the trace.

    Attributes
    ----------
    topo : str, optional
        Another system.
    ranks, nodes : int, optional
        How many ranks groups of all ranks are to have; of how many nodes.
    environment : mapping
        Variables of the library.
    compute_scale : float
        How many times longer all other kernels take.
    options : mapping
        Further arguments of `collsim.simulation.simulate.simulate`: ``fail``, ``degrade``, ``overrides``, ``profile``,
        ``library``.
    """

    topo: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    compute_scale: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moves_collectives(self) -> bool:
        """True if it changes what collectives take."""
        told = any(value for value in self.options.values())
        return bool(self.topo or self.ranks or self.nodes or self.environment or told)


class Changes(TypedDict, total=False):
    """What is to be different, each under the name of its flag."""

    topo: str | None
    ranks: int | None
    nodes: int | None
    environment: Mapping[str, str]
    compute_scale: float
    fail: str | Sequence[str] | None
    degrade: Mapping[str, str | float] | None
    overrides: Mapping[str, str] | None
    profile: str | None
    library: str | None


def asked_for(what_if: WhatIf | None, **changes: Unpack[Changes]) -> WhatIf:
    """Return a what-if, or the one that *changes* say.

    Raises
    ------
    InputError
        Both are given, or numbers are none.
    """
    if what_if is not None:
        if changes:
            hint = "make it part of the what-if, or leave the what-if out"
            raise InputError(*(Fault("given beside a what-if", name, hint) for name in changes))
        return _told_once(what_if)
    options = {name: value for name, value in changes.items() if name in OPTIONS}
    own: Any = {name: value for name, value in changes.items() if name not in OPTIONS}
    faults = Faults()
    for name in ("ranks", "nodes"):
        count = own.get(name)
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            faults.append(Fault(f"{count!r} {name}", name, "give a whole number, 1 or more"))
        elif count is not None and count > MOST_RANKS:
            faults.append(Fault(f"{count} {name} are more than {MOST_RANKS:,}", name, "give fewer"))
    scale = own.get("compute_scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not (isfinite(scale) and scale > 0):
        faults.append(Fault(f"{scale!r} times as long", "compute_scale", "give a positive number"))
    faults.raise_any()
    return _told_once(WhatIf(**own, options=options))


def _told_once(what_if: WhatIf) -> WhatIf:
    """Return a what-if whose number of nodes is not another among its changes of figures."""
    from collsim.topology.files.overrides import settled

    faults = Faults()
    if what_if.nodes and (overrides := what_if.options.get("overrides")):
        settled(overrides, {"nodes": what_if.nodes}, faults)
    faults.raise_any()
    return what_if


def gpus_of(topology: str, options: Mapping[str, Any] | None = None) -> int:
    """Return the GPUs of a node, as *options* have it; of a cluster, those of each of its nodes.

    >>> gpus_of("hgx_h100"), gpus_of("h100_rail"), gpus_of("hgx_h100", {"overrides": {"gpu.count": "4"}})
    (8, 8, 4)
    """
    from collsim.topology import load_topology

    if per_node := (options or {}).get("gpus_per_node"):
        return int(per_node)
    found = load_topology(topology, overrides=(options or {}).get("overrides"))
    return int(found.cluster.spec.gpus_per_node if found.cluster else found.n_gpus)


def across(topology: str, ranks: int, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments that make a cluster of as many nodes as so many ranks need; none if one is enough."""
    from collsim.topology import load_topology

    overrides = dict((options or {}).get("overrides") or {})
    per_node = gpus_of(topology, options)
    known = load_topology(topology, overrides=overrides).n_gpus
    if ranks <= (min(known, per_node) if "gpus_per_node" in (options or {}) else known):
        return {}
    return {"overrides": {**overrides, "scale_out.nodes": str(-(-ranks // per_node))}}
