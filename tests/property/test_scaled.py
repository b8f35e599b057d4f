"""A small part of a regular machine gives the times of all its ranks, whatever has failed; seeds fix the cases."""

import random

import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import CollsimError, InputError, NoRouteError
from collsim.simulation import hops, parties
from collsim.simulation.quotient import representatives as miniature
from collsim.simulation.quotient.link_loads import alike
from collsim.topology import load_topology, parse_topology
from collsim.topology.failures.degrade import damaged

from .depth import deep_but

NODES = ("hgx_h100", "hgx_h100", "mi300x_ubb8", "dgx_a100")
DAMAGES = (
    {},
    {},
    {"fail": ["nic:node2/5"]},
    {"fail": ["nic:node1/0", "nic:node2/3"]},
    {"fail": ["gpu:n2.gpu3"]},
    {"fail": ["leaf:1"]},
    {"fail": ["spine:1"]},
    {"degrade": ["link:n2.nic1-leaf1=50%"]},
    {"degrade": ["link:leaf0-spine0=50%"]},
)
CLOSE = 1e-11
"""The same sums in another order; measured: 2e-14."""


@pytest.fixture(autouse=True)
def always_exact(monkeypatch):
    """No size is too large to be looked at pair by pair, so that nothing is taken as spread evenly that is not.

    All ranks are simulated transfer by transfer: classes of hops take chunks that differ by an element as equal.
    """
    monkeypatch.setattr(hops, "LEAST_TRANSFERS", 10**9)
    monkeypatch.setattr(miniature, "EXACT_UP_TO", 10**9)
    monkeypatch.setattr(miniature, "WORTH", 0)


def machine(draw, nodes):
    """Return a small cluster, perhaps with something missing; None if the draw makes no machine."""
    figures = {
        "nodes": nodes,
        "fabric": draw.choice(("rail", "rail", "fat_tree", "rail_only")),
        "radix": draw.choice((8, 16, 64)),
        "oversubscription": draw.choice((1, 1, 2)),
    }
    try:
        topology = load_topology(draw.choice(NODES), scale_out=figures)
        return damaged(topology, **draw.choice(DAMAGES))
    except InputError:
        return None


def both_ways(monkeypatch, topology, **asked):
    """Return the row by a small part of the machine and that of all ranks; what is refused is refused by both."""
    rows = []
    for least in (2, 10**9):
        monkeypatch.setattr(parties, "LEAST_SCALED", least)
        try:
            rows.append(simulate(topology, **asked).rows[0])
        except CollsimError as error:
            rows.append(f"{type(error).__name__}")
    return rows


def compared(monkeypatch, seed, algo, ops, channels):
    """Return whether a random case went by a small part; check its times against those of all ranks."""
    draw = random.Random(seed)
    topology = machine(draw, draw.choice((3, 4, 6, 9, 12)))
    if topology is None:
        return False
    missing = draw.choice((0, 0, 1, 3, 8)) if algo != "hierarchical" else draw.choice((0, 8))
    asked = {
        "op": draw.choice(ops),
        "algo": algo,
        "profile": draw.choice(("ideal", "auto")),
        "size": draw.choice(("1M", "64M", "3000004", "1G")),
        "channels": draw.choice(channels),
        "ranks": max(topology.n_gpus - missing, 9),
    }
    part, whole = both_ways(monkeypatch, topology, **asked)
    if isinstance(part, str) or isinstance(whole, str):
        assert part == whole, asked
        return False
    assert part.time_s == pytest.approx(whole.time_s, rel=CLOSE), asked
    assert part.lower_bound_s <= part.time_s * (1 + 1e-9)
    busiest = [row.bottleneck[0].utilisation if row.bottleneck else 0.0 for row in (part, whole)]
    uneven = 1e-3 if "wavefront" in part.path else 1e-9  # chunks of a ring differ by an element of some hundred
    assert busiest[0] == pytest.approx(busiest[1], rel=uneven), asked
    assert part.bottleneck_links == whole.bottleneck_links, asked
    return "transfers" not in part.path


GATHERS = ("all_reduce", "all_gather", "reduce_scatter")


@pytest.mark.parametrize("seed", deep_but([0], range(4)))
@pytest.mark.parametrize(
    ("algo", "ops", "channels", "least"),
    [("direct", ("all_to_all",), (None, 2), 6), ("ring", GATHERS, (1, 2, 24), 4), ("hierarchical", GATHERS, (1, 8), 6)],
)
def test_times_are_those_of_all_ranks(monkeypatch, seed, algo, ops, channels, least):
    cases = [compared(monkeypatch, 1000 * seed + number, algo, ops, channels) for number in range(15)]
    assert sum(cases) >= least


