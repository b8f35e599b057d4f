"""RCCL on one board and over several: channels, graphs and latencies by hand from its tables, and limits by size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collsim.core.operations import operation
from collsim.library import Call, Candidate, System, load_library, read_environment, system_of
from collsim.library.calls import LL, LL128, SIMPLE
from collsim.library.rccl import across, board
from collsim.library.rccl.tables import MODELS
from collsim.topology import load_topology

KIB, MIB = 2**10, 2**20
UNSET = read_environment()


@pytest.fixture(scope="module")
def mi300x() -> System:
    return system_of(load_topology("mi300x_ubb8"))


@pytest.fixture(scope="module")
def mi355x() -> System:
    return system_of(load_topology("mi355x_ubb8"))


def call(op: str, nodes: int, size: int, g: int = 8) -> Call:
    n = nodes * g
    return Call(op, n, size // (16 * n) * 16 * n if operation(op).blocked else size, n_nodes=nodes)


def test_channels_of_one_board(mi300x: System, mi355x: System) -> None:
    """Tables for 2, 4 and 8 ranks; eight for each other rank between them."""
    library = load_library("rccl-2.27")

    def channels(system: System, op: str, n: int, name: str = "rccl-2.27", size: int = MIB) -> int:
        return board.channels_of(Call(op, n, size), system, load_library(name), UNSET)

    assert [channels(mi300x, "all_reduce", n) for n in range(2, 9)] == [32, 16, 24, 32, 40, 48, 56]
    assert [channels(mi355x, "all_reduce", n) for n in (2, 3, 4, 8)] == [32, 16, 24, 56]
    assert [channels(mi355x, "all_gather", 8, f"rccl-2.{minor}") for minor in (25, 26, 28)] == [56, 112, 112]
    assert [channels(mi355x, "all_gather", n, "rccl-2.28") for n in (4, 7)] == [24, 48]
    # four channels in each CTA from 64 MiB on, since 2.28
    sizes = [channels(mi355x, "all_reduce", 8, "rccl-2.28", size) for size in (64 * MIB - 4, 64 * MIB)]
    assert sizes == [56, 224]
    assert channels(mi355x, "all_reduce", 8, "rccl-2.27", 64 * MIB) == 56
    few = read_environment({"NCCL_MAX_NCHANNELS": 12})
    assert board.channels_of(Call("all_reduce", 8, MIB), mi300x, library, few) == 12


def test_channels_over_boards(mi300x: System, mi355x: System) -> None:
    """Eight for each adapter, at most 64; gfx950 48 since 2.30."""

    def channels(system: System, g: int, name: str = "rccl-2.28") -> int:
        return across.channels_of(call("all_reduce", 4, MIB, g), system, load_library(name))

    assert [channels(mi300x, g) for g in (1, 2, 7, 8)] == [8, 16, 56, 64]
    assert [channels(mi355x, 8, name) for name in ("rccl-2.28", "rccl-2.29")] == [64, 64]
    assert across.ACROSS_MAX_CHANNELS == 64


def test_graphs_over_boards(mi300x: System) -> None:
    """What goes through the slower of links and adapters, each of these at most 48 GB/s behind PCIe 5."""
    asked = call("all_reduce", 4, MIB)
    graph = across.graph_of(asked, mi300x, 32)
    assert (graph.channels, graph.same_order) == (32, False)
    inside = 7 * 48.0  # seven links of 48 by the library's reckoning
    assert graph.inter_GBps == pytest.approx(8 * 48 / 32)  # 50 GB/s adapters
    assert graph.intra_GBps == pytest.approx(inside / 32)  # less than 8 * 48
    slow = across.graph_of(asked, replace(mi300x, nic_GBps=25.0), 32)
    assert (slow.intra_GBps, slow.inter_GBps) == pytest.approx((25 * 8 / 32,) * 2)
    # two adapters of 50 for each GPU, 48 of each: more than the links
    two = across.graph_of(asked, replace(mi300x, nic_GBps=100.0, nics_per_gpu=2), 32)
    assert (two.intra_GBps, two.inter_GBps) == pytest.approx((inside / 32, 2 * 48 * 8 / 32))
    halves = across.graph_of(asked, replace(mi300x, nic_GBps=50.0, nics_per_gpu=2), 32)
    assert halves.inter_GBps == pytest.approx(50 * 8 / 32)  # two of 25 are not held back
    unknown = across.graph_of(asked, replace(mi300x, nic_GBps=0.0), 32)
    assert unknown.intra_GBps == unknown.inter_GBps == pytest.approx(inside / 32)
    alone = across.graph_of(call("all_reduce", 4, MIB, 1), mi300x, 4)
    assert (alone.intra_GBps, alone.inter_GBps) == (12.0, 12.0)


@pytest.mark.parametrize(
    ("op", "algo", "proto", "hops_us"),
    [
        # us of gfx942, inside and outside: rings 0.8/0.8/2.1 and 9.5/9.5/320, trees 0.9/0.9/2.3 and 10.5/10.5/25;
        # a step of a ring takes what the host of EPYC needs to post it: 2 us, three times that with Simple
        ("all_reduce", "ring", SIMPLE, 56 * 6 + 6 * 320),  # 2 * 31 steps, 2 * 3 of them between boards
        ("all_reduce", "ring", LL, 56 * 2 + 6 * 9.5),
        ("all_gather", "ring", SIMPLE, 28 * 6 + 3 * 320),
        ("reduce_scatter", "ring", LL128, 28 * 2 + 3 * 9.5),
        ("broadcast", "ring", SIMPLE, 32 * 25),
        ("reduce", "ring", LL, 32 * 9.5),
        ("all_reduce", "tree", SIMPLE, 2 * (7 * 2.3 + 2 * 25)),  # seven hops inside, log2 of four boards, up and down
        ("all_reduce", "tree", LL, 2 * (7 * 0.9 + 2 * 10.5)),
    ],
)
def test_latencies_over_four_boards(mi300x: System, op: str, algo: str, proto: int, hops_us: float) -> None:
    epyc, way = replace(mi300x, cpu_vendor="amd"), (algo, proto)
    assert across.hops_us(call(op, 4, MIB), epyc, UNSET, MODELS[5], way) == pytest.approx(hops_us, rel=1e-12)


def test_a_user_names_what_a_post_takes(mi300x: System) -> None:
    asked, way = call("all_gather", 4, MIB), ("ring", LL)
    for vendor, words, post_us in (("intel", {}, 1.0), ("amd", {"NCCL_NET_OVERHEAD": 5000}, 5.0)):
        system = replace(mi300x, cpu_vendor=vendor)
        found = across.hops_us(asked, system, read_environment(words), MODELS[5], way)
        assert found == pytest.approx(28 * post_us + 3 * 9.5, rel=1e-12)


@pytest.mark.parametrize(
    ("op", "algo", "proto", "latency_us"),
    [
        # 12 us and 17 us with Simple; 0.8/0.8/2.1 for a step of a ring, 0.9/0.9/2.3 for one of a tree
        ("all_reduce", "ring", "Simple", 17 + 14 * 2.1),
        ("all_reduce", "ring", "LL", 12 + 14 * 0.8),
        ("all_gather", "ring", "Simple", 17 + 7 * 2.1),
        ("reduce_scatter", "ring", "LL128", 12 + 7 * 0.8),
        ("broadcast", "ring", "Simple", 17 + 8 * 2.3),
        ("reduce", "ring", "LL", 12 + 8 * 0.8),
        ("all_reduce", "tree", "LL", 12 + 14 * 0.9),
    ],
)
def test_latencies_on_one_board(mi300x: System, op: str, algo: str, proto: str, latency_us: float) -> None:
    rows = board.candidates(call(op, 1, 64 * MIB), mi300x, load_library("rccl-2.22"), UNSET)
    (row,) = (row for row in rows if (row.algo, row.proto) == (algo, proto))
    assert row.latency_s * 1e6 == pytest.approx(latency_us, rel=1e-12)
    assert row.predicted_s == pytest.approx(row.latency_s + 64 * MIB / row.bandwidth_Bps, rel=1e-12)
    assert [row.predicted_s for row in rows] == sorted(row.predicted_s for row in rows)


def test_trees_with_simple_are_for_several_boards(mi300x: System) -> None:
    def protocols(nodes: int, version: str) -> set[tuple[str, str]]:
        rows = board.candidates(call("all_reduce", nodes, 64 * MIB), mi300x, load_library(version), UNSET)
        return {(row.algo, row.proto) for row in rows}

    every = {(algo, proto) for algo in ("tree", "ring") for proto in ("LL", "LL128", "Simple")}
    assert protocols(2, "rccl-2.23") == every
    assert protocols(1, "rccl-2.22") == every - {("tree", "Simple")}
    assert protocols(2, "rccl-2.22") == {(algo, proto) for algo, proto in every if proto != "LL128"}


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        # what is rated fastest from 32 MiB to 1 GiB, and with which protocol in the end
        ("mi300x", "rccl-2.22", "tree/Simple " * 4 + "ring/Simple " * 2),
        ("mi300x", "rccl-2.26", "tree/Simple " * 2 + "ring/Simple " * 4),
        ("mi355x", "rccl-2.26", "tree/Simple " * 3 + "ring/Simple " * 3),
        ("mi355x", "rccl-2.27", "tree/LL128 ring/LL128 " + "ring/Simple " * 4),
    ],
)
def test_all_reduces_over_two_boards_by_release(
    mi300x: System, mi355x: System, name: str, version: str, found: str
) -> None:
    """Tables of 2.22, of 2.23 to 2.26 and since; the first were those of a public log of two MI300X boards."""
    system, library = {"mi300x": mi300x, "mi355x": mi355x}[name], load_library(version)

    def chosen(size: int) -> str:
        asked = call("all_reduce", 2, size)
        rows = across.by_size(board.candidates(asked, system, library, UNSET), asked, system, library, UNSET)
        return f"{rows[0].algo}/{rows[0].proto}"

    assert " ".join(chosen(MIB << k) for k in range(5, 11)) == found.strip()


def test_limits_by_size_came_later(mi300x: System, mi355x: System) -> None:
    rows = tuple(Candidate("ring", proto, 0.0, 1.0, 1.0) for proto in ("Simple", "LL", "LL128"))

    def proto(system: System, op: str, per_rank: int, version: str) -> str:
        asked = replace(call(op, 2, MIB), size_bytes=per_rank * (16 if operation(op).blocked else 1))
        return across.by_size(rows, asked, system, load_library(version), UNSET)[0].proto

    sizes = (MIB, MIB + 1, 9437184, 9437185)
    assert [proto(mi300x, "all_reduce", size, "rccl-2.26") for size in sizes] == ["LL", "LL128", "LL128", "Simple"]
    assert [proto(mi300x, "all_reduce", size, "rccl-2.22") for size in sizes] == ["Simple"] * 4
    gathers = [proto(mi355x, "all_gather", size, "rccl-2.26") for size in (7, 8, 8 * MIB, 8 * MIB + 1)]
    assert gathers == ["LL", "LL128", "LL128", "Simple"]
    scatters = [proto(mi355x, "reduce_scatter", size, "rccl-2.26") for size in (131071, 131072, 4 * MIB + 1)]
    assert scatters == ["LL", "LL128", "Simple"]


@pytest.mark.parametrize(
    ("name", "op", "low", "above", "high"),
    [
        ("mi300x", "reduce_scatter", 655360, 131072, 3211264),
        ("mi300x", "all_gather", 98304, 98304, 5046272),
        ("mi300x", "all_reduce", 524288, 524288, 4415057),
        ("mi300x", "reduce", 4096, 4096, 16 * MIB),
        ("mi300x", "broadcast", 8192, 8192, 32 * MIB),
        ("mi355x", "reduce_scatter", 65536, 65536, 8 * MIB),
        ("mi355x", "all_gather", 65536, 65536, 8 * MIB),
        ("mi355x", "all_reduce", 262144, 262144, 70640910),
        ("mi355x", "reduce", 16383, 16383, 16 * MIB),
        ("mi355x", "broadcast", 2048, 2048, 16 * MIB),
    ],
)
def test_protocols_by_bytes_of_a_rank(
    mi300x: System, mi355x: System, name: str, op: str, low: int, above: int, high: int
) -> None:
    """LL up to *low*, LL128 beyond *above* and up to *high*, then Simple (src/graph/tuning.cc)."""
    system, present = {"mi300x": mi300x, "mi355x": mi355x}[name], load_library("rccl-2.27")
    rows = tuple(Candidate("ring", proto, 0.0, 1.0, 1.0) for proto in ("Simple", "LL", "LL128"))

    def proto(per_rank: int, nodes: int = 2, **variables: str) -> str:
        factor = 8 * nodes if operation(op).blocked else 1
        asked = replace(call(op, nodes, MIB), size_bytes=per_rank * factor)
        return across.by_size(rows, asked, system, present, read_environment(variables))[0].proto

    first = min(low, above)
    assert [proto(first), proto(above + 1), proto(high)] == ["LL", "LL128", "LL128"]
    assert proto(high + 1) == "Simple"
    assert proto(4, NCCL_PROTO="Simple") == "Simple"
    many = int(high * (3.8 if op == "all_reduce" else 1))
    assert [proto(many, nodes=4), proto(many + 1, nodes=4)] == ["LL128", "Simple"]
    large = replace(call(op, 2, MIB), size_bytes=2**34)
    assert across.by_size(rows[::-1], large, system, present, UNSET)[1:] == rows[2:0:-1]


@pytest.mark.parametrize(
    ("op", "steps"),
    [
        ("reduce_scatter", {1: 2, 2: 4, 4: 8, 64: 16, 256: 32, 512: 40, 1024: 56}),
        ("all_gather", {4: 2, 8: 4, 16: 8, 256: 16, 512: 32, 1024: 40, 4096: 56}),
    ],
)
def test_channels_by_bytes_of_a_rank(mi300x: System, mi355x: System, op: str, steps: dict[int, int]) -> None:
    """Up to so many KiB of a rank so many channels, beyond them 64; at most eight for each GPU of a board."""

    def channels(per_rank: int, system: System, g: int = 8) -> int | None:
        asked = replace(call(op, 2, MIB, g), size_bytes=per_rank * 2 * g)
        return across.channels_by_size(asked, system, load_library("rccl-2.27"))

    above = [*steps.values(), 64][1:]
    for (limit, found), beyond in zip(steps.items(), above, strict=True):
        assert [channels(limit * KIB, mi355x), channels(limit * KIB + 1, mi355x)] == [found, beyond]
    assert channels(2**30, mi355x, g=2) == 16
    assert channels(KIB, mi300x) is None
    assert across.channels_by_size(call("all_reduce", 2, MIB), mi355x, load_library("rccl-2.27")) is None
    assert across.channels_by_size(call(op, 2, MIB), mi355x, load_library("rccl-2.26")) is None


@pytest.mark.parametrize(
    ("op", "library", "size", "backend"),
    [
        ("all_reduce", "rccl-2.27", 256 * KIB, "msccl"),
        ("all_reduce", "rccl-2.27", 16 * MIB, "msccl"),
        ("all_reduce", "rccl-2.27", 32 * MIB, None),
        ("all_reduce", "rccl-2.28", MIB, None),
        ("all_to_all", "rccl-2.27", MIB, None),
    ],
)
def test_schedules_of_msccl_on_mi355x(mi355x: System, op: str, library: str, size: int, backend: str | None) -> None:
    """Its all-reduce, as release notes of 2.27.7 say; 2.28 printed rings."""
    found = board.backend_of(Call(op, 8, size), mi355x, load_library(library), UNSET)
    assert (found and found.name) == backend


@pytest.mark.parametrize(
    ("n", "nodes", "mi300x_KiB", "mi355x_KiB", "mi300x_relays", "mi355x_relays"),
    [
        (8, 2, 128, 128, False, False),
        (15, 3, 128, 128, False, False),
        (16, 2, 128, 256, False, False),
        (30, 5, 128, 256, False, False),
        (32, 4, 128, 512, False, True),
        (63, 9, 128, 512, False, True),
        (64, 8, 512, 512, True, True),
    ],
)
def test_messages_between_boards_by_ranks(
    mi300x: System, mi355x: System, n: int, nodes: int, mi300x_KiB: int, mi355x_KiB: int, mi300x_relays: bool,
    mi355x_relays: bool,
) -> None:  # fmt: skip
    """Slots of a connection and PXN, on both sides of each number of ranks where they change (src/init.cc)."""
    asked = Call("all_to_all", n, n * MIB, n_nodes=nodes)
    assert across.p2p_step_bytes(asked, mi300x) == mi300x_KiB * KIB
    assert across.p2p_step_bytes(asked, mi355x) == mi355x_KiB * KIB
    assert (across.relays(asked, mi300x), across.relays(asked, mi355x)) == (mi300x_relays, mi355x_relays)


@pytest.mark.parametrize(
    ("library", "backend", "mi300x_MiB", "mi355x_MiB"),
    [
        ("rccl-2.28", "direct", {"all_gather": 4}, {"all_gather": 8}),
        (
            "rccl-2.29",
            "dda",
            {"all_reduce": 8, "all_gather": 8, "reduce_scatter": 8, "all_to_all": 4},
            {"all_reduce": 128, "all_gather": 128, "reduce_scatter": 128, "all_to_all": 4},
        ),
    ],
)
def test_what_one_board_runs_before_ring_and_tree(
    mi300x: System, mi355x: System, library: str, backend: str, mi300x_MiB: dict[str, int], mi355x_MiB: dict[str, int]
) -> None:
    """Up to which size peers are written to or read directly, whole: every operation on both boards, on either side."""
    for system, limits in ((mi300x, mi300x_MiB), (mi355x, mi355x_MiB)):
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
            limit = limits.get(op, 0) * MIB
            for size, expected in ((limit, backend if limit else None), (limit + 64, None)):
                found = board.backend_of(Call(op, 8, size or 64), system, load_library(library), UNSET)
                assert (found and found.name) == expected, (op, size)
                assert found is None or f"up to {limit // MIB} MiB" in found.why


def test_schedules_of_msccl_on_mi300x(mi300x: System) -> None:
    """Every schedule up to its last byte, and the next one behind it (tools/msccl-algorithms)."""
    steps = {
        "all_reduce": [(64 * KIB, LL, 4), (512 * KIB - 2048, LL, 8), (16 * MIB, SIMPLE, 8)],
        "all_to_all": [(9 * KIB, LL, 1), (190 * KIB, LL, 2), (512 * KIB, LL, 4), (7 * MIB, SIMPLE, 32),
                       (43 * MIB, SIMPLE, 8)],
    }  # fmt: skip
    for op, rows in steps.items():
        for (limit, proto, channels), beyond in zip(rows, [*(row[1:] for row in rows[1:]), None], strict=True):
            found, after = (
                board.backend_of(Call(op, 8, size), mi300x, load_library("rccl-2.27"), UNSET)
                for size in (limit, limit + 2048)
            )
            assert found is not None, (op, limit)
            assert (found.name, found.proto, found.channels) == ("msccl", proto, channels), (op, limit)
            assert (after and (after.proto, after.channels)) == beyond, (op, limit)
