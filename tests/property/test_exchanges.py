"""One rank stands for all in an all-to-all over nodes: nearly the same times as with every message."""

import pytest

from collsim import simulate
from collsim.core.errors import InputError
from collsim.simulation import exchanges

CASES = (
    ("h100_rail", 12, 8, 1e-5), ("h100_rail", 5, 7, 1e-5), ("polaris", 9, 4, 6e-3),
)  # fmt: skip
LONGER = (
    ("h100_rail", 40, 8, 1e-5),
    ("polaris", 40, 4, 0.03), ("frontier", 9, 8, 0.03), ("mi325x_thor2", 9, 8, 0.03), ("mi355x_cx7", 12, 8, 0.03),
    ("alps", 40, 4, 0.05), ("gb200_racks", 3, 72, 0.1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "nodes", "gpus", "close"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.deep) for case in LONGER)],
)
def test_one_rank_stands_for_all(cluster, nodes, gpus, close, monkeypatch):
    sizes = ["256K", "4M", "1G"]
    ranks = list(range(nodes * gpus))
    if cluster == "h100_rail":
        ranks = [node * 8 + gpu for node in range(nodes) for gpu in range(gpus)]
    asked = {"rank_list": ranks, "overrides": {"scale_out.nodes": str(nodes)}}
    whole = simulate(cluster, "all_to_all", sizes, reduce=False, **asked)
    monkeypatch.setattr(exchanges, "LEAST_RANKS", 0)
    monkeypatch.setattr(exchanges, "LEAST_UNEVEN", 0)
    found = simulate(cluster, "all_to_all", sizes, **asked)
    for exact, near in zip(whole.rows, found.rows, strict=True):
        assert "nearly alike" in near.path
        assert near.classes < exact.classes
        assert near.time_s == pytest.approx(exact.time_s, rel=close)


def test_what_is_broken_or_small_is_simulated_message_by_message():
    asked = {"overrides": {"scale_out.nodes": "40"}}
    assert "nearly" in simulate("h100_rail", "all_to_all", "1M", **asked).rows[0].path
    assert "nearly" not in simulate("h100_rail", "all_to_all", "1M", fail="nic:node3/5", **asked).rows[0].path
    assert "nearly" not in simulate("h100_rail", "all_to_all", "1M", ranks=256, **asked).rows[0].path


def test_relays_without_a_partner_on_every_rail_are_refused():
    with pytest.raises(InputError, match="the same number of ranks on every node"):
        simulate("h100_rail", "all_to_all", ["1M"], algo="nccl_pxn", nodes=40, ranks=300)


def test_leaves_without_ranks_carry_nothing(monkeypatch):
    overrides = {"scale_out.nodes": "12", "scale_out.oversubscription": "2", "scale_out.radix": "16"}
    asked = {"gpus_per_node": 4, "nodes": 12, "overrides": overrides}
    whole = simulate("h100_rail", "all_to_all", "64M", reduce=False, **asked).rows[0]
    monkeypatch.setattr(exchanges, "LEAST_RANKS", 0)
    found = simulate("h100_rail", "all_to_all", "64M", **asked).rows[0]
    assert "leaf" in whole.bottleneck[0].link
    assert found.time_s == pytest.approx(whole.time_s, rel=1e-5)
    assert found.bottleneck[0].utilisation == pytest.approx(whole.bottleneck[0].utilisation, rel=1e-5)


@pytest.mark.parametrize("topo", ["h100_rail", "hgx_b200"])
def test_one_channel_says_that_ranks_fall_out_of_step(topo):
    """What one waits for hides behind others then: 15 % too long."""
    asked = {"op": "all_to_all", "size": "1G", "nodes": 33, "algo": "nccl_pxn", "channels": 1}
    row, every = (simulate(topo, reduce=reduce, tolerance=0, **asked).rows[0] for reduce in (True, False))
    assert row.path.endswith("nearly alike, reference, to 20%")
    assert row.time_s > every.time_s * 1.05
    assert row.bracket_lo_s < every.time_s < row.bracket_hi_s


@pytest.mark.parametrize("topo", ["mi355x_pollara", "mi325x_thor2"])
def test_gpus_joined_to_each_other_send_as_much_in_both_directions(topo, monkeypatch):
    """Links to later GPUs had seven times the bytes of those to earlier ones, and calls took up to 2.5 % too long."""
    monkeypatch.setattr(exchanges, "LEAST_UNEVEN", 0)
    asked = {"size": "256M", "nodes": 33, "algo": "nccl_pxn"}
    found, every = (simulate(topo, "all_to_all", reduce=reduce, **asked).rows[0] for reduce in (True, False))
    assert "nearly alike" in found.path
    sent, whole = ({tier.tier: tier.sent_bytes for tier in row.tiers}["node"] for row in (found, every))
    assert sent == pytest.approx(whole, rel=1e-6)
    assert found.time_s == pytest.approx(every.time_s, rel=0.005)
