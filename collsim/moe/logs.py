"""Logs of the tests that come with DeepEP: what ``test_intranode``, ``test_internode`` and ``test_low_latency`` print.

Their formats differ by date. The first printed bandwidths alone; later ones print the time (``t:``), then the step
before it as well (``notify + transmit``). Low latency prints a line for every rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from collsim.core.errors import Fault, SpecError
from collsim.core.input_files import read_input

__all__ = ["MoeLog", "MoeMeasured", "is_moe_log", "read_moe_log"]

MOST_BYTES = 1 << 26
LOOKED_AT = 1 << 20
"""Bytes of a file that tell whether it is such a log."""
NUMBER = r"(\d+(?:\.\d+)?)"
CONFIG = re.compile(
    r"\[config\] num_tokens=(\d+), hidden=(\d+)(?:, num_topk_groups=(\d+))?, num_topk=(\d+)"
    r"(?:\s*,\s*num_experts=(\d+))?"
)
BEST = re.compile(r"\[tuning\] Best (dispatch|combine)(?: \((FP8|BF16)\))?: SMs (\d+), NVL chunk (.*)")
BANDWIDTHS = {kind: re.compile(rf"{NUMBER} GB/s \({kind}\)") for kind in ("RDMA", "NVL")}
TIMES = (
    re.compile(rf"(?:^|[ :,]){NUMBER} \+ {NUMBER} us"),
    re.compile(rf"transmit: {NUMBER} us, notify: {NUMBER} us"),
    re.compile(rf"(?:t: |avg_t: |BW: .*?, ){NUMBER} us"),
)
"""Step before and operation; the other way round; the operation alone."""
BOTH = re.compile(
    rf"\[rank (\d+)\] Dispatch \+ combine bandwidth: {NUMBER} GB/s, avg_t={NUMBER} us(?:, min_t={NUMBER} us)?"
)
EACH = re.compile(
    rf"\[rank (\d+)\] Dispatch bandwidth: {NUMBER} GB/s, avg_t={NUMBER} us \| "
    rf"Combine bandwidth: {NUMBER} GB/s, avg_t={NUMBER} us"
)
TOLD = re.compile(r"\[tuning\] Best (?:dispatch|combine)|\[rank \d+\] Dispatch (?:\+ combine )?bandwidth:")
TEST_TOKENS = 8
"""Tokens of the tests are multiples of so many; masked choices make the bytes a little less."""


@dataclass(frozen=True, slots=True)
class MoeMeasured:
    """One operation of a log.

    Attributes
    ----------
    op : {"dispatch", "combine", "both"}
    dtype : {"fp8", "bf16"}
    logical_Bps : float
        As printed: over the network if there is one, else within the node.
    time_s, prepare_s : float or None
        None where the log has bandwidths only.
    sms : int or None
    node_share : float or None
        Bandwidth within the node over that of the network.
    by_rank_s : tuple of (int, float)
        Times of ranks, in low latency.
    least_s : float or None
        Of all iterations and ranks, where the log tells it.
    """

    op: str
    dtype: str
    logical_Bps: float
    time_s: float | None = None
    prepare_s: float | None = None
    sms: int | None = None
    node_share: float | None = None
    by_rank_s: tuple[tuple[int, float], ...] = ()
    least_s: float | None = None


@dataclass(slots=True)
class MoeLog:
    """A log; figures that it does not tell are those of DeepEP's tests."""

    file: str
    mode: str
    tokens: int
    hidden: int = 7168
    top_k: int = 8
    topk_groups: int | None = None
    experts: int | None = None
    ranks: int | None = None
    rows: list[MoeMeasured] = field(default_factory=list)


