"""Ways to run the command line: inside this process for speed, in a new one for what only a real process shows."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from collsim import cli

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.argv[0] = 'collsim'; from collsim.cli import main; main()"
GUARD_S = 600
"""How long a process may take that never ends by itself: not a measure of its speed."""
PROGRESS = ("still working", "compiling the engine")
"""Beginnings of the lines of stderr that only a slow machine, or one without compiled kernels, is told."""


@dataclass
class Outcome:
    """An exit code and what was printed: stderr less notices of progress, and these."""

    code: int
    out: str
    err: str
    progress: str = ""


def outcome(code, out, said):
    """Return an Outcome with *said*, all of stderr, split into answer and progress."""
    lines = said.splitlines(keepends=True)
    err, progress = ("".join(line for line in lines if line.startswith(PROGRESS) == kind) for kind in (False, True))
    return Outcome(code, out, err, progress)


@pytest.fixture
def collsim(monkeypatch, capsys):
    """Run `collsim ARGUMENTS` in this process."""

    def call(*arguments, **environment):
        monkeypatch.setattr(sys, "argv", ["collsim", *map(str, arguments)])
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as leaving:
            code = leaving.code or 0
        finally:
            for name in environment:
                monkeypatch.delenv(name)
        return outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def process():
    """Run `collsim ARGUMENTS` in a process of its own."""

    def call(*arguments, **settings):
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=GUARD_S, **{"cwd": ROOT, **settings}
        )
        return outcome(found.returncode, found.stdout, found.stderr)

    return call
