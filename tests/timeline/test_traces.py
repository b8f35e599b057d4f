"""Traces: what is read from them, that a replay gives what was recorded, and what is said of bad ones."""

import gzip
import json
import math
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.core.progress import listening
from collsim.simulation.simulate import simulate
from collsim.timeline.build import build, recorded_events
from collsim.timeline.calls import Machine, Predictor, predict
from collsim.timeline.gpus import gpu_of
from collsim.timeline.kineto import TraceText
from collsim.timeline.machines import recorded_machine
from collsim.timeline.reader import read_trace
from collsim.timeline.replay import fair_shares, replay
from collsim.timeline.simulate import simulate_timeline
from collsim.timeline.steps import by_steps
from collsim.timeline.trace import COLLECTIVE, Call, HostEvent
from collsim.timeline.what_if import WhatIf


def test_kernels_are_told_from_collectives(ddp_trace):
    trace = read_trace(ddp_trace())
    calls = [k for k in trace.kernels if k.kind == COLLECTIVE]
    assert len(trace.kernels) == 2 * (4 + 4 + 4 + 1)
    assert len(calls) == 8
    call = calls[0].call
    assert (call.op, call.size_bytes, call.dtype, call.ranks) == ("all_reduce", 67_108_864, "bfloat16", 2)
    assert calls[0].ctas == 24
    assert not calls[0].full
    assert (trace.gpu, trace.sms, trace.library, trace.lost) == ("NVIDIA H200", 132, "2.28.9", ())


@pytest.mark.parametrize("syncs", [True, False])
def test_a_replay_takes_as_long_as_was_recorded(ddp_trace, syncs):
    found = simulate_timeline(ddp_trace(syncs=syncs))
    assert found.steps == 2
    assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.02)
    assert any("cuda_sync" in note for note in found.notes) != syncs


def test_a_collective_waits_for_the_kernel_before_its_event(ddp_trace):
    trace = read_trace(ddp_trace())
    nodes = build(trace, gpu_of(trace.gpu), {}).nodes
    reduces = [i for i, node in enumerate(nodes) if node.kind == COLLECTIVE]
    for i in reduces:
        assert any(nodes[j].name.startswith("nvjet_backward") for j in nodes[i].after)
    last = [i for i, node in enumerate(nodes) if node.name == "elementwise_optimizer"]
    assert reduces[3] in nodes[last[0]].after


def test_an_event_recorded_long_before_is_found_by_its_number(made, tmp_path):
    trace = made()
    first = trace.kernel("nvjet_a", 100.0)
    trace.call("cudaEventRecordWithFlags")  # event 5: after nvjet_a
    trace.kernel("nvjet_b", 5000.0)
    trace.call("cudaEventRecordWithFlags")  # event 6
    for event in (6, 5):
        number = trace.call("cudaStreamWaitEvent")
        trace.events.append(
            {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "ts": 1e9 + trace.host, "dur": 1.0,
             "args": {"correlation": number, "stream": 9 if event == 5 else 11, "wait_on_cuda_event_id": event,
                      "cuda_sync_kind": "Stream Wait Event"}}
        )  # fmt: skip
    trace.all_reduce(300.0, 1 << 20, after=first, stream=9)
    found = read_trace(trace.write(tmp_path / "a.json"))
    recorded = {wait.event: at for wait, at in recorded_events(found)}
    assert recorded[5] < recorded[6]
    nodes = build(found, gpu_of("NVIDIA H200"), {}).nodes
    reduce = next(node for node in nodes if node.kind == COLLECTIVE)
    assert [nodes[j].name for j in reduce.after] == ["nvjet_a"]


def test_numbers_of_events_say_when_they_were_recorded():
    """Something was recorded at 1, 2 and 5 s; number 7 is the first, 5 is lower and so older, 8 is higher and newer."""
    asked = [
        (0.5, 3, math.nan, 0.5),  # nothing was recorded before
        (3.0, 7, math.nan, 2.0),
        (3.2, 5, math.nan, 1.0),
        (4.0, 5, math.nan, 1.0),  # again, and nothing was recorded since
        (5.5, 5, math.nan, 5.0),  # again, and something was
        (6.0, 8, math.nan, 5.0),
        (6.5, 9, 4.2, 4.2),  # the trace says it
        (6.6, 9, math.nan, 4.2),
    ]
    waits = [HostEvent(time_s, time_s, 1, 7, event, told) for time_s, event, told, _ in asked]
    trace = SimpleNamespace(records=[(1.0, 7), (2.0, 7), (5.0, 7)], waits=[HostEvent(0.1, 0.2, 1, -1, 1), *waits])
    assert recorded_events(trace) == [(wait, at) for wait, (*_, at) in zip(waits, asked, strict=True)]


