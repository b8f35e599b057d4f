"""An import as text for people: what was read, what was assumed and why, and the nearest shipped system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["import_text"]

MOST_NAME = 28


def import_text(found: dict[str, Any], written: str | None = None) -> str:
    """Return an import, as of `collsim.import_topology(...).to_dict()`, in words.

    *written* is the file that the topology was written to.
    """
    lines = [f"# {found['file']}: {found['format']}", *(f"read     {line}" for line in found["read"])]
    assumed = found["assumed"]
    width = min(max((len(each["what"]) for each in assumed), default=0), MOST_NAME)
    for each in assumed:
        reason = f"{each['status']}: {each['source']}" if each["source"] else each["status"]
        lines.append(f"assumed  {each['what']:<{width}}  {each['value']}  ({reason})")
    lines += [f"note     {note}" for note in found["notes"]]
    lines += _next(found, written)
    return "".join(f"{line}\n" for line in lines)


def _next(found: dict[str, Any], written: str | None) -> Iterator[str]:
    """Yield the nearest system, and what can be done now."""
    if not found["yaml"]:
        yield "nearest  none: the file holds no machine, so that no topology is written"
        return
    near = f"{found['nearest']}: {found['difference']}" if found["nearest"] else "none: one GPU, of an unknown kind"
    yield f"nearest  {near}"
    if written is not None:
        yield f"wrote    {written}: collsim run --topo {written} --op all_reduce"
