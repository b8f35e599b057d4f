"""The constants of NCCL's cost model per version.

They are data: a file of ``constants`` for each version that changed any, with the public source that they come from. A
version between two of these has the constants of the older one. Latencies are microseconds, rates decimal GB/s.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from collsim.core.errors import Fault, SpecError
from collsim.library.environment import ALGORITHMS
from collsim.topology.files.reader import Document, read_document

if TYPE_CHECKING:
    from collsim.topology.files.reader import Path

__all__ = ["ARCHITECTURES", "NcclConstants", "Row", "nccl_constants", "read_constants"]

FOLDER = pathlib.Path(__file__).parent / "constants"
SCHEMA = "collsim.nccl/1"

ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell")
"""Rows of the tables, by compute capability: below 80, 80 to 89, 90, 100 and above (NCCL src/graph/tuning.cc)."""

Row = tuple[float, float, float]
Table = tuple[Row, Row, Row, Row]
Hops = dict[str, Row]


@dataclass(frozen=True, slots=True)
class NcclConstants:
    """Constants of one version (NCCL src/graph/tuning.cc unless said otherwise).

    Rows of protocols are (LL, LL128, Simple); rows of nodes are (1, 2, more than 2); tables have one row per
    architecture.

    Attributes
    ----------
    base_us : dict
        Fixed cost per algorithm and protocol.
    nvlink_us, pci_us, net_us : dict
        Cost of one hop per algorithm and protocol.
    ll_max, ring_ll128, tree_ll128, tree, nvls_tree : tables
        GB/s: the most that LL reaches in total, and the most that one channel reaches.
    nvls_efficiency : tuple
        Per architecture.
    nvls_ratio : float or None
        Algorithm over bus bandwidth of NVLS in versions that took a fixed one.
    pat_ratio : float
        0 where PAT does not exist.
    cell_bytes : int
        Grain in traffic when bytes are dealt to channels (src/enqueue.cc); 0 where they are dealt evenly.
    round_traffic : bool
        Whether the traffic per channel is rounded up to 16 bytes instead of being at least one cell.
    """

    base_us: Hops
    nvlink_us: Hops
    pci_us: Hops
    net_us: Hops
    ll_max: Table
    ring_ll128: Table
    tree_ll128: Table
    tree: Table
    nvls_tree: Table
    nvls_efficiency: tuple[float, float, float, float]
    nvls_ratio: float | None
    pat_ratio: float
    cell_bytes: int
    round_traffic: bool


HOPS = ("base_us", "nvlink_us", "pci_us", "net_us")
TABLES = ("ll_max", "ring_ll128", "tree_ll128", "tree", "nvls_tree")
KEYS = ("schema", "source", *(each.name for each in fields(NcclConstants)))


@cache
def nccl_constants(version: tuple[int, int]) -> NcclConstants:
    """Return the constants of a version of NCCL; of one older than all that are known, those of the oldest.

    >>> nccl_constants((2, 28)).net_us["nvls_tree"], nccl_constants((2, 30)).net_us["nvls_tree"]
    ((0.0, 0.0, 14.0), (0.0, 0.0, 20.9))
    """
    found = {tuple(map(int, path.stem.split("."))): path for path in FOLDER.glob("*.yaml")}
    path = found[max((since for since in found if since <= version), default=min(found))]
    return read_constants(path.read_bytes(), path.name)


def read_constants(content: bytes, file: str) -> NcclConstants:
    """Return the constants that *content* holds; *file* is for the messages.

    Raises
    ------
    SpecError
        With every key that is unknown or missing, and every value that is not of its kind.
    """
    reader = _Reader(read_document(content, file, SCHEMA))
    data = reader.document.data
    reader.check_keys(data, KEYS, ())
    if data.get("schema") != SCHEMA:
        reader.fault(f"the schema is {data.get('schema')!r}", ("schema",), f"write schema: {SCHEMA}")
    if not isinstance(data.get("source"), str):
        reader.fault("the source is no text", ("source",), "name the files of NCCL")
    if not isinstance(data.get("round_traffic"), bool):
        reader.fault("round_traffic is not true or false", ("round_traffic",), "write round_traffic: true")
    values: dict[str, Any] = {name: dict(reader.rows(name, ALGORITHMS)) for name in HOPS}
    values |= {name: tuple(row for _, row in reader.rows(name, ARCHITECTURES)) for name in TABLES}
    section = reader.section("nvls_efficiency", ARCHITECTURES)
    values["nvls_efficiency"] = tuple(
        reader.number(section.get(key), ("nvls_efficiency", key)) for key in ARCHITECTURES
    )
    fixed = data.get("nvls_ratio")
    values["nvls_ratio"] = None if fixed is None else reader.number(fixed, ("nvls_ratio",))
    values["pat_ratio"] = reader.number(data.get("pat_ratio"), ("pat_ratio",))
    values["cell_bytes"] = int(reader.number(data.get("cell_bytes"), ("cell_bytes",)))
    values["round_traffic"] = data.get("round_traffic")
    if reader.faults:
        raise SpecError(*reader.faults)
    return NcclConstants(**values)


@dataclass(slots=True)
class _Reader:
    """Takes the figures out of a document, and collects what is wrong with it."""

    document: Document
    faults: list[Fault] = field(default_factory=list)

    def fault(self, what: str, path: Path, hint: str) -> None:
        """Add a fault."""
        self.faults.append(Fault(what, self.document.where(path), hint))

    def check_keys(self, data: Mapping[str, Any], known: Sequence[str], path: Path) -> None:
        """Add a fault for every key that is not known, and for every one that is missing."""
        for key in data:
            if key not in known:
                self.fault(f'unknown key "{key}"', (*path, key), f"known: {', '.join(known)}")
        for key in known:
            if key not in data:
                self.fault(f'"{key}" is missing', path, "every version has all keys")

    def section(self, name: str, rows: Sequence[str]) -> Mapping[str, Any]:
        """Return a section with exactly these *rows*; empty, with a fault, if it is no mapping."""
        section = self.document.data.get(name)
        if not isinstance(section, dict):
            self.fault(f"{name} is not a mapping", (name,), f"write a line for each of {', '.join(rows)}")
            return {}
        self.check_keys(section, rows, (name,))
        return section

    def rows(self, name: str, rows: Sequence[str]) -> list[tuple[str, Row]]:
        """Return the rows of three numbers of a section, by their names."""
        section, found = self.section(name, rows), []
        for key in (key for key in rows if key in section):
            row = section[key]
            if not isinstance(row, list) or len(row) != 3:
                self.fault(f"{row!r:.40} is no row", (name, key), "write three numbers: [0.6, 1.9, 3.4]")
                continue
            one, two, three = (self.number(value, (name, key)) for value in row)
            found.append((key, (one, two, three)))
        return found

    def number(self, value: Any, path: Path) -> float:
        """Return a number of at least 0, which a document holds as text if it has a point; 0 with a fault if none."""
        with suppress(TypeError, ValueError):
            if 0 <= (number := float(value)) < math.inf and not isinstance(value, bool):
                return number
        self.fault(f"{value!r:.40} is no number of at least 0", path, "write a number")
        return 0.0
