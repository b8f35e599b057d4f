"""Profiles: what a library adds to the raw links.

A profile is a YAML file. Every figure carries its status and source, as in a topology file; a figure that is absent
costs nothing. `default` holds documented round figures that no measurement has calibrated; `ideal` is the bare wire;
the others are called after the system that they were fitted to, or derived for.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from collsim.errors import Fault, SpecError, UnknownNameError, nearest
from collsim.library.costs import STAND_IN, Protocol
from collsim.topology.reader import MAX_FILE_BYTES, read_document

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["BANDS", "Profile", "Protocol", "Scatter", "band_of", "load_profile", "profile_for", "profile_names"]

FOLDER = Path(__file__).parent / "profiles"
AUTO = "auto"
BANDS = {"small": 0, "middle": 64 * 2**10, "large": 2**20}
"""Bands of sizes in which errors are told apart, with their first size in bytes."""


def band_of(size_bytes: int) -> str:
    """Return the band of a size.

    >>> band_of(8), band_of(65536), band_of(2**30)
    ('small', 'middle', 'large')
    """
    return next(name for name in reversed(BANDS) if size_bytes >= BANDS[name])


@dataclass(frozen=True, slots=True)
class Scatter:
    """How far measured times were from predicted ones, over rows that took no part in the fit that predicted them.

    Attributes
    ----------
    low, high : float
        Of 100 measured times, 90 lie between these multiples of the predicted one.
    median, p90 : float
        Of the absolute relative error.
    rows, logs : int
        What it was counted on.
    """

    low: float
    high: float
    median: float
    p90: float
    rows: int
    logs: int

    def widened(self, times: float) -> Scatter:
        """Return the same with ends that are *times* as far off, as logarithms."""
        return replace(self, low=self.low**times, high=self.high**times)


@dataclass(frozen=True, slots=True)
class Profile:
    """Constants of a library on a system.

    Attributes
    ----------
    name, title : str
    calibrated : bool
        Whether measurements stand behind the constants.
    launch_s : float
        Fixed cost of one collective.
    message_overhead_s : float
        Added to the latency of every transfer.
    channel_rate_Bps : float
        What one channel (CTA) can move; inf if it never limits.
    achievable_rate : bool
        Links run at their achievable rate instead of the line rate.
    latency : bool
        Latencies of links and switches count.
    sha256 : str
    source : str
        What `load_profile` takes to load it again: a shipped name or the path of a file.
    protocols : Mapping of str to Protocol
        Protocols that differ from the figures above, by name.
    families : Mapping of str to Mapping
        Kernels with protocols of their own: rings, chains, rooted operations, messages and others.
    floor_s : float
        What a call takes at least, because the host or the launch takes so long; longer calls hide it.
    thread_launch_s : float
        For every further GPU that one host thread starts work on.
    wait_s : float
        How much later the last GPU of a thread starts than the first.
    systems : tuple of str
        Topologies that the constants are meant for.
    gpus : tuple of str
        Parts of ``gpu.model`` of the systems' relatives.
    library : str
        What ran in the measurements, such as ``nccl-2.28``; the algorithm is then chosen as this library does.
    derived : str
        How the constants follow from those of a relative, if nothing was measured on the systems; else empty.
    accuracy : Mapping of str to Mapping
        `Scatter` by family and band.
    launches : Mapping of str to Profile
        Other ways to launch, ``graph`` and ``registered``, with constants of their own.
    """

    name: str
    title: str
    calibrated: bool
    launch_s: float
    message_overhead_s: float
    channel_rate_Bps: float
    achievable_rate: bool
    latency: bool
    sha256: str
    source: str = ""
    protocols: Mapping[str, Protocol] = field(default_factory=dict, hash=False)
    families: Mapping[str, Mapping[str, Protocol]] = field(default_factory=dict, hash=False)
    floor_s: float = 0.0
    thread_launch_s: float = 0.0
    wait_s: float = 0.0
    systems: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    library: str = ""
    derived: str = ""
    accuracy: Mapping[str, Mapping[str, Scatter]] = field(default_factory=dict, hash=False)
    launches: Mapping[str, Profile] = field(default_factory=dict, hash=False)

    def fits(self, system: str) -> bool:
        """Return whether measurements of *system* stand behind the constants."""
        return self.calibrated and not self.derived and system in self.systems

    def protocol(self, name: str, family: str = "") -> Protocol:
        """Return what protocol *name* costs: that of the family, its own figures, or those of the profile."""
        own = self.protocols.get(name, Protocol(self.message_overhead_s, self.channel_rate_Bps))
        kernel = family if family in self.families else STAND_IN.get(family, family)
        return self.families.get(kernel, {}).get(name, own)

    def for_threads(self, gpus_per_thread: int) -> Profile:
        """Return the constants where every host thread starts the work of so many GPUs, one after the other."""
        return replace(self, wait_s=(gpus_per_thread - 1) * self.thread_launch_s)

    def scatter(self, family: str, size_bytes: int) -> Scatter | None:
        """Return how far measurements were from predictions for a kernel and a size; None if nobody measured."""
        kernel = family if family in self.accuracy else STAND_IN.get(family, family)
        return self.accuracy.get(kernel, {}).get(band_of(size_bytes))

    def launched(self, launch: str, *, registered: bool = False) -> Profile:
        """Return the constants for a way to launch; those of stream launches where it has none of its own.

        Replaying a graph registers the buffers too, so that ``graph`` stands for both.
        """
        name = "graph" if launch == "graph" else "registered" if registered else "stream"
        return self.launches.get(name, self)

    def describe(self) -> str:
        """Return the constants in one line."""
        if not self.latency and not self.achievable_rate and not self.families:
            return "raw line rates, no latency, no overhead"
        if self.families:
            return f"{self.title}{self._error()}"
        rate = "unlimited" if math.isinf(self.channel_rate_Bps) else f"{self.channel_rate_Bps / 1e9:g} GB/s"
        return (
            f"launch {self.launch_s * 1e6:g} us, message {self.message_overhead_s * 1e6:g} us, channel {rate}, "
            f"links at {'achievable' if self.achievable_rate else 'line'} rate"
        )

    def _error(self) -> str:
        """Return the error of large sizes outside the fit, as words."""
        found = [(family, bands["large"]) for family, bands in self.accuracy.items() if "large" in bands]
        if not found:
            return ""
        told = ", ".join(f"{family} {scatter.median:.0%}" for family, scatter in found)
        return f"; median error from 1 MiB, left out of the fit in turn: {told}"


def profile_names() -> list[str]:
    """Return the names of the profiles that come with collsim."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def _meant_for(key: str) -> dict[str, str]:
    """Return the shipped profile of each name under *key* (systems or gpus), without reading the files as YAML."""
    line = re.compile(rf"^{key}: \[([^\]]*)\]$", re.MULTILINE)
    texts = {name: (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") for name in profile_names()}
    return {
        word.strip(): name for name, text in texts.items() for part in line.findall(text) for word in part.split(",")
    }


def profile_for(topology: Topology) -> str:
    """Return the shipped profile for a topology: of that very system, of a relative with the same GPU, or the default.

    Only a scale-up domain has relatives: what is between the domains of a cluster is not in their constants.

    >>> from collsim.topology import load_topology
    >>> profile_for(load_topology("hgx_h100"))
    'hgx_h100'
    """
    if topology.name in (systems := _meant_for("systems")):
        return systems[topology.name]
    model = topology.labels.get("gpu.model", "")
    relatives = {part: name for part, name in _meant_for("gpus").items() if part in model}
    alone = topology.labels.get("link.type", "PCIe") != "PCIe" and not any(
        kind == "nic" for kind in topology.wiring.node_kinds
    )
    return relatives[max(relatives, key=len)] if relatives and alone else "default"  # GH200 is no H200


def load_profile(name: str | Profile, topology: Topology | None = None) -> Profile:
    """Return a profile by name or from a file (a name with a slash or that ends in .yaml or .yml).

    ``auto`` is the one of *topology*, see `profile_for`.

    Raises
    ------
    UnknownNameError
        No such profile.
    SpecError
        Every fault of the file.

    Examples
    --------
    >>> load_profile("ideal").launch_s
    0.0
    """
    if isinstance(name, Profile):
        return name
    if name == AUTO:
        return replace(load_profile("default" if topology is None else profile_for(topology)), source=AUTO)
    is_file = "/" in name or name.endswith((".yaml", ".yml"))
    if not is_file and name not in profile_names():
        raise UnknownNameError("profile", name, [AUTO, *profile_names()], "--profile")
    from collsim.library.profile_reader import SCHEMA, read_profile

    path = Path(name) if is_file else FOLDER / f"{name}.yaml"
    content = _content(path)
    document = read_document(content, str(path), SCHEMA)
    base = document.data.get("extends")
    relative = load_profile(base) if base in profile_names() and base != path.stem else None
    sha256 = hashlib.sha256(content + (relative.sha256.encode() if relative else b"")).hexdigest()
    return replace(read_profile(document, sha256, relative), source=str(name))


def _content(path: Path) -> bytes:
    """Return the bytes of a profile; a file that is too large is cut, and refused by whoever reads it."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(Fault("no such file", str(path), _file_hint(path))) from None
    except IsADirectoryError:
        raise SpecError(Fault("this is a directory, not a file", str(path), "name the YAML file in it")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", str(path)[:200], "check the path")) from None


def _file_hint(path: Path) -> str:
    """Return what may have been meant by a file that is not there: a shipped profile, or a file beside it."""
    names = profile_names()
    if (name := path.name.removesuffix(path.suffix)) in names:
        return f'the shipped profile is called "{name}", without a path'
    with suppress(OSError):
        near = nearest(path.name, [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")])
        if near:
            return f'did you mean "{path.parent / near}"?'
    return f"shipped profiles: {', '.join(names)}"
