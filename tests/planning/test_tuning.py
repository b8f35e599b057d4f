"""Tuning: rules that the tuner plugin of NCCL would read, only where the gain is beyond the error."""

import json
from itertools import pairwise

import pytest

import collsim
from collsim.core.errors import InputError, SpecError
from collsim.planning.tuner_csv import Rule, first_match, read_rules
from collsim.planning.tuning import Option, TunedSize, Tuning

FORMAT = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
"""As plugins/tuner/example/nccl_tuner.conf of NVIDIA/nccl documents it."""


def size(size_bytes, library, best, gain, error=0.05, op="all_reduce"):
    """A size at which one option is *gain* times as fast as the library's, both with an error."""
    first = Option(*library, -1, gain, error)
    return TunedSize(op, 8, 1, size_bytes, first, Option(*best, 1.0, error), (first,))


def tuning(*rows):
    return Tuning("0", "box", "own", "nccl-2.28", False, rows)


LL, RING, TREE = ("ring", "LL"), ("ring", "Simple"), ("tree", "LL", 4)


def test_file_follows_the_documented_columns():
    found = tuning(size(1024, LL, TREE, 1.5), size(2048, LL, TREE, 1.3), size(4096, RING, (*RING, -1), 1.0))
    lines = found.to_rules().splitlines()
    assert f"# Format: {FORMAT}" in lines
    rules = [line for line in lines if not line.startswith("#")]
    assert rules == ["allreduce,1024,3072,tree,ll,4,1,8,-1,0"]
    assert read_rules(found.to_rules()) == [rule for rule, _ in found.rules]
    assert all(len(line) < 256 for line in lines)  # the plugin reads lines of 255 characters
    (comment,) = (line for line in lines if "times as fast" in line)
    assert "1.30 to 1.50" in comment


def test_a_rule_tells_the_widest_error_of_its_sizes():
    """Both times 5 % off and both 20 % off, as squares: factors of 1.07 and 1.32."""
    narrow, wide = (size(bytes_, LL, TREE, 3.0, error) for bytes_, error in ((1024, 0.05), (2048, 0.2)))
    ((_, told),) = tuning(narrow, wide).rules
    assert narrow.band < wide.band
    assert told.endswith(f"the error of that is {wide.band:.2f}")


def test_only_gains_beyond_the_error_are_rules():
    error = 1.05**2**0.5  # errors of two times of 5 % each, as squares
    below, above = (size(1024, LL, TREE, error * factor, error=0.04879016416943205) for factor in (0.999, 1.001))
    assert (below.verdict, above.verdict) == ("within error", "override")
    assert size(1024, LL, TREE, 5.0, error=None).verdict == "unmeasured"
    assert size(1024, LL, (*LL, -1), 1.0).verdict == "agrees"
    assert tuning(below).rules == ()
    assert below.chosen is below.library
    assert above.chosen is above.best


def test_ranges_meet_half_way_and_do_not_overlap():
    rows = [size(2**k, LL, TREE if k % 2 else ("tree", "Simple", -1), 2.0) for k in range(10, 16)]
    rules = [rule for rule, _ in tuning(*rows).rules]
    assert len(rules) == 6
    assert all(one.max_bytes + 1 == other.min_bytes for one, other in pairwise(rules))
    assert (rules[0].min_bytes, rules[-1].max_bytes) == (2**10, 2**15)  # nothing beyond what was simulated
    for row in rows:
        rule = first_match(rules, "allreduce", row.size_bytes, nodes=1, ranks=8)
        assert (rule.algorithm, rule.protocol) == (row.best.algo, row.best.proto.lower())


def test_rules_match_as_the_plugin_says():
    rules = [Rule("allreduce", 8, 64, "tree", "ll", ranks=8), Rule("allreduce", 8, 128, "ring", "ll128", 4)]
    match = {n: first_match(rules, "allreduce", n, nodes=1, ranks=8) for n in (7, 8, 64, 65, 128, 129)}
    assert [rule and rule.algorithm for rule in match.values()] == [None, "tree", "tree", "ring", "ring", None]
    assert first_match(rules, "allreduce", 8, nodes=1, ranks=4).algorithm == "ring"
    assert first_match(rules, "allgather", 8, nodes=1, ranks=8) is None


