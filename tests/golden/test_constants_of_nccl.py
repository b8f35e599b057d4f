"""The figures of NCCL's cost model, written down a second time: those of 2.28, and what each version changed.

2.28 is src/graph/tuning.cc of v2.28.3-1, in the order of its tables; 2.26 was compared with v2.26.2-1, 2.22, 2.21 and
2.20 with v2.22.3-1 (178b6b759074), v2.21.5-1 (ab2b89c4c339) and v2.20.3-1 (b6475625fbca), 2.18 with 2.18.3 as
gbxu/autoccl has it (a0bf96bf646c). Rows that a version's source does not have (PAT before 2.23, trees of NVLS before
2.27, Blackwell before 2.26) are those of the files.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from collsim.library.nccl.versions import ARCHITECTURES, FOLDER, NcclConstants, nccl_constants

ANCHOR = (2, 28)
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
FIGURES: dict[str, Any] = {
    # LL, LL128, Simple of each algorithm
    "base_us": (
        (6.8, 14.0, 8.4), (6.6, 14.0, 8.4), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (8.0, 8.0, 8.0),
    ),
    "nvlink_us": (
        (0.6, 1.25, 4.0), (0.6, 1.9, 3.4), (0, 0, 3.7), (0, 0, 2.8), (0, 0, 25), (0, 0, 25), (0, 0, 4.0),
    ),
    "pci_us": ((1.0, 1.9, 4.0), (1.0, 2.5, 5.7), (0, 0, 3.7), (0, 0, 2.8), (0, 0, 0), (0, 0, 0), (0, 0, 4.0)),
    "net_us": ((5.0, 8.5, 14), (2.7, 4.0, 14.0), (0, 0, 31), (0, 0, 30), (0, 0, 18), (0, 0, 14), (0, 0, 14)),
    # 1, 2, more nodes on Volta, Ampere, Hopper, Blackwell
    "ll_max": ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (2 * 141.0, 2 * 45.0, 2 * 35.0)),
    "ring_ll128": ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (2 * 36.7, 2 * 36.7, 2 * 36.7)),
    "tree_ll128": ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    "tree": ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    "nvls_tree": ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 43.1)),
    # Volta, Ampere, Hopper, Blackwell
    "nvls_efficiency": (0.0, 0.0, 0.85, 0.74),
    "nvls_ratio": None, "pat_ratio": 0.75, "cell_bytes": 16 * 1024, "round_traffic": False,
}  # fmt: skip
HOPPER = {"ring_ll128": (36.7,) * 3, "tree_ll128": (36.7, 36.7, 29.0), "tree": (38.7, 41.4, 36.0)}
CHANGES: dict[tuple[int, int], dict[str, tuple[Any, Any]]] = {
    (2, 20): {
        "base_us.collnet_direct": ((6.8, 14.0, 0), (0, 0, 0)),
        "base_us.collnet_chain": ((6.8, 14.0, 0), (0, 0, 0)),
        "base_us.nvls": ((0, 0, 23.0), (0, 0, 0)),
        "base_us.nvls_tree": ((0, 0, 23.0), (0, 0, 0)),
        "nvlink_us.tree": ((0.6, 1.25, 4), (0.6, 1.25, 28)),
        "nvlink_us.collnet_direct": ((0, 0, 8.0), (0, 0, 3.7)),
        "nvlink_us.collnet_chain": ((0, 0, 4.75), (0, 0, 2.8)),
        "nvlink_us.nvls": ((0, 0, 0), (0, 0, 23)),
        "nvlink_us.nvls_tree": ((0, 0, 0), (0, 0, 23)),
        "pci_us.tree": ((1.0, 1.9, 6), (1.0, 1.9, 28)),
        "pci_us.collnet_direct": ((0, 0, 8.0), (0, 0, 3.7)),
        "pci_us.collnet_chain": ((0, 0, 8.0), (0, 0, 2.8)),
        "net_us.tree": ((5.0, 8.5, 14), (5.0, 8.5, 28)),
        "net_us.collnet_direct": ((0, 0, 10.7), (0, 0, 31)),
        "net_us.collnet_chain": ((0, 0, 14), (0, 0, 30)),
        "net_us.nvls_tree": ((0, 0, 19), (0, 0, 14)),
    },
    (2, 21): {
        "nvlink_us.nvls": ((0, 0, 23), (0, 0, 25)),
        "nvlink_us.nvls_tree": ((0, 0, 23), (0, 0, 25)),
        "ll_max.hopper": ((87.7, 22.5, 19.0), (141.0, 45.0, 35.0)),
        "ll_max.blackwell": ((87.7, 22.5, 19.0), (141.0, 45.0, 35.0)),
    },
    (2, 22): {"cell_bytes": (0, 512)},
    (2, 23): {
        "base_us.tree": ((6.8, 14.0, 0), (6.8, 14.0, 8.4)),
        "nvlink_us.tree": ((0.6, 1.25, 28), (0.6, 1.25, 4.0)),
        "pci_us.tree": ((1.0, 1.9, 28), (1.0, 1.9, 4.0)),
        "net_us.tree": ((5.0, 8.5, 28), (5.0, 8.5, 14)),
        "pat_ratio": (0.0, 0.85),
        "cell_bytes": (512, 16 * 1024),
    },
    (2, 26): {
        **{f"{table}.blackwell": (row, tuple(2 * rate for rate in row)) for table, row in HOPPER.items()},
        "ll_max.blackwell": ((141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
        "nvls_tree.blackwell": ((0.0, 57.7, 45.5), (0.0, 115.4, 91.0)),
        "nvls_efficiency.blackwell": (0.85, 0.74),
        "pat_ratio": (0.85, 0.75),
    },
    (2, 27): {"nvls_ratio": (5 / 6, None)},
    (2, 28): {
        "tree_ll128.blackwell": ((73.4, 73.4, 58.0), (55.6, 31.67, 20.0)),
        "tree.blackwell": ((77.4, 82.8, 72.0), (70.0, 42.8, 24.0)),
        "nvls_tree.blackwell": ((0.0, 115.4, 91.0), (0.0, 96.0, 43.1)),
    },
    (2, 29): {
        "net_us.nvls_tree": ((0, 0, 14), (0, 0, 20.9)),
        "ring_ll128.blackwell": ((73.4, 73.4, 73.4), (34.5, 34.6, 34.5)),
        "nvls_tree.blackwell": ((0.0, 96.0, 43.1), (0.0, 96.0, 43.8)),
        "cell_bytes": (16 * 1024, 32 * 1024),
        "round_traffic": (False, True),
    },
    (2, 30): {
        "ring_ll128.blackwell": ((34.5, 34.6, 34.5), (40.0, 40.0, 40.0)),
        "nvls_tree.blackwell": ((0.0, 96.0, 43.8), (0.0, 96.0, 80.0)),
    },
}
VERSIONS = ((2, 18), *CHANGES)


def flat(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures by table and row, such as ``net_us.tree``."""
    found = {}
    for table, rows in figures.items():
        if isinstance(rows, tuple):
            names = ALGORITHMS if table.endswith("_us") else ARCHITECTURES
            found |= {f"{table}.{name}": row for name, row in zip(names, rows, strict=True)}
        elif isinstance(rows, dict):
            found |= {f"{table}.{name}": row for name, row in rows.items()}
        else:
            found[table] = rows
    return found


def shipped(version: tuple[int, int]) -> dict[str, Any]:
    constants = nccl_constants(version)
    return flat({name: getattr(constants, name) for name in NcclConstants.__dataclass_fields__})


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    assert before.keys() == after.keys()
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def written(version: tuple[int, int]) -> dict[str, Any]:
    """Return the figures of a version by this file alone: those of 2.28, with changes taken back or added."""
    figures = flat(FIGURES)
    for since in reversed([since for since in CHANGES if version < since <= ANCHOR]):
        figures |= {key: before for key, (before, _) in CHANGES[since].items()}
    for since in [since for since in CHANGES if ANCHOR < since <= version]:
        figures |= {key: after for key, (_, after) in CHANGES[since].items()}
    return figures


def test_there_is_a_file_for_each_version_that_changed_any() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {f"{major}.{minor}" for major, minor in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_figure_of_every_version(version: tuple[int, int]) -> None:
    assert changed(written(version), shipped(version)) == {}


@pytest.mark.parametrize(("before", "after"), [*pairwise(VERSIONS)])
def test_a_version_differs_from_the_one_before_in_what_is_named(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    assert changed(shipped(before), shipped(after)) == CHANGES[after]