def is_moe_log(path: str | Path) -> bool:
    """Return True if a file holds lines of such a test; False of stdin and pipes, which can be read only once."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            return TOLD.search(stream.read(LOOKED_AT)) is not None
    except OSError:  # a name that is too long, too
        return False


def read_moe_log(path: str | Path) -> MoeLog:
    """Return the operations of a log of DeepEP's tests.

    Raises
    ------
    SpecError
        It cannot be read, or has none.
    """
    try:
        lines = read_input(path, MOST_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SpecError(Fault(f"cannot be read: {error.strerror}", str(path), "name a file")) from error
    log = MoeLog(str(path), "normal", 4096)
    for line in lines:
        if found := CONFIG.search(line):
            tokens, hidden, groups, top_k, experts = found.groups()
            log.tokens, log.hidden, log.top_k = int(tokens), int(hidden), int(top_k)
            log.topk_groups, log.experts = (int(text) if text else None for text in (groups, experts))
    log.rows = list(_normal(lines)) or _low_latency(lines, log)
    if not log.rows:
        hint = "such as [tuning] Best dispatch (FP8): ..., or [rank 0] Dispatch bandwidth: ..."
        raise SpecError(Fault("no line of a result of DeepEP's tests", str(path), hint))
    return log


def _normal(lines: list[str]) -> Iterator[MoeMeasured]:
    """Yield the best configurations of the tests in normal mode."""
    for line in lines:
        found = BEST.search(line)
        if found is None:
            continue
        op, dtype, sms, rest = found.groups()
        rates = {kind: float(match[1]) * 1e9 for kind, form in BANDWIDTHS.items() if (match := form.search(rest))}
        if not any(rates.values()):
            continue
        over, within = rates.get("RDMA") or 0.0, rates.get("NVL") or 0.0
        prepare_s, time_s = _times(rest)
        share = within / over if over and within else None
        yield MoeMeasured(op, (dtype or "BF16").lower(), over or within, time_s, prepare_s, int(sms), share)


def _times(text: str) -> tuple[float | None, float | None]:
    """Return the time of the step before an operation and of the operation, in seconds."""
    together, named, alone = (form.search(text) for form in TIMES)
    if named:
        return float(named[2]) * 1e-6, float(named[1]) * 1e-6
    if together:
        return float(together[1]) * 1e-6, float(together[2]) * 1e-6
    return None, float(alone[1]) * 1e-6 if alone else None


def _low_latency(lines: list[str], log: MoeLog) -> list[MoeMeasured]:
    """Return the operations of a test in low latency, and note its mode, ranks and tokens in *log*."""
    told = [found.groups() for line in lines if (found := BOTH.search(line))]
    both = [tuple(map(float, words[:3])) for words in told]
    least_us = min((float(words[3]) for words in told if words[3]), default=None)
    each = [tuple(map(float, found.groups())) for line in lines if (found := EACH.search(line))]
    columns = {
        "both": [(int(rank), rate, time_us) for rank, rate, time_us in both],
        "dispatch": [(int(rank), rate, time_us) for rank, rate, time_us, _, _ in each],
        "combine": [(int(rank), rate, time_us) for rank, _, _, rate, time_us in each],
    }
    rows = []
    for op, cells in columns.items():
        if cells:
            by_rank = tuple(sorted((rank, time_us * 1e-6) for rank, _, time_us in cells))
            rate_Bps = median(rate for _, rate, _ in cells) * 1e9
            dtype = "bf16" if op == "combine" else "fp8"
            least_s = least_us * 1e-6 if op == "both" and least_us else None
            middle_s = median(time for _, time in by_rank)
            rows.append(MoeMeasured(op, dtype, rate_Bps, middle_s, by_rank_s=by_rank, least_s=least_s))
    if rows:
        log.mode = "low_latency"
        log.ranks = 1 + max(rank for row in rows for rank, _ in row.by_rank_s)
        log.tokens = _tokens(rows, log)
    return rows


def _tokens(rows: list[MoeMeasured], log: MoeLog) -> int:
    """Return the tokens of a rank, by the bytes that bandwidth and time make."""
    fp8 = log.hidden + log.hidden // 128 * 4 + 16
    message_bytes = {"dispatch": fp8, "combine": 2 * log.hidden, "both": fp8 + 2 * log.hidden}
    found = [row.logical_Bps * (row.time_s or 0.0) / message_bytes[row.op] / log.top_k for row in rows]
    return max(round(median(found) / TEST_TOKENS) * TEST_TOKENS, 1)
