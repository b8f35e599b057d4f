"""Our dataclasses are those of the standard library in all that this package uses, whatever makes them faster."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from collsim.core.records import dataclass as fast


def _class(kind: Any, **how: bool) -> Any:
    class Thing:
        """A class with all that fields can be."""

        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: str = dataclasses.field(default="x", compare=False)
        d: tuple[int, ...] = dataclasses.field(default=(), kw_only=True)
        e: int = dataclasses.field(default=3, init=False, repr=False)

    return kind(**how)(Thing)


HOW = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shown}
    for frozen in (False, True) for slots in (False, True) for eq in (False, True) for shown in (False, True)
]  # fmt: skip


@pytest.mark.parametrize("how", HOW)
def test_they_behave_as_those_of_the_standard_library(how):
    ours, theirs = _class(fast, **how), _class(dataclasses.dataclass, **how)
    for given, named in (((1,), {}), ((1, [2]), {"d": (4,)}), ((), {"a": 5, "c": "y"})):
        made, other = ours(*given, **named), theirs(*given, **named)
        assert dataclasses.asdict(made) == dataclasses.asdict(other)
        assert (repr(made) == repr(other)) == how["repr"]
        assert (made == ours(*given, **named)) == (other == theirs(*given, **named))
        assert dataclasses.asdict(copy.copy(made)) == dataclasses.asdict(made)
        assert dataclasses.replace(made, a=9).a == 9
    assert ours(1) != theirs(1)
    assert (ours(1, c="y") == ours(1)) == how["eq"]
    assert ours(1).b is not ours(1).b
    assert hasattr(ours(1), "__dict__") != how["slots"]


@pytest.mark.parametrize("given", [((), {}), ((1, [], "", 3), {}), ((1,), {"e": 3}), ((1,), {"z": 3})])
def test_wrong_arguments_are_refused(given):
    for kind in (fast, dataclasses.dataclass):
        with pytest.raises(TypeError):
            _class(kind)(*given[0], **given[1])


@fast(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 0


def test_frozen_ones_are_hashed_kept_and_cannot_be_changed():
    point = Point(1, 2)
    assert hash(point) == hash((1, 2)) == hash(dataclasses.make_dataclass("P", ["x", "y"], frozen=True)(1, 2))
    assert pickle.loads(pickle.dumps(point)) == point
    for change in (lambda: setattr(point, "x", 3), lambda: delattr(point, "x"), lambda: setattr(point, "z", 3)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert Point.__match_args__ == ("x", "y")


def test_what_can_be_changed_and_is_compared_has_no_hash():
    assert fast(_class(lambda: lambda given: given)).__hash__ is None


def test_help_shows_their_arguments_before_the_first_object():
    shown, known = inspect.signature(_class(fast)), inspect.signature(_class(dataclasses.dataclass))
    for ours, theirs in zip(shown.parameters.values(), known.parameters.values(), strict=True):
        assert (ours.name, ours.kind, ours.annotation) == (theirs.name, theirs.kind, theirs.annotation)
        assert (ours.default is inspect.Parameter.empty) == (theirs.default is inspect.Parameter.empty)
