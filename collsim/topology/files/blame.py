"""Who is to blame for a fault of a file that comes with collsim: what its user put on top of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from collsim.core.errors import Fault
from collsim.topology.files.extending import OWN
from collsim.topology.files.reader import Document, Path, show_path

__all__ = ["blamed"]


def blamed(faults: Iterable[Fault], document: Document, shipped: Collection[str]) -> list[Fault]:
    """Return *faults*, those of *shipped* files at what was put on top of them.

    A shipped file is sound by itself, so what is wrong with it comes of a setting, or of the file that extends it. Of
    several figures nobody knows which one is to blame: the line that names the shipped file stands for them.
    """
    return [_moved(fault, document) if fault.where.partition(":")[0] in shipped else fault for fault in faults]


def _moved(fault: Fault, document: Document) -> Fault:
    about = fault.where.rpartition(": ")[2]
    there = (*document.lines, *document.origins)
    if all(about not in {show_path(path), show_path(path[:1])} for path in there):
        return fault  # it is missing: nothing that was given is to blame
    given = _given(document)
    choice: list[Path] = given if len(given) == 1 else [("extends",), ("scale_out", "node")]
    path = next((path for path in choice if path in document.lines or path in document.origins), None)
    if path is None or (document.file == fault.where.partition(":")[0] and path not in document.origins):
        return fault
    hint = f"{fault.hint}; this is about {fault.where}".removeprefix("; ")
    return replace(fault, where=document.where(path), hint=hint)


def _given(document: Document) -> list[Path]:
    """Return the figures that settings give; without any, those that the file has itself."""
    settings = [path for path, place in document.origins.items() if place.startswith("--set")]
    own = [path for path in document.lines if path and path[0] not in OWN and len(path) <= 2]
    return settings or [path for path in own if not any(path == other[:-1] for other in own) and path[-1] != "node"]
