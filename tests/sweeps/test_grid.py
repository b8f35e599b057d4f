"""Grids: which points they say, what tells two points apart, and what is wrong with a file."""

import pytest

import collsim
from collsim.core.errors import SpecError
from collsim.sweeps.grid import read_grid
from collsim.sweeps.points import arguments_of, point_of

BASE = {"topo": "hgx_h100", "op": "all_reduce", "size": "1M"}


def asked(**parts):
    return [
        {name: value for name, value in point.asked.items() if BASE.get(name) != value} for point in read_grid(parts)
    ]


def test_every_combination_with_the_last_axis_fastest():
    found = asked(base=BASE, grid={"ranks": [2, 4], "proto": ["LL", "Simple"]})
    assert [(point["ranks"], point["proto"]) for point in found] == [(2, "LL"), (2, "Simple"), (4, "LL"), (4, "Simple")]


def test_zip_walks_together_and_points_are_added():
    found = asked(base=BASE, zip={"nodes": [2, 4], "ranks": [16, 32]}, points=[{}, {"set.nic.bandwidth": "800 Gb/s"}])
    assert [(point["nodes"], point["ranks"], "overrides.nic.bandwidth" in point) for point in found] == [
        (2, 16, False), (4, 32, False), (2, 16, True), (4, 32, True),
    ]  # fmt: skip


def test_flags_and_arguments_are_names_of_the_same():
    one, other = (read_grid({"base": {**BASE, name: 4}, "grid": {"env.NCCL_ALGO": ["Ring"]}})[0]
                  for name in ("gpus_per_node", "gpus-per-node"))  # fmt: skip
    assert one == other
    assert arguments_of("run", one.asked)["environment"] == {"NCCL_ALGO": "Ring"}


def test_the_same_question_in_other_words_is_one_point():
    words = {"size": ["1M", 1048576, "1024K"], "op": ["all_reduce", "allreduce"], "root": [0], "dtype": ["float"]}
    assert len(read_grid({"base": BASE, "grid": words})) == 1
    assert len(read_grid({"base": BASE, "grid": {"size": ["1M", 1048592]}})) == 2


@pytest.mark.parametrize(
    "change", [{"nodes": 2}, {"overrides.link.latency": "1 us"}, {"fail": "gpu:gpu5"}, {"redop": "max"}]
)
def test_whatever_is_asked_counts(change):
    assert point_of("run", {**BASE, **change}).key != point_of("run", BASE).key


def test_content_of_files_and_version_count(tmp_path, monkeypatch):
    from collsim.sweeps import points

    file = tmp_path / "own.yaml"
    keys = set()
    for text in ("a: 1", "a: 2"):
        file.write_text(text)
        points._content.cache_clear()
        keys.add(point_of("run", {**BASE, "topo": str(file)}).key)
    monkeypatch.setattr(points, "__version__", "99")
    keys.add(point_of("run", {**BASE, "topo": str(file)}).key)
    assert len(keys) == 3


def test_every_fault_at_once_with_the_nearest_name():
    grid = {
        "bas": {},
        "base": {"op": "all_redcue", "size": ["1M", "2M"]},
        "grid": {"topo": ["hgx_h10"], "nods": [1], "algo": ["rign"], "nodes": 3},
        "zip": {"channels": [1, 2], "root": [0]},
    }
    with pytest.raises(SpecError) as caught:
        read_grid(grid)
    places = {fault.where or fault.what: fault.hint for fault in caught.value.faults}
    nearest = {"base.op": "all_reduce", "grid.topo[0]": "hgx_h100", "grid.nods": "nodes", "grid.algo[0]": "ring"}
    for place, name in {**nearest, 'unknown key "bas"': "base"}.items():
        assert f'did you mean "{name}"?' in places[place]
    assert {"base.size", "grid.nodes", "zip"} < set(places)
    assert not any(place.startswith("no ") for place in places)