def test_marks_say_what_a_step_is(made, tmp_path, ddp_trace):
    trace = made()
    for number in range(3):
        begin = trace.host
        trace.kernel("nvjet_same", 500.0)
        trace.mark(begin, trace.host, number)
    trace.kernel("nvjet_after_all", 9000.0)
    kept, steps, note = by_steps(read_trace(trace.write(tmp_path / "marks.json")))
    assert (steps, len(kept.kernels), note) == (3, 3, "")
    _, steps, note = by_steps(read_trace(ddp_trace()))
    assert (steps, note) == (2, "")
    _, steps, _ = by_steps(read_trace(ddp_trace()), 1)
    assert steps == 1
    with pytest.raises(InputError, match="27 steps"):
        by_steps(read_trace(ddp_trace()), 27)


def test_what_does_not_repeat_is_one_step_and_says_so(made, tmp_path):
    trace = made()
    for name in ("nvjet_a", "nvjet_b", "nvjet_a"):
        trace.kernel(name, 100.0)
    found = simulate_timeline(trace.write(tmp_path / "odd.json"))
    assert found.steps == 1
    assert "--steps" in found.notes[0]


def test_a_trace_cut_short_is_read_in_part_and_says_so(ddp_trace, tmp_path):
    whole = gzip.decompress(ddp_trace(steps=20).read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    trace = read_trace(cut)
    assert 100 < len(trace.kernels) < 200
    assert "ends inside" in trace.lost[0]
    packed = tmp_path / "cut.json.gz"
    data = ddp_trace(steps=20).read_bytes()
    packed.write_bytes(data[: len(data) * 2 // 3])
    trace = read_trace(packed)
    assert len(trace.kernels) > 50
    assert "cut short" in trace.lost[0]
    packed.write_bytes(data[:5000] + bytes(500) + data[5500:])
    assert "damaged" in read_trace(packed).lost[0]


def test_files_that_are_no_traces_are_refused(tmp_path):
    cases = {
        "none.json": ("{}", "traceEvents"),
        "empty.json": ("", "traceEvents"),
        "words.json": ('{"traceEvents": 3}', "no list"),
        "cpu.json": (json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1}]}), "only cpu_op"),
    }
    for name, (text, message) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            read_trace(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "absent.json")


EVENTS = [{"ph": "X", "name": "[a]", "args": {"b": [1, 2]}}, {"ph": "i"}]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("front", ["", "\ufeff", " \t\r\n"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    ("written", "head"),
    [
        (EVENTS, {}),  # the format allows events alone
        ({"traceEvents": EVENTS}, {}),
        ({"a": {"b": [3]}, "traceEvents": EVENTS}, {"a": {"b": [3]}}),
        ({"traceEvents": EVENTS, "c": {"d": 4}}, {"c": {"d": 4}}),
        ({"a": 1, "traceEvents": EVENTS, "c": 2}, {"a": 1, "c": 2}),
    ],
)
def test_every_form_of_a_trace_holds_the_same_events(tmp_path, written, head, indent, front, pack):
    file = tmp_path / "t.json"
    file.write_bytes(pack((front + json.dumps(written, indent=indent)).encode()))
    text = TraceText(file)
    assert (list(text.events()), text.cut) == (EVENTS, "")
    assert text.head == head


def test_a_jump_of_the_clock_leaves_the_longest_part(made, tmp_path):
    trace = made()
    for _ in range(4):
        trace.kernel("nvjet_a", 100.0)
    trace.free[7] = 1e8
    trace.kernel("nvjet_a", 100.0)
    found = read_trace(trace.write(tmp_path / "jump.json"))
    assert len(found.kernels) == 4
    assert "jumps" in found.lost[0]


def test_launches_of_another_clock_are_left_out(made, tmp_path):
    trace = made()
    for _ in range(4):
        trace.kernel("nvjet_a", 100.0)
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event["ts"] += 1e6
    found = read_trace(trace.write(tmp_path / "clocks.json"))
    assert all(math.isnan(k.launch_s) for k in found.kernels)
    assert "clocks of host and GPU" in found.lost[0]


def test_collectives_without_metadata_keep_their_time(made, tmp_path):
    trace = made()
    for _ in range(2):
        trace.kernel("nvjet_a", 1000.0)
        trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500.0, stream=7, grid=24, per_sm=0.2)
    file = trace.write(tmp_path / "silent.json")
    plain = simulate_timeline(file)
    assert any("do not say what they move" in note for note in plain.notes)
    asked = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "1"}))
    assert asked.step_time_s == pytest.approx(plain.step_time_s)


