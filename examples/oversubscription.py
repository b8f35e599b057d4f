"""Half as much rate above the leaf switches as below: what an all-to-all of 64 H100 in a fat tree loses."""

import collsim

found = []
for ratio in ("1", "2"):  # leaf switches of 32 ports: 16 or 21 of them lead down, to whole nodes of 8
    above = {"scale_out.oversubscription": ratio, "scale_out.radix": "32"}
    fat_tree = collsim.load_topology("hgx_h100", above, scale_out={"nodes": 8, "fabric": "fat_tree"})
    result = collsim.simulate(fat_tree, "all_to_all", "256M", algo="direct", profile="ideal")
    found.append(result.time_s)
    print(f"{ratio}:1  {result.time_s * 1e3:.3f} ms, bound by {result.rows[0].bound}")
# 56 of 64 parts leave the node at 50 GB/s a GPU; 48 of 64 leave the leaf of two nodes at half of that
hand = [2**28 * 56 / 64 / 50e9, 2**28 * 48 / 64 / 25e9]