def test_every_message_takes_as_long(monkeypatch):
    """Not only the slowest: each pair ends when the pair that stands for it does."""
    from collsim.collectives import algorithm
    from collsim.engine import solve
    from collsim.library import load_profile
    from collsim.simulation.concurrent import part_of
    from collsim.simulation.problems import problem_of
    from collsim.simulation.quotient.pair_kinds import exchange, run_of_pairs
    from collsim.simulation.request.request import ask
    from collsim.simulation.runs import prepare
    from collsim.simulation.selection import built, request_of

    compared = 0
    for seed in range(12):
        draw = random.Random(seed)
        topology = machine(draw, draw.choice((5, 8, 12)))
        gpus = np.arange(topology.n_gpus if topology else 0)
        mini = topology and miniature.miniature_of(topology, gpus)
        if not mini:
            continue
        profile = load_profile(draw.choice(("ideal", "auto")), topology)
        question = ask("all_to_all", 2**16 * len(gpus), "direct")
        runs = prepare(topology, profile), prepare(mini.topology, profile, mini.ranks.tolist())
        request = request_of(question.ops[0], question.sizes[0], runs[0], question)
        whole = part_of(built(algorithm("all_to_all", "direct"), request, question), runs[0], "Simple", "float")
        run, pairs = run_of_pairs(mini, runs[1])
        part = part_of(exchange("direct", request, pairs), run, "Simple", "float")
        finish_s = [
            solve(problem_of(each.lowered, each.run, each.costs, each.network)).finish_s for each in (part, whole)
        ]
        assert pairs.members.sum() == len(gpus) * (len(gpus) - 1)
        numbers = gpus if topology.damage is None else np.array(topology.damage.gpus)
        transfers = whole.lowered.transfers
        ends = mini.stand_ins(numbers[transfers.src], numbers[transfers.dst])
        place = {(a, b): i for i, (a, b) in enumerate(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))}
        stands = [place[pair] for pair in zip(*(end.tolist() for end in ends), strict=True)]
        assert finish_s[0][stands] == pytest.approx(finish_s[1][: len(stands)], rel=CLOSE)
        compared += 1
    assert compared >= 5


def rail(nodes, **figures):
    """Return H100 nodes on rails of switches with 128 ports."""
    return load_topology("hgx_h100", scale_out={"nodes": nodes, "radix": 128} | figures)


