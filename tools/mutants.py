"""Plant small faults in collsim and print which of them no test catches.

``python tools/mutants.py --number 80 --seed 1`` samples the faults that Cosmic Ray (``pip install cosmic-ray
pytest-cov``) can plant, as many from every room, and runs for each the tests that pass its line, in a copy of the
checkout, ``.mutants``. ``--only fabric`` takes one room. Which tests pass which line is found out once and kept in
``--map FOLDER``: the suite runs with pytest-cov, later only files of tests that were changed since. Left alone is what
is never evaluated. Not asked are tests of printed pages, and those that start processes, which the map cannot see into.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / ".mutants"
COPIED = ("collsim", "topologies", "tests", "tools", "docs", "examples", "benchmarks")
MAP = Path(tempfile.gettempdir()) / "collsim-mutants"
UNASKED = (
    *("golden/test_tables_of_pages.py", "cli/test_readme.py", "cli/test_documented_commands.py"),
    "cli/test_examples.py",
    *("cli/test_process.py", "cli/test_interrupt.py", "test_imports.py", "tools/"),
)
"""Tests of printed pages, of whole processes and of the tools."""
REPLACED = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_FloorDiv", "BitOr_BitAnd", "BitAnd_BitOr")
COMPARED = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
FLIPPED = ("Delete_USub", "Delete_Not", "Delete_Invert")
OPERATORS = [
    *(f"core/ReplaceBinaryOperator_{name}" for name in REPLACED),
    *(f"core/ReplaceComparisonOperator_{name}" for name in COMPARED),
    *(f"core/ReplaceUnaryOperator_{name}" for name in FLIPPED),
    *(f"core/Replace{name}" for name in ("TrueWithFalse", "FalseWithTrue", "AndWithOr", "OrWithAnd")),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"),
    *("core/AddNot", "core/NumberReplacer", "core/ZeroIterationForLoop"),
]
"""Those of Cosmic Ray whose faults look like code; others mostly raise a TypeError at once."""
UNSEEN = ("slots", "strict")
"""Keywords of which nothing comes out: how a class keeps its fields, and what to do with columns that never differ."""
MOST_TESTS = 400
FIRST = 16
"""Tests that are asked first, the quickest."""
LIMIT_S = 240
"""CPU time for the tests of a fault, which does not depend on what else the machine does: then no further test begins.
One that is still not done after twice the time is taken as a fault that makes tests run for ever."""
OPTIONS = "-n 0 -x -q -p mutants -p no:cacheprovider --hypothesis-seed=0"

Span = tuple[tuple[int, int], tuple[int, int]]


# Which tests pass which line


def pytest_runtest_logreport(report: Any) -> None:
    """Note how long a test took, as a plugin of the run that makes the map."""
    note = os.environ.get("MUTANTS_SECONDS")
    if note and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(note).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")


def pytest_runtest_logstart() -> None:
    """Begin no further test of a fault when its time is over: none has failed."""
    if time.process_time() > float(os.environ.get("MUTANTS_LIMIT_S", "inf")):
        os._exit(0)


class LineMap:
    """Tests by the lines of collsim that they pass, kept in a folder; run from the root of a copy of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def complete(self) -> None:
        """Run the files of tests that are new or changed since they ran last, a folder of tests at a time."""
        kept = self.folder / "files.json"
        seen: dict[str, str] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
        now = {str(path): digest(path) for path in files_of_tests()}
        stale = [Path(path) for path in now if seen.get(path) != now[path]]
        for room in sorted({path.parent for path in stale}):
            chosen = [str(path) for path in stale if path.parent == room]
            print(f"tests by the lines that they pass: {room}", flush=True)
            self._run(chosen, len([*self.folder.glob("*.cov")]))
            seen |= {path: now[path] for path in chosen}
            kept.write_text(json.dumps(seen), encoding="utf-8")

    def _run(self, files: list[str], number: int) -> None:
        settings = {
            "COVERAGE_FILE": str(self.folder / f"{number}.cov"),
            "MUTANTS_SECONDS": str(self.folder / "seconds.jsonl"),
            "MUTANTS_LIMIT_S": "inf",
        }
        options = ["-p", "mutants", "--cov=collsim", "--cov-context=test", "--cov-report=", "-p", "no:cacheprovider"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *files], env={**os.environ, **settings}, check=False)

    @functools.cached_property
    def seconds(self) -> dict[str, float]:
        """How long each test took that passed."""
        text = (self.folder / "seconds.jsonl").read_text("utf-8")
        return dict(json.loads(line) for line in text.splitlines())

    @functools.cached_property
    def _kept(self) -> list[Any]:
        from coverage import CoverageData

        kept = [CoverageData(str(path)) for path in sorted(self.folder.glob("*.cov"))]
        for data in kept:
            data.read()
            if not any(data.measured_contexts()):
                raise SystemExit(
                    f"{data.data_filename()} does not say which tests ran: with -n 0 pytest-cov asks --dist=no"
                )
        return kept

    @functools.lru_cache(maxsize=1)  # noqa: B019  one map lives as long as the process
    def tests(self, module: Path) -> dict[int, set[str]]:
        """Return the tests that pass each line of a module, less those that import it."""
        found: dict[int, set[str]] = {}
        for data in self._kept:
            for file in [file for file in data.measured_files() if file.endswith(f"/{module}")]:
                for line, contexts in data.contexts_by_lineno(file).items():
                    found.setdefault(line, set()).update(name.rpartition("|")[0] for name in contexts)
        return {line: names & self.seconds.keys() for line, names in found.items()}


