"""What-ifs: links, switches, adapters and GPUs that fail or slow down, with what that should cost and why."""

import networkx
import numpy as np
import pytest

import collsim
from collsim.core.errors import InputError, NoRouteError
from collsim.library import Call, choose, system_of
from collsim.simulation.provenance import is_calibrated
from collsim.topology import load_topology, parse_topology
from collsim.topology.failures.degrade import damaged
from collsim.topology.failures.selectors import name_of, select
from collsim.topology.summary import is_connected

from ..property.depth import deep_but

CLUSTER = """
schema: collsim.topology/1
name: two_by_two
builder: explicit
gpu: {model: H100}
link: {bandwidth: 50 GB/s, latency: 1 us}
nodes:
  - {name: n0.gpu0}
  - {name: n0.gpu1}
  - {name: n1.gpu0}
  - {name: n1.gpu1}
  - {name: n0.nvsw0, kind: switch}
  - {name: n1.nvsw0, kind: switch}
  - {name: n0.nic0, kind: switch}
  - {name: n0.nic1, kind: switch}
  - {name: n1.nic0, kind: switch}
  - {name: n1.nic1, kind: switch}
  - {name: leaf0, kind: switch}
  - {name: leaf1, kind: switch}
  - {name: spine0, kind: switch}
  - {name: spine1, kind: switch}
links:
  - {a: n0.gpu0, b: n0.nvsw0, bandwidth: 450 GB/s}
  - {a: n0.gpu1, b: n0.nvsw0, bandwidth: 450 GB/s}
  - {a: n1.gpu0, b: n1.nvsw0, bandwidth: 450 GB/s}
  - {a: n1.gpu1, b: n1.nvsw0, bandwidth: 450 GB/s}
  - {a: n0.gpu0, b: n0.nic0}
  - {a: n0.gpu1, b: n0.nic1}
  - {a: n1.gpu0, b: n1.nic0}
  - {a: n1.gpu1, b: n1.nic1}
  - {a: n0.nic0, b: leaf0}
  - {a: n1.nic0, b: leaf0}
  - {a: n0.nic1, b: leaf1}
  - {a: n1.nic1, b: leaf1}
  - {a: leaf0, b: spine0, bandwidth: 25 GB/s}
  - {a: leaf0, b: spine1, bandwidth: 25 GB/s}
  - {a: leaf1, b: spine0, bandwidth: 25 GB/s}
  - {a: leaf1, b: spine1, bandwidth: 25 GB/s}
"""
"""Two nodes of two GPUs, adapter i of each node on leaf i, both leaves on both spines, uplinks of half an adapter."""


@pytest.fixture(scope="module")
def cluster():
    return parse_topology(CLUSTER, "two_by_two.yaml")


def slowdown(topo, op, algo, **what):
    """How many times longer a collective takes on bare wires."""
    row = collsim.simulate(topo, op, "56M", algo=algo, profile="ideal", **what).rows[0]
    assert row.lower_bound_s <= row.time_s * (1 + 1e-9)
    return row.slowdown


SWITCHED = {
    # Links of unequal bundles: 5/4/4/5 of 18. All planes that are left are full; what counts is how many links are.
    "a switch of four": ("hgx_h100", {"fail": "switch:nvsw2"}, 18 / 14),
    "a switch of five": ("hgx_h100", {"fail": "switch:nvsw0"}, 18 / 13),
    "one of 18 planes of a rack": ("gb200_nvl72", {"fail": "switch:nvsw2"}, 18 / 17),
    # The cable that is gone is known to whatever spreads the traffic: GPU 0 has 17 links, and so have messages to it.
    "one of five cables": ("hgx_h100", {"fail": "link:gpu0-nvsw0:1"}, 18 / 17),
    # A slow link is not known: 5 of 18 parts still take the bundle at half rate, and the message waits for them.
    "a bundle at half rate": ("hgx_h100", {"degrade": {"link:gpu0-nvsw0": "50%"}}, 2),
    "a cable of five at half rate": ("hgx_h100", {"degrade": ["link:gpu0-nvsw0:1=50%"]}, 5 / 4.5),
    "a switch at half rate": ("hgx_h100", {"degrade": {"switch:nvsw1": "0.5"}}, 2),
    # Seven ranks send 6/7 of the size each, eight 7/8.
    "a GPU": ("hgx_h100", {"fail": "gpu:gpu5"}, (6 / 7) / (7 / 8)),
    # One direction only: GPU 0 sends on 13 links; it still receives on 18, but the others wait for nobody else.
    "one direction of a bundle": ("hgx_h100", {"fail": "link!:gpu0->nvsw3"}, 18 / 13),
    # 8 messages to the other board share 5 switch pairs, 7 on the board all 6: 8/5 + 7/6 instead of 15/6.
    "a link between the boards of a DGX-2": (
        "dgx2_v100",
        {"fail": "link:nvsw0-nvsw6"},
        (8 / 5 + 7 / 6) / (15 / 6),
    ),
}


