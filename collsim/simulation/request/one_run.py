"""Questions that have to be of one run: what else they ask for is refused, every way at once."""

from __future__ import annotations

from collsim.core.errors import Fault, InputError
from collsim.simulation.request.prepare import Prepared

__all__ = ["refuse_several"]


def refuse_several(asked: Prepared, why: str) -> None:
    """Refuse a question with more than one answer, every way in which it has more at once; *why* one is wanted.

    Raises
    ------
    InputError
        It asks for several operations, sizes, algorithms or numbers of ranks.
    """
    question, groups = asked.question, asked.groups
    sizes = {size for op in question.ops for size in question.sizes_of(op)}
    faults = []
    for name, values, example in (
        ("op", [op.name for op in question.ops], "all_reduce"),
        ("size", sorted(sizes), "64M"),
        ("algo", list(question.algo), "auto"),
        ("ranks", [len(group) for group in groups], str(len(groups[0]))),
    ):
        if len(values) > 1:
            told = ", ".join(map(str, values[:4])) + ", ..." * (len(values) > 4)
            faults.append(Fault(f"{len(values)} values ({told}): {why}", name, f"such as {example}"))
    if question.algo == ("all",):
        faults.append(Fault('"all" is one run for each algorithm', "algo", "take auto, best or a name"))
    if faults:
        raise InputError(*faults)
