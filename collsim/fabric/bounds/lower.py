"""Lower bounds: how fast a collective could be on this fabric, whatever the algorithm.

For every cut of the ranks into two sides, the operation forces a number of bytes across in each direction, and the
links between can carry only so much, those that no route takes included. A cut that isolates one rank is its egress or
ingress bound. All-reduce has one more: a value reaches everybody only after 2(n-1) messages (Patarasuk and Yuan, J.
Parallel Distrib. Comput. 69 (2009) 117; the gossip problem with one-way messages), which bounds the sum over all ranks.
Before the first byte flows at least one route's latency passes. Switches that add and multicast lift the bound on the
sum, since one message then serves many ranks; the cuts hold for them too. Where they join nodes (SHARP) that leaves S
per direction and node. They are off unless turned on, so only schedules that use them have that bound.

On full meshes and switched domains symmetry makes these bounds as good as any flow for uniform operations. Small
irregular fabrics get the linear programs of `flow_bounds` as well; a row names the cut where that is as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collsim.core.operations import Operation
from collsim.fabric.bounds.cut_sets import MOST_SWEEPS, Sides, sparse_capacities, sparse_sides
from collsim.fabric.bounds.flow_bounds import BoundFlows, flow_bound
from collsim.fabric.fabric import Fabric, Float, Int

__all__ = ["MOST_IN_TABLES", "Bound", "Cuts", "find_cuts", "lower_bound"]

ALL_CUTS_UP_TO = 10
"""With at most this many ranks every cut is tried; above it, single ranks and runs of consecutive ranks."""
MOST_RUNS = 512
"""Of more ranks only so many runs are tried, evenly spread."""
MOST_DENSE = 256
"""Of more ranks on several nodes no table says which are inside a cut: that takes longer than most simulations."""
MOST_IN_TABLES = 2048
"""Of so many ranks a table of all cuts takes 1.5 GB; of more, sets of ranks do."""
CLEARLY = 1 + 1e-6
"""A flow bound must be this many times the best cut to be named instead of it: the solver's prices are good to 1e-7."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on the time: *name* says which."""

    time_s: float
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Cuts of the ranks of one fabric.

    Attributes
    ----------
    sides : Sides
    capacity_Bps : float64[n_cuts]
        From inside to outside.
    egress_Bps : float64[n_ranks]
        Out of each rank.
    rank_names : sequence of str
    latency_s : float
        Of the fastest route: no byte flows before.
    in_network : bool
        Whether switches add and multicast, in the nodes at least.
    node_egress_Bps : float64[n_nodes]
        Out of each node, if there are several.
    mesh_link_Bps : float
        Between any two ranks of a full mesh; 0 for other fabrics.
    """

    sides: Sides
    capacity_Bps: Float
    egress_Bps: Float
    rank_names: Sequence[str]
    latency_s: float
    in_network: bool
    node_egress_Bps: Float
    mesh_link_Bps: float = 0.0
    network_adds: bool = False
    """True if switches between the nodes add and copy too (SHARP)."""
    sizes: Int | None = None
    """int64[n_cuts]: the ranks inside, where these are not told one by one; *sides* then mean nothing."""
    names: tuple[str, ...] = ()
    """Of those cuts."""

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.egress_Bps) if self.sizes is not None else self.sides.n_ranks

    @property
    def inside(self) -> NDArray[np.bool_]:
        """bool[n_cuts, n_ranks]: which ranks are inside."""
        return self.sides.table()


class _RankNames(Sequence[str]):
    """Names of the ranks of a fabric, made when they are read: there may be a hundred thousand."""

    __slots__ = ("_fabric",)

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def __len__(self) -> int:
        return self._fabric.n_ranks

    def __getitem__(self, rank: Any) -> Any:
        return self._fabric.rank_name(rank)


def find_cuts(fabric: Fabric, used: NDArray[np.bool_], latency_s: float) -> Cuts:
    """Return the cuts that `lower_bound` looks at, with their capacities at line rate.

    Parameters
    ----------
    fabric : Fabric
    used : bool[n_links]
        Links that a message between the ranks could take; the others carry nothing, whatever the algorithm.
    latency_s : float
        Of the fastest way.
    """
    n, node = fabric.n_ranks, fabric.wiring.coordinates.node[fabric.rank_node]
    if n > (MOST_DENSE if (node != node[0]).any() else MOST_IN_TABLES):
        some, nodes = sparse_sides(fabric)
        sides = some.and_more(some.complements()).and_more(nodes).and_more(nodes.complements())
        first, n_nodes, capacity = 2 * len(some), len(nodes), sparse_capacities(fabric, used, sides)
    else:
        inside = _subsets(n)
        first, n_nodes = len(inside), 0
        if (node != node[0]).any():
            whole = node == np.unique(node)[:, None]
            inside = np.concatenate([inside, whole, ~whole])
            n_nodes = len(whole)
        sides, capacity = Sides.of_table(inside), _capacities(fabric, used, inside)
    single = np.flatnonzero(sides.sizes() == 1)[:n]
    return Cuts(
        sides=sides,
        capacity_Bps=capacity,
        egress_Bps=capacity[single],
        rank_names=_RankNames(fabric),
        latency_s=latency_s,
        in_network=fabric.in_network is not None or fabric.node_in_network is not None,
        node_egress_Bps=capacity[first : first + n_nodes],
        mesh_link_Bps=float(fabric.raw_capacity_Bps[0]) if fabric.wiring.coordinates.kind == "mesh" else 0.0,
    )


def lower_bound(
    op: Operation,
    size_bytes: int,
    cuts: Cuts,
    root: int = 0,
    matrix_bytes: Int | None = None,
    *,
    flows: BoundFlows | None = None,
) -> Bound:
    """Return the largest of the lower bounds.

    Parameters
    ----------
    op : Operation
    size_bytes : int
        The size column of nccl-tests.
    cuts : Cuts
    root : int
    matrix_bytes : int64[n_ranks, n_ranks], optional
        For all_to_all_v.
    flows : BoundFlows, optional
        Of the same fabric, if it is small and irregular.
    """
    times = _demand(op, size_bytes, cuts, root, matrix_bytes) / cuts.capacity_Bps
    best = int(np.flatnonzero(times >= times.max() * (1 - 1e-12))[0])
    time_s, name = float(times[best]), _name(cuts, best)
    total_s, total_name = _total(op, size_bytes, cuts)
    if total_s > time_s * (1 + 1e-12):
        time_s, name = total_s, total_name
    if flows is not None:
        flow_s, flow_name = flow_bound(op, size_bytes, flows, root, matrix_bytes)
        if flow_s > time_s * CLEARLY:
            time_s, name = flow_s, flow_name
    if cuts.latency_s > time_s:
        name = "latency"
    return Bound(cuts.latency_s + time_s, name)


def _total(op: Operation, size_bytes: int, cuts: Cuts) -> tuple[float, str]:
    """Return the bound on the sum over all ranks or links, and its name.

    In send_recv on a full mesh of n ranks a byte takes the link to the neighbour or at least two of the n (n-2) others:
    n neighbours get 2 n S <= T (2 n + n (n-2)) B if a link to a neighbour counts twice.
    """
    n = cuts.n_ranks
    if op.name == "all_reduce":
        nodes = len(cuts.node_egress_Bps)  # each is like one rank: its GPUs can add up among themselves
        found = []
        if nodes > 1 and not cuts.network_adds:
            found.append((2 * (nodes - 1) * size_bytes / float(cuts.node_egress_Bps.sum()), "egress of all nodes"))
        if not (cuts.in_network or cuts.network_adds):
            found.append((2 * (n - 1) * size_bytes / float(cuts.egress_Bps.sum()), "egress of all ranks"))
        return max(found, default=(0.0, ""))
    if op.name == "send_recv" and cuts.mesh_link_Bps:
        return 2 * size_bytes / (n * cuts.mesh_link_Bps), "all links"
    return 0.0, ""


def _subsets(n: int) -> NDArray[np.bool_]:
    """Return bool[n_cuts, n]: every proper subset of few ranks; of many, single ranks, runs and complements."""
    if n <= ALL_CUTS_UP_TO:
        numbers = np.arange(1, 2**n - 1)
        subsets = np.asarray((numbers[:, None] >> np.arange(n)) & 1, dtype=np.bool_)
        smaller_side = np.minimum(subsets.sum(axis=1), n - subsets.sum(axis=1))
        return subsets[np.argsort(smaller_side, kind="stable")]
    ranks = np.arange(n)
    rows = np.concatenate([ranks == ranks[:, None], ranks <= ranks[: n - 1 : -(-n // MOST_RUNS), None]])
    return np.concatenate([rows, ~rows])


def _capacities(fabric: Fabric, used: NDArray[np.bool_], inside: NDArray[np.bool_]) -> Float:
    """Return float64[n_cuts]: what the used links carry from inside to outside.

    Nodes between the ranks may stand on either side, and any choice bounds the flow. Where no link joins two of them,
    each is put where fewer bytes cross, which is best; otherwise all start on one side and move while that helps.
    """
    wiring = fabric.wiring
    src, dst, rate = wiring.link_src[used], wiring.link_dst[used], fabric.raw_capacity_Bps[used]
    met = np.zeros(len(wiring.node_names), dtype=np.bool_)
    met[src] = met[dst] = met[fabric.rank_node] = True
    place = np.cumsum(met) - 1  # the others carry nothing, and there may be a hundred thousand of them
    src, dst, ranks = place[src], place[dst], place[fabric.rank_node]
    matrix = np.zeros((int(met.sum()),) * 2)
    np.add.at(matrix, (src, dst), rate)  # cables of a bundle may be listed one by one
    met[fabric.rank_node] = False
    between = place[met]
    into = _over(inside, matrix[np.ix_(ranks, between)])
    out = _over(~inside, matrix[np.ix_(between, ranks)].T)
    direct = matrix[np.ix_(ranks, ranks)]
    reached = direct.any(axis=0)  # no rank is, where switches join them
    crossing = (_over(inside, direct[:, reached]) * ~inside[:, reached]).sum(axis=1)
    among = matrix[np.ix_(between, between)]
    if not among.any():
        return np.asarray(crossing + np.minimum(into, out).sum(axis=1), dtype=np.float64)
    starts = (np.zeros_like(into), np.ones_like(into))
    return np.asarray(crossing + np.minimum(*(_settle(into, out, among, near) for near in starts)), dtype=np.float64)


def _over(sides: NDArray[Any], table: Float) -> Float:
    """Return ``sides @ table``, column by column over what is not zero: most of a large table is."""
    found = np.zeros((len(sides), table.shape[1]))
    for column in np.flatnonzero(table.any(axis=0)):
        rows = np.flatnonzero(table[:, column])
        found[:, column] = sides[:, rows] @ table[rows, column]
    return found


def _settle(into: Float, out: Float, among: Float, near: Float) -> Float:
    """Return float64[n_cuts]: bytes over the nodes between the ranks, after moving them while fewer bytes cross.

    Parameters
    ----------
    into, out : float64[n_cuts, n_between]
        From the ranks inside into the node; out of it to the ranks outside.
    among : float64[n_between, n_between]
        From node to node.
    near : float64[n_cuts, n_between]
        1 where the node stands inside.
    """
    towards, back = ([np.flatnonzero(row) for row in table] for table in (among, among.T))
    for _ in range(MOST_SWEEPS):
        before = near.copy()
        for node, (to, by) in enumerate(zip(towards, back, strict=True)):
            if_near = out[:, node] + (1 - near[:, to]) @ among[node, to]
            if_far = into[:, node] + near[:, by] @ among[by, node]
            near[:, node] = np.where(if_near == if_far, near[:, node], if_near < if_far)
        if np.array_equal(near, before):
            break
    return np.asarray(((into + _over(near, among)) * (1 - near)).sum(axis=1) + (out * near).sum(axis=1))


def _demand(op: Operation, size_bytes: int, cuts: Cuts, root: int, matrix_bytes: Int | None) -> Float:
    """Return float64[n_cuts]: the bytes that *op* forces from inside to outside."""
    if cuts.sizes is not None:
        return _uniform_demand(op, size_bytes, cuts.sizes, cuts.n_ranks)
    sides = cuts.sides
    block = size_bytes / sides.n_ranks
    sources = sides.sizes()
    targets = sides.n_ranks - sources
    if op.name == "send_recv":
        return np.asarray(size_bytes * sides.leavers().astype(float))
    if op.name == "all_to_all_v":
        assert matrix_bytes is not None
        inside = sides.table()
        return np.asarray(np.einsum("ci,ij,cj->c", inside, matrix_bytes.astype(float), ~inside, optimize=True))
    root_inside = sides.holds(root).astype(float)
    bytes_across = {
        "all_reduce": np.full(len(sides), float(size_bytes)),
        "all_gather": sources * block,
        "reduce_scatter": targets * block,
        "all_to_all": sources * targets * block,
        "broadcast": size_bytes * root_inside,
        "reduce": size_bytes * (1 - root_inside),
        "scatter": targets * block * root_inside,
        "gather": sources * block * (1 - root_inside),
    }
    return np.asarray(bytes_across[op.name], dtype=np.float64)


def _uniform_demand(op: Operation, size_bytes: int, sizes: Int, n: int) -> Float:
    """Return the same for an operation in which all ranks do the same, by how many are inside."""
    block = size_bytes / n
    bytes_across = {
        "all_reduce": np.full(len(sizes), float(size_bytes)),
        "all_gather": sizes * block,
        "reduce_scatter": (n - sizes) * block,
        "all_to_all": sizes * (n - sizes) * block,
    }
    return np.asarray(bytes_across[op.name], dtype=np.float64)


def _name(cuts: Cuts, cut: int) -> str:
    """Say which cut it is."""
    if cuts.names:
        return cuts.names[cut]
    members = cuts.sides.inside(cut)
    outside = np.ones(cuts.sides.n_ranks, dtype=np.bool_)
    outside[members] = False
    others = np.flatnonzero(outside)
    if len(members) == 1:
        return f"egress {cuts.rank_names[int(members[0])]}"
    if len(others) == 1:
        return f"ingress {cuts.rank_names[int(others[0])]}"
    return f"cut {len(members)}|{len(others)}"
