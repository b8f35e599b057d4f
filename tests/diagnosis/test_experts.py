"""Logs of DeepEP's tests, made up: what is read of each format, verdicts, notes and causes."""

import json

import pytest
from jsonschema import Draft202012Validator

import collsim
from collsim.core.errors import InputError, SpecError
from collsim.diagnosis.experts import _causes, expert_log
from collsim.moe.logs import is_moe_log, read_moe_log
from collsim.report import schema
from collsim.report.experts import render_experts
from collsim.simulation.request.prepare import Machine
from collsim.topology.files.overrides import known_paths

NORMAL = "[config] num_tokens=4096, hidden=7168, num_topk_groups=2, num_topk=8\n"
FORMATS = {
    "early": "SMs 24, NVL chunk 20, RDMA chunk 28: {rdma:.2f} GB/s (RDMA), {nvl:.2f} GB/s (NVL)",
    "sum": "SMs 24, NVL chunk 20, RDMA chunk 28: 30 + {us:.0f} us, {rdma:.2f} GB/s (RDMA), {nvl:.2f} GB/s (NVL)",
    "words": "SMs 24, NVL chunk 20, RDMA chunk 28, transmit: {us:.2f} us, notify: 30.00 us, BW: {rdma:.2f} GB/s "
    "(RDMA), {nvl:.2f} GB/s (NVL)",
}


def written(path, text):
    path.write_text(text)
    return path


def normal(rdma, form="early", share=3.2, us=1000.0):
    """Return a log of test_internode."""
    told = FORMATS[form].format(rdma=rdma, nvl=share * rdma, us=us)
    return f"{NORMAL}[tuning] Best dispatch (FP8): {told}\n[tuning] Best combine: {told}\n"


def low_latency(dispatch_us, combine_us, both_us=300.0, tokens=128, ranks=16):
    """Return a log of test_low_latency; *dispatch_us* has a time for each rank, or one for all."""
    sent, back = (tokens * 8 * size / 1e3 for size in (7408, 14336))
    each = dispatch_us if isinstance(dispatch_us, list) else [dispatch_us] * ranks
    lines = [
        f"[rank {rank}] Dispatch + combine bandwidth: {(sent + back) / both_us:.2f} GB/s, avg_t={both_us:.2f} us, "
        "min_t=1.00 us, max_t=9.00 us"
        for rank in range(ranks)
    ]
    lines += [
        f"[rank {rank}] Dispatch bandwidth: {sent / time_us:.2f} GB/s, avg_t={time_us:.2f} us | Combine bandwidth: "
        f"{back / combine_us:.2f} GB/s, avg_t={combine_us:.2f} us"
        for rank, time_us in enumerate(each)
    ]
    return "\n".join(lines) + "\n"


def test_formats_of_all_dates_say_the_same(tmp_path):
    for form in FORMATS:
        log = read_moe_log(written(tmp_path / form, normal(40, form)))
        assert (log.mode, log.tokens, log.topk_groups, log.top_k) == ("normal", 4096, 2, 8)
        assert [(row.op, row.dtype, row.sms) for row in log.rows] == [("dispatch", "fp8", 24), ("combine", "bf16", 24)]
        assert log.rows[0].logical_Bps == pytest.approx(40e9)
        assert log.rows[0].node_share == pytest.approx(3.2)
        assert log.rows[0].time_s == (None if form == "early" else pytest.approx(1e-3))
        assert log.rows[0].prepare_s == (None if form == "early" else pytest.approx(30e-6))


def test_within_a_node_there_is_no_network(tmp_path):
    text = "[config] num_tokens=4096, hidden=7168, num_topk=8\n"
    text += "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 10, 300.00 GB/s (NVL), t: 700.00 us\n"
    log = read_moe_log(written(tmp_path / "log", text))
    assert [(row.dtype, row.logical_Bps, row.time_s) for row in log.rows] == [("bf16", 300e9, pytest.approx(7e-4))]
    assert expert_log(tmp_path / "log", "hgx_h100", Machine()).rows[0].network_Bps == 0


