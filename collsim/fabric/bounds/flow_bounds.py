"""Lower bounds by linear programming, for fabrics so irregular that cuts of the ranks say too little.

Bytes may take any way over the links between the ranks, through switches and ranks, split at will:

* Operations that deliver different bytes to everyone (all-to-all, scatter, gather, send_recv) are a maximum concurrent
  flow with one commodity per source (Shahrokhi and Matula, J. ACM 37 (1990) 318).
* Where all destinations want the same bytes, a rank may repeat a message for free, a switch may not. So the program
  chooses how many bytes each rank sends to each other rank, over the links and the switches between them, and asks that
  every destination on its own can draw a full flow from those messages: between ranks that are wired directly that is
  the worst of all cuts (Edmonds, Combinatorial Algorithms (1973) 91). Sums are the same with all links reversed.
* All-reduce must do both. Moreover, join the ranks into k groups in any way: the groups need 2 (k-1) messages among
  them for every element, as k ranks would. By the theorem of Tutte and Nash-Williams (J. London Math. Soc. 36 (1961)
  221 and 445) the messages of each element then contain two disjoint spanning trees, whatever their directions; what
  trees fit into the links is another flow.

The solver's answer is only a hint: it names a price for a byte on each link, and the bound is computed from the prices
by weak duality: (cheapest way to do the work) / (price of all bytes that the links carry in a second). That holds for
any prices, so rounding in the solver can make a bound smaller, never wrong. Times are proportional to size; each
program is solved once and its time for one unit is kept in `BoundFlows`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.core.operations import Operation
from collsim.fabric.fabric import Fabric, Float, Int

__all__ = ["BoundFlows", "FlowNetwork", "digest_of", "find_flows", "flow_bound", "network_of", "solved_prices"]

ON_FILE = Path(__file__).with_name("prices.json")
"""Prices of the programmes of shipped systems, written by tools/bound_prices.py."""

MOST_RANKS = 32
"""The slowest programs of 32 ranks, a full mesh with one link missing, took 1.8 to 2.4 s on one core."""
MOST_COLUMNS = 10_000
"""Programs of messages over switches grow with the cube of the ranks: 20 ranks on 4 switches make 9,162 columns, the
three programs of an all-reduce take 2.6 s; 32 ranks make 35,778, and one program takes 11 s. Above this, switches may
repeat a message for free, which takes 0.1 s."""


class FlowNetwork(NamedTuple):
    """Links as arrays of one length; the first *n_ranks* of *n_nodes* nodes are the ranks in order."""

    n_ranks: int
    n_nodes: int
    src: Int
    dst: Int
    capacity_Bps: Float

    def reversed(self) -> FlowNetwork:
        """Return the network with every link turned round."""
        return self._replace(src=self.dst, dst=self.src)


@dataclass(frozen=True, slots=True, eq=False)
class BoundFlows:
    """The network of one fabric, and the seconds per unit of all that was asked so far."""

    network: FlowNetwork
    unit_s: dict[tuple[str, int, bytes], tuple[float, str]] = field(default_factory=dict)


def find_flows(fabric: Fabric, used: NDArray[np.bool_]) -> BoundFlows | None:
    """Return the flows of a small irregular fabric; None where cuts do as well or the programs would take too long.

    Parameters
    ----------
    fabric : Fabric
    used : bool[n_links]
        Links that a message between the ranks could take; the others carry nothing, whatever the algorithm.
    """
    in_network = fabric.in_network is not None or fabric.node_in_network is not None
    if fabric.wiring.coordinates.kind != "irregular" or fabric.n_ranks > MOST_RANKS or in_network:
        return None
    return BoundFlows(network_of(fabric, used))


def network_of(fabric: Fabric, used: NDArray[np.bool_]) -> FlowNetwork:
    """Return the used links; a GPU that is no rank forwards only if some route leads through it."""
    src, dst = fabric.wiring.link_src[used], fabric.wiring.link_dst[used]
    between = np.setdiff1d(np.concatenate([src, dst]), fabric.rank_node)
    number = np.full(len(fabric.wiring.node_names), -1, dtype=np.int64)
    nodes = np.concatenate([fabric.rank_node, between])
    number[nodes] = np.arange(len(nodes))
    return FlowNetwork(fabric.n_ranks, len(nodes), number[src], number[dst], fabric.raw_capacity_Bps[used])


def flow_bound(
    op: Operation, size_bytes: int, flows: BoundFlows, root: int = 0, matrix_bytes: Int | None = None
) -> tuple[float, str]:
    """Return the seconds that *op* needs at line rate without latency, at least, and the name of the bound.

    Parameters
    ----------
    op : Operation
    size_bytes : int
        The size column of nccl-tests.
    flows : BoundFlows
    root : int
    matrix_bytes : int64[n_ranks, n_ranks], optional
        For all_to_all_v.
    """
    if op.name == "all_to_all_v":
        assert matrix_bytes is not None
        pattern = matrix_bytes * (1.0 - np.eye(len(matrix_bytes)))
        size = float(pattern.max())
        if size == 0:
            return 0.0, "flow"
        pattern /= size
    else:
        pattern, size = _pattern(op, flows.network.n_ranks, root), float(size_bytes)
    key = (op.name, root if op.rooted else 0, pattern.tobytes() if matrix_bytes is not None else b"")
    if key not in flows.unit_s:
        flows.unit_s[key] = _unit_s(op, flows.network, root, pattern)
    unit_s, name = flows.unit_s[key]
    return size * unit_s, name


def _pattern(op: Operation, n: int, root: int) -> Float:
    """Return float64[n, n]: bytes from rank to rank, per byte of the size column."""
    wanted = np.zeros((n, n))
    if op.name == "all_to_all":
        wanted[:] = 1 / n
    elif op.name == "scatter":
        wanted[root] = 1 / n
    elif op.name == "gather":
        wanted[:, root] = 1 / n
    elif op.name == "send_recv":
        wanted[np.arange(n), (np.arange(n) + 1) % n] = 1
    np.fill_diagonal(wanted, 0)
    return wanted


def _unit_s(op: Operation, network: FlowNetwork, root: int, pattern: Float) -> tuple[float, str]:
    """Return the seconds per unit and the name of the bound."""
    if pattern.any():
        return _exchange_s(network, pattern), "flow"
    n = network.n_ranks
    at_root, everywhere = np.eye(n)[root if op.rooted else 0], np.full(n, 1 / n)
    if op.name == "all_reduce":
        directed_s = max(_delivery_s(network, at_root), _delivery_s(network.reversed(), at_root))
        trees_s = 2 * _delivery_s(network, at_root, either_way=True)
        return (trees_s, "spanning trees") if trees_s > directed_s else (directed_s, "flow")
    way = network.reversed() if op.reduces else network
    return _delivery_s(way, at_root if op.rooted else everywhere), "flow"


def _exchange_s(network: FlowNetwork, wanted: Float) -> float:
    """Return a lower bound in seconds on the time to move the bytes *wanted*, float64[n, n], from rank to rank."""
    if np.count_nonzero(wanted.any(axis=1)) > np.count_nonzero(wanted.any(axis=0)):
        network, wanted = network.reversed(), wanted.T
    sources = np.flatnonzero(wanted.any(axis=1))
    k, n_links, n_nodes = len(sources), len(network.src), network.n_nodes
    column = np.arange(k * n_links).reshape(k, n_links)
    node = n_nodes * np.arange(k)[:, None]
    surplus = np.zeros((k, n_nodes))
    surplus[:, : network.n_ranks] = -wanted[sources]
    surplus[np.arange(k), sources] = wanted[sources].sum(axis=1)
    conserved = [
        (node + network.src, column, 1.0),
        (node + network.dst, column, -1.0),
        (np.arange(surplus.size), np.array(k * n_links), -surplus.ravel()),
    ]
    rate = network.capacity_Bps / network.capacity_Bps.max()
    price = _prices(k * n_links + 1, rate, [(np.arange(n_links), column, 1.0)], conserved)
    cost = _distances(_matrix(network, price), range(n_nodes))[: network.n_ranks, : network.n_ranks]
    return _ratio(float((wanted * cost).sum()), float(price @ network.capacity_Bps))


class BoundMessages(NamedTuple):
    """Who can send to whom without another rank between, as arcs, and which sender's bytes may be on which link."""

    tail: Int
    head: Int
    sender: Int
    link: Int


