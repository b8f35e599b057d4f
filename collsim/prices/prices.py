"""Prices of GPUs by their model: dollars an hour and watts, each with its source, and those that a caller says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, did_you_mean

__all__ = ["Figure", "Price", "price_of", "with_own"]

FILE = Path(__file__).parent / "prices.yaml"
OWN = "set"
"""Status of a figure that the caller gave."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Figure with where it comes from.

    Attributes
    ----------
    value : float
    status : str
        ``datasheet``, ``reported`` (by the press), ``published`` (a list price), ``estimate``, ``announced``,
        ``derived``, ``recalled`` or ``set``.
    date : str
        Of the source; prices move.
    source : str
    basis : str
        Of dollars an hour: ``capex`` (spread over 29,100 hours, no power, room or staff) or ``rent``. Of watts: ``gpu``
        (thermal design power of the GPU alone) or ``rack`` (its share of a rack). Else empty.
    """

    value: float
    status: str
    date: str
    source: str
    basis: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON has it."""
        return {name: getattr(self, name) for name in ("value", "status", "date", "source", "basis")}


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU of a system costs and draws; None where no figure is public."""

    usd_per_hour: Figure | None = None
    watts: Figure | None = None
    capex_usd: Figure | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        figures = {name: getattr(self, name) for name in ("usd_per_hour", "watts", "capex_usd")}
        return {name: figure and figure.to_dict() for name, figure in figures.items()}


@cache
def _table() -> dict[str, Price]:
    import yaml

    data = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {gpu: Price(**{name: _figure(entry) for name, entry in told.items()}) for gpu, told in data["gpus"].items()}


def _figure(entry: Mapping[str, Any]) -> Figure:
    basis = entry.get("basis", entry.get("of", ""))
    return Figure(float(entry["value"]), entry["status"], str(entry["date"]), entry["source"], basis)


def price_of(gpu: str | None) -> Price:
    """Return the price of a GPU by its model, such as ``B200 SXM``; one without figures if none is public.

    >>> capex = [price_of(gpu).capex_usd.value for gpu in ("Instinct MI355X", "B200 SXM")]
    >>> round(capex[0] / capex[1], 2)
    0.55
    """
    return _table().get(gpu or "", Price())


def with_own(
    prices: Mapping[str, Price],
    usd_per_hour: Mapping[str, Any],
    watts: Mapping[str, Any],
    faults: Faults,
    names: tuple[str, str] = ("price", "power"),
) -> dict[str, Price]:
    """Return the prices of systems by label, with figures that the caller says for some of them.

    Parameters
    ----------
    prices : mapping
        By the label of a system; the name in front of the changes of a label stands for all that begin with it.
    usd_per_hour, watts : mapping
        Of one GPU, numbers or texts of numbers.
    faults : Faults
        Takes unknown systems and what is no number from 0 on, at the places *names*.
    """
    found = dict(prices)
    for where, field, told in zip(names, ("usd_per_hour", "watts"), (usd_per_hour, watts), strict=True):
        for name, value in told.items():
            labels = _called(name, list(prices), where, faults)
            number = _number(value, where, name, faults)
            for label in labels if number is not None else ():
                figure = Figure(number or 0.0, OWN, "", f"--{where}")
                price = replace(found[label], **{field: figure})
                found[label] = price if where == names[1] else replace(price, capex_usd=None)
    return found


def _called(name: str, labels: Sequence[str], where: str, faults: Faults) -> list[str]:
    """Return the labels of systems that a name stands for."""
    found = [label for label in labels if name in (label, label.partition(",")[0].partition(" (")[0])]
    if not found:
        hint = f"{did_you_mean(name, labels)}name one of {', '.join(labels)}"
        faults.append(Fault(f'no system "{name}" is compared', where, hint))
    return found


def _number(value: Any, where: str, name: str, faults: Faults) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        example = "--price hgx_b200=2.50 (USD an hour)" if where == "price" else "--power hgx_b200=1000 (watts)"
        faults.append(Fault(f'"{value}" of {name} is no number from 0 on', where, f"of one GPU, such as {example}"))
        return None
    return number
