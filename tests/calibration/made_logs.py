"""Logs as nccl-tests prints them, made up."""

from collsim.core.operations import operation

HEAD = """\
# nThread 1 nGpus {gpus} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: {graph}
#
# Using devices
"""
DEVICE = "#  Rank {rank:2} Group {group:2} Pid   4100 on  {host} device {device:2} [0x00] NVIDIA H100 80GB HBM3\n"
ROW = "{size:12d} {count:13d} {dtype:>9} {redop:>7} {root:7d} {time:8.2f} {algbw:7.2f} {busbw:7.2f} {wrong:6}\n"


def log_text(op="all_reduce", ranks=4, hosts=1, groups=1, graph=0, lines=(), rows=((2**20, 20.0),), **cells):
    """Return a log as nccl-tests prints it, out of place only."""
    text = "".join(f"{line}\n" for line in lines) + f"# Collective test starting: {op}_perf\n"
    text += HEAD.format(gpus=1, graph=graph)
    text += "".join(
        DEVICE.format(
            rank=rank,
            group=rank % groups,
            host=f"box-{rank * hosts // (ranks * groups)}",
            device=rank % (ranks * groups // hosts),
        )
        for rank in range(ranks * groups)
    )
    for size, time_us, *wrong in rows:
        algbw = size / time_us / 1e3
        values = {"dtype": "float", "redop": "sum" if operation(op).reduces else "none", "root": -1, **cells}
        count = size // 4 // (ranks if operation(op).blocked else 1)
        busbw = algbw * operation(op).busbw_factor(ranks)
        shown = {"count": count, "time": time_us, "algbw": algbw, "busbw": busbw, "wrong": wrong[0] if wrong else 0}
        text += ROW.format(size=size, **shown, **values)
    return f"{text}# Out of bounds values : 0 OK\n"
