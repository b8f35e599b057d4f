"""The file of a calibrated profile: every figure with its interval, its status and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from collsim.calibration.findings import Calibration, Constant
from collsim.calibration.parameters import OWN, TIED
from collsim.library import Profile, Protocol, Scatter, profile_names
from collsim.library.costs.channel_costs import NEAREST
from collsim.library.costs.profile_reader import PROTOCOL_FIGURES, PROTOCOL_FLAGS, SCHEMA

__all__ = ["as_yaml"]

THREAD_LAUNCH = "2.5 to 5 us for each further GPU in public logs with one thread for 4, 8 and 12 GPUs"
KNOWN = {
    "thread_launch": ("measured", THREAD_LAUNCH),
    "wire_efficiency": ("constant", "lines of the protocol (device.h of NCCL and RCCL)"),
}
"""Status and source of figures that are never fitted; Simple has no lines, its payload is a figure like others."""


def as_yaml(calibration: Calibration, source: str) -> str:
    """Return the text of a profile file.

    Parameters
    ----------
    calibration : Calibration
    source : str
        What the figures were fitted to, for a reader of the file.
    """
    profile = calibration.profile
    writer = _Writer(calibration, source)
    if calibration.over_nodes:
        return "\n".join(_network_lines(calibration, writer)) + "\n"
    lines = [
        f"schema: {SCHEMA}",
        f"name: {profile.name}",
        f"title: {_quoted(profile.title)}",
        f"calibrated: {str(profile.calibrated).lower()}",
        f"systems: [{', '.join(profile.systems)}]",
    ]
    lines += [f"gpus: [{', '.join(profile.gpus)}]"] if profile.gpus else []
    lines += [f"peers: [{', '.join(profile.peers)}]"] if profile.peers else []
    lines += [f"host: {profile.host}"] if profile.host else []
    lines += [
        f"library: {profile.library}",
        f"link_rate: {'achievable' if profile.achievable_rate else 'raw'}",
        f"link_latency: {'counted' if profile.latency else 'ignored'}",
    ]
    lines += writer.launch("stream", profile, None, "")
    if profile.launches:
        lines.append("launches:")
        for name, launched in profile.launches.items():
            lines.append(f"  {name}:")
            lines += writer.launch(name, launched, profile, "    ")
    return "\n".join(lines) + "\n"


def _network_lines(calibration: Calibration, writer: _Writer) -> Iterator[str]:
    """Yield a profile that says what steps between nodes cost, and of a node what the start says."""
    network = calibration.profile.network
    yield f"schema: {SCHEMA}"
    yield f"name: {network.name}"
    if calibration.start in profile_names() and calibration.start not in ("default", network.name):
        yield f"extends: {calibration.start}"
        yield f"systems: [{', '.join(calibration.profile.systems)}]"
    yield "network:"
    yield f"  title: {_quoted(network.title)}"
    if not network.calibrated:
        yield "  calibrated: false"
    for key in ("systems", "networks", "gpus", "measured"):
        if key != "measured" or network.measured:
            yield f"  {key}: [{', '.join(getattr(network, key))}]"
    yield f"  nodes: {network.nodes}"
    if network.pooled:
        yield "  pooled: true"
    yield "  families:"
    yield from writer.families("stream", network.families, "    ")
    yield from _accuracy(network.accuracy, "  ")


ZERO_COPIED = "messages.Simple.base"
"""What messages between registered buffers need and others do not: peers tell each other where these are."""
MOVED = ("assumed", "that of stream launches, moved as those of the kernels in these logs")
TOLD = ("derived", "of graph replay, less what replay takes off other kernels: no copy, but peers tell buffers")
UNMOVED = 1e-3
"""A figure of a joint fit that differs less from where it started, as a logarithm, was not moved: the logs of others
pull it so far (chosen)."""


class _Writer:
    """Writes figures with what the fit knows of them."""

    def __init__(self, calibration: Calibration, source: str) -> None:
        self.fitted = {(entry.launch, entry.name): entry for entry in calibration.constants}
        self.start, self.source, self.over_nodes = calibration.start, source, calibration.over_nodes
        self.joint = calibration.joint
        self.launches = {entry.launch for entry in calibration.constants}

    def launch(self, name: str, profile: Profile, usual: Profile | None, indent: str) -> Iterator[str]:
        """Yield floor, families and accuracy of a way to launch; only families unlike those of *usual*."""
        if profile.floor_s:
            yield f"{indent}floor: {self.figure(name, 'floor', 'floor', profile.floor_s)}"
        if profile.thread_launch_s and usual is None:
            wait = self.figure(name, "thread_launch", "thread_launch", profile.thread_launch_s)
            yield f"{indent}thread_launch: {wait}"
        families = {
            family: costs
            for family, costs in profile.families.items()
            if usual is None or costs != usual.families.get(family)
        }
        yield f"{indent}families:" if families else f"{indent}families: {{}}"
        yield from self.families(name, families, f"{indent}  ")
        yield from _accuracy(profile.accuracy, indent)

    def families(self, launch: str, families: Mapping[str, Mapping[str, Protocol]], indent: str) -> Iterator[str]:
        """Yield the kernels with their protocols."""
        for family, protocols in families.items():
            yield f"{indent}{family}:"
            for proto, costs in protocols.items():
                yield f"{indent}  {proto}:"
                yield from self.protocol(launch, family, proto, costs, f"{indent}    ")

    def protocol(self, launch: str, family: str, proto: str, costs: Protocol, indent: str) -> Iterator[str]:
        """Yield the figures of a protocol that are not as in the bare wire."""
        for key, attribute in PROTOCOL_FIGURES.items():
            value = getattr(costs, attribute)
            if (
                value is None
                or math.isinf(value)
                or value == 0
                or (key in ("wire_efficiency", "node_share") and value == 1)
            ):
                continue
            shared = (launch, f"{family}.{key}") in self.fitted
            name = f"{family}.{key}" if shared else f"{family}.{proto}.{key}"
            yield f"{indent}{key}: {self.figure(launch, name, key, value)}"
        if costs.reduce_rates_Bps:
            rates = ", ".join(f"{name}: {self.adding(costs, name)}" for name in costs.reduce_rates_Bps)
            yield f"{indent}reduce_rate: {{{rates}}}"
        for flag in PROTOCOL_FLAGS:
            if getattr(costs, flag):
                yield f"{indent}{flag}: true"

    def figure(self, launch: str, name: str, key: str, value: float) -> str:
        """Return a figure with its status, on one line; what the fit moved is fitted, however little the logs say."""
        found: Constant | None = self.fitted.get((launch, name))
        if found is not None and (found.identified or self.is_moved(key, found.start, value)):
            ends = f"low: {_text(key, found.low)}, high: {_text(key, found.high)}"
            held = "" if found.identified else f"; held by {self.before(launch)}, the logs alone do not fix it"
            source = _quoted(f"{self.source}{held}")
            return f"{{value: {_text(key, value)}, {ends}, status: fitted, source: {source}}}"
        ring = self.fitted.get((launch, name.replace("messages.", "ring.").replace("one_way_", "channel_")))
        if ring is not None and name.startswith("messages.") and _text(key, ring.value) == _text(key, value):
            return f"{{value: {_text(key, value)}, status: derived, source: 'as of ring'}}"
        status, source = self.unfitted(launch, name, key)
        return f"{{value: {_text(key, value)}, status: {status}, source: {_quoted(source)}}}"

    def adding(self, costs: Protocol, dtype: str) -> str:
        """Return the rate of adding a data type, which no fit of logs moves, as the start has it."""
        origin = costs.origins[f"reduce_rate.{dtype}"]
        value = _text("reduce_rate", costs.reduce_rates_Bps[dtype])
        return f"{{value: {value}, status: {origin.status}, source: {_quoted(origin.source)}}}"

    def is_moved(self, key: str, start: float, value: float) -> bool:
        """Return True if the fit moved a figure; those of a joint fit move a little with terms that others share."""
        if self.joint:
            return abs(math.log(value / start)) > UNMOVED
        return _text(key, start) != _text(key, value)

    def is_told(self, launch: str, family: str, key: str) -> bool:
        """Return True if the fit has a figure for some protocol of a family."""
        return any((launch, f"{family}.{proto}.{key}") in self.fitted for proto in NEAREST)

    def before(self, launch: str) -> str:
        """Return the costs that the fit of a way to launch starts from."""
        if self.joint:
            return "the law of all networks"
        return f"profile {self.start}" if launch == "stream" else "stream launches"

    def unfitted(self, launch: str, name: str, key: str) -> tuple[str, str]:
        """Return status and source of a figure that the fit did not move."""
        family, *rest = name.split(".")
        own = f"{key}_s" in OWN.get(family, ()) and (
            (launch, name) in self.fitted or not self.is_told(launch, family, key)
        )
        tied = "" if own else TIED.get(family, "")
        if any((launch, ".".join([tied, *part])) in self.fitted for part in (rest, rest[-1:])):
            return "derived", f"as of {tied}"
        if (launch, name) in self.fitted:
            return "assumed", f"as of {self.before(launch)}: these logs do not move it"
        if self.over_nodes and key == "link_share":
            return "derived", "as of the kernels in these logs: the same adapters"
        if key in KNOWN and rest[:1] != ["Simple"]:
            return KNOWN[key]
        if key == "base" and launch != "stream" and (launch in self.launches or name == ZERO_COPIED):
            return MOVED if launch in self.launches else TOLD
        unmeasured = launch not in self.launches and key not in ("base", "floor")  # registered buffers
        start = "graph replay" if unmeasured else self.before(launch)
        return "assumed", f"as of {start}: not fitted to these logs"


def _accuracy(accuracy: Mapping[str, Mapping[str, Scatter]], indent: str) -> Iterator[str]:
    """Yield the errors by family and band."""
    if accuracy:
        yield f"{indent}accuracy:"
    for family, bands in accuracy.items():
        yield f"{indent}  {family}:"
        for band, scatter in bands.items():
            numbers = ", ".join(
                f"{key}: {getattr(scatter, key):.4g}" for key in ("low", "high", "median", "p90", "rows", "logs")
            )
            flags = f"{', fitted: true' if scatter.fitted else ''}{f', lent: {scatter.lent}' if scatter.lent else ''}"
            flags += f", ops: [{', '.join(scatter.ops)}]" if scatter.ops else ""
            yield f"{indent}    {band}: {{{numbers}{flags}}}"


def _text(key: str, value: float) -> str:
    """Return a figure with its unit."""
    if key.endswith("_rate"):
        return f"{value / 1e9:.4g} GB/s"
    if key in ("fill_limit", "threads_full"):
        return f"{value / 1024:.0f} KiB"
    if key.endswith("overhead") or key in ("base", "floor", "thread_launch", "turn"):
        return f"{value * 1e6:.4g} us"
    return f"{value:.4g}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
