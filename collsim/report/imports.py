"""An import as text for people and as JSON: what was read, what was assumed and why, and the nearest shipped system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from collsim.report.data import json_text

if TYPE_CHECKING:
    from collsim.importing import ImportedTopology

__all__ = ["import_json", "import_text"]

MOST_NAME = 28


def import_json(found: ImportedTopology) -> str:
    """Return the document of schema ``collsim.import/1``."""
    return json_text(found.to_dict())


def import_text(found: ImportedTopology, written: str | None = None) -> str:
    """Return an import in words; *written* is the file that the topology was written to."""
    lines = [f"# {found.file}: {found.format}", *(f"read     {line}" for line in found.read)]
    if found.assumed:
        width = min(max(len(each.what) for each in found.assumed), MOST_NAME)
        for each in found.assumed:
            reason = f"{each.status}: {each.source}" if each.source else each.status
            lines.append(f"assumed  {each.what:<{width}}  {each.value}  ({reason})")
    lines += [f"note     {note}" for note in found.notes]
    lines += _next(found, written)
    return "".join(f"{line}\n" for line in lines)


def _next(found: ImportedTopology, written: str | None) -> Iterator[str]:
    """Yield the nearest system, and what can be done now."""
    if not found.yaml:
        yield "nearest  none: the file holds no machine, so that no topology is written"
        return
    yield (
        f"nearest  {found.nearest}: {found.difference}"
        if found.nearest
        else "nearest  none: one GPU, of an unknown kind"
    )
    if written is not None:
        yield f"wrote    {written}: collsim run --topo {written} --op all_reduce"
