"""Clusters on the command line: shown, drawn, listed, checked, and what is wrong with them."""

import json
import re
from xml.etree import ElementTree

import pytest


def test_show_prints_counts_tiers_and_rates(collsim):
    outcome = collsim("topo", "show", "hgx_h100", "--nodes", "16", "--fabric", "rail", "--network", "infiniband")
    assert outcome.code == 0
    for line in (
        r"GPUs +128 on 16 nodes",
        r"switches +10: 8 leaves, 2 spines",
        r"bisection, one direction +3\.2 TB/s",
        r"adapters +leaves +128 +50 GB/s +6\.4 TB/s +5 m",
        r"leaves +spines +128 +50 GB/s +6\.4 TB/s +30 m",
        r"scale_out\.radix +64 +datasheet",
        r"scale_out\.nodes +16 +set",
    ):
        assert re.search(line, outcome.out), line


def test_show_in_json(collsim):
    shown = json.loads(collsim("topo", "show", "frontier", "--format", "json").out)
    assert shown["ranks"] == 75_776
    assert shown["plan"]["cables"] == {"nic_leaf": 37_888, "local": 36_704, "global": 10_804}
    assert shown["cluster"]["fabric"] == "dragonfly"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100_rail", ["spine7", "leaf15", "n0: 8 GPUs", "56 more", "512 cables of 50 GB/s from leaves to spines"]),
        ("frontier", ["group 0", "each group has 32 switches", "66 more", "10,804 cables"]),
        ("mi355x_rack128", ["leaf0", "n15: 8 GPUs"]),
    ],
)
def test_draw(collsim, tmp_path, name, words):
    file = tmp_path / "drawn.svg"
    assert collsim("topo", "draw", name, "-o", file).code == 0
    drawn = file.read_text(encoding="utf-8")
    boxes = ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}rect")
    assert 2 < len(boxes) <= 48
    assert all(0 < float(box.get("x")) < 960 for box in boxes)
    for word in words:
        assert word in drawn, word


def test_lines_are_cables_that_are_there(collsim):
    drawn = collsim("topo", "draw", "h100_rail").out
    # 8 spines x 16 leaves; of the 8 nodes shown each hangs on the 8 leaves of its block
    assert drawn.count('class="r0') == 128
    assert drawn.count('class="r1') == 64


def test_list_has_clusters_apart(collsim):
    nodes, _, clusters = collsim("topo", "list").out.partition("# cluster")
    assert "hgx_h100 " in nodes
    assert "frontier" not in nodes
    assert re.search(r"^frontier +75776 +12\.5 .*dragonfly of 74 groups$", clusters, re.MULTILINE)


def test_check(collsim, tmp_path):
    file = tmp_path / "ours.yaml"
    file.write_text("{schema: collsim.topology/1, scale_out: {node: hgx_h100, nodes: 3}}")
    outcome = collsim("topo", "check", file)
    assert (outcome.code, "24 GPUs" in outcome.out) == (0, True)
    file.write_text("{schema: collsim.topology/1, scale_out: {node: hgx_h100, nodes: 3, fabrik: rail}}")
    outcome = collsim("topo", "check", file)
    assert outcome.code == 2
    assert 'did you mean "fabric"' in outcome.err


RUN = ("run", "--op", "all_reduce", "--size", "1M", "--algo", "ring")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--nodes", "0"), ["--nodes", 'count "0"']),
        (("--nodes", "16", "--fabric", "ral"), ["--fabric", 'did you mean "rail"']),
        (("--nodes", "16", "--network", "ib"), ["--network", "known: efa"]),
        (("--nodes", "16", "--fabric", "single_switch"), ["--nodes", "at most 8 nodes fit"]),
        (("--nodes", "16", "--gpus-per-node", "9"), ["--gpus-per-node", "at most 8"]),
        (("--fabric", "rail"), ["number of nodes is missing", "--nodes 16"]),
    ],
)
def test_faults_name_the_flag(collsim, flags, words):
    outcome = collsim(*RUN, "--topo", "hgx_h100", *flags)
    assert outcome.code == 2
    for word in words:
        assert word in outcome.err, word


