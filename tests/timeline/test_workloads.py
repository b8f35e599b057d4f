"""Workloads in YAML and in Python: what they say, what they take, and what is wrong with bad ones."""

import json
from pathlib import Path

import pytest

from collsim.core.errors import InputError, SpecError
from collsim.simulation.request.groups import parse_grouping
from collsim.simulation.simulate import simulate
from collsim.timeline.analysis import overlap_of
from collsim.timeline.calls import Machine, Predictor
from collsim.timeline.gpus import gpu_of
from collsim.timeline.models import Layout, load_transformer
from collsim.timeline.ready_made import Layer, ddp, fsdp, moe_layer, pipeline, tensor_parallel, training
from collsim.timeline.simulate import simulate_timeline
from collsim.timeline.trace import COLLECTIVE, MEMORY, Call
from collsim.timeline.what_if import WhatIf
from collsim.timeline.workload import Graph, graph_of, read_workload, time_graph
from collsim.timeline.workload_runs import step_of_model

HEAD = {"schema": "collsim.workload/1", "topo": "hgx_h100", "ranks": 4}
H100 = gpu_of("NVIDIA H100 80GB HBM3")


def graph(*step, **head):
    return graph_of({**HEAD, **head, "step": list(step)})


@pytest.fixture(scope="module")
def predictor():
    return Predictor(Machine("hgx_h100"))


def test_loops_names_and_streams():
    found = graph(
        {"repeat": 3, "do": [
            {"kernel": "backward", "time": "400 us"},
            {"collective": "allreduce", "size": "25M", "after": "backward"},
        ]},
        {"kernel": "optimizer", "bytes": "2800M", "kind": "memory", "after": ["all_reduce"]},
    )  # fmt: skip
    assert [node.name for node in found.nodes] == [*["backward", "all_reduce"] * 3, "optimizer"]
    assert found.nodes[3].after == (1, 2)  # its kernel, and the collective before on its stream
    assert found.nodes[6].after == (4, 5)
    assert found.nodes[6].kind == MEMORY
    assert found.nodes[6].work_s == pytest.approx(2800 * 2**20 / 2.8e12)
    assert found.calls == [Call("all_reduce", 25 << 20, "bfloat16", "all", 4)]


def test_kernels_reach_the_rates_that_a_file_says():
    items = ({"kernel": "a", "flop": 1e12}, {"kernel": "b", "bytes": "1e9", "kind": "memory"})
    found = graph(*items, flops="500e12", memory="2 TB/s")
    assert [node.work_s for node in found.nodes] == pytest.approx([2e-3, 0.5e-3])
    with pytest.raises(SpecError, match=r'flops: 0 operations(.|\n)*memory: "2" has no unit'):
        graph(*items, flops=0, memory=2)


