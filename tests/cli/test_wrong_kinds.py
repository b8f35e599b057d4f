"""Wrong kinds of values from Python, wrong words of every command: each names its argument or flag, and what is right.

Beside `test_forty_wrong_calls`, which has names that are misspelt.
"""

import inspect
import json
import math
import shlex
from types import FunctionType

import numpy as np
import pytest

import collsim as library
from collsim.core.errors import CollsimError

from .conftest import ROOT

LOG, STEP = str(ROOT / "examples" / "h100_all_reduce.log"), str(ROOT / "examples" / "training_step.yaml")
SERVING, GRID = str(ROOT / "examples" / "serving.yaml"), str(ROOT / "examples" / "sweep.yaml")
RUN, TWO = ("hgx_h100", "all_reduce", "1M"), (["hgx_h100", "hgx_b200"], "all_reduce", "1M")
POINTS = {"base": {"topo": "hgx_h100", "op": "all_reduce", "profile": "ideal"}, "grid": {"size": ["1M"]}}
LINKS = {"link:gpu0-nvsw0": math.nan}
PYTHON = (
    ("simulate", ("hgx_h100",), {}, "op", "simulate needs topo and op"),
    ("simulate", (*RUN, "sum"), {}, "simulate", "takes topo, op, size; name the others"),
    ("simulate", RUN, {"op": "all_gather"}, "op", "it is argument 2 already"),
    ("simulate", (None, "all_reduce"), {}, "topo", "collsim topo list"),
    ("simulate", (["hgx_h100"], "all_reduce"), {}, "topo", "a name, a path or a graph"),
    ("simulate", ("hgx_h100", None), {}, "op", "name one of all_reduce"),
    ("simulate", (*RUN[:2], math.nan), {}, "size", '"64M" (64 MiB)'),
    ("simulate", (*RUN[:2], {"1M"}), {}, "size", "pass a list"),
    ("simulate", (*RUN[:2], ["1M", None]), {}, "size", '"64M" (64 MiB)'),
    ("simulate", (*RUN[:2], -1), {}, "size", "more than 0"),
    ("simulate", RUN, {"nodes": 2.0}, "nodes", "such as 8"),
    ("simulate", RUN, {"ranks": "4"}, "ranks", "takes 2 to 8"),
    ("simulate", RUN, {"rank_list": "0,1"}, "rank_list", "write [0, 1, 2]"),
    ("simulate", RUN, {"channels": True}, "channels", "between 1 and 128"),
    ("simulate", RUN, {"dtype": np.float32}, "dtype", "half, float, double"),
    ("simulate", RUN, {"profile": {}}, "profile", "a name, a path or a Profile"),
    ("simulate", RUN, {"environment": ["NCCL_ALGO=Ring"]}, "environment", '{"NCCL_ALGO": "Ring"}'),
    ("simulate", RUN, {"reduce": "no"}, "reduce", "True or False"),
    ("simulate", RUN, {"split": 8}, "split", '"MOD 8"'),
    ("simulate", RUN, {"groups": "tp=4,dp=2", "over": 5}, "over", "name dimensions of the layout"),
    ("simulate", RUN, {"overrides": {"link.bandwidth": 80e9}}, "overrides", '"80 GB/s"'),
    ("simulate", RUN, {"fail": {"link:gpu0-nvsw0": False}}, "fail", '["link:gpu0-gpu1"]'),
    ("simulate", RUN, {"degrade": LINKS}, "degrade", "at least 0.0001% and at most 100%"),
    (
        "simulate",
        ("hgx_h100", "all_to_all_v"),
        {"matrix": "none.csv"},
        "matrix: none.csv",
        "the path that matrix names",
    ),
    ("compare", ("hgx_h100", "all_reduce"), {}, "topos", '["hgx_h100", "hgx_b200"]'),
    ("compare", TWO, {"price": 2.5}, "price", '{"hgx_b200": 2.50}'),
    ("compare", TWO, {"cost": "yes"}, "cost", "True or False"),
    ("compare_moe", ([],), {"ep": 8}, "topos", "name two or more"),
    ("simulate_moe", ("hgx_h100",), {"counts": []}, "counts", "(256,) for tokens of each expert"),
    ("simulate_moe", ("hgx_h100",), {"balanced": "yes"}, "balanced", "True or False"),
    ("simulate_moe", ("hgx_h100",), {"tokens": "4096"}, "tokens", "such as 8"),
    ("compare_workloads", (TWO[0], 5), {}, "workload", "a workload in YAML"),
    ("compare_workloads", (TWO[0], STEP), {"node": 2}, "node", 'did you mean "nodes"?'),
    ("validate", (LOG, "hgx_h100"), {"rank_list": "0-7"}, "rank_list", "GPUs 0 to 7"),
    ("diagnose", (LOG, "hgx_h100"), {"causes": 5}, "causes", "nvls_off"),
    ("diagnose", (LOG, "hgx_h100"), {"margin": "x"}, "margin", "such as 0.25"),
    ("explain", RUN, {"what_ifs": "no"}, "what_ifs", "True or False"),
    ("tune", ("hgx_h100", None), {}, "op", "name one of"),
    ("tune", ("hgx_h100",), {"band": math.nan}, "band", "0.1 for 10 %"),
    ("sweep", (None,), {}, "grid", "or a mapping"),
    ("sweep", (POINTS,), {"pareto": 5}, "pareto", "cost,time"),
    ("sweep", (POINTS,), {"progress": 5}, "progress", "pass a function"),
    ("sweep", (POINTS,), {"dask": 5}, "dask", "tcp://scheduler:8786"),
    ("simulate_timeline", ([],), {}, "file", "name a trace"),
    ("simulate_timeline", (STEP, 5), {}, "what_if", "such as nodes=4"),
    ("simulate_serving", (SERVING,), {"overrides": 5, "topo": 5}, "overrides", '{"link.bandwidth": "80 GB/s"}'),
    ("planner_table", ("hgx_h100", 5), {}, "kind", "deepep, deepep_ll, nccl"),
    ("planner_table", ("hgx_h100",), {"fabrics": "rail"}, "fabrics", 'did you mean "fabric"?'),
    ("import_schedule", (5,), {}, "file", "the path of a file"),
    ("write_report", (LOG, None), {}, "output", "the file to write"),
)
METHODS = (
    ("plot", {"measured": 5}, "measured", "what collsim.validate returns"),
    ("plot", {"ax": 5}, "ax", "axes of matplotlib"),
    ("to_frame", {"backend": "panda"}, "backend", 'did you mean "pandas"?'),
    ("to_json", {"path": 5}, "path", "the path of a file"),
)
ON = "run --topo hgx_h100 --op all_reduce --size 1M"
COMMANDS = (
    (f"{ON} -g x", "-g", "such as 8"),
    (f"{ON} --tolerance 2", "--tolerance", "up to 10%"),
    (f"{ON} --host 8", "--host", '"8 us"'),
    (f"{ON} --load link:gpu0", "--load", "link:gpu0->nvsw0=30%"),
    (f"{ON} --hash-seeds 5-1 --nodes 4", "--hash-seeds", "write 1-5"),
    (f"{ON} --registered symetric", "--registered", 'did you mean "symmetric"?'),
    (f"{ON} --columns wire", "--columns", "bounds, bytes, rates"),
    (f"{ON} --set link.bandwidth=80e9", "--set link.bandwidth", '"80 GB/s"'),
    (f"{ON} --set nic.shared_by=0.5 --nodes 2", "--set nic.shared_by", "nic.shared_by=2"),
    (f"{ON} --fail", "--fail", "write --fail WHAT: what has failed"),
    (f"{ON} --fail nic:node3/5", "--fail", "give --nodes"),
    (f"{ON} --degrade link:gpu0-nvsw0", "--degrade", '"link:gpu0-nvsw0=50%"'),
    (f"{ON} --degrade gpu:3-5", "--degrade", '"gpu:3-5=50%"'),
    (f"{ON} --degrade gpu:3-5=half", "--degrade", '"gpu:3-5=50%"'),
    (f"{ON} --set scale_out.nodes", "--set", "--set scale_out.nodes=VALUE"),
    (f"{ON} --env NCCL_PROTO", "--env", "--env NCCL_PROTO=Simple"),
    (f"{ON} --save-config no/such/x.json", "--save-config: no/such/x.json", "write elsewhere"),
    (f"{ON} --format json -o x.csv", "-o", "write to x.json"),
    (f"{ON} --split MOD", "--split", '"MOD 8"'),
    (f"{ON} --groups tp=3,dp=2", "--groups", "product is 8"),
    (f"{ON} --env NCCL_ALGO", "--env", "NCCL_ALGO=Ring"),
    (f"{ON} --library nccl-9.9", "--library", "nearest: nccl-2.30"),
    ("compare hgx_h100 hgx_b200 --op all_reduce --price 2.5", "--price", "hgx_b200=2.50"),
    ("compare hgx_h100 hgx_b200 --op all_reduce --algo all", "--algo", "auto, best or one name"),
    ("moe --topo hgx_h100 --tokens 4K", "--tokens", "256x8,64x24"),
    ("moe --topo hgx_h100 --skew x", "--skew", "such as 1.0"),
    ("moe --topo hgx_h100 --mode lowlatency", "--mode", 'did you mean "low_latency"?'),
    ("moe --topo hgx_h100 --dispatch fp9", "--dispatch", "fp8, bf16 or nvfp4"),
    (f"sweep {GRID} --jobs 0", "--jobs", "1 or more"),
    (f"sweep {GRID} --pareto time", "--pareto", "cost,time"),
    (f"sweep {GRID} -o x.xlsx", "-o", ".jsonl"),
    ("tune --topo hgx_h100 --band x", "--band", '"50%"'),
    ("tune --topo hgx_h100 -o x.xlsx", "-o", ".csv"),
    (f"serve {SERVING} --seed -1", "--seed", "0 or more"),
    (f"serve {SERVING} --topo hgx_h10", "--topo", 'did you mean "hgx_h100"?'),
    (f"serve {SERVING} --set link.bandwidth=80", "--set link.bandwidth", '"80 GB/s"'),
    (f"timeline {STEP} --compute-scale half", "--compute-scale", "such as 1.0"),
    (f"timeline {STEP} --steps 2", "--steps", "leave it out"),
    (f"validate {LOG} --topo hgx_h100 --min-busbw 350", "--min-busbw", '"350 GB/s"'),
    (f"validate {LOG} --topo hgx_h100 --rank-list 0-8", "--rank-list", "GPUs 0 to 7"),
    (f"diagnose {LOG} --topo hgx_h100 --causes nvls", "--causes", 'did you mean "nvls_off"?'),
    ("explain --topo hgx_h100 --op all_reduce --size 1M,2M", "--size", "such as 64M"),
    (f"calibrate {LOG} --topo hgx_h100 --start hgx_h10", "--start", 'did you mean "hgx_h100"?'),
    (f"report {LOG} -o x.pdf", "-o", "end it in .html"),
    ("topo draw hgx_h100 -o x.png", "-o", "end it in .svg"),
    ("topo show mi300x_ubb8 --format nvidia", "--format", 'did you mean "nvidia_smi"?'),
    ("schedule show --topo hgx_h100 --op all_reduce --algo rign --size 1M", "--algo", 'did you mean "ring"?'),
    ("schedule run no.xml --topo hgx_h100", "no.xml", "check the path"),
    ("tables --topo hgx_h100 --kind ncl", "--kind", 'did you mean "nccl"?'),
    ("tables --topo hgx_h100 --tokens 5", "--tokens", "ask for another kind"),
    ("doctor --wram", "", 'did you mean "--warm"?'),
)


