"""Profiles that build on others: what they take over, what they change, how sure they are, and what is wrong."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import pytest

from collsim import simulate
from collsim.core.errors import SpecError
from collsim.library import Protocol, Scatter, load_profile, profile_names
from collsim.library.costs.profile import Profile
from collsim.library.costs.profile_files import FOLDER, _meant_for, profile_for
from collsim.library.costs.profile_reader import DERIVED_REACH, SCHEMA
from collsim.topology import load_topology, zoo_names

ACCURACY = "{low: 0.8, high: 1.25, median: 0.05, p90: 0.1, rows: 20, logs: 3}"


@pytest.fixture
def load(tmp_path):
    """Load a profile from the lines below schema and name."""

    def call(text):
        file = tmp_path / "mine.yaml"
        file.write_text(f"schema: {SCHEMA}\nname: mine\n{text}\n")
        return load_profile(str(file))

    return call


def faults_of(load, text):
    with pytest.raises(SpecError) as caught:
        load(text)
    return caught.value.faults


def test_extending_takes_over_everything_but_whom_it_is_for(load):
    base, mine = load_profile("hgx_h100"), load("extends: hgx_h100")
    same = ("families", "protocols", "accuracy", "launches", "floor_s", "thread_launch_s", "library", "calibrated")
    for name in same:
        assert getattr(mine, name) == getattr(base, name), name
    assert (mine.name, mine.systems, mine.gpus, mine.derived) == ("mine", (), (), "")
    assert mine.sha256 != base.sha256
    assert not mine.fits("hgx_h100")


def test_what_a_file_says_goes_before_what_it_extends(load):
    base = load_profile("hgx_h100")
    text = "floor: 3 us\nlibrary: nccl-2.21\nfamilies: {ring: {LL: {base: 1 us, reduce_rate: {half: 5 GB/s}}}}"
    mine = load(f"extends: hgx_h100\n{text}")
    assert (mine.floor_s, mine.library) == (3e-6, "nccl-2.21")
    expected = replace(base.families["ring"]["LL"], base_s=1e-6, reduce_rates_Bps={"half": 5e9})
    assert mine.families["ring"]["LL"] == expected
    assert mine.families["ring"]["Simple"] == base.families["ring"]["Simple"]
    assert mine.families["nvls"] == base.families["nvls"]


def test_the_hash_knows_the_relative(load, tmp_path):
    content = load("extends: hgx_h100").sha256, (tmp_path / "mine.yaml").read_bytes()
    assert content[0] == hashlib.sha256(content[1] + load_profile("hgx_h100").sha256.encode()).hexdigest()


@pytest.mark.parametrize("base", ["hgx_h10", "mine", "[hgx_h100]", "{a: 1}", "3", "''"])
def test_unknown_base(load, base):
    [fault] = faults_of(load, f"extends: {base}")
    assert "is no other profile" in fault.what
    assert "hgx_h100" in fault.hint
    assert fault.where.endswith("mine.yaml:3: extends")


def test_scale_multiplies_in_all_kernels_and_ways_to_launch(load):
    base = load_profile("hgx_h100")
    mine = load("extends: hgx_h100\nscale: {channel_rate: {value: 0.5, status: derived}, small_overhead: 3}")
    for one, other in ((base, mine), (base.launches["graph"], mine.launches["graph"])):
        for family, protocols in one.families.items():
            for proto, costs in protocols.items():
                found = other.families[family][proto]
                assert found.channel_rate_Bps == 0.5 * costs.channel_rate_Bps
                assert found.base_s == costs.base_s
                small_s = costs.small_overhead_s
                assert found.small_overhead_s == (None if small_s is None else 3 * small_s)  # no figure, none to scale


def test_scale_reaches_what_holds_for_all_kernels(load):
    mine, base = load("extends: default\nscale: {channel_rate: 2, message_overhead: 3}"), load_profile("default")
    assert mine.channel_rate_Bps == 2 * base.channel_rate_Bps
    assert mine.message_overhead_s == pytest.approx(3 * base.message_overhead_s)
    for name, costs in base.protocols.items():
        assert mine.protocol(name).channel_rate_Bps == 2 * costs.channel_rate_Bps


def test_faults_of_scale(load):
    faults = faults_of(load, "extends: hgx_h100\nscale: {channel_rat: 2, base: 0, fill_rate: x, softness: {val: 1}}")
    told = " | ".join(str(fault) for fault in faults)
    for words in ('unknown key "channel_rat"', 'did you mean "channel_rate"', '"0" is not a number above 0',
                  '"x" is not a number above 0', 'unknown key "val"', "the figure has no value"):  # fmt: skip
        assert words in told
    [fault] = faults_of(load, "scale: [2]")
    assert "scale is not a mapping" in fault.what


def test_what_is_derived_is_less_sure(load):
    """Ends of intervals are twice as far off, as logarithms; a file that only extends was measured as its base was."""
    base, same, derived = load_profile("hgx_h100"), load("extends: hgx_h100"), load("extends: hgx_h100\nderived: by x")
    assert same.accuracy == base.accuracy
    for one, other in ((base, derived), (base.launches["graph"], derived.launches["graph"])):
        assert set(other.accuracy) == set(one.accuracy)
        for family, bands in one.accuracy.items():
            for band, scatter in bands.items():
                wide = other.accuracy[family][band]
                assert math.log(wide.high) == pytest.approx(DERIVED_REACH * math.log(scatter.high))
                assert math.log(wide.low) == pytest.approx(DERIVED_REACH * math.log(scatter.low))
                assert (wide.median, wide.rows) == (scatter.median, scatter.rows)
    assert load("extends: hgx_h100\nderived: by x\nchecked: two logs").accuracy == base.accuracy
    [fault] = faults_of(load, "extends: hgx_h100\nchecked: two logs")
    assert "is not derived" in fault.what
    assert derived.derived == "by x"
    assert not replace(derived, systems=("s",)).fits("s")
    assert replace(same, systems=("s",)).fits("s")


def test_accuracy_by_kernel_and_band(load):
    mine = load(f"families: {{ring: {{LL: {{base: 1 us}}}}}}\naccuracy: {{ring: {{large: {ACCURACY}}}}}")
    assert mine.scatter("ring", 2**20) == Scatter(0.8, 1.25, 0.05, 0.1, 20, 3)
    assert mine.scatter("all_pairs", 2**30) == mine.scatter("ring", 2**30)  # stands in
    assert mine.scatter("ring", 2**20 - 1) is None
    assert mine.scatter("nvls", 2**20) is None
    assert "from 1 MiB, left out of the fit in turn: ring 5%" in mine.describe()


def test_errors_of_fitted_rows_are_not_called_left_out(load):
    """Nor do they make an interval: a fit to one log cannot say how far off it is elsewhere."""
    fitted = ACCURACY.replace("}", ", fitted: true}")
    mine = load(f"extends: hgx_h100\naccuracy: {{ring: {{large: {fitted}}}}}")
    assert mine.scatter("ring", 2**20) == Scatter(0.8, 1.25, 0.05, 0.1, 20, 3, fitted=True)
    told = mine.describe()
    assert "; of the fitted rows themselves (none could be left out: no interval): ring 5%" in told
    assert "left out of the fit in turn: nvls" in told
    arguments = {"ranks": 4, "library": "nccl-2.28", "environment": {"NCCL_ALGO": "Ring"}}
    [row] = simulate("hgx_h100", "all_reduce", 2**26, profile=mine, **arguments)
    assert row.algo == "ring"
    assert (row.time_lo_s, row.time_hi_s) == (None, None)
    [row] = simulate("hgx_h100", "all_reduce", 2**26, profile="hgx_h100", **arguments)
    assert row.time_lo_s < row.time_s < row.time_hi_s


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{rng: {}}", 'unknown key "rng"'),
        ("[ring]", "accuracy is not a mapping"),
        ("{ring: 3}", "ring is not a mapping"),
        (f"{{ring: {{huge: {ACCURACY}}}}}", 'unknown key "huge"'),
        ("{ring: {large: 3}}", "large does not hold"),
        ("{ring: {large: {low: 0.8}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('0.8', '1.1')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('1.25', '0.9')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('1.25', '.inf')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('0.8', '0')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('low', 'loow')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('3}', '3, more: 1}')}}}}}", "large does not hold"),
        (f"{{ring: {{large: {ACCURACY.replace('3}', '3, fitted: 1}')}}}}}", "large does not hold"),
    ],
)
def test_faults_of_accuracy(load, text, words):
    faults = faults_of(load, f"accuracy: {text}")
    assert words in faults[0].what
    assert "mine.yaml:3" in faults[0].where


def test_a_launch_is_as_of_streams_but_for_what_it_says(load):
    text = (
        "floor: 9 us\nthread_launch: 4 us\nfamilies: {ring: {LL: {base: 8 us, channel_rate: 7 GB/s}}}\n"
        f"accuracy: {{ring: {{large: {ACCURACY}}}}}\n"
        "launches: {graph: {floor: 6 us, families: {ring: {LL: {base: 5 us}}}}, registered: {thread_launch: 1 us}}"
    )
    mine = load(text)
    graph, registered = mine.launched("graph"), mine.launched("stream", registered=True)
    assert mine.launched("graph", registered=True) is graph
    assert mine.launched("stream") is mine
    assert (graph.floor_s, graph.thread_launch_s) == (6e-6, 4e-6)
    assert (registered.floor_s, registered.thread_launch_s) == (9e-6, 1e-6)
    assert graph.families["ring"]["LL"] == replace(mine.families["ring"]["LL"], base_s=5e-6)
    assert registered.families == mine.families
    assert graph.accuracy == {}  # measured with streams: says nothing of graphs
    assert graph.launches == {}


def test_a_derived_launch_is_as_the_relative_launches(load):
    base = load_profile("hgx_h100").launches["graph"]
    mine = load("extends: hgx_h100\nlaunches: {graph: {floor: 1 us}}").launches["graph"]
    assert mine.floor_s == 1e-6
    assert mine.families == base.families


def test_faults_of_launches(load):
    told = " | ".join(map(str, faults_of(load, "launches: {grph: {}, graph: {launch: 1 us, floor: 3}}")))
    for words in ('unknown key "grph"', 'unknown key "launch"', '"3" has no unit'):
        assert words in told
    assert "graph is not a mapping" in faults_of(load, "launches: {graph: 3}")[0].what


def test_one_thread_starts_gpus_in_turn(load):
    mine = load("thread_launch: {value: 4 us, low: 3 us, high: 5 us, status: fitted, source: x}")
    assert mine.thread_launch_s == 4e-6
    assert mine.for_threads(8).wait_s == pytest.approx(28e-6)
    assert mine.for_threads(1).wait_s == 0.0


def test_ends_of_a_figure_are_read_as_figures(load):
    faults = faults_of(load, "floor: {value: 4 us, low: 3, high: 5 GB/s, status: guessed, lo: 1}")
    places = {fault.where.rpartition(": ")[2] for fault in faults}
    assert {"floor.low", "floor.high", "floor.status"} <= places
    assert len(faults) == 4


def test_fractions_and_numbers_of_a_protocol(load):
    text = "contention: 100%, softness: 0, link_share: 120%, wire_efficiency: 0.5"
    told = " | ".join(map(str, faults_of(load, f"families: {{messages: {{Simple: {{{text}}}}}}}")))
    assert told.count(" | ") == 2
    for words in ("nothing would be left", '"0" is not a number above 0', "link_share"):
        assert words in told


@pytest.mark.parametrize(
    "text",
    [
        "scale: {channel_rate: {value: 0.1}}",
        "families: {ring: {LL: {base: 3 us}}}",
        "floor: 1 us",
        "link_rate: achievable",
    ],
)
def test_changed_constants_have_no_measured_interval(load, text):
    common = f"extends: hgx_h100\nsystems: [hgx_h100]\n{text}"
    mine = load(common)
    assert mine.accuracy == {}
    assert "median error" not in mine.describe()
    assert simulate("hgx_h100", "all_reduce", "64K", profile=mine).rows[0].time_lo_s is None
    assert bool(mine.launches["graph"].accuracy) == (not text.startswith("scale"))
    own = load(f"{common}\naccuracy: {{ring: {{small: {ACCURACY}}}}}")
    assert set(own.accuracy) == {"ring"}
    derived = load(f"{common}\nderived: by x")
    assert set(derived.accuracy) == set(load_profile("hgx_h100").accuracy)


@pytest.mark.parametrize(
    ("key", "factor", "place"),
    [
        ("contention", 3, "families.messages.Simple becomes 1.6"),
        ("wire_efficiency", 3, "families.ring.LL becomes 1.5"),
        ("link_share", 3, "families.ring.LL becomes 2.8"),
        ("softness", 1e-3, "families.ring.LL becomes 0.002"),
        ("channel_rate", 1e-12, "families.ring.LL becomes 0.008"),
        ("base", 1e20, "families.ring.LL becomes 5.5"),
    ],
)
def test_scaled_figures_stay_in_their_range(load, key, factor, place):
    [fault] = faults_of(load, f"extends: hgx_h100\nscale: {{{key}: {{value: {factor}}}}}")
    assert fault.where.endswith(f"mine.yaml:4: scale.{key}")
    assert f"{key} of {place}" in fault.what
    assert "must stay between" in fault.hint


@pytest.mark.parametrize("softness", ["1e-9", "0.001", "1001", "1e300"])
def test_softness_has_a_range(load, softness):
    [fault] = faults_of(load, f"families: {{ring: {{LL: {{softness: {softness}}}}}}}")
    assert f'"{softness}" is out of range' in fault.what


@pytest.mark.parametrize("softness", ["0.1", "1000"])
def test_the_ends_of_the_range_of_softness_give_times(load, softness):
    mine = load(
        f"extends: hgx_h100\nscale: {{contention: 1.5}}\nfamilies: {{messages: {{Simple: {{softness: {softness}}}}}}}"
    )
    row = simulate("hgx_h100", "all_to_all", "64M", profile=mine).rows[0]
    assert row.lower_bound_s < row.time_s < 1


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("scale: {base: 2}", "scale", "nothing to scale"),
        ("derived: 3", "derived", "derived is not a text"),
        ("library: nccl-9", "library", '"nccl-9" is no library'),
        ("extends: hgx_h100\nname: hgx_b200", "name", "name of a shipped profile"),
        (f"accuracy: {{ring: {{large: {ACCURACY.replace('0.05', '-0.1')}}}}}", "accuracy.ring.large", "of an error"),
        (f"accuracy: {{ring: {{large: {ACCURACY.replace('20', '-5')}}}}}", "accuracy.ring.large", "of an error"),
        (f"accuracy: {{ring: {{large: {ACCURACY.replace('3}', '0.5}')}}}}}", "accuracy.ring.large", "of an error"),
    ],
)
def test_faults_of_what_a_file_says_of_itself(tmp_path, text, place, what):
    file = tmp_path / "mine.yaml"
    name = "" if "name:" in text else "name: mine\n"
    file.write_text(f"schema: {SCHEMA}\n{name}{text}\n")
    with pytest.raises(SpecError) as caught:
        load_profile(str(file))
    [fault] = caught.value.faults
    assert what in fault.what
    assert fault.where.startswith(f"{file}:")
    assert fault.where.endswith(f": {place}")


# --- those that are shipped -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_is_whole(name):
    profile = load_profile(name)
    assert profile.title
    assert len(profile.sha256) == 64
    for one in (profile, *profile.launches.values()):
        assert bool(one.accuracy) <= bool(one.families)
        for protocols in one.families.values():
            assert set(protocols) <= {"LL", "LL128", "Simple"}
            for costs in protocols.values():
                assert isinstance(costs, Protocol)
                assert 0 < costs.link_share <= 1
                assert 1e9 < costs.channel_rate_Bps <= math.inf


def test_the_scan_of_the_texts_agrees_with_the_files():
    """Names are found without reading YAML; nothing is meant by two profiles."""
    for key in ("systems", "gpus"):
        found = {name: getattr(load_profile(name), key) for name in profile_names()}
        meant = [(word, name) for name, words in found.items() for word in words]
        assert dict(meant) == _meant_for(key)
        assert len(meant) == len(dict(meant))


def test_shipped_files_are_extended_by_relatives_only():
    for name in profile_names():
        text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        assert ("\nextends: " in text) == bool(load_profile(name).derived), name


EXPECTED = {
    "mi250x_8oam": "mi250x_node", "vr300_nvl576": "vr200_nvl144", "mi400_ualoe72": "default",
    "mi500_ual256": "default", "pcie_gen5_8gpu": "rtx_pro_6000_8gpu", "hgx_h800": "hgx_h100",
}  # fmt: skip


@pytest.mark.parametrize("topo", zoo_names())
def test_the_profile_of_a_shipped_topology(topo):
    assert profile_for(load_topology(topo)) == EXPECTED.get(topo, topo)


def edited(tmp_path, topo, *changes):
    """Return a topology from the shipped file under another name, with parts of the text replaced."""
    text = load_topology(topo).to_yaml("mine")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_topology(path)


@pytest.mark.parametrize(
    ("topo", "changes", "expected"),
    [
        ("hgx_h100", (), "hgx_h100"),
        ("hgx_h100", (("H100 SXM5", "H800"),), "hgx_h100"),
        ("hgx_h100", (("H100 SXM5", "H200"),), "hgx_h200"),
        ("hgx_h100", (("H100 SXM5", "GH200"),), "gh200_quad"),  # no H200
        ("hgx_b200", (("B200 SXM", "GB200"),), "gb200_nvl72"),
        ("hgx_h100", (("H100 SXM5", "H20"),), "hgx_h20"),  # no H200
        ("hgx_h100", (("H100 SXM5", "H30"),), "default"),
        ("hgx_h100", (("NVLink4", "PCIe"),), "default"),
        ("mi250x_8oam", (), "mi250x_node"),
        ("pcie_gen5_8gpu", (), "rtx_pro_6000_8gpu"),
        ("l40s_8gpu", (("31.5 GB/s", "63 GB/s"),), "rtx_pro_6000_8gpu"),
    ],
)
def test_a_file_with_the_same_gpu_has_the_profile_of_the_relative(tmp_path, topo, changes, expected):
    assert profile_for(edited(tmp_path, topo, *changes)) == expected


def test_a_relative_is_not_called_calibrated(tmp_path):
    result = simulate(edited(tmp_path, "hgx_h100"), "all_reduce", "1M")
    assert (result.profile["name"], result.profile["calibrated"]) == ("hgx_h100", False)
    assert any("fitted to hgx_h100 or h100_rail as shipped, not to this" in warning for warning in result.warnings)
    graph = load_topology("hgx_h100").graph.copy()
    graph.remove_node("nvsw3")  # it still has its name
    assert simulate(graph, "all_reduce", "1M").profile["calibrated"] is False
    assert simulate("hgx_h100", "all_reduce", "1M").profile["calibrated"] is True


def test_auto_without_a_topology_is_the_default():
    assert load_profile("auto").name == "default"
    assert load_profile("auto", load_topology("hgx_h200")).name == "hgx_h200"
    assert load_profile("auto", load_topology("hgx_h200")).source == "auto"
    assert isinstance(load_profile("auto"), Profile)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("floor: {value: 8 us, low: 9 us, high: 7 us}", ["low 9 us, value 8 us, high 7 us", "out of order"]),
        ("floor: {value: 8 us, low: 1 us, high: 7 us}", ["out of order", "high"]),
        ("floor: {value: 8 us, low: 9 us}", ["out of order"]),
        ("extends: hgx_h100\nscale: {channel_rate: {value: 1e300}}", ['"1e300" is out of range']),
        ("extends: hgx_h100\nscale: {base: {value: 1e-300}}", ['"1e-300" is out of range']),
    ],
)
def test_nonsense_written_by_hand(load, text, words):
    fault = faults_of(load, text)[0]
    for word in words:
        assert word in f"{fault.what} {fault.hint}"


@pytest.mark.parametrize(
    ("asked", "setting", "same"),
    [
        ({"topo": "hgx_h100", "nodes": 4}, "nic.bandwidth=400 Gb/s", True),
        ({"topo": "hgx_h100", "nodes": 4}, "nic.bandwidth=50 GB/s", True),
        ({"topo": "hgx_h100", "nodes": 4}, "nic.bandwidth=40 GB/s", False),
        ({"topo": "hgx_h100"}, "link.bandwidth=25 GB/s", True),
        ({"topo": "hgx_h100"}, "link.bandwidth=24 GB/s", False),
        ({"topo": "h100_rail", "nodes": 4}, "scale_out.fabric=rail", True),
    ],
)
def test_a_setting_to_what_is_there_already_changes_nothing(asked, setting, same):
    """The same warnings and the same interval as without it; another value warns."""
    plain = simulate(**asked, op="all_reduce", size="1M")
    found = simulate(**asked, op="all_reduce", size="1M", overrides=[setting])
    assert (found.warnings == plain.warnings) is same
    if same:
        (row,), (other,) = found.rows, plain.rows
        assert (row.time_s, row.time_lo_s, row.time_hi_s) == (other.time_s, other.time_lo_s, other.time_hi_s)
