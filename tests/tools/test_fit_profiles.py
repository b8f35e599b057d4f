"""The fits of shipped profiles: what they read, what they write, and that what is shipped is what they make."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from collsim.calibration.findings import Calibration
from collsim.library import load_profile, profile_names

TOOLS = Path(__file__).parents[2] / "tools"
DATA = TOOLS / "data"


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))


@pytest.fixture
def fitter(tools):
    """The module that fits shipped profiles."""
    return importlib.import_module("fit_profiles")


@pytest.fixture
def hasty(fitter, monkeypatch):
    """The same, which reads few rows."""
    few = [row for row in fitter.measured_rows() if row.case.op in ("all_reduce", "all_to_all")]
    kept = [row for row in few if row.set == "train"][::12]
    monkeypatch.setattr(fitter, "measured_rows", lambda: [*kept, *(row for row in few if row.set == "test")])
    return fitter


@pytest.mark.parametrize("system", ["hgx_h100", "mi300x_ubb8"])
def test_a_fit_writes_a_profile_that_loads_with_its_figures(system, hasty, tmp_path, capsys):
    fitter, path = hasty, tmp_path / "fitted.yaml"
    fitter.main(["--system", system, "-o", str(path)])
    found, start = load_profile(str(path)), load_profile(str(fitter.STARTS / f"{fitter.FITS[system].start}.yaml"))
    assert (found.name, found.systems, found.gpus, found.calibrated) == (
        system,
        (system, *fitter.FITS[system].clusters),
        fitter.FITS[system].gpus,
        "free numbers" not in found.title,
    )
    assert set(found.families) == set(start.families)
    assert found.floor_s > 0
    assert found.accuracy
    assert f"profile {system}: " in capsys.readouterr().out
    assert f"status: fitted, source: '{fitter.SOURCE}'" in path.read_text(encoding="utf-8")


def test_a_fit_takes_sound_training_rows_only(fitter):
    logs = {entry["log"]: entry for entry in importlib.import_module("predictors").read_csv(DATA / "split.csv")}
    for system in (*fitter.FITS, *(network.systems[0] for network in fitter.NETWORKS.values())):
        rows = fitter.rows_of(system)
        assert rows
        for row in rows:
            entry = logs[row.file]
            assert (entry["system"], entry["set"], entry["health"]) == (system, "train", "ok")


@pytest.mark.parametrize("name", ["gb200_nvl72", "roce"])
def test_a_shipped_profile_is_what_the_fit_makes(name, fitter, monkeypatch):
    monkeypatch.setattr(fitter, "draws", tuple)  # intervals of networks need the fit of all sites: below
    errors = load_profile(str(fitter.shipped(name))).network.accuracy
    monkeypatch.setattr(fitter, "errors_of_sites", lambda draws: errors)
    found, text = fitter.made(name)
    assert not fitter.check(name, text)
    assert found.constants
    rate = re.compile(r"channel_rate: \{value: ([\d.]+) GB/s")
    spoiled = rate.sub(lambda match: f"channel_rate: {{value: {float(match[1]) * 1.02:.4g} GB/s", text)
    assert spoiled != text
    assert fitter.check(name, spoiled)


@pytest.mark.parametrize(("name", "few"), [("gb200_nvl72", 3), pytest.param("hgx_b200", 6, marks=pytest.mark.deep)])
def test_a_fit_ends_where_it_would_with_more_steps(name, few, fitter, monkeypatch):
    """Some steps lead there, sixteen of the larger; a search that is cut short ends wherever it has come to."""
    estimates = importlib.import_module("collsim.calibration.estimates")
    monkeypatch.setattr(estimates, "MOST_ITERATIONS", 5 * estimates.MOST_ITERATIONS)
    assert not fitter.check(name, fitter.made(name)[1])
    monkeypatch.setattr(estimates, "MOST_ITERATIONS", few)
    assert fitter.check(name, fitter.made(name)[1])


def test_an_interval_from_32_mib_on_is_lent_only_where_none_of_its_own_holds_there(fitter):
    """Messages of B200 have one from 1 MiB on, of their own rows; trees have none; rings have both."""
    lender, shipped = load_profile("hgx_h100"), load_profile("hgx_b200").accuracy
    own = {family: {band: its for band, its in bands.items() if not its.lent} for family, bands in shipped.items()}
    bare = replace(load_profile("hgx_b200"), accuracy=own)
    lent = fitter.with_lent(Calibration(bare, "hgx_h100", (), ()), "hgx_h100").profile.accuracy
    assert set(lent["messages"]) & {"large", "bulk"} == {"large"}
    assert not lent["messages"]["large"].lent
    assert lent["ring"]["bulk"] == shipped["ring"]["bulk"]
    its = lender.accuracy["chain"]["bulk"]
    assert lent["chain"]["bulk"].high == pytest.approx(its.high**2)


def test_documents_differ_by_more_than_rounding(fitter):
    one = {"a": {"value": "2 us", "status": "fitted"}, "b": [1.0, 2.0]}
    assert not fitter.differences(one, {"a": {"value": "2.01 us", "status": "fitted"}, "b": [1.001, 2.0]})
    other = {"a": {"value": "2 ms", "status": "assumed"}, "b": [1.0], "c": 1}
    assert fitter.differences(one, other) == [
        'a.value: "2 us", "2 ms"', 'a.status: "fitted", "assumed"', 'b: "[1.0, 2.0]", "[1.0]"', 'c: "None", "1"',
    ]  # fmt: skip


FEW = ("roce",)


def test_profiles_with_no_more_rows_than_free_numbers_say_so_and_are_not_calibrated(fitter):
    for name in (*fitter.FITS, *fitter.NETWORKS):
        text = fitter.shipped(name).read_text(encoding="utf-8")
        assert ("calibrated: false" in text) == (name in FEW), name
        assert (re.search(r"title: .*\d+ rows fix \d+ of \d+ free numbers", text) is not None) == (name in FEW), name


def test_what_a_fit_moved_is_labelled_fitted_and_nothing_fitted_a_constant(fitter):
    """A share of the lines of LL and LL128 is a constant; every other figure with an interval is fitted."""
    figure = re.compile(r"^ *(\w+): \{value: ([^,]+), (low: [^,]+, high: [^,]+, )?status: (\w+)", re.MULTILINE)
    for name in (*fitter.FITS, *fitter.NETWORKS):
        text = fitter.shipped(name).read_text(encoding="utf-8")
        for key, value, ends, status in figure.findall(text):
            assert bool(ends) == (status == "fitted"), (name, key, value)
            if status == "constant":
                assert (key, float(value) in (0.5, 0.875, 0.9375)) == ("wire_efficiency", True), (name, key, value)
        assert "these logs together" not in text


def test_a_constant_that_the_fit_moved_is_fitted_though_the_logs_alone_do_not_fix_it(fitter):
    found, text = fitter.made("gb200_nvl72")
    moved = [one for one in found.constants if not one.identified and abs(one.value / one.start - 1) > 0.01]
    assert moved
    assert text.count("status: fitted") >= len(moved)
    assert "held by profile hgx_b200, the logs alone do not fix it" in text


def test_every_measured_profile_has_a_fit_whose_start_comes_before(fitter):
    fits = fitter.FITS
    profiles = {name: load_profile(name) for name in profile_names()}
    measured = {name for name, one in profiles.items() if name in one.systems and not one.derived}
    assert set(fits) == measured
    before = {path.stem for path in (TOOLS / "starts").glob("*.yaml")}
    for system, fit in fits.items():
        assert fit.start in before
        assert load_profile(system).gpus == fit.gpus
        before.add(system)


@pytest.mark.parametrize("start", ["nvlink", "xgmi"])
def test_a_start_says_where_its_figures_are_from(start):
    profile = load_profile(str(TOOLS / "starts" / f"{start}.yaml"))
    assert profile.families
    assert not profile.accuracy  # nothing was compared with it


def test_lines_are_passed_on_while_they_arrive_in_every_fit_of_nccl(fitter):
    for system in fitter.FITS:
        passes = load_profile(system).protocol("LL", "ring").cut_through
        assert passes is not system.startswith("mi")


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_tiny_calls_that_wait_for_their_steps_do_not_tell_the_floor(again, fitter):
    """With two B200 a call takes 8 us, with eight 16 and 25: the host needs no 16, as shipped and as fitted again."""
    floor_s = load_profile("hgx_b200").floor_s
    if again:
        told = {one.name: one for one in fitter.fit("hgx_b200").constants}["floor"]
        assert told.start == pytest.approx(8.03e-6)
        floor_s = told.value
    assert floor_s < 8.03e-6


@pytest.mark.deep
def test_shipped_networks_are_what_the_fit_of_all_sites_makes(fitter):
    for name in ("efa_v1", "roce"):
        assert not fitter.check(name, fitter.made(name)[1])
