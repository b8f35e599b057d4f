"""Progress of long work: loops tell how far they are, to whoever listens; without a listener nothing happens.

Of loops within loops the outermost tells. A listener may ask that an interruption leaves what is done by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["INTERRUPTED", "interrupted", "keeps_done", "listening", "steps"]

Item = TypeVar("Item")
Listener = Callable[[str, int, int], None]
"""Called with what is done, how many of them are, and how many there are."""
INTERRUPTED = "interrupted before it was answered"
"""What is said of the part of a request that an interruption left out."""


class _State:
    listener: Listener | None = None
    telling = False
    keeps_done = False
    interrupted = False


def steps(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield *items*, and tell after each how many are done; *what* they are, in one word.

    >>> with listening(lambda what, done, of: print(what, done, "of", of)):
    ...     list(steps([3, 4], "rows"))
    rows 0 of 2
    rows 1 of 2
    rows 2 of 2
    [3, 4]
    """
    listener = None if _State.telling else _State.listener
    if listener is None:
        yield from items
        return
    _State.telling = True
    try:
        listener(what, 0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            listener(what, done, len(items))
    finally:
        _State.telling = False


def keeps_done() -> bool:
    """Return True if an interruption is to leave what is done; only the first one, as a second ends everything."""
    kept, _State.keeps_done = _State.keeps_done, False
    _State.interrupted |= kept
    return kept


def interrupted() -> bool:
    """Return True if an answer that is under way was interrupted, so that nothing else is to be started."""
    return _State.interrupted


@contextmanager
def listening(listener: Listener | None, *, keeps_done: bool = False) -> Iterator[None]:
    """Pass on to *listener* what `steps` tell; *keeps_done*: answers that are interrupted hold what is done."""
    before = _State.listener, _State.telling, _State.keeps_done, _State.interrupted
    _State.listener, _State.telling, _State.keeps_done, _State.interrupted = listener, False, keeps_done, False
    try:
        yield
    finally:
        _State.listener, _State.telling, _State.keeps_done, _State.interrupted = before
