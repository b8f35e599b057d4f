"""`diagnose`: verdicts by range of sizes, causes by their curves, classes of one curve, and evidence of logs."""

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import collsim
from collsim.core.errors import InputError
from collsim.diagnosis import diagnose, ranking
from collsim.diagnosis.causes import all_causes, changes_of, meets
from collsim.diagnosis.evidence import evidence_of, known_faults, usual_settings
from collsim.diagnosis.findings import Finding, Suspect
from collsim.diagnosis.fit import ALPHA, HOST, HOST_FACTOR, Fit, Noise, dips_of, fit_of, shift, whole_shift
from collsim.diagnosis.judgement import _culprits, _slowest
from collsim.diagnosis.subjects import _evened
from collsim.report import diagnosis as report_of
from collsim.report import render_diagnosis, schema
from collsim.report.diagnosis import _finding
from collsim.topology import load_topology
from collsim.topology.files.overrides import known_paths

from ..calibration.made_logs import log_text

MIB = 2**20
SIZES = [2**power for power in range(12, 34, 2)]
EFA = {"nic.shared_by": "2", "nic.bandwidth": "100 Gb/s", "scale_out.network": "efa"}
FEW = ["nvls_off", "algorithm", "few_channels", "lost_plane", "start_skew"]


def written(path, times, op="all_reduce", ranks=8, wrong=0, lines=()):
    """Write a log of pairs of bytes and seconds."""
    rows = [(size, time_s * 1e6, wrong) for size, time_s in times]
    path.write_text(log_text(op, ranks, lines=lines, rows=rows))
    return path


def times_of(topo="hgx_h100", op="all_reduce", noise=0.03, **changes):
    """Return times of a machine with some noise."""
    random = np.random.default_rng(5)
    rows = collsim.simulate(topo, op, SIZES, **changes).rows
    return [(row.requested_bytes, row.time_s * float(np.exp(random.normal(0, noise)))) for row in rows]


