"""Ready-made steps: data parallel, sharded, tensor parallel, pipelined, and layers with experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collsim.core.errors import Fault, InputError
from collsim.timeline.trace import Call
from collsim.timeline.workload import COMPUTE_STREAM, Graph

__all__ = ["Layer", "ddp", "fsdp", "moe_layer", "pipeline", "tensor_parallel", "training"]

DTYPE = "bfloat16"
Turn = tuple[str, int, int]
"""Forward or backward, of which part of the model, for which micro-batch."""


def ddp(*, layers: int, forward_s: float, backward_s: float, layer_bytes: int, bucket_bytes: int, ranks: int) -> Graph:
    """Return a step of data parallelism: gradients are reduced in buckets while the rest of backward runs.

    Parameters
    ----------
    forward_s, backward_s : float
        Of one layer.
    layer_bytes, bucket_bytes : int
        Gradients of a layer; a bucket goes when it holds as much, as of PyTorch's DistributedDataParallel.
    """
    graph, waiting = Graph(), 0
    for _ in range(layers):
        graph.kernel("forward", forward_s)
    for layer in range(layers):
        done = graph.kernel("backward", backward_s)
        waiting += layer_bytes
        if waiting >= bucket_bytes or layer == layers - 1:
            graph.collective(Call("all_reduce", waiting, DTYPE, "dp", ranks), after=[done])
            waiting = 0
    return graph


def fsdp(*, layers: int, forward_s: float, backward_s: float, layer_bytes: int, ranks: int) -> Graph:
    """Return a step of sharded data parallelism (ZeRO-3): the next layer is gathered while one runs, and gradients are
    scattered behind.
    """
    graph = Graph()
    gather = Call("all_gather", layer_bytes, DTYPE, "dp", ranks)
    scatter = Call("reduce_scatter", layer_bytes, DTYPE, "dp", ranks)
    for name, time_s in (("forward", forward_s), ("backward", backward_s)):
        before: list[int] = []
        ready = graph.collective(gather)
        for layer in range(layers):
            needed = ready
            if layer < layers - 1:  # at most one layer ahead: what was gathered before is freed
                ready = graph.collective(gather, after=before[-1:])
            done = graph.kernel(name, time_s, after=[needed])
            before.append(done)
            if name == "backward":
                graph.collective(scatter, after=[done])
    return graph


def tensor_parallel(*, layers: int, forward_s: float, backward_s: float, activation_bytes: int, ranks: int) -> Graph:
    """Return a step of tensor parallelism as of Megatron-LM: two all-reduces a layer each way, waited for at once."""
    graph, call = Graph(), Call("all_reduce", activation_bytes, DTYPE, "tp", ranks)
    for name, time_s in (("forward", forward_s), ("backward", backward_s)):
        for _ in range(layers):
            for half in ("attention", "mlp"):
                graph.kernel(f"{name} {half}", time_s / 2)
                graph.collective(call, stream=COMPUTE_STREAM)
    return graph


def pipeline(
    *, stages: int, batches: int, forward_s: float, backward_s: float, activation_bytes: int, chunks: int = 1
) -> Graph:
    """Return a step of a pipeline by 1F1B: stages warm up, then go forward and backward in turn, then drain.

    With several *chunks* a stage has as many parts of the model, each *forward_s* and *backward_s* long (interleaved).
    """
    layer = Layer(forward_s, backward_s, activation_bytes)
    return training(layers=stages * chunks, layer=layer, batches=batches, tp=1, pp=stages, dp=1, chunks=chunks)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of one rank, for one micro-batch.

    Attributes
    ----------
    forward_s, backward_s : float
    activation_bytes : int
        That tensor parallelism reduces twice a layer each way, and that go from stage to stage.
    gradient_bytes : int
        That data parallelism reduces at the end.
    context_bytes : int
        Keys and values that context parallelism gathers forward and backward, and whose gradients it scatters.
    exchange_bytes : int
        That a rank sends to experts, and gets back.
    """

    forward_s: float
    backward_s: float
    activation_bytes: int
    gradient_bytes: int = 0
    context_bytes: int = 0
    exchange_bytes: int = 0


