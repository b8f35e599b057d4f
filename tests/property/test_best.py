"""``best`` is never slower than ``auto``, nor than any name with any protocol: on every system, also as two nodes."""

import itertools

import numpy as np
import pytest

from collsim import simulate
from collsim.collectives import ALGORITHMS, protocols_of
from collsim.core.errors import InputError
from collsim.core.operations import OPERATIONS
from collsim.topology import load_topology, zoo_names

from .depth import deep_but

SIZES = ["4K", "1000003", "64M"]
PROFILES = ("auto", "default", "ideal")
OPS = tuple(op for op in OPERATIONS if any(op in entry.ops for entry in ALGORITHMS))
CASES = list(itertools.product(zoo_names(), OPS, (1, 2), PROFILES))
EVERY_RUN = [case for case in CASES[5::103] if load_topology(case[0]).n_gpus * case[2] <= 16]
"""Of large machines some take a minute each."""
ROUNDING = 1 + 1e-9


def asked_of(topo, op, nodes, profile):
    """Return the arguments of `simulate` for one case; ranks of a matrix send more the higher their numbers are."""
    asked = {"topo": topo, "op": op, "profile": profile}
    if nodes > 1:
        asked["overrides"] = {"scale_out.nodes": str(nodes)}
    if op == "all_to_all_v":
        asked["matrix"] = np.outer(np.arange(1, 9), np.ones(8, dtype=np.int64)) * 50_000
    else:
        asked["size"] = SIZES
    return asked


def library_of(topo):
    return "rccl-2.28" if topo.startswith("mi") else "nccl-2.28"


@pytest.mark.parametrize("case", deep_but(EVERY_RUN, CASES), ids=str)
def test_best_is_never_slower_than_auto(case):
    topo, op, nodes, profile = case
    asked = asked_of(topo, op, nodes, profile)
    library = None if profile == "auto" else library_of(topo)
    found = simulate(**asked, algo=["auto", "best"], library=library)
    if any(refusal.asked == "auto" for refusal in found.refused):
        pytest.skip(f"not modelled: {found.refused[0].what}")
    times = {(row.size_bytes, row.asked): row.time_s for row in found}
    pairs = [(size, time_s) for (size, asked_for), time_s in times.items() if asked_for == "auto"]
    assert pairs
    for size, time_s in pairs:
        assert times[size, "best"] <= time_s * ROUNDING


SMALL = [(topo, op, nodes) for topo, op, nodes, profile in CASES if profile == "auto" and nodes == 1]
"""Names are compared on one node: over two it is the same code."""


@pytest.mark.parametrize("case", deep_but(SMALL[3::67], SMALL), ids=str)
def test_best_is_never_slower_than_any_name_with_any_protocol(case):
    topo, op, nodes = case
    asked = asked_of(topo, op, nodes, "auto")
    asked["ranks"] = min(8, load_topology(topo).n_gpus)
    best = simulate(**asked, algo="best")
    for entry in ALGORITHMS:
        for proto in protocols_of(entry.name) if op in entry.ops else ():
            try:
                found = simulate(**asked, algo=entry.name, proto=proto)
            except InputError:  # the fabric or the network cannot
                continue
            for row, named in zip(best, found, strict=False):
                assert row.time_s <= named.time_s * ROUNDING, (entry.name, proto)


def test_a_bound_drops_no_algorithm_that_is_faster_than_it_says():
    """NVLS reaches 0.7 of the wire inside a node and all of it between nodes: of the two the better one bounds."""
    asked = {"overrides": {"scale_out.nodes": "2"}, "algo": ["best", "nvls_tree"]}
    best, named = simulate("hgx_b200", "all_reduce", "256M", **asked)
    assert best.algo == named.algo
    assert best.time_s <= named.time_s * ROUNDING


def test_what_led_at_the_size_before_leaves_little_to_simulate(monkeypatch):
    """The same rows as size by size; bounds leave a simulation a size, and one more where another leads."""
    from collsim.simulation import contest

    simulated = []
    case_of = contest.case_of
    monkeypatch.setattr(contest, "case_of", lambda plan, call: simulated.append(plan) or case_of(plan, call))
    asked = {"topo": "mi400_ualoe72", "op": "all_gather", "ranks": 20}
    sizes = ["64K", "1M", "16M", "256M"]
    rows = [(row.algo, row.proto, row.time_s) for row in simulate(**asked, size=sizes).rows]
    together = len(simulated)
    alone = [(row.algo, row.proto, row.time_s) for size in sizes for row in simulate(**asked, size=size).rows]
    assert rows == alone
    assert together <= len(sizes) + 1
    assert together <= len(simulated) - together


def test_best_and_all_run_on_the_channels_of_the_library_unless_others_are_named():
    """As the texts say: 24 on a DGX A100, where more are faster."""
    usual = simulate("dgx_a100", "all_reduce", "16M", algo=["auto", "best", "all"])
    named = simulate("dgx_a100", "all_reduce", "16M", algo=["best", "all"], channels=64)
    assert {row.channels for row in usual} == {24}
    assert {row.channels for row in named} == {64}
    assert named.rows[0].time_s < min(row.time_s for row in usual)
