"""Analysis of a replay: exposed communication, use of streams, the critical path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collsim.timeline.graph import Node
from collsim.timeline.replay import HOST, Replay
from collsim.timeline.trace import COLLECTIVE

__all__ = ["Overlap", "critical_path", "overlap_of", "short"]

Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Seconds with any collective, with any other kernel, and with a collective alone."""

    communication_s: float
    compute_s: float
    exposed_s: float

    @property
    def overlap_s(self) -> float:
        """Seconds with both."""
        return self.communication_s - self.exposed_s


def overlap_of(nodes: Sequence[Node], run: Replay) -> Overlap:
    """Return what runs beside what: of a GPU, the mean of all if there are several."""
    gpus = sorted({node.gpu for node in nodes if node.kind != HOST}) or [0]
    found = [_overlap(nodes, run, gpu) for gpu in gpus]
    communication_s, compute_s, exposed_s = (sum(each) / len(gpus) for each in zip(*found, strict=True))
    return Overlap(communication_s, compute_s, exposed_s)


def _overlap(nodes: Sequence[Node], run: Replay, gpu: int) -> tuple[float, float, float]:
    """Return seconds of a GPU with collectives, with other kernels, and with collectives alone."""

    def spans(wanted: bool) -> Spans:
        return _union(
            (run.start_s[i], run.end_s[i])
            for i, node in enumerate(nodes)
            if node.kind != HOST and node.gpu == gpu and (node.kind == COLLECTIVE) == wanted
        )

    communication, compute = spans(True), spans(False)
    communication_s, compute_s = _length(communication), _length(compute)
    both_s = communication_s + compute_s - _length(_union([*communication, *compute]))
    return communication_s, compute_s, max(communication_s - both_s, 0.0)


def _union(spans: Iterable[tuple[float, float]]) -> Spans:
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _length(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)


def critical_path(nodes: Sequence[Node], run: Replay) -> dict[str, float]:
    """Return seconds by what the last kernel waited for, back to the first start; they sum to the span."""
    spent: dict[str, float] = {}
    shown = [i for i, node in enumerate(nodes) if node.kind != HOST]
    if not shown:
        return spent
    begin_s = min(run.start_s[i] for i in shown)
    i = max(shown, key=lambda j: run.end_s[j])
    until_s = run.end_s[i]

    def add(what: str, from_s: float) -> None:
        nonlocal until_s
        from_s = max(from_s, begin_s)
        if until_s > from_s:
            spent[what] = spent.get(what, 0.0) + until_s - from_s
            until_s = from_s

    while until_s > begin_s:
        node = nodes[i]
        add(label_of(node), run.moving_s[i])
        add("waiting for peers", run.start_s[i])
        cause = run.cause[i]
        if cause < 0:
            add("host launches", begin_s)
            break
        add("host launches" if run.by_host[i] else "gaps between kernels", run.end_s[cause])
        i = cause
    return spent


def label_of(node: Node) -> str:
    """Return what a node is called on the critical path."""
    if node.kind == HOST:
        return "waiting of the host"
    if node.kind == COLLECTIVE:
        return f"collective {short(node.name)}{f' over {node.link}' if node.link else ''}"
    return f"kernel {short(node.name)}"


def short(name: str) -> str:
    """Return the name of a kernel without its arguments and templates.

    >>> short("void at::native::vectorized_elementwise_kernel<8, X>(int)"), short("ncclDevKernel_AllGather_RING_LL(x)")
    ('vectorized_elementwise_kernel', 'AllGather')
    """
    plain = name.partition("<")[0].partition("(")[0].strip() or name
    if "(anonymous namespace)" in name:
        plain = name.partition("(anonymous namespace)::")[2].partition("<")[0].partition("(")[0]
    plain = plain.rpartition("::")[2].removeprefix("void ").removeprefix("ncclDevKernel_")
    for word in ("_RING", "_TREE", "_Sum", "_NVLS", "_COLLNET"):
        plain = plain.partition(word)[0]
    return plain[:48]
