"""Bounds by linear programming: cases by hand, other formulations of the same, and prices that are wrong on purpose."""

import itertools
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from collsim.core.operations import OPERATIONS, operation
from collsim.fabric.bounds import flow_bounds
from collsim.fabric.bounds.flow_bounds import BoundFlows, find_flows, flow_bound, network_of
from collsim.fabric.bounds.lower import lower_bound
from collsim.fabric.fabric import build_fabric
from collsim.library import load_profile
from collsim.simulation.runs import prepare
from collsim.simulation.simulate import simulate
from collsim.topology import Topology, load_topology, parse_topology

GBPS = 1e9
GB = 10**9
IDEAL = load_profile("ideal")
UNIFORM = [name for name in OPERATIONS if name != "all_to_all_v"]
DELIVERY = ("all_gather", "reduce_scatter", "broadcast", "reduce")


def system(edges, one_way=False):
    """Nodes that start with s are switches, all others GPUs; an edge is (a, b, GB/s)."""
    graph = nx.DiGraph()
    for name in sorted({end for edge in edges for end in edge[:2]}):
        graph.add_node(name, kind="switch" if name[0] == "s" else "gpu")
    for a, b, rate in edges:
        for ends in [(a, b)] if one_way else [(a, b), (b, a)]:
            graph.add_edge(*ends, bandwidth_Bps=rate * GBPS, latency_s=0.0)
    return Topology.from_graph(graph)


def flows_of(topology, ranks=None):
    """The linear programs, of regular fabrics too."""
    run = prepare(topology, IDEAL, ranks)
    return BoundFlows(network_of(run.fabric, run.routes.used_links(run.fabric.n_links)))


def seconds(op, topology, size=GB, ranks=None, **options):
    return flow_bound(operation(op), size, flows_of(topology, ranks), **options)[0]


def row_bound(op, topology, size=GB, ranks=None, **options):
    """What a row shows: the best of cuts and flows."""
    run = prepare(topology, IDEAL, ranks)
    return lower_bound(operation(op), size, run.cuts, flows=run.flows, **options)


LINE = system([("g0", "g1", 10), ("g1", "g2", 10)])
TRIANGLES = system(
    [(f"g{i}", f"g{j}", 10) for side in ((0, 1, 2), (3, 4, 5)) for i, j in itertools.combinations(side, 2)]
    + [("g2", "g3", 10)]
)
PAIRS = system([(f"g{i}", f"g{i + 1}", 90) for i in (0, 2, 4)] + [("g1", "g2", 10), ("g3", "g4", 10), ("g5", "g0", 10)])


def ring(n):
    return system([(f"g{i}", f"g{(i + 1) % n}", 10) for i in range(n)], one_way=True)


# --- By hand, in units of size / (GB/s) -------------------------------------------------------------------------------

BY_HAND = [
    (LINE, "all_to_all", 2 / 3 / 10),  # 0->1 and 0->2 share the link g0->g1
    (LINE, "all_gather", 2 / 3 / 10),  # two blocks into g0
    (LINE, "broadcast", 1 / 10),
    (LINE, "gather", 2 / 3 / 10),
    (LINE, "send_recv", 1 / 10),  # 2->0 has the two links of its direction to itself
    (LINE, "all_reduce", 1 / 10),  # the only tree takes both links, and two trees share 20 GB/s of either direction
    (TRIANGLES, "all_to_all", 9 / 6 / 10),  # 3 x 3 blocks over the bridge
    (TRIANGLES, "all_gather", 3 / 6 / 10),
    (TRIANGLES, "scatter", 3 / 6 / 10),
    (TRIANGLES, "send_recv", 1 / 10),
    (TRIANGLES, "all_reduce", 1 / 10),
    # Three pairs in a ring: 3 groups need 2 x 2 messages over 3 x 20 GB/s; one cut gives 1/20, all egress 10/600.
    (PAIRS, "all_reduce", 4 / 60),
    (PAIRS, "broadcast", 1 / 20),
    # On a one-way ring a byte for the k-th neighbour takes k links: n (n-1) / 2 blocks on each link.
    *((ring(n), "all_to_all", (n - 1) / 2 / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "all_gather", (n - 1) / n / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "reduce_scatter", (n - 1) / n / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "all_reduce", 2 * (n - 1) / n / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "send_recv", 1 / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "broadcast", 1 / 10) for n in (3, 4, 5, 8)),
    *((ring(n), "scatter", (n - 1) / n / 10) for n in (3, 4, 5, 8)),
]


