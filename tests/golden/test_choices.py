"""The library's choice against figures that its own debug lines printed, and against published constants.

Four of eight H100 on NVSwitch without NVLS, NCCL 2.28.9, nccl-tests 2.19.6: algorithm, protocol and the last channel of
each size; cost table, channels found by the search and channels of the communicator. Eight MI355X, RCCL 2.28.3 (ROCm
7.2), rccl-tests: the span of channels of all-reduce.
"""

from __future__ import annotations

import pytest

from collsim.library import Call, Choice, Environment, System, choose, read_environment, system_of
from collsim.library.nccl.channels import communicator_channels
from collsim.library.nccl.graphs import nccl_graphs
from collsim.library.nccl.tuner import Setting, bandwidth_GBps, candidates, latency_us
from collsim.library.nccl.versions import nccl_constants
from collsim.topology import load_topology

KIB, MIB = 2**10, 2**20
# From which size on (until the next entry): protocol and channels; the algorithm is ring everywhere.
LOGGED = {
    "all_reduce": (
        (8, "LL", 1), (32 * KIB, "LL", 2), (64 * KIB, "LL", 4), (128 * KIB, "LL", 8), (256 * KIB, "LL", 16),
        (512 * KIB, "LL", 24), (4 * MIB, "LL128", 24), (16 * MIB, "Simple", 24),
    ),
    "all_gather": (
        (64, "LL", 1), (32 * KIB, "LL", 2), (64 * KIB, "LL", 4), (128 * KIB, "LL", 8), (256 * KIB, "LL", 16),
        (512 * KIB, "LL", 22), (MIB, "LL", 24), (4 * MIB, "Simple", 24),
    ),
}  # fmt: skip
LOGGED["reduce_scatter"] = LOGGED["all_gather"]
# Cost table of the same log: latency in us and algorithm bandwidth in GB/s per protocol.
COSTS = {
    ("all_reduce", "tree"): ((10.4, 43.6), (21.5, 128.8), (32.4, 165.6)),
    ("all_reduce", "ring"): ((10.2, 94.0), (25.4, 220.8), (28.8, 240.0)),
    ("all_gather", "ring"): ((8.4, 188.0), (19.7, 441.6), (18.6, 480.0)),
    ("reduce_scatter", "ring"): ((8.4, 188.0), (19.7, 441.6), (18.6, 480.0)),
    ("broadcast", "ring"): ((7.2, 141.0), (15.9, 331.2), (11.8, 360.0)),
    ("reduce", "ring"): ((7.2, 141.0), (15.9, 331.2), (11.8, 360.0)),
}
MI355X_ALL_REDUCE = (1, 1, 1, 2, 4, 8, 16, 16, 32, 52, 52, 54, 56, 56, 222, 222, 223, 224)
"""4 KiB to 512 MiB by factors of two."""
# NCCL 2.30, eight H100 with NVLS: predicted us of ring and tree with LL, LL128, Simple, and of NVLS.
REFERENCE = {
    KIB: (15.01, 40.61, 56.00, 15.23, 31.51, 64.41, 25.00),
    64 * KIB: (15.81, 40.95, 56.32, 17.71, 32.35, 65.06, 25.24),
    MIB: (28.01, 46.14, 61.10, 63.32, 45.07, 77.06, 28.86),
    16 * MIB: (223.23, 129.25, 137.56, 442.96, 176.23, 209.13, 86.68),
    1024 * MIB: (13341.6, 5714.0, 5275.6, 24654.0, 8368.0, 6548.4, 3972.6),
}
COLUMNS = [(algo, proto) for algo in ("ring", "tree") for proto in ("LL", "LL128", "Simple")] + [("nvls", "Simple")]


@pytest.fixture(scope="module")
def h100() -> System:
    return system_of(load_topology("hgx_h100"), nvls=False)


def logged_rows(op: str) -> list[tuple[int, str, int]]:
    """Return (size, protocol, channels) of every size of the log."""
    rows, ranges = [], LOGGED[op]
    for (first, proto, channels), (end, *_) in zip(ranges, [*ranges[1:], (2048 * MIB,)], strict=True):
        rows += [(2**power, proto, channels) for power in range(31) if first <= 2**power < end]
    return rows


