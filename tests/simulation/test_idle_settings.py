"""Settings that change nothing say so, with the reason; those that count say nothing of the kind."""

import pytest

from collsim.core.errors import InputError
from collsim.simulation.simulate import simulate

ONE_SWITCH = "all adapters are on one switch"
IDLE = {
    ("hgx_h100", ()): {
        "switch.prefix=zz": "it is a name", "cpu.read_rate=5 GB/s": "all have links of their own",
        "cpu.model=AMD EPYC": "it counts between nodes", "nic.model=x": "adapters count between nodes",
    },
    ("mi300x_ubb8", ()): {"cpu.memory_bandwidth=20 GB/s": "all have links of their own"},
    ("pcie_gen5_8gpu", ()): {"switch.in_network_efficiency=0.3": "bare wires"},
    ("hgx_h100", (("nodes", 4), ("ranks", 8))): {"scale_out.rails=4": "all ranks are on one node"},
    ("hgx_h100", (("nodes", 4),)): {
        "scale_out.rails=4": ONE_SWITCH, "scale_out.oversubscription=2": ONE_SWITCH,
        "scale_out.leaf_cable=500 m": ONE_SWITCH, "scale_out.routing=ecmp": ONE_SWITCH,
        "scale_out.group_switches=4": "only a dragonfly", "scale_out.tiers=2": "passes between two switches",
    },
    ("hgx_h100", (("nodes", 4), ("fabric", "dragonfly"))): {
        "scale_out.rails=4": "on no rails; take fabric", "scale_out.hash_seed=7": "without a hash",
        "scale_out.global_links=2": "one group", "scale_out.core_cable=500 m": "no such cables",
    },
}  # fmt: skip
COUNTS = (
    ("hgx_h100", {"nodes": 64}, ("scale_out.rails=4", "scale_out.oversubscription=4")),
    ("hgx_h100", {"nodes": 4}, ("scale_out.nic_cable=500 m", "nic.bandwidth=200 Gb/s")),
    ("pcie_gen5_8gpu", {}, ("cpu.memory_bandwidth=20 GB/s", "link.bandwidth=30 GB/s")),
)


def warned(topo, machine, setting, **asked):
    path, _, value = setting.partition("=")
    asked = {"op": "all_to_all", "size": "64K", "algo": "direct", "profile": "ideal"} | asked
    return list(simulate(topo, **asked, **dict(machine), overrides={path: value}).warnings)


@pytest.mark.parametrize(("system", "settings"), IDLE.items(), ids=lambda value: str(value)[:40])
def test_what_changes_nothing_says_why(system, settings):
    for setting, why in settings.items():
        told = [text for text in warned(*system, setting) if text.startswith(f"{setting} changes nothing: ")]
        assert len(told) == 1, setting
        assert why.replace("take fabric", "take --fabric") in told[0]


@pytest.mark.parametrize(("topo", "machine", "settings"), COUNTS)
def test_what_counts_says_nothing(topo, machine, settings):
    for setting in settings:
        assert not any("changes nothing" in text for text in warned(topo, machine, setting)), setting


def test_links_of_a_plane_are_refused_where_there_are_no_planes():
    with pytest.raises(InputError, match="links_per_plane belong to the switched builder"):
        simulate("pcie_gen5_8gpu", "all_reduce", "1M", overrides={"switch.links_per_plane": "2"})
