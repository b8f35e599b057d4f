"""What the tests of claims measure: rates on the bare wire and totals of a topology, in GB/s."""

import collsim
from collsim.topology import describe, load_topology

EXACT = {"rel": 1e-9, "abs": 0}
SIZE = "1G"


def fact(topo, path):
    """Return a figure of a topology file, in SI."""
    return load_topology(topo).fact(path).value


def uni_GBps(topo):
    """Return the raw rate of all scale-up links of one GPU, in one direction."""
    return describe(load_topology(topo))["per_gpu_uni_Bps"] / 1e9


def scale_out_GBps(topo):
    """Return the raw rate of all adapters of one GPU, in one direction."""
    return fact(topo, "nic.bandwidth") * fact(topo, "nic.per_gpu") / 1e9


def row(topo, op, size=SIZE, profile="ideal", **options):
    """Simulate one collective, on the bare wire unless *profile* says otherwise."""
    (found,) = collsim.simulate(topo, op, size, profile=profile, **options).rows
    return found


def flows_GBps(topo, peers):
    """Return what GPU 0 sends when it sends 64 MiB to each of *peers* at once and nobody else sends."""
    matrix = [[0] + [2**26] * len(peers)] + [[0] * (len(peers) + 1)] * len(peers)
    found = row(topo, "all_to_all_v", None, matrix=matrix, rank_list=[0, *peers])
    return len(peers) * 2**26 / found.time_s / 1e9


def pair_GBps(topo, source=0, target=1):
    """Return what one GPU sends to another when nobody else sends."""
    found = row(topo, "all_to_all_v", None, matrix=[[0, 2**30], [0, 0]], rank_list=[source, target])
    return 2**30 / found.time_s / 1e9


def all_reduce_GBps(topo, ranks, size=SIZE, profile="ideal"):
    """Return the busbw of an all-reduce without help of the switches: the faster of ring and all_pairs."""
    found = collsim.simulate(topo, "all_reduce", size, ranks=ranks, algo=["ring", "all_pairs"], profile=profile)
    return max(entry.busbw_Bps for entry in found) / 1e9


def rounds_to(value, printed):
    """Return whether *value* rounds to the digits of *printed*, a text."""
    return f"{value:.{len(printed.partition('.')[2])}f}" == printed


def is_cut_to(value, printed):
    """Return whether *printed*, a text, is *value* with the digits after it left out."""
    unit = 10 ** len(printed.partition(".")[2])
    return int(value * unit) == round(float(printed) * unit)
