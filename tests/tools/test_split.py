"""The split of logs: the sets of the first ones are frozen, those of later ones follow from their names."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def split(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("split")


@pytest.fixture
def entries(split):
    return split.read_csv(split.DATA / "split.csv")


def test_the_shipped_split_is_the_frozen_one_and_new_logs_follow_the_rule(split, entries):
    assert split.faults(entries, split.read_frozen()) == []
    assert Counter(entry["set"] for entry in entries if entry["by"] == "first") == {
        "test": 247, "train": 62, "none": 43,
    }  # fmt: skip


@pytest.mark.parametrize("to", ["train", "none"])
def test_a_frozen_set_that_changes_is_a_fault(split, entries, to):
    place = next(i for i, entry in enumerate(entries) if (entry["by"], entry["set"]) == ("first", "test"))
    moved = [*entries[:place], {**entries[place], "set": to}, *entries[place + 1 :]]
    gone = [*entries[:place], *entries[place + 1 :]]
    told = ["sets of the first logs are not those first committed"]
    assert split.faults(moved, split.read_frozen()) == split.faults(gone, split.read_frozen()) == told


def test_a_new_log_in_another_set_than_its_name_says_is_a_fault(split, entries):
    place = next(i for i, entry in enumerate(entries) if (entry["by"], entry["set"]) == ("hash", "test"))
    moved = [*entries[:place], {**entries[place], "set": "train"}, *entries[place + 1 :]]
    log = entries[place]["log"]
    assert split.faults(moved, split.read_frozen()) == [f"{log}: set train, test by the hash of its name"]
    odd = {**entries[0], "log": "new", "by": "taste"}
    assert split.faults([*entries, odd], split.read_frozen()) == ['new: by "taste", not first, hash or seen']


def test_a_log_that_was_read_before_it_was_assigned_tests_nothing(split, entries):
    seen = next(entry for entry in entries if (entry["by"], entry["set"]) == ("seen", "train"))
    scored = {**seen, "log": "new", "set": "test"}
    told = ["new: set test, though it was read before it was assigned"]
    assert split.faults([*entries, scored], split.read_frozen()) == told
    assert split.faults([*entries, {**scored, "set": "none"}], split.read_frozen()) == []


def test_the_hash_of_a_name_gives_a_fourth_of_new_logs_to_the_fits(split):
    found = Counter(
        split.assigned(f"H100-8x{nodes}__all_reduce__site{site}") for nodes in range(50) for site in range(20)
    )
    assert found["train"] + found["test"] == 1000
    assert 200 < found["train"] < 300


def test_logs_that_cannot_be_used_are_in_no_set(split):
    assert split.set_of("x", "none", "ok") == split.set_of("x", "hgx_h100", "faulty") == "none"
    assert split.set_of("x", "hgx_h100", "ok") == split.assigned("x")
