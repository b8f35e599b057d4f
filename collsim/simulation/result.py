"""Results: rows of times, bandwidths, the bound, what limits, and how they were obtained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from collsim.core.operations import DTYPES, OPERATIONS, REDUCTIONS, operation
from collsim.core.tabular import Field, Tabular, plain
from collsim.core.units import format_size

__all__ = ["FIELDS", "GroupTime", "Limit", "LinkLoad", "Refusal", "Result", "Row", "ranked", "refusal_lines"]

SCHEMA = "collsim.result/1"
TEXT = {"type": "string", "minLength": 1}
TEXT_OR_NONE = {"type": ["string", "null"], "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
FROM_ONE = {"type": "integer", "minimum": 1}
FIGURE = {"type": "number", "minimum": 0}
ABOVE_ZERO_OR_NONE = {"type": ["number", "null"], "exclusiveMinimum": 0}


def _described(schema: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _record(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """JSON schema of an object that has all of *properties* and nothing else."""
    return {
        "type": "object", "additionalProperties": False, "required": list(properties), "properties": properties,
    }  # fmt: skip


LINK_LOAD = _record(
    link=_described(TEXT, "source->destination"),
    utilisation={**_described(FIGURE, "bytes carried over capacity times time"), "maximum": 1},
)
GROUP_TIME = _record(
    gpus={"type": "array", "items": COUNT, "description": "GPUs of the group, in rank order", "minItems": 2},
    algo=_described(TEXT, "algorithm that ran"),
    proto=_described(TEXT_OR_NONE, "protocol of the library; null where none is modelled"),
    time_s=_described(FIGURE, "predicted time of the group while all run, seconds"),
    algbw_Bps=_described(FIGURE, "size over time, bytes/s"),
    busbw_Bps=_described(FIGURE, "algbw times the factor of the operation, bytes/s"),
)
LIMIT = _record(
    kind={
        "type": "string", "enum": ["library", "host", "wire"],
        "description": "whether a constant of the library decides, how long the host takes to start a call, or a wire",
    },
    name=_described(TEXT, "key of the constant in the profile, or source->destination of the link"),
    time_s=_described(FIGURE, "part of the time that follows it, seconds"),
    links=_described(COUNT, "links that are loaded alike; 0 for a constant"),
    utilisation={
        "type": ["number", "null"], "minimum": 0, "maximum": 1,
        "description": "of a link: bytes carried over capacity times time",
    },
    half_rate_s={
        "type": ["number", "null"],
        "description": "of a link: how much longer the call would take at half the rate of all links, as far as its "
        "slowest chain tells, seconds",
    },
    profile=_described(TEXT_OR_NONE, "profile whose file has the constant"),
    constant=_described(TEXT_OR_NONE, "key of the constant in that file"),
    value=_described(TEXT_OR_NONE, "value with its unit; of a link what the library reaches of its capacity"),
    status=_described(TEXT_OR_NONE, "fitted, measured, assumed and so on"),
    source=_described(TEXT_OR_NONE, "who says so"),
)  # fmt: skip
CRITICAL_TIMES = {
    "launch": "launch of the collective, seconds",
    "latency": "latency and overhead before bytes flow, seconds",
    "channel rate": "flow at the channels' own rate, seconds",
    "links": "flow held back by links, seconds",
}
CRITICAL = tuple(CRITICAL_TIMES)
"""Kinds of time that the slowest chain of transfers spends."""
FIELDS: tuple[Field, ...] = (
    Field("op", {"type": "string", "enum": list(OPERATIONS)}, "operation"),
    Field("asked", TEXT, "what was asked for: a name, `auto`, `best` or `all`"),
    Field("algo", TEXT, "algorithm that ran"),
    Field("proto", TEXT_OR_NONE, "protocol of the library; `null` where none is modelled"),
    Field("channels", FROM_ONE, "channels (CTAs) that share the work"),
    Field("ranks", {"type": "integer", "minimum": 2}, "ranks in the collective"),
    Field(
        "groups", FROM_ONE,
        "[groups](groups.md) of ranks that run the collective at once; ranks, times and bandwidths are of the slowest",
    ),
    Field("dtype", {"type": "string", "enum": list(DTYPES)}, "data type, under the name that nccl-tests prints"),
    Field(
        "redop", {"type": "string", "enum": [*REDUCTIONS, "none"]},
        "reduction operator; `none` where nothing is reduced",
    ),
    Field("root", {"type": "integer", "minimum": -1}, "root rank; -1 where there is none"),
    Field("count", COUNT, "count argument of the call, elements"),
    Field("requested_bytes", FROM_ONE, "size that was asked for"),
    Field("size_bytes", FROM_ONE, "size column of nccl-tests after its rounding"),
    Field("time_s", {"type": "number", "exclusiveMinimum": 0}, "predicted time"),
    Field(
        "time_lo_s", {**FIGURE, "type": ["number", "null"]},
        "low end of the 90 % interval of a measured time; `null` where the profile gives none for this system "
        "([profiles](profiles.md))",
    ),
    Field(
        "time_hi_s", {**FIGURE, "type": ["number", "null"]},
        "high end of the 90 % interval of a measured time; `null` where the profile gives none for this system",
    ),
    Field(
        "time_min_s", ABOVE_ZERO_OR_NONE,
        "least time of all [draws of a hash](clusters.md#lucky-and-unlucky-hashes); `null` without draws",
    ),
    Field("time_p95_s", ABOVE_ZERO_OR_NONE, "time that 95 % of the draws do not exceed; `null` without draws"),
    Field("time_max_s", ABOVE_ZERO_OR_NONE, "most time of all draws; `null` without draws"),
    Field(
        "hash_seed", {"type": ["integer", "null"], "minimum": 1},
        "seed of the median draw, which the row shows; `null` without draws",
    ),
    Field(
        "healthy_time_s", ABOVE_ZERO_OR_NONE,
        "time of the machine in which nothing failed; `null` if nothing failed ([failures](failures.md))",
    ),
    Field("healthy_algo", TEXT_OR_NONE, "algorithm and protocol there"),
    Field("slowdown", ABOVE_ZERO_OR_NONE, "`time_s / healthy_time_s`; `null` if nothing failed"),
    Field("algbw_Bps", FIGURE, "size over time"),
    Field("busbw_Bps", FIGURE, "`algbw_Bps` times the factor of the operation in nccl-tests"),
    Field("lower_bound_s", FIGURE, "no algorithm on these links is faster: `bound` of the table"),
    Field(
        "bound", TEXT,
        "what the lower bound comes from: `egress gpu0`, `ingress gpu0`, `egress of all ranks`, `cut 4|4` (that many "
        "ranks on each side), `latency`; on small irregular wiring also `flow` (a linear program) and `spanning "
        "trees`; for `send_recv` on a mesh `all links`",
    ),
    Field("efficiency", {**FIGURE, "maximum": 1.000000001}, "lower bound over time"),
    Field(
        "bottleneck", {"type": "array", "items": LINK_LOAD},
        "the busiest links, busiest first, each with `link` and `utilisation`: bytes carried over capacity times time",
        flat=False,
    ),
    Field("bottleneck_links", COUNT, "links within a thousandth of the busiest"),
    Field("limit", TEXT, "what limits, in words: `bottleneck` of the table"),
    Field(
        "limits", {"type": "array", "items": LIMIT},
        "[what limits](#what-limits), the largest part of the time first: constants of the library by their name in "
        "the profile, and wires, each with `time_s`, and with `value`, `status` and `source` of the constant",
        flat=False,
    ),
    Field(
        "critical_s", _record(**{kind: _described(FIGURE, told) for kind, told in CRITICAL_TIMES.items()}),
        "time that the slowest chain of transfers spends on `launch`, `latency`, `channel rate` and `links`; the sum "
        "is `time_s`",
        flat=False,
    ),
    Field(
        "path", TEXT,
        "how the row was computed: one by one (`transfers`) or one for each class of transfers that have to behave "
        "alike (`classes`), in plain Python (`reference`), compiled (`kernel`), or compiled and within a tolerance "
        "(`tolerance`); `wavefront`: step after step of rings ([scale.md](scale.md)), with `equal chunks` if those "
        "that differ by an element were taken as the largest",
    ),
    Field("classes", COUNT, "transfers, or classes of transfers, that were simulated"),
    Field(
        "tolerance", {**FIGURE, "maximum": 0.1},
        "how far ends of transfers were moved, as a part of the time that each takes; 0: the row is exact "
        "([irregular traffic](irregular.md))",
    ),
    Field("perturbed", FIGURE, "bytes moved too many or too few because of that, over all bytes"),
    Field("raised_s", FIGURE, "by how much the last ends were put off, to what the busiest link needs"),
    Field(
        "bracket_lo_s", ABOVE_ZERO_OR_NONE,
        "time that the load of the busiest link asks for, the lower of [both sides]"
        "(irregular.md#times-on-both-sides); `time_s` if the row is exact; `null` without `--bracket`",
    ),
    Field(
        "bracket_hi_s", ABOVE_ZERO_OR_NONE,
        "time from above, when no link is ever ahead of its bytes; `time_s` if the row is exact; `null` without "
        "`--bracket`",
    ),
    Field("total_algbw_Bps", FIGURE, "algbw of all groups together"),
    Field("total_busbw_Bps", FIGURE, "busbw of all groups together"),
    Field(
        "group_times", {"type": "array", "items": GROUP_TIME},
        "each of several groups: `gpus` in rank order, `algo`, `proto`, `time_s`, `algbw_Bps`, `busbw_Bps`; else empty",
        flat=False,
    ),
    Field(
        "draw_times_s", {"type": "array", "items": FIGURE},
        "time of each draw, in the order of the seeds; empty without draws", flat=False,
    ),
)  # fmt: skip
"""The fields of a row, in the order of every machine-readable format."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Utilisation of a link: bytes carried over what it could have carried in the time of the collective."""

    link: str
    utilisation: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that decides a part of the time of a collective: a constant of the library's profile, or a wire.

    *name* is the key of the constant in the profile, or a link; *time_s* is the part of the time that follows it. Of a
    wire, *links* counts those loaded alike, *utilisation* is bytes carried over capacity times time, and *half_rate_s*
    how much longer the call would take at half the rate of the wires, as far as its slowest chain tells. *constant* is
    the full key in the file of *profile*, None where the wire is bare.
    """

    kind: str
    name: str
    time_s: float
    links: int = 0
    utilisation: float | None = None
    half_rate_s: float | None = None
    profile: str | None = None
    constant: str | None = None
    value: str | None = None
    status: str | None = None
    source: str | None = None

    def words(self, whole_s: float) -> str:
        """Return the limit as a phrase; of a wire how busy it is, of a constant which part of *whole_s* follows it."""
        if self.utilisation is not None:
            return f"{self.name}{f' +{self.links - 1}' if self.links > 1 else ''} busy {self.utilisation:.0%}"
        value = f" {self.value}" if self.value else ""
        kind = "host " if self.kind == "host" else ""
        return f"{kind}{self.name}{value} {self.time_s / whole_s:.0%}"


@dataclass(frozen=True, slots=True)
class GroupTime:
    """Time of one of several groups while all ran at once: its GPUs in rank order, the algorithm, and the bandwidth."""

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
    *healthy_time_s* and *healthy_algo* (with its protocol) are of the machine in order, else None. *asked* is the name
    or choice that the row answers, *algo* and *proto* are what ran for it.

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
    asked: str = ""
    limits: tuple[Limit, ...] = ()

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
        """Time over that of the machine in which nothing failed; None if nothing did."""
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
        """What limits, in words: the largest part of the time, and with it the wires if they would count at half rate;
        beside wires the largest constant, if as much as a third follows it.
        """
        if not self.limits or self.time_s <= 0:
            return "none"
        first, *others = self.limits
        told = [first, *(each for each in others if each.kind != first.kind and self._counts(each))]
        return ", ".join(each.words(self.time_s) for each in told[:2])

    def _counts(self, second: Limit) -> bool:
        """Return True if a limit that is not the first has to be named: any wire, a constant of a third of the time."""
        return second.utilisation is not None or (second.kind != "wire" and 3 * second.time_s >= self.time_s)

    @property
    def host_s(self) -> float:
        """Part of the time that the host decides: what it takes to start a call."""
        return sum(limit.time_s for limit in self.limits if limit.kind == "host")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the JSON schema wants it, in the order of its fields."""
        return {entry.key: plain(getattr(self, entry.key)) for entry in FIELDS}

    def to_record(self) -> dict[str, Any]:
        """Return the row as single values: the busiest link stands for the list, each critical time on its own.

        The times of single groups and draws are left out.

        >>> import collsim
        >>> record = collsim.simulate("mi300x_ubb8", "all_to_all", "1G", profile="ideal").rows[0].to_record()
        >>> record["bottleneck_link"], record["critical_launch_s"]
        ('gpu0->gpu1', 0.0)
        """
        record = {entry.key: getattr(self, entry.key) for entry in FIELDS if entry.flat}
        busiest = self.bottleneck[0] if self.bottleneck else None
        record["bottleneck_link"] = busiest.link if busiest else None
        record["bottleneck_utilisation"] = busiest.utilisation if busiest else None
        record |= _of_limits(self.limits)
        return record | {f"critical_{kind.replace(' ', '_')}_s": self.critical_s.get(kind, 0.0) for kind in CRITICAL}


