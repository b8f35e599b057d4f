"""Which all-reduce is fastest on a mesh, and from which size on?

Eight MI355X GPUs are joined pairwise. Small messages want few steps, large ones want every link busy in every step.
14 channels keep the rings few, and the run short.
"""

import collsim

SIZES = ["64K", "1M", "16M", "256M"]

result = collsim.simulate(
    "mi355x_ubb8", "all_reduce", SIZES, algo=["ring", "tree", "all_pairs", "one_shot"], channels=14
)
algorithms = sorted({row.algo for row in result})

print(f"all_reduce on {result.topology['title']}, busbw in GB/s")
print(f"{'size':>12}" + "".join(f"{name:>11}" for name in algorithms) + "  fastest, and what limits it")
for size_bytes in sorted({row.size_bytes for row in result}):
    rows = {row.algo: row for row in result if row.size_bytes == size_bytes}
    best = min(rows.values(), key=lambda row: row.time_s)
    cells = "".join(f"{rows[name].busbw_Bps / 1e9:11.1f}" for name in algorithms)
    print(f"{size_bytes:12d}{cells}  {best.algo}: {best.limited_by}")
