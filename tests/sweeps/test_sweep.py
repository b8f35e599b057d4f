"""Sweeps: resumed after kills, on processes and on Dask; failures of points; Pareto fronts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import collsim
from collsim.core.errors import Fault, InputError, ModelError
from collsim.prices import price_of
from collsim.report.sheet import Screen
from collsim.report.sweep import render_sweep
from collsim.sweeps import runs, workers
from collsim.sweeps.answer import _moe, answered, lost
from collsim.sweeps.grid import read_grid
from collsim.sweeps.journal import Journal
from collsim.sweeps.pareto import OBJECTIVES, pareto_front

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.argv[0] = 'collsim'; from collsim.cli import main; main()"
SMALL = {
    "base": {"topo": "hgx_h100", "op": "all_to_all", "profile": "ideal", "ranks": 2},
    "grid": {"size": ["1M", "2M", "4M"]},
}


def grid_file(folder, sizes):
    file = folder / "grid.yaml"
    axes = {"size": [1024 * (i + 1) for i in range(sizes)]}
    file.write_text(json.dumps({"schema": "collsim.sweep/1", "base": SMALL["base"], "grid": axes}))
    return file


def lines_of(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


def killed_at(command, output, lines):
    """Run a command and kill it as soon as its output has so many lines."""
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while lines_of(output) < lines and running.poll() is None:
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()


def answers_of(file):
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return {record["asked"]["size"]: record["answer"] for record in records}, len(records)


@pytest.mark.parametrize(
    ("points", "jobs"),
    [(30, 1), pytest.param(500, 1, marks=pytest.mark.deep), pytest.param(500, 2, marks=pytest.mark.deep)],
)
def test_points_of_a_killed_sweep_are_all_there_once(tmp_path, points, jobs):
    grid, output = grid_file(tmp_path, points), tmp_path / "rows.jsonl"
    command = [sys.executable, "-c", PROGRAM, "sweep", str(grid), "-o", str(output), "--jobs", str(jobs), "-q"]
    for lines in (points // 3,) if points < 100 else (points // 8, points // 3, points // 2):
        killed_at(command, output, lines)
        assert lines <= lines_of(output) < points
        with output.open("a") as stream:
            stream.write('{"schema": "collsim.sweep_po')  # as a line looks that a kill tore
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    answers, records = answers_of(output)
    assert records == len(answers) == points
    for size in (1024, points // 2 * 1024, points * 1024):
        assert answers[size]["time_s"] == collsim.simulate(size=size, **SMALL["base"]).time_s
    before = output.read_bytes()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert output.read_bytes() == before


def test_processes_give_the_same_and_one_that_dies_costs_its_point_alone(tmp_path, monkeypatch):
    alone = collsim.sweep(SMALL, jobs=1)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "deadly.py").write_text(
        "import os\nfrom collsim.sweeps.answer import answered as true\n"
        "def answered(point):\n    return os._exit(9) if point.asked['size'] == '2M' else true(point)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import deadly

    monkeypatch.setattr(workers, "answered", deadly.answered)
    found = collsim.sweep(SMALL, jobs=2)
    assert [row["status"] for row in found] == ["ok", "failed", "ok"]
    assert "died" in found.rows[1]["error"]
    assert found.rows[0]["answer"] == alone.rows[0]["answer"]
    assert found.rows[2]["answer"] == alone.rows[2]["answer"]


def test_a_failing_point_is_recorded_and_not_asked_again(tmp_path, monkeypatch):
    grid = {"base": SMALL["base"] | {"size": "1M"}, "grid": {"ranks": [2, 99, 4]}}
    found = collsim.sweep(grid, tmp_path / "a.jsonl")
    assert [row["status"] for row in found] == ["ok", "failed", "ok"]
    assert "99 ranks on 8 GPUs" in found.failed[0]["error"]
    monkeypatch.setattr(workers, "answered", lambda _: pytest.fail("asked again"))
    again = collsim.sweep(grid, tmp_path / "a.jsonl")
    assert (again.new, again.kept, again.rows) == (0, 3, found.rows)


def test_failed_points_are_asked_again_on_demand(tmp_path, monkeypatch):
    """What went wrong was no fault of the point: now it has an answer, which counts in place of the error."""
    points, grid = tmp_path / "a.jsonl", {"base": SMALL["base"] | {"size": "1M"}, "grid": {"ranks": [2, 4]}}
    true = answered
    monkeypatch.setattr(
        workers, "answered", lambda point: lost(point, "died") if point.asked["ranks"] == 4 else true(point)
    )
    assert len(collsim.sweep(grid, points).failed) == 1
    asked = []
    monkeypatch.setattr(workers, "answered", lambda point: asked.append(point.asked["ranks"]) or true(point))
    again = collsim.sweep(grid, points, retry_failed=True)
    assert (asked, again.new, again.kept, again.failed) == ([4], 1, 1, ())
    later = collsim.sweep(grid, points, retry_failed=True)
    assert (asked, later.new, later.rows) == ([4], 0, again.rows)
    pytest.importorskip("polars")
    monkeypatch.setattr(workers, "answered", lambda point: lost(point, "died"))
    assert len(collsim.sweep(grid, tmp_path / "a.parquet").failed) == 2
    monkeypatch.setattr(workers, "answered", true)
    assert collsim.sweep(grid, tmp_path / "a.parquet", retry_failed=True).rows == again.rows
    assert collsim.sweep(grid, tmp_path / "a.parquet").rows == again.rows


def test_interrupted_with_workers_says_where_it_goes_on_and_nothing_else(tmp_path):
    grid, output = grid_file(tmp_path, 5000), tmp_path / "rows.jsonl"
    command = [sys.executable, "-c", PROGRAM, "sweep", str(grid), "-o", str(output), "--jobs", "2"]
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while lines_of(output) < 5:
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = running.communicate(timeout=600)
    assert running.returncode == 130
    assert [line for line in said.splitlines() if line] == [
        f"points that are done are in {output}: the same command goes on there",
        "interrupted: files that were not finished were not written",
    ]
    assert 5 <= lines_of(output) < 5000
    assert output.read_bytes().endswith(b"\n")


def test_a_defect_stops_no_other_point(monkeypatch):
    from collsim.sweeps import answer
    from collsim.sweeps.points import point_of

    monkeypatch.setitem(answer.ANSWERS, "run", lambda _: 1 / 0)
    record = answered(point_of("run", {"topo": "hgx_h100", "op": "all_reduce", "size": "1M"}))
    assert record["status"] == "failed"
    assert "ZeroDivisionError" in record["error"]


def test_a_larger_grid_keeps_what_is_there(tmp_path):
    few = collsim.sweep(SMALL, tmp_path / "a.jsonl")
    more = {**SMALL, "grid": {"size": ["8M", "1M", "2M"]}}
    found = collsim.sweep(more, tmp_path / "a.jsonl")
    assert (found.new, found.kept, found.others) == (1, 2, 1)
    assert [row["asked"]["size"] for row in found] == ["8M", "1M", "2M"]
    assert found.rows[1] == few.rows[0]


def test_parquet_goes_on_and_has_columns(tmp_path):
    import polars

    file = tmp_path / "a.parquet"
    collsim.sweep({**SMALL, "grid": {"size": ["1M", "2M"]}}, file)
    found = collsim.sweep(SMALL, file)
    assert (found.new, found.kept) == (1, 2)
    frame = polars.read_parquet(file)
    assert sorted(frame["size_bytes"]) == [1 << 20, 2 << 20, 4 << 20]
    assert set(frame["asked.topo"]) == {"hgx_h100"}
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]
    assert collsim.sweep(SMALL, file).rows == found.rows


def test_parquet_that_was_killed_goes_on_from_the_lines_beside_it(tmp_path):
    file = tmp_path / "a.parquet"
    collsim.sweep({**SMALL, "grid": {"size": ["1M", "2M"]}}, tmp_path / "a.parquet.jsonl")
    found = collsim.sweep(SMALL, file)
    assert (found.new, found.kept) == (1, 2)
    assert not (tmp_path / "a.parquet.jsonl").exists()


@pytest.mark.parametrize("content", ['{"a": 1}\n', "time,size\n1,2\n", "some text without an end", "[1]\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match="no point of a sweep"):
        collsim.sweep(SMALL, file)
    assert file.read_text() == content


def test_two_sweeps_do_not_write_to_one_file(tmp_path):
    file = str(tmp_path / "a.jsonl")
    with Journal(file), pytest.raises(InputError, match="another sweep"), Journal(file):
        pass
    with Journal(file):
        pass


def test_front_is_what_nothing_beats():
    answers = [{"time_s": t, "usd": c} for t in range(1, 8) for c in range(1, 8) if t * c >= 6]
    beaten = [
        any(o["time_s"] <= a["time_s"] and o["usd"] <= a["usd"] and o != a for o in answers) for a in answers
    ]  # fmt: skip
    assert sorted(pareto_front(answers, ["time", "cost"])) == [i for i, bad in enumerate(beaten) if not bad]
    assert pareto_front([{"busbw_Bps": 1, "usd": None}, {"busbw_Bps": 1, "usd": 2}], ["busbw", "cost"]) == [1]


def test_fronts_compare_points_of_the_same_work():
    grid = {"base": {"op": "all_reduce"}, "grid": {"size": ["1M", "256M"], "topo": ["hgx_b200", "mi355x_ubb8"]}}
    front = collsim.sweep(grid, pareto="cost,time").front()
    assert {row["asked"]["size"] for row in front} == {"1M", "256M"}


def test_a_table_has_points_with_the_same_measures_once_and_says_which_are_left_out():
    """Adapters change nothing on one node: each point of the front is there twice, and once in the table."""
    grid = {
        "base": {"op": "all_reduce", "size": "16M"},
        "grid": {"topo": ["hgx_b200", "mi355x_ubb8"]},
        "points": [{}, {"set.nic.bandwidth": "800 Gb/s"}],
    }
    found = collsim.sweep(grid, pareto="cost,time")
    text = render_sweep(found)
    assert len(found.front()) == 4
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == 2
    assert "the 2 that no other" in text
    assert "2 others with the same measures as one of them: nic.bandwidth 800 Gb/s (2)" in text


@pytest.mark.parametrize("width", [60, 80, 120, None])
@pytest.mark.parametrize("pareto", ["cost,time", "energy,gpus", "cost_per_TB,energy_per_TB", "busbw,cost"])
def test_the_measures_of_a_front_are_on_every_screen(pareto, width):
    grid = {"base": {"op": "all_reduce", "size": "16M"}, "grid": {"topo": ["hgx_b200", "mi355x_ubb8"]}}
    text = render_sweep(collsim.sweep(grid, pareto=pareto), "table", Screen(width))
    (head,) = [line.split() for line in text.splitlines() if line.startswith("# ") and line.split()[1] == "topo"]
    assert {name.replace("_per_", "/") for name in pareto.split(",")} <= {*head}


def test_arguments_are_checked_together(tmp_path):
    with pytest.raises(InputError) as caught:
        collsim.sweep({"base": {}}, tmp_path / "a.csv", jobs=0, pareto="tim,cost")
    told = str(caught.value)
    for part in ("no topo", "no size", "0 processes", 'did you mean "time"', ".csv"):
        assert part in told


CLUSTER = ("-m", "distributed.cli.dask_scheduler"), ("-m", "distributed.cli.dask_worker")


@pytest.fixture
def dask_cluster(tmp_path):
    """A scheduler and two workers on loopback, each a process; yields the address and the workers."""
    pytest.importorskip("distributed")
    told = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path, "env": environment}
    scheduler, worker = ([sys.executable, *each] for each in CLUSTER)
    started = [subprocess.Popen([*scheduler, "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                                 "--scheduler-file", str(told)], **quiet)]  # fmt: skip
    try:
        while not told.exists():
            assert started[0].poll() is None
            time.sleep(0.05)
        own = ["--scheduler-file", str(told), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        started += [subprocess.Popen([*worker, *own, "--name", name], **quiet) for name in ("one", "two")]
        yield json.loads(told.read_text())["address"], started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.mark.deep
@pytest.mark.filterwarnings("default")
def test_dask_gives_the_same_and_a_lost_worker_loses_nothing(tmp_path, dask_cluster):
    address, (first, _) = dask_cluster
    grid = json.loads(grid_file(tmp_path, 500).read_text())
    local = collsim.sweep(grid, jobs=1)
    found = collsim.sweep(grid, tmp_path / "dask.jsonl", dask=address)
    assert [row["answer"] for row in found] == [row["answer"] for row in local]

    def kill(done, of):
        if done == of // 4:
            first.send_signal(signal.SIGKILL)

    again = collsim.sweep(grid, tmp_path / "lost.jsonl", dask=address, progress=kill)
    assert first.wait() == -signal.SIGKILL
    assert not again.failed
    assert [row["answer"] for row in again] == [row["answer"] for row in local]
    assert lines_of(tmp_path / "lost.jsonl") == 500


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:9", "nowhere", "127.0.0.1", "tcp://127.0.0.1:many", "tcp://:8786"]
)
def test_no_scheduler_is_told(monkeypatch, address):
    """Nobody listens there: that is told before a client is made, which would end in a traceback of its own."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: pytest.fail("a client was made"))
    with pytest.raises(InputError, match=f"no Dask scheduler answers at {address}") as caught:
        collsim.sweep(SMALL, dask=address)
    assert "tcp://HOST:8786" in str(caught.value)


