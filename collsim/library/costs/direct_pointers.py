"""Ranks that store right into each other's buffers: within one process, or because buffers are registered.

Up to 2.21 NCCL stages nothing among the ranks of one process (``P2P/direct pointer``): messages land in the receiver's
own buffer, as with registered ones, and a ring need not copy out what it gathers. A reduce-scatter is staged all the
same (``Primitives<..., Direct=0>``, src/device/reduce_scatter.h): two H200 take 1876 and 1929 us for 1 GiB with 2.18.3
and 2.20.5, 1934 with 2.23.4. From 2.22 on (four H100, 2.22.3) times are those of several processes, although the debug
lines of 2.32 still say so; from 2.23 on rings do the same with registered buffers.
"""

from __future__ import annotations

from dataclasses import replace

from collsim.library.costs.channel_costs import Protocol
from collsim.library.costs.profile import Profile
from collsim.library.library import Library

__all__ = ["RINGS_SINCE", "kernel_of", "with_direct_pointers", "with_staged_rings", "writes_directly"]

UNTIL = "nccl", (2, 21)
STAGED = {("ring", "reduce_scatter"): "staged ring"}
"""Under which name constants stand of a kernel that is staged all the same, by its family and operation."""
RATE, SLICES = 0.85, 2
"""Rate of a channel of a ring beside that which counts the copy apart, while it stores to two places; of the last chunk
one slice of two is on its way while nothing overlaps it, where a copy out takes the whole chunk. Fitted to two H200,
NCCL 2.21.5, all-gather and all-reduce of 2 MiB to 2 GiB: 3 / 7 % off, where 0.8 without a last slice was 6 / 16 % and
the law of several processes is 11 to 40 % too slow. Two H100 of another site with 2.18.3, in no fit, are 2 / 3 % off
from 4 MiB on."""
RINGS_SINCE = (2, 23)
"""First version that registers the buffers of rings within a node (NVIDIA's announcement of NCCL 2.23, intra-node
user buffer registration; debug lines of 2.28.9 show it)."""


def writes_directly(library: Library | None, *, one_process: bool) -> bool:
    """Return True if the library lets ranks write into each other's buffers."""
    return one_process and library is not None and library.family == UNTIL[0] and library.version <= UNTIL[1]


def kernel_of(profile: Profile, family: str, op: str) -> str:
    """Name the kernel whose constants hold for *op*: of its *family*, or the one that is staged all the same."""
    staged = STAGED.get((family, op), family)
    return staged if staged in profile.families else family


def with_direct_pointers(profile: Profile) -> Profile:
    """Return the constants of ranks that write into each other's buffers, where nothing is copied out."""
    rings = dict(profile.families.get("ring", {}))
    staged = {name: rings for name in STAGED.values() if rings}
    if "Simple" in rings:
        costs, rings = rings["Simple"], dict(rings)
        rate_Bps = costs.channel_rate_Bps * RATE
        fill_Bps = costs.fill_rate_Bps * SLICES
        rings["Simple"] = replace(costs, stepwise=False, fill_rate_Bps=fill_Bps, channel_rate_Bps=rate_Bps)
    messages = profile.launched("stream", registered=True).families.get("messages", {})
    families = {
        **profile.families,
        **staged,
        **({"ring": rings} if rings else {}),
        **({"messages": messages} if messages else {}),
    }
    return replace(profile, families=families, title=f"{profile.title}; direct pointers within one process")


def with_staged_rings(profile: Profile, library: Library | None) -> Profile:
    """Return the constants of a library that registers no buffers of rings, if it is one; else the same."""
    if library is None or library.family != UNTIL[0] or library.version >= RINGS_SINCE:
        return profile
    launches = {
        name: replace(each, families={**each.families, "ring": _staged(each)})
        if "ring" in each.families else each
        for name, each in profile.launches.items()
    }  # fmt: skip
    return replace(profile, launches=launches)


def _staged(launched: Profile) -> dict[str, Protocol]:
    """Return the constants of rings of another launch that are not registered."""
    return {proto: replace(costs, zero_copy=False) for proto, costs in launched.families["ring"].items()}
