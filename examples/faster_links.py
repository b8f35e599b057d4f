"""What would faster or quicker links buy?

A figure of the topology is changed with an override, the same that `--set` takes on the command line. Large messages
ask for bandwidth, small ones for latency; the efficiency says how much of the wire each run uses.
"""

import collsim

WHAT_IFS = {
    "as shipped": {},
    "links 25% faster": {"link.bandwidth": "80 GB/s"},
    "links twice as fast": {"link.bandwidth": "128 GB/s"},
    "half the latency": {"link.latency": "250 ns"},
}

print("all_to_all on 8 MI300X: time in us (efficiency)")
print(f"{'what if':<22}{'256 KiB':>18}{'256 MiB':>18}")
for name, overrides in WHAT_IFS.items():
    result = collsim.simulate("mi300x_ubb8", "all_to_all", ["256K", "256M"], overrides=overrides)
    cells = [f"{row.time_s * 1e6:.1f} ({row.efficiency:.0%})" for row in result]
    print(f"{name:<22}{cells[0]:>18}{cells[1]:>18}")