def _messages(network: FlowNetwork, *, either_way: bool) -> BoundMessages:
    """Return the arcs, with their opposites if messages serve *either_way*, and the pairs of sender and link."""
    ranks = np.arange(network.n_ranks)
    one_each = _matrix(network, np.ones(len(network.src)))
    reach = np.isfinite(_distances(one_each, range(network.n_ranks, network.n_nodes)))
    joined = reach[ranks[:, None], ranks]
    np.fill_diagonal(joined, False)
    own = np.equal.outer(ranks, network.src)
    onwards = (network.src >= network.n_ranks) & reach[: network.n_ranks, network.src]
    back = np.equal.outer(ranks, network.dst)
    return BoundMessages(*np.nonzero(joined | joined.T if either_way else joined), *np.nonzero((own | onwards) & ~back))


def _delivery_s(network: FlowNetwork, supply: Float, *, either_way: bool = False) -> float:
    """Return a lower bound in seconds on the time to deliver the bytes *supply* of each rank to all other ranks.

    Parameters
    ----------
    network : FlowNetwork
    supply : float64[n_ranks]
    either_way : bool
        A message from i to j serves as well as one from j to i.
    """
    targets = np.flatnonzero(supply.sum() > supply)
    messages = _messages(network, either_way=either_way)
    if network.n_nodes > network.n_ranks and len(targets) * len(messages.tail) > MOST_COLUMNS:
        supply = np.append(supply, np.zeros(network.n_nodes - network.n_ranks))
        network = network._replace(n_ranks=network.n_nodes)
        messages = _messages(network, either_way=either_way)
    price, toll = _delivery_prices(network, messages, supply, targets, either_way=either_way)
    # A message from i to j costs at least cost[i, j], and no more may be charged for it to all targets together.
    n, arcs = network.n_ranks, (messages.tail, messages.head)
    cost = _distances(_matrix(network, price), range(n, network.n_nodes))[:n, :n]
    cost = np.minimum(cost, cost.T)[arcs] if either_way else cost[arcs]
    charged = toll.sum(axis=0)
    tolls = np.full((len(targets), n, n), np.inf)
    tolls[:, *arcs] = toll * np.minimum(1.0, np.divide(cost, charged, out=np.ones_like(cost), where=charged > 0))
    way = _distances(tolls, range(n))[np.arange(len(targets)), :, targets]
    return _ratio(float((way * supply).sum()), float(price @ network.capacity_Bps))


