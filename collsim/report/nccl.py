"""The table of nccl-tests, close enough for parsers of its logs.

Column widths and number formats follow what nccl-tests 2.19 prints. The prediction stands in both halves; nothing is
checked, so ``#wrong`` is N/A.
"""

from __future__ import annotations

from collsim.report.crossovers import contestant
from collsim.simulation.result import Result, Row, refusal_lines

__all__ = ["as_nccl", "draws_text", "time_text"]

HALVES = f"#{'':62}out-of-place{'':23}in-place"
HEAD = (
    f"#{'size':>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    + f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}" * 2
)
UNITS = (
    f"#{'(B)':>11}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    + f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}" * 2
).rstrip()


def as_nccl(result: Result) -> str:
    """Return the rows as nccl-tests would print them, zero-byte rows included."""
    lines = [
        f"# collsim {result.version}: a prediction, not a measurement",
        f"# topology {result.topology['name']}, profile {result.profile['name']}, "
        f"calibrated: {'yes' if result.profile['calibrated'] else 'no'}",
    ]
    lines += [f"# {draws_text(result)}"] if result.config.get("hash_seeds") else []
    for (op, ranks, groups, who), rows in _runs(result).items():
        algos = ", ".join(dict.fromkeys(row.label for row in rows if row.algo != "none"))
        at_once = "" if groups == 1 else f"{groups} groups of "
        choice = f" (asked for: {who})" if who in ("auto", "best") else ""
        lines += [f"# {op} on {at_once}{ranks} ranks, algorithm {algos or 'none'}{choice}", "#", HALVES, HEAD, UNITS]
        lines += [_line(row) for row in sorted(rows, key=lambda row: row.requested_bytes)]
        mean = sum(row.busbw_Bps for row in rows) / len(rows) / 1e9
        lines += [_draw(row) for row in rows if row.draw_times_s]
        lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:g}", "#"]
    lines += [f"# {line}" for line in refusal_lines(result.refused)]
    return "\n".join(lines) + "\n"


def _runs(result: Result) -> dict[tuple[str, int, int, str], list[Row]]:
    """Group rows as runs of nccl-tests, with one row per size: one for each choice or algorithm that was asked for."""
    several = len(result.config["algo"]) > 1 or result.config["algo"] == ["all"]
    runs: dict[tuple[str, int, int, str], list[Row]] = {}
    for row in result.rows:
        runs.setdefault((row.op, row.ranks, row.groups, contestant(row) if several else ""), []).append(row)
    for row in result.skipped:
        same = [key for key in runs if key[:3] == (row.op, row.ranks, row.groups)]
        for key in same or [(row.op, row.ranks, row.groups, "")]:
            runs.setdefault(key, []).append(row)
    return runs


def _line(row: Row) -> str:
    half = f"  {time_text(row.time_s):>7}  {row.algbw_Bps / 1e9:6.2f}  {row.busbw_Bps / 1e9:6.2f}  {'N/A':>5}"
    return f"{row.size_bytes:12d}  {row.count:12d}  {row.dtype:>8}  {row.redop:>6}  {row.root:6d}" + half * 2


def _draw(row: Row) -> str:
    """Return a comment line with the spread of the time over draws of the hash, which the columns have no room for."""
    low, high, most = (time_text(time_s or 0.0) for time_s in (row.time_min_s, row.time_p95_s, row.time_max_s))
    return f"# {row.size_bytes} B: min {low}, p95 {high}, max {most} us"


def draws_text(result: Result) -> str:
    """Return which draws of the hash of the network the times are medians of."""
    draws = max(len(row.draw_times_s) for row in result.rows)
    return f"time: median of {draws} draws of the ECMP hash, seeds {result.config['hash_seeds']}"


def time_text(time_s: float) -> str:
    """Return microseconds as nccl-tests prints them: two decimals, fewer where seven characters do not hold them.

    >>> time_text(1.234e-5), time_text(0.0161181), time_text(1.5)
    ('12.34', '16118.1', '1500000')
    """
    time_us = time_s * 1e6
    decimals = 2 if time_us < 9_999.995 else 1 if time_us < 99_999.95 else 0
    return f"{time_us:.{decimals}f}"
