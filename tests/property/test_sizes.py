"""More bytes never take less time, as long as the library does not switch to something else.

Between neighbours that tools/scan_sizes.py lists, a library changes algorithm, protocol, channels, parts, chunks or how
bytes are dealt to channels; held at the same, a prediction rises with size on every system. Transfers that meet on
links may still miss each other at the next size: where links hold nobody up, no law of costs falls.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest

import collsim
from collsim.calibration.cases import Measured, MeasuredCase
from collsim.calibration.observations import observe
from collsim.core.errors import UnsupportedError
from collsim.core.operations import operation
from collsim.library import Call, choose, load_library, load_profile, system_of
from collsim.topology import load_topology
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


OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send_recv",
)  # fmt: skip
MESHED = ("mi350x_ubb8", "dgx1_v100")
"""Their rings go several ways, so that ranks wait for each other."""
LEAST, MOST = 2**10, 2**26
DRAWS, NEIGHBOURS, STEP = 4, 4, 1.02
MOST_RANKS = 80
WIDE = 1e6


def nodes_of(topology):
    """How many scale-up domains there are."""
    return len(np.unique(topology.wiring.coordinates.node)) if topology.cluster else 1


def device_times(topology, profile, op, sizes):
    """Times on the device with the library's choices, where links carry all that channels can send."""
    ranks = topology.n_gpus
    case = MeasuredCase(op, ranks, 0, library=profile.library, nodes=nodes_of(topology))
    rows = [Measured(replace(case, size_bytes=size), "", 0, 1.0, None, None) for size in sizes]
    found, refused = observe(rows, topology, profile, profile.library)
    assert not refused
    for each in found:
        costs = (profile.network if each.over_nodes else profile).protocol(each.proto, each.family)
        run = each.lowered.run
        wide = replace(run, trunk_capacity_Bps=run.trunk_capacity_Bps * WIDE)
        yield replace(each, run=wide).device_s(costs)


def choices(topology, profile, op, sizes):
    """What the library decides at each size."""
    library, ranks = load_library(profile.library), topology.n_gpus
    system = system_of(topology, list(range(ranks)))
    n_nodes = nodes_of(topology)
    return [choose(Call(op, ranks, size, n_nodes=n_nodes), system, library) for size in sizes]


def is_alike(one, other):
    """Whether nothing is switched, and no channel gets fewer bytes."""
    named = (
        (it.algo, it.proto, it.channels, it.chunk_bytes, it.point_to_point and it.point_to_point.parts)
        for it in (one, other)
    )
    return len(set(named)) == 1 and all(a <= b for a, b in zip(one.shares_bytes, other.shares_bytes, strict=True))


@pytest.mark.parametrize("nodes", [0, 2])
@pytest.mark.parametrize("system", deep_but((*MESHED, "hgx_h100"), SYSTEMS))
def test_no_law_of_costs_falls_with_size(system, nodes):
    """At sizes drawn for each system and operation, as the library runs them."""
    if load_topology(system).n_gpus * max(nodes, 1) > MOST_RANKS:
        pytest.skip("schedules are too large to be laid again and again")
    topology = load_topology(system, scale_out={"nodes": nodes} if nodes else None)
    profile = load_profile("auto", topology)
    if not profile.library:
        pytest.skip("no library runs there")
    rng, compared = np.random.default_rng(crc32(f"{system} {nodes}".encode())), 0
    for op in OPS * DRAWS:
        low = np.exp(rng.uniform(np.log(LEAST), np.log(MOST)))
        kind = operation(op)
        sizes = [kind.rounded_size_bytes(int(low * STEP**k), topology.n_gpus, 4) for k in range(NEIGHBOURS)]
        chosen, times = choices(topology, profile, op, sizes), list(device_times(topology, profile, op, sizes))
        alike = [is_alike(a, b) for a, b in pairwise(chosen)]
        compared += sum(alike)
        falls = [(sizes[k], sizes[k + 1]) for k in np.flatnonzero(alike) if times[k + 1] < times[k] * (1 - 1e-9)]
        assert not falls, op
    assert compared > DRAWS * len(OPS)
