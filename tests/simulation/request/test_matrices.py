import numpy as np
import pytest

from collsim.core.errors import SpecError
from collsim.simulation.request.matrices import MAX_FAULTS, load_byte_matrix


@pytest.fixture
def load(tmp_path):
    def load_text(content):
        path = tmp_path / "matrix.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_byte_matrix(path)

    return load_text


@pytest.fixture
def faults(load, tmp_path):
    def of(content):
        with pytest.raises(SpecError) as caught:
            load(content)
        return [(fault.where.removeprefix(str(tmp_path / "matrix.txt")), fault.what) for fault in caught.value.faults]

    return of


@pytest.mark.parametrize(
    "text",
    [
        "0 1024\n2048 0\n",
        "0,1K\n2K,0",
        "0, 1024 # first\n\n# second\n2KiB , 0",
        "\ufeff0\t1024\r\n2.048e3 0\r\n",
    ],
)
def test_blanks_commas_comments_and_units(load, text):
    matrix = load(text)
    assert matrix.tolist() == [[0, 1024], [2048, 0]]
    assert matrix.dtype == np.int64


def test_the_diagonal_is_kept(load):
    assert load("5 1\n0 7").tolist() == [[5, 1], [0, 7]]


def test_all_faults_at_once_with_their_place(faults):
    assert faults("0 -5 64MB\n1 x 2.5\n\n# comment\n1 2\n") == [
        (":1:3", 'size "-5" must be 0 or more'),
        (":1:6", 'size "64MB" is ambiguous'),
        (":2:3", 'size "x" is not a number'),
        (":2:5", 'size "2.5" is not a whole number of bytes'),
        (":5:1", "the row has 2 entries, but there are 3 rows"),
    ]


def test_missing_entries(faults):
    assert faults("0,,1\n1,0,2\n,5,0") == [
        (":1:3", "an entry is missing before the comma"),
        (":3:1", "an entry is missing before the comma"),
    ]
    assert faults("0,1,\n1,0") == [
        (":1:4", "an entry is missing after the comma"),
        (":1:1", "the row has 3 entries, but there are 2 rows"),
    ]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "", "the file holds no matrix"),
        ("# only a comment\n\n", "", "the file holds no matrix"),
        ("7", ":1:1", "the matrix has one row"),
        ("1 2 3\n4 5 6", ":1:1", "the matrix has 2 rows of 3 entries"),
        ("0 0\n0 0", "", "every entry of the matrix is 0"),
        (b"\x00\x01\x02", "", "this is not a text file"),
        (b"\xff\xfe\xfa", "", "this is not a text file"),
        ("0 9000000000000000000\n9e18 0", "", "all entries together are more than 9,223,372,036,854,775,807 bytes"),
        ("0 1\n1", ":2:1", "the row has 1 entry, but there are 2 rows"),
    ],
)
def test_what_is_no_matrix(faults, text, where, what):
    assert faults(text) == [(where, what)]


def test_an_absurd_number_of_faults_is_counted(faults):
    found = faults("\n".join(["x " * 10] * 10))
    assert len(found) == MAX_FAULTS + 1
    assert found[-1] == ("", "... and 80 more faults")


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing.txt", tmp_path, "no\0name"):
        with pytest.raises(SpecError, match="cannot read the byte matrix"):
            load_byte_matrix(path)


def test_a_large_matrix_loads_quickly(load):
    row = " ".join(["1048576"] * 500)
    assert load("\n".join([row] * 500)).sum() == 500 * 500 * 1048576
