"""What holds for an algorithm is in its record: who simulates and who reports asks that, and knows no names."""

import ast
from pathlib import Path

import collsim
from collsim.collectives import ALGORITHMS

NAMES = {entry.name for entry in ALGORITHMS}
PACKAGES = ("simulation", "report", "cli", "fabric", "engine", "schedule")
MEANT_OTHERWISE = {("cli/options.py", "direct"), ("report/html/panels.py", "ring")}
"""Files, and words in them that mean something else than the algorithm of that name."""


def names_in(source):
    """Return the strings of a program that are names of algorithms."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and value in NAMES}


def test_only_records_and_libraries_name_algorithms():
    root = Path(collsim.__file__).parent
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    assert len(files) > 80
    found = {(str(file.relative_to(root)), name) for file in files for name in names_in(file.read_text())}
    assert found == MEANT_OTHERWISE


def test_a_name_would_be_found():
    assert names_in('if row.algo == "nvls" or algo in ("ring", "rings"): "the tree"') == {"nvls", "ring"}
