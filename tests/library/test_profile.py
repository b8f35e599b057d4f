"""Profiles: the shipped ones, files of one's own, and everything that can be wrong with one."""

import math
import re

import pytest

from collsim.core.errors import SpecError, UnknownNameError
from collsim.library import load_profile, profile_names
from collsim.library.costs import profile_files
from collsim.library.costs.profile_files import FOLDER
from collsim.library.costs.profile_reader import FIGURES
from collsim.topology import load_topology
from collsim.topology.files.reader import read_document
from collsim.topology.model import STATUSES


def profile_file(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return str(file)


def test_shipped_profiles():
    assert {"default", "ideal"} <= set(profile_names())
    ideal, default = load_profile("ideal"), load_profile("default")
    assert (ideal.launch_s, ideal.message_overhead_s, ideal.channel_rate_Bps) == (0, 0, math.inf)
    assert not ideal.latency
    assert not ideal.achievable_rate
    assert default.launch_s > 0
    assert not default.calibrated
    assert default.latency
    assert len(default.sha256) == 64
    assert load_profile(default) is default


def test_a_run_within_one_node_reads_one_profile(monkeypatch):
    read = []
    load = profile_files._loaded
    monkeypatch.setattr(profile_files, "_loaded", lambda path, source: read.append(source) or load(path, source))
    profile_files._shipped.cache_clear()
    profile_files.network_for.cache_clear()
    assert not load_profile("auto", load_topology("hgx_h100")).network.families
    assert read == ["hgx_h100"]
    over_nodes = load_profile("auto", load_topology("hgx_h100", scale_out={"nodes": 2}))
    assert over_nodes.network.families
    assert len(read) > 1


@pytest.mark.parametrize(("system", "network"), [("mi250x_node", "slingshot"), ("mi250x_8oam", "infiniband")])
def test_lines_of_a_library_that_nobody_measured_on_a_network_are_those_of_its_own_logs(system, network):
    """How fast they pass is the kernels'; what adapters give, and bulk data, is the network's."""
    found = load_profile("auto", load_topology(system, scale_out={"nodes": 2})).network
    nccl = profile_files.network_for(network, "nobody's", "nccl-2.28")
    rccl = profile_files.network_for("ultra_ethernet", "MI355X", "rccl-2.28")
    assert found.name == nccl.name == network
    for family in ("ring", "chain", "rooted"):
        for proto in ("LL", "LL128"):
            mine, theirs, usual = (one.protocol(proto, family) for one in (found, nccl, rccl))
            assert mine.channel_rate_Bps == usual.channel_rate_Bps != theirs.channel_rate_Bps
            assert (mine.turn_s, mine.message_overhead_s) == (usual.turn_s, usual.message_overhead_s)
            assert mine.link_share == nccl.protocol("Simple", "ring").link_share
        assert found.protocol("Simple", family) == nccl.protocol("Simple", family)
    assert found.accuracy == nccl.accuracy
    assert "RCCL has them on ultra_ethernet" in found.title


def figures_in(data, path=()):
    """Yield every figure of a document: bare values of figures too, at every depth."""
    for key, entry in data.items():
        here = (*path, key)
        if path[-1:] == ("reduce_rate",) or (key in FIGURES and key not in ("scale", "reduce_rate")):
            yield here, entry
        elif isinstance(entry, dict) and key != "accuracy":
            yield from figures_in(entry, here)


@pytest.mark.parametrize("name", profile_names())
def test_every_shipped_figure_has_status_and_source(name):
    document = read_document((FOLDER / f"{name}.yaml").read_bytes(), name)
    assert document.data["name"] == name
    figures = list(figures_in(document.data))
    for path, entry in figures:
        assert isinstance(entry, dict), path
        assert entry["status"] in STATUSES, path
        assert entry["source"], path
        assert ("low" in entry) == ("high" in entry) == (entry["status"] == "fitted"), path
    assert figures or name == "ideal" or "derived" in document.data
    assert len(figures) > 20 or not load_profile(name).calibrated or load_profile(name).derived


def test_own_profile(tmp_path):
    text = "schema: collsim.profile/1\nname: mine\nlaunch: 5 us\nchannel_rate: {value: 25 GB/s, status: assumed}\n"
    profile = load_profile(profile_file(tmp_path, text + "link_rate: raw\ncalibrated: true\n"))
    assert (profile.name, profile.launch_s, profile.channel_rate_Bps) == ("mine", 5e-6, 25e9)
    assert (profile.message_overhead_s, profile.achievable_rate, profile.latency) == (0.0, False, True)
    assert profile.calibrated
    assert profile.describe() == "launch 5 us, message 0 us, channel 25 GB/s, links at line rate"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lauch: 5 us", ['unknown key "lauch"', 'did you mean "launch"']),
        ("colour: red", ['unknown key "colour"', "known: ", "message_overhead"]),
        ("launch: 5", ['"5" has no unit', '"5 us"']),
        ("launch: -5 us", ['"-5 us"', "more than 0"]),
        ("launch:", ["no value"]),
        ("launch: [5 us]", ["no value"]),
        ("launch: {valu: 5 us}", ['unknown key "valu"', 'did you mean "value"?']),
        ("channel_rate: 0 GB/s", ["more than 0"]),
        ("link_rate: fast", ['"fast"', "achievable or raw"]),
        ("link_rate: [raw]", ["achievable or raw"]),
        ("link_latency: 3", ["counted or ignored"]),
        ("calibrated: perhaps", ['"perhaps" is not true or false']),
    ],
)
def test_fault_names_line_value_and_hint(tmp_path, line, words):
    file = profile_file(tmp_path, f"schema: collsim.profile/1\nname: mine\n{line}\n")
    with pytest.raises(SpecError) as caught:
        load_profile(file)
    for word in (f"{file}:3", *words):
        assert word in str(caught.value)


