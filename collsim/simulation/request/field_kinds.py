"""What there is to know of one field of a request, and the JSON schemas that several fields have.

The command line reads this whatever it is asked, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["BYTES", "COUNT", "MAYBE_COUNT", "MAYBE_TEXT", "PAIRS", "TEXT", "TEXTS", "TRUTH", "RequestField"]

CHECKS = "collsim.simulation.request"
TEXT: Mapping[str, Any] = {"type": "string"}
MAYBE_TEXT: Mapping[str, Any] = {"type": ["string", "null"]}
COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 1}
MAYBE_COUNT: Mapping[str, Any] = {"type": ["integer", "null"], "minimum": 1}
TRUTH: Mapping[str, Any] = {"type": "boolean"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
PAIRS: Mapping[str, Any] = {"type": "object", "additionalProperties": TEXT}
BYTES: Mapping[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request.

    Attributes
    ----------
    name : str
        Parameter of `simulate`, and of the command.
    default : object
        Of `simulate`; of a flag, its text.
    help : str
        Of the flag. What the default stands for is part of it where no default is shown.
    kind : str
        ``word``, ``words`` (a list of names), ``number``, ``flag`` (true or false), ``optional`` (true, false or a
        word: a flag that may have a value), ``share``, ``texts`` (a flag that
        may come several times), ``pairs`` (the same, of NAME=VALUE), ``bound`` (of a range of sizes), ``scale_out`` (a
        key of that section of a topology), or a kind that only one field is of.
    check : str
        ``module:function`` below `collsim.simulation.request` that makes the value of `Request` of that of `simulate`,
        or raises `InputError`. Empty: a flag, checked as all flags are, or a field whose value depends on others.
    attribute : str
        Of `Request`; empty: *name*.
    flags : tuple of str
        Empty: ``--name``.
    metavar : str
    complete : str
        What a shell completes: a key of `collsim.cli.options.NAMES`.
    example : str
        The hint for a text that is no number.
    key : str or None
        In the configuration; empty: *name*, None: not recorded.
    wanted : str
        What the value in a configuration has to be; empty where it does not become the text of a flag.
    schema : mapping
        JSON schema of the value in a configuration.
    """

    name: str
    default: Any = None
    help: str = ""
    kind: str = "word"
    check: str = ""
    attribute: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    complete: str = ""
    example: str = "such as 8"
    key: str | None = ""
    wanted: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config_key(self) -> str:
        """The key of the configuration; empty if the field is not recorded."""
        return "" if self.key is None else self.key or self.name

    @property
    def several(self) -> bool:
        """True if the flag may come several times."""
        return self.kind in ("texts", "pairs")

    @property
    def flag_default(self) -> Any:
        """Value that a command holds if the flag is not given."""
        if self.several:
            return ()
        return self.default if self.default is None or self.kind in ("flag", "optional") else str(self.default)

    def checked(self, value: Any) -> Any:
        """Return the value of `Request`; raises as *check* does."""
        module, _, function = self.check.partition(":")
        return getattr(import_module(f"{CHECKS}.{module}"), function)(value)
