"""Costs of kernels: what the file holds, and how far predictions are from published rows that no fit has seen."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

from collsim.moe import kernel_names, simulate_moe
from collsim.moe.flows import MODES, OPS
from collsim.moe.kernel_costs import FILE, Costs, kernel_for, load_kernel
from collsim.topology import load_topology, zoo_names

TOOLS = Path(__file__).parents[2] / "tools"
ENTRIES = yaml.safe_load(FILE.read_text(encoding="utf-8"))["kernels"]


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module("moe_accuracy")
    finally:
        sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def errors(accuracy: ModuleType) -> dict[tuple[str, str], np.ndarray]:
    """Return the sizes of errors by kernels and part, from the shipped table with the shipped costs."""
    rows = accuracy.published()
    times = accuracy.times_of(rows, {name: load_kernel(name) for name in accuracy.FITS})
    return accuracy.summary(rows, times[:, 0] / times[:, 1] - 1)


@pytest.mark.parametrize("name", kernel_names())
def test_every_kernel_says_where_it_is_from_and_costs_what_can_be(name: str) -> None:
    kernel = load_kernel(name)
    assert kernel.kind in ("fitted", "assumed")
    assert kernel.title
    assert kernel.source
    assert kernel.fit
    assert isinstance(ENTRIES[name]["gpus"], list)
    assert set(kernel.costs) <= set(MODES)
    assert 1 <= kernel.sms <= 1024
    assert 0 <= kernel.half_sms < kernel.sms
    for mode, by_op in kernel.costs.items():
        assert set(by_op) == set(OPS)
        for costs in by_op.values():
            assert 0 < costs.start_s < 2e-3
            assert 0 < costs.node_efficiency <= 1
            assert 0 < costs.network_efficiency <= (0.98 if mode != "all_to_all" else 1)
            assert 0 <= costs.network_work < 20
            assert 0 <= costs.message_s < 1e-6


@pytest.mark.parametrize(
    ("topo", "normal", "low_latency"),
    [
        ("hgx_h100", "deepep_v2", "deepep_v1"),
        ("hgx_h200", "deepep_v2", "deepep_v1"),
        ("hgx_h800", "deepep_v1_h800", "deepep_v1_h800"),
        ("hgx_b200", "deepep_v2_sm100", "default"),
        ("gb200_nvl72", "deepep_v2_sm100", "default"),
        ("mi300x_ubb8", "mori", "mori"),
        ("mi355x_ubb8", "mori", "mori"),
        ("dgx_a100", "default", "default"),
    ],
)
def test_kernels_meant_for_a_gpu(topo: str, normal: str, low_latency: str) -> None:
    gpu = load_topology(topo).labels["gpu.model"]
    assert [kernel_for(gpu, mode) for mode in MODES[:2]] == [normal, low_latency]


def test_beginnings_of_gpu_models_are_those_of_the_zoo() -> None:
    models = [load_topology(name).labels["gpu.model"] for name in zoo_names()]
    for entry in ENTRIES.values():
        assert all(any(model.startswith(gpu) for model in models) for gpu in entry["gpus"])


def test_parts_of_the_table(accuracy: ModuleType) -> None:
    rows = accuracy.published()
    assert len(rows) == 100
    assert Counter(row.part for row in rows) == {"fit": 53, "test": 47}
    assert all(row.part == ("fit" if row.ranks <= 16 else "test") for row in rows)
    assert {row.flag for row in rows} == {"", "stale", "ranks"}
    assert all(row.library == "MORI-EP" and row.ranks == 32 for row in rows if not row.scored)
    assert {row.machine[0] for row in rows} == set(accuracy.FITS)
    fitted = {name for name in kernel_names() if load_kernel(name).kind == "fitted"}
    assert fitted == {*accuracy.FITS, "framework_calls"}


@pytest.mark.parametrize(
    ("name", "count", "median", "p90"),
    [
        ("deepep_v1", 8, 0.12, 0.25),
        ("deepep_v1_h800", 12, 0.12, 0.25),
        ("deepep_v2", 2, 0.12, 0.25),
        ("uccl_mi300x", 8, 0.12, 0.25),
        ("uccl_mi300x_thor2", 3, 0.12, 0.25),
        ("uccl_b200_efa", 8, 0.12, 0.31),  # misses the second bar: low latency on three and four nodes
        ("all", 41, 0.12, 0.25),
    ],
)
def test_rows_that_no_fit_has_seen(
    errors: dict[tuple[str, str], np.ndarray], name: str, count: int, median: float, p90: float
) -> None:
    found = errors[name, "test"]
    assert len(found) == count
    assert np.quantile(found, 0.5) <= median
    assert np.quantile(found, 0.9) <= p90


def test_fitted_rows(errors: dict[tuple[str, str], np.ndarray], accuracy: ModuleType) -> None:
    for name in accuracy.FITS:
        assert np.quantile(errors[name, "fit"], 0.5) <= 0.09
    assert ("mori", "test") not in errors  # all that is left of it its source calls outdated
    assert np.quantile(errors["mori, outdated", "test"], 0.5) <= 0.18


def test_shipped_costs_are_those_of_the_fit(accuracy: ModuleType) -> None:
    name = "deepep_v1_h800"  # leans on deepep_v2_sm100 alone
    found, shipped = accuracy.fitted(name), load_kernel(name)
    assert found.half_sms == pytest.approx(shipped.half_sms, rel=0.01)
    for mode, by_op in shipped.costs.items():
        for op, costs in by_op.items():
            for figure in ("start_s", "node_efficiency", "network_work", "network_efficiency", "message_s"):
                fit = getattr(found.costs[mode][op], figure)
                assert fit == pytest.approx(getattr(costs, figure), rel=0.02, abs=1e-12), (mode, op, figure)


def test_large_calls_from_a_framework(accuracy: ModuleType) -> None:
    found = accuracy.call_times()
    assert Counter(call.part for call, _ in found) == {"fit": 8, "test": 4}
    for call, predicted in found:
        if call.part == "test":
            assert abs(predicted * 1e6 / call.time_us - 1) <= accuracy.CALL_BAR
    costs = load_kernel("framework_calls").costs["all_to_all"]
    assert [costs[op].start_s for op in OPS] == pytest.approx([accuracy.call_start_s()] * 2, rel=0.01)


def test_calls_start_later_than_those_of_the_library() -> None:
    model = {"experts": 64, "top_k": 8, "hidden": 7168, "ep": 4, "tokens": 512, "mode": "all_to_all"}
    late = load_kernel("framework_calls")
    bare = replace(late, costs={"all_to_all": {op: Costs(start_s=0.0) for op in OPS}})
    times = [simulate_moe("hgx_h100", None, kernel=each, **model).rows for each in (late, bare)]
    for op, with_start, without in zip(OPS, *times, strict=True):
        assert with_start.time_s - without.time_s == pytest.approx(late.costs["all_to_all"][op].start_s)
    assert "start of a call: framework_calls" in simulate_moe("hgx_h100", None, **model).kernel["source"]


def test_relayed_kernels_send_a_copy_to_each_node_and_rank_in_low_latency_too() -> None:
    asked = {"ep": 16, "tokens": 128, "overrides": {"scale_out.nodes": "2"}}
    mori, per_expert, normal = (
        simulate_moe("mi300x_ubb8", **asked, kernel=kernel, mode=mode).rows[1]
        for kernel, mode in (("mori", "low_latency"), ("uccl_mi300x", "low_latency"), ("mori", "normal"))
    )
    assert (mori.network_bytes, mori.node_bytes) == (normal.network_bytes, normal.node_bytes)
    assert mori.network_bytes < per_expert.network_bytes / 3
    assert mori.logical_bytes == normal.logical_bytes


def test_kernels_may_be_given_by_name_or_as_they_are() -> None:
    asked = {"ep": 16, "mode": "low_latency", "overrides": {"scale_out.nodes": "2"}}
    named = simulate_moe("hgx_h100", **asked, kernel="deepep_v1")
    given = simulate_moe("hgx_h100", **asked, kernel=load_kernel("deepep_v1"))
    assert named.rows == given.rows


def test_extents_are_those_of_the_rows(accuracy: ModuleType) -> None:
    found: dict[str, dict[str, dict[str, object]]] = {}
    for row in accuracy.published():
        if not row.scored and row.library != "MORI-EP":
            continue
        extent = found.setdefault(row.machine[0], {}).setdefault(row.mode, {"ranks": [10**9, 0], "tokens": row.tokens})
        least, most = extent["ranks"]
        extent["ranks"] = [min(least, row.ranks), max(most, row.ranks)]
        assert extent["tokens"] == row.tokens
    assert {name: entry["extent"] for name, entry in ENTRIES.items() if "extent" in entry} == found


@pytest.mark.parametrize(
    ("mode", "ranks", "tokens", "told"),
    [
        ("normal", [8, 64], [4096], ()),
        ("normal", [8, 64], [2048, 8192], ()),
        ("normal", [8, 128], [64], ("128 ranks", "64 tokens a rank")),
        ("low_latency", [4], [128], ("4 ranks",)),
        ("low_latency", [8], [64, 1024], ("1024 tokens a rank",)),
    ],
)
def test_kernels_outside_their_measurements_say_so(mode, ranks, tokens, told) -> None:
    text = load_kernel("deepep_v1").outside(mode, ranks, tokens)
    assert bool(text) == bool(told)
    assert all(part in text for part in told)
    assert told or load_kernel("default").outside(mode, ranks, tokens) is None


def test_an_extrapolation_is_a_warning_of_the_result() -> None:
    asked = {"ep": [8], "kernel": "deepep_v1"}
    assert any("extrapolation" in text for text in simulate_moe("hgx_h100", tokens=32, **asked).warnings)
    assert not any("extrapolation" in text for text in simulate_moe("hgx_h100", tokens=4096, **asked).warnings)
