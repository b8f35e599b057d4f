"""What a caller may pass from Python: every wrong type is a fault with a place, a value and a hint."""

import warnings

import numpy as np
import pytest

from collsim.core.errors import InputError
from collsim.simulation.request.request import ask, rank_groups
from collsim.topology import load_topology

from ...memory import peak_bytes

MESH = load_topology("mi300x_ubb8")
ONES = np.ones((8, 8), dtype=np.int64)


def faults_of(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            call()
    assert all(fault.what and fault.where and fault.hint for fault in caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        ({"size": 1.5}, "size", "1.5"),
        ({"size": float("nan")}, "size", "nan"),
        ({"size": b"1M"}, "size", "b'1M'"),
        ({"size": bytearray(b"1M")}, "size", "bytearray"),
        ({"size": [b"1M"]}, "size", "b'1M'"),
        ({"size": [None]}, "size", "None"),
        ({"size": True}, "size", "True"),
        ({"size": {"a": 1}}, "size", "a dict where a list is needed"),
        ({"size": np.ones((2, 2))}, "size", "2 dimensions"),
        ({"size": []}, "size", "list of sizes is empty"),
        ({"size": [10**5000]}, "size", "out of range"),
        ({"chunk": b"64K"}, "chunk", "b'64K'"),
        ({"channels": "4"}, "channels", '"4"'),
        ({"channels": 2.5}, "channels", "2.5"),
        ({"channels": True}, "channels", "True"),
        ({"channels": 10**5000}, "channels", "a very large number"),
        ({"root": "0"}, "root", '"0"'),
        ({"root": 1.5}, "root", "1.5"),
        ({"root": None}, "root", "None"),
        ({"dtype": None}, "dtype", "None"),
        ({"dtype": np.float32}, "dtype", "float32"),
        ({"redop": None}, "redop", "None"),
        ({"redop": []}, "redop", "[]"),
        ({"proto": 3}, "proto", "3"),
        ({"algo": 3}, "algo", "3"),
        ({"algo": None}, "algo", "None"),
        ({"algo": []}, "algo", "no algorithm is named"),
        ({"algo": b"ring"}, "algo", "b'ring'"),
        ({"op": None}, "op", "None"),
        ({"op": 3}, "op", "3"),
        ({"op": []}, "op", "no operation is named"),
        ({"op": ["all_reduce", None]}, "op", "None"),
        ({"library": 3}, "library", "3"),
        ({"library": "nccl-2.28", "environment": ["NCCL_ALGO=Ring"]}, "environment", "not a mapping"),
        ({"library": "nccl-2.28", "environment": {"NCCL_ALGO": None}}, "environment", '"NCCL_ALGO" = None'),
    ],
)
def test_values_of_a_wrong_kind(given, where, words):
    (fault,) = faults_of(lambda: ask(**{"op": "all_reduce"} | given))
    assert fault.where == where
    assert words in fault.what


def test_all_at_once():
    given = {
        "op": 3,
        "size": 1.5,
        "chunk": b"1",
        "dtype": None,
        "redop": None,
        "channels": "4",
        "proto": 3,
        "root": "0",
    }
    faults = faults_of(lambda: ask(**given, algo=3, library=3))
    assert [fault.where for fault in faults] == [*given, "library", "algo"]


def test_a_value_that_cannot_be_shown():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    (fault,) = faults_of(lambda: ask("all_reduce", channels=Broken()))
    assert "a Broken is not a whole number" in fault.what


def test_numbers_of_numpy():
    asked = ask("broadcast", np.array([2**20, 2**21]), channels=np.int8(4), root=np.uint8(2), chunk=np.int64(4096))
    assert (asked.sizes, asked.channels, asked.root, asked.chunk_bytes) == ((2**20, 2**21), 4, 2, 4096)
    assert {type(value) for value in (*asked.sizes, asked.channels, asked.root, asked.chunk_bytes)} == {int}
    assert ask("broadcast", np.int32(512)).sizes == ask("broadcast", [512.0]).sizes == (512,)
    assert ask("broadcast", 64e6).sizes == (64_000_000,)
    groups = rank_groups(MESH, np.array([2, 3]), None, ask("all_reduce"))
    assert groups == [[0, 1], [0, 1, 2]]
    groups = rank_groups(MESH, None, np.array([5, 3]), ask("all_reduce"))
    assert groups == [[5, 3]]
    assert {type(gpu) for group in groups for gpu in group} == {int}


def test_variables_with_numbers():
    asked = ask("all_reduce", library="nccl-2.28", environment={"NCCL_MAX_NCHANNELS": 8})
    assert asked.environment == {"NCCL_MAX_NCHANNELS": "8"}


