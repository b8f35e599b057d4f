"""How far off the next site may be: one number a band from all sites, which one odd site does not set."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def site_errors():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        yield importlib.import_module("site_errors")


errors = st.lists(st.floats(-2, 2).filter(lambda value: abs(value) > 1e-3), min_size=3, max_size=12)


@given(errors, st.floats(0.1, 5))
def test_errors_that_are_all_larger_reach_as_much_farther(site_errors, values, times):
    sites = [str(place % 3) for place in range(len(values))]
    one, other = (site_errors.reach_of_sites([scale * value for value in values], sites) for scale in (1, times))
    assert other == pytest.approx(times * one, rel=1e-3)


@given(errors)
def test_a_site_counts_the_same_however_many_rows_it_has(site_errors, values):
    sites = [str(place) for place in range(len(values))]
    repeated = site_errors.reach_of_sites([*values, *[values[0]] * 5], [*sites, *[sites[0]] * 5])
    assert repeated == pytest.approx(site_errors.reach_of_sites(values, sites), rel=1e-3)


def test_one_odd_site_moves_the_reach_of_the_others_by_little(site_errors):
    sites = list("abcdefgh")
    usual = site_errors.reach_of_sites([0.1] * 8, sites)
    odd, odder = (site_errors.reach_of_sites([0.1] * 7 + [far], sites) for far in (1.0, 10.0))
    assert usual < odd < odder < 2 * usual  # a largest error would be 10 and 100 times as far


def test_fewer_sites_are_told_less_by(site_errors):
    rng = np.random.default_rng(3)
    draws = np.abs(rng.standard_t(site_errors.FREEDOM, size=200_000))
    spread = np.exp(rng.standard_normal(draws.size) * math.sqrt((site_errors.FREEDOM + 3) / (2 * site_errors.FREEDOM)))
    of = {count: math.sqrt(1 + 1 / count) * np.quantile(draws * spread ** (count**-0.5), 0.9) for count in (3, 30)}
    few, many = (site_errors.reach_of_sites([0.2] * count, range(count)) for count in of)
    assert few / many == pytest.approx(of[3] / of[30], rel=0.02)


@pytest.mark.parametrize("count", [4, 8])
def test_nine_of_ten_new_sites_lie_inside_where_the_law_holds(site_errors, count):
    rng = np.random.default_rng(7)
    inside = []
    for _ in range(400):
        drawn = 0.3 * rng.standard_t(site_errors.FREEDOM, size=count + 1)
        inside.append(abs(drawn[-1]) <= site_errors.reach_of_sites(drawn[:-1], range(count)))
    assert 0.87 < np.mean(inside) < 0.95
