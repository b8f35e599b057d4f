"""The constants of NCCL's versions are data: complete, from a named source, and refused where they are not."""

from __future__ import annotations

import re

import pytest

from collsim.core.errors import SpecError
from collsim.library.library import RANGES
from collsim.library.nccl.versions import FOLDER, nccl_constants, read_constants

FILES = sorted(FOLDER.glob("*.yaml"))
TEXT = (FOLDER / "2.28.yaml").read_text(encoding="utf-8")


def test_files_reach_from_the_oldest_version_to_the_newest() -> None:
    versions = sorted(tuple(map(int, path.stem.split("."))) for path in FILES)
    assert (versions[0], versions[-1]) == RANGES["nccl"]
    found = [nccl_constants((2, minor)) for minor in range(18, 32)]  # RCCL goes on to 2.31
    assert len({id(constants) for constants in found}) >= len(FILES)
    assert found[-1] == found[-2]
    assert found[1] == found[0] != found[3]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_differs_from_the_one_before_and_names_its_source(path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"^source: NCCL src/graph/tuning\.cc", text, re.MULTILINE)
    read_constants(text.encode(), path.name)
    others = [other for other in FILES if other != path]
    assert all(read_constants(other.read_bytes(), "") != read_constants(text.encode(), "") for other in others)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("pat_ratio: 0.75", "pat_ration: 0.75", 'unknown key "pat_ration"'),
        ("pat_ratio: 0.75", "", '"pat_ratio" is missing'),
        ("pat_ratio: 0.75", "pat_ratio: -1", "-1 is no number of at least 0"),
        ("pat_ratio: 0.75", "pat_ratio: true", "True is no number"),
        ("tree: [0.6, 1.25, 4.0]", "tree: [0.6, 1.25]", "is no row"),
        ("tree: [0.6, 1.25, 4.0]", "tree: [0.6, fast, 4.0]", "'fast' is no number"),
        ("tree: [0.6, 1.25, 4.0]", "trees: [0.6, 1.25, 4.0]", 'unknown key "trees"'),
        ("  volta: [39.0, 39.0, 20.4]\n", "", '"volta" is missing'),
        ("collsim.nccl/1", "collsim.nccl/2", "the schema is 'collsim.nccl/2'"),
        ("source: NCCL", "sources: NCCL", '"source" is missing'),
        ("round_traffic: false", "round_traffic: 3", "not true or false"),
        ("nvls_efficiency: {", "nvls_efficiency: 3 # {", "nvls_efficiency is not a mapping"),
    ],
)
def test_what_is_no_constant_is_refused(old: str, new: str, fault: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(SpecError, match=re.escape(fault)):
        read_constants(TEXT.replace(old, new).encode(), "a.yaml")


def test_all_faults_are_told_at_once_with_their_lines() -> None:
    wrong = TEXT.replace("pat_ratio: 0.75", "pat_ratio: x").replace("cell_bytes: 16384", "cell_bytes: y")
    with pytest.raises(SpecError) as error:
        read_constants(wrong.encode(), "a.yaml")
    line = wrong.splitlines().index("pat_ratio: x") + 1
    assert [fault.where for fault in error.value.faults] == [
        f"a.yaml:{line}: pat_ratio",
        f"a.yaml:{line + 1}: cell_bytes",
    ]
