"""One thing said in two places: two values for it are refused with both places, and what is nearer goes before."""

import json
import re

import pytest

import collsim as package
from collsim.core.errors import InputError

from .conftest import ROOT

RUN = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--profile", "ideal")
TWO = ("--nodes", "2")
HASHED = (*TWO, "--fabric", "fat_tree", "--set", "scale_out.radix=16", "--set", "scale_out.routing=ecmp")
CALIBRATED = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--library", "nccl-2.28")

REFUSED = {
    "nodes": (("--nodes", "2", "--set", "scale_out.nodes=4"), "--set scale_out.nodes=4 and --nodes 2"),
    "fabric": (
        (*TWO, "--fabric", "rail", "--set", "scale_out.fabric=fat_tree"),
        "--set scale_out.fabric=fat_tree and --fabric rail",
    ),
    "network": (
        (*TWO, "--network", "roce", "--set", "scale_out.network=efa"),
        "--set scale_out.network=efa and --network roce",
    ),
    "racks": ((*TWO, "--racks", "1", "--set", "network.racks=2"), "--set scale_out.racks=2 and --racks 1"),
    "gpus_per_node": (
        (*TWO, "--gpus-per-node", "4", "--set", "scale_out.gpus_per_node=2"),
        "--set scale_out.gpus_per_node=2 and --gpus-per-node 4",
    ),
    "two spellings of a section": (
        ("--set", "fabric.nodes=2", "--set", "scale_out.nodes=4"),
        "--set scale_out.nodes=2 and --set scale_out.nodes=4",
    ),
    "two spellings of a figure": (
        ("--set", "link.bandwidth=20 GB/s", "--set", "link.bandwidth.value=30 GB/s"),
        "--set link.bandwidth=20 GB/s and --set link.bandwidth.value=30 GB/s",
    ),
    "one spelling": (
        ("--set", "link.bandwidth=20 GB/s", "--set", "link.bandwidth=30 GB/s"),
        '"link.bandwidth" is set twice, to "20 GB/s" and to "30 GB/s"',
    ),
    "a variable": (("--env", "NCCL_ALGO=Ring", "--env", "NCCL_ALGO=Tree"), '"NCCL_ALGO" is set twice'),
    "draws and a draw": (
        (*HASHED, "--set", "scale_out.hash_seed=3", "--hash-seeds", "1-4"),
        "--hash-seeds: seeds to draw beside --set scale_out.hash_seed=3",
    ),
    "failed and slower": (
        ("--fail", "switch:nvsw1", "--degrade", "link:gpu*-nvsw1=50%"),
        '"link:gpu*-nvsw1" has failed',
    ),
    "slower twice": (
        ("--degrade", "switch:nvsw1=40%", "--degrade", "switch:nvsw1=50%"),
        '"switch:nvsw1" is set twice, to "40%" and to "50%"',
    ),
    "split and groups": (("--split", "MOD 2", "--groups", "tp=2,dp=4"), "both a split and groups"),
    "ranks and a list": (("--ranks", "4", "--rank-list", "0-3"), "both a number of ranks and a rank list"),
    "placement and a list": (("--placement", "cyclic", "--rank-list", "0-3"), "both a placement and a rank list"),
    "sizes and a range": (("-b", "1M"), "--size and the flags -b -e -i -f"),
}


@pytest.mark.parametrize(("flags", "words"), REFUSED.values(), ids=REFUSED)
def test_two_values_are_refused(collsim, flags, words):
    done = collsim(*RUN, *flags)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err


OTHERS = {
    "topo show": ("topo", "show", "hgx_h100"),
    "explain": ("explain", *RUN[1:]),
    "compare": ("compare", "hgx_h100", "hgx_b200", *RUN[3:]),
    "compare, own": ("compare", "hgx_h100,scale_out.nodes=8", "hgx_b200", *RUN[3:]),
    "tune": ("tune", *RUN[1:3], "--size", "1M"),
    "schedule show": ("schedule", "show", *RUN[1:5], "--algo", "ring"),
    "moe": ("moe", *RUN[1:3]),
    "timeline": ("timeline", str(ROOT / "examples" / "training_step.yaml"), *RUN[1:3]),
}


@pytest.mark.parametrize("command", OTHERS.values(), ids=OTHERS)
def test_two_values_are_refused_by_every_command(collsim, command):
    done = collsim(*command, *TWO, "--set", "scale_out.nodes=4")
    assert done.code == 2
    assert "--set scale_out.nodes=4 and --nodes 2 say two things" in done.err


def test_two_values_are_refused_in_python():
    with pytest.raises(InputError, match=re.escape('overrides={"scale_out.nodes": "4"} and nodes=2 say two things')):
        package.simulate("hgx_h100", "all_reduce", "1M", nodes=2, overrides={"scale_out.nodes": "4"})


def test_what_else_is_wrong_is_said_too(collsim):
    err = collsim(*RUN, *TWO, "--set", "scale_out.nodes=4", "--set", "link.bandwidht=3", "--dtype", "folat").err
    assert "say two things" in err
    assert "link.bandwidht" in err
    assert "folat" in err


def ranks(done):
    assert done.code == 0, done.err
    return [row["ranks"] for row in json.loads(done.out)["results"]]


JSON = ("--format", "json")


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ((*TWO, "--set", "scale_out.nodes=2"), {}, [16]),  # one value twice
        (("--set", "scale_out.nodes=4"), {"COLLSIM_NODES": "2"}, [32]),
        (TWO, {"COLLSIM_NODES": "4"}, [16]),
    ],
)
def test_the_nearer_place_goes_first(collsim, flags, environment, expected):
    assert ranks(collsim(*RUN, *flags, *JSON, **environment)) == expected


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        (("--nodes", "3"), {}, [24]),
        (("--set", "scale_out.nodes=3"), {}, [24]),
        (("--set", "fabric.nodes=3"), {}, [24]),
        ((), {"COLLSIM_NODES": "3"}, [24]),
        ((), {}, [16]),
    ],
)
def test_all_places_go_before_a_configuration(collsim, tmp_path, flags, environment, expected):
    saved = tmp_path / "asked.json"
    assert collsim(*RUN, *TWO, "--save-config", str(saved)).code == 0
    assert json.loads(saved.read_text())["config"]["overrides"] == {"scale_out.nodes": "2"}
    assert ranks(collsim("run", "--config", str(saved), *flags, *JSON, **environment)) == expected


def test_a_system_s_own_change_goes_before_a_flag(collsim):
    out = collsim("compare", "hgx_h100,fabric.nodes=4", "hgx_b200", *RUN[3:], *TWO, "--ranks", "16", *JSON).out
    assert [each["topology"]["ranks"] for each in json.loads(out)["systems"]] == [32, 16]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--algo", "ring", "--env", "NCCL_ALGO=Tree"), "NCCL_ALGO=Tree: variables change what auto chooses"),
        (("--proto", "LL", "--env", "NCCL_PROTO=Simple"), "NCCL_PROTO=Simple: proto LL was named and goes before it"),
        (("--channels", "4", "--env", "NCCL_MIN_NCHANNELS=8"), "NCCL_MIN_NCHANNELS=8: channels 4 was named"),
        (("--chunk", "64K", "--env", "NCCL_BUFFSIZE=1048576"), "NCCL_BUFFSIZE=1048576: chunk 65536 was named"),
    ],
)
def test_a_flag_goes_before_a_variable_with_a_warning(collsim, flags, words):
    done = collsim(*CALIBRATED, *flags)
    assert done.code == 0
    assert words in done.err