def test_tokens_and_ranks_of_low_latency_follow_from_its_lines(tmp_path):
    log = read_moe_log(written(tmp_path / "log", low_latency(120.0, 200.0, tokens=64)))
    assert (log.mode, log.ranks, log.tokens) == ("low_latency", 16, 64)
    assert {row.op: row.dtype for row in log.rows} == {"both": "fp8", "dispatch": "fp8", "combine": "bf16"}


def test_other_logs_are_told_apart(tmp_path):
    assert not is_moe_log("examples/h100_slow.log")
    assert is_moe_log(written(tmp_path / "log", normal(40)))
    assert is_moe_log(written(tmp_path / "one", "[tuning] Best combine: SMs 24, NVL chunk 4: 62.15 GB/s (NVL)"))
    with pytest.raises(SpecError, match="no line of a result"):
        read_moe_log("examples/h100_slow.log")


def predicted(**changes):
    """Return dispatch in FP8 and combine, as the tests ask it, on two nodes of eight H100."""
    asked = {"ep": 16, "tokens": 4096, "experts": 256, "top_k": 8, "hidden": 7168, "group_limit": 2}
    asked["expert_groups"] = 2
    topo = Machine(["scale_out.nodes=2", *changes.pop("figures", [])]).of("hgx_h100")
    return collsim.simulate_moe(topo, None, **asked, sms=24, dispatch="fp8", **changes).rows


def of_rows(rows):
    return NORMAL + "".join(
        f"[tuning] Best {row.op}{' (FP8)' if row.op == 'dispatch' else ''}: "
        + FORMATS["sum"].format(rdma=row.logical_Bps / 1e9, nvl=3.2 * row.logical_Bps / 1e9, us=row.time_s * 1e6)
        + "\n"
        for row in rows
    )


def test_what_the_model_says_itself_is_healthy(tmp_path):
    found = expert_log(written(tmp_path / "log", of_rows(predicted())), "hgx_h100", Machine(), nodes=2, causes=True)
    assert found.verdict == "healthy"
    assert [row.verdict for row in found.rows] == ["inside", "inside"]
    assert all(row.network_Bps == pytest.approx(row.logical_Bps / 2, rel=0.02) for row in found.rows)
    assert found.causes == ()


@pytest.mark.parametrize("name", ["one_adapter", "slow_adapters"])
def test_a_planted_cause_is_first(tmp_path, name):
    figures = {"one_adapter": ["nic.shared_by=8"], "slow_adapters": ["nic.bandwidth=200 Gb/s"]}[name]
    path = written(tmp_path / "log", of_rows(predicted(figures=figures)))
    found = expert_log(path, "hgx_h100", Machine(), nodes=2, causes=True)
    assert found.verdict == "faulty"
    assert found.causes[0].fits
    near = {cause.name for cause in found.causes if cause.off < found.causes[0].off + 0.05}
    assert name in near
    assert "to fix: " in render_experts([found])
    document = json.loads(render_experts([found], "json"))
    assert document["logs"][0]["verdict"] == "faulty"
    Draft202012Validator(schema("collsim.moe_logs/1")).validate(document)
    assert not Draft202012Validator(schema("collsim.moe_logs/1")).is_valid({**document, "logs": []})


def test_the_ratio_of_bandwidths_tells_the_number_of_nodes(tmp_path):
    """A token of eight experts goes to 6.4 of 16 ranks, and to 2.0 of two nodes or 3.6 of four: 3.2 and 1.8 times."""
    four = expert_log(written(tmp_path / "log", normal(40, share=1.99)), "hgx_h100", Machine(), nodes=2)
    two = expert_log(written(tmp_path / "log", normal(40, share=3.2)), "hgx_h100", Machine(), nodes=2)
    assert any("that of 4 nodes" in note for note in four.notes)
    assert not any("give --nodes" in note for note in two.notes)