@pytest.mark.parametrize(("topo", "what", "expected"), SWITCHED.values(), ids=SWITCHED)
def test_all_to_all_behind_switches(topo, what, expected):
    assert slowdown(topo, "all_to_all", "direct", **what) == pytest.approx(expected, rel=1e-6)


def test_a_missing_link_of_a_mesh_is_shared_by_six_relays():
    # GPU 0 reaches GPU 1 in two hops through each of the six others: every link of GPU 0 carries a sixth more.
    assert slowdown("mi300x_ubb8", "all_to_all", "direct", fail="link:gpu0-gpu1") == pytest.approx(7 / 6, rel=1e-6)


def test_a_message_between_the_ends_of_a_missing_link():
    # Alone, the pair gains: six links out of GPU 0 instead of one. Only together with others it costs.
    matrix = np.zeros((8, 8), dtype=np.int64)
    matrix[0, 1] = 2**20
    pair = {"matrix": matrix, "profile": "ideal"}
    healthy = collsim.simulate("mi300x_ubb8", "all_to_all_v", **pair).time_s
    broken = collsim.simulate("mi300x_ubb8", "all_to_all_v", **pair, fail="link:gpu0-gpu1").rows[0]
    assert broken.healthy_time_s == pytest.approx(healthy)
    assert broken.time_s == pytest.approx(healthy / 6, rel=1e-6)


def test_rings_of_a_mesh_avoid_a_missing_link():
    # Six rings both ways use all links but those of the two GPUs that have six: 7/6 of the time.
    assert slowdown("mi300x_ubb8", "all_reduce", "ring", fail="link:gpu0-gpu1") == pytest.approx(7 / 6, rel=1e-4)


def test_rings_of_a_cube_mesh():
    # GPU 0 keeps four of its six links.
    assert slowdown("dgx1_v100", "all_reduce", "ring", fail="link:gpu0-gpu3") == pytest.approx(6 / 4, rel=1e-4)


def test_links_of_an_mi250x_node():
    # GPU 0 has 4 + 2 + 1 links: the only ring through all GPUs that is worth two links needs the pair of two.
    assert slowdown("mi250x_node", "all_reduce", "ring", fail="link:gpu0-gpu6") == pytest.approx(2, rel=1e-4)
    # No ring could use the third link of GPU 0, nor the fourth of a package.
    for spare in ("link:gpu0-gpu2", "link:gpu0-gpu1:1"):
        assert slowdown("mi250x_node", "all_reduce", "ring", fail=spare) == pytest.approx(1, rel=1e-4)


CLUSTERED = {
    # Every GPU sends two messages to the other node through its adapter. Without one, its neighbour relays: four.
    "an adapter": ({"fail": "nic:n0.nic0"}, 2),
    "an adapter by its number": ({"fail": "nic:node0/0"}, 2),
    # Two of four messages of a leaf cross the spines, over two uplinks of half an adapter, both full; then one does.
    "a spine": ({"fail": "spine:0"}, 2),
    "an uplink": ({"fail": "link:leaf0-spine1"}, 2),
    "an adapter at half rate": ({"degrade": {"nic:n1.nic1": "50%"}}, 2),
    # All traffic between the nodes takes the other leaf.
    "a leaf": ({"fail": "leaf:0"}, 2),
}


@pytest.mark.parametrize(("what", "expected"), CLUSTERED.values(), ids=CLUSTERED)
def test_all_to_all_on_a_cluster(cluster, what, expected):
    assert slowdown(cluster, "all_to_all", "direct", **what) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("fail", "named"),
    [
        (["leaf:*"], ("switch leaf0", "switch leaf1", "n0.gpu0, n0.gpu1", "n1.gpu0, n1.gpu1")),
        (["nic:n0.nic0", "link:n0.nic1-leaf1"], ("switch n0.nic0", "link n0.nic1-leaf1")),
    ],
)
def test_two_islands_are_named_with_their_cut(cluster, fail, named):
    with pytest.raises(NoRouteError) as caught:
        collsim.simulate(cluster, "all_reduce", "1M", profile="ideal", fail=fail)
    assert caught.value.exit_code == 3
    assert all(name in str(caught.value) for name in named)
    alone = collsim.simulate(cluster, "all_reduce", "1M", profile="ideal", fail=fail, rank_list=[2, 3]).rows[0]
    assert alone.slowdown == pytest.approx(1)


