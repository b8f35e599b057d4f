"""Figures of many commands, room by room, as they were and as they are: a net below the tests that know what is right.

    python tools/golden_figures.py             # what differs from the recorded figures
    python tools/golden_figures.py --write     # record them anew, after a change that is meant to move them
    python tools/golden_figures.py run moe     # of these rooms only

Each file of ``tests/golden/figures`` belongs to a room. A line ``$ ARGUMENTS`` is a command of collsim, with steps in
one folder behind `` ;; ``; ``cat FILE`` is a step that shows a file, ``python: EXPRESSION`` one that shows a value. The
lines below are what came of it: a column of numbers and words each, ``value*3`` for three equal ones in a row. Of prose
the numbers and their units are kept, and in front of them a sum of its words, ``'1a2b``. Commands run in this process,
in an empty folder beside links to the examples and to ``tests``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import dataclasses
import importlib
import inspect
import io
import json
import math
import os
import pathlib
import pkgutil
import re
import shlex
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeGuard
from unittest import mock

from variations import NUMBER, bent, of_text, over, plain, pruned, reshaped, reworded, summed, varied

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "tests" / "golden" / "figures"
LINKED = ("examples", "tests", "topologies")
UNIT = r"(?:(?<=\d)|(?<=\d ))(?:(?:[kMGT]i?)?B/s|[MG]b/s|(?:[kMGT]i?)?B|[num]?s|USD|kJ|%)(?![\w/])"
HEADING = r"(?<=\()[A-Za-z/%1]{1,6}(?=\))"
FIGURE = re.compile(f"({UNIT}|{HEADING})|{NUMBER.pattern}")
"""What is kept of prose as it is: numbers, and units behind them or in the brackets of a heading."""
RULE = re.compile(r"([^\w\s])\1{2,}")
"""What is as long as a table is wide."""
LEFT_OUT = re.compile(r"(^|[._])(sha256|collsim|source|file|version|python|schema)($|[._])")
"""Columns about the code and the files, not about what was asked."""
WORD = 80
"""Characters of a word that is kept as it is, if it has no blank."""
LONGEST = 80
"""Values of a column that are all kept; of more, their number and a sum that tells every change."""
CLOSE = 2e-5
NOTHING = 1e-14
"""Below it a number is nothing: rounding errors, in seconds and shares."""

PLACES = ("sha256", "source", "where", "note", "notes", "collsim", "version", "facts", "labels", "provenance")
"""Keys of what says where figures come from, which changes with the files alone."""
ADDRESS = r" at 0x[0-9a-f]+"

TOLD = ("error", "warning", "  hint", "below")
"""How lines of stderr begin that say what is wrong; others say how far the work is."""

PROVENANCE = ("source", "sources", "note", "notes", "date", "title", "status", "fit", "what", "measure", "fix", "means")
"""Keys of texts about figures, whose numbers are none."""
CHOICE_SIZES = tuple(2**power for power in range(8, 31, 2))

Value = float | str


@dataclass
class Block:
    """A recorded command and the lines below it."""

    command: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Room:
    """A file of figures: what stands above the first command, then the commands."""

    path: pathlib.Path
    head: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def keep(self) -> re.Pattern[str] | None:
        """Columns that are recorded, if the head names them: ``# keep: PATTERN``."""
        found = self._told("keep")
        return re.compile(found) if found else None

    @property
    def longest(self) -> int:
        """Values of a column that are recorded one by one: ``# longest: 20``."""
        return int(self._told("longest") or LONGEST)

    def _told(self, word: str) -> str:
        found = [line.partition(":")[2].strip() for line in self.head if line.startswith(f"# {word}:")]
        return found[0] if found else ""

    def now(self, block: Block) -> list[str]:
        """The lines of a command of this room as they are now."""
        return recorded(block.command, self.keep, self.longest)

    def text(self) -> str:
        """The file as it should be."""
        parts = ["\n".join(self.head)] if self.head else []
        parts += ["\n".join([f"$ {block.command}", *block.lines]) for block in self.blocks]
        return "\n\n".join(parts) + "\n"


