"""From the header and rows of a log to what a prediction is told."""

from types import SimpleNamespace

import pytest

from collsim.calibration import cases
from collsim.calibration.cases import Skipped, read_cases, read_sections, used_time_s
from collsim.core.errors import InputError
from collsim.core.operations import OPERATIONS
from collsim.simulation.request.matrices import load_byte_matrix

from .made_logs import log_text


@pytest.fixture
def write(tmp_path):
    def call(text, name="test.log"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return call


def only_case(path, **overrides):
    measured, skipped = read_cases([path], **overrides)
    assert skipped == []
    (case,) = {row.case for row in measured}
    return case


def test_header_and_columns_become_a_case(write):
    lines = ("# env: NCCL_ALGO=Ring NCCL_MAX_NCHANNELS=8 NCCL_DEBUG=VERSION PATH=/bin", "NCCL version 2.28.9+cuda13.0")
    case = only_case(write(log_text(lines=lines, graph=3, redop="max", dtype="half")))
    assert (case.op, case.ranks, case.nodes, case.size_bytes) == ("all_reduce", 4, 1, 2**20)
    assert (case.dtype, case.redop, case.launch, case.registered) == ("half", "max", "graph", 0)
    assert case.library == "nccl-2.28"
    assert case.environment == (("NCCL_ALGO", "Ring"), ("NCCL_MAX_NCHANNELS", "8"))


def test_root_of_a_rooted_operation(write):
    assert only_case(write(log_text("broadcast", root=3))).root == 3
    assert only_case(write(log_text("all_gather", root=3))).root == 0  # printed by old versions, means nothing


@pytest.mark.parametrize("op", sorted({*OPERATIONS} - {"all_to_all_v"}))
@pytest.mark.parametrize("printed", [-1, 0, 1, 3])
def test_a_root_that_is_no_rank_is_the_first(write, op, printed):
    """Of 4 ranks; -1 stands for none, and what is printed of an operation without a root means nothing."""
    rooted = op in ("broadcast", "reduce", "gather", "scatter")
    assert only_case(write(log_text(op, root=printed))).root == (printed if rooted and printed > 0 else 0)


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("NCCL version 2.12.12+cuda11.6", "nccl-2.12"),
        ("NCCL version 2.99.1", "nccl-2.99"),
        ("RCCL version : 2.22.3-HEAD", "rccl-2.22"),
        ("", None),
    ],
)
def test_nearest_known_library(write, line, library):
    assert only_case(write(log_text(lines=(line,)))).library == library


def test_what_the_caller_says_goes_first(write):
    path = write(log_text(lines=("# env: NCCL_ALGO=Ring NCCL_PROTO=LL", "NCCL version 2.28.9")))
    case = only_case(path, library="nccl-2.20", environment={"NCCL_ALGO": "Tree"}, nodes=3, launch="graph")
    assert (case.library, case.nodes, case.launch) == ("nccl-2.20", 3, "graph")
    assert case.environment == (("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL"))


def test_variables_that_the_model_cannot_be_told_are_noted(write):
    lines = ("# env: NCCL_SHM_DISABLE=1 NCCL_ALGO=Rnig NCCL_PROTO=LL",)
    (section,) = read_sections(write(log_text(lines=lines)))
    assert section.case.environment == (("NCCL_PROTO", "LL"),)
    assert any(note.startswith("NCCL_SHM_DISABLE=1 of the log is not used: ") for note in section.notes)
    assert any("NCCL_ALGO=Rnig" in note and '"Rnig"' in note for note in section.notes)


def test_cases_are_equal_whatever_was_measured(write):
    first, _ = read_cases([write(log_text(rows=((2**20, 20.0), (2**22, 50.0))))])
    second, _ = read_cases([write(log_text(rows=((2**20, 23.0, 7),)), "other.log")])
    assert first[0].case == second[0].case != first[1].case
    assert len({row.case for row in (*first, *second)}) == 2
    assert (first[0].wrong, second[0].wrong) == (0, 7)
    assert (second[0].out_of_place_s, second[0].in_place_s) == (pytest.approx(23e-6), None)


def test_groups_are_those_of_the_list_of_ranks(write):
    (one,), (of_two,) = (read_cases([write(log_text(groups=n), f"{n}.log")])[0] for n in (1, 2))
    assert (one.case.groups, one.case.ranks, one.case.all_ranks) == (None, 4, 4)
    assert (of_two.case.groups, of_two.case.ranks, of_two.case.all_ranks) == ("0,2,4,6;1,3,5,7", 4, 8)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (log_text(groups=2).replace("Rank  7 Group  1", "Rank  7 Group  0"), "groups of different sizes"),
        ("# op=all_reduce ranks=4 NCCL_TESTS_SPLIT='MOD 2'\n1048576 262144 float sum -1 20.00 52.43 78.6 0\n", "split"),
        ("1048576 262144 float sum -1 20.00 52.43 91.75 0\n", "how many ranks"),
        ("# op=all_reduce ranks=1\n1048576 262144 float sum -1 20.00 52.43 0.00 0\n", "one rank"),
        (log_text(op="broadcast").replace("broadcast_perf", "hypercube_perf"), "hypercube is not modelled"),
    ],
)
def test_tests_that_are_skipped(write, text, reason):
    path = write(text, "some.log")
    options = {"op": "broadcast"} if "many ranks" in reason else {}
    measured, (skipped,) = read_cases([path], **options)
    assert measured == []
    assert skipped.file == str(path)
    assert reason in skipped.reason
    assert str(skipped).startswith(f"{path}:")


