"""Ways to run the command line: inside this process for speed, in a new one for what only a real process shows."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from collsim import cli

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.argv[0] = 'collsim'; from collsim.cli import main; main()"


@dataclass
class Outcome:
    code: int
    out: str
    err: str


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
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def process():
    """Run `collsim ARGUMENTS` in a process of its own."""

    def call(*arguments, **settings):
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, **{"cwd": ROOT, **settings}
        )
        return Outcome(found.returncode, found.stdout, found.stderr)

    return call
