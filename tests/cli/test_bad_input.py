"""What is wrong with a request or a file: one report, the place, the value, a hint, exit code 2 or 3, no traceback."""

import os
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

MESH = """\
schema: collsim.topology/1
name: mine
builder: full_mesh
gpu:
  count: 4
link:
  bandwidth: 64 GB/s
  latency: 500 ns
"""

PAIRS = """\
schema: collsim.topology/1
name: islands
builder: explicit
nodes:
  - {name: a0, kind: gpu}
  - {name: a1, kind: gpu}
  - {name: b0, kind: gpu}
  - {name: b1, kind: gpu}
links:
  - {a: a0, b: a1, bandwidth: 50 GB/s, latency: 1 us}
  - {a: b0, b: b1, bandwidth: 50 GB/s, latency: 1 us}
"""

RUN = ("run", "--topo", "mi355x_ubb8", "--op", "all_to_all")
RANKS = ("run", "--topo", "mi355x_ubb8", "--size", "1M")


COPIES = "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD"


def refused(outcome, *words, code=2):
    """Assert that *outcome* is a report with all of *words*."""
    assert "Traceback" not in outcome.err
    assert "defect" not in outcome.err
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # sizes
        ((*RUN, "--size", "64MB"), ["--size", '"64MB" is ambiguous', "64MiB (67,108,864 B) or 64e6"]),
        ((*RUN, "--size", "0"), ["--size", '"0"', "more than 0"]),
        ((*RUN, "--size", "-1M"), ["--size", '"-1M"', "more than 0"]),
        ((*RUN, "--size", "1M,,x"), ["--size", '""', '"x"', "write a size such as"]),
        ((*RUN, "--size", "12"), ["--size", "rounds down to zero", "128"]),
        ((*RUN, "-b", "4"), ["-b", "rounds down to zero", "128"]),
        ((*RUN, "-b", "2M", "-e", "1M"), ["-e", "1048576", "2097152", "swap -b and -e"]),
        ((*RUN, "-b", "1M", "-e", "2M", "-f", "1"), ["-f", '"1"', "above 1, such as 2"]),
        ((*RUN, "-f", "nan"), ["-f", '"nan"', "above 1"]),
        ((*RUN, "-f", "two"), ["-f", '"two"', "not a number"]),
        ((*RUN, "-i", "0"), ["-i", '"0"', "more than 0"]),
        ((*RUN, "-i", "1M", "-f", "2"), ["-i", "exclude each other"]),
        ((*RUN, "-b", "1", "-e", "1G", "-i", "1"), ["-i", "1073741824 sizes", "use -f 2"]),
        ((*RUN, "--size", "1M", "-b", "1M"), ["--size", "exclude each other"]),
        ((*RUN, "--chunk", "0"), ["--chunk", '"0"', "more than 0"]),
        # names
        (("run", "--topo", "mi355_ubb8", "--op", "all_to_all"), ["--topo", '"mi355_ubb8"', '"mi355x_ubb8"?']),
        (("run", "--topo", "mi355x_ubb8", "--op", "all_to_al"), ["--op", '"all_to_al"', 'mean "all_to_all"?']),
        (("run", "--topo", "hgx_h100", "--op", "all_reduce", "--algo", "rnig"), ["--algo", '"rnig"', '"ring"?']),
        ((*RUN, "--dtype", "flaot"), ["-d", '"flaot"', 'mean "float"?']),
        ((*RUN, "--env", "NCCL_PROTO="), ["--env", "write --env NCCL_PROTO=Simple"]),
        ((*RUN, "--env", f"{COPIES}="), ["--env", f"write --env {COPIES}=16384"]),
        ((*RUN, "--env", f"{COPIES}=16K"), ["--env", f"write {COPIES}=16384"]),
        ((*RUN, "--redop", "summ"), ["--redop", '"summ"', 'mean "sum"?']),
        ((*RUN, "--profile", "defualt"), ["--profile", '"defualt"', 'mean "default"?']),
        ((*RUN, "--format", "jsn"), ["--format", '"jsn"', 'mean "json"?']),
        ((*RUN, "-o", "result.jsn"), ["-o", '".jsn"', ".json", "--format"]),
        ((*RUN, "--siez", "1M"), ["--siez", 'mean "--size"?']),
        (("rnu",), ["rnu", "run", "--help"]),
        ((*RUN, "1M"), ["1M", "--help"]),
        (("topo", "show", "hgx_b20"), ["NAME", '"hgx_b20"', '"hgx_b200"?']),
        (("topo", "show", "hgx_b200", "--format", "yml"), ["--format", '"yml"', '"yaml"?']),
        (("run",), ["--topo", "no topology", "--op", "no operation", "all_reduce"]),
        # ranks
        ((*RUN, "--ranks", "1"), ["--ranks", "1 ranks on 8 GPUs", "2 to 8"]),
        ((*RUN, "--ranks", "0,99"), ["--ranks", "0 ranks", "99 ranks", "2 to 8"]),
        ((*RUN, "--ranks", "999999999999"), ["--ranks", "999999999999", "2 to 8"]),
        ((*RUN, "--ranks", "four"), ["--ranks", '"four"', "2,4,8"]),
        ((*RUN, "--rank-list", "0,3,3"), ["--rank-list", "GPU 3", "once"]),
        ((*RUN, "--rank-list", "7-5"), ["--rank-list", '"7-5"', "backwards", "5-7"]),
        ((*RUN, "--rank-list", "0,8"), ["--rank-list", "GPU 8", "GPUs 0 to 7"]),
        ((*RUN, "--rank-list", "0-1000000"), ["--rank-list", "GPUs 8, 9, 10, 11, 12 and 999988 more", "GPUs 0 to 7"]),
        ((*RUN, "--rank-list", "3"), ["--rank-list", "at least 2"]),
        ((*RUN, "--rank-list", "-"), ["--rank-list", '"-"', "0,3,5-7"]),
        ((*RUN, "--rank-list", "-1,2"), ["--rank-list", '"-1" names no GPU', "0,3,5-7"]),
        ((*RUN, "--rank-list", "1,3-"), ["--rank-list", '"3-" names no GPU', "0,3,5-7"]),
        ((*RUN, "--ranks", "2", "--rank-list", "0,1"), ["--ranks", "one of the two"]),
        ((*RANKS, "--op", "broadcast", "--root", "8"), ["-r", "root 8", "0 to 7"]),
        ((*RANKS, "--op", "broadcast", "--root", "-1"), ["-r", "root -1", "0 to 7"]),
        ((*RANKS, "--op", "broadcast", "--root", "first"), ["-r", '"first"', "whole number"]),
        # groups
        ((*RUN, "--split", "XOR 3"), ["--split", '"XOR 3"', '"MOD 8"']),
        ((*RUN, "--split", "0x0"), ["--split", '"0x0" leaves all ranks in one group', "leave out --split"]),
        ((*RUN, "--split", "MOD 3"), ["--split", "MOD 3 does not divide 8 ranks evenly: groups of 3 and 2"]),
        ((*RUN, "--split", "MOD 8"), ["--split", "8 groups of 1 rank", "at least 2"]),
        ((*RUN, "--split", "MOD 2", "--groups", "tp=8"), ["--split", "both a split and groups"]),
        ((*RUN, "--groups", "tp=2,dp=3"), ["--groups", "is for 6 ranks, the run has 8"]),
        ((*RUN, "--groups", "tp=2,dp=4", "--over", "ep"), ["--over", '"ep"', "tp, dp"]),
        ((*RUN, "--groups", "0,1;1,9"), ["--groups", "ranks 9 are out of range", "ranks 1 are named more than once"]),
        ((*RUN, "--over", "tp"), ["--over", "goes with groups"]),
        ((*RUN, "--placement", "nowhere"), ["--placement", '"nowhere"', "block, cyclic"]),
        ((*RUN, "--placement", "block", "--rank-list", "0,1"), ["--placement", "one of the two"]),
        ((*RUN, "--placement", "cyclic", "--ranks", "4,8"), ["--placement", "one number of ranks"]),
        ((*RUN, "--load", "link:gpu0->gpu9=30%"), ["--load", 'no link is called "gpu0->gpu9"', "gpu0->gpu1"]),
        ((*RUN, "--load", "gpu0=0.3", "--load", "link:*=120%"), ["--load", '"gpu0=0.3"', "120 %"]),
        ((*RUN, "--hash-seeds", "9-1,7.5"), ["--hash-seeds", '"9-1" runs backwards', '"7.5" is no seed']),
        ((*RUN, "--hash-seeds", "4"), ["--hash-seeds", "no distribution", "scale_out.hash_seed"]),
        ((*RUN, "--hash-seeds", "1-9"), ["--hash-seeds", "no message leaves a node", "--nodes"]),
        ((*RUN, "--channels", "0"), ["--channels", "0 channels", "1 and 128"]),
        ((*RUN, "--channels", "1.5"), ["--channels", '"1.5"', "whole number"]),
        # sizes of too many chunks are blamed on what was given, the largest of a range
        (
            (*RANKS, "--op", "all_reduce", "--size", "1e15"),
            ["--size: 1000000000000000 bytes: ", "too many to simulate"],
        ),
        (
            ("run", "--topo", "mi355x_ubb8", "--op", "all_reduce", "-b", "1T", "-e", "2T", "-f", "2"),
            ["-e: 1099511627776 bytes: "],
        ),
        # what-ifs
        ((*RUN, "--set", "link.bandwith=80 GB/s"), ["--set", '"link.bandwith"', '"link.bandwidth"?']),
        ((*RUN, "--set", "link.bandwidth"), ["--set", '"link.bandwidth"', "PATH=VALUE"]),
        ((*RUN, "--set", "link.bandwidth=80"), ["--set link.bandwidth", '"80" has no unit', "80 GB/s"]),
        ((*RUN, "--set", "link.bandwidth=-8 GB/s"), ["--set link.bandwidth", '"-8 GB/s"', "more than 0"]),
        (
            (*RUN, "--set", "link.latency=1 us", "--set", "link.latency=2 us"),
            ["--set", '"link.latency"', '"1 us"', '"2 us"', "one of the two"],
        ),
        # other files
        ((*RUN, "-o", "/no/such/place.csv"), ["/no/such/place.csv", '"/no/such"']),
        ((*RUN, "--save-config", "/no/such/run.json"), ["/no/such/run.json", '"/no/such"']),
        ((*RUN, "-o", "/"), ["/: this is a directory"]),
        ((*RUN, "-o", ""), ["-o: the name of the file is empty"]),
        ((*RUN, "--save-config", ""), ["--save-config: the name of the file is empty"]),
        ((*RUN, "-o", "same.json", "--save-config", "./same.json"), ["--save-config: ", "same.json", "what -o writes"]),
        ((*RUN, "--save-config", "-"), ["--save-config: stdout", "name two files"]),
        ((*RUN, "-o", "-", "--save-config", "-"), ["--save-config: stdout", "what -o writes"]),
        ((*RUN, "--profile", "./default"), ["default: no such file", 'the shipped profile is called "default"']),
        ((*RUN, "--profile", "some/ideal.yaml"), ["no such file", 'the shipped profile is called "ideal"']),
        ((*RUN, "--profile", "no/such.yaml"), ["--profile: no/such.yaml: no such file", "ideal"]),
        # errors name the flag, and what is right there
        (
            (*RUN[:4], "all_reduce", "--size", "1M", "--algo", "nvls"),
            ["--algo: nvls needs switches", "runs here: ring, tree"],
        ),
        (("moe", "--compare"), ["--compare: there is no value", "write --compare TOPO[,TOPO...]: ask the same"]),
        ((*RUN, "--size"), ["--size: there is no value", "write --size SIZE[,SIZE...]: exactly these sizes"]),
        (("run", "--topo", "mi355", "--op", "all_reduce"), ["--topo: ", 'did you mean "mi355x_ubb8"?']),
        (("run", "--topo", "h100_rial", "--op", "all_reduce"), ["--topo: ", 'did you mean "h100_rail"?']),
        ((*RUN, "--cost"), ['no such flag "--cost"', "hint: it is one of collsim compare; "]),
        ((*RUN, "--algos", "ring"), ['no such flag "--algos"', 'did you mean "--algo"?']),
        (
            ("run", "--topo", "no/such.yaml", "--op", "all_to_all"),
            ["--topo: no/such.yaml: no such file", "mi355x_ubb8"],
        ),
        (("run", "--topo", "./mi355x_ubb8.yaml", "--op", "all_to_all"), ["no such file", "shipped topology"]),
        (("run", "--config", "no_such.json"), ["no_such.json", "--save-config"]),
        (("run", "--topo", "mi355x_ubb8", "--op", "all_to_all_v"), ["--matrix", "needs a matrix"]),
        ((*RUN, "--op", "all_to_all_v", "--matrix", "no_such.txt"), ["no_such.txt", "No such file"]),
    ],
    ids=lambda value: " ".join(value).removeprefix("run --topo mi355x_ubb8 ") if isinstance(value, tuple) else "",
)
def test_flags(collsim, arguments, words):
    refused(collsim(*arguments), *words)


