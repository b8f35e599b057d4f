"""Requests of which a part is refused: the rows of the rest, and what is refused by name."""

import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.simulation.result import refusal_lines

BOARD = "hgx_h100"


def test_a_refused_size_costs_no_other_row():
    asked = {"op": ["all_reduce", "broadcast"], "algo": ["ring", "tree"], "chunk": "64K"}
    result = simulate(BOARD, size=["1K", "1T"], **asked)
    whole = simulate(BOARD, size=["1K"], **asked)
    assert [(row.op, row.algo, row.size_bytes, row.time_s) for row in result.rows] == [
        (row.op, row.algo, row.size_bytes, row.time_s) for row in whole.rows
    ]
    assert {(each.op, each.asked, each.ranks, each.requested_bytes) for each in result.refused} == {
        (op, algo, 8, 2**40) for op in asked["op"] for algo in asked["algo"]
    }
    told = refusal_lines(result.refused)
    assert any(line.startswith("tree is refused for broadcast of 8 ranks at 1 TiB: ") for line in told)


def test_names_together_answer_what_each_alone_does():
    """On 2080 ranks a ring has a form of its own, a tree is simulated: neither hinders the other."""
    rows = [
        simulate("h100_rail", "all_reduce", "1M", algo=names, overrides={"scale_out.nodes": "260"}).rows
        for names in ("ring", "tree", ["ring", "tree"])
    ]
    assert [row.algo for row in rows[2]] == ["ring", "tree"]
    assert [row.time_s for row in rows[2]] == [rows[0][0].time_s, rows[1][0].time_s]


def test_nothing_but_refusals_is_refused():
    with pytest.raises(InputError):
        simulate(BOARD, "all_reduce", ["1T", "2T"], algo=["ring", "tree"], chunk="64K")
