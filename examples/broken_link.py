"""A broken xGMI link of eight MI300X: what an all-to-all loses, and over which links its messages go."""

import collsim

row = collsim.simulate("mi300x_ubb8", "all_to_all", "1G", algo="direct", fail="link:gpu0-gpu1", profile="ideal").rows[0]
assert row.healthy_time_s is not None
found = [row.healthy_time_s, row.time_s]
# an eighth over each link of 64 GB/s; then seven eighths leave gpu0 over six links
hand = [2**30 / 8 / 64e9, 2**30 * 7 / 8 / (6 * 64e9)]
print(f"{row.time_s * 1e3:.3f} ms instead of {row.healthy_time_s * 1e3:.3f}, {row.limited_by}")
