"""Random runs, each simulated by classes as far as these go, and again transfer by transfer.

``python tools/reduction_draws.py --cases 2000 --divide 20`` draws them and prints how they went: systems of one domain
(switches, meshes, rings, tori, PCIe) and clusters (rails, fat trees, single switches, dragonflies), routing, defects,
odd numbers of nodes, groups, operations, algorithms, protocols, channels and sizes. With limits divided, so few classes
are left that such small runs are simulated by classes that are only nearly alike, as large ones are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from collsim import simulate
from collsim.collectives import algorithms_for
from collsim.core.errors import CollsimError
from collsim.core.operations import OPERATIONS
from collsim.engine import Problem, run
from collsim.engine.unhindered import unhindered
from collsim.simulation import concurrent, exchanges, hop_classes, hops, parties
from collsim.simulation.problems import problem_of
from collsim.simulation.quotient import representatives
from collsim.simulation.result import Row
from collsim.topology import Topology, load_topology
from collsim.topology.failures.degrade import damaged

EXACT = 1e-9
"""The same sums in another order."""
UNEVEN = 0.021
"""What docs/scale.md says of chunks that differ by an element and are taken as the largest."""
NEARLY = 0.01
"""What docs/scale.md says of classes that are only nearly alike and of rows that say no more; others say how far."""
NOISE, NOISY_RUNS = 1e-13, 3
"""By what part sizes are moved to see whether a run passes rounding on and makes it larger."""
TIMES_NOISE = 5
"""Of a few such runs the farthest is about half as far off as of many; no run that is not chaotic moves by 1e-9."""
OPS = tuple(op for op in OPERATIONS if op != "all_to_all_v")
NODES = ("hgx_h100", "mi300x_ubb8", "dgx_a100", "mi250x_node", "hgx_b200")
SHIPPED = ("hgx_h100", "dgx1_v100", "dgx2_v100", "mi250x_8oam", "l40s_8gpu", "mi300x_ubb8", "gh200_nvl32")
FABRICS = ("rail", "rail", "rail_only", "fat_tree", "fat_tree", "single_switch", "dragonfly")
NETWORKS = ("infiniband", "roce", "slingshot", "spectrum_x", "ultra_ethernet")
OF_CLUSTERS = ("nic:node1/2", "nic:node0/0", "gpu:n1.gpu1", "leaf:0", "leaf:1", "spine:0", "node:node1")
OF_DOMAINS = ("gpu:gpu1", "link:gpu0-*:1", "switch:nvsw0")
SLOW = ("link:n1.nic1-leaf1=50%", "link:n0.gpu1-n0.*=50%", "link:leaf0-spine0=50%")
MOST_RANKS = 40
LIMITS = (
    (hop_classes, "MOST_EXACT"), (hop_classes, "MOST_NEAR"), (hop_classes, "MOST_NEAR_HOPS"), (hops, "MOST_LONG"),
)  # fmt: skip
"""How many transfers of classes, or hops of these, are simulated."""


class Found(NamedTuple):
    """How a case went: what it was, a verdict, how far the times are apart, and by which paths they were found."""

    case: str
    verdict: str
    """`equal` to 1e-9, inside what is said of `nearly` alike classes or of `equal chunks`, `chaotic` where rounding
    moves the time as far, `different`, or `refused` by one of the two only."""
    apart: float
    path: str
    fabric: str


@contextmanager
def thresholds(*, classes: bool, divide: int = 1) -> Iterator[None]:
    """Take classes however few transfers there are, or none at all, and then no other short way either. Of so many
    classes that are simulated at most *divide* says how much fewer.

    Where ranks of an all-to-all are not quite alike, one stands for many only: no promise holds of a few.
    """
    least = 0 if classes else 10**9
    changed = (
        (hops, "LEAST_TRANSFERS", least), (hops, "LEAST_UNEVEN", least),
        (parties, "LEAST_SCALED", 2 if classes else least), (exchanges, "LEAST_RANKS", least),
        (representatives, "WORTH", 0), (run, "unhindered", unhindered if classes else lambda _: None),
        *((module, name, getattr(module, name) // divide) for module, name in LIMITS),
    )  # fmt: skip
    before = [getattr(module, name) for module, name, _ in changed]
    try:
        for module, name, value in changed:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            setattr(module, name, value)


def domain(draw: random.Random) -> tuple[str, Topology]:
    """Return the GPUs of one domain, and of which kind it is."""
    kind = draw.choice(("switched", "mesh", "ring", "torus", "shipped", "shipped"))
    if kind == "shipped":
        name = draw.choice(SHIPPED)
        return name, load_topology(name)
    made: dict[str, Callable[[], Any]] = {
        "mesh": lambda: nx.complete_graph(draw.randint(3, 9)),
        "ring": lambda: nx.cycle_graph(draw.randint(4, 20)),
        "torus": lambda: nx.convert_node_labels_to_integers(
            nx.grid_graph([draw.randint(3, 5) for _ in range(2)], periodic=True)
        ),
        "switched": lambda: nx.star_graph(draw.randint(4, 30)),
    }
    graph = made[kind]()
    hub = 0 if kind == "switched" else None
    names = {each: "sw0" if each == hub else f"gpu{each - (hub is not None)}" for each in sorted(graph)}
    nx.set_node_attributes(graph, {each: "switch" if each == hub else "gpu" for each in graph}, "kind")
    nx.set_edge_attributes(graph, {edge: {"bandwidth_Bps": 50e9, "latency_s": 4e-7} for edge in graph.edges})
    return kind, Topology.from_graph(nx.relabel_nodes(graph, names))


def cluster(draw: random.Random) -> tuple[str, Topology]:
    """Return a small cluster, and of which kind it is."""
    fabric, network = draw.choice(FABRICS), draw.choice(NETWORKS)
    figures: dict[str, Any] = {"nodes": draw.randint(2, 9 if fabric != "dragonfly" else 12), "fabric": fabric}
    if fabric not in ("single_switch", "dragonfly"):
        figures |= {"radix": draw.choice((8, 16, 64)), "oversubscription": draw.choice((1, 1, 2))}
    if fabric == "dragonfly":
        network = draw.choice(("slingshot", network))
        figures |= {"radix": draw.choice((16, 32))}
    topology = load_topology(draw.choice(NODES), scale_out=figures | {"network": network})
    return f"{fabric} {network}", topology


def case_of(seed: int) -> tuple[str, Topology, dict[str, Any]]:
    """Return the kind of the fabric, the machine and what is asked of it.

    Raises
    ------
    CollsimError
        The draw makes no machine.
    """
    draw = random.Random(seed)
    several = draw.random() < 0.8
    kind, topology = cluster(draw) if several else domain(draw)
    if draw.random() < 0.3:
        defect = draw.choice(OF_CLUSTERS if several else OF_DOMAINS)
        topology, kind = damaged(topology, [defect]), f"{kind} with a defect"
    elif several and draw.random() < 0.15:
        topology, kind = damaged(topology, degrade=[draw.choice(SLOW)]), f"{kind} with a slow link"
    op = draw.choice(OPS)
    names = algorithms_for(op, torus=True, several_nodes=True, several_racks=True)
    names = tuple(each for each in names if not each.libraries)
    regular = [each for each in names if each.quotient or each.pipelined or each.relays is not None]
    picked = draw.choice(regular if regular and draw.random() < 0.7 else names)
    asked: dict[str, Any] = {
        "op": op, "algo": draw.choice((picked.name, picked.name, picked.name, "auto")),
        "size": draw.choice(("64K", "1M", "3000004", "16M", "256M")), "channels": draw.choice((None, 1, 2, 7)),
        "profile": draw.choice(("ideal", "auto")), "tolerance": 0,
    }  # fmt: skip
    if draw.random() < 0.3:
        asked["proto"] = draw.choice(picked.protocols)
    if several and draw.random() < 0.2:
        asked["split"] = draw.choice(("MOD 2", "MOD 8", "DIV 8", "DIV 16", "MOD 4"))
    elif draw.random() < 0.4:
        asked["ranks"] = max(min(topology.n_gpus, MOST_RANKS) - draw.choice((0, 1, 3, 8)), 2)
    elif several and draw.random() < 0.5:
        asked["gpus_per_node"] = draw.choice((1, 2, 4, 7))
    if "ranks" not in asked and topology.n_gpus > 2 * MOST_RANKS:
        asked["ranks"] = MOST_RANKS
    return kind, topology, asked


def _row(topology: Topology, asked: dict[str, Any], *, classes: bool, divide: int) -> Row | CollsimError:
    with thresholds(classes=classes, divide=divide):
        try:
            return simulate(topology, reduce=classes, **asked).rows[0]
        except CollsimError as error:
            return error


def compared(seed: int, divide: int = 1) -> Found | None:
    """Return how a case went, with limits divided by so much; None if the draw makes no machine, or what is asked of it
    is refused both ways.
    """
    try:
        kind, topology, asked = case_of(seed)
    except CollsimError:
        return None
    told = f"{seed}: {kind}, {asked}"
    whole, part = (_row(topology, asked, classes=classes, divide=divide) for classes in (False, True))
    if isinstance(whole, CollsimError) or isinstance(part, CollsimError):
        if isinstance(whole, CollsimError) and isinstance(part, CollsimError):
            return None
        text = f"only one is refused: {whole if isinstance(whole, CollsimError) else part}"
        return Found(told, "refused", float("nan"), text, kind)
    apart = abs(part.time_s / whole.time_s - 1)
    nearly, rounded = part.method.nearly_alike, part.method.equal_chunks
    by = max(EXACT, part.tolerance, doubt_of(part), NEARLY * nearly + UNEVEN * rounded)
    loose = "nearly" if nearly else "equal chunks" if rounded else "equal"
    verdict = "different" if apart > by or part.algo != whole.algo else loose
    if (
        verdict == "different"
        and part.algo == whole.algo
        and apart <= TIMES_NOISE * noise_of(topology, asked, whole.time_s)
    ):
        verdict = "chaotic"
    return Found(f"{told} -> {part.algo}", verdict, apart, f"{whole.path} | {part.path}", kind)


def noise_of(topology: Topology, asked: dict[str, Any], time_s: float) -> float:
    """Return how much of its time a run of all transfers is moved if sizes differ by no more than rounding.

    Chunks that meet on links in another order go on in another order: what is added up in another order moves the last
    bits of times, and of such runs everything behind them.
    """
    moved = []
    for seed in range(NOISY_RUNS):
        noise = np.random.default_rng(seed)

        def noisy(*given: Any, noise: np.random.Generator = noise) -> Problem:
            problem = problem_of(*given)
            sizes = problem.size_bytes
            return problem._replace(size_bytes=sizes * (1 + NOISE * noise.standard_normal(len(sizes))))

        setattr(concurrent, "problem_of", noisy)  # noqa: B010
        try:
            row = _row(topology, asked, classes=False, divide=1)
        finally:
            setattr(concurrent, "problem_of", problem_of)  # noqa: B010
        moved.append(abs(row.time_s / time_s - 1) if isinstance(row, Row) else 0.0)
    return max(moved)


def doubt_of(row: Row) -> float:
    """Return which part of its time a row says that it may be off, as a part of the time of all transfers."""
    share = row.method.pace_share + row.method.doubt_share
    return max(share / (1 - share), share) if share < 1 else float("inf")


def main() -> None:
    """Draw, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="so many that are answered")
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--divide", type=int, default=1, help="divide what is simulated of classes at most by so much")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    counted: Counter[str] = Counter()
    seed = asked.first
    while sum(counted.values()) < asked.cases:
        found = compared(seed, asked.divide)
        seed += 1
        if found is None:
            continue
        reduced = "classes" in found.path or "wavefront" in found.path
        counted[f"{found.verdict}{', by classes' if reduced else ''}"] += 1
        if found.verdict in ("different", "refused"):
            print(json.dumps(found._asdict()), flush=True)
        if sum(counted.values()) % 100 == 0:
            print(seed, dict(counted), file=sys.stderr, flush=True)
    print(json.dumps({"draws": seed - asked.first, **counted}))


if __name__ == "__main__":
    main()
