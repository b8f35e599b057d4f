"""Objects whose attributes are made when one of them is first read, since of a large machine they seldom are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

__all__ = ["Later"]


class Later:
    """Base class before a frozen data class with slots, to make some of its attributes when one is first read.

    A class of both has a slot ``_make``. Copies, as of `dataclasses.replace`, are of the data class itself.
    """

    __slots__ = ()

    def __new__(cls, **values: Any) -> Any:
        """Return an object of the data class."""
        return cls.__bases__[-1](**values)

    @classmethod
    def later(cls, make: Callable[[], Mapping[str, Any]], **known: Any) -> Self:
        """Return an object of which some attributes are *known* and *make* returns the others."""
        made = object.__new__(cls)
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the class and the values that a copy is made from."""
        own: Any = type(self).__bases__[-1]
        return own, tuple(getattr(self, name) for name in own.__match_args__)
