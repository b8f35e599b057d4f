"""Timelines beside own runs: what docs/timeline.md says of them."""

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("timeline_accuracy", ROOT / "tools/timeline_accuracy.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def errors(rows):
    return [abs(row.error) for row in rows]


def test_loops_beside_each_other(tool, monkeypatch):
    monkeypatch.setattr(tool, "LOOPS_S", 30e-3)
    found = errors(tool.contention())
    assert len(found) == 54
    assert median(found) < 0.05
    assert sum(error > 0.15 for error in found) <= 3


def test_collectives_with_fewer_channels(tool):
    found = errors(tool.fewer_channels(least_mib=384))
    assert len(found) == 25
    assert median(found) < 0.06
    assert max(found) < 0.10


def test_collectives_at_once_take_as_long_as_links_let_them(tool):
    found = [row for row in tool.concurrent() if "64 MiB" in row.what]
    assert len(found) == 6
    assert max(errors(found)) < 0.10


def test_buckets_overlap_as_measured(tool):
    found = errors(tool.overlap())
    assert len(found) == 18
    assert median(found) < 0.10


def test_layers_with_experts(tool):
    assert max(errors(tool.experts())) < 0.12


def test_steps_are_looked_up_by_the_name_of_a_trace(tool, tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "nvjet", "ts": 5, "dur": 10, "args": {"stream": 7}}
    file = tmp_path / "ddp25_h2048__default__rank0.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": [kernel]}).encode()))
    found = list(tool.steps(tmp_path))
    assert [row.what for row in found] == ["ddp25_h2048 replay", "ddp25_h2048 8 channels", "ddp25_h2048 2 channels"]
    assert found[0].predicted_us == pytest.approx(10)
    assert found[1].measured_us == 62752.2