def test_the_table_holds_every_size_of_the_logs() -> None:
    assert [len(logged_rows(op)) for op in LOGGED] == [28, 25, 25]


@pytest.mark.parametrize("op", LOGGED)
def test_choices_and_channels_of_h100(op: str, h100: System) -> None:
    for size, proto, channels in logged_rows(op):
        choice = choose(Call(op, 4, size), h100, "nccl-2.28.9")
        assert (choice.algo, choice.proto, choice.channels) == ("ring", proto, channels), size


@pytest.mark.parametrize(("op", "algo"), COSTS)
def test_cost_table_of_h100(op: str, algo: str, h100: System) -> None:
    call = Call(op, 4, MIB)
    setting = Setting(call, h100, nccl_constants((2, 28)), Environment(), nccl_graphs(call, h100), (2, 28))
    for proto, (latency, bandwidth) in enumerate(COSTS[op, algo]):
        assert latency_us(setting, algo, proto) == pytest.approx(latency, abs=0.051)
        assert bandwidth_GBps(setting, algo, proto) == pytest.approx(bandwidth, abs=0.051)


def test_search_and_communicator_of_h100(h100: System) -> None:
    call = Call("all_reduce", 4, MIB)
    ring = nccl_graphs(call, h100)["ring"]
    assert (ring.channels, ring.intra_GBps) == (12, 30.0)
    assert communicator_channels(call, h100, ring, Environment()) == 24
    point_to_point = choose(Call("all_to_all", 4, MIB), h100).point_to_point
    assert point_to_point is not None
    assert (point_to_point.channels, point_to_point.channels_per_peer) == (32, 32)


@pytest.mark.parametrize("size", REFERENCE)
def test_reference_vector_of_eight_h100(size: int) -> None:
    choice = choose(Call("all_reduce", 8, size), system_of(load_topology("hgx_h100")), "nccl-2.30")
    times = {(row.algo, row.proto): row.predicted_s * 1e6 for row in choice.candidates}
    assert [times[column] for column in COLUMNS] == pytest.approx(REFERENCE[size], rel=2e-4, abs=6e-3)
    assert choice.algo == ("nvls" if size >= 16 * MIB else "ring")


TREES_OF_TWO = {
    (2, 21): [(8.0, 61.1), (16.5, 180.6), (56.0, 232.2)],
    (2, 30): [(8.0, 61.1), (16.5, 180.6), (16.4, 232.2)],
}
"""Latency (us) and bandwidth (GB/s) of trees with LL, LL128 and Simple that 2.21.5 and 2.32.3 print on two H200; the
constants of 2.32 are those of 2.30."""


@pytest.mark.parametrize("version", TREES_OF_TWO)
def test_trees_of_two_gpus_have_twice_the_rate_of_rings(version: tuple[int, int]) -> None:
    call, h200 = Call("all_reduce", 2, MIB), system_of(load_topology("hgx_h200"), [0, 1], nvls=False)
    setting = Setting(call, h200, nccl_constants(version), Environment(), nccl_graphs(call, h200), version)
    for proto, (latency, bandwidth) in enumerate(TREES_OF_TWO[version]):
        assert latency_us(setting, "tree", proto) == pytest.approx(latency, abs=0.051)
        assert bandwidth_GBps(setting, "tree", proto) == pytest.approx(bandwidth, abs=0.051)


@pytest.mark.parametrize(
    ("size", "algo", "proto"), [(32, "ring", "LL"), (64, "chain", "Simple"), (4096, "ring", "Simple")]
)
def test_two_h100_with_2_18_leave_lines_at_64_kib(size: int, algo: str, proto: str) -> None:
    """A public log jumps there from 9.4 to 21.6 us."""
    choice = choose(Call("all_reduce", 2, size * 1024), system_of(load_topology("hgx_h100"), [0, 1]), "nccl-2.18")
    assert (choice.algo, choice.proto) == (algo, proto)


