"""Gating: how popular experts are, samples of tokens, and what to expect where all are equally popular.

A token takes its experts one after the other, each with the chance that its popularity gives it among those not taken
yet (Plackett-Luce), which is what adding Gumbel noise to the logits and taking the largest amounts to. Where groups
limit the choice, groups are taken first in the same way, by the sum of the popularity of their experts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import comb
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.core.errors import Fault, InputError
from collsim.core.input_files import read_input
from collsim.moe.models import Model

__all__ = ["Popularity", "balanced_choices", "distinct_groups", "popularity_of", "read_counts", "sampled"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
WHOLE = re.compile(r"-?[0-9]{1,15}")
TOKENS_AT_ONCE = 1 << 18
"""So many tokens are sampled together: 64 MB of work space with 8 experts each."""
ROWS_AT_ONCE = 1 << 12
MOST_FILE_BYTES = 2**26
MOST_COUNT = 10**15
MOST_TRIES = 32
"""Who has hit what it took before so often draws among the rest alone."""
MOST_SKEW = 10
"""Of a Zipf law or a log-normal one: nearly all tokens then take the same experts."""


@dataclass(frozen=True, slots=True, eq=False)
class Popularity:
    """Popularity of experts: *weight*, float64[experts], sum 1; *choices* of tokens, int64[tokens, top_k], if given."""

    name: str
    weight: Float
    choices: Int | None = None
    balanced: bool = False
    """True if the choices come in turn, so that all loads are equal."""

    @property
    def is_even(self) -> bool:
        """True if all experts are equally popular."""
        return self.choices is None and bool(np.all(self.weight == self.weight[0]))


def popularity_of(
    model: Model, *, skew: float | None = None, sigma: float | None = None, counts: Any = None, seed: int = 0
) -> Popularity:
    """Return the popularity of the experts, by a law or by counts of tokens.

    Parameters
    ----------
    model : Model
    skew : float, optional
        Exponent s of a Zipf law: the k-th most popular expert has weight k^-s. 0 is even.
    sigma : float, optional
        Width of a log-normal law of the weights.
    counts : int array of shape (experts,) or (tokens, top_k), optional
        Tokens that each expert got, or the experts that each token took.
    seed : int
        Which expert is how popular.

    Raises
    ------
    InputError
        More than one law, negative figures, or counts of the wrong shape; every fault at once.
    """
    given = [name for name, value in (("skew", skew), ("sigma", sigma), ("counts", counts)) if value is not None]
    faults = []
    if len(given) > 1:
        faults.append(Fault(f"{' and '.join(given)} are given together", given[0], "give one of them"))
    for name, value in (("skew", skew), ("sigma", sigma)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Real):
            faults.append(Fault(f"{str(value)[:40]!r} is not a number", name, "0 is even, 1 strongly skewed"))
        elif not 0 <= value <= MOST_SKEW:
            faults.append(Fault(f"{value} is not between 0 and {MOST_SKEW}", name, "0 is even, 1 strongly skewed"))
    if counts is not None:
        faults += _count_faults(np.asarray(counts), model)
    if faults:
        raise InputError(*faults)
    rng = np.random.default_rng([seed, 1])
    if skew:
        weight = rng.permutation(np.arange(1, model.experts + 1, dtype=np.float64) ** -skew)
        return Popularity(f"Zipf {skew:g}", weight / weight.sum())
    if sigma:
        weight = rng.lognormal(0.0, sigma, model.experts)
        return Popularity(f"log-normal {sigma:g}", weight / weight.sum())
    if counts is not None:
        table = np.asarray(counts, dtype=np.int64)
        if table.ndim == 2:
            weight = np.bincount(table.ravel(), minlength=model.experts) / table.size
            return Popularity("given choices", weight.astype(np.float64), table)
        weight = table.astype(np.float64)
        return Popularity("given counts", weight / weight.sum())
    return Popularity("uniform", np.full(model.experts, 1 / model.experts))


def balanced_choices(model: Model) -> Popularity:
    """Return the choices of tokens that take experts as far apart as there are, each token the next of them in turn.

    This is how serving benchmarks route: every rank gets the same, and a token goes to as many ranks as it can. Where
    groups limit the choice, the groups are as far apart as well.

    >>> balanced_choices(Model("any", experts=6, top_k=2, hidden=1)).choices.tolist()
    [[0, 3], [1, 4], [2, 5], [3, 0], [4, 1], [5, 2]]
    """
    groups, limit = (model.groups, model.group_limit) if model.limited else (1, 1)
    size = model.experts // groups
    place = np.arange(model.top_k) * size * limit // model.top_k
    token = np.arange(model.experts)[:, None]
    group = ((place // size) * groups // limit + token % groups) % groups
    choices = group * size + (place % size + token // groups) % size
    return Popularity("balanced", np.full(model.experts, 1 / model.experts), choices, balanced=True)


def _count_faults(counts: NDArray[Any], model: Model) -> list[Fault]:
    """Return the faults of counts: their type, shape or entries."""
    shapes = f"({model.experts},) for tokens of each expert, or (tokens, {model.top_k}) for the experts of each token"
    if counts.dtype.kind in "iu" and counts.size and (counts.max() > MOST_COUNT or counts.min() < -MOST_COUNT):
        return [Fault(f"{counts.max()} is too large", "counts", f"give numbers up to {MOST_COUNT}")]
    if counts.size and counts.dtype.kind not in "iu":
        return [Fault(f"entries are {counts.dtype}, not whole numbers", "counts", f"give integers of shape {shapes}")]
    if counts.shape != (model.experts,) and (counts.ndim != 2 or counts.shape[1] != model.top_k or not len(counts)):
        return [Fault(f"the shape is {counts.shape}", "counts", f"give {shapes}")]
    found = _expert_fault(counts, model) if counts.ndim == 1 else _choice_fault(counts, model)
    return [Fault(found[0], "counts", found[1])] if found else []


def _expert_fault(counts: NDArray[Any], model: Model) -> tuple[str, str] | None:
    """Return the fault of tokens of each expert and a hint; None if there is none."""
    if counts.min() < 0:
        return f"expert {int(counts.argmin())} got {counts.min()} tokens", "give 0 or more"
    served = np.sort(np.count_nonzero(counts.reshape(model.groups if model.limited else 1, -1), axis=1))
    served = served[served > 0]
    if model.limited and len(served) < model.group_limit:
        return f"experts of only {len(served)} groups got tokens", f"tokens take experts of {model.group_limit} groups"
    if (fewest := int(served[: model.group_limit if model.limited else 1].sum())) < model.top_k:
        what = f"some {model.group_limit} groups have" if model.limited else "there are"
        return (
            f"{what} only {fewest} experts with tokens",
            f"each token takes {model.top_k}: give counts of more tokens",
        )
    return None


def _choice_fault(choices: NDArray[Any], model: Model) -> tuple[str, str] | None:
    """Return the fault of the experts of each token and a hint; None if there is none."""
    wrong = choices[(choices < 0) | (choices >= model.experts)]
    if len(wrong):
        return f"there is no expert {wrong[0]}", f"experts are 0 to {model.experts - 1}"
    ordered = np.sort(choices, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(twice):
        return f"token {twice[0]} takes an expert twice", "each token takes different experts"
    return None


def read_counts(path: str | Path) -> Int:
    """Return the table of a file of whole numbers, separated by commas or blanks: one row, one column, or choices.

    Raises
    ------
    InputError
        The file cannot be read, or holds anything else; names the first wrong entry.
    """
    try:
        content = read_input(path, MOST_FILE_BYTES)
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(Fault(f"cannot be read: {reason}", str(path), "give a text file of whole numbers")) from None
    if len(content) > MOST_FILE_BYTES:
        what = f"the file is larger than {MOST_FILE_BYTES >> 20} MiB"
        raise InputError(Fault(what, str(path), "give a row of experts for each token of one batch"))
    rows: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        entries = line.split("#")[0].replace(",", " ").split()
        wrong = next((entry for entry in entries if not WHOLE.fullmatch(entry)), None)
        if wrong is not None:
            what = f'line {number}: "{wrong[:40]}" is not a whole number of at most 15 digits'
            raise InputError(Fault(what, str(path), "give whole numbers, separated by commas or blanks"))
        if entries:
            rows.append([int(entry) for entry in entries])
    if not rows or len({len(row) for row in rows}) > 1:
        what = "there is no number" if not rows else "rows have different lengths"
        raise InputError(Fault(what, str(path), "give one number per expert, or a row of experts per token"))
    table = np.array(rows, dtype=np.int64)
    return table.ravel() if 1 in table.shape else table


def distinct_groups(experts: int, top_k: int, groups: int) -> float:
    """Return in how many of equal *groups* the experts of a token are, all experts being equally popular.

    Without replacement: ``G * (1 - C(E - E/G, k) / C(E, k))`` for G groups of E/G of E experts.

    >>> [round(distinct_groups(256, 8, g), 3) for g in (2, 4, 8, 16, 32, 64, 128, 256)]
    [1.993, 3.614, 5.295, 6.523, 7.267, 7.676, 7.89, 8.0]
    """
    return groups * (1 - comb(experts - experts // groups, top_k) / comb(experts, top_k))


def sampled(model: Model, popularity: Popularity, tokens: int, rng: np.random.Generator) -> Int:
    """Return int64[tokens, top_k], the experts that so many tokens take, all different for each."""
    if popularity.choices is not None:
        return popularity.choices[rng.integers(len(popularity.choices), size=tokens)]
    parts = [
        _sampled(model, popularity.weight, min(TOKENS_AT_ONCE, tokens - first), rng)
        for first in range(0, tokens, TOKENS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, model.top_k), dtype=np.int64)


def _sampled(model: Model, weight: Float, tokens: int, rng: np.random.Generator) -> Int:
    """Return the experts of tokens that choose among the groups that they are limited to, if they are."""
    n_groups = model.groups if model.limited else 1
    of_group = weight.reshape(n_groups, -1).sum(axis=1)
    everyone = np.zeros((tokens, 1), dtype=np.int64)
    groups = _drawn(of_group, 1, everyone, model.group_limit, rng) if model.limited else everyone
    return _drawn(weight, n_groups, groups, model.top_k, rng)


def _drawn(weight: Float, n_groups: int, groups: Int, count: int, rng: np.random.Generator) -> Int:
    """Return int64[tokens, count]: one draw after the other, again where it hits what was drawn before.

    Each token draws among its *groups*, int64[tokens, m], out of *n_groups* equal ones.
    """
    size = len(weight) // n_groups
    edges = np.concatenate([[0.0], np.cumsum(weight)])
    begin, end = edges[:-1:size], edges[size::size]
    open_to = np.cumsum((end - begin)[groups], axis=1)
    drawn = np.full((count, len(groups)), -1, dtype=np.int64)
    for place in range(count):
        rows, tries = np.arange(len(groups)), 0
        while len(rows) and tries < MOST_TRIES:
            point = rng.random(len(rows)) * open_to[rows, -1]
            which = (point[:, None] >= open_to[rows]).sum(axis=1)
            group = groups[rows, which]
            point += begin[group] - np.where(which > 0, open_to[rows, which - 1], 0.0)
            found = np.clip(np.searchsorted(edges, point, side="right") - 1, group * size, group * size + size - 1)
            drawn[place, rows] = found
            taken = (drawn[:place, rows] == found).any(axis=0) | (weight[found] == 0)  # rounding may reach the latter
            rows, tries = rows[taken], tries + 1
        for begin_row in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[begin_row : begin_row + ROWS_AT_ONCE]
            drawn[place, some] = _largest(weight, size, groups[some], drawn[:place, some], rng)
    return drawn.T


def _largest(weight: Float, size: int, groups: Int, drawn: Int, rng: np.random.Generator) -> Int:
    """Return int64[tokens], the next draw where others are much more popular: the largest logit with Gumbel noise."""
    tokens = np.arange(len(groups))
    with np.errstate(divide="ignore"):
        logit = np.log(weight) + rng.gumbel(size=(len(groups), len(weight)))
    closed = np.ones((len(groups), len(weight) // size), dtype=np.bool_)
    closed[tokens[:, None], groups] = False
    logit[np.repeat(closed, size, axis=1)] = -np.inf
    logit[tokens, drawn] = -np.inf
    return np.asarray(logit.argmax(axis=1), dtype=np.int64)
