"""Adapters of 800 Gb/s instead of 400: what a hierarchical all-reduce of four nodes gains."""

import collsim

inside = 2 * 2**30 * 7 / 8 / 450e9  # scatter and gather in the node: 7 of 8 parts over NVLink
hand = [inside + 2 * 3 / 4 * 2**30 / 8 / rate_Bps for rate_Bps in (50e9, 100e9)]  # each GPU rings with an eighth
found = []
for bandwidth in ("400 Gb/s", "800 Gb/s"):
    result = collsim.simulate(
        "hgx_h100", "all_reduce", "1G", nodes=4, algo="hierarchical", overrides={"nic.bandwidth": bandwidth},
        profile="ideal",
    )  # fmt: skip
    found.append(result.time_s)
    print(f"{bandwidth}: {result.time_s * 1e3:.3f} ms, {result.busbw_Bps / 1e9:.0f} GB/s")