@pytest.mark.parametrize(
    ("ranks", "rank_list", "where", "words"),
    [
        ("3", None, "ranks", '"3"'),
        (b"3", None, "ranks", "b'3'"),
        (2.0, None, "ranks", "2.0"),
        ([2, None], None, "ranks", "None"),
        ({2}, None, "ranks", "a set where a list is needed"),
        ([], None, "ranks", "the list is empty"),
        (True, None, "ranks", "True"),
        ([10**5000], None, "ranks", "a very large number ranks on 8 GPUs"),
        (None, "0,3", "rank_list", '"0,3"'),
        (None, [0.5, 1], "rank_list", "0.5"),
        (None, [0, True], "rank_list", "True"),
        (None, [[0, 1]], "rank_list", "[0, 1]"),
        (None, 3, "rank_list", "at least 2 GPUs"),
        (None, [], "rank_list", "the list is empty"),
        (None, [10**5000, 0], "rank_list", "GPU a very large number is out of range"),
    ],
)
def test_ranks_of_a_wrong_kind(ranks, rank_list, where, words):
    (fault,) = faults_of(lambda: rank_groups(MESH, ranks, rank_list, ask("all_reduce")))
    assert fault.where == where
    assert words in fault.what


def test_faults_of_ranks_and_matrix_at_once():
    asked = ask("all_to_all_v", matrix=np.ones((9, 9), dtype=int))
    faults = faults_of(lambda: rank_groups(MESH, [1, 9], None, asked))
    assert [fault.where for fault in faults] == ["ranks", "ranks", "matrix"]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.where(np.eye(8), np.nan, 1.0), "entry (0, 0) is nan"),
        (np.full((2, 2), np.inf), "entry (0, 0) is inf"),
        (np.full((8, 8), 2**62), "all entries together are more than"),
        ([[0, 2**63], [1, 0]], "entry (0, 1) is 9"),
        (np.array([[0, 1], [2**63, 0]], dtype=np.uint64), "entry (1, 0) is 9223372036854775808"),
        (np.array([[0, 2**70], [1, 0]], dtype=object), "entry (0, 1) is 1180591620717411303424"),
        ([[0, 10**400], [1, 0]], "entry (0, 1) is a very large number"),
        ([[0, -1], [1, 0]], "entry (0, 1) is -1"),
        ([[0, 1.5], [1, 0]], "entry (0, 1) is 1.5"),
        ([[0, None], [1, 0]], "entry (0, 1) is None"),
        ([[0, "x"], [1, 0]], "does not hold numbers only"),
        ([[0, 1], [1]], "does not hold numbers only"),
        (np.ones((2, 2), dtype=bool), "numbers only, but bool"),
        (np.ones((2, 2), dtype=complex), "numbers only, but complex128"),
        ([[0, 1, 2], [1, 0, 2]], "shape (2, 3)"),
        (b"x", "shape ()"),
        ({}, "shape ()"),
        ([], "shape (0,)"),
        ([[9, 0], [0, 9]], "no rank sends anything to another"),
    ],
)
def test_bad_matrices(matrix, words):
    (fault,) = faults_of(lambda: ask("all_to_all_v", matrix=matrix))
    assert fault.where == "matrix"
    assert words in fault.what


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64, np.float32, np.float64, object])
def test_matrices_of_any_number(kind):
    matrix = ask("all_to_all_v", matrix=ONES.astype(kind)).matrix_bytes
    assert matrix.dtype == np.int64
    assert np.array_equal(matrix, ONES)


def test_a_large_matrix_is_refused_without_taking_it_apart():
    matrix = np.ones((3000, 3000), dtype=np.int64)
    refuse = lambda: rank_groups(MESH, None, None, ask("all_to_all_v", matrix=matrix))  # noqa: E731
    (fault,), peak = peak_bytes(lambda: faults_of(refuse))
    assert peak < 4 * matrix.nbytes
    assert fault.what == "the matrix is for 3000 ranks, mi300x_ubb8 has 8 GPUs"


def test_a_size_beside_a_matrix():
    (fault,) = faults_of(lambda: ask("all_to_all_v", "1M", matrix=ONES))
    assert (fault.where, fault.what) == ("size", "the matrix decides the size of all_to_all_v")
    assert ask("all_to_all_v", matrix=ONES).sizes_of(ask("all_to_all_v", matrix=ONES).ops[0]) == (8,)
    assert ask(["all_reduce", "all_to_all_v"], "1M", matrix=ONES).sizes == (2**20,)
