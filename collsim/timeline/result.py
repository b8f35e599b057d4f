"""Results of timelines: the time of a step, what it is made of, and when everything ran."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from collsim.core.methods import telling_arguments
from collsim.core.old_names import old_name

__all__ = ["CallRow", "Event", "Help", "PathPart", "StreamUse", "TimelineResult"]


@dataclass(frozen=True, slots=True)
class Event:
    """What ran on a stream: from *start_s* to *end_s*; a collective moves bytes from *moving_s* on, which fill the
    part *load* of links of the kind *link*.
    """

    name: str
    kind: str
    stream: str
    start_s: float
    moving_s: float
    end_s: float
    link: str = ""
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class CallRow:
    """Collectives that are alike: *count* a step.

    Attributes
    ----------
    recorded_s : float or None
        Mean time in the trace, with all waiting.
    alone_s : float
        Time with the GPU and the links for itself.
    time_s : float
        Mean time in the step.
    channels : int
        That it uses, each a multiprocessor.
    bottleneck_link : str
        Loaded most by it.
    """

    op: str
    size_bytes: int
    ranks: int
    count: float
    recorded_s: float | None
    alone_s: float
    time_s: float
    channels: int
    bottleneck_link: str


@dataclass(frozen=True, slots=True)
class StreamUse:
    """Stream: for how long of a step it is busy, and with which share of the step."""

    stream: str
    busy_s: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class PathPart:
    """Part of the critical path of a step: what it consists of, and for how long."""

    what: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Help:
    """Change, and by how much shorter it would make the step."""

    what: str
    saved_s: float


@telling_arguments
@dataclass(frozen=True, slots=True)
class TimelineResult:
    """Step.

    Attributes
    ----------
    file : str
        Trace or workload.
    topology, gpu : str
        Where it is taken to run.
    step_time_s, time_lo_s, time_hi_s : float
        Time of a step, and the interval of it.
    recorded_step_time_s : float or None
        Of a trace: as it was recorded.
    replayed_step_time_s : float or None
        Of a trace: as the model has it where it was recorded; beside the one before, the error of replay.
    steps : int
        That were simulated.
    communication_s, compute_s, exposed_s, overlap_s : float
        Of a step: time with any collective, with any other kernel, with a collective and nothing beside it, with both.
    speed : float
        Clock of the GPU, over that of the trace.
    path : tuple of PathPart
        Along what the last kernel waited for, back to the first; the sum is the step.
    helps : tuple of Help
        Most first.
    events : tuple of Event
        Of all steps.
    notes : tuple of str
        What was lost, assumed or left out.
    """

    file: str
    topology: str
    gpu: str
    step_time_s: float
    time_lo_s: float
    time_hi_s: float
    recorded_step_time_s: float | None
    replayed_step_time_s: float | None
    steps: int
    communication_s: float
    compute_s: float
    exposed_s: float
    overlap_s: float
    speed: float
    streams: tuple[StreamUse, ...]
    calls: tuple[CallRow, ...]
    path: tuple[PathPart, ...]
    helps: tuple[Help, ...]
    events: tuple[Event, ...]
    notes: tuple[str, ...]

    low_s = old_name("low_s", "time_lo_s")
    high_s = old_name("high_s", "time_hi_s")

    @property
    def limited_by(self) -> str:
        """What limits the step, in words: the longest part of its critical path."""
        return self.path[0].what if self.path else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the events; the interval also as ``low_s`` and ``high_s``, as schema 1 has it."""
        told = {name: value for name, value in asdict(self).items() if name != "events"}
        return told | {"low_s": self.time_lo_s, "high_s": self.time_hi_s, "limited_by": self.limited_by}