class TestVerdicts:
    def test_a_healthy_log_needs_no_cause(self, tmp_path):
        found = diagnose(written(tmp_path / "log", times_of()), "hgx_h100")
        assert found.verdict == "healthy"
        assert found.looked_at == ()
        assert "no cause is looked for" in render_diagnosis(found)

    def test_wrong_results_are_broken_whatever_the_time(self, tmp_path):
        found = diagnose(written(tmp_path / "log", times_of(), wrong=7), "hgx_h100")
        assert found.verdict == "broken"
        assert any("results are wrong" in remark for remark in found.remarks)

    @pytest.mark.parametrize(("times_faster", "impossible", "ranges"), [(3, 3, 3), (200, 11, 0)])
    def test_impossible_times_are_named_with_what_bounds_them(self, tmp_path, times_faster, impossible, ranges):
        """Every GPU has to send what it has, 450 GB/s at most; at 200 times no row is left that is possible."""
        least = 2**28 if times_faster < 100 else 0
        fast = [(size, time_s / (times_faster if size >= least else 1)) for size, time_s in times_of()]
        found = diagnose(written(tmp_path / "log", fast), "hgx_h100", causes=["few_channels"])
        log = found.logs[0]
        assert found.verdict == "broken"
        assert (len(log.flagged), len(log.ranges)) == (impossible, ranges)
        assert [row.share for row in log.flagged] == sorted(row.share for row in log.flagged)
        row = next(row for row in log.flagged if row.size_bytes == 2**30)
        assert (row.bound, row.measured_s) == ("egress gpu0", pytest.approx(dict(fast)[2**30], rel=3e-3))
        assert row.least_s == pytest.approx(2**30 / 450e9)
        text = render_diagnosis(found)
        assert f"broken: {impossible} of 11 times impossible" in text
        assert "egress gpu0" in text
        assert "is --topo the machine" in text
        shown = json.loads(render_diagnosis(found, "json"))
        Draft202012Validator(schema("collsim.diagnose/1")).validate(shown)
        assert [row["size_bytes"] for row in shown["logs"][0]["flagged"]] == [row.size_bytes for row in log.flagged]

    def test_no_picture_of_a_log_without_a_possible_time(self, tmp_path):
        path = written(tmp_path / "log", [(size, time_s / 1000) for size, time_s in times_of()])
        found = diagnose(path, "hgx_h100", causes=["few_channels"])
        with pytest.raises(InputError, match="nothing to draw"):
            render_diagnosis(found, "svg")

    def test_a_floor_bounds_what_no_wire_does(self, tmp_path):
        found = diagnose(
            written(tmp_path / "log", [(4096, 0.3e-6), (2**30, 4e-3)]), "hgx_h100", causes=["few_channels"]
        )
        row = found.logs[0].flagged[0]
        assert (row.size_bytes, row.least_s, row.flags) == (4096, pytest.approx(1e-6), ("below_floor",))

    def test_rows_with_wrong_results_are_counted(self, tmp_path):
        found = diagnose(written(tmp_path / "log", times_of(), wrong=7), "hgx_h100")
        assert "broken: 11 of 11 rows with wrong results, up to 7 values" in render_diagnosis(found)

    def test_ranges_are_judged_apart(self, tmp_path):
        slow = [(size, time_s * (2 if size >= 2**28 else 1)) for size, time_s in times_of()]
        ranges = diagnose(written(tmp_path / "log", slow), "hgx_h100", causes=["few_channels"]).logs[0].ranges
        assert [part.verdict for part in ranges] == ["healthy", "healthy", "healthy", "slower"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return the diagnosis of a machine without NVLS."""
    times = times_of(environment={"NCCL_NVLS_ENABLE": "0"})
    return diagnose(written(tmp_path_factory.mktemp("nvls") / "log", times), "hgx_h100", causes=FEW)


class TestCauses:
    def test_the_true_cause_is_first_with_those_of_its_curve(self, found):
        assert found.verdict == "faulty"
        assert {"nvls_off", "algorithm"} <= set(found.findings[0].names)
        assert found.findings[0].fits
        assert not found.unexplained

    def test_no_cause_fits_worse_than_the_healthy_machine(self, found):
        healthy = found.logs[0].healthy
        assert all(finding.rms < healthy.rms for finding in found.findings)
        assert all(curve.score < healthy.score for curve in found.logs[0].curves)

    def test_text_names_what_tells_them_apart_and_what_fixes_each(self, found):
        text = render_diagnosis(found)
        assert "nvls_off: to fix: unset NCCL_NVLS_ENABLE=0" in text
        assert "algorithm: to tell: NCCL_DEBUG=INFO" in text

    def test_json_follows_its_schema(self, found):
        document = json.loads(render_diagnosis(found, "json"))
        Draft202012Validator(schema("collsim.diagnose/1")).validate(document)
        assert not Draft202012Validator(schema("collsim.diagnose/1")).is_valid({**document, "extra": 1})

    def test_the_picture_has_a_point_for_each_row_and_a_line_for_each_of_three_causes(self, found):
        root = ElementTree.fromstring(render_diagnosis(found, "svg"))
        kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert kinds.count("circle") == len(SIZES) + 1
        assert kinds.count("polyline") == 1 + min(3, len(found.findings))

    def test_a_single_slow_size_makes_no_machine_faulty(self, tmp_path):
        """Eight times as long at one size between sound ones (1 MiB on two nodes of Alps), the last of a range."""
        dip = [(size, time_s * (8 if size == 2**18 else 1)) for size, time_s in times_of()]
        found = diagnose(written(tmp_path / "log", dip), "hgx_h100", causes=["dips", "few_channels"])
        assert (found.verdict, found.findings[0].names) == ("doubtful", ("dips",))
        assert all(part.verdict == "healthy" for part in found.logs[0].ranges)
        assert "(at 256 KiB) [dips]" in render_diagnosis(found)

    @pytest.mark.parametrize(
        ("sizes", "factor", "verdict"),
        [((2**14,), 1.8, "healthy"), ((2**14,), 3, "doubtful"), ((2**18,), 1.8, "doubtful"),
         ((2**14, 2**18), 1.8, "doubtful"), ((2**12,), 1.9, "healthy")],
    )  # fmt: skip
    def test_one_small_row_that_is_late_is_noise_of_its_host(self, tmp_path, sizes, factor, verdict):
        """One of 32 B took 22.25 us beside 12.9 and 14.5 us on a sound node of eight H100."""
        late = [(size, time_s * (factor if size in sizes else 1)) for size, time_s in times_of()]
        found = diagnose(written(tmp_path / "log", late), "hgx_h100", causes=["dips"])
        assert found.verdict == verdict
        told = any(f"the row of {sizes[0] // 2**10} KiB took" in remark for remark in found.remarks)
        assert told == (sizes[0] < 2**16 and factor < 2)

    def test_none_of_these(self, tmp_path):
        """No cause makes every other size four times as long."""
        odd = [(size, time_s * (4 if place % 2 else 1)) for place, (size, time_s) in enumerate(times_of())]
        found = diagnose(written(tmp_path / "log", odd), "hgx_h100", causes=["nvls_off", "few_channels"])
        assert found.verdict == "faulty"
        assert found.unexplained
        assert "none of the 2 causes" in render_diagnosis(found)

    def test_a_line_of_the_log_decides_between_causes_of_one_curve(self, tmp_path):
        times = times_of(environment={"NCCL_NVLS_ENABLE": "0"})
        lines = ["box:1:1 [0] NCCL INFO TUNER/Plugin: Using tuner plugin of the cloud"]
        found = diagnose(written(tmp_path / "log", times, lines=lines), "hgx_h100", causes=FEW[:2])
        assert found.findings[0].names[0] == "algorithm"
        assert "the log says: a tuner plug-in chooses" in render_diagnosis(found)

    def test_an_unknown_cause_is_refused_with_the_nearest(self, tmp_path):
        with pytest.raises(InputError, match="unknown cause") as error:
            diagnose(written(tmp_path / "log", times_of()), "hgx_h100", causes=["nvls_of"])
        assert 'did you mean "nvls_off"?' in str(error.value)

    def test_every_unknown_cause_is_told_at_once(self, tmp_path):
        with pytest.raises(InputError) as error:
            diagnose(written(tmp_path / "log", times_of()), "hgx_h100", causes=["nvls_of", "dips", "one_buss"])
        assert [fault.what for fault in error.value.faults] == ['unknown cause "nvls_of"', 'unknown cause "one_buss"']

    def test_every_fault_at_once(self, tmp_path):
        with pytest.raises(InputError) as error:
            diagnose(tmp_path / "missing", "hgx_h100x", causes=["nvls_of"])
        assert len(error.value.faults) >= 2


class TestFile:
    def test_every_cause_says_how_to_tell_and_to_fix_it_and_where_it_was_seen(self):
        assert len({cause.name for cause in all_causes()}) == len(all_causes()) >= 16
        for cause in all_causes():
            assert all((cause.title, cause.measure, cause.fix, cause.source)), cause.name
            assert bool(cause.variants) == (cause.shape in ("", "network")), cause.name

    @pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8", "dgx_a100"])
    @pytest.mark.parametrize("nodes", [1, 2])
    def test_every_variant_is_a_question_that_can_be_asked(self, name, nodes):
        topology = load_topology(name, scale_out={"nodes": nodes} if nodes > 1 else None)
        for cause in all_causes():
            if meets(cause, topology, 8 * nodes, nodes) and not cause.shape:
                for change in changes_of(cause, topology, 8 * nodes, nodes):
                    assert set(change.overrides) <= set(known_paths()), cause.name
                    assert change.flags, cause.name


class TestFit:
    def noise(self, measured, over_nodes=False):
        sizes = np.geomspace(2**21, 2**33, 7)
        healthy = sizes / 1e11
        return Noise(sizes, healthy * measured, healthy, np.full(7, 0.05), over_nodes)

    def test_the_shift_of_equal_ratios_is_that_ratio(self):
        mean, chance = shift(self.noise(np.full(7, 1.5)))
        assert np.exp(mean) == pytest.approx(1.5)
        assert chance < 1e-3
        assert shift(self.noise(np.full(7, 1.5), over_nodes=True))[1] > chance

    def test_rates_that_are_low_in_all_ranges_add_up(self):
        """A fifth at rates, nothing at latencies: no range tells it from a healthy machine, all of them together do."""
        sizes = 2.0 ** np.arange(13, 33, 2)
        healthy_s = 15e-6 + sizes / 270e9
        slow_s = 15e-6 + 1.2 * sizes / 270e9
        noise = Noise(sizes, slow_s, healthy_s, np.full(len(sizes), 0.03))
        mean, chance = whole_shift(noise)
        assert np.exp(mean) == pytest.approx(1.2, abs=0.03)
        ranges = [
            noise.part(np.flatnonzero((sizes >= least) & (sizes < 8 * least)).tolist()) for least in (2**25, 2**28)
        ]
        assert all(shift(part)[1] > ALPHA for part in ranges)
        assert chance < ALPHA

    def test_a_time_that_every_call_takes_longer_adds_up_over_ranges(self):
        """Two thirds as long again below 1 MiB, an eighth above: no range tells, both together do."""
        sizes = 2.0 ** np.arange(17, 33, 1.5)
        healthy_s = 15e-6 + sizes / 270e9
        noise = Noise(sizes, healthy_s + 11e-6, healthy_s, np.full(len(sizes), 0.08))
        parts = [
            noise.part(np.flatnonzero(rows).tolist()) for rows in (sizes < 2**20, (sizes >= 2**20) & (sizes < 2**25))
        ]
        assert all(shift(part)[1] > ALPHA for part in parts)
        assert whole_shift(noise)[1] < ALPHA

    @pytest.mark.parametrize("test", [shift, whole_shift])
    def test_of_healthy_machines_as_many_are_far_off_as_the_chance_says(self, test):
        """Times are drawn as the covariance has it: two questions of one log must not find twice as many."""
        sizes = 2.0 ** np.arange(13, 33, 1.5)
        noise = Noise(sizes, np.ones(len(sizes)), 15e-6 + sizes / 270e9, np.full(len(sizes), 0.08))
        draws = np.random.default_rng(1).multivariate_normal(np.zeros(len(sizes)), noise.covariance(), 5000)
        chances = [test(noise._replace(measured_s=noise.healthy_s * np.exp(draw)))[1] for draw in draws]
        assert np.mean(np.array(chances) < 0.1) == pytest.approx(0.1, abs=0.02)

    def test_one_size_that_is_late_is_not_taken_from_the_larger_ones(self):
        """From 512 MiB on a prediction is sure; that the size before is late says nothing of the others' rates."""
        sizes = 2.0 ** np.arange(28, 33)
        sigma = np.array([0.39, 0.11, 0.1, 0.1, 0.1])
        noise = Noise(sizes, sizes / 5e10 * [2.8, 1.9, 1.08, 0.99, 0.98], sizes / 5e10, sigma, over_nodes=True)
        assert shift(noise)[1] > ALPHA
        assert shift(noise._replace(measured_s=noise.healthy_s * 1.9))[1] < ALPHA

    def test_the_time_that_a_host_adds_ends_at_no_size(self):
        """A log from 1 MiB on, one half longer there: its hosts may do that, as those of a log from 8 B on."""
        sizes = 2.0 ** np.arange(20, 30)
        noise = Noise(sizes, np.ones(10), 80e-6 + sizes / 25e9, np.full(10, 0.05), over_nodes=True)
        widths = np.sqrt(np.diag(noise.covariance()))
        assert widths[0] > 0.35 > widths[3]
        assert noise.part(range(3, 10)).covariance()[0, 0] == noise.covariance()[3, 3]

    def test_the_right_curve_fits_best(self):
        noise = self.noise(np.geomspace(1, 2, 7))
        curves = [noise.healthy_s * np.geomspace(1, end, 7) for end in (1, 1.5, 2, 4)]
        scores = [fit_of(noise, curve).score for curve in curves]
        assert scores.index(min(scores)) == 2

    def test_a_dip_is_one_row_that_is_slow(self):
        assert dips_of(self.noise(np.array([1, 1, 1, 2, 1, 1, 1.0]))) == [3]
        assert dips_of(self.noise(np.array([1, 1, 2, 2, 2, 2, 2.0]))) == []
        assert dips_of(self.noise(np.array([9, 1, 1, 1, 1, 1, 1.0]))) == [0]  # longer than the next, which is larger
        assert dips_of(self.noise(np.array([2, 1, 1, 1, 1, 1, 1.0]))) == []

    def test_the_edge_of_a_band_belongs_to_both(self):
        sizes = 2.0 ** np.arange(18, 32)
        widths = np.where(sizes < MIB, 1.0, 0.1)
        found = _evened(sizes, widths)
        assert 0.1 < found[2] < 1.0  # 1 MiB
        assert found[sizes >= 2**25] == pytest.approx(0.1)


class TestEvidence:
    @pytest.mark.parametrize(
        ("line", "cause", "sign"),
        [
            ("NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "sockets", 1),
            ("NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA", "gdr_off", -1),
            ("NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0", "gdr_off", 1),
            ("NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "p2p_off", 1),
            ("NCCL INFO 2 coll channels, 0 nvls channels, 2 p2p channels", "few_channels", 1),
            ("NCCL INFO 24 coll channels, 16 nvls channels", "few_channels", -1),
        ],
    )
    def test_lines_of_the_library(self, tmp_path, line, cause, sign):
        (tmp_path / "log").write_text(f"box:1:2 [0] {line}\n")
        weights = [entry.weight for entry in evidence_of([str(tmp_path / "log")]) if cause in entry.causes]
        assert np.sign(sum(weights)) == sign

    @pytest.mark.parametrize(
        ("line", "verdict", "told"),
        [
            ("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", "faulty", "--set scale_out.network=efa"),
            ("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0", "faulty", ""),
            ("NCCL INFO Using network GPUDirectTCPX_v7", "faulty", "--set scale_out.network=tcpx"),
            ("NCCL INFO Using network FasTrak", "faulty", "--set scale_out.network=tcpxo"),
            ("NCCL INFO NET/OFI Selected Provider is opx", "doubtful", "Omni-Path, which nobody measured"),
        ],
    )
    def test_the_network_that_a_log_names(self, tmp_path, line, verdict, told):
        """Where no such machine was measured, no row is outside of what one takes."""
        rows = [(mib * MIB, mib * 40) for mib in (64, 256, 1024)]
        (tmp_path / "log").write_text(log_text("all_gather", 16, 2, lines=[f"a:1:2 [0] {line}"], rows=rows))
        found = diagnose(tmp_path / "log", "hgx_h100", causes=["sockets"])
        assert found.verdict == verdict
        assert told in " ".join(found.remarks)
        assert bool(found.remarks) == bool(told)

    def test_a_library_that_is_not_known_may_choose_otherwise(self, tmp_path):
        """NCCL 2.9 over EFA takes the ring where later versions take the tree."""
        topology = load_topology("dgx_a100", EFA, scale_out={"nodes": 2})
        rows = collsim.simulate(topology, "all_reduce", ["64M", "1G", "4G"], algo="ring").rows
        times = [(row.requested_bytes, row.time_s * 1e6) for row in rows]
        verdicts = {}
        for version in ("2.9.9", "2.27.3"):
            (tmp_path / version).write_text(
                log_text("all_reduce", 16, 2, lines=[f"NCCL version {version}"], rows=times)
            )
            verdicts[version] = diagnose(tmp_path / version, "dgx_a100", overrides=EFA, causes=["algorithm"])
        assert verdicts["2.9.9"].verdict != "faulty"
        assert verdicts["2.27.3"].verdict == "faulty"

    @pytest.mark.parametrize(
        ("line", "library", "told"),
        [("", None, ""), ("NCCL version 2.20.3", None, "NCCL 2.20.3:"), ("", "nccl-2.27", "NCCL 2.27:")],
    )
    def test_faults_are_known_of_a_version_that_somebody_names(self, tmp_path, line, library, told):
        """Without one the version is that of the profile, or the newest: the log may be of another."""
        rows = [(mib * MIB, mib * 400) for mib in (64, 256, 1024)]
        (tmp_path / "log").write_text(log_text("all_reduce", 16, 2, lines=[line], rows=rows))
        found = diagnose(tmp_path / "log", "dgx_a100", overrides=EFA, causes=["algorithm"], library=library)
        assert found.verdict == "faulty"
        known = [remark for remark in found.remarks if remark.startswith("known of ")]
        assert bool(known) == bool(told)
        assert all(remark.startswith(f"known of {told}") for remark in known)

    def test_settings_that_cost_are_left_out_of_the_healthy_machine(self):
        kept, told = usual_settings("log", [("NCCL_IB_DISABLE", "1"), ("NCCL_ALGO", "Ring")])
        assert kept == {"NCCL_ALGO": "Ring"}
        assert [entry.causes for entry in told] == [("sockets",)]

    def test_versions_with_known_faults(self):
        assert any("issue 117748" in text for text in known_faults("NCCL", "2.19.3", "all_reduce", 8))
        assert not any("issue 117748" in text for text in known_faults("NCCL", "2.20.3", "all_reduce", 8))
        assert not any("issue 117748" in text for text in known_faults("NCCL", "2.19.3", "all_reduce", 1))

    @pytest.mark.parametrize(
        ("slow", "sound", "told"),
        [
            (["ab", "ac"], ["bc", "cd"], ["host a is in all 2 slow logs and in no sound one"]),
            (["ab"], ["ac", "bd"], ["in 1 of 1 slow logs every host is sound with others"]),
            # pairs of 49 and of 88 GB/s in NVIDIA/nccl-tests issue 106, under shorter names
            (["fg", "hi", "af"], ["ag", "bc"], ["host f is in 2 of 3 slow logs", "host h or host i is slow"]),
            (["ab", "ac", "ad"], ["ef"], ["host a is in all 3 slow logs"]),
            (["ab", "cd"], [], []),
        ],
    )
    def test_slow_pairs_name_the_bad_hosts(self, slow, sound, told):
        subjects = [SimpleNamespace(log=SimpleNamespace(hosts=tuple(pair))) for pair in (*slow, *sound)]
        found = list(_culprits(subjects, [*["faulty"] * len(slow), *["healthy"] * len(sound)]))
        assert len(found) == len(told)
        assert all(sentence.startswith(begin) for sentence, begin in zip(found, told, strict=True))


@pytest.mark.parametrize(
    ("name", "value", "costs"),
    [
        ("NCCL_NET", "socket", True), ("NCCL_NET", "ib", False), ("NCCL_NET", "AWS Libfabric", False),
        ("NCCL_NET_GDR_LEVEL", "LOC", True), ("NCCL_NET_GDR_LEVEL", "0", True), ("NCCL_NET_GDR_LEVEL", "PXB", False),
        ("NCCL_IB_DISABLE", "1", True), ("NCCL_IB_DISABLE", "0", False), ("NCCL_PXN_DISABLE", "1", True),
    ],
)  # fmt: skip
def test_settings_that_cost_are_evidence(name, value, costs):
    kept, told = usual_settings("a.log", [(name, value)])
    assert bool(told) == costs
    assert kept == ({} if costs else {name: value})


def test_stdin_is_read_once(monkeypatch):
    log = Path(__file__).parents[2] / "examples" / "h100_all_reduce.log"
    by_name = diagnose(log, "hgx_h100")
    with log.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert diagnose("-", "hgx_h100").verdict == by_name.verdict


def test_the_host_adds_a_time_to_small_calls_not_a_part():
    """A host that is off by a tenth of the shortest call is off by a hundredth of one that takes ten times as long."""
    noise = Noise(np.array([2.0**10, 2.0**19]), np.ones(2), np.array([1e-5, 1e-4]), np.zeros(2))
    times, factors = HOST[0] ** 2 * 1.0 * 0.1, HOST_FACTOR[0] ** 2
    assert noise.covariance()[0, 1] == pytest.approx(times + factors)


def test_ranks_may_take_nodes_in_turn_from_each_leaf():
    (cause,) = (each for each in all_causes() if each.name == "rank_order")
    figures = {"scale_out.fabric": "fat_tree", "scale_out.racks": "2", "scale_out.oversubscription": "4"}
    cluster = load_topology("hgx_h100", figures, scale_out={"nodes": 4})
    assert meets(cause, cluster, 32, 4)
    assert not meets(cause, load_topology("hgx_h100", scale_out={"nodes": 4}), 32, 4)
    (change,) = changes_of(cause, cluster, 32, 4)
    assert change.node_order == (0, 2, 1, 3)
    assert change.rank_list[8:16] == tuple(range(16, 24))
    sorted_s, crossing_s = (
        collsim.simulate(cluster, "all_gather", "1G", rank_list=ranks).rows[0].time_s
        for ranks in (None, change.rank_list)
    )
    assert crossing_s > 1.8 * sorted_s  # two rings over the uplinks of a leaf, not one


def test_one_process_starts_the_gpus_of_its_own_node():
    (cause,) = (each for each in all_causes() if each.name == "one_process")
    cluster = load_topology("hgx_h100", scale_out={"nodes": 2})
    assert {change.gpus_per_thread for change in changes_of(cause, cluster, 16, 2)} == {8}
    assert {change.gpus_per_thread for change in changes_of(cause, load_topology("hgx_h100"), 4, 1)} == {4}


@pytest.mark.parametrize("healthy_score", [12.0, 4.0])
def test_probabilities_are_shares_of_likelihoods_with_that_of_no_cause(monkeypatch, healthy_score):
    """Scores are minus twice the logarithms of likelihoods."""
    scores = (2.0, 3.0, 9.0)
    monkeypatch.setattr(ranking, "_alike", lambda one, other: False)
    monkeypatch.setattr(ranking, "_finding", lambda group, probability, rows, evidence: probability)
    found = ranking._findings([SimpleNamespace(score=score) for score in scores], healthy_score, (), ())
    likely = np.exp(-np.array([*scores, healthy_score]) / 2)
    assert found == pytest.approx(likely[:3] / likely.sum())


def test_only_lines_that_speak_for_a_cause_are_told():
    cause = SimpleNamespace(name="p2p_off", title="t", measure="m", fix="f", source="s")
    lines = [SimpleNamespace(causes=("p2p_off",), weight=weight, means=str(weight)) for weight in (12.0, 0.0, -8.0)]
    one = SimpleNamespace(cause=cause, candidate=SimpleNamespace(label="", flags=""))
    told = ranking._suspect(one, lines).evidence
    assert told == ("12.0",)


def test_the_slowest_of_many_logs_are_explained():
    """Each by its worst row; the rest of its rows may be in order."""
    worst = [0.3, 1.2, 0.1, 0.9, 0.2, 2.0, 0.4]

    def logs(ranks):
        case = SimpleNamespace(all_ranks=ranks)
        noises = [SimpleNamespace(residual=np.array([0.0, each, -3.0])) for each in worst]
        return [SimpleNamespace(worst=each, noise=noise, case=case) for each, noise in zip(worst, noises, strict=True)]

    assert [log.worst for log in _slowest(logs(8))] == [2.0, 1.2, 0.9, 0.4]
    assert [log.worst for log in _slowest(logs(10**6))] == [2.0]  # of large machines fewer, one at least


def test_a_cause_that_grows_is_looked_at_in_eighths():
    """Of half the rate (twice the time), then a quarter: halfway to the first is the square root of two."""
    changes = [SimpleNamespace(label=label, flags=f"--{label}") for label in ("half", "quarter")]
    found = list(ranking._degrees(changes, [(np.array([2.0, 4.0]),), (np.array([4.0, 4.0]),)]))
    assert len(found) == 2 * 8
    for place, label, ratios in (
        (3, "between none and half", [2**0.5, 2.0]),
        (7, "half", [2.0, 4.0]),
        (11, "between half and quarter", [2**1.5, 4.0]),
        (15, "quarter", [4.0, 4.0]),
    ):
        assert found[place].label == label
        assert found[place].ratios[0] == pytest.approx(ratios)
    assert [each.flags for each in found] == ["--half"] * 8 + ["--quarter"] * 8
    assert {each.penalty for each in found} == {2.0}


def test_a_skew_is_added_to_every_call():
    """From 5 us to 20 ms, each an eighth longer than the one before."""
    subject = SimpleNamespace(noise=SimpleNamespace(healthy_s=np.array([1e-5, 1e-3])))
    found = list(ranking._skewed([subject]))
    added_s = [(each.ratios[0] - 1) * subject.noise.healthy_s for each in found]
    assert added_s[0] == pytest.approx([5e-6, 5e-6])
    assert added_s[-1] == pytest.approx([20e-3, 20e-3])
    assert all(b[0] / a[0] == pytest.approx(9 / 8, rel=0.01) for a, b in pairwise(added_s))
    assert found[0].flags == '--set cpu.start_skew="5 us"'
    assert found[0].label == "5 us more for each call"


def scored(name="", score=0.0, chi2=7.0, seldom=0.0, ratios=(1.0,) * 7, shape="", rms=0.1):
    candidate = ranking._Candidate("", "", (np.array(ratios),), 0.0)
    cause = SimpleNamespace(name=name, seldom=seldom, shape=shape)
    return ranking._Scored(cause, candidate, (Fit(chi2, score - seldom, rms),), 0.0)


@pytest.mark.parametrize(
    ("ratios", "shape", "alike"),
    [
        ([2.0] * 7, "", True),
        ([2.1] * 7, "", True),  # 4.9 %, and repeats spread by 6 %
        ([2.0] * 6 + [2.2], "", False),  # one row tells
        ([2.0] * 7, "falling", False),  # a shape is no cause beside one that was simulated
    ],
)
def test_causes_whose_curves_no_row_tells_apart_are_one_class(ratios, shape, alike):
    """However likely the one is beside the other."""
    assert ranking._alike(scored(ratios=[2.0] * 7), scored(score=9.0, ratios=ratios, shape=shape)) == alike


def test_rivals_explain_the_rows_as_the_first_does_however_rare_they_are():
    first = scored("first", seldom=2.0, score=2.0)
    rivals = [scored("rare", score=7.0, seldom=4.0), scored("far", score=7.0), scored("off", score=1.0, chi2=90.0)]
    assert ranking._rivals([first, *rivals], 7) == ("first", "rare")


def test_of_causes_about_as_likely_the_nearest_curve_comes_first():
    """A score that is less by one is worth odds of five to three; more of it outweighs how near a curve is."""
    far, near, nearest = scored("far", rms=0.2), scored("near", score=0.9, rms=0.05), scored("nearest", 2.5, rms=0.01)
    assert [one.cause.name for one in ranking._in_order([nearest, far, near])] == ["near", "far", "nearest"]


def test_of_a_large_class_four_causes_are_named():
    suspects = tuple(Suspect(name, f"title of {name}", "", "", "look", "mend", "seen") for name in "abcdef")
    finding = Finding(suspects, 0.05, 7.0, 0.0, 0.9, fits=True)
    text = "\n".join(_finding(1, finding, 0.5, whole=True))
    assert [name for name in "abcdef" if f"[{name}]" in text] == list("abcd")
    assert "2 more, in --format json" in text
    assert finding.names == tuple("abcdef")


@pytest.fixture(scope="module")
def slower_network(tmp_path_factory):
    """A log of two nodes whose calls take 0.6 ms longer, at half the rate of their adapters, and names no network."""
    topology = load_topology("hgx_h100", {"scale_out.nodes": "2", "nic.bandwidth": "200 Gb/s"})
    rows = collsim.simulate(topology, "all_gather", [2**power for power in range(20, 33, 2)]).rows
    path = tmp_path_factory.mktemp("network") / "all_gather.log"
    path.write_text(log_text("all_gather", 16, 2, rows=[(row.requested_bytes, row.time_s * 1e6 + 600) for row in rows]))
    return path


SLOWER = ["other_network", "start_skew", "slow_adapters", "sockets"]


def test_a_log_that_names_no_network_may_be_of_another_than_assumed(slower_network):
    found = diagnose(slower_network, "hgx_h100", causes=SLOWER)
    assert found.verdict == "doubtful"
    assert found.findings[0].names[0] == "other_network"
    assert any("which one is it?" in remark for remark in found.remarks)


def test_a_network_that_was_asked_is_the_network(slower_network):
    found = diagnose(slower_network, "hgx_h100", overrides={"scale_out.network": "infiniband"}, causes=SLOWER)
    assert found.verdict == "faulty"
    assert not any("which one is it?" in remark for remark in found.remarks)


@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_findings_that_are_not_shown_are_counted(monkeypatch, more):
    monkeypatch.setattr(report_of, "_finding", lambda place, found, healthy, whole: [f"{place}"])
    shown = report_of.MOST_FINDINGS
    log = SimpleNamespace(verdict="faulty", healthy=SimpleNamespace(rms=0.1))
    found = [SimpleNamespace(fits=True, probability=0.1)] * (shown + more)
    lines = [*report_of._causes(SimpleNamespace(logs=[log], unexplained=False, findings=found, looked_at=found))]
    kept = [str(place + 1) for place in range(min(shown, shown + more))]
    assert lines == [*kept, *([f"{more} more fit better than the healthy machine, and worse than these"] * (more > 0))]


class TestHost:
    def test_a_log_of_large_sizes_alone_owes_no_milliseconds_to_its_host(self):
        """Two nodes at 60 % of a ring's rate, 1 to 8 GiB, as NVIDIA/nccl#949: a host does not add 13 ms to a call."""
        sizes, sure = 2.0 ** np.arange(30, 34), np.full(4, 0.15)
        large = Noise(sizes, sizes / 13.6e9, sizes / 24e9, sure, over_nodes=True)
        offset_s = HOST[True] * large.shortest_s
        assert offset_s < 100e-6
        assert shift(large)[1] < 0.001 < shift(large._replace(least_s=float(large.healthy_s.min())))[1]

    def test_a_part_of_a_log_has_the_shortest_time_of_the_whole(self):
        sizes = np.array([2.0**10, 2.0**20, 2.0**30])
        whole = Noise(sizes, np.array([2e-5, 1e-4, 4e-2]), np.array([2e-5, 1e-4, 4e-2]), np.full(3, 0.1))
        assert whole.part([2]).shortest_s == whole.shortest_s == 2e-5


def test_a_cause_that_is_off_by_more_than_half_explains_nothing_however_wide_intervals_are():
    """Between nodes that nobody measured a cause of five times the measured time at one size was likely."""
    assert scored("near", rms=0.4).fits_all(7)
    assert scored("far", rms=0.6).is_likely(7)
    assert not scored("far", rms=0.6).fits_all(7)
