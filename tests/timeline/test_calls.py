"""Collectives of a step by the model: which variables a trace's channels imply."""

import pytest

from collsim.timeline.calls import Machine, recorded_environment
from collsim.timeline.trace import Call

OFF = {"NCCL_NVLS_ENABLE": "0"}


def call(op, size_bytes=64 << 20, ranks=8):
    return Call(op, size_bytes, "bfloat16", "", ranks)


@pytest.mark.parametrize(
    ("op", "channels", "expected"),
    [
        pytest.param("all_reduce", 16, {}, id="NVLS as the library has it"),
        pytest.param("all_reduce", 24, OFF, id="rings, which NVLS would have replaced"),
        pytest.param("all_reduce", 20, {**OFF, "NCCL_MAX_NCHANNELS": "20"}, id="rings on fewer channels"),
        pytest.param("all_reduce", 64, OFF, id="more channels than the model knows"),
        pytest.param("all_gather", 24, {}, id="rings as the library has them"),
        pytest.param("all_gather", 3, {**OFF, "NCCL_MAX_NCHANNELS": "3"}, id="few channels"),
        pytest.param("all_to_all", 40, OFF, id="more messages at once than the model knows"),
    ],
)
def test_channels_of_a_trace_say_which_variables_were_set(op, channels, expected):
    assert recorded_environment(Machine("hgx_h100"), {call(op): channels}) == expected


def test_the_largest_collective_says_whether_nvls_ran_and_the_most_channels_what_the_limit_was():
    grids = {call("all_reduce"): 20, call("all_reduce", 1 << 20): 22, call("all_reduce", 1 << 10): 2}
    assert recorded_environment(Machine("hgx_h100"), grids) == OFF, "no limit of 22 gives 20 channels"
    grids = {call("all_gather"): 16, call("all_gather", 1 << 10): 21}
    expected = {**OFF, "NCCL_MAX_NCHANNELS": "21"}
    assert recorded_environment(Machine("hgx_h100"), grids) == expected, "the model has 24 for both"
    grids = {call("all_reduce"): 16, call("all_reduce", 1 << 10): 20}
    assert recorded_environment(Machine("hgx_h100"), grids) == {}


def test_collectives_that_the_model_does_not_have_say_nothing():
    assert recorded_environment(Machine("hgx_h100"), {call("nonsense"): 5}) == {}
    assert recorded_environment(Machine("hgx_h100"), {}) == {}
