"""The log reader: facts, inference, repairs, overrides, and what mutilated files come to."""

from __future__ import annotations

import gzip
import io
import math
import random
import re
import sys

import numpy as np
import pytest

from collsim.calibration import Dropped, Log, read_log, read_tests
from collsim.calibration.logs import facts, settlement
from collsim.calibration.logs import line_reader as log_reader_module
from collsim.core.errors import InputError, SpecError, UnknownNameError
from collsim.core.operations import OPERATIONS

THREADS = (
    "# nThread 1 nGpus {ranks} minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 graph: 0"
)
COLUMNS = "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


def device(rank: int, host: str = "crate-01") -> str:
    return f"#  Rank {rank:2} Group  0 Pid 7 on {host} device {rank} [0x00] Example Accelerator"


def row(size: int, time_us: float, in_place_us: float, op: str = "all_reduce", ranks: int = 8, wrong: str = "0") -> str:
    blocks = ranks if OPERATIONS[op].blocked else 1
    redop = "sum" if OPERATIONS[op].reduces else "none"
    root = 0 if OPERATIONS[op].rooted else -1
    halves = "".join(
        f"  {t:.2f}  {size / t / 1e3:.2f}  {size / t / 1e3 * OPERATIONS[op].busbw_factor(ranks):.2f}  {wrong}"
        for t in (time_us, in_place_us)
    )
    return f"{size}  {size // 4 // blocks}  float  {redop}  {root}{halves}"


ROWS = [row(2**power, 20 + 2**power / 1e5, 19 + 2**power / 1e5) for power in range(16, 28)]
HEAD = ["# Collective test starting: all_reduce_perf", THREADS.format(ranks=8), *(device(r) for r in range(8)), COLUMNS]
FOOT = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 123.4"]
WHOLE = "\n".join([*HEAD, *ROWS, *FOOT]) + "\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes, name: str = "bench.log", **overrides) -> Log:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_log(path, **overrides)

    return read


def joined(log: Log) -> str:
    return "\n".join(log.warnings)


def test_rows_and_columns(read):
    log = read(WHOLE)
    (test,) = log.tests
    assert (test.op, test.ranks, test.nodes, test.run.launch) == ("all_reduce", 8, 1, "stream")
    assert len(log) == len(test.rows) == 12 == len(list(log.rows))
    first = test.rows[0]
    assert (first.size_bytes, first.count, first.dtype, first.redop, first.root) == (65536, 16384, "float", "sum", -1)
    assert first.line == len(HEAD) + 1
    assert test.rows.column("size_bytes").dtype == np.int64
    assert test.rows.column("time_s") == pytest.approx([r.time_s for r in test.rows])
    assert set(test.rows.column("redop")) == {"sum"}
    assert test.run.printed_busbw_Bps == pytest.approx(123.4e9)
    assert not log.warnings


@pytest.mark.parametrize("op", sorted(set(OPERATIONS) - {"all_to_all_v"}))
@pytest.mark.parametrize("ranks", [2, 3, 16])
def test_ranks_are_inferred_where_the_ratio_says_them(read, op, ranks):
    text = "\n".join(row(ranks * 2**power, 20 + ranks * 2**power / 3e5, 30, op, ranks) for power in range(16, 24))
    log = read(text, op=op)
    known = OPERATIONS[op].busbw_factor(2) != OPERATIONS[op].busbw_factor(3)
    assert log.tests[0].ranks == (ranks if known else None)
    assert ("not in the log: ranks" in joined(log)) == (not known)


def test_great_numbers_of_ranks_need_a_multiple_of_eight(read):
    text = row(2**33, 20000.0, 20000.0, ranks=512)
    log = read(text)
    assert log.tests[0].ranks is None
    assert "which is not known" in joined(log)
    assert read(text, ranks=512).tests[0].ranks == 512
    assert read(row(2**33, 20000.0, 20000.0, ranks=64)).tests[0].ranks == 64


