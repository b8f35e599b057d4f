"""Every example in the docstrings of the package runs and prints what it says."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import collsim

MODULES = ["collsim", *sorted(found.name for found in pkgutil.walk_packages(collsim.__path__, "collsim."))]
OPTIONS = doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 20


def test_every_public_function_has_one():
    functions = {name: getattr(collsim, name) for name in collsim.__all__}
    named = {name: each for name, each in functions.items() if inspect.isfunction(each)}
    assert len(named) >= 18
    assert [name for name, each in named.items() if ">>> " not in (each.__doc__ or "")] == []
