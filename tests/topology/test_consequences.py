"""Whatever a setting changes beside its own figure is told, for every figure of a cluster that can be set."""

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.report import render, render_comparison
from collsim.topology import load_topology
from collsim.topology.files.overrides import known_paths

OTHERS = {
    "nic.per_gpu": "2", "nic.ports": "2", "nic.distance": "PHB",
    "nic.shared_by": "2", "nic.bandwidth": "800 Gb/s", "nic.bus_bandwidth": "90 GB/s",
    "nic.model": "Broadcom Thor-2", "scale_out.fabric": "fat_tree", "scale_out.network": "roce",
    "scale_out.routing": "ecmp", "scale_out.hash_seed": "7", "scale_out.flows_per_pair": "4", "scale_out.radix": "16",
    "scale_out.port_rate": "800 Gb/s", "scale_out.tiers": "3", "scale_out.oversubscription": "2",
    "scale_out.rails": "4", "scale_out.racks": "2", "scale_out.nic_cable": "9 m", "scale_out.leaf_cable": "9 m",
    "scale_out.core_cable": "9 m", "scale_out.bus_latency": "1 us", "scale_out.bus_efficiency": "0.5",
    "scale_out.switch_latency": "1 us", "scale_out.nic_latency": "1 us", "scale_out.link_latency": "1 us",
    "scale_out.efficiency": "0.5",
}  # fmt: skip
"""Another value than that of the cluster below for each figure that the network is resolved from."""
DRAGONFLY = ("scale_out.group_switches", "scale_out.switch_endpoints", "scale_out.global_links")
KNOWN_BY = {
    "scale_out.routing": "routing", "scale_out.rails": "rails", "scale_out.radix": "radix",
    "scale_out.port_rate": "port_rate_Bps", "scale_out.switch_latency": "switch_latency_s",
    "scale_out.nic_latency": "nic_latency_s", "scale_out.link_latency": "link_latency_s",
    "scale_out.efficiency": "efficiency", "scale_out.in_network_reduction": "in_network_reduction",
    "nic.bus_bandwidth": "bus_rate_Bps", "scale_out.network": "network",
}  # fmt: skip
"""Fields of the resolved cluster by the figure that they are told as."""


def with_setting(path, value, nodes="16"):
    return load_topology("hgx_h100", {"scale_out.nodes": nodes, path: value})


def test_every_figure_of_a_cluster_is_tried():
    paths = {path for path in known_paths() if path.startswith(("nic.", "scale_out."))}
    assert paths == {*OTHERS, *DRAGONFLY, "scale_out.nodes", "scale_out.gpus_per_node"}


@pytest.mark.parametrize("path", OTHERS)
def test_what_changes_beside_the_setting_is_told(path):
    before = with_setting("scale_out.nodes", "16").cluster
    try:
        changed = with_setting(path, OTHERS[path])
    except InputError:
        pytest.skip("refused")
    told = {each.path for each in changed.follows}
    assert all(each.cause == path for each in changed.follows)
    for figure, field in KNOWN_BY.items():
        differs = getattr(changed.cluster.spec, field) != getattr(before.spec, field)
        assert (figure in told) == (differs and figure != path), figure
    assert ("scale_out.tiers" in told) == (
        changed.cluster.plan.tiers != before.plan.tiers and path != "scale_out.tiers"
    )


def test_figures_that_are_set_do_not_follow():
    settings = {"scale_out.nodes": "2", "nic.bandwidth": "800 Gb/s", "nic.bus_bandwidth": "121 GB/s"}
    assert "nic.bus_bandwidth" not in {each.path for each in load_topology("hgx_h100", settings).follows}


def test_a_faster_adapter_comes_with_another_bus_and_all_commands_say_so():
    told = "nic.bus_bandwidth 121 GB/s (PCIe 6 x16), not 63 GB/s"
    settings = {"scale_out.nodes": "2", "nic.bandwidth": "800 Gb/s"}
    result = collsim.simulate("hgx_h100", "all_reduce", "1M", profile="ideal", overrides=settings)
    text = " ".join(render(result, "table").replace("\n#  ", "").split())
    assert "# follows from nic.bandwidth: " in text
    assert told in text
    compared = collsim.compare(["hgx_h100", "hgx_h100"], "all_reduce", "1M", profile="ideal", overrides=settings)
    assert told in " ".join(render_comparison(compared, "table").replace("\n#  ", "").split())
    assert {
        "path": "nic.bus_bandwidth",
        "value": "121 GB/s (PCIe 6 x16)",
        "before": "63 GB/s",
        "from": "nic.bandwidth",
    } in (result.to_dict()["topology"]["follows"])


def test_one_node_has_no_network_that_follows():
    assert load_topology("hgx_h100", {"nic.bandwidth": "800 Gb/s"}).follows == ()


@pytest.mark.parametrize("path", ["gpu.model", "link.type"])
def test_words_that_are_set_are_kept_and_no_longer_as_measured(path):
    overrides = {path: {"gpu.model": "NVIDIA B200", "link.type": "NVLink 5"}[path]}
    result = collsim.simulate("hgx_h100", "all_reduce", "1M", overrides=overrides)
    assert result.config["overrides"] == overrides
    assert not result.profile["calibrated"]