@pytest.mark.parametrize(("topology", "op", "seconds_per_GB"), BY_HAND)
def test_by_hand(topology, op, seconds_per_GB):
    assert seconds(op, topology) == pytest.approx(seconds_per_GB, rel=1e-9)


def test_star_with_a_slow_port():
    """Into and out of the slow GPU: everything for it, S for a sum; half a matrix column."""
    star = system([("g0", "s", 100), ("g1", "s", 100), ("g2", "s", 100), ("g3", "s", 10)])
    for op, share in (
        ("all_to_all", 3 / 4),
        ("all_gather", 3 / 4),
        ("all_reduce", 1),
        ("broadcast", 1),
        ("gather", 1 / 4),
    ):
        assert seconds(op, star) == pytest.approx(share / 10), op
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 3], matrix[1, 3], matrix[3, 3] = 2 * GB, 3 * GB, 99 * GB
    assert seconds("all_to_all_v", star, 0, matrix_bytes=matrix) == pytest.approx(5 / 10)
    assert seconds("all_to_all_v", star, 0, matrix_bytes=np.diag([5] * 4)) == 0


def test_a_switch_does_not_repeat_messages():
    """3 S must enter three ranks; the root sends 10 GB/s and each of them 1 GB/s. A cut sees S/10 only."""
    graph = nx.DiGraph()
    graph.add_node("s", kind="switch")
    for i, rate in enumerate((10, 1, 1, 1)):
        graph.add_node(f"g{i}", kind="gpu")
        graph.add_edge(f"g{i}", "s", bandwidth_Bps=rate * GBPS, latency_s=0.0)
        graph.add_edge("s", f"g{i}", bandwidth_Bps=10 * GBPS, latency_s=0.0)
    topology = Topology.from_graph(graph)
    assert seconds("broadcast", topology) == pytest.approx(3 / 13)
    found = row_bound("broadcast", topology)
    assert (found.name, found.time_s) == ("flow", pytest.approx(3 / 13))


def test_dgx1_by_arithmetic():
    """25 GB/s a link; 6 links out of a GPU, and 6 between the two boards of four: 2 + 1 + 2 + 1."""
    dgx1 = load_topology("dgx1_v100")
    assert seconds("all_to_all", dgx1) == pytest.approx(16 / 8 / 150)  # 4 x 4 blocks between the boards
    assert seconds("all_gather", dgx1) == pytest.approx(7 / 8 / 150)
    assert seconds("all_reduce", dgx1) == pytest.approx(2 * 7 / 8 / 150)
    assert seconds("broadcast", dgx1) == pytest.approx(1 / 150)
    assert row_bound("all_to_all", dgx1).name == "cut 4|4"


def test_mi250x_needs_groups_of_ranks():
    """Pairs in one package share 200 GB/s; 4 groups need 2 x 3 messages over all that joins the packages."""
    node = load_topology("mi250x_node")
    wiring = node.wiring
    between = wiring.link_src // 2 != wiring.link_dst // 2
    groups_s = 6 / (wiring.link_bandwidth_Bps[between].sum() / GBPS)
    found = row_bound("all_reduce", node)
    assert found.name == "spanning trees"
    assert found.time_s == pytest.approx(groups_s)
    assert row_bound("send_recv", node).name == "flow"


# --- The same by other means ------------------------------------------------------------------------------------------


def random_system(rng, n_switches=0):
    """Two to six GPUs, connected both ways, with links of a few widths, and some links one way only."""
    names = [f"g{i}" for i in range(rng.integers(2, 7))] + [f"s{i}" for i in range(n_switches)]
    order = rng.permutation(names)
    both = [(order[rng.integers(i)], order[i]) for i in range(1, len(order))]
    both += [tuple(rng.choice(names, 2, replace=False)) for _ in range(rng.integers(0, 5))]
    pairs = [*both, *((b, a) for a, b in both), *(tuple(rng.choice(names, 2, replace=False)) for _ in range(3))]
    rates = {(str(a), str(b)): float(rng.choice([10, 25, 80])) for a, b in pairs}
    return system([(a, b, rate) for (a, b), rate in rates.items()], one_way=True)


def largest_flow(network, sources, target):
    """By networkx: bytes per second into *target* from a node that feeds the *sources* at the given rates."""
    graph = nx.DiGraph()
    for src, dst, rate in zip(network.src, network.dst, network.capacity_Bps, strict=True):
        graph.add_edge(int(src), int(dst), capacity=rate)
    for source, rate in sources.items():
        graph.add_edge("all", source, capacity=rate)
    return nx.maximum_flow_value(graph, "all", target)