def test_each_objective_has_its_better_end():
    """Of two answers alike in all else the smaller is on the front, or the larger of rates; whole table."""
    more_is_better = {"busbw", "tokens"}
    for name, (key, _) in OBJECTIVES.items():
        answers = [{"other": 1, key: 7.0}, {"other": 1, key: 9.0}]
        assert pareto_front(answers, [name]) == [int(name in more_is_better)], name


def test_a_point_of_experts_is_limited_by_what_limits_the_longer_of_the_two():
    asked = {"topo": "hgx_h100", "model": "deepseek-v3", "ep": 8, "tokens": 4096, "mode": "normal"}
    answer, rows = _moe(asked), {row.op: row for row in collsim.simulate_moe(**asked).rows}
    assert rows["dispatch"].limited_by != rows["combine"].limited_by
    assert rows["dispatch"].time_s != rows["combine"].time_s
    assert answer["limited_by"] == max(rows.values(), key=lambda row: row.time_s).limited_by
    assert answer["time_s"] == sum(row.time_s for row in rows.values())


def only_answer(base, kind="run"):
    (found,) = read_grid({"kind": kind, "base": base})
    record = answered(found)
    assert record["error"] is None
    return record["answer"]


def test_dollars_and_energy_of_a_point_by_hand():
    """GPUs of all groups, for as long as it takes; bytes that all of them move at their bus bandwidth."""
    base = {"topo": "hgx_h100", "op": "all_reduce", "size": "64M", "groups": "tp=4,dp=2", "over": "tp"}
    found, price = only_answer(base), price_of("H100 SXM5")
    assert (found["gpus"], found["ranks"], found["groups"]) == (8, 4, 2)
    hours = found["time_s"] / 3600
    assert found["usd"] == pytest.approx(8 * price.usd_per_hour.value * hours)
    moved_TB = 8 * found["busbw_Bps"] * found["time_s"] / 1e12
    assert found["usd_per_TB"] == pytest.approx(found["usd"] / moved_TB)
    assert found["joules_per_TB"] == pytest.approx(found["joules"] / moved_TB)


