"""Results: rows of times, bandwidths, the bound, what limits, and how they were obtained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collsim.core.tabular import Tabular
from collsim.simulation.refusals import Refusal, refusal_lines
from collsim.simulation.row import GroupTime, Limit, LinkLoad, Row, ranked
from collsim.simulation.row_fields import CRITICAL, FIELDS

__all__ = [
    "CRITICAL",
    "FIELDS",
    "GroupTime",
    "Limit",
    "LinkLoad",
    "Refusal",
    "Result",
    "Row",
    "asked_of",
    "ranked",
    "refusal_lines",
]

SCHEMA = "collsim.result/1"


@dataclass(frozen=True, slots=True, repr=False)
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
        return [{**self._common(), **row.to_record()} for row in self.rows]

    def _refused_records(self) -> list[dict[str, Any]]:
        return [{**self._common(), **each.to_record()} for each in self.refused]

    def _common(self) -> dict[str, Any]:
        """Return what names the run in each of its records."""
        return {
            "topology": self.topology.get("name"),
            "profile": self.profile.get("name"),
            "calibrated": self.profile.get("calibrated"),
            **asked_of(self.config),
            "library": self.profile.get("library"),
        }

    def plot(self, ax: Any = None, *, measured: Any = None) -> Any:
        """Draw bus bandwidth over size, with the bound and the interval; returns the axes of matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        measured : Validation or mapping, optional
            Points to draw beside: the rows of logs that `collsim.validate` read, or bytes/s by size in bytes.

        Raises
        ------
        ImportError
            matplotlib is not installed; ``pip install 'collsim[plot]'`` brings it.
        InputError
            *ax* is no axes, or *measured* holds no measured rows.
        """
        from collsim.simulation.busbw_plot import curves_of, draw, points_of

        return draw(curves_of(self.rows), points_of(measured), self._caption(), ax)

    def _caption(self) -> str:
        calibrated = "yes" if self.profile.get("calibrated") else "no"
        return f"{self.topology.get('name')}, profile {self.profile.get('name')}, calibrated: {calibrated}"

    def _shown(self) -> list[dict[str, str]]:
        answered = [
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
                "limited by": row.limited_by,
            }
            for row in self.rows
        ]
        return [*answered, *self._refused_shown(list(answered[0]))]

    def _refused_shown(self, headings: list[str]) -> list[dict[str, str]]:
        """Return a row for each part of the request without an answer."""
        told = [
            {
                "op": each.op,
                "size (B)": str(each.requested_bytes),
                "ranks": str(each.ranks),
                "algo": each.asked,
                "time (us)": "refused",
                "limited by": each.what,
            }
            for each in self.refused
        ]
        return [{heading: each.get(heading, "") for heading in headings} for each in told]


def asked_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked of all rows, as texts: changes of the machine, and how the calls are made."""
    grouping = config.get("split") or config.get("groups")
    over = config.get("over")
    return {
        "overrides": "; ".join(f"{path}={value}" for path, value in config.get("overrides", {}).items()),
        "fail": "; ".join(config.get("fail", ())),
        "degrade": "; ".join(f"{name}={share}" for name, share in config.get("degrade", {}).items()),
        "load": "; ".join(config.get("load", ())),
        "environment": "; ".join(f"{name}={value}" for name, value in config.get("environment", {}).items()),
        "grouping": f"{grouping} over {over}" if grouping and over else grouping,
        "launch": config.get("launch"),
        "registered": config.get("registered"),
    }