@pytest.mark.parametrize(
    ("algbw", "busbw", "span", "ranks"),
    [
        # 2 (n - 1) / n: 1.9091 of 22, 1.9130 of 23, 1.9167 of 24, 1.9200 of 25; busbw / algbw is 1.9122 to 1.9178
        ("8.00", "15.32", "23 to 24", 24),
        # 1.97468 of 79, 1.97500 of 80, 1.97727 of 88, 1.97753 of 89; this is 1.97493 to 1.97741
        ("60.00", "118.57", "80 to 88", None),
    ],
)
def test_the_one_multiple_of_eight_that_a_ratio_allows_is_taken(read, algbw, busbw, span, ranks):
    half = f"{2**26 / float(algbw) / 1e3:.2f} {algbw} {busbw} 0"
    log = read(f"{2**26} {2**24} float sum -1 {half} {half}", op="all_reduce")
    assert log.tests[0].ranks == ranks
    told = f"{span} ranks; {ranks} is taken" if ranks else f"{span} ranks: which is not known"
    assert f"busbw / algbw allows {told}" in joined(log)


def test_disagreement_of_list_and_rows_is_reported(read):
    log = read("\n".join([*HEAD[:4], COLUMNS, *ROWS]).replace("nGpus 8", "nGpus 1"))
    assert log.tests[0].ranks == 8
    assert "the list of ranks says 2 ranks, the rows 8" in joined(log)


def test_disagreement_with_an_override_is_reported(read):
    log = read(WHOLE, ranks=4)
    assert log.tests[0].ranks == 4
    assert "busbw / algbw is not that of all_reduce over 4 ranks" in joined(log)


def test_disagreement_with_the_named_operation_is_reported(read):
    log = read(WHOLE.replace("all_reduce_perf", "all_gather_perf"))
    assert log.tests[0].op == "all_gather"
    assert "the rows do not look like all_gather" in joined(log)


def test_overrides_beat_the_log(read):
    given = {"op": "allreduce", "ranks": 8, "nodes": 2, "dtype": "fp32", "redop": "max", "launch": "graph"}
    given |= {"registered": 2, "blocking": 1, "library": "RCCL", "library_version": "9.9"}
    test = read(WHOLE, **given).tests[0]
    assert (test.op, test.nodes, test.rows[0].dtype, test.rows[0].redop) == ("all_reduce", 2, "float", "max")
    run = test.run
    assert (run.launch, run.registered, run.blocking, run.library, run.library_version) == (
        "graph",
        2,
        1,
        "RCCL",
        "9.9",
    )


@pytest.mark.parametrize(
    "given", [{"opp": "x"}, {"op": "al_reduce"}, {"launch": "grph"}, {"dtype": "f17"}, {"ranks": 0}, {"nodes": "two"}]
)
def test_bad_overrides(read, given):
    with pytest.raises(InputError):
        read(WHOLE, **given)
    with pytest.raises(UnknownNameError, match="ranks"):
        read(WHOLE, rank=3)


@pytest.mark.parametrize("name", ["all_reduce_8.log", "my-allreduce.txt", "AllReduce.log"])
def test_operation_from_the_file_name(read, name):
    log = read("\n".join(row(2**p, 20.0, 20.0, ranks=2) for p in (20, 24)), name=name)
    assert log.tests[0].op == "all_reduce"
    assert "taken from the file's name" in joined(log)


def test_file_name_that_the_rows_contradict(read):
    log = read("\n".join(ROWS), name="all_gather.log")
    assert log.tests[0].op == "all_reduce"
    assert "names all_gather, which the rows contradict" in joined(log)


def test_command_line(read):
    command = "NCCL_ALGO=Ring mpirun -np 4 ./all_reduce_perf -t1 -g 2 -G 5 -R1 -z 1 -a 3 -d half --iters=7\n"
    run = read(command + "\n".join([COLUMNS, *ROWS])).tests[0].run
    assert (run.launch, run.graph_launches, run.registered, run.blocking, run.average) == ("graph", 5, 1, 1, 3)
    assert (run.gpus_per_thread, run.iterations, run.environment["NCCL_ALGO"]) == (2, 7, "Ring")
    assert run.command.startswith("NCCL_ALGO=Ring mpirun")


