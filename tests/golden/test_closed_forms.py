"""Times that arithmetic can give, met by the simulator: a table of algorithm, fabric, ranks, chunks and formula.

A formula sees the number of ranks, the size, the rates and the latencies of a row, and no schedule and no engine. What
all formulas share: a message of m bytes takes *wait + m/rate*, where *wait* is the latency of its path (links and
switches) plus the overhead of a message, and flows that start together on one link share it evenly.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from collsim.collectives import ScheduleRequest, algorithm, rings_for
from collsim.core.operations import operation
from collsim.library import Profile
from collsim.simulation.runs import prepare
from collsim.simulation.timing import time_schedule
from collsim.topology import parse_topology

TOLERANCE = 1e-9
EVERY_N = range(2, 17)
EVEN_N, ODD_N, POWERS = range(2, 17, 2), range(3, 17, 2), (2, 4, 8, 16)
KIB, MIB = 2**10, 2**20

LANE_BPS = 37e9
LINK_S, SWITCH_S = 0.3e-6, 0.17e-6
OVERHEAD_S, LAUNCH_S = 1.9e-6, 5e-6

# What the builders are told; a port of "planes" is 5 + 4 + 4 + 5 lanes wide, all others are one lane.
FABRICS = {
    "switch": "builder: switched, switch: {planes: 1, links_per_plane: [1], latency: 170 ns}",
    "planes": "builder: switched, switch: {planes: 4, links_per_plane: [5, 4, 4, 5], latency: 170 ns}",
    "mesh": "builder: full_mesh",
}
LANES = {"planes": 18}


@dataclass(frozen=True)
class Form:
    """A row of the table: what runs, where, and how long it takes according to *time*."""

    op: str
    algo: str
    fabric: str
    time: "Callable[[Point], float]"
    n: Iterable[int] = EVERY_N
    size: Callable[[int], int] = lambda n: 720720 * 16  # divides evenly by every n up to 16 and by 16 channels
    element: int = 1
    channels: int = 1
    chunk: Callable[[int], int] = lambda n: 512 * MIB
    root: Callable[[int], int] = lambda n: 0
    cap_Bps: float = math.inf
    overhead_s: float = OVERHEAD_S
    launch_s: float = 0.0
    link_s: float = LINK_S
    efficiency: float = 1.0
    matrix: Callable[[int], np.ndarray] | None = None
    note: str = ""

    def __str__(self):
        return "-".join(filter(None, (self.fabric, self.op, self.algo, f"{self.channels}ch", self.note)))


@dataclass(frozen=True)
class Point:
    """A row at one number of ranks, as the formulas see it."""

    row: Form
    n: int

    @property
    def op(self):
        return self.row.op

    @property
    def size(self):
        return self.row.size(self.n)

    @property
    def element(self):
        return self.row.element

    @property
    def channels(self):
        return self.row.channels

    @property
    def chunk(self):
        return self.row.chunk(self.n)

    @property
    def port_Bps(self):
        """Rate of a GPU's port (switched), of a link (mesh, ring)."""
        return LANE_BPS * LANES.get(self.row.fabric, 1) * self.row.efficiency

    @property
    def cap_Bps(self):
        return self.row.cap_Bps

    def wait_s(self, links=1):
        """Before a message over *links* links of a ring flows; elsewhere the path is one link, or two and a switch."""
        if self.row.fabric in ("switch", "planes"):
            return 2 * self.row.link_s + SWITCH_S + self.row.overhead_s
        return links * self.row.link_s + self.row.overhead_s

    def rate_Bps(self, flows):
        """Of one channel if *flows* of them share a link."""
        return min(self.cap_Bps, self.port_Bps / flows)


