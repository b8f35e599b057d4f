"""Draws of the hash that puts flows on equal cables: one row for the times of all draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collsim.core.errors import Fault, InputError
from collsim.simulation.result import Row, ranked
from collsim.topology import Topology

__all__ = ["over_draws", "refuse_unhashed"]


def over_draws(rows: Sequence[Row], seeds: Sequence[int]) -> Row:
    """Return the row of the median draw, the lower one of two, with the times of all.

    A median that is one of the draws has bandwidths, a bound and a bottleneck that belong together. *rows* holds one
    for each seed, or a single one for all.
    """
    seeds = seeds if len(rows) == 1 else seeds[: len(rows)]  # fewer if draws were interrupted
    rows = rows if len(rows) == len(seeds) else [rows[0]] * len(seeds)
    times_s = tuple(row.time_s for row in rows)
    median = times_s.index(ranked(times_s, 0.5))
    return replace(rows[median], hash_seed=seeds[median], draw_times_s=times_s)


def refuse_unhashed(topology: Topology) -> None:
    """Raise `InputError` if routes on *topology* follow no hash, or one whose seed is set."""
    cluster = topology.cluster
    if cluster is None:
        what, hint = "no message leaves a node, and inside there is no hash", "take GPUs of several nodes, with --nodes"
    elif not cluster.spec.hashes:
        what = f"{cluster.spec.network} routes by {cluster.spec.routing}, without a hash: all draws would be the same"
        hint = "leave it out, or give --set scale_out.routing=ecmp"
    elif seed := topology.settings.get("scale_out.hash_seed"):
        what, hint = f"seeds to draw beside --set scale_out.hash_seed={seed}", "keep one of the two"
    else:
        return
    raise InputError(Fault(what, "hash_seeds", hint))