def test_a_run_inside_the_first_node_is_that_of_the_node(collsim):
    alone = collsim(*RUN, "--topo", "hgx_h100", "--format", "csv", "-q")
    inside = collsim(*RUN, "--topo", "hgx_h100", "--nodes", "64", "--ranks", "8", "--format", "csv", "-q")
    assert (alone.code, inside.code) == (0, 0)

    def times(outcome):
        head, row = (line.split(",") for line in outcome.out.splitlines())
        return [row[head.index(name)] for name in ("time_s", "busbw_Bps") if name in head]

    assert times(alone) == times(inside) != []


def test_schedule_of_a_cluster(collsim):
    shown = collsim("schedule", "show", "--topo", "hgx_h100", "--nodes", "2", "--op", "all_reduce", "--algo", "ring")
    assert shown.code == 0
    assert "16" in shown.out


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--network", "roce"], 2, "no switch between the nodes adds"),
        (["--network", "infiniband", "--fail", "nic:node0/3"], 3, "n0.gpu3, n1.gpu3 has no reduction tree"),
        (["--network", "infiniband"], 0, ""),
    ],
)
def test_sharp_runs_or_says_why_not(collsim, more, code, words):
    asked = ("--topo", "hgx_h100", "--nodes", "2", "--op", "all_reduce", "--algo", "collnet_chain", "--size", "1M")
    outcome = collsim("run", *asked, *more)
    assert outcome.code == code
    assert words in outcome.err
    assert "Traceback" not in outcome.err


def test_hosts_of_slurm_run_where_their_leaves_are(collsim, tmp_path):
    """Of 64 nodes in two blocks of 32, hosts of two leaves are the first nodes of both, and their messages climb."""
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=leaf1 Nodes=tux[01-32]\nSwitchName=leaf2 Nodes=tux[33-64]\n")
    flags = ("run", "--topo", "hgx_h100", "--nodes", "64", "--gpus-per-node", "2", "--op", "all_gather", "--size", "1M")
    flags += ("--algo", "ring", "--format", "json", "-q", "--placement")
    near, far = (json.loads(collsim(*flags, f"slurm:{file}:{hosts}").out) for hosts in ("tux[01-02]", "tux[01,64]"))
    assert near["config"]["rank_lists"] == [[0, 1, 2, 3]]
    assert far["config"]["rank_lists"] == [[0, 1, 64, 65]]
    assert far["results"][0]["time_s"] > near["results"][0]["time_s"]
    outcome = collsim(*flags, f"slurm:{file}:tux[65-66]")
    assert outcome.code == 2
    assert '--placement: "tux65" is on no leaf' in outcome.err


def test_racks_are_a_level_of_their_own(collsim):
    base = ("run", "--topo", "hgx_h100", "--nodes", "8", "--gpus-per-node", "2", "--op", "all_reduce", "--size", "1M")
    base += ("--format", "json", "-q", "--algo")
    dealt = json.loads(collsim(*base, "all", "--racks", "4").out)
    assert dealt["config"]["overrides"]["scale_out.racks"] == "4"
    time_s = {row["algo"]: row["time_s"] for row in dealt["results"]}
    assert time_s["hierarchical_racks"] < time_s["hierarchical"]  # 2 (1 + 3) steps above the node instead of 2 x 7
    one = json.loads(collsim(*base, "all").out)
    assert "hierarchical_racks" not in {row["algo"] for row in one["results"]}
    outcome = collsim(*base, "hierarchical_racks")
    assert outcome.code == 2
    assert "--algo: hierarchical_racks needs several equal racks: all nodes share leaf switches" in outcome.err
    uneven = collsim(*base, "hierarchical_racks", "--racks", "3", "--ranks", "99")
    assert "--racks: 8 nodes do not fill 3 racks evenly" in uneven.err
    assert "--ranks: 99 ranks on 16 GPUs" in uneven.err
