"""The one door to a prediction: what it returns, and how it refuses."""

import pytest

from collsim.core.errors import InputError, UnknownNameError
from collsim.simulation.request.prepare import Machine, prepare
from collsim.topology import load_topology


def places(**given):
    with pytest.raises(InputError) as refused:
        prepare(**{"topo": "hgx_h100", "op": "all_reduce"} | given)
    return [fault.where for fault in refused.value.faults]


def test_question_machine_constants_and_groups():
    topology, constants, question, groups = prepare(
        "hgx_h100", "all_reduce", "1M", ranks=[2, 4], profile="ideal", fail="gpu:gpu1", overrides=["link.latency=1 us"]
    )
    assert (topology.n_gpus, topology.damage.fail, constants.name) == (7, ("gpu:gpu1",), "ideal")
    assert question.sizes == (2**20,)
    assert groups == [[0, 1], [0, 1, 2, 3]]


def test_every_part_of_a_request_is_checked_whatever_is_wrong_with_the_others():
    assert places(op="nope", fail="gpu:gpu9", profile="nope", ranks=9) == ["op", "fail", "profile", "ranks"]
    assert places(topo="nope", op="nope", profile="nope", ranks=9) == ["op", "topo", "profile"]
    assert places(topo=None, channels=0) == ["channels", "topo"]


def test_ranks_are_checked_beside_a_fabric_that_is_wrong():
    figures = {"scale_out.nodes": "2", "scale_out.fabric": "nope"}
    assert places(overrides=figures, ranks=17) == ["--set scale_out.fabric", "ranks"]


def test_loads_are_not_looked_for_on_a_machine_that_could_not_be_damaged():
    assert places(load="link:nope=30%", fail="gpu:gpu9") == ["fail"]
    assert places(load="link:nope=30%") == ["load"]


def test_what_is_wrong_alone_keeps_its_kind():
    with pytest.raises(UnknownNameError, match="nope"):
        prepare("nope", "all_reduce")


def test_fields_are_named_as_simulate_names_them():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        prepare("hgx_h100", "all_reduce", sizes=1)


def test_changes_behind_a_name_come_after_those_of_all():
    machine = Machine({"link.latency": "1 us"}).also(["link.bandwidth=80 GB/s"])
    assert {fact.path for fact in machine.of("mi300x_ubb8").facts if fact.status == "set"} == {
        "link.latency",
        "link.bandwidth",
    }


def test_a_machine_without_changes_is_the_topology_itself():
    topology = load_topology("hgx_h100")
    assert Machine(fail=(), degrade={}).of(topology) is topology
