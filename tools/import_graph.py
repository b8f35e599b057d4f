"""Prints how the packages of collsim import each other: rooms, floors, arrows between rooms, and circles.

A room is a package at the top of collsim, a floor a layer of the contract in pyproject.toml. Imports inside functions
count, those that only a type checker sees do not. Run ``python tools/import_graph.py``.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = "collsim"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

Edge = tuple[str, str]
"""Who imports whom."""


class House(NamedTuple):
    """The import graph as a reader walks it."""

    floors: list[list[str]]
    """Rooms of each floor, the highest first."""
    edges: list[Edge]
    """Imports between modules of different rooms."""
    arrows: list[Edge]
    """Pairs of rooms, the importing one first."""
    upward: list[Edge]
    """Imports of a module on a higher floor, or of another room on the same one."""
    circles: list[list[str]]
    """Modules of one room that all need each other, whichever is imported first."""


def house() -> House:
    """The import graph of the package that Python finds."""
    graph = grimp.build_graph(ROOT, exclude_type_checking_imports=True, cache_dir=None)
    edges = sorted((a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a))
    floors = _floors()
    level = {room: number for number, rooms in enumerate(floors) for room in rooms}
    between = [(a, b) for a, b in edges if _room(a) != _room(b) and {_room(a), _room(b)} <= set(level)]
    arrows = sorted({(_room(a), _room(b)) for a, b in between})
    upward = [(a, b) for a, b in between if level[_room(a)] >= level[_room(b)]]
    return House(floors, between, arrows, upward, sorted(_circles(edges)))


def _floors() -> list[list[str]]:
    """Rooms of each floor, as the contract over the whole package has them."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == [ROOT])
    return [layer.split(" | ") for layer in layers]


def _room(module: str) -> str:
    """The package at the top that a module is of."""
    return module.split(".")[1] if "." in module else ""


def _circles(edges: Iterable[Edge]) -> Iterator[list[str]]:
    """Yield the modules that need each other inside a room; a package and what it holds are different modules."""
    following: dict[str, set[str]] = {}
    for a, b in edges:
        if _room(a) == _room(b):
            following.setdefault(a, set()).add(b)
    reached = {module: _reached(module, following) for module in following}
    seen: set[str] = set()
    for module in sorted(reached):
        if module in reached[module] and module not in seen:
            circle = sorted(other for other in reached[module] if module in reached.get(other, ()))
            seen.update(circle)
            yield circle


def _reached(module: str, following: dict[str, set[str]]) -> set[str]:
    """Everything that a module needs, directly or not."""
    found: set[str] = set()
    todo = [module]
    while todo:
        new = following.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def main() -> None:
    """Print the graph."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    found = house()
    for number, rooms in enumerate(found.floors):
        print(f"floor {len(found.floors) - number}: {', '.join(rooms)}")
    print(f"{sum(map(len, found.floors))} rooms on {len(found.floors)} floors")
    print(f"{len(found.arrows)} arrows between rooms: pairs of rooms, some module of one importing one of the other")
    print(f"{len(found.edges)} imports between modules of different rooms")
    print(f"{len(found.upward)} imports upward" + "".join(f"\n  {a} -> {b}" for a, b in found.upward))
    print(f"{len(found.circles)} circles inside rooms" + "".join(f"\n  {', '.join(each)}" for each in found.circles))


if __name__ == "__main__":
    main()