def test_a_gpu_that_no_system_has_replays_and_refuses_what_ifs(ddp_trace):
    file = ddp_trace(gpu="Graphics Card 9000")
    assert any("no system of the zoo" in note for note in simulate_timeline(file).notes)
    with pytest.raises(InputError, match="Graphics Card 9000"):
        simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "1"}))
    named = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "1"}), recorded_on="hgx_h100")
    assert named.topology == "hgx_h100"


def test_fewer_channels_slow_only_what_communicates(ddp_trace):
    file = ddp_trace()
    plain = simulate_timeline(file)
    few = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "1"}))
    fewer = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "8"}))
    assert plain.step_time_s < few.step_time_s
    assert fewer.step_time_s < few.step_time_s
    assert few.exposed_s > plain.exposed_s
    assert few.calls[0].channels == 1
    assert few.calls[0].time_s > 5 * plain.calls[0].time_s


def test_what_ifs_of_compute_links_and_ranks(ddp_trace):
    file = ddp_trace(compute=100.0)
    plain = simulate_timeline(file)
    slow = simulate_timeline(file, WhatIf(compute_scale=2.0))
    assert plain.step_time_s < slow.step_time_s < 2 * plain.step_time_s
    long = ddp_trace("long.json.gz")  # products bind, and power their clock: it stays where all of a step scales
    for scale in (0.5, 2.0):
        scaled = simulate_timeline(long, compute_scale=scale)
        assert scaled.compute_s == pytest.approx(8.05e-3 * scale, rel=0.02)
    more = simulate_timeline(file, WhatIf(ranks=8))
    assert more.calls[0].ranks == 8
    assert more.step_time_s > plain.step_time_s
    nodes = simulate_timeline(file, WhatIf(nodes=2))
    assert nodes.calls[0].ranks == 16
    half = simulate_timeline(file, WhatIf(options={"overrides": {"link.bandwidth": "100 Gb/s"}}))
    assert half.step_time_s > plain.step_time_s
    with pytest.raises(InputError, match="times as long"):
        simulate_timeline(file, WhatIf(compute_scale=-1.0))


def test_steps_that_launches_bind_stay_so(made, tmp_path):
    trace = made()
    for _ in range(2):
        for _ in range(20):
            trace.kernel("nvjet_tiny", 2.0)
        trace.all_reduce(12.0, 8192, stream=7)
    file = trace.write(tmp_path / "bound.json")
    plain = simulate_timeline(file)
    assert plain.step_time_s == pytest.approx(plain.recorded_step_time_s, rel=0.02)
    faster = simulate_timeline(file, WhatIf(compute_scale=0.1))
    assert faster.step_time_s == pytest.approx(plain.step_time_s, rel=0.05)
    assert faster.path[0].what == "host launches"


def test_a_peer_that_is_late_is_no_slow_collective(made, tmp_path):
    """One of four equal collectives takes 2 ms longer: that is a wait, and it is not multiplied by fewer channels."""
    trace = made()
    for _ in range(2):
        for number in range(4):
            trace.kernel("nvjet_a", 1000.0)
            trace.all_reduce(2300.0 if number == 0 else 300.0, 33_554_432, stream=7)
    file = trace.write(tmp_path / "late.json")
    found = simulate_timeline(file, steps=2)
    waits = {part.what: part.time_s for part in found.path}
    assert waits["waiting for peers"] == pytest.approx(2e-3, rel=0.1)
    assert found.calls[0].alone_s == pytest.approx(300e-6, rel=0.2)
    replayed = replay(build(read_trace(file), gpu_of("NVIDIA H200"), {}).nodes, gpu_of("NVIDIA H200"))
    assert replayed.span_s == pytest.approx(2 * found.recorded_step_time_s, rel=0.01)


def test_steps_that_are_not_quite_alike_are_counted_and_said(made, tmp_path):
    trace = made()
    for step in range(2):
        for number in range(100):
            trace.kernel(f"nvjet_{number}" if number or step else "nvjet_first", 50.0)
    found = simulate_timeline(trace.write(tmp_path / "alike.json"))
    assert found.steps == 2
    assert "not quite alike" in found.notes[0]


