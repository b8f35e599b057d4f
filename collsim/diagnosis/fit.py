"""Fit of a curve to measured times: whole curves are compared, not rows.

Errors of a model are alike at neighbouring sizes, those of repeats are not. With the interval of a prediction as its
width s, errors of two rows have the covariance ``A s s' exp(-|octaves between them| / L)``; the rest of s, and the
spread of repeats, is each row's own. Machines of one kind differ by a few octaves at a time (`LOCAL`). The host adds a
time to every call, and a factor below `HOST_BYTES`, common to all rows, of unknown size.
The effect of a cause is itself known to a part `EFFECT` of it only, alike at all sizes. The likelihood of the measured
times follows, for the healthy machine and for each cause; the joint test is the chi-square of the healthy one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALPHA",
    "MOST_DIPS",
    "REPEATS",
    "Fit",
    "Noise",
    "dips_of",
    "fit_of",
    "late_row",
    "p_value",
    "shift",
    "whole_shift",
]

Float = NDArray[np.float64]

ALIKE = 0.8
"""Part of the variance of a prediction that neighbouring sizes share. Chosen: residuals of fits are runs."""
OCTAVES = 6.0
"""Distance in octaves at which that has fallen to 1/e. Chosen: about as wide as the bands of sizes in which a profile
counts its errors."""
REPEATS = 0.06
"""Spread of a row by itself, as a standard deviation of its logarithm: repeats spread by 3 to 5 % on machines measured
thrice, and sizes at which a library changes its algorithm are predicted to within one or two."""
DIP = 0.4
"""A row is a dip if its logarithm is so much above those of both neighbours. Chosen: half as long again, more
than six times what repeats spread by."""
LEAST_ROWS = 3
"""Rows of which one can be told from the others."""
MOST_DIPS = 3
"""Slow sizes that are single ones; more are a range. Chosen."""
LATE_BYTES, LATE = 2**16, 0.693
"""A single row below this size that is a dip by less than this, a factor of two, is noise of its host. Chosen: such a
call lasts some 15 us, and twenty of them during which a host is away once for 0.15 ms are half as long again."""
HOST_BYTES = 2**20
"""Below this the launch times of hosts count. Chosen: the shortest calls take some 20 us, of
which a launch is a large part."""
HOST = (0.1, 0.3)
"""Standard deviation of the time that a host adds to every call, as a part of the least predicted time of the log,
within a node and between nodes. It ends at no size: large calls bear it, too, and it is lost in them. Where a log
begins above `HOST_BYTES`, its least time is sending: of it counts what so many bytes take, not 0.3 of 40 ms.
Chosen, on the healthy ones among the public logs, as `LOCAL`."""
HOST_FACTOR = (0.1, 0.45)
"""Standard deviation of the logarithm of a factor common to these sizes: processors, drivers and proxies differ.
Chosen, as `HOST`."""
LOCAL = ((0.12, 0.05), (0.25, 0.1))
"""Standard deviations by which machines of one kind differ over `LOCAL_OCTAVES`, within a node and between nodes, below
and from `RATES_FROM_BYTES` on. Chosen on the healthy ones among the public logs: the middle of a curve is off by 10 to
25 %, its end by 5 %, twice that between nodes."""
LOCAL_OCTAVES = 2.0
"""Chosen: about as far apart as a library's changes of protocol and algorithm are."""
RATES_FROM_BYTES = 2**25
"""From here on rates decide. Chosen: healthy curves are near their end there."""
EFFECT = 0.15
"""Standard deviation of the effect of a cause, as a part of the effect; chosen: no failure was measured for collsim."""
ALPHA = 0.001
"""A range of sizes that fewer healthy machines are slower at is called slow. Chosen: a log has four ranges, so that
of a hundred logs of healthy machines less than one hears of it."""


