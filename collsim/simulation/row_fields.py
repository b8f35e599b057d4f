"""The fields of a row in every machine-readable format: key, JSON schema and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collsim.core.operations import DTYPES, OPERATIONS, REDUCTIONS
from collsim.core.tabular import Field

__all__ = ["CRITICAL", "FIELDS"]

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
TIER = _record(
    tier={
        "type": "string",
        "enum": ["node", "bus", "adapter", "fabric"],
        "description": "links of GPUs in a node, buses to adapters, adapters, links between switches",
    },
    sender=_described(TEXT, "the busiest GPU, adapter or link"),
    sent_bytes=_described(FIGURE, "what it sends on the wire, flags of protocols included, bytes"),
    line_Bps=_described(FIGURE, "rate of its links together, one direction, bytes/s"),
    total_bytes=_described(FIGURE, "what all senders of the tier send, bytes"),
    node_bytes=_described(FIGURE, "what the node that sends most sends over it, bytes; 0 between switches"),
)
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
        "wide_because", {"type": "string"},
        "why the interval reaches farther than 2.5 times from the prediction; empty where it does not",
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
    Field(
        "algo_bound_s", FIGURE,
        "what the busiest link needs for its bytes at line rate: the algorithm that ran is never faster, others may "
        "be; no less than the bound, and at least what a slower link needs, if `path` has `delay of a part`",
    ),
    Field("efficiency", {**FIGURE, "maximum": 1.000000001}, "lower bound over time"),
    Field(
        "bottleneck", {"type": "array", "items": LINK_LOAD},
        "the busiest links, busiest first, each with `link` and `utilisation`: bytes carried over capacity times time",
        flat=False,
    ),
    Field(
        "tiers", {"type": "array", "items": TIER},
        "what the busiest sender of each tier puts on the wire: `node` (links of GPUs), `bus` (to adapters), "
        "`adapter`, `fabric` (between switches); over the time it is the rate of a wire",
        flat=False,
    ),
    Field("bottleneck_links", COUNT, "links within a thousandth of the busiest"),
    Field("limited_by", TEXT, "what limits, in words: `limited by` of the table"),
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
        "that differ by an element were taken as the largest; with `delay of a part` if that by what has failed was "
        "simulated among some nodes; with `pace to` and a part of the time if chunks were cut where their pace still "
        "changed by that; with `to` and a part of the time if hops that are only nearly alike may be off by so much",
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
        "(irregular.md#times-on-both-sides); `time_s` if the row is exact; without what failed, or what a slower link "
        "needs if that is longer, if `path` has `delay of a part`; as much sooner "
        "as `path` says with `to`; else `null` without `--bracket`",
    ),
    Field(
        "bracket_hi_s", ABOVE_ZERO_OR_NONE,
        "time from above, when no link is ever ahead of its bytes; `time_s` if the row is exact; with twice the delay "
        "if `path` has `delay of a part`; as much later as `path` says with `to`; else `null` without `--bracket`",
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
