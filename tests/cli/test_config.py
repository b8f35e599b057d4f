"""A run can be asked again: saved configurations, results as configurations, and what goes before what."""

import json

import pytest
from jsonschema import Draft202012Validator

from collsim.report import schema

QUIET = ("--profile", "ideal", "-q")
REQUESTS = {
    "one": ("--topo", "mi300x_ubb8", "--op", "all_to_all", "--size", "1M,64M"),
    "many": ("--topo", "mi300x_ubb8", "--op", "all_reduce,alltoall", "--ranks", "2,8", "--algo", "all", "-b", "8M"),
    "list": ("--topo", "hgx_h100", "--op", "broadcast", "--rank-list", "5,1,3", "-r", "2", "-d", "bf16", "-e", "3M"),
    "what-if": ("--topo", "mi300x_ubb8", "--op", "all_reduce", "--set", "link.bandwidth=80 GB/s", "--size", "1M"),
    "cluster": (
        *("--topo", "hgx_h100", "--nodes", "2", "--gpus-per-node", "4", "--fabric", "fat_tree", "--network", "roce"),
        *("--set", "fabric.nic_cable=9 m", "--op", "all_to_all", "--algo", "direct", "--size", "1M"),
    ),
    "failed": (
        "--topo", "hgx_h100", "--op", "all_reduce", "--ranks", "2,6", "--size", "1M",
        "--fail", "switch:nvsw2", "--fail", "gpu:gpu1", "--degrade", "link:gpu3-nvsw0:1=50%",
    ),
    "split": ("--topo", "hgx_h100", "--op", "all_reduce", "--split", "& 3", "--size", "1M"),
    "layout": ("--topo", "hgx_h100", "--op", "all_reduce", "--groups", "tp=2,dp=4", "--over", "dp", "--size", "1M"),
    "lists": (
        "--topo",
        "hgx_h100",
        "--op",
        "all_to_all",
        "--groups",
        "0,5;3,1",
        "--placement",
        "cyclic",
        "--size",
        "1M",
    ),
    "load": (
        "--topo",
        "hgx_h100",
        "--op",
        "all_reduce",
        "--load",
        "link:gpu0-*=30%",
        "--load",
        "link:*->gpu1=5%",
        "--size",
        "1M",
    ),
    "draws": (
        *("--topo", "hgx_h100", "--nodes", "2", "--fabric", "fat_tree", "--network", "roce", "--op", "all_reduce"),
        *("--set", "scale_out.radix=16", "--hash-seeds", "1-3,9", "--algo", "ring", "--size", "64K,1M"),
    ),
    "chunks": ("--topo", "mi300x_ubb8", "--op", "all_reduce", "--channels", "4", "--chunk", "64K", "--size", "1M"),
}  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_saved_configuration_and_result_give_the_same_rows(collsim, tmp_path, request_):
    saved, result = tmp_path / "run.json", tmp_path / "result.json"
    first = collsim("run", *request_, *QUIET, "--format", "csv", "--save-config", saved)
    assert first.code == 0
    Draft202012Validator(schema("collsim.config/1")).validate(json.loads(saved.read_text()))
    collsim("run", "--config", saved, "-q", "-o", result)
    for file in (saved, result):
        again = collsim("run", "--config", file, "-q", "--format", "csv", "--save-config", tmp_path / "again.json")
        assert (again.code, again.out) == (0, first.out)
        assert (tmp_path / "again.json").read_text() == saved.read_text()


def test_matrix_is_kept_inside(collsim, tmp_path):
    matrix, saved = tmp_path / "bytes.txt", tmp_path / "run.json"
    matrix.write_text("0 1M 2M\n64K 0 0\n8 8 0\n")
    first = collsim(
        "run", "--topo", "mi300x_ubb8", "--op", "all_to_all_v", "--matrix", matrix, *QUIET, "--save-config", saved
    )
    matrix.unlink()
    assert collsim("run", "--config", saved, "-q").out == first.out
    without = collsim("run", "--config", saved, "--op", "all_to_all", "--size", "1M", "--format", "csv", "-q")
    assert without.code == 0
    assert ",all_to_all,auto,direct," in without.out