def _delivery_prices(
    network: FlowNetwork, messages: BoundMessages, supply: Float, targets: Int, *, either_way: bool
) -> tuple[Float, Float]:
    """Return the price of each link, and what each target pays for each arc: float64[n_targets, n_arcs].

    The columns are bytes of a sender on a link; trees on an arc, if messages serve either way; bytes that a target
    draws over an arc; and the rate of delivery.
    """
    n, n_links, n_arcs = network.n_ranks, len(network.src), len(messages.tail)
    arc = np.zeros((n, n), dtype=np.int64)
    arc[messages.tail, messages.head] = np.arange(n_arcs)
    sent = np.arange(len(messages.link))
    trees = len(sent) + np.arange(n_arcs if either_way else 0)
    drawn = len(sent) + len(trees) + np.arange(len(targets) * n_arcs).reshape(len(targets), n_arcs)
    rate = len(sent) + len(trees) + drawn.size
    # What a target draws, and what a sender has on its way, leaves every node as it came in.
    surplus = np.tile(supply, (len(targets), 1))
    surplus[np.arange(len(targets)), targets] -= supply.sum()
    at_target = n * np.arange(len(targets))[:, None]
    src, dst = network.src[messages.link], network.dst[messages.link]
    at_switch = surplus.size + messages.sender * (network.n_nodes - n) - n
    into, out = dst >= n, src >= n
    conserved = [
        (at_target + messages.tail, drawn, 1.0),
        (at_target + messages.head, drawn, -1.0),
        (np.arange(surplus.size), np.array(rate), -surplus.ravel()),
        ((at_switch + src)[out], sent[out], 1.0),
        ((at_switch + dst)[into], sent[into], -1.0),
    ]
    # Links carry what is sent, arcs what arrives.
    arrived, arrives_on = sent[~into], arc[messages.sender[~into], dst[~into]]
    on_arc = n_links + np.arange(drawn.size).reshape(drawn.shape)
    limited = [(messages.link, sent, 1.0), (on_arc, drawn, 1.0)]
    if either_way:
        on_pair = n_links + drawn.size + np.minimum(arc, arc.T)[messages.tail, messages.head]
        limited += [(on_arc, trees, -1.0), (on_pair, trees, 1.0), (on_pair[arrives_on], arrived, -1.0)]
    else:
        limited += [(on_arc[:, arrives_on], arrived, -1.0)]
    room = np.zeros(n_links + drawn.size + len(trees))
    room[:n_links] = network.capacity_Bps / network.capacity_Bps.max()
    prices = _prices(rate + 1, room, limited, conserved)
    return prices[:n_links], prices[n_links:][: drawn.size].reshape(drawn.shape)


