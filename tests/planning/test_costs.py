"""Costs beside times: the arithmetic by hand, where prices come from, and those that a caller says."""

import json

import pytest
from jsonschema import Draft202012Validator

import collsim
from collsim.core.errors import Faults, InputError
from collsim.prices import cost_of, price_of
from collsim.prices.prices import _table, with_own
from collsim.report import schema

ASKED = {"op": "all_to_all", "size": "1G", "profile": "ideal"}


def test_arithmetic_by_hand():
    comparison = collsim.compare(["mi355x_ubb8", "hgx_b200"], cost=True, **ASKED)
    row = comparison.rows[0]
    moved = 8 * 2**30 * 7 / 8  # each of 8 GPUs sends 7/8 of the size
    for cost, run, usd, watts in zip(comparison.costs(row), row.runs, (0.85, 1.54), (1400, 1000), strict=True):
        assert cost.usd == pytest.approx(usd * 8 * run.time_s / 3600)
        assert cost.joules == pytest.approx(watts * 8 * run.time_s)
        assert cost.usd_per_TB == pytest.approx(cost.usd / moved * 1e12)
        assert cost.joules_per_TB == pytest.approx(cost.joules / moved * 1e12)


def test_all_groups_are_paid_for():
    comparison = collsim.compare(["mi355x_ubb8", "hgx_b200"], cost=True, split="MOD 4", **ASKED)
    row = comparison.rows[0]
    assert (row.any.ranks, row.any.groups) == (2, 4)
    assert comparison.costs(row)[1].usd == pytest.approx(1.54 * 8 * row.runs[1].time_s / 3600)


def test_capex_ratio_of_the_published_table():
    mi355x, b200 = (price_of(gpu) for gpu in ("Instinct MI355X", "B200 SXM"))
    assert mi355x.capex_usd.value / b200.capex_usd.value == pytest.approx(0.55, abs=0.001)
    for price in (mi355x, b200, price_of("GB200"), price_of("B300 SXM"), price_of("GB300")):
        hours = price.capex_usd.value / price.usd_per_hour.value
        assert hours == pytest.approx(29_100, rel=0.005)  # one amortisation for all rows of the table


def test_every_figure_says_where_it_is_from_and_of_which_gpu():
    models = {each["gpu"] for each in collsim.systems()}
    assert set(_table()) <= models
    statuses = {"datasheet", "reported", "published", "estimate", "announced", "derived", "recalled"}
    for price in _table().values():
        for figure in filter(None, (price.usd_per_hour, price.watts, price.capex_usd)):
            assert figure.status in statuses
            assert figure.source
            assert figure.date[:2] == "20"
        assert price.usd_per_hour is None or price.usd_per_hour.basis in ("capex", "rent")


def test_own_prices_hold_for_their_system_and_its_variants():
    topos = ["mi355x_ubb8", "hgx_b200", "hgx_b200,link.bandwidth=100 GB/s"]
    comparison = collsim.compare(topos, price={"hgx_b200": 3}, power={"mi355x_ubb8": "1000"}, **ASKED)
    values = [(system.price.usd_per_hour.value, system.price.watts.value) for system in comparison.systems]
    assert values == [(0.85, 1000), (3, 1000), (3, 1000)]
    assert comparison.systems[1].price.usd_per_hour.status == "set"
    assert comparison.systems[1].price.capex_usd is None


def test_wrong_prices_are_told_with_the_rest():
    with pytest.raises(InputError) as caught:
        collsim.compare(["mi355x_ubb8", "hgx_b200"], "all_redce", price={"hgx_b20": 1}, power={"hgx_b200": -1})
    told = str(caught.value)
    assert all(part in told for part in ('"all_reduce"', 'did you mean "hgx_b200"', '"-1" of hgx_b200'))


def test_without_costs_nothing_is_told_of_them():
    comparison = collsim.compare(["mi355x_ubb8", "hgx_b200"], **ASKED)
    assert not comparison.priced
    assert "usd" not in comparison.to_records()[0]
    assert "price" not in comparison.to_dict()["systems"][0]


