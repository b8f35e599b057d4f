"""Robust least squares with prior knowledge: the best parameters, how sure they are, and errors of what is left out.

Residuals are logarithms of predicted over measured time, so that all sizes count alike; a soft loss keeps disturbed
rows from bending the fit. Every parameter starts from a relative's value with a stated spread, which takes the place of
data where there are none: a parameter whose spread the data do not shrink was not identified.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.calibration.observations import Observation
from collsim.calibration.parameters import Parameter, costs_of
from collsim.core.progress import steps
from collsim.library import Profile
from collsim.simulation.timing import FLOOR_SHARPNESS, WAIT_SHARPNESS, call_time_s

__all__ = ["Estimate", "estimate"]

Floats = NDArray[np.float64]

NOISE = 0.05
"""Residuals beyond about this much count less and less; near what runs of one machine differ by at 64 KiB to 1 MiB."""
STEP = 1e-4
"""Change of a logarithm by which derivatives are taken."""
GROUPED = ("messages", "fan")
"""Kernels whose base is not simply added: ranks that wait for each other pay it in turn."""
MOST_ITERATIONS = 100
"""More than any fit of the shipped profiles takes (27): a search that is cut short ends at some point of its way, which
moves with every change of the model."""
FARTHEST = 4
"""Standard deviations from its start within which a parameter is looked for."""
NORMAL_90 = 1.645
"""A normal variable lies within this many standard deviations with 90 % probability."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Estimate of the parameters by a fit.

    Attributes
    ----------
    parameters : sequence of Parameter
    logs : float64[p]
        Logarithms of the best values.
    deviation : float64[p]
        Standard deviation of each, from the curvature of the loss and from leaving out groups in turn, the larger.
    predicted_s : float64[n]
    left_out_s : float64[n]
        Predicted from all groups but that of the row; NaN where there is but one group.
    """

    parameters: Sequence[Parameter]
    logs: Floats
    deviation: Floats
    predicted_s: Floats
    left_out_s: Floats

    def interval(self, place: int) -> tuple[float, float, float]:
        """Return value and the ends of the 90 % interval of a parameter, in SI; the high end is at most *most*."""
        half = NORMAL_90 * self.deviation[place]
        low, value, high = np.exp(self.logs[place] + np.array([-half, 0.0, half])).tolist()
        return value, low, max(value, min(high, self.parameters[place].most))

    def identified(self, place: int) -> bool:
        """Return True if the data say more of a parameter than was known before."""
        parameter = self.parameters[place]
        return parameter.told or bool(self.deviation[place] < parameter.spread / 2)


class _Model:
    """Times of observations and their derivatives by the logarithms of the parameters."""

    def __init__(self, observations: Sequence[Observation], profile: Profile, parameters: Sequence[Parameter]) -> None:
        self.observations, self.profile, self.parameters = observations, profile, parameters
        self.own = [[k for k, p in enumerate(parameters) if p.is_of(entry)] for entry in observations]
        self.floor = next((k for k, p in enumerate(parameters) if p.key == "floor_s"), None)
        self.waits_s = np.array([entry.wait_s(profile) for entry in observations])
        self.log_measured = np.log([entry.time_s for entry in observations])
        self.last: tuple[bytes, Floats] = (b"", np.zeros(0))

    def all_device_s(self, logs: Floats) -> Floats:
        """Return float64[n]: times on the device of all observations; those of the last call are remembered."""
        if self.last[0] != logs.tobytes():
            self.last = logs.tobytes(), self.device_s(logs, range(len(self.observations)))
        return self.last[1]

    def device_s(self, logs: Floats, rows: Sequence[int]) -> Floats:
        """Return float64[rows]: times on the device."""
        costs, _ = costs_of(self.profile, self.parameters, logs)
        kernels = [(self.observations[i].family, self.observations[i].proto) for i in rows]
        return np.array([self.observations[i].device_s(costs[kernel]) for i, kernel in zip(rows, kernels, strict=True)])

    def times_s(self, logs: Floats, rows: Sequence[int]) -> Floats:
        """Return float64[rows]: predicted times."""
        _, floor_s = costs_of(self.profile, self.parameters, logs)
        pairs = zip(self.device_s(logs, rows).tolist(), self.waits_s[list(rows)].tolist(), strict=True)
        return np.array([call_time_s(device_s, floor_s, wait_s) for device_s, wait_s in pairs])

    def residuals(self, logs: Floats) -> Floats:
        """Return float64[n]: logarithms of predicted over measured time."""
        _, floor_s = costs_of(self.profile, self.parameters, logs)
        pairs = zip(self.all_device_s(logs).tolist(), self.waits_s.tolist(), strict=True)
        return np.log([call_time_s(device_s, floor_s, wait_s) for device_s, wait_s in pairs]) - self.log_measured

    def jacobian(self, logs: Floats) -> Floats:
        """Return float64[n, p]: derivatives of the residuals, each row only by the parameters that it depends on."""
        device_s = self.all_device_s(logs)
        _, floor_s = costs_of(self.profile, self.parameters, logs)
        short_s = np.array([call_time_s(time_s, floor_s) for time_s in device_s.tolist()])
        shown = 1 / (1 + (self.waits_s / short_s) ** WAIT_SHARPNESS)  # what of a change is not hidden by the wait
        share = (device_s / short_s) ** FLOOR_SHARPNESS * shown
        table = np.zeros((len(self.observations), len(self.parameters)))
        for k, parameter in enumerate(steps(self.parameters, "slope")):
            rows = [i for i, own in enumerate(self.own) if k in own]
            moved = logs.copy()
            moved[k] += STEP
            if rows and parameter.key == "base_s" and parameter.family not in GROUPED:  # it is added, once
                table[rows, k] = share[rows] * np.exp(logs[k]) / device_s[rows]
            elif rows:
                table[rows, k] = share[rows] * (np.log(self.device_s(moved, rows)) - np.log(device_s[rows])) / STEP
        if self.floor is not None:
            table[:, self.floor] = shown - share
        return table


def estimate(
    observations: Sequence[Observation],
    profile: Profile,
    parameters: Sequence[Parameter],
    groups: Sequence[Hashable] | None = None,
) -> Estimate:
    """Fit parameters to observations, and check the fit by leaving out one group after the other.

    Leaving out takes one Gauss-Newton step from the best fit instead of a new one; the rows left out are then
    simulated with the parameters that it leads to.

    Parameters
    ----------
    observations : sequence of Observation
    profile : Profile
        Where the fit starts.
    parameters : sequence of Parameter
    groups : sequence, optional
        What to leave out together, one entry for each observation; operation and ranks by default.
    """
    from scipy.optimize import least_squares

    model = _Model(observations, profile, parameters)
    start = np.log([parameter.start for parameter in parameters])
    prior = np.diag([NOISE / parameter.spread for parameter in parameters])
    n = len(observations)

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([model.residuals(logs), prior @ (logs - start)])

    def jacobian(logs: Floats) -> Floats:
        return np.concatenate([model.jacobian(logs), prior])

    reach = FARTHEST * np.array([parameter.spread for parameter in parameters])
    bounds = start - reach, np.minimum(start + reach, np.log([parameter.most for parameter in parameters]))
    found = least_squares(
        residuals, start, jacobian, bounds=bounds, loss="soft_l1", f_scale=NOISE,
        max_nfev=MOST_ITERATIONS, ftol=1e-4, xtol=1e-4,
    )  # fmt: skip
    logs = np.asarray(found.x)
    slopes, errors = jacobian(logs), residuals(logs)
    weights = np.concatenate([1 / np.sqrt(1 + (errors[:n] / NOISE) ** 2), np.ones(len(parameters))]) / NOISE**2
    groups = [entry.group for entry in observations] if groups is None else groups
    steps, left_out_s = _leave_out(model, logs, _Linear(slopes, errors, weights), groups)
    hessian = slopes.T @ (slopes * weights[:, None])
    variance = np.diag(np.linalg.inv(hessian)) * max(1.0, float(np.mean(weights[:n] * errors[:n] ** 2)))
    if len(steps) > 1:
        jackknife = (len(steps) - 1) / len(steps) * ((steps - steps.mean(axis=0)) ** 2).sum(axis=0)
        variance = np.maximum(variance, jackknife)
    spreads = np.array([parameter.spread for parameter in parameters])
    predicted_s = np.exp(errors[:n] + model.log_measured)
    return Estimate(parameters, logs, np.minimum(np.sqrt(variance), spreads), predicted_s, left_out_s)


class _Linear(NamedTuple):
    """The problem near its solution: float64[m, p] slopes, float64[m] residuals and weights, the prior's rows last."""

    slopes: Floats
    errors: Floats
    weights: Floats


def _leave_out(model: _Model, logs: Floats, near: _Linear, groups: Sequence[Hashable]) -> tuple[Floats, Floats]:
    """Return float64[g, p], the step that leaving out each group causes, and float64[n], the times predicted then."""
    left_out_s = np.full(len(groups), np.nan)
    names = list(dict.fromkeys(groups))
    moves = np.zeros((len(names), len(logs)))
    if len(names) < 2:
        return moves, left_out_s
    for place, name in enumerate(steps(names, "check")):
        rows = [i for i, group in enumerate(groups) if group == name]
        kept = np.ones(len(near.errors), dtype=bool)
        kept[rows] = False
        weighted = near.slopes[kept] * near.weights[kept, None]
        moves[place] = -np.linalg.solve(near.slopes[kept].T @ weighted, weighted.T @ near.errors[kept])
        spreads = np.array([parameter.spread for parameter in model.parameters])
        moves[place] = np.clip(moves[place], -spreads, spreads)  # a longer step leaves where the slopes hold
        left_out_s[rows] = model.times_s(logs + moves[place], rows)
    return moves, left_out_s
