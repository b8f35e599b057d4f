"""Objects whose attributes are made when one of them is first read, since of a large machine they seldom are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

__all__ = ["Later"]


class Later:
    """What a frozen class with slots mixes in, with a slot ``_make``, to leave some of its attributes for later."""

    __slots__ = ()

    @classmethod
    def later(cls, make: Callable[[], Mapping[str, Any]], **known: Any) -> Self:
        """Return an object of which some attributes are *known* and *make* returns the others."""
        made = cls.__new__(cls)
        for name, value in {"_make": make, **known}.items():
            object.__setattr__(made, name, value)
        return made

    def __getattr__(self, name: str) -> Any:
        """Make everything that is not there yet."""
        if name.startswith("_"):
            raise AttributeError(name)
        for other, value in self._make().items():
            object.__setattr__(self, other, value)
        return object.__getattribute__(self, name)