def test_halves_of_a_mesh():
    with pytest.raises(NoRouteError, match=r"by the loss of link gpu0-gpu4, .* and 12 more"):
        collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="link:gpu[0-3]-gpu[4-7]")


def test_nvls_is_off_without_a_switch():
    result = collsim.simulate("hgx_h100", "all_reduce", "256M", fail="switch:nvsw2")
    row = result.rows[0]
    assert (row.algo, row.healthy_algo) == ("ring", "nvls/Simple")
    assert result.topology["damage"]["effects"] == [
        "NVLS is off: switch nvsw2 is missing",
        "gpu0, gpu1, gpu2, gpu3 and 4 more keep 14 of 18 links into switches",
    ]
    assert row.slowdown > 1.1
    assert row.time_lo_s is None, "no interval: nobody measured a broken machine"
    assert not result.profile["calibrated"]
    assert any("no failure was ever measured" in text for text in result.warnings)


def test_slow_links_and_missing_gpus_leave_nvls_on():
    for what in ({"degrade": {"link:gpu0-nvsw0:1": "50%"}}, {"fail": "gpu:7"}):
        row = collsim.simulate("hgx_h100", "all_reduce", "256M", **what).rows[0]
        assert row.algo == "nvls"
        assert row.slowdown > 1


def test_fewer_links_make_fewer_channels():
    call = Call("all_reduce", 8, 2**28)
    healthy = load_topology("hgx_h100")
    before = choose(call, system_of(healthy, nvls=False), "nccl-2.28")
    after = choose(call, system_of(damaged(healthy, "switch:nvsw0")), "nccl-2.28")
    reserved = [choice.search_channels * choice.channel_GBps for choice in (before, after)]
    assert reserved[1] <= 13 * 20.6 < reserved[0]


def test_rccl_without_its_template():
    healthy = load_topology("mi300x_ubb8")
    small = Call("all_reduce", 8, 2**20)
    before, after = (
        choose(small, system_of(topology), "rccl-2.22") for topology in (healthy, damaged(healthy, "link:gpu2-gpu7"))
    )
    assert before.library_algo == "MSCCL"
    assert after.library_algo in ("RING", "TREE")
    large = choose(Call("all_reduce", 8, 2**28), system_of(healthy), "rccl-2.22")
    assert (large.communicator_channels, after.communicator_channels) == (56, 4 * 6)
    effects = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="link:gpu2-gpu7").topology["damage"]["effects"]
    assert any("template" in effect for effect in effects)
    # Four GPUs that have all their links are a smaller mesh of their own.
    whole = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="link:gpu2-gpu7", rank_list=[0, 1, 3, 4])
    assert not any("template" in effect for effect in whole.topology["damage"]["effects"])
    assert whole.rows[0].slowdown == pytest.approx(1)


def test_a_cube_mesh_without_any_ring_cannot_run():
    with pytest.raises(InputError, match="no ring of NVLinks"):
        collsim.simulate("dgx1_v100", "all_reduce", "1G", fail="link:gpu0-gpu[123]")


def test_damage_of_the_wiring():
    healthy = load_topology("hgx_h100")
    broken = damaged(healthy, ["gpu:gpu5", "link:gpu0-nvsw1:3"], {"switch:nvsw3": "25%"})
    wiring = broken.wiring
    assert wiring.node_names == (*(f"gpu{i}" for i in (0, 1, 2, 3, 4, 6, 7)), "nvsw0", "nvsw1", "nvsw2", "nvsw3")
    assert (broken.n_gpus, wiring.n_links, wiring.coordinates.kind) == (7, 56, "irregular")
    assert wiring.coordinates.local.tolist() == [0, 1, 2, 3, 4, 6, 7]
    figures = {wiring.link_name(i): (wiring.link_count[i], wiring.link_bandwidth_Bps[i]) for i in range(56)}
    rate = healthy.fact("link.bandwidth").value
    assert figures["gpu0->nvsw1"] == figures["nvsw1->gpu0"] == (1, rate)
    assert figures["gpu6->nvsw3"] == (5, rate * 5 * 0.25)
    assert figures["gpu6->nvsw0"] == (5, rate * 5)
    assert not wiring.link_count.flags.writeable
    assert broken.sha256 != healthy.sha256
    assert broken.fact("fail[1]").text == "link:gpu0-nvsw1:3"
    assert not is_calibrated(broken, collsim.library.load_profile("hgx_h100"))
    assert healthy.wiring.n_links == 64, "the healthy topology is left as it is"


