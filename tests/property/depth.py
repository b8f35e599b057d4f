"""Cases of laws that hold exactly: some in every run, all of them in `pytest -m "deep or not deep"`."""

import pytest


def deep_but(every_run, cases):
    """The *cases*, of which only those of *every_run* lack the marker ``deep``."""
    assert set(every_run) <= set(cases)
    return [case if case in every_run else pytest.param(case, marks=pytest.mark.deep) for case in cases]