def test_delivery_on_dgx1_is_a_largest_flow():
    """At the time of the bound all blocks just fit; in 1 % less they do not."""
    network = flows_of(load_topology("dgx1_v100")).network
    bound_s = seconds("all_gather", load_topology("dgx1_v100"))
    for share, fits in ((1.0, True), (0.99, False)):
        rate = GB / 8 / (bound_s * share)
        flows = [largest_flow(network, {s: rate for s in range(8) if s != d}, d) for d in range(8)]
        assert (min(flows) > 7 * rate * (1 - 1e-9)) == fits
    broadcast = min(largest_flow(network, {0: np.inf}, d) for d in range(1, 8))
    assert seconds("broadcast", load_topology("dgx1_v100")) == pytest.approx(GB / broadcast)


def pairwise_s(network, wanted):
    """The concurrent flow with one commodity per pair, minimising the time."""
    pairs = np.argwhere(wanted > 0)
    n_links, n_nodes = len(network.src), network.n_nodes
    columns = len(pairs) * n_links + 1
    conserved = np.zeros((len(pairs) * n_nodes, columns))
    moved = np.zeros(len(conserved))
    limited = np.zeros((n_links, columns))
    limited[:, -1] = -network.capacity_Bps / GBPS
    for k, (s, d) in enumerate(pairs):
        for link in range(n_links):
            conserved[k * n_nodes + network.src[link], k * n_links + link] += 1
            conserved[k * n_nodes + network.dst[link], k * n_links + link] -= 1
            limited[link, k * n_links + link] = 1
        moved[k * n_nodes + s] = wanted[s, d]
        moved[k * n_nodes + d] = -wanted[s, d]
    goal = np.eye(columns)[-1]
    return linprog(goal, limited, np.zeros(n_links), conserved, moved).fun


@pytest.mark.parametrize("seed", range(12))
def test_exchange_is_the_flow_with_a_commodity_per_pair(seed):
    rng = np.random.default_rng(seed)
    topology = random_system(rng, n_switches=seed % 3)
    flows, n = flows_of(topology), topology.n_gpus
    matrix = rng.integers(0, 3, (n, n)) * GB
    np.fill_diagonal(matrix, 0)
    for op, wanted in (
        ("all_to_all", (1 - np.eye(n)) / n),
        ("send_recv", np.roll(np.eye(n), 1, axis=1)),
        ("scatter", np.eye(n)[0][:, None] * (1 - np.eye(n)) / n),
        ("gather", np.eye(n)[0] * (1 - np.eye(n)) / n),
        ("all_to_all_v", matrix / GB),
    ):
        found = flow_bound(operation(op), GB, flows, matrix_bytes=matrix if op == "all_to_all_v" else None)[0]
        assert found == pytest.approx(pairwise_s(flows.network, wanted), rel=1e-6), op


