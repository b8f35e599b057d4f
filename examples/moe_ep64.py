"""Experts over 64 GPUs of three systems: what combine of 128 tokens a rank takes at least, and with its kernels."""

import collsim

SYSTEMS = ("gb200_nvl72", "mi400_ualoe72", "hgx_h100,scale_out.nodes=8")
sent = 128 * 8 * 7168 * 2  # tokens, experts of each, elements, bytes of one in bf16
rate = {each["name"]: each["gpu_Bps"] for each in collsim.systems()}
# a rack: 63 of 64 copies leave the GPU; nodes of 8: 56 of 64 copies go over the adapter of 400 Gb/s
hand = [sent * 63 / 64 / rate["gb200_nvl72"], sent * 63 / 64 / rate["mi400_ualoe72"], sent * 56 / 64 / 50e9]
compared = collsim.compare_moe(SYSTEMS, "deepseek-v3", ep=64, phase="decode", tokens=128, load_only=True)
rows = [combine for _, combine in (pair for pair in compared.pairs(64) if pair)]
found = [row.lower_bound_s for row in rows]
for name, row in zip(SYSTEMS, rows, strict=True):
    print(f"{name}: {row.time_s * 1e6:.1f} us, bound {row.lower_bound_s * 1e6:.1f} us, {row.limited_by}")