def _ratio(work: float, per_second: float) -> float:
    """Return the bound that prices give; none if the solver found no prices."""
    return work / per_second if per_second > 0 else 0.0


def _matrix(network: FlowNetwork, length: Float) -> Float:
    """Return float64[n_nodes, n_nodes]: the length of the link between two nodes, infinite if there is none."""
    matrix = np.full((network.n_nodes,) * 2, np.inf)
    matrix[network.src, network.dst] = length
    return matrix


def _distances(matrix: Float, through: Iterable[int] | Int) -> Float:
    """Return the shortest distances by way of the nodes *through* (Floyd and Warshall); also for stacks of matrices."""
    shortest = matrix.copy()
    diagonal = np.arange(matrix.shape[-1])
    shortest[..., diagonal, diagonal] = 0
    for node in through:
        np.minimum(shortest, shortest[..., :, node, None] + shortest[..., None, node, :], out=shortest)
    return shortest


Block = tuple[Int, Int, Any]
"""Rows, columns and values of entries of a matrix, broadcast against each other."""


def _prices(n_columns: int, room: Float, limited: Sequence[Block], conserved: Sequence[Block]) -> Float:
    """Maximise the last of *n_columns* and return the price of each limit; zeros if the solver fails.

    Subject to ``limited @ x <= room``, ``conserved @ x == 0`` and ``x >= 0``. Prices of shipped systems are on file:
    any prices give a bound, so what is there needs no trust.
    """
    found = _on_file().get(digest_of(n_columns, room, limited, conserved))
    if found is None:
        return solved_prices(n_columns, room, limited, conserved)
    price = np.zeros(len(room))
    price[np.array(found[0], dtype=np.int64)] = np.maximum(found[1], 0.0)
    return price


def digest_of(n_columns: int, room: Float, limited: Sequence[Block], conserved: Sequence[Block]) -> str:
    """Return the key of a programme on file, from all that its prices follow from."""
    digest = hashlib.sha256(f"{n_columns} {len(limited)} {len(conserved)}".encode())
    digest.update(room.astype(np.float64).tobytes())
    for block in (*limited, *conserved):
        for part, kind in zip(np.broadcast_arrays(*block), (np.int64, np.int64, np.float64), strict=True):
            digest.update(str(part.shape).encode())
            digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()[:24]


@cache
def _on_file() -> dict[str, tuple[list[int], list[float]]]:
    """Return the prices above zero of programmes of shipped systems: by key, which limits have one, and how much."""
    content: dict[str, tuple[list[int], list[float]]] = json.loads(ON_FILE.read_text(encoding="utf-8"))
    return content


def solved_prices(n_columns: int, room: Float, limited: Sequence[Block], conserved: Sequence[Block]) -> Float:
    """Return the prices of `_prices` by the solver."""
    from scipy.optimize import linprog

    goal = np.zeros(n_columns)
    goal[-1] = -1
    n_conserved = 1 + max(int(np.max(rows, initial=0)) for rows, _, _ in conserved)
    answer = linprog(
        goal,
        A_ub=_sparse(limited, (len(room), n_columns)),
        b_ub=room,
        A_eq=_sparse(conserved, (n_conserved, n_columns)),
        b_eq=np.zeros(n_conserved),
        method="highs",
    )
    if answer.status != 0:
        return np.zeros(len(room))
    return np.asarray(np.maximum(-answer.ineqlin.marginals, 0.0), dtype=np.float64)


def _sparse(blocks: Sequence[Block], shape: tuple[int, int]) -> Any:
    """Return the sparse matrix with these entries; equal places are added."""
    from scipy.sparse import csr_array

    entries = [np.broadcast_arrays(*block) for block in blocks]
    rows, columns, values = (np.concatenate([entry[i].ravel() for entry in entries]) for i in range(3))
    return csr_array((values, (rows, columns)), shape=shape)
