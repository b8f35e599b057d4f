"""Ready-made steps: data parallel, sharded, tensor parallel, pipelined, and layers with experts."""

from __future__ import annotations

from collsim.timeline.trace import Call
from collsim.timeline.workload import COMPUTE_STREAM, Graph

__all__ = ["ddp", "fsdp", "moe_layer", "pipeline", "tensor_parallel"]

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
    """Return a step of a pipeline by 1F1B: each stage warms up, then turns forward and backward in turn, then drains.

    Streams are stages, each of a GPU of its own.
    """
    graph = Graph()
    turns = [_turns(stage, stages, batches) for stage in range(stages)]
    done: dict[tuple[str, int, int], int] = {}
    call = Call("send_recv", activation_bytes, DTYPE, "pp", 2)
    while any(turns):
        moved = False
        for stage in range(stages):
            while turns[stage] and (after := _arrived(turns[stage][0], stage, stages, done)) is not None:
                name, batch = turns[stage].pop(0)
                ready = list(after)
                if ready and activation_bytes and (stage > 0 or name == "backward"):
                    other = stage - 1 if name == "forward" else stage + 1
                    if 0 <= other < stages:
                        ready.append(graph.collective(call, stream=f"{other} to {stage}", after=after))
                time_s = forward_s if name == "forward" else backward_s
                done[name, stage, batch] = graph.kernel(name, time_s, stream=f"stage {stage}", after=ready)
                moved = True
        assert moved, "1F1B never waits for itself"
    return graph


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
