"""A system of one's own as a NetworkX graph: eight GPUs on two switches, and one cable between these."""

import networkx as nx

import collsim

system: "nx.Graph[str]" = nx.Graph(name="two_leaves")
system.add_nodes_from((f"gpu{i}", {"kind": "gpu", "rank": i}) for i in range(8))
system.add_nodes_from(["left", "right"], kind="switch")
system.add_edges_from(((f"gpu{i}", "left" if i < 4 else "right") for i in range(8)), bandwidth_Bps=50e9, latency_s=0)
system.add_edge("left", "right", bandwidth_Bps=100e9, latency_s=0)
result = collsim.simulate(system, "all_to_all", "1G", profile="ideal")
found, hand = [result.time_s], [4 * 4 * 2**30 / 8 / 100e9]  # four GPUs send four parts each over the cable
print(f"{result.time_s * 1e3:.2f} ms, {result.rows[0].limited_by}")
