"""What calls have in common, kept between them: a bounded memory of values that never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Kept"]

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, at most *most* of them: the one that was not asked for the longest goes first.

    A key says everything that a value follows from. Where that is an object, the entry holds it, so that its `id` stays
    its own.

    Examples
    --------
    >>> squares = Kept(2)
    >>> [squares.get(n, lambda: n * n) for n in (3, 4, 3)], len(squares)
    ([9, 16, 9], 2)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._entries: OrderedDict[Hashable, tuple[T, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, key: Hashable, make: Callable[[], T], *, holds: Any = None, worth: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Return the value of *key*, made if it is not there; *holds* lives as long as the entry.

        A value that is not *worth* it is not kept.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        value = make()  # may raise, and may take long: others are not kept waiting
        if not worth(value):
            return value
        with self._lock:
            self._entries[key] = (value, holds)
            while len(self._entries) > self.most:
                self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
