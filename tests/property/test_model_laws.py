"""Laws that every prediction obeys, whatever the fabric, the algorithm and the size.

Pipelines that contend for links amplify rounding: two runs that differ in the last bit can differ in the seventh digit.
Where a law changes the order of a sum, the bar of 1e-9 is therefore widened by what noise of 1e-13 in the capacities
does to the same case. Where it does not, equality is to the bit.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collsim
from collsim.collectives import ALGORITHMS, Request, algorithm, rings_for
from collsim.library import Profile, load_profile
from collsim.operations import operation
from collsim.schedule import EVERY, Schedule
from collsim.simulation import prepare, time_schedule
from collsim.topology import Topology, Wiring, load_topology, parse_topology

PAIRS = [(op, entry.name) for entry in ALGORITHMS for op in entry.ops]
IN_NETWORK = {entry.name for entry in ALGORITHMS if entry.in_network}
ZOO = ("mi300x_ubb8", "mi355x_ubb8", "hgx_h100", "hgx_b200", "gb200_nvl72", "mi400_ualoe72")
ADDING = ("hgx_h100", "gb200_nvl72")  # their switches add and multicast
NOISE = 1e-13
IDEAL = load_profile("ideal")

laws = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


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
        request = Request(
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


@st.composite
def graphs(draw):
    """A connected system of GPUs and switches with links of different rates, some of them in one direction only."""
    n_gpus, n_switches = draw(st.integers(2, 7)), draw(st.integers(0, 3))
    names = [f"g{i}" for i in range(n_gpus)] + [f"s{i}" for i in range(n_switches)]
    graph = nx.DiGraph()
    for i, name in enumerate(names):
        graph.add_node(name, kind="gpu" if i < n_gpus else "switch", latency_s=0.0 if i < n_gpus else 0.2e-6)
    order = draw(st.permutations(names))
    pairs = [(order[draw(st.integers(0, i - 1))], order[i]) for i in range(1, len(order))]
    pairs += draw(st.lists(st.sampled_from([(a, b) for a in names for b in names if a != b]), max_size=12))
    for i, (a, b) in enumerate(pairs):
        rate, latency = draw(st.sampled_from([12e9, 25e9, 50e9])), draw(st.sampled_from([0.1e-6, 0.5e-6]))
        for ends in ((a, b), (b, a))[: 2 if i < len(order) else draw(st.integers(1, 2))]:
            graph.add_edge(*ends, bandwidth_Bps=rate, latency_s=latency, efficiency=draw(st.sampled_from([1.0, 0.8])))
    return Topology.from_graph(graph)


@st.composite
def placements(draw, *, adding=False):
    """A topology and some of its GPUs in any order."""
    if draw(st.booleans()) and not adding:
        topology = draw(graphs())
    else:
        topology = load_topology(draw(st.sampled_from(ADDING if adding else ZOO)))
    everyone = draw(st.permutations(range(topology.n_gpus)))
    counts = [n for n in (*range(2, 25), 72) if n <= topology.n_gpus]
    return topology, tuple(everyone[: draw(st.sampled_from(counts))])


@st.composite
def cases(draw, pairs=PAIRS):
    op, algo = draw(st.sampled_from(pairs))
    topology, ranks = draw(placements(adding=algo in IN_NETWORK))
    n = len(ranks)
    element = draw(st.sampled_from([1, 2, 4, 8]))
    elements = draw(st.one_of(st.integers(1, 40), st.integers(1, 2**22)))
    unit = element * (n if operation(op).blocked else 1)
    matrix = None
    if op == "all_to_all_v":
        bytes_of = np.random.default_rng(draw(st.integers(0, 99)))
        matrix = bytes_of.integers(0, 2**20, (n, n)) * (bytes_of.random((n, n)) < 0.5)
        matrix[0, 1] = 12345
        elements, unit = int(max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())), 1
    size = elements * unit
    return Case(
        topology,
        ranks,
        draw(st.sampled_from([IDEAL, load_profile("default"), profile(1e-6, 0.3e-6, 7e9), profile(0.0, 2e-6)])),
        op,
        algo,
        size,
        element_bytes=1 if matrix is not None else element,
        root=draw(st.integers(0, n - 1)) if operation(op).rooted else 0,
        channels=draw(st.integers(1, 6)),
        chunk_bytes=draw(st.sampled_from([None, *(max(size // cut, element) for cut in (1, 3, 17))])),
        matrix=matrix,
    )


# --- Time and capacity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 73))
def test_every_algorithm_takes_time_on_every_number_of_ranks(n):
    topology = load_topology("gb200_nvl72")
    run = prepare(topology, IDEAL, range(n))
    for op, algo in PAIRS:
        matrix = np.eye(n, k=1, dtype=np.int64) if op == "all_to_all_v" else None
        size = 1 if matrix is not None else 16 * n if operation(op).blocked else 4
        case = Case(topology, tuple(range(n)), IDEAL, op, algo, size, matrix=matrix)
        assert 0 < time_schedule(case.schedule(run), run).time_s < 1e-5, (op, algo)


@laws
@given(cases())
def test_nothing_is_above_capacity_or_below_the_bound(case):
    run = case.run()
    timing = time_schedule(case.schedule(run), run)
    assert timing.time_s > 0
    assert np.all(timing.link_bytes <= run.fabric.capacity_Bps * timing.time_s * (1 + 1e-9))
    assert np.all(timing.link_bytes >= 0)
    assert sum(timing.critical_s.values()) == pytest.approx(timing.time_s, rel=1e-9)


@laws
@given(placements(), st.sampled_from(sorted({op for op, _ in PAIRS} - {"all_to_all_v"})), st.integers(1, 2**24))
def test_rows_stay_within_the_wires(placement, op, size):
    topology, ranks = placement
    size += 16 * len(ranks)
    for name in ("ideal", "default"):
        rows = collsim.simulate(topology, op, size, rank_list=ranks, algo="all", channels=4, profile=name).rows
        for row in rows:
            assert 0 < row.efficiency <= 1 + 1e-9, row.algo
            assert all(0 < load.utilisation <= 1 for load in row.bottleneck), row.algo
            assert row.bottleneck_links >= 1


@laws
@given(cases())
def test_same_input_same_bits(case):
    one, two = case.timing(), case.timing()
    assert one.time_s == two.time_s
    assert one.link_bytes.tobytes() == two.link_bytes.tobytes()
    assert one.critical_s == two.critical_s


# --- Symmetries -------------------------------------------------------------------------------------------------------


def speeded(case, factor):
    """Every rate times *factor*, every time over it."""
    wiring, constants = case.topology.wiring, case.profile
    return replace(
        case,
        topology=rewired(
            case.topology,
            link_bandwidth_Bps=wiring.link_bandwidth_Bps * factor,
            link_latency_s=wiring.link_latency_s / factor,
            node_latency_s=wiring.node_latency_s / factor,
        ),
        profile=replace(
            constants,
            launch_s=constants.launch_s / factor,
            message_overhead_s=constants.message_overhead_s / factor,
            channel_rate_Bps=constants.channel_rate_Bps * factor,
        ),
    )


@laws
@given(cases(), st.sampled_from([2.0, 0.25, 1024.0]))
def test_a_power_of_two_faster_is_exactly_so(case, factor):
    assert speeded(case, factor).timing().time_s * factor == case.timing().time_s


@laws
@given(cases(), st.floats(0.1, 10))
def test_faster_by_any_factor(case, factor):
    assert same(speeded(case, factor).timing().time_s * factor, case.timing().time_s, case)


@laws
@given(cases(), st.randoms(use_true_random=False))
def test_names_and_order_of_the_nodes_do_not_matter(case, random):
    """GPU i of the old system is GPU ``moved[i]`` of the new one, under another name."""
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
    topology = replace(Topology.from_graph(graph), in_network_reduction=case.topology.in_network_reduction)
    other = replace(case, topology=topology, ranks=tuple(moved[rank] for rank in case.ranks))
    assert same(other.timing().time_s, case.timing().time_s, case)


@laws
@given(cases())
def test_equal_channels_may_be_merged(case):
    run = case.run()
    schedule = case.schedule(run)
    merged = time_schedule(schedule, run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "merged", lambda self: self)
        apart = time_schedule(schedule, run)
    assert merged.transfers <= apart.transfers
    assert merged.link_bytes.tolist() == pytest.approx(apart.link_bytes.tolist(), rel=1e-9, abs=1e-6)
    assert same(merged.time_s, apart.time_s, case)


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
@settings(laws, max_examples=8)
@given(data=st.data())
def test_every_byte_crosses_every_link_of_its_way(op, algo, data):
    case = data.draw(cases([(op, algo)]))
    run = case.run()
    schedule = case.schedule(run)
    transfers = schedule.materialise()
    hops = hops_between(case)[transfers.src, transfers.dst]
    hops[(transfers.src == EVERY) | (transfers.dst == EVERY)] = len(case.ranks) + 1  # all links up and one down, or so
    crossings = int((transfers.size_bytes(schedule.chunks) * hops).sum())
    assert time_schedule(schedule, run).link_bytes.sum() == pytest.approx(crossings, rel=1e-9)


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
    ("op", "algo"), [pair for pair in PAIRS if pair[0] != "all_to_all_v" and pair[1] not in IN_NETWORK]
)
@pytest.mark.parametrize("size", [2**20, 3 * 2**20, 2**26])
def test_no_cliff_at_one_byte_more(topo, op, algo, size):
    """nccl-tests rounds sizes: the next one up is a block grain per rank or an element away."""
    sizes = [size, size + 8 * 16]
    first, second = collsim.simulate(topo, op, sizes, algo=algo, channels=8, profile="ideal").rows
    assert first.size_bytes < second.size_bytes
    assert first.busbw_Bps == pytest.approx(second.busbw_Bps, rel=2e-3)
