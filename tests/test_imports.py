"""The public names, and what importing them costs."""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import collsim

MODULES = sorted(found.name for found in pkgutil.walk_packages(collsim.__path__, "collsim."))
COMPILED = ("decorators", "kernels", "refinement", "tolerant", "wavefront_kernels")
KERNELS = tuple(f"collsim.engine.{name}" for name in COMPILED)
LAZY = {"numba", "networkx", "scipy", "rich", "yaml", "simpy", "polars", "pandas", "plotly"}
"""Imported inside the functions that need them; the compiled kernels are such a place as a whole."""


def test_public_names():
    assert set(collsim.__all__) == set(dir(collsim))
    for name in collsim.__all__:
        assert getattr(collsim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = collsim.simulat


def test_public_names_of_every_module_exist():
    modules = {name: importlib.import_module(name) for name in MODULES}
    assert [name for name, module in modules.items() if not module.__doc__] == ["collsim._version"]
    missing = {
        name: [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)]
        for name, module in modules.items()
    }
    assert {name: names for name, names in missing.items() if names} == {}


def test_nothing_heavy_at_the_top_of_a_module():
    heavy = {name: heavy_of(name) for name in MODULES if name not in KERNELS}
    assert {name: found for name, found in heavy.items() if found} == {}


def heavy_of(name):
    """What is imported at the top of a module although it takes long."""
    module = importlib.import_module(name)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    return imported & LAZY


@pytest.mark.parametrize(
    "name", ["collsim", "collsim.cli", "collsim.core.errors", "collsim.core.units", "collsim.topology"]
)
def test_import_brings_no_array_library(name):
    code = f"import sys, {name}; print(*({{'numpy', *{sorted(LAZY)}}} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.fixture(scope="module")
def import_graph():
    path = Path(__file__).parents[1] / "tools" / "import_graph.py"
    spec = importlib.util.spec_from_file_location("import_graph", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_module_needs_one_that_needs_it_and_no_import_leads_up(import_graph):
    found = import_graph.house()
    assert found.circles == []
    assert found.upward == []
    packages = {path.parent.name for path in Path(collsim.__file__).parent.glob("*/__init__.py")}
    assert {room for rooms in found.floors for room in rooms} == packages
    assert ("simulation", "engine") in found.arrows
    assert ("collsim.engine.run", "collsim.engine.kernels") not in found.edges  # of one room


def test_circles_are_found(import_graph):
    pairs = ["p.a p.b", "p.b p.c", "p.c p.a", "p.d p.a", "p.x q.y", "q.y p.x"]
    edges = [tuple(f"collsim.{name}" for name in pair.split()) for pair in pairs]
    assert list(import_graph._circles(edges)) == [["collsim.p.a", "collsim.p.b", "collsim.p.c"]]


def test_no_module_takes_the_name_of_something_imported_late():
    """Importing a module sets its name in its package: a function of that name that is imported late would be lost."""
    packages = [entry.name for entry in pkgutil.walk_packages(collsim.__path__, "collsim.") if entry.ispkg]
    late = [one for one in map(importlib.import_module, ["collsim", *packages]) if hasattr(one, "__getattr__")]
    assert len(late) >= 3
    for package in late:
        modules = {entry.name for entry in pkgutil.iter_modules(package.__path__)}
        assert not modules & set(package.__all__), package.__name__
