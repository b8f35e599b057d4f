"""Plant small faults in the core and print which of them no test catches.

``python tools/mutants.py --number 120 --seed 1`` samples the faults that Cosmic Ray (``pip install cosmic-ray``) can
plant, as many from every room, and runs for each the tests of its room in a copy of the checkout, ``.mutants``.
``--only fabric`` takes one room; ``--near`` runs only tests that name the module with the fault, which is quicker and
may miss some that would tell. Compiled kernels are left alone, as each of their faults would cost a compilation, and so
is what is never evaluated.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / ".mutants"
COPIED = ("collsim", "topologies", "tests", "tools", "docs", "examples", "benchmarks")
CLOSED_FORMS = "tests/golden/test_closed_forms.py"
ROOMS = {
    "engine": (
        ("engine/reference.py", "engine/problem.py", "engine/symmetry.py", "engine/wavefront.py", "engine/run.py"),
        ("tests/engine", "tests/property/test_engine_agreement.py", "tests/property/test_symmetry.py"),
    ),
    "fabric": (
        ("fabric/*.py", "fabric/bounds/*.py"),
        ("tests/fabric", "tests/golden/test_fabrics.py", "tests/golden/test_zoo.py"),
    ),
    "costs": (
        ("library/costs/channel_costs.py", "library/costs/message_costs.py", "library/costs/profile.py"),
        ("tests/library", CLOSED_FORMS),
    ),
    "choice": (
        ("library/*.py", "library/nccl/*.py", "library/rccl/*.py"),
        ("tests/golden/test_choices.py", "tests/library"),
    ),
    "simulation": (
        ("simulation/lowering.py", "simulation/rows.py", "simulation/timing.py", "simulation/selection.py"),
        (
            "tests/simulation",
            CLOSED_FORMS,
            "tests/library/test_network_costs.py",
            "tests/fabric/test_reduction_trees.py",
        ),
    ),
    "quotient": (
        ("simulation/quotient/*.py",),
        ("tests/simulation/test_quotient_rings.py", "tests/property/test_scaled.py"),
    ),
    "collectives": (
        ("collectives/*.py",),
        (
            "tests/collectives",
            CLOSED_FORMS,
            "tests/property/test_collectives.py",
            "tests/property/test_across_nodes.py",
        ),
    ),
    "moe": (("moe/*.py",), ("tests/moe", "tests/property/test_moe.py", "tests/cli/test_moe.py")),
    "logs": (
        ("calibration/logs/*.py",),
        ("tests/calibration/logs", "tests/golden/test_log_formats.py", "tests/property/test_logs.py"),
    ),
}
"""Files in collsim, and the tests that are to tell, in the order in which they run; the first that fails ends them."""
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
LIMIT_S = 300
"""CPU time, which does not depend on what else the machine does; a fault that makes tests take longer is caught."""
OPTIONS = "-n 0 -x -q -p no:cacheprovider --hypothesis-seed=0"

Span = tuple[tuple[int, int], tuple[int, int]]


def unevaluated(source: str) -> list[Span]:
    """Return where annotations and conditions on TYPE_CHECKING stand, as (line, column) of begin and end."""
    nodes: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            nodes.append(node.returns)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes.append(node.test)
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


def sample(room: str, number: int, seed: int) -> list[Any]:
    """Return some faults of a room, in the order of their places."""
    files = sorted({path for pattern in ROOMS[room][0] for path in Path("collsim").glob(pattern)})
    found = [mutation for path in files for mutation in mutations(path)]
    chosen = random.Random(f"{seed} {room}").sample(found, min(number, len(found)))
    return sorted(chosen, key=lambda mutation: (mutation.module_path, mutation.start_pos))


def changed(diff: str) -> str:
    r"""Return the lines that a fault takes out and puts in.

    >>> changed("--- a\n+++ b\n x\n-a = 1\n+a = 2\n")
    'a = 1 -> a = 2'
    """
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return " -> ".join(" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")


def tests_of(room: str, module: Path, *, near: bool) -> list[Path]:
    """Return the tests of a room, first those that name the module; *near*: only these, if there are any."""
    roots = [Path(root) for root in ROOMS[room][1]]
    files = [file for root in roots for file in (sorted(root.rglob("test_*.py")) if root.is_dir() else [root])]
    names = {file: module.stem in file.read_text(encoding="utf-8") for file in files}
    first = [file for file in files if names[file]]
    return first if near and first else first + [file for file in files if not names[file]]


def command(files: list[Path]) -> str:
    """Return the command that runs tests."""
    line = f"ulimit -t {LIMIT_S}; exec {sys.executable} -m pytest {OPTIONS} {' '.join(map(str, files))}"
    return f"bash -c {shlex.quote(line)}"


def tried(room: str, number: int, seed: int, *, near: bool) -> tuple[int, int]:
    """Plant faults in a room, print what comes of each, and return how many there were and how many were caught."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.testing import run_tests

    chosen = sample(room, number, seed)
    whole = {file for mutation in chosen for file in tests_of(room, mutation.module_path, near=near)}
    outcome, output = run_tests(command(sorted(whole)), timeout=None)
    if outcome != "survived":
        raise SystemExit(f"the tests of {room} fail without a fault:\n{output}")
    caught = 0
    for mutation in chosen:
        result = mutate_and_test([mutation], command(tests_of(room, mutation.module_path, near=near)), None)
        caught += result.is_killed
        place = f"{mutation.module_path}:{mutation.start_pos[0]}"
        by = re.search(r"^(?:FAILED|ERROR) (\S+)", result.output or "", re.MULTILINE)
        told = f"caught by {by[1] if by else 'time'}" if result.is_killed else "SURVIVED"
        print(f"{place}: {changed(result.diff or '')}\n    {told}", flush=True)
    return len(chosen), caught


def main() -> None:
    """Copy the checkout, plant the faults, print the score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=120, help="faults altogether")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=ROOMS, action="append", help="a room; may be given several times")
    parser.add_argument("--near", action="store_true", help="only tests that name the module with the fault")
    asked = parser.parse_args()
    for name in COPIED:
        shutil.rmtree(COPY / name, ignore_errors=True)
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / file, COPY / file)
    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(COPY)
    rooms = asked.only or [*ROOMS]
    scores = {room: tried(room, -(-asked.number // len(rooms)), asked.seed, near=asked.near) for room in rooms}
    for room, (planted, caught) in scores.items():
        print(f"{room}: {caught} of {planted}")
    planted, caught = (sum(column) for column in zip(*scores.values(), strict=True))
    print(f"all: {caught} of {planted}, {100 * caught / planted:.1f} %")


if __name__ == "__main__":
    main()
