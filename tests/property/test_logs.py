"""Whatever the log reader is fed, it answers with rows or an error of its own; sound rows come back as printed."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collsim.calibration import Log, read_log
from collsim.core.errors import CollsimError
from collsim.core.operations import OPERATIONS

SPECIMENS = sorted((Path(__file__).parent.parent / "data" / "logs").iterdir())
QUICK = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
WORDS = st.sampled_from(
    ["float", "sum", "none", "-1", "N/A", "0", "8", "1048576", "262144", "20.00", "52.43", "1e+06", "nan", "-3", "XXX",
     "#", "size", "time", "algbw", "busbw", "in-place", ",", "|", "{", "}", '{"size":', '"time":', "all_reduce_perf",
     "nThread 1 nGpus 8", "Rank  0 Pid 3 on crate device 0", "[1,0]<stdout>:", "0:", "a:1:2 [0] NCCL INFO x", "\r",
     "\x00", "Avg bus bandwidth : 3", "1,024", "9" * 30, "ranks=3", "٣", "\u00b2", "-", "_", "NCCL_TESTS_SPLIT=MOD 2"]
)  # fmt: skip


def answer(path: Path, data: bytes) -> Log | None:
    path.write_bytes(data)
    try:
        log = read_log(path)
    except CollsimError:
        return None
    assert len(log)
    for row in log.rows:
        assert row.size_bytes > 0
        times = [time for time in (row.time_s, row.in_place_time_s) if time is not None]
        assert times
        assert all(0 < time < math.inf for time in times)
        assert row.count is None or row.count >= 0
    assert len(log.dropped) <= log.n_dropped
    return log


@QUICK
@given(st.binary(max_size=2000))
def test_bytes(tmp_path, data):
    answer(tmp_path / "x.log", data)


@QUICK
@given(st.lists(st.lists(WORDS, max_size=16).map(" ".join), max_size=20).map("\n".join))
def test_words_of_logs(tmp_path, text):
    answer(tmp_path / "x.log", text.encode())


@QUICK
@given(st.data())
def test_damaged_specimens(tmp_path, data):
    original = data.draw(st.sampled_from(SPECIMENS)).read_bytes()
    start = data.draw(st.integers(0, len(original)))
    length = data.draw(st.integers(0, 200))
    middle = data.draw(st.binary(max_size=40))
    answer(tmp_path / "x.log", original[:start] + middle + original[start + length :])


@QUICK
@given(
    op=st.sampled_from(sorted(set(OPERATIONS) - {"all_to_all_v"})),
    ranks=st.integers(2, 40),
    times=st.lists(st.tuples(st.integers(4, 30), st.floats(1.0, 1e6), st.floats(1.0, 1e6)), min_size=1, max_size=8),
    prefix=st.sampled_from(["", "0: ", "[1,0]<stdout>:", "2031-01-01T00:00:00Z ", "> ", "[pod/a/b] "]),
)
def test_printed_rows_come_back(tmp_path, op, ranks, times, prefix):
    entry = OPERATIONS[op]
    lines = [f"# Collective test starting: {op}_perf", f"# nThread 1 nGpus {ranks} minBytes 8 graph: 0"]
    for power, *halves in times:
        size = ranks * 2**power
        cells = [str(size), str(entry.count(size, ranks, 4)), "float", "sum" if entry.reduces else "none", "-1"]
        for time in halves:
            rate = size / time / 1e3
            cells += [f"{time:.2f}", f"{rate:.2f}", f"{rate * entry.busbw_factor(ranks):.2f}", "0"]
        lines.append("  ".join(cells))
    log = answer(tmp_path / "x.log", "\n".join(prefix + line for line in lines).encode())
    assert log is not None
    (test,) = log.tests
    assert (test.op, test.ranks) == (op, ranks)
    assert not log.n_dropped
    wanted = [(ranks * 2**power, round(time, 2)) for power, time, _ in times]
    assert [(row.size_bytes, round(row.time_s * 1e6, 2)) for row in test.rows] == wanted
