"""Packets on wires: a second opinion on what flows over links take, which knows nothing of max-min fairness.

What it models, whatever the fluid engine says:

* A message starts when all it waits for has arrived. It is cut into packets, the last one shorter, which are dealt to
  its ways in turn, in proportion to their shares.
* A link sends one packet at a time at its rate, and the packet reaches the other end its latency later. Parallel
  cables that the wiring lists as one bundle are one link.
* Switches and adapters cut through: a packet leaves while it still comes in, but no faster than it comes. Without
  *cut_through* they store it first and forward it then.
* Every link that does not end at the receiver fills a buffer behind it, of *buffer_bytes* for each cable, and sends
  only with a credit for a free place; when a packet has left, the credit takes the latency back. Nothing is lost.
* The buffer has a queue for each output, so that only want of credits, not the packet at its head, holds others up.
* An output serves the inputs that have packets for it in turn, packet by packet, and the sender its own messages in the
  same way. This is ``queues="port"``: an input that carries four messages gets as much as one that carries one, and
  messages that wait for a crowded output take the places of those that do not.
* With ``queues="flow"`` each message has places of its own in each buffer, and outputs serve messages in turn. Round
  robin over windows that are large enough is max-min fair (Hahne, IEEE J. Sel. Areas Commun. 9 (1991) 1024).
* Receivers take everything at once. There are no losses, no headers, no acknowledgements and no congestion control.

This module imports SimPy and nothing of collsim.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import simpy

BUFFER_BYTES = 128 * 1024
"""Assumed. Credits must cover what is on its way in a round trip: at 50 GB/s over 30 m, error correction and a switch
of NDR InfiniBand, two times 0.36 us (topologies/networks/infiniband.yaml), 36 KB and a packet."""


class Link(NamedTuple):
    """One direction between two nodes; the latency includes that of the node where it ends."""

    rate_Bps: float
    latency_s: float
    cables: int = 1


class Message(NamedTuple):
    """Bytes that take several ways side by side, each a list of links with its share, after other messages."""

    size_bytes: int
    ways: Sequence[tuple[Sequence[int], float]]
    after: Sequence[int] = ()


class Packet(NamedTuple):
    """A piece of a message, and how far it has come: ``way[hop]`` is the link that it takes next."""

    message: int
    size_bytes: int
    way: Sequence[int]
    hop: int = 0

    @property
    def last(self) -> bool:
        """Whether the next link ends at the receiver."""
        return self.hop + 1 == len(self.way)


class Port:
    """The sending end of a link: packets in queues that take turns, and how many places behind the link are taken."""

    def __init__(self, network: Network, link: Link) -> None:
        self.network, self.link = network, link
        self.places = link.cables * network.buffer_bytes // network.packet_bytes
        self.queues: dict[object, deque[Packet]] = {}
        self.turn: deque[object] = deque()
        self.taken: dict[int, int] = {}
        self.woken = network.env.event()
        network.env.process(self.send())

    def put(self, queue: object, packet: Packet) -> None:
        """Let a packet wait in one of the queues."""
        waiting = self.queues.setdefault(queue, deque())
        if not waiting:
            self.turn.append(queue)
        waiting.append(packet)
        self.wake()

    def wake(self) -> None:
        """Look again for something to send."""
        if not self.woken.triggered:
            self.woken.succeed()

    def get_credit(self, owner: int) -> None:
        """Know that a place is free again."""
        self.taken[owner] -= 1
        self.wake()

    def next(self) -> Packet | None:
        """Return the packet whose turn it is among those that have a place to go; None if there is none."""
        for _ in range(len(self.turn)):
            queue = self.turn[0]
            packet = self.queues[queue][0]
            owner = self.network.owner(packet)
            taken = self.taken.get(owner, 0)
            if packet.last or taken < self.places:
                self.taken[owner] = taken + (not packet.last)
                self.queues[queue].popleft()
                self.turn.popleft()
                if self.queues[queue]:
                    self.turn.append(queue)
                return packet
            self.turn.rotate(-1)
        return None

    def send(self) -> Iterator[simpy.Event]:
        """Send packet after packet, as long as there are any."""
        env = self.network.env
        while True:
            packet = self.next()
            if packet is None:
                self.woken = env.event()
                yield self.woken
            else:
                busy_s = packet.size_bytes / self.link.rate_Bps
                self.network.carry(packet, self.link, busy_s)
                yield env.timeout(busy_s)
                self.network.leave(packet)


class Network:
    """Links, the messages under way, and when each has arrived."""

    def __init__(
        self,
        links: Sequence[Link],
        messages: Sequence[Message],
        *,
        packet_bytes: int,
        buffer_bytes: int = BUFFER_BYTES,
        queues: Literal["port", "flow"] = "port",
        cut_through: bool = True,
    ) -> None:
        self.env = simpy.Environment()
        self.links, self.messages, self.packet_bytes = links, messages, packet_bytes
        self.buffer_bytes, self.queues, self.cut_through = buffer_bytes, queues, cut_through
        self.ports = {link: Port(self, links[link]) for message in messages for way, _ in message.ways for link in way}
        self.missing = [math.ceil(message.size_bytes / packet_bytes) for message in messages]
        self.waits = [len(message.after) for message in messages]
        self.followers: list[list[int]] = [[] for _ in messages]
        for number, message in enumerate(messages):
            for before in message.after:
                self.followers[before].append(number)
        self.finish_s = [math.nan] * len(messages)

    def run(self) -> list[float]:
        """Return when each message has arrived, in seconds."""
        for number in [number for number, waits in enumerate(self.waits) if not waits]:
            self.start(number)
        self.env.run()
        stuck = [number for number, time_s in enumerate(self.finish_s) if math.isnan(time_s)]
        if stuck:
            raise RuntimeError(f"{len(stuck)} messages never arrive, the first of them is {stuck[0]}")
        return self.finish_s

    def start(self, number: int) -> None:
        """Hand the packets of a message to the first links of its ways."""
        message = self.messages[number]
        if not self.missing[number]:
            self.finish(number)
        for place, way in enumerate(dealt([share for _, share in message.ways], self.missing[number])):
            links, size_bytes = message.ways[way][0], message.size_bytes - place * self.packet_bytes
            self.ports[links[0]].put(("message", number), Packet(number, min(size_bytes, self.packet_bytes), links))

    def owner(self, packet: Packet) -> int:
        """Return who counts the places that a packet takes: its message, or all messages together."""
        return packet.message if self.queues == "flow" else -1

    def carry(self, packet: Packet, link: Link, busy_s: float) -> None:
        """Bring a packet to the end of a link: its last bit, or its first if it can be sent on as fast as it comes."""
        lag_s = busy_s
        if self.cut_through and not packet.last:
            lag_s = max(0.0, busy_s - packet.size_bytes / self.links[packet.way[packet.hop + 1]].rate_Bps)
        self.later(link.latency_s + lag_s, lambda: self.arrive(packet))

    def leave(self, packet: Packet) -> None:
        """Send the credit for the place that a packet had before the link that it was sent on."""
        if packet.hop:
            port, owner = self.ports[packet.way[packet.hop - 1]], self.owner(packet)
            self.later(port.link.latency_s, lambda: port.get_credit(owner))

    def arrive(self, packet: Packet) -> None:
        """Queue a packet for its next link, or count it at the receiver."""
        number, size_bytes, way, hop = packet
        if packet.last:
            self.missing[number] -= 1
            if not self.missing[number]:
                self.finish(number)
        else:
            queue = ("message", number) if self.queues == "flow" else ("input", way[hop])
            self.ports[way[hop + 1]].put(queue, Packet(number, size_bytes, way, hop + 1))

    def finish(self, number: int) -> None:
        """Note that a message has arrived, and start those that waited for nothing else."""
        self.finish_s[number] = self.env.now
        for follower in self.followers[number]:
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self.start(follower)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Do something after a while."""
        self.env.timeout(delay_s).callbacks.append(lambda _: call())


def dealt(shares: Sequence[float], count: int) -> Iterator[int]:
    """Yield the way of each of *count* packets: the one that is most behind its share, the first of several such."""
    behind = [0.0] * len(shares)
    for _ in range(count):
        behind = [short + share for short, share in zip(behind, shares, strict=True)]
        way = max(range(len(shares)), key=behind.__getitem__)
        behind[way] -= 1.0
        yield way
