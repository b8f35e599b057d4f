"""Sections of files as classes: the keys that they have, how each is read, and everything that is wrong with one.

A class lists its keys as attributes, in the order in which messages name them. A *reader* takes what stands in the file
and returns the value, or raises `Refused` with what is wrong and what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from collsim.core.errors import nearest

__all__ = ["Key", "Model", "Path", "Problem", "Refused", "describe", "flag", "items", "key", "one_word", "part", "text"]

Path = tuple[str | int, ...]
Reader = Callable[[Any], Any]


class Refused(Exception):  # noqa: N818 - an answer to the class that reads, never seen outside
    """What is wrong with a value, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class Problem(NamedTuple):
    """A fault at a place inside a section; *valid* are the keys that it could have been, if it is an unknown one."""

    kind: str
    """``unknown``, ``missing`` or ``refused``."""
    path: Path
    what: str = ""
    hint: str = ""
    valid: Sequence[str] = ()


class Key:
    """A key of a section: how it is read, the class behind it if it has keys itself, and what stands for none."""

    __slots__ = ("is_list", "make", "model", "read")

    def __init__(
        self, read: Reader | None = None, model: type[Model] | None = None, make: Callable[[], Any] | None = None,
        *, is_list: bool = False,
    ) -> None:  # fmt: skip
        self.read, self.model, self.make, self.is_list = read, model, make, is_list

    def value(self, given: Any, path: Path, problems: list[Problem]) -> Any:
        """Return the value of what stands at *path*; append what is wrong with it."""
        if self.model is not None and not self.is_list:
            return self.model.read(given, path, problems)
        try:
            listed = self.read(given) if self.read else given
        except Refused as error:
            problems.append(Problem("refused", path, error.what, error.hint))
            return None
        if self.model is None:
            return listed
        return [self.model.read(item, (*path, place), problems) for place, item in enumerate(listed)]


class Model:
    """Values of the keys of a section, as attributes; ``given`` are the keys that stand in the file."""

    keys: ClassVar[dict[str, Key]] = {}
    given: frozenset[str]

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        cls.keys = cls.keys | own

    def __init__(self, **given: Any) -> None:
        problems: list[Problem] = []
        self._fill(given, (), problems)
        if problems:
            raise ValueError(f"{type(self).__name__}: {problems[0].what or problems[0]}")

    @classmethod
    def read(cls, data: Any, path: Path, problems: list[Problem]) -> Self | None:
        """Return the section that *data* describes; None, and what is wrong appended to *problems*."""
        data = cls.prepared(data)
        if not isinstance(data, dict):
            what = f"{describe(data)} where a mapping is needed"
            problems.append(Problem("refused", path, what, 'write "key: value" lines below it'))
            return None
        before = len(problems)
        made = cls.__new__(cls)
        made._fill(data, path, problems)
        return made if len(problems) == before else None

    @classmethod
    def prepared(cls, data: Any) -> Any:
        """Return what is read in place of what stands in the file."""
        return data

    def finish(self) -> None:
        """Settle what depends on several keys, once all are valid."""

    def _fill(self, data: dict[Any, Any], path: Path, problems: list[Problem]) -> None:
        before, values = len(problems), self.__dict__
        for name, each in self.keys.items():
            if name in data:
                values[name] = each.value(data[name], (*path, name), problems)
            elif each.make is not None:
                values[name] = each.make()
            else:
                problems.append(Problem("missing", (*path, name)))
        if not self.keys.keys() >= data.keys():
            unknown = (name for name in data if name not in self.keys)
            problems += [Problem("unknown", (*path, str(name)), valid=list(self.keys)) for name in unknown]
        self.given = frozenset(data)
        if len(problems) == before:
            self.finish()


def key(read: Reader, *default: Any) -> Any:
    """Return a key of a plain value with its reader; without *default* it has to be given."""
    return Key(read, make=(lambda: default[0]) if default else None)


def part(model: type[Model], *default: Any) -> Any:
    """Return a key with keys of its own; without *default* it has to be given."""
    return Key(model=model, make=(lambda: default[0]) if default else None)


def items(model: type[Model], *, least: int = 0, most: int | None = None) -> Any:
    """Return a key of a list of *model*, of so many; not given, it is empty unless there has to be one."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Refused(f"{describe(value)} where a list is needed", 'write "- " items')
        if len(value) < least or (most is not None and len(value) > most):
            raise Refused(f"{len(value)} items", f"at least {least}" if len(value) < least else f"at most {most}")
        return value

    return Key(read, model, None if least else list, is_list=True)


def text(value: Any) -> str:
    """Read a text of any length.

    Raises
    ------
    Refused
        It is none.
    """
    if not isinstance(value, str):
        raise Refused(f"{describe(value)} is not a valid text here", "write a word or a text in quotes")
    return value


def text_of(most: int, *, numbers: bool = False) -> Reader:
    """Return the reader of a text of at most so many letters; *numbers* are taken as texts."""

    def read(value: Any) -> str:
        found = text(str(value) if numbers and type(value) is int else value)
        if len(found) > most:
            raise Refused(f"{describe(value)} is not a valid text here", "write a word or a text in quotes")
        return found

    return read


def one_word(*known: str) -> Reader:
    """Return the reader of a word that is one of *known*, exactly as written."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return value
        near = nearest(value, known) if isinstance(value, str) else None
        hint = f'did you mean "{near}"? known: ' if near else "known: "
        grids = "; rings and tori are links under explicit, or NetworkX graphs" if "full_mesh" in known else ""
        raise Refused(f"{describe(value)} is not a known value", hint + ", ".join(known) + grids)

    return read


_TRUE, _FALSE = ("true", "yes", "on", "y", "t", "1"), ("false", "no", "off", "n", "f", "0")


def flag(value: Any) -> bool:
    """Read true or false, as YAML or --set write them.

    Raises
    ------
    Refused
        It is neither.
    """
    word = str(value).lower() if isinstance(value, str | bool | int) else ""
    if word not in _TRUE + _FALSE:
        raise Refused(f"{describe(value)} is neither true nor false", "write true or false")
    return word in _TRUE


def describe(value: Any) -> str:
    """Return a short description of a value, never its whole content."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{shown[:40]}..."' if len(shown) > 40 else f'"{shown}"'
