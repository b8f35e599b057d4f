"""Irregular traffic from the command line: what is approximate says so, and how to be exact."""

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import collsim as library
from collsim.report import schema

from .test_bad_input import refused


@pytest.fixture
def matrix(tmp_path):
    """64 ranks that send to popular ones mostly."""
    rng = np.random.default_rng(7000)
    entries = (1e6 / (1 + rng.permutation(64)) * rng.uniform(0.5, 1.5, (64, 64))).astype(int)
    file = tmp_path / "matrix.txt"
    np.savetxt(file, entries, fmt="%d")
    return str(file)


@pytest.fixture
def asked(collsim, matrix):
    """Run with the matrix on 8 nodes; return the outcome."""
    command = (
        "run",
        "--topo",
        "hgx_h100",
        "--nodes",
        "8",
        "--op",
        "all_to_all_v",
        "--algo",
        "direct",
        "--profile",
        "ideal",
    )

    def run(*flags, **environment):
        return collsim(*command, "--matrix", matrix, *flags, **environment)

    return run


def row_of(outcome):
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    Draft202012Validator(schema("collsim.result/1")).validate(document)
    return document["results"][0], document


def test_a_tolerance_is_near_and_says_so(asked):
    exact, _ = row_of(asked("--tolerance", "0", "--format", "json"))
    outcome = asked("--tolerance", "1%", "--bracket", "--format", "json")
    row, document = row_of(outcome)
    assert "approximate" not in outcome.err  # it was asked for
    assert row["time_s"] == pytest.approx(exact["time_s"], rel=0.01)
    assert (row["tolerance"], row["path"]) == (0.01, "transfers, tolerance")
    assert 0 < row["perturbed"] < 0.02
    assert row["lower_bound_s"] <= row["bracket_lo_s"] <= row["time_s"] <= row["bracket_hi_s"] < 1.05 * row["time_s"]
    assert row["bracket_lo_s"] <= exact["time_s"] <= row["bracket_hi_s"]
    assert sum(row["critical_s"].values()) == pytest.approx(row["time_s"])
    assert (document["config"]["tolerance"], document["config"]["bracket"]) == (0.01, True)
    assert (exact["tolerance"], exact["perturbed"], exact["raised_s"], exact["bracket_lo_s"]) == (0, 0, 0, None)


def test_auto_announces_a_tolerance(asked, monkeypatch):
    monkeypatch.setattr("collsim.engine.run.MOST_WORK", 10**6)
    monkeypatch.setattr("collsim.engine.kernels.FIRST_CHECK", 10**5)
    outcome = asked()
    assert outcome.code == 0
    assert outcome.err == (
        "warning: irregular traffic: approximate, within a tolerance of 1%, because to be exact takes long; "
        "tolerance 0 asks for exact times\n"
    )
    assert " ~" in outcome.out
    assert "# ~: ends of transfers were moved by up to 1% of their time; " in outcome.out
    assert asked("-q").err == ""
    assert "~" not in asked("--tolerance", "0").out


def test_a_bracket_has_columns_and_a_note(asked):
    outcome = asked("--tolerance", "2%", "--bracket")
    head = next(line for line in outcome.out.splitlines() if " algbw" in line)
    assert head.split()[6:10] == ["algo", "time", "from", "to"]
    assert "# from: what the busiest link needs; to: no link is ever ahead" in outcome.out
    assert " from" not in asked("--tolerance", "2%").out


def test_a_bracket_around_an_exact_time_is_a_point(collsim):
    outcome = collsim(
        "run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--bracket", "--format", "json", "-q"
    )
    row, _ = row_of(outcome)
    assert row["bracket_lo_s"] == row["time_s"] == row["bracket_hi_s"]


def test_the_same_run_again(asked, collsim, tmp_path):
    saved = tmp_path / "run.json"
    row, _ = row_of(asked("--tolerance", "1%", "--bracket", "--save-config", saved, "--format", "json"))
    again, _ = row_of(collsim("run", "--config", saved, "--format", "json"))
    assert again == row
    told, _ = row_of(asked("--format", "json", COLLSIM_TOLERANCE="1%", COLLSIM_BRACKET="1"))
    assert told == row


def test_groups_that_share_links_keep_every_law(collsim, matrix, monkeypatch):
    monkeypatch.setattr("collsim.engine.run.REFERENCE_TRANSFERS", 0)
    flags = ("--split", "MOD 2", "--tolerance", "5%", "--bracket", "--algo", "direct", "--profile", "ideal", "-q")
    row, _ = row_of(
        collsim(
            *(
                "run",
                "--topo",
                "h100_rail",
                "--nodes",
                "16",
                "--op",
                "all_to_all_v",
                "--matrix",
                matrix,
                "--format",
                "json",
            ),
            *flags,
        )
    )
    assert (row["groups"], row["tolerance"]) == (2, 0.05)
    assert row["bracket_lo_s"] <= row["time_s"] <= row["bracket_hi_s"]


@pytest.mark.parametrize("value", ["-1", "200%", "abc", "11%", "1", "nan", ""])
def test_refusals(asked, value):
    refused(
        asked("--tolerance", value),
        "error: --tolerance: ",
        "hint: give auto, 0 for exact, or a part up to 10%, such as 1%",
    )


def test_refusals_of_the_library():
    for value in (-1, 2, "abc", [1], True):
        with pytest.raises(library.InputError, match="tolerance"):
            library.simulate("hgx_h100", "all_reduce", "1M", tolerance=value)
    with pytest.raises(library.InputError, match="bracket 3 is not true or false"):
        library.simulate("hgx_h100", "all_reduce", "1M", bracket=3)


@pytest.mark.parametrize("value", [True, [1], {}])
def test_refusals_of_a_configuration(collsim, tmp_path, value):
    file = tmp_path / "run.json"
    config = {"topo": "hgx_h100", "op": "all_reduce", "size": "1M", "tolerance": value}
    file.write_text(json.dumps({"schema": "collsim.config/1", "config": config}))
    refused(collsim("run", "--config", file), "config.tolerance", "is not auto or a part such as 0.01")
