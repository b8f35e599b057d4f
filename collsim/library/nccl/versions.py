"""The constants of NCCL's cost model per version.

Every figure comes from the public sources named beside it. Latencies are microseconds, rates decimal GB/s, as there.
A version between two entries of `HISTORY` has the constants of the older entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

__all__ = ["ARCHITECTURES", "NcclConstants", "Row", "nccl_constants"]

ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell")
"""Rows of the tables, by compute capability: below 80, 80 to 89, 90, 100 and above (NCCL src/graph/tuning.cc)."""

Row = tuple[float, float, float]
Table = tuple[Row, Row, Row, Row]
Hops = dict[str, Row]


@dataclass(frozen=True, slots=True)
class NcclConstants:
    """Constants of one version (NCCL src/graph/tuning.cc unless said otherwise).

    Rows of protocols are (LL, LL128, Simple); rows of nodes are (1, 2, more than 2); tables have one row per
    architecture.

    Attributes
    ----------
    base_us : dict
        Fixed cost per algorithm and protocol.
    nvlink_us, pci_us, net_us : dict
        Cost of one hop per algorithm and protocol.
    ll_max, ring_ll128, tree_ll128, tree, nvls_tree : tables
        GB/s: the most that LL reaches in total, and the most that one channel reaches.
    nvls_efficiency : tuple
        Per architecture.
    nvls_ratio : float or None
        Algorithm over bus bandwidth of NVLS in versions that took a fixed one.
    pat_ratio : float
        0 where PAT does not exist.
    cell_bytes : int
        Grain in traffic when bytes are dealt to channels (src/enqueue.cc); 0 where they are dealt evenly.
    round_traffic : bool
        Whether the traffic per channel is rounded up to 16 bytes instead of being at least one cell.
    """

    base_us: Hops
    nvlink_us: Hops
    pci_us: Hops
    net_us: Hops
    ll_max: Table
    ring_ll128: Table
    tree_ll128: Table
    tree: Table
    nvls_tree: Table
    nvls_efficiency: tuple[float, float, float, float]
    nvls_ratio: float | None
    pat_ratio: float
    cell_bytes: int
    round_traffic: bool


def _simple(value: float) -> Row:
    return (0.0, 0.0, value)


def _same(value: float) -> Row:
    return (value, value, value)


NEWEST = NcclConstants(
    base_us={
        "tree": (6.8, 14.0, 8.4),
        "ring": (6.6, 14.0, 8.4),
        **dict.fromkeys(("collnet_direct", "collnet_chain", "nvls", "nvls_tree"), _same(0.0)),
        "pat": _same(8.0),
    },
    nvlink_us={
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "collnet_direct": _simple(3.7),
        "collnet_chain": _simple(2.8),
        "nvls": _simple(25.0),
        "nvls_tree": _simple(25.0),
        "pat": _simple(4.0),
    },
    pci_us={
        "tree": (1.0, 1.9, 4.0),
        "ring": (1.0, 2.5, 5.7),
        "collnet_direct": _simple(3.7),
        "collnet_chain": _simple(2.8),
        "nvls": _simple(0.0),
        "nvls_tree": _simple(0.0),
        "pat": _simple(4.0),
    },
    net_us={
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "collnet_direct": _simple(31.0),
        "collnet_chain": _simple(30.0),
        "nvls": _simple(18.0),
        "nvls_tree": _simple(20.9),
        "pat": _simple(14.0),
    },
    ll_max=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128=(_same(20.0), _same(20.0), _same(36.7), _same(40.0)),
    tree_ll128=(_same(20.0), _same(20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    nvls_efficiency=(0.0, 0.0, 0.85, 0.74),
    nvls_ratio=None,
    pat_ratio=0.75,
    cell_bytes=32 * 1024,
    round_traffic=True,
)
"""NCCL 2.30."""


def _with_blackwell(table: Table, row: Row) -> Table:
    return (*table[:3], row)


def _doubled(row: Row) -> Row:
    return (2 * row[0], 2 * row[1], 2 * row[2])


def _v2_29(new: NcclConstants) -> NcclConstants:
    """NCCL 2.29: other Blackwell rows."""
    return replace(
        new,
        ring_ll128=_with_blackwell(new.ring_ll128, (34.5, 34.6, 34.5)),
        nvls_tree=_with_blackwell(new.nvls_tree, (0.0, 96.0, 43.8)),
    )


def _v2_28(new: NcclConstants) -> NcclConstants:
    """NCCL 2.28: smaller cells, confirmed by the channel counts of its debug lines."""
    return replace(
        new,
        net_us={**new.net_us, "nvls_tree": _simple(14.0)},
        ring_ll128=_with_blackwell(new.ring_ll128, _same(73.4)),
        nvls_tree=_with_blackwell(new.nvls_tree, (0.0, 96.0, 43.1)),
        cell_bytes=16 * 1024,
        round_traffic=False,
    )


def _v2_27(new: NcclConstants) -> NcclConstants:
    """NCCL 2.26 and 2.27: Blackwell is twice Hopper in every table."""
    return replace(
        new,
        tree_ll128=_with_blackwell(new.tree_ll128, _doubled(new.tree_ll128[2])),
        tree=_with_blackwell(new.tree, _doubled(new.tree[2])),
        nvls_tree=_with_blackwell(new.nvls_tree, _doubled(new.nvls_tree[2])),
    )


def _v2_26(new: NcclConstants) -> NcclConstants:
    """NCCL 2.26: a fixed ratio for NVLS."""
    return replace(new, nvls_ratio=5 / 6)


def _v2_23(new: NcclConstants) -> NcclConstants:
    """NCCL 2.23 to 2.25: no Blackwell rows, the first PAT."""
    return replace(
        new,
        pat_ratio=0.85,
        nvls_efficiency=(0.0, 0.0, 0.85, 0.85),
        ll_max=_with_blackwell(new.ll_max, new.ll_max[2]),
        ring_ll128=_with_blackwell(new.ring_ll128, new.ring_ll128[2]),
        tree_ll128=_with_blackwell(new.tree_ll128, new.tree_ll128[2]),
        tree=_with_blackwell(new.tree, new.tree[2]),
        nvls_tree=_with_blackwell(new.nvls_tree, new.nvls_tree[2]),
    )


def _v2_22(new: NcclConstants) -> NcclConstants:
    """NCCL 2.22: the tree with Simple is made so slow that it is never chosen; tiny cells."""
    return replace(
        new,
        pat_ratio=0.0,
        cell_bytes=512,
        nvlink_us=_with_tree(new.nvlink_us, 28.0),
        pci_us=_with_tree(new.pci_us, 28.0),
        net_us=_with_tree(new.net_us, 28.0),
    )


def _with_tree(hops: Hops, simple_us: float) -> Hops:
    return {**hops, "tree": (*hops["tree"][:2], simple_us)}


def _v2_21(new: NcclConstants) -> NcclConstants:
    """NCCL 2.21: bytes are dealt evenly to the channels."""
    return replace(new, cell_bytes=0)


def _v2_18(new: NcclConstants) -> NcclConstants:
    """NCCL 2.18 to 2.20."""
    return replace(
        new,
        base_us={
            **new.base_us,
            "nvls": _simple(23.0),
            "nvls_tree": _simple(23.0),
            "collnet_direct": (8.0, 8.0, 10.7),
            "collnet_chain": (4.75, 8.0, 14.0),
        },
        nvlink_us={**_with_tree(new.nvlink_us, 4.0), "nvls": _simple(0.0), "nvls_tree": _simple(0.0)},
        pci_us=_with_tree(new.pci_us, 6.0),
        net_us={**_with_tree(new.net_us, 14.0), "nvls_tree": _simple(19.0)},
        ll_max=(*new.ll_max[:2], (87.7, 22.5, 19.0), (87.7, 22.5, 19.0)),
    )


HISTORY = (
    ((2, 30), lambda new: new),
    ((2, 29), _v2_29),
    ((2, 28), _v2_28),
    ((2, 27), _v2_27),
    ((2, 26), _v2_26),
    ((2, 23), _v2_23),
    ((2, 22), _v2_22),
    ((2, 21), _v2_21),
    ((2, 18), _v2_18),
)
"""What an entry differs in from the one above it."""


@cache
def nccl_constants(version: tuple[int, int]) -> NcclConstants:
    """Return the constants of a version of NCCL.

    >>> nccl_constants((2, 28)).net_us["nvls_tree"], nccl_constants((2, 30)).net_us["nvls_tree"]
    ((0.0, 0.0, 14.0), (0.0, 0.0, 20.9))
    """
    constants = NEWEST
    for since, change in HISTORY:
        constants = change(constants)
        if since <= version:
            return constants
    raise AssertionError(version)