def test_own_files_are_named_as_they_were_given(collsim, tmp_path):
    topology, profile, saved = tmp_path / "mine.yaml", tmp_path / "quick.yaml", tmp_path / "run.json"
    topology.write_text(
        "{schema: collsim.topology/1, builder: full_mesh, gpu: {count: 4}, link: {bandwidth: 9 GB/s, latency: 1 us}}"
    )
    profile.write_text("{schema: collsim.profile/1, name: quick, launch: 1 us}")
    first = collsim(
        "run", "--topo", topology, "--profile", profile, "--op", "a2a", "--size", "1M", "-q", "--save-config", saved
    )
    assert collsim("run", "--config", saved, "-q").out == first.out
    topology.write_text(topology.read_text().replace("9 GB/s", "8 GB/s"))
    changed = collsim("run", "--config", saved)
    assert f'the topology "mine" has changed since {saved} was written' in changed.err
    assert "profile" not in changed.err.split("has changed")[1]
    assert "has changed" not in collsim("run", "--config", saved, "--set", "link.latency=2 us").err


@pytest.fixture
def saved(collsim, tmp_path):
    file = tmp_path / "run.json"
    flags = ("--topo", "mi300x_ubb8", "--op", "all_to_all", "--size", "1M", "--ranks", "4", *QUIET)
    collsim("run", *flags, "--set", "link.bandwidth=80 GB/s", "--set", "link.latency=1 us", "--save-config", file)
    return file


def config_of(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)["config"]


def test_flag_before_environment_before_file(collsim, saved):
    base = ("run", "--config", saved, "--format", "json", "-q")
    assert config_of(collsim(*base))["size"] == [2**20]
    assert config_of(collsim(*base, COLLSIM_SIZE="2M"))["size"] == [2**21]
    assert config_of(collsim(*base, "--size", "4M", COLLSIM_SIZE="2M"))["size"] == [2**22]
    assert config_of(collsim(*base, COLLSIM_TOPO="mi355x_ubb8"))["topo"] == "mi355x_ubb8"
    assert collsim("run", "--config", saved, "-q", COLLSIM_FORMAT="csv").out.startswith("topology,")


def test_flag_silences_its_rivals_in_environment_and_file(collsim, saved):
    base = ("run", "--config", saved, "--format", "json", "-q")
    assert config_of(collsim(*base, "-b", "2M", "-e", "8M", "-f", "2"))["size"] == [2**21, 2**22, 2**23]
    assert config_of(collsim(*base, "-b", "2M", COLLSIM_SIZE="8M"))["size"] == [2**21]
    assert config_of(collsim(*base, "--rank-list", "1,2"))["rank_lists"] == [[1, 2]]
    assert config_of(collsim(*base, "--ranks", "2", COLLSIM_RANK_LIST="1,2"))["rank_lists"] == [[0, 1]]


def test_all_ranks_are_all_of_another_cluster_too(collsim, tmp_path):
    base = ("run", "--topo", "hgx_h100", "--nodes", "2", "--op", "all_gather", "--size", "1M", "--algo", "ring", "-q")
    for asked, on_three_nodes in (((), 24), (("--ranks", "4"), 4), (("--placement", "cyclic"), 16)):
        collsim(*base, *asked, "--save-config", tmp_path / "run.json")
        document = json.loads(
            collsim("run", "--config", tmp_path / "run.json", "--nodes", "3", "--format", "json", "-q").out
        )
        assert document["results"][0]["ranks"] == on_three_nodes


def test_set_changes_one_path_of_the_file(collsim, saved):
    config = config_of(collsim("run", "--config", saved, "--format", "json", "-q", "--set", "link.latency=2 us"))
    assert config["overrides"] == {"link.bandwidth": "80 GB/s", "link.latency": "2 us"}


