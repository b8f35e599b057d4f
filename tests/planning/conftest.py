"""The command line in the process of the tests, from the root of the project, where examples are."""

from pathlib import Path

import pytest

from ..cli.conftest import collsim as invoke

__all__ = ["invoke"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
