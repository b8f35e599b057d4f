"""What callers of `validate`, `calibrate` and `simulate` may pass, and that every fault names the argument."""

from __future__ import annotations

from pathlib import Path

import pytest

import collsim
from collsim.core.errors import InputError

LOG = "op,ranks,size_bytes,time_us\nall_reduce,8,1048576,21\nall_reduce,8,4194304,32\nall_reduce,8,16777216,114\n"
WRONG = [
    ({"profile": 3}, "profile", "3 is no profile"),
    ({"profile": None}, "profile", "None is no profile"),
    ({"profile": {}}, "profile", "{} is no profile"),
    ({"library": 5}, "library", "library 5 is not a name"),
    ({"environment": ["NCCL_ALGO=Ring"]}, "environment", "is not a mapping of variables"),
    ({"environment": "NCCL_ALGO=Ring"}, "environment", "is not a mapping of variables"),
    ({"environment": {"NCCL_MAX_NCHANNELS": None}}, "environment", "is not a variable with a text"),
    ({"op": []}, "op", "[]"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def faults_of(call, *words, **options):
    with pytest.raises(InputError) as caught:
        call(*words, **options)
    return caught.value.faults


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        *WRONG,
        ({"margin": "a"}, "margin", "'a' is not a number above 0"),
        ({"margin": None}, "margin", "None is not a number above 0"),
        ({"logs": None}, "logs", "None is not a path"),
        ({"logs": [3]}, "logs", "3 is not a path"),
        ({"logs": []}, "logs", "no log is named"),
    ],
)
def test_validate(log, given, where, words):
    (fault,) = faults_of(collsim.validate, **({"logs": log, "topo": "hgx_h100"} | given))
    assert fault.where == where
    assert words in fault.what


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        *WRONG[3:],
        ({"start": 3}, "start", "3 is no profile"),
        ({"start": "nn"}, "start", 'unknown profile "nn"'),
        ({"logs": None}, "logs", "None is not a path"),
        ({"name": 3}, "name", "name 3 is not a name"),
    ],
)
def test_calibrate(log, given, where, words):
    (fault,) = faults_of(collsim.calibrate, **({"logs": log, "topo": "hgx_h100"} | given))
    assert fault.where == where
    assert words in fault.what


@pytest.mark.parametrize(("given", "where", "words"), WRONG[:3])
def test_simulate(given, where, words):
    (fault,) = faults_of(collsim.simulate, "hgx_h100", "all_reduce", "1M", **given)
    assert fault.where == where
    assert words in fault.what


def test_all_faults_at_once():
    told = {"op": "x", "ranks": 0, "launch": "q", "library": "z"}
    faults = faults_of(collsim.calibrate, "nosuch", "hgx_h10", start="nn", **told)
    assert [fault.where for fault in faults] == ["op", "ranks", "launch", "library", "topo", "start", "logs: nosuch"]
    faults = faults_of(collsim.validate, "nosuch", "hgx_h10", profile="nn", margin=0, **told)
    assert {fault.where for fault in faults} == {"margin", "topo", "profile", *told, "logs: nosuch"}


def test_numbers_of_the_environment_are_texts(log):
    validation = collsim.validate(log, "hgx_h100", library="nccl-2.28", environment={"NCCL_MAX_NCHANNELS": 4})
    assert validation.logs[0].case.environment == (("NCCL_MAX_NCHANNELS", "4"),)


def test_a_profile_may_be_a_path(tmp_path):
    (fault,) = faults_of(collsim.simulate, "hgx_h100", "all_reduce", "1M", profile=tmp_path / "none")
    assert fault.what == "no such file"
