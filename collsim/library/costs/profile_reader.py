"""The reader of profiles, from document to `Profile`: every key checked, all faults in one report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collsim.core.errors import CollsimError, Fault, InputError, SpecError, unknown_keys
from collsim.core.operations import DTYPES, OPERATIONS
from collsim.core.units import (
    MAX_RATE_BPS,
    MAX_SIZE_BYTES,
    MAX_TIME_S,
    MIN_RATE_BPS,
    one_line,
    parse_bandwidth_Bps,
    parse_fraction,
    parse_size_bytes,
    parse_time_s,
)
from collsim.library.costs.channel_costs import FAMILIES, PEER_FAMILIES, Origin, Protocol
from collsim.library.costs.hosts import HOSTS
from collsim.library.costs.profile import BANDS, BANDS_BETWEEN, NetworkCosts, Profile, Scatter
from collsim.library.library import PROTOCOLS, load_library
from collsim.topology.files.reader import Document
from collsim.topology.model import STATUSES

__all__ = ["FIGURES", "PROTOCOL_FIGURES", "SCHEMA", "read_profile"]


def _positive_number(text: str, where: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(Fault(f'"{text}" is not a number above 0', where, "such as 2.2"))
    return value


def _scale(text: str, where: str) -> float:
    """Return a factor of figures."""
    value = _positive_number(text, where)
    if not 1 / MOST_SCALE <= value <= MOST_SCALE:
        hint = f"between {1 / MOST_SCALE:g} and {MOST_SCALE:g}, such as 0.71"
        raise InputError(Fault(f'"{text}" is out of range', where, hint))
    return value


def _softness(text: str, where: str) -> float:
    """Return an exponent with which rates can meet."""
    value = _positive_number(text, where)
    if not LEAST_SOFTNESS <= value <= MOST_SOFTNESS:
        hint = f"between {LEAST_SOFTNESS:g} and {MOST_SOFTNESS:g}, such as 2.2"
        raise InputError(Fault(f'"{text}" is out of range', where, hint))
    return value


def _count(text: str, where: str) -> float:
    """Return how often something is done."""
    if not re.fullmatch(r"\d", text):
        raise InputError(Fault(f'"{text}" is not a whole number from 0 to 9', where, "such as 2"))
    return float(text)


def _lost_share(text: str, where: str) -> float:
    """Return a fraction below 1."""
    value = parse_fraction(text, where)
    if value > MOST_LOST:
        raise InputError(Fault(f'of "{text}" nothing would be left', where, f"at most {MOST_LOST:g}, such as 10%"))
    return value


SCHEMA = "collsim.profile/1"
MOST_LOST = 0.99
"""Chosen: nothing may be left of the rate of a port, nor so little that it stands still."""
MOST_SCALE = 1e30
"""Beyond it figures overflow, which no range of theirs would show."""
LEAST_SOFTNESS, MOST_SOFTNESS = 0.1, 1000.0
"""Chosen: equal rates meet at a thousandth of themselves, and at all of it but a thousandth; fits give 1 to 6. Powers
outside overflow or vanish."""
FIGURES: dict[str, Callable[[str, str], float]] = {
    "launch": parse_time_s,
    "message_overhead": parse_time_s,
    "channel_rate": parse_bandwidth_Bps,
    "wire_efficiency": parse_fraction,
    "floor": parse_time_s,
    "thread_launch": parse_time_s,
    "turn": parse_time_s,
    "base": parse_time_s,
    "threads_overhead": parse_time_s,
    "threads_full": parse_size_bytes,
    "exchange_overhead": parse_time_s,
    "small_overhead": parse_time_s,
    "slice_overhead": parse_time_s,
    "fill_rate": parse_bandwidth_Bps,
    "fill_limit": parse_size_bytes,
    "copy_out_rate": parse_bandwidth_Bps,
    "keep_rate": parse_bandwidth_Bps,
    "store_overhead": parse_time_s,
    "empty_overhead": parse_time_s,
    "duplex_share": parse_fraction,
    "reduce_rate": parse_bandwidth_Bps,
    "one_way_rate": parse_bandwidth_Bps,
    "last_channel_overhead": parse_time_s,
    "channel_overhead": parse_time_s,
    "peer_overhead": parse_time_s,
    "copies": _count,
    "copy_rate": parse_bandwidth_Bps,
    "contention": _lost_share,
    "link_share": parse_fraction,
    "node_share": parse_fraction,
    "host_rate": parse_bandwidth_Bps,
    "softness": _softness,
    "scale": _scale,
}
RANGES: dict[Callable[[str, str], float], tuple[float, float, str]] = {
    parse_time_s: (0.0, MAX_TIME_S, " s"),
    parse_bandwidth_Bps: (MIN_RATE_BPS, MAX_RATE_BPS, " B/s"),
    parse_fraction: (0.0, 1.0, ""),
    _lost_share: (0.0, MOST_LOST, ""),
    parse_size_bytes: (1.0, MAX_SIZE_BYTES, " B"),
    _softness: (LEAST_SOFTNESS, MOST_SOFTNESS, ""),
    _count: (0.0, 9.0, ""),
}
"""Least and most that a figure may be in SI after it was scaled, and the unit, by what reads it."""
PROFILE_FIGURES = {
    "launch": "launch_s",
    "floor": "floor_s",
    "thread_launch": "thread_launch_s",
    "message_overhead": "message_overhead_s",
    "channel_rate": "channel_rate_Bps",
}
PROTOCOL_FIGURES = {
    "message_overhead": "message_overhead_s",
    "channel_rate": "channel_rate_Bps",
    "wire_efficiency": "wire_efficiency",
    "turn": "turn_s",
    "base": "base_s",
    "threads_overhead": "threads_overhead_s",
    "threads_full": "threads_full_bytes",
    "exchange_overhead": "exchange_overhead_s",
    "small_overhead": "small_overhead_s",
    "slice_overhead": "slice_overhead_s",
    "fill_rate": "fill_rate_Bps",
    "fill_limit": "fill_limit_bytes",
    "copy_out_rate": "copy_out_rate_Bps",
    "keep_rate": "keep_rate_Bps",
    "store_overhead": "store_overhead_s",
    "empty_overhead": "empty_overhead_s",
    "duplex_share": "duplex_share",
    "one_way_rate": "one_way_rate_Bps",
    "channel_overhead": "channel_overhead_s",
    "last_channel_overhead": "last_channel_overhead_s",
    "contention": "contention",
    "link_share": "link_share",
    "node_share": "node_share",
    "host_rate": "host_rate_Bps",
    "softness": "softness",
    "floor": "floor_s",
    "peer_overhead": "peer_overhead_s",
    "copies": "copies",
    "copy_rate": "copy_rate_Bps",
}
"""Key of a figure and the attribute that it sets, of `Profile` and of `Protocol`."""
REDUCE_RATE = "reduce_rate"
"""Key of the figures by data type."""
PROTOCOL_FLAGS = ("stepwise", "cut_through", "back_to_back", "in_turn", "zero_copy")
WITHIN_NODES = (*FAMILIES, *PEER_FAMILIES)
"""Kernels that run within a node."""
BETWEEN_NODES = (*FAMILIES, "sharp")
"""Kernels whose steps lead between nodes, and the steps that switches there add."""
CHOICES = {"link_rate": ("achievable", "raw"), "link_latency": ("counted", "ignored")}
TEXTS = ("title", "derived", "checked", "library", "host")
LISTS = ("systems", "gpus", "peers")
NETWORK_LISTS = {"systems": "hgx_h100", "gpus": "H100", "networks": "infiniband", "measured": "H100"}
"""Keys that hold lists of names, with an example."""
NETWORK_KEYS = ("title", *NETWORK_LISTS, "nodes", "pooled", "calibrated", "families", "accuracy")
LAUNCHES = ("graph", "registered")
LAUNCH_KEYS = ("title", "floor", "thread_launch", "families", "accuracy")
KEYS = (
    "schema", "name", "extends", "scale", *TEXTS, "calibrated", *CHOICES, *LISTS, *PROFILE_FIGURES, "protocols",
    "families", "network", "accuracy", "launches",
)  # fmt: skip
FIGURE_KEYS = ("value", "status", "source", "note", "low", "high")
DERIVED_REACH = 2.0
"""Intervals of a derived profile reach so many times as far as those of the relative that was measured (chosen)."""
SCATTER_KEYS = ("low", "high", "median", "p90", "rows", "logs")
SCATTER_RANGES = (
    "low is at most 1 and high at least 1, median at least 0 and p90 not less, rows and logs are whole and at least 1"
)
CONSTANTS = (*PROFILE_FIGURES.values(), "achievable_rate", "latency", "protocols", "families")
"""Attributes of a profile that times depend on."""
SCATTER_FLAG, SCATTER_LENDER, SCATTER_OPS = "fitted", "lent", "ops"
BARE = Profile("", "", False, 0.0, 0.0, math.inf, True, True, "")
"""Defaults where a file says nothing."""


@dataclass(slots=True)
class _Reader:
    """A document and the faults found in it so far."""

    document: Document
    faults: list[Fault] = field(default_factory=list)

    def fault(self, what: str, path: tuple[str, ...], hint: str) -> None:
        self.faults.append(Fault(what, self.document.where(path), hint))

    def check_keys(self, data: Mapping[str, Any], known: Sequence[str], path: tuple[str, ...]) -> None:
        """Add a fault for every key that is not known."""
        self.faults += unknown_keys(data, known, lambda key: self.document.where((*path, key)))

    def mapping(self, data: Mapping[str, Any], key: str, path: tuple[str, ...], hint: str) -> Mapping[str, Any]:
        """Return a section; empty, with a fault, if it is no mapping."""
        entries = data.get(key, {})
        if isinstance(entries, dict):
            return entries
        self.fault(f"{key} is not a mapping", (*path, key), hint)
        return {}

    def flag(self, data: Mapping[str, Any], key: str, path: tuple[str, ...], *, otherwise: bool) -> bool:
        """Return true or false."""
        value = data.get(key, otherwise)
        if isinstance(value, bool):
            return value
        self.fault(f'"{value}" is not true or false', (*path, key), f"write {key}: false")
        return otherwise

    def figure(self, path: tuple[str, ...], entry: Any, key: str = "") -> float:
        """Return the value of a figure in SI; *key* says what it is, if the path does not end with that."""
        place, key = path, key or path[-1]
        if isinstance(entry, dict):
            self.check_keys(entry, FIGURE_KEYS, path)
            if (status := entry.get("status", "user")) not in STATUSES:
                self.fault(f'status "{status}" is unknown', (*path, "status"), f"one of {', '.join(STATUSES)}")
            faults = len(self.faults)
            ends = {end: self.number(key, entry[end], (*path, end)) for end in ("low", "value", "high") if end in entry}
            if len(self.faults) == faults and list(ends.values()) != sorted(ends.values()):
                shown = ", ".join(f"{end} {entry[end]}" for end in ends)
                self.fault(f"{shown} are out of order", path, "low may not be above value, nor value above high")
            if len(self.faults) > faults:
                return 0.0
            entry, place = entry.get("value"), (*path, "value")
        if entry is None or isinstance(entry, (dict, list)):
            self.fault("the figure has no value", path, "write value: 8 us, with status and source")
            return 0.0
        return self.number(key, entry, place)

    def number(self, key: str, text: Any, path: tuple[str, ...]) -> float:
        """Return a value of the figure *key* in SI."""
        try:
            return FIGURES[key](str(text), self.document.where(path))
        except CollsimError as error:
            self.faults.extend(error.faults)
            return 0.0

    def figures(self, data: Mapping[str, Any], known: Mapping[str, str], path: tuple[str, ...]) -> dict[str, float]:
        """Return the figures of a section by attribute."""
        return {attribute: self.figure((*path, key), data[key]) for key, attribute in known.items() if key in data}

    def origins(
        self, data: Mapping[str, Any], known: Mapping[str, str], path: tuple[str, ...]
    ) -> dict[str, Origin]:  # fmt: skip
        """Return where the figures of a section are from, by attribute."""
        return {attribute: self.origin((*path, key), data[key]) for key, attribute in known.items() if key in data}

    def origin(self, path: tuple[str, ...], entry: Any) -> Origin:
        """Return where a figure is from."""
        told = entry if isinstance(entry, dict) else {}
        texts = (one_line(str(told.get(key) or "")) for key in ("status", "source"))
        status, source = texts
        return Origin(str(self.document.data.get("name", "")), ".".join(path), status or "user", source)


def read_profile(document: Document, sha256: str, base: Profile | None = None, taken: Sequence[str] = ()) -> Profile:
    """Return the profile in *document*; what it does not say is as in *base*, the profile that it extends.

    A file that extends another must not call itself by a name that is *taken*.

    Raises
    ------
    SpecError
        All faults.
    """
    reader, data = _Reader(document), document.data
    reader.check_keys(data, KEYS, ())
    if data.get("schema") != SCHEMA:
        given = data.get("schema")
        what = "the schema is missing" if given is None else f'schema is "{given}"'
        reader.fault(what, ("schema",), f"write schema: {SCHEMA}")
    if not isinstance(data.get("name"), str):
        reader.faults.append(Fault("the profile has no name", document.where(()), "write name: my_profile"))
    elif base is not None and data["name"] in taken:
        reader.fault(f'"{data["name"]}" is the name of a shipped profile', ("name",), "take a name of its own")
    if "extends" in data and base is None:
        reader.fault(f'"{data["extends"]}" is no other profile', ("extends",), "name a shipped one, such as hgx_h100")
    if isinstance(data.get("scale"), dict) and "extends" not in data:
        reader.fault("there is nothing to scale", ("scale",), "name a profile to extend, such as extends: hgx_h100")
    relative = _scaled(reader, replace(base or BARE, derived="", checked="", systems=(), gpus=()), data)
    if "checked" in data and not data.get("derived"):
        reader.fault("checked is said of a profile that is not derived", ("checked",), "say how: derived: '...'")
    if data.get("derived") and not data.get("checked"):
        relative = _less_sure(relative)
    found = _with_figures(reader, relative, data, ())
    launches = _launches(reader, found, reader.mapping(data, "launches", (), "write launches: {graph: {...}}"))
    if reader.faults:
        raise SpecError(*reader.faults)
    found = replace(found, name=data["name"], sha256=sha256, launches={**found.launches, **launches})
    return found if base is None or found.derived else _as_measured(found, base, data)


def _as_measured(found: Profile, base: Profile, data: Mapping[str, Any]) -> Profile:
    """Return a profile without the errors of *base* where its constants are no longer those that were compared."""

    def changed(profile: Profile, before: Profile) -> bool:
        return any(getattr(profile, name) != getattr(before, name) for name in CONSTANTS)

    own = data.get("launches", {})
    launches = {
        name: replace(launched, accuracy={}) if name not in own and changed(launched, base.launches[name]) else launched
        for name, launched in found.launches.items()
    }
    accuracy = dict(found.accuracy)
    if changed(found, base):
        accuracy = {family: bands for family, bands in accuracy.items() if family in data.get("accuracy", {})}
    return replace(found, accuracy=accuracy, launches=launches)


def _scaled(reader: _Reader, base: Profile, data: Mapping[str, Any]) -> Profile:
    """Return *base* with every figure that ``scale`` names multiplied, in all kernels and ways to launch."""
    entries = reader.mapping(data, "scale", (), "write scale: {channel_rate: {value: 0.71}}")
    reader.check_keys(entries, list(PROTOCOL_FIGURES), ("scale",))
    factors = {
        PROTOCOL_FIGURES[key]: reader.figure(("scale", key), entry, "scale")
        for key, entry in entries.items()
        if key in PROTOCOL_FIGURES
    }

    told = reader.origins(entries, {key: name for key, name in PROTOCOL_FIGURES.items() if key in entries}, ("scale",))

    def origins(costs: Protocol | Profile) -> dict[str, Origin]:
        return {**costs.origins, **{name: told[name] for name in costs.origins if name in told}}

    def scaled(costs: Protocol) -> Protocol:
        values = {name: getattr(costs, name) for name in factors}
        own = {name: value * factors[name] for name, value in values.items() if value is not None}
        return replace(costs, **own, origins=origins(costs))

    def launched(profile: Profile) -> Profile:
        families = {
            family: {proto: scaled(costs) for proto, costs in protocols.items()}
            for family, protocols in profile.families.items()
        }
        own = {name: getattr(profile, name) * factors[name] for name in PROFILE_FIGURES.values() if name in factors}
        protocols = {proto: scaled(costs) for proto, costs in profile.protocols.items()}
        return replace(profile, families=families, protocols=protocols, **own, origins=origins(profile))

    if not factors:
        return base
    found = replace(launched(base), launches={name: launched(profile) for name, profile in base.launches.items()})
    for key in entries:
        if key in PROTOCOL_FIGURES:
            _check_scaled(reader, key, found)
    return found


def _check_scaled(reader: _Reader, key: str, scaled: Profile) -> None:
    """Add a fault for the first value of a figure that is out of range after it was scaled."""
    least, most, unit = RANGES[FIGURES[key]]
    for place, costs in _places(scaled):
        value = getattr(costs, PROTOCOL_FIGURES[key], None)
        if value in (None, 0.0, math.inf) or least <= value <= most:
            continue
        what = f"{key}{place and ' of '}{place} becomes {value:.4g}{unit}"
        reader.fault(what, ("scale", key), f"it must stay between {least:g} and {most:g}{unit}: take another factor")
        return


def _places(profile: Profile) -> Iterator[tuple[str, Profile | Protocol]]:
    """Yield everything that has figures, with its place."""
    yield "", profile
    for proto, costs in profile.protocols.items():
        yield f"protocols.{proto}", costs
    for family, protocols in profile.families.items():
        for proto, costs in protocols.items():
            yield f"families.{family}.{proto}", costs
    for name, launched in profile.launches.items():
        for place, costs_there in _places(launched):
            yield f"launches.{name}.{place}".rstrip("."), costs_there


def _less_sure(relative: Profile) -> Profile:
    """Return a profile whose intervals reach further, because nothing was measured that would tell how far."""

    def widened(profile: Profile) -> Profile:
        accuracy = {
            family: {band: scatter.widened(DERIVED_REACH) for band, scatter in bands.items()}
            for family, bands in profile.accuracy.items()
        }
        return replace(profile, accuracy=accuracy)

    launches = {name: widened(profile) for name, profile in relative.launches.items()}
    return replace(widened(relative), launches=launches)


def _with_figures(reader: _Reader, base: Profile, data: Mapping[str, Any], path: tuple[str, ...]) -> Profile:
    """Return *base* with everything that a section says."""
    own: dict[str, Any] = reader.figures(data, PROFILE_FIGURES, path)
    own["origins"] = {**base.origins, **reader.origins(data, PROFILE_FIGURES, path)}
    own["calibrated"] = reader.flag(data, "calibrated", path, otherwise=base.calibrated)
    own |= _texts(reader, data, path)
    for key, options in CHOICES.items():
        if key in data:
            if data[key] not in options:
                reader.fault(f'"{data[key]}" is unknown', (*path, key), f"write {' or '.join(options)}")
            own["achievable_rate" if key == "link_rate" else "latency"] = data[key] == options[0]
    own |= {key: names for key in LISTS if (names := _names(reader, data, key, path)) is not None}
    found = replace(base, **own)
    protocols = {
        **base.protocols,
        **_protocols(reader, found, base.protocols, data.get("protocols", {}), (*path, "protocols")),
    }
    families = _families(reader, found, data, path, before=base.families)
    accuracy = {**base.accuracy, **_accuracy(reader, data, path)}
    network = _network(reader, found, data, path) if "network" in data else base.network
    return replace(found, protocols=protocols, families=families, network=network, accuracy=accuracy)


def _families(
    reader: _Reader, found: Profile, data: Mapping[str, Any], path: tuple[str, ...], *,
    before: Mapping[str, Mapping[str, Protocol]], known: Sequence[str] = WITHIN_NODES,
) -> dict[str, Mapping[str, Protocol]]:  # fmt: skip
    """Return the protocols of each kernel; what the section does not say is as it was *before*."""
    entries = reader.mapping(data, "families", path, "write families: {ring: ...}")
    reader.check_keys(entries, known, (*path, "families"))
    families = dict(before)
    for name, entry in entries.items():
        here = (*path, "families", name)
        families[name] = {**families.get(name, {}), **_protocols(reader, found, families.get(name, {}), entry, here)}
    return families


def _network(reader: _Reader, found: Profile, data: Mapping[str, Any], path: tuple[str, ...]) -> NetworkCosts:
    """Return the costs between nodes."""
    path = (*path, "network")
    entries = reader.mapping(data, "network", path[:-1], "write network: {families: {ring: ...}}")
    reader.check_keys(entries, NETWORK_KEYS, path)
    if not isinstance(entries.get("title", ""), str):
        reader.fault("title is not a text", (*path, "title"), "write title: '...'")
    names = {key: _names(reader, entries, key, path) or () for key in NETWORK_LISTS}
    nodes = entries.get("nodes", 0)
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 0:
        reader.fault(f'"{nodes}" is no number of nodes', (*path, "nodes"), "write nodes: 8")
        nodes = 0
    families = _families(reader, replace(found, message_overhead_s=0.0), entries, path, before={}, known=BETWEEN_NODES)
    accuracy = _accuracy(reader, entries, path)
    return NetworkCosts(
        str(data.get("name", "")),
        str(entries.get("title", "")),
        **names,
        nodes=nodes,
        pooled=reader.flag(entries, "pooled", path, otherwise=False),
        calibrated=reader.flag(entries, "calibrated", path, otherwise=True),
        families=families,
        accuracy=accuracy,
    )


def _names(reader: _Reader, data: Mapping[str, Any], key: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a list of names; None if there is none."""
    entries = data.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        reader.fault(f"{key} is not a list of names", (*path, key), f"write {key}: [{NETWORK_LISTS.get(key, 'PXB')}]")
        return None
    return tuple(entries) if key in data else None


