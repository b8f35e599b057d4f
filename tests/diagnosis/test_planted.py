"""A sample of planted faults: logs that the simulator makes with a cause, noise and sizes of their own."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    try:
        import diagnosis_score

        yield diagnosis_score
    finally:
        sys.path.remove(str(TOOLS))


def test_every_plant_is_a_cause_that_its_machine_can_have(tool):
    from collsim.diagnosis.causes import all_causes, meets

    causes = {cause.name: cause for cause in all_causes()}
    assert len({plant.cause for plant in tool.PLANTS}) >= 16
    for plant in tool.PLANTS:
        topology = tool.machine(plant)
        assert meets(causes[plant.cause], topology, topology.n_gpus, plant.nodes), plant


@pytest.mark.deep
@pytest.mark.parametrize("cause", ["few_channels", "lost_plane", "sockets", "few_links"])
def test_a_planted_fault_is_first(tool, cause):
    plant = next(plant for plant in tool.PLANTS if plant.cause == cause)
    places = [tool.made(plant, seed).rank_of(cause) for seed in (11, 12)]
    assert places == [1, 1]


@pytest.mark.deep
def test_healthy_logs_are_healthy_with_other_constants_too(tool):
    import numpy as np

    for plant in tool.HEALTHY[:3]:
        for seed in (11, 12):
            moved = tool.moved(plant, np.random.default_rng(seed))
            assert tool.made(plant, seed, moved).verdict in ("healthy", "fast"), (plant, seed)


def test_what_was_printed_becomes_a_table_whose_last_line_of_a_plant_counts(tool):
    line = (
        "window  hgx_h100  x2 all_reduce  by itself {alone}, first {first:2d} of 8, in three {three:2d}, seeds 7 on, "
        "of 2.0 in its class, at most 3.1 s"
    )
    sound = "healthy  hgx_h100  x1 all_reduce  by itself 19, first 19 of 20, in three 19, seeds 9 on   {'healthy': 19}"
    printed = [line.format(alone=0, first=1, three=2), line.format(alone=5, first=6, three=7), sound]
    head, _, *rows = tool.table("\n".join(printed))
    assert "of 8 planted faults 5 first by themselves, 6 in the first class and 7 in the first three" in head
    assert "19 of 20 healthy" in head
    assert rows[2] == "| `window` | hgx_h100 | 2 | all_reduce | 5 | 6 of 8 | 7 | 2.0 | 7 |"
    assert rows[3] == "| none, called healthy | hgx_h100 | 1 | all_reduce |  | 19 of 20 |  |  | 9 |"


def test_a_cause_that_a_class_does_not_name_to_people_is_not_found(tool):
    names = ("a", "b", "c", "d", "e")
    told = [SimpleNamespace(name=name) for name in names[:4]]
    found = SimpleNamespace(findings=(SimpleNamespace(names=names, told=told),))
    assert [tool.place_of(found, name) for name in names] == [1, 1, 1, 1, 99]
