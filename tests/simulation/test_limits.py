"""What limits a row: constants of the library under their names in the profile, and wires; judged by what-ifs."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import collsim
from collsim.core.operations import OPERATIONS
from collsim.library import load_profile
from collsim.library.costs.channel_costs import Protocol
from collsim.library.costs.message_costs import Messages
from collsim.simulation.time_parts import Parts, hide_wires
from collsim.topology import load_topology, zoo_names
from collsim.topology.zoo import cluster_names
from tests.property.depth import deep_but

SYSTEMS = deep_but(("hgx_h100", "mi300x_ubb8", "h100_rail"), (*zoo_names(), *cluster_names()))
COLLECTIVES = tuple(name for name in OPERATIONS if name != "all_to_all_v")
SIZES = (2**16, 2**20, 2**26)
SAME = 0.005
"""Times within this part of each other are unchanged."""
MORE = 0.05
"""By so much longer a call takes whose wires count."""
MUCH = 1000


@functools.cache
def rows(topo, op, rate=1):
    """Return the rows of a system by size, with all its links at *rate* times what they have."""
    topology = load_topology(topo)
    wiring = topology.wiring
    faster = replace(
        wiring, link_bandwidth_Bps=wiring.link_bandwidth_Bps * rate, link_nominal_Bps=wiring.link_bandwidth_Bps
    )
    node = topology.wiring.coordinates.node
    ranks = [int(gpu) for one in np.unique(node)[:2] for gpu in np.flatnonzero(node == one)[:8]]
    result = collsim.simulate(
        replace(topology, wiring=faster), op, list(SIZES), rank_list=ranks, profile=profile_of(topo)
    )
    return {row.size_bytes: row for row in result.rows}


def profile_of(topo):
    """Return the profile of a system."""
    return load_profile("auto", load_topology(topo))


def pairs(topo, op, rate):
    """Yield rows as shipped and after a change, where the same runs in both."""
    changed = rows(topo, op, rate)
    for size_bytes, row in rows(topo, op).items():
        after = changed.get(size_bytes)
        if after is not None and (after.algo, after.proto, after.channels) == (row.algo, row.proto, row.channels):
            yield row, after


@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("topo", SYSTEMS)
class TestWhatIfs:
    def test_parts_make_up_the_time(self, topo, op):
        for row in rows(topo, op).values():
            told_s = sum(limit.time_s for limit in row.limits)
            assert 0.95 * row.time_s <= told_s <= 1.02 * row.time_s, row.limits
            assert list(row.limits) == sorted(row.limits, key=lambda limit: -limit.time_s)

    def test_where_wires_without_limits_change_nothing_a_constant_of_the_library_is_named(self, topo, op):
        for row, after in pairs(topo, op, MUCH):
            if after.time_s > row.time_s * (1 - SAME):
                assert row.limits[0].kind in ("library", "host"), row.limited_by
                assert row.limited_by.removeprefix("host ").startswith(f"{row.limits[0].name} {row.limits[0].value}")

    def test_where_half_the_rate_costs_time_the_wire_is_named(self, topo, op):
        for row, after in pairs(topo, op, 0.5):
            if after.time_s > row.time_s * (1 + MORE):
                wires = [limit for limit in row.limits if limit.utilisation is not None]
                assert wires, (row.size_bytes, row.label, after.time_s / row.time_s, row.limited_by)
                assert wires[0].name in row.limited_by


def test_wires_keep_what_of_their_part_a_row_of_calls_shows():
    """Two ranks swap for 4 s, 1 s of it for the wires. Where all of a call is theirs in turn, nothing of that hides."""
    ends, ones, zeros = np.array([0, 1]), np.ones(2), np.zeros(2, dtype=np.int64)
    messages = Messages(2, ends, ends[::-1], zeros, zeros, 1e6 * ones, ones, ones, 1, 4096, own_blocks=False)
    costs = Protocol(0.0, 1e12, zero_copy=True)
    for base_s, shown_s in ((0.0, 1.0), (2.0, 1.0)):
        parts = Parts()
        parts.add(("wire", ""), 1.0)
        rates = np.full(2, 1e12), np.full(4, 1e12)
        hide_wires(parts, messages, np.full(2, 4.0), rates, replace(costs, base_s=base_s))
        assert parts.seconds["wire", ""] == pytest.approx(shown_s)
        assert sum(parts.seconds.values()) == pytest.approx(1.0)
