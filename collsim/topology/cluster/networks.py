"""The networks that may join nodes: one shipped file of figures each, with status and source.

Importing this module imports pydantic, so it is imported only when a cluster is built.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collsim.core.errors import Fault, InputError, SpecError
from collsim.topology.files.figures import Count, Feature, Fraction, Rate, Reduction, Time
from collsim.topology.files.reader import read_document
from collsim.topology.files.schema import Section
from collsim.topology.zoo import network_names, zoo_directory

__all__ = ["Aggregation", "NetworkSpec", "NetworkSwitch", "load_network", "network_file", "network_for"]

SCHEMA = "collsim.network/1"


class Aggregation(Section):
    """Streaming reduction trees that a switch runs at once: one for each port, or one for the whole switch."""

    tree_per: Literal["port", "switch"]


class NetworkSwitch(Section):
    """A switch model at one port rate."""

    model: str
    ports: Count
    port_rate: Rate
    aggregation: Aggregation | None = None
    """None: it only forwards, or adds messages of a few hundred bytes at most."""


class NetworkSpec(BaseModel):
    """One network: figures with provenance, in SI through their ``si``."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    schema_: Literal["collsim.network/1"] = Field(alias="schema")
    name: str
    title: str
    notes: str = ""
    adapters: list[str]
    """Parts of the names of the adapters that speak it."""
    routing: Literal["adaptive", "ecmp", "spray"]
    """Per message over all paths by load; one path per flow by hash; or packet by packet over all paths."""
    in_network_reduction: Reduction
    """Reduction of its switches, such as SHARP; off unless the library turns it on."""
    switches: Annotated[list[NetworkSwitch], Field(min_length=1)]
    """By rising port rate."""
    switch_latency: Time
    nic_latency: Time
    link_latency: Time
    """Of every link besides its cable: error correction."""
    efficiency: Fraction
    """Share of the line rate that data reach."""
    out_of_order: Feature | None = None
    """Treatment of packets that overtake each other on the way."""
    offload: Feature | None = None
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
    try:
        return NetworkSpec.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpecError(Fault(str(first["msg"]), f"{network_file(name)}: {place}")) from None


def network_for(adapter: str) -> str:
    """Return the network that the adapter called *adapter* usually speaks; InfiniBand if none is known.

    >>> network_for("ConnectX-7"), network_for("Broadcom Thor-2"), network_for("Pensando Pollara 400")
    ('infiniband', 'roce', 'ultra_ethernet')
    """
    found: dict[str, Any] = {part: name for name in network_names() for part in load_network(name).adapters}
    known = [part for part in found if part.lower() in adapter.lower()]
    return str(found[max(known, key=len)]) if known else "infiniband"