def test_jitter_follows_its_seed():
    item = {"repeat": 20, "do": [{"kernel": "a", "time": "1 ms"}]}
    times = [[node.work_s for node in graph(item, jitter=0.1, seed=seed).nodes] for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    assert len(set(times[0])) == 20
    assert [node.work_s for node in graph(item).nodes] == [1e-3] * 20


def test_the_host_launches_one_after_the_other(predictor):
    _, run = time_graph(
        graph({"repeat": 10, "do": [{"kernel": "tiny", "time": "1 us"}]}, launch="5 us"), H100, predictor
    )
    assert run.span_s == pytest.approx(9 * 5e-6 + 1e-6)


def test_every_fault_of_a_file_is_said_at_once():
    bad = {
        "schema": "collsim.workload/2",
        "rank": 4,
        "jitter": 3,
        "step": [
            {"kernel": "a", "time": "5"},
            {"collective": "all_reduse", "size": "1M"},
            {"collective": "all_reduce", "size": "1M"},
            {"kernel": "b", "time": "5 us", "afer": "a"},
            {"kernel": "c", "time": "5 us", "after": "d"},
            {"kernel": "e"},
            {"repeat": -1, "do": []},
            7,
        ],
    }
    with pytest.raises(SpecError) as caught:
        graph_of(bad, "step.yaml")
    text = str(caught.value)
    for part in (
        "collsim.workload/2", 'unknown key "rank"', "jitter 3", "step[0].time",
            'step[1]: unknown operation "all_reduse"',
            "step[2].ranks",
        'unknown key "afer"', 'called "d"', "step[5]: takes no time", "repeat -1", "step[7]: is no item",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("step.yaml") >= 10


def test_a_file_needs_a_system(tmp_path):
    file = tmp_path / "step.yaml"
    file.write_text("schema: collsim.workload/1\nranks: 4\nstep:\n  - {kernel: a, time: 1 ms}\n")
    with pytest.raises(InputError, match="no system is named"):
        simulate_timeline(file)
    assert simulate_timeline(file, WhatIf("hgx_h100")).step_time_s == pytest.approx(1e-3)
    file.write_text("step: [")
    with pytest.raises(SpecError, match="not YAML"):
        simulate_timeline(file)


def test_straggling_peers_and_slower_kernels_count(tmp_path):
    def step_s(late="0 us", slower=1):
        file = tmp_path / "step.yaml"
        file.write_text(
            "schema: collsim.workload/1\ntopo: hgx_h100\nranks: 8\nstep:\n"
            f"  - {{kernel: a, time: 1 ms, slower: {slower}}}\n"
            f"  - {{collective: all_reduce, size: 64M, after: a, late: {late}}}\n"
        )
        return simulate_timeline(file).step_time_s

    assert step_s("300 us") == pytest.approx(step_s() + 300e-6)
    assert step_s(slower=1.5) == pytest.approx(step_s() + 500e-6)


def test_data_parallel_hides_what_it_can(predictor):
    found = ddp(layers=8, forward_s=1e-3, backward_s=2e-3, layer_bytes=64 << 20, bucket_bytes=64 << 20, ranks=8)
    nodes, run = time_graph(found, H100, predictor)
    reduces = [i for i, node in enumerate(nodes) if node.kind == COLLECTIVE]
    assert len(reduces) == 8
    compute_s = 8 * 3e-3
    assert compute_s < run.span_s < compute_s + sum(nodes[i].work_s for i in reduces)


def test_sharded_data_parallel_gathers_ahead_and_scatters_behind(predictor):
    found = fsdp(layers=4, forward_s=1e-3, backward_s=2e-3, layer_bytes=64 << 20, ranks=8)
    ops = [call.op for call in found.calls]
    assert ops == ["all_gather", "reduce_scatter"]
    nodes, run = time_graph(found, H100, predictor)
    gathers = [i for i, node in enumerate(nodes) if node.name == "all_gather"]
    forwards = [i for i, node in enumerate(nodes) if node.name == "forward"]
    assert len(gathers) == 8
    assert run.start_s[gathers[1]] < run.end_s[forwards[0]]  # ahead of the layer that needs it
    assert all(gather in nodes[layer].after for gather, layer in zip(gathers[:4], forwards, strict=True))


def test_tensor_parallel_exposes_all_of_it(predictor):
    found = tensor_parallel(layers=4, forward_s=1e-3, backward_s=2e-3, activation_bytes=64 << 20, ranks=8)
    nodes, run = time_graph(found, H100, predictor)
    assert run.span_s == pytest.approx(sum(node.work_s for node in nodes))
    assert sum(node.kind == COLLECTIVE for node in nodes) == 16


@pytest.mark.parametrize(("stages", "batches"), [(1, 4), (4, 4), (4, 16)])
def test_a_pipeline_has_the_bubble_of_1f1b(predictor, stages, batches):
    found = pipeline(stages=stages, batches=batches, forward_s=1e-3, backward_s=2e-3, activation_bytes=0)
    _, run = time_graph(found, H100, predictor)
    assert run.span_s == pytest.approx((batches + stages - 1) * 3e-3, rel=1e-6)


@pytest.mark.parametrize(("stages", "batches", "chunks"), [(4, 8, 2), (4, 4, 3), (2, 8, 4), (8, 8, 2)])
def test_an_interleaved_pipeline_has_a_smaller_bubble(predictor, stages, batches, chunks):
    """Each stage has chunks that are so many times shorter: the bubble is, too (Narayanan et al. 2021, section 2.2)."""
    found = pipeline(stages=stages, batches=batches, forward_s=1e-3, backward_s=2e-3, activation_bytes=0, chunks=chunks)
    _, run = time_graph(found, H100, predictor)
    assert run.span_s == pytest.approx((batches * chunks + stages - 1) * 3e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("stages", "batches", "chunks", "forwards"),
    [(4, 8, 2, [11, 9, 7, 5]), (2, 8, 4, [9, 7]), (2, 4, 2, [5, 3]), (4, 4, 3, [12, 12, 11, 9])],
)
def test_stages_of_an_interleaved_pipeline_warm_up(stages, batches, chunks, forwards):
    """Two forward passes for each stage behind and one of all stages for each chunk but the last, at most all there are
    (Megatron-LM, megatron/core/pipeline_parallel/schedules.py); one more before the first goes back."""
    found = pipeline(stages=stages, batches=batches, forward_s=1e-3, backward_s=2e-3, activation_bytes=0, chunks=chunks)
    turns = [[node.name for node in found.nodes if node.gpu == stage] for stage in range(stages)]
    assert [names.index("backward") for names in turns] == forwards
    assert {len(names) for names in turns} == {2 * batches * chunks}


def test_an_interleaved_pipeline_sends_more(predictor):
    sizes = {"stages": 4, "batches": 8, "activation_bytes": 16 << 20}
    plain = pipeline(**sizes, forward_s=2e-3, backward_s=4e-3)
    chunks = pipeline(**sizes, forward_s=1e-3, backward_s=2e-3, chunks=2)
    messages = [sum(node.kind == COLLECTIVE for node in graph.nodes) for graph in (plain, chunks)]
    assert messages == [2 * 8 * 3, 2 * 8 * 7]
    spans = [time_graph(graph, H100, predictor)[1].span_s for graph in (plain, chunks)]
    assert spans[1] < spans[0]
    with pytest.raises(InputError, match="6 batches on 4 stages"):
        pipeline(stages=4, batches=6, forward_s=1e-3, backward_s=2e-3, activation_bytes=0, chunks=2)


def test_gpus_of_a_graph_take_nothing_from_each_other(predictor):
    found = Graph()
    found.collective(Call("all_reduce", 512 << 20, "bfloat16", "a", 8), gpu=1)
    for gpu in range(2):
        found.kernel("k", 1e-3, stream=f"k{gpu}", gpu=gpu)
    _, run = time_graph(found, H100, predictor)
    assert run.end_s[1] == pytest.approx(1e-3)
    assert run.end_s[2] > 1.1e-3


def test_overlap_of_several_gpus_is_that_of_a_gpu(predictor):
    """A message of one stage beside a kernel of another is exposed on its own GPU."""
    found = Graph()
    found.kernel("k", 1e-3, stream="k0", gpu=0)
    found.collective(Call("all_reduce", 512 << 20, "bfloat16", "a", 8), gpu=1)
    nodes, run = time_graph(found, H100, predictor)
    told = overlap_of(nodes, run)
    assert told.compute_s == pytest.approx(0.5e-3)
    assert told.exposed_s == told.communication_s == pytest.approx(nodes[1].work_s / 2)


def model_step(tmp_path, asked=None, **changes):
    told = {"schema": "collsim.workload/1", "topo": "hgx_h100", "model": "llama-3-8b", "layout": "tp=2,dp=4",
            "sequence": 2048, **changes}  # fmt: skip
    file = tmp_path / "model.yaml"
    file.write_text(json.dumps(told))
    return simulate_timeline(file, asked)


def test_a_step_of_a_model_is_its_products_and_what_its_layout_exchanges(tmp_path):
    """Six operations a parameter and token, and attention; two all-reduces a layer each way; gradients at the end."""
    found = model_step(tmp_path, flops=500e12)
    model = load_transformer("llama-3-8b")
    compute_s = 3 * model.layers * model.forward_flop(2048, 2048) / 2 / 500e12
    assert found.compute_s == pytest.approx(compute_s, rel=1e-6)
    reduced, gradients = found.calls
    if reduced.count < gradients.count:
        reduced, gradients = gradients, reduced
    assert (reduced.count, reduced.size_bytes, reduced.ranks) == (4 * 32, 2048 * 4096 * 2, 2)
    assert (gradients.count, gradients.ranks) == (1, 4)
    assert gradients.size_bytes == pytest.approx(model.parameters / 2 * 2, rel=1e-6)
    assert found.step_time_s == pytest.approx(found.compute_s + found.exposed_s)


def test_parameters_of_presets_are_those_that_models_are_named_by():
    for name, billions in (("llama-3-8b", 8), ("llama-3-70b", 70), ("llama-3-405b", 405), ("gpt3-175b", 175),
                           ("mixtral-8x7b", 46.7)):  # fmt: skip
        model = load_transformer(name)
        embeddings = 2 * model.vocabulary * model.hidden
        assert (model.parameters + embeddings) / 1e9 == pytest.approx(billions, rel=0.03), name


def test_the_example_of_a_model_is_512_gpus():
    file = Path(__file__).parents[2] / "examples/llama_step.yaml"
    data = read_workload(file)
    layout = Layout.read(data["layout"])
    assert layout.ranks == 512
    step = step_of_model(data, str(file), WhatIf(), 8)
    assert {node.gpu for node in step.graph.nodes} == {0, 1, 2, 3}
    assert step.groups["dp"].options(16) == {"ranks": 128, "groups": "beside=8,group=16", "over": "group"}
    assert step.groups["pp"].extent(2) == 256  # the same rank of the next stage


def test_contexts_and_experts_have_their_own_groups(tmp_path):
    found = model_step(tmp_path, model="mixtral-8x7b", layout="dp=2,cp=2,ep=2", chunks=1)
    calls = {(call.op, call.ranks): call.count for call in found.calls}
    assert calls["all_to_all", 2] == 4 * 32
    assert calls["all_gather", 2] == 2 * 32
    assert calls["reduce_scatter", 2] == 32
    assert calls["all_reduce", 4] == 1


def test_every_fault_of_a_model_is_said_at_once(tmp_path):
    with pytest.raises(SpecError) as caught:
        model_step(tmp_path, WhatIf(ranks=4), model="llama-3-7b", layout="tp=0", batches=0, flops="x", stepp=1)
    for part in ("llama-3-8b", '"tp=0"', "0 is no count", "'x' is no number", 'unknown key "stepp"', "follow from its"):
        assert part in str(caught.value), part
    for changes, what in (
        ({"layout": "dp=4,ep=2"}, "0 experts do not divide over ep=2"),
        ({"layout": "tp=3"}, "over tp=3\n  hint: give tp=2 or tp=4"),
        ({"layout": "cp=3"}, "2048 tokens do not divide over cp=3\n  hint: give cp=2 or cp=4"),
        ({"layout": "tp=12,cp=5"}, "tp=12(.|\n)*over cp=5"),
        (
            {"layout": "tp=3,dp=4", "model": "gpt3-175b"},
            "tp=3 lie across nodes of 8(.|\n)*give tp=2, or another of 1, 2, 4",
        ),
        ({"layout": "dp=4,ep=3"}, "does not divide dp=4"),
        ({"layout": {"pp": 5}}, "layout: 32 layers"),
        ({"model": {"layers": 2, "hiden": 8}}, "hiden"),
        ({"model": 5}, "5 is no model"),
        ({"model": {"layers": True, "gated": 3}}, "layers, gated"),
    ):
        with pytest.raises(SpecError, match=what):
            model_step(tmp_path, **changes)


def test_a_training_step_of_1024_gpus():
    layout = {"tp": 8, "pp": 8, "dp": 16}
    machine = Machine(
        "hgx_h100",
        options={"overrides": {"scale_out.nodes": "32"}},  # of two stages: others do the same on other links
        groups=Layout(**layout).places(8)[0],
    )
    layer = Layer(2e-3, 4e-3, 32 << 20, 100 << 20)
    nodes, run = time_graph(training(layers=64, layer=layer, batches=16, **layout), H100, Predictor(machine))
    least_s = (16 + 7) * 8 * 6e-3
    assert least_s < run.span_s < 1.5 * least_s
    assert {node.name for node in nodes} == {"forward", "backward", "all_reduce", "send_recv"}


def test_two_half_batches_of_experts_overlap(predictor):
    sizes = {"dispatch_bytes": 64 << 20, "combine_bytes": 128 << 20}
    layers = [moe_layer(**sizes, experts_s=2e-3, ranks=8, batches=batches) for batches in (1, 2)]
    one, two = (time_graph(layer, H100, predictor)[1] for layer in layers)
    assert one.span_s < two.span_s < 2 * one.span_s


def test_the_example_of_the_docstring_runs(predictor):
    found = Graph()
    found.collective(Call("all_reduce", 1 << 20, "bfloat16", "a", 4))
    assert time_graph(found, H100, predictor)[1].span_s == pytest.approx(predictor.of(found.calls[0]).time_s)


def test_gradients_are_summed_over_all_who_hold_the_same_parameters():
    """With tensors over 2, contexts over 2 and data over 2, ranks with the same part of tensors hold the same."""
    told = Layout(tp=2, cp=2, dp=2).places(8)[0]["dp"].options(4)
    grouping = parse_grouping(None, told["groups"], told["over"])
    assert sorted(map(sorted, grouping.groups(told["ranks"]))) == [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), "x", True])