def test_optional_fields_comments_and_faults_of_files():
    assert read_rules("# a comment\n\nallgather,0,10,ring,simple,4,2,-1\n") == [
        Rule("allgather", 0, 10, "ring", "simple", 4, 2)
    ]
    with pytest.raises(SpecError) as caught:
        read_rules(
            "allreduc,0,10,rign,ll,1,1,8\nallreduce,9,1,ring,ll,1,1,8\nallreduce,0,x,ring,ll,1,1,8\nallreduce,0\n",
            "a.csv",
        )
    told = str(caught.value)
    for part in ('"allreduce"', '"ring"', "9 to 1", 'max_bytes "x"', "a.csv:1", "a.csv:4: 2 fields"):
        assert part in told


def test_choice_of_the_library_is_that_of_a_run_and_options_are_forced_runs():
    found = collsim.tune("hgx_h100", "all_reduce", ["64K", "16M"], search_channels=False)
    for row in found:
        auto = collsim.simulate("hgx_h100", "all_reduce", row.size_bytes).rows[0]
        assert (row.library.label, row.library.time_s) == (auto.label, auto.time_s)
        for option in row.options:
            words = {"NCCL_ALGO": option.algo.upper(), "NCCL_PROTO": option.proto}
            forced = collsim.simulate("hgx_h100", "all_reduce", row.size_bytes, environment=words).rows[0]
            assert option.time_s == forced.time_s
        assert row.best.time_s <= min(option.time_s for option in row.options) * 1.0000001
        assert {option.proto for option in row.options} == {"LL", "LL128", "Simple"}


def test_no_more_channels_than_the_communicator_has():
    found = collsim.tune("hgx_h100", "broadcast", ["64K"], ranks=4)
    large = collsim.simulate("hgx_h100", "broadcast", "1G", ranks=4, environment={"NCCL_PROTO": "Simple"})
    numbers = {option.channels for option in found.rows[0].options}
    assert max(numbers) == large.rows[0].channels
    assert -1 in numbers


def test_assumed_constants_make_no_rule():
    row = collsim.tune("mi300x_ubb8", "all_gather", ["1M"], search_channels=False).rows[0]
    assert row.best.label == "ring/LL128"  # no log of this system has it: its constants are assumed
    assert row.gain > 1.5
    assert row.verdict == "unmeasured"
    trusted = collsim.tune("mi300x_ubb8", "all_gather", ["1M"], search_channels=False, band=0.1)
    assert trusted.rows[0].verdict == "override"
    (line,) = trusted.to_environment()
    assert "NCCL_ALGO=Ring NCCL_PROTO=LL128" in line


def test_nodes_are_hosts_and_a_rack_is_matched_by_ranks_alone():
    def nodes(topo, **asked):
        return {row.nodes for row in collsim.tune(topo, "all_reduce", ["1M"], search_channels=False, **asked)}

    assert nodes("hgx_h100", nodes=2) == {2}
    assert nodes("hgx_h100", ranks=4) == {1}
    assert nodes("gb200_nvl72", ranks=4) == {-1}


def test_command_writes_what_the_plugin_reads(invoke, tmp_path):
    file = tmp_path / "tuner.csv"
    asked = ("tune", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "64K,1M", "--no-channels", "-q")
    found = invoke(*asked, "--band", "1%", "-o", file)
    assert (found.code, found.out) == (0, "")
    read_rules(file.read_text())
    document = json.loads(invoke(*asked, "--format", "json").out)
    assert [row["size_bytes"] for row in document["sizes"]] == [65536, 1048576]
    assert "agrees" in invoke(*asked).out


def test_every_fault_at_once(invoke):
    found = invoke(
        "tune", "--topo", "hgx_h100", "--op", "all_to_all,all_redce", "--env", "NCCL_ALGO=Ring", "--band", "x"
    )
    assert found.code == 2
    for part in ("knows no all_to_all", '"all_reduce"', "tuning sets it", "--band"):
        assert part in found.err
    with pytest.raises(InputError, match="has no tuner"):
        collsim.tune("hgx_h100", "all_reduce", "1M", library="vllm")
