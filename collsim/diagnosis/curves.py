"""Curves of causes: the question of a log asked again, on the machine as a cause would have it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.calibration.cases import MeasuredCase
from collsim.calibration.log_placement import nodes_of, predicted
from collsim.core.errors import CollsimError
from collsim.diagnosis.causes import Change
from collsim.library import Profile
from collsim.simulation.request.prepare import Machine, listed
from collsim.topology import Topology

__all__ = ["Bench", "settings_asked"]

Float = NDArray[np.float64]

MOST_SIZES, OF_MANY_RANKS = 7, 5
"""Sizes that are simulated for a cause, and of logs of more than `MANY_RANKS` (chosen); between them the ratio to the
healthy time is interpolated."""
MANY_RANKS = 32


@dataclass(slots=True)
class Bench:
    """The machine of a log, and those that causes would make of it.

    Attributes
    ----------
    topo : str, Path or Topology
        As the caller named it; figures of one that is no name or file cannot be changed.
    machine : Machine
        Changes that the caller made already.
    topology, constants : Topology, Profile
    """

    topo: Any
    machine: Machine
    topology: Topology
    constants: Profile
    _machines: dict[str, Topology] = field(default_factory=dict)
    _known: dict[str, Float] = field(default_factory=dict)

    def ratios(self, case: MeasuredCase, sizes: Sequence[int], healthy_s: Mapping[int, float], change: Change) -> Float:
        """Return float64[n]: times of a change over healthy ones at *sizes*; ones if the change has no answer.

        Parameters
        ----------
        case : MeasuredCase
            Of any size.
        sizes : sequence of int
            Ascending.
        healthy_s : mapping
            Predicted seconds by size.
        """
        key = repr((case, tuple(sizes), replace(change, label="")))
        if key not in self._known:
            self._known[key] = self._simulated(case, sizes, healthy_s, change)
        return self._known[key]

    def _simulated(
        self, case: MeasuredCase, sizes: Sequence[int], healthy_s: Mapping[int, float], change: Change
    ) -> Float:
        chosen = spread(sizes, OF_MANY_RANKS if case.all_ranks > MANY_RANKS else MOST_SIZES)
        if change == Change(change.label, launch=change.launch) and self._case(case, change) == case:
            return np.ones(len(sizes))  # the log is of such launches
        try:
            asked = self._case(case, change), chosen, self._topology(change), self.constants
            result = predicted(*asked, one_of_many=True, node_order=change.node_order)
        except CollsimError:
            return np.ones(len(sizes))
        found = {row.requested_bytes: row.time_s for row in result.rows}
        known = [size for size in chosen if size in found]
        if not known:
            return np.ones(len(sizes))
        logs = [math.log(found[size] / healthy_s[size]) for size in known]
        return np.asarray(np.exp(np.interp(np.log2(sizes), np.log2(known), logs)))

    def _case(self, case: MeasuredCase, change: Change) -> MeasuredCase:
        """Return the case with the change's variables and threads."""
        variables = {**dict(case.environment), **change.environment}
        each = case.ranks // nodes_of(case, self.topology) if change.gpus_per_thread else case.gpus_per_thread
        changed = replace(case, environment=tuple(sorted(variables.items())), gpus_per_thread=each)
        return replace(changed, launch=change.launch, registered=0) if change.launch else changed

    def _topology(self, change: Change) -> Topology:
        """Return the machine with the change's figures and failures."""
        if not (change.overrides or change.fail or change.degrade):
            return self.topology
        key = json.dumps([dict(change.overrides), change.fail, change.degrade])
        if key not in self._machines:
            self._machines[key] = self._changed(change)
        return self._machines[key]

    def _changed(self, change: Change) -> Topology:
        fail = [*listed(self.machine.fail or ()), *change.fail]
        degrade = [*_shares(self.machine.degrade), *change.degrade]
        if not change.overrides:
            return Machine(None, fail, degrade).of(self.topology)
        given = [f"{path}={value}" for path, value in settings_asked(self.topology).items()]
        changed = [f"{path}={value}" for path, value in change.overrides.items()]
        kept = [word for word in given if word.partition("=")[0] not in change.overrides]
        named = self.topo if isinstance(self.topo, str | Path) else self.topology
        return Machine([*kept, *changed], fail, degrade).of(named)


def settings_asked(topology: Topology) -> Mapping[str, str]:
    """Return the figures that were asked of a topology."""
    whole = topology if topology.damage is None else topology.damage.healthy
    return whole.settings


def _shares(value: Any) -> list[str]:
    return [f"{name}={share}" for name, share in value.items()] if isinstance(value, Mapping) else listed(value or ())


def spread(sizes: Sequence[int], most: int = MOST_SIZES) -> list[int]:
    """Return at most *most* of some ascending sizes, first and last among them, evenly spread.

    >>> spread([1, 2, 4, 8, 16], 3)
    [1, 4, 16]
    """
    if len(sizes) <= most:
        return list(sizes)
    return [sizes[int(place)] for place in np.unique(np.linspace(0, len(sizes) - 1, most).round()).astype(int)]