def digest(path: Path) -> str:
    """Return what changes with a file of tests; that of recorded figures changes with them."""
    files = [path, *(sorted(Path("tests/golden/figures").glob("*.txt")) if path.stem == "test_figures" else ())]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def files_of_tests() -> list[Path]:
    """Return the files of tests that may be asked."""
    return [path for path in sorted(Path("tests").rglob("test_*.py")) if not str(path)[6:].startswith(UNASKED)]


def inside(source: str) -> set[int]:
    """Return the lines that run when functions are called, not when the file is imported."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.Lambda))
    bodies = (node.body if isinstance(node.body, list) else [node.body] for node in functions)
    return {line for body in bodies for line in range(body[0].lineno, (body[-1].end_lineno or 0) + 1)}


def statement(source: str, line: int) -> set[int]:
    """Return the lines of the innermost statement around a line; of one with a block only those above the block."""
    best: range | None = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            span = range(node.lineno, max(node.lineno + 1, body[0].lineno) if body else (node.end_lineno or 0) + 1)
            if line in span and (best is None or len(span) <= len(best)):
                best = span
    return set(best or [line])


def in_turn(tests: Iterable[str], seconds: dict[str, float]) -> list[str]:
    """Return tests in the order in which they are asked: the quickest of every file, then the next of every file.

    >>> in_turn(["a::1", "a::2", "b::1"], {"a::1": 2.0, "a::2": 1.0, "b::1": 3.0})
    ['a::2', 'b::1', 'a::1']
    """
    files: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        files.setdefault(test.partition("::")[0], []).append(test)
    return [test for row in zip_longest(*files.values()) for test in row if test]


def asked(lines: LineMap, module: Path, line: int) -> list[str]:
    """Return the tests that are to tell of a fault: those of its statement, then of its file, then of its room.

    What stands outside of functions no test passes; the second copy of constants and defaults is asked of all faults.
    """
    source, passed = module.read_text(encoding="utf-8"), lines.tests(module)
    within, place = inside(source), statement(source, line)
    near = set().union(*(passed.get(each, set()) for each in place)) if place & within else set()
    same = set().union(*(names for each, names in passed.items() if each in within)) - near
    room = {test for test in lines.seconds if test.startswith(f"tests/{module.parts[1]}/")} - near - same
    near |= {test for test in lines.seconds if test.endswith(f'declared("{module.parts[1]}")]')} - same - room
    golden = [test for test in near if test.startswith("tests/golden/")]
    others = in_turn(near.difference(golden), lines.seconds)[: max(MOST_TESTS - len(golden), 0)]
    first = in_turn([*golden, *others], lines.seconds)
    further = [test for tests in (same, room) for test in in_turn(tests, lines.seconds)]
    return [*first, *further[: max(MOST_TESTS - len(first), 0)]]


def unknown(lines: LineMap, module: Path) -> list[str]:
    """Return the files of tests of the room of a module that the map does not know, first those that name it."""
    known = {test.partition("::")[0] for test in lines.seconds}
    files = [path for path in files_of_tests() if path.parts[1] in (module.parts[1], "property")]
    files = [path for path in files if str(path) not in known]
    named = [path for path in files if module.stem in path.read_text("utf-8")]
    return [str(path) for path in named + [path for path in files if path not in named and path.parts[1] != "property"]]


# Which faults are planted


def unevaluated(source: str) -> list[Span]:
    """Return where annotations, conditions on TYPE_CHECKING and UNSEEN keywords stand, from (line, column) to those."""
    nodes: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            nodes.append(node.returns)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes.append(node.test)
        elif isinstance(node, ast.keyword) and node.arg in UNSEEN:
            nodes.append(node.value)
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in nodes]


def mutations(path: Path) -> Iterator[Any]:
    """Yield every fault that can be planted in a file, as Cosmic Ray's MutationSpec."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator
    from cosmic_ray.work_item import MutationSpec

    spared, nodes = unevaluated(path.read_text(encoding="utf-8")), [*ast_nodes(get_ast_from_path(path))]
    for name in OPERATORS:
        operator = get_operator(name)()
        spans = (span for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (begin, end) in enumerate(spans):
            if not any(first <= begin and end <= last for first, last in spared):
                yield MutationSpec(path, name, occurrence, begin, end)


def rooms() -> list[str]:
    """Return the rooms of collsim: its folders with code."""
    return sorted({path.parts[1] for path in Path("collsim").glob("*/*.py")})


def sample(room: str, number: int, seed: int) -> list[Any]:
    """Return some faults of a room, in the order of their places: files are drawn by their length, then faults."""
    draw = random.Random(f"{seed} {room}")
    files = sorted(Path("collsim", room).rglob("*.py"))
    drawn = Counter(draw.choices(files, [path.stat().st_size for path in files], k=number))
    chosen = []
    for path, count in sorted(drawn.items()):
        found = [*mutations(path)]
        chosen += draw.sample(found, min(count, len(found)))
    return sorted(chosen, key=lambda mutation: (mutation.module_path, mutation.start_pos))


# What comes of them


def changed(diff: str) -> str:
    r"""Return the lines that a fault takes out and puts in.

    >>> changed("--- a\n+++ b\n x\n-a = 1\n+a = 2\n")
    'a = 1 -> a = 2'
    """
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return " -> ".join(" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")


def command(tests: list[str]) -> str:
    """Return the command that runs tests, in their order."""
    told = Path("asked.txt")
    told.write_text("\n".join(tests), encoding="utf-8")
    limit_s = int(os.environ["MUTANTS_LIMIT_S"])
    # To stderr pytest writes which tests are no more.
    line = f"ulimit -t {2 * limit_s}; exec {sys.executable} -m pytest {OPTIONS} @{told} 2>&1"
    return f"bash -c {shlex.quote(line)}"


def tried(room: str, number: int, seed: int, lines: LineMap) -> tuple[int, int]:
    """Plant faults in a room, print what comes of each, and return how many there were and how many were caught."""
    chosen = sample(room, number, seed)
    told = [outcome(mutation, lines) for mutation in chosen]
    assure([each for each in told if "::" in each])
    return len(told), sum(bool(each) for each in told)


def outcome(mutation: Any, lines: LineMap) -> str:
    """Plant a fault, print what comes of it, and return the test that tells, "time" or "" for none."""
    from cosmic_ray.mutating import mutate_and_test

    module, line = mutation.module_path, mutation.start_pos[0]
    tests = asked(lines, module, line)
    told, rest = "", [*tests[FIRST:], *unknown(lines, module)]
    for some in filter(None, (tests[:FIRST], rest)):  # to collect all takes longer than most first ones
        result = mutate_and_test([mutation], command(some), None)
        if "ERROR: not found" in (result.output or ""):
            raise SystemExit(f"the map has tests that are no more: remove its folder\n{result.output}")
        if result.is_killed:
            by = re.search(r"^(?:FAILED|ERROR) (\S+.*)", result.output or "", re.MULTILINE)
            named = [
                test for test in tests if by and by[1].startswith(test)
            ]  # names may hold " - ", as what failed may
            told = max(named, key=len, default=by[1].partition(" - ")[0] if by else "time")
            break
    came = f"caught by {told}" if told else f"SURVIVED {len(tests)} tests and {len(rest) - len(tests[FIRST:])} files"
    print(f"{module}:{line}: {changed(result.diff or '')}\n    {came}", flush=True)
    return told


def assure(tests: list[str]) -> None:
    """Raise if a test fails that nothing was planted for."""
    from cosmic_ray.testing import run_tests

    state, output = run_tests(command(sorted({*tests})), timeout=None) if tests else ("survived", "")
    if state != "survived":
        raise SystemExit(f"tests fail without a fault:\n{output}")


def main() -> None:
    """Copy the checkout, plant the faults, print the score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=80, help="faults altogether")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="a room; may be given several times")
    parser.add_argument("--map", type=Path, default=MAP, help="folder that keeps which tests pass which line")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="seconds of CPU time for the tests of a fault")
    parser.add_argument("--as-it-is", action="store_true", help="take the map as it is: of others, tests of the room")
    given = parser.parse_args()
    for name in COPIED:
        shutil.rmtree(COPY / name, ignore_errors=True)
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / file, COPY / file)
    lines = LineMap(given.map.resolve())
    os.chdir(COPY)
    os.environ["PYTHONPATH"] = f"{COPY}{os.pathsep}{COPY / 'tools'}"
    os.environ["MUTANTS_LIMIT_S"] = str(given.limit)
    if not given.as_it_is:
        lines.complete()
    chosen = given.only or rooms()
    scores = {room: tried(room, -(-given.number // len(chosen)), given.seed, lines) for room in chosen}
    for room, (planted, caught) in scores.items():
        print(f"{room}: {caught} of {planted}")
    planted, caught = (sum(column) for column in zip(*scores.values(), strict=True))
    print(f"all: {caught} of {planted}, {100 * caught / planted:.1f} %")


if __name__ == "__main__":
    main()
