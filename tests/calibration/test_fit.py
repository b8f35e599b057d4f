"""Fits: constants that made times come back, what is not told is said, and files that load again."""

import math
from dataclasses import replace

import numpy as np
import pytest
import yaml

from collsim.calibration.advice import measurements_for
from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.estimates import Estimate, estimate
from collsim.calibration.findings import Calibration, Constant, Residual
from collsim.calibration.fit import fit_profile, scatter_of
from collsim.calibration.hidden_nvls import with_nvls_settled
from collsim.calibration.observations import observe, thinned, without_spikes
from collsim.calibration.parameters import Parameter, costs_of, parameters_of
from collsim.calibration.profile_writer import as_yaml
from collsim.calibration.soundness import sound_rows
from collsim.core.errors import InputError
from collsim.library import load_profile
from collsim.report.calibration import calibration_table
from collsim.simulation.request.request import ask
from collsim.simulation.simulate import predict, simulate
from collsim.topology import load_topology

LIBRARY = "nccl-2.28"
RING = (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple"))
SIZES = [2**power for power in range(10, 31, 2)]


def made_row(case, time_s, file="made.log"):
    return Measured(case, file, 1, time_s, None, 0)


def made_rows(profile, cases, noise=0.0, seed=0):
    """Return rows with the times that *profile* gives, changed by noise."""
    topology, random = load_topology("hgx_h100"), np.random.default_rng(seed)
    rows = []
    for case in cases:
        question = ask(
            case.op, case.size_bytes, dtype=case.dtype, library=LIBRARY, environment=dict(case.environment),
            launch=case.launch, registered=bool(case.registered),
        )  # fmt: skip
        time_s = predict(topology, profile, question, [range(case.ranks)]).rows[0].time_s
        rows.append(made_row(case, time_s * math.exp(noise * random.standard_normal()), f"{case.op}{case.ranks}.log"))
    return rows


def ring_cases(ranks=(2, 4), ops=("all_reduce",)):
    return [MeasuredCase(op, n, size, library=LIBRARY, environment=RING) for op in ops for n in ranks for size in SIZES]


def changed(profile, family, proto, **figures):
    families = {**profile.families, family: {**profile.families[family]}}
    families[family][proto] = replace(families[family][proto], **figures)
    return replace(profile, families=families)


@pytest.fixture(scope="module")
def h100():
    return load_profile("hgx_h100")


def test_constants_that_made_the_times_come_back(h100):
    truth = changed(h100, "ring", "Simple", channel_rate_Bps=20e9, base_s=18e-6)
    found = fit_profile(made_rows(truth, ring_cases()), load_topology("hgx_h100"), start=h100)
    constants = {entry.name: entry for entry in found.constants}
    rate = constants["ring.Simple.channel_rate"]  # without a channel sweep it trades against the softness
    assert rate.value == pytest.approx(20e9, rel=0.1)
    assert rate.low < 20e9 < rate.high
    assert constants["ring.Simple.base"].value == pytest.approx(18e-6, rel=0.05)
    assert constants["ring.Simple.base"].identified
    assert constants["ring.Simple.base"].low < 18e-6 < constants["ring.Simple.base"].high
    assert max(abs(entry.predicted_s / entry.measured_s - 1) for entry in found.residuals) < 0.02
    assert found.profile.families["ring"]["Simple"].base_s == constants["ring.Simple.base"].value
    assert found.profile.families["messages"] == h100.families["messages"]
    assert (found.start, found.profile.library, found.profile.systems) == ("hgx_h100", LIBRARY, ("hgx_h100",))


def test_left_out_groups_are_predicted_from_the_others(h100):
    truth = changed(h100, "ring", "Simple", channel_rate_Bps=22e9)
    cases = ring_cases((2, 3, 4))
    found = fit_profile(made_rows(truth, cases), load_topology("hgx_h100"), start=h100)
    errors = [abs(entry.left_out_s / entry.measured_s - 1) for entry in found.residuals]
    assert float(np.median(errors)) < 0.005
    assert max(errors) < 0.03
    shifted = made_rows(truth, cases)
    shifted = [replace(row, out_of_place_s=row.out_of_place_s * 1.5) if row.case.ranks == 3 else row for row in shifted]
    odd = fit_profile(shifted, load_topology("hgx_h100"), start=h100)
    errors = [entry.left_out_s / entry.measured_s - 1 for entry in odd.residuals if entry.ranks == 3]
    assert float(np.median(errors)) < -0.25  # what no other group shows cannot be predicted from them


def test_a_slow_kernel_does_not_tell_the_floor(h100):
    """Tiny calls by a ring with Simple take 2 to 3 floors on the device; with LL hardly more than one."""
    topology = load_topology("hgx_h100")
    for proto, told in (("Simple", False), ("LL", True)):
        environment = (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", proto))
        cases = [MeasuredCase("all_reduce", n, 512, library=LIBRARY, environment=environment) for n in (2, 3, 4)]
        observations, _ = observe(made_rows(h100, cases), topology, h100, LIBRARY)
        [floor] = [entry for entry in parameters_of(h100, observations) if entry.key == "floor_s"]
        assert floor.told is told
        assert told or floor.start == h100.floor_s


def test_steps_that_the_host_hides_are_not_fitted(h100):
    """What 2 and 3 ranks begin with is the floor; of 2 and 8 ranks the steps show, and one number tells no floor."""
    topology = load_topology("hgx_h100")
    environment = (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL"))

    def told(ranks):
        cases = [MeasuredCase("all_reduce", n, 512, library=LIBRARY, environment=environment) for n in ranks]
        slow = replace(changed(h100, "ring", "LL", message_overhead_s=2.5e-6), floor_s=8e-6)
        observations, _ = observe(made_rows(slow, cases), topology, h100, LIBRARY)
        found = {entry.name: entry for entry in parameters_of(h100, observations)}
        return found["floor"].told, "ring.LL.message_overhead" in found

    assert told((2, 2, 2, 3)) == (True, False)
    assert told((2, 8)) == (False, True)
    assert told((2, 2, 2)) == (False, True)


@pytest.mark.parametrize(("base_s", "fitted"), [(6e-6, False), (16e-6, True)])
def test_where_messages_start_is_hidden_only_below_the_floor(h100, base_s, fitted):
    """Tiny sends that begin with the floor say nothing of a base that is sooner, and that a later one is wrong."""
    topology = load_topology("hgx_h100")
    ring = (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL"))
    cases = [MeasuredCase("all_reduce", n, 512, library=LIBRARY, environment=ring) for n in (2, 2, 3)]
    cases += [MeasuredCase("send_recv", n, 512, library=LIBRARY) for n in (2, 3)]
    observations, _ = observe(made_rows(h100, cases), topology, h100, LIBRARY)
    start = changed(h100, "messages", "LL", base_s=base_s)
    found = {entry.name: entry for entry in parameters_of(start, observations)}
    assert found["floor"].told
    assert ("messages.LL.base" in found) is fitted


def test_a_row_of_few_calls_is_fitted_as_one_of_many(h100):
    case = MeasuredCase("all_reduce", 2, 2**20, library=LIBRARY)
    rows = [made_row(case, 40e-6), made_row(replace(case, calls=2), 40e-6), made_row(replace(case, calls=1), 1e-6)]
    observations, _ = observe(rows, load_topology("hgx_h100"), h100, LIBRARY)
    assert [entry.time_s for entry in observations] == pytest.approx([40e-6, 40e-6 - 9e-6 * 0.45, 1e-7])


def test_a_graph_of_few_calls_is_fitted_as_one_of_many(h100):
    """What lies around is shared by all calls, the later start of a thread's other GPUs by the replays."""
    case = MeasuredCase("all_reduce", 4, 2**20, library=LIBRARY, launch="graph", gpus_per_thread=4)
    rows = [made_row(one, 40e-6) for one in (case, replace(case, calls=100, replays=5), replace(case, launch="stream"))]
    many, five, stream = observe(rows, load_topology("hgx_h100"), h100, LIBRARY)[0]
    assert [many.time_s, five.time_s] == pytest.approx([40e-6, 40e-6 - 25e-6 * (1 / 100 - 1 / 400)])
    shares = [entry.wait_s(h100) / h100.thread_launch_s for entry in (many, five, stream)]
    assert shares == pytest.approx([3 / 20, 3 / 5, 3])


def test_small_rows_of_a_machine_with_the_same_gpus_tell_when_kernels_start(h100):
    """They show another kernel too; rates stay those of the machine's own rows, whatever the others say of bytes."""
    ring = (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL"))
    own = [replace(case, launch="graph") for case in ring_cases((4,))]
    small = [2**n for n in range(3, 16, 2)]
    its = [
        MeasuredCase(op, 2, size, library=LIBRARY, environment=ring, launch="graph")
        for op in ("all_reduce", "broadcast")
        for size in small
    ]
    truth = h100.launches["graph"]
    for family, base_s in (("ring", 4e-6), ("rooted", 3e-6)):
        truth = changed(truth, family, "LL", base_s=base_s)
    truth = replace(h100, launches={**h100.launches, "graph": replace(truth, floor_s=2e-6)})
    found = fit_profile(
        [*made_rows(h100, ring_cases()), *made_rows(truth, own)],
        load_topology("hgx_h100"),
        start=h100,
        twins=made_rows(truth, its),
    )
    graph = found.profile.launches["graph"].families
    assert graph["ring"]["LL"].base_s == pytest.approx(4e-6, rel=0.08)
    assert graph["rooted"]["LL"].base_s == pytest.approx(3e-6, rel=0.15)
    rate_Bps = truth.launches["graph"].families["ring"]["Simple"].channel_rate_Bps
    assert graph["ring"]["Simple"].channel_rate_Bps == pytest.approx(rate_Bps, rel=0.05)


def test_disturbed_rows_do_not_bend_the_fit(h100):
    truth = changed(h100, "ring", "Simple", base_s=18e-6)
    rows = made_rows(truth, ring_cases())
    rows[-1] = replace(rows[-1], out_of_place_s=rows[-1].out_of_place_s * 4)
    found = fit_profile(rows, load_topology("hgx_h100"), start=h100)
    assert found.profile.families["ring"]["Simple"].base_s == pytest.approx(18e-6, rel=0.08)


def test_what_the_logs_do_not_tell_is_said_with_a_measurement(h100):
    rows = made_rows(h100, [case for case in ring_cases((4,)) if case.size_bytes <= 16384])
    found = fit_profile(rows, load_topology("hgx_h100"), start=h100)
    untold = {entry.name for entry in found.constants if not entry.identified}
    assert "ring.Simple.channel_rate" in untold
    commands, measured = measurements_for(found)
    [command] = [text for text, names in commands.items() if "ring.Simple.channel_rate" in names]
    assert command.startswith("NCCL_ALGO=Ring NCCL_PROTO=Simple all_reduce_perf -b 1M -e 1G")
    assert sum(map(len, commands.values())) + len(measured) == len(untold)


def test_one_group_of_rows_is_not_called_left_out(h100, tmp_path):
    """Nothing tells how far off a fit to one log is elsewhere: no words of leaving out, no interval."""
    found = fit_profile(made_rows(h100, ring_cases((4,))), load_topology("hgx_h100"), start=h100)
    assert all(entry.left_out_s is None for entry in found.residuals)
    assert all(scatter.fitted for scatter in found.profile.accuracy["ring"].values())
    file = tmp_path / "mine.yaml"
    file.write_text(as_yaml(found, "made up"))
    told = load_profile(str(file)).describe()
    assert "fitted to 1 log of 4 ranks; median error from 1 MiB, of the fitted rows themselves" in told
    assert "left out of the fit in turn" not in told
    table = calibration_table(found)
    assert ": 11 rows of 1 log, nccl-2.28" in table
    assert "# left out -: " in table


def test_rows_left_out_count_before_fitted_ones():
    seen = Residual("a.log", "all_reduce", 4, 2**20, "stream", "ring", "LL", 1.0, 1.0, None)
    unseen = replace(seen, file="b.log", left_out_s=1.5)
    assert scatter_of([seen] * 9)["ring"]["large"].fitted
    both = scatter_of([seen] * 9 + [unseen])["ring"]["large"]
    assert (both.fitted, both.rows, both.logs) == (False, 1, 1)
    assert both.median == pytest.approx(0.5)


def test_words_of_the_profile_say_what_moved_a_figure(h100):
    """What prior and logs moved together is fitted, with an interval; what they left where it was is as assumed."""
    found = fit_profile(made_rows(h100, ring_cases((4,))), load_topology("hgx_h100"), start=h100)
    moved = next(entry for entry in found.constants if not entry.identified)
    still = replace(moved, name="messages.Simple.channel_rate", value=20.8e9, start=20.8e9)
    found = replace(found, constants=(*(replace(one, value=one.value * 1.1) for one in found.constants), still))
    families = {name: dict(protocols) for name, protocols in found.profile.families.items()}
    family, proto, key = moved.name.split(".")
    value = getattr(families[family][proto], f"{key}_s")
    families[family][proto] = replace(families[family][proto], **{f"{key}_s": value * 1.1})
    document = yaml.safe_load(as_yaml(replace(found, profile=replace(found.profile, families=families)), "made up"))
    entry = document["families"][family][proto][key]
    held = "made up; held by profile hgx_h100, the logs alone do not fix it"
    assert (entry["status"], entry["source"]) == ("fitted", held)
    assert {"low", "high"} < set(entry)
    messages = document["families"]["messages"]["Simple"]
    unmoved = ("assumed", "as of profile hgx_h100: these logs do not move it")
    assert (messages["channel_rate"]["status"], messages["channel_rate"]["source"]) == unmoved
    assert messages["base"]["source"] == "as of profile hgx_h100: not fitted to these logs"
    assert document["families"]["rooted"]["Simple"]["base"]["source"] == messages["base"]["source"]
    assert document["families"]["nvls"]["Simple"]["wire_efficiency"]["status"] == "assumed"
    assert document["families"]["ring"]["LL"]["wire_efficiency"]["status"] == "constant"


def test_a_protocol_that_no_broadcast_shows_begins_as_that_of_rings(h100):
    """Where other protocols of broadcasts are told; elsewhere all keep what stood before."""
    told = [Parameter(family, proto, "base_s", 1e-5, 1.0) for family, proto in (("ring", "LL128"), ("rooted", "LL"))]
    costs, _ = costs_of(h100, told, np.log([9e-6, 5e-6]))
    assert costs["rooted", "LL128"].base_s == pytest.approx(9e-6)
    assert costs["rooted", "LL"].base_s == pytest.approx(5e-6)
    assert costs["rooted", "Simple"].base_s == h100.families["rooted"]["Simple"].base_s
    alone, _ = costs_of(h100, told[:1], np.log([9e-6]))
    assert alone["rooted", "LL128"].base_s == h100.families["rooted"]["LL128"].base_s


def test_a_fit_to_no_more_rows_than_free_numbers_is_not_calibrated(h100, tmp_path):
    """It says how many rows fix how many numbers, and where the others are from; so does the output with it."""
    rows = made_rows(h100, ring_cases((4,)))
    few, enough = (fit_profile(kept, load_topology("hgx_h100"), start=h100) for kept in (rows[:4], rows))
    assert (len(few.residuals), len(few.constants), few.profile.calibrated) == (4, 8, False)
    assert "; 4 rows fix" in few.profile.title
    assert "of 8 free numbers: the others, and other ranks, are as assumed before (hgx_h100)" in few.profile.title
    assert enough.profile.calibrated
    assert "free numbers" not in enough.profile.title
    path = tmp_path / "few.yaml"
    path.write_text(as_yaml(replace(few, profile=replace(few.profile, name="few")), "made up"))
    result = simulate("hgx_h100", "all_reduce", "1M", profile=str(path))
    assert result.profile["calibrated"] is False
    assert any(text.startswith('profile "few" is not calibrated: nccl-2.28 on hgx_h100') for text in result.warnings)


def test_fractions_end_at_their_most(h100):
    found = Estimate(
        [Parameter("messages", "Simple", "link_share", 0.9, 0.2, most=1.0)], np.log([0.9]), np.array([0.2]),
        np.zeros(0), np.zeros(0),
    )  # fmt: skip
    value, low, high = found.interval(0)
    assert (value, high) == (pytest.approx(0.9), 1.0)
    assert low < 0.7


def ring_residuals(ranks=(2, 4), most=2**28, channels=(None,)):
    return [
        Residual("a.log", "all_reduce", n, 2**power, "stream", "ring", "LL", 1.0, 1.0, 1.0, count)
        for n in ranks for power in range(3, most.bit_length()) for count in channels
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("ring.LL.base", ring_residuals((4,), 2**16), ring_residuals((4,), 2**12)),
        ("ring.LL.message_overhead", ring_residuals((2, 4)), ring_residuals((4,))),
        ("ring.LL.message_overhead", ring_residuals(), [replace(r, proto="LL128") for r in ring_residuals()]),
        ("ring.LL.channel_rate", ring_residuals((4,), 2**30, (1, 16)), ring_residuals((4,), 2**30, (16,))),
        ("ring.softness", ring_residuals((4,), 2**31, (1, 16)), ring_residuals((2, 4), 2**31)),
        ("floor", ring_residuals((4,), 2**10), []),
    ],
)
def test_no_test_is_advised_that_was_given(h100, name, given, missing):
    constant = Constant("stream", name, 1.0, 1.0, 0.5, 2.0, identified=False)
    for residuals, is_there in ((given, True), (missing, False)):
        advice = measurements_for(Calibration(h100, "hgx_h100", (constant,), tuple(residuals)))
        assert advice.measured == ([name] if is_there else [])
        assert bool(advice.commands) is not is_there
        graph = Calibration(h100, "hgx_h100", (replace(constant, launch="graph"),), tuple(residuals))
        assert not measurements_for(graph).measured


def test_the_list_of_advice_is_short_and_the_most_useful_comes_first(h100):
    names = [f"ring.{proto}.{key}" for proto in ("LL", "LL128") for key in ("base", "channel_rate", "fill_rate")]
    names += ["chain.Simple.base", "chain.Simple.contention", "chain.Simple.one_more", "floor"]
    constants = tuple(Constant("stream", name, 1.0, 1.0, 0.5, 2.0, identified=False) for name in names)
    lines = calibration_table(Calibration(h100, "hgx_h100", constants, tuple(ring_residuals((4,), 2**10)))).splitlines()
    begin = lines.index("# not identified by these logs; these measurements would tell:")
    assert lines[begin + 1] == "#   NCCL_ALGO=Tree NCCL_PROTO=Simple all_reduce_perf -b 8 -e 4G -f 2"
    assert lines[begin + 2].split() == ["#", "chain.Simple.contention,", "chain.Simple.one_more"]
    assert sum("_perf" in line for line in lines[begin:]) == 6
    assert "#   and 2 more measurements, for 2 constants" in lines
    assert lines[-2].startswith("# not identified though the logs hold")
    assert lines[-1].split() == ["#", "floor"]


@pytest.mark.parametrize(
    ("name", "launch", "command"),
    [
        ("floor", "stream", "any test with -b 8 -e 1K"),
        ("ring.LL.base", "stream", "NCCL_ALGO=Ring NCCL_PROTO=LL all_reduce_perf -b 8 -e 64K -f 2"),
        ("chain.Simple.slice_overhead", "graph", "NCCL_ALGO=Tree NCCL_PROTO=Simple all_reduce_perf -G 1 -b 256K"),
        ("nvls.Simple.fill_rate", "stream", "NCCL_ALGO=NVLS all_reduce_perf -b 1M -e 4G -f 2"),
        ("ring.softness", "stream", "NCCL_ALGO=Ring all_reduce_perf -b 64M -e 4G -f 2, with NCCL_MIN_NCHANNELS"),
        ("messages.Simple.one_way_rate", "registered", "sendrecv_perf -R 1 -b 1M -e 1G -f 2, and alltoall_perf"),
        ("messages.Simple.channel_rate", "stream", "sendrecv_perf -b 1M -e 1G -f 2, with NCCL_MAX_P2P_NCHANNELS=1"),
        ("rooted.LL.base", "stream", "NCCL_PROTO=LL broadcast_perf -b 8 -e 64K -f 2"),
        ("messages.Simple.contention", "stream", "sendrecv_perf -b 8 -e 4G -f 2"),
    ],
)
def test_a_measurement_for_every_kind_of_constant(h100, name, launch, command):
    told = Constant(launch, "ring.LL.channel_rate", 1.0, 1.0, 0.9, 1.1, identified=True)
    untold = Constant(launch, name, 1.0, 1.0, 0.1, 9.0, identified=False)
    [(found, names)] = measurements_for(Calibration(h100, "start", (told, untold), ())).commands.items()
    assert found.startswith(command)
    assert names == [name]
    assert measurements_for(Calibration(h100, "start", (told,), ())) == ({}, [])


def test_other_launches_are_fitted_apart(h100):
    graph = changed(replace(h100, floor_s=6e-6, launches={}), "ring", "Simple", base_s=9e-6)
    truth = replace(h100, launches={"graph": graph})
    cases = ring_cases()
    rows = made_rows(truth, cases + [replace(case, launch="graph") for case in cases])
    found = fit_profile(rows, load_topology("hgx_h100"), start=replace(h100, launches={}))
    stream, replayed = found.profile, found.profile.launched("graph")
    assert stream.families["ring"]["Simple"].base_s == pytest.approx(h100.families["ring"]["Simple"].base_s, rel=0.03)
    assert replayed.families["ring"]["Simple"].base_s == pytest.approx(9e-6, rel=0.05)
    registered = found.profile.launched("stream", registered=True)  # a graph registers too: messages go as in one
    assert registered.families["ring"] == stream.families["ring"]
    assert registered.floor_s == stream.floor_s
    for proto, costs in registered.families["messages"].items():
        base_s = stream.families["messages"][proto].base_s
        assert costs == replace(replayed.families["messages"][proto], base_s=base_s)
    assert {entry.launch for entry in found.constants} == {"stream", "graph"}


def test_file_of_a_fit_loads_to_the_same_profile(h100, tmp_path):
    cases = ring_cases(ops=("all_reduce", "all_gather"))
    rows = made_rows(h100, cases + [replace(case, launch="graph") for case in cases], noise=0.03)
    found = fit_profile(rows, load_topology("hgx_h100"), name="mine", start=h100)
    file = tmp_path / "mine.yaml"
    file.write_text(as_yaml(found, "made up; it's a test"))
    loaded = load_profile(str(file))
    assert (loaded.name, loaded.calibrated, loaded.library, loaded.title) == (
        "mine", True, LIBRARY, found.profile.title,
    )  # fmt: skip
    for profile, again in ((found.profile, loaded), (found.profile.launched("graph"), loaded.launched("graph"))):
        assert again.floor_s == pytest.approx(profile.floor_s, rel=1e-3)
        for family, protocols in profile.families.items():
            for proto, costs in protocols.items():
                for key, value in figures_of(costs).items():
                    assert figures_of(again.families[family][proto])[key] == pytest.approx(value, rel=1e-3), (
                        family,
                        key,
                    )
        assert {family: set(bands) for family, bands in again.accuracy.items()} == {
            family: set(bands) for family, bands in profile.accuracy.items()
        }
        large = profile.accuracy["ring"]["large"]
        assert again.accuracy["ring"]["large"].low == pytest.approx(large.low, rel=1e-3)
    text = file.read_text()
    assert "status: fitted, source: 'made up; it''s a test'" in text
    assert "status: assumed, source: 'as of profile hgx_h100: not fitted to these logs'" in text


def figures_of(costs):
    """Return what a protocol says, without what is as good as absent."""
    values = {key: getattr(costs, key) for key in costs.__slots__ if key != "origins"}
    return {key: 0.0 if value is None else value for key, value in values.items()}


def test_too_few_rows_are_refused_with_the_reasons(h100):
    rows = made_rows(h100, ring_cases((4,)))[:2]
    with pytest.raises(InputError, match="2 rows can be predicted"):
        fit_profile(rows, load_topology("hgx_h100"))
    elsewhere = [replace(row, case=replace(row.case, nodes=2)) for row in made_rows(h100, ring_cases((4,)))]
    with pytest.raises(InputError, match="more than one scale-up domain"):
        fit_profile(elsewhere, load_topology("hgx_h100"))
    with pytest.raises(InputError, match="has no constants of kernels"):
        fit_profile(rows, load_topology("hgx_h100"), start="ideal")


def test_spikes_and_close_sizes_are_left_out():
    case = MeasuredCase("all_reduce", 4, library=LIBRARY)
    times = [10.0, 10.0, 30.0, 11.0, 12.0]
    rows = [made_row(replace(case, size_bytes=2**k), time * 1e-6) for k, time in enumerate(times, 10)]
    kept, spikes = without_spikes(rows, "hgx_h100")
    assert [row.case.size_bytes for row in spikes] == [2**12]
    assert len(kept) == 4
    sizes = (1000, 2000, 3900, 7800, 100_000, 150_000, 190_000, 360_000, 370_000)
    close = [made_row(replace(case, size_bytes=size), 1e-5) for size in sizes]
    assert [row.case.size_bytes for row in thinned(close)] == [1000, 3900, 100_000, 190_000, 370_000]
    assert len(thinned([*close, *(replace(row, file="other.log") for row in close)])) == 10


def test_hidden_nvls_shows_in_the_times(h100):
    cases = [MeasuredCase("all_reduce", 8, 2**power, library=LIBRARY) for power in (24, 26, 28, 30)]
    topology = load_topology("hgx_h100")
    seen = made_rows(h100, cases)
    hidden = made_rows(h100, [replace(case, environment=(("NCCL_NVLS_ENABLE", "0"),)) for case in cases])
    hidden = [replace(row, case=case, file="vm.log") for row, case in zip(hidden, cases, strict=True)]
    settled, notes = with_nvls_settled([*seen, *hidden], topology, h100, LIBRARY)
    assert [row.case.environment for row in settled[:4]] == [()] * 4
    assert [row.case.environment for row in settled[4:]] == [(("NCCL_NVLS_ENABLE", "0"),)] * 4
    assert len(notes) == 1
    assert notes[0].startswith("vm.log: NVLS was off, by the times of large sizes")
    told = [replace(row, case=replace(row.case, environment=(("NCCL_NVLS_ENABLE", "1"),))) for row in hidden]
    assert with_nvls_settled(told, topology, h100, LIBRARY) == (told, [])
    small = [replace(row, case=replace(row.case, size_bytes=2**22)) for row in hidden]
    assert with_nvls_settled(small, topology, h100, LIBRARY) == (small, [])  # hosts differ by as much
    gathered = [replace(row, case=replace(row.case, op="broadcast")) for row in hidden]
    assert with_nvls_settled(gathered, topology, h100, LIBRARY) == (gathered, [])  # never by NVLS


def test_nvls_is_judged_where_the_ranks_of_a_cluster_stand(h100):
    from collsim import simulate

    topology = load_topology("h100_rail")  # NVLS trees would be taken over two nodes, and ranks 0-7 are no node here
    cases = [MeasuredCase("all_reduce", 8, 2**power, nodes=2, library=LIBRARY) for power in (26, 28)]
    ranks = [0, 1, 2, 3, 8, 9, 10, 11]
    rows = [
        made_row(case, simulate(topology, case.op, case.size_bytes, rank_list=ranks, library=LIBRARY).rows[0].time_s)
        for case in cases
    ]
    profile = load_profile("auto", topology)
    assert with_nvls_settled(rows, topology, profile, LIBRARY) == (rows, [])


def test_hosts_of_a_rack_are_fitted_as_one_domain():
    rack, profile = load_topology("gb200_nvl72"), load_profile("gb200_nvl72")
    sizes = [2**power for power in range(20, 31)]
    question = ask("all_reduce", sizes, library=LIBRARY, environment=dict(RING))
    rows = [
        made_row(MeasuredCase("all_reduce", 8, row.size_bytes, nodes=2, library=LIBRARY, environment=RING), row.time_s)
        for row in predict(rack, profile, question, [range(8)]).rows
    ]
    found = fit_profile(rows, rack, start=profile)
    assert not found.over_nodes
    assert len(found.residuals) == len(sizes)
    assert "on more than one scale-up domain" not in {why for why, count in found.left_out.items() if count}


def test_a_fit_between_nodes_says_so():
    """Which decides what file is written: of a network, not of a system."""
    cluster = load_topology("hgx_h100", {"scale_out.nodes": "2"})
    profile, sizes = load_profile("auto", cluster), [2**power for power in range(20, 31)]
    question = ask("all_reduce", sizes, library=LIBRARY, environment=dict(RING))
    rows = [
        made_row(MeasuredCase("all_reduce", 16, row.size_bytes, nodes=2, library=LIBRARY, environment=RING), row.time_s)
        for row in predict(cluster, profile, question, [range(16)]).rows
    ]
    assert fit_profile(rows, cluster, start=profile).over_nodes


def test_switches_that_only_forward_hide_nothing():
    topology, profile = load_topology("dgx2_v100"), load_profile("dgx2_v100")
    slow = [made_row(MeasuredCase("all_reduce", 16, 2**28, library=LIBRARY), 1.0)]
    assert with_nvls_settled(slow, topology, profile, LIBRARY) == (slow, [])


def test_a_fit_sees_the_hidden_nvls(h100):
    cases = [MeasuredCase("all_reduce", 8, 2**power, library=LIBRARY) for power in range(20, 31, 2)]
    off = [replace(case, environment=(("NCCL_NVLS_ENABLE", "0"),)) for case in cases]
    rows = [replace(row, case=case) for row, case in zip(made_rows(h100, off), cases, strict=True)]
    found = fit_profile(rows, load_topology("hgx_h100"), start=h100)
    assert {entry.family for entry in found.residuals} <= {"ring", "chain"}
    assert len(found.notes) == 1


def test_scatter_holds_the_stated_share():
    random = np.random.default_rng(3)
    ratios = np.exp(0.1 * random.standard_normal(400))
    entries = [
        Residual("a.log", "all_reduce", 4, 2**20, "stream", "ring", "LL", float(ratio), 9.9, 1.0) for ratio in ratios
    ]
    scatter = scatter_of(entries)["ring"]["large"]
    inside = np.mean((ratios >= scatter.low) & (ratios <= scatter.high))
    assert 0.89 < inside < 0.92
    assert scatter.low * scatter.high == pytest.approx(1.0)
    few = scatter_of(entries[:5])["ring"]["large"]
    assert math.log(few.high) == pytest.approx(np.abs(np.log(ratios[:5])).max())  # 90 % of six rows are all five
    assert few.low * few.high == pytest.approx(1.0)
    assert (few.rows, few.logs) == (5, 1)


@pytest.mark.parametrize(
    ("band", "size", "reach"), [("small", 8, 0.25), ("middle", 2**17, 0.2), ("large", 2**20, 0.05)]
)
def test_rows_that_agree_by_chance_make_no_narrow_interval(band, size, reach):
    """Machines of one site differ by so much; of fewer than ten rows the reach is wider by what they lack."""
    exact = Residual("a.log", "all_reduce", 4, size, "stream", "ring", "LL", 1.0, 1.0, 1.0)
    for rows, wider in ((1, 10.0), (4, 2.5), (10, 1.0), (40, 1.0)):
        assert math.log(scatter_of([exact] * rows)["ring"][band].high) == pytest.approx(wider * reach)


@pytest.mark.parametrize("below", [9, 10])
def test_large_calls_have_an_interval_of_their_own_where_enough_rows_tell_it(below):
    """Off by a fifth below 32 MiB and by a tenth above; errors that are told are of both."""
    sizes = [2**24] * below + [2**25] * 30
    rows = [
        Residual("a.log", "all_reduce", 4, size, "stream", "ring", "Simple", 1.2 if size < 2**25 else 1.1, 1.0, 1.0)
        for size in sizes
    ]
    found = scatter_of(rows)["ring"]
    assert set(found) == ({"large"} if below < 10 else {"large", "bulk"})
    assert found["large"].high == pytest.approx(1.2)
    assert (found["large"].rows, found["large"].median) == (below + 30, pytest.approx(1 - 1 / 1.1))
    if below == 10:
        assert (found["bulk"].high, found["bulk"].rows) == (pytest.approx(1.1), 30)


@pytest.mark.parametrize("gpus_per_thread", [None, 2, 8])
def test_derivatives_are_those_of_the_model(h100, gpus_per_thread):
    """Waiting for GPUs that one thread starts in turn hides a part of every change."""
    from collsim.calibration.estimates import _Model

    rows = made_rows(h100, ring_cases((4,))[::3])
    rows = [replace(row, case=replace(row.case, gpus_per_thread=gpus_per_thread)) for row in rows]
    observations, refused = observe(rows, load_topology("hgx_h100"), h100, LIBRARY)
    assert not refused
    parameters = parameters_of(h100, observations)
    model = _Model(observations, h100, parameters)
    logs = np.log([parameter.start for parameter in parameters])
    table = model.jacobian(logs)
    assert np.abs(table).max() > 0.1
    assert model.waits_s.tolist() == [((gpus_per_thread or 1) - 1) * h100.thread_launch_s] * len(rows)
    for k in range(len(parameters)):
        step = np.zeros(len(parameters))
        step[k] = 1e-3
        slope = (model.residuals(logs + step) - model.residuals(logs - step)) / 2e-3
        assert table[:, k] == pytest.approx(slope, abs=2e-3), parameters[k].name
    costs, floor_s = costs_of(h100, parameters, logs)
    assert costs["ring", "Simple"].base_s == pytest.approx(h100.families["ring"]["Simple"].base_s)
    assert floor_s == pytest.approx(h100.floor_s)


def test_prior_holds_what_no_row_tells(h100):
    rows = made_rows(h100, ring_cases((4,))[:3])
    observations, _ = observe(rows, load_topology("hgx_h100"), h100, LIBRARY)
    parameters = parameters_of(h100, observations)
    found = estimate(observations, h100, parameters)
    fill = next(k for k, parameter in enumerate(parameters) if parameter.key == "fill_rate_Bps")
    value, low, high = found.interval(fill)
    assert value == pytest.approx(parameters[fill].start, rel=0.1)
    assert high / low > 3
    assert not found.identified(fill)


def test_wrong_and_impossible_rows_are_left_out(h100):
    good = made_rows(h100, ring_cases())
    fast = [made_row(replace(row.case, ranks=8), row.out_of_place_s / 100, "fast.log") for row in good[-5:]]
    wrong = [replace(row, wrong=17, out_of_place_s=2 * row.out_of_place_s, file="wrong.log") for row in good]
    found = fit_profile([*good, *fast, *wrong], load_topology("hgx_h100"), start=h100)
    assert {entry.file for entry in found.residuals} == {row.file for row in good}
    assert found.left_out["their results are wrong"] == len(wrong)
    assert found.left_out["faster than the line rate or latency of the links allows"] == len(fast)


@pytest.mark.parametrize(("most", "flat"), [(2**17, 0), (2**18, 9)])
def test_times_that_do_not_rise_over_256_times_the_size_are_not_fitted(h100, most, flat):
    """Times of small sizes alone may all be the same; 1 KiB and 256 KiB in one and the same time are not measured."""
    sizes = [size for size in (2**power for power in range(10, 30)) if size <= most]
    rows = [made_row(MeasuredCase("all_reduce", 8, size, library=LIBRARY), 20e-6) for size in sizes]
    kept, refused = sound_rows(rows, load_topology("hgx_h100"), h100)
    assert (len(kept), sum(refused.values())) == (len(sizes) - flat, flat)


def test_sound_rows_are_those_that_validate_finds_possible(h100):
    topology = load_topology("hgx_h100")
    case = MeasuredCase("all_reduce", 8, 2**26, library=LIBRARY)
    question = ask("all_reduce", case.size_bytes, library=LIBRARY)
    bound_s = predict(topology, h100, question, [range(8)]).rows[0].lower_bound_s
    rows = [made_row(case, bound_s * share) for share in (0.98, 0.995, 2)]
    rows.append(made_row(replace(case, size_bytes=8), 9e-7))
    kept, refused = sound_rows(rows, topology, h100)
    assert kept == rows[1:3]
    assert sum(refused.values()) == 2


def test_a_start_without_the_kernel_is_refused_and_without_the_protocol_helped(h100):
    topology = load_topology("hgx_h100")
    seen = (("NCCL_NVLS_ENABLE", "1"),)
    nvls = made_rows(h100, [MeasuredCase("all_reduce", 8, size, library=LIBRARY, environment=seen) for size in SIZES])
    with pytest.raises(InputError, match='"mi300x_ubb8" has no constants of nvls'):
        fit_profile(nvls, topology, start="mi300x_ubb8")
    less = replace(h100, families={**h100.families, "ring": {"LL": h100.families["ring"]["LL"]}})
    found = fit_profile(made_rows(h100, ring_cases()), topology, start=less)
    assert found.profile.families["ring"]["Simple"].channel_rate_Bps > 0


def test_graph_launches_alone_are_refused_as_such(h100):
    rows = made_rows(h100, [replace(case, launch="graph") for case in ring_cases()])
    with pytest.raises(InputError, match=r"0 of stream launches and \d+ of graph launches") as caught:
        fit_profile(rows, load_topology("hgx_h100"), start=h100)
    assert "give a log of stream launches too" in caught.value.faults[0].hint


@pytest.mark.parametrize(
    ("time_s", "kept"),
    [
        (lambda size: 1e-2, 0),
        (lambda size: 1e-2 * (1 + 1e-3 * (size % 7)), 0),
        (lambda size: 1e-2 * (2**30 / size) ** 0.1, 0),
        (lambda size: 1e-5 + size / 1e11, 21),
        (lambda size: max(1e-5, size / 1e11), 21),
    ],
    ids=["same", "nearly the same", "falling", "rising", "rising late"],
)
def test_times_that_do_not_rise_are_not_fitted(time_s, kept):
    sizes = [2**power for power in range(10, 31)]
    rows = [
        Measured(MeasuredCase("all_reduce", 8, size), "a.log", line, time_s(size), None, 0.0)
        for line, size in enumerate(sizes)
    ]
    sound, refused = sound_rows(rows, load_topology("hgx_h100"), load_profile("hgx_h100"))
    assert len(sound) == kept
    assert bool(kept) != ("their times do not rise with size" in refused)


def test_constants_of_the_same_gpu_and_rates_that_full_ports_hide_are_known_better(h100):
    topology = load_topology("hgx_h100")

    def spreads(cases, **options):
        observations, _ = observe(made_rows(h100, cases), topology, h100, LIBRARY)
        return {entry.name: entry.spread for entry in parameters_of(h100, observations, **options)}

    full = [MeasuredCase("all_to_all", 8, size, library=LIBRARY) for size in (2**20, 2**24)]
    neighbours = [MeasuredCase("send_recv", 8, 2**24, library=LIBRARY)]
    alone, both = spreads(full), spreads(full + neighbours)
    rate, share = "messages.Simple.channel_rate", "messages.Simple.link_share"
    assert alone[rate] < both[rate]
    assert alone[share] == both[share]
    same = spreads(full + neighbours, alike=True)
    assert all(same[name] < both[name] for name in both if name != "floor")
