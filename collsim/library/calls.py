"""Calls of the library: what is asked, and the choice it answers with."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.core.errors import Fault, InputError
from collsim.core.operations import DTYPES, OPERATIONS, Operation

__all__ = ["LL", "LL128", "MESSAGE_OPS", "SIMPLE", "Call", "Candidate", "Choice", "PointToPoint"]

LL, LL128, SIMPLE = range(3)
"""Indices of the protocols in every table."""

LAUNCHES = ("stream", "graph")
MESSAGE_OPS = ("all_to_all", "all_to_all_v", "gather", "scatter", "send_recv")
"""Operations that are made of messages."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call of one communicator.

    Attributes
    ----------
    op : str
        Name in `collsim.core.operations`.
    n_ranks : int
    size_bytes : int
        The size column of nccl-tests, which is also the size that the tuner of the library sees.
    dtype : str
    redop : str
    n_nodes : int
        Scale-up domains, with the same number of ranks in each.
    launch : str
        ``stream`` or ``graph``.
    registered : bool
        Buffers were registered by the user (``-R 1`` of nccl-tests).
    symmetric : bool
        They are symmetric windows (``-R 2``), which have kernels of their own; *registered* is then true as well.
    root : int
    """

    op: str
    n_ranks: int
    size_bytes: int
    dtype: str = "float"
    redop: str = "sum"
    n_nodes: int = 1
    launch: str = "stream"
    registered: bool = False
    symmetric: bool = False
    root: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be; all faults at once."""
        faults: list[Fault] = []
        for kind, name, known in (
            ("operation", self.op, OPERATIONS),
            ("data type", self.dtype, DTYPES),
            ("launch", self.launch, LAUNCHES),
        ):
            if name not in known:
                faults.append(Fault(f'unknown {kind} "{name}"', "call", f"known: {', '.join(known)}"))
        if self.n_ranks < 2:
            faults.append(Fault(f"{self.n_ranks} ranks do not communicate", "call", "take at least 2 ranks"))
        if self.n_nodes < 1 or self.n_ranks % self.n_nodes:
            what = f"{self.n_ranks} ranks do not spread evenly over {self.n_nodes} domains"
            faults.append(Fault(what, "call", "every domain must hold the same number of ranks"))
        if self.size_bytes < 0:
            faults.append(Fault(f"{self.size_bytes} bytes are negative", "call", "give a size of at least 0"))
        if faults:
            raise InputError(*faults)

    @property
    def operation(self) -> Operation:
        """The operation with its conventions."""
        return OPERATIONS[self.op]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype]

    @property
    def ranks_per_node(self) -> int:
        """Ranks in one scale-up domain."""
        return self.n_ranks // self.n_nodes

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the count argument: one rank's block where the operation is blocked, else the whole buffer."""
        return self.size_bytes // self.n_ranks if self.operation.blocked else self.size_bytes

    @property
    def message_bytes(self) -> int:
        """Bytes of one message, for operations made of messages; the whole buffer if they differ (all_to_all_v)."""
        return self.buffer_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of the library's own comparison.

    Attributes
    ----------
    algo : str
        The library's algorithm, such as ``tree``.
    proto : str
    latency_s, bandwidth_Bps, predicted_s : float
        The time is latency + size / bandwidth; the bandwidth counts the corrections for the size.
    """

    algo: str
    proto: str
    latency_s: float
    bandwidth_Bps: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """Channels and parts that grouped sends and receives use.

    Attributes
    ----------
    channels : int
        K: channels for point to point; a power of two.
    channels_per_peer : int
        P: the most that one message can use.
    parts : int
        Into how many parts one message is cut, each on its own channel.
    step_bytes : int
        Slot of a connection.
    """

    channels: int
    channels_per_peer: int
    parts: int
    step_bytes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of the library for a call: algorithm, protocol, channels, chunks, and why.

    Attributes
    ----------
    algo : str
        The algorithm of collsim: on one domain the library's tree is the ``chain``.
    library_algo : str
        The library's own word, as in its log.
    proto : str
        ``LL``, ``LL128`` or ``Simple``.
    channels : int
        Channels (CTAs) that carry data, after the call was found too small for more.
    communicator_channels : int
        Channels that the communicator has for such calls.
    search_channels : int
        Channels that the search of rings or heads found, before they were doubled.
    channel_GBps : float
        What the search reserved for each of them.
    shares_bytes : tuple of int
        What each channel carries of the whole buffer, or of every rank's block; empty for messages.
    threads : int
        Threads of one CTA.
    chunk_bytes : int
        Payload of one chunk of a channel.
    slices : int
        Parts of a chunk that are handed on separately.
    slots : int
        Steps that a sender may run ahead.
    slots_per_chunk : int
        Steps that a full chunk takes up.
    efficiency : float
        Payload over bytes on the wire.
    zero_copy : bool
        User buffers are registered, so point to point and NVLS may do without staging.
    point_to_point : PointToPoint or None
    predicted_s : float or None
        The library's own estimate: a selector, not a prediction; None for point to point, which it does not rate.
    candidates : tuple of Candidate
        All that was available, fastest first.
    why : str
    doubts : tuple of str
        What this answer rests on that no log or source confirms.
    peer_channels : int or None
        How many channels one peer is served by, where a schedule of the library says so.
    instance : str
        Kind of instance for which a network's plug-in made the choice; empty: the library made it.
    """

    algo: str
    library_algo: str
    proto: str
    channels: int
    communicator_channels: int
    search_channels: int
    channel_GBps: float
    shares_bytes: tuple[int, ...]
    threads: int
    chunk_bytes: int
    slices: int
    slots: int
    slots_per_chunk: int
    efficiency: float
    zero_copy: bool
    point_to_point: PointToPoint | None
    predicted_s: float | None
    candidates: tuple[Candidate, ...]
    why: str
    doubts: tuple[str, ...] = ()
    peer_channels: int | None = None
    instance: str = ""
