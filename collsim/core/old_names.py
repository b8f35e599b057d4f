"""Names of before, which answer for one version more and say what is asked instead."""

from __future__ import annotations

import warnings
from collections.abc import Container
from typing import Any

__all__ = ["OLD_ARGUMENTS", "OldName", "current_name", "old_name", "warn_of"]

OLD_ARGUMENTS = {"placement": "expert_placement", "groups": "expert_groups", "tolerance": "margin"}
"""Arguments that were called otherwise where the old name means something else now, or nothing."""

REMOVED_IN = "0.2"


class OldName(DeprecationWarning):
    """Something was asked for by a name of before."""


def current_name(name: str, known: Container[str], depth: int = 2) -> str:
    """Return the argument of *known* that *name* means, and warn if that is the name of before.

    >>> current_name("placement", ["placement", "groups"]), current_name("place", ["expert_placement"])
    ('placement', 'place')
    """
    new = OLD_ARGUMENTS.get(name, name)
    if name in known or new not in known or name == new:
        return name
    warn_of(name, new, depth + 1)
    return new


def warn_of(old: str, new: str, depth: int = 2) -> None:
    """Warn the caller of *depth* functions up that *old* is now *new*."""
    told = f"{old} is now {new}; the old name goes in {REMOVED_IN}"
    warnings.warn(told, OldName, stacklevel=depth + 1)


def old_name(old: str, new: str) -> Any:
    """Return a property that has what *new* has, and warns.

    >>> class Row:
    ...     limited_by = "links"
    ...     limit = old_name("limit", "limited_by")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     Row().limit, str(told[0].message)
    ('links', 'limit is now limited_by; the old name goes in 0.2')
    """

    def value(owner: Any) -> Any:
        warn_of(old, new)
        return getattr(owner, new)

    return property(value, doc=f"`{new}` under its old name.")