def test_settings_of_one_test_do_not_leak_into_the_next(read):
    first = "NCCL_ALGO=Ring ./all_reduce_perf -g 8 -R 1\n" + WHOLE
    second = "./all_reduce_perf -g 8\n" + WHOLE
    one, two = read("export NCCL_DEBUG=WARN\n" + first + second).tests
    assert (one.run.registered, two.run.registered) == (1, 0)
    assert dict(one.run.environment) == {"NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"}
    assert dict(two.run.environment) == {"NCCL_DEBUG": "WARN"}


@pytest.mark.parametrize(
    ("note", "library", "version"),
    [("NCCL 2.18", "NCCL", "2.18"), ("NCCL 2.16.5+cuda11.8", "NCCL", "2.16.5"), ("none", None, None),
     ("rccl-2.27.7, ROCm 7", "RCCL", "2.27.7"), ("NCCL (2020-03)", "NCCL", None),
     ("NCCL + aws-ofi-nccl 1.9.2", "NCCL", None)],
)  # fmt: skip
def test_a_comment_says_the_version_where_the_log_prints_none(read, note, library, version):
    """Every test of the file has it, and what the library itself prints is believed before it, wherever it stands."""
    comment = f"# kept by hand: op=all_reduce ; library={note} ; algo=\n"
    for test in read(comment + WHOLE + WHOLE).tests:
        assert (test.run.library, test.run.library_version) == (library, version)
    printed = "NCCL version 2.30.3+cuda13.0\n"
    for lines in (comment + printed, printed + comment):
        (test,) = read(lines + WHOLE).tests
        assert (test.run.library, test.run.library_version) == ("NCCL", "2.30.3+cuda13.0")


def test_versions_of_one_test_are_those_of_the_next(read):
    versions = "# nccl-tests version 2.13.8\nNCCL version 2.18.3+cuda12.1\n"
    one, two = read(versions + WHOLE + WHOLE).tests
    for run in (one.run, two.run):
        assert (run.program, run.program_version) == ("nccl-tests", "2.13.8")
        assert (run.library, run.library_version) == ("NCCL", "2.18.3+cuda12.1")


def test_numbers_that_rows_allow_are_told_as_one_or_as_a_range():
    assert [settlement._span(8, 8), settlement._span(7, 9)] == ["8", "7 to 9"]


def test_only_so_many_devices_are_kept(read, monkeypatch):
    monkeypatch.setattr(facts, "MAX_DEVICES", 3)
    read_facts = facts.Facts()
    for rank in range(5):
        facts.learn(device(rank), read_facts, {})
    assert sorted(read_facts.devices) == [0, 1, 2]


def test_nodes_need_the_whole_list(read):
    hosts = [device(r, f"crate-{r // 2}") for r in range(8)]
    assert read("\n".join([*HEAD[:2], *hosts, *ROWS])).tests[0].nodes == 4
    assert read("\n".join([*HEAD[:2], hosts[7], *ROWS]).replace("nGpus 8", "nGpus 1")).tests[0].nodes is None


def test_split_without_effect_is_told(read):
    log = read("# env: NCCL_TESTS_SPLIT_MASK=0x1\n" + WHOLE)
    assert log.tests[0].run.split == "AND 0x1"
    assert "NCCL_TESTS_SPLIT=AND 0x1 had no effect" in joined(log)


def test_row_that_breaks_off_keeps_its_first_half(read):
    cut = ROWS[-1].rsplit("  ", 4)[0]
    log = read("\n".join([*HEAD, *ROWS[:-1], cut]))
    last = log.tests[0].rows[11]
    assert last.time_s is not None
    assert last.in_place_time_s is None


def test_half_that_does_not_agree_is_dropped(read):
    spoilt = ROWS[5].split("  ")
    spoilt[5] = "999.99"
    log = read("\n".join([*HEAD, *ROWS[:5], "  ".join(spoilt), *ROWS[6:]]))
    bad = log.tests[0].rows[5]
    assert (bad.time_s, bad.algbw_Bps) == (None, None)
    assert bad.in_place_time_s is not None
    assert "out-of-place time" in log.dropped[0].reason
    assert log.dropped[0].line == len(HEAD) + 6


def test_row_whose_busbw_contradicts_the_rest_is_dropped(read):
    log = read("\n".join([*HEAD, *ROWS[:-1], row(2**27, 1362.0, 1361.0, ranks=2)]))
    assert len(log) == 11
    assert "busbw / algbw is not that of all_reduce over 8 ranks" in log.dropped[0].reason