def test_no_scale_of_kernels_is_told_with_what_else_is_wrong(scale):
    from collsim.core.errors import InputError
    from collsim.timeline.what_if import asked_for

    with pytest.raises(InputError) as refused:
        asked_for(None, compute_scale=scale, ranks=0, nodes="two")
    assert [fault.where for fault in refused.value.faults] == ["ranks", "nodes", "compute_scale"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seed: abc", "seed 'abc' is no count"),
        ("env: 5", "5 is no mapping"),
        ("model: llama-3-8b\nlayout: dp=8\nenv: [a]", "is no mapping"),
        ("model: llama-3-8b\nlayout: dp=8\nflops: 0", "0 operations a second"),
        ("ranks: 8\nstep: [{collective: all_reduce}]", "has no size"),
        ("ranks: 8\nstep: [{collective: all_reduce, size: 1}]", "1 bytes are no element of bfloat16"),
        (
            "ranks: 12\nstep: [{collective: all_reduce, size: 1M}]",
            "ranks: all_reduce of 1048576 B on 12 ranks: the lib",
        ),
        ("ranks: 99999999\nstep: [{collective: all_reduce, size: 1M}]", "ranks: .* are more than 1,048,576"),
        ("ranks: -5\nstep: [{kernel: a, time: 1 ms}]", "ranks: ranks -5"),
        (
            "ranks: 8\nenv: {NCCL_ALGO: X}\nstep: [{collective: all_reduce, size: 1M}]",
            'env: NCCL_ALGO: unknown name "X"',
        ),
        ("ranks: 8\nstep: [{collective: alltoallv, size: 1M}]", r"step\[0\].collective: all_to_all_v needs a matrix"),
        (
            "step: [{kernel: a, time: 1 ms, flop: 1e12, bytes: 5}]",
            r"step\[0\].flop: stands beside time(.|\n)*0\].bytes",
        ),
        (
            "step: [{kernel: a, time: 1 ms, full: yes please}]",
            r"step\[0\].full: 'yes please' is neither true nor false",
        ),
        ("step: [{kernel: a, flop: true}]", r"step\[0\].flop: True is no number"),
        ("step: [{kernel: a, time: 1 ms, slower: 0}]", r"step\[0\].slower: 0 times as long"),
        ("step: [{kernel: [1], time: 1 ms}]", r"step\[0\].kernel: \[1\] is no name"),
        (
            "step: [{repeat: 9999, do: [{repeat: 99, do: [{kernel: a, time: 1 ms}]}]}]",
            "989,901 items, more than 500,000",
        ),
        ("model: llama-3-8b", "layout: no layout is given"),
        ("model: llama-3-8b\nlayout: tp=2\nbatches: 99999", "batches: .* more than 500,000"),
        ("layout: tp=8,dp=x\nstep: [{collective: all_reduce, size: 1M}]", 'layout: "dp=x" is not a dimension'),
        ("layout: 5\nstep: [{collective: all_reduce, size: 1M}]", "layout: 5 is no layout"),
        ("layout: tp=8\nranks: 8\nstep: [{kernel: a, time: 1 ms}]", "ranks: stands beside layout"),
        (
            "layout: tp=8,dp=2\nstep: [{collective: all_reduce, size: 1M, group: dpp}]",
            'no "dpp"(.|\n)*did you mean "dp"',
        ),
    ],
)
def test_values_of_another_kind_are_told_with_their_place(tmp_path, line, message):
    file = tmp_path / "step.yaml"
    step = "" if "step:" in line or "model:" in line else "\nstep: [{kernel: a, time: 1 ms}]"
    file.write_text(f"schema: collsim.workload/1\ntopo: hgx_h100\n{line}{step}\n")
    with pytest.raises(InputError, match=message) as refused:
        simulate_timeline(file)
    assert all(fault.where.startswith(str(file)) for fault in refused.value.faults)