def partitions(items):
    """All ways to divide *items* into groups."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for i, group in enumerate(rest):
            yield [*rest[:i], [items[0], *group], *rest[i + 1 :]]


def crossing(network, group_of):
    different = group_of[network.src] != group_of[network.dst]
    return network.capacity_Bps[different].sum()


@pytest.mark.parametrize("seed", range(25))
def test_delivery_is_the_worst_cut_and_all_reduce_the_worst_grouping(seed):
    """Between ranks that are wired directly: every subset and every way to form groups is tried."""
    rng = np.random.default_rng(seed)
    topology = random_system(rng)
    flows, n = flows_of(topology), topology.n_gpus
    network, root = flows.network, int(rng.integers(n))
    worst = dict.fromkeys(DELIVERY, 0.0)
    either_cut = 0.0
    for k in range(1, n):
        for side in itertools.combinations(range(n), k):
            out = network.capacity_Bps[np.isin(network.src, side) & ~np.isin(network.dst, side)].sum()
            forced = (k / n, (n - k) / n, root in side, root not in side)
            for op, share in zip(DELIVERY, forced, strict=True):
                worst[op] = max(worst[op], share * GB / out)
            either_cut = max(either_cut, GB / out)
    for op in DELIVERY:
        found = flow_bound(operation(op), GB, flows, root if operation(op).rooted else 0)
        assert found == (pytest.approx(worst[op], rel=1e-9), "flow"), op
    groups_s = either_cut
    for groups in partitions(list(range(n))):
        if len(groups) > 1:
            group_of = np.array([next(g for g, group in enumerate(groups) if rank in group) for rank in range(n)])
            groups_s = max(groups_s, 2 * (len(groups) - 1) * GB / crossing(network, group_of))
    assert flow_bound(operation("all_reduce"), GB, flows)[0] == pytest.approx(groups_s, rel=1e-9)


def regular():
    for n in range(2, 8):
        yield parse_topology(
            f"{{schema: collsim.topology/1, builder: full_mesh, gpu: {{count: {n}}}, "
            "link: {bandwidth: 10 GB/s, latency: 0 ns}}"
        )
        yield system([(f"g{i}", "s", 10) for i in range(n)])
    yield replace(load_topology("hgx_h100"), in_network_reduction=None)


@pytest.mark.parametrize("topology", list(regular()))
@pytest.mark.parametrize("op", UNIFORM)
def test_cuts_of_regular_fabrics_are_as_good(topology, op):
    """Symmetry leaves nothing for a flow to find."""
    run = prepare(topology, IDEAL)
    assert run.flows is None
    assert run.fabric.wiring.coordinates.kind in ("mesh", "switched")
    closed = lower_bound(operation(op), GB, run.cuts).time_s
    assert seconds(op, topology) == pytest.approx(closed, rel=1e-9)


def test_send_recv_on_a_mesh_is_bounded_by_all_links():
    """A byte takes its own link or two others: 2 S / (n B). Cuts reach that for even n up to ten only."""
    for n in (2, 3, 5, 8, 12, 17):
        mesh = parse_topology(
            f"{{schema: collsim.topology/1, builder: full_mesh, gpu: {{count: {n}}}, "
            "link: {bandwidth: 10 GB/s, latency: 0 ns}}"
        )
        assert row_bound("send_recv", mesh).time_s == pytest.approx(2 / n / 10)
        assert seconds("send_recv", mesh) == pytest.approx(2 / n / 10)


@pytest.mark.parametrize("name", ["dgx1_v100", "mi250x_node", "mi250x_8oam", "pcie_gen5_8gpu"])
@pytest.mark.parametrize("seed", range(3))
def test_a_flow_is_no_less_than_any_cut(name, seed):
    rng = np.random.default_rng(seed)
    topology = load_topology(name)
    ranks = [int(gpu) for gpu in rng.permutation(topology.n_gpus)[: rng.integers(2, topology.n_gpus + 1)]]
    run = prepare(topology, IDEAL, ranks)
    matrix = rng.integers(0, GB, (len(ranks),) * 2) + 1
    for op in OPERATIONS.values():
        more = {"matrix_bytes": matrix} if op.name == "all_to_all_v" else {"root": len(ranks) - 1 if op.rooted else 0}
        cut = lower_bound(op, GB, run.cuts, **more)
        both = lower_bound(op, GB, run.cuts, **more, flows=run.flows)
        assert both.time_s >= cut.time_s
        assert (both.name in ("flow", "spanning trees")) == (both.time_s > cut.time_s)
        if cut.name != "egress of all ranks":
            assert flow_bound(op, GB, flows_of(topology, ranks), **more)[0] >= cut.time_s * (1 - 1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_switches_stand_on_the_better_side_of_a_cut(seed):
    """Trees of switches in two tiers, as PCIe has them: capacities are those of networkx, for every cut."""
    rng = np.random.default_rng(seed)
    edges = [(f"g{i}", f"s{i // 2}", 10) for i in range(6)] + [
        (f"s{i}", "s9", float(rng.integers(5, 30))) for i in range(3)
    ]
    topology = system(edges) if seed else load_topology("pcie_gen5_8gpu")
    run = prepare(topology, IDEAL)
    network = flows_of(topology).network
    for inside, capacity in zip(run.cuts.inside[::3], run.cuts.capacity_Bps[::3], strict=True):
        graph = nx.DiGraph()
        for src, dst, rate in zip(network.src, network.dst, network.capacity_Bps, strict=True):
            graph.add_edge(int(src), int(dst), capacity=rate)
        for rank, within in enumerate(inside):
            graph.add_edge(*(("all", rank) if within else (rank, "none")))
        assert capacity == pytest.approx(nx.maximum_flow_value(graph, "all", "none"))


# --- Prices, sizes and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_wrong_prices_give_no_wrong_bound(seed, monkeypatch):
    """Whatever the solver answers, noise or nothing, the bound only gets smaller."""
    rng = np.random.default_rng(seed)
    topology = random_system(rng, n_switches=seed % 3)
    right = {op: seconds(op, topology) for op in UNIFORM}
    solver = flow_bounds._prices
    for disturb in (
        lambda price: price * rng.uniform(0.5, 2, len(price)),
        lambda price: price + rng.uniform(0, 1e-3, len(price)),
        lambda price: rng.uniform(0, 1, len(price)),
        np.zeros_like,
    ):
        monkeypatch.setattr(flow_bounds, "_prices", lambda *given, disturb=disturb: disturb(solver(*given)))
        for op in UNIFORM:
            assert 0 <= seconds(op, topology) <= right[op] * (1 + 1e-9)


def test_a_solver_that_fails_leaves_the_cuts(monkeypatch):
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: type("Answer", (), {"status": 4}))
    found = row_bound("all_to_all", ring(5))
    assert found.name == "cut 2|3"
    assert found.time_s == pytest.approx(6 / 5 / 10)


def test_one_program_for_all_sizes(monkeypatch):
    solved = []
    solver = flow_bounds._prices
    monkeypatch.setattr(flow_bounds, "_prices", lambda *given: solved.append(given) or solver(*given))
    flows = flows_of(load_topology("mi250x_node"))
    times = [flow_bound(operation("all_to_all"), size, flows)[0] for size in (16, 2**20, 2**30)]
    assert np.allclose(np.diff(np.log2(times)), [16, 10], rtol=1e-12)
    assert len(solved) == 1
    for root in (0, 3, 0, 3):
        flow_bound(operation("broadcast"), 64, flows, root)
    assert len(solved) == 3
    matrix = np.arange(64).reshape(8, 8)
    small, large = (flow_bound(operation("all_to_all_v"), 0, flows, 0, matrix * k)[0] for k in (1, 8))
    assert large == pytest.approx(8 * small, rel=1e-12)
    assert len(solved) == 4  # powers of two scale without rounding: the same pattern
    flow_bound(operation("all_to_all_v"), 0, flows, 0, matrix.T)
    assert len(solved) == 5


def test_many_ranks_on_switches_let_switches_repeat(monkeypatch):
    """The smaller program is a bound as well."""
    topology = system([(f"g{i}", f"s{i % 2}", 10) for i in range(6)] + [("s0", "s1", 5)])
    full = {op: seconds(op, topology) for op in (*DELIVERY, "all_reduce")}
    monkeypatch.setattr(flow_bounds, "MOST_COLUMNS", 0)
    for op, time_s in full.items():
        assert 0 < seconds(op, topology) <= time_s * (1 + 1e-9)
    assert seconds("broadcast", topology) == pytest.approx(1 / 5)


def test_who_gets_flows():
    def of(topology, ranks=None):
        fabric = build_fabric(topology, ranks)
        return find_flows(fabric, np.ones(fabric.n_links, dtype=np.bool_))

    assert of(load_topology("mi300x_ubb8")) is None
    assert of(load_topology("hgx_h100")) is None
    assert of(load_topology("dgx1_v100")) is not None
    assert of(ring(33)) is None
    assert of(ring(33), range(32)) is not None


def test_gpus_that_take_no_part_forward_only_where_routes_lead_through_them():
    topology = system([("g0", "g1", 10), ("g1", "g2", 10), ("g0", "g3", 10), ("g3", "g4", 10), ("g4", "g2", 10)])
    network = flows_of(topology, [0, 2]).network  # the way over g3 and g4 is longer, so no route takes it
    assert (network.n_ranks, network.n_nodes, len(network.src)) == (2, 3, 4)
    assert seconds("broadcast", topology, ranks=[0, 2]) == pytest.approx(1 / 10)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("'mi300x_ubb8'", False),
        ("'hgx_h100'", False),
        ("'dgx1_v100'", False),
        ("'dgx1_v100', degrade=['link:gpu0-gpu1=70%']", True),
    ],
)
def test_only_irregular_fabrics_of_which_nothing_is_on_file_load_the_solver(name, needed):
    code = (
        f"import sys, collsim; collsim.simulate({name}, op='all_to_all', size='1M');"
        " print('scipy.optimize' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(needed)


def test_rows_say_which_bound():
    names = {
        op: simulate("mi250x_node", op, "64M", profile="ideal").rows[0].bound for op in ("all_reduce", "all_to_all")
    }
    assert names == {"all_reduce": "spanning trees", "all_to_all": "cut 4|4"}


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 9])
def test_neighbours_on_a_mesh_take_all_links(n):
    """The bound by hand, 2 S / (n B), is what linear programming finds; of odd numbers no cut is as good."""
    mesh = system([(f"g{i}", f"g{j}", 10) for i, j in itertools.combinations(range(n), 2)])
    found = row_bound("send_recv", mesh)
    assert found.time_s == pytest.approx(seconds("send_recv", mesh), rel=1e-6)
    assert found.time_s == pytest.approx(2 / (10 * n), rel=1e-12)
    assert found.name == ("all links" if n % 2 else f"cut {n // 2}|{n // 2}")