def test_copies_without_reduction_begin_a_new_table(read):
    gathers = [row(2**p, 2**p / 1e5, 2**p / 1e5, "all_gather", 8) for p in range(18, 26)]
    log = read("\n".join([*HEAD, *ROWS, *gathers]))
    assert [len(test.rows) for test in log.tests] == [12, 8]
    assert [test.rows[0].redop for test in log.tests] == ["sum", "none"]


def test_long_tables_are_parted(read, monkeypatch):
    monkeypatch.setattr(log_reader_module, "MAX_ROWS", 5)
    log = read(WHOLE)
    assert [len(test.rows) for test in log.tests] == [5, 5, 2]
    assert {(test.op, test.ranks, test.nodes) for test in log.tests} == {("all_reduce", 8, 1)}


def test_listed_drops_are_limited(read):
    log = read("\n".join([*HEAD, *ROWS, *["8 2 float sum -1 XXX XXX XXX 0"] * 3000]))
    assert log.n_dropped == 3000
    assert len(log.dropped) == 1000


def test_stdin(monkeypatch):
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(WHOLE.encode()))))
    monkeypatch.setattr(sys, "stdin", stream)
    assert len(read_log("-")) == 12
    assert not stream.closed


def test_tests_come_one_by_one(tmp_path):
    path = tmp_path / "many.log"
    path.write_text(WHOLE * 3)
    tests = read_tests(path)
    assert [next(tests).first_line for _ in range(3)] == [1, 1 + WHOLE.count("\n"), 1 + 2 * WHOLE.count("\n")]


def test_dropped_reads_as_a_sentence():
    assert str(Dropped(7, "zero bytes", "0 0 float")) == 'line 7: zero bytes: "0 0 float"'


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_files_that_cannot_be_opened(tmp_path, name):
    with pytest.raises(SpecError, match="cannot be read"):
        read_log(tmp_path / name)


