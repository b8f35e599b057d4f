"""`collsim calibrate`: a profile from logs, its plot, and everything that can be wrong with a request."""

import math
import random
from xml.etree import ElementTree

import pytest

import collsim as package
from collsim.library import load_profile

from .conftest import ROOT
from .test_bad_input import refused

SIZES = [2**power for power in range(10, 29, 2)]
HEAD = """\
# nccl-tests version 2.28.3 nccl-headers=22803 nccl-library=22803
# Collective test starting: {op}_perf
# nThread {ranks} nGpus 1 minBytes 8 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: {graph}
#
# Using devices
"""
DEVICE = "#  Rank {rank:2} Group  0 Pid   4100 on  box-0 device {rank:2} [0x00] NVIDIA H100 80GB HBM3\n"
SVG = "{http://www.w3.org/2000/svg}"


def log_of(op, ranks, launch="stream"):
    """Return a log with the times of the shipped profile, 30 % more and a little noise."""
    noise = random.Random(ranks)
    text = HEAD.format(op=op, ranks=ranks, graph=int(launch == "graph"))
    text += "".join(DEVICE.format(rank=rank) for rank in range(ranks))
    for row in package.simulate("hgx_h100", op, SIZES, ranks=ranks, library="nccl-2.28", launch=launch):
        time_s = 1.3 * row.time_s * math.exp(0.01 * noise.gauss(0, 1))
        algbw, busbw = row.size_bytes / time_s / 1e9, row.busbw_Bps * row.time_s / time_s / 1e9
        text += (
            f"{row.size_bytes:12d} {row.count:13d} float {row.redop:>7} {row.root:7d} {time_s * 1e6:10.3f} "
            f"{algbw:9.4f} {busbw:9.4f}       0\n"
        )
    return text


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    files = []
    for op, ranks, launch in (("all_reduce", 2, "stream"), ("all_reduce", 4, "stream"), ("all_gather", 4, "graph")):
        files.append(folder / f"{op}{ranks}.log")
        files[-1].write_text(log_of(op, ranks, launch))
    return files


