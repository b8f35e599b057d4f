"""Four adapters for eight GPUs instead of eight: every second rail, what an all-to-all of four nodes loses."""

import collsim

found = []
for gpus in ("1", "2"):
    overrides = {"nic.shared_by": gpus}
    result = collsim.simulate("hgx_h100", "all_to_all", "256M", nodes=4, overrides=overrides, profile="ideal")
    found.append(result.time_s)
    print(f"{gpus} GPUs an adapter: {result.time_s * 1e3:.3f} ms, {result.rows[0].limited_by}")
# 24 of 32 parts leave the node, at 50 GB/s a GPU or half of it
hand = [2**28 * 24 / 32 / 50e9, 2**28 * 24 / 32 / 25e9]
