"""Profiles: what a library adds to the raw links.

A profile is a YAML file. Every figure carries its status and source, as in a topology file; a figure that is absent
costs nothing. `default` holds documented round figures that no measurement has calibrated; `ideal` is the bare wire.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collsim.errors import CollsimError, Fault, SpecError, UnknownNameError, nearest
from collsim.topology.reader import MAX_FILE_BYTES, Document, read_document
from collsim.units import parse_bandwidth_Bps, parse_time_s

__all__ = ["Profile", "load_profile", "profile_names"]

SCHEMA = "collsim.profile/1"
FOLDER = Path(__file__).parent / "profiles"
FIGURES: dict[str, Callable[[str, str], float]] = {
    "launch": parse_time_s,
    "message_overhead": parse_time_s,
    "channel_rate": parse_bandwidth_Bps,
}
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

    def describe(self) -> str:
        """Return the constants in one line."""
        if not self.latency and not self.achievable_rate:
            return "raw line rates, no latency, no overhead"
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
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = nearest(path.name, siblings)
        hint = f'did you mean "{path.parent / near}"?' if near else f"shipped profiles: {', '.join(profile_names())}"
        raise SpecError(Fault("no such file", str(path), hint)) from None
    except IsADirectoryError:
        raise SpecError(Fault("this is a directory, not a file", str(path), "name the YAML file in it")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", str(path)[:200], "check the path")) from None


def _from_document(document: Document, sha256: str) -> Profile:
    """Return the profile in *document*, or raise all its faults."""
    faults: list[Fault] = []
    data: dict[str, Any] = document.data
    known = [*WORDS, "calibrated", *CHOICES, *FIGURES]
    for key in data:
        if key not in known:
            near = nearest(key, known)
            faults.append(
                Fault(
                    f'unknown key "{key}"',
                    document.where((key,)),
                    f'did you mean "{near}"?' if near else f"known: {', '.join(known)}",
                )
            )
    if data.get("schema") != SCHEMA:
        faults.append(
            Fault(f'schema is "{data.get("schema")}"', document.where(("schema",)), f"write schema: {SCHEMA}")
        )
    if not isinstance(data.get("name"), str):
        faults.append(Fault("the profile has no name", document.where(()), "write name: my_profile"))
    if not isinstance(data.get("calibrated", False), bool):
        where = document.where(("calibrated",))
        faults.append(Fault(f'"{data["calibrated"]}" is not true or false', where, "write calibrated: false"))
    for key, options in CHOICES.items():
        if data.get(key, options[0]) not in options:
            hint = f"write {' or '.join(options)}"
            faults.append(Fault(f'"{data[key]}" is unknown', document.where((key,)), hint))
    figures = {key: _figure(key, document, faults) for key in FIGURES if key in data}
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
    )


def _figure(key: str, document: Document, faults: list[Fault]) -> float:
    """Return the value of a figure in SI; append its faults."""
    entry = document.data[key]
    path: tuple[str, ...] = (key,)
    if isinstance(entry, dict):
        faults.extend(
            Fault(f'unknown key "{inner}"', document.where((key, inner)), f"known: {', '.join(FIGURE_KEYS)}")
            for inner in entry
            if inner not in FIGURE_KEYS
        )
        entry, path = entry.get("value"), (key, "value")
    if entry is None or isinstance(entry, (dict, list)):
        hint = "write value: 8 us, with status and source"
        faults.append(Fault("the figure has no value", document.where((key,)), hint))
        return 0.0
    try:
        return FIGURES[key](str(entry), document.where(path))
    except CollsimError as error:
        faults.extend(error.faults)
        return 0.0
