"""One group stands for all that are alike and share no link: every figure as with all of them simulated."""

import pytest

from collsim import simulate
from collsim.report.table import as_table
from collsim.simulation import parties

TIMES = ("time_s", "lower_bound_s", "busbw_Bps", "total_busbw_Bps", "bottleneck_links", "groups")


def both(topo, op, **asked):
    """Simulate with a group for each class, and with every group."""
    found = simulate(topo, op, ["1M", "64M"], **asked)
    return list(zip(found, simulate(topo, op, ["1M", "64M"], reduce=False, **asked), strict=True))


@pytest.mark.parametrize(
    ("topo", "op", "asked"),
    [
        ("h100_rail", "all_reduce", {"nodes": 5, "split": "DIV 8"}),
        ("h100_rail", "all_to_all", {"nodes": 6, "split": "DIV 16"}),
        ("h100_rail", "all_gather", {"nodes": 4, "groups": "tp=4,dp=8", "over": "tp"}),
        ("h100_rail", "all_reduce", {"nodes": 6, "split": "DIV 14", "gpus_per_node": 7}),
        ("mi325x_thor2", "all_reduce", {"nodes": 4, "split": "DIV 8"}),
        ("polaris", "broadcast", {"nodes": 6, "split": "DIV 8"}),
        ("h100_rail", "all_reduce", {"nodes": 6, "split": "MOD 8"}),  # the rails, over leaves of their own
        (
            "h100_rail",
            "all_to_all",
            {"nodes": 12, "split": "MOD 8", "overrides": ["scale_out.radix=16"]},
        ),  # and over spines
        (
            "h100_rail",
            "all_gather",
            {"nodes": 12, "groups": "tp=8,dp=12", "over": "dp", "overrides": ["scale_out.radix=16"]},
        ),
        ("mi325x_thor2", "broadcast", {"nodes": 5, "split": "MOD 8"}),
    ],
)
def test_one_group_stands_for_those_alike(topo, op, asked):
    for row, whole in both(topo, op, **asked):
        assert "groups alike" in row.path
        assert row.classes < whole.classes
        for name in TIMES:
            assert getattr(row, name) == pytest.approx(getattr(whole, name), rel=1e-9)
        for one, other in zip(row.group_times, whole.group_times, strict=True):
            assert (one.gpus, one.algo, one.proto) == (other.gpus, other.algo, other.proto)
            assert one.time_s == pytest.approx(other.time_s, rel=1e-9)
        for tier, other in zip(row.tiers, whole.tiers, strict=True):
            assert (tier.tier, tier.total_bytes) == (other.tier, pytest.approx(other.total_bytes, rel=1e-9))


@pytest.mark.parametrize(
    "asked",
    [
        {"split": "MOD 8", "fail": "nic:node1/2"},
        {"split": "MOD 4"},
        {"split": "DIV 8", "load": "link:n1.gpu0->n1.nvsw0=30%"},
        {"split": "DIV 8", "fail": "link:n1.gpu0-n1.nvsw0"},
        {"groups": [[0, 1, 2, 3], [8, 9, 10, 12]]},
        {"groups": [[0, 1, 8, 9], [2, 3, 10, 11]]},
    ],
)
def test_groups_that_differ_or_may_differ_are_each_simulated(asked):
    for row, whole in both("h100_rail", "all_reduce", nodes=4, **asked):
        assert "groups alike" not in row.path
        assert [each.time_s for each in row.group_times] == pytest.approx(
            [each.time_s for each in whole.group_times], rel=1e-9
        )


def test_groups_over_spines_and_racks_of_their_own_are_told_apart():
    asked = {"nodes": 8, "racks": 2, "fabric": "fat_tree"}
    within = both("h100_rail", "all_reduce", split="DIV 16", **asked)
    assert all("groups alike" in row.path for row, _ in within)
    across = {"groups": ";".join(f"{a},{a + 32}" for a in range(0, 32, 8)), **asked}
    for row, whole in both("h100_rail", "all_reduce", **across):
        assert "groups alike" not in row.path
        assert row.time_s == pytest.approx(whole.time_s, rel=1e-9)


def test_many_groups_are_prepared_once(monkeypatch):
    prepared = []
    plain = parties.prepare_groups
    monkeypatch.setattr(parties, "prepare_groups", lambda *a, **k: prepared.append(plain(*a, **k)) or prepared[-1])
    result = simulate("h100_rail", "all_reduce", "1M", nodes=64, split="DIV 8")
    assert (len(prepared[0].runs), prepared[0].n_groups, result.rows[0].groups) == (1, 64, 64)
    assert "one group was simulated for all that are alike" in as_table(result)
