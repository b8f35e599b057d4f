"""Fabrics between hosts as readers find them: hosts on leaf switches, and switches above."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["FabricTree", "tree_of"]


@dataclass(slots=True)
class FabricTree:
    """Who is on which leaf, and what is known of the links.

    Attributes
    ----------
    hosts : dict
        From a host to the leaves of its adapters, one entry per adapter, in order.
    tiers, leaves, upper : int
        Tiers of switches, switches with hosts, switches above; 0: unknown.
    parts : int
        Trees that no switch joins.
    rate_Bps : float or None
        Of an adapter, one direction.
    radix : int
        Ports of a switch, 0: unknown.
    oversubscription : float or None
        Rate below the leaves for each unit of rate above them.
    is_blocks : bool
        Leaves are blocks of hosts that Slurm keeps together, such as racks with a scale-up domain.
    is_endpoints : bool
        Hosts are single adapters.
    network : str
        Name of the network, empty if unknown.
    """

    hosts: dict[str, list[str]]
    tiers: int = 0
    leaves: int = 0
    upper: int = 0
    parts: int = 1
    rate_Bps: float | None = None
    radix: int = 0
    oversubscription: float | None = None
    is_blocks: bool = False
    is_endpoints: bool = False
    network: str = ""
    read: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def adapters(self) -> int:
        """Adapters of a host, as most have them."""
        return Counter(len(leaves) for leaves in self.hosts.values()).most_common(1)[0][0]

    @property
    def on_rails(self) -> bool:
        """True if the adapters of most hosts are on as many leaves."""
        several = [leaves for leaves in self.hosts.values() if len(leaves) > 1]
        return bool(several) and sum(len(set(leaves)) == len(leaves) for leaves in several) * 2 > len(self.hosts)

    @property
    def groups(self) -> list[int]:
        """Sizes of the groups of hosts on the same leaves, largest first."""
        return sorted(Counter(tuple(sorted(set(leaves))) for leaves in self.hosts.values()).values(), reverse=True)


def tree_of(links: Mapping[tuple[str, str], float], hosts: Mapping[str, list[str]]) -> tuple[int, int, int]:
    """Return tiers, switches above the leaves, and parts of a fabric of switches joined by *links*.

    Parameters
    ----------
    links : mapping
        From a pair of switches to the rate of all cables between them, bytes/s.
    hosts : mapping
        As of `FabricTree`.
    """
    near: dict[str, set[str]] = {}
    for a, b in links:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    leaves = {leaf for each in hosts.values() for leaf in each}
    level, here, seen = 0, set(leaves), set(leaves)
    while here:
        level += 1
        here = {switch for each in here for switch in near.get(each, ())} - seen
        seen |= here
    return level, len(seen - leaves), _parts(seen, near)


def _parts(switches: Iterable[str], near: Mapping[str, set[str]]) -> int:
    """Return into how many pieces switches fall."""
    left, parts = set(switches), 0
    while left:
        parts += 1
        pending = [left.pop()]
        while pending:
            found = near.get(pending.pop(), set()) & left
            left -= found
            pending += found
    return parts
