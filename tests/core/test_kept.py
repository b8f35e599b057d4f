"""What calls keep for the next ones: bounded, by what it follows from, and the same answers with and without."""

import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.core.kept import Kept
from collsim.simulation import runs
from collsim.simulation.request import prepare


def test_the_one_that_was_not_asked_for_the_longest_goes_first():
    made, kept = [], Kept(2)
    for key in "abacb":
        kept.get(key, lambda key=key: made.append(key) or key)
    assert made == ["a", "b", "c", "b"]  # a came again and stayed, b went for c
    assert len(kept) == 2
    assert kept.get("d", lambda: "d", worth=lambda value: value != "d") == "d"
    assert kept.get("c", lambda: "made again") == "c"  # what is not worth it takes nobody's place
    assert len(kept) == 2
    kept.clear()
    assert len(kept) == 0


def test_what_fails_is_not_kept():
    kept = Kept(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept.get("a", lambda: 1 // 0)
    assert len(kept) == 0


CALLS = (
    {"profile": "ideal"},
    {},
    {"overrides": {"link.bandwidth": "20 GB/s"}},
    {"ranks": 4},
    {"rank_list": [1, 0, 2, 3]},
    {"nodes": 2},
    {"nodes": 2, "network": "roce"},
    {"fail": "link:gpu0-nvsw1"},
    {"load": "link:gpu0->nvsw0=30%"},
    {"library": "nccl-2.28", "environment": {"NCCL_ALGO": "Ring"}},
)


def test_answers_do_not_depend_on_what_was_asked_before():
    def rows(**asked):
        return simulate("hgx_h100", ["all_reduce", "all_to_all"], ["64K", "64M"], **asked).rows

    alone = []
    for asked in CALLS:
        runs.RUNS.clear()
        prepare.TOPOLOGIES.clear()
        alone.append(rows(**asked))
    times = {tuple(row.time_s for row in found) for found in alone[:7]}
    assert len(times) == 6  # they differ, but for the same four GPUs in two orders: a wrong one would be seen
    assert [rows(**asked) for asked in CALLS] == alone
    assert [rows(**asked) for asked in reversed(CALLS)] == alone[::-1]


def test_a_topology_is_built_and_its_routes_are_found_once(monkeypatch):
    runs.RUNS.clear()
    prepare.TOPOLOGIES.clear()
    calls = []
    load, routes = prepare.load_topology, runs.find_routes
    monkeypatch.setattr(prepare, "load_topology", lambda *a, **k: calls.append("load") or load(*a, **k))
    monkeypatch.setattr(runs, "find_routes", lambda *a, **k: calls.append("routes") or routes(*a, **k))
    for size in ("1M", "2M", "4M"):
        simulate("mi300x_ubb8", "all_reduce", size, algo="ring")
    assert calls == ["load", "routes"]


def test_files_are_read_again(tmp_path):
    file = tmp_path / "mine.yaml"
    text = "schema: collsim.topology/1\nbuilder: full_mesh\ngpu: {count: 4}\nlink: {bandwidth: %s GB/s}\n"
    times = []
    for bandwidth in (25, 50):
        file.write_text(text % bandwidth)
        times.append(simulate(file, "all_to_all", "1G", profile="ideal").time_s)
    assert times[0] == pytest.approx(2 * times[1])


def test_wrong_ones_stay_wrong():
    for _ in range(2):
        with pytest.raises(InputError, match="unknown path"):
            simulate("hgx_h100", "all_reduce", "1M", overrides={"lnk.bandwidth": "1 GB/s"})
