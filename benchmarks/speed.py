"""Measure how long whole runs take, warm, with the start of Python; and how the time grows with the machine.

``python benchmarks/speed.py --write`` puts the tables into docs/speed.md and a few rows into README.md, between
their markers; ``--rounds 1`` is a quick look, and words after that choose the rows that contain one of them. Every work
is also run with one link at half rate, with one rank less and with a number of nodes that is no power of two, so that
no figure rests on a lucky shape.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "speed.md"
IN_README = (
    "any run on one node, eleven sizes",
    "all-to-all, 1,024 ranks on one switch",
    "all-to-all, 1,024 H100 in 128 nodes",
    "hierarchical all-reduce, 131,072 ranks",
    "all-to-all, 131,072 ranks",
)
"""Works that README.md shows, without their variants."""
BEGIN, END = "<!-- speed -->\n\n", "\n<!-- /speed -->\n"
COLLSIM = Path(sys.executable).parent / "collsim"

RAILS = "--topo hgx_h100 --profile ideal"
LARGE = f"{RAILS} --set scale_out.radix=128"
A2A = "--op all_to_all --algo direct --size 64M"
RING = "--op all_reduce --algo ring --channels 1 --size 64M"
TREE = "--op all_reduce --algo tree --channels 1 --size 64M --chunk 4M"
LEVELS = "--op all_reduce --algo hierarchical --size 64M"
SLOW_GPU, SLOW_NIC = "--degrade link:gpu3-sw0=50%", "--degrade link:n3.nic[04]-leaf[04]=50%"
SWEEP = """
from collsim import simulate
sizes = [4096 * (i + 1) for i in range(250)]
for topo in ("mi355x_ubb8", "hgx_h100"):
    for op in ("all_to_all", "all_reduce"):
        assert len(simulate(topo, op, sizes).rows) == 250
"""


LONG_S = 30
"""A work that may take so long is run once."""


@dataclass(frozen=True)
class Work:
    """What is run, how long it may take and how much memory it may have, and the same on other shapes."""

    name: str
    commands: Sequence[str]
    bar_s: float
    bar_mb: float | None = None
    slow: str | None = None
    odd: str | None = None
    other: str | None = None
    cold: bool = False
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By name: the kind of file and its number of ranks."""


@dataclass(frozen=True)
class Measured:
    """The median time and the most memory of some rounds of the slowest of several commands."""

    time_s: float
    memory_mb: float


def switch(n: int) -> str:
    """Return a file of so many GPUs on one switch."""
    figures = "link: {bandwidth: 50 GB/s, latency: 500 ns}, switch: {planes: 1}"
    return f"{{schema: collsim.topology/1, builder: switched, gpu: {{count: {n}}}, {figures}}}"


def ring(n: int) -> str:
    """Return a file of so many GPUs, each wired to the one before and the one after."""
    nodes = ", ".join(f"{{name: g{i}}}" for i in range(n))
    links = ", ".join(f"{{a: g{i}, b: g{(i + 1) % n}}}" for i in range(n))
    head = "schema: collsim.topology/1, builder: explicit, link: {bandwidth: 50 GB/s, latency: 500 ns}"
    return f"{{{head}, nodes: [{nodes}], links: [{links}]}}"


def zipf(n: int, seed: int = 7) -> str:
    """Return a matrix of bytes as MoE dispatch has them: experts' loads fall off by their rank (Zipf, exponent 1)."""
    import numpy as np  # not above: a process counts the memory of the one that starts it as its own

    rng = np.random.default_rng(seed)
    popular = rng.permutation(1 / np.arange(1, n + 1))
    table = np.rint(rng.random((n, n)) * popular * (2**20 * n / popular.sum())).astype(np.int64)
    np.fill_diagonal(table, 0)
    return "\n".join(",".join(map(str, row)) for row in table.tolist())


KINDS = {"switch": switch, "ring": ring, "zipf": zipf}
SWITCH = {"switch.yaml": ("switch", 1024), "other.yaml": ("switch", 1000)}
RINGS = {"ring.yaml": ("ring", 1024), "odd.yaml": ("ring", 1023), "other.yaml": ("ring", 1000)}


def on_switch(name: str, rest: str, bar_s: float, bar_mb: float) -> Work:
    """Return a work of 1,024 ranks on one switch."""
    base = f"--profile ideal {rest}"
    return Work(
        name, [f"run --topo switch.yaml {base}"], bar_s, bar_mb, f"run --topo switch.yaml {base} {SLOW_GPU}",
        f"run --topo switch.yaml {base} --ranks 1023", f"run --topo other.yaml {base}", files=SWITCH,
    )  # fmt: skip


def on_nodes(name: str, nodes: int, rest: str, bar_s: float, bar_mb: float, *, other: int, odd: bool = True) -> Work:
    """Return a work of nodes with eight H100 on rails; algorithms that need equal nodes have no odd number of ranks."""
    base = f"run {LARGE if nodes > 1024 else RAILS}"
    return Work(
        name, [f"{base} --nodes {nodes} {rest}"], bar_s, bar_mb, f"{base} --nodes {nodes} {rest} {SLOW_NIC}",
        f"{base} --nodes {nodes} --ranks {8 * nodes - (1 if odd else 8)} {rest}", f"{base} --nodes {other} {rest}",
    )  # fmt: skip


