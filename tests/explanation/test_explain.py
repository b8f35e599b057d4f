"""Explanations: parts that sum to the time, each one what its removal gains, and what-ifs that are what they say."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from collsim import compare, explain, simulate
from collsim.core.errors import Fault, InputError, ModelError, SpecError
from collsim.core.units import format_time
from collsim.explanation import gathering
from collsim.explanation.account import checked
from collsim.explanation.bench import answered
from collsim.explanation.changes import MOST_CHANNELS, _of_channels, changed_arguments, changes_of
from collsim.explanation.chosen import chosen_of
from collsim.explanation.contents import Document
from collsim.explanation.findings import KINDS
from collsim.explanation.gathering import asked_of
from collsim.explanation.removals import OVERLAP, REMOVALS
from collsim.explanation.split import _loads, parts_of, split_of
from collsim.explanation.what_ifs import SAME_DELAY
from collsim.report import render
from collsim.report.explanation import _by, explanation_text

WIRES = {"bound", "algorithm", "imbalance", "contention", "pipeline fill"}
SYSTEMS = {
    "hgx_h100": {},
    "mi300x_ubb8": {},
    "gb200_nvl72": {"ranks": 8},
    "l40s_8gpu": {"ranks": 4},
    "h100_rail": {"nodes": 2},
    "dgx1_v100": {},
}
OPS = ("all_reduce", "all_gather", "all_to_all", "broadcast")


GRID = [(topo, op, size) for topo in SYSTEMS for op in OPS for size in ("1K", "16M")]
"""Every second pair of system and operation at either size; the others are deep."""


@pytest.mark.parametrize(
    ("topo", "op", "size"),
    [case if i % 4 in (0, 3) else pytest.param(*case, marks=pytest.mark.deep) for i, case in enumerate(GRID)],
)
def test_parts_sum_to_the_time(topo, op, size):
    found = explain(topo, op, size, what_ifs=False, **SYSTEMS[topo])
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s, rel=1e-6)
    assert found.time_s == simulate(topo, op, size, **SYSTEMS[topo]).time_s
    assert {part.kind for part in found.parts} <= set(KINDS)
    assert [part.kind for part in found.parts].count("bound") == 1
    for part in found.parts:
        assert part.time_s >= 0 or part.note.startswith("negative: ")
    for kind in ("algorithm", "imbalance", "bound", "host floor"):
        assert found.total(kind) >= 0
    busiest = max(tier.busiest for tier in found.tiers)
    assert busiest == pytest.approx(found.row.bottleneck[0].utilisation)
    assert all(0 < tier.mean <= tier.busiest * (1 + 1e-9) for tier in found.tiers)


UNUSUAL = [
    {"topo": "mi300x_ubb8", "op": "all_to_all", "size": "64M", "fail": "link:gpu0-gpu1"},
    {"topo": "hgx_h100", "op": "all_reduce", "size": "64M", "degrade": {"link:gpu0->nvsw0": 0.5}},
    {"topo": "hgx_h100", "op": "all_reduce", "size": "1M", "algo": "recursive_doubling"},
    {"topo": "hgx_b200", "op": "gather", "size": "4M"},
    {"topo": "hgx_h100", "op": "all_reduce", "size": "16M", "rank_list": [0, 3, 5]},
    {"topo": "hgx_h100", "op": "all_reduce", "size": "16M", "nodes": 2, "fail": "nic:node1/3"},
    {"topo": "hgx_h100", "op": "all_gather", "size": "64M", "nodes": 4, "groups": "tp=8,dp=4"},
    {"topo": "gb200_nvl72", "op": "all_reduce", "size": "256M", "split": "MOD 8"},
    {"topo": "pcie_gen5_8gpu", "op": "all_reduce", "size": "64M"},
    {"topo": "l40s_8gpu", "op": "broadcast", "size": "1M"},
    {"topo": "hgx_h100", "op": "send_recv", "size": "1G", "nodes": 2},
    {"topo": "dgx1_v100", "op": "all_to_all", "size": "16M"},
    {"topo": "mi300x_ubb8", "op": "all_reduce", "size": "16M", "nodes": 4, "algo": "hierarchical"},
    {"topo": "hgx_h100", "op": "all_to_all", "size": "1M", "nodes": 4, "overrides": ["scale_out.oversubscription=4"]},
    {"topo": "hgx_h100", "op": "all_reduce", "size": "64M", "load": "link:gpu0->nvsw0=30%"},
    {"topo": "hgx_h100", "op": "all_gather", "size": "64M", "profile": "ideal"},
    {"topo": "hgx_h100", "op": "broadcast", "size": "256M", "algo": "binomial", "root": 3},
]
"""Failures, groups, named algorithms, boxes on PCIe, traffic in the background."""


@pytest.mark.parametrize(
    "asked", [*UNUSUAL[:5], *(pytest.param(asked, marks=pytest.mark.deep) for asked in UNUSUAL[5:])], ids=str
)
def test_parts_of_unusual_runs_sum_to_the_time_as_well(asked):
    found = explain(what_ifs=False, **asked)
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s, rel=1e-6)
    assert [part.kind for part in found.parts].count("bound") == 1
    assert "What ran: " in explanation_text(found)


def test_on_bare_wires_nothing_but_wires_is_told():
    found = explain("mi300x_ubb8", "all_reduce", "1M", algo="ring", ranks=4, profile="ideal", what_ifs=False)
    assert {part.kind for part in found.parts} <= WIRES
    whole = explain("mi300x_ubb8", "all_to_all", "64M", profile="ideal", what_ifs=False)
    assert [part.kind for part in whole.parts] == ["bound"], "each message has a link of its own"


@pytest.mark.parametrize(
    ("topo", "algo", "more"),
    [("mi300x_ubb8", "all_pairs", {}), ("h100_rail", "ring", {"nodes": 2, "gpus_per_node": 2})],
)
def test_what_is_left_in_the_end_is_the_ideal_profile(topo, algo, more):
    found = explain(topo, "all_reduce", "64M", algo=algo, what_ifs=False, **more)
    wires_s = sum(part.time_s for part in found.parts if part.kind in WIRES)
    ideal = simulate(topo, "all_reduce", "64M", algo=algo, profile="ideal", **more)
    assert wires_s == pytest.approx(ideal.time_s, rel=1e-9)
    assert found.total("bound") == pytest.approx(ideal.rows[0].lower_bound_s, rel=1e-9)


def test_the_second_step_waits_for_the_first():
    """Recursive doubling on bare wires sends all of it twice, one after the other, over different links: 4 ranks."""
    found = explain(
        "mi300x_ubb8", "all_reduce", "16M", algo="recursive_doubling", ranks=4, channels=1, profile="ideal",
        what_ifs=False,
    )  # fmt: skip
    assert found.total("pipeline fill") == pytest.approx(found.time_s / 2, rel=1e-6)


def test_the_floor_of_a_host():
    """A message of 8 bytes takes as long as the host needs to start a call; with an idle host the rest remains."""
    found = explain("hgx_h100", "all_reduce", 8, host="40 us", what_ifs=False)
    idle = simulate("hgx_h100", "all_reduce", 8, host="1 ns")
    assert found.total("host floor") == pytest.approx(found.time_s - idle.time_s, rel=1e-3)
    (floor,) = (part for part in found.parts if part.kind == "host floor")
    assert any(constant.key == "floor" and constant.value == "40 us" for constant in floor.constants)


def test_constants_are_named_with_status_and_source():
    found = explain("hgx_h100", "all_reduce", "64M", what_ifs=False)
    latency = next(part for part in found.parts if part.title == "overheads of every step")
    (constant,) = latency.constants
    assert (constant.profile, constant.key) == ("hgx_h100", "families.nvls.Simple.message_overhead")
    assert constant.status == "fitted"
    assert constant.source


@pytest.mark.parametrize(("split", "between"), [("DIV 8", False), ("MOD 8", True)])
def test_constants_between_nodes_are_named_where_groups_reach_over_nodes(split, between):
    """Groups of one node each send nothing to another, those of one GPU of each node do."""
    found = explain("hgx_h100", "all_gather", "16M", nodes=2, split=split, what_ifs=False)
    keys = [constant.key for part in found.parts for constant in part.constants]
    assert keys
    assert any(key.startswith("network.") for key in keys) == between


def test_failures_are_named_and_have_their_part():
    """Without the link to gpu1 one seventh of what gpu0 sends takes the six others: the bound is 7/6 of the healthy."""
    found = explain("mi300x_ubb8", "all_to_all", "64M", fail="link:gpu0-gpu1", what_ifs=False)
    failures = next(part for part in found.parts if part.kind == "failures")
    assert "gpu0-gpu1" in failures.title
    assert failures.time_s == pytest.approx(found.total("bound") / 6, rel=1e-6)


def test_background_traffic_is_contention():
    """A link at 70 % of its rate takes 1/0.7 as long for its bytes."""
    load = "link:gpu0->gpu1=30%"
    found = explain("mi300x_ubb8", "all_to_all", "64M", load=load, profile="ideal", what_ifs=False)
    (part,) = (part for part in found.parts if part.title == "background traffic")
    assert part.kind == "contention"
    assert part.time_s == pytest.approx(found.time_s * 0.3, rel=1e-6)


def test_groups_that_meet_are_contention():
    """Cards 0 and 1 of each server have one adapter, and are in different groups."""
    found = explain("l40s_8gpu", "all_to_all", "16M", nodes=2, split="MOD 2", what_ifs=False, profile="ideal")
    (part,) = (part for part in found.parts if part.title == "other groups at the same time")
    one = list(range(0, 16, 2))
    alone = explain("l40s_8gpu", "all_to_all", "16M", nodes=2, rank_list=one, profile="ideal", what_ifs=False)
    assert part.time_s == pytest.approx(found.time_s - alone.time_s, rel=1e-6)
    assert any("slowest group" in note for note in found.notes)


@pytest.mark.parametrize(
    "asked",
    [
        {"topo": "hgx_h100", "op": "all_reduce", "size": "1M"},
        {
            "topo": "h100_rail",
            "op": "all_reduce",
            "size": "1M",
            "nodes": 2,
            "gpus_per_node": 2,
            "overrides": ["nic.bandwidth=25 GB/s"],
        },
        {"topo": "mi300x_ubb8", "op": "all_to_all", "size": "64M", "fail": "link:gpu0-gpu1"},
        {"topo": "mi355x_ubb8", "op": "all_reduce", "size": "256K", "algo": "ring", "ranks": 4},
    ],
    ids=lambda asked: asked["topo"],
)
def test_the_first_suggestion_is_the_best_of_all(asked):
    """Every candidate simulated once more, by `collsim.simulate` where flags ask for it: none is faster."""
    found = explain(**asked)
    bench = answered(checked(asked))
    times_s = {}
    for change in changes_of(bench, asked, chosen_of(bench)):
        try:
            result = simulate(**changed_arguments(asked, change)) if change.constants is None else None
        except InputError:
            continue
        if result is not None:
            times_s[change.title] = result.time_s
    told = {each.title: each.time_s for each in found.what_ifs if each.time_s is not None}
    assert times_s.items() <= told.items()
    assert len(times_s) >= 5
    assert found.what_ifs[0].time_s == min(told.values())
    assert found.best is not None
    assert found.best.time_s <= min(times_s.values())
    gains = [each.gain_s for each in found.what_ifs if each.time_s is not None]
    assert gains == sorted(gains, reverse=True)


def test_what_the_library_compared():
    found = explain("hgx_h100", "all_reduce", "64M")
    first, *others = found.chosen.contenders
    assert first.chosen
    assert (first.algo, first.simulated_s) == (found.row.algo, found.time_s)
    assert all(each.estimate_s >= first.estimate_s for each in others)
    assert any(each.simulated_s for each in others)


def test_best_is_pinned_to_what_ran():
    found = explain("hgx_h100", "all_reduce", "256K", algo="best", what_ifs=False)
    assert not found.notes
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s, rel=1e-6)
    assert found.chosen.contenders[0].simulated_s == pytest.approx(found.time_s, rel=1e-6)


def test_phases_move_what_the_operation_asks():
    """All-reduce by all-pairs: each of 8 ranks sends an eighth to 7 others to be added, and its sum to 7 others."""
    found = explain("mi300x_ubb8", "all_reduce", "64M", algo="all_pairs", what_ifs=False)
    assert [(phase.does, phase.where) for phase in found.phases] == [("add", "within nodes"), ("copy", "within nodes")]
    assert [phase.bytes for phase in found.phases] == [8 * 7 * 2**26 / 8] * 2
    assert found.tiers[0].bytes == 2 * 8 * 7 * 2**26 / 8


def test_one_run_is_explained():
    with pytest.raises(InputError) as caught:
        explain("hgx_h100", ["all_reduce", "all_gather"], ["1M", "2M"], ranks=[2, 4], algo=["ring", "auto"])
    assert {fault.where for fault in caught.value.faults} == {"op", "size", "ranks", "algo"}


def test_removals_leave_the_schedule():
    bench = answered(checked({"topo": "h100_rail", "op": "all_reduce", "size": "1M", "nodes": 2}))
    rows = [bench.without(count) for count in range(len(REMOVALS) + 1)]
    assert len({(row.algo, row.proto, row.channels) for row in rows}) == 1
    moved = {row.loads.schedule.n_transfers for row in rows}
    assert len(moved) == 1
    assert rows[0].time_s == bench.row.time_s


def test_overlap_of_calls_is_a_credit_where_it_goes_first():
    """Where calls that overlap would be too short for their links, they are taken one by one from the start."""
    bench = answered(checked({"topo": "hgx_h100", "op": "broadcast", "size": "1M"}))
    parts = split_of(replace(bench, removals=(OVERLAP, *REMOVALS)))
    credit = next(part for part in parts if part.title == OVERLAP.title)
    assert credit.time_s < 0
    assert credit.note.startswith("negative: ")
    assert sum(part.time_s for part in parts) == pytest.approx(bench.row.time_s, rel=1e-6)
    assert not any(part.title == OVERLAP.title for part in parts_of(bench))


def test_messages_of_one_rank_are_no_schedule():
    """On so many nodes one rank stands for all: its messages are not told as those of the whole call."""
    found = explain("h100_rail", "all_to_all", "4M", nodes=40, what_ifs=False)
    assert found.phases == ()
    sent = next(tier for tier in found.tiers if tier.name == "nic->leaf")
    assert sent.bytes == pytest.approx(320 * 312 * found.row.size_bytes / 320, rel=1e-6)


@pytest.mark.parametrize(
    ("even_s", "busiest_s", "bound_s", "imbalance_s", "beyond_s"),
    [(2.0, 5.0, 1.0, 3.0, 1.0), (1.0, 3.0, 2.0, 1.0, 0.0), (4.0, 3.0, 2.0, 0.0, 1.0)],
)
def test_loads_are_between_the_bound_and_the_busiest_link(even_s, busiest_s, bound_s, imbalance_s, beyond_s):
    """An even share below the bound counts as the bound, one above the busiest link as that: no part is negative."""
    row = SimpleNamespace(loads=SimpleNamespace(even_s=even_s, busiest_s=busiest_s), lower_bound_s=bound_s)
    assert [part.time_s for part in _loads(row)] == [imbalance_s, beyond_s]


def test_channels_are_doubled_up_to_the_most_and_halved_down_to_one():
    for channels in range(MOST_CHANNELS + 1):
        bench = SimpleNamespace(row=SimpleNamespace(channels=channels))
        offered = [change.arguments["channels"] for change in _of_channels(bench)]
        twice = [2 * channels] if 0 < 2 * channels <= MOST_CHANNELS else []
        assert offered == twice + ([channels // 2] if channels >= 2 else []), channels


def test_of_rows_of_one_size_the_fastest_is_explained():
    rows = [
        {"op": "all_reduce", "ranks": 8, "groups": 1, "requested_bytes": 64, "time_s": time_s, "algo": algo}
        for algo, time_s in (("tree", 3.0), ("ring", 1.0), ("nvls", 2.0))
    ]
    told = [{**row, "proto": "LL", "asked": "all"} for row in rows]
    assert asked_of({"topo": "hgx_h100"}, told, "all_reduce")["algo"] == "ring"


def offered(**asked):
    bench = answered(checked(asked))
    return {change.title: change.arguments for change in changes_of(bench, asked, chosen_of(bench))}


def test_what_ifs_ask_for_what_they_say():
    """NVLink 4 has 25 GB/s a link, adapters of 400 Gb/s have 50 GB/s behind 63 GB/s of PCIe; twice that is asked."""
    node = offered(topo="hgx_h100", op="all_reduce", size="1M", gpus_per_thread=8)
    assert node["one GPU for each thread"] == {"gpus_per_thread": 1}
    assert node["calls of a captured graph"] == {"launch": "graph"}
    assert node["registered buffers"] == {"registered": True}
    assert node["links in the node twice as fast"] == {"overrides": {"link.bandwidth": "50 GB/s"}}
    assert not [title for title in node if "adapters" in title or "switch" in title or "PXN" in title]
    asked = {"topo": "hgx_h100", "op": "all_to_all", "size": "1M", "nodes": 4, "fabric": "fat_tree"}
    others = {"overrides": ["scale_out.oversubscription=2"], "fail": "nic:node1/5"}
    cluster = offered(**asked, **others, environment={"NCCL_PXN_DISABLE": "1", "NCCL_COLLNET_ENABLE": "1"})
    assert cluster["messages over GPUs of the rail (PXN on)"] == {"environment": {"NCCL_PXN_DISABLE": "0"}}
    faster = {"nic.bandwidth": "100 GB/s", "scale_out.port_rate": "100 GB/s", "nic.bus_bandwidth": "126 GB/s"}
    assert cluster["adapters and their network twice as fast"] == {"overrides": faster}
    assert cluster["no oversubscription"] == {"overrides": {"scale_out.oversubscription": "1"}}
    assert cluster["one switch for all nodes"] == {"fabric": "single_switch"}
    assert cluster["nothing failed"] == {"fail": ()}, "of what is asked alone"
    assert not [title for title in cluster if "SHARP" in title or "thread" in title or "PXN off" in title]
    plain = offered(**asked, launch="graph", registered=True)
    assert plain["messages straight to their rail (PXN off)"] == {"environment": {"NCCL_PXN_DISABLE": "1"}}
    sums = offered(**{**asked, "op": "all_reduce"})
    assert sums["switches between the nodes add (SHARP)"] == {"environment": {"NCCL_COLLNET_ENABLE": "1"}}
    never = {"no oversubscription", "nothing failed", "calls of a captured graph", "registered buffers"}
    never |= {"switches between the nodes add (SHARP)"}
    assert not never & {*plain}


def test_links_limit_and_bound_of_a_delay_agree():
    """The table had the slow cables as fast and as idle as in order, and two bounds stood side by side unexplained."""
    asked = {"topo": "h100_rail", "op": "all_to_all", "size": "64M", "nodes": 129, "what_ifs": False}
    found = explain(**asked, degrade={"leaf:leaf0": "10%"})
    (wire,) = [limit for limit in found.row.limits if limit.utilisation is not None]
    busiest = max(found.tiers, key=lambda tier: tier.busiest)
    assert (busiest.link, busiest.busiest) == (wire.name, wire.utilisation)
    assert busiest.capacity_Bps == pytest.approx(4.875e9)
    assert found.tiers_told in " ".join(explanation_text(found).split())
    assert not explain(**asked).tiers_told
    (late,) = [part for part in found.parts if part.kind == "failures"]
    more_s = found.row.lower_bound_s - found.total("bound")
    assert more_s > 0
    assert format_time(more_s) in late.note


def test_a_delay_by_what_has_failed_is_a_part_of_its_own():
    """The other parts are those of the machine in order, and no part is negative."""
    asked = {"topo": "h100_rail", "op": "all_to_all", "size": "64M", "nodes": 129}
    found = explain(**asked, fail="nic:node3/2")
    row = found.result.rows[0]
    (late,) = [part for part in found.parts if part.kind == "failures"]
    assert "delay of a part" in row.path
    assert late.title == "delay by what has failed: 1 NIC failed: n3.nic2"
    assert late.time_s == pytest.approx(row.time_s - row.healthy_time_s, rel=1e-9)
    assert min(part.time_s for part in found.parts) >= 0
    assert sum(part.time_s for part in found.parts) == pytest.approx(row.time_s, rel=1e-9)
    others = [(part.kind, part.title, part.time_s) for part in found.parts if part is not late]
    assert others == [(part.kind, part.title, part.time_s) for part in explain(**asked, what_ifs=False).parts]
    what_ifs = {each.title: each for each in found.what_ifs}
    assert what_ifs["nothing failed"].time_s == row.healthy_time_s
    assert not what_ifs["nothing failed"].warnings
    taken = [each for each in found.what_ifs if SAME_DELAY in each.warnings]
    assert what_ifs["links in the node twice as fast"] in taken
    assert found.what_ifs[0] not in taken, "the best one is simulated with its delay"


def test_a_run_without_an_explanation_says_why_in_a_note(tmp_path, monkeypatch):
    """Of several reasons the first."""

    def fails(run, *, what_ifs):
        raise ModelError(Fault("too large"), Fault("too slow"))

    file = tmp_path / "run.json"
    file.write_text(render(simulate("mi300x_ubb8", "all_gather", "1M"), "json"))
    monkeypatch.setattr(gathering, "explained", fails)
    found = gathering.gather([file], lambda document, name: None)
    assert found.notes == (f"{file}: all_gather is not explained: too large",)
    assert found.explanations == ()


@pytest.fixture(scope="module")
def comparison():
    """Two operations by two sizes on two systems, as a document."""
    ops, sizes = ["all_gather", "all_reduce"], ["1M", "4M"]
    return json.loads(compare(["hgx_h100", "mi300x_ubb8"], ops, sizes, profile="ideal").to_json())


@pytest.mark.parametrize("rows", [range(1), range(2), range(4), range(1, 3), range(3, 0, -1)])
@pytest.mark.parametrize("unanswered", [0, 1, 4])
def test_of_a_comparison_the_first_operation_that_a_system_answers_is_explained(comparison, rows, unanswered):
    """At its largest size; of some rows in any order, the second system answers none of the first, or none at all."""
    chosen = [comparison["rows"][row] for row in rows]
    chosen = [{**row, "runs": [row["runs"][0], row["runs"][1] if at >= unanswered else None]}
              for at, row in enumerate(chosen)]  # fmt: skip
    told = gathering._runs(Document("a.json", {**comparison, "rows": chosen}))
    expected = []
    for name, first in (("hgx_h100", 0), ("mi300x_ubb8", unanswered)):
        answered = [(row // 2, row % 2) for row in rows[first:]]  # operation and size
        if answered:
            op = answered[0][0]
            size = max(size for each, size in answered if each == op)
            expected.append((name, ("all_gather", "all_reduce")[op], (2**20, 2**22)[size]))
    assert [(run["topo"], run["op"], run["size"]) for run in told] == expected


@pytest.mark.parametrize("op", [None, "all_reduce"])
@pytest.mark.parametrize("ranks", [None, 4])
@pytest.mark.parametrize("time_s", [None, 0.0, 1e-3])
@pytest.mark.parametrize("size_bytes", [0, 1024])
def test_only_tests_of_a_log_whose_operation_and_ranks_are_known_are_shown(monkeypatch, op, ranks, time_s, size_bytes):
    sound = SimpleNamespace(op="all_gather", ranks=2, rows=[SimpleNamespace(size_bytes=2048, time_s=1e-3)])
    asked = SimpleNamespace(op=op, ranks=ranks, rows=[SimpleNamespace(size_bytes=size_bytes, time_s=time_s)])
    points = {"all_gather": ((2048, 1024 / 1e-3),), "all_reduce": ((1024, 1.5 * 1024 / 1e-3),)}
    known = op and ranks and time_s and size_bytes
    for tests, shown in (([asked, sound], [*([op] if known else []), "all_gather"]), ([asked], [op] if known else [])):
        monkeypatch.setattr(gathering, "read_log", lambda file, content, tests=tests: SimpleNamespace(tests=tests))
        if not shown:
            with pytest.raises(SpecError, match="no row whose operation and ranks are known"):
                gathering._measured("a.log", b"")
            continue
        found = gathering._measured("a.log", b"")
        assert [each.op for each in found] == shown
        assert [each.points for each in found] == [points[each] for each in shown]


def told(algo, channels, *, runs=("nvls/Simple", 16)):
    """How a page names what runs with a change."""
    row = SimpleNamespace(label=runs[0], algo=runs[0].partition("/")[0], channels=runs[1])
    return _by(SimpleNamespace(algo=algo, channels=channels), SimpleNamespace(row=row))


def test_what_runs_with_a_change_is_named_so_that_it_differs():
    assert told("nvls/Simple", 16) == told("nvls/Simple", 32) == ""
    assert told("nvls", 24) == ", by nvls on 24 channels"
    assert told("ring/LL", 16) == told("ring/LL", 24) == ", by ring/LL"


def test_one_of_two_variables_that_changes_nothing_is_no_doubt():
    """The tree is forced by two variables, of which the library needs one: the time is as sure as others."""
    found = explain("dgx_a100", "all_reduce", "64M", ranks=4)
    forced = [each for each in found.what_ifs if "NCCL_ALGO" in each.flags and each.time_s is not None]
    assert forced
    assert not [text for each in forced for text in each.warnings if "changes nothing" in text]
    assert all(each.channels for each in forced)


def test_no_line_is_of_nothing():
    found = explain("hgx_b200", "gather", "4M", what_ifs=False)
    assert any(part.kind == "host floor" and part.time_s < 5e-9 for part in found.parts)
    assert " 0.00 us" not in explanation_text(found)
