"""The examples run, quickly, and say what their comments promise."""

import os
import runpy
import subprocess
import sys

import pytest

from collsim import simulate

from .conftest import GUARD_S, ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WORDS = {
    "compare_algorithms": ["all_reduce on AMD Instinct MI355X", "fastest", "all_pairs: "],
    "faster_links": ["as shipped", "links twice as fast", "half the latency", "%)"],
    "own_topology": ["4 ranks  all_reduce", "8 ranks  all_to_all", "switch"],
}


JOBS = (
    "broken_link", "faster_adapters", "half_the_rails", "moe_ep64", "oversubscription", "pcie_box", "step_by_hand",
    "torus", "two_adapters", "two_leaves",
)  # fmt: skip
"""Planning jobs: each has what it *found* beside the arithmetic by *hand*."""


def test_every_script_is_run():
    assert {path.stem for path in EXAMPLES} == {*WORDS, *JOBS}


@pytest.mark.parametrize("job", JOBS)
def test_planning_job(job, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    script = ROOT / "examples" / f"{job}.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 15
    names = runpy.run_path(str(script))
    assert len(names["found"]) == len(names["hand"]) >= 1
    assert names["found"] == pytest.approx(names["hand"], rel=1e-6)
    assert capsys.readouterr().out.count("\n") >= 1


@pytest.mark.parametrize("script", [path for path in EXAMPLES if path.stem in WORDS], ids=lambda path: path.stem)
def test_script(script):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=GUARD_S, env=environment
    )
    assert (found.returncode, found.stderr) == (0, "")
    for word in WORDS[script.stem]:
        assert word in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 130


def test_files_of_the_examples(collsim, monkeypatch):
    monkeypatch.chdir(ROOT)
    checked = collsim("topo", "check", "examples/two_boards.yaml").out
    assert checked.endswith("ok (4 GPUs, 12 directed bundles of links)\n")
    flags = ("--topo", "examples/two_boards.yaml", "--matrix", "examples/hot_expert.txt", "--profile", "ideal")
    text = collsim("run", *flags, "--op", "all_to_all_v", "-q").out
    assert "leaf->gpu2 busy 100%" in text  # 9 MiB and 8 MiB for rank 2 cross its one 50 GB/s link
    assert f"{17 * 2**20 / 50e3:.2f}" in text


def test_nodes_that_differ(collsim, monkeypatch):
    monkeypatch.chdir(ROOT)
    outcome = collsim("run", "--topo", "examples/h100_and_b200.yaml", "--op", "all_reduce", "--size", "1M")
    assert (outcome.code, "calibrated: no" in outcome.out, "# profile hgx_h100: " in outcome.out) == (0, True, True)
    assert 'nodes differ (hgx_h100, hgx_b200): profile "hgx_h100" holds for all that take part' in outcome.err
    shown = collsim("topo", "show", "examples/h100_and_b200.yaml").out
    assert "nodes n2 to n3" in shown
    assert "hgx_b200, 8 adapters of 400 Gb/s" in shown
    outcome = collsim("run", "--topo", "examples/h100_and_b200.yaml", "--nodes", "4", "--op", "all_reduce")
    assert (outcome.code, "--nodes: the mix says which nodes there are" in outcome.err) == (2, True)


def test_partitioned_gpus_share_the_links_of_their_package(monkeypatch):
    # 64 logical GPUs, 8 in each package: between two packages go 64 blocks each way over one link of 64 GB/s.
    monkeypatch.chdir(ROOT)
    row = simulate("examples/mi300x_cpx.yaml", "all_to_all", "64M", algo="direct", profile="ideal").rows[0]
    assert row.time_s == pytest.approx(64 * 2**20 / 64e9, rel=1e-9)
    assert row.bottleneck_links == 56
    alone = simulate("examples/mi300x_cpx.yaml", "send_recv", "64M", rank_list=[0, 8], profile="ideal").rows[0]
    assert alone.busbw_Bps == pytest.approx(64e9, rel=1e-9)