def _told(caught, where, right):
    assert caught.value.exit_code == 2
    (fault,) = [fault for fault in caught.value.faults if fault.where.partition("[")[0] == where]
    assert right in fault.hint or right in fault.what
    assert "--" not in str(fault)


@pytest.mark.parametrize(("function", "given", "named", "where", "right"), PYTHON)
def test_from_python(function, given, named, where, right):
    with pytest.raises(CollsimError) as caught:
        getattr(library, function)(*given, **named)
    _told(caught, where, right)


@pytest.mark.parametrize(("method", "named", "where", "right"), METHODS)
def test_methods_of_results(method, named, where, right):
    pytest.importorskip("matplotlib")
    result = library.simulate(*RUN, profile="ideal")
    with pytest.raises(CollsimError) as caught:
        getattr(result, method)(**named)
    _told(caught, where, right)


def test_rows_and_rates_of_the_right_kind():
    compared = library.compare(*TWO, profile="ideal")
    with pytest.raises(CollsimError, match="pass one of its rows"):
        compared.costs(5)
    with pytest.raises(CollsimError, match="such as 350e9"):
        library.validate(LOG, "hgx_h100").below("350 GB/s")
    swept = library.sweep(POINTS, jobs=1)
    with pytest.raises(CollsimError, match="such as cost,time"):
        swept.front(5)


