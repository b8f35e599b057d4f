"""Measure what is typed: library's choice, calibrated profile, all channels, eleven sizes, whole machines.

Every command is a process of its own with the start of Python, capped in CPU time and memory. One line of Markdown for
each: what was asked, CPU seconds (of user and system, so that other work on the machine hardly matters), peak memory,
how many sizes were answered, by which paths, and why others were refused. Words choose the sets; ``--list`` names them.

    python benchmarks/typed.py nodes own
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

COLLSIM = Path(sys.executable).parent / "collsim"
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
OPS += ("send_recv",)
TWO = ("all_reduce", "all_to_all")
WARM = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Whoever installs a package has its bytecode; kernels are compiled by what runs first."""
CPU_S, MEMORY_GB = 120, 4
TOPOLOGIES = Path(__file__).parent.parent / "topologies"
LARGE = "--topo hgx_h100 --set scale_out.radix=128"
FAILED = ("nic:node3/5", "leaf:2", "spine:1")
GROUPS = ("MOD 8", "DIV 8", "DIV 64")


def one_node() -> Iterator[str]:
    """Yield every system of one node with every operation."""
    for path in sorted(TOPOLOGIES.glob("*.yaml")):
        yield from (f"--topo {path.stem} --op {op}" for op in OPS)


def rails(*nodes: int, ops: tuple[str, ...] = OPS) -> Iterator[str]:
    """Yield H100 on rails."""
    yield from (f"--topo h100_rail --nodes {n} --op {op}" for n in nodes for op in ops)


def own(ops: tuple[str, ...] = TWO) -> Iterator[str]:
    """Yield every cluster at its own size."""
    for path in sorted((TOPOLOGIES / "clusters").glob("*.yaml")):
        yield from (f"--topo {path.stem} --op {op}" for op in ops)


def huge(nodes: int) -> Iterator[str]:
    """Yield a large machine of H100, with all GPUs and with seven of each node."""
    for part in ("", " --gpus-per-node 7"):
        yield from (f"{LARGE} --nodes {nodes} --op {op}{part}" for op in TWO)


def tall() -> Iterator[str]:
    """Yield a fat tree of three tiers, 2:1 oversubscribed, with ECMP."""
    tree = "--topo hgx_h100 --nodes 512 --fabric fat_tree --network roce --set scale_out.oversubscription=2"
    yield from (f"{tree} --op {op}" for op in TWO)


def split() -> Iterator[str]:
    """Yield groups of 4,096 GPUs."""
    for way in GROUPS:
        yield from (f'--topo h100_rail --nodes 512 --op {op} --split "{way}"' for op in TWO)
    for over in ("tp", "dp"):
        yield from (f"--topo h100_rail --nodes 512 --op {op} --groups tp=8,dp=512 --over {over}" for op in TWO)


def failed(*nodes: int) -> Iterator[str]:
    """Yield H100 on rails of which an adapter, a leaf or a spine has failed."""
    for n in nodes:
        yield from (f"--topo h100_rail --nodes {n} --op {op} --fail {what}" for op in TWO for what in FAILED)


SETS = {
    "one": one_node, "rail64": lambda: rails(64), "own": own, "rails": lambda: rails(128, 333, 512, 1024, ops=TWO),
    "2048": lambda: huge(2048), "16384": lambda: huge(16384), "tall": tall, "split": split,
    "failed": lambda: failed(64, 128), "own9": lambda: own(OPS),
}  # fmt: skip


def _capped() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GB * 2**30, MEMORY_GB * 2**30))


def measure(asked: str) -> str:
    """Run one command; return its line."""
    command = [str(COLLSIM), "run", *shlex.split(asked), "-q", "--format", "json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=WARM, preexec_fn=_capped)  # noqa: PLW1509
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        told, text = err.read(), out.read()
    if process.returncode < 0:
        answered, paths, why = "0", "", f"stopped after {CPU_S} s"
    elif not text:
        answered, paths, why = "0", "", told.strip().replace("\n", " ")[-150:]
    else:
        result = json.loads(text)
        rows = result["results"]
        answered = str(len(rows))
        kinds = dict.fromkeys(f"{row['algo']}: {row['path']}" for row in rows)
        paths, why = "; ".join(kinds), "; ".join(dict.fromkeys(each["what"] for each in result["refused"]))[:200]
    seconds = used.ru_utime + used.ru_stime
    return f"| {asked} | {seconds:.2f} | {used.ru_maxrss / 1000:.0f} | {answered} | {paths} | {why} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="only print the commands")
    parser.add_argument("--only", default="", help="only commands that contain this")
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    asked = parser.parse_args()
    if not asked.list:
        print("| command | CPU s | MB | sizes | path | refused |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in asked.sets or SETS:
        for command in SETS[name]():
            if asked.only in command:
                print(command if asked.list else measure(command), flush=True)


if __name__ == "__main__":
    main()
