"""Every claim is tested or listed as uncheckable, docs/claims.md knows each, and docs/tour.md shows current tables."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

from collsim.topology import STATUSES

from .figures import FIGURES

ROOT = Path(__file__).parents[2]
IDS = [
    *("C001", "C002", "C003", "C004", "C005", "C006", "C007", "C008", "C009", "C010", "C011", "C012", "C013", "C014"),
    *("C015", "C042"),
    *("C016", "C017", "C018", "C019", "C020", "C021", "C022", "C023", "C024", "C025", "C026", "C027", "C028", "C029"),
    *("C031", "C033", "C058", "C063"),
    *("C043", "C045", "C046", "C047", "C048", "C049", "C050", "C051", "C052", "C053", "C061", "C062", "C067", "C068"),
    *("C054", "C055", "C056", "C057", "C064", "C066", "C076", "C077", "C078", "C079", "C080", "C130", "C139", "C153"),
    *("C069", "C070", "C071", "C072", "C073", "C074", "C087", "C100", "C101", "C102", "C103", "C138", "C141", "C142"),
    *("C145", "C147", "C148", "C149", "C150", "C151", "C152", "C154", "C157", "C163", "C164", "C166", "C167", "C168"),
    "C170",
]
IDS.sort()
VERDICTS = (
    "holds",
    "holds in part: ",
    "holds raw but not modelled",
    "fails: ",
    "printed figure wrong",
    "cannot be checked: ",
)
BASES = {
    "model": "what collsim computes or reads from a shipped file",
    "figures": "arithmetic on published figures, with no code of collsim",
    "-": "nothing: no figure is public",
}
"""What the tests of a claim rest on, as the table says it."""
NOT_OF_THE_MODEL = {"EXACT", "SIZE", "rounds_to", "is_cut_to"}
"""What tests import from measures.py that computes nothing by itself."""


def names_in(node):
    """Return every name that a part of a file uses."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def of_the_model(tree):
    """Return the names of a file that lead to code of collsim: imported, or defined by means of such names."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level == 0 and node.module.startswith("collsim")):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and node.module == "measures":
            found |= {alias.name for alias in node.names} - NOT_OF_THE_MODEL
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == "collsim"}
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("test_") and names_in(node) & found:
            found.add(node.name)
        elif isinstance(node, ast.Assign) and names_in(node.value) & found:
            found |= {name for target in node.targets for name in names_in(target)}
    return found


def written_tests():
    """Yield the name, with the ids of its parameters, the body and the basis of every test but those of this file."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        model = of_the_model(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                ids = [ast.unparse(mark) for mark in node.decorator_list]
                yield f"{node.name} {ids}", node, "model" if names_in(node) & model else "figures"


def register():
    """Return the rows of the table of claims."""
    lines = (ROOT / "docs/claims.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| C\d{3} ", line)]
    assert {len(row) for row in rows} == {6}
    return rows


def test_every_claim_is_tested_or_listed():
    assert len(IDS) == len(set(IDS)) == 91
    tested = {found for name, *_ in written_tests() for found in re.findall(r"C\d{3}", name)}
    uncheckable = {row[0] for row in register() if row[5].startswith("cannot be checked")}
    assert tested | uncheckable == set(IDS)


def test_the_table_says_what_each_test_rests_on():
    """Only a claim of which some test calls collsim is tested by the model; arithmetic on literals is called so."""
    bases = dict.fromkeys(IDS, "-")
    for name, _, basis in written_tests():
        for claim in re.findall(r"C\d{3}", name):
            bases[claim] = "model" if "model" in (basis, bases[claim]) else basis
    assert {row[0]: row[4] for row in register()} == bases
    assert set(bases.values()) == set(BASES)
    for claim, *_, basis, verdict in register():
        assert basis == "model" or not verdict.startswith(("holds;", "holds,", "holds:")), claim


def test_every_test_asserts():
    for name, node, _ in written_tests():
        assert any(isinstance(part, ast.Assert) for part in ast.walk(node)), name


def test_the_table_has_every_claim_once_and_in_order():
    assert [row[0] for row in register()] == IDS
    for claim, words, origin, computed, basis, verdict in register():
        assert words, claim
        assert origin in "ABCDE", claim
        assert bool(computed) == (basis != "-"), claim
        assert verdict.startswith(VERDICTS), claim
        assert len(verdict) > 30 or not verdict.startswith(("printed", "cannot")), f"{claim} gives no reason"


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_their_source(name):
    assert FIGURES[name].status in STATUSES
    assert len(FIGURES[name].source) > 10
    assert FIGURES[name].value > 0


@pytest.fixture(scope="module")
def mesh_peers():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("mesh_peers")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_tour_shows_the_bandwidth_of_a_mesh(mesh_peers):
    text = mesh_peers.PAGE.read_text(encoding="utf-8")
    shown = text.partition(mesh_peers.BEGIN)[2].partition(mesh_peers.END)[0]
    assert shown == mesh_peers.tables(), "run: python tools/mesh_peers.py --write"


def test_writing_changes_nothing_else(mesh_peers, monkeypatch, tmp_path):
    page = tmp_path / "tour.md"
    monkeypatch.setattr(mesh_peers, "PAGE", page)
    page.write_text(f"before\n{mesh_peers.BEGIN}old\n{mesh_peers.END}after\n", encoding="utf-8")
    mesh_peers.write("new\n")
    assert page.read_text(encoding="utf-8") == f"before\n{mesh_peers.BEGIN}new\n{mesh_peers.END}after\n"
    page.write_text("no markers\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="lacks the markers"):
        mesh_peers.write("new\n")