def test_flag_of_a_protocol_is_a_truth_value(tmp_path):
    families = "families: {ring: {LL: {stepwise: sometimes, back_to_back: 1}}}"
    with pytest.raises(SpecError) as caught:
        load_profile(profile_file(tmp_path, f"schema: collsim.profile/1\nname: mine\n{families}\n"))
    assert [fault.what for fault in caught.value.faults] == [
        '"sometimes" is not true or false',
        '"1" is not true or false',
    ]
    assert [fault.hint for fault in caught.value.faults] == ["write stepwise: false", "write back_to_back: false"]


def test_rate_of_adding_by_data_type(tmp_path):
    text = "schema: collsim.profile/1\nname: mine\nprotocols:\n  Simple:\n    reduce_rate: "
    good = load_profile(profile_file(tmp_path, text + "{bfloat16: {value: 20 GB/s, status: assumed}, half: 40 GB/s}\n"))
    assert good.protocol("Simple").reduce_rates_Bps == {"bfloat16": 20e9, "half": 40e9}
    for entry, word in (("{bfloat1: 20 GB/s}", "bfloat16"), ("{half: 20}", "no unit"), ("20 GB/s", "is not a mapping")):
        with pytest.raises(SpecError, match=word):
            load_profile(profile_file(tmp_path, text + entry + "\n"))


def test_all_faults_at_once(tmp_path):
    with pytest.raises(SpecError) as caught:
        load_profile(profile_file(tmp_path, "schema: x\nlaunch: 5\nlink_rate: slow\n"))
    assert len(caught.value.faults) == 4


def test_names_and_files(tmp_path):
    with pytest.raises(UnknownNameError, match='did you mean "default"'):
        load_profile("defaul")
    profile_file(tmp_path, "x")
    with pytest.raises(SpecError, match=r"no such file\n  hint: did you mean .*mine\.yaml"):
        load_profile(str(tmp_path / "mines.yaml"))
    with pytest.raises(SpecError, match="directory"):
        load_profile(f"{tmp_path}/")
    with pytest.raises(SpecError, match="larger than"):
        load_profile("/dev/zero")


