"""The record of an algorithm, and the request that its generator of schedules takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from collsim.collectives.node_layout import NodeLayout
from collsim.collectives.node_rings import node_rings
from collsim.core.errors import Fault, UnsupportedError
from collsim.core.operations import Operation
from collsim.schedule import Int, Phase, Schedule, split_bytes
from collsim.schedule.forms import Chunks

__all__ = ["WHERE", "Algorithm", "ScheduleRequest"]

MOST_PIECES = 65_536
"""A schedule of more chunks takes minutes and gigabytes; 32 GiB on 24 channels in chunks of 512 KiB stay below."""
KIB = 1024
MIB = 1024 * KIB
WHERE = ("anywhere", "torus", "nodes", "racks")
"""Ranks that an algorithm needs: any, those of a torus, several nodes, or several nodes with leaf switches of their
own."""
USUAL_FAMILIES = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "broadcast": "ring",
    "reduce": "ring",
    "gather": "fan",
    "scatter": "fan",
}
"""Kernels whose constants hold for an operation where the algorithm does not say; other operations: ``messages``."""


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """One collective to be scheduled.

    Attributes
    ----------
    op : Operation
    n_ranks : int
        At least 2.
    size_bytes : int
        The size column of nccl-tests; a multiple of n_ranks where the operation is blocked.
    element_bytes : int
        No chunk boundary cuts an element.
    root : int
    channels : int or None
        How many channels share the work; None leaves it to *default_channels* and the algorithm.
    default_channels : int
        What suits the fabric.
    chunk_bytes : int or None
        Largest chunk of a channel; None leaves it to the algorithm.
    slots : int
        How many chunks a sender may run ahead of its receiver (NCCL_STEPS).
    rings : int64[n_rings, n_ranks]
        Orders of the ranks that load the fabric evenly; channel c takes ring ``c mod n_rings``.
    matrix_bytes : int64[n_ranks, n_ranks] or None
        Bytes from row to column, for all_to_all_v.
    share_bytes : tuple of int
        What each channel carries, where a library deals unevenly; empty: as evenly as elements allow.
    peer_channels : int or None
        Most channels that one point-to-point message may use; None: all of them.
    peer_step_bytes : int or None
        Slot of a connection for point-to-point messages; None: as by default inside one domain.
    in_turn : bool
        Channels of a chain with the same order of ranks pass their chunks one after another, not in step.
    nodes : int
        Scale-up domains, with equally many ranks in blocks.
    layout : NodeLayout or None
        Which ranks share a node, and which nodes a rack, where that is not so; it overrides *nodes*.
    dimensions : tuple of int
        Of the torus that the ranks form, the last running fastest; empty: they form none.
    tree_pattern : str
        How trees enter a node (`collsim.collectives.node_tree.PATTERNS`).
    """

    op: Operation
    n_ranks: int
    size_bytes: int
    element_bytes: int = 1
    root: int = 0
    channels: int | None = None
    default_channels: int = 1
    chunk_bytes: int | None = None
    slots: int = 8
    rings: Int = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    matrix_bytes: Int | None = None
    share_bytes: tuple[int, ...] = ()
    peer_channels: int | None = None
    peer_step_bytes: int | None = None
    in_turn: bool = False
    nodes: int = 1
    layout: NodeLayout | None = None
    dimensions: tuple[int, ...] = ()
    tree_pattern: str = "balanced"

    @property
    def n_channels(self) -> int:
        """Channels to use: as asked, else what suits the fabric."""
        return self.channels or self.default_channels

    @property
    def orders(self) -> Int:
        """int64[n_orders, n_ranks]: the rings; if there are none those over nodes, or the ranks in order."""
        if len(self.rings):
            return self.rings
        spread = self.spread
        return node_rings(spread) if spread.n_nodes > 1 else np.arange(self.n_ranks, dtype=np.int64)[None, :]

    @property
    def spread(self) -> NodeLayout:
        """Which ranks share a node."""
        return self.layout or NodeLayout.blocks([self.n_ranks // self.nodes] * self.nodes)

    @property
    def block_bytes(self) -> int:
        """Bytes of one rank's block, for blocked operations."""
        return self.size_bytes // self.n_ranks

    def shares(self, total_bytes: int) -> Int:
        """Return the bytes of *total_bytes* on each channel, int64[n], without channels that would carry nothing."""
        if sum(self.share_bytes) == total_bytes and self.share_bytes:
            return np.array(self.share_bytes, dtype=np.int64)
        shares = split_bytes(total_bytes, self.n_channels, self.element_bytes)
        used = shares[shares > 0]
        return used if len(used) else shares[:1]

    def pieces(self, total_bytes: int, default_chunk_bytes: int, chunks_per_piece: int = 1) -> Int:
        """Cut *total_bytes* into pieces of *chunks_per_piece* chunks of up to chunk_bytes; the last takes the rest.

        Raises
        ------
        UnsupportedError
            All channels together would have more than `MOST_PIECES` chunks; names a size that is large enough.
        """
        grains = max((self.chunk_bytes or default_chunk_bytes) // self.element_bytes, 1)
        chunk = grains * self.element_bytes * chunks_per_piece
        full, rest = divmod(total_bytes, chunk)
        if full * self.n_channels * chunks_per_piece > MOST_PIECES:
            enough = -(-total_bytes * self.n_channels // MOST_PIECES)
            what = f"{self.n_channels} channels of {full * chunks_per_piece} chunks each are too many to simulate"
            raise UnsupportedError(Fault(what, "chunk", f"chunks of {enough} bytes or more would do"))
        return np.array([chunk] * full + [rest] * (rest > 0 or full == 0), dtype=np.int64)

    def schedule(self, algo: str, chunks: Chunks, *phases: Phase, **parameters: int | str) -> Schedule:
        """Wrap up the phases that an algorithm made for this request."""
        nodes = self.spread.n_nodes
        return Schedule(
            op=self.op.name,
            algo=algo,
            n_ranks=self.n_ranks,
            size_bytes=self.size_bytes,
            chunks=chunks,
            phases=phases,
            parameters={
                **({"root": self.root} if self.op.rooted else {}),
                **({"nodes": nodes} if nodes > 1 else {}),
                **parameters,
            },
        )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A generator of schedules for one or more operations, and all that others have to know of it.

    One name may have several records, for operations with different schedules or of which different things hold.

    Attributes
    ----------
    name : str
        What ``--algo`` takes.
    title : str
        One line for people.
    ops : tuple of str
    source : str
        Where the algorithm is published.
    build : callable
        Request -> Schedule.
    where : str
        The least that it needs, of `WHERE`.
    in_network : tuple of str
        Whom switches have to join that add and multicast for it: ``all`` ranks, the ranks of each ``node``, or nodes
        over the ``network``; empty: it needs none.
    growth : str or None
        How many transfers a schedule has, and pieces that they carry: about so many as there are ``ranks``, so that
        tens of thousands may run it over nodes, or one transfer at least for all ``pairs`` of them, which is refused
        before it is built; None: nobody says, so that the schedule is built if ranks fit into tables.
    family : str or None
        The kernel whose constants in a profile hold; None: the usual one of the operation.
    protocols : tuple of str
        Those that the kernel has.
    cost_law : str
        How fast its channels are (`collsim.library.costs.laws`): each with a rate of its own (``channels``), or as
        messages that are ``grouped`` on them; ``bundled``: transfers between nodes are several messages, each with a
        connection of its own.
    loop_steps : callable or None
        Operation, number of ranks -> steps after which a channel begins anew; None: it runs through its steps once.
    pipelined : bool
        Chunks flow through it one behind the other, so that with flags in every line smaller pieces may.
    by_levels : bool
        A library that runs it finishes one level before it begins the next: the data goes in one piece.
    quotient : str or None
        How large regular machines run it by symmetry (`collsim.simulation.quotient.scaled`): as ``pairs`` of ranks that
        are alike, as ``circles`` of ranks, or as ``levels`` of nodes and rails; None: transfer by transfer.
    libraries : tuple of str
        Families of the libraries whose own kernel it is, which no other runs; empty: it is anybody's.
    relays : bool or None
        Whether messages in the peer order of NCCL pass a GPU on the rail of their target; None: there are no such.
    """

    name: str
    title: str
    ops: tuple[str, ...]
    source: str
    build: Callable[[ScheduleRequest], Schedule]
    where: Literal["anywhere", "torus", "nodes", "racks"] = "anywhere"
    in_network: tuple[Literal["all", "node", "network"], ...] = ()
    growth: Literal["ranks", "pairs"] | None = None
    family: str | None = None
    protocols: tuple[str, ...] = ("LL", "LL128", "Simple")
    cost_law: Literal["channels", "grouped", "bundled"] = "channels"
    loop_steps: Callable[[str, int], int] | None = None
    pipelined: bool = False
    by_levels: bool = False
    quotient: Literal["pairs", "circles", "levels"] | None = None
    libraries: tuple[str, ...] = ()
    relays: bool | None = None

    def family_for(self, op: str) -> str:
        """Name the kernel whose constants hold for *op*."""
        return self.family or USUAL_FAMILIES.get(op, "messages")
