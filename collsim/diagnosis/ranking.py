"""Ranking: the curve of every cause beside the measured one, best first, and causes with one curve as one class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from collsim.core.progress import steps
from collsim.core.units import format_size, format_time
from collsim.diagnosis.causes import Cause, Change, changes_of
from collsim.diagnosis.curves import Bench
from collsim.diagnosis.findings import Curve, Evidence, Finding, Suspect
from collsim.diagnosis.fit import EFFECT, MOST_DIPS, REPEATS, Fit, dips_of, fit_of
from collsim.diagnosis.subjects import Subject

__all__ = ["Ranked", "ranked"]

Float = NDArray[np.float64]

NOTHING = 0.02
"""A change that moves no time by more than this is the healthy machine. Chosen: a third of what repeats spread by."""
STEPS = tuple(np.linspace(0.125, 1.0, 8).tolist())
"""Degrees between two variants of a cause that grows. Chosen: variants halve a rate, and an eighth of the way is a
twelfth of the time, so that the best degrees of two causes with one curve differ by less than `REPEATS`."""
MARGIN = 4.0
"""The score of a cause must be better than that of the healthy machine by so much: odds of seven to one.
Chosen: twice the penalty of a free number, so that no cause is named for fitting noise with one."""
TIE = 1.0
"""Of causes whose scores differ by less the one with the nearest curve comes first. Chosen: odds of five to three, less
than the noise of a row or two moves them by."""
UNLIKELY = 1e-3
"""A cause that would be as far off more seldom does not explain a log. Chosen, the same as `fit.ALPHA`."""
MOST_OFF = 0.5
"""Nor does one whose times are off by more, as the root of the mean square of their logarithm. Chosen: where nobody
measured between nodes, intervals are so wide that five times the measured time was likely enough."""
PARAMETER = 2.0
"""Penalty for a free number, as in Akaike's criterion."""
SKEWS = np.geomspace(5e-6, 2e-2, 75)
"""Seconds that every call takes longer. Chosen: from below the shortest call to the delay of a profiler, in steps of an
eighth, for the same reason as `STEPS`."""
FALLS = (0.15, 0.3, 0.5, 0.8)
"""Exponents by which a rate falls with size; chosen."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Classes of causes, and the curves of each cause by log.

    *rivals* are likely enough: the first such cause, then those with odds of less than `MARGIN` against it, however
    rare either is.
    """

    findings: tuple[Finding, ...]
    curves: Mapping[str, tuple[Curve, ...]]
    looked_at: tuple[str, ...]
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A cause in one degree, with the ratio to the healthy time at the rows of every log."""

    label: str
    flags: str
    ratios: tuple[Float, ...]
    penalty: float
    effect: float = EFFECT


@dataclass(frozen=True, slots=True)
class _Scored:
    """A cause in one degree, with its fit to every log."""

    cause: Cause
    candidate: _Candidate
    fits: tuple[Fit, ...]
    bonus: float

    @property
    def score(self) -> float:
        return sum(fit.score for fit in self.fits) + self.candidate.penalty + self.cause.seldom - self.bonus

    @property
    def chi2(self) -> float:
        return sum(fit.chi2 for fit in self.fits)

    @property
    def distance(self) -> float:
        return sum(fit.rms**2 for fit in self.fits)

    @property
    def rms(self) -> float:
        return math.sqrt(self.distance / len(self.fits))

    def fits_all(self, rows: int) -> bool:
        """Return True if a cause is near enough to explain the *rows* of all logs."""
        return self.rms <= MOST_OFF and self.is_likely(rows)

    def is_likely(self, rows: int) -> bool:
        """Return True if a machine with the cause is as far off as the *rows* of all logs often enough."""
        from scipy.special import chdtrc

        return bool(chdtrc(rows, self.chi2) > UNLIKELY)


def ranked(subjects: Sequence[Subject], causes: Sequence[Cause], bench: Bench, evidence: Sequence[Evidence]) -> Ranked:
    """Simulate every cause for every log and rank what explains them better than the healthy machine does."""
    healthy = [fit_of(subject.noise, subject.noise.healthy_s) for subject in subjects]
    healthy_score = sum(fit.score for fit in healthy)
    scored, looked_at = [], []
    for cause in steps(causes, "cause"):
        bonus = sum({entry.means: entry.weight for entry in evidence if cause.name in entry.causes}.values())
        candidates = [
            one for one in _candidates(cause, subjects, bench) if any(_departs(ratios) for ratios in one.ratios)
        ]
        if candidates:
            looked_at.append(cause.name)
            degrees = [_fitted(cause, one, subjects, bonus) for one in candidates]
            scored.append(min(degrees, key=lambda one: one.score))
    rows = sum(len(subject.noise.sizes) for subject in subjects)
    better = _in_order([one for one in scored if _is_better(one, healthy, healthy_score)])
    findings = _findings(better, healthy_score, subjects, evidence)
    curves = {one.cause.name: tuple(_curve(one, place, subjects) for place in range(len(subjects))) for one in better}
    return Ranked(findings, curves, tuple(looked_at), _rivals(better, rows))


def _rivals(better: Sequence[_Scored], rows: int) -> tuple[str, ...]:
    """Return the first likely cause, and those that are about as likely, how rare they are left out."""
    likely = [(one.cause.name, one.score - one.cause.seldom) for one in better if one.is_likely(rows)]
    return tuple(name for name, told in likely if abs(told - likely[0][1]) < MARGIN)


def _in_order(scored: Sequence[_Scored]) -> list[_Scored]:
    """Return causes the likeliest first, of those that are about as likely the nearest."""
    rest, found = sorted(scored, key=lambda one: one.score), []
    while rest:
        alike = [one for one in rest if one.score < rest[0].score + TIE]
        found.append(min(alike, key=lambda one: one.distance))
        rest.remove(found[-1])
    return found


def _departs(ratios: Float) -> bool:
    return bool(np.abs(np.log(ratios)).max() > NOTHING)


def _is_better(one: _Scored, healthy: Sequence[Fit], healthy_score: float) -> bool:
    """Return True if a cause fits better than the healthy machine, both in likelihood and in plain distance."""
    nearer = one.distance < sum(fit.rms**2 for fit in healthy)
    return nearer and one.score < healthy_score - MARGIN


def _fitted(cause: Cause, candidate: _Candidate, subjects: Sequence[Subject], bonus: float) -> _Scored:
    fits = tuple(
        fit_of(subject.noise, subject.noise.healthy_s * ratios, effect=candidate.effect)
        for subject, ratios in zip(subjects, candidate.ratios, strict=True)
    )
    return _Scored(cause, candidate, fits, bonus)


# --- candidates ------------------------------------------------------------------------------------------------------


def _candidates(cause: Cause, subjects: Sequence[Subject], bench: Bench) -> Iterator[_Candidate]:
    """Yield the degrees of a cause."""
    if cause.shape in SHAPES:
        yield from SHAPES[cause.shape](subjects)
        return
    largest = max(subjects, key=lambda subject: subject.case.ranks)
    changes = changes_of(cause, bench.topology, largest.case.ranks, largest.nodes)
    if not changes:
        return
    curves = [tuple(_ratios(subject, bench, change) for subject in subjects) for change in changes]
    if cause.shape:
        yield from _slower_network(_degrees(changes, curves), subjects)
        return
    if cause.grows:
        yield from _degrees(changes, curves)
        return
    penalty = 2 * math.log(len(changes))
    for change, ratios in zip(changes, curves, strict=True):
        yield _Candidate(change.label, change.flags, ratios, penalty)


def _ratios(subject: Subject, bench: Bench, change: Change) -> Float:
    """Return the ratios of a change at the rows of a log."""
    sizes = sorted(subject.healthy_s)
    ratios = dict(zip(sizes, bench.ratios(subject.case, sizes, subject.healthy_s, change), strict=True))
    return np.array([ratios[int(size)] for size in subject.noise.sizes])


def _degrees(changes: Sequence[Change], curves: Sequence[tuple[Float, ...]]) -> Iterator[_Candidate]:
    """Yield the variants of a cause that grows, and degrees between them."""
    before: tuple[Float, ...] = tuple(np.ones(len(ratios)) for ratios in curves[0])
    label = "none"
    for change, after in zip(changes, curves, strict=True):
        for step in STEPS:
            ratios = tuple(one ** (1 - step) * other**step for one, other in zip(before, after, strict=True))
            words = change.label if step == 1 else f"between {label} and {change.label}"
            yield _Candidate(words, change.flags, ratios, PARAMETER)
        before, label = after, change.label


def _skewed(subjects: Sequence[Subject]) -> Iterator[_Candidate]:
    """Yield constant times that are added to every call."""
    for skew_s in SKEWS:
        ratios = tuple(1 + skew_s / subject.noise.healthy_s for subject in subjects)
        flags = f'--set cpu.start_skew="{format_time(skew_s)}"'
        yield _Candidate(f"{skew_s * 1e6:.2g} us more for each call", flags, ratios, PARAMETER, 0.0)


def _slower_network(rates: Iterable[_Candidate], subjects: Sequence[Subject]) -> Iterator[_Candidate]:
    """Yield a time for each call, at least as long as the shortest, beside lower rates of adapters, or as they are."""
    least_s = min(float(subject.noise.healthy_s.min()) for subject in subjects)
    as_they_are = _Candidate("", "", tuple(np.ones(len(subject.noise.sizes)) for subject in subjects), 0.0)
    for rate, skew_s in product((as_they_are, *rates), SKEWS[::3]):
        if skew_s < least_s:
            continue
        later = [ratios + skew_s / one.noise.healthy_s for ratios, one in zip(rate.ratios, subjects, strict=True)]
        words = f"{skew_s * 1e6:.2g} us more for each call{', adapters ' * bool(rate.label)}{rate.label}"
        flags = f'{rate.flags} --set cpu.start_skew="{format_time(skew_s)}"'.strip()
        yield _Candidate(words, flags, tuple(later), rate.penalty + PARAMETER)


def _falling(subjects: Sequence[Subject]) -> Iterator[_Candidate]:
    """Yield rates that fall by a power of the size from some size on."""
    for power in FALLS:
        for part in (0.4, 0.6, 0.8):
            ratios = tuple(_fall(subject.noise.sizes, power, part) for subject in subjects)
            first = np.exp(np.quantile(np.log(subjects[0].noise.sizes), part))
            yield _Candidate(f"as size^-{power:g} from {format_size(first)} on", "", ratios, 2 * PARAMETER, 0.1)


def _fall(sizes: Float, power: float, part: float) -> Float:
    first = np.exp(np.quantile(np.log(sizes), part))
    return np.asarray(np.maximum(sizes / first, 1.0) ** power)


def _dipped(subjects: Sequence[Subject]) -> Iterator[_Candidate]:
    """Yield the measured time at a few slow sizes, and the healthy one at the others."""
    total, dips = [], []
    for subject in subjects:
        noise, far = subject.noise, dips_of(subject.noise)
        ratios = np.ones(len(noise.sizes))
        if len(far) <= MOST_DIPS:
            ratios[far] = np.exp(noise.residual[far])
            dips += noise.sizes[far].tolist()
        total.append(ratios)
    if dips:
        words = ", ".join(map(format_size, sorted(set(dips))))
        penalty = len(dips) * (PARAMETER + 2 * math.log(max(len(subject.noise.sizes) for subject in subjects)))
        yield _Candidate(f"at {words}", "", tuple(total), penalty, 0.0)


SHAPES = {"skew": _skewed, "falling": _falling, "dips": _dipped}


# --- classes ---------------------------------------------------------------------------------------------------------


def _findings(
    better: Sequence[_Scored], healthy_score: float, subjects: Sequence[Subject], evidence: Sequence[Evidence]
) -> tuple[Finding, ...]:
    classes: list[list[_Scored]] = []
    rows = sum(len(subject.noise.sizes) for subject in subjects)
    for one in better:
        home = next((group for group in classes if _alike(group[0], one)), None)
        if home is None:
            classes.append([one])
        else:
            home.append(one)
    least = min((group[0].score for group in classes), default=0.0)
    weights = [math.exp((least - group[0].score) / 2) for group in classes]
    total = sum(weights) + math.exp(min((least - healthy_score) / 2, 0.0))
    return tuple(
        _finding(group, weight / total, rows, evidence) for group, weight in zip(classes, weights, strict=True)
    )


def _alike(best: _Scored, other: _Scored) -> bool:
    """Return True if no row tells two causes apart: their best curves differ by less than repeats do, at every size.

    What the model is off by does not count: it is the same for both.
    """
    if {best.cause.shape, other.cause.shape} & {"dips", "falling"}:
        return False
    pairs = zip(best.candidate.ratios, other.candidate.ratios, strict=True)
    return all(bool(np.abs(np.log(some / others)).max() < REPEATS) for some, others in pairs)


def _finding(group: Sequence[_Scored], probability: float, rows: int, evidence: Sequence[Evidence]) -> Finding:
    best = group[0]
    suspects = tuple(_suspect(one, evidence) for one in group)
    return Finding(suspects, best.rms, best.chi2, best.score, probability, best.fits_all(rows))


def _suspect(one: _Scored, evidence: Sequence[Evidence]) -> Suspect:
    cause, candidate = one.cause, one.candidate
    told = tuple(entry.means for entry in evidence if cause.name in entry.causes and entry.weight > 0)
    return Suspect(
        cause.name, cause.title, candidate.label, candidate.flags, cause.measure, cause.fix, cause.source, told
    )


def _curve(one: _Scored, place: int, subjects: Sequence[Subject]) -> Curve:
    fit, times_s = one.fits[place], subjects[place].noise.healthy_s * one.candidate.ratios[place]
    return Curve(
        one.cause.name, one.candidate.label, tuple(times_s.tolist()), fit.rms, fit.chi2, fit.score
    )  # fmt: skip