def test_groups_of_a_layout_are_timed_where_they_lie(tmp_path):
    """Data over four nodes goes over adapters, eight groups at once; tensors stay within a node."""
    file = tmp_path / "step.yaml"
    file.write_text(
        "schema: collsim.workload/1\ntopo: hgx_h100\nlayout: tp=8,dp=4\nstep:\n"
        "  - {collective: all_reduce, size: 64M, group: tp}\n  - {collective: all_reduce, size: 64M, group: dp}\n"
        "  - {collective: all_gather, size: 64M}\n"
    )
    nodes = {"ranks": 32, "dtype": "bfloat16", "overrides": {"scale_out.nodes": "4"}}
    for ranks in (None, 16):
        of_groups = {(row.op, row.ranks): row.alone_s for row in simulate_timeline(file, ranks=ranks).calls}
        if ranks:
            assert set(of_groups) == {("all_reduce", 8), ("all_reduce", 2), ("all_gather", 16)}
            continue
        (data,) = simulate("hgx_h100", "all_reduce", 64 << 20, split="MOD 8", **nodes).rows
        (tensors,) = simulate("hgx_h100", "all_reduce", 64 << 20, **{**nodes, "ranks": 8}).rows
        assert of_groups["all_reduce", 4] == pytest.approx(data.time_s)
        assert of_groups["all_reduce", 8] == pytest.approx(tensors.time_s)


