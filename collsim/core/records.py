"""Dataclasses that are made fast: a start of the program makes more than a hundred, and most are never filled.

``dataclass`` here takes the arguments of `dataclasses.dataclass` that this package uses and makes what that makes:
fields, slots, equality, hash, order of arguments. The standard one compiles six functions for each class; here
comparison, hash, representation and the refusal to be changed are common to all classes, and only ``__init__`` is
compiled, when the first object of the class is made. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
import reprlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):  # noqa: A002 - named as in the standard library
        """Return the class with its fields as arguments and attributes, as `dataclasses.dataclass` does."""

        def made(given):
            own = vars(given)
            described = own.get("__doc__")
            given.__doc__ = described or given.__name__  # the standard one would work out a signature
            new = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(given)
            new.__doc__ = described
            new.__init__, new.__signature__ = _first_init, _Signature()
            if repr:
                new.__repr__ = _repr
            if eq and "__eq__" not in own:
                new.__eq__ = _eq
                new.__hash__ = own.get("__hash__") or (_hash if frozen else None)
            if frozen:
                new.__setattr__, new.__delattr__ = _refuse_set, _refuse_delete
            if frozen and slots:
                new.__getstate__, new.__setstate__ = _state, _set_state
            return new

        return made if cls is None else made(cls)


def _first_init(self: Any, *given: Any, **named: Any) -> None:
    """Compile the ``__init__`` of the class of *self*, put it in place of this one, and call it."""
    _compiled_init(type(self))(self, *given, **named)


def _compiled_init(cls: Any) -> Any:
    """Return the ``__init__`` of *cls*, compiled and put in its place if no object has needed it so far."""
    for owner in cls.__mro__:
        if owner.__dict__.get("__init__") is _first_init:
            type.__setattr__(owner, "__init__", _init_of(owner))
            break
    return cls.__init__


class _Signature:
    """What `inspect.signature` and ``help`` show of a class: the arguments of its ``__init__``, compiled for that."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is not None:
            raise AttributeError("__signature__")
        import inspect

        of_init = inspect.signature(_compiled_init(owner))
        return of_init.replace(parameters=list(of_init.parameters.values())[1:])


def _init_of(cls: Any) -> Any:
    """Return an ``__init__`` that takes the fields of *cls* in their order."""
    frozen = cls.__setattr__ is _refuse_set
    space: dict[str, Any] = {"_set": object.__setattr__, "_none": _NONE}
    taken: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name, made = field.name, field.default_factory is not dataclasses.MISSING
        value = name
        if made:
            space[f"_make_{name}"] = field.default_factory
            value = f"(_make_{name}() if {name} is _none else {name})" if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            space[f"_of_{name}"] = field.default
        default = "=_none" if made else f"=_of_{name}" if f"_of_{name}" in space else ""
        if field.init:
            (named if field.kw_only else taken).append(name + default)
        elif not made:
            if default and "__slots__" in vars(cls):
                value = f"_of_{name}"
            else:
                continue
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join(["self", *taken, *(["*", *named] if named else [])])
    exec(f"def __init__({arguments}):\n " + "\n ".join(lines or ["pass"]), space)
    init = space["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {each.name: each.type for each in dataclasses.fields(cls) if each.init} | {"return": None}
    return init


_NONE = object()


def _values(cls: Any, which: str) -> Any:
    """Return a function that gives the values of the fields of an object that are compared, or hashed, as a tuple."""
    kept = f"_{which}_values"
    if kept not in cls.__dict__:
        fields = [
            each for each in dataclasses.fields(cls) if each.compare and (which == "eq" or each.hash is not False)
        ]
        names = [each.name for each in fields]
        get = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)
        setattr(cls, kept, staticmethod(get))
    return getattr(cls, kept)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values(self.__class__, "eq")
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values(self.__class__, "hash")(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_set(self: Any, name: str, value: Any) -> None:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
