"""Contents of a report: documents of commands, measured logs, and explanations of what the documents show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collsim.explanation.findings import Explanation

__all__ = ["Contents", "Document", "Measured"]


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a command: the name of its file, and what is in it."""

    name: str
    content: Mapping[str, Any]

    @property
    def schema(self) -> str:
        """Its schema, such as ``collsim.result/1``."""
        return str(self.content["schema"])


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured rows of one operation on some ranks: sizes in bytes and bus bandwidths in bytes/s."""

    name: str
    op: str
    ranks: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Contents:
    """What a report shows.

    Attributes
    ----------
    documents : tuple of Document
    measured : tuple of Measured
    explanations : tuple of (str, Explanation)
        With the name of the document whose run each explains.
    notes : tuple of str
        What could not be explained, and why.
    """

    documents: tuple[Document, ...]
    measured: tuple[Measured, ...] = ()
    explanations: tuple[tuple[str, Explanation], ...] = ()
    notes: tuple[str, ...] = ()