def test_a_wrong_kind_is_a_type_error_too():
    with pytest.raises(TypeError, match="not given"):
        library.simulate("hgx_h100")


def test_iterators_and_numbers_of_numpy_will_do():
    sizes = (size for size in ("1M", "2M"))
    found = library.simulate("hgx_h100", "all_reduce", sizes, ranks=np.arange(2, 4), nodes=np.int64(1), profile="ideal")
    assert [(row.ranks, row.size_bytes >> 20) for row in found] == [(2, 1), (2, 2), (3, 1), (3, 2)]
    two = library.compare((name for name in TWO[0]), *TWO[1:], profile="ideal")
    assert [system.label for system in two.systems] == TWO[0]


def test_arguments_of_either_kind_of_workload_and_of_the_machine_of_a_table():
    on_two = library.compare_workloads(["hgx_h100", "hgx_b200"], STEP, nodes=2)
    assert len(on_two.runs) == 2
    assert not on_two.refused
    half = {"link.bandwidth": "12.5 GB/s"}
    asked = {"op": ["all_gather"], "elements": [2**26], "ranks": [8], "dtype": ["half"], "profile": "ideal"}
    slow, usual = (library.planner_table("hgx_h100", overrides=each, **asked).rows[0]["latency"] for each in (half, {}))
    assert slow == pytest.approx(2 * usual)


