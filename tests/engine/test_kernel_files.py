"""What the cache of compiled kernels cannot see, and what is kept by hand: options, and the order of arrays."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

ARRAYS = {
    "kernels": (
        "dep_ptr dep transfers given hops successors roots slots seats links members region near riders queue tally "
        "calendar count"
    ),
    "tolerant": (
        "transfers given successors roots paths flows rates order group hops links in_use members queue timers heap "
        "count rule"
    ),
    "refinement": (
        "bits codes route_ptr route_link weight route own dep_ptr dep lag at stack order colour seen link_colour "
        "route_sum link_sum colours keys values ids link_ids"
    ),
    "wavefront_kernels": (
        "rows spare before after finish spent finished used spare_finish spare_spent wait took late kinds distances"
    ),
}
"""The one order in which the kernels of a file take their arrays."""

NUMBERS = {
    "kernels": (
        "item time at transfer owner slot now size link value until from_slot from_link new_from n_live n_open level "
        "stop weight"
    ),
    "tolerant": "size at time what who latest now base limit step link level most",
    "refinement": "x most",
    "wavefront_kernels": "steps start",
}
"""What stands behind the arrays."""


def kernels_of(module):
    """Return the names and plain functions of what a file compiles."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    assert all(ast.unparse(node.decorator_list[0]) in ("_part", "_entry") for node in functions)
    found = {node.name: getattr(module, node.name) for node in functions}
    return {name: getattr(kernel, "py_func", kernel) for name, kernel in found.items()}  # plain if nothing is compiled


@pytest.mark.parametrize("file", ARRAYS)
def test_kernels_take_their_arrays_in_one_order(file):
    arrays, numbers = ARRAYS[file].split(), NUMBERS[file].split()
    named = set()
    for name, function in kernels_of(importlib.import_module(f"collsim.engine.{file}")).items():
        given = list(inspect.signature(function).parameters)
        in_order = [each for each in arrays if each in given]
        assert given[: len(in_order)] == in_order, name
        assert set(given[len(in_order) :]) <= set(numbers), name
        named |= set(given)
    assert named == {*arrays, *numbers}


def test_every_file_of_kernels_has_the_same_options_written_in_it():
    engine = Path(importlib.import_module("collsim.engine").__file__).parent
    found = {}
    for path in sorted(engine.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.decorator_list for node in tree.body):
            assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
            (options,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == "OPTIONS")
            found[path.stem] = ast.literal_eval(options)
    assert set(found) == set(ARRAYS)
    assert all(options == found["kernels"] for options in found.values())


def test_kernels_are_compiled_with_the_options_of_their_file():
    from numba.core.options import DefaultOptions

    from collsim.engine import kernels
    from collsim.engine.warmup import entry_points, is_compiling

    if not is_compiling():
        pytest.skip("kernels are not compiled")
    assert all(hasattr(DefaultOptions, name) for name in kernels.OPTIONS)  # none is left out
    for kernel in entry_points():
        assert kernels.OPTIONS.items() <= kernel.targetoptions.items(), kernel