def test_events_that_make_no_sense_are_counted(made, tmp_path):
    trace = made()
    for _ in range(3):
        trace.kernel("nvjet_a", 100.0)
    bad = [{"ts": "soon"}, {"dur": -1}, {"args": {"stream": 7, "grid": ["x"]}}, {"ts": None}]
    trace.events += [{**trace.events[-1], **change} for change in bad]
    found = read_trace(trace.write(tmp_path / "odd.json"))
    assert len(found.kernels) == 3
    assert found.lost[0].startswith("4 events without time")


def test_a_gpu_without_constants_of_contention_has_a_system_and_a_note(ddp_trace):
    found = simulate_timeline(ddp_trace(gpu="NVIDIA A100-SXM4-80GB"), WhatIf(environment={"NCCL_MAX_NCHANNELS": "2"}))
    assert found.topology == "dgx_a100"
    assert found.step_time_s > 1.1 * found.recorded_step_time_s
    assert any("figures are not known" in note for note in found.notes)
    assert gpu_of("AMD Instinct MI300X").topology == "mi300x_ubb8"
    assert gpu_of("NVIDIA GB200").topology == "gb200_nvl72"


def test_ranks_change_only_groups_of_all_ranks(ddp_trace):
    found = simulate_timeline(ddp_trace(world=16), WhatIf(ranks=32))
    assert found.calls[0].ranks == 2
    assert any("no group reaches over all 16 ranks" in note for note in found.notes)


def test_a_changed_figure_leaves_the_nodes_of_a_trace(ddp_trace):
    file = ddp_trace(world=16, ranks=16)
    plain = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": "8"}))
    slower = WhatIf(environment={"NCCL_MAX_NCHANNELS": "8"}, options={"overrides": {"link.bandwidth": "20 Gb/s"}})
    assert simulate_timeline(file, slower).calls[0].time_s > plain.calls[0].time_s


def test_collectives_of_other_versions_and_other_operations_are_known(made, tmp_path):
    trace = made(world=4)
    told = {"In msg nelems": 1 << 22, "Out msg nelems": 1 << 22, "Group size": 4, "dtype": "BFloat16"}
    cases = {
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": ("allreduce", "all_reduce", 8 << 20, 4),
        "ncclDevKernel_Broadcast_RING_LL(x)": ("broadcast", "broadcast", 8 << 20, 4),
        "ncclSymkDevKernel_AllGather_LL(x)": ("allgather_into_tensor_coalesced", "all_gather", 8 << 20, 4),
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)": (
            "reduce_scatter_tensor_coalesced", "reduce_scatter", 8 << 20, 4,
        ),
        "ncclDevKernel_SendRecv(x)": ("send", "send_recv", 8 << 20, 2),
        "ncclDevKernel_Generic_4(x)": ("all_to_allv", "all_to_all", 8 << 20, 4),
        "ncclDevKernel_SendRecv(y)": ("coalesced", "send_recv", 8 << 20, 2),
    }  # fmt: skip
    for number, (name, (collective, *_)) in enumerate(cases.items()):
        group = {"Process Group Name": str(number % 2)}
        trace.kernel(
            name, 100.0, 17 + number % 2, grid=8, per_sm=0.1, **{"Collective name": collective}, **group, **told
        )
    found = read_trace(trace.write(tmp_path / "many.json"))
    assert [(k.call.op, k.call.size_bytes, k.call.ranks) for k in found.kernels] == [c[1:] for c in cases.values()]
    step_s = [simulate_timeline(found.file, what, steps=1).step_time_s for what in (None, WhatIf(ranks=8))]
    assert all(map(math.isfinite, step_s))


def test_fewer_channels_never_shorten_a_step(ddp_trace):
    file = ddp_trace(comm=150.0, compute=300.0)
    times = [
        simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": str(n)})).step_time_s
        for n in (24, 8, 4, 2, 1)
    ]
    assert all(after > 0.99 * before for before, after in pairwise(times))
    assert times[-1] > 2 * times[0]


def test_a_what_if_and_back_gives_the_time_that_was_recorded():
    """The way back undoes the way there; of an error of the model, part carries over."""
    off = {"NCCL_NVLS_ENABLE": "0"}
    many, few = (Predictor(Machine("hgx_h200", {**off, "NCCL_MAX_NCHANNELS": n})) for n in ("24", "2"))
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        call = Call(op, 64 << 20, "bfloat16", "0", 2)
        there_s = many.moved_s(call, many.of(call).time_s, few)
        assert few.moved_s(call, there_s, many) == pytest.approx(many.of(call).time_s, rel=1e-9)
        assert many.moved_s(call, 1e-3, many) == pytest.approx(1e-3)
        slow_s = many.moved_s(call, 1.21 * many.of(call).time_s, few)
        assert there_s < slow_s < 1.21 * there_s