@pytest.mark.parametrize(("command", "where", "right"), COMMANDS)
def test_on_the_command_line(collsim, command, where, right):
    found = collsim(*command.split())
    assert (found.code, found.out) == (2, "")
    assert f"error: {where}: " in found.err if where else "error: " in found.err
    assert right in found.err
    assert "Traceback" not in found.err


SEVERAL = {
    "nodes": "2,3", "library": "nccl-2.23,nccl-2.27", "dtype": "half,float", "channels": "8,16", "proto": "LL,Simple",
    "fabric": "rail,fat_tree", "network": "infiniband,roce", "launch": "stream,graph", "profile": "ideal,hgx_h100",
}  # fmt: skip


@pytest.mark.parametrize("flag", SEVERAL)
def test_several_values_are_refused_with_the_command_that_answers_them(collsim, tmp_path, monkeypatch, flag):
    asked = {"op": "all_reduce,all_gather", "size": "1M", flag: SEVERAL[flag]}
    if flag in ("fabric", "network"):
        asked["nodes"] = "2"
    typed = [part for name, value in asked.items() for part in (f"--{name}", value)]
    found = collsim("run", "--topo", "hgx_h100", *typed, "--set", "link.latency=1 us")
    assert (found.code, found.out) == (2, "")
    (hint,) = [line for line in found.err.splitlines() if "for all of them" in line]
    document, _, command = hint.partition("echo ")[2].partition(" > grid.yaml && ")
    (text,) = shlex.split(document)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(text)
    swept = collsim(*shlex.split(command)[1:], "--jobs", "1", "--format", "json")
    assert swept.code == 0, swept.err
    points = [each["asked"] for each in json.loads(swept.out)["points"]]
    assert len(points) == 4
    assert {str(point[flag]) for point in points} == set(SEVERAL[flag].split(","))


