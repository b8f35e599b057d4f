"""`auto` with a library: the choice is simulated, and the row says what ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.library import Call, Protocol, choose, load_profile, read_environment, system_of
from collsim.topology import load_topology


def rows(topo: str, op: str, sizes: list[str], **more: object) -> list[collsim.simulation.result.Row]:
    return list(collsim.simulate(topo, op, sizes, **more))


@pytest.mark.parametrize(
    ("topo", "library", "op"),
    [
        ("hgx_h100", "nccl-2.28", "all_reduce"),
        ("hgx_h100", "nccl-2.28", "all_gather"),
        ("dgx_a100", "nccl-2.21", "reduce_scatter"),
        ("hgx_h100", "nccl-2.28", "all_to_all"),
        ("mi300x_ubb8", "rccl-2.27", "all_reduce"),
        ("mi355x_ubb8", "rccl-2.28", "all_to_all"),
        ("hgx_b200", "nccl-2.27", "broadcast"),
    ],
)
def test_what_runs_is_what_the_library_chooses(topo: str, library: str, op: str):
    system = system_of(load_topology(topo))
    for row in rows(topo, op, ["4K", "1M", "256M"], library=library):
        choice = choose(Call(op, row.ranks, row.size_bytes), system, library)
        assert (row.algo, row.proto) == (choice.algo, choice.proto)
        assert row.time_s >= row.lower_bound_s


def test_channels_and_shares_are_those_of_the_library():
    [row] = rows("hgx_h100", "all_reduce", ["1M"], library="nccl-2.28", environment={"NCCL_MAX_NCHANNELS": "4"})
    assert row.channels == 4
    [row] = rows("hgx_h100", "all_reduce", ["64"], library="nccl-2.28")
    assert row.channels == 1


def test_variables_change_the_choice():
    [row] = rows("hgx_h100", "all_reduce", ["256M"], library="nccl-2.28")
    assert row.algo == "nvls"
    environment = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL128"}
    [row] = rows("hgx_h100", "all_reduce", ["256M"], library="nccl-2.28", environment=environment)
    assert (row.algo, row.proto) == ("ring", "LL128")


def test_flags_on_the_wire_halve_the_rate_of_ll():
    # Bare wires but for the lines: 16 bytes carry 8 of data, so a ring takes twice as long.
    profile = collsim.library.costs.profile.Profile(
        "lines", "", False, 0.0, 0.0, float("inf"), False, False, "",
        protocols={"LL": collsim.library.Protocol(0.0, float("inf"), 0.5)},
    )  # fmt: skip
    plain, flagged = (
        rows("hgx_h100", "all_reduce", ["64M"], algo="ring", proto=proto, profile=profile, chunk="64M")[0]
        for proto in ("Simple", "LL")
    )
    assert flagged.time_s == pytest.approx(2 * plain.time_s, rel=1e-9)
    assert flagged.bottleneck[0].utilisation == pytest.approx(1.0, rel=1e-4)


def test_protocols_of_the_default_profile():
    profile = load_profile("default")
    assert profile.protocol("Simple").message_overhead_s == profile.message_overhead_s
    assert profile.protocol("LL").wire_efficiency == 0.5
    assert profile.protocol("LL128").wire_efficiency == 120 / 128
    assert load_profile("ideal").protocol("LL").channel_rate_Bps == float("inf")


def test_every_fault_at_once():
    with pytest.raises(InputError) as caught:
        collsim.simulate(
            "hgx_h100", "all_reduce", "1M", library="nccl-9.9", proto="LL64", environment={"NCCL_ALGOO": "Ring"}
        )
    for word in ("no constants for nccl 9.9", 'protocol "LL64"', 'did you mean "NCCL_ALGO"'):
        assert word in str(caught.value)


def test_an_old_library_takes_the_oldest_known_constants_and_says_so():
    def warnings(name):
        return collsim.simulate("hgx_h100", "all_reduce", "1M", library=name).warnings

    told = set(warnings("nccl-2.16")) - set(warnings("nccl-2.18"))
    assert told == {
        "the constants of nccl-2.16 are not known: those of nccl-2.18 are taken, "
        "without algorithms newer than nccl-2.16"
    }


def test_a_variable_without_a_library_is_refused():
    with pytest.raises(InputError, match="need a library"):
        collsim.simulate("hgx_h100", "all_reduce", "1M", profile="default", environment={"NCCL_ALGO": "Ring"})


def test_a_library_of_the_other_vendor_is_refused():
    with pytest.raises(InputError, match="does not run on gfx942"):
        collsim.simulate("mi300x_ubb8", "all_reduce", "1M", library="nccl-2.28")


def test_the_configuration_brings_the_library_back():
    result = collsim.simulate(
        "hgx_h100", "all_reduce", "1M", library="nccl-2.28", environment=dict(read := {"NCCL_PROTO": "Simple"})
    )
    assert read_environment(read).warnings == ()
    assert (result.config["library"], result.config["environment"]) == ("nccl-2.28", read)


@pytest.mark.parametrize("proto", ["LL", "LL128", "Simple"])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_chain_is_a_pipeline_with_every_protocol(op: str, proto: str):
    environment = {"NCCL_PROTO": proto}
    [row] = rows("hgx_h100", op, ["64M"], library="nccl-2.28", profile="ideal", environment=environment)
    call = Call(op, row.ranks, row.size_bytes)
    choice = choose(call, system_of(load_topology("hgx_h100")), "nccl-2.28", read_environment(environment))
    assert (row.algo, row.proto) == (choice.algo, choice.proto) == ("ring", proto)
    chunks = max(choice.shares_bytes) / choice.chunk_bytes
    filled_s = row.lower_bound_s * (chunks + row.ranks - 2) / chunks  # the last of 7 hops starts 6 chunks late
    assert row.time_s == pytest.approx(filled_s, rel=0.1)  # the last chunk is short, the channels are uneven


def test_flags_let_a_pipeline_hand_on_passes_where_the_profile_says_so():
    # 32 KiB a channel are one chunk of LL, which bare wires hand on whole; with flags the other hops add little.
    plain = load_profile("ideal")
    flags = {"rooted": {"LL": Protocol(0.0, float("inf"), 0.5, cut_through=True)}}
    question = {"library": "nccl-2.28", "environment": {"NCCL_PROTO": "LL"}}
    whole, passes = (
        rows("hgx_h100", "broadcast", ["512K"], profile=profile, **question)[0]
        for profile in (
            replace(plain, protocols={"LL": Protocol(0.0, float("inf"), 0.5)}),
            replace(plain, families=flags),
        )
    )
    assert passes.time_s < 0.6 * whole.time_s


def test_a_chain_of_very_many_chunks_is_simulated_with_fewer():
    environment = {"NCCL_PROTO": "LL"}
    [row] = rows("hgx_h100", "broadcast", ["8G"], library="nccl-2.28", profile="ideal", environment=environment)
    assert row.time_s == pytest.approx(row.lower_bound_s, rel=0.02)


@pytest.mark.parametrize(
    "variables",
    [{"NCCL_P2P_NVL_CHUNKSIZE": "131072"}, {"NCCL_BUFFSIZE": "1048576"}],
)
def test_smaller_steps_cut_long_messages_into_more_parts(variables: dict[str, str]):
    usual, finer = (
        rows("hgx_h100", "send_recv", ["64M"], ranks=4, library="nccl-2.28", environment=environment)[0].time_s
        for environment in ({}, variables)
    )
    assert finer < 0.7 * usual  # 16 channels instead of 8


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        ({"algo": "nvls"}, {"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring: variables change what auto chooses; algo nvls"),
        ({"proto": "Simple"}, {"NCCL_PROTO": "LL"}, "NCCL_PROTO=LL: proto Simple was named"),
        ({"channels": 4}, {"NCCL_MAX_CTAS": 8}, "NCCL_MAX_CTAS=8: channels 4 was named"),
        ({"chunk": "1M"}, {"NCCL_BUFFSIZE": "1048576"}, "NCCL_BUFFSIZE=1048576: chunk 1048576 was named"),
        ({}, {"NCCL_NTHREADS": "100"}, "NCCL_NTHREADS=100 is no multiple of 32"),
        ({}, {"PATH": "/bin"}, "PATH is no variable"),
        ({"proto": "Simple"}, {"NCCL_ALGO": "Ring"}, ""),
    ],
)
def test_variables_that_do_nothing_are_told(flags, environment, words):
    result = collsim.simulate(
        "hgx_h100", "all_reduce", "1M", library="nccl-2.28", profile="ideal", environment=environment, **flags
    )
    assert [words in warning for warning in result.warnings] == [True] * bool(words)


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        ({"size": "1T"}, "size", "1099511627776 bytes: "),
        ({"size": "64G", "environment": {"NCCL_BUFFSIZE": "64"}}, "environment", "NCCL_BUFFSIZE=64: "),
        ({"size": "1T", "chunk": "64K"}, "chunk", "are too many to simulate"),
    ],
)
def test_too_many_chunks_are_blamed_on_what_was_given(given, where, words):
    with pytest.raises(InputError) as caught:
        collsim.simulate("hgx_h100", "all_reduce", library="nccl-2.28", profile="ideal", **given)
    (fault,) = caught.value.faults
    assert fault.where == where
    assert words in fault.what
