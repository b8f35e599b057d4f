"""Groups of ranks: what the splits of nccl-tests, layouts and lists mean, and what they refuse."""

import pytest

from collsim.core.errors import InputError
from collsim.simulation.request.groups import parse_grouping, parse_groups, parse_split


def faults_of(call):
    with pytest.raises(InputError) as caught:
        call()
    return [(fault.what, fault.where) for fault in caught.value.faults]


RAILS = [[local, local + 8] for local in range(8)]
NODES = [list(range(8)), list(range(8, 16))]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        # 16 processes, 8 on a node: one GPU of each node, all GPUs of a node, even and odd ones
        ("MOD 8", RAILS),
        ("AND 0x7", RAILS),
        ("& 7", RAILS),
        ("0x7", RAILS),
        ("7", RAILS),
        ("and 0b111", RAILS),
        ("DIV 8", NODES),
        ("OR 0x7", NODES),
        ("|7", NODES),
        ("/ 0x8", NODES),
        ("'DIV 8'", NODES),
        ("0x1", [list(range(0, 16, 2)), list(range(1, 16, 2))]),
        ("% 2", [list(range(0, 16, 2)), list(range(1, 16, 2))]),
        ("DIV 16", [list(range(16))]),
    ],
)
def test_splits_of_nccl_tests(text, groups):
    assert parse_split(text).groups(16) == groups


def test_a_bare_mask_is_hexadecimal_and_a_value_decimal():
    """NCCL_TESTS_SPLIT_MASK=10 masks bit 4; NCCL_TESTS_SPLIT="AND 10" masks bits 1 and 3."""
    assert parse_split("10").groups(32) == [list(range(16)), list(range(16, 32))]
    assert parse_split("AND 10").groups(16) == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_processes_are_split_not_ranks():
    """Two GPUs for each process: process 0 has ranks 0 and 1."""
    assert parse_split("MOD 2", ranks_per_process=2).groups(8) == [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize("text", ["MOD 8", "DIV 4", "AND 0xf0", "OR 0x3"])
def test_the_text_of_a_split_reads_back(text):
    assert parse_split(text).text == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "one group"), ("0x0", "one group"), ("AND 0", "one group"), ("MOD 1", "one group"),
        ("MOD 0", "divides by zero"), ("DIV 0", "divides by zero"), ("XOR 3", "none of nccl-tests"),
        ("MOD", "none of nccl-tests"), ("MOD -2", "none of nccl-tests"), ("", "none of nccl-tests"),
        ("MOD 2 3", "none of nccl-tests"), ("9" * 40, "too long"), (8, "not a text"),
    ],
)  # fmt: skip
def test_splits_that_are_none(text, words):
    ((what, where),) = faults_of(lambda: parse_split(text))
    assert words in what
    assert where == "split"


@pytest.mark.parametrize(
    ("text", "n_ranks", "words"),
    [
        ("MOD 3", 8, "does not divide 8 ranks evenly: groups of 3 and 2"),
        ("DIV 3", 8, "groups of 3 and 2"),
        ("MOD 8", 8, "8 groups of 1 rank"),
        ("AND 0xff", 4, "4 groups of 1 rank"),
    ],
)
def test_splits_that_do_not_fit(text, n_ranks, words):
    ((what, where),) = faults_of(lambda: parse_split(text).groups(n_ranks))
    assert words in what
    assert where == "split"


def test_the_first_dimension_varies_fastest():
    """tp=2, dp=3, pp=2: rank = tp + 2 dp + 6 pp."""
    layout = "tp=2,dp=3,pp=2"
    assert parse_groups(layout).groups(12) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert parse_groups(layout, "dp").groups(12) == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert parse_groups(layout, "pp").groups(12) == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert parse_groups(layout, "tp,pp").groups(12) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


def test_layouts_and_splits_agree():
    assert parse_groups("tp=8,dp=2", "tp").groups(16) == parse_split("DIV 8").groups(16)
    assert parse_groups({"tp": 8, "dp": 2}, "dp").groups(16) == parse_split("MOD 8").groups(16)


def test_lists():
    for value in ("0,3;2,1", " 0, 3 ; 2, 1", [[0, 3], [2, 1]], ((0, 3), (2, 1))):
        found = parse_groups(value)
        assert (found.groups(6), found.text) == ([[0, 3], [2, 1]], "0,3;2,1")


@pytest.mark.parametrize(
    ("value", "over", "places"),
    [
        ("tp=2,dp", None, ["groups"]),
        ("tp=0,tp=2,dp=3", "pp", ["groups", "groups", "over"]),
        ("0,1;2,x", None, ["groups"]),
        ([[0, 1.5]], None, ["groups"]),
        ([[0, True]], None, ["groups"]),
        (7, None, ["groups"]),
        ([], None, ["groups"]),
        ("0,1;2,3", "tp", ["over"]),
    ],
)
def test_groups_that_are_none(value, over, places):
    assert [where for _, where in faults_of(lambda: parse_groups(value, over))] == places


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tp=2,dp=3", ["is for 6 ranks, the run has 8"]),
        ("tp=1,dp=8", ["8 groups of 1 rank"]),
        ("0,1;2", ["groups of 2 and 1"]),
        ("0,1;1,9", ["ranks 9 are out of range", "ranks 1 are named more than once"]),
    ],
)
def test_groups_that_do_not_fit(value, words):
    found = faults_of(lambda: parse_groups(value).groups(8))
    assert [word in what for (what, _), word in zip(found, words, strict=True)] == [True] * len(words)


def test_everything_wrong_is_told_at_once():
    found = faults_of(lambda: parse_grouping("MOD 0", "tp=x", "dp"))
    assert [where for _, where in found] == ["split", "split", "groups"]
    assert parse_grouping(None) is None
    assert faults_of(lambda: parse_grouping("MOD 2", None, "dp"))[0][1] == "over"
