"""A system of one's own as a NetworkX graph: two boards of four GPUs, each GPU with one NIC to a switch.

Attributes are in SI. An edge of an undirected graph is a full-duplex link; its bandwidth is that of one direction.
"""

from itertools import combinations

import networkx as nx

import collsim

NVLINK = {"bandwidth_Bps": 100e9, "latency_s": 5e-7}
NIC = {"bandwidth_Bps": 50e9, "latency_s": 1e-6}

cluster: "nx.Graph[str]" = nx.Graph(name="two_boards")
for rank in range(8):
    cluster.add_node(f"gpu{rank}", kind="gpu", rank=rank)
cluster.add_node("switch", kind="switch", latency_s=3e-7)
for first in (0, 4):
    board = [f"gpu{rank}" for rank in range(first, first + 4)]
    cluster.add_edges_from(combinations(board, 2), **NVLINK)
cluster.add_edges_from(((f"gpu{rank}", "switch") for rank in range(8)), **NIC)

for ranks in (4, 8):
    result = collsim.simulate(cluster, ["all_reduce", "all_to_all"], "256M", ranks=ranks, profile="ideal")
    for row in result:
        print(
            f"{row.ranks} ranks  {row.op:<11} {row.algo:<10} {row.time_s * 1e3:6.2f} ms  "
            f"busbw {row.busbw_Bps / 1e9:5.1f} GB/s  bound {row.bound:<14} limited by {row.limited_by}"
        )