def _texts(reader: _Reader, data: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, str]:
    """Return the words of a section; the library must be one that `auto` can follow."""
    for key in TEXTS:
        if key in data and not isinstance(data[key], str):
            reader.fault(f"{key} is not a text", (*path, key), f"write {key}: '...'")
    found = {key: one_line(data[key]) for key in TEXTS if isinstance(data.get(key), str)}
    if found.get("host", "") not in ("", *HOSTS):
        what = f'"{found["host"]}" is no kind of host'
        reader.fault(what, (*path, "host"), f"one of {', '.join(HOSTS)}")
    if found.get("library"):
        try:
            load_library(found["library"])
        except InputError as error:
            reader.faults += [Fault(f.what, reader.document.where((*path, "library")), f.hint) for f in error.faults]
    return found


def _protocols(
    reader: _Reader, profile: Profile, before: Mapping[str, Protocol], entries: Any, path: tuple[str, ...]
) -> dict[str, Protocol]:
    """Return protocols by name; what one does not say is as it was *before*, as in the profile, or costs nothing."""
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        reader.fault(
            f"{path[-1]} is not a mapping of mappings", path, "write protocols: {LL: {message_overhead: 1 us}}"
        )
        return {}
    reader.check_keys(entries, PROTOCOLS, path)
    protocols: dict[str, Protocol] = {}
    for name, entry in entries.items():
        here = (*path, name)
        reader.check_keys(entry, [*PROTOCOL_FIGURES, REDUCE_RATE, *PROTOCOL_FLAGS], here)
        usual = before.get(name, profile.usual)
        own: dict[str, Any] = reader.figures(entry, PROTOCOL_FIGURES, here)
        own["origins"] = {**usual.origins, **reader.origins(entry, PROTOCOL_FIGURES, here)}
        own |= {flag: reader.flag(entry, flag, here, otherwise=getattr(usual, flag)) for flag in PROTOCOL_FLAGS}
        if REDUCE_RATE in entry:
            own["reduce_rates_Bps"] = _reduce_rates(reader, entry, here)
            own["origins"] |= _origins_of_reducing(reader, entry, here)
        protocols[name] = replace(usual, **own)
    return protocols


