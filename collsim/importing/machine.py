"""What a file of another program says of a machine: plain data between readers and the writer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collsim.core.errors import Fault, Faults
from collsim.topology.labels import DISTANCES

__all__ = ["DISTANCES", "Adapter", "Ask", "Assumption", "Machine", "gpu_list", "plural"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be imported: *file*, *name* of the topology, the system that it is *like*, and *faults* so far."""

    file: str
    name: str
    like: str | None
    faults: Faults

    def fault(self, what: str, hint: str, where: str = "") -> None:
        """Add a fault of the file, or of another place."""
        self.faults.append(Fault(what, where or self.file, hint))


@dataclass(frozen=True, slots=True)
class Assumption:
    """A figure or a name that the file does not hold: *what*, its *value*, and its *status* and *source*."""

    what: str
    value: str
    status: str
    source: str


@dataclass(frozen=True, slots=True)
class Adapter:
    """A network adapter: its rate in one direction, bytes/s, None if unknown, and the GPUs beside it."""

    name: str
    rate_Bps: float | None = None
    near: tuple[int, ...] = ()


@dataclass(slots=True)
class Machine:
    """A node as a file describes it.

    Attributes
    ----------
    n_gpus : int
    is_amd : bool
    links : dict
        Direct links between the GPUs of a pair (a, b), a < b.
    uplinks : int
        Links from every GPU into switches; 0: there are no switches.
    planes : tuple of int
        Links from every GPU to each switch, where the file says so.
    tells_links : bool
        Whether the file would say if GPUs had links of their own.
    distances : dict
        Way over PCIe between the GPUs of a pair, one of `DISTANCES`; empty where the file does not say.
    model, architecture : str
        Of the GPUs, as far as the file says; empty: unknown.
    bus_Bps : float or None
        Of PCIe at a GPU, one direction, bytes/s.
    is_grace : bool
        Whether GPUs share a package with a processor, so that their memory is a NUMA node.
    adapters : tuple of Adapter
    numa : tuple of str
        NUMA node of each GPU, empty where unknown.
    read, notes : list of str
        What was read, in words; what deserves a second look.
    """

    n_gpus: int
    is_amd: bool = False
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    uplinks: int = 0
    planes: tuple[int, ...] = ()
    tells_links: bool = True
    distances: dict[tuple[int, int], str] = field(default_factory=dict)
    model: str = ""
    architecture: str = ""
    bus_Bps: float | None = None
    is_grace: bool = False
    adapters: tuple[Adapter, ...] = ()
    numa: tuple[str, ...] = ()
    read: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of GPUs, the smaller number first."""
        return [(a, b) for a in range(self.n_gpus) for b in range(a + 1, self.n_gpus)]

    @property
    def has_links(self) -> bool:
        """True if some GPUs have links besides PCIe."""
        return bool(self.links) or self.uplinks > 0

    @property
    def even(self) -> int:
        """Links between the GPUs of each pair, if all pairs have equally many; otherwise 0."""
        counts = {self.links.get(pair, 0) for pair in self.pairs}
        return counts.pop() if len(counts) == 1 else 0

    @property
    def links_per_gpu(self) -> list[int]:
        """Direct links of each GPU."""
        return [sum(count for pair, count in self.links.items() if gpu in pair) for gpu in range(self.n_gpus)]

    @property
    def reaches_all(self) -> bool:
        """True if every GPU reaches every other over links, perhaps through others."""
        if self.uplinks or self.n_gpus == 1:
            return True
        seen, pending = {0}, [0]
        while pending:
            gpu = pending.pop()
            found = {a + b - gpu for a, b in self.links if gpu in (a, b)} - seen
            seen |= found
            pending += found
        return len(seen) == self.n_gpus


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "switch"), plural(2, "switch"), plural(3, "GPU")
    ('1 switch', '2 switches', '3 GPUs')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {'leaves' if noun == 'leaf' else noun + ('es' if noun.endswith('ch') else 's')}"


def gpu_list(numbers: Iterable[int]) -> str:
    """Return numbers of GPUs with ranges.

    >>> gpu_list([0, 1, 2, 5])
    'GPU0-2,5'
    """
    ordered: Sequence[int] = sorted(numbers)
    parts: list[list[int]] = []
    for number in ordered:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return "GPU" + ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
