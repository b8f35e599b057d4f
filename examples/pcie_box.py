"""A box of one's own: four GPUs on one PCIe switch, and bridges between two pairs of them."""

import networkx as nx

import collsim

box: "nx.Graph[str]" = nx.Graph(name="pcie_box")
box.add_nodes_from((f"gpu{i}", {"kind": "gpu", "rank": i}) for i in range(4))
box.add_node("root", kind="switch")
box.add_edges_from(((f"gpu{i}", "root") for i in range(4)), bandwidth_Bps=25e9, latency_s=0)
box.add_edges_from([("gpu0", "gpu1"), ("gpu2", "gpu3")], bandwidth_Bps=50e9, latency_s=0)
ops = {"all_to_all": "direct", "all_reduce": "ring"}
found = [collsim.simulate(box, op, "1G", algo=algo, profile="ideal").time_s for op, algo in ops.items()]
hand = [2**30 * 2 / 4 / 25e9, 2 * 2**30 * 3 / 4 / 25e9]  # two of four parts, or the whole ring, go over PCIe
print(*(f"{op}: {time_s * 1e3:.2f} ms" for op, time_s in zip(ops, found, strict=True)), sep="\n")
