"""The twelve what-ifs of docs/failures.md: every row is run, and is what arithmetic by hand says."""

import json
import re
import shlex

import pytest

from .conftest import ROOT

PAGE = (ROOT / "docs/failures.md").read_text(encoding="utf-8").partition("## Clusters")[2].partition("\n## ")[0]
TABLE = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
FLAGS = {row[0]: row[1].strip("`") for row in TABLE if len(row) == 3}
ROWS = [row for row in TABLE if len(row) == 7 and re.fullmatch(r"\d+", row[0])]
RUNS = (("all_reduce", "ring"), ("all_reduce", "hierarchical"), ("all_to_all", "direct"))
NVLINK_BPS, XGMI_BPS, NIC_BPS = 450e9, 7 * 64e9, 50e9
WAITS = "but get{} the share of the messages that links in order get: the rest waits"


def hierarchical(nodes: int, out_Bps: float, *, node: float = 1.0, network: float = 1.0) -> float:
    """Return how many times longer it takes if the parts in a node and between nodes take *node* and *network* times.

    The parts follow each other: 7 of 8 slices out of each GPU and back, a ring of each slice over the nodes between.
    """
    inside = 2 * 7 / 8 / out_Bps
    outside = 2 * (nodes - 1) / nodes / 8 / NIC_BPS
    return (inside * node + outside * network) / (inside + outside)


BY_HAND = {
    # GPU 1 of node 0 uses the other seven adapters: they carry the traffic of eight.
    "rails --fail nic:node0/1": (
        (8 / 7, hierarchical(4, NVLINK_BPS, network=8 / 7), 8 / 7),
        "n0.gpu1 has no adapter: its messages go through those of other GPUs of the node",
    ),
    # The same for all nodes of the block; what comes from the other block arrives through spines.
    "rails --fail leaf:1": (
        (8 / 7, hierarchical(4, NVLINK_BPS, network=8 / 7), 8 / 7),
        "n0.gpu1, n1.gpu1, n2.gpu1, n3.gpu1 and 4 more have no adapter: "
        "their messages go through those of other GPUs of the node",
    ),
    # One of s spines: s / (s - 1) on a full tree.
    "tree --fail spine:0": (
        (4 / 3, hierarchical(8, NVLINK_BPS, network=4 / 3), 4 / 3),
        "leaf0, leaf1, leaf2, leaf3 and 4 more keep 6 of 8 cables to spines; messages are spread over those",
    ),
    # Within a block no message crosses spines, and between blocks two nodes fill a quarter of them.
    "rails --fail spine:0": (
        (1, 1, 1),
        "leaf0, leaf1, leaf2, leaf3 and 12 more keep 7 of 8 cables to spines; messages are spread over those",
    ),
    # Node 0 has seven cables for eight adapters.
    "tree --fail link:leaf0-spine0:1": (
        (8 / 7, hierarchical(8, NVLINK_BPS, network=8 / 7), 8 / 7),
        "leaf0 keeps 7 of 8 cables to spines; messages are spread over those",
    ),
    # A ring sends 50 GB/s over each link, so a sixth more is still less than 64.
    "mesh --fail link:n0.gpu0-n0.gpu1": (
        (1, hierarchical(4, XGMI_BPS, node=7 / 6), 1),
        "messages that n0.gpu0-n0.gpu1 carried go through other GPUs",
    ),
    # 13 of 18 links are 325 GB/s. Seven of eight rings, 50 GB/s each, leave a GPU for another of its node.
    "rails --fail switch:n0.nvsw0": (
        (350 / 325, hierarchical(4, NVLINK_BPS, node=18 / 13), 1),
        "NVLS is off for GPUs of node 0: switch n0.nvsw0 is missing",
    ),
    # 5 of 18 links at half rate get their share: 350 GB/s take as long as 700 of 450.
    "rails --degrade link:n0.gpu0-n0.nvsw0=50%": (
        (700 / 450, hierarchical(4, NVLINK_BPS, node=2), 1),
        "n0.gpu0-n0.nvsw0 is slow, " + WAITS.format("s"),
    ),
    "mesh --degrade link:n0.gpu0-n0.gpu1=50%": (
        (50 / 32, hierarchical(4, XGMI_BPS, node=2), 1),
        "n0.gpu0-n0.gpu1 is slow, " + WAITS.format("s"),
    ),
    # Two of the eight cables of leaf 0 get two eighths of what crosses spines.
    "tree --degrade link:leaf0-spine0=50%": (
        (2, hierarchical(8, NVLINK_BPS, network=2), 2),
        "leaf0-spine0 is slow, " + WAITS.format("s"),
    ),
    # Rings are seven instead of eight; the 24 messages of a rank to other nodes are a 31st each, no longer a 32nd.
    "small tree --fail gpu:node0/1": (
        ((2 * 30 / 31 / 7) / (2 * 31 / 32 / 8), None, 32 / 31),
        "n0.gpu1 takes no part: 31 ranks are left and renumbered",
    ),
    "small tree --fail gpu:node0/1 --rank-list 0,2-8,10-16,18-24,26-31": (
        (1, 1, 1),
        "n0.gpu1 takes no part: 31 ranks are left and renumbered",
    ),
    "rails --degrade nic:node0/1=50%": (
        (2, hierarchical(4, NVLINK_BPS, network=2), 2),
        "n0.gpu1-n0.nic1, n0.nic1-leaf1 are slow, " + WAITS.format(""),
    ),
    # One of four cores: 4 / 3 where all messages cross cores; of an all-to-all, two thirds do.
    "tiers --fail core:0": (
        (4 / 3, hierarchical(4, NVLINK_BPS, network=4 / 3), 1),
        "spine0, spine1, spine2, spine3 and 4 more keep 3 of 4 cables to cores; messages are spread over those",
    ),
    # The cables of group 2 carry twice as much of an all-to-all. A ring goes round one way only, there over the cable
    # from leaf 16 to leaf 17: node 8 sends a seventh of its messages over it, which go by a third switch.
    "dragonfly --fail link:leaf0-leaf8": (
        (8 / 7, 8 / 7, 2),
        "leaf0, leaf8 keep 7 of 8 cables to other switches; messages are spread over those",
    ),
}


