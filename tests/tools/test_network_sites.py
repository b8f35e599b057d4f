"""Scores of constants between nodes by site, and what the fits of networks may come to."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from collsim.calibration.fit_network import MOST_STEP_S
from collsim.library import load_profile

TOOLS = Path(__file__).parents[2] / "tools"
NETWORKS = TOOLS.parent / "collsim" / "library" / "costs" / "profiles" / "networks"


@pytest.fixture
def sites(monkeypatch):
    """The module that scores by site, with few rows."""
    monkeypatch.syspath_prepend(str(TOOLS))
    module = importlib.import_module("network_sites")
    monkeypatch.setattr(module, "MOST_ROWS", 6)
    return module


def test_every_site_is_scored_with_constants_of_the_others(sites):
    found = sites.entries_of(["efa", "efa_v1"])
    entries = found["efa"]
    assert {entry.seen.site for entry in entries} == {"aws-ia (p5_efa)", "aws-samples (p5_efa)", "keitaw (p5_efa)"}
    errors = sites.errors_of(entries, sites.others_s(found)["efa"])
    assert sum(len(shipped) for (site, _), (shipped, _) in errors.items() if site == sites.ALL) == len(entries)
    for shipped, others in errors.values():
        assert len(shipped) == len(others)
        assert shipped != others


def test_one_site_has_no_others(sites):
    entries = sites.entries_of(["roce"])["roce"]
    alone = [entry for entry in entries if entry.seen.site == "oci (mi300x_roce)"]
    assert alone
    times = sites.others_s({"roce": alone})["roce"]
    assert not any(others for _, others in sites.errors_of(alone, times).values())


def test_rivals_know_nothing_of_a_site_either(sites, capsys):
    entries = sites.entries_of(["roce"])["roce"]
    sites.print_rivals({"roce": entries}, {"roce": [each.seen.row.time_s for each in entries]})
    *_, blank, told = capsys.readouterr().out.splitlines()
    assert blank == ""
    assert told.startswith("tuner: ")  # times as measured win every cell
    assert all(part.split()[1] == part.split()[3] for part in told.split("; "))
    first = entries[0]
    alone = [each for each in entries if each.seen.site == first.seen.site]
    assert np.isnan(sites.alpha_beta_s(alone, first))


@pytest.mark.parametrize("name", ["infiniband", "infiniband_a100"])
def test_no_step_over_infiniband_takes_longer_than_one_can(name):
    network = load_profile(str(NETWORKS / f"{name}.yaml")).network
    for family, protocols in network.families.items():
        for proto, costs in protocols.items():
            if family != "sharp":  # as of the tuner, in no log
                assert max(costs.message_overhead_s, costs.turn_s) <= MOST_STEP_S["infiniband"], (family, proto)


def test_logs_of_two_nodes_do_not_move_the_channels_of_nvls():
    start = load_profile(str(TOOLS / "starts" / "between.yaml")).network.families["nvls"]["Simple"]
    for name in ("infiniband", "efa"):
        shipped = load_profile(str(NETWORKS / f"{name}.yaml")).network.families["nvls"]["Simple"]
        assert shipped.channel_rate_Bps == start.channel_rate_Bps
