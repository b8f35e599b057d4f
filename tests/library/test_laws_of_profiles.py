"""Every algorithm with every family of constants: the checks that are always on find nothing, whatever is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from collsim import simulate
from collsim.collectives import algorithms_for
from collsim.core.operations import OPERATIONS
from collsim.core.units import parse_bandwidth_Bps, parse_time_s
from collsim.library import load_profile

from ..property.depth import deep_but

PROFILES = {"hgx_h100": "hgx_h100", "mi300x_ubb8": "mi300x_ubb8", "dgx2_v100": "dgx2_v100"}
SIZES = {"tiny": 256, "middle": 300_000, "large": 2**26}
OPS = [op for op in OPERATIONS if algorithms_for(op)]
PROFILE_FILES = Path(__file__).parents[2] / "collsim/library/costs/profiles"
ENDS = (1.0, 0.95, 20e-6)
"""Most that fits let a share, the contention, and a time between nodes be."""
LAUNCHES = ({}, {"launch": "graph"}, {"registered": True})


def request_of(op, ranks, size):
    """Return operation and size as `simulate` takes them; an uneven byte matrix for all_to_all_v."""
    if op != "all_to_all_v":
        return {"op": op, "size": size, "ranks": ranks}
    block = size // ranks
    return {"op": op, "matrix": [[(block * (a + 2 * b)) % (2 * block) for b in range(ranks)] for a in range(ranks)]}


def check(row):
    assert row.time_s >= row.lower_bound_s
    assert sum(row.critical_s.values()) == pytest.approx(row.time_s, rel=1e-9)
    assert min(row.critical_s.values()) >= 0


@pytest.mark.parametrize("size", deep_but(("tiny", "large"), SIZES))
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("topo", PROFILES)
def test_every_algorithm_and_protocol_keeps_the_laws(topo, op, size):
    size = SIZES[size]
    for ranks, proto in zip((*range(2, 9), 8), ("LL", "Simple", "LL128") * 3, strict=False):
        asked = request_of(op, ranks, size)
        for row in simulate(topo, algo="all", proto=proto, profile=PROFILES[topo], channels=4, **asked).rows:
            check(row)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("topo", PROFILES)
def test_every_choice_of_the_library_keeps_the_laws(topo, op):
    for ranks, (name, size) in zip((2, 3, 8), SIZES.items(), strict=True):
        for launch in LAUNCHES:
            for row in simulate(topo, profile=PROFILES[topo], **request_of(op, ranks, size), **launch).rows:
                check(row)
                assert row.time_lo_s is None or row.lower_bound_s <= row.time_lo_s <= row.time_s <= row.time_hi_s, name


@pytest.mark.parametrize("op", [op for op in OPS if op != "all_to_all_v"])
def test_longer_calls_take_longer(op):
    """With the choice fixed, more bytes never take less time."""
    for topo, profile in PROFILES.items():
        for algorithm in algorithms_for(op):
            if algorithm.libraries:
                continue  # a kernel of an engine: tests/library/test_engines.py
            if algorithm.in_network and topo != "hgx_h100":
                continue
            times = [row.time_s for row in simulate(
                topo, op, list(SIZES.values()), algo=algorithm.name, profile=profile, channels=2, ranks=4,
            )]  # fmt: skip
            assert times == sorted(times), (topo, algorithm.name)


@pytest.mark.parametrize(("ranks", "waits_us"), [(4, 8.0), (8, 16.0)])
def test_a_channel_of_nvls_turns_to_the_heads_one_after_another(ranks, waits_us):
    # One chunk for each head: added up, then copied, so that each of the two steps waits 1 us for every head.
    usual = load_profile("hgx_h100")

    def time_us(overhead_s):
        costs = replace(usual.families["nvls"]["Simple"], message_overhead_s=overhead_s)
        profile = replace(usual, families={**usual.families, "nvls": {"Simple": costs}}, floor_s=0.0)
        options = {"ranks": ranks, "algo": "nvls", "channels": 1, "chunk": "16K", "profile": profile}
        return simulate("hgx_h100", "all_reduce", ranks * 2**14, **options).time_s * 1e6

    assert time_us(1e-6) - time_us(0.0) == pytest.approx(waits_us, rel=1e-6)


@pytest.mark.parametrize(
    ("system", "ranks", "chunk_kib", "fills_us"),
    [
        ("hgx_h100", 8, 16, 0.0),
        ("hgx_h100", 8, 64, 39.3216),
        ("hgx_h100", 4, 64, 19.6608),
        ("h100_rail", 16, 64, 39.3216),
    ],
)
def test_a_channel_of_nvls_fills_with_a_chunk_of_every_head(system, ranks, chunk_kib, fills_us):
    # The base holds what chunks of 16 KiB take: 8 heads x 48 KiB more at 10 GB/s. Trees to other nodes fill as much.
    usual = load_profile("hgx_h100")

    def time_us(rate_Bps):
        costs = replace(usual.families["nvls"]["Simple"], fill_rate_Bps=rate_Bps)
        profile = replace(usual, families={**usual.families, "nvls": {"Simple": costs}}, floor_s=0.0)
        algo = "nvls_tree" if ranks > 8 else "nvls"
        options = {"ranks": ranks, "algo": algo, "channels": 1, "chunk": f"{chunk_kib}K", "profile": profile}
        return simulate(system, "all_reduce", ranks * 2**20, **options).time_s * 1e6

    assert time_us(10e9) - time_us(float("inf")) == pytest.approx(fills_us, abs=1e-6)


def constants_of(node, path=""):
    """Yield the place and the figures of every constant of a file that has an interval."""
    if isinstance(node, dict) and {"value", "low", "high"} <= set(node):
        yield path, [parsed(node[key]) for key in ("low", "value", "high")]
    elif isinstance(node, dict):
        for key, entry in node.items():
            yield from constants_of(entry, f"{path}.{key}".lstrip("."))


def parsed(figure):
    """Return a figure in SI."""
    if not isinstance(figure, str):
        return float(figure)
    return parse_bandwidth_Bps(figure) if "/s" in figure else parse_time_s(figure)


@pytest.mark.parametrize("file", sorted(PROFILE_FILES.rglob("*.yaml")), ids=lambda file: file.stem)
def test_intervals_of_constants_reach_as_far_down_as_up(file):
    """A fit knows the logarithm of a constant to so much either way, so value^2 = low high, to the printed digits;
    only what a fit may not exceed, such as a share of 1, ends an interval sooner. A value edited by hand shows.
    """
    for place, (low, value, high) in constants_of(yaml.safe_load(file.read_text(encoding="utf-8"))):
        assert low <= value <= high, place
        if high not in ENDS:
            assert value**2 == pytest.approx(low * high, rel=0.01), place
        else:
            assert value**2 > 0.99 * low * high, place