@pytest.mark.parametrize("nodes", [128, 1000, 1024, 16384])
def test_large_all_to_all(nodes):
    """Adapters are what binds: (n - 8) blocks over 50 GB/s each."""
    n, size = 8 * nodes, 2**30
    row = simulate(rail(nodes), "all_to_all", size, algo="direct", profile="ideal").rows[0]
    assert row.time_s == pytest.approx((n - 8) * (size // n // 16 * 16) / 50e9, rel=1e-9)
    assert (row.path, row.bottleneck_links) == ("classes, reference", 2 * n)
    assert row.lower_bound_s == pytest.approx(row.time_s, rel=1e-9)


@pytest.mark.parametrize("fail", ["nic:node3/5", "leaf:3"])
def test_large_all_to_all_with_a_failed_adapter_or_leaf(fail):
    """The seven adapters that are left carry what the eight ranks send out of their node."""
    row = simulate(damaged(rail(2048), [fail]), "all_to_all", 2**30, algo="direct", profile="ideal").rows[0]
    n = 16384
    assert row.time_s == pytest.approx(8 * (n - 8) * 2**30 / n / (7 * 50e9), rel=1e-9)


def test_large_all_to_all_on_few_uplinks():
    """Half of the bytes' rate leaves a block of 32 nodes."""
    topology = rail(128, oversubscription=2, radix=64)
    block, n = topology.cluster.plan.block_nodes * 8, 1024
    row = simulate(topology, "all_to_all", 2**30, algo="direct", profile="ideal").rows[0]
    uplinks_Bps = 8 * topology.cluster.plan.leaf_up * 50e9
    assert row.time_s == pytest.approx(block * (n - block) * 2**30 / n / uplinks_Bps, rel=1e-9)


@pytest.mark.parametrize("nodes", [100, 2048, 16384])
def test_large_rings(nodes):
    """A ring of one channel takes 2 (n - 1) steps of a chunk over one adapter."""
    n = 8 * nodes
    size = 4 * n * 64
    row = simulate(rail(nodes), "all_reduce", size, algo="ring", channels=1, profile="ideal").rows[0]
    assert row.time_s == pytest.approx(2 * (n - 1) * 256 / 50e9, rel=1e-9)
    assert row.path == "wavefront"


def test_a_large_ring_with_a_slow_link():
    """The slow hop is on the way of every chunk, twice but for one: it sets the pace of the whole ring."""
    topology = damaged(rail(256), degrade=["link:n9.nic0-leaf0=50%"])
    n = 2048
    slow, whole = (
        simulate(each, "all_reduce", 4 * n * 64, algo="ring", channels=2, profile="ideal").rows[0]
        for each in (topology, topology.damage.healthy)
    )
    assert slow.time_s == pytest.approx(2 * whole.time_s, rel=1e-2)


@pytest.mark.parametrize("nodes", [96, 2048])
def test_large_hierarchies(nodes):
    """Scatter and gather over NVLink, a ring of nodes on every rail."""
    n, size = 8 * nodes, 8 * nodes * 4096
    row = simulate(rail(nodes), "all_reduce", size, algo="hierarchical", profile="ideal").rows[0]
    nvlink_s, rail_s = 7 * size / 8 / 450e9, 2 * (nodes - 1) * size / n / 50e9
    assert row.time_s == pytest.approx(2 * nvlink_s + rail_s, rel=1e-9)


def test_an_exact_row_is_its_own_bracket():
    row = simulate(rail(64), "all_to_all", "1M", algo="direct", profile="ideal", bracket=True).rows[0]
    assert (row.bracket_lo_s, row.bracket_hi_s, row.tolerance) == (row.time_s, row.time_s, 0.0)


def test_who_is_cut_off_is_told_of_the_whole():
    topology = damaged(rail(40), ["nic:n[1-3].nic*"])
    told = []
    for reduce in (True, False):
        with pytest.raises(NoRouteError) as caught:
            simulate(topology, "all_to_all", "1M", algo="direct", profile="ideal", reduce=reduce)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "n0.gpu3 and 292 more" in told[0]


def test_all_that_a_choice_leaves_out_is_told():
    result = simulate(rail(72, racks=4), "all_reduce", "1M", algo="auto", channels=1, profile="ideal")
    told = next(told for told in result.warnings if "left out" in told)
    assert {"tree", "hierarchical_racks", "hierarchical_doubling"} <= set(told.partition(" are ")[0].split(", "))


def test_uneven_cables_are_told(monkeypatch):
    monkeypatch.undo()
    result = simulate(rail(15000), "all_to_all", "1G", algo="direct", profile="ideal")
    assert any("unevenly" in told for told in result.warnings)


def test_rows_of_many_columns_are_told_apart():
    """Numbers of rows would not fit into 64 bits."""
    rng = np.random.default_rng(1)
    constant = rng.integers(0, 10**12, (73, 1)) * np.ones(4, dtype=np.int64)
    which, first = alike(np.array([0, 1, 0, 1]), *constant, np.array([5, 5, 5, 6]))
    assert which.tolist() == [0, 1, 0, 2]
    assert first.tolist() == [0, 1, 3]


HEAD = "schema: collsim.topology/1, link: {bandwidth: 50 GB/s, latency: 500 ns}"


def of_neighbours(n):
    """Return GPUs in a ring, each wired to the one before and the one after."""
    nodes = ", ".join(f"{{name: g{i}}}" for i in range(n))
    links = ", ".join(f"{{a: g{i}, b: g{(i + 1) % n}}}" for i in range(n))
    return parse_topology(f"{{{HEAD}, builder: explicit, nodes: [{nodes}], links: [{links}]}}")


@pytest.mark.parametrize("n", [4, 5, 8, 13, 30])
@pytest.mark.parametrize("profile", ["ideal", "default"])
def test_gpus_in_a_ring(monkeypatch, n, profile):
    part, whole = both_ways(
        monkeypatch, of_neighbours(n), op="all_to_all", size=n * 4096, algo="direct", profile=profile
    )
    assert part.time_s == pytest.approx(whole.time_s, rel=CLOSE)
    assert part.lower_bound_s == pytest.approx(whole.lower_bound_s, rel=CLOSE)
    assert part.path == "classes, reference"
    assert part.classes == n - 1


def test_many_gpus_in_a_ring():
    """n^2 / 8 blocks go each way over every link, for even n."""
    row = simulate(of_neighbours(1024), "all_to_all", "64M", algo="direct", profile="ideal").rows[0]
    assert row.time_s == pytest.approx(1024**2 / 8 * 2**16 / 50e9, rel=1e-9)


@pytest.mark.parametrize("damage", [{}, {"degrade": ["link:gpu3-sw0=50%"]}, {"fail": ["gpu:gpu1"]}])
@pytest.mark.parametrize(("op", "algo"), [("all_to_all", "direct"), ("all_reduce", "ring"), ("all_gather", "ring")])
def test_one_switch(monkeypatch, op, algo, damage):
    switch = parse_topology(f"{{{HEAD}, builder: switched, gpu: {{count: 21}}, switch: {{planes: 1}}}}")
    for profile, ranks in (("ideal", 20), ("default", 13)):
        asked = {"op": op, "size": "1M", "algo": algo, "profile": profile, "ranks": ranks, "channels": 1}
        part, whole = both_ways(monkeypatch, damaged(switch, **damage), **asked)
        assert part.time_s == pytest.approx(whole.time_s, rel=CLOSE)
        assert part.path.startswith("classes" if algo == "direct" else "wavefront")


@pytest.mark.parametrize(
    ("op", "fail"),
    [
        ("all_reduce", ["nic:node12/0", "link:n12.gpu0-n12.nvsw*:1"]),
        ("reduce_scatter", ["nic:node12/0", "switch:n12.nvsw0"]),
    ],
)
def test_rings_that_pass_a_unit_which_still_exchanges_are_simulated_whole(op, fail):
    options = {"algo": "hierarchical", "profile": "ideal", "overrides": ["scale_out.nodes=33"], "tolerance": 0}
    (found,), (whole,) = (
        simulate("hgx_h100", op, "64M", fail=fail, reduce=reduce, **options).rows for reduce in (True, False)
    )
    assert found.time_s == pytest.approx(whole.time_s, rel=1e-9)
