"""Flags of `collsim run` that say how a call was launched, and by which library."""

import json

import pytest

from .test_bad_input import refused

SMALL = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1K,1G", "-q", "--format", "json")
MESSAGES = ("run", "--topo", "hgx_h100", "--op", "send_recv", "--size", "1K,1G", "-q", "--format", "json")


def asked(collsim, *arguments, **environment):
    """Return times in us and the document."""
    outcome = collsim(*arguments, **environment)
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    return [row["time_s"] * 1e6 for row in document["results"]], document


def test_a_graph_hides_the_launch(collsim):
    (small, large), plain = asked(collsim, *SMALL)
    (quick, same), graph = asked(collsim, *SMALL, "--launch", "graph")
    assert quick < small
    assert same == pytest.approx(large, rel=0.05)
    assert (plain["config"]["launch"], graph["config"]["launch"]) == ("stream", "graph")


def test_registered_messages_are_not_copied(collsim):
    (small, large), _ = asked(collsim, *MESSAGES)
    (same, quick), document = asked(collsim, *MESSAGES, "--registered")
    assert quick < large
    assert same == pytest.approx(small, rel=0.2)
    assert document["config"]["registered"] is True


@pytest.mark.parametrize("flag", ["-g", "--ngpus", "--gpus-per-thread"])
def test_one_thread_for_all_gpus(collsim, flag):
    (small, large), _ = asked(collsim, *SMALL)
    (slow, same), document = asked(collsim, *SMALL, flag, "8")
    assert slow > small + 10
    assert same == pytest.approx(large, rel=0.01)
    assert document["config"]["gpus_per_thread"] == 8


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-g", "9"), "-g: 9 GPUs per thread, but hgx_h100 has 8\n  hint: at most 8"),
        (("-g", "9", "--nodes", "2"), "-g: 9 GPUs per thread, but a node of hgx_h100 has 8"),
        (("-g", "5", "--nodes", "2", "--gpus-per-node", "4"), "a node of hgx_h100 has 4\n  hint: at most 4"),
        (("-g", "9", "--dtype", "folat"), 'unknown data type "folat"'),
    ],
)
def test_a_thread_has_the_gpus_of_a_node_at_most(collsim, flags, words):
    outcome = collsim(*SMALL, *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


@pytest.mark.parametrize("flags", [("--ranks", "2,8"), ("--fail", "gpu:5"), ("--nodes", "2")])
def test_a_thread_may_have_all_gpus_of_a_node(collsim, flags):
    assert collsim(*SMALL, "-g", "8", *flags).code == 0


def test_another_library(collsim):
    _, plain = asked(collsim, *SMALL)
    _, older = asked(collsim, *SMALL, "--library", "nccl-2.18")
    assert (plain["profile"]["library"], older["profile"]["library"]) == ("nccl-2.28", "nccl-2.18")
    assert (plain["config"]["library"], older["config"]["library"]) == (None, "nccl-2.18")


def test_a_profile_of_the_other_vendor_warns(collsim):
    outcome = collsim("run", "--topo", "mi355x_ubb8", "--op", "all_reduce", "--size", "1M", "--profile", "hgx_h100")
    assert outcome.code == 0
    assert "warning: auto is the fastest in the simulator: nccl-2.28 does not run on mi355x_ubb8" in outcome.err
    assert "algo auto (the fastest in the simulator)" in outcome.out
    assert "calibrated: no" in outcome.out


def test_flags_from_the_environment(collsim):
    told, _ = asked(collsim, *SMALL, "--launch", "graph", "-g", "4")
    read, _ = asked(collsim, *SMALL, COLLSIM_LAUNCH="graph", COLLSIM_GPUS_PER_THREAD="4")
    assert told == read


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--launch", "grahp"), ("--launch: ", "graph")),
        (("-g", "0"), ("-g: ",)),
        (("-g", "x"), ("-g: ", '"x"')),
        (("--library", "nccl-9"), ("--library: ", "nccl-2.18")),
        (("--library", "rccl-2.22"), ("rccl",)),
    ],
)
def test_refusals(collsim, flags, words):
    refused(collsim(*SMALL, *flags), *words)


def test_classes_change_no_time(collsim, monkeypatch):
    monkeypatch.setattr("collsim.engine.run.REDUCED_TRANSFERS", 20_000)
    flags = ("run", "--topo", "h100_rail", "--nodes", "16", "--op", "all_reduce", "--size", "1G", "-q")
    (time,), document = asked(collsim, *flags, "--format", "json")
    (alone,), plain = asked(collsim, *flags, "--no-reduce", "--format", "json")
    (row,), (single,) = document["results"], plain["results"]
    assert (row["path"].split(",")[0], single["path"]) == ("classes", "transfers, kernel")
    assert row["classes"] < single["classes"] / 4
    assert time == pytest.approx(alone, rel=1e-9)
    assert (document["config"]["reduce"], plain["config"]["reduce"]) == (True, False)
