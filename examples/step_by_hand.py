"""Collectives of a training step: tensor parallel in a node, pipeline and data parallel between four nodes of H100."""

import collsim

LAYOUT = "tp=8,pp=2,dp=2"  # rank = tp + 8 pp + 16 dp
ASKED = (("all_reduce", "64M", "tp", "ring"), ("send_recv", "64M", "pp", "auto"), ("all_reduce", "1G", "dp", "ring"))
hand = [2 * 7 / 8 * 2**26 / 450e9, 2**26 / 50e9, 2 * 1 / 2 * 2**30 / 50e9]
# a ring moves 2 (n-1)/n of the bytes: over 18 NVLinks of 25 GB/s in a node, over an adapter of 400 Gb/s between nodes
found = []
for op, size, over, algo in ASKED:
    result = collsim.simulate("hgx_h100", op, size, nodes=4, groups=LAYOUT, over=over, algo=algo, profile="ideal")
    found.append(result.time_s)
    print(f"{over}: {op} of {size}: {result.time_s * 1e3:.3f} ms, {result.rows[0].limited_by}")
