"""Results for dispatch and combine: rows, and what stands behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collsim.core.old_names import old_name
from collsim.core.tabular import Tabular
from collsim.simulation.result import LinkLoad, asked_of

__all__ = ["Busy", "MoeRefusal", "MoeResult", "MoeRow"]

SCHEMA = "collsim.moe/1"


@dataclass(frozen=True, slots=True)
class Busy:
    """A GPU and how many times the mean of all it receives, in (token, expert) pairs."""

    gpu: str
    load: float


@dataclass(frozen=True, slots=True)
class MoeRow:
    """One operation with one number of ranks.

    Attributes
    ----------
    op : {"dispatch", "combine"}
    ranks, experts : int
        *experts* counts copies: those that there are on all ranks.
    node_sizes : tuple of int
        How many ranks are on each node; ranks are numbered node by node.
    time_s : float
        Of the slowest rank, in the median sample.
    times_s : tuple of float
        Of every sample; one where loads are expected ones.
    time_lo_s, time_hi_s : float or None
        Between them nine of ten measured times are expected; None where the costs of the library count.
    prepare_s : float
        Of the step before that counts tokens and tells the other ranks, where it is a kernel of its own; not in
        *time_s*.
    load_s : float
        What the busiest link or GPU needs, with the costs of the kernels: no simulation undercuts it.
    lower_bound_s : float
        Bytes over line rates: no kernel undercuts it.
    node_bytes, network_bytes : float
        Bytes that a rank sends within its node, relayed ones too, and to others, on average.
    logical_bytes : float
        What published bandwidths count for a rank, on average: what stays is included.
    matrix_bytes : tuple of tuple of int
        From rank to rank, whichever way; empty for many ranks.
    imbalance : float
        (token, expert) pairs that the busiest rank receives in dispatch, over the mean.
    hot : tuple of Busy
        The ranks that receive most.
    bottleneck : tuple of LinkLoad
        The busiest links and GPUs.
    limit_kind : {"network", "node links", "GPU", "start", "library"}
        Where the time goes; `limited_by` also names the busiest link or GPU.
    seed : int or None
        Of the median sample; None where loads are expected ones.
    """

    op: str
    ranks: int
    node_sizes: tuple[int, ...]
    experts: int
    time_s: float
    times_s: tuple[float, ...]
    time_lo_s: float | None
    time_hi_s: float | None
    prepare_s: float
    load_s: float
    lower_bound_s: float
    node_bytes: float
    network_bytes: float
    logical_bytes: float
    matrix_bytes: tuple[tuple[int, ...], ...]
    imbalance: float
    hot: tuple[Busy, ...]
    bottleneck: tuple[LinkLoad, ...]
    limit_kind: str
    seed: int | None
    path: str
    tolerance: float

    limit = old_name("limit", "limit_kind")
    bound_s = old_name("bound_s", "lower_bound_s")
    low_s = old_name("low_s", "time_lo_s")
    high_s = old_name("high_s", "time_hi_s")

    @property
    def whole_s(self) -> float:
        """Time of the operation with that of the step before."""
        return self.prepare_s + self.time_s

    @property
    def limited_by(self) -> str:
        """What limits, in words: the kind of limit, and the busiest link or GPU."""
        busiest = f": {self.bottleneck[0].link} {self.bottleneck[0].utilisation:.0%}" if self.bottleneck else ""
        return f"{self.limit_kind}{busiest}"

    @property
    def nodes(self) -> int:
        """On how many nodes the ranks are."""
        return len(self.node_sizes)

    @property
    def logical_Bps(self) -> float:
        """Bandwidth as DeepEP prints it: what stays on the node or the rank is counted."""
        return self.logical_bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def network_Bps(self) -> float:
        """Rate at which a rank sends to other nodes, in bytes on the wire over the time of the operation."""
        return self.network_bytes / self.time_s if self.time_s > 0 else 0.0

    @property
    def node_Bps(self) -> float:
        """Rate at which a rank sends within its node, in bytes on the wire over the time of the operation."""
        return self.node_bytes / self.time_s if self.time_s > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data, in SI units."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        rates = {name: getattr(self, name) for name in ("logical_Bps", "node_Bps", "network_Bps", "limited_by")}
        return plain | rates | {"nodes": self.nodes, "matrix_bytes": [list(row) for row in self.matrix_bytes]}

    def to_record(self) -> dict[str, Any]:
        """Return the row as one flat record: the busiest link or GPU alone, of the samples the least and the most."""
        busiest = self.bottleneck[0] if self.bottleneck else LinkLoad("", 0.0)
        names = (
            "load_s", "lower_bound_s", "logical_Bps", "node_Bps", "network_Bps", "logical_bytes", "node_bytes",
            "network_bytes", "imbalance", "limited_by", "limit_kind",
        )  # fmt: skip
        return {
            "op": self.op, "ranks": self.ranks, "nodes": self.nodes, "experts": self.experts, "time_s": self.time_s,
            "samples": len(self.times_s), "time_min_s": min(self.times_s), "time_max_s": max(self.times_s),
            "time_lo_s": self.time_lo_s, "time_hi_s": self.time_hi_s, "prepare_s": self.prepare_s,
            **{name: getattr(self, name) for name in names},
            "bottleneck_link": busiest.link, "bottleneck_utilisation": busiest.utilisation,
            "seed": self.seed, "path": self.path, "tolerance": self.tolerance,
        }  # fmt: skip

    def shown(self) -> dict[str, str]:
        """Return headings and texts of the row for a notebook."""
        return {
            "ranks": str(self.ranks),
            "nodes": str(self.nodes),
            "op": self.op,
            "time (us)": f"{'~' * bool(self.tolerance)}{self.time_s * 1e6:.2f}",
            "prepare (us)": f"{self.prepare_s * 1e6:.2f}",
            "load (us)": f"{self.load_s * 1e6:.2f}",
            "bound (us)": f"{self.lower_bound_s * 1e6:.2f}",
            "logical (GB/s)": f"{self.logical_Bps / 1e9:.2f}",
            "imbalance (x)": f"{self.imbalance:.2f}",
            "limited by": self.limited_by,
        }


@dataclass(frozen=True, slots=True)
class MoeRefusal:
    """A number of ranks without an answer: *what* is wrong with it, and *hint*, what to do about it."""

    ranks: int
    what: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the refusal as the JSON schema wants it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class MoeResult(Tabular):
    """Dispatch and combine for each number of ranks, with what was asked and what was assumed."""

    version: str
    config: Mapping[str, Any]
    topology: Mapping[str, Any]
    model: Mapping[str, Any]
    kernel: Mapping[str, Any]
    routing: str
    expert_placement: str
    rows: tuple[MoeRow, ...]
    warnings: tuple[str, ...]
    refused: tuple[MoeRefusal, ...] = ()

    placement = old_name("placement", "expert_placement")

    @property
    def time_s(self) -> float:
        """Dispatch and combine of the only number of ranks, one after the other, with the steps before them."""
        if len({row.ranks for row in self.rows}) != 1:
            raise ValueError("several numbers of ranks: look at rows")
        return sum(row.whole_s for row in self.rows)

    def pairs(self) -> list[tuple[MoeRow, MoeRow]]:
        """Return dispatch and combine for each number of ranks."""
        return list(zip(self.rows[::2], self.rows[1::2], strict=True))

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each row, with what tells it from rows of other results."""
        return [{**self._common(), **row.to_record()} for row in self.rows]

    def _refused_records(self) -> list[dict[str, Any]]:
        return [{**self._common(), "ranks": each.ranks, "refused": each.what} for each in self.refused]

    def _common(self) -> dict[str, Any]:
        """Return what tells the records of this result from those of others."""
        asked = asked_of(self.config)
        return {
            "topology": self.topology["name"], "model": self.model["name"], "mode": self.config["mode"],
            "kernel": self.kernel["name"], "kind": self.kernel["kind"], "routing": self.routing,
            "expert_placement": self.expert_placement, **{key: asked[key] for key in ("overrides", "fail", "degrade")},
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, in SI units: the JSON document of ``collsim moe``."""
        return {
            "schema": SCHEMA,
            "collsim": self.version,
            "config": dict(self.config),
            "topology": dict(self.topology),
            "model": dict(self.model),
            "kernel": dict(self.kernel),
            "routing": self.routing,
            "expert_placement": self.expert_placement,
            "results": [row.to_dict() for row in self.rows],
            "refused": [each.to_dict() for each in self.refused],
            "warnings": list(self.warnings),
        }

    def _caption(self) -> str:
        return f"{self.topology['name']}, {self.model['name']}, kernels {self.kernel['name']} ({self.kernel['kind']})"

    def _shown(self) -> list[dict[str, str]]:
        return [row.shown() for row in self.rows]
