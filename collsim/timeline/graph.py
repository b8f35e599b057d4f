"""Graphs of steps: what runs on which stream, how long alone, and after what."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Node"]


@dataclass(slots=True)
class Node:
    """Work of a step.

    Attributes
    ----------
    kind : str
        ``collective``, ``matmul`` or ``memory``, as of `collsim.timeline.trace`; ``host`` for a wait of the host.
    stream : int
        Nodes of a stream run one after the other; -1 for none.
    work_s : float
        Time alone, with all of the GPU.
    after : tuple of int
        Nodes that have to end before, the one before on its stream included.
    earliest_s : float
        When the host has launched it, counted from *host*.
    host : int
        Node of the host after which it is launched; -1: the host starts at 0.
    gap_s : float
        Time between the moment from which it could run and its start.
    late_s : float
        Of a collective: how much later than this rank its slowest peer is.
    sms : int
        Multiprocessors that it holds, of a collective.
    full : bool
        Whether no kernel starts beside it.
    spare : float
        Of a collective: what its channels could carry, over what they do alone; 1 if only they bind.
    adds : bool
        Of a collective: whether it adds what ranks hold.
    gpu : int
        On which of several GPUs it runs; they share nothing but what waits for what.
    link : str
        Of a collective: the kind of link that it loads most; empty if that is not known.
    load : float
        The part of such links that it takes alone.
    call : int
        Number of its collective among those that differ; -1 for none.
    """

    name: str
    kind: str
    stream: int
    work_s: float
    after: tuple[int, ...] = ()
    earliest_s: float = 0.0
    host: int = -1
    gap_s: float = 0.0
    late_s: float = 0.0
    sms: int = 0
    full: bool = False
    spare: float = 1.0
    adds: bool = False
    gpu: int = 0
    link: str = ""
    load: float = 0.0
    call: int = -1
