"""Systems side by side: `compare` is `simulate` on each."""

from dataclasses import asdict, replace

import networkx as nx
import pytest

from collsim import compare, simulate
from collsim.core.errors import Fault, InputError, ModelError
from collsim.simulation.compare import answers, label_of
from collsim.simulation.comparison import ComparedRow
from collsim.topology import Topology, load_topology

PAIR = ["mi355x_ubb8", "hgx_b200"]


def test_rows_are_those_of_simulate():
    asked = {"op": ["all_to_all", "all_reduce"], "size": ["1M", "64M"], "profile": "ideal"}
    comparison = compare(PAIR, **asked)
    for i, topo in enumerate(PAIR):
        assert [asdict(row.runs[i]) for row in comparison] == [asdict(row) for row in simulate(topo, **asked)]
    for row in comparison:
        assert row.speedups == (1.0, row.runs[0].time_s / row.runs[1].time_s)


def test_several_splits_are_several_runs():
    comparison = compare(PAIR, "all_gather", "1M", split=["none", "MOD 2"], profile="ideal", algo="ring")
    assert [row.grouping for row in comparison] == [None, "MOD 2"]
    assert [row.who for row in comparison] == ["8", "2 x 4 (MOD 2)"]
    apart = simulate("hgx_b200", "all_gather", "1M", split="MOD 2", profile="ideal", algo="ring")
    assert comparison.rows[1].runs[1].time_s == apart.time_s
    text = compare(PAIR, "all_gather", "1M", split="None, MOD 2", profile="ideal", algo="ring")
    assert [row.speedups for row in text] == [row.speedups for row in comparison]


def test_as_many_ranks_as_every_system_has():
    comparison = compare(["gb200_nvl72", "hgx_b200", "mi355x_rack128"], "all_to_all", "1M", profile="ideal")
    assert [run.ranks for run in comparison.rows[0].runs] == [8, 8, 8]


def test_a_change_is_of_one_system():
    comparison = compare(["hgx_b200", "hgx_b200, link.bandwidth=100 GB/s"], "all_to_all", "64M", profile="ideal")
    assert [system.label for system in comparison.systems] == ["hgx_b200", "hgx_b200, link.bandwidth=100 GB/s"]
    assert comparison.rows[0].speedups[1] == pytest.approx(2)
    both = compare(["hgx_b200", "hgx_b200"], "all_to_all", "64M", profile="ideal", overrides=["link.bandwidth=1 GB/s"])
    assert [system.label for system in both.systems] == ["hgx_b200", "hgx_b200 (2)"]
    assert {run.busbw_Bps for run in both.rows[0].runs} == {18e9}


def test_each_configuration_gives_its_rows_again():
    comparison = compare(PAIR, "all_reduce", "1M", split="none,DIV 4", profile="ideal")
    config = comparison.systems[1].configs[1]
    again = simulate(config["topo"], config["op"], config["size"], split=config["split"], profile=config["profile"])
    assert again.time_s == comparison.rows[1].runs[1].time_s


def test_topologies_and_graphs_are_systems():
    graph = load_topology("hgx_b200").graph
    assert isinstance(graph, nx.DiGraph)
    systems = [load_topology("mi355x_ubb8"), graph, "hgx_b200"]
    assert isinstance(systems[0], Topology)
    row = compare(systems, "all_to_all", "64M", profile="ideal").rows[0]
    assert row.runs[1].time_s == pytest.approx(row.runs[2].time_s)


def test_warnings_name_the_system():
    told = compare(["mi355x_ubb8", "hgx_h100"], "all_reduce", "1M").warnings
    assert any(warning.startswith('mi355x_ubb8: profile "mi355x_ubb8" is derived') for warning in told)
    assert not any(warning.startswith("hgx_h100: ") for warning in told)


def test_every_fault_at_once():
    with pytest.raises(InputError) as caught:
        compare(["mi355x_ubb8", "hgx_b20", "hgx_b200,lnk=3"], "all_reduc", algo=["ring", "tree"], split="MOD 3,FOO")
    told = [f"{fault.where}: {fault.what}" for fault in caught.value.faults]
    for text in ('"hgx_b20"', '"lnk"', '"all_reduc"', "several algorithms", '"FOO"'):
        assert sum(text in line for line in told) == 1, text
    assert 'topos: unknown path "lnk"' in told


@pytest.mark.parametrize(
    ("topos", "told"),
    [
        ("hgx_b200", "is not a list of systems"),
        (["hgx_b200"], "fewer than two systems"),
        ([], "fewer than two systems"),
    ],
)
def test_one_system_is_no_comparison(topos, told):
    with pytest.raises(InputError, match=told):
        compare(topos, "all_reduce")


def test_what_a_system_cannot_do_is_named_beside_the_answers_of_others():
    found = compare([*PAIR, "hgx_h100"], "all_reduce", "1M", algo="nvls")
    assert [system.label for system in found.systems] == ["hgx_b200", "hgx_h100"]
    assert [(each.system, each.exit_code) for each in found.refused] == [("mi355x_ubb8", 2)]
    assert "nvls needs switches" in found.refused[0].what
    found = compare(["mi355x_rack128", "gb200_nvl72"], "all_reduce", "1M", ranks=128, profile="ideal")
    assert [run.ranks for run in found.rows[0].runs] == [128]
    assert [(each.system, each.what) for each in found.refused] == [("gb200_nvl72", "128 ranks on 72 GPUs")]


def test_what_no_system_can_do_names_all():
    with pytest.raises(InputError, match="mi355x_ubb8: nvls needs switches") as caught:
        compare(["mi355x_ubb8", "mi300x_ubb8"], "all_reduce", "1M", algo="nvls")
    assert len(caught.value.faults) == 2
    with pytest.raises(InputError, match="hgx_b200 takes 2 to 8"):
        compare(PAIR, "all_reduce", "1M", ranks=128)