def test_several_systems_are_a_comparison(collsim):
    found = collsim("run", "--topo", "hgx_h100,hgx_b200", "--op", "all_reduce", "--size", "1M")
    assert (found.code, found.out) == (2, "")
    command = found.err.partition("for all of them: collsim ")[2]
    assert collsim(*command.split()).code == 0


@pytest.mark.parametrize(
    ("method", "given", "where"),
    [
        ("plot", {"measure": 5}, "measure"),
        ("to_frame", {"engine": "pandas"}, "engine"),
        ("to_json", {"indent": 2}, "indent"),
        ("to_records", {"rows": 1}, "rows"),
        ("plot", {"measured": {"64M": 1e9}}, "measured"),
        ("plot", {"measured": {2**26: -1}}, "measured"),
        ("plot", {"measured": {2**26: math.nan}}, "measured"),
        ("to_json", {"path": ""}, "path"),
    ],
)
def test_methods_name_their_arguments(method, given, where):
    pytest.importorskip("matplotlib")
    with pytest.raises(CollsimError) as caught:
        getattr(library.simulate(*RUN, profile="ideal"), method)(**given)
    (fault,) = caught.value.faults
    assert fault.where == where
    assert fault.hint


def test_methods_of_all_public_classes_do():
    classes = [each for name in library.__all__ if isinstance(each := getattr(library, name), type)]
    methods = {
        f"{each.__name__}.{name}": getattr(each, name)
        for each in classes
        for name, member in inspect.getmembers_static(each, lambda member: isinstance(member, FunctionType))
        if not name.startswith("_") and not issubclass(each, BaseException)
    }
    assert len(methods) > 40
    for method in methods.values():
        with pytest.raises(CollsimError, match="no such argument"):
            method(None, no_such_argument=5)


@pytest.mark.parametrize("value", [5, math.nan, [], {}, b"x", 10**30, object()])
def test_a_name_of_a_wrong_kind(value):
    asked = (
        *((("simulate_timeline", (STEP,), "environment"),) * (value != {})),
        ("import_topology", (str(ROOT / "examples/imports/topo_m.txt"),), "like"),
        ("import_topology", (str(ROOT / "examples/imports/topo_m.txt"),), "kind"),
        ("simulate_moe", ("hgx_h100",), "kernel"),
    )
    for function, given, name in asked:
        with pytest.raises(CollsimError) as caught:
            getattr(library, function)(*given, **{name: value})
        assert [fault.where for fault in caught.value.faults] == [name]
        assert all(fault.hint for fault in caught.value.faults)


@pytest.mark.parametrize("size", [0, -1, 10**29, math.nan, None, "64MB", []])
def test_a_size_of_an_imported_algorithm(size):
    with pytest.raises(CollsimError) as caught:
        library.import_schedule(str(ROOT / "examples/imports/msccl_ring.xml"), size)
    assert "size" in str(caught.value)
    assert all(fault.hint for fault in caught.value.faults)


@pytest.mark.parametrize("function", ["import_schedule", "simulate_timeline", "simulate_serving"])
def test_a_file_without_a_name(function):
    with pytest.raises(CollsimError) as caught:
        getattr(library, function)("")
    assert [fault.where for fault in caught.value.faults] == ["file"]


def test_a_seed_below_zero():
    with pytest.raises(CollsimError) as caught:
        library.simulate_moe("hgx_h100", ep=8, tokens=16, seeds=[-1], skew=1.0)
    assert [fault.where for fault in caught.value.faults] == ["seeds"]
