"""Costs of something that takes time on GPUs: dollars and joules, of it and of a terabyte that it moves."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.prices.prices import Price

__all__ = ["Cost", "cost_of"]

HOUR_S = 3600.0
TERA = 1e12


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one collective or step; None where no figure is known.

    Energy is that of GPUs at their thermal design power for all of the time, which is more than a collective draws.
    """

    usd: float | None
    joules: float | None
    usd_per_TB: float | None = None
    joules_per_TB: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Return the costs as JSON has them."""
        return {name: getattr(self, name) for name in ("usd", "joules", "usd_per_TB", "joules_per_TB")}


def cost_of(price: Price, gpus: int, time_s: float, moved_bytes: float = 0.0) -> Cost:
    """Return what *gpus* GPUs cost in *time_s*.

    Parameters
    ----------
    price : Price
        Of one GPU.
    moved_bytes : float
        What all of them together have to send: busbw times time times ranks, for all groups. 0: not known.

    Examples
    --------
    >>> from collsim.prices.prices import price_of
    >>> cost = cost_of(price_of("B200 SXM"), gpus=8, time_s=3600.0, moved_bytes=1e12)
    >>> round(cost.usd, 2), cost.joules / 3.6e6, cost.usd_per_TB == cost.usd
    (12.32, 8.0, True)
    """
    usd = None if price.usd_per_hour is None else price.usd_per_hour.value * gpus * time_s / HOUR_S
    joules = None if price.watts is None else price.watts.value * gpus * time_s
    terabytes = moved_bytes / TERA
    return Cost(usd, joules, _each(usd, terabytes), _each(joules, terabytes))


def _each(whole: float | None, terabytes: float) -> float | None:
    return whole / terabytes if whole is not None and terabytes else None
