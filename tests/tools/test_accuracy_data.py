"""The measured tables of tools/data and the baselines that are scored on them."""

from __future__ import annotations

import csv
import importlib
import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from collsim.core.operations import DTYPES, OPERATIONS
from collsim.topology import load_topology

TOOLS = Path(__file__).parents[2] / "tools"
DATA = TOOLS / "data"
KINDS = {
    "",
    "box",
    "channels",
    "dtype",
    "launch",
    "matrix",
    "nodes",
    "operation",
    "ranks",
    "repeat",
    "site",
    "sizes",
    "system",
}
PRIVATE = (
    (re.compile(r"(?<![\w.])/(work|home|root|tmp|scratch|users?|mnt|opt|var)/", re.IGNORECASE), "a path"),
    (re.compile(r"[A-Za-z]:\\"), "a path"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[a-z]{2,}", re.IGNORECASE), "a mail address"),
    (re.compile(r"(?<![\d.])\d{1,3}(\.\d{1,3}){3}(?![\d.])"), "an address"),
)


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return {name: importlib.import_module(name) for name in ("predictors", "scores", "accuracy", "collect_logs")}


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


SPLIT = read(DATA / "split.csv")
SYSTEMS = sorted({entry["system"] for entry in SPLIT} - {"none"})
TABLES = {system: read(DATA / f"{system}.csv") for system in SYSTEMS}


def test_every_table_is_of_a_system_in_the_split():
    assert {path.stem for path in DATA.glob("*.csv")} == {
        *SYSTEMS,
        "split",
        "element_types",
        "moe",
        "moe_calls",
        "moe_kernels",
        "engines",
        "ring_channels",
        "symmetric",
    }
    for system in SYSTEMS:
        own = DATA / "systems" / f"{system}.yaml"
        assert load_topology(own if own.is_file() else system).name == system


def test_the_split_says_set_and_reason_of_every_log_once():
    assert len({entry["log"] for entry in SPLIT}) == len(SPLIT)
    for entry in SPLIT:
        assert entry["reason"], entry
        assert entry["source"], entry
        assert entry["kind"] in KINDS, entry
        assert (entry["kind"] != "") == (entry["set"] == "test"), entry
        assert entry["health"] in ("ok", "suspect", "faulty"), entry
        assert entry["set"] in (("train", "test", "none") if entry["health"] == "ok" else ("none",)), entry


def test_every_log_of_the_split_has_rows_and_every_row_a_log():
    rows = defaultdict(list)
    for system, table in TABLES.items():
        for row in table:
            rows[system, row["log"]].append(row)
    assert set(rows) == {(entry["system"], entry["log"]) for entry in SPLIT if entry["system"] != "none"}
    for entry in SPLIT:
        for row in rows[entry["system"], entry["log"]]:
            assert row["health"] == entry["health"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_rows_are_well_formed(system, modules):
    topology = load_topology(modules["predictors"].topo_of(system))
    seen = set()
    for row in TABLES[system]:
        assert tuple(row) == modules["collect_logs"].COLUMNS
        assert row["system"] == system
        assert row["op"] in OPERATIONS, row
        assert row["dtype"] in DTYPES, row
        assert row["launch"] in ("stream", "graph", "registered")
        assert re.fullmatch(r"(nccl|rccl)(-\d+(\.\d+)+)?", row["library"]), row
        assert re.fullmatch(r"((NCCL|RCCL|FI)_\w+=\w+( (NCCL|RCCL|FI)_\w+=\w+)*)?", row["env"]), row
        assert row["flag"] in ("", "spike")
        assert 2 <= int(row["ranks"]) <= topology.n_gpus
        assert int(row["size_bytes"]) > 0
        times = [float(row["out_of_place_us"]), *([float(row["in_place_us"])] if row["in_place_us"] else [])]
        assert all(0 < time < 1e7 for time in times), row
        assert (row["op"] == "all_to_all_v") == bool(row["matrix"])
        key = row["log"], row["size_bytes"], row["matrix"], row["scale"]
        assert key not in seen, key
        seen.add(key)


def test_a_matrix_gives_the_size_column(modules):
    for row in (row for table in TABLES.values() for row in table if row["matrix"]):
        table = np.array(modules["predictors"].matrix_bytes(row["matrix"], float(row["scale"])))
        assert table.shape == (int(row["ranks"]),) * 2
        assert max(table.sum(0).max(), table.sum(1).max()) == int(row["size_bytes"]), row


def test_no_table_has_a_path_or_a_personal_detail():
    for path in DATA.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        for pattern, what in PRIVATE:
            found = pattern.search(text)
            assert not found, f"{path.name} has {what}: {found[0] if found else ''}"


def test_no_fit_sees_an_mi300x_operation_too_many_or_a_byte_matrix():
    fitted = {entry["log"] for entry in SPLIT if entry["set"] == "train"}
    train = {(row["system"], row["op"]) for table in TABLES.values() for row in table if row["log"] in fitted}
    assert len([op for system, op in train if system == "mi300x_ubb8"]) <= 3
    assert "all_to_all_v" not in {op for _, op in train}
    assert ("hgx_h100", "all_reduce") in train


# --- baselines and scores --------------------------------------------------------------------------------------------


def case(modules, **changed):
    values = {"system": "s", "library": "nccl", "launch": "stream", "env": "", "nvls": "", "gpus_per_thread": 1,
              "ranks": 4, "op": "all_reduce", "dtype": "float", "size_bytes": 4000, "matrix": "",
              "scale": 1.0}  # fmt: skip
    return modules["predictors"].TableCase(**(values | changed))


def row_of(modules, one_case, time_s, **changed):
    values = {"log": "l", "case": one_case, "time_s": time_s, "out_of_place_s": time_s, "in_place_s": None,
              "set": "train", "kind": "", "site": "", "repeat": "", "health": "ok", "spike": False}  # fmt: skip
    return modules["predictors"].TableRow(**(values | changed))


def made_up(modules, **changed):
    """Six steps of 2 us and 1.5 of the size at 100 GB/s."""
    for size in (1024, 2**20, 2**25):
        one = case(modules, size_bytes=size, **changed)
        yield row_of(modules, one, 12e-6 + 1.5 * size / 100e9)


def test_alpha_beta_finds_the_law_that_made_the_rows(modules):
    predict = modules["predictors"].alpha_beta(list(made_up(modules)))
    assert predict(case(modules, size_bytes=2**30)).time_s == pytest.approx(12e-6 + 1.5 * 2**30 / 100e9)
    at_8 = predict(case(modules, ranks=8, size_bytes=2**20)).time_s
    assert at_8 == pytest.approx(14 * 2e-6 + 1.75 * 2**20 / 100e9)


def test_alpha_beta_of_an_operation_without_training_comes_from_its_kind(modules):
    predict = modules["predictors"].alpha_beta(list(made_up(modules)))
    gathered = predict(case(modules, op="all_gather", size_bytes=2**20)).time_s
    assert gathered == pytest.approx(6e-6 + 0.75 * 2**20 / 100e9)
    assert predict(case(modules, op="all_to_all")) is None
    assert predict(case(modules, launch="graph")) is None
    assert predict(case(modules, system="other")) is None


def test_alpha_beta_leaves_forced_runs_out_where_there_are_others(modules):
    slow = [row._replace(time_s=9 * row.time_s) for row in made_up(modules, env="NCCL_ALGO=Tree")]
    predict = modules["predictors"].alpha_beta([*made_up(modules), *slow])
    assert predict(case(modules, size_bytes=2**20)).time_s == pytest.approx(12e-6 + 1.5 * 2**20 / 100e9)


def test_bytes_of_the_busiest_rank(modules):
    steps_and_bytes = modules["predictors"].steps_and_bytes
    assert steps_and_bytes(case(modules, op="send_recv")) == (1, 4000)
    assert steps_and_bytes(case(modules, op="broadcast")) == (3, 4000)
    assert steps_and_bytes(case(modules, op="all_to_all")) == (3, 3000)
    incast = case(modules, op="all_to_all_v", matrix="incast")
    assert steps_and_bytes(incast) == (3, 3 * 2**27)


def test_host_floor_moves_predictions_by_what_tiny_rows_are_off(modules):
    predictors = modules["predictors"]
    rows = [row_of(modules, case(modules, size_bytes=size), 30e-6) for size in (256, 512, 1024, 2**16)]
    said = {row.case: predictors.Prediction(10e-6) for row in rows} | {rows[3].case: predictors.Prediction(15e-6)}
    assert predictors.with_host_floor(rows, said) == {3: pytest.approx(35e-6)}
    assert predictors.with_host_floor(rows[2:], said) == {}


def test_noise_is_between_repeats_only(modules):
    one = case(modules)
    rows = [row_of(modules, one, time, repeat=repeat) for time, repeat in ((1.0, "a"), (2.0, "a"), (9.0, ""))]
    assert [error for _, error in modules["scores"].noise_between(rows)] == [pytest.approx(math.log(0.5))]


def test_the_same_run_again_is_one_case_at_one_site_in_two_logs(modules):
    one, other = case(modules), case(modules, size_bytes=4 * 2**20)
    rows = [row_of(modules, one, 1.0), row_of(modules, one, 2.0)._replace(log="b"), row_of(modules, other, 9.0)]
    rows.append(row_of(modules, one, 5.0)._replace(log="c", site="elsewhere"))
    assert [error for _, error in modules["scores"].noise_again(rows)] == [pytest.approx(1.0), pytest.approx(-0.5)]
    assert not list(modules["scores"].noise_again([rows[0], rows[0]._replace(time_s=3.0)]))


def test_bands_bars_and_verdicts(modules):
    scores = modules["scores"]
    sizes = (8, 2**16, 2**20, 2**30)
    assert [scores.band_of(case(modules, size_bytes=size)) for size in sizes] == [
        "< 64 KiB", "64 KiB-1 MiB", ">= 1 MiB", ">= 1 MiB",
    ]  # fmt: skip
    assert [scores.band_of(case(modules, size_bytes=size, nodes=2)) for size in (*sizes, 2**25)] == [
        "< 64 KiB", "64 KiB-1 MiB", "1-32 MiB", ">= 512 MiB", "32-512 MiB",
    ]  # fmt: skip
    assert scores.bar_of("alps", "ring, <= 10 nodes", ">= 512 MiB", unseen=False).floor == (5, 10)
    assert scores.bar_of("alps", "ring, more nodes", ">= 512 MiB", unseen=False) is None
    bar = scores.bar_of("hgx_h100", "byte matrices", ">= 1 MiB", unseen=False)
    assert bar.floor == (8, 20)
    assert scores.bar_of("hgx_h100", "ring, graph", ">= 1 MiB", unseen=False).goal == (2, 6)
    assert scores.bar_of("dgx_a100", "ring", ">= 1 MiB", unseen=True) is None
    found = [scores.score([error] * 3) for error in (0.02, 0.05, 0.3)]
    assert [scores.verdict(one, bar) for one in found] == ["goal", "floor", "no"]
    assert scores.verdict(scores.score([]), bar) == "-"
    open_goal = scores.bar_of("hgx_h100", "ring", "< 64 KiB", unseen=False)
    assert open_goal == ((8, 20), (6, math.inf))
    tails = [scores.Score(120, 5.2, p90) for p90 in (24.0, 19.0)]
    assert [scores.verdict(found, open_goal) for found in tails] == ["no", "goal"]


def test_classes_follow_the_choice_of_the_library(modules):
    class_of = modules["scores"].class_of
    big = {"system": "hgx_h100", "ranks": 8, "size_bytes": 2**30}
    assert class_of(case(modules, **big)) == "NVLS"
    assert class_of(case(modules, **big, nvls="off")) == "ring"
    assert class_of(case(modules, **big, env="NCCL_ALGO=Ring NCCL_PROTO=LL", launch="graph")) == "ring, forced, graph"
    assert class_of(case(modules, **big, op="send_recv")) == "messages"


def test_intervals_count_rows_inside(modules):
    predictors = modules["predictors"]
    rows = [row_of(modules, case(modules, op="send_recv", size_bytes=size), 1.0) for size in (1000, 2000)]
    said = {rows[0].case: predictors.Prediction(1, 0.9, 1.1), rows[1].case: predictors.Prediction(2, 1.9, 2.1)}
    scores = modules["scores"]
    hits = scores.hits_of(rows, said)
    assert {cell: (found.percent, len(found.inside), found.bare) for cell, found in hits.items()} == dict.fromkeys(
        (("all", "all", "all"), ("s", "messages", "all"), ("s", "messages", "< 64 KiB")), (50, 2, 0)
    )
    bare = scores.hits_of(rows, {rows[0].case: predictors.Prediction(1, None, None)})["all", "all", "all"]
    assert (bare.inside, bare.bare, bare.place()) == ([], 2, "-")


@pytest.mark.parametrize(("inside", "logs", "place"), [(84, 5, "below"), (85, 5, "met"), (98, 5, "above"), (9, 4, "-")])
def test_a_class_of_enough_logs_is_judged_by_the_bar_of_intervals(modules, inside, logs, place):
    scores = modules["scores"]
    hits = scores.Hits(set(range(logs)), [True] * inside + [False] * (100 - inside))
    total = scores.Hits(set(range(9)), [True] * 9 + [False], bare=3)
    assert hits.place() == place
    text = modules["accuracy"].coverage({("all", "all", "all"): total, ("hgx_h100", "ring", "< 64 KiB"): hits})
    assert "Of 13 rows 3 have no interval; of the others 90.0 % are inside." in text
    assert (f"ring < 64 KiB {inside:.1f} %" in text) == (place in ("below", "above"))


def small_log(modules):
    """Four rows of a host that starts calls 20 us later than predicted, three of them tiny."""
    rows = [row_of(modules, case(modules, size_bytes=size), 30e-6, set="test") for size in (256, 512, 1024, 2**15)]
    return rows, {row.case: modules["predictors"].Prediction(10e-6) for row in rows}


def test_rows_are_judged_as_predicted_and_shown_with_the_host_floor_beside(modules):
    rows, said = small_log(modules)
    fitted = modules["scores"].Fitted({"s": frozenset(["here"])})
    rows = [*rows[:3], rows[3]._replace(site="here")]
    buckets = modules["scores"].fill(rows, rows, {"collsim": said}, fitted)
    bucket = buckets["s", "ring", "< 64 KiB"]
    assert bucket.errors["collsim"] == [pytest.approx(-2 / 3)] * 4
    assert bucket.errors["collsim as it is"] == [pytest.approx(-2 / 3)]
    assert bucket.errors["collsim moved"] == [pytest.approx(0.0)]
    assert bucket.at_home == 1
    line = modules["accuracy"].table(buckets, fitted, short=True).splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")[4:8]] == ["1", "4", "1", "66.7 / 66.7"]
    assert [cell.strip() for cell in line.split("|")[13:17]] == ["no", "0.0 / 0.0", "1", "66.7 / 66.7"]


def test_the_summary_tells_sites_of_the_fit_from_others_and_what_the_host_floor_would_change(modules):
    rows, said = small_log(modules)
    far = row_of(modules, case(modules, size_bytes=2**30, nodes=2), 20e-6, log="far", site="there", set="test")
    odd = row_of(modules, case(modules, system="odd", size_bytes=2**24, nodes=2), 40e-6, log="odd", set="test")
    said |= {one.case: modules["predictors"].Prediction(10e-6) for one in (far, odd)}
    rows = [*(row._replace(site="here") for row in rows), far, odd]
    fitted = modules["scores"].Fitted({"s": frozenset(["here"])})
    pools = modules["accuracy"].pooled(rows, rows, {"collsim": said, "alpha-beta": {}, "tuner": {}}, fitted)
    text = " ".join(modules["accuracy"].summary(pools).split())
    assert "| one node, site of the fit | < 64 KiB | 1 | 4 | 66.7 / 66.7 | - | - |" in text
    assert "| 2 to 10 nodes, another site | >= 512 MiB | 1 | 1 | 50.0 / 50.0 | - | - |" in text
    assert "| 2 to 10 nodes, system in no fit | 1-32 MiB | 1 | 1 | 75.0 / 75.0 | - | - |" in text
    assert "weak below 32 MiB: 75.0 / 75.0 from 1 MiB on, - below (the same run again:" in text
    assert "-, -); from 32 MiB on - at the sites of the fits and 50.0 / 50.0 elsewhere." in text
    assert "one node, < 64 KiB: 66.7 / 66.7 becomes 0.0 / 0.0 on the same 1 rows" in text
    short = " ".join(modules["accuracy"].overview(pools).split())
    assert "| one node | >= 1 MiB | 64 KiB-1 MiB | < 64 KiB |" in short
    assert "| site of the fit | - | - | 66.7 / 66.7 (4) |" in short
    assert "| another site | 50.0 / 50.0 (1) | - | - | - | - |" in short
    assert "| system in no fit | - | - | 75.0 / 75.0 (1) | - | - |" in short
    assert "weak below 32 MiB: 75.0 / 75.0 from 1 MiB on, - below (the same run again:" in short


def test_a_system_whose_training_rows_no_fit_takes_counts_as_in_no_fit(modules):
    rows = [row_of(modules, case(modules), 1.0, site="here"), row_of(modules, case(modules, system="t"), 1.0)]
    fitted = modules["scores"].fitted_sites(rows, {"s", "u"})
    assert [fitted.is_unseen(system) for system in "stu"] == [False, True, True]
    assert [fitted.is_home(row) for row in rows] == [True, False]


def test_collsim_answers_a_measured_case_of_every_system(modules):
    predictors = modules["predictors"]
    rows = {row.case.system: row for row in sorted(predictors.measured_rows(), key=lambda row: row.case.size_bytes)}
    assert set(rows) == set(SYSTEMS)
    for row in rows.values():
        assert predictors.predict(row.case).time_s > 0, predictors.refusal(row.case)


def test_a_collected_log_becomes_rows(modules, tmp_path):
    from collsim.calibration import read_log

    text = "# nThread 4 nGpus 1 minBytes 8 maxBytes 8 graph: 1\n#  size count type redop root time algbw busbw #wrong\n"
    rows = [f"{size} {size // 4} float sum -1 {time} {size / time / 1e3} {1.5 * size / time / 1e3} 0 5.0 1.0 1.5 0"
            for size, time in ((2**20, 20.0), (2**21, 90.0), (2**22, 30.0))]  # fmt: skip
    path = tmp_path / "all_reduce.log"
    path.write_text("# env: NCCL_ALGO=Ring NCCL_DEBUG=INFO\n" + text + "\n".join(rows) + "\n")
    entry = {"log": "x", "system": "hgx_h100", "source": "owner/repo: a/b.txt (commit abc1234)", "library": "nccl",
             "launch": "", "env": "", "nvls": "", "gpus_per_thread": "", "health": "ok", "set": "test"}  # fmt: skip
    found = modules["collect_logs"].rows_of(entry, read_log(path, ranks=4, nodes=1).tests[0])
    assert {key for row in found for key in row} == set(modules["collect_logs"].COLUMNS)
    assert [row["flag"] for row in found] == ["", "spike", ""]
    assert {(row["env"], row["launch"], row["source"]) for row in found} == {
        ("NCCL_ALGO=Ring", "graph", "owner/repo@abc1234")
    }
    assert [row["out_of_place_us"] for row in found] == [20.0, 90.0, 30.0]
    told = modules["collect_logs"].rows_of({**entry, "gpus_per_thread": "8"}, read_log(path, ranks=4, nodes=1).tests[0])
    assert {row["gpus_per_thread"] for row in told} == {"8"}


@pytest.mark.parametrize(("said", "read", "library"), [
    ("nccl-2.29.2", "nccl-2.18.3", "nccl-2.29.2"), ("nccl", "nccl-2.27.3", "nccl-2.27.3"), ("rccl", "", "rccl"),
])  # fmt: skip
def test_a_version_counts_more_than_a_name(modules, said, read, library):
    assert modules["collect_logs"].better_library(said, read) == library


def test_figures_become_rows_and_logs_without_a_place_are_named(modules, tmp_path):
    collect = modules["collect_logs"]
    (tmp_path / "INDEX.csv").write_text(
        "file,op,ranks,nodes,datatype\na,alltoall,16,2,float\nb,all_reduce,8,1,float\n", encoding="utf-8"
    )
    (tmp_path / "figures.csv").write_text(
        "log,size_bytes,count,time_oop_us,busbw_oop,time_ip_us,busbw_ip\na,1024,256,50.5,1,40,1\n", encoding="utf-8"
    )
    figures = collect.find_figures([str(tmp_path)])
    entry = {"log": "a", "system": "h100_rail", "source": "owner/repo: x (commit abc1234)", "library": "nccl",
             "launch": "", "env": "", "nvls": "", "gpus_per_thread": "", "health": "ok"}  # fmt: skip
    (row,) = collect.rows_of_figures(entry, figures["a"])
    assert (row["op"], row["ranks"], row["nodes"], row["out_of_place_us"]) == ("all_to_all", 16, 2, 50.5)
    assert row["in_place_us"] is None
    assert set(row) == set(collect.COLUMNS)
    assert collect.unplaced([str(tmp_path)], [entry]) == ["b: not in the split"]


def test_tables_of_nccl_become_logs_by_system_ranks_and_operation(modules, tmp_path):
    (tmp_path / "nccl.csv").write_text(
        "system,nccl,op,dtype,gpus,count,size_bytes,time_us,min_us,max_us,runs\n"
        "gb200,2.29.2,alltoall,half,4,256,512,10.66,1,2,6\ngb200,2.29.2,alltoall,half,4,512,1024,10.67,1,2,6\n"
        "gb300,2.27.3,alltoall,half,2,256,512,9.1,1,2,1\n",
        encoding="utf-8",
    )
    collect = modules["collect_logs"]
    tables = collect.find_tables([str(tmp_path)])
    assert list(tables) == ["GB200-NVL72-4x1__alltoall__aiconfigurator"]
    entry = {"log": "a", "system": "gb200_nvl72", "source": "x", "library": "nccl-2.29.2", "launch": "", "env": "",
             "nvls": "", "gpus_per_thread": "", "health": "ok"}  # fmt: skip
    rows = collect.rows_of_figures(entry, tables["GB200-NVL72-4x1__alltoall__aiconfigurator"])
    assert [(row["op"], row["ranks"], row["dtype"], row["size_bytes"], row["out_of_place_us"]) for row in rows] == [
        ("all_to_all", 4, "half", 512, 10.66),
        ("all_to_all", 4, "half", 1024, 10.67),
    ]


def test_the_page_of_the_model_has_the_overview_of_the_readme(modules):
    accuracy = modules["accuracy"]
    readme, model = (page.read_text(encoding="utf-8") for page in (accuracy.README, accuracy.MODEL))
    own, shown = (text.partition(accuracy.BEGIN)[2].partition(accuracy.END)[0] for text in (readme, model))
    assert own
    assert shown == accuracy.as_in_docs(own)
