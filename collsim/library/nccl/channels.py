"""Channels of a call: how many, what each carries, and with how many threads (NCCL src/enqueue.cc)."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.library.calls import LL, LL128, SIMPLE, Call
from collsim.library.environment import THREADS, UNSET, WARP, Environment, threads_taken
from collsim.library.system import Graph, System
from collsim.schedule.message_parts import MAX_CHANNELS

__all__ = ["Launch", "communicator_channels", "deal", "launch", "max_threads", "nvls_channels", "thread_bytes"]

MAX_THREADS = 640
SLOW_RING_THREADS, SLOW_RING_GBPS = 256, 12.0
THREAD_BYTES = {LL: 8, LL128: 8, SIMPLE: 64}
"""Bytes per thread below which a channel or half of the threads is given up (NCCL src/include/comm.h)."""
COLLNET_THREAD_BYTES = 512
LEAST_THREADS = 3 * WARP
HALVED_WHILE_MULTIPLE_OF = 128
LL_TRAFFIC = 4
"""LL counts this much more traffic when bytes are dealt out."""
NVLS_CHANNELS = {"hopper": (16, 16), "blackwell": (24, 32)}
"""On one domain, on several (NCCL src/transport/nvls.cc)."""
FEW_CHANNELS, FAST_CHANNEL_GBPS = 16, 45


@dataclass(frozen=True, slots=True)
class Launch:
    """Channels and threads of one call."""

    channels: int
    threads: int


def communicator_channels(call: Call, system: System, graph: Graph, environment: Environment) -> int:
    """Return the channels of a communicator: the search's, twice, then the user's bounds (src/graph/connect.cc)."""
    channels = min(2 * graph.channels, MAX_CHANNELS)
    fast = system.architecture in ("hopper", "blackwell") and graph.intra_GBps > FAST_CHANNEL_GBPS
    if call.n_nodes > 1 and fast and channels < FEW_CHANNELS:
        channels *= 2
    return bounded(channels, environment, MAX_CHANNELS)


def bounded(channels: int, environment: Environment, limit: int) -> int:
    """Apply NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS, then the minima."""
    most = min(environment.number("NCCL_MAX_NCHANNELS", limit), environment.number("NCCL_MAX_CTAS", limit), limit)
    least = max(environment.number("NCCL_MIN_NCHANNELS", 1), environment.number("NCCL_MIN_CTAS", 1))
    return min(max(min(channels, max(most, 1)), least), limit)


def nvls_channels(call: Call, system: System, environment: Environment) -> int:
    """Return the channels of NVLS; NCCL_MIN_NCHANNELS and its twin do not touch them."""
    usual = NVLS_CHANNELS[system.architecture][call.n_nodes > 1]
    channels = environment.number("NCCL_NVLS_NCHANNELS", usual)
    most = environment.number("NCCL_MAX_CTAS", MAX_CHANNELS)
    return max(environment.number("NCCL_MIN_CTAS", 1), min(most, channels))


def max_threads(algo: str, proto: int, ring: Graph, environment: Environment) -> int:
    """Return the most threads of a CTA (src/graph/tuning.cc); 0 for PAT, which is never cut down."""
    if algo == "pat":
        return 0
    if algo not in ("ring", "tree"):
        return MAX_THREADS
    if proto == LL128:
        return _threads("NCCL_LL128_NTHREADS", environment)
    slow = algo == "ring" and proto == SIMPLE and ring.channels * ring.intra_GBps <= SLOW_RING_GBPS
    return _threads("NCCL_NTHREADS", environment, SLOW_RING_THREADS if slow else 0)


def _threads(name: str, environment: Environment, usual: int = 0) -> int:
    """Return the threads that the user asked for, as the library corrects them; else the usual ones, or the most."""
    given = environment.number(name, UNSET)
    return threads_taken(name, given) if given > 0 else usual or THREADS[name][1]


def thread_bytes(algo: str, proto: int, n_ranks: int) -> int:
    """Return the bytes per thread below which a call is spread over less."""
    if algo.startswith("collnet"):
        return COLLNET_THREAD_BYTES
    return THREAD_BYTES[proto] * (n_ranks if algo == "ring" and proto == LL else 1)


def launch(size_bytes: int, algo: str, proto: int, *, channels: int, threads: int, per_thread: int) -> Launch:
    """Return the channels and threads that a size deserves: first fewer channels, then fewer threads.

    >>> launch(65536, "ring", SIMPLE, channels=24, threads=512, per_thread=64)
    Launch(channels=2, threads=544)
    """
    if algo not in ("nvls", "nvls_tree"):
        while channels >= 2 and size_bytes < channels * threads * per_thread:
            channels -= 1
        while size_bytes < channels * threads * per_thread and threads % HALVED_WHILE_MULTIPLE_OF == 0:
            threads //= 2
    if proto == SIMPLE and algo == "ring":
        threads += WARP
    if algo in ("tree", "pat"):
        threads = MAX_THREADS
    return Launch(channels, max(threads // WARP * WARP, LEAST_THREADS))


def deal(
    call: Call, proto: int, channels: int, communicator: int, cell_traffic_bytes: int, *, rounded: bool
) -> tuple[int, ...]:
    """Return the bytes that each channel carries: of the whole buffer, or of every rank's block.

    Bytes are dealt in cells of equal traffic, so that the last channels may get less, or nothing (src/enqueue.cc,
    scheduleCollTasksToPlan).

    Parameters
    ----------
    call : Call
    proto : int
    channels : int
        What the size deserves.
    communicator : int
        What the communicator has.
    cell_traffic_bytes : int
        0: evenly.
    rounded : bool
        The traffic of a channel is rounded up to 16 bytes; otherwise it is at least one cell.

    Examples
    --------
    >>> len(deal(Call("all_gather", 4, 524288), LL, 24, 24, 16384, rounded=False))
    22
    """
    element = 1 if call.op in ("all_gather", "broadcast") else call.element_bytes
    buffer = call.buffer_bytes // element * element
    if buffer == 0:
        return (0,)
    if cell_traffic_bytes == 0:
        grains, rest = divmod(buffer // element, channels)
        shares = [(grains + (channel < rest)) * element for channel in range(channels)]
        return tuple(share for share in shares if share)
    per_byte = {"all_reduce": 2, "all_gather": call.n_ranks, "reduce_scatter": call.n_ranks}.get(call.op, 1)
    per_byte *= LL_TRAFFIC if proto == LL else 1
    cell = _up(-(-cell_traffic_bytes // per_byte), 16)
    traffic = max(buffer * per_byte, cell_traffic_bytes) // channels
    traffic = _up(traffic, 16) if rounded else max(traffic, cell_traffic_bytes)
    cells = -(-buffer // cell)
    first, middle, each, last = _cells(cells, -(-traffic // (cell * per_byte)), communicator)
    shares = [first, *[each] * middle, *([last] if last else [])]
    size = cell // element * element
    bytes_of = [share * size for share in shares]
    bytes_of[-1] -= cells * size - buffer
    return tuple(bytes_of)


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain


def _cells(cells: int, per_channel: int, communicator: int) -> tuple[int, int, int, int]:
    """Return the cells of the first channel, how many middle ones there are, theirs, and those of the last."""
    each = min(cells, per_channel)
    first = cells if communicator == 1 else each
    middle, last = divmod(cells - first, each)
    if communicator < 1 + middle + (last > 0):
        middle = communicator - 2
        each, rest = divmod(cells - first, middle + 1)
        last = each + rest
    if last == 0 and middle:
        middle, last = middle - 1, each
    return first, middle, each, last
