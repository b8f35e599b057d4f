"""The networks that may join nodes: one shipped file of figures each, with status and source."""

from __future__ import annotations

from functools import cache
from typing import Any

from collsim.core.errors import Fault, InputError, SpecError
from collsim.topology.files.figures import Count, Feature, Fraction, Rate, Reduction, Time
from collsim.topology.files.models import Model, Problem, Refused, describe, items, key, one_word, part, text
from collsim.topology.files.reader import read_document, show_path
from collsim.topology.files.schema import Section
from collsim.topology.zoo import network_names, zoo_directory

__all__ = ["Aggregation", "NetworkSpec", "NetworkSwitch", "load_network", "network_file", "network_for"]

SCHEMA = "collsim.network/1"


class Aggregation(Section):
    """Streaming reduction trees that a switch runs at once: one for each port, or one for the whole switch."""

    tree_per: str = key(one_word("port", "switch"))


class NetworkSwitch(Section):
    """A switch model at one port rate."""

    model: str = key(text)
    ports: Count = part(Count)
    port_rate: Rate = part(Rate)
    aggregation: Aggregation | None = part(Aggregation, None)
    """None: it only forwards, or adds messages of a few hundred bytes at most."""


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise Refused(f"{describe(value)} where a list is needed", 'write "- " items')
    return [text(item) for item in value]


class NetworkSpec(Model):
    """One network: figures with provenance, in SI through their ``si``."""

    schema: str = key(one_word(SCHEMA))
    name: str = key(text)
    title: str = key(text)
    notes: str = key(text, "")
    adapters: list[str] = key(_texts)
    """Parts of the names of the adapters that speak it."""
    routing: str = key(one_word("adaptive", "ecmp", "spray"))
    """Per message over all paths by load; one path per flow by hash; or packet by packet over all paths."""
    in_network_reduction: Reduction = part(Reduction)
    """Reduction of its switches, such as SHARP; off unless the library turns it on."""
    switches: list[NetworkSwitch] = items(NetworkSwitch, least=1)
    """By rising port rate."""
    switch_latency: Time = part(Time)
    nic_latency: Time = part(Time)
    link_latency: Time = part(Time)
    """Of every link besides its cable: error correction."""
    efficiency: Fraction = part(Fraction)
    """Share of the line rate that data reach."""
    out_of_order: Feature | None = part(Feature, None)
    """Treatment of packets that overtake each other on the way."""
    offload: Feature | None = part(Feature, None)
    """Collectives that an adapter carries out by itself."""

    def features(self) -> list[tuple[str, Feature]]:
        """Return the features of its adapters beyond rates and latencies, by key."""
        told = {"out_of_order": self.out_of_order, "offload": self.offload}
        return [(key, feature) for key, feature in told.items() if feature is not None]

    def switch_for(self, rate_Bps: float) -> NetworkSwitch:
        """Return the switch with the lowest port rate that an adapter of *rate_Bps* fills.

        Raises
        ------
        InputError
            No switch of this network is fast enough.
        """
        for switch in self.switches:
            if switch.port_rate.si >= rate_Bps:
                return switch
        fastest = self.switches[-1]
        what = f"{self.name} has no switch for adapters of {rate_Bps * 8 / 1e9:g} Gb/s"
        rates = f"the fastest, {fastest.model}, has ports of {fastest.port_rate.value.text}"
        hint = f'{rates}: set nic.bandwidth="{fastest.port_rate.value.text}", or take another network'
        raise InputError(Fault(what, "scale_out.network", hint))


def network_file(name: str) -> str:
    """Return the name that messages give the file of a network."""
    return f"topologies/networks/{name}.yaml"


@cache
def load_network(name: str) -> NetworkSpec:
    """Return the shipped network called *name*, one of `network_names`.

    >>> network = load_network("infiniband")
    >>> network.routing, int(network.switch_for(50e9).ports.si)
    ('adaptive', 64)
    """
    path = zoo_directory() / "networks" / f"{name}.yaml"
    document = read_document(path.read_bytes(), network_file(name), SCHEMA)
    problems: list[Problem] = []
    network = NetworkSpec.read(document.data, (), problems)
    if network is None:
        told = [Fault(each.what or each.kind, f"{network_file(name)}: {show_path(each.path)}") for each in problems]
        raise SpecError(*told)
    return network


def network_for(adapter: str) -> str:
    """Return the network that the adapter called *adapter* usually speaks; InfiniBand if none is known.

    >>> network_for("ConnectX-7"), network_for("Broadcom Thor-2"), network_for("Pensando Pollara 400")
    ('infiniband', 'roce', 'ultra_ethernet')
    """
    found: dict[str, Any] = {part: name for name in network_names() for part in load_network(name).adapters}
    known = [part for part in found if part.lower() in adapter.lower()]
    return str(found[max(known, key=len)]) if known else "infiniband"
