"""Profiles: what a library adds to the raw links.

A profile is a YAML file. Every figure carries its status and source, as in a topology file; a figure that is absent
costs nothing. `default` holds documented round figures that no measurement has calibrated; `ideal` is the bare wire.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collsim.errors import CollsimError, Fault, InputError, SpecError, UnknownNameError, nearest
from collsim.library.costs import FAMILIES, Protocol
from collsim.topology.reader import MAX_FILE_BYTES, Document, read_document
from collsim.units import parse_bandwidth_Bps, parse_fraction, parse_time_s

__all__ = ["Profile", "Protocol", "load_profile", "profile_names"]


def _positive_number(text: str, where: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(Fault(f'"{text}" is not a number above 0', where, "such as 2.2"))
    return value


def _lost_share(text: str, where: str) -> float:
    """Return a fraction below 1."""
    value = parse_fraction(text, where)
    if value == 1:
        raise InputError(Fault("nothing would be left", where, "such as 10%"))
    return value


SCHEMA = "collsim.profile/1"
FOLDER = Path(__file__).parent / "profiles"
FIGURES: dict[str, Callable[[str, str], float]] = {
    "launch": parse_time_s,
    "message_overhead": parse_time_s,
    "channel_rate": parse_bandwidth_Bps,
    "wire_efficiency": parse_fraction,
    "floor": parse_time_s,
    "base": parse_time_s,
    "channel_overhead": parse_time_s,
    "small_overhead": parse_time_s,
    "slice_overhead": parse_time_s,
    "fill_rate": parse_bandwidth_Bps,
    "one_way_rate": parse_bandwidth_Bps,
    "contention": _lost_share,
    "link_share": parse_fraction,
    "softness": _positive_number,
}
PROFILE_FIGURES = ("launch", "floor", "message_overhead", "channel_rate")
PROTOCOL_FIGURES = {
    "message_overhead": "message_overhead_s",
    "channel_rate": "channel_rate_Bps",
    "wire_efficiency": "wire_efficiency",
    "base": "base_s",
    "channel_overhead": "channel_overhead_s",
    "small_overhead": "small_overhead_s",
    "slice_overhead": "slice_overhead_s",
    "fill_rate": "fill_rate_Bps",
    "one_way_rate": "one_way_rate_Bps",
    "contention": "contention",
    "link_share": "link_share",
    "softness": "softness",
}
"""Key of a figure and the attribute of `Protocol` that it sets."""
PROTOCOL_FLAGS = ("stepwise", "back_to_back", "zero_copy")
PROTOCOLS = ("LL", "LL128", "Simple")
CHOICES = {"link_rate": ("achievable", "raw"), "link_latency": ("counted", "ignored")}
WORDS = ("schema", "name", "title")
FIGURE_KEYS = ("value", "status", "source", "note")


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
        Kernels with protocols of their own: rings, chains, rooted operations, messages, NVLS.
    floor_s : float
        What a call takes at least, because the host or the launch takes so long; longer calls hide it.
    systems : tuple of str
        Topologies whose measurements the constants were fitted to.
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
    systems: tuple[str, ...] = ()

    def fits(self, system: str) -> bool:
        """Return whether measurements of *system* stand behind the constants."""
        return self.calibrated and system in self.systems

    def protocol(self, name: str, family: str = "") -> Protocol:
        """Return what protocol *name* costs: that of the family, its own figures, or those of the profile."""
        own = self.protocols.get(name, Protocol(self.message_overhead_s, self.channel_rate_Bps))
        return self.families.get(family, {}).get(name, own)

    def describe(self) -> str:
        """Return the constants in one line."""
        if not self.latency and not self.achievable_rate and not self.families:
            return "raw line rates, no latency, no overhead"
        if self.families:
            kernels = ", ".join(self.families)
            return f"{self.title}; constants of {kernels} by protocol, host floor {self.floor_s * 1e6:g} us"
        rate = "unlimited" if math.isinf(self.channel_rate_Bps) else f"{self.channel_rate_Bps / 1e9:g} GB/s"
        return (
            f"launch {self.launch_s * 1e6:g} us, message {self.message_overhead_s * 1e6:g} us, channel {rate}, "
            f"links at {'achievable' if self.achievable_rate else 'line'} rate"
        )


def profile_names() -> list[str]:
    """Return the names of the profiles that come with collsim."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_profile(name: str | Profile) -> Profile:
    """Return a profile by name or from a file (a name with a slash or that ends in .yaml or .yml).

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
    is_file = "/" in name or name.endswith((".yaml", ".yml"))
    if not is_file and name not in profile_names():
        raise UnknownNameError("profile", name, profile_names(), "--profile")
    path = Path(name) if is_file else FOLDER / f"{name}.yaml"
    content = _content(path)
    document = read_document(content, str(path), SCHEMA)
    return replace(_from_document(document, hashlib.sha256(content).hexdigest()), source=str(name))


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


def _from_document(document: Document, sha256: str) -> Profile:
    """Return the profile in *document*, or raise all its faults."""
    faults: list[Fault] = []
    data: dict[str, Any] = document.data
    _check_keys(
        data,
        [*WORDS, "calibrated", *CHOICES, *PROFILE_FIGURES, "protocols", "families", "systems"],
        (),
        document,
        faults,
    )
    if data.get("schema") != SCHEMA:
        given = data.get("schema")
        what = "the schema is missing" if given is None else f'schema is "{given}"'
        faults.append(Fault(what, document.where(("schema",)), f"write schema: {SCHEMA}"))
    if not isinstance(data.get("name"), str):
        faults.append(Fault("the profile has no name", document.where(()), "write name: my_profile"))
    if not isinstance(data.get("calibrated", False), bool):
        where = document.where(("calibrated",))
        faults.append(Fault(f'"{data["calibrated"]}" is not true or false', where, "write calibrated: false"))
    for key, options in CHOICES.items():
        if data.get(key, options[0]) not in options:
            hint = f"write {' or '.join(options)}"
            faults.append(Fault(f'"{data[key]}" is unknown', document.where((key,)), hint))
    figures = {key: _figure((key,), data[key], document, faults) for key in PROFILE_FIGURES if key in data}
    protocols = _protocols(data.get("protocols", {}), ("protocols",), figures, document, faults)
    families = _families(data.get("families", {}), figures, document, faults)
    systems = data.get("systems", [])
    if not isinstance(systems, list) or not all(isinstance(name, str) for name in systems):
        faults.append(
            Fault("systems is not a list of names", document.where(("systems",)), "write systems: [hgx_h100]")
        )
    if faults:
        raise SpecError(*faults)
    return Profile(
        name=data["name"],
        title=str(data.get("title", "")),
        calibrated=data.get("calibrated", False),
        launch_s=figures.get("launch", 0.0),
        message_overhead_s=figures.get("message_overhead", 0.0),
        channel_rate_Bps=figures.get("channel_rate", math.inf),
        achievable_rate=data.get("link_rate", "achievable") == "achievable",
        latency=data.get("link_latency", "counted") == "counted",
        sha256=sha256,
        protocols=protocols,
        families=families,
        floor_s=figures.get("floor", 0.0),
        systems=tuple(systems),
    )


def _check_keys(
    data: Mapping[str, Any], known: Sequence[str], path: tuple[str, ...], document: Document, faults: list[Fault]
) -> None:
    """Append a fault for every key that is not known."""
    for key in data:
        if key not in known:
            near = nearest(key, known)
            hint = f'did you mean "{near}"?' if near else f"known: {', '.join(known)}"
            faults.append(Fault(f'unknown key "{key}"', document.where((*path, key)), hint))


def _families(
    entries: Any, figures: Mapping[str, float], document: Document, faults: list[Fault]
) -> dict[str, dict[str, Protocol]]:
    """Return the protocols of each family."""
    if not isinstance(entries, dict):
        faults.append(Fault("families is not a mapping", document.where(("families",)), "write families: {ring: ...}"))
        return {}
    _check_keys(entries, FAMILIES, ("families",), document, faults)
    return {name: _protocols(entry, ("families", name), figures, document, faults) for name, entry in entries.items()}


def _protocols(
    entries: Any, path: tuple[str, ...], figures: Mapping[str, float], document: Document, faults: list[Fault]
) -> dict[str, Protocol]:
    """Return protocols by name; what one does not say is as in the profile, or costs nothing."""
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        hint = "write protocols: {LL: {message_overhead: 1 us}}"
        faults.append(Fault(f"{path[-1]} is not a mapping of mappings", document.where(path), hint))
        return {}
    _check_keys(entries, PROTOCOLS, path, document, faults)
    protocols: dict[str, Protocol] = {}
    for name, entry in entries.items():
        here = (*path, name)
        _check_keys(entry, [*PROTOCOL_FIGURES, *PROTOCOL_FLAGS], here, document, faults)
        own: dict[str, Any] = {
            attribute: _figure((*here, key), entry[key], document, faults)
            for key, attribute in PROTOCOL_FIGURES.items()
            if key in entry
        }
        own.setdefault("message_overhead_s", figures.get("message_overhead", 0.0))
        own.setdefault("channel_rate_Bps", figures.get("channel_rate", math.inf))
        flags = {flag: entry.get(flag, False) for flag in PROTOCOL_FLAGS}
        for flag, value in flags.items():
            if not isinstance(value, bool):
                hint = f"write {flag}: false"
                faults.append(Fault(f'"{value}" is not true or false', document.where((*here, flag)), hint))
        protocols[name] = Protocol(**own, **flags)
    return protocols


def _figure(path: tuple[str, ...], entry: Any, document: Document, faults: list[Fault]) -> float:
    """Return the value of a figure in SI; append its faults."""
    place = path
    if isinstance(entry, dict):
        _check_keys(entry, FIGURE_KEYS, path, document, faults)
        entry, place = entry.get("value"), (*path, "value")
    if entry is None or isinstance(entry, (dict, list)):
        hint = "write value: 8 us, with status and source"
        faults.append(Fault("the figure has no value", document.where(path), hint))
        return 0.0
    try:
        return FIGURES[path[-1]](str(entry), document.where(place))
    except CollsimError as error:
        faults.extend(error.faults)
        return 0.0
