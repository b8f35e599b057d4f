"""Run every collsim command that README.md and some pages show and write its output below it.

The tests compare the two, so that no page shows what the tool does not print.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/output.md", "docs/validate.md")
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def output_of(command: str) -> str:
    """Return what the last collsim command of *command* prints on stdout."""
    line = command.rpartition("&& ")[2]
    return subprocess.run(line, shell=True, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def refreshed(match: re.Match[str]) -> str:
    """Return the block with the output of each command below it."""
    commands = [line[2:] for line in match[1].splitlines() if line.startswith("$ ")]
    shown = (f"$ {command}\n" + (output_of(command) if "collsim " in command else "") for command in commands)
    return f"```console\n{''.join(shown)}```\n"


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(BLOCK.sub(refreshed, path.read_text(encoding="utf-8")), encoding="utf-8")
