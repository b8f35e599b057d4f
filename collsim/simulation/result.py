"""What a prediction says: times, bandwidths, the bound, what limits, and how it was obtained."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collsim.core.operations import operation

__all__ = ["GroupTime", "LinkLoad", "Result", "Row", "frame_of", "ranked"]

SCHEMA = "collsim.result/1"
FIELDS = (
    "op",
    "algo",
    "proto",
    "channels",
    "ranks",
    "groups",
    "dtype",
    "redop",
    "root",
    "count",
    "requested_bytes",
    "size_bytes",
    "time_s",
    "time_lo_s",
    "time_hi_s",
    "time_min_s",
    "time_p95_s",
    "time_max_s",
    "hash_seed",
    "healthy_time_s",
    "healthy_algo",
    "slowdown",
    "algbw_Bps",
    "busbw_Bps",
    "lower_bound_s",
    "bound",
    "efficiency",
    "bottleneck",
    "bottleneck_links",
    "limit",
    "critical_s",
    "path",
    "classes",
    "tolerance",
    "perturbed",
    "raised_s",
    "bracket_lo_s",
    "bracket_hi_s",
    "total_algbw_Bps",
    "total_busbw_Bps",
    "group_times",
    "draw_times_s",
)
"""What a row says, in the order of every machine-readable format."""
CRITICAL = ("launch", "latency", "channel rate", "links")
"""What the slowest chain of transfers spends its time on."""
SATURATED = 0.5
"""A link that is busy for a smaller share of the time is not what limits a collective."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """How busy a link was: bytes carried over what it could have carried in the time of the collective."""

    link: str
    utilisation: float


@dataclass(frozen=True, slots=True)
class GroupTime:
    """How one of several groups fared while all ran at once: its GPUs in rank order, what ran, and how fast."""

    gpus: tuple[int, ...]
    algo: str
    proto: str | None
    time_s: float
    algbw_Bps: float
    busbw_Bps: float


@dataclass(frozen=True, slots=True)
class Row:
    """One collective at one size.

    Where several groups run it at once, *groups* counts them, *ranks* are those of one group, and times and bandwidths
    are those of the slowest; *group_times* holds them all, and is empty for one group.

    The columns of nccl-tests (size, count, type, redop, root, time, algbw, busbw) have their meaning there; `root` is
    -1 if the operation has none. *bottleneck* names the busiest links, *bottleneck_links* counts those within a
    thousandth of the busiest; *critical_s* splits the time of the slowest chain of transfers into launch, latency, flow
    at the channels' own rate and flow held back by links. A measured time lies between the interval ends with 90 %
    confidence; they are None where nobody measured how far predictions are off. Where something failed,
    *healthy_time_s* and *healthy_algo* (with its protocol) are of the machine in order, else None.

    Where the run was repeated over seeds of the network's hash, *draw_times_s* holds the times in the order of the
    seeds, and everything else is of the median draw, that of *hash_seed*; else it is empty, and the seed None.

    Irregular traffic may be solved within a *tolerance*, 0 if the row is exact: *perturbed* is the part of all bytes
    moved too much or too little, *raised_s* by how much the time was raised to what the busiest link needs. If asked
    for, *bracket_lo_s* is what the load of links asks for, and *bracket_hi_s* a time from above.
    """

    op: str
    algo: str
    proto: str | None
    channels: int
    ranks: int
    groups: int
    dtype: str
    redop: str
    root: int
    count: int
    requested_bytes: int
    size_bytes: int
    time_s: float
    lower_bound_s: float
    bound: str
    bottleneck: tuple[LinkLoad, ...]
    bottleneck_links: int
    critical_s: Mapping[str, float]
    path: str
    classes: int
    tolerance: float = 0.0
    perturbed: float = 0.0
    raised_s: float = 0.0
    bracket_lo_s: float | None = None
    bracket_hi_s: float | None = None
    time_lo_s: float | None = None
    time_hi_s: float | None = None
    healthy_time_s: float | None = None
    healthy_algo: str | None = None
    group_times: tuple[GroupTime, ...] = ()
    hash_seed: int | None = None
    draw_times_s: tuple[float, ...] = ()

    @property
    def time_min_s(self) -> float | None:
        """Least time of all draws of the hash; None without draws."""
        return min(self.draw_times_s, default=None)

    @property
    def time_p95_s(self) -> float | None:
        """Time that 95 % of the draws do not exceed; None without draws."""
        return ranked(self.draw_times_s, 0.95) if self.draw_times_s else None

    @property
    def time_max_s(self) -> float | None:
        """Most time of all draws; None without draws."""
        return max(self.draw_times_s, default=None)

    @property
    def slowdown(self) -> float | None:
        """How many times slower than the machine in which nothing failed; None if nothing did."""
        return self.time_s / self.healthy_time_s if self.healthy_time_s else None

    @property
    def label(self) -> str:
        """Algorithm and protocol."""
        return self.algo if self.proto is None else f"{self.algo}/{self.proto}"

    @property
    def algbw_Bps(self) -> float:
        """Size over time."""
        return self.size_bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def busbw_Bps(self) -> float:
        """Algorithm bandwidth times the factor of the operation."""
        return self.algbw_Bps * operation(self.op).busbw_factor(self.ranks)

    @property
    def total_algbw_Bps(self) -> float:
        """Algorithm bandwidths of all groups together."""
        return sum(group.algbw_Bps for group in self.group_times) if self.group_times else self.algbw_Bps

    @property
    def total_busbw_Bps(self) -> float:
        """Bus bandwidths of all groups together."""
        return sum(group.busbw_Bps for group in self.group_times) if self.group_times else self.busbw_Bps

    @property
    def efficiency(self) -> float:
        """Lower bound over time: 1 is as fast as the wires allow."""
        return self.lower_bound_s / self.time_s if self.time_s > 0 else 0.0

    @property
    def limit(self) -> str:
        """What to change first: the busiest link if it is mostly busy, else what the slowest chain waits for."""
        if self.bottleneck and self.bottleneck[0].utilisation >= SATURATED:
            others = f" +{self.bottleneck_links - 1}" if self.bottleneck_links > 1 else ""
            return f"{self.bottleneck[0].link}{others} {self.bottleneck[0].utilisation:.0%}"
        if not self.critical_s or self.time_s <= 0:
            return "none"
        cause = max(self.critical_s, key=lambda kind: self.critical_s[kind])
        return f"{cause} {self.critical_s[cause] / self.time_s:.0%}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the JSON schema wants it, in the order of its fields."""
        row = {name: getattr(self, name) for name in FIELDS}
        row["bottleneck"] = [asdict(load) for load in self.bottleneck]
        row["critical_s"] = dict(self.critical_s)
        row["group_times"] = [{**asdict(group), "gpus": list(group.gpus)} for group in self.group_times]
        row["draw_times_s"] = list(self.draw_times_s)
        return row

    def to_record(self) -> dict[str, Any]:
        """Return the row as single values: the busiest link stands for the list, each critical time on its own.

        The times of single groups and draws are left out.

        >>> import collsim
        >>> record = collsim.simulate("mi300x_ubb8", "all_to_all", "1G", profile="ideal").rows[0].to_record()
        >>> record["bottleneck_link"], record["critical_launch_s"]
        ('gpu0->gpu1', 0.0)
        """
        record = self.to_dict()
        busiest = (record.pop("bottleneck") or [{"link": None, "utilisation": None}])[0]
        critical_s = record.pop("critical_s")
        del record["group_times"], record["draw_times_s"]
        record.update({f"bottleneck_{name}": value for name, value in busiest.items()})
        record.update({f"critical_{kind.replace(' ', '_')}_s": critical_s.get(kind, 0.0) for kind in CRITICAL})
        return record


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of one call, with the configuration that reproduces them.

    Examples
    --------
    >>> import collsim
    >>> result = collsim.simulate("mi355x_ubb8", "all_to_all", "64M", profile="ideal")
    >>> f"{result.busbw_Bps / 1e9:.1f} GB/s"
    '537.6 GB/s'
    """

    version: str
    config: Mapping[str, Any]
    topology: Mapping[str, Any]
    profile: Mapping[str, Any]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    skipped: tuple[Row, ...] = field(default=(), repr=False)
    """Requests that nccl-tests rounds down to zero bytes; only its own format shows them."""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _only(self) -> Row:
        if len(self.rows) != 1:
            raise ValueError(f"the result has {len(self.rows)} rows; look at result.rows")
        return self.rows[0]

    @property
    def time_s(self) -> float:
        """Time of the only row."""
        return self._only().time_s

    @property
    def algbw_Bps(self) -> float:
        """Algorithm bandwidth of the only row."""
        return self._only().algbw_Bps

    @property
    def busbw_Bps(self) -> float:
        """Bus bandwidth of the only row."""
        return self._only().busbw_Bps

    def to_dict(self) -> dict[str, Any]:
        """Return the document of schema ``collsim.result/1``: SI units, unit in the key."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "config": dict(self.config),
            "topology": dict(self.topology),
            "profile": dict(self.profile),
            "results": [row.to_dict() for row in self.rows],
            "warnings": list(self.warnings),
        }

    def to_frame(self, backend: str = "polars") -> Any:
        """Return the rows as a data frame of ``polars`` or ``pandas``, with the columns of `Row.to_record`.

        Raises
        ------
        ImportError
            The library is not installed; ``pip install 'collsim[frames]'`` brings polars.
        """
        return frame_of([row.to_record() for row in self.rows], backend)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        heads = (
            "op",
            "size (B)",
            "ranks",
            "algo",
            "time (us)",
            "algbw (GB/s)",
            "busbw (GB/s)",
            "bound (us)",
            "eff (%)",
            "bottleneck",
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self.rows
        )
        head = "".join(f"<th>{name}</th>" for name in heads)
        calibrated = "yes" if self.profile.get("calibrated") else "no"
        caption = f"{self.topology.get('name')}, profile {self.profile.get('name')}, calibrated: {calibrated}"
        caption = f"<caption>{html.escape(caption)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.op,
        str(row.size_bytes),
        str(row.ranks),
        row.algo,
        f"{'~' * bool(row.tolerance)}{row.time_s * 1e6:.2f}",
        f"{row.algbw_Bps / 1e9:.2f}",
        f"{row.busbw_Bps / 1e9:.2f}",
        f"{row.lower_bound_s * 1e6:.2f}",
        f"{row.efficiency * 100:.1f}",
        row.limit,
    )


def ranked(times_s: Sequence[float], share: float) -> float:
    """Return the least of *times_s* that at least the given share of them does not exceed.

    >>> ranked([4.0, 1.0, 3.0, 2.0], 0.5), ranked(range(1, 101), 0.95)
    (2.0, 95)
    """
    return sorted(times_s)[max(math.ceil(share * len(times_s)) - 1, 0)]


def frame_of(records: Sequence[Mapping[str, Any]], backend: str) -> Any:
    """Return *records* as a data frame of ``polars`` or ``pandas``; raises as `Result.to_frame` does."""
    if backend not in ("polars", "pandas"):
        raise ValueError(f"backend is {backend!r}; choose 'polars' or 'pandas'")
    try:
        library = importlib.import_module(backend)
    except ImportError:
        hint = "'collsim[frames]', or pass 'pandas' if you have it" if backend == "polars" else "pandas"
        raise ImportError(f"{backend} is not installed: pip install {hint}") from None
    options = {"infer_schema_length": None} if backend == "polars" else {}
    return library.DataFrame(records, **options)
