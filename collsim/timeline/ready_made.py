"""Ready-made steps: data parallel, sharded, tensor parallel, pipelined, and layers with experts."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.timeline.trace import Call
from collsim.timeline.workload import COMPUTE_STREAM, Graph

__all__ = ["Layer", "ddp", "fsdp", "moe_layer", "pipeline", "tensor_parallel", "training"]

DTYPE = "bfloat16"


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


def pipeline(*, stages: int, batches: int, forward_s: float, backward_s: float, activation_bytes: int) -> Graph:
    """Return a step of a pipeline by 1F1B: stages warm up, then go forward and backward in turn, then drain."""
    layer = Layer(forward_s, backward_s, activation_bytes)
    return training(layers=stages, layer=layer, batches=batches, tp=1, pp=stages, dp=1)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of one rank, for one micro-batch: times of forward and backward, activations, and its gradients."""

    forward_s: float
    backward_s: float
    activation_bytes: int
    gradient_bytes: int = 0


def training(*, layers: int, layer: Layer, batches: int, tp: int, pp: int, dp: int) -> Graph:
    """Return a step of a model with tensor, pipeline and data parallelism (Megatron-LM): 1F1B over *pp* stages, two
    all-reduces a layer each way among *tp* ranks, and one all-reduce of the gradients among *dp* ranks at the end.

    One rank stands for all of its stage: groups that do the same at the same time are told to the model by
    `Machine.groups`, under the names ``tp``, ``pp`` and ``dp``. Each stage is a GPU of its own.
    """
    graph = Graph()
    turns = [_turns(stage, pp, batches) for stage in range(pp)]
    done: dict[tuple[str, int, int], int] = {}
    while any(turns):
        for stage in range(pp):
            while turns[stage] and (after := _arrived(turns[stage][0], stage, pp, done)) is not None:
                name, batch = turns[stage].pop(0)
                ready = _received(graph, name, stage, pp=pp, after=after, activation_bytes=layer.activation_bytes)
                done[name, stage, batch] = _layers(
                    graph, name, stage, layers=layers // pp, layer=layer, tp=tp, after=ready
                )
    if dp > 1 and layer.gradient_bytes:
        for stage in range(pp):
            call = Call("all_reduce", layer.gradient_bytes * (layers // pp), DTYPE, "dp", dp)
            graph.collective(call, stream=f"gradients {stage}", after=[done["backward", stage, batches - 1]], gpu=stage)
    return graph


def _received(graph: Graph, name: str, stage: int, *, pp: int, after: list[int], activation_bytes: int) -> list[int]:
    """Return what a turn waits for, with the message that brings it if it is of another stage."""
    other = stage - 1 if name == "forward" else stage + 1
    if not activation_bytes or not 0 <= other < pp:
        return after
    call = Call("send_recv", activation_bytes, DTYPE, "pp", 2)
    return [graph.collective(call, stream=f"{other} to {stage}", after=after, gpu=stage)]


def _layers(graph: Graph, name: str, stage: int, *, layers: int, layer: Layer, tp: int, after: list[int]) -> int:
    """Add the layers of a stage for a micro-batch, and return the last node."""
    time_s = layer.forward_s if name == "forward" else layer.backward_s
    stream, last = f"stage {stage}", -1
    halves = 2 if tp > 1 else 1
    call = Call("all_reduce", layer.activation_bytes, DTYPE, "tp", tp)
    for number in range(layers * halves):
        last = graph.kernel(name, time_s / halves, stream=stream, after=after if number == 0 else (), gpu=stage)
        if tp > 1 and layer.activation_bytes:
            last = graph.collective(call, stream=stream, gpu=stage)
    return last


def _turns(stage: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """Return what a stage does, in its order (Narayanan et al. 2021, section 2.2)."""
    warm = min(stages - 1 - stage, batches)
    turns = [("forward", batch) for batch in range(warm)]
    for batch in range(batches - warm):
        turns += [("forward", warm + batch), ("backward", batch)]
    return turns + [("backward", batch) for batch in range(batches - warm, batches)]


def _arrived(turn: tuple[str, int], stage: int, stages: int, done: dict[tuple[str, int, int], int]) -> list[int] | None:
    """Return what a turn waits for; None if that is not there yet."""
    name, batch = turn
    needs = []
    if name == "forward" and stage > 0:
        needs = [("forward", stage - 1, batch)]
    if name == "backward":
        needs = [("forward", stage, batch)] if stage == stages - 1 else [("backward", stage + 1, batch)]
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
