"""All-to-alls of many ranks where something has failed are answered by kinds or a sample, or refused from counts."""

import pytest

from collsim import simulate
from collsim.core.errors import UnsupportedError
from collsim.simulation import plans


def refuse_to_lay(*_):
    raise AssertionError("messages were laid out")


@pytest.mark.parametrize(
    ("topo", "asked"),
    [
        ("h100_rail", {"nodes": 256, "fail": "nic:node3/5", "reduce": False}),
        ("h100_rail", {"nodes": 256, "fail": "nic:node3/5", "reduce": False, "algo": "nccl_p2p"}),
    ],
)
def test_too_many_messages_are_refused_before_any_is_laid_out(topo, asked, monkeypatch):
    monkeypatch.setattr(plans, "built", refuse_to_lay)
    monkeypatch.setattr("collsim.simulation.message_classes.classed", refuse_to_lay)
    with pytest.raises(UnsupportedError, match="where something has failed") as refused:
        simulate(topo, "all_to_all", "64M", **asked)
    assert {fault.hint.partition(", which")[0] for fault in refused.value.faults} == {
        'ask for at most 1024 ranks, or for algo="direct"'
    }


def test_direct_is_not_named_where_it_has_no_kinds():
    with pytest.raises(UnsupportedError, match="where something has failed") as refused:
        simulate("polaris", "all_to_all", "64M", fail="link:leaf0-leaf1")
    assert [fault.hint for fault in refused.value.faults] == ["ask for at most 1024 ranks"]


def test_what_is_named_instead_answers():
    asked = {"nodes": 256, "fail": "nic:node3/5", "algo": "direct"}
    row = simulate("h100_rail", "all_to_all", "64M", **asked).rows[0]
    assert row.path.startswith("classes")
    assert row.time_s > 0


def test_healthy_machines_of_as_many_ranks_are_answered():
    row = simulate("h100_rail", "all_to_all", "64M", nodes=256).rows[0]
    assert row.path.startswith("classes, nearly alike")
