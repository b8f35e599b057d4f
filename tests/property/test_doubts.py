"""What is only nearly alike says how far off it may be, and is no further off: small runs with limits to match."""

from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim import simulate
from collsim.core.errors import CollsimError
from collsim.simulation import hop_classes, hops

CLUSTERS = ("h100_rail", "mi355x_pollara", "mi355x_cx7", "mi325x_thor2", "gb200_racks", "alps", "polaris")
RUNS = (
    ("all_reduce", "tree"), ("broadcast", "ring"), ("reduce", "ring"), ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
)  # fmt: skip
UNTOLD = 0.01
"""What docs/scale.md says of rows that say no more."""


@contextmanager
def limits(divide):
    """Simulate so many times fewer classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hops, "LEAST_TRANSFERS", 0)
        patch.setattr(hops, "LEAST_UNEVEN", 0)
        for name in ("MOST_EXACT", "MOST_NEAR", "MOST_NEAR_HOPS"):
            patch.setattr(hop_classes, name, getattr(hop_classes, name) // divide)
        yield


def both(cluster, run, nodes, divide, **asked):
    """Return the rows of a run with few classes, and with all."""
    asked |= {"algo": run[1], "overrides": {"scale_out.nodes": str(nodes)}, "tolerance": 0}
    with limits(divide):
        near = simulate(cluster, run[0], **asked).rows[0]
    with limits(1):
        return near, simulate(cluster, run[0], **asked).rows[0]


def is_within(near, exact):
    """Return whether a time is as far off as its row says, or hardly."""
    low_s, high_s = near.bracket_lo_s or near.time_s, near.bracket_hi_s or near.time_s
    return low_s * (1 - UNTOLD) <= exact.time_s <= high_s * (1 + UNTOLD)


@settings(max_examples=12)
@given(
    st.sampled_from(CLUSTERS), st.sampled_from(RUNS), st.integers(2, 9), st.sampled_from(["777777", "4M", "64M"]),
    st.sampled_from(["Simple", "LL", "LL128"]), st.integers(1, 8),
    st.sampled_from([None, "nic:node1/0", "gpu:n0.gpu1"]), st.sampled_from(["auto", "ideal"]),
)  # fmt: skip
def test_times_are_no_further_off_than_rows_say(cluster, run, nodes, size, proto, channels, fail, profile):
    asked = {"size": size, "proto": proto, "channels": channels, "fail": fail, "profile": profile}
    try:
        near, exact = both(cluster, run, min(nodes, 3) if cluster == "gb200_racks" else nodes, 40, **asked)
    except CollsimError:
        return  # the machine has no such GPUs
    if "nearly" in near.path and "nearly" not in exact.path:
        assert is_within(near, exact), (near.path, near.time_s / exact.time_s - 1)
    elif "nearly" not in near.path:
        assert near.time_s == pytest.approx(exact.time_s, rel=1e-9)


LL, LL128 = {"channels": 8, "proto": "LL"}, {"channels": 8, "proto": "LL128"}
FAILED = {"size": 777777, "fail": "gpu:n0.gpu1"}
OFF = (
    # a chain that waits for the network every so many hops: who is further behind it is taken to be as near
    ("mi325x_thor2", ("reduce_scatter", "ring"), 7, FAILED | LL),
    ("mi355x_pollara", ("all_gather", "ring"), 12, FAILED | LL128),
    ("gb200_racks", ("all_gather", "ring"), 4, {"size": "1M", "channels": 2, "proto": "LL"}),
    ("gb200_racks", ("reduce_scatter", "ring"), 2, FAILED | {"size": "1M", "channels": 2, "proto": "LL128"}),
)


@pytest.mark.parametrize(("cluster", "run", "nodes", "asked"), OFF)
def test_a_time_that_is_far_off_says_so(cluster, run, nodes, asked):
    near, exact = both(cluster, run, nodes, 20, **asked)
    assert abs(near.time_s / exact.time_s - 1) > 0.04
    assert ", to " in near.path
    assert is_within(near, exact)
    assert near.bracket_lo_s < near.time_s < near.bracket_hi_s


def test_no_hop_is_faster_than_alone_on_its_links():
    """Links that are pooled let one hop have what all of them carry: 72 % too short."""
    asked = {"size": "16M", "channels": 4, "proto": "Simple", "profile": "ideal"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hops, "LEAST_TRANSFERS", 0)
        rows = []
        for most, rounds in ((0, 0), (hop_classes.MOST_EXACT, 4)):
            patch.setattr(hop_classes, "MOST_EXACT", most)
            patch.setattr(hop_classes, "MOST_ROUNDS", rounds)
            patch.setattr(hop_classes, "LEAST_CHUNKS", 10**6)
            asked |= {"algo": "ring", "overrides": {"scale_out.nodes": "3"}}
            rows.append(simulate("gb200_racks", "reduce", **asked).rows[0])
    pooled, exact = rows
    assert "nearly" in pooled.path
    assert pooled.time_s == pytest.approx(exact.time_s, rel=0.3)


@pytest.mark.parametrize(("doubt", "told"), [(0.01, True), (0.006, True), (0.004, False), (0.001, False)])
def test_a_doubt_is_told_from_half_a_percent_on(doubt, told, monkeypatch):
    monkeypatch.setattr(hops, "LEAST_TRANSFERS", 0)
    monkeypatch.setattr(hop_classes, "MOST_EXACT", 0)
    monkeypatch.setattr(hop_classes, "MOST_ROUNDS", 0)  # no coarser classes say more
    monkeypatch.setattr(hops, "UNTOLD", doubt)
    monkeypatch.setattr(hop_classes, "LEAST_CHUNKS", 10**6)
    row = simulate("h100_rail", "all_reduce", "4M", nodes=4, algo="tree", proto="Simple").rows[0]
    assert "nearly alike" in row.path
    assert (", to " in row.path) is told
    if told:
        assert row.bracket_hi_s == pytest.approx(row.time_s * (1 + doubt), rel=1e-12)
    else:
        assert row.bracket_hi_s is None