class Noise(NamedTuple):
    """Rows of a log as a fit sees them.

    Attributes
    ----------
    sizes, measured_s, healthy_s : float64[n]
    sigma : float64[n]
        Standard deviations of the logarithm of the prediction, from its interval.
    over_nodes : bool
        Whether messages went between nodes.
    least_s : float
        The least healthy time of the log of which these are a part, as `shortest_s`; 0: they are the whole.
    """

    sizes: Float
    measured_s: Float
    healthy_s: Float
    sigma: Float
    over_nodes: bool = False
    least_s: float = 0.0

    @property
    def residual(self) -> Float:
        """float64[n]: logarithm of measured over healthy time."""
        return np.log(self.measured_s / self.healthy_s)

    @property
    def shortest_s(self) -> float:
        """Least healthy time of the log; where it begins above `HOST_BYTES`, the part of it that so many bytes take."""
        beyond = max(float(self.sizes.min()) / HOST_BYTES, 1.0)
        return self.least_s or float(self.healthy_s.min()) / beyond

    def part(self, chosen: Sequence[int]) -> Noise:
        """Return some of the rows."""
        rows = list(chosen)
        return Noise(
            self.sizes[rows],
            self.measured_s[rows],
            self.healthy_s[rows],
            self.sigma[rows],
            self.over_nodes,
            self.shortest_s,
        )

    def covariance(self) -> Float:
        """Return float64[n, n] of the errors of the healthy prediction."""
        octaves = np.log2(self.sizes)
        apart = np.abs(octaves[:, None] - octaves[None, :])
        shared = ALIKE * np.outer(self.sigma, self.sigma) * np.exp(-apart / OCTAVES)
        local = np.where(self.sizes < RATES_FROM_BYTES, *LOCAL[self.over_nodes])
        local = np.where(self.sizes < HOST_BYTES, 0.0, local)
        shared += np.outer(local, local) * np.exp(-apart / LOCAL_OCTAVES)
        own = np.diag((1 - ALIKE) * self.sigma**2 + REPEATS**2)
        offset = HOST[self.over_nodes] * self.shortest_s / self.healthy_s
        factor = np.where(self.sizes < HOST_BYTES, HOST_FACTOR[self.over_nodes], 0.0)
        return np.asarray(shared + own + np.outer(offset, offset) + np.outer(factor, factor))


class Fit(NamedTuple):
    """How well a curve fits: *score* is twice the negative log-likelihood with penalties; less is better.

    *rms* is the root of the mean square of the logarithm of measured over curve.
    """

    chi2: float
    score: float
    rms: float


def fit_of(noise: Noise, times_s: Float, *, parameters: float = 0.0, effect: float = EFFECT) -> Fit:
    """Return the fit of a curve in seconds; *parameters* is the penalty for what was chosen to make it fit.

    >>> sizes = np.array([2.0**20, 2.0**24, 2.0**28])
    >>> noise = Noise(sizes, np.array([2e-5, 2e-4, 2e-3]), np.array([2e-5, 1e-4, 1e-3]), np.full(3, 0.05))
    >>> fit_of(noise, noise.healthy_s).chi2 > 20 > fit_of(noise, noise.measured_s).chi2
    True
    """
    departure = np.log(times_s / noise.healthy_s)
    covariance = noise.covariance() + np.outer(effect * departure, effect * departure)
    residual = np.log(noise.measured_s / times_s)
    chi2 = float(residual @ np.linalg.solve(covariance, residual))
    spread = float(np.linalg.slogdet(covariance)[1])
    return Fit(chi2, chi2 + spread + parameters, float(np.sqrt(np.mean(residual**2))))


def p_value(noise: Noise, times_s: Float) -> float:
    """Return the part of healthy machines whose chi-square is at least that of the measured times, over all rows."""
    from scipy.special import chdtrc

    return float(chdtrc(len(noise.sizes), fit_of(noise, times_s, effect=0.0).chi2))


def shift(noise: Noise) -> tuple[float, float]:
    """Return the mean logarithm of measured over healthy time, and the part of healthy machines that are further off.

    Two questions of one number each: the range of sizes is off by one factor, or by one time that every call takes
    longer. Further off means in either of the two, on either side. Rows weigh as their own variances say. Weights of
    least variance would take one row from another: where a prediction is sure of large sizes and not of the next
    smaller ones, a range that is 14 % too slow became four standard deviations.
    """
    covariance = noise.covariance()
    directions = np.ones(len(noise.sizes)), noise.healthy_s.min() / noise.healthy_s
    weights = [direction / np.diag(covariance) for direction in directions]
    means, scores, alike = _asked_twice(noise, covariance, directions, weights)
    furthest = max(scores, key=abs)
    return abs(means[0]) * float(np.sign(furthest)), either_side(abs(furthest), alike)


