"""Steps of decoding: what one takes at a batch, simulated as a whole and kept by the size that engines pad it to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from collsim.moe import MoeRow, load_model, simulate_moe
from collsim.serving.spec import Job
from collsim.timeline.analysis import overlap_of
from collsim.timeline.calls import MOST_SPARE
from collsim.timeline.gpus import Gpu
from collsim.timeline.replay import replay
from collsim.timeline.trace import Call
from collsim.timeline.workload import Graph

__all__ = ["Step", "Steps", "padded"]

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Tokens of a rank that are simulated: others are padded to the next, as engines do that replay captured graphs (vLLM,
SGLang: capture sizes)."""
CONTEXT_GRAIN = 256
"""Mean context of a batch is rounded up to a multiple of this."""
DUTY_GRAIN = 0.05
"""How often other jobs communicate is rounded to a multiple of this."""


def padded(tokens: int) -> int:
    """Return the tokens that a step has for so many requests of a rank.

    >>> [padded(tokens) for tokens in (1, 3, 17, 5000)]
    [1, 4, 24, 5120]
    """
    if tokens > SIZES[-1]:
        return -(-tokens // SIZES[-1]) * SIZES[-1]
    return SIZES[bisect_left(SIZES, tokens)]


@dataclass(frozen=True, slots=True)
class Step:
    """Step of decoding: its time, and the shares of it with dispatch or combine under way, with nothing beside them,
    and for which the busiest link would carry their bytes at line rate.
    """

    time_s: float
    communication: float
    exposed: float
    link_load: float


class Steps:
    """Steps of a job on a machine, each simulated once.

    Parameters
    ----------
    machine : mapping
        ``overrides``, ``fail`` and ``degrade`` of `collsim.moe.simulate_moe`.
    """

    def __init__(self, job: Job, topology: str, gpu: Gpu, machine: Mapping[str, Any]) -> None:
        self.job, self.topology, self.gpu, self.machine = job, topology, gpu, machine
        self.layers = load_model(job.model).layers
        self.warnings: tuple[str, ...] = ()
        self._rows: dict[int, tuple[MoeRow, MoeRow]] = {}
        self._steps: dict[tuple[int, int, int], Step] = {}

    @property
    def count(self) -> int:
        """Steps that were simulated."""
        return len(self._steps)

    def of(self, requests: int, context: float, *, duty: float = 0.0) -> Step:
        """Return the step for so many requests of the fullest rank.

        Parameters
        ----------
        context : float
            Mean tokens of their contexts.
        duty : float
            How much longer dispatch and combine take because of others.
        """
        key = (padded(requests), -(-int(context) // CONTEXT_GRAIN) * CONTEXT_GRAIN, round(duty / DUTY_GRAIN))
        if key not in self._steps:
            self._steps[key] = self._simulated(key[0], float(key[1]), 1 + key[2] * DUTY_GRAIN)
        return self._steps[key]

    def _exchange(self, tokens: int) -> tuple[MoeRow, MoeRow]:
        """Return dispatch and combine of so many tokens of each rank, with one sample of the routing."""
        if tokens not in self._rows:
            found = simulate_moe(
                self.topology, self.job.model, ep=self.job.ranks, tokens=tokens, phase="decode", seeds=[0],
                redundant=self.job.redundant, **self.machine,
            )  # fmt: skip
            self.warnings = tuple(dict.fromkeys((*self.warnings, *found.warnings)))
            self._rows[tokens] = found.rows[0], found.rows[1]
        return self._rows[tokens]

    def _simulated(self, tokens: int, context: float, slower: float) -> Step:
        """Simulate all layers of a step: parts of the batch take turns, each communicates while others compute."""
        job, graph = self.job, Graph()
        parts = min(job.micro_batches, tokens)
        size = -(-tokens // parts)
        rows = self._exchange(size)
        calls = [Call("all_to_all", number, "", row.op, job.ranks) for number, row in enumerate(rows)]
        last: list[list[int]] = [[] for _ in range(parts)]
        for _ in range(self.layers):
            for kernels, call, name in ((job.attention, calls[0], "attention"), (job.experts, calls[1], "experts")):
                for part in range(parts):
                    done = graph.kernel(name, kernels.of(size, context), after=last[part])
                    last[part] = [graph.collective(call, name=call.group, after=[done])]
        graph.kernel("rest", job.rest.of(tokens, context), after=[node for each in last for node in each])
        spare = 1.0 if job.sms else MOST_SPARE  # kernels that hold no multiprocessor leave the bytes to adapters
        use = [min(row.load_s / row.time_s, 1.0) for row in rows]  # of the busiest link, which both have in common
        nodes = [
            replace(
                node, work_s=rows[node.call].time_s * slower, sms=job.sms, spare=spare, link="link", load=use[node.call]
            )
            if node.call >= 0
            else node
            for node in graph.nodes
        ]
        run = replay(nodes, self.gpu)
        overlap, time_s = overlap_of(nodes, run), run.span_s
        bytes_s = self.layers * parts * sum(row.lower_bound_s for row in rows)
        return Step(time_s, overlap.communication_s / time_s, overlap.exposed_s / time_s, bytes_s / time_s)