def test_tokens_and_dollars_of_a_point_of_experts_by_hand():
    """4096 tokens of each of 8 ranks, through all layers of the model: DeepSeek-V3 has 58 with experts."""
    found = only_answer({"topo": "hgx_h100", "model": "deepseek-v3", "ep": 8, "tokens": 4096}, "moe")
    assert found["tokens"] == 8 * 4096
    assert found["time_s"] == pytest.approx(found["dispatch_time_s"] + found["combine_time_s"])
    assert found["tokens_per_s"] == pytest.approx(8 * 4096 / (58 * found["time_s"]))
    assert found["usd"] == pytest.approx(8 * price_of("H100 SXM5").usd_per_hour.value * found["time_s"] / 3600)
    assert found["usd_per_million_tokens"] == pytest.approx(58 * found["usd"] / (8 * 4096) * 1e6)


def test_tokens_and_dollars_of_a_point_of_a_step_by_hand():
    workload = str(ROOT / "examples" / "training_step.yaml")
    found = only_answer({"workload": workload, "topo": "hgx_h100"}, "timeline")
    step = collsim.simulate_timeline(workload, topo="hgx_h100")
    assert found["time_s"] == pytest.approx(step.step_time_s)
    assert (found["communication_s"], found["compute_s"]) == pytest.approx((step.communication_s, step.compute_s))
    assert found["exposed_s"] == pytest.approx(step.exposed_s)
    hourly = price_of("H100 SXM5").usd_per_hour.value
    assert found["usd"] == pytest.approx(found["gpus"] * hourly * found["time_s"] / 3600)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError(Fault("too small", "size", "give more")), 2, "size: too small (give more)"),
        (ModelError(Fault("no answer")), 3, "no answer"),
        (MemoryError(), 3, "out of memory"),
        (ZeroDivisionError("by nothing"), 1, "ZeroDivisionError: by nothing"),
    ],
)
def test_exit_codes_of_points_are_those_of_commands(monkeypatch, error, code, told):
    from collsim.sweeps.answer import ANSWERS

    def fails(asked):
        raise error

    (point,) = read_grid({"base": {**SMALL["base"], "size": "1M"}})
    monkeypatch.setitem(ANSWERS, "run", fails)
    record = answered(point)
    assert (record["status"], record["exit_code"], record["answer"]) == ("failed", code, {})
    assert record["error"].startswith(told)
    assert lost(point, "killed")["exit_code"] == 3


def test_a_file_of_points_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(InputError) as caught, Journal(str(tmp_path)):
        pass
    assert [(fault.what, fault.where) for fault in caught.value.faults] == [
        ("cannot be written: Is a directory", str(tmp_path))
    ]


@pytest.mark.parametrize(("told", "cores"), [(None, 1), (1, 1), (6, 6)])
def test_a_machine_that_does_not_say_which_cores_are_ours_is_used_whole(monkeypatch, told, cores):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: told)
    assert runs._cores() == cores


def test_cores_are_those_of_this_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5} if process == 0 else {0, 1, 2}, raising=False)
    assert runs._cores() == 2