def whole_shift(noise: Noise) -> tuple[float, float]:
    """Return the logarithm by which a whole curve is slower, and the part of healthy machines that are further off.

    Two questions of one number each: all rates are lower, or every call takes longer by one time. A lower rate takes
    longer by the part of a time that is spent on sending, which is the row's share of the highest rate; a time for each
    call by its share of the row's. What sizes say apart adds up here, and those that are as they should be say that the
    machine is: weights are of least variance. Further off means slower in either of the two.
    """
    rates = noise.sizes / noise.healthy_s
    covariance = noise.covariance()
    directions = rates / rates.max(), noise.healthy_s.min() / noise.healthy_s
    weights = [np.linalg.solve(covariance, direction) for direction in directions]
    means, scores, alike = _asked_twice(noise, covariance, directions, weights)
    place = int(np.argmax(scores))
    return means[place], slower_side(scores[place], alike)


def _asked_twice(
    noise: Noise, covariance: Float, directions: tuple[Float, Float], weights: Sequence[Float]
) -> tuple[list[float], list[float], float]:
    """Return the numbers that fit along two directions with some weights, in standard deviations too.

    The last is how alike the two scores are, as a correlation over healthy machines: they are read from the same rows.
    """
    spreads = [float(np.sqrt(weight @ covariance @ weight)) for weight in weights]
    found = [float(weight @ noise.residual) for weight in weights]
    means = [each / float(weight @ along) for each, weight, along in zip(found, weights, directions, strict=True)]
    scores = [each / spread for each, spread in zip(found, spreads, strict=True)]
    return means, scores, float(weights[0] @ covariance @ weights[1]) / (spreads[0] * spreads[1])


def slower_side(score: float, alike: float) -> float:
    """Return the chance that the larger of two standard normal numbers is at least *score*; *alike*: their correlation.

    By Owen's T function (Annals of Mathematical Statistics 27, 1956).

    >>> round(slower_side(3.0, 1.0), 6), round(slower_side(3.0, 0.0), 6)
    (0.00135, 0.002698)
    """
    from scipy.special import ndtr, owens_t

    return float(ndtr(-score) + 2 * owens_t(score, _slope(alike)))


def either_side(score: float, alike: float) -> float:
    """Return the chance that either of two standard normal numbers is at least *score* from zero, as `slower_side`.

    >>> round(either_side(3.0, 1.0), 6), round(either_side(3.0, 0.0), 6)
    (0.0027, 0.005392)
    """
    from scipy.special import owens_t

    return min(1.0, float(4 * (owens_t(score, _slope(alike)) + owens_t(score, _slope(-alike)))))


def _slope(alike: float) -> float:
    return float(np.sqrt(max(1 - alike, 0.0) / max(1 + alike, 1e-12)))


def dips_of(noise: Noise) -> list[int]:
    """Return the rows that are slower than both neighbours make believe, by more than `DIP`.

    The first has one neighbour only: it counts if a larger message took less time by as much.
    """
    return np.flatnonzero(_stands_out(noise) > DIP).tolist()


def late_row(noise: Noise) -> int | None:
    """Return the row that is late by noise of its host; None if there is none, or several are."""
    out = _stands_out(noise)
    rows = np.flatnonzero((out > DIP) & (noise.sizes < LATE_BYTES))
    return int(rows[0]) if len(rows) == 1 and out[rows[0]] < LATE else None


def _stands_out(noise: Noise) -> Float:
    """Return float64[n]: the logarithm by which each row is slower than its neighbours make believe; 0: it is not."""
    found, out = noise.residual, np.zeros(len(noise.sizes))
    if len(found) < LEAST_ROWS:
        return out
    out[0] = min(np.log(noise.measured_s[0] / noise.measured_s[1]), found[0] - max(found[1], found[2]))
    between = (found[:-2] + found[2:]) / 2
    out[1:-1] = found[1:-1] - np.maximum(np.maximum(found[:-2], found[2:]), between)
    return out
