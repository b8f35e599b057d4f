"""Every example in the docstrings of the package runs and prints what it says."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import collsim

MODULES = ["collsim", *sorted(found.name for found in pkgutil.walk_packages(collsim.__path__, "collsim."))]
FILES = {name: Path(importlib.util.find_spec(name).origin) for name in MODULES}
WITH_EXAMPLES = [name for name, file in FILES.items() if ">>> " in file.read_text(encoding="utf-8")]
OPTIONS = doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {name for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples}
    assert len(found) >= 20
    assert found <= {*WITH_EXAMPLES}


def test_every_public_function_has_one():
    functions = {name: getattr(collsim, name) for name in collsim.__all__}
    named = {name: each for name, each in functions.items() if inspect.isfunction(each)}
    assert len(named) >= 18
    assert [name for name, each in named.items() if ">>> " not in (each.__doc__ or "")] == []


def test_whatever_takes_a_graph_says_what_has_to_be_on_its_edges():
    functions = {name: inspect.getdoc(getattr(collsim, name)) or "" for name in collsim.__all__ if name[0].islower()}
    taking = {name: text for name, text in functions.items() if re.search(r"(?i): .*networkx.graph", text)}
    assert {"simulate", "compare", "simulate_moe", "validate", "load_topology"} <= {*taking}
    silent = [
        name for name, text in taking.items()
        if not {"bandwidth_Bps", "latency_s"} <= {*re.findall(r"``(\w+)``", text)} and "`collsim.simulate`" not in text
    ]  # fmt: skip
    assert silent == []
