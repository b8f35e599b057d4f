"""Comments of logs: for which tables they hold, which cannot be read, and which deny each other."""

from __future__ import annotations

import pytest

from collsim.calibration import read_log
from collsim.calibration.logs.comments import alike, read_comment

from .test_reading import COLUMNS, FOOT, HEAD, row

GATHERED = [row(2**power, 30.0, 29.0, op="all_gather", ranks=4) for power in (20, 21, 22)]
REDUCED = [row(2**power, 30.0, 29.0, op="all_reduce", ranks=4) for power in (20, 21, 22)]
BARE = "# op=all_gather ranks=4 "


@pytest.fixture
def tests(tmp_path):
    def tests(*lines):
        path = tmp_path / "bench.log"
        path.write_text("\n".join(lines) + "\n")
        return read_log(path).tests

    return tests


@pytest.mark.parametrize("head", [(), (COLUMNS,)])
@pytest.mark.parametrize("foot", [(), tuple(FOOT)])
def test_a_comment_is_of_the_tables_after_it(tests, head, foot):
    """Whether column names and closing lines part the tables, or the comment alone does."""
    first, second = (BARE + f"library=NCCL {version}" for version in ("2.18", "2.28"))
    one, two = tests(first, *head, *GATHERED, *foot, second, *head, *GATHERED, *foot)
    assert [test.run.library_version for test in (one, two)] == ["2.18", "2.28"]
    assert [len(test.rows) for test in (one, two)] == [3, 3]
    one, two = tests(BARE, *head, *GATHERED, *foot, "# op=all_reduce", *head, *REDUCED, *foot)
    assert [(test.op, test.ranks) for test in (one, two)] == [("all_gather", 4), ("all_reduce", 4)]
    assert not any("text says" in note for test in (one, two) for note in test.warnings)


def test_a_comment_goes_before_the_operation_of_the_test_before(tests):
    one, two = tests(*HEAD, row(2**20, 30.0, 29.0), *FOOT, BARE, *GATHERED)
    assert (one.op, two.op) == ("all_reduce", "all_gather")


def test_a_comment_holds_until_the_next(tests):
    found = tests(BARE + "library=NCCL 2.18", COLUMNS, *GATHERED, COLUMNS, *GATHERED, "# library=NCCL 2.20", *GATHERED)
    assert [(test.op, test.run.library_version) for test in found] == [
        ("all_gather", "2.18"), ("all_gather", "2.18"), ("all_gather", "2.20"),
    ]  # fmt: skip


def test_a_comment_after_the_last_table_is_of_none(tests):
    (test,) = tests(BARE, COLUMNS, *GATHERED, "# library=NCCL 2.18 nodes=2")
    assert (test.run.library_version, test.nodes) == (None, None)


def test_the_same_comment_again_parts_no_table(tests):
    (test,) = tests(BARE, COLUMNS, GATHERED[0], BARE, *GATHERED[1:])
    assert len(test.rows) == 3


@pytest.mark.parametrize(
    ("written", "version"), [('"NCCL 2.18.3"', "2.18.3"), ("'NCCL v2.18'", "2.18"), ("nccl-2.18.3+cuda12", "2.18.3")]
)
def test_quotes_are_no_part_of_a_version(tests, written, version):
    (test,) = tests(f"{BARE}library={written}", COLUMNS, *GATHERED)
    assert (test.run.library, test.run.library_version, test.run.library_fault) == ("NCCL", version, "")


@pytest.mark.parametrize(
    ("comment", "told"),
    [
        ("# op=all_gathr", 'unknown operation "all_gathr": did you mean "all_gather"?'),
        ("# ranks=four", '"four" is no number of ranks'),
        ("# nnodes=0", '"0" is no number of nodes'),
        ("# library=oneCCL 2021.3", '"oneCCL 2021.3" is no library with known constants, such as NCCL 2.28'),
        ("# library=NCCL two", '"NCCL two" names no version that can be read, such as NCCL 2.28'),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(comment, told):
    ((_, said),) = read_comment(comment, 7)
    assert said.fault == f"line 7: {told}"


@pytest.mark.parametrize("comment", ["# op=sum", "# library=none", "# library=NCCL", "op=all_gathr", "# block=3"])
def test_what_says_nothing_is_no_fault(comment):
    assert not any(said.fault for _, said in read_comment(comment, 1))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("# library=NCCL 2.18", "# library=NCCL 2.28"), "the text says NCCL 2.18 and NCCL 2.28: NCCL 2.28"),
        (("# library=NCCL 2.18 library=RCCL 2.28",), "the text says NCCL 2.18 and RCCL 2.28: RCCL 2.28"),
        (("NCCL version 2.18.3+cuda12.1", "# library=NCCL 2.28"), "NCCL 2.18.3+cuda12.1, the text says NCCL 2.28"),
        (("NCCL version 2.18.3", "NCCL version 2.28.9"), "the log prints versions 2.18.3 and 2.28.9: 2.28.9 is taken"),
        (("# ranks=8", "# ranks=4"), "the text says ranks 8 and 4: 4, the last, is taken"),
    ],
)  # fmt: skip
def test_what_denies_another_is_told(tests, lines, told):
    (test,) = tests(*lines, "# op=all_gather ranks=4", COLUMNS, *GATHERED)
    assert any(told in note for note in test.warnings)


@pytest.mark.parametrize(
    "lines",
    [
        ("# library=NCCL 2.18", "# library=NCCL 2.18.3"),
        ("NCCL version 2.18.3+cuda12.1", "# library=NCCL 2.18"),
        ("NCCL version 2.22.3+hip6.3", "# library=RCCL 2.22"),
    ],
)
def test_versions_of_other_lengths_agree(tests, lines):
    (test,) = tests(*lines, BARE, COLUMNS, *GATHERED)
    assert not any("text says" in note for note in test.warnings)


def test_versions_are_compared_by_number():
    assert alike("2.2", "2.2.1")
    assert not alike("2.2", "2.22")
