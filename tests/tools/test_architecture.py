"""docs/architecture.md and its picture are those of the code; the drawing refuses steps that nobody takes."""

import importlib
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawing():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("draw_architecture")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("collsim")


def test_the_page_lists_every_file_as_its_docstring_says(drawing):
    shown = drawing.PAGE.read_text(encoding="utf-8").partition(drawing.BEGIN)[2].partition(drawing.END)[0]
    assert shown == drawing.files(drawing.floors()), "run: python tools/draw_architecture.py --write"
    modules = {path.stem for path in ROOT.glob("collsim/*/**/*.py") if path.stem != "__init__"}
    assert all(f"{name}.py`" in shown for name in modules)


def test_the_picture_is_drawn_from_the_imports(drawing, graph):
    levels = drawing.floors()
    every = [room for rooms in levels for room in rooms]
    found = drawing.arrows(graph, every)
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.drawn(levels, found)
    assert len(found) <= 70 / 12 * len(every)  # the bar was set for twelve rooms
    assert found["simulation", "engine"]
    assert not found["engine", "simulation"]


def test_a_step_of_the_walk_has_to_be_an_import(drawing, graph, monkeypatch):
    assert drawing.missing_steps(graph) == []
    monkeypatch.setattr(drawing, "WALK", (("engine.run", "cli.run", "upwards"), ("cli.run", "nowhere", "")))
    assert drawing.missing_steps(graph) == ["engine.run does not import cli.run", "cli.run does not import nowhere"]