@pytest.fixture(scope="module")
def fitted(logs, tmp_path_factory):
    """Return what the command prints, with the profile and the plot that it writes."""
    from click.testing import CliRunner

    from collsim.cli.calibrate import calibrate

    folder = tmp_path_factory.mktemp("fit")
    profile, plot = folder / "mine.yaml", folder / "plot.svg"
    arguments = [*map(str, logs), "--topo", "hgx_h100", "-o", str(profile), "--plot", str(plot), "--name", "mine", "-q"]
    outcome = CliRunner().invoke(calibrate, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout, profile, plot


def test_what_is_printed(fitted, logs):
    text = fitted[0]
    lines = text.splitlines()
    assert lines[0] == f"# collsim {package.__version__}   profile mine: 30 rows of 3 logs, nccl-2.28"
    assert lines[1] == "# the fit starts from profile hgx_h100; constants that are not listed are as there"
    assert lines[2] == "# not identified: start and logs together made the value, the logs alone do not fix it"
    [head] = [line for line in lines if line.lstrip("# ").startswith("constant ")]
    assert head.strip("#").split() == ["constant", "launch", "unit", "start", "value", "low", "high"]
    constants = [line for line in lines if line and not line.startswith("#") and line.split()[1] in ("stream", "graph")]
    assert len({tuple(line.split()[:2]) for line in constants}) == len(constants) > 5
    for line in constants:
        start, value, low, high = map(float, line.split()[3:7])
        assert low <= value <= high
        assert start > 0
    assert "# not identified by these logs; these measurements would tell:" in lines
    assert any("all_reduce_perf" in line for line in lines[lines.index(
        "# not identified by these logs; these measurements would tell:"):])  # fmt: skip


def test_the_profile_is_nearer_to_the_logs_than_its_start(fitted, logs, collsim):
    mine = load_profile(str(fitted[1]))
    assert (mine.name, mine.calibrated, mine.systems, mine.library) == ("mine", True, ("hgx_h100",), "nccl-2.28")
    assert set(mine.launches) == {"graph", "registered"}
    for ranks in (2, 4):
        for size in (2**12, 2**20, 2**28):
            truth = 1.3 * package.simulate("hgx_h100", "all_reduce", size, ranks=ranks).time_s
            found = package.simulate("hgx_h100", "all_reduce", size, ranks=ranks, profile=mine)
            assert found.time_s == pytest.approx(truth, rel=0.12)
            assert found.profile["calibrated"]
    outcome = collsim("validate", *logs[:2], "--topo", "hgx_h100", "--profile", fitted[1], "-q", "--strict")
    assert outcome.code == 0, outcome.out
    assert "slower" not in outcome.out
    slow = collsim("validate", *logs[:2], "--topo", "hgx_h100", "-q", "--strict")
    assert slow.code == 1


def test_run_takes_the_profile(fitted, collsim):
    outcome = collsim("run", "--topo", "hgx_h100", "--op", "all_reduce", "--ranks", "4", "--size", "1M",
                      "--profile", fitted[1])  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    assert "calibrated: yes" in outcome.out
    assert "profile mine: nccl-2.28 on hgx_h100, fitted to 3 logs of 2, 4 ranks" in outcome.out


def test_the_plot_has_a_point_for_every_row(fitted):
    root = ElementTree.fromstring(fitted[2].read_text(encoding="utf-8"))
    assert root.tag == f"{SVG}svg"
    texts = [node.text or "" for node in root.iter(f"{SVG}text")]
    assert any("Predicted over measured time" in text for text in texts)
    assert {"all_reduce", "all_gather"} <= set(texts)
    legend = 2
    assert len(list(root.iter(f"{SVG}circle"))) >= 30 + legend


def test_a_title_with_signs_of_xml_does_not_break_the_plot():
    from collsim.calibration.findings import Residual
    from collsim.report.svg.residual_plot import residual_plot

    row = Residual("a&b.log", "all_reduce", 4, 8, "stream", "ring", "LL", 1.0, 9.0, None)
    text = residual_plot([row], 'A "<b>" & title')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'A "<b>" & title'


def test_the_legend_stays_inside_and_clear_of_the_caption_and_what_is_clipped_is_marked():
    from collsim.calibration.findings import Residual
    from collsim.report.svg.residual_plot import WIDTH, residual_plot

    ops = [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "all_to_all_v",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "send_recv",
    ]
    rows = [Residual("a.log", op, 4, 2**20, "stream", "ring", "LL", 1.0, 1.1, None) for op in ops]
    rows += [Residual("a.log", ops[0], 4, 8, "stream", "ring", "LL", 1.0, time_s, None) for time_s in (0.3, 9.0, 1.5)]
    root = ElementTree.fromstring(residual_plot(rows, "title"))
    texts = {node.text: (float(node.get("x")), float(node.get("y"))) for node in root.iter(f"{SVG}text")}
    [caption] = [place for text, place in texts.items() if text.startswith("predicted / measured")]
    places = [texts[op] for op in ops]
    assert len(set(places)) == len(ops)
    for x, y in places:
        assert x + 100 < WIDTH
        assert y > caption[1] + 12
    panel = next(y for text, (_, y) in texts.items() if text.startswith("ring, stream"))
    assert panel > max(y for _, y in places) + 12
    clipped = list(root.iter(f"{SVG}path"))
    assert len(clipped) == 2
    assert len(list(root.iter(f"{SVG}circle"))) == len(ops) + len(rows) - 2


def test_every_fault_at_once(collsim, tmp_path):
    (tmp_path / "empty.log").touch()
    files = (tmp_path / "none.log", tmp_path / "empty.log")
    flags = "--start idea --op reduec --ranks 0 --nodes two --launch x --library nccl-9 --env y --topo hgx_h10"
    outcome = collsim("calibrate", *files, *flags.split(), "-o", "/no/such/mine.yaml", "--plot", "")
    places = (
        "--start",
        "--op",
        "--ranks",
        "--nodes",
        "--launch",
        "--library",
        "--topo",
        "-o: /no/such/mine.yaml",
        "--plot",
    )
    refused(outcome, *(f"error: {place}: " for place in (*places, *files)), '"y" is not NAME=VALUE', '"ideal"')
    assert "--profile" not in outcome.err


def test_nothing_named(collsim):
    refused(collsim("calibrate"), "no log is named", "--topo: no topology is named")


def test_a_start_without_kernels_is_refused(collsim, logs):
    refused(
        collsim("calibrate", logs[0], "--topo", "hgx_h100", "--start", "ideal"), "--start: ", "constants of kernels"
    )


def test_two_outputs_to_one_file_are_refused(collsim, logs, tmp_path):
    file = tmp_path / "both"
    refused(collsim("calibrate", logs[0], "--topo", "hgx_h100", "-o", file, "--plot", file), "--plot: ", "would also")
    assert not file.exists()


@pytest.mark.parametrize(("flag", "name", "suffix"), [("-o", "z.txt", ".yaml or .yml"), ("--plot", "z.png", ".svg")])
def test_a_file_that_nothing_would_read_is_refused(collsim, logs, tmp_path, flag, name, suffix):
    file = tmp_path / name
    refused(collsim("calibrate", logs[0], "--topo", "hgx_h100", flag, file), f'{name}" does not end in {suffix}')
    assert not file.exists()


def test_too_few_rows_write_nothing(collsim, tmp_path):
    log, profile = tmp_path / "short.log", tmp_path / "mine.yaml"
    log.write_text("\n".join(log_of("all_reduce", 2).splitlines()[:9]) + "\n")
    outcome = collsim("calibrate", log, "--topo", "hgx_h100", "-o", profile)
    refused(outcome, "2 rows can be predicted")
    assert not profile.exists()


def test_logs_of_two_hosts_are_refused_with_the_reason(collsim, logs):
    outcome = collsim("calibrate", logs[0], "--topo", "hgx_h100", "--nodes", "2")
    refused(outcome, "more than one scale-up domain")


def test_help_names_what_it_takes(collsim):
    text = collsim("calibrate", "--help").out
    for flag in ("--topo", "--output", "--plot", "--start", "--library", "--env"):
        assert flag in text


def test_the_example_is_a_log_to_start_from(collsim):
    outcome = collsim("calibrate", ROOT / "examples/h100_all_reduce.log", "--topo", "hgx_h100", "-q")
    assert outcome.code == 0
    assert "# collsim" in outcome.out


def test_a_variable_that_does_nothing_is_told(collsim, logs):
    outcome = collsim("calibrate", *logs, "--topo", "hgx_h100", "--env", "PATH=3")
    assert outcome.code == 0
    assert "warning: PATH is no variable of NCCL or RCCL and is ignored" in outcome.err


def test_logs_of_other_gpus_are_left_out(collsim, logs, tmp_path):
    other = tmp_path / "other.log"
    other.write_text(logs[1].read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA B200"))
    reason = "the log names NVIDIA B200, hgx_h100 has H100 SXM5"
    refused(collsim("calibrate", other, "--topo", "hgx_h100"), str(other), reason, "nothing is left to fit")
    with pytest.raises(package.InputError, match=reason):
        package.calibrate(other, "hgx_h100")
    found = package.calibrate([logs[0], other], "hgx_h100")
    assert {entry.file for entry in found.residuals} == {str(logs[0])}
    assert [(skip.file, skip.reason) for skip in found.skipped] == [(str(other), reason)]