def _reduce_rates(reader: _Reader, entry: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, float]:
    """Return at which rate a channel adds, by data type."""
    rates = reader.mapping(entry, REDUCE_RATE, path, "write reduce_rate: {bfloat16: {value: 20 GB/s}}")
    here = (*path, REDUCE_RATE)
    reader.check_keys(rates, list(DTYPES), here)
    return {name: reader.figure((*here, name), rates[name], REDUCE_RATE) for name in rates if name in DTYPES}


def _origins_of_reducing(reader: _Reader, entry: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Origin]:
    """Return where the rates of adding are from, each under its key and data type."""
    rates = entry[REDUCE_RATE] if isinstance(entry[REDUCE_RATE], dict) else {}
    return {f"{REDUCE_RATE}.{name}": reader.origin((*path, REDUCE_RATE, name), rates[name]) for name in rates}


def _accuracy(reader: _Reader, data: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, dict[str, Scatter]]:
    """Return the errors of predictions by family and band."""
    sections = reader.mapping(data, "accuracy", path, "write accuracy: {ring: {large: {...}}}")
    reader.check_keys(sections, WITHIN_NODES, (*path, "accuracy"))
    found: dict[str, dict[str, Scatter]] = {}
    for family in sections:
        here = (*path, "accuracy", family)
        bands = reader.mapping(sections, family, here[:-1], "write large: {low: 0.9, high: 1.1, ...}")
        reader.check_keys(bands, list(BANDS_BETWEEN if path == ("network",) else BANDS), here)
        found[family] = {}
        for band, entry in bands.items():
            try:
                numbers = {key: float(entry[key]) for key in SCATTER_KEYS}
                fitted = entry.get(SCATTER_FLAG, False)
                lent, ops = entry.get(SCATTER_LENDER, ""), entry.get(SCATTER_OPS, [])
                sound = set(entry) <= {*SCATTER_KEYS, SCATTER_FLAG, SCATTER_LENDER, SCATTER_OPS}
                sound = sound and isinstance(fitted, bool) and isinstance(lent, str)
                sound = sound and isinstance(ops, list) and all(op in OPERATIONS for op in ops)
                sound = sound and _is_error(numbers)
            except (TypeError, ValueError, KeyError):
                sound = False
            if sound:
                low, high, median, p90, rows, logs = (numbers[key] for key in SCATTER_KEYS)
                found[family][band] = Scatter(low, high, median, p90, int(rows), int(logs), fitted, lent, tuple(ops))
            else:
                hint = f"write the numbers {', '.join(SCATTER_KEYS)}; {SCATTER_RANGES}"
                reader.fault(f"{band} does not hold the numbers of an error", (*here, band), hint)
    return found


def _is_error(numbers: Mapping[str, float]) -> bool:
    """Return True if numbers can be those of an error, by `SCATTER_RANGES`."""
    counts = [numbers["rows"], numbers["logs"]]
    return (
        0 < numbers["low"] <= 1 <= numbers["high"] < math.inf
        and 0 <= numbers["median"] <= numbers["p90"] < math.inf
        and all(count >= 1 and count == int(count) for count in counts)
    )


def _launches(reader: _Reader, profile: Profile, sections: Mapping[str, Any]) -> dict[str, Profile]:
    """Return the profile of each other way to launch: as for stream launches but for what its section says."""
    reader.check_keys(sections, LAUNCHES, ("launches",))
    found = {}
    for name in sections:
        here = ("launches", name)
        data = reader.mapping(sections, name, here[:-1], "write graph: {floor: 7 us}")
        reader.check_keys(data, LAUNCH_KEYS, here)
        bare = replace(profile.launches.get(name, profile), accuracy={}, launches={})
        found[name] = _with_figures(reader, bare, data, here)
    return found
