"""Transfers in rounds: a rank turns to its next round when it is done with the last one that it took part in.

This is how blocking sends and receives run. Both ends of a transfer must be done with what they did before, so that a
receive buffer is never needed twice at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from collsim.schedule import Transfers, TransfersBuilder

__all__ = ["Rounds"]


@dataclass(slots=True)
class Rounds:
    """Collects transfers round by round; *lanes* channels serve each of them at once."""

    lanes: int = 1
    rows: TransfersBuilder = field(default_factory=TransfersBuilder)
    before: dict[int, list[int]] = field(default_factory=dict)
    now: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0

    def add(self, src: int, dst: int, chunks: Sequence[int], *, reduces: bool = False) -> None:
        """Add a transfer to the round that is open."""
        deps = (*self.before.get(src, ()), *self.before.get(dst, ()))
        row = self.rows.add(src, dst, chunks, deps, step=self.number, reduces=reduces, lanes=self.lanes)
        self.now[src].append(row)
        self.now[dst].append(row)

    def close(self) -> None:
        """End the round."""
        self.before.update(self.now)
        self.now.clear()
        self.number += 1

    def build(self) -> Transfers:
        """Return the collected transfers."""
        return self.rows.build()