def test_hand_written_configuration(collsim, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(
        '{"schema": "collsim.config/1", "config": {"topo": "mi300x_ubb8", "op": "allreduce", "size": "64M"}}'
    )
    config = config_of(collsim("run", "--config", file, "--format", "json", "-q"))
    assert (config["op"], config["size"], config["algo"]) == (["all_reduce"], [2**26], ["auto"])


def test_result_from_python_is_a_configuration(collsim, tmp_path):
    import collsim as package

    result = package.simulate("mi300x_ubb8", "all_to_all", "1M", ranks=[2, 4], profile="ideal")
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result.to_dict()))
    again = collsim("run", "--config", file, "--format", "json", "-q")
    assert json.loads(again.out)["results"] == json.loads(json.dumps(result.to_dict()))["results"]


def test_a_file_without_end_is_called_too_large(collsim, tmp_path, monkeypatch):
    monkeypatch.setattr("collsim.cli.config.MAX_FILE_BYTES", 2**20)
    file = tmp_path / "run.json"
    file.write_text('{"schema": "collsim.config/1"}' + " " * 2**20)
    outcome = collsim("run", "--config", file)
    assert outcome.code == 2
    assert "the file is larger than 1 MiB" in outcome.err


def test_a_configuration_does_not_replace_the_result_it_is_read_from(collsim, tmp_path):
    """A saved configuration may be renewed; a result would lose its rows."""
    saved, result = tmp_path / "run.json", tmp_path / "result.json"
    asked = ("run", "--topo", "mi300x_ubb8", "--op", "all_reduce", "--size", "1M", *QUIET)
    assert collsim(*asked, "-o", result, "--save-config", saved).code == 0
    rows = result.read_text()
    outcome = collsim("run", "--config", result, "--save-config", result)
    assert outcome.code == 2
    assert "--save-config: it would replace" in outcome.err
    assert result.read_text() == rows
    assert collsim("run", "--config", saved, "--save-config", saved, "-q").code == 0


@pytest.mark.parametrize("key", ["redop", "dtype", "launch", "root", "gpus_per_thread", "registered"])
def test_null_where_a_value_is_needed(collsim, tmp_path, key):
    saved = tmp_path / "run.json"
    collsim("run", "--topo", "mi300x_ubb8", "--op", "all_reduce", "--size", "1M", *QUIET, "--save-config", saved)
    document = json.loads(saved.read_text())
    assert key in document["config"]
    document["config"][key] = None
    saved.write_text(json.dumps(document))
    outcome = collsim("run", "--config", saved)
    assert outcome.code == 2
    assert f"config.{key}: null is not" in outcome.err


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ({"op": ["zig"]}, 'config.op: unknown operation "zig"'),
        ({"environment": "NCCL_ALGO=Ring"}, "config.environment: "),
        ({"environment": {"NCCL_ALGO": 3}}, "config.environment: "),
        ({"overrides": {"link.bandwidth": "-5 GB/s"}}, 'config.overrides.link.bandwidth: rate "-5 GB/s"'),
        ({"overrides": {"link.bandwith": "5 GB/s"}}, 'config.overrides.link.bandwith: unknown path "link.bandwith"'),
        ({"overrides": {}, "fail": ["gpu:77"]}, 'config.fail: there is no gpu "77"'),
        ({"overrides": {}, "degrade": {"gpu:0": "300%"}}, 'config.degrade: "300%"'),
        ({"matrix_bytes": [[0, -1], [1, 0]]}, "config.matrix_bytes: "),
        ({"matrix_bytes": [[0, 1]]}, "config.matrix_bytes: "),
        ({"bracket": "yes"}, 'config.bracket: "yes" is not true or false'),
        ({"tolerance": -1}, "config.tolerance: "),
        ({"rank_lists": [[0, 0]]}, "config.rank_lists: "),
        ({"channels": -5}, "config.channels: "),
    ],
)
def test_configurations_edited_to_nonsense(collsim, saved, edit, place):
    document = json.loads(saved.read_text())
    document["config"].update(edit)
    saved.write_text(json.dumps(document))
    outcome = collsim("run", "--config", saved, "-q")
    assert outcome.code == 2
    assert f"error: {saved}: {place}" in outcome.err
    assert "hint: " in outcome.err
