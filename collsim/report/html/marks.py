"""Marks of a page: cards, tables, figures, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card", "cards", "figure", "legend", "table", "time_words"]

LONG = 24
"""Characters of text that has more than one line in a cell, if need be."""


def card(title: str, value: str, more: str = "", *, hot: bool = False) -> str:
    """Return a card: a figure with what it is above and what to know of it below."""
    words = ' class="words"' if len(value) > 16 else ""
    look = "card hot" if hot else "card"
    below = f"<small>{escape(more)}</small>" if more else ""
    return f'<div class="{look}"><small>{escape(title)}</small><b{words}>{escape(value)}</b>{below}</div>'


def cards(all_cards: Iterable[str]) -> str:
    """Return cards side by side."""
    return f'<div class="cards">{"".join(all_cards)}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: Iterable[int] = ()) -> str:
    """Return a table; columns *words* hold text, the others numbers."""
    left = set(words)

    def cells(tag: str, texts: Sequence[str]) -> str:
        looks = (_look(texts[i]) if i in left else "" for i in range(len(texts)))
        return "".join(f"<{tag}{look}>{escape(text)}</{tag}>" for look, text in zip(looks, texts, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def _look(text: str) -> str:
    return ' class="w long"' if len(text) > LONG else ' class="w"'


def figure(svg: str, caption: str) -> str:
    """Return a picture with a line below it."""
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def legend(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return what marks of a picture mean: class of the colour, class of the mark, and words."""
    told = (f'<span class="{colour}"><i class="{mark}"></i>{escape(text)}</span>' for colour, mark, text in entries)
    return f'<p class="legend">{" ".join(told)}</p>'


def time_words(time_s: float) -> str:
    """Return a time as people say it.

    >>> time_words(3.0327e-4), time_words(0.0050348), time_words(2.5e-6)
    ('303.3 us', '5.035 ms', '2.500 us')
    """
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if time_s * factor < 1e3:
            return f"{time_s * factor:#.4g} {unit}"
    return f"{time_s:#.4g} s"