FAILED = "--fail nic:node3/5"
WORKS = (
    Work(
        "any run on one node, eleven sizes",
        [
            "run --topo mi355x_ubb8 --op all_to_all", "run --topo hgx_h100 --op all_reduce",
            "run --topo gb200_nvl72 --op all_reduce", "run --topo mi300x_ubb8 --op all_reduce --profile ideal",
        ],
        0.4, 150, "run --topo mi355x_ubb8 --op all_to_all --degrade link:gpu0-gpu1=50%",
        "run --topo hgx_h100 --op all_reduce --ranks 7", "run --topo gb200_nvl72 --op all_reduce --ranks 36",
    ),
    Work("`collsim --help`", ["--help"], 0.15, 150),
    on_switch("all-to-all, 1,024 ranks on one switch", A2A, 0.5, 200),
    on_switch("ring all-reduce, 1,024 ranks on one switch", RING, 0.5, 200),
    on_switch("the same all-to-all, `--no-reduce`", f"{A2A} --no-reduce", 3, 600),
    on_switch("the same ring, `--no-reduce`", f"{RING} --no-reduce", 3, 600),
    Work(
        "all-to-all, 1,024 ranks in a ring of links", [f"run --topo ring.yaml --profile ideal {A2A}"], 3, 1000, None,
        f"run --topo odd.yaml --profile ideal {A2A}", f"run --topo other.yaml --profile ideal {A2A}", files=RINGS,
    ),
    on_nodes("all-to-all, 1,024 H100 in 128 nodes", 128, A2A, 1, 400, other=100),
    on_nodes("the same, one adapter failed", 128, f"{A2A} {FAILED}", 1, 400, other=100),
    *(
        Work(
            f"NCCL's all-to-all, {nodes} nodes of H100, one adapter failed, eleven sizes",
            [f"run --topo h100_rail --nodes {nodes} --op all_to_all --fail nic:node3/2"], bar_s, bar_mb,
            None, None, f"run --topo h100_rail --nodes {nodes} --op all_to_all --fail spine:1",
        )
        for nodes, bar_s, bar_mb in ((64, 1.8, 220), (128, 2.2, 250), (333, 3.2, 510))  # four times as in order
    ),
    on_nodes("the same, 2:1 oversubscribed", 128, f"{A2A} --set scale_out.oversubscription=2", 1, 400, other=100),
    *(
        Work(
            f"all_to_all_v, Zipf, {n} ranks, {told}", [f"run --topo switch.yaml --profile ideal {asked}"], bar_s, 1000,
            f"run --topo switch.yaml --profile ideal {asked} {SLOW_GPU}",
            f"run --topo odd.yaml --profile ideal {asked.replace('zipf', 'odd')}", None,
            files={
                "switch.yaml": ("switch", n), "odd.yaml": ("switch", n - 1), "zipf.csv": ("zipf", n),
                "odd.csv": ("zipf", n - 1),
            },
        )
        for n, told, asked, bar_s in (
            (64, "exact", "--op all_to_all_v --matrix zipf.csv --algo direct --tolerance 0", 0.7),
            (256, "1 %", "--op all_to_all_v --matrix zipf.csv --algo direct --tolerance 1%", 2),
            (1024, "1 %", "--op all_to_all_v --matrix zipf.csv --algo direct --tolerance 1%", 60),
        )
    ),
    on_nodes("ring all-reduce, 16,384 ranks", 2048, RING, 1, 1000, other=2000),
    on_nodes("ring all-reduce, 131,072 ranks", 16384, RING, 2.5, 1000, other=15000),
    on_nodes("double binary tree, 16,384 ranks, 16 chunks", 2048, TREE, 5, 1000, other=2000),
    on_nodes("hierarchical all-reduce, 16,384 ranks", 2048, LEVELS, 1.5, 1000, other=2000, odd=False),
    on_nodes("the same, one adapter failed", 2048, f"{LEVELS} {FAILED}", 1.5, 1000, other=2000, odd=False),
    on_nodes("hierarchical all-reduce, 131,072 ranks", 16384, LEVELS, 5, 1000, other=15000, odd=False),
    on_nodes("the same, one adapter failed", 16384, f"{LEVELS} {FAILED}", 5, 1000, other=15000, odd=False),
    on_nodes("all-to-all, 131,072 ranks", 16384, A2A, 1, 400, other=15000),
    on_nodes("the same, one adapter failed", 16384, f"{A2A} {FAILED}", 1, 400, other=15000),
    Work(
        "first run with nothing compiled yet",
        [f"run {RAILS} --nodes 16 --op all_reduce --algo ring --size 64M --no-reduce"], 5, None, cold=True,
    ),
    Work("1,000 small points in one process", [f"-c {shlex.quote(SWEEP)}"], 5),
)  # fmt: skip