def training(
    *, layers: int, layer: Layer, batches: int, tp: int, pp: int, dp: int, cp: int = 1, ep: int = 1, chunks: int = 1,
    messages: Sequence[str] = (), graph: Graph | None = None,
) -> Graph:  # fmt: skip
    """Return a step of a model with tensor, pipeline and data parallelism (Megatron-LM): 1F1B over *pp* stages, two
    all-reduces a layer each way among *tp* ranks, and one all-reduce of the gradients among *dp* ranks at the end;
    keys and values are gathered among *cp* ranks, and tokens go to experts over *ep* ranks and back.

    One rank stands for all of its stage: where groups lie that do the same at the same time is told to the model by
    `Machine.groups`, under the names ``tp``, ``dp``, ``cp``, ``ep`` and ``pp``, or where stages are not equally far
    from each other, those of *messages*, of each stage to the next. Each stage is a GPU of its own. With *chunks*,
    stages hold so many parts of the model and take turns for them, which shortens the bubble (interleaved). The step
    is added to *graph*, or to a new one.

    Raises
    ------
    InputError
        Layers do not divide among stages and chunks, or with chunks, batches among stages.
    """
    parts = pp * chunks
    if layers % parts or (chunks > 1 and batches % pp):
        what = f"{layers} layers and {batches} batches on {pp} stages of {chunks}"
        raise InputError(Fault(what, "layout", f"give layers that {parts} divides, with chunks batches that {pp} does"))
    graph, ranks, messages = graph or Graph(), {"tp": tp, "cp": cp, "ep": ep}, messages or ["pp"] * pp
    turns = [
        _turns(stage, pp, batches) if chunks == 1 else _interleaved(stage, pp, batches, chunks) for stage in range(pp)
    ]
    done: dict[Turn, int] = {}
    while any(turns):
        for stage in range(pp):
            while turns[stage] and (after := _arrived(turns[stage][0], parts, done)) is not None:
                name, part, batch = turn = turns[stage].pop(0)
                ready = _received(graph, turn, messages, parts, after=after, activation_bytes=layer.activation_bytes)
                done[name, part, batch] = _layers(
                    graph, name, stage, layers=layers // parts, layer=layer, ranks=ranks, after=ready
                )
    if dp * cp > 1 and layer.gradient_bytes:
        for stage in range(pp):
            call = Call("all_reduce", layer.gradient_bytes * (layers // pp), DTYPE, "dp", dp * cp)
            graph.collective(call, stream=f"gradients {stage}", after=[done["backward", stage, batches - 1]], gpu=stage)
    return graph


def _received(
    graph: Graph, turn: Turn, messages: Sequence[str], parts: int, *, after: list[int], activation_bytes: int
) -> list[int]:  # fmt: skip
    """Return what a turn waits for, with the message that brings it if it is of another stage."""
    name, part, _ = turn
    pp = len(messages)
    other = part - 1 if name == "forward" else part + 1
    if not activation_bytes or pp == 1 or not 0 <= other < parts:
        return after
    call = Call("send_recv", activation_bytes, DTYPE, messages[min(part, other) % pp], 2)
    return [graph.collective(call, stream=f"{other % pp} to {part % pp}", after=after, gpu=part % pp)]


def _layers(
    graph: Graph, name: str, stage: int, *, layers: int, layer: Layer, ranks: dict[str, int], after: list[int]
) -> int:
    """Add the layers of a stage for a micro-batch, and return the last node."""
    time_s = layer.forward_s if name == "forward" else layer.backward_s
    stream, last = f"stage {stage}", -1
    split = any(count > 1 for count in ranks.values())

    def add(op: str, size_bytes: int, group: str) -> None:
        nonlocal last
        if size_bytes and ranks[group] > 1:
            call = Call(op, size_bytes, DTYPE, group, ranks[group])
            last = graph.collective(call, stream=stream, after=after if last < 0 else (), gpu=stage)

    def compute(share: int) -> None:
        nonlocal last
        last = graph.kernel(name, time_s / share, stream=stream, after=after if last < 0 else (), gpu=stage)

    for _ in range(layers):
        if not split:
            compute(1)
            continue
        add("all_gather", layer.context_bytes, "cp")
        compute(2)
        if name == "backward":
            add("reduce_scatter", layer.context_bytes, "cp")
        add("all_reduce", layer.activation_bytes, "tp")
        add("all_to_all", layer.exchange_bytes, "ep")
        compute(2)
        add("all_to_all", layer.exchange_bytes, "ep")
        add("all_reduce", layer.activation_bytes, "tp")
    return last


def _turns(stage: int, stages: int, batches: int) -> list[Turn]:
    """Return what a stage does, in its order (Narayanan et al. 2021, section 2.2)."""
    warm = min(stages - 1 - stage, batches)
    forward = [("forward", stage, batch) for batch in range(batches)]
    backward = [("backward", stage, batch) for batch in range(batches)]
    return _in_turn(forward, backward, warm)


def _interleaved(stage: int, stages: int, batches: int, chunks: int) -> list[Turn]:
    """Return what a stage does that has several parts of the model: each for *stages* batches, then the next one does
    (Narayanan et al. 2021, section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py).
    """
    warm = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, chunks * batches)
    forward, backward = [], []
    for turn in range(chunks * batches):
        round_, place = divmod(turn, stages * chunks)
        chunk, batch = place // stages, round_ * stages + place % stages
        forward.append(("forward", chunk * stages + stage, batch))
        backward.append(("backward", (chunks - 1 - chunk) * stages + stage, batch))
    return _in_turn(forward, backward, warm)


def _in_turn(forward: list[Turn], backward: list[Turn], warm: int) -> list[Turn]:
    """Return turns that go forward *warm* times, then forward and backward in turn, then backward."""
    count = len(forward) - warm
    both = [turn for pair in zip(forward[warm:], backward[:count], strict=True) for turn in pair]
    return [*forward[:warm], *both, *backward[count:]]


def _arrived(turn: Turn, parts: int, done: dict[Turn, int]) -> list[int] | None:
    """Return what a turn waits for; None if that is not there yet."""
    name, part, batch = turn
    needs: list[Turn] = []
    if name == "forward" and part > 0:
        needs = [("forward", part - 1, batch)]
    if name == "backward":
        needs = [("forward", part, batch)] if part == parts - 1 else [("backward", part + 1, batch)]
    return [done[need] for need in needs] if all(need in done for need in needs) else None


def moe_layer(*, dispatch_bytes: int, combine_bytes: int, experts_s: float, ranks: int, batches: int = 1) -> Graph:
    """Return a layer with experts for one or more micro-batches: dispatch, experts, combine, each behind the other.

    What the layer does for one micro-batch runs beside what it does for others; each has its own communicator.
    """
    graph = Graph()
    last: list[int | None] = [None] * batches
    for part in range(3):
        for batch in range(batches):
            ready = [number for number in [last[batch]] if number is not None]
            if part == 1:
                last[batch] = graph.kernel("experts", experts_s, after=ready)
                continue
            name, size_bytes = ("dispatch", dispatch_bytes) if part == 0 else ("combine", combine_bytes)
            call = Call("all_to_all", size_bytes, DTYPE, f"batch {batch}", ranks)
            last[batch] = graph.collective(call, name=name, after=ready)
    return graph