def test_nvls_of_eight_h100_runs_on_sixteen_channels() -> None:
    """A public log of H100 prints channels 0 to 15 at 256 MiB."""
    choice = choose(Call("all_reduce", 8, 256 * MIB), system_of(load_topology("hgx_h100")))
    assert (choice.algo, choice.proto, choice.channels) == ("nvls", "Simple", 16)


def test_channels_of_eight_mi355x() -> None:
    system = system_of(load_topology("mi355x_ubb8"))
    choices = [choose(Call("all_reduce", 8, 2**power), system, "rccl-2.28") for power in range(12, 30)]
    assert tuple(choice.channels for choice in choices) == MI355X_ALL_REDUCE
    assert all(choice.algo == "ring" for choice in choices[7:])


@pytest.mark.parametrize(
    ("op", "n_ranks", "boundary_bytes", "parts"),
    [
        ("send_recv", 4, 128 * MIB, (8, 16)),
        ("send_recv", 4, 256 * MIB, (16, 32)),
        ("send_recv", 2, 256 * MIB, (16, 32)),
    ],
)
def test_parts_double_where_measured_rates_jump(
    op: str, n_ranks: int, boundary_bytes: int, parts: tuple[int, int], h100: System
) -> None:
    """Measured on H100 in steps of 1 MiB: 162 to 283, 300 to 344 and 298 to 345 GB/s just above these sizes."""
    found = [choose(Call(op, n_ranks, boundary_bytes + extra), h100).point_to_point for extra in (0, 64 * KIB)]
    assert tuple(shape.parts for shape in found if shape) == parts


@pytest.mark.parametrize(("least", "most"), [("LL", 4 * MIB), ("LL128", 16 * MIB)])
def test_crossovers_lie_within_a_factor_of_two(least: str, most: int, h100: System) -> None:
    def proto(size: int) -> str:
        return choose(Call("all_reduce", 4, size), h100, "nccl-2.28").proto

    sizes = [int(64 * KIB * 2 ** (step / 8)) for step in range(100)]
    last = max(size for size in sizes if proto(size) == least)
    assert most / 2 <= last * 2 ** (1 / 8) <= most * 2


@pytest.mark.parametrize("forced", ["Ring/LL", "Ring/LL128", "Ring/Simple", "Tree/LL", "Tree/LL128", "Tree/Simple"])
def test_forced_choices_are_honoured(forced: str, h100: System) -> None:
    algo, proto = forced.split("/")
    environment = read_environment({"NCCL_ALGO": algo, "NCCL_PROTO": proto})
    choices: list[Choice] = [choose(Call("all_reduce", 4, 2**p), h100, "nccl-2.28", environment) for p in range(3, 31)]
    assert {(choice.library_algo, choice.proto) for choice in choices} == {(algo.upper(), proto)}


@pytest.mark.parametrize("channels", [1, 2, 4, 8, 16, 24])
def test_fixed_channels_are_honoured(channels: int, h100: System) -> None:
    text = str(channels)
    environment = read_environment({"NCCL_MIN_NCHANNELS": text, "NCCL_MAX_NCHANNELS": text})
    assert choose(Call("all_reduce", 4, 64 * MIB), h100, "nccl-2.28", environment).channels == channels


@pytest.mark.parametrize("channels", [1, 2, 4, 8, 16, 32])
def test_fixed_p2p_channels_are_honoured(channels: int, h100: System) -> None:
    text = str(channels)
    environment = read_environment({"NCCL_MIN_P2P_NCHANNELS": text, "NCCL_MAX_P2P_NCHANNELS": text})
    choice = choose(Call("send_recv", 4, 1024 * MIB), h100, "nccl-2.28", environment)
    assert choice.channels == channels


def test_candidates_are_sorted(h100: System) -> None:
    call = Call("all_reduce", 4, MIB)
    setting = Setting(call, h100, nccl_constants((2, 28)), Environment(), nccl_graphs(call, h100), (2, 28))
    times = [row.predicted_s for row in candidates(setting, 24)]
    assert times == sorted(times)