def measure(command: str, folder: Path, rounds: int, *, cold: bool = False) -> Measured:
    """Run a command several times."""
    start = [sys.executable] if command.startswith("-c") else [str(COLLSIM)]
    times, memory_mb = [], 0.0
    for number in range(rounds + (not cold and rounds > 1)):
        environment = os.environ | ({"NUMBA_CACHE_DIR": tempfile.mkdtemp(dir=folder)} if cold else {})
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever installs a package has its bytecode
        began = time.perf_counter()
        with subprocess.Popen(
            start + shlex.split(command), cwd=folder, env=environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            told = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            print(f"{command[:200]}: {told}", file=sys.stderr)
            return Measured(float("nan"), memory_mb)
        if number or cold or rounds == 1:  # the first of several warms up
            times.append(time.perf_counter() - began)
        memory_mb = max(memory_mb, usage.ru_maxrss / 1000)
    return Measured(statistics.median(times), memory_mb)


def row(work: Work, rounds: int) -> str:
    """Return the line of a work."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, (kind, n) in work.files.items():
            with (folder / name).open("w") as file:
                subprocess.run([sys.executable, __file__, "--make", kind, str(n)], stdout=file, check=True)
        rounds = rounds if work.bar_s < LONG_S else 1
        found = [measure(command, folder, rounds, cold=work.cold) for command in work.commands]
        others = [
            "" if command is None else f"{measure(command, folder, 1).time_s:.2f}".replace("nan", "refused")
            for command in (work.slow, work.odd, work.other)
        ]
    time_s, memory_mb = max(each.time_s for each in found), max(each.memory_mb for each in found)
    bar_mb = "" if work.bar_mb is None else f" ({work.bar_mb:g})"
    met = time_s <= work.bar_s and (work.bar_mb is None or memory_mb <= work.bar_mb)
    cells = [work.name, f"{time_s:.2f} ({work.bar_s:g})", f"{memory_mb:.0f}{bar_mb}", *others, "yes" if met else "no"]
    return f"| {' | '.join(cells)} |"


def growth(rounds: int) -> list[str]:
    """Return how the time without start and topology grows with the ranks."""
    import numpy as np

    from collsim import simulate
    from collsim.topology import load_topology

    lines = []
    for name, asked in (
        ("all-to-all", {"op": "all_to_all", "algo": "direct"}),
        ("ring all-reduce", {"op": "all_reduce", "algo": "ring", "channels": 1}),
        ("hierarchical all-reduce", {"op": "all_reduce", "algo": "hierarchical"}),
    ):
        ranks, times = [], []
        for nodes in (256, 1024, 4096, 16384):
            topology = load_topology("hgx_h100", scale_out={"nodes": nodes, "radix": 128})
            spent = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                simulate(topology, size="64M", profile="ideal", **asked)
                spent.append(time.perf_counter() - began)
            ranks.append(8 * nodes)
            times.append(min(spent[1:]))
        exponent = np.polyfit(np.log(ranks), np.log(times), 1)[0]
        shown = ", ".join(f"{n:,}: {spent_s * 1e3:.0f} ms" for n, spent_s in zip(ranks, times, strict=True))
        lines.append(f"* {name}: n^{exponent:.2f} ({shown})")
    return lines


def report(rounds: int, words: Sequence[str]) -> str:
    """Return the tables as Markdown."""
    lines = [
        f"Median of {rounds} whole processes on {os.cpu_count()} cores, in seconds and MB; in brackets what they",
        "should need at most. Large machines are H100 nodes on rails with `--profile ideal` and 64 MiB, rings and",
        "trees on one channel; `benchmarks/speed.py` has the commands. With latencies, or on all channels, rings take",
        "a few times longer.",
        "",
        "| Work | Time | Memory | one link at half rate | one rank or node less | no power of two | met |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work in WORKS:
        if not words or any(word in work.name for word in words):
            lines.append(row(work, rounds))
            print(lines[-1], flush=True)
    if not words:
        lines += ["", "How the time grows with the ranks, without start and topology:", "", *growth(rounds)]
    return "\n".join(lines) + "\n"


def short(text: str) -> str:
    """Return the rows of *text* that README.md shows: work, time and memory."""
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in text.splitlines() if line.startswith("| ")]
    shown = [row for row in rows if row[0] in (*IN_README, "Work")]
    lines = [f"| {' | '.join(row)} |" for row in (shown[0], ["---"] * 3, *shown[1:])]
    return "\n".join([*lines, "", "Median of seconds and MB on 2 cores; in brackets the bars.", ""])


def write(text: str) -> None:
    """Put the tables between their markers."""
    sys.path.append(str(ROOT / "tools"))
    from pages import put_between

    put_between(PAGE, BEGIN, END, text)
    put_between(README, BEGIN, END, short(text))


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/speed.md and README.md")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each work (default 5)")
    parser.add_argument("--make", nargs=2, metavar=("KIND", "RANKS"), help="only print a file that works need")
    parser.add_argument("words", nargs="*", help="only the works whose names contain one of these")
    asked = parser.parse_args()
    if asked.make:
        print(KINDS[asked.make[0]](int(asked.make[1])))
        return
    text = report(asked.rounds, asked.words)
    if asked.write:
        write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
