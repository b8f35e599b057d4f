"""The fluid engine against packets: makespans agree, and each gap goes away with what is said to cause it.

docs/oracle.md shows the figures; every row there is one of these cases, to the digit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collsim.engine import Problem, solve
from collsim.library import load_profile
from collsim.simulation.lowering import lower
from collsim.simulation.problems import problem_of
from collsim.simulation.request.request import ask
from collsim.simulation.runs import prepare
from collsim.simulation.simulate import build_schedule, predict
from collsim.topology import Topology, load_topology
from collsim.topology.cluster.scale_out import build_cluster, cluster_spec
from collsim.topology.failures.degrade import damaged

from ..property.depth import deep_but
from .packets import Network
from .reading import links_of, messages_of

BAR = 0.05
K, M = 1024, 1024**2
PAGE = (Path(__file__).parents[2] / "docs/oracle.md").read_text(encoding="utf-8").splitlines()
WIRES = load_profile("ideal")
LATENCIES = replace(WIRES, latency=True)


@cache
def cluster(fabric: str, nodes: int, gpus: int, radix: int, routing: str = "spray", **figures: Any) -> Topology:
    """Nodes of GPUs behind one NVLink switch of 450 GB/s, each with an adapter of 400 Gb/s on InfiniBand."""
    return cluster_of(
        load_topology("hgx_b200", {"gpu.count": str(gpus), "switch.planes": "1"}),
        fabric,
        nodes,
        radix,
        routing,
        **figures,
    )


def cluster_of(node: Topology, fabric: str, nodes: int, radix: int, routing: str = "spray", **figures: Any) -> Topology:
    asked = {"nodes": nodes, "fabric": fabric, "radix": radix, "routing": routing, "network": "infiniband"}
    return build_cluster(node, cluster_spec(node, **asked, **figures))


@dataclass(frozen=True)
class Case:
    """A question for both models, and how the packets go.

    *size_bytes* is that of the operation; an all-to-all of given messages has *flows* instead: sender, receiver, bytes.
    """

    topology: Topology
    op: str
    algo: str
    size_bytes: int | None = None
    packet_bytes: int = 16 * K
    channels: int | None = None
    chunk: int | None = None
    flows: tuple[tuple[int, int, int], ...] = ()
    degrade: Mapping[str, str] = field(default_factory=dict)
    latencies: bool = True
    network: Mapping[str, Any] = field(default_factory=dict)

    def setup(self) -> tuple[Any, ...]:
        """Return topology, profile, question and ranks."""
        topology = damaged(self.topology, None, self.degrade)
        matrix = np.zeros((topology.n_gpus,) * 2, dtype=np.int64)
        for src, dst, size_bytes in self.flows:
            matrix[src, dst] += size_bytes
        more = {"channels": self.channels, "chunk": self.chunk, "matrix": matrix if self.flows else None}
        question = ask(self.op, self.size_bytes, self.algo, **more)
        return topology, LATENCIES if self.latencies else WIRES, question, [list(range(topology.n_gpus))]

    def fluid_s(self) -> float:
        """Return what collsim answers."""
        return predict(*self.setup()).rows[0].time_s

    def problem(self) -> tuple[Problem, np.ndarray]:
        """Return what the engine solves, and the channel of each transfer."""
        topology, profile, *_ = asked = self.setup()
        run = prepare(topology, profile)
        lowered = lower(build_schedule(*asked), run)
        return problem_of(lowered, run, profile.protocol("Simple")), lowered.transfers.channel

    def packets_s(self) -> list[float]:
        """Return when each message has arrived packet by packet."""
        topology, profile, *_ = asked = self.setup()
        fabric, schedule = prepare(topology, profile).fabric, build_schedule(*asked)
        messages = messages_of(schedule, fabric)
        return Network(links_of(fabric), messages, packet_bytes=self.packet_bytes, **self.network).run()

    def gap(self) -> float:
        """Return how much longer packets take, as a share."""
        return max(self.packets_s()) / self.fluid_s() - 1


def percent(gap: float) -> str:
    return f"{round(gap, 3) + 0.0:+.1%}"


def on_page(name: str) -> list[str]:
    """Return the cells of the row of docs/oracle.md that begins with a name."""
    (row,) = (line for line in PAGE if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def ring(topology: Topology, rings_each: int = 1, **more: Any) -> Case:
    """An all-reduce with some rings for each adapter of a node, one chunk of 256 KiB for each rank and ring."""
    rings = topology.cluster.spec.gpus_per_node * rings_each
    more = {"size_bytes": topology.n_gpus * rings * 256 * K, **more}
    return Case(topology, "all_reduce", "ring", channels=rings, **more)


def hierarchical(topology: Topology, **more: Any) -> Case:
    return Case(topology, "all_reduce", "hierarchical", topology.n_gpus * 512 * K, **more)


def trees(topology: Topology) -> Case:
    """An all-reduce with four pairs of trees over nodes, each of which sends eight chunks of 128 KiB one by one."""
    return Case(topology, "all_reduce", "tree", 4 * M, channels=4, chunk=128 * K)


def all_to_all(algo: str, topology: Topology, **more: Any) -> Case:
    return Case(topology, "all_to_all", algo, topology.n_gpus * 512 * K, **more)


def messages(topology: Topology, *flows: tuple[int, int, int], **more: Any) -> Case:
    return Case(topology, "all_to_all_v", "direct", flows=flows, packet_bytes=32 * K, **more)


def incast(topology: Topology, senders: int) -> Case:
    return messages(topology, *((sender, 0, 4 * M) for sender in range(1, senders + 1)))


def permutation(seed: int, **more: Any) -> Case:
    """Every GPU sends 4 MiB to another one of a random permutation, less what stays in the node; eight nodes of two."""
    topology = cluster("fat_tree", 8, 2, 8, "ecmp", hash_seed=seed)
    to = np.random.default_rng(seed).permutation(16).tolist()
    return messages(topology, *((src, dst, 4 * M) for src, dst in enumerate(to) if src // 2 != dst // 2), **more)


SWITCH, RAIL, TREE = ("single_switch", 4, 4, 64), ("rail", 4, 4, 8), ("fat_tree", 4, 4, 8)
MESH, PLANES = (load_topology(name, {"gpu.count": "4"}) for name in ("mi300x_ubb8", "hgx_h100"))
NARROW = cluster("fat_tree", 4, 4, 12, oversubscription=2)
ADAPTER = {"link:n1.nic2->leaf*": "50%"}

CASES = {
    "ring all-reduce, one switch, 2 nodes x 1 GPU": ring(cluster("single_switch", 2, 1, 64)),
    "ring all-reduce, one switch, 2 x 4": ring(cluster("single_switch", 2, 4, 64)),
    "ring all-reduce, one switch, 4 x 4": ring(cluster(*SWITCH)),
    "ring all-reduce, rails on 4 leaves, 3 x 4": ring(cluster("rail", 3, 4, 8)),
    "ring all-reduce, rails on 4 leaves, 4 x 4": ring(cluster(*RAIL)),
    "ring all-reduce, fat tree, 2 x 4": ring(cluster("fat_tree", 2, 4, 4)),
    "ring all-reduce, fat tree, 4 x 4": ring(cluster(*TREE)),
    "hierarchical all-reduce, one switch, 4 x 4": hierarchical(cluster(*SWITCH)),
    "hierarchical all-reduce, rails, 4 x 4": hierarchical(cluster(*RAIL)),
    "hierarchical all-reduce, fat tree, 4 x 4": hierarchical(cluster(*TREE)),
    "hierarchical all-reduce, rails, 4 x 4 on full meshes of 64 GB/s": hierarchical(cluster_of(MESH, "rail", 4, 8)),
    "hierarchical all-reduce, rails, 4 x 4 on four unequal NVLink planes": hierarchical(
        cluster_of(PLANES, "rail", 4, 8)
    ),
    "all-reduce by double trees, rails, 4 x 4": trees(cluster(*RAIL)),
    "all-to-all at once, one switch, 8 x 1": all_to_all("direct", cluster("single_switch", 8, 1, 64)),
    "all-to-all at once, fat tree, 4 x 4": all_to_all("direct", cluster(*TREE)),
    "all-to-all at once, fat tree of three tiers, 4 x 4": all_to_all("direct", cluster("fat_tree", 4, 4, 4)),
    "all-to-all at once, rails and relays, 4 x 4": all_to_all("direct", cluster(*RAIL)),
    "all-to-all in rounds, one switch, 8 x 1": all_to_all("pairwise", cluster("single_switch", 8, 1, 64)),
    "all-to-all in rounds, fat tree, 4 x 4": all_to_all("pairwise", cluster(*TREE)),
    "all-to-all at once, spines 2:1, 4 x 4": all_to_all("direct", NARROW),
    "ring all-reduce, spines 2:1, 4 x 4": ring(NARROW),
    "incast 4:1, one switch": incast(cluster("single_switch", 8, 1, 64), 4),
    "incast 7:1, one switch": incast(cluster("single_switch", 8, 1, 64), 7),
    "incast 7:1, fat tree": incast(cluster("fat_tree", 8, 1, 4), 7),
    "ring all-reduce, one link of an adapter at half rate": ring(cluster(*RAIL), degrade=ADAPTER),
    "hierarchical all-reduce, the same": hierarchical(cluster(*TREE), degrade=ADAPTER),
    "all-to-all at once, one leaf to one spine at half rate": all_to_all(
        "direct", cluster(*TREE), degrade={"link:leaf0->spine1": "50%"}
    ),
    **{f"permutation by hash, draw {seed}": permutation(seed) for seed in (1, 3, 4, 5, 6)},
}

FLOW = {"network": {"queues": "flow"}}
NO_LATENCY = {"latencies": False}
VICTIM = [*((sender, 0, 4 * M) for sender in (1, 2, 3, 4)), (4, 5, 12 * M)]

GAPS = {
    "a long message beside an incast 4:1": (messages(cluster("single_switch", 8, 1, 64), *VICTIM), FLOW),
    "permutation by hash, draw 2": (permutation(2), FLOW),
    "all-to-all in rounds, rails and relays, 4 x 4": (all_to_all("pairwise", cluster(*RAIL)), FLOW),
    "Bruck's all-to-all, rails and relays, 4 x 4": (all_to_all("bruck", cluster(*RAIL)), FLOW),
    "ring all-reduce, one switch, 2 x 4, two rings for each adapter": (
        ring(cluster("single_switch", 2, 4, 64), rings_each=2), NO_LATENCY,
    ),
    "ring all-reduce by hash, draw 1": (ring(cluster(*TREE, "ecmp", hash_seed=1), packet_bytes=32 * K), NO_LATENCY),
    "ring all-reduce by hash, draw 2": (ring(cluster(*TREE, "ecmp", hash_seed=2), packet_bytes=32 * K), NO_LATENCY),
    "ring all-reduce, spines 3:1, 4 x 4": (ring(cluster(*TREE, oversubscription=3)), NO_LATENCY),
    "ring all-reduce, fat tree, messages of four packets": (
        ring(cluster(*TREE), packet_bytes=64 * K, network={"buffer_bytes": 256 * K}), {"packet_bytes": 16 * K},
    ),
    "hierarchical all-reduce, one switch, places for two packets": (
        hierarchical(cluster(*SWITCH), packet_bytes=32 * K, network={"buffer_bytes": 64 * K}), {"network": {}},
    ),
}  # fmt: skip


SLOW = {
    *(name for name in GAPS if name.startswith(("ring", "Bruck", "all-to-all"))),
    *(name for name in CASES if name.startswith("ring all-reduce, ") and name.endswith(("3 x 4", "4 x 4"))),
    "hierarchical all-reduce, the same",
    "all-to-all at once, one leaf to one spine at half rate",
}


@pytest.mark.parametrize("name", deep_but(CASES.keys() - SLOW, CASES))
def test_makespans_agree(name):
    case = CASES[name]
    fluid_s, packets_s = case.fluid_s(), max(case.packets_s())
    gap = packets_s / fluid_s - 1
    assert abs(gap) <= BAR
    assert on_page(name)[1:] == [f"{fluid_s * 1e6:.1f}", f"{packets_s * 1e6:.1f}", percent(gap)]


@pytest.mark.parametrize("name", deep_but(GAPS.keys() - SLOW, GAPS))
def test_gaps_go_away_with_their_cause(name):
    case, cure = GAPS[name]
    gap, cured = case.gap(), replace(case, **cure).gap()
    assert abs(gap) > BAR
    assert abs(cured) <= BAR
    assert on_page(name)[1::2] == [percent(gap), percent(cured)]


def test_the_page_has_no_other_rows():
    rows = {line.split(" |")[0].removeprefix("| ") for line in PAGE if line.startswith("|")}
    assert rows == {*CASES, *GAPS, "Case", "---"}


@pytest.mark.parametrize("seed", range(1, 7))
def test_every_message_of_a_permutation_agrees(seed):
    """With queues of their own, not only the last message arrives when max-min fair shares say so."""
    case = permutation(seed, **FLOW)
    fluid_s = solve(case.problem()[0]).finish_s
    assert len(set(np.round(fluid_s * 1e6))) > 2
    np.testing.assert_allclose(case.packets_s(), fluid_s, rtol=BAR)


@pytest.mark.parametrize("seed", range(1, 4))
def test_irregular_messages_agree(seed):
    """Some 40 messages of 1 to 4 MiB whose shares change whenever one ends; before that they fill the buffers."""
    topology, rng = cluster("fat_tree", 8, 2, 8, "ecmp", hash_seed=seed), np.random.default_rng(seed)
    pairs = [(src, dst) for _ in range(3) for src, dst in enumerate(rng.permutation(16).tolist())]
    flows = [(src, dst, int(rng.integers(1, 5)) * M) for src, dst in pairs if src // 2 != dst // 2]
    case = replace(messages(topology, *flows), packet_bytes=16 * K, network={"queues": "flow", "buffer_bytes": 64 * K})
    fluid_s, packets_s = solve(case.problem()[0]).finish_s, np.array(case.packets_s())
    off_s = np.abs(packets_s - fluid_s)
    assert packets_s.max() == pytest.approx(fluid_s.max(), rel=BAR)
    assert np.quantile(off_s / fluid_s, 0.9) <= BAR
    assert off_s.max() <= BAR * fluid_s.max()


@pytest.mark.deep
def test_rings_on_one_cable_get_out_of_step():
    """The gap of rings by hash is that of rings that start together: apart by a latency, the fluid model agrees."""
    case, _ = GAPS["ring all-reduce by hash, draw 1"]
    problem, channel = case.problem()
    begins, latency_s = np.diff(problem.dep_ptr) == 0, problem.latency_s.max()
    later_s = np.where(begins, channel * latency_s, 0.0)
    together_s, apart_s = (
        solve(problem._replace(latency_s=problem.latency_s + late_s)).finish_s.max() for late_s in (0.0, later_s)
    )
    packets_s = max(case.packets_s())
    assert together_s == pytest.approx(case.fluid_s(), rel=1e-9)
    assert packets_s < together_s * (1 - BAR)
    assert packets_s == pytest.approx(apart_s, rel=BAR)
