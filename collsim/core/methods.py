"""Methods of results as Python calls them: an argument that there is none of is told the nearest one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from collsim.core.errors import ArgumentError, CollsimError, Fault, did_you_mean

__all__ = ["telling_arguments"]

T = TypeVar("T")


def telling_arguments(cls: type[T]) -> type[T]:
    """Return a class whose public methods raise `ArgumentError` where they are called with wrong arguments.

    >>> @telling_arguments
    ... class Rows:
    ...     def to_frame(self, backend: str = "polars") -> None: ...
    >>> Rows().to_frame(backnd="pandas")
    Traceback (most recent call last):
    collsim.core.errors.ArgumentError: backnd: to_frame has no such argument
      hint: did you mean "backend"? it takes backend
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType) and not hasattr(member, "__wrapped__"):
            setattr(cls, name, _telling(member))
        elif isinstance(member, staticmethod) and not hasattr(member.__func__, "__wrapped__"):
            setattr(cls, name, staticmethod(_telling(member.__func__)))
    return cls


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except CollsimError:
            raise
        except Exception as error:
            if faults := _faults(method, args, named):
                raise ArgumentError(*faults) from error
            raise

    return called


def _faults(method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the arguments themselves; nothing if the error came from elsewhere."""
    import inspect

    from collsim.core.kinds import annotations_of, mistaken

    parameters = inspect.signature(method).parameters
    of_place = [each.name for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    known = [name for name in parameters if name != "self"]
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    name = method.__name__
    faults = [
        Fault(f"{name} has no such argument", each, did_you_mean(each, known) + takes)
        for each in named
        if each not in known
    ]
    if len(args) > len(of_place):
        faults.append(Fault(f"{len(args) - ('self' in parameters)} arguments by place", name, takes))
    given = {*of_place[: len(args)], *named}
    faults += [
        Fault("not given", each.name, takes)
        for each in parameters.values()
        if each.default is each.empty and each.name not in given
    ]
    values = {**dict(zip(of_place, args, strict=False)), **named}
    values.pop("self", None)
    return faults or mistaken(values, annotations_of(method))
