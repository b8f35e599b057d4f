"""Every algorithm with every family of constants: the checks that are always on find nothing, whatever is asked."""

from __future__ import annotations

import pytest

from collsim import simulate
from collsim.collectives import algorithms_for
from collsim.core.operations import OPERATIONS

PROFILES = {"hgx_h100": "hgx_h100", "mi300x_ubb8": "mi300x_ubb8", "dgx2_v100": "dgx2_v100"}
SIZES = {"tiny": 256, "middle": 300_000, "large": 2**26}
OPS = [op for op in OPERATIONS if algorithms_for(op)]
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


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("topo", PROFILES)
def test_every_algorithm_and_protocol_keeps_the_laws(topo, op, size):
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
