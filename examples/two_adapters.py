"""Four nodes of four GPUs, one or two adapters on the PCIe port of each: what an all-to-all gains."""

import collsim

found = []
for adapters in ("1", "2"):
    result = collsim.simulate(
        "hgx_h100", "all_to_all", "256M", nodes=4, gpus_per_node=4, overrides={"nic.per_gpu": adapters},
        profile="ideal",
    )  # fmt: skip
    found.append(result.time_s)
    print(f"{adapters} adapters: {result.time_s * 1e3:.3f} ms, {result.rows[0].limited_by}")
hand = [2**28 * 12 / 16 / 50e9, 2**28 * 12 / 16 / 63e9]  # 12 of 16 parts leave; PCIe carries 63 GB/s