def test_one_channel_copies_the_own_part_too():
    """Measured on two H200: messages of 16 MiB took 417 us on two channels and 585 us on one, where sends alone took as
    long on both."""
    call = Call("all_to_all", 16 << 20, "bfloat16", "0", 2)
    two, one = (Predictor(Machine("hgx_h200", {"NCCL_MAX_NCHANNELS": n})) for n in ("2", "1"))
    assert two.moved_s(call, 417e-6, one) == pytest.approx(585e-6, rel=0.1)


def test_a_step_that_launches_bind_has_an_interval_down_to_what_it_is_without_the_profiler(made, tmp_path):
    trace = made()
    for _ in range(2):
        for _ in range(50):
            trace.kernel("nvjet_tiny", 2.0)
    found = simulate_timeline(trace.write(tmp_path / "bound.json"))
    assert found.time_lo_s < 0.65 * found.step_time_s
    assert any("launches of the host bind" in note for note in found.notes)


def test_traces_of_other_ranks_say_who_waited(ddp_trace):
    """Rank 0 always waits 600 us for rank 1, whose clock is another one: alone its trace cannot tell."""
    first, second = ddp_trace("a.json", comm=900.0), ddp_trace("b.json", comm=300.0)
    text = json.loads(second.read_text())
    for event in text["traceEvents"]:
        event["ts"] += 5e9
    second.write_text(json.dumps(text))
    found = simulate_timeline([first, second])
    assert found.calls[0].alone_s == pytest.approx(300e-6, rel=0.15)
    assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.01)
    assert not any("waiting for peers" in note for note in found.notes)
    assert any("waiting for peers" in note for note in simulate_timeline(first).notes)
    fewer = WhatIf(environment={"NCCL_MAX_NCHANNELS": "2"})
    assert simulate_timeline([second, first], fewer).calls[0].alone_s == pytest.approx(
        simulate_timeline([first, second], fewer).calls[0].alone_s, rel=0.15
    )


def test_a_trace_of_another_run_is_left_out_and_named(ddp_trace, tmp_path):
    first, second = ddp_trace("a.json"), ddp_trace("b.json", layers=3)
    notes = simulate_timeline([first, second]).notes
    assert any("b.json is left out for all_reduce" in note for note in notes)
    workload = tmp_path / "step.yaml"
    workload.write_text("step: []")
    with pytest.raises(InputError, match="2 files"):
        simulate_timeline([workload, first])


def test_a_trace_of_two_gpus_does_not_tell_whether_switches_add_on_eight(ddp_trace):
    file = ddp_trace(elements=1 << 27)
    for environment, told in (({}, True), ({"NCCL_NVLS_ENABLE": "0"}, False)):
        notes = simulate_timeline(file, WhatIf(ranks=8, environment=environment)).notes
        assert any("NVLS is taken to be on" in note for note in notes) == told


def test_variables_that_would_help_are_named(ddp_trace):
    """Of a step whose 24 channels hide: fewer leave more to kernels; of one that two channels bind, more help most."""
    few = ddp_trace(comm=1700.0, compute=300.0, channels=2)
    found = simulate_timeline(few)
    helps = {each.what: each.saved_s for each in found.helps}
    better = simulate_timeline(few, WhatIf(environment={"NCCL_MAX_NCHANNELS": "4"})).step_time_s
    assert helps["NCCL_MAX_NCHANNELS=4"] == pytest.approx(found.step_time_s - better, rel=0.01)
    assert helps["NCCL_MAX_NCHANNELS=4"] > 0.2 * found.step_time_s
    assert helps["NCCL_MAX_NCHANNELS=1"] < 0


def test_more_ranks_of_tensor_parallelism_are_told_that_kernels_keep_their_time(made, tmp_path, ddp_trace):
    trace = made()
    for _ in range(8):
        trace.kernel("nvjet_a", 1000.0)
        trace.all_reduce(300.0, 33_554_432, stream=7)
    notes = simulate_timeline(trace.write(tmp_path / "tp.json"), WhatIf(ranks=4)).notes
    assert any("2/4 of the products" in note for note in notes)
    assert not any("products" in note for note in simulate_timeline(ddp_trace(), WhatIf(ranks=4)).notes)