def test_all_twelve_are_there():
    assert {int(row[0]) for row in ROWS} == set(range(1, 13))
    assert [f"{row[1]} {row[2].strip('`')}" for row in ROWS] == list(BY_HAND)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]} {row[2]}")
def test_what_ifs(collsim, row):
    cluster, what, *shown = (cell.strip("`") for cell in row[1:6])
    expected, told = BY_HAND[f"{cluster} {what}"]
    flags = [*shlex.split(FLAGS[cluster]), *what.split(), "--profile", "ideal", "--size", "64M", "--format", "json"]
    for (op, algo), by_hand, cell in zip(RUNS, expected, shown, strict=True):
        done = collsim("run", *flags, "--op", op, "--algo", algo)
        if by_hand is None:
            assert (done.code, cell) == (2, "refused")
            assert "needs the same number of ranks on every node" in done.err
            continue
        document = json.loads(done.out)
        (found,) = document["results"]
        assert found["slowdown"] == pytest.approx(by_hand, rel=1e-4)  # chunks are whole elements
        assert found["lower_bound_s"] <= found["time_s"] * (1 + 1e-9)
        assert told in document["topology"]["damage"]["effects"]
        assert cell == f"{found['slowdown']:.3f}"


def test_a_cut_node_leaves_with_3(collsim):
    done = collsim("run", *shlex.split(FLAGS["small tree"]), "--op", "all_reduce", "--fail", "nic:n3.nic*")
    assert done.code == 3
    assert (
        "n3.gpu0, n3.gpu1, n3.gpu2, n3.gpu3 and 4 more are cut off from each other by the loss of nic n3.nic0"
        in done.err
    )