MATRIX = """\
# env: {variables}
# Collective test starting: alltoallv_perf
# op=alltoallv ranks=2
{size:12d} 0 float none -1 25.00 {algbw:.2f} {busbw:.2f} N/A
"""


def irregular(variables, size):
    return MATRIX.format(variables=variables, size=size, algbw=size / 25e3, busbw=size / 50e3)


def test_matrix_beside_the_log(write):
    write("0 2097152\n1048576 0\n", "bytes.txt")
    variables = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE=/elsewhere/bytes.txt NCCL_TESTS_ALLTOALLV_MATRIX_SCALE=0.5"
    case = only_case(write(irregular(variables, 2**20)))
    assert case.matrix == ((0, 2**20), (2**19, 0))
    assert hash(case) == hash(only_case(write(irregular(variables, 2**20))))


def test_even_matrix(write):
    assert only_case(write(irregular("NCCL_TESTS_ALLTOALLV_SPREAD=0.0", 2**20))).matrix == ((2**19,) * 2,) * 2


@pytest.mark.parametrize(
    ("matrix", "size", "reason"),
    [
        (None, 2**20, "bytes.txt is not beside the log"),
        ("0 2M\n1M 0\n", 2**20, "the busiest rank of the byte matrix moves 2097152 bytes"),
        ("0 1M 0\n1M 0 0\n0 0 0\n", 2**20, "for 3 ranks, the test has 2"),
        ("0 lots\n1M 0\n", 2**20, '"lots"'),
    ],
)
def test_matrix_that_does_not_serve(write, matrix, size, reason):
    if matrix is not None:
        write(matrix, "bytes.txt")
    (skipped,) = read_sections(write(irregular("NCCL_TESTS_ALLTOALLV_MATRIX_FILE=bytes.txt", size)))
    assert isinstance(skipped, Skipped)
    assert reason in skipped.reason


def test_matrix_that_the_log_does_not_name(write):
    (skipped,) = read_sections(write(irregular("NCCL_TESTS_ALLTOALLV_SPREAD=0.3", 2**20)))
    assert "does not say how many bytes" in skipped.reason


def test_faults_of_all_files(write, tmp_path):
    with pytest.raises(InputError) as caught:
        read_cases([write(""), tmp_path / "none.log", tmp_path])
    assert len(caught.value.faults) == 3


def test_half_that_counts():
    assert used_time_s(3.0, 2.0, "hgx_h100") == 3.0
    assert used_time_s(3.0, 2.0, "mi300x_ubb8") == 2.0
    assert used_time_s(2.0, 3.0, "mi300x_ubb8") == 2.0
    assert used_time_s(None, 2.0, "hgx_h100") == 2.0
    with pytest.raises(ValueError, match="neither"):
        used_time_s(None, None, "hgx_h100")


def skewed_test(ranks, sizes, **environment):
    rows = [SimpleNamespace(size_bytes=size, line=10 + place) for place, size in enumerate(sizes)]
    return SimpleNamespace(ranks=ranks, rows=rows, run=SimpleNamespace(environment=environment))


def test_why_the_byte_matrix_of_a_size_is_not_known(tmp_path):
    """Each size is told once, with the first of its lines."""
    log = tmp_path / "a.log"
    (tmp_path / "sound.csv").write_text("0,30\n10,0\n")
    (tmp_path / "broken.csv").write_text("0,x\n10\n")
    with pytest.raises(InputError) as caught:
        load_byte_matrix(str(tmp_path / "broken.csv"))
    assert len(caught.value.faults) > 1
    first = str(caught.value.faults[0]).partition("\n")[0]
    for environment, told in (
        ({}, "the log does not say how many bytes go from whom to whom"),
        ({cases.MATRIX_FILE: "/there/none.csv"}, "the byte matrix none.csv is not beside the log"),
        ({cases.MATRIX_FILE: "/there/broken.csv"}, first),
        ({cases.MATRIX_FILE: "/there/sound.csv"}, "the busiest rank of the byte matrix moves 30 bytes, the size"),
    ):
        found = [*cases._irregular(skewed_test(2, [60, 60, 90], **environment), log, None, environment)]
        assert [each.line for each in found] == [10, 12], told
        assert all(told in each.reason and "\n" not in each.reason for each in found)
    other = {cases.MATRIX_FILE: "sound.csv"}
    assert cases._matrix_of(skewed_test(3, [], **other), 30, log) == "the byte matrix is for 2 ranks, the test has 3"
    assert cases._matrix_of(skewed_test(2, [], **other), 30, log) == ((0, 30), (10, 0))
    twice = {**other, cases.MATRIX_SCALE: "2"}
    assert cases._matrix_of(skewed_test(2, [], **twice), 60, log) == ((0, 60), (20, 0))
    assert cases._matrix_of(skewed_test(2, [], **{cases.MATRIX_SPREAD: "0"}), 64, log) == ((32, 32), (32, 32))