def test_groups_of_a_layout_that_are_not_evenly_apart_run_beside_each_other(tmp_path):
    file = tmp_path / "step.yaml"
    file.write_text(
        "schema: collsim.workload/1\ntopo: hgx_h100\nlayout: tp=4,pp=2,dp=2\nstep:\n"
        '  - {collective: all_reduce, size: 64M, group: "tp, dp"}\n'
    )
    (row,) = simulate("hgx_h100", "all_reduce", 64 << 20, ranks=16, dtype="bfloat16", groups="tp=4,pp=2,dp=2",
                      over="tp,dp", overrides={"scale_out.nodes": "2"}).rows  # fmt: skip
    assert simulate_timeline(file).calls[0].alone_s == pytest.approx(row.time_s)


def test_messages_of_stages_go_as_far_as_these_are_apart(tmp_path):
    """Two stages of four GPUs on a node of eight: every other message leaves the node."""
    found = model_step(tmp_path, layout="tp=4,pp=4", batches=2)
    sent = [(row.count, row.bottleneck_link.partition("->")[2]) for row in found.calls if row.op == "send_recv"]
    assert sorted(sent) == [(4.0, "leaf0"), (8.0, "nvsw0")]


def test_jitter_and_launches_of_a_model_count(tmp_path):
    model = {"layers": 2, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336}
    plain, launched, one, two, again = (
        model_step(tmp_path, model=model, **changes).step_time_s
        for changes in ({}, {"launch": "2 ms"}, {"jitter": 0.1}, *[{"jitter": 0.1, "seed": 3}] * 2)
    )
    assert plain != one != two == again
    assert launched > 2e-3 * 2 * 2 * 4  # two products and two all-reduces a layer each way


def test_collectives_of_no_bytes_take_no_time_and_loops_over_nothing_end(tmp_path):
    file = tmp_path / "step.yaml"
    file.write_text(
        "schema: collsim.workload/1\ntopo: hgx_h100\nranks: 8\nstep:\n  - {kernel: a, time: 1 ms}\n"
        "  - {collective: all_reduce, size: 0, after: a}\n  - {repeat: 1000000000000, do: [{repeat: 3, do: []}]}\n"
    )
    assert simulate_timeline(file).step_time_s == pytest.approx(1e-3, rel=1e-9)
