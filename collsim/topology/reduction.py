"""The names of what switches can reduce with."""

from __future__ import annotations

from typing import Any

from collsim.core.errors import Fault, InputError, nearest

__all__ = ["REDUCERS", "reduction_name"]

REDUCERS = ("NVLS", "SHARP")
"""NVLink SHARP, whose library support is modelled too, and any other switch that adds and multicasts."""
NOTHING = ("none", "no", "off", "false")


def reduction_name(value: Any) -> str | None:
    """Return one of `REDUCERS`, in any case, or None for one of `NOTHING`, None and False.

    Raises
    ------
    InputError
        For any other value, with the nearest name.

    Examples
    --------
    >>> reduction_name("nvls"), reduction_name("off")
    ('NVLS', None)
    >>> reduction_name("NVSL")
    Traceback (most recent call last):
    collsim.core.errors.InputError: unknown in-network reduction "NVSL"
      hint: did you mean "NVLS"? known: NVLS, SHARP, none
    """
    if value is None or value is False:
        return None
    if not isinstance(value, str) or len(value) > 40:
        hint = f"write {' or '.join(REDUCERS)}, or none"
        raise InputError(Fault("in_network_reduction is a name or none", "", hint))
    key = value.strip().lower()
    if key in NOTHING:
        return None
    known = {name.lower(): name for name in REDUCERS}
    if key in known:
        return known[key]
    near = nearest(key, [*known, *NOTHING])
    hint = f'did you mean "{known.get(near, near)}"? ' if near else ""
    raise InputError(Fault(f'unknown in-network reduction "{value}"', "", f"{hint}known: {', '.join(REDUCERS)}, none"))