REFUSED = {
    "empty": b"",
    "blank": b"\n\n  \n",
    "binary": random.Random(1).randbytes(50_000),
    "header only": "\n".join(HEAD).encode(),
    "zeros": b"\0" * 10_000,
    "prose": b"The quick brown fox took 12 34 steps\n" * 50,
    "negative times": "\n".join("8 2 float sum -1 -3.00 0.00 0.00 0 -3.00 0.00 0.00 0" for _ in range(4)).encode(),
    "not numbers": b"8 2 float sum -1 nan nan nan 0 inf inf inf 0\n" * 4,
    "huge numbers": b"9999999999999999999999999 2 float sum -1 1e999 1.00 1.00 0 1e999 1.00 1.00 0\n",
    "wrong columns": b"name,age,city\nann,3,rome\n" * 10,
    "no size": b"time_us,busbw\n3.5,7\n",
    "open braces": b"{" * 10_000,
    "nested JSON": b'{"a":' * 5_000,
    "cut gzip": gzip.compress(WHOLE.encode())[:30],
    "broken gzip": b"\x1f\x8b\x08garbage and more garbage",
    "rows of another type": b"1048576 262144 apples sum -1 3.0\n" * 4,
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_without_a_usable_row(read, name):
    with pytest.raises(SpecError, match="no usable row") as caught:
        read(REFUSED[name])
    assert "needed:" in str(caught.value)


def shuffled() -> str:
    lines = WHOLE.splitlines()
    random.Random(3).shuffle(lines)
    return "\n".join(lines)


MUTILATED = {
    "cut in a row": (WHOLE[: WHOLE.index(ROWS[-1]) + 40], 11, "the row ends too early"),
    "cut in the first half": (WHOLE[: WHOLE.index(ROWS[-1]) + 24], 11, "the row ends too early"),
    "binary between": (WHOLE.replace(COLUMNS, "\x00\x01\x7f\ufffd" * 40), 12, ""),
    "a negative time": (WHOLE.replace(ROWS[4], ROWS[4].replace("-1  ", "-1  -")), 12, "out-of-place time and algbw"),
    "a NaN": (WHOLE.replace(ROWS[4], "1048576 262144 float sum -1 nan nan nan 0 nan nan nan 0"), 11, "is not a number"),
    "a huge time": (WHOLE.replace(ROWS[4], "1048576 262144 float sum -1 1e300 0 0 0 1e300 0 0 0"), 11, "belong"),
    "a huge size": (WHOLE.replace(ROWS[4], f"{10**30} 2 float sum -1 3 1 1 0 3 1 1 0"), 11, ""),
    "a long line": (WHOLE + "x" * 100_000, 12, "a line of 100000 characters"),
    "an extra column": (WHOLE.replace(ROWS[4], ROWS[4] + "  0  0  0  0  0"), 11, "belong"),
    "no beginning": (WHOLE.replace(ROWS[4], ROWS[4].split("  ", 5)[5]), 11, "the beginning of the row is missing"),
    "zero times": (
        WHOLE.replace(ROWS[4], "1048576 262144 float sum -1 0.00 0.00 0.00 0 0.00 0.00 0.00 0"),
        11,
        "time 0",
    ),
}


@pytest.mark.parametrize("name", MUTILATED)
def test_mutilated_files_give_what_is_left(read, name):
    text, rows, reason = MUTILATED[name]
    log = read(text)
    assert len(log) == rows
    assert {test.ranks for test in log.tests} == {8}
    assert any(reason in str(drop) for drop in log.dropped) or not reason


def test_shuffled_lines(read):
    log = read(shuffled())
    assert len(log) == 12
    assert {test.op for test in log.tests} <= {"all_reduce", None}


def test_cut_gzip_gives_what_could_be_unpacked(read):
    packed = gzip.compress(b"".join(f"{WHOLE}{i}\n".encode() for i in range(2000)), mtime=0)
    log = read(packed[: len(packed) // 2])
    assert 0 < len(log) < 12 * 2000
    assert "reading stopped after line" in joined(log)
    assert all(math.isfinite(r.time_s) for r in log.rows)


CSV = """op,ranks,type,redop,root,size_bytes,time_us
broadcast,4,float,none,0,1048576,21
{row}
broadcast,,,,,4194304,30
"""


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("broadcst,4,float,none,0,2097152,22", 'unknown operation "broadcst"; did you mean "broadcast"?'),
        ("foo,4,float,none,0,2097152,22", 'unknown operation "foo"'),
        *((f"broadcast,{n},float,none,0,2097152,22", f'ranks "{n}" is not a whole') for n in ("0", "-2", "x", "2.5")),
        ("broadcast,4,flooat,none,0,2097152,22", 'unknown data type "flooat"; did you mean "float"?'),
        ("broadcast,4,float,foo,0,2097152,22", 'unknown reduction "foo"'),
        ("broadcast,4,float,none,x,2097152,22", 'root "x" is not the number of a rank'),
        ("broadcast,4,float,none,7,2097152,22", "the root is none of the 4 ranks, 0 to 3"),
        ("broadcast,4,float,none,0,1048576000000000000000000,22", "no size in bytes"),
        ("broadcast,4,float,none,0,2097152,1e-300", "is no measurement"),
        ("broadcast,4,float,none,0,2097152,1e-4", "is no measurement"),
        ("broadcast,4,float,none,0,2097152,2e12", "is no measurement"),
    ],
)
def test_a_filled_cell_that_cannot_be_read_drops_its_row_and_an_empty_one_inherits(read, row, reason):
    log = read(CSV.format(row=row))
    assert [(r.op, r.ranks, r.size_bytes) for r in log.rows] == [("broadcast", 4, 2**20), ("broadcast", 4, 2**22)]
    assert [drop.line for drop in log.dropped] == [3]
    assert reason in log.dropped[0].reason


def test_an_override_stands_for_a_cell_that_cannot_be_read(read):
    log = read(CSV.format(row="foo,x,flooat,none,0,2097152,22"), op="broadcast", ranks=4, dtype="float")
    assert len(log) == 3
    assert not log.dropped


def test_names_of_runs_and_new_small_floats_are_no_faults(read):
    log = read("name,ranks,type,size_bytes,time_us\nrun one,4,f8e8m0,1048576,21\nrun two,4,ncclFloat,2097152,22\n")
    assert [r.dtype for r in log.rows] == ["f8e8m0", "float"]


@pytest.mark.parametrize("lost", ["inf  0.00  0.00  0", "nan  nan  nan  0", "20.00  inf  inf  0"])
def test_a_half_that_is_no_number_leaves_the_other(read, lost):
    start, sound = "1048576  262144  float  sum  -1  ", "  19.00  55.19  96.58  0"
    log = read("\n".join([*HEAD, start + lost + sound, start + sound + "  " + lost, *FOOT]))
    assert [(r.time_s, r.in_place_time_s) for r in log.rows] == [(None, 1.9e-5), (1.9e-5, None)]
    assert log.n_dropped == 2


def test_a_size_beyond_all_buffers_is_dropped_with_a_reason(read):
    log = read(WHOLE.replace(ROWS[3], "1048576000000000000000000" + ROWS[3]))
    assert len(log) == 11
    assert ["more than any buffer" in drop.reason for drop in log.dropped] == [True]


def test_json_rows_are_as_strict(read):
    sound = '{"name": "AllReduce", "ranks": 4, "size": 1048576, "type": "float", "redop": "sum", "time": 21.5}'
    log = read("\n".join((sound, sound.replace("AllReduce", "AllReduc"), sound.replace("4", "0", 1), sound)))
    assert len(log) == 2
    assert [drop.line for drop in log.dropped] == [2, 3]


@pytest.mark.parametrize(
    ("names", "per_us"),
    [
        (("time_us", "in_place_time_us"), (1, 1)),
        (("time_ms", "in_place_time_us"), (1e3, 1)),
        (("time_us", "in_place_time_ms"), (1, 1e3)),
        (("out_of_place_time_s", "ip_time_ms"), (1e6, 1e3)),
        (("time(ns)", "in-place time(s)"), (1e-3, 1e6)),
    ],
)
def test_each_half_of_a_table_has_the_unit_of_its_own_column(read, names, per_us):
    times_us = [(20 + 2**power / 1e5, 19 + 2**power / 1e5) for power in range(20, 27)]
    lines = [f"size,type,{names[0]},busbw,{names[1]},in_place_busbw"]
    for power, pair in zip(range(20, 27), times_us, strict=True):
        busbw = [f"{2**power / time / 1e3 * 1.75:.4f}" for time in pair]
        cells = [f"{time / unit:.9g}" for time, unit in zip(pair, per_us, strict=True)]
        lines.append(f"{2**power},float,{cells[0]},{busbw[0]},{cells[1]},{busbw[1]}")
    log = read("\n".join(lines), "bench.csv", op="all_reduce", ranks=8)
    assert [(row.time_s, row.in_place_time_s) for row in log.rows] == [
        pytest.approx((out * 1e-6, into * 1e-6), rel=1e-6) for out, into in times_us
    ]


CHOICES = [("TREE", "LL", 16), ("RING*", "SIMPLE", 56), ("N/A", "N/A", "N/A")]
CHOICE_COLUMNS = f"{COLUMNS} algo proto nchannels"


@pytest.mark.parametrize("header", [(), (CHOICE_COLUMNS,)])
def test_columns_of_the_choice(tmp_path, header):
    lines = [THREADS.format(ranks=8), *header]
    told = CHOICES if header else CHOICES[:2]
    lines += [f"{row(2**20 * 4**i, 40.0 * 4**i, 39.0 * 4**i)}  {a}  {p}  {n}" for i, (a, p, n) in enumerate(told)]
    (tmp_path / "all_reduce.log").write_text("\n".join(lines) + "\n")
    log = read_log(tmp_path / "all_reduce.log")
    assert [(found.algo, found.proto, found.channels) for found in log.rows] == [
        ("tree", "LL", 16), ("ring", "Simple", 56), (None, None, None),
    ][: len(told)]  # fmt: skip
    assert [found.time_s for found in log.rows] == [4e-5, 1.6e-4, 6.4e-4][: len(told)]
    assert [found.in_place_time_s for found in log.rows] == [3.9e-5, 1.56e-4, 6.24e-4][: len(told)]
    assert log.n_dropped == 0


def _with_clock(line: str) -> str:
    cells = line.split()
    return " ".join([*cells[:6], f"{float(cells[5]) * 0.93:.2f}", *cells[6:10], "1.00", *cells[10:]])


@pytest.mark.parametrize("header", [(), (COLUMNS.replace("time", "time hipevt"),)])
def test_a_second_clock_changes_nothing(tmp_path, header):
    rows = [row(2**20 * 4**i, 41.2 * 4**i, 40.38 * 4**i) for i in range(4)]
    for name, lines in (("plain", rows), ("clock", [*header, *map(_with_clock, rows)])):
        (tmp_path / f"{name}_all_reduce.log").write_text("\n".join([THREADS.format(ranks=8), *lines]) + "\n")
    plain, clock = (read_log(tmp_path / f"{name}_all_reduce.log") for name in ("plain", "clock"))
    assert [(a.time_s, a.in_place_time_s) for a in clock.rows] == [(a.time_s, a.in_place_time_s) for a in plain.rows]
    assert [note.partition(": ")[2] for note in clock.warnings] == [note.partition(": ")[2] for note in plain.warnings]


HALVES = "#  size  count  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"


@pytest.mark.parametrize(
    ("order", "gap", "out_of_place"),
    [
        ("in-place {} out-of-place", True, True),
        ("in-place {} out-of-place", False, False),
        ("out-of-place {} in-place", True, False),
        ("out-of-place {} in-place", False, True),
    ],
)
def test_a_blank_half(tmp_path, order, gap, out_of_place):
    """The gap says which half of the line is blank, the line above the names which half that is."""
    lines = ["# all_reduce on 8 ranks", "# " + order.format(" " * 30), HALVES]
    for size, time in ((2**28, 1812.4), (2**30, 7186.2)):
        rate = size / time / 1e3
        lines.append(f"{size} {size // 4} {' ' * 30 * gap} {time} {rate:.2f} {rate * 1.75:.2f} 0{' ' * 30}")
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    test = read_log(tmp_path / "a.log").tests[0]
    assert (test.op, test.ranks) == ("all_reduce", 8)
    times = [1.8124e-3, 7.1862e-3]
    assert [found.time_s for found in test.rows] == (times if out_of_place else [None, None])
    assert [found.in_place_time_s for found in test.rows] == ([None, None] if out_of_place else times)


@pytest.mark.parametrize(
    ("lines", "seats"),
    [
        ([device(4), device(7)], ((0, 4), (0, 7))),
        ([device(4), device(7, "crate-02")], ((0, 4), (1, 7))),
        ([device(0), device(0)], ()),
        (["CUDA_VISIBLE_DEVICES=4,7", device(0), device(1)], ((0, 4), (0, 7))),
    ],
)
def test_seats(tmp_path, lines, seats):
    """Devices of ranks; none if one is named twice, as where every process sees one device only."""
    listed, numbered = [], 0
    for line in lines:
        listed.append(re.sub(r"Rank\s+\d+", f"Rank {numbered}", line))
        numbered += "Rank" in line
    text = [THREADS.format(ranks=1), *listed, row(2**20, 40, 40, ranks=2)]
    (tmp_path / "all_reduce.log").write_text("\n".join(text) + "\n")
    assert read_log(tmp_path / "all_reduce.log").tests[0].run.seats == seats


def test_a_log_that_never_ends(tmp_path, monkeypatch):
    from collsim.calibration.logs import lines, reading

    path = tmp_path / "all_reduce.log"
    path.write_text("y\n" * 1000 + row(2**20, 40, 40) + "\n")
    assert len(read_log(path)) == 1
    monkeypatch.setattr(lines, "MOST_BYTES", 100)
    with pytest.raises(SpecError, match="a log has at most 100 bytes"):
        read_log(path)
    monkeypatch.undo()
    monkeypatch.setattr(reading, "MOST_LINES_WITHOUT_ROWS", 500)
    with pytest.raises(SpecError, match="reading stopped after line 500: no row until there"):
        read_log(path)
    path.write_text(row(2**20, 40, 40) + "\n" + "y\n" * 1000)
    assert len(read_log(path)) == 1


def test_a_device_is_no_log():
    with pytest.raises(SpecError, match="this is a device, which may never end"):
        read_log("/dev/zero")
