"""Which measurement would tell a constant that the logs at hand do not."""

from __future__ import annotations

from collections import defaultdict

from collsim.calibration.findings import Calibration, Constant

__all__ = ["measurements_for"]

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
SWEEPS = {"messages": "NCCL_MAX_P2P_NCHANNELS=1, 4 and 16"}
SWEEP = "NCCL_MIN_NCHANNELS=NCCL_MAX_NCHANNELS=1, 4 and 16"
RANGES = {
    "base": "-b 8 -e 64K -f 2",
    "message_overhead": "-b 8 -e 1M -f 2, with two numbers of ranks",
    "small_overhead": "-b 8 -e 256K -f 2, with two numbers of ranks",
    "slice_overhead": "-b 256K -e 64M -f 2, with one channel and with all",
    "channel_rate": "-b 1M -e 1G -f 2, with {sweep}",
    "fill_rate": "-b 1M -e 4G -f 2",
    "softness": "-b 64M -e 4G -f 2, with {sweep}",
    "one_way_rate": "-b 1M -e 1G -f 2, and alltoall_perf likewise, with {sweep}",
}
"""Sizes and repetitions that tell a constant apart from the others; the rest of its name stands for its kernel."""
OTHERWISE = "-b 8 -e 4G -f 2"


def measurements_for(calibration: Calibration) -> dict[str, list[str]]:
    """Return commands of nccl-tests with the constants that each would tell, of those not identified yet."""
    found: dict[str, list[str]] = defaultdict(list)
    for constant in calibration.constants:
        if not constant.identified:
            found[_command(constant)].append(constant.name)
    return dict(found)


def _command(constant: Constant) -> str:
    """Return the command that tells a constant."""
    *kernel, key = constant.name.split(".")
    if not kernel:
        return "any test with -b 8 -e 1K"
    family, protocols = kernel[0], kernel[1:]
    variables = [ALGORITHMS[family]] if family in ALGORITHMS else []
    variables += [f"NCCL_PROTO={name}" for name in protocols if family not in ("messages", "nvls")]
    sizes = RANGES.get(key, OTHERWISE).format(sweep=SWEEPS.get(family, SWEEP))
    launch = {"graph": " -G 1", "registered": " -R 1"}.get(constant.launch, "")
    return " ".join([*variables, f"{TESTS.get(family, 'all_reduce_perf')}{launch}", sizes])