def largest_part(total, parts, grain=1):
    """Of *total* bytes cut into pieces that differ by at most one grain."""
    return -(-total // grain // parts) * grain


def loops(total, chunk):
    """Cut *total* bytes into full chunks and a rest."""
    return [chunk] * (total // chunk) + ([total % chunk] if total % chunk else [])


# --- Rings ------------------------------------------------------------------------------------------------------------
#
# Step k of a channel waits, at its rank and at the rank before, for step k - 1. If all n chunks of a loop are equal,
# all ranks march in step and a step takes wait + chunk/rate. If they are not, follow the largest chunk c: rank c+1
# sends it in step 1, rank c+2 in step 2, ... and rank c starts the delivery with it, so each of the 2(n-1) steps has
# a transfer of the largest chunk that waits for the one before. No step of anybody takes longer; hence 2(n-1) (wait +
# largest chunk / rate) per loop. All loops but the last have equal chunks, so loops add up. Reduce-scatter and
# all-gather have half of the steps, and their chunks are cut from one block, equal for all ranks.


def ring_with(flows: Callable[[Point], float]):
    def time(p: Point):
        rate, steps = p.rate_Bps(flows(p)), p.n - 1
        if p.op == "all_reduce":
            share = largest_part(p.size, p.channels, p.element)  # the slowest channel; equal where links are shared
            chunks = [largest_part(loop, p.n, p.element) for loop in loops(share, p.chunk * p.n)]
            return sum(2 * steps * (p.wait_s() + chunk / rate) for chunk in chunks)
        share = largest_part(p.size // p.n, p.channels, p.element)
        return sum(steps * (p.wait_s() + chunk / rate) for chunk in loops(share, p.chunk))

    return time


ring = ring_with(lambda p: p.channels)  # every channel uses every link of the ring, every port of the switch
ring_capped = ring_with(lambda p: 1)  # the cap is so low that the links never bind
# On a mesh, n - 1 rings (n odd) use every directed link once, 2(n - 1) rings (n even) use it twice.
ring_on_mesh = ring_with(lambda p: p.channels / (1 if p.n == 2 else p.n - 1))
ring_both_ways = ring_with(lambda p: p.channels / 2)  # every second channel turns the other way


# --- Chains -----------------------------------------------------------------------------------------------------------
#
# Chunks m_1..m_k pass n - 1 hops one after the other; a hop takes t_j = wait + m_j/rate for chunk j and does one chunk
# at a time: a proportionate flow shop, whose makespan is sum of t_j + (n - 2) max t_j. The 8 slots never bind.


def pipeline(durations, hops):
    return sum(durations) + (hops - 1) * max(durations)


def chain_with(flows: Callable[[Point], float]):
    def time(p: Point):
        share = largest_part(p.size, p.channels, p.element)
        rate = p.rate_Bps(flows(p))
        return pipeline([p.wait_s() + chunk / rate for chunk in loops(share, p.chunk)], p.n - 1)

    return time


chain = chain_with(lambda p: p.channels)
chain_alone = chain_with(lambda p: 1)  # channels on disjoint links, or capped below their share


# --- Trees ------------------------------------------------------------------------------------------------------------
#
# The in-order binary tree over vertices 1..m: its top is the largest power of two p <= m; p - 1 vertices are on its
# left (a perfect tree), m - p on its right, a tree of the same kind. Vertex 0 is the root, above the tree over n - 1.


def below(m):
    """Sizes of the subtrees below the top of a tree over m vertices."""
    top = 1 << (m.bit_length() - 1)
    return [size for size in (top - 1, m - top) if size]


def depth(m):
    return m.bit_length()


def gathered(m, p: Point, chunk):
    """When the top of a tree over m vertices has added up one chunk from below; a switch port takes it in.

    Two children whose flows begin at s <= s' into one port: together they have 2 chunks to bring through it from s on,
    and the later one needs at least chunk/b from s' on; one of the two is tight.
    """
    flow = chunk / p.port_Bps
    begins = sorted(gathered(size, p, chunk) + p.wait_s() for size in below(m))
    if len(begins) < 2:
        return begins[0] + flow if begins else 0.0
    return max(begins[0] + 2 * flow, begins[1] + flow)


def spread(m, p: Point, chunk):
    """How long after its top everybody in a tree over m vertices has one chunk: two children share the port."""
    children = below(m)
    if not children:
        return 0.0
    return p.wait_s() + len(children) * chunk / p.port_Bps + max(spread(size, p, chunk) for size in children)


def single_tree_on_switch(p: Point):
    """One channel, one chunk: up to the root, down from it, or both."""
    last = p.wait_s() + p.size / p.port_Bps
    up, down = gathered(p.n - 1, p, p.size) + last, last + spread(p.n - 1, p, p.size)
    return {"reduce": up, "broadcast": down, "all_reduce": up + down}[p.op]


def double_tree_on_switch(p: Point):
    """Two channels with half of the data each, n even: every vertex but a root has two children or none.

    Interior vertices of one tree are leaves of the other. Upwards a leaf is done before an interior vertex of that rank
    begins; downwards every flow has half a port at most, so two into one rank fit. In an all-reduce the trees do not
    touch. In a broadcast and a reduce both trees hang from one root, whose port halves.
    """
    half = p.size // 2
    flow = half / p.port_Bps
    if p.op == "all_reduce":
        return gathered(p.n - 1, p, half) + 2 * (p.wait_s() + flow) + spread(p.n - 1, p, half)
    if p.op == "broadcast":
        return depth(p.n - 1) * (p.wait_s() + 2 * flow)
    return gathered(p.n - 1, p, half) + p.wait_s() + 2 * flow


def paths(m):
    """Numbers of children of the vertices on each way down from the top of a tree over m vertices."""
    children = below(m)
    return [[len(children), *way] for size in children for way in paths(size)] or [[]]


def pipelined_tree_on_switch(p: Point):
    """Broadcast of k equal chunks: every way down is a pipeline in which two children take twice as long."""
    chunks = p.size // p.chunk
    ways = [[p.wait_s() + kids * p.chunk / p.port_Bps for kids in (1, *way)] for way in paths(p.n - 1)]
    return max(sum(way) + (chunks - 1) * max(way) for way in ways)


def pipelined_reduce_on_switch(p: Point):
    """The same upwards for n a power of two: siblings are alike, so a stage is a pair of children into one port."""
    single, pair = (p.wait_s() + kids * p.chunk / p.port_Bps for kids in (1, 2))
    stages = [single] + [pair] * (depth(p.n - 1) - 1)
    return sum(stages) + (p.size // p.chunk - 1) * max(stages)


def tree_on_mesh(p: Point):
    """Every edge has its own link, so all hops take the same: a pipeline of the tree's depth, twice for all-reduce."""
    durations = [p.wait_s() + chunk / p.rate_Bps(1) for chunk in loops(p.size, p.chunk)]
    return pipeline(durations, depth(p.n - 1) * (2 if p.op == "all_reduce" else 1))


# --- PAT --------------------------------------------------------------------------------------------------------------
#
# All ranks do the same at the same time, and every rank sends to one rank and receives from one. A pass therefore takes
# M wait + (n - 1) block/rate with M messages: each of the n - 1 foreign blocks is received once. If a chunk holds one
# block, M = n - 1. If it holds n/2 blocks, there is one message per power of two below n; the number of blocks in a
# message is a power of two below n//2 (rounded down), which is one doubling short if n = 2^j + 1, and costs a message.
# In between (a blocks per message, n a power of two) distance d carries n/2d blocks in ceil(n/2da) messages.


def alone(n):
    return n - 1


def together(n):
    return math.ceil(math.log2(n)) + (n >= 5 and (n - 1).bit_count() == 1)


def by_twos(n):
    return sum(math.ceil(n / (2 * d) / 2) for d in (1, 2, 4, 8) if d < n)


def pat_with(messages, messages_of_rest=None, flows=lambda p: p.channels):
    def time(p: Point):
        rate, total = p.rate_Bps(flows(p)), 0.0
        unit = p.chunk * p.n if p.op == "all_reduce" else p.chunk
        for piece in loops((p.size if p.op == "all_reduce" else p.size // p.n) // p.channels, unit):
            block = piece / p.n if p.op == "all_reduce" else piece
            rule = messages if piece == unit or messages_of_rest is None else messages_of_rest
            total += rule(p.n) * p.wait_s() + (p.n - 1) * block / rate
        return total * (2 if p.op == "all_reduce" else 1)

    return time


def pat_on_ring(p: Point):
    """A message d places back takes n - d links; n - d such paths cross every link. One message per foreign block s.

    It travels the distance of the lowest set bit of s.
    """
    block, total = p.size // p.n, 0.0
    for s in range(1, p.n):
        links = p.n - (s & -s) if p.op == "all_gather" else s & -s
        total += p.wait_s(links) + block * links / p.port_Bps
    return total


# --- All at once ------------------------------------------------------------------------------------------------------
#
# Mesh: every message has its own link. Switch: all n - 1 messages of a rank share its port, and the fullest port
# decides, (n - 1) x the largest block: into the owner of a large slice when scattering, out of it when gathering.
# All flows begin together with b/(n - 1); where small ones end first, the others are still held at the other end.
# Between two phases a rank waits until all it takes part in is done, and everybody handles a largest slice.


def shots(steps, whole=False):
    def time(p: Point):
        block = p.size if whole else largest_part(p.size, p.n, p.element)
        sharers = 1 if p.row.fabric == "mesh" else p.n - 1
        rate = min(p.channels * p.cap_Bps, p.port_Bps / sharers)
        return steps * (p.wait_s() + block / rate)

    return time


def direct_on_ring(p: Point):
    """Without link latency all flows begin together; a link is on d paths of length d: n(n-1)/2 equal flows."""
    return p.wait_s() + p.size / p.n * p.n * (p.n - 1) / 2 / p.port_Bps


def neighbour(p: Point):
    """One message out of every rank and one into it, over all channels."""
    return p.wait_s() + p.size / min(p.channels * p.cap_Bps, p.port_Bps)


def in_parts(p: Point):
    """A message in 2^j parts, as many as 32 channels hold for every rank, each at the rate of its channel."""
    parts = 1 << int(math.log2(32 / p.n))
    return p.wait_s() + math.ceil(p.size / parts / 4096) * 4096 / p.cap_Bps


def work(p: Point):
    """All parts of all messages under way at once: the ports never idle."""
    return p.wait_s() + (p.n - 1) * (p.size / p.n) / p.port_Bps


def ramp(n):
    """Bytes from s to d: (s + 1) (d + 2) KiB and one byte."""
    ranks = np.arange(n)
    return np.outer(ranks + 1, ranks + 2) * KIB + 1


def heaviest_message(p: Point):
    return p.wait_s() + max((s + 1) * (d + 2) * KIB + 1 for s in range(p.n) for d in range(p.n) if s != d) / p.port_Bps


def hot(n):
    """Rank r sends r + 1 MiB to rank 0 and nothing else; rank 0 sends 3 bytes to rank 1."""
    matrix = np.zeros((n, n), dtype=np.int64)
    matrix[1:, 0] = (np.arange(1, n) + 1) * MIB
    matrix[0, 1] = 3
    return matrix


def hot_port(p: Point):
    return p.wait_s() + sum((r + 1) * MIB for r in range(1, p.n)) / p.port_Bps


def odd(n):
    return 1234577 * n + n // 2 + 1  # not a multiple of n


def odd_floats(n):
    return 4 * odd(n)


def many(n):
    return 5 * 64 * KIB * n  # five loops of 64 KiB chunks on one channel


def many_and_rest(n):
    return many(n) + 4 * (40 * KIB + 3) * n + 8  # and a loop whose chunks differ


def per_block(chunk):
    return lambda n: chunk * n


def kib(number):
    return lambda n: number * KIB


REDUCED = ("all_reduce", "all_gather", "reduce_scatter")
FORMS = [
    # Rings: divisible or not, loops, shared links, capped channels, several rings.
    *(Form(op, "ring", fabric, ring) for op in REDUCED for fabric in ("ring", "switch", "planes")),
    *(Form("all_reduce", "ring", f, ring, size=odd, note="odd") for f in ("ring", "switch")),
    *(Form("all_reduce", "ring", f, ring, size=odd_floats, element=4, note="floats") for f in ("ring", "planes")),
    Form("all_reduce", "ring", "ring", ring, size=lambda n: 3, overhead_s=0, note="fewer-bytes-than-ranks"),
    Form("all_reduce", "ring", "switch", ring, size=many, chunk=kib(64), launch_s=LAUNCH_S, note="loops"),
    Form("all_reduce", "ring", "ring", ring, size=many_and_rest, chunk=kib(64), element=4, note="loops-and-rest"),
    Form("all_gather", "ring", "switch", ring, size=per_block(200001), chunk=kib(64), note="loops-and-rest"),
    Form("reduce_scatter", "ring", "ring", ring, size=per_block(200001), chunk=kib(64), note="loops-and-rest"),
    *(Form(op, "ring", f, ring, channels=4, chunk=kib(96)) for op in REDUCED for f in ("ring", "planes")),
    Form("all_reduce", "ring", "switch", ring, channels=16, cap_Bps=2e9, note="caps-bind"),
    Form("all_reduce", "ring", "switch", ring, channels=3, cap_Bps=20e9, launch_s=LAUNCH_S, note="links-bind"),
    Form("all_reduce", "ring", "ring", ring_capped, size=odd, channels=7, cap_Bps=5e9, note="odd-shares"),
    Form(
        "all_gather", "ring", "switch", ring_capped, size=per_block(100003), channels=7, cap_Bps=5e9, note="odd-shares"
    ),
    Form("all_reduce", "ring", "ring", ring, overhead_s=0, efficiency=0.8, note="achievable"),
    *(Form(op, "ring", "both-ways", ring_both_ways, range(3, 17), channels=2) for op in REDUCED),
    Form("all_reduce", "ring", "both-ways", ring_both_ways, range(3, 17), channels=8, chunk=kib(50)),
    # Chains
    *(Form(op, "ring", fabric, chain) for op in ("broadcast", "reduce") for fabric in ("ring", "switch", "mesh")),
    *(
        Form(op, "ring", f, chain, size=lambda n: 10 * MIB, chunk=kib(512), root=lambda n: n // 2, note="chunks")
        for op in ("broadcast", "reduce")
        for f in ("ring", "planes")
    ),
    *(
        Form(op, "ring", f, chain, size=lambda n: 10 * MIB + 77, chunk=kib(512), root=lambda n: n - 1, note="and-rest")
        for op in ("broadcast", "reduce")
        for f in ("ring", "switch", "mesh")
    ),
    Form("broadcast", "ring", "switch", chain, channels=4, chunk=kib(256), launch_s=LAUNCH_S),
    Form("reduce", "ring", "ring", chain, channels=16, chunk=kib(100), overhead_s=0),
    Form("broadcast", "ring", "ring", chain_alone, size=odd, channels=7, chunk=kib(64), cap_Bps=5e9, note="caps"),
    # Trees
    *(Form(op, "tree", "switch", single_tree_on_switch) for op in ("all_reduce", "broadcast", "reduce")),
    *(
        Form(op, "tree", "planes", single_tree_on_switch, size=odd, overhead_s=0, note="odd")
        for op in ("all_reduce", "broadcast", "reduce")
    ),
    *(
        Form(op, "tree", "switch", double_tree_on_switch, EVEN_N, channels=2)
        for op in ("all_reduce", "broadcast", "reduce")
    ),
    Form("broadcast", "tree", "switch", pipelined_tree_on_switch, size=lambda n: 12 * MIB, chunk=kib(512)),
    Form("reduce", "tree", "switch", pipelined_reduce_on_switch, POWERS, size=lambda n: 12 * MIB, chunk=kib(512)),
    *(
        Form(op, "tree", "mesh", tree_on_mesh, size=lambda n: 10 * MIB + 77, chunk=kib(512))
        for op in ("all_reduce", "broadcast", "reduce")
    ),
    Form("all_reduce", "tree", "mesh", tree_on_mesh, size=odd, chunk=kib(300), cap_Bps=9e9, note="cap"),
    # PAT
    *(
        Form(op, "pat", fabric, pat_with(together), chunk=kib(64 * KIB), note="together")
        for op in REDUCED
        for fabric in ("switch", "mesh")
    ),
    *(
        Form(op, "pat", fabric, pat_with(alone), chunk=lambda n: 720720 * 16 // n, note="alone")
        for op in REDUCED
        for fabric in ("planes", "mesh")
    ),
    *(
        Form(
            op, "pat", "switch", pat_with(by_twos), POWERS[1:], size=per_block(3000), chunk=lambda n: 6000, note="twos"
        )
        for op in ("all_gather", "reduce_scatter")
    ),
    *(
        Form(op, "pat", "switch", pat_with(alone), size=per_block(230000), chunk=kib(64), note="passes")
        for op in ("all_gather", "reduce_scatter")
    ),
    Form(
        "all_gather",
        "pat",
        "mesh",
        pat_with(alone, together),
        size=per_block(2**17 + 7),
        chunk=kib(64),
        note="tiny-rest",
    ),
    Form("all_gather", "pat", "switch", pat_with(alone), channels=4, chunk=lambda n: 720720 * 4 // n, note="alone"),
    Form("all_reduce", "pat", "mesh", pat_with(together), channels=2, chunk=kib(64 * KIB), cap_Bps=11e9, note="capped"),
    *(
        Form(op, "pat", "ring", pat_on_ring, chunk=lambda n: 720720 * 16 // n, note="alone")
        for op in ("all_gather", "reduce_scatter")
    ),
    # All pairs and direct
    *(Form("all_reduce", "all_pairs", f, shots(2)) for f in ("switch", "planes", "mesh")),
    *(Form("all_reduce", "all_pairs", f, shots(2), size=odd, note="odd") for f in ("switch", "mesh")),
    Form(
        "all_reduce", "all_pairs", "mesh", shots(2), size=odd_floats, element=4, channels=4, cap_Bps=2e9, note="floats"
    ),
    *(Form(op, "all_pairs", f, shots(1)) for op in REDUCED[1:] for f in ("switch", "mesh")),
    *(Form("all_reduce", "one_shot", f, shots(1, whole=True), size=odd, note="odd") for f in ("switch", "mesh")),
    Form("all_reduce", "one_shot", "planes", shots(1, whole=True), channels=8, cap_Bps=3e9, overhead_s=0),
    *(Form("all_to_all", "direct", f, shots(1)) for f in ("switch", "planes", "mesh")),
    Form("all_to_all", "direct", "mesh", shots(1), channels=4, cap_Bps=7e9, launch_s=LAUNCH_S, note="caps-bind"),
    Form("all_to_all", "direct", "switch", shots(1), channels=2, cap_Bps=3e9, note="caps-bind-up-to-7-ranks"),
    Form("all_to_all", "direct", "ring", direct_on_ring, link_s=0),
    *(Form("all_to_all_v", "direct", "mesh", heaviest_message, matrix=ramp, overhead_s=o) for o in (0, OVERHEAD_S)),
    Form("all_to_all_v", "direct", "switch", hot_port, matrix=hot),
    # Send and receive
    *(Form("send_recv", "neighbour", f, neighbour, size=odd) for f in ("ring", "switch", "planes", "mesh")),
    Form("send_recv", "neighbour", "switch", neighbour, channels=4, cap_Bps=7e9, note="caps-bind"),
    Form("send_recv", "nccl_p2p", "mesh", in_parts, size=lambda n: 8 * MIB + 12345, channels=32, cap_Bps=2e9),
    *(Form("all_to_all", "nccl_p2p", "switch", work, range(2, 9), channels=c) for c in (1, 32)),
]


@functools.cache
def run_on(fabric, n, profile, link_s, efficiency):
    figures = f"bandwidth: 37 GB/s, latency: {link_s * 1e9:g} ns, efficiency: {efficiency}"
    head = "schema: collsim.topology/1, "
    if fabric in FABRICS:
        text = f"{{{head}{FABRICS[fabric]}, gpu: {{count: {n}}}, link: {{{figures}}}}}"
    else:
        nodes = ", ".join(f"{{name: g{i}}}" for i in range(n))
        duplex = "true" if fabric == "both-ways" else "false"
        links = ", ".join(f"{{a: g{i}, b: g{(i + 1) % n}, duplex: {duplex}}}" for i in range(n))
        text = f"{{{head}builder: explicit, link: {{{figures}}}, nodes: [{nodes}], links: [{links}]}}"
    return prepare(parse_topology(text), profile)


BARE = Profile(
    name="closed",
    title="",
    calibrated=False,
    launch_s=0.0,
    message_overhead_s=OVERHEAD_S,
    channel_rate_Bps=math.inf,
    achievable_rate=True,
    latency=True,
    sha256="",
)


def timing_of(row, n):
    profile = replace(BARE, launch_s=row.launch_s, message_overhead_s=row.overhead_s, channel_rate_Bps=row.cap_Bps)
    run = run_on(row.fabric, n, profile, row.link_s, row.efficiency)
    matrix = row.matrix(n) if row.matrix else None
    request = ScheduleRequest(
        op=operation(row.op),
        n_ranks=n,
        size_bytes=row.size(n),
        element_bytes=row.element,
        root=row.root(n),
        channels=row.channels,
        chunk_bytes=row.chunk(n),
        rings=rings_for(run.fabric.peer_links()),
        matrix_bytes=matrix,
    )
    return time_schedule(algorithm(row.op, row.algo).build(request), run)


def error_of(row, n):
    """Relative difference between the simulator and the formula."""
    expected = row.launch_s + row.time(Point(row, n))
    return timing_of(row, n).time_s / expected - 1


@pytest.mark.parametrize("row", FORMS, ids=str)
def test_closed_form(row):
    errors = {n: error_of(row, n) for n in row.n}
    assert {n: error for n, error in errors.items() if abs(error) > TOLERANCE} == {}


@pytest.mark.parametrize("op", REDUCED)
@pytest.mark.parametrize(("times", "overhead_s"), [(1, OVERHEAD_S), (2, 0.0)])
@pytest.mark.parametrize("n", EVERY_N)
def test_balanced_rings_on_a_mesh(op, times, overhead_s, n):
    rings = 1 if n == 2 else (n - 1) * (1 if n % 2 else 2)
    size = 16 * rings * times * n * KIB
    row = Form(
        op,
        "ring",
        "mesh",
        ring_on_mesh,
        size=lambda n: size,
        channels=rings * times,
        chunk=kib(8),
        overhead_s=overhead_s,
    )
    assert abs(error_of(row, n)) <= TOLERANCE


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize("n", ODD_N)
def test_a_chain_on_every_ring_of_an_odd_mesh(op, n):
    """The rings share no link, so each chain is alone."""
    row = Form(op, "ring", "mesh", chain_alone, size=lambda n: 300 * KIB * (n - 1), channels=n - 1, chunk=kib(64))
    assert abs(error_of(row, n)) <= TOLERANCE


SLOW_BPS = 10e9  # of one link; the others have 37e9


def timing_with_a_slow_link(op, algo, text, n, size, chunk):
    run = prepare(parse_topology(text), BARE)
    request = ScheduleRequest(operation(op), n, size, channels=1, chunk_bytes=chunk)
    return time_schedule(algorithm(op, algo).build(request), run).time_s


@pytest.mark.parametrize("n", EVERY_N)
@pytest.mark.parametrize("slow", [0, 1])
def test_a_ring_is_as_slow_as_its_slowest_link_in_every_step(n, slow):
    """The rank before the slow link waits for itself in every step, and nobody takes longer."""
    nodes = ", ".join(f"{{name: g{i}}}" for i in range(n))
    rates = ["10 GB/s" if i == slow else "37 GB/s" for i in range(n)]
    links = ", ".join(f"{{a: g{i}, b: g{(i + 1) % n}, duplex: false, bandwidth: {rates[i]}}}" for i in range(n))
    head = "schema: collsim.topology/1, builder: explicit, link: {latency: 300 ns}"
    text = f"{{{head}, nodes: [{nodes}], links: [{links}]}}"
    chunk = 64 * KIB
    expected = 3 * 2 * (n - 1) * (LINK_S + OVERHEAD_S + chunk / SLOW_BPS)  # 3 loops
    found = timing_with_a_slow_link("all_reduce", "ring", text, n, 3 * n * chunk, chunk)
    assert found == pytest.approx(expected, rel=TOLERANCE, abs=0)


@pytest.mark.parametrize("chunks", [1, 2, 7, 30])
def test_a_parent_sends_a_chunk_to_all_children_before_the_next(chunks):
    """On a mesh of 6 the tree is 0 - 4 - (2 - (1, 3), 5), and the link from 4 to leaf 5 is slow.

    Vertex 4 turns to the next chunk when 5 has this one: the last chunk leaves 4 after chunks - 1 slow ones, and then
    either goes to 5, slowly, or to 2 and on to the leaves 1 and 3.
    """
    links = ", ".join(
        f"{{a: g{a}, b: g{b}, bandwidth: {10 if (a, b) == (4, 5) else 37} GB/s}}"
        for a in range(6)
        for b in range(a + 1, 6)
    )
    nodes = ", ".join(f"{{name: g{i}}}" for i in range(6))
    head = "schema: collsim.topology/1, builder: explicit, link: {latency: 300 ns}"
    text = f"{{{head}, nodes: [{nodes}], links: [{links}]}}"
    chunk = 64 * KIB
    fast, slow = (LINK_S + OVERHEAD_S + chunk / rate for rate in (LANE_BPS, SLOW_BPS))
    expected = fast + (chunks - 1) * slow + max(slow, 2 * fast)
    found = timing_with_a_slow_link("broadcast", "tree", text, 6, chunks * chunk, chunk)
    assert found == pytest.approx(expected, rel=TOLERANCE, abs=0)


def test_the_table_is_what_it_claims():
    assert len({str(row) for row in FORMS}) > 60
    assert sum(row.overhead_s > 0 for row in FORMS) > len(FORMS) / 2
    assert {row.algo for row in FORMS} == {
        "ring", "tree", "pat", "all_pairs", "one_shot", "direct", "neighbour", "nccl_p2p"
    }  # fmt: skip


def test_a_wrong_form_is_noticed():
    """One message too many, one part in a million more bandwidth: the table is sharp enough to see either."""
    row = FORMS[0]
    point = Point(row, 8)
    right = row.time(point)
    assert abs((right + point.wait_s()) / right - 1) > 1e-6
    assert abs(timing_of(row, 8).time_s / (right * (1 + 1e-6)) - 1) > TOLERANCE
