"""Where the lead changes from one algorithm to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

import collsim
from collsim.report.crossovers import crossover_lines


@pytest.fixture(scope="module")
def row():
    return collsim.simulate("mi300x_ubb8", "all_gather", "1M", algo="ring").rows[0]


def at(row, algo, size_bytes, time_s):
    return replace(row, algo=algo, size_bytes=size_bytes, time_s=time_s)


def test_lines_that_cross_halfway(row):
    # In log-log both lines are straight: a goes 1 -> 4, b goes 2 -> 2; they meet at half the logarithm of the size.
    rows = [at(row, "a", 2**10, 1.0), at(row, "b", 2**10, 2.0), at(row, "a", 2**20, 4.0), at(row, "b", 2**20, 2.0)]
    assert crossover_lines(rows) == ["fastest: a 1 KiB, b 1 MiB", "b overtakes a at about 32 KiB"]


def test_lines_that_cross_at_a_third(row):
    # a leads by 2 at first and trails by 8 / 2 = 4 at last; ln 2 / (ln 2 + ln 4) = 1/3 of the way from 2^10 to 2^20 is
    # 2^(10 + 10/3) = 10321 B = 10.08 KiB.
    rows = [at(row, "a", 2**10, 1.0), at(row, "b", 2**10, 2.0), at(row, "a", 2**20, 8.0), at(row, "b", 2**20, 2.0)]
    assert crossover_lines(rows)[1] == "b overtakes a at about 10.08 KiB"


def test_nothing_to_compare(row):
    assert crossover_lines([at(row, "a", 2**10, 1.0), at(row, "a", 2**20, 4.0)]) == []


def test_one_leader_all_the_way(row):
    rows = [at(row, algo, size, time) for size in (1, 2, 4) for algo, time in (("a", 1.0), ("b", 2.0))]
    assert crossover_lines(rows) == ["fastest: a 1 B to 4 B"]


def test_a_missing_time_gives_no_size(row):
    rows = [at(row, "a", 1024, 1.0), at(row, "b", 1024, 2.0), at(row, "c", 2048, 1.0), at(row, "b", 2048, 2.0)]
    assert crossover_lines(rows)[1] == "c leads after a"


def test_the_table_and_markdown_tell():
    result = collsim.simulate("hgx_h100", "all_reduce", ["64K", "64M"], algo=["all_pairs", "nvls"])
    from collsim.report import render

    for form in ("table", "md"):
        text = render(result, form)
        assert "nvls overtakes all_pairs at about" in text
        assert "busbw can therefore exceed the rate of the links by up to 1.56x" in " ".join(text.split()).replace(
            " # ", " "
        )


def test_a_choice_and_a_name_that_run_the_same_algorithm_stay_apart():
    """``auto`` runs a ring with LL where the name runs it with Simple: two rows and one leader with its label."""
    from collsim.report import render

    result = collsim.simulate("hgx_h100", "all_reduce", ["4K", "1M"], algo=["auto", "ring"])
    assert [(row.asked, row.label) for row in result] == [("auto", "ring/LL"), ("ring", "ring")] * 2
    assert crossover_lines(result.rows) == ["fastest: auto (ring/LL) 4 KiB to 1 MiB"]
    nccl = render(result, "nccl")
    assert "algorithm ring/LL (asked for: auto)" in nccl
    runs = nccl.split("# Avg bus bandwidth")
    assert [sum(line.split()[:1] == ["4096"] for line in run.splitlines()) for run in runs] == [1, 1, 0]
    assert [record["asked"] for record in result.to_records()] == ["auto", "ring"] * 2
    assert "asked" in render(result, "table")
    assert "| asked |" in render(result, "md")
    assert [row["asked"] for row in result.to_dict()["results"]] == ["auto", "ring"] * 2


def test_of_a_list_what_can_be_had_is_printed_and_the_rest_named():
    from collsim.report import render

    result = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", algo=["ring", "nvls"], profile="ideal")
    assert [row.algo for row in result] == ["ring"]
    assert [(each.asked, each.requested_bytes, each.exit_code) for each in result.refused] == [("nvls", 2**20, 2)]
    for form in ("table", "nccl", "md", "json"):
        assert "needs switches that add and multicast" in " ".join(render(result, form).split())
