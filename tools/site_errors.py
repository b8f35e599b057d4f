"""How far off the next site may be between nodes, by the errors of sites that were left out of a fit.

A site is one draw: its host, its plugin and the settings of its network move all of its rows together. Of a band of
sizes one number is estimated from all sites, all networks and all kernels: the scale of a distribution with heavy
tails, so that one odd site does not set the intervals of all others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from joint_networks import Seen

from collsim.calibration.scatters import INSIDE, LEAST_REACH
from collsim.library import Scatter, band_of
from collsim.library.costs.profile import BANDS, BANDS_BETWEEN, UNSEEN_REACH

__all__ = ["Draw", "coverage", "errors_of_sites", "reach_of_sites"]

FREEDOM = 2
"""Degrees of freedom of Student's distribution. With 2, 3 and 4 as many rows of sites left out are inside above 1 MiB
(85 to 92 %); below, most with 2."""
ALONE = 2
"""A kernel that fewer sites show says nothing of the next one: without its site it costs what it did before any log."""
SETTLED = 1e-6


class Draw(NamedTuple):
    """A row with the time that costs fitted to other sites predict."""

    seen: Seen
    predicted_s: float

    @property
    def error(self) -> float:
        """Logarithm of the measured time over the predicted one."""
        return math.log(self.seen.row.time_s / self.predicted_s)

    @property
    def band(self) -> str:
        """Band of its size."""
        return band_of(self.seen.row.row.case.size_bytes, BANDS_BETWEEN)


def reach_of_sites(errors: Sequence[float], sites: Sequence[Hashable]) -> float:
    """Return the logarithm within which a row of another site lies, with the probability that intervals state.

    The scale is the likeliest one, every site counting alike. How little k sites tell of their centre, which is taken
    to be no error, makes the next one lie farther by the square root of 1 + 1/k, as of the mean of k draws; how little
    they tell of the scale itself makes the distribution of the next one wider.

    >>> round(reach_of_sites([0.1, -0.1, 0.1, -0.1], "abcd") / reach_of_sites([0.2, -0.2, 0.2, -0.2], "abcd"), 6)
    0.5
    """
    squares, counts = np.square(errors), Counter(sites)
    weights = np.array([1 / counts[site] / len(counts) for site in sites])
    before, square = 0.0, max(float((weights * squares).sum()), SETTLED**2)  # of the scale
    while abs(square - before) > SETTLED * square:
        known = (FREEDOM + 1) / (FREEDOM + squares / square)
        before, square = square, max(float((weights * squares * known).sum()), SETTLED**2)
    return _quantile((1 + INSIDE) / 2, len(counts)) * math.sqrt(square * (1 + 1 / len(counts)))


NODES = 24
"""Of the Gauss-Hermite sum over the scale; with more the quantile is the same to four digits."""


def _quantile(share: float, sites: int) -> float:
    """Return the quantile of the next draw in units of the likeliest scale of as many *sites*.

    The logarithm of that scale has the variance (f + 3) / (2 f k) of k draws of Student's distribution with f degrees
    of freedom (inverse of Fisher's information), so the next draw is a mixture of such distributions: with many sites
    that of Student alone.

    >>> round(_quantile(0.95, 10**9), 3), round(_quantile(0.95, 6), 3)
    (2.92, 3.351)
    """
    at, weights = np.polynomial.hermite_e.hermegauss(NODES)
    scales = np.exp(at * math.sqrt((FREEDOM + 3) / (2 * FREEDOM * sites)))
    low, high = 0.0, 1e3
    while high - low > 1e-9 * high:
        far = (low + high) / 2
        below = 0.5 + far / scales / (2 * np.sqrt(2 + (far / scales) ** 2))  # closed form of two degrees of freedom
        low, high = (far, high) if weights @ below < share * weights.sum() else (low, far)
    return high


def pool_of(draws: Sequence[Draw]) -> list[Draw]:
    """Return the rows that tell of another site: of kernels that several sites show."""
    sites: dict[str, set[str]] = defaultdict(set)
    for draw in draws:
        sites[draw.seen.row.family].add(draw.seen.site)
    return [draw for draw in draws if len(sites[draw.seen.row.family]) >= ALONE]


def reaches(draws: Sequence[Draw]) -> dict[str, float]:
    """Return the reach of every band that some row shows."""
    found = {}
    for band in BANDS_BETWEEN:
        if rows := [draw for draw in draws if draw.band == band]:
            reach = reach_of_sites([draw.error for draw in rows], [draw.seen.site for draw in rows])
            found[band] = max(reach, least_reach(band))
    return found


def least_reach(band: str) -> float:
    """Return the least reach of a band: what equal machines of one site differ by."""
    return LEAST_REACH[band_of(BANDS_BETWEEN[band])]


def errors_of_sites(draws: Sequence[Draw]) -> dict[str, dict[str, Scatter]]:
    """Return the errors by kernel and band; ends are those of the band, and medians too of kernels without rows.

    From 1 MiB on, kernels that fewer than `ALONE` sites show in a band have ends `UNSEEN_REACH` times as far off.
    """
    ends = reaches(pool_of(draws))
    found: dict[str, dict[str, Scatter]] = {}
    for family in dict.fromkeys(draw.seen.row.family for draw in draws):
        found[family] = {}
        for band, reach in ends.items():
            rows = [draw for draw in draws if draw.band == band]
            own = [draw for draw in rows if draw.seen.row.family == family]
            lone = len({draw.seen.site for draw in own}) < ALONE and BANDS_BETWEEN[band] >= BANDS["large"]
            far = math.exp(reach * (UNSEEN_REACH if lone else 1.0))
            errors = np.abs(np.expm1([-draw.error for draw in own or rows]))
            median, p90 = (float(each) for each in np.quantile(errors, (0.5, 0.9)))
            logs = len({draw.seen.row.row.file for draw in own or rows})
            found[family][band] = Scatter(1 / far, far, median, p90, len(own or rows), logs)
    return found


class Coverage(NamedTuple):
    """Of a band: sites, rows, the factor that intervals reach, and shares inside those made without the row's site."""

    sites: int
    rows: int
    factor: float
    of_rows: float
    of_sites: float


def coverage(draws: Sequence[Draw]) -> dict[str, Coverage]:
    """Return how many rows are inside intervals that neither costs nor spread of their own site are in."""
    pool, found = pool_of(draws), {}
    ends = reaches(pool)
    for band in ends:
        rows = [draw for draw in pool if draw.band == band]
        inside: dict[str, list[bool]] = {}
        for site in dict.fromkeys(draw.seen.site for draw in rows):
            reach = reaches([draw for draw in rows if draw.seen.site != site]).get(band, math.nan)
            inside[site] = [abs(draw.error) <= reach for draw in rows if draw.seen.site == site]
        every = [hit for hits in inside.values() for hit in hits]
        by_site = float(np.mean([np.mean(hits) for hits in inside.values()]))
        found[band] = Coverage(len(inside), len(rows), math.exp(ends[band]), float(np.mean(every)), by_site)
    return found
