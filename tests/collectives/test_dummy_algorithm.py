"""An algorithm is added by its own file and one name in the table: then everything else works with it."""

import json

import pytest
from click.testing import CliRunner

import collsim
from collsim import collectives
from collsim.cli import cli
from collsim.collectives import ScheduleRequest, algorithm
from collsim.core.errors import UnsupportedError
from collsim.core.operations import operation
from collsim.schedule import load, verify

FILE = '''"""All-gather by rotation: in every round each rank passes on to the next what it got in the round before."""

import numpy as np

from collsim.collectives.algorithm import Algorithm, ScheduleRequest
from collsim.schedule import EVERY, ChunksBuilder, OrbitsBuilder, Schedule


def build(request: ScheduleRequest) -> Schedule:
    """Return one transfer per rank and round."""
    n, ranks = request.n_ranks, np.arange(request.n_ranks)
    chunks, rows = ChunksBuilder(), OrbitsBuilder(ranks)
    family = chunks.add(np.full(n, request.block_bytes), ranks, EVERY) // n
    deps = []
    for step in range(n - 1):
        row = rows.add(1, [(family, -step)], deps, step=step, lanes=request.n_channels)
        deps = [(row, 0), (row, -1)]
    return request.schedule("rotation", chunks.build(), rows.build(), channels=request.n_channels)


ALGORITHM = Algorithm(
    name="rotation",
    title="one block to the next rank in every round",
    ops=("all_gather",),
    source="folklore",
    build=build,
    MORE
)
'''


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Return what registers the algorithm as a contributor does, by a file and its name in the table."""

    def added(more=""):
        name = f"rotation_{abs(hash(more))}"
        (tmp_path / f"{name}.py").write_text(FILE.replace("    MORE\n", more))
        monkeypatch.setattr(collectives, "__path__", [*collectives.__path__, str(tmp_path)])
        modules = (*collectives.MODULES, name)
        monkeypatch.setattr(collectives, "MODULES", modules)
        monkeypatch.setattr(collectives, "ALGORITHMS", collectives.registered(modules))

    return added


def run(*words):
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    return found.stdout


HGX = ("--topo", "hgx_h100", "--op", "all_gather", "--size", "8M")


def test_it_keeps_the_promise_of_its_operation(add):
    add()
    verify(algorithm("all_gather", "rotation").build(ScheduleRequest(operation("all_gather"), 8, 4096, 4)))


@pytest.mark.parametrize("profile", ["ideal", "auto"])
def test_it_is_priced(add, profile):
    add()
    row, ring = collsim.simulate("hgx_h100", "all_gather", "8M", algo=["rotation", "ring"], profile=profile).rows
    assert (row.algo, row.ranks) == ("rotation", 8)
    assert row.time_s >= row.lower_bound_s > 0
    if profile == "ideal":
        assert row.time_s == pytest.approx(7 * 2**20 / 450e9, rel=1e-9)  # seven blocks of 1 MiB over a port
        assert row.time_s == pytest.approx(ring.time_s, rel=1e-9)


def test_all_has_it_last_of_those_on_one_node(add):
    before = [row.algo for row in collsim.simulate("hgx_h100", "all_gather", "8M", algo="all").rows]
    add()
    assert [row.algo for row in collsim.simulate("hgx_h100", "all_gather", "8M", algo="all").rows] == [
        *before,
        "rotation",
    ]


def test_it_is_compared(add):
    add()
    found = collsim.compare(["hgx_h100", "mi300x_ubb8"], "all_gather", "8M", algo="rotation")
    assert "rotation" in str(found.to_dict())


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_it_is_reported(add, form):
    add()
    text = run("run", *HGX, "--algo", "rotation", "--format", form)
    assert "rotation" in text
    if form == "json":
        assert json.loads(text)["results"][0]["algo"] == "rotation"


def test_its_schedule_is_shown_written_and_checked(add, tmp_path):
    add()
    assert "rotation" in run("schedule", "show", *HGX, "--algo", "rotation")
    file = tmp_path / "rotation.json"
    run("schedule", "export", *HGX, "--algo", "rotation", "-o", str(file))
    assert "ok (all_gather by rotation, 8 ranks)" in run("schedule", "check", str(file))
    assert load(file).n_transfers == 8 * 7


def test_what_the_record_says_of_its_protocols_and_constants_holds(add):
    add('    protocols=("Simple",),\n    family="nvls",\n')
    with pytest.raises(collsim.InputError, match="rotation does not run with LL"):
        collsim.simulate("hgx_h100", "all_gather", "8M", algo="rotation", proto="LL")
    rows = collsim.simulate("hgx_h100", "all_gather", "8M", algo="all", proto="LL").rows
    assert rows
    assert "rotation" not in [row.algo for row in rows]


def built_on(n_ranks):
    """Return the schedule on many ranks over nodes of eight."""
    from collsim.simulation.request.request import ask
    from collsim.simulation.selection import built

    asked = ScheduleRequest(operation("all_gather"), n_ranks, 16 * n_ranks, 4, nodes=n_ranks // 8)
    return built(algorithm("all_gather", "rotation"), asked, ask("all_gather", 16 * n_ranks))


def test_many_ranks_over_nodes_run_it_only_if_the_record_says_that_it_grows_with_them(add):
    add()
    with pytest.raises(UnsupportedError, match=r"rotation has too many pieces on 2056 ranks over several nodes"):
        built_on(2056)


def test_growth_with_ranks_lets_it_be_built(add):
    add('    growth="ranks",\n')
    assert built_on(2056).n_transfers == 2056 * 2055


def test_growth_with_pairs_has_it_refused_before_it_is_built(add):
    add('    growth="pairs",\n')
    with pytest.raises(UnsupportedError, match="4225080 messages are too many to simulate one by one"):
        built_on(2056)


def test_where_says_that_it_needs_several_nodes(add):
    add('    where="nodes",\n')
    assert "rotation" not in [row.algo for row in collsim.simulate("hgx_h100", "all_gather", "8M", algo="all").rows]
    rows = collsim.simulate("h100_rail", "all_gather", "8M", ranks=16, algo="all").rows
    assert "rotation" in [row.algo for row in rows]


def test_a_large_machine_runs_it_in_circles_if_the_record_says_so(add):
    add('    quotient="circles",\n')
    row = collsim.simulate("h100_rail", "all_gather", "64M", ranks=512, algo="rotation").rows[0]
    assert (row.algo, row.path) == ("rotation", "wavefront")
