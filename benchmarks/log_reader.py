"""Measure the log reader, or run it over a folder.

``python benchmarks/log_reader.py`` writes a log of 1 GB into a temporary folder, reads it and prints its rate
and peak memory;
``--mode rows`` fills it with tables only, ``--mode debug`` mostly with debug text, ``--mode one`` with a single table.
``python benchmarks/log_reader.py --folder DIR`` prints what is read from every file of a folder.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from collsim.calibration import Test, read_tests
from collsim.core.errors import CollsimError

RANKS = 8
SIZES = [2**power for power in range(10, 31)]
HEADER = (
    "# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0\n#\n# Using devices\n"
    + "".join(f"#  Rank {r:2} Group  0 Pid   4711 on    gpu-01 device {r:2} [0x00] Example GPU\n" for r in range(RANKS))
    + "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n#\n"
DEBUG = "gpu-01:4711:4712 [0] NCCL INFO Channel {n:02}/0 : 0[0] -> 1[1] via P2P/direct pointer, made-up text\n"


def row(size: int, index: int) -> str:
    """Return a made-up row."""
    time_us = 20 + size / 200e3 + index % 7 * 0.13
    rate = size / time_us / 1e3
    half = f"  {time_us:7.2f}  {rate:6.2f}  {rate * 1.75:6.2f}      0"
    return f"{size:12}  {size // 4:12}     float     sum      -1{half}{half}\n"


def pieces(mode: str) -> Iterator[str]:
    """Yield the text of a log without end."""
    index = 0
    if mode == "one":
        yield HEADER
    while True:
        table = "".join(row(size, index + place) for place, size in enumerate(SIZES))
        debug = "".join(DEBUG.format(n=n) for n in range(200)) if mode == "debug" else ""
        yield table if mode == "one" else debug + HEADER + table + FOOTER
        index += 1


def write_log(path: Path, size_bytes: int, mode: str) -> int:
    """Write a made-up log and return its size."""
    written = 0
    with path.open("w", encoding="ascii") as file:
        for piece in pieces(mode):
            written += file.write(piece)
            if written >= size_bytes:
                return written
    return written


def measure(size_bytes: int, mode: str) -> None:
    """Write, read and report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all_reduce.log"
        written = write_log(path, size_bytes, mode)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        tests = rows = dropped = 0
        for test in read_tests(path):
            tests, rows, dropped = tests + 1, rows + len(test.rows), dropped + test.n_dropped
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"mode {mode}: {written / 1e9:.2f} GB, {tests} tests, {rows} rows, {dropped} dropped")
    print(f"{seconds:.1f} s, {written / 1e6 / seconds:.1f} MB/s, {rows / seconds:.0f} rows/s")
    print(f"peak memory {peak / 1024:.0f} MiB, {before / 1024:.0f} MiB before reading")


def describe(test: Test) -> str:
    """Return one line for a test."""
    run = test.run
    version = f"{run.library or '?'} {run.library_version or '?'}"
    return (
        f"  {test.op or '?'} ranks={test.ranks} nodes={test.nodes} rows={len(test.rows)} dropped={test.n_dropped} "
        f"launch={run.launch} registered={run.registered} blocking={run.blocking} {version} split={run.split}"
    )


def show_folder(folder: Path, verbose: bool) -> None:
    """Read every file of a folder and print what came of it."""
    files = refused = rows = 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        files += 1
        print(path.relative_to(folder))
        try:
            for test in read_tests(path):
                rows += len(test.rows)
                print(describe(test))
                for note in test.warnings:
                    print(f"    note: {note}")
                for drop in test.dropped if verbose else test.dropped[:3]:
                    print(f"    dropped: {drop}")
        except CollsimError as error:
            refused += 1
            print(f"  refused: {error}")
    print(f"{files} files, {refused} refused, {rows} rows")


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--verbose", action="store_true", help="list all dropped lines")
    parser.add_argument("--mode", choices=("rows", "debug", "one"), default="rows")
    parser.add_argument("--bytes", type=float, default=1e9)
    options = parser.parse_args()
    if options.folder:
        show_folder(options.folder, options.verbose)
    else:
        measure(int(options.bytes), options.mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
