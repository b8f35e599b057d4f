"""Faults planted on demand: which tests are asked about a line, and what is left alone."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = """LIMIT = (
    3
)
def longest(texts, least=1):
    if (
        texts
    ):
        return max(
            map(len, texts)
        )
    return least
"""


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_never_evaluated(tool):
    source = (
        "if TYPE_CHECKING:\n    pass\nx: int | None = 1 | 2\ndef f(a: int | str, b=1) -> int | None:\n    return a\n"
        "zip(x, x, strict=True)\n"
    )
    lines = source.splitlines()
    found = [lines[first[0] - 1][first[1] : last[1]] for first, last in sorted(tool.unevaluated(source))]
    assert found == ["TYPE_CHECKING", "int | None", "int | str", "int | None", "True"]


def test_lines_that_run_with_a_function(tool):
    assert tool.inside(SOURCE) == set(range(5, 12))
    assert tool.inside("key = lambda x: (\n    x\n)\nother = 1\n") == {2}


@pytest.mark.parametrize(
    ("line", "around"), [(2, {1, 2, 3}), (4, {4}), (6, {5, 6, 7}), (9, {8, 9, 10}), (11, {11}), (99, {99})]
)
def test_lines_of_a_statement(tool, line, around):
    assert tool.statement(SOURCE, line) == around


def test_the_quickest_of_every_file_come_first(tool):
    seconds = {"a::1": 2.0, "a::2": 1.0, "b::1": 3.0, "c::1": 0.5}
    assert tool.in_turn(seconds, seconds) == ["c::1", "a::2", "b::1", "a::1"]


@pytest.fixture
def lines(tool, tmp_path, monkeypatch):
    """A map of one module, of which two tests pass the line of a fault and one another line."""
    coverage = pytest.importorskip("coverage")
    monkeypatch.chdir(tmp_path)
    Path("collsim/room").mkdir(parents=True)
    Path("collsim/room/module.py").write_text(SOURCE)
    folder = tmp_path / "map"
    found = tool.LineMap(folder)
    passed = {"tests/golden/test_a.py::1": [5, 8], "tests/cli/test_b.py::1": [5, 8], "tests/cli/test_b.py::2": [5, 11]}
    data = coverage.CoverageData(str(folder / "0.cov"))
    for test, numbers in {**passed, "": [1, 4], "tests/cli/test_b.py::failed": [8]}.items():
        data.set_context(f"{test}|run")
        data.add_lines({"/elsewhere/collsim/room/module.py": numbers})
    data.write()
    timed = {**dict.fromkeys(passed, 1.0), "tests/room/test_c.py::1": 1.0, "tests/else/test_d.py::1": 1.0}
    (folder / "seconds.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in timed.items()))
    return found


def test_tests_that_pass_the_line_come_first(tool, lines):
    module = Path("collsim/room/module.py")
    near = ["tests/cli/test_b.py::1", "tests/golden/test_a.py::1"]
    further = ["tests/cli/test_b.py::2", "tests/room/test_c.py::1"]
    asked = tool.asked(lines, module, 9)
    assert sorted(asked[:2]) == near
    assert asked[2:] == further
    # What runs when the file is imported is passed by whoever came first: of it all tests of the file are asked.
    assert sorted(tool.asked(lines, module, 2)) == sorted([*near, *further])


def test_figures_are_asked_before_the_limit(tool, lines, monkeypatch):
    monkeypatch.setattr(tool, "MOST_TESTS", 1)
    assert tool.asked(lines, Path("collsim/room/module.py"), 9) == ["tests/golden/test_a.py::1"]


def test_what_a_fault_changes(tool):
    assert tool.changed("--- a\n+++ b\n x\n-a = 1\n+a = 2\n") == "a = 1 -> a = 2"


def test_faults_are_drawn_by_the_seed(tool, monkeypatch):
    pytest.importorskip("cosmic_ray")
    monkeypatch.chdir(ROOT)
    one, again, other = (tool.sample("prices", 5, seed) for seed in (1, 1, 2))
    assert 0 < len(one) <= 5  # a short file may have fewer
    assert one == again != other
    assert {"core", "engine", "prices"} < {*tool.rooms()}


def test_the_second_copy_of_constants_is_asked_of_every_fault(tool, lines, monkeypatch):
    copies = {f'g.py::t[declared: python: declared("{room}")]': 0.1 for room in ("room", "other")}
    monkeypatch.setattr(lines, "seconds", {**lines.seconds, **copies})
    for line in range(1, 12):
        asked = tool.asked(lines, Path("collsim/room/module.py"), line)
        assert [test for test in asked if "declared" in test] == ['g.py::t[declared: python: declared("room")]']


def test_a_map_without_names_of_tests_is_refused(tool, tmp_path):
    coverage = pytest.importorskip("coverage")
    data = coverage.CoverageData(str(tmp_path / "0.cov"))
    data.add_lines({"collsim/room/part.py": [1, 2]})
    data.write()
    with pytest.raises(SystemExit, match="does not say which tests ran"):
        tool.LineMap(tmp_path).tests(Path("collsim/room/part.py"))


def test_recorded_figures_belong_to_their_tests(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tests/golden/figures").mkdir(parents=True)
    for name in ("test_figures", "test_other"):
        Path(f"tests/golden/{name}.py").write_text("")
    before = [tool.digest(Path(f"tests/golden/{name}.py")) for name in ("test_figures", "test_other")]
    Path("tests/golden/figures/room.txt").write_text("$ run")
    after = [tool.digest(Path(f"tests/golden/{name}.py")) for name in ("test_figures", "test_other")]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]
