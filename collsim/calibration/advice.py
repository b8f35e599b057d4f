"""Advice: the measurement that would tell a constant which the logs at hand do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from collsim.calibration.findings import Calibration, Constant, Residual
from collsim.core.units import parse_size_bytes

__all__ = ["Advice", "measurements_for"]

TESTS = {
    "ring": "all_reduce_perf",
    "chain": "all_reduce_perf",
    "nvls": "all_reduce_perf",
    "direct": "all_reduce_perf",
    "all_pairs": "all_reduce_perf",
    "rooted": "broadcast_perf",
    "messages": "sendrecv_perf",
}
ALGORITHMS = {"ring": "NCCL_ALGO=Ring", "chain": "NCCL_ALGO=Tree", "nvls": "NCCL_ALGO=NVLS"}
OVER_NODES = {"nvls": "NCCL_ALGO=NVLSTree"}
UNASKED = ("messages", "nvls")
"""Kernels whose protocol is not for the user to choose."""
SWEEPS = {"messages": "NCCL_MAX_P2P_NCHANNELS=1, 4 and 16"}
SWEEP = "NCCL_MIN_NCHANNELS=NCCL_MAX_NCHANNELS=1, 4 and 16"


class Sizes(NamedTuple):
    """Sizes and repetitions that tell a constant apart from the others.

    Attributes
    ----------
    least, most : str
        Sizes as nccl-tests takes them.
    ranks, sweep : bool
        With two numbers of ranks; with several numbers of channels.
    words : str
        How the command line goes on.
    ops : tuple of str
        Operations that are all needed; empty if any will do.
    """

    least: str
    most: str
    ranks: bool = False
    sweep: bool = False
    words: str = ""
    ops: tuple[str, ...] = ()


RANKS = ", with two numbers of ranks"
RANGES = {
    "base": Sizes("8", "64K"),
    "threads_overhead": Sizes("8", "256K"),
    "exchange_overhead": Sizes("8", "256K", ops=("all_gather", "reduce_scatter")),
    "last_channel_overhead": Sizes("8", "1M", sweep=True, words=", with {sweep}"),
    "message_overhead": Sizes("8", "1M", ranks=True, words=RANKS),
    "turn": Sizes("256K", "64M", ranks=True, words=", with two numbers of GPUs a node"),
    "small_overhead": Sizes("8", "256K", ranks=True, words=RANKS),
    "slice_overhead": Sizes("256K", "64M", sweep=True, words=", with one channel and with all"),
    "channel_rate": Sizes("1M", "1G", sweep=True, words=", with {sweep}"),
    "fill_rate": Sizes("1M", "4G"),
    "softness": Sizes("64M", "4G", sweep=True, words=", with {sweep}"),
    "one_way_rate": Sizes(
        "1M", "1G", sweep=True, words=", and alltoall_perf likewise, with {sweep}", ops=("send_recv", "all_to_all")
    ),
}
"""By constant; the rest of its name stands for its kernel."""
OTHERWISE = Sizes("8", "4G")
FLOOR = Sizes("8", "1K")
NEAR = 4
"""A log whose sizes begin or end within this factor of those of a test counts as that test (chosen)."""


class Advice(NamedTuple):
    """Measurements for constants that are not identified.

    Attributes
    ----------
    commands : dict of str to list of str
        Commands of nccl-tests with the constants that each would tell.
    measured : list of str
        Constants whose measurements are among the logs already.
    """

    commands: dict[str, list[str]]
    measured: list[str]


def measurements_for(calibration: Calibration) -> Advice:
    """Return the measurements that would tell what is not identified, and what such measurements left open."""
    commands: dict[str, list[str]] = defaultdict(list)
    measured = []
    algorithms = {**ALGORITHMS, **(OVER_NODES if calibration.over_nodes else {})}
    for constant in calibration.constants:
        if constant.identified:
            continue
        if _is_measured(constant, calibration.residuals):
            measured.append(constant.name)
        else:
            commands[_command(constant, algorithms)].append(constant.name)
    return Advice(dict(commands), measured)


def _test(constant: Constant) -> Sizes:
    """Return the test that tells a constant."""
    return FLOOR if constant.name == "floor" else RANGES.get(constant.name.rpartition(".")[2], OTHERWISE)


def _kernel(constant: Constant) -> tuple[str, list[str]]:
    """Return the family of a constant, empty for the floor, and its protocol where one can ask the library for it."""
    family, *protocols = constant.name.split(".")[:-1] or [""]
    return family, [] if family in UNASKED else protocols


def _is_measured(constant: Constant, residuals: Sequence[Residual]) -> bool:
    """Return True if fitted rows cover the test that tells a constant, for each of its operations."""
    test, (kernel, protocols) = _test(constant), _kernel(constant)
    rows = [
        entry
        for entry in residuals
        if entry.launch == constant.launch
        and kernel in ("", entry.family)
        and entry.proto in (protocols or [entry.proto])
    ]
    by_op = [[entry for entry in rows if entry.op == op] for op in test.ops] or [rows]
    return all(_holds(test, some) for some in by_op)


def _holds(test: Sizes, rows: Sequence[Residual]) -> bool:
    """Return True if rows of one kernel span the sizes of a test, on as many numbers of ranks as it asks for."""
    sizes: dict[int, list[int]] = defaultdict(list)
    for entry in rows if not test.sweep else _swept(rows):
        sizes[entry.ranks].append(entry.size_bytes)
    least, most = parse_size_bytes(test.least) * NEAR, parse_size_bytes(test.most) / NEAR
    reaching = [ranks for ranks, found in sizes.items() if min(found) <= least and max(found) >= most]
    return len(reaching) >= (2 if test.ranks else 1)


def _swept(rows: Sequence[Residual]) -> Iterator[Residual]:
    """Yield the rows of cases that ran on more than one number of channels."""
    channels: dict[tuple[str, int, int], set[int | None]] = defaultdict(set)
    for entry in rows:
        channels[entry.op, entry.ranks, entry.size_bytes].add(entry.channels)
    yield from (entry for entry in rows if len(channels[entry.op, entry.ranks, entry.size_bytes]) > 1)


def _command(constant: Constant, algorithms: Mapping[str, str]) -> str:
    """Return the command that tells a constant."""
    test, (family, protocols) = _test(constant), _kernel(constant)
    if not family:
        return f"any test with -b {test.least} -e {test.most}"
    variables = [algorithms[family]] if family in algorithms else []
    variables += [f"NCCL_PROTO={name}" for name in protocols]
    sizes = f"-b {test.least} -e {test.most} -f 2{test.words.format(sweep=SWEEPS.get(family, SWEEP))}"
    launch = {"graph": " -G 1", "registered": " -R 1"}.get(constant.launch, "")
    return " ".join([*variables, f"{TESTS.get(family, 'all_reduce_perf')}{launch}", sizes])