def read_room(path: pathlib.Path) -> Room:
    """The recorded figures of one file."""
    room = Room(path)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            room.blocks.append(Block(line[2:]))
        elif line and room.blocks:
            room.blocks[-1].lines.append(line)
        elif line:
            room.head.append(line)
    return room


def rooms(names: Sequence[str] = ()) -> list[Room]:
    """All files of figures, or those called so."""
    return [read_room(path) for path in sorted(FIGURES.glob("*.txt")) if not names or path.stem in names]


def called(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command of collsim, run in this process."""
    from collsim import cli

    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["collsim", *arguments]
    width = mock.patch.dict(os.environ, {"COLUMNS": "80"})
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), width:
            cli.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def evaluated(expression: str) -> str:
    """What an expression of Python gives, which calls functions by their full names: JSON if it is data."""
    for name in re.findall(r"collsim(?:\.[a-z_]+)+", expression):
        with contextlib.suppress(ImportError):
            importlib.import_module(name.rpartition(".")[0])
    value = eval(expression, {"collsim": importlib.import_module("collsim"), **{each.__name__: each for each in OWN}})
    return value if isinstance(value, str) else json.dumps(value, default=plain)


def figures_of(file: str) -> dict[str, list[str]]:
    """The values of a data file a second time, by the keys above them, each with its own; none of sources and notes."""
    import yaml

    text = (ROOT / file).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    _numbers(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), (), found)
    return found


def _numbers(data: Any, keys: tuple[str, ...], found: dict[str, list[str]]) -> None:
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            if key not in PROVENANCE:
                _numbers(value, (*keys, str(key)), found)
    elif data is not None:
        told = "".join(f"{key}=" for key in keys[-2:]) + str(data)
        found.setdefault(".".join(keys[:-2]) or "all", []).append(re.sub(r"\s", "_", told).replace("*", "^"))


def choices(topo: str, library: str, nodes: int = 1, redop: str = "sum", **variables: str) -> dict[str, Any]:
    """What a library would do for every operation at sizes that are a factor of four apart, and what it weighs."""
    from collsim.core.operations import OPERATIONS
    from collsim.library import read_environment, system_of
    from collsim.topology import load_topology

    topology = load_topology(topo, {"scale_out.nodes": str(nodes)} if nodes > 1 else {})
    setting = (system_of(topology), library, read_environment(variables))
    found: dict[str, Any] = {}
    for op in sorted({*OPERATIONS} - {"all_to_all_v"}):
        asked = {"op": op, "n_ranks": topology.n_gpus, "n_nodes": nodes, "redop": redop if "reduce" in op else "sum"}
        found[op] = [_choice({**asked, "size_bytes": size_bytes}, setting) for size_bytes in CHOICE_SIZES]
    return found


def _choice(asked: dict[str, Any], setting: tuple[Any, str, Any]) -> Any:
    from collsim.core.errors import CollsimError
    from collsim.library import Call, choose

    try:
        found = choose(Call(**asked), *setting)
    except CollsimError:
        return "refused"
    taken = [found.algo, found.proto, found.channels, found.threads, found.chunk_bytes, found.slices, found.slots]
    weighed = [(each.latency_s * 1e6, each.bandwidth_Bps / 1e9) for each in found.candidates]
    messages = found.point_to_point
    return [taken, found.channel_GBps, found.efficiency, weighed, messages and dataclasses.astuple(messages)]


def declared(room: str) -> dict[str, list[Any]]:
    """The constants of the modules of a room, and the defaults of functions, methods and records, a second time."""
    package = importlib.import_module(f"collsim.{room}")
    names = [package.__name__, *(each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))]
    found: dict[str, list[Any]] = {}
    for name in names:
        module = importlib.import_module(name)
        own = {each.id for each in ast.walk(ast.parse(inspect.getsource(module))) if _is_set(each)}
        for key, value in vars(module).items():
            place = f"{name}.{key}".removeprefix("collsim.")
            if key.strip("_").isupper() and key in own:
                found[place] = [_told(value)]
            elif getattr(value, "__module__", None) == name:
                inside = vars(value).items() if isinstance(value, type) else ()
                methods = {f"{place}.{key}": each for key, each in inside if not key.startswith("__")}
                members = [pair for pair in methods.items() if getattr(pair[1], "__module__", None) == name]
                found |= {key: told for key, each in [(place, value), *members] if (told := _defaults(each))}
    return found


def _is_set(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _defaults(value: Any) -> list[Any]:
    """Defaults of a function, ``name=`` where only the name may be given, or of a record with what was asked of it."""
    asked = getattr(value, "__dataclass_params__", None)
    fields = (
        [each for each in dataclasses.fields(value) if not (each.compare and each.repr and each.init)] if asked else []
    )
    apart = [[each.name, each.compare, each.repr, each.init] for each in fields]
    with contextlib.suppress(TypeError, ValueError):
        given = inspect.signature(getattr(value, "__func__", value)).parameters.values()
        told = {each: each.name + "=" * (each.kind is each.KEYWORD_ONLY) for each in given}
        defaults = [
            [told[each], *([] if each.default is each.empty else [_told(each.default)])]
            for each in given
            if each.default is not each.empty or each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_ONLY)
        ]
        return [*([str(asked)] if asked else []), *defaults, *apart]
    return apart


def _told(value: Any) -> Any:
    """Constants as data; of functions and objects their names."""
    if isinstance(value, dict | Mapping):
        return [[_told(key), _told(each)] for key, each in value.items()]
    if isinstance(value, set | frozenset | tuple | list):
        told = [_told(each) for each in value]
        return told if isinstance(value, tuple | list) else sorted(map(str, told))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_told(getattr(value, each.name)) for each in dataclasses.fields(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    plain = getattr(value, "tolist", lambda: getattr(value, "pattern", None))()
    return getattr(value, "__qualname__", type(value).__name__) if plain is None else plain


def limited(limits: Mapping[str, float], *steps: str) -> list[str]:
    """The lines of figures of a command while constants, by their full names, are so small that it just meets them."""
    with contextlib.ExitStack() as patches:
        for name, value in limits.items():
            importlib.import_module(name.rpartition(".")[0])
            patches.enter_context(mock.patch(name, value))
        return recorded(" ;; ".join(steps))


def of_kinds(given: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """What every function gives that needs one thing only, of a kind that is given by its name: a sum for each of them.

    Left out are commands, and the costs of libraries, whose constants are recorded elsewhere.
    """
    package = importlib.import_module("collsim")
    found: dict[str, list[str]] = {}
    for info in pkgutil.walk_packages(package.__path__, "collsim."):
        if info.name.startswith(("collsim.cli", "collsim.library.costs")):
            continue
        module = importlib.import_module(info.name)
        for name, function in sorted(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == info.name:
                asked = inspect.signature(function).parameters.values()
                needed = [each.annotation for each in asked if each.default is each.empty]
                if len(needed) == 1 and needed[0] in given:
                    sums = [_without_places(over(function, [thing])[0]) for thing in given[needed[0]]]
                    found[f"{info.name}.{name}".removeprefix("collsim.")] = sums
    return found


def _without_places(value: Any) -> str:
    """A sum of what is given, less where it comes from and the sums of files."""

    def stripped(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: stripped(each) for key, each in data.items() if key not in PLACES}
        return [stripped(each) for each in data] if isinstance(data, list) else data

    if isinstance(value, str):
        value = {name: cells for name, cells in columns(value).items() if not LEFT_OUT.search(name)}
    told = json.dumps(stripped(json.loads(json.dumps(_by_text(value), default=plain))))
    return f"'{zlib.crc32(re.sub(ADDRESS, '', told).encode()) & 0xFFFF:04x}"


def _by_text(value: Any) -> Any:
    """Mappings by other keys than texts, as pairs."""
    if isinstance(value, Mapping):
        return {str(key): _by_text(each) for key, each in value.items()}
    return [_by_text(each) for each in value] if isinstance(value, list | tuple) else value


OWN = (
    bent,
    choices,
    declared,
    figures_of,
    limited,
    of_kinds,
    of_text,
    over,
    pruned,
    reshaped,
    reworded,
    summed,
    varied,
)
"""Functions that a step of Python may call beside those of collsim."""


@contextlib.contextmanager
def folder() -> Iterator[pathlib.Path]:
    """An empty folder with links to what commands name, as the working directory."""
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for linked in LINKED:
            (pathlib.Path(name) / linked).symlink_to(ROOT / linked)
        os.chdir(name)
        try:
            yield pathlib.Path(name)
        finally:
            os.chdir(before)


def recorded(command: str, keep: re.Pattern[str] | None = None, longest: int = LONGEST) -> list[str]:
    """The lines of figures that a command gives now."""
    lines: list[str] = []
    with folder():
        for number, step in enumerate(command.split(" ;; ")):
            words = ["python:"] if step.startswith("python: ") else shlex.split(step)
            if words[0] == "cat":
                there = pathlib.Path(words[1]).is_file()
                code, out, err = int(not there), pathlib.Path(words[1]).read_text("utf-8") if there else "", ""
            elif words[0] == "python:":
                code, out, err = 0, evaluated(step.removeprefix("python:").strip()), ""
            else:
                code, out, err = called(words)
            if number:
                lines.append(f"; {words[0]}")
            if code:
                lines.append(f"exit: {code}")
            told = [line for line in err.splitlines() if line.startswith(TOLD)]
            lines += _lines({"told": [value for line in told for value in _values(line)]}, None)
            lines += _lines(columns(out), keep, longest)
    return lines


def columns(text: str) -> dict[str, list[Value]]:
    """What an output holds, as columns: leaves of JSON by path, columns of CSV, else figures by line."""
    stripped = text.lstrip()
    found: dict[str, list[Value]] = {}
    if stripped.startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            _leaves(json.loads(text), "", found)
            return found
        with contextlib.suppress(ValueError):
            for line in text.splitlines():
                _leaves(json.loads(line), "", found)
            return found
    rows = list(csv.reader(io.StringIO(text)))
    if len(rows) > 1 and len(rows[0]) > 3 and all(len(row) == len(rows[0]) for row in rows):
        for name, cells in zip(rows[0], zip(*rows[1:], strict=True), strict=True):
            found[name] = [value for cell in cells for value in _values(cell)]
        return found
    if len(text) > 60_000 or stripped.startswith("<"):
        return {"text": [value for line in text.splitlines() for value in _values(line)]}
    for number, line in enumerate(text.splitlines()):
        found[f"line {number + 1}"] = _values(line + " ") if line.strip() else []
    return found


def _leaves(data: Any, path: str, found: dict[str, list[Value]]) -> None:
    """Collect the leaves of plain data below the path of their keys."""
    if isinstance(data, dict):
        for key, value in data.items():
            _leaves(value, f"{path}.{key}" if path else str(key), found)
    elif isinstance(data, list):
        for value in data:
            _leaves(value, path, found)
    elif isinstance(data, bool) or data is None:
        found.setdefault(path, []).append("-" if data is None else str(data).lower())
    elif isinstance(data, str):
        found.setdefault(path, []).extend(_values(data))
    else:
        found.setdefault(path, []).append(float(data))


def _values(text: str) -> list[Value]:
    """A number or word as it is; of prose a sum of its words and its numbers."""
    try:
        return [float(text)]
    except ValueError:
        pass
    if text == "" or (len(text) <= WORD and not re.search(r"[\s*]", text)):
        return [text or "-"]
    return [_words(text), *(_number(found[0]) if found[1] is None else found[1] for found in FIGURE.finditer(text))]


def _words(text: str) -> str:
    """A sum of the words of prose, whatever its numbers, how wide its columns and in which folder it was written."""
    plain = RULE.sub(r"\1", FIGURE.sub("0", text.replace(str(pathlib.Path.cwd()), ".")))
    return f"'{zlib.crc32(' '.join(plain.split()).encode()) & 0xFFFF:04x}"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _lines(found: dict[str, list[Value]], keep: re.Pattern[str] | None, longest: int = LONGEST) -> list[str]:
    """A line for each column that is kept and holds something."""
    lines = []
    for name, values in found.items():
        if not values or set(values) <= {"-"} or LEFT_OUT.search(name) or (keep and not keep.search(name)):
            continue
        shown = [_digest(values)] if len(values) > longest else list(map(_shown, values))
        runs = [(value, len(list(same))) for value, same in groupby(shown)]
        lines.append(f"{name}: " + " ".join(value if n == 1 else f"{value}*{n}" for value, n in runs))
    return lines


def _digest(values: list[Value]) -> str:
    """How many values there are, and a sum of logarithms that every value, its sign and its place count in alike."""
    total = 0.0
    for place, value in enumerate(values):
        number = value if isinstance(value, float) else float(zlib.crc32(value.encode()))
        size = math.log(abs(number)) if abs(number) > NOTHING else math.log(NOTHING)
        total += (1 + place % 97) * (size if number >= 0 else 100 - size)
    return f"~{len(values)}/{total:.9g}"


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return value
    return "0" if abs(value) < NOTHING else f"{value:.6g}"


def _expanded(line: str) -> tuple[str, list[str]]:
    """The name of a column and its values, runs written out."""
    name, _, rest = line.partition(": ")
    values: list[str] = []
    for word in rest.split():
        value, star, count = word.rpartition("*")
        values += [value] * int(count) if star else [word]
    return name, values


def moved(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Say which columns differ by more than rounding, value by value."""
    old, new = (dict(map(_expanded, lines)) for lines in (before, after))
    told = [f"{name}: gone" for name in old if name not in new] + [f"{name}: new" for name in new if name not in old]
    for name in [name for name in old if name in new]:
        if len(old[name]) != len(new[name]):
            told.append(f"{name}: {len(old[name])} values, now {len(new[name])}")
            continue
        pairs = zip(old[name], new[name], strict=True)
        differ = [(place, a, b) for place, (a, b) in enumerate(pairs) if not _alike(a, b)]
        shown = ", ".join(f"{a} -> {b} (value {place + 1})" for place, a, b in differ[:4])
        if differ:
            told.append(f"{name}: {shown}" + (f", and {len(differ) - 4} more" if len(differ) > 4 else ""))
    return told


def _alike(a: str, b: str) -> bool:
    if a == b:
        return True
    if a[0] == b[0] == "~" and a.partition("/")[0] == b.partition("/")[0]:
        x, y = (float(text.partition("/")[2]) for text in (a, b))
        return abs(x - y) <= CLOSE + 2e-9 * abs(x)
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    return abs(x - y) <= max(CLOSE * max(abs(x), abs(y)), NOTHING)


def main() -> int:
    """Compare or record; 1 if something moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", help="names of files of tests/golden/figures")
    parser.add_argument("--write", action="store_true", help="record the figures as they are")
    asked = parser.parse_args()
    differ = 0
    for room in rooms(asked.rooms):
        for block in room.blocks:
            now = room.now(block)
            if told := moved(block.lines, now):
                differ += 1
                print(f"{room.path.stem}: {block.command}\n  " + "\n  ".join(told))
            if asked.write and told:
                block.lines = now
        if asked.write:
            room.path.write_text(room.text(), encoding="utf-8")
    return int(bool(differ) and not asked.write)


if __name__ == "__main__":
    sys.exit(main())
