"""Faults planted on demand: which files and tests they concern, and what is left alone."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rooms_have_files_and_tests(tool, monkeypatch):
    monkeypatch.chdir(ROOT)
    for room, (patterns, tests) in tool.ROOMS.items():
        for pattern in patterns:
            assert [*Path("collsim").glob(pattern)], (room, pattern)
        assert all(Path(test).exists() for test in tests), room


def test_kernels_are_left_alone(tool, monkeypatch):
    monkeypatch.chdir(ROOT)
    patterns = [pattern for patterns, _ in tool.ROOMS.values() for pattern in patterns]
    files = {path for pattern in patterns for path in Path("collsim").glob(pattern)}
    assert not [path for path in files if "njit" in path.read_text(encoding="utf-8")]


def test_what_is_never_evaluated(tool):
    source = (
        "if TYPE_CHECKING:\n    pass\nx: int | None = 1 | 2\ndef f(a: int | str, b=1) -> int | None:\n    return a\n"
    )
    lines = source.splitlines()
    found = [lines[first[0] - 1][first[1] : last[1]] for first, last in sorted(tool.unevaluated(source))]
    assert found == ["TYPE_CHECKING", "int | None", "int | str", "int | None"]


def test_tests_that_name_the_module_come_first(tool, monkeypatch):
    monkeypatch.chdir(ROOT)
    module = Path("collsim/fabric/cluster_router.py")
    near, all_files = (tool.tests_of("fabric", module, near=near) for near in (True, False))
    assert Path("tests/fabric/test_cluster_router.py") in near
    assert all_files[: len(near)] == near
    assert len(all_files) > len(near)
    unnamed = tool.tests_of("fabric", Path("collsim/fabric/no_such_module.py"), near=True)
    assert sorted(unnamed) == sorted(all_files)


def test_what_a_fault_changes(tool):
    assert tool.changed("--- a\n+++ b\n x\n-a = 1\n+a = 2\n") == "a = 1 -> a = 2"


def test_faults_are_drawn_by_the_seed(tool, monkeypatch):
    pytest.importorskip("cosmic_ray")
    monkeypatch.chdir(ROOT)
    one, again, other = (tool.sample("costs", 5, seed) for seed in (1, 1, 2))
    assert len(one) == 5
    assert one == again != other