def test_a_trace_is_compared_on_several_systems(ddp_trace):
    """Where it was recorded the step is the replayed one; four kernels and the rest at half their time elsewhere."""
    file = ddp_trace()
    same, halved = "hgx_h200", "hgx_h200,workload.compute_scale=0.5"
    found = collsim.compare_workloads([same, halved], file, price={same: 3.6})
    assert found.refused == ()
    replayed = simulate_timeline(file, topo="hgx_h200")
    rows = found.to_records()
    assert rows[0]["time_s"] == replayed.step_time_s
    assert rows[1]["time_s"] == simulate_timeline(file, topo="hgx_h200", compute_scale=0.5).step_time_s
    assert [row["gpus"] for row in rows] == [2, 2]
    assert rows[0]["usd"] == pytest.approx(replayed.step_time_s * 2 * 3.6 / 3600)
    refused = collsim.compare_workloads([same, "hgx_b200,workload.flops=2"], file)
    assert "a trace has no such entry" in refused.refused[0].error
    with pytest.raises(InputError, match="cannot be read"):
        collsim.compare_workloads([same, "hgx_b200"], str(file) + ".gone.json")


def test_collectives_of_a_trace_at_once_share_links_there_and_in_what_ifs(made, tmp_path):
    """Two groups fill the same links: each takes twice as long as alone. With two channels each they do not."""
    elements = 33_554_432
    size = 2 * elements
    calls = [Call("all_reduce", size, "bfloat16", group, 2) for group in "ab"]
    alone = Predictor(Machine("hgx_h200", {"NCCL_NVLS_ENABLE": "0"})).of(calls[0])
    narrow = Predictor(Machine("hgx_h200", {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_NCHANNELS": "2"})).of(calls[0])
    share = fair_shares([{"link": alone.load}] * 2)[0]
    assert 0.5 <= share < 0.6
    trace = made()
    for _ in range(2):
        for _ in range(3):
            done = trace.kernel("nvjet_a", 1000.0)
            for stream, group in ((17, "a"), (18, "b")):
                trace.all_reduce(
                    alone.time_s * 1e6 / share,
                    elements,
                    after=done,
                    stream=stream,
                    channels=24,
                    **{"Process Group Name": group},
                )
            trace.wait(7, 1)
            trace.free[7] = max(trace.free.values())
    file = trace.write(tmp_path / "two.json")
    found = simulate_timeline(file, steps=2)
    assert [call.alone_s for call in found.calls] == pytest.approx([alone.time_s] * 2, rel=0.02)
    assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.01)
    assert "waiting for peers" not in {part.what for part in found.path}
    told = simulate_timeline(file, steps=2, environment={"NCCL_MAX_NCHANNELS": "2"})
    assert narrow.load < 0.2
    assert told.step_time_s == pytest.approx(3 * (1e-3 + narrow.time_s), rel=0.02)


def test_kernels_of_a_second_gpu_are_left_out_and_said(ddp_trace, tmp_path):
    """Streams of two GPUs have the same numbers: run one after the other they would take twice as long."""
    data = json.loads(gzip.decompress(ddp_trace().read_bytes()))
    second = [dict(event, args=dict(event["args"])) for event in data["traceEvents"]]
    for event in second:
        event["args"]["correlation"] += 100_000
        if event["cat"] == "kernel":
            event["args"]["device"] = 1
    data["traceEvents"] += second[:-1]
    file = tmp_path / "two_gpus.json"
    file.write_text(json.dumps(data))
    found = simulate_timeline(file)
    assert any("kernels of 2 GPUs: those of GPU 0 are read, 26 of 51" in note for note in found.notes)
    assert found.step_time_s == pytest.approx(simulate_timeline(ddp_trace()).step_time_s, rel=1e-6)


def test_kernels_whose_launch_is_lost_stay_in_their_step_and_their_order(made, tmp_path):
    trace = made()
    for step in range(3):
        begin = trace.host
        for layer in range(4):
            trace.kernel(f"nvjet_{layer}", 1000.0)
        trace.mark(begin, trace.host, step)
    trace.events = [e for e in trace.events if e["cat"] != "cuda_runtime" or e["args"]["correlation"] not in (2, 7)]
    found = simulate_timeline(trace.write(tmp_path / "lost.json"))
    assert found.compute_s == pytest.approx(4e-3)
    assert found.step_time_s == pytest.approx(4e-3, rel=0.01)
    assert "2 of 12 kernels have no launch" in found.notes[0]


def test_a_product_that_only_touches_a_collective_keeps_its_time(made, tmp_path):
    """Where clocks count from 1970, times are no finer than a quarter of a microsecond: that is no overlap."""
    trace = made()
    for _ in range(2):
        done = trace.all_reduce(500.0, 33_554_432)
        trace.kernel("nvjet_a", 1000.0, after=done - 0.25)
        trace.free[17] = trace.free[7]
    found = simulate_timeline(trace.write(tmp_path / "touch.json"), steps=2)
    assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.005)


def test_collectives_that_the_model_refuses_keep_their_time(ddp_trace):
    """Twelve ranks on nodes of eight: the library's choice is not modelled there."""
    file = ddp_trace(world=12, ranks=12)
    for changes in ({}, {"environment": {"NCCL_MAX_NCHANNELS": "2"}}):
        found = simulate_timeline(file, **changes)
        assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.01)
        assert any("has no time for all_reduce of 67108864 B on 12 ranks" in note for note in found.notes)