def _of_limits(limits: Sequence[Limit]) -> dict[str, Any]:
    """Return the first limit, and the first wire, as single values."""
    first = limits[0] if limits else None
    wire = next((each for each in limits if each.utilisation is not None), None)
    keys = ("kind", "name", "time_s", "profile", "constant", "value", "status", "source")
    record = {f"limit_{key}": getattr(first, key, None) for key in keys}
    return record | {f"limit_wire_{key}": getattr(wire, key, None) for key in ("name", "time_s", "half_rate_s")}


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


@dataclass(frozen=True, slots=True)
class Result(Tabular):
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
    refused: tuple[Refusal, ...] = ()
    """Parts of the request that could not be answered."""

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
            "refused": [refusal.to_dict() for refusal in self.refused],
            "warnings": list(self.warnings),
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each row: that of `Row.to_record` after what names the run."""
        config = self.config
        common = {
            "topology": self.topology.get("name"),
            "profile": self.profile.get("name"),
            "calibrated": self.profile.get("calibrated"),
            "overrides": "; ".join(f"{path}={value}" for path, value in config.get("overrides", {}).items()),
            "fail": "; ".join(config.get("fail", ())),
            "degrade": "; ".join(f"{name}={share}" for name, share in config.get("degrade", {}).items()),
        }
        return [{**common, **row.to_record()} for row in self.rows]

    def _caption(self) -> str:
        calibrated = "yes" if self.profile.get("calibrated") else "no"
        return f"{self.topology.get('name')}, profile {self.profile.get('name')}, calibrated: {calibrated}"

    def _shown(self) -> list[dict[str, str]]:
        return [
            {
                "op": row.op,
                "size (B)": str(row.size_bytes),
                "ranks": str(row.ranks),
                **({"asked": row.asked} if len(self.config.get("algo", ())) > 1 else {}),
                "algo": row.label,
                "time (us)": f"{'~' * bool(row.tolerance)}{row.time_s * 1e6:.2f}",
                "algbw (GB/s)": f"{row.algbw_Bps / 1e9:.2f}",
                "busbw (GB/s)": f"{row.busbw_Bps / 1e9:.2f}",
                "bound (us)": f"{row.lower_bound_s * 1e6:.2f}",
                "eff (%)": f"{row.efficiency * 100:.1f}",
                "bottleneck": row.limit,
            }
            for row in self.rows
        ]


def ranked(times_s: Sequence[float], share: float) -> float:
    """Return the least of *times_s* that at least the given share of them does not exceed.

    >>> ranked([4.0, 1.0, 3.0, 2.0], 0.5), ranked(range(1, 101), 0.95)
    (2.0, 95)
    """
    return sorted(times_s)[max(math.ceil(share * len(times_s)) - 1, 0)]