def test_regular_remains_regular():
    kinds = {
        ("hgx_h100", "switch:nvsw0"): "switched",
        ("hgx_h100", "gpu:gpu0"): "switched",
        ("mi300x_ubb8", "gpu:gpu0"): "mesh",
        ("mi300x_ubb8", "link:gpu0-gpu1"): "irregular",
    }
    for (topo, what), kind in kinds.items():
        assert damaged(load_topology(topo), what).wiring.coordinates.kind == kind, what


def test_damage_on_damage_is_that_of_both():
    once = damaged(load_topology("hgx_h100"), ["switch:nvsw0", "gpu:gpu1"])
    twice = damaged(damaged(load_topology("hgx_h100"), "switch:nvsw0"), "gpu:gpu1")
    assert once.sha256 == twice.sha256
    assert once.damage.healthy.n_gpus == twice.damage.healthy.n_gpus == 8


@pytest.mark.parametrize("topo", deep_but(["mi250x_node"], ["dgx1_v100", "mi250x_node", "mi300x_ubb8", "hgx_h100"]))
def test_no_bound_falls_with_any_one_link(topo):
    healthy = load_topology(topo)
    names = healthy.wiring.node_names
    ends = list(zip(healthy.wiring.link_src[:6].tolist(), healthy.wiring.link_dst[:6].tolist(), strict=True))
    for op, algo in (("all_to_all", "direct"), ("all_reduce", "ring"), ("all_gather", "ring")):
        before = collsim.simulate(topo, op, "8M", algo=algo, profile="ideal").rows[0].lower_bound_s
        for a, b in ends:
            what = f"link:{names[a]}-{names[b]}"
            for change in ({"fail": what}, {"degrade": {what: "50%"}}):
                row = collsim.simulate(topo, op, "8M", algo=algo, profile="ideal", **change).rows[0]
                assert row.lower_bound_s >= before * (1 - 1e-6), (op, change)
                assert row.time_s >= row.lower_bound_s * (1 - 1e-9), (op, change)


def test_nothing_failed():
    topology = load_topology("hgx_h100")
    assert damaged(topology) is topology
    row = collsim.simulate(topology, "all_to_all", "1M", fail=[], degrade={}).rows[0]
    assert (row.healthy_time_s, row.slowdown) == (None, None)


def test_ranks_are_numbered_as_on_the_machine():
    result = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="gpu:gpu1", rank_list=[0, 2, 7], algo="ring")
    assert result.config["rank_lists"] == [[0, 2, 7]]
    assert result.rows[0].bottleneck[0].link.startswith(("gpu0->", "gpu2->", "gpu7->"))
    counted = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="gpu:gpu1", ranks=[2, 7], algo="ring")
    assert counted.config["rank_lists"] == [[0, 2], [0, 2, 3, 4, 5, 6, 7]]
    assert [row.ranks for row in counted] == [2, 7]
    for ranks, text in (({"rank_list": [0, 1]}, "GPU 1 is among what failed"), ({"ranks": 8}, "8 ranks on 7 GPUs")):
        with pytest.raises(InputError, match=text):
            collsim.simulate("mi300x_ubb8", "all_reduce", "1M", fail="gpu:gpu1", **ranks)