def test_nodes_of_a_cluster_are_those_that_it_has(ddp_trace):
    found = simulate_timeline(ddp_trace(), topo="h100_rail", nodes=2)
    assert {call.ranks for call in found.calls} == {16}


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("kernel", "args", "x"),
        ("kernel", "ts", 10**400),
        ("kernel", "dur", math.inf),
        ("kernel", "dur", 1e300),
        ("cuda_runtime", "args", [1]),
        ("cuda_runtime", "ts", -math.inf),
        ("args", "correlation", math.inf),
        ("args", "grid", [math.inf]),
        ("head", "deviceProperties", {"id": 0}),
        ("head", "deviceProperties", [{"name": None, "numSms": "x"}]),
        ("head", "distributedInfo", [1]),
        ("head", "distributedInfo", {"rank": "x", "world_size": None}),
    ],
)
def test_values_of_another_kind_lose_what_they_are_part_of(ddp_trace, part, key, value):
    file = ddp_trace("odd.json")
    data = json.loads(file.read_text())
    events = data["traceEvents"]
    place = {
        "head": data,
        "args": next(e["args"] for e in events if "nccl" in e["name"]),
    }.get(part) or [e for e in events if e["cat"] == part][3]
    place[key] = value
    file.write_text(json.dumps(data))
    found = simulate_timeline(file, steps=2)
    assert found.step_time_s == pytest.approx(8.35e-3, rel=0.02)


@pytest.mark.parametrize(("key", "value"), [("Out msg nelems", [1, 2]), ("Group size", "two"), ("Group size", 1)])
def test_a_collective_with_odd_metadata_keeps_its_kernel(made, tmp_path, key, value):
    trace = made()
    trace.kernel("nvjet_a", 1000.0)
    trace.all_reduce(300.0, 0, after=1005.0, **{key: value})
    found = read_trace(trace.write(tmp_path / "odd.json"))
    assert [k.call.size_bytes for k in found.kernels if k.call] == [0]
    assert any("do not say what they move" in lost for lost in found.lost)


def test_kernels_without_length_and_events_without_end_are_refused(tmp_path):
    file = tmp_path / "odd.json"
    for text, message in (
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 0}]}', "take no time"),
        ('{"traceEvents": [{"ph": "X", "a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": ' + "[" * 100_000 + ', "traceEvents": []}', "no kernels of a GPU"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_trace(file)


@pytest.mark.parametrize(
    ("ranks", "told", "place"),
    [
        ([0, 8], None, {"split": "MOD 8"}),
        ([1, 9], None, {"split": "MOD 8"}),
        (None, "[0, 8]", {"split": "MOD 8"}),
        ([0, 1], None, {"ranks": 2}),
        (["x"], None, {"ranks": 2}),
        ([3, 9], None, {"groups": [[3, 9]]}),
    ],
)
def test_groups_are_timed_where_their_ranks_lie(made, tmp_path, ranks, told, place):
    """Every eighth rank of two nodes goes over adapters, beside seven more: as ``collsim run --split`` has it."""
    trace = made(world=16)
    trace.head["deviceProperties"] = [{"id": i, "name": "NVIDIA H200", "numSms": 132} for i in range(8)]
    trace.head["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": ranks}, 5]
    trace.kernel("nvjet_a", 1000.0)
    trace.all_reduce(300.0, 33_554_432, after=1005.0, **({"Process Group Ranks": told} if told else {}))
    found = read_trace(trace.write(tmp_path / "apart.json"))
    call = next(k.call for k in found.kernels if k.call)
    machine, notes = recorded_machine(found, [call], "hgx_h200")
    nodes = {"overrides": {"scale_out.nodes": "2"}} if place != {"ranks": 2} else {}
    row = simulate("hgx_h200", "all_reduce", call.size_bytes, dtype="bfloat16", **{"ranks": 16, **nodes, **place}).rows[
        0
    ]
    assert predict(call, machine).time_s == pytest.approx(row.time_s)
    assert ["not evenly apart" in note for note in notes] == [True] * ("groups" in place)


