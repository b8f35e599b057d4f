"""Measure every preset with every operation at its own size, as it is typed: no flag but the operation.

``python benchmarks/presets.py --write`` puts the table into docs/presets.md; words after that choose presets by name,
the lines of the others stay. Every cell is a process of its own, one at a time, with limits on CPU time and memory.
CPU seconds are those of user and system, with the start of Python, so that other work on the machine hardly matters.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "presets.md"
BEGIN, END = "<!-- presets -->\n\n", "\n<!-- /presets -->\n"
COLLSIM = Path(sys.executable).parent / "collsim"
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
OPS += ("send_recv",)
WARM = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Whoever installs a package has its bytecode; kernels are compiled by what runs first."""
CPU_S, MEMORY_GB = 120, 12
LETTERS = {"transfers": "t", "classes": "c", "nearly alike": "n", "tolerance": "w", "wavefront": "s"}
"""What a cell says of a path, by the word that the path has."""


def presets() -> list[str]:
    """Return the names of all presets, nodes before clusters, as ``collsim topo list`` has them."""
    folder = ROOT / "topologies"
    return [path.stem for part in (folder, folder / "clusters") for path in sorted(part.glob("*.yaml"))]


def _capped() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_GB * 2**30, MEMORY_GB * 2**30))


def cell(preset: str, op: str) -> str:
    """Run one command; return its cell."""
    command = [str(COLLSIM), "run", "--topo", preset, "--op", op, "-q", "--format", "json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=WARM, preexec_fn=_capped)  # noqa: PLW1509
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, told = out.read(), err.read()
    spent = f"{used.ru_utime + used.ru_stime:.2f} s {used.ru_maxrss / 1000:.0f}"
    if process.returncode < 0:
        return f"{spent} **stopped**"
    if not text:
        print(preset, op, told.strip(), file=sys.stderr)
        return f"{spent} **refused**"
    result = json.loads(text)
    for each in dict.fromkeys(each["what"] for each in result["refused"]):
        print(preset, op, each, file=sys.stderr)
    lost = f" **{len(result['refused'])} refused**" if result["refused"] else ""
    paths = "; ".join(row["path"] for row in result["results"])
    return f"{spent} {''.join(letter for word, letter in LETTERS.items() if word in paths)}{lost}"


def line(name: str) -> str:
    """Return the line of a preset."""
    return f"| {name} | " + " | ".join(cell(name, op) for op in OPS) + " |"


def write(name: str, text: str) -> None:
    """Put the line of a preset into the page, beside those that it has of others."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    old, after = rest.split(END)
    known = {row.split(" | ")[0].removeprefix("| "): row for row in old.splitlines()[2:]} | {name: text}
    head = "| preset | " + " | ".join(OPS) + " |\n| --- |" + " --- |" * len(OPS) + "\n"
    body = "".join(f"{known[each]}\n" for each in presets() if each in known)
    PAGE.write_text(before + BEGIN + head + body + END + after, encoding="utf-8")


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/presets.md")
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    asked = parser.parse_args()
    for name in asked.presets or presets():
        text = line(name)
        print(text, flush=True)
        if asked.write:
            write(name, text)


if __name__ == "__main__":
    main()