def test_a_size_that_one_system_lacks_is_open_there():
    both = compare(["hgx_b200", "hgx_h100"], "all_reduce", ["1M", "64M"], profile="ideal", algo="ring", chunk="4K")
    assert both.refused == ()
    found = compare(["hgx_b200", "gb200_nvl72"], "all_reduce", ["1M", "4G"], profile="ideal", algo="ring", chunk="64K")
    lacking = [[run is None for run in row.runs] for row in found.rows]
    assert [False, False] in lacking
    assert any(any(row) for row in lacking) == bool(found.refused)
    for row in found.rows:
        assert [speedup is None for speedup in row.speedups] == [None in (row.runs[0], run) for run in row.runs]


def test_a_system_without_an_answer_is_named():
    apart = nx.DiGraph()
    for i in range(4):
        apart.add_node(f"gpu{i}", kind="gpu")
    for a, b in ((0, 1), (1, 0), (2, 3), (3, 2)):
        apart.add_edge(f"gpu{a}", f"gpu{b}", bandwidth_Bps=1e9, latency_s=1e-6)
    found = compare([apart, "hgx_b200"], "all_reduce", "1M", profile="ideal")
    assert {(each.system, each.exit_code) for each in found.refused} == {("graph", 3)}
    with pytest.raises(ModelError, match="graph: "):
        compare([apart, apart], "all_reduce", "1M", profile="ideal")


def timed(row, time_s, low_s=None, high_s=None):
    return replace(row, time_s=time_s, time_lo_s=low_s, time_hi_s=high_s)


@pytest.mark.parametrize(
    ("first", "other", "verdict"),
    [
        ((4.0, 3.0, 5.0), (2.0, 1.0, 2.9), "faster"),
        ((2.0, 1.0, 2.9), (4.0, 3.0, 5.0), "slower"),
        ((4.0, 3.0, 5.0), (2.0, 1.0, 3.0), "overlapping"),
        ((4.0, 3.0, 5.0), (2.0,), "unmeasured"),
        ((4.0,), (2.0, 1.0, 3.0), "unmeasured"),
    ],
)
def test_a_verdict_needs_intervals_apart(first, other, verdict):
    row = simulate("hgx_b200", "all_reduce", "1M", profile="ideal").rows[0]
    runs = (timed(row, *first), timed(row, *other))
    assert ComparedRow(None, runs).verdicts == (None, verdict)
    bare = "faster" if other[0] < first[0] else "slower"
    assert ComparedRow(None, runs, bare=True).verdicts == (None, bare)
    assert ComparedRow(None, (runs[0], runs[0]), bare=True).verdicts == (None, "same")
    assert ComparedRow(None, (runs[0], None)).verdicts == (None, None)


def test_where_nobody_measured_no_verdict_is_given():
    """No row of the L40S could be left out of its fit, and no relative lends an interval over PCIe."""
    (row,) = compare(["hgx_h100", "l40s_8gpu"], "all_gather", "4K").rows
    assert row.runs[1].time_lo_s is None
    assert row.verdicts == (None, "unmeasured")


def test_intervals_of_a_relative_are_lent_where_no_row_could_be_left_out():
    """Logs of gather on eight B200 begin at 1 MiB; those of H100 hold small sizes."""
    small, large = compare(["hgx_h100", "hgx_b200"], "gather", ["4K", "1M"]).rows
    own, lent = (run.time_hi_s / run.time_s for run in small.runs)
    assert lent >= 0.999 * own**2
    assert large.verdicts == (None, "overlapping")


def test_versions_that_differ_are_said():
    found = compare(["hgx_b200", "hgx_h100", "mi355x_ubb8"], "all_reduce", "1M")
    assert [system.profile["library"] for system in found.systems] == ["nccl-2.29", "nccl-2.28", "rccl-2.27"]
    (told,) = found.mixed_versions
    assert "nccl-2.29 on hgx_b200, nccl-2.28 on hgx_h100" in told
    assert told in found.warnings
    same = compare(["hgx_b200", "hgx_h100"], "all_reduce", "1M", library="nccl-2.28")
    assert same.mixed_versions == ()


def test_frames_and_notebooks_show_every_system():
    comparison = compare(PAIR, ["all_to_all", "all_gather"], "64M", profile="ideal")
    frame = comparison.to_frame("pandas")
    assert frame["system"].tolist() == PAIR * 2
    assert frame["speedup"].tolist() == [value for row in comparison for value in row.speedups]
    shown = comparison._repr_html_()
    assert shown.count("<tr>") == 1 + 2
    assert all(f"<th>{name} speedup (x)</th>" in shown for name in PAIR)
    assert shown.count("<td>") == 2 * (3 + 2 * 8)
    assert f"<td>{comparison.rows[0].speedups[1]:.3g}</td>" in shown


def test_labels_are_numbered_by_how_often_they_came():
    topology = load_topology("hgx_h100")
    taken: list[str] = []
    for changes in ([], ["link.latency=1 us"], [], []):
        taken.append(label_of(topology, changes, taken))
    assert taken == ["hgx_h100", "hgx_h100, link.latency=1 us", "hgx_h100 (2)", "hgx_h100 (3)"]


def test_a_refusal_names_its_system():
    def refuse(case):
        raise case

    with pytest.raises(ModelError, match=r"^here: B: no way$"):
        answers({"B": ModelError(Fault("no way", "here"))}, refuse)
    with pytest.raises(InputError, match=r"^B: wrong$"):
        answers({"B": InputError("wrong")}, refuse)
    assert answers({"A": 2, "B": 3}, lambda case: case * 2) == [4, 6]
