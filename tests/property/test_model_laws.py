"""Laws that every prediction obeys, whatever the fabric, the algorithm and the size.

Pipelines that contend for links amplify rounding: two runs that differ in the last bit can differ in the seventh digit.
Where a law changes the order of a sum, the bar of 1e-9 is therefore widened by what noise of 1e-13 in the capacities
does to the same case. Where it does not, equality is to the bit.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim.collectives import ALGORITHMS, ScheduleRequest, algorithm, rings_for
from collsim.core.operations import operation
from collsim.library import Profile, load_profile
from collsim.schedule import EVERY, Schedule
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import Topology, Wiring, load_topology, parse_topology

from .depth import deep_but

PAIRS = [(op, entry.name) for entry in ALGORITHMS if entry.where == "anywhere" for op in entry.ops]
OF_ENGINES = {entry.name for entry in ALGORITHMS if entry.libraries}
IN_NETWORK = {entry.name for entry in ALGORITHMS if entry.in_network}
ZOO = ("mi300x_ubb8", "mi355x_ubb8", "hgx_h100", "hgx_b200", "gb200_nvl72", "mi400_ualoe72")
ADDING = ("hgx_h100", "gb200_nvl72")  # their switches add and multicast
NOISE = 1e-13
IDEAL = load_profile("ideal")

seeds = pytest.mark.parametrize("seed", deep_but(range(30), range(60)))
laws = settings(derandomize=True)


@dataclass(frozen=True)
class Case:
    """A schedule on a fabric."""

    topology: Topology
    ranks: tuple[int, ...]
    profile: Profile
    op: str
    algo: str
    size_bytes: int
    element_bytes: int = 1
    root: int = 0
    channels: int = 1
    chunk_bytes: int | None = None
    matrix: np.ndarray | None = None

    def __repr__(self):
        links = self.topology.wiring.n_links
        return f"{self.op} by {self.algo} on {self.topology.name}, {links} links: " + ", ".join(
            f"{key}={value!r}" for key, value in vars(self).items() if key not in ("topology", "op", "algo")
        )

    def run(self):
        return prepare(self.topology, self.profile, self.ranks)

    def schedule(self, run):
        request = ScheduleRequest(
            op=operation(self.op),
            n_ranks=len(self.ranks),
            size_bytes=self.size_bytes,
            element_bytes=self.element_bytes,
            root=self.root,
            channels=self.channels,
            chunk_bytes=self.chunk_bytes,
            rings=rings_for(run.fabric.peer_links()),
            matrix_bytes=self.matrix,
        )
        return algorithm(self.op, self.algo).build(request)

    def timing(self):
        run = self.run()
        return time_schedule(self.schedule(run), run)

    def noise_s(self):
        """How far rounding errors can carry the time of this case."""
        wiring = self.topology.wiring
        jitter = 1 + NOISE * np.random.default_rng(1).uniform(-1, 1, wiring.n_links)
        noisy = rewired(self.topology, link_bandwidth_Bps=wiring.link_bandwidth_Bps * jitter)
        return abs(replace(self, topology=noisy).timing().time_s - self.timing().time_s)


def same(one_s, other_s, case):
    return math.isclose(one_s, other_s, rel_tol=1e-9) or abs(one_s - other_s) <= 1e4 * case.noise_s()


def rewired(topology, **arrays):
    wiring: Wiring = topology.wiring
    return replace(topology, wiring=replace(wiring, **arrays))


def profile(launch_s=0.0, overhead_s=0.0, channel_rate_Bps=math.inf):
    return Profile("law", "", False, launch_s, overhead_s, channel_rate_Bps, True, True, "")


PROFILES = (IDEAL, load_profile("default"), profile(1e-6, 0.3e-6, 7e9), profile(0.0, 2e-6))


def random_system(rng):
    """GPUs and switches, connected, with links of different rates, some of them in one direction only."""
    n_gpus, n_switches = int(rng.integers(2, 11)), int(rng.integers(0, 4))
    names = [f"g{i}" for i in range(n_gpus)] + [f"s{i}" for i in range(n_switches)]
    graph = nx.DiGraph()
    for i, name in enumerate(names):
        graph.add_node(name, kind="gpu" if i < n_gpus else "switch", latency_s=0.0 if i < n_gpus else 0.2e-6)
    order = rng.permutation(names).tolist()
    pairs = [(order[rng.integers(i)], order[i]) for i in range(1, len(order))]
    pairs += [tuple(rng.choice(names, 2, replace=False).tolist()) for _ in range(rng.integers(0, 15))]
    for i, (a, b) in enumerate(pairs):
        rate, latency = rng.choice([12e9, 25e9, 50e9]), rng.choice([0.1e-6, 0.5e-6])
        for ends in ((a, b), (b, a))[: 2 if i < len(order) - 1 else rng.integers(1, 3)]:
            graph.add_edge(*ends, bandwidth_Bps=rate, latency_s=latency, efficiency=rng.choice([1.0, 0.8]))
    return Topology.from_graph(graph)


def random_placement(rng, *, adding=False):
    """A topology and some of its GPUs in any order."""
    if adding:
        topology = load_topology(rng.choice(ADDING))
    else:
        topology = random_system(rng) if rng.random() < 0.5 else load_topology(rng.choice(ZOO))
    n = 72 if rng.random() < 0.1 else rng.integers(2, 25)
    return topology, tuple(rng.permutation(topology.n_gpus)[:n].tolist())


def random_case(seed, pairs=PAIRS):
    """A case that depends on *seed* alone; operations and algorithms take turns."""
    rng = np.random.default_rng(seed)
    op, algo = pairs[seed % len(pairs)]
    topology, ranks = random_placement(rng, adding=algo in IN_NETWORK)
    n = len(ranks)
    element = 1 if op == "all_to_all_v" else int(rng.choice([1, 2, 4, 8]))
    size = int(2 ** rng.uniform(0, 22)) * element * (n if operation(op).blocked else 1)
    matrix = None
    if op == "all_to_all_v":
        matrix = rng.integers(0, 2**20, (n, n)) * (rng.random((n, n)) < 0.5)
        matrix[0, 1] = 12345
        size = int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    return Case(
        topology,
        ranks,
        PROFILES[rng.integers(len(PROFILES))],
        op,
        algo,
        size,
        element_bytes=element,
        root=int(rng.integers(n)) if operation(op).rooted else 0,
        channels=int(rng.integers(1, 7)),
        chunk_bytes=None if rng.random() < 0.3 else max(size // int(rng.choice([1, 3, 17, 100])), element),
        matrix=matrix,
    )


# --- Time and capacity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", deep_but((*range(2, 18), 31, 32, 33, 64, 72), range(2, 73)))
def test_every_algorithm_takes_time_on_every_number_of_ranks(n):
    topology = load_topology("gb200_nvl72")
    run = prepare(topology, IDEAL, range(n))
    for op, algo in PAIRS:
        matrix = np.eye(n, k=1, dtype=np.int64) if op == "all_to_all_v" else None
        size = 1 if matrix is not None else 16 * n if operation(op).blocked else 4
        case = Case(topology, tuple(range(n)), IDEAL, op, algo, size, matrix=matrix)
        assert 0 < time_schedule(case.schedule(run), run).time_s < 1e-5, (op, algo)


@seeds
def test_nothing_is_above_capacity_or_below_the_bound(seed):
    case = random_case(seed)
    run = case.run()
    timing = time_schedule(case.schedule(run), run)
    assert timing.time_s > 0
    assert np.all(timing.link_bytes <= run.fabric.capacity_Bps * timing.time_s * (1 + 1e-9))
    assert np.all(timing.link_bytes >= 0)
    assert sum(timing.critical_s.values()) == pytest.approx(timing.time_s, rel=1e-9, abs=0)


@seeds
def test_rows_stay_within_the_wires(seed):
    rng = np.random.default_rng(seed)
    topology, ranks = random_placement(rng)
    op = rng.choice(sorted({op for op, _ in PAIRS} - {"all_to_all_v"}))
    size = 16 * len(ranks) + int(2 ** rng.uniform(0, 24))
    for name in ("ideal", "default"):
        rows = collsim.simulate(topology, op, size, rank_list=ranks, algo="all", channels=4, profile=name).rows
        for row in rows:
            assert 0 < row.efficiency <= 1 + 1e-9, row.algo
            assert all(0 < load.utilisation <= 1 for load in row.bottleneck), row.algo
            assert row.bottleneck_links >= 1


@seeds
def test_same_input_same_bits(seed):
    one, two = random_case(seed).timing(), random_case(seed).timing()
    assert one.time_s == two.time_s
    assert one.link_bytes.tobytes() == two.link_bytes.tobytes()
    assert one.critical_s == two.critical_s


# --- Symmetries -------------------------------------------------------------------------------------------------------


def speeded(case, factor):
    """Every rate times *factor*, every time over it."""
    wiring, constants = case.topology.wiring, case.profile
    facts = [
        replace(fact, value=fact.value * factor) if fact.path == "gpu.memory_bandwidth" else fact
        for fact in case.topology.facts
    ]
    return replace(
        case,
        topology=rewired(
            replace(case.topology, facts=tuple(facts)),
            link_bandwidth_Bps=wiring.link_bandwidth_Bps * factor,
            link_latency_s=wiring.link_latency_s / factor,
            node_latency_s=wiring.node_latency_s / factor,
        ),
        profile=replace(
            constants,
            launch_s=constants.launch_s / factor,
            message_overhead_s=constants.message_overhead_s / factor,
            channel_rate_Bps=constants.channel_rate_Bps * factor,
            families={
                family: {name: faster(costs, factor) for name, costs in protocols.items()}
                for family, protocols in constants.families.items()
            },
        ),
    )


def faster(costs, factor):
    """The rates and times of a protocol."""
    figures = {key: getattr(costs, key) for key in costs.__slots__ if isinstance(getattr(costs, key), float)}
    times = {key: value / factor for key, value in figures.items() if key.endswith("_s")}
    rates = {key: value * factor for key, value in figures.items() if key.endswith("_Bps")}
    return replace(costs, **times, **rates)


@seeds
@pytest.mark.parametrize("factor", [2.0, 1 / 1024])
def test_a_power_of_two_faster_is_exactly_so(seed, factor):
    case = random_case(seed)
    assert speeded(case, factor).timing().time_s * factor == case.timing().time_s


@seeds
def test_faster_by_any_factor(seed):
    case, factor = random_case(seed), 10 ** np.random.default_rng(seed + 1).uniform(-1, 1)
    assert same(speeded(case, factor).timing().time_s * factor, case.timing().time_s, case)


@seeds
def test_names_and_order_of_the_nodes_do_not_matter(seed):
    """GPU i of the old system is GPU ``moved[i]`` of the new one, under another name."""
    case, random = random_case(seed), Random(seed)
    names = case.topology.wiring.node_names
    n_gpus = case.topology.n_gpus
    moved = random.sample(range(n_gpus), n_gpus)
    renamed = {name: f"x{random.randrange(10**6)}-{name}" for name in names}
    old, graph = case.topology.graph, nx.DiGraph()
    for name in random.sample(names, len(names)):
        rank = {"rank": moved[names.index(name)]} if name in names[:n_gpus] else {}
        graph.add_node(renamed[name], **{**old.nodes[name], **rank})
    for a, b, figures in random.sample(list(old.edges(data=True)), old.number_of_edges()):
        graph.add_edge(renamed[a], renamed[b], **figures)
    facts = {name: getattr(case.topology, name) for name in ("facts", "in_network_reduction", "in_network_efficiency")}
    topology = replace(Topology.from_graph(graph), **facts)
    other = replace(case, topology=topology, ranks=tuple(moved[rank] for rank in case.ranks))
    assert same(other.timing().time_s, case.timing().time_s, case)


@seeds
def test_equal_channels_may_be_merged(seed):
    case = random_case(seed)
    run = case.run()
    schedule = case.schedule(run)
    merged = time_schedule(schedule, run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "merged", lambda self: self)
        apart = time_schedule(schedule, run)
    assert merged.simulated <= apart.simulated
    assert merged.link_bytes.tolist() == pytest.approx(apart.link_bytes.tolist(), rel=1e-9, abs=1e-6)
    assert same(merged.time_s, apart.time_s, case)


HEAVY = [
    # Thousands of chunks that contend: op, algorithm, system, ranks, channels, chunks of the whole
    ("all_reduce", "tree", "gb200_nvl72", 24, 6, 400),
    ("reduce", "tree", "gb200_nvl72", 21, 6, 400),
    ("all_reduce", "ring", "mi300x_ubb8", 8, 6, 1000),
    ("all_reduce", "nvls", "hgx_h100", 8, 6, 400),
    ("all_to_all", "nccl_p2p", "gb200_nvl72", 24, 6, 1),
]


@pytest.mark.parametrize(("op", "algo", "name", "n", "channels", "cut"), HEAVY)
@pytest.mark.parametrize("constants", [IDEAL, profile(0.0, 0.1e-6)], ids=["ideal", "overhead"])
def test_symmetries_of_long_pipelines(op, algo, name, n, channels, cut, constants):
    size = 2**22 * (n if operation(op).blocked else 1)
    topology = load_topology(name)
    case = Case(topology, tuple(range(n)), constants, op, algo, size, channels=channels, chunk_bytes=size // cut)
    run = case.run()
    schedule = case.schedule(run)
    timing = time_schedule(schedule, run)
    assert time_schedule(schedule, run).time_s == timing.time_s
    assert speeded(case, 4.0).timing().time_s * 4.0 == timing.time_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "merged", lambda self: self)
        assert same(time_schedule(schedule, run).time_s, timing.time_s, case)


# --- Bytes ------------------------------------------------------------------------------------------------------------


def hops_between(case):
    """Number of links between every two ranks: through switches if that is possible, else through GPUs too."""
    graph, names = case.topology.graph, case.topology.wiring.node_names
    gpus = set(names[: case.topology.n_gpus])
    switched = nx.DiGraph((("from", a) if a in gpus else a, b) for a, b in graph.edges)  # GPUs only begin or end a path
    hops = np.zeros((len(case.ranks), len(case.ranks)), dtype=np.int64)
    for i, source in enumerate(case.ranks):
        near = nx.single_source_shortest_path_length(switched, ("from", names[source]))
        far = nx.single_source_shortest_path_length(graph, names[source])
        hops[i] = [near.get(names[target], far[names[target]]) for target in case.ranks]
    np.fill_diagonal(hops, 0)
    return hops


@pytest.mark.parametrize(("op", "algo"), PAIRS)
@pytest.mark.parametrize("seed", range(4))
def test_every_byte_crosses_every_link_of_its_way(op, algo, seed):
    case = random_case(seed, [(op, algo)])
    run = case.run()
    schedule = case.schedule(run)
    transfers = schedule.materialise()
    hops = hops_between(case)[transfers.src, transfers.dst]
    hops[(transfers.src == EVERY) | (transfers.dst == EVERY)] = len(case.ranks) + 1  # all links up and one down, or so
    crossings = int((transfers.size_bytes(schedule.chunks) * hops).sum())
    assert time_schedule(schedule, run).link_bytes.sum() == pytest.approx(crossings, rel=1e-9, abs=0)


# --- Continuity and monotony, where nothing contends ------------------------------------------------------------------


def physical_ring(n):
    nodes = ", ".join(f"{{name: g{i}}}" for i in range(n))
    links = ", ".join(f"{{a: g{i}, b: g{(i + 1) % n}, duplex: false}}" for i in range(n))
    head = "schema: collsim.topology/1, builder: explicit, link: {bandwidth: 40 GB/s}"
    return parse_topology(f"{{{head}, nodes: [{nodes}], links: [{links}]}}")


def full_mesh(n):
    head = "schema: collsim.topology/1, builder: full_mesh, link: {bandwidth: 40 GB/s}"
    return parse_topology(f"{{{head}, gpu: {{count: {n}}}}}")


RATE_BPS = 40e9
# (op, algo, fabric, serial steps that one more element per chunk can lengthen)
SMOOTH = [
    ("all_reduce", "ring", physical_ring, lambda n: 2 * (n - 1)),
    ("all_gather", "ring", physical_ring, lambda n: n - 1),
    ("reduce_scatter", "ring", physical_ring, lambda n: n - 1),
    ("broadcast", "ring", physical_ring, lambda n: n - 1),
    ("reduce", "ring", physical_ring, lambda n: n - 1),
    ("all_reduce", "tree", full_mesh, lambda n: 2 * (n - 1).bit_length()),
    ("broadcast", "tree", full_mesh, lambda n: (n - 1).bit_length()),
    ("all_gather", "pat", full_mesh, lambda n: n - 1),
    ("reduce_scatter", "pat", full_mesh, lambda n: n - 1),
    ("all_reduce", "all_pairs", full_mesh, lambda n: 2),
    ("all_gather", "all_pairs", full_mesh, lambda n: 1),
    ("reduce_scatter", "all_pairs", full_mesh, lambda n: 1),
    ("all_reduce", "one_shot", full_mesh, lambda n: 1),
    ("all_to_all", "direct", full_mesh, lambda n: 1),
    ("send_recv", "neighbour", physical_ring, lambda n: 1),
]
smooth = pytest.mark.parametrize(("op", "algo", "fabric", "steps"), SMOOTH)


def contention_free(op, algo, topology, elements, element=4, chunk=None):
    n = topology.n_gpus
    size = elements * element * (n if operation(op).blocked else 1)
    return Case(topology, tuple(range(n)), IDEAL, op, algo, size, element, channels=1, chunk_bytes=chunk)


@smooth
@settings(laws, max_examples=25)
@given(
    st.sampled_from([2, 3, 4, 5, 8, 9, 13]),
    st.integers(1, 6000),
    st.sampled_from([None, 4, 1000, 4096]),
    st.integers(1, 9),
)
def test_one_more_element_costs_one_more_element(op, algo, fabric, steps, n, elements, chunk, element):
    """Of bandwidth n steps of one element at most, and never less than nothing: no jumps up and none down."""
    chunk = max(chunk, elements * element // 40) if chunk else None
    topology = fabric(n)
    before, after = (
        contention_free(op, algo, topology, count, element, chunk).timing().time_s for count in (elements, elements + 1)
    )
    assert after >= before * (1 - 1e-12)
    assert after - before <= steps(n) * element / RATE_BPS * (1 + 1e-9) + 1e-12 * before


@smooth
@settings(laws, max_examples=10)
@given(st.sampled_from([2, 3, 7, 8]), st.lists(st.integers(1, 2**18), min_size=2, max_size=8, unique=True))
def test_more_never_takes_less(op, algo, fabric, steps, n, counts):
    topology = fabric(n)
    times = [contention_free(op, algo, topology, count, chunk=65536).timing().time_s for count in sorted(counts)]
    assert all(later >= sooner * (1 - 1e-12) for sooner, later in pairwise(times))


@smooth
@settings(laws, max_examples=10)
@given(st.sampled_from([2, 3, 7, 8]), st.integers(1, 2**16), st.randoms(use_true_random=False), st.floats(1, 30))
def test_faster_links_never_take_more(op, algo, fabric, steps, n, elements, random, factor):
    """Not even if only some links are faster."""
    topology = fabric(n)
    wiring = topology.wiring
    faster = np.array([random.choice([1.0, factor]) for _ in range(wiring.n_links)])
    improved = rewired(topology, link_bandwidth_Bps=wiring.link_bandwidth_Bps * faster)
    before, after = (
        contention_free(op, algo, system, elements, chunk=16384).timing().time_s for system in (topology, improved)
    )
    assert after <= before * (1 + 1e-12)


@pytest.mark.parametrize("topo", ["mi300x_ubb8", "hgx_h100"])
@pytest.mark.parametrize(
    ("op", "algo"),
    [pair for pair in PAIRS if pair[0] != "all_to_all_v" and pair[1] not in IN_NETWORK | OF_ENGINES],
)
@pytest.mark.parametrize("size", [2**20, 3 * 2**20, 2**26])
def test_no_cliff_at_one_byte_more(topo, op, algo, size):
    """nccl-tests rounds sizes: the next one up is a block grain per rank or an element away."""
    sizes = [size, size + 8 * 16]
    first, second = collsim.simulate(topo, op, sizes, algo=algo, channels=8, profile="ideal").rows
    assert first.size_bytes < second.size_bytes
    assert first.busbw_Bps == pytest.approx(second.busbw_Bps, rel=2e-3)
