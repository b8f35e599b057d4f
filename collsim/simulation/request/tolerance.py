"""Tolerance for irregular traffic, as a caller writes it and as a reader sees it.

This module imports only `units` and `errors`.
"""

from __future__ import annotations

from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.core.units import parse_fraction

__all__ = ["AUTO", "parse_tolerance", "percent"]

AUTO = "auto"
MOST = 0.1
"""Times were off by up to 7 % at 5 %; what is coarser than 10 % says nothing."""
HINT = "give auto, 0 for exact, or a part up to 10%, such as 1%"


def parse_tolerance(value: Any) -> float | None:
    """Return a tolerance; None for ``auto``, which is exact unless that takes too long.

    Raises
    ------
    InputError
        It is none.

    Examples
    --------
    >>> parse_tolerance("1%"), parse_tolerance(0.02), parse_tolerance("0"), parse_tolerance("auto")
    (0.01, 0.02, 0.0, None)
    """
    if value is None or (isinstance(value, str) and value.strip().lower() == AUTO):
        return None
    try:
        share = parse_fraction(value, "tolerance", allow_zero=True)
    except InputError as error:
        raise InputError(
            *(Fault(fault.what.replace("fraction", "tolerance", 1), "tolerance", HINT) for fault in error.faults)
        ) from None
    if share > MOST:
        raise InputError(Fault(f"a tolerance of {percent(share)}", "tolerance", HINT))
    return share


def percent(share: float) -> str:
    """Return a share for people.

    >>> percent(0.01), percent(0.00123), percent(0.0), percent(1.234)
    ('1%', '0.12%', '0%', '123%')
    """
    return f"{share * 100:.0f}%" if share >= 1 else f"{share * 100:.2g}%"