def test_a_refused_size_costs_no_other_row(collsim):
    outcome = collsim("run", "--topo", "mi355x_ubb8", "--op", "all_reduce", "--size", "1M,1T", "--format", "csv")
    assert outcome.code == 4
    _, answered, left_out = outcome.out.splitlines()
    assert answered.endswith(",")
    assert "are too many to simulate" in left_out
    assert "error: auto is refused for all_reduce of 8 ranks at 1 TiB: 1099511627776 bytes: " in outcome.err


def test_all_faults_in_one_report(collsim):
    flags = "--topo mi355_ubb8 --op all_to_all,bcst --size 64MB --algo rign -d flot --redop sm --profile ideel"
    flags += " --format cvs --channels q --root x --ranks two -o /no/such.csv --set nothing"
    outcome = collsim("run", *flags.split())
    places = ("--topo", "--op", "--size", "--algo", "-d", "--redop", "--profile", "--format", "--channels", "-r")
    refused(outcome, *(f"error: {place}: " for place in (*places, "--ranks", "-o: /no/such.csv", "--set")))
    assert outcome.err.count("error: ") == 13


def test_a_wrong_fabric_hides_no_other_fault(collsim):
    base = ("run", "--topo", "hgx_h100", "--nodes", "2", "--fabric", "ral", "--network", "infinband")
    outcome = collsim(*base, "--op", "all_reduc", "--size", "1M", "--ranks", "17", "--placement", "no_such.txt")
    refused(outcome, "--fabric: ", "--network: ", "--op: ", "--ranks: 17 ranks on 16 GPUs")
    outcome = collsim(*base, "--op", "all_reduce", "--size", "1M", "--placement", "no_such.txt", "--fail", "gpu:9")
    refused(outcome, "--fabric: ", "--network: ", "--placement: ")
    outcome = collsim("run", "--topo", "hgx_h100", "--fail", "gpu:9", "--op", "all_reduce", "--rank-list", "0,8")
    refused(outcome, "--fail: ", "--rank-list: GPU 8 is out of range")


