"""The place of a table in a page: what stands between two markers."""

from __future__ import annotations

from pathlib import Path

__all__ = ["put_between"]


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace what *page* has between the markers *begin* and *end*; exits if it lacks them."""
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{page.name} lacks the markers {begin.strip()} and {end.strip()}")
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
