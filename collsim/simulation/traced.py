"""One run with every transfer that it sends, and the rates of all links over time."""

from __future__ import annotations

from dataclasses import replace

from collsim.core.errors import Fault, InputError, UnsupportedError
from collsim.simulation.request.fields import Request
from collsim.simulation.request.one_run import refuse_several
from collsim.simulation.request.prepare import Prepared
from collsim.simulation.result import Result, Row
from collsim.simulation.simulate import contested, predict

__all__ = ["traced"]

SAME = 1e-9
"""Times so near to each other, as a share, are those of one run."""


def _refuse_several(asked: Prepared) -> None:
    """Refuse a question of several runs; draws of a hash are one run each."""
    refuse_several(asked, "a trace is of one run")
    if seeds := asked.question.hash_seeds:
        raise InputError(
            Fault(f"{len(seeds)} seeds: a trace is of one run", "hash_seeds", "for one draw, give scale_out.hash_seed")
        )


def traced(asked: Prepared) -> tuple[Result, Row]:
    """Return the answer to a checked question of one run, and its row again with every transfer of all groups.

    The second row is of a run in which no transfer stands for others, exact within any tolerance: `LinkBytes.flows` of
    its loads. What is too long for a trace is refused before it is simulated, where no contest decides what runs.

    Raises
    ------
    InputError, ModelError
        It is of several runs, every way in which it is; or as of `predict`.
    UnsupportedError
        The run has too many transfers; nothing moves; or what a contest chose has no name to ask for it again.
    """
    _refuse_several(asked)
    question, constants = asked.question, asked.constants
    found = None
    if not contested(question) or (question.algo == ("auto",) and constants.library):
        found = _row(asked, question)
    result = predict(*asked)
    if found is not None and found.loads is not None:
        return result, found
    row = result.rows[0]
    found = _row(asked, replace(question, algo=(row.algo,), proto=row.proto))
    if abs(found.time_s - row.time_s) > max(SAME, row.tolerance) * row.time_s:
        what = f"{row.label}, the fastest here, has no name of its own, so that it cannot be traced"
        raise UnsupportedError(Fault(what, "perfetto", "name an algorithm with --algo"))
    return result, found


def _row(asked: Prepared, question: Request) -> Row:
    """Return the traced row of a question; without loads where a contest decides what runs after all."""
    question = replace(question, reduce=False, tolerance=0.0, bracket=False)
    return predict(asked.topology, asked.constants, question, asked.groups, doubts=False, traced=True).rows[0]
