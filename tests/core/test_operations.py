"""Operations, data types, and the sizes and factors of nccl-tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collsim.core.errors import UnknownNameError
from collsim.core.operations import ALIASES, DTYPE_ALIASES, DTYPES, OPERATIONS, dtype_bytes, operation

NAMES = sorted(OPERATIONS)


@pytest.mark.parametrize(
    ("name", "factor_of_8"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("all_to_all_v", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
        ("gather", 0.875),
        ("scatter", 0.875),
        ("send_recv", 1),
    ],
)
def test_busbw_factor(name, factor_of_8):
    """PERFORMANCE.md of nccl-tests."""
    assert operation(name).busbw_factor(8) == factor_of_8


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("alltoall", "all_to_all"),
        ("AllReduce", "all_reduce"),
        ("all-gather", "all_gather"),
        ("alltoallv", "all_to_all_v"),
        (" sendrecv ", "send_recv"),
        ("reducescatter", "reduce_scatter"),
        ("bcast", "broadcast"),
    ],
)
def test_spellings(alias, name):
    assert operation(alias).name == name


def test_aliases_are_unique_and_no_names():
    assert len(ALIASES) == sum(len(entry.aliases) for entry in OPERATIONS.values())
    assert not set(ALIASES) & set(OPERATIONS)
    assert all(DTYPES[name] for name in DTYPE_ALIASES.values())


def test_unknown_names_offer_near_ones():
    with pytest.raises(UnknownNameError, match='did you mean "all_reduce"'):
        operation("all_reduc")
    with pytest.raises(UnknownNameError, match='did you mean "bfloat16"'):
        dtype_bytes("bfloat1")


@pytest.mark.parametrize(("name", "bytes_"), [("float", 4), ("FP16", 2), ("bf16", 2), ("f8e4m3", 1), ("uint64", 8)])
def test_element_size(name, bytes_):
    assert dtype_bytes(name)[1] == bytes_


@given(st.sampled_from(NAMES), st.integers(1, 2**40), st.integers(2, 1024), st.sampled_from([1, 2, 4, 8]))
def test_rounding(name, size, n, element_bytes):
    op = operation(name)
    rounded = op.rounded_size_bytes(size, n, element_bytes)
    grain = 16 * n if op.blocked else element_bytes
    assert 0 <= size - rounded < grain
    assert rounded % grain == 0
    assert op.count(rounded, n, element_bytes) * element_bytes * (n if op.blocked else 1) == rounded