def test_ranks_that_came_early_waited_and_are_not_slow(tmp_path):
    times = [2700.0 - 170 * rank for rank in range(15)] + [115.0]
    found = expert_log(written(tmp_path / "log", low_latency(times, 200.0)), "hgx_h800", Machine(), nodes=2)
    assert found.verdict == "healthy"
    assert any("start at different moments" in note for note in found.notes)
    assert next(row for row in found.rows if row.op == "dispatch").measured_s == pytest.approx(115e-6)


def test_a_slow_rank_is_named(tmp_path):
    times = [120.0] * 15 + [150.0]
    found = expert_log(written(tmp_path / "log", low_latency(times, 200.0)), "hgx_h800", Machine(), nodes=2)
    assert any(note.startswith("dispatch: ranks 15 take more") for note in found.notes)


def test_logs_of_spring_are_judged_by_kernels_of_spring(tmp_path):
    """44 GB/s was usual in the format without times; half of it was not, nor is 44 today."""
    usual = expert_log(written(tmp_path / "usual", normal(43)), "hgx_h200", Machine(), nodes=2)
    half = expert_log(written(tmp_path / "half", normal(23)), "hgx_h200", Machine(), nodes=2)
    assert (usual.verdict, half.verdict) == ("healthy", "faulty")
    assert any("spring 2025" in note for note in usual.notes)
    timed = written(tmp_path / "timed", normal(43, "words", us=3000.0))
    assert expert_log(timed, "hgx_h200", Machine(), nodes=2).verdict == "faulty"


def test_stalls_of_single_iterations_are_named(tmp_path):
    stalled = low_latency(120.0, 200.0, both_us=80000.0).replace("min_t=1.00", "min_t=700.00")
    found = expert_log(written(tmp_path / "log", stalled), "hgx_h800", Machine(), nodes=2)
    assert any("the least 700: single ones stall" in note for note in found.notes)
    sound = low_latency(120.0, 200.0).replace("min_t=1.00", "min_t=290.00")
    found = expert_log(written(tmp_path / "ok", sound), "hgx_h800", Machine(), nodes=2)
    assert not any("stall" in note for note in found.notes)


def test_what_starts_and_what_is_sent_are_told_apart(tmp_path):
    """The step before takes 30 us of 1000; of 40; a rank with few tokens waits for starts alone."""
    logs = {us: written(tmp_path / str(us), normal(40, "words", us=us)) for us in (1000.0, 40.0)}
    told = {us: " ".join(expert_log(path, "hgx_h100", Machine(), nodes=2).notes) for us, path in logs.items()}
    assert "(notify) takes 30 us, what is sent 40 us" in told[40.0]
    assert "notify" not in told[1000.0]
    few = expert_log(written(tmp_path / "few", low_latency(30.0, 30.0, tokens=8)), "hgx_h800", Machine(), nodes=2)
    assert any("start-up decides" in note for note in few.notes)


def test_too_few_gpus_and_a_bad_file_come_at_once(tmp_path):
    path = written(tmp_path / "log", low_latency(120.0, 200.0))
    with pytest.raises(InputError, match="16 ranks, hgx_h800 8 GPUs"):
        expert_log(path, "hgx_h800", Machine())
    with pytest.raises(InputError) as error:
        expert_log(tmp_path / "missing", "hgx_h800x", Machine())
    assert len(error.value.faults) == 2


def test_causes_are_questions_that_can_be_asked():
    for entry in _causes():
        assert set(entry.get("set", {})) <= set(known_paths()), entry["name"]
        assert bool(entry.get("set")) != bool(entry.get("ask"))
        assert all(entry[key] for key in ("title", "measure", "fix", "source"))


def test_the_commands_take_them(tmp_path, capsys):
    from collsim.cli import cli

    path = str(written(tmp_path / "log", low_latency(120.0, 200.0)))
    flags = ["--topo", "hgx_h800", "--nodes", "2"]
    for command in ("validate", "diagnose"):
        with pytest.raises(SystemExit) as left:
            cli([command, path, *flags], prog_name="collsim")
        assert left.value.code == 0
        assert "mode low_latency" in capsys.readouterr().out