def test_paths_and_workloads_are_checked_before_any_point():
    with pytest.raises(SpecError, match=r'did you mean "link\.bandwidth"'):
        read_grid({"base": BASE, "grid": {"set.link.bandwith": ["1 GB/s"]}})
    assert len(read_grid({"base": BASE, "grid": {"set.link.bandwidth": ["10 GB/s", "20 GB/s"]}})) == 2
    with pytest.raises(SpecError, match=r"no\.yaml: cannot be read"):
        read_grid({"kind": "timeline", "base": {"topo": "hgx_h100", "workload": "no.yaml"}})


def test_what_is_lacking_is_told():
    with pytest.raises(SpecError, match="no size"):
        read_grid({"base": {"topo": "hgx_h100", "op": "all_reduce"}})


def test_kinds_answer_what_their_functions_do():
    moe = collsim.sweep(
        {"kind": "moe", "base": {"topo": "hgx_h100", "tokens": 128, "load_only": True}, "grid": {"ep": [8]}}
    )
    alone = collsim.simulate_moe("hgx_h100", ep=8, tokens=128, load_only=True)
    assert moe.rows[0]["answer"]["time_s"] == sum(row.time_s for row in alone.rows)
    step = {"workload": "examples/training_step.yaml", "topo": "hgx_h100"}
    found = collsim.sweep({"kind": "timeline", "base": step, "grid": {"compute_scale": [1.0, 0.5]}})
    alone = collsim.simulate_timeline("examples/training_step.yaml", topo="hgx_h100", compute_scale=0.5)
    assert found.rows[1]["answer"]["time_s"] == alone.step_time_s
    assert found.rows[0]["answer"]["time_s"] > alone.step_time_s


def test_figures_of_a_workload_are_axes():
    small = {"figures": {"model": "llama-3-8b", "layout": "tp=2,pp=2,dp=2", "chunks": 1}}
    step = {"workload": "examples/llama_step.yaml", "topo": "hgx_h100", **small}
    found = collsim.sweep({"kind": "timeline", "base": step, "grid": {"figures.batches": [2, 4]}})
    few, many = (row["answer"] for row in found)
    assert many["tokens"] == 2 * few["tokens"] == 4 * 8192 * 2  # batches of one sequence, two copies
    assert few["gpus"] == 2 * 2 * 2
    assert many["tokens_per_s"] > few["tokens_per_s"]  # the pipeline fills once for more batches


def test_a_value_that_another_would_hide_is_refused():
    with pytest.raises(SpecError) as refused:
        read_grid(
            {
                "base": {**BASE, "gpus-per-node": 4, "gpus_per_node": 8},
                "grid": {"ranks": [2], "channels": []},
                "zip": {"ranks": [4]},
                "points": [{"size": "2M"}, {"ranks": 8}],
            }
        )
    assert [(fault.where, fault.what) for fault in refused.value.faults] == [
        ("base.gpus_per_node", "the same as base.gpus-per-node"),
        ("grid.channels", "an empty list"),
        ("zip.ranks", "varied here and in grid"),
        ("points.ranks", "varied here and in grid"),
    ]


def test_names_and_counts_are_checked_before_anything_runs():
    wrong = {"fabric": "railz", "network": "ethernt", "profile": "idael", "redop": "summ", "nodes": 0, "ranks": "x"}
    with pytest.raises(SpecError) as refused:
        read_grid({"base": {**BASE, **wrong, "env.NCCL_ALGOO": "ring"}})
    assert [fault.where for fault in refused.value.faults] == [
        *(f"base.{name}" for name in wrong), "base.env.NCCL_ALGOO",
    ]  # fmt: skip
    assert len(read_grid({"base": {**BASE, "algo": "Ring", "fabric": "rail", "nodes": None}})) == 1


def test_numbers_that_no_record_can_hold_are_refused():
    with pytest.raises(SpecError) as refused:
        read_grid({"base": BASE, "grid": {"tolerance": [float("nan")], "set.link.bandwidth": [float("inf")]}})
    assert [fault.where for fault in refused.value.faults] == ["grid.tolerance[0]", "grid.set.link.bandwidth[0]"]