def test_missing_words_are_called_missing(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(SpecError, match="the schema is missing"):
        load_profile(str(tmp_path / "mine.yaml"))


def test_file_that_is_not_there(tmp_path):
    (tmp_path / "flt").mkdir()
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(SpecError, match='the shipped profile is called "default"'):
        load_profile(f"{tmp_path}/default")
    with pytest.raises(SpecError, match=r'did you mean ".*mine.yaml"'):
        load_profile(f"{tmp_path}/mien.yaml")
    with pytest.raises(SpecError, match="shipped profiles: default, "):
        load_profile(f"{tmp_path}/fltt")


@pytest.mark.parametrize("name", profile_names())
def test_every_launch_pays_the_same_between_nodes(name):
    profile = load_profile(name)
    assert all(launch.network == profile.network for launch in profile.launches.values())
    assert profile.network or not profile.families


NONSENSE = ("-5 GB/s", "nan", "NaN", "inf", "-1 us", "1e400 us", "0 GB/s", "[1]", "{}", "99999999 s", "abc", "-3")


@pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8"])
@pytest.mark.parametrize("key", ["value", "low", "high"])
def test_no_figure_can_be_nonsense(tmp_path, name, key):
    """Every figure of a shipped profile, edited by hand to something that no figure is."""
    lines = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    places = [place for place, line in enumerate(lines) if f"{key}: " in line and "accuracy" not in line]
    for count, place in enumerate(places[:: max(1, len(places) // 15)]):
        text = NONSENSE[count % len(NONSENSE)]
        edited = re.sub(rf"\b{key}: [^,}}]+", f"{key}: {text}", lines[place], count=1)
        with pytest.raises(SpecError) as caught:
            load_profile(profile_file(tmp_path, "\n".join([*lines[:place], edited, *lines[place + 1 :]])))
        assert f"mine.yaml:{place + 1}" in str(caught.value), edited


def test_figures_outside_their_own_interval_are_told_all_at_once(tmp_path):
    text = "schema: collsim.profile/1\nname: mine\nlaunch: {value: 5 us, low: 6 us, high: 7 us}\n"
    with pytest.raises(SpecError) as caught:
        load_profile(profile_file(tmp_path, text + "channel_rate: {value: 9 GB/s, low: 8 GB/s, high: 7 GB/s}\n"))
    assert len(caught.value.faults) == 2
    assert str(caught.value).count("out of order") == 2


def test_a_file_that_calls_itself_as_a_shipped_profile_is_told(tmp_path):
    import collsim

    text = (FOLDER / "hgx_h100.yaml").read_text(encoding="utf-8")
    told = 'mine.yaml calls itself "hgx_h100" and is not the shipped profile of that name'
    same = collsim.simulate("hgx_h100", "all_reduce", "1M", profile=profile_file(tmp_path, text))
    assert not any(told in warning for warning in same.warnings)
    other = collsim.simulate("hgx_h100", "all_reduce", "1M", profile=profile_file(tmp_path, f"{text}# changed\n"))
    assert any(told in warning for warning in other.warnings)


SI = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3, "s": 1.0, "GB/s": 1e9, "MB/s": 1e6, "KiB": 2.0**10, "MiB": 2.0**20, "": 1.0}


def written(families):
    """Yield kernel, protocol, key and value in SI of each figure of a section of kernels."""
    for kernel, protocols in families.items():
        for protocol, figures in protocols.items():
            for key, entry in figures.items():
                if isinstance(entry, dict) and "value" in entry:
                    number, _, unit = str(entry["value"]).partition(" ")
                    yield kernel, protocol, key, float(number) * SI[unit]


FILES = sorted(
    file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.yaml") if "families:" in file.read_text()
)


@pytest.mark.parametrize("name", FILES)
def test_every_figure_of_a_kernel_is_read_to_its_place(name):
    data = read_document((FOLDER / name).read_bytes(), name).data
    profile = load_profile(name.removesuffix(".yaml") if "/" not in name else str(FOLDER / name))
    read = [(data.get("families", {}), profile.families), (data.get("network", {}).get("families", {}), None)]
    read += [
        (entry.get("families", {}), profile.launches[key].families) for key, entry in data.get("launches", {}).items()
    ]
    for section, families in read:
        for kernel, protocol, key, value in written(section):
            costs = (profile.network.families if families is None else families)[kernel][protocol]
            attribute = next(each for each in (f"{key}_s", f"{key}_Bps", f"{key}_bytes", key) if hasattr(costs, each))
            assert getattr(costs, attribute) == pytest.approx(value, rel=1e-12), (kernel, protocol, key)
