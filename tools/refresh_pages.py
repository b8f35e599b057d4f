"""Run every collsim command that README.md and the pages show and write its output below it.

The tests compare the two, so that no page shows what the tool does not print.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from collsim.core.errors import PARTLY

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CANDIDATES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
ANSWERED = (0, 1, PARTLY)
PAGES = [page for page in CANDIDATES if BLOCK.search(page.read_text(encoding="utf-8"))]


def commands(block: str) -> Iterator[tuple[str, str, str]]:
    """Yield each command of a block as it is written, what of it to run (the end of a chain), and what stands below."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(i for i, line in enumerate(lines, start=1) if not line.endswith("\\\n"))
        written = "".join(lines[:end])
        yield written, written.replace("\\\n", " ").rpartition("&& ")[2].strip(), "".join(lines[end:])


def output_of(line: str) -> str:
    """Return the stdout of a command, which may find something unsound or answer a part of what it is asked."""
    found = subprocess.run(line, shell=True, check=False, capture_output=True, text=True, cwd=ROOT)
    if found.returncode not in ANSWERED:
        found.check_returncode()
    return found.stdout


def refreshed(match: re.Match[str]) -> str:
    """Return the block with the output of each collsim command below it."""
    text = ""
    for written, line, shown in commands(match[1]):
        text += f"$ {written}{output_of(line) if line.startswith('collsim ') else shown}"
    return f"```console\n{text}```"


def asked() -> list[Path]:
    """Return the pages that the command line names, all without one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="only these, such as docs/moe.md")
    return parser.parse_args().pages or PAGES


if __name__ == "__main__":
    for page in asked():
        page.write_text(BLOCK.sub(refreshed, page.read_text(encoding="utf-8")), encoding="utf-8")
