"""Every number of the data files: whether a recorded figure moves if it is another, and which numbers no figure sees.

    python tools/data_leaves.py                         # all of them: an hour
    python tools/data_leaves.py --only prices --rooms planning --number 20 --seed 3

A leaf is a number of a file below ``collsim`` or ``topologies``. One at a time it is made a tenth larger, an integer
at least one, and the figures of ``tests/golden/figures`` that read the file are made again, those first that saw a
neighbour of the leaf, until one moves. What is printed is seen by no figure: it is dead, or a figure is missing. The
files themselves stay as they are: their text is replaced where it is read.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import pathlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from typing import Any
from unittest import mock

import yaml
from golden_figures import ROOT, Block, Room, moved, rooms

KEYS_OF_PROVENANCE = {"source", "note", "notes", "date", "title", "status", "fit", "what", "measure", "fix", "name"}
"""Texts beside figures; their numbers are no figures."""
COUNTS = {"rows", "logs", "median", "p90", "low", "high"}
"""What a profile says of its own fit: shown, not computed with."""
VALUE = re.compile(r"^([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)( ?(?:[kMGT]?i?B/s|[GMT]b/s|us|ns|ms|s|m|B|%))?$")


@dataclass(frozen=True)
class Leaf:
    """A number of a file: its keys, where it stands in the text, and the text that it is to become."""

    file: pathlib.Path
    keys: tuple[str, ...]
    begin: int
    end: int
    other: str

    @property
    def name(self) -> str:
        """The file and the keys."""
        return f"{self.file.relative_to(ROOT)}: {'.'.join(self.keys)}"


def data_files() -> list[pathlib.Path]:
    """The files with figures that ship."""
    return sorted([*(ROOT / "collsim").rglob("*.yaml"), *(ROOT / "topologies").rglob("*.yaml")])


def leaves(file: pathlib.Path) -> list[Leaf]:
    """The numbers of a file, with units or without, in its order; those of provenance are left out."""
    found: list[Leaf] = []
    _collect(file, yaml.compose(file.read_text(encoding="utf-8")), (), found)
    return found


def _collect(file: pathlib.Path, node: Any, keys: tuple[str, ...], found: list[Leaf]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value not in KEYS_OF_PROVENANCE:
                _collect(file, value, (*keys, str(key.value)), found)
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            _collect(file, value, (*keys, str(place)), found)
    elif isinstance(node, yaml.ScalarNode) and (number := VALUE.match(node.value)):
        other = _other(number[1]) + (number[2] or "")
        quote = file.read_text(encoding="utf-8")[node.start_mark.index]
        text = f"{quote}{other}{quote}" if quote in "'\"" else other
        found.append(Leaf(file, keys, node.start_mark.index, node.end_mark.index, text))


def _other(text: str) -> str:
    """Another number: a tenth more, and of an integer at least one."""
    if re.fullmatch(r"[-+]?\d+", text):
        return str(int(text) + max(1, abs(int(text)) // 10))
    return f"{float(text) * 1.1 or 0.1:.6g}"


def forget() -> None:
    """Empty what is kept between calls: the functions that remember, and the memories of the package."""
    from collsim.core.kept import Kept

    for module in [module for name, module in sys.modules.items() if name.startswith("collsim")]:
        for thing in vars(module).values():
            if isinstance(thing, _lru_cache_wrapper):
                thing.cache_clear()
            elif isinstance(thing, Kept):
                thing.clear()


def _shipped(path: pathlib.Path) -> tuple[str, ...]:
    """What a file is called in the tree and where the package is installed alike: its folders from the last root on."""
    parts = path.parts
    roots = [place for place, part in enumerate(parts[:-1]) if part in ("topologies", "collsim")]
    return parts[max(roots, default=0) :]


@contextlib.contextmanager
def reading(replaced: dict[pathlib.Path, str], seen: Callable[[pathlib.Path], None]) -> Iterator[None]:
    """Let files be read with another text, and tell of each that is read."""
    real, texts = io.open, {_shipped(path): text for path, text in replaced.items()}

    def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str | pathlib.Path) and str(file).endswith(".yaml") and "w" not in mode:
            path = pathlib.Path(file).resolve()
            seen(path)
            if (text := texts.get(_shipped(path))) is not None:
                return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)
        return real(file, mode, *arguments, **named)

    with mock.patch("io.open", opened):
        yield


Case = tuple[Room, Block]


def readers(names: list[str]) -> dict[pathlib.Path, list[Case]]:
    """The figures that read a file, of all rooms or of those with these names."""
    found: dict[pathlib.Path, list[Case]] = {}
    for room in rooms(names):
        for block in room.blocks if room.path.stem != "data" else ():
            files: set[pathlib.Path] = set()
            forget()
            with reading({}, files.add):
                room.now(block)
            for file in files:
                found.setdefault(file, []).append((room, block))
    return found


def seen_by(leaf: Leaf, cases: list[Case]) -> Case | None:
    """The first figure that moves with another number, or that is refused."""
    text = leaf.file.read_text(encoding="utf-8")
    changed = text[: leaf.begin] + leaf.other + text[leaf.end :]
    with reading({leaf.file: changed}, lambda _: None):
        for room, block in cases:
            forget()
            try:
                now = room.now(block)
            except Exception:  # a file that cannot be read any more has been seen
                return room, block
            if moved(block.lines, now):
                return room, block
    return None


def unseen(asked: list[Leaf], files: dict[pathlib.Path, list[Case]]) -> list[Leaf]:
    """Leaves that no figure sees."""
    missed: list[Leaf] = []
    for leaf in asked:
        cases = files.get(leaf.file, [])
        case = seen_by(leaf, cases)
        if case is None:
            missed.append(leaf)
            print(f"unseen by {len(cases)} figures: {leaf.name}", flush=True)
        else:
            cases.remove(case)
            cases.insert(0, case)  # neighbours are likely to be seen there as well
    return missed


def main() -> int:
    """Print what is unseen; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--rooms", default="", help="figures of these rooms only, with commas between")
    parser.add_argument("--number", type=int, help="so many leaves of each file, drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-words", action="store_true", help="also what profiles say of their own fit")
    asked = parser.parse_args()
    drawn = random.Random(asked.seed)
    files, total, missed = readers([name for name in asked.rooms.split(",") if name]), 0, 0
    for file in [file for file in data_files() if asked.only in str(file.relative_to(ROOT))]:
        found = [leaf for leaf in leaves(file) if asked.own_words or not COUNTS & set(leaf.keys)]
        chosen = found if asked.number is None else drawn.sample(found, min(asked.number, len(found)))
        total += len(chosen)
        missed += len(unseen(chosen, files))
    print(f"{total - missed} of {total} numbers are seen by a figure")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