def test_documents_hold_costs(invoke):
    asked = (
        "compare",
        "mi355x_ubb8",
        "vr200_nvl144",
        "--op",
        "all_reduce",
        "--size",
        "64M",
        "--algo",
        "ring",
        "-q",
    )
    document = json.loads(invoke(*asked, "--cost", "--format", "json").out)
    Draft202012Validator(schema("collsim.compare/1")).validate(document)
    assert document["rows"][0]["costs"][1]["usd"] is None  # no price of Rubin is public
    assert document["rows"][0]["costs"][1]["joules"] > 0
    table = invoke(*asked, "--cost").out
    assert "vr200_nvl144: no public price; 2,917 W per GPU with its share of the rack" in table
    assert "is fastest, limited by" in table
    assert "cost" not in invoke(*asked).out


def test_workloads_are_compared_by_step_tokens_and_dollars():
    found = collsim.compare_workloads(["hgx_h100", "hgx_b200"], "examples/training_step.yaml", price={"hgx_b200": 3.6})
    times = [
        collsim.simulate_timeline("examples/training_step.yaml", topo=topo).step_time_s
        for topo in ("hgx_h100", "hgx_b200")
    ]
    assert [run.answer["time_s"] for run in found.runs] == times
    assert found.speedups[1] == pytest.approx(times[0] / times[1])
    assert found.runs[1].answer["usd"] == pytest.approx(3.6 * 8 * times[1] / 3600)


def test_experts_are_compared_by_tokens(tmp_path):
    file = tmp_path / "experts.yaml"
    file.write_text("schema: collsim.moe_workload/1\nmodel: deepseek-v3\ntokens: 128\nep: 8\nload_only: true\n")
    found = collsim.compare_workloads(["hgx_h100", "hgx_b200,workload.tokens=256"], file, price={"hgx_h100": 2})
    first, second = (run.answer for run in found.runs)
    alone = collsim.simulate_moe("hgx_h100", "deepseek-v3", ep=8, tokens=128, load_only=True)
    time_s = sum(row.time_s for row in alone.rows)
    assert first["tokens_per_s"] == pytest.approx(8 * 128 / (58 * time_s))  # 58 layers with experts
    assert first["usd_per_million_tokens"] == pytest.approx(2 * 8 * 58 * time_s / 3600 / (8 * 128) * 1e6)
    assert second["tokens"] == 8 * 256


def test_wrong_workloads_are_told_with_the_rest(invoke, tmp_path):
    file = tmp_path / "experts.yaml"
    file.write_text("schema: collsim.moe_workload/1\nmodell: deepseek-v3\n")
    found = invoke("compare", "hgx_h100", "hgx_b20", "--workload", file, "--op", "all_reduce", "--price", "hgx_h10=1")
    assert found.code == 2
    for part in ('did you mean "model"', "hgx_b200", "--op", 'did you mean "hgx_h100"'):
        assert part in found.err
    file.write_text("schema: collsim.moe_workload/2\n")
    assert 'did you mean "collsim.moe_workload/1"' in invoke("compare", "hgx_h100", "hgx_b200", "--workload", file).err


def test_one_system_without_an_answer_is_partly(invoke):
    step = ("--workload", "examples/training_step.yaml")
    found = invoke("compare", "hgx_h100", "hgx_b200,workload.ranks=x", *step, "-q")
    assert found.code == 4
    assert "hgx_b200, workload.ranks=x is refused" in found.err
    assert "refused" in found.out


def test_a_price_of_nothing_is_nothing():
    """GPUs that are there already: what is said of one system leaves the others as they are, and takes its capital."""
    before, faults = {"mine": price_of("H100 SXM5"), "theirs": price_of("Instinct MI355X")}, Faults()
    found = with_own(before, {"mine": 0}, {"theirs": "1000.5"}, faults)
    assert not faults
    assert (found["mine"].usd_per_hour.value, found["mine"].watts, found["mine"].capex_usd) == (
        0,
        before["mine"].watts,
        None,
    )
    assert found["theirs"].watts.value == 1000.5
    assert found["theirs"].usd_per_hour == before["theirs"].usd_per_hour
    assert found["theirs"].capex_usd == before["theirs"].capex_usd
    assert cost_of(found["mine"], 8, 3600.0, 1e12).usd == 0
