"""Whatever fabric is asked for, it is refused or its switches keep to their ports and join all nodes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.core.errors import SpecError
from collsim.topology import FABRICS, load_topology
from collsim.topology.summary import is_connected


@st.composite
def clusters(draw):
    fabric = draw(st.sampled_from(FABRICS))
    tree = fabric in ("rail", "rail_only", "fat_tree")
    return draw(st.sampled_from(["hgx_h100", "mi250x_node", "pcie_gen5_8gpu", "dgx2_v100"])), {
        "nodes": draw(st.integers(2, 80)),
        "fabric": fabric,
        "radix": draw(st.integers(4, 64)),
        "port_rate": "400 Gb/s",
        "tiers": draw(st.sampled_from([None, 1, 2, 3])) if tree else None,
        "oversubscription": draw(st.sampled_from(["1", "2", "3", "0.862"])) if tree else None,
    }


def built_or_refused(node, scale_out):
    """Return the cluster, None if it does not fit; any other refusal is an error."""
    try:
        return load_topology(node, scale_out=scale_out)
    except SpecError as error:
        if " fit" not in str(error):
            raise
        return None


@settings(max_examples=60)
@given(clusters())
def test_ports_and_reach(asked):
    node, scale_out = asked
    topology = built_or_refused(node, scale_out)
    if topology is None:
        return
    wiring, cluster = topology.wiring, topology.cluster
    cables = np.bincount(wiring.link_src, wiring.link_count, minlength=wiring.n_nodes)[cluster.first_leaf :]
    assert cables.max() <= scale_out["radix"]
    assert is_connected(wiring)
    top = cluster.switch_tier == cluster.switch_tier.max()
    groups = np.unique(cluster.switch_group[~top & (cluster.switch_tier == 1)])
    below = np.repeat(np.arange(cluster.plan.switches), np.diff(cluster.up_ptr))
    for core in np.flatnonzero(top) if cluster.plan.cores else ():
        mine = np.unique(cluster.switch_group[below[cluster.up_switch == core]])
        assert len(mine) == len(groups) // cluster.plan.planes
