"""Pages of text on a screen: sentences are wrapped, and rows of tables that are too long lose their right end."""

from __future__ import annotations

import re
import textwrap

__all__ = ["on_screen"]

LEAST_CELL = 24
"""A last cell is wrapped in its column if that has so many characters left."""
CUT = "# ...: cut to the screen; a file or a pipe has all of it"


def on_screen(text: str, width: int | None) -> str:
    r"""Return a page with no line longer than *width*; None: as it is.

    >>> print(on_screen("# a sentence that is longer\n1    2  a cell of words\n", 20), end="")
    # a sentence that is
    #   longer
    1    2  a cell of...
    # ...: cut to the
    #   screen; a file
    #   or a pipe has
    #   all of it
    """
    if width is None or all(len(line) <= width for line in text.splitlines()):
        return text
    lines = [part for line in text.splitlines() for part in _fitted(line, width)]
    if any(line.endswith("...") for line in lines if line not in text):
        lines += _wrapped(CUT, "# ", "#   ", width)
    return "\n".join(lines) + "\n"


def _fitted(line: str, width: int) -> list[str]:
    """Return a line as those that fit."""
    if len(line) <= width:
        return [line]
    lead = re.match(r"(#? *)", line)
    assert lead is not None
    start, cells = lead[1], list(re.finditer(r"\S {2,}(?=\S)", line))
    if not cells:
        return _wrapped(line, start, f"{start}  ", width)
    place = cells[-1].end()
    if " " in line[place:] and width - place >= LEAST_CELL:  # the last cell is a sentence
        mark = start[:1].strip()
        return _wrapped(line[place:], line[:place], f"{mark:<{place}}", width)
    return [f"{line[: width - 3]}..."]


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    own = text[len(first) :] if text.startswith(first) else text
    return textwrap.wrap(own, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
