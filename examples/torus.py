"""A torus of 4 x 4 GPUs: an all-to-all against its bisection, a ring all-reduce against the links of a GPU."""

import networkx as nx

import collsim

grid = nx.convert_node_labels_to_integers(nx.grid_graph([4, 4], periodic=True))
torus: "nx.Graph[int]" = nx.Graph(grid.edges, name="torus")
nx.set_node_attributes(torus, {node: {"kind": "gpu", "rank": node} for node in torus})
nx.set_edge_attributes(torus, {edge: {"bandwidth_Bps": 50e9, "latency_s": 0.0} for edge in torus.edges})
ops = {"all_to_all": "direct", "all_reduce": "ring"}
found = [collsim.simulate(torus, op, "64M", algo=algo, profile="ideal").time_s for op, algo in ops.items()]
# halves: 8 x 8 parts of a sixteenth over 8 links each way; rings, one for each of the four links of a GPU: 2 x 15/16
hand = [8 * 8 * 2**26 / 16 / (8 * 50e9), 2 * 2**26 * 15 / 16 / (4 * 50e9)]
print({op: f"{time_s * 1e6:.1f} us" for op, time_s in zip(ops, found, strict=True)})
