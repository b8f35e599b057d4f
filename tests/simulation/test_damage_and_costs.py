"""What fails on clusters under constants that are not ideal, and rows beside those of the machine in order."""

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.topology import load_topology

LIBRARY = "nccl-2.28"


@pytest.mark.parametrize("profile", ["ideal", "default", "auto"])
@pytest.mark.parametrize(("lost", "slower"), [(1, 8 / 7), (4, 2.0)])
def test_adapters_that_are_left_share_what_the_lost_ones_carried(profile, lost, slower):
    """Rings of 1 GiB over eight rails fill the adapters; channels share what is left of them, not one of them."""
    fail = [f"nic:n0.nic{i}" for i in range(lost)]
    asked = {"op": "all_reduce", "size": "1G", "algo": "ring", "ranks": 16, "profile": profile}
    row = collsim.simulate("h100_rail", **asked, fail=fail).rows[0]
    assert 1 < row.slowdown <= 1.05 * slower


@pytest.mark.parametrize("order", [("auto", "ring"), ("ring", "auto")])
def test_each_row_is_beside_what_was_asked_the_same(order):
    asked = {"op": "all_reduce", "size": "1M", "library": LIBRARY, "fail": "link:gpu0-nvsw0:1"}
    rows = collsim.simulate("hgx_h100", **asked, algo=list(order)).rows
    for name, row in zip(order, rows, strict=True):
        alone = collsim.simulate("hgx_h100", **asked, algo=name).rows[0]
        assert (row.healthy_time_s, row.healthy_algo) == (alone.healthy_time_s, alone.healthy_algo)


def test_rails_without_spines_go_round_a_lost_adapter_between_racks():
    topology = load_topology("hgx_h100", scale_out={"nodes": 8, "fabric": "rail_only", "racks": 2})
    row = collsim.simulate(topology, "all_to_all", "64M", profile="ideal", fail="nic:node0/0").rows[0]
    assert row.slowdown == pytest.approx(8 / 7, rel=0.05)


def test_damage_elsewhere_leaves_switches_of_a_node_at_work():
    topology = load_topology("hgx_h100", scale_out={"nodes": 2})
    asked = {"op": "all_reduce", "size": "64M", "library": LIBRARY, "rank_list": list(range(8))}
    row = collsim.simulate(topology, **asked, fail="link:n1.gpu0-n1.nvsw0").rows[0]
    assert (row.algo, row.slowdown) == ("nvls", pytest.approx(1.0))


def test_globs_of_numbers_name_adapters_of_several_nodes():
    topology = load_topology("hgx_h100", scale_out={"nodes": 4})
    asked = {"op": "all_reduce", "size": "1M", "algo": "ring", "profile": "ideal"}
    damage = collsim.simulate(topology, **asked, fail="nic:node[01]/[0-2]").topology["damage"]
    assert "6 NICs failed" in damage["summary"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scale_out": 4}, "4 is no section"),
        ({"scale_out": {"nodes": 4, "flows_per_pair": 100_000}}, "100000 flows for each pair"),
    ],
)
def test_figures_out_of_range_are_refused(more, words):
    with pytest.raises(InputError, match=words):
        load_topology("hgx_h100", **more)


def test_a_load_must_be_a_text():
    with pytest.raises(InputError, match="5 is not a load on links"):
        collsim.simulate("hgx_h100", "all_reduce", "1M", load=5)


def test_a_mix_that_names_itself_is_refused(tmp_path):
    file = tmp_path / "loop.yaml"
    kinds = "[{node: hgx_h100, nodes: 2}, {node: loop.yaml, nodes: 1}]"
    file.write_text(f"schema: collsim.topology/1\nname: loop\nscale_out: {{mix: {kinds}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="cannot extend itself"):
        load_topology(file)


def test_an_all_to_all_too_large_is_refused_before_it_is_built():
    topology = load_topology("hgx_h100", scale_out={"nodes": 256})
    with pytest.raises(InputError, match="4192256 messages are too many"):
        collsim.simulate(topology, "all_to_all", "1M", algo="pairwise")