def test_groups_over_the_whole_job_grow_with_it(ddp_trace):
    file = ddp_trace(world=32, group=[0, 8, 16, 24], ranks=4, comm=2500.0)
    for changes, ranks in (({"nodes": 3}, 3), ({"ranks": 8}, 1)):
        found = simulate_timeline(file, **changes)
        assert {row.ranks for row in found.calls} == {ranks}
    assert found.exposed_s == 0  # nobody is left to talk to
    with pytest.raises(InputError, match=r"12 ranks hold no whole number of those of group 0(.|\n)*give 8 or 16"):
        simulate_timeline(file, ranks=12)


def test_a_replay_that_misses_what_was_recorded_says_so(ddp_trace):
    file = ddp_trace("twice.json")
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "traceEvents": data["traceEvents"] * 2}))
    assert any("longer than what was recorded" in note for note in simulate_timeline(file, steps=2).notes)


def test_long_work_tells_how_far_it_is(ddp_trace):
    told = []
    with listening(lambda what, done, of: told.append((what, done, of))):
        simulate_timeline(ddp_trace(), environment={"NCCL_MAX_NCHANNELS": "2"})
    assert {what for what, _, _ in told} >= {"blocks of a trace", "thousand kernels", "variables", "changes"}
    assert all(any(each == (what, of, of) for each in told) for what, _, of in told)


def test_parts_of_different_sizes_are_told(made, tmp_path):
    trace = made()
    trace.kernel("nvjet_a", 1000.0)
    for parts in ("[7, 8]", "[8, 8]"):
        told = {"Collective name": "all_to_allv", "In split size": parts}
        trace.all_reduce(300.0, 33_554_432, after=1005.0, **told)
    lost = read_trace(trace.write(tmp_path / "uneven.json")).lost
    assert "1 all-to-alls have parts of different sizes: what-ifs take them as equal" in lost


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"topo": "nope"}, "topo"),
        ({"fail": "link:gpu0-gpu99"}, "fail"),
        ({"environment": {"NCCL_MAX_NCHANNELS": "zero"}}, "environment"),
        ({"profile": "nope"}, "profile"),
        ({"library": "nccl-99"}, "library"),
        ({"overrides": {"link.bandwith": "1 GB/s"}}, ""),
        ({"topo": "hgx_b200"}, None),
        ({"ranks": 12}, None),
        ({"nodes": 3}, None),
    ],
)
def test_what_is_asked_of_collectives_that_tell_nothing_is_checked_and_said_to_change_nothing(
    made, tmp_path, changes, place
):  # fmt: skip
    trace = made()
    trace.kernel("nvjet_a", 1000.0)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500.0, stream=7, grid=24, per_sm=0.2)
    file = trace.write(tmp_path / "silent.json")
    if place is not None:
        with pytest.raises(InputError) as refused:
            simulate_timeline(file, **changes)
        assert refused.value.faults[0].where.startswith(place)
        return
    found = simulate_timeline(file, **changes)
    assert found.step_time_s == pytest.approx(found.recorded_step_time_s, rel=0.01)
    assert any("no collective of the trace says what it moves" in note for note in found.notes)
    assert found.topology == changes.get("topo", "hgx_h200")


def test_kernels_of_another_gpu_and_two_traces_of_one_rank_are_noted(ddp_trace):
    file, again = ddp_trace(), ddp_trace("again.json")
    for topo, scale, said in (("hgx_b200", 1.0, True), ("hgx_b200", 0.5, False), ("hgx_h200", 1.0, False)):
        notes = simulate_timeline(file, topo=topo, compute_scale=scale).notes
        assert any("took on NVIDIA H200, also on b200" in note for note in notes) == said
    assert any("is of rank 0 as well" in note for note in simulate_timeline([file, again]).notes)


@pytest.mark.deep
def test_a_trace_of_50_megabytes_is_read_in_20_seconds_within_a_gigabyte(ddp_trace, tmp_path):
    whole = tmp_path / "large.json"
    whole.write_bytes(gzip.decompress(ddp_trace(steps=540, layers=40).read_bytes()))
    assert whole.stat().st_size > 50e6
    code = (
        "import resource, time, sys; from collsim.timeline.reader import read_trace; "
        "kernels = read_trace(sys.argv[1]).kernels; "
        "print(len(kernels), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, whole], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(told[0]) == 540 * (3 * 40 + 1)
    assert float(told[1]) < 20
    assert int(told[2]) < 1_000_000  # KiB