def test_rows_of_all_algorithms_stand_beside_their_own():
    result = collsim.simulate("hgx_h100", "all_reduce", "1M", fail="switch:nvsw0", algo="all", profile="ideal")
    assert {row.algo for row in result} >= {"ring", "tree"}
    assert "nvls" not in {row.algo for row in result}
    for row in result:
        assert row.healthy_algo == row.algo
        alone = collsim.simulate("hgx_h100", "all_reduce", "1M", algo=row.algo, profile="ideal").time_s
        assert row.healthy_time_s == pytest.approx(alone)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu5", ("is not KIND:NAME", "write gpu:gpu5")),
        ("nvsw2", ("write switch:nvsw2",)),
        ("swich:nvsw2", ("write switch:nvsw2",)),
        ("links:a-b", ('did you mean "link:a-b"',)),
        ("switch:nvsw9", ('there is no switch "nvsw9"', "there are nvsw0, nvsw1")),
        ("switch:gpu0", ("there is no switch",)),
        ("nic:node0/0", ("no nic at all",)),
        ("gpu:node3/5", ('there is no gpu "node3/5"',)),
        ("link:gpu0", ("does not name two ends",)),
        ("link:gpu0-gpu1", ("no link joins", "lead to nvsw0, nvsw1, nvsw2, nvsw3")),
        ("link:gpu0-nvsw7", ('"nvsw7" is no end of a link',)),
        ("link:gpu0-nvsw0:6", ("6 cables of a bundle of 5", "1 to 5")),
        ("link:gpu0-nvsw0:0", ("0 cables",)),
        ("link!:gpu0-nvsw0", ("which direction", "link!:gpu0->gpu1")),
        ("", ("is not KIND:NAME",)),
        ("gpu:", ("is not KIND:NAME", "the name after the colon is missing: gpu:gpu0")),
        (" switch: ", ("the name after the colon is missing: switch:nvsw0",)),
        ("link:", ("the name after the colon is missing: link:gpu0-nvsw0",)),
        ("link!:", ("the name after the colon is missing: link!:gpu0->nvsw0",)),
        ("nic:", ("the name after the colon is missing: this topology has no nic at all",)),
        ("gpu:6-9", ('there is no gpu "8" of "6-9"', "gpu7")),
        ("gpu:5-4", ('"5-4" in "5-4" runs backwards', "write 4-5")),
        ("gpu:0-99999", ('"0-99999" in "0-99999" is too long', "at most 4,096 numbers")),
        ("gpu:gpu[10-12]", ('"[10-12]" in "gpu:gpu[10-12]" names no numbers', "a range, gpu:10-12")),
        ("link:gpu[8-11]-nvsw0", ('"[8-11]"', "brackets stand for one character")),
    ],
)
def test_bad_names(text, words):
    with pytest.raises(InputError) as caught:
        damaged(load_topology("hgx_h100"), [text])
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:node0/4-6", ["n0.gpu4", "n0.gpu5", "n0.gpu6"]),
        ("gpu:node0/gpu[46]", ["n0.gpu4", "n0.gpu6"]),
        ("nic:node*/6-7", ["n0.nic6", "n0.nic7", "n1.nic6", "n1.nic7", "n2.nic6", "n2.nic7"]),
        ("nic:node1-2/0", ["n1.nic0", "n2.nic0"]),
        ("gpu:node0-1/2-3", ["n0.gpu2", "n0.gpu3", "n1.gpu2", "n1.gpu3"]),
        ("gpu:n0.gpu2-3", ["n0.gpu2", "n0.gpu3"]),
        ("leaf:0-1", ["leaf0", "leaf1"]),
        ("leaf:[!2-7]", ["leaf0", "leaf1"]),
    ],
)
def test_names_of_several(text, expected):
    topology = load_topology("hgx_h100", scale_out={"nodes": 3, "radix": 16, "fabric": "rail"})
    found = select(topology.wiring, text, "fail")
    assert [topology.wiring.node_names[node] for node in found.nodes] == expected


def test_what_has_failed_runs_no_slower():
    topology = load_topology("hgx_h100")
    with pytest.raises(InputError, match='"link:gpu0-nvsw1" has failed') as caught:
        damaged(topology, ["switch:nvsw1"], {"link:gpu0-nvsw1": "50%", "link:gpu2-nvsw1": "20%", "gpu:3": "50%"})
    assert len(caught.value.faults) == 2  # of the third some links are left
    assert damaged(topology, ["link:gpu0-nvsw1:1"], {"link:gpu0-nvsw1": "50%"}).damage is not None


@pytest.mark.parametrize("share", ["0%", "101%", "-5%", "half", "", "nan", "1e9%"])
def test_bad_shares(share):
    with pytest.raises(InputError, match=r"is no part of a rate|is not a percentage"):
        damaged(load_topology("hgx_h100"), None, {"link:gpu0-nvsw0": share})


