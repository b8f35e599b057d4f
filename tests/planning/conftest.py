"""The command line in the process of the tests, from the root of the project, where examples are."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from collsim import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Run `collsim ARGUMENTS`, and return code, stdout and stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["collsim", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as leaving:
            code = leaving.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call
