"""More bytes never take less time, as long as the library does not switch to something else.

Between neighbours that tools/scan_sizes.py lists, a library changes algorithm, protocol, channels, parts or chunks;
held at the same, a prediction rises with size on every system.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

import collsim
from collsim.core.errors import UnsupportedError
from collsim.topology.zoo import zoo_names

from .depth import deep_but

KIB, MIB = 2**10, 2**20
SIZES = (4 * KIB, 6 * KIB, 16 * KIB, 40 * KIB, 64 * KIB, 72 * KIB, 256 * KIB, 768 * KIB, 2 * MIB, 6 * MIB)
"""Messages of two ranks are cut into the same number of parts from 2 to 32 MiB, and take one protocol throughout."""
KERNELS = (
    *((op, "ring", proto) for op in ("all_reduce", "all_gather", "broadcast") for proto in ("LL", "LL128", "Simple")),
    *(("all_reduce", "chain", proto) for proto in ("LL", "LL128", "Simple")),
    ("reduce_scatter", "ring", "Simple"),
    ("reduce", "ring", "LL"),
    ("all_reduce", "nvls", "Simple"),
    *((op, "nccl_p2p", proto) for op in ("all_to_all", "gather", "scatter", "send_recv") for proto in ("LL", "Simple")),
)
USUAL = ("hgx_h100", "dgx_a100", "hgx_b200", "mi300x_ubb8", "mi250x_node")
SYSTEMS = (*USUAL, *(name for name in zoo_names() if name not in USUAL))
RANKS = 4


@pytest.mark.parametrize("system", deep_but(USUAL, SYSTEMS))
def test_time_rises_with_size_where_nothing_switches(system):
    ran = 0
    for op, algo, proto in KERNELS:
        options = {"ranks": RANKS, "algo": algo, "proto": proto, "channels": 4, "chunk": "16K"}
        try:
            rows = collsim.simulate(system, op, SIZES, **options).rows
        except UnsupportedError:
            continue  # no switch adds here, or the GPUs have no such links
        ran += 1
        falls = [(a.size_bytes, b.size_bytes) for a, b in pairwise(rows) if b.time_s < a.time_s * (1 - 1e-9)]
        assert not falls, (op, algo, proto)
    assert ran >= len(KERNELS) - 1  # all but NVLS run everywhere