@pytest.mark.parametrize(
    ("topo", "name", "over"),
    [
        ("hgx_h100", "gpu:gpu0", {}),
        ("mi300x_ubb8", "link:gpu0-gpu1", {}),
        ("h100_rail", "nic:node0/0", {"nodes": 2}),
    ],
)
def test_next_to_nothing_of_a_rate_is_a_failure(topo, name, over):
    for share in ("1e-30%", "1e-16%", "0.00009%", "9e-7"):
        with pytest.raises(InputError, match=r"is less than 0.0001%") as caught:
            collsim.simulate(topo, "all_reduce", "1M", degrade={name: share}, **over)
        assert f'fail="{name}": nothing waits' in caught.value.faults[0].hint
    least = collsim.simulate(topo, "all_reduce", ["8", "1G"], degrade={name: "0.0001%"}, **over)
    assert all(row.lower_bound_s <= row.time_s for row in least)


@pytest.mark.parametrize("what", [{"fail": 5}, {"fail": [None]}, {"degrade": 0.5}, {"fail": {"gpu5": 1}}])
def test_what_is_no_name(what):
    with pytest.raises(InputError):
        damaged(load_topology("hgx_h100"), **what)


def test_all_faults_at_once():
    with pytest.raises(InputError) as caught:
        damaged(load_topology("hgx_h100"), ["gpu5", "switch:x"], ["link:gpu0-nvsw0=200%", "nonsense", "switch:y=50%"])
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("fail", ["gpu:*", "switch:*", ["gpu:gpu[0-6]"]])
def test_everything_failed(fail):
    with pytest.raises(InputError, match="is left with"):
        damaged(load_topology("hgx_h100"), fail)


def test_names_with_hyphens_and_globs():
    text = CLUSTER.replace("leaf0", '"leaf-0"').replace("leaf1", '"leaf-1"')
    wiring = parse_topology(text, "hyphens.yaml").wiring
    found = select(wiring, "link:leaf-0-spine1", "")
    assert sorted(name_of(wiring, link) for link in found.links) == ["leaf-0->spine1", "spine1->leaf-0"]
    one_way = select(wiring, "link!:leaf-*->spine?", "")
    assert {name_of(wiring, link) for link in one_way.links} == {
        f"leaf-{leaf}->spine{spine}" for leaf in (0, 1) for spine in (0, 1)
    }
    assert len(select(wiring, "nic:node*/1", "").nodes) == 2


HALVES = {
    "nic:node*/4-": "4-5",
    "nic:node*/-4": "0-4",
    "nic:node2-/0": "2-3",
    "nic:node-2/0": "0-2",
    "gpu:7-": "7-8",
    "leaf:-1": "0-1",
}


@pytest.mark.parametrize("name", HALVES)
def test_half_a_range_is_told_as_one_with_the_whole_range(name):
    topology = load_topology("hgx_h100", scale_out={"nodes": 4})
    for asked in ({"fail": [name]}, {"degrade": {name: "50%"}}):
        with pytest.raises(InputError, match="half a range") as caught:
            damaged(topology, **asked)
        assert HALVES[name] in caught.value.faults[0].hint


@pytest.mark.parametrize("name", ["gpu:3-5", "nic:node*/4-7", "switch:nvsw0", "link:gpu0-nvsw1:2"])
def test_an_example_of_a_share_is_of_what_was_typed(name):
    for entry in (name, f"{name}=", f"{name}=half"):
        with pytest.raises(InputError) as caught:
            damaged(load_topology("hgx_h100"), degrade=[entry])
        assert f'"{name}=50%"' in caught.value.faults[0].hint


@pytest.mark.parametrize("name", ["hgx_h100", "mi300x_ubb8", "dgx1_v100"])
@pytest.mark.parametrize("fail", ["link!:gpu0->*", "link!:*->gpu0", "link!:gpu3->*", "link:gpu0-*", "link!:gpu0->*1"])
def test_connected_is_what_networkx_says(name, fail):
    """Links lost one way only leave a GPU that is reached and reaches nobody, or the other way round."""
    wiring = damaged(load_topology(name), [fail], {}).wiring
    graph = networkx.DiGraph(zip(wiring.link_src.tolist(), wiring.link_dst.tolist(), strict=True))
    graph.add_nodes_from(range(wiring.n_gpus))
    parts = [part & {*range(wiring.n_gpus)} for part in networkx.strongly_connected_components(graph)]
    assert is_connected(wiring) == ({*range(wiring.n_gpus)} in parts)
