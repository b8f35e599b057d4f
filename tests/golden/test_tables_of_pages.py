"""Tables of the pages that are typed by hand, beside what they are about: names, counts, rates and thresholds."""

import re
from pathlib import Path

import pytest

from collsim.collectives import ALGORITHMS
from collsim.diagnosis.causes import all_causes
from collsim.library import Call, load_library, system_of
from collsim.library.engines.kernels import ONE, engine_choice
from collsim.moe.kernel_costs import kernel_for
from collsim.simulation.request.groups import parse_grouping
from collsim.topology import load_topology, zoo_names
from collsim.topology.files.overrides import known_paths
from collsim.topology.summary import describe
from collsim.topology.zoo import cluster_names

DOCS = Path(__file__).parents[2] / "docs"
UNITS = {"GB/s": 1e9, "TB/s": 1e12, "KiB": 2**10, "MiB": 2**20}


def table(page, head):
    """Return the cells of the rows below the line that begins with *head*."""
    _, found, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"\n{head}")
    assert found, f"{page} has no table {head}"
    lines = rest.split("\n")[2:]
    rows = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


def names(cell):
    """Return what stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def close(value, text):
    """Tell whether a rate rounds to the number that is printed."""
    number, unit = text.split()
    digits = len(number.partition(".")[2])
    return round(value / UNITS[unit], digits) == float(number)


ZOO = table("topologies.md", "| Name | GPUs |")


def test_the_table_of_systems_has_all_that_ship():
    assert sorted(name for row in ZOO for name in names(row[0])) == sorted(zoo_names())


@pytest.mark.parametrize(("name", "row"), [(name, row) for row in ZOO for name in names(row[0])])
def test_the_table_of_systems_has_their_rates(name, row):
    found = describe(load_topology(name))
    assert found["ranks"] == int(row[1])
    each = [float(number) for number in re.findall(r"[\d.]+", row[3])]
    assert {each[0], each[-1]} == {found["per_gpu_uni_Bps"] / 1e9, found["per_gpu_uni_max_Bps"] / 1e9}
    assert close(found["total_bidi_Bps"], row[4])


def test_the_table_of_clusters_has_all_that_ship_and_their_nodes():
    rows = table("clusters.md", "| Name | What |")
    assert sorted(name for row in rows for name in names(row[0])) == sorted(cluster_names())
    for listed, what in rows:
        if counted := re.match(r"(\d+) ", what):
            for name in names(listed):
                assert load_topology(name).cluster.spec.nodes == int(counted[1]), name


def test_keys_of_topology_files():
    """Each key that may be set stands in the table; one that begins with a dot is of the section of the first."""
    told = set()
    for row in table("topologies.md", "| Key | Kind |"):
        first, *others = names(row[0])
        told |= {first, *(first.rpartition(".")[0] + name if name.startswith(".") else name for name in others)}
    assert set(known_paths()) - told == set()


@pytest.mark.parametrize("row", table("tour.md", "| Operation | Algorithms |"), ids=lambda row: row[0])
def test_algorithms_of_an_operation_on_one_node(row):
    told = set(names(re.sub(r"`--[^`]*`", "", row[1])))
    if "symmetric memory as all-reduce" in row[1]:
        told |= {"symmetric_ll", "symmetric_store"}
    for op in names(row[0]):
        entries = [entry for entry in ALGORITHMS if op in entry.ops and entry.where == "anywhere"]
        assert {entry.name for entry in entries} - told == set()
    of_any = {entry.name for entry in ALGORITHMS for op in names(row[0]) if op in entry.ops}
    assert told - of_any == set()


@pytest.mark.parametrize("row", table("schedules.md", "| Algorithm | Operations |"), ids=lambda row: row[0])
def test_operations_of_an_algorithm_over_nodes(row):
    (name,) = names(row[0])
    if row[1] != "the same":
        ops = {op for entry in ALGORITHMS if entry.name == name for op in entry.ops}
        assert set(row[1].split(", ")) <= ops


def test_causes_of_a_diagnosis():
    (row,) = table("diagnose.md", "| Within a node |")
    assert sorted(names(" ".join(row))) == sorted(cause.name for cause in all_causes())


@pytest.mark.parametrize("row", table("groups.md", "| `--split` |")[:5], ids=lambda row: row[0])
def test_splits_of_sixteen_ranks(row):
    colour = {"r mod 8": lambda r: r % 8, "r and 7": lambda r: r & 7, "r / 8, rounded down": lambda r: r // 8}
    of = colour.get(row[1], lambda r: r | 7)
    wanted = {frozenset(r for r in range(16) if of(r) == which) for which in map(of, range(16))}
    for text in re.findall(r"\"([^\"]+)\"|`(\w+)`", row[0]):
        grouping = parse_grouping(next(filter(None, text)).replace("&#124;", "|"))
        assert set(map(frozenset, grouping.groups(16))) == wanted


@pytest.mark.parametrize("row", table("moe.md", "| GPU | normal |"), ids=lambda row: row[0])
def test_kernels_by_gpu(row):
    gpus = (
        ["L40S"]
        if row[0] == "others"
        else ["Instinct MI300X", "Instinct MI355X"]
        if "later" in row[0]
        else row[0].split(", ")
    )
    ends = re.findall(r"on (\d+)(?: to (\d+))? GPUs", row[1])
    for gpu in gpus:
        usual, *special = names(row[1])
        assert [kernel_for(gpu, "normal", 64), kernel_for(gpu, "low_latency", 8)] == [usual, *names(row[2])]
        for (first, last), name in zip(ends, special, strict=True):
            assert {kernel_for(gpu, "normal", n) for n in (int(first), int(last or first))} == {name}


SYSTEMS = {"Hopper": "hgx_h100", "Blackwell": "hgx_b200", "elsewhere": "hgx_b200"}
LIBRARIES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "trtllm"}


@pytest.mark.parametrize("row", table("engines.md", "| Engine | One shot |"), ids=lambda row: row[0])
def test_one_shot_of_inference_engines(row):
    """The kernel is that of one shot at the last size that the table lets it have, and another beyond."""
    told = row[1] if row[1] != "the same" else table("engines.md", "| Engine | One shot |")[0][1]
    engine, where = row[0].split()[0], row[0].split()[-1]
    library, system = load_library(LIBRARIES[engine]), system_of(load_topology(SYSTEMS[where]))
    word, found = "", re.findall(r"([\d and]+?)(?: ranks)?: (below |up to )?(\d+) ([KM]iB)", told)
    assert len(found) >= 3
    for ranks, how, number, unit in found:
        word = how or word
        most = int(number) * UNITS[unit] - (16 if word == "below " else 0)
        for n in map(int, re.findall(r"\d+", ranks)):
            calls = [Call("all_reduce", n, size, dtype="bfloat16") for size in (most, most + 16)]
            at, beyond = (engine_choice(call, system, library) for call in calls)
            assert at is not None, row
            assert at.algo == ONE
            assert beyond is None or beyond.algo != ONE
