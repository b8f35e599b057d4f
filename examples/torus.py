"""A torus of 4 x 4 x 4 GPUs: an all-to-all against its bisection, an all-reduce against the links of a GPU."""

import networkx as nx

import collsim

grid = nx.convert_node_labels_to_integers(nx.grid_graph([4, 4, 4], periodic=True))
torus: "nx.Graph[int]" = nx.Graph(grid.edges, name="torus")
nx.set_node_attributes(torus, {node: {"kind": "gpu", "rank": node} for node in torus})
nx.set_edge_attributes(torus, {edge: {"bandwidth_Bps": 50e9, "latency_s": 0.0} for edge in torus.edges})
ops = {"all_to_all": "direct", "all_reduce": "torus"}
found = [collsim.simulate(torus, op, "63M", algo=algo, profile="ideal").time_s for op, algo in ops.items()]
# halves: 32 x 32 parts of a 64th over 32 links each way; dimension by dimension, twice 63/64 over six links of a GPU
hand = [32 * 32 * 63 * 2**20 / 64 / (32 * 50e9), 2 * 63 * 2**20 * 63 / 64 / (6 * 50e9)]
print({op: f"{time_s * 1e6:.1f} us" for op, time_s in zip(ops, found, strict=True)})
