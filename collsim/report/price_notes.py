"""Lines on prices: what each system costs and draws, from where, and what that leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from collsim.prices import Figure, Price

__all__ = ["price_lines"]


def price_lines(prices: Mapping[str, Price]) -> list[str]:
    """Return a line for each system, and what dollars and joules hold."""
    first = next(iter(prices.values()))
    lines = []
    for label, price in prices.items():
        parts = [_dollars(price, first if price is not first else None), _watts(price)]
        lines.append(f"{label}: {'; '.join(parts)}")
    bases = {price.usd_per_hour.basis for price in prices.values() if price.usd_per_hour}
    if len(bases - {""}) > 1:
        lines.append("capex and rent are not the same thing: --price NAME=USD takes one for all")
    if "capex" in bases:
        lines.append("capex: the price of the cluster over 29,100 hours, without power, room and staff")
    lines.append("cost and energy: of all GPUs that take part, for the time of the call; energy at the power stated")
    return lines


def _dollars(price: Price, first: Price | None) -> str:
    if price.usd_per_hour is None:
        return "no public price"
    told = f"{price.usd_per_hour.value:.2f} USD/h per GPU ({_from(price.usd_per_hour)})"
    if price.capex_usd is not None:
        told += f", capex {price.capex_usd.value:,.0f} USD"
        if first is not None and first.capex_usd is not None:
            told += f", {price.capex_usd.value / first.capex_usd.value:.2f} of the first"
    return told


def _watts(price: Price) -> str:
    if price.watts is None:
        return "no public power"
    whole = " with its share of the rack" if price.watts.basis == "rack" else ""
    return f"{price.watts.value:,.0f} W per GPU{whole} ({_from(price.watts)})"


def _from(figure: Figure) -> str:
    return ", ".join(
        filter(
            None, [figure.basis if figure.basis in ("capex", "rent") else "", figure.status, figure.source, figure.date]
        )
    )