def test_faults_name_the_flag_that_listed_the_ranks(collsim):
    base = ("run", "--topo", "hgx_h100", "--nodes", "2", "--op", "all_reduce", "--size", "1M", "--rank-list", "0,1,8")
    refused(collsim(*base), "--rank-list: ", "different numbers of ranks")


def test_faults_of_files_and_flags_together(collsim, tmp_path):
    topology = tmp_path / "mine.yaml"
    topology.write_text(MESH.replace("64 GB/s", "64").replace("latency", "latencie"))
    outcome = collsim("run", "--topo", topology, "--op", "all_to_all", "--dtype", "x")
    refused(outcome, f"{topology}:7", '"64" has no unit', f"{topology}:8", 'mean "latency"?', "-d", '"x"')


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (MESH.replace("  bandwidth: 64 GB/s", "  bandwidth: 64"), 7, ["link.bandwidth", '"64" has no unit', "64 GB/s"]),
        (MESH.replace("64 GB/s", "-64 GB/s"), 7, ["link.bandwidth", '"-64 GB/s"', "more than 0"]),
        (MESH.replace("bandwidth", "bandwith"), 7, ['"bandwith"', 'mean "bandwidth"?']),
        (MESH.replace("count: 4", "count: four"), 5, ["gpu.count", '"four"']),
        (MESH.replace("full_mesh", "ful_mesh"), 3, ["builder", '"ful_mesh"', "full_mesh"]),
        (MESH.replace("schema: collsim.topology/1\n", ""), None, ["schema", "collsim.topology/1"]),
        (MESH.replace("gpu:", "gpu: ["), None, ["not valid YAML"]),
        (MESH.replace("count: 4", "count: 4\n  count: 5"), 6, ['"count"', "twice"]),
        (PAIRS.replace("b: b1, band", "b: b9, band"), 11, ["links[1].b", '"b9"', "a0, a1, b0, b1"]),
        (PAIRS.replace("name: b0", "name: a1"), 7, ["nodes[2]", '"a1" appears twice']),
        (PAIRS.replace("a: b0, b: b1", "a: a1, b: a0"), None, ["b0"]),
        ("", None, ["is empty", "collsim.topology/1"]),
        ("- 1\n", 1, ["a list, not a mapping"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_topology_file(collsim, tmp_path, text, line, words):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    for command in (("run", "--op", "all_to_all", "--topo"), ("topo", "check"), ("topo", "show")):
        outcome = collsim(*command, file)
        refused(outcome, f"{file}:{line}" if line else str(file), "hint: ", *words)


def test_binary_file_and_directory(collsim, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(bytes(range(256)))
    refused(collsim("run", "--op", "all_to_all", "--topo", file), str(file), "not a text file")
    refused(collsim("run", "--op", "all_to_all", "--topo", tmp_path), "directory, not a file", "YAML file")
    refused(collsim(*RUN, "--profile", file), str(file), "not a text file")
    refused(collsim(*RUN, "--profile", f"{tmp_path}/"), "directory, not a file")
    refused(collsim(*RUN, "--config", file), str(file), "not a JSON document")
    refused(collsim(*RUN[:3], "--op", "alltoallv", "--matrix", file), str(file), "not a text file")
    refused(collsim(*RUN[:3], "--op", "alltoallv", "--matrix", tmp_path), str(tmp_path), "directory")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1K 2K\n1K 0 2K\n", [":1:1", "2 rows of 3", "one line per sender"]),
        ("0 1K\n1K\n", [":2:1", "1 entry", "2 rows"]),
        ("0 lots\n1K 0\n", [":1:3", '"lots"', "write a size"]),
        ("0 -1K\n1K 0\n", [":1:3", '"-1K"', "0 or more"]),
        ("0 64MB\n1K 0\n", [":1:3", '"64MB" is ambiguous', "64MiB"]),
        ("0 0\n0 0\n", ["every entry of the matrix is 0"]),
        ("5 0\n0 5\n", ["--matrix", "no rank sends anything"]),
        ("", ["matrix"]),
        ("1 2 3\n" * 9, ["9 rows of 3"]),
        ("0 1 1 1 1 1 1 1 1\n" * 9, ["--matrix", "9 ranks", "8 GPUs"]),
    ],
)
def test_matrix_file(collsim, tmp_path, text, words):
    file = tmp_path / "bytes.txt"
    file.write_text(text)
    outcome = collsim("run", "--topo", "mi355x_ubb8", "--op", "all_to_all_v", "--matrix", file)
    refused(outcome, *words)
    assert "needs a matrix" not in outcome.err


def test_matrix_for_other_ranks_and_operations(collsim, tmp_path):
    file = tmp_path / "bytes.txt"
    file.write_text("0 1K\n1K 0\n")
    base = ("run", "--topo", "mi355x_ubb8", "--matrix", file)
    refused(collsim(*base, "--op", "all_to_all_v", "--ranks", "4"), "--matrix", "2 ranks", "4")
    refused(collsim(*base, "--op", "all_to_all"), "--matrix", "all_to_all_v only")


def test_profile_file_reports_everything(collsim, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("schema: collsim.topology/1\nlaunch: 8\nlauch: 3 us\nchannel_rate: {vale: 3}\nlink_rate: slow\n")
    outcome = collsim(*RUN, "--profile", file)
    refused(
        outcome, f"{file}:1", "collsim.profile/1", f"{file}:2", '"8" has no unit', f"{file}:3", 'mean "launch"?',
        f"{file}:4", '"vale"', "no value", f"{file}:5", '"slow"', "achievable or raw", "no name",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", [":1:2", "not JSON"]),
        ('{"schema": "collsim.config/1", "config": {"size": NaN}}', ["not a JSON document"]),
        ("[]", ["the schema is missing", "collsim.config/1 or collsim.result/1"]),
        ('{"schema": "collsim.config/2"}', ["collsim.config/2"]),
        ('{"schema": "collsim.config/1"}', ["config: there is no config", "--save-config"]),
        ('{"schema": "collsim.config/1", "config": 3}', ["config", "3 is not an object"]),
        ('{"schema": "collsim.config/1", "config": {"siez": 3}}', ["config", '"siez"', 'mean "size"?']),
        ('{"schema": "collsim.config/1", "config": {"size": true}}', ["config.size", "true is not a list of sizes"]),
        ('{"schema": "collsim.config/1", "config": {"channels": "x"}}', ["config.channels", '"x"', "whole number"]),
        ('{"schema": "collsim.config/1", "config": {"op": [1]}}', ["config.op", "[1]"]),
        ('{"schema": "collsim.config/1", "config": {"rank_lists": [[0, 1], [5, 6]]}}', ["config.rank_lists"]),
        ('{"schema": "collsim.config/1", "config": {"overrides": [1]}}', ["config.overrides"]),
        ('{"schema": "collsim.config/1", "config": {"matrix_bytes": [1]}}', ["config.matrix_bytes"]),
        ('{"schema": "collsim.config/1", "config": {"dtype": "flot"}}', ["config.dtype", '"flot"', 'mean "float"?']),
        ('{"schema": "collsim.config/1", "config": {"rank_lists": [[0]]}}', ["config.rank_lists", "1 ranks"]),
        ('{"schema": "collsim.config/1", "config": {"topo": "graph"}}', ["config.topo", '"graph"']),
    ],
)
def test_configuration_file(collsim, tmp_path, text, words):
    file = tmp_path / "run.json"
    file.write_text(text)
    arguments = ("--op", "all_to_all") if "topo" in text else RUN[1:3] if '"op"' in text else RUN[1:]
    refused(collsim("run", "--config", file, *arguments), str(file), *words)


def test_environment_is_named_as_the_place(collsim):
    outcome = collsim("run", "--op", "all_to_all", COLLSIM_TOPO="mi35", COLLSIM_FORMAT="x", COLLSIM_SIZE="1MB")
    refused(outcome, *(f"COLLSIM_{name} in the environment: " for name in ("TOPO", "FORMAT", "SIZE")))


def test_environment_of_a_switch_is_named_as_the_place(collsim):
    refused(collsim(*RUN, COLLSIM_QUIET="maybe"), "COLLSIM_QUIET in the environment: ", "'maybe'")


def test_same_file_under_two_names(collsim, tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "result.json")
    outcome = collsim(*RUN, "-o", tmp_path / "link.json", "--save-config", tmp_path / "result.json")
    refused(outcome, "--save-config: ", "what -o writes")
    assert [entry.name for entry in tmp_path.iterdir()] == ["link.json"]
    assert collsim(*RUN, "--size", "1M", "-q", "-o", "/dev/null", "--save-config", "/dev/null").code == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("log.csv", ("validate", "log.csv", "--topo", "hgx_h100", "-o", "log.csv")),
        ("log.csv", ("validate", "log.csv", "--topo", "hgx_h100", "-o", "link.csv")),
        ("log.csv", ("calibrate", "log.csv", "--topo", "hgx_h100", "-o", "./log.csv")),
        ("log.csv", ("calibrate", "log.csv", "--topo", "hgx_h100", "--plot", "log.csv")),
        ("mine.yaml", ("calibrate", "log.csv", "--topo", "hgx_h100", "--start", "mine.yaml", "-o", "mine.yaml")),
        ("mine.yaml", ("validate", "log.csv", "--topo", "mine.yaml", "--format", "csv", "-o", "mine.yaml")),
        ("mine.yaml", (*RUN, "--profile", "mine.yaml", "--format", "csv", "-o", "mine.yaml")),
        ("log.csv", ("run", "--topo", "hgx_h100", "--op", "all_to_all_v", "--matrix", "log.csv", "-o", "log.csv")),
        ("run.json", ("run", "--config", "run.json", "-o", "run.json")),
        ("log.csv", (*RUN, "--placement", "log.csv", "-o", "log.csv")),
        ("mine.yaml", ("schedule", "export", "--topo", "mine.yaml", "--op", "all_reduce", "-o", "mine.yaml")),
        ("mine.svg", ("topo", "draw", "./mine.svg", "-o", "mine.svg")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_file_that_is_read_is_never_replaced(collsim, tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("op,ranks,size_bytes,time_us\nall_reduce,8,1048576,21\n")
    for name in ("mine.yaml", "mine.svg"):
        (tmp_path / name).write_text("schema: x\n")
    (tmp_path / "link.csv").symlink_to("log.csv")
    assert collsim(*RUN, "--size", "1M", "-q", "--save-config", "run.json").code == 0
    before = (tmp_path / source).read_bytes()
    refused(collsim(*words), f"{words[-2]}: it would replace", "which this command reads", "_new")
    assert (tmp_path / source).read_bytes() == before


def test_a_shipped_name_is_no_file_and_a_configuration_may_be_renewed(collsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mi355x_ubb8").write_text("")
    assert collsim(*RUN, "--size", "1M", "-q", "-o", "mi355x_ubb8", "--save-config", "run.json").code == 0
    assert collsim("run", "--config", "run.json", "--size", "2M", "-q", "--save-config", "run.json").code == 0


def test_disconnected_ranks(collsim, tmp_path):
    file = tmp_path / "islands.yaml"
    file.write_text(PAIRS)
    outcome = collsim("run", "--topo", file, "--op", "all_reduce", "--size", "1M")
    refused(outcome, code=3)
    assert re.search(r"rank 0|a0", outcome.err)
    assert re.search(r"rank [23]|b[01]", outcome.err)


def test_output_that_cannot_be_written(collsim, tmp_path):
    if os.geteuid() == 0:
        refused(collsim(*RUN, "--size", "1M", "-o", "/proc/result.csv", "-q"), "/proc/result.csv", "cannot be written")
    else:
        tmp_path.chmod(0o500)
        refused(collsim(*RUN, "-o", tmp_path / "result.csv"), "result.csv", "permission")
        tmp_path.chmod(0o700)


def test_messages_are_short_and_printable(collsim):
    outcome = collsim("run", "--topo", "\x1b[31m" + "x" * 10_000, "--op", "\x07" * 9_000)
    refused(outcome, "--topo", "--op")
    assert outcome.err.replace("\n", "").isprintable()
    assert len(outcome.err) < 6_000


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((*RUN, "--size", "64MB"), "64MiB"),
        (("run", "--topo", "/etc", "--op", "all_to_all"), "directory"),
        ((*RUN, "--tpo", "x"), '"--topo"?'),
    ],
)
def test_in_a_real_process(process, arguments, word):
    refused(process(*arguments), word)


TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["0", "-1", "1e400", "nan", "inf", "1M", "64MB", ",", "0-", "-0", "9" * 30, "1_0", "٣", "=", "a=b"]
    ),
    st.integers().map(str),
    st.floats().map(str),
)
FLAGS = (
    "--op", "-b", "-e", "-i", "-f", "--size", "--ranks", "--rank-list", "--algo", "--channels", "--chunk", "-d",
    "--redop", "-r", "--matrix", "--profile", "--set", "--format", "--topo", "--config",
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(flags=st.dictionaries(st.sampled_from(FLAGS), TEXTS, min_size=1, max_size=5))
@example(flags={"-f": "1.7e302"})
def test_any_values_of_flags(collsim, flags):
    """Nothing but an answer or a report; the request is made wrong in one more place, so that nothing large runs."""
    words = [word for flag, text in flags.items() for word in (flag, text)]
    outcome = collsim(*RUN, *words, "--save-config", "/no/such/place.json")
    assert outcome.code == 2
    assert "defect" not in outcome.err
    assert "Traceback" not in outcome.err
    assert "error: " in outcome.err
