"""Parts of a request that could not be answered, beside those that could."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from collsim.core.units import format_size

__all__ = ["Refusal", "refusal_lines"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A part of a request without a row: on how many ranks, at which size, *what* is wrong and what to do about it."""

    op: str
    ranks: int
    groups: int
    requested_bytes: int
    asked: str
    what: str
    hint: str
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as the JSON schema wants it."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "exit_code"}

    def to_record(self) -> dict[str, Any]:
        """Return the refusal by the columns of rows, and *refused*, why."""
        named = ("op", "ranks", "groups", "requested_bytes", "asked")
        return {**{name: getattr(self, name) for name in named}, "refused": self.what}


def refusal_lines(refused: Sequence[Refusal]) -> list[str]:
    """Return a sentence for each thing refused, with all its sizes, and why."""
    sizes: dict[tuple[str, int, int, str, str], list[int]] = {}
    for each in refused:
        sizes.setdefault((each.op, each.groups, each.ranks, each.asked, each.what), []).append(each.requested_bytes)
    return [
        f"{asked} is refused for {op} of {f'{groups} x ' * (groups > 1)}{ranks} ranks at "
        f"{', '.join(map(format_size, found))}: {what}"
        for (op, groups, ranks, asked, what), found in sizes.items()
    ]
