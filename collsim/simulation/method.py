"""How a time was computed: which transfers stand for which, what solved them, and what that leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from collsim.simulation.request.tolerance import percent

__all__ = ["Method"]


@dataclass(frozen=True, slots=True)
class Method:
    """How a time was computed; its text is the `path` of a row.

    *simulated* is ``transfers`` one by one, ``classes`` of those that have to behave alike, ``wavefront`` of steps of
    rings, or ``none`` where nothing moves; *solver* is the engine that did it. Classes may be only *nearly_alike*, and
    chunks that differ by an element be taken as *equal_chunks*. *pace_share* is by which part of the time the pace of
    chunks still changed where they were cut, 0 if it hardly did; *doubt_share* by which part of it classes that are
    nearly alike may be off, 0 if nobody looked or it is little. *part_delay* says that the delay by what failed is that
    of some nodes, *groups_alike* that one group stands for others.
    """

    simulated: str = "none"
    solver: str = ""
    nearly_alike: bool = False
    equal_chunks: bool = False
    pace_share: float = 0.0
    doubt_share: float = 0.0
    part_delay: bool = False
    groups_alike: bool = False

    def __str__(self) -> str:
        """Return it in words.

        >>> str(Method("classes", "kernel", nearly_alike=True, pace_share=0.02, doubt_share=0.2))
        'classes, nearly alike, kernel, pace to 2%, to 20%'
        """
        told = (
            self.simulated,
            "nearly alike" * self.nearly_alike,
            self.solver,
            f"pace to {percent(self.pace_share)}" * (self.pace_share > 0),
            "equal chunks" * self.equal_chunks,
            f"to {percent(self.doubt_share)}" * (self.doubt_share > 0),
            "delay of a part" * self.part_delay,
            "groups alike" * self.groups_alike,
        )
        return ", ".join(filter(None, told))
