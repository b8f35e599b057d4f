"""A box of one's own: four GPUs in pairs on two PCIe switches, and a bridge of NVLink in each pair."""

import collsim

BOX = "examples/bridged_box.yaml"  # what differs from a shipped server
ops = {"all_to_all": "direct", "all_reduce": "ring"}
found = [collsim.simulate(BOX, op, "1G", algo=algo, profile="ideal").time_s for op, algo in ops.items()]
# each pair sends two of four parts of each of its GPUs to the other pair, or the whole ring, over the x16 of its switch
hand = [2 * 2**30 * 2 / 4 / 63e9, 2 * 2**30 * 3 / 4 / 63e9]
print(*(f"{op}: {time_s * 1e3:.2f} ms" for op, time_s in zip(ops, found, strict=True)), sep="\n")
