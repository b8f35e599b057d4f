"""Models with experts: who takes which expert, where experts are, what that sends where, and how long it takes."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from collsim.core.errors import InputError
from collsim.moe import Model, load_model, model_names, simulate_moe
from collsim.moe.counts import Members, _reached, counted, expected, pooled
from collsim.moe.expert_placement import placed
from collsim.moe.flows import MODES, Flows, byte_matrix, copies_of, flows_of, logical_bytes, message_bytes
from collsim.moe.gating import distinct_groups, popularity_of, read_counts, sampled
from collsim.moe.timing import _tails
from collsim.topology import load_topology

V3 = load_model("deepseek-v3", groups=1)
LIMITED = load_model("deepseek-v3")


def on_nodes(n, nodes):
    return Members.of(np.arange(n) // (n // nodes))


def even(model, n, nodes, tokens=4096, redundant=0, placement="contiguous"):
    place = placed(np.full(model.experts, 1.0), n, placement, redundant=redundant)
    return expected(model, place, on_nodes(n, nodes), np.full(n, tokens))


def drawn(model, n, nodes, *, seed=0, tokens=512, redundant=0, **law):
    popularity = popularity_of(model, **law)
    place = placed(popularity.weight, n, redundant=redundant)
    rng = np.random.default_rng(seed)
    return counted(model, popularity, place, on_nodes(n, nodes), tokens=np.full(n, tokens), rng=rng)


# --- Models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_presets_have_a_source_and_fit_together(name):
    model = load_model(name)
    assert model.kind == "datasheet"
    assert model.source
    assert model.top_k <= model.experts


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"top_k": 300}, "each token takes 300 experts, but there are 256"),
        ({"groups": 7}, "256 experts do not make 7 equal groups"),
        ({"group_limit": 1, "groups": 64}, "1 groups have 4 experts, too few for the 8 of each token"),
        ({"hidden": 0}, "0 is less than 1"),
        ({"dispatch": "fp4"}, '"fp4" is no data type of tokens'),
    ],
)
def test_figures_that_do_not_fit_are_refused(figures, words):
    with pytest.raises(InputError, match=words):
        load_model("deepseek-v3", **figures)


def test_all_faults_of_a_model_come_at_once():
    with pytest.raises(InputError) as caught:
        load_model(None, top_k=0, hidden=-1, groups=2, combine="x")
    assert {fault.where for fault in caught.value.faults} == {"experts", "hidden", "combine", "top_k"}
    with pytest.raises(InputError) as caught:
        load_model(None, experts=4, top_k=8, hidden=-1, combine="x")
    assert {fault.where for fault in caught.value.faults} == {"hidden", "combine", "top_k"}


# --- Routing ----------------------------------------------------------------------------------------------------------


def test_distinct_destinations_of_eight_among_256():
    table = {2: 1.993, 4: 3.614, 8: 5.295, 16: 6.523, 32: 7.267, 64: 7.676, 128: 7.890, 256: 8}
    assert {groups: round(distinct_groups(256, 8, groups), 3) for groups in table} == table


def test_draws_follow_the_law_of_successive_sampling():
    weight = np.array([0.5, 0.3, 0.15, 0.05])
    popularity = popularity_of(Model("m", 4, 2, 8), counts=[50, 30, 15, 5])
    assert popularity.weight == pytest.approx(weight)
    n = 200_000
    taken = sampled(Model("m", 4, 2, 8), popularity, n, np.random.default_rng(5))
    for a, b in itertools.permutations(range(4), 2):
        share = weight[a] * weight[b] / (1 - weight[a])
        found = np.mean((taken[:, 0] == a) & (taken[:, 1] == b))
        assert abs(found - share) < 4 * np.sqrt(share * (1 - share) / n)


@pytest.mark.parametrize("skew", [0, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("groups", [1, 8])
def test_tokens_take_different_experts_of_few_groups(skew, groups):
    model = Model("m", 64, 8, 16, groups=groups, group_limit=2)
    taken = np.sort(sampled(model, popularity_of(model, skew=skew), 3000, np.random.default_rng(1)), axis=1)
    assert (taken[:, 1:] > taken[:, :-1]).all()
    assert taken.min() >= 0
    assert taken.max() < 64
    if groups > 1:
        assert max(len(set(row // 8)) for row in taken) <= 2


def test_given_choices_are_drawn_from():
    model = Model("m", 6, 2, 8)
    choices = np.array([[0, 1], [4, 2]])
    taken = sampled(model, popularity_of(model, counts=choices), 100, np.random.default_rng(0))
    assert set(map(tuple, taken.tolist())) == {(0, 1), (4, 2)}


def test_a_model_of_no_weight_is_never_taken():
    model = Model("m", 6, 2, 8)
    taken = sampled(model, popularity_of(model, counts=[0, 5, 0, 1, 1, 0]), 5000, np.random.default_rng(0))
    assert set(taken.ravel().tolist()) == {1, 3, 4}


@pytest.mark.parametrize(
    ("law", "words"),
    [
        ({"skew": -1}, "-1 is not between 0 and 10"),
        ({"skew": 1, "sigma": 1}, "skew and sigma are given together"),
        ({"counts": [1, 2, 3]}, r"the shape is \(3,\)"),
        ({"counts": [[1, 1]]}, "token 0 takes an expert twice"),
        ({"counts": [[1, 9]]}, "there is no expert 9"),
        ({"counts": [1, 0, 0, -1, 0, 0]}, "expert 3 got -1 tokens"),
        ({"counts": [1, 0, 0, 0, 0, 0]}, "there are only 1 experts with tokens"),
        ({"counts": [1.5] * 6}, "entries are float64, not whole numbers"),
    ],
)
def test_laws_that_are_none_are_refused(law, words):
    with pytest.raises(InputError, match=words):
        popularity_of(Model("m", 6, 2, 8), **law)


def test_counts_are_read_from_files(tmp_path):
    column, table = tmp_path / "counts.txt", tmp_path / "choices.csv"
    column.write_text("# tokens\n3\n4\n5\n")
    table.write_text("0,1\n2,3\n")
    assert read_counts(column).tolist() == [3, 4, 5]
    assert read_counts(table).tolist() == [[0, 1], [2, 3]]
    table.write_text("0,1\n2,x\n")
    with pytest.raises(InputError, match='line 2: "x" is not a whole number'):
        read_counts(table)


# --- Placement --------------------------------------------------------------------------------------------------------


def test_placements_by_hand():
    assert placed(np.ones(4), 2).rank.tolist() == [0, 0, 1, 1]
    assert placed(np.ones(4), 2, "round_robin").rank.tolist() == [0, 1, 0, 1]
    place = placed(np.array([5.0, 1.0, 1.0, 1.0]), 3, "balanced", redundant=2)
    assert place.n_copies.tolist() == [3, 1, 1, 1]
    assert sorted(place.rank[:3].tolist()) == [0, 1, 2]


def test_copies_of_one_expert_take_tokens_in_turn():
    place = placed(np.ones(2), 4, redundant=2)
    assert place.ranks_of(np.zeros((4, 1), dtype=int)).ravel().tolist() == [0, 2, 0, 2]


def test_copies_and_balance_lower_the_heaviest_rank():
    weight = popularity_of(V3, skew=1.0).weight
    heaviest = []
    for placement, redundant in (("contiguous", 0), ("balanced", 0), ("balanced", 64)):
        place = placed(weight, 64, placement, redundant=redundant)
        load = np.bincount(place.rank, (weight / place.n_copies)[place.expert], 64)
        heaviest.append(load.max() * 64)
    assert heaviest == sorted(heaviest, reverse=True)
    assert heaviest[2] < 1.1 < 5 < heaviest[0]


def test_experts_that_do_not_divide_need_a_placement_or_copies():
    with pytest.raises(InputError, match="256 experts do not spread evenly over 24 ranks") as caught:
        placed(np.ones(256), 24)
    assert "--redundant 8" in caught.value.faults[0].hint
    assert np.bincount(placed(np.ones(256), 24, "round_robin").rank).tolist() == [11] * 16 + [10] * 8
    assert len(placed(np.ones(256), 24, redundant=8).rank) == 264


# --- Counts and bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "nodes"), [(8, 1), (16, 2), (64, 8), (128, 16)])
def test_bytes_of_even_routing_are_those_of_the_closed_forms(n, nodes):
    counts, tokens = even(V3, n, nodes), 4096
    of_nodes, of_ranks = distinct_groups(256, 8, nodes), distinct_groups(256, 8, n)
    for op, token, over in (("dispatch", 7392, 7472), ("combine", 14336, 14336)):
        hops = flows_of(counts, V3, op, "normal")
        hops = hops if op == "dispatch" else hops[::-1]
        inside = n * tokens * of_ranks * (1 - nodes / n) * token
        assert hops[-1].size_bytes.sum() == pytest.approx(inside, rel=1e-9)
        if nodes > 1:
            across = n * tokens * of_nodes * (1 - 1 / nodes) * over
            assert hops[0].size_bytes.sum() == pytest.approx(across, rel=1e-9)
        (messages,) = flows_of(counts, V3, op, "low_latency")
        each = {"dispatch": 7408, "combine": 14336}[op]
        assert messages.size_bytes.sum() == pytest.approx(n * tokens * 8 * (1 - 1 / n) * each, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "n", "nodes", "redundant"),
    [(V3, 16, 2, 0), (V3, 64, 8, 0), (LIMITED, 8, 1, 0), (LIMITED, 16, 4, 0), (LIMITED, 64, 8, 0),
     (LIMITED, 128, 16, 0), (V3, 128, 16, 256), (load_model("mixtral-8x7b"), 8, 2, 0),
     (load_model("llama-4-maverick"), 16, 2, 0)],
)  # fmt: skip
def test_samples_agree_with_what_is_expected(model, n, nodes, redundant):
    known = even(model, n, nodes, 512, redundant)
    samples = [drawn(model, n, nodes, seed=seed, redundant=redundant) for seed in range(6)]
    for name in ("pairs", "to_rank", "to_node"):
        totals = np.array([getattr(sample, name).sum() for sample in samples])
        spread = max(totals.std(ddof=1), 1e-9 * totals.mean()) / np.sqrt(len(totals))
        assert abs(totals.mean() - getattr(known, name).sum()) <= 3 * spread + 1e-9 * totals.mean()
        hits = sum(getattr(sample, name) for sample in samples)
        want = 6 * getattr(known, name)
        assert np.abs(hits - want).max() <= 6 * np.sqrt(want.max()) + 1e-6


def test_what_a_pool_tells_is_near_the_law():
    law = popularity_of(V3, skew=1.0)
    place = placed(law.weight, 64)
    members, tokens = on_nodes(64, 8), np.full(64, 512)
    found = pooled(V3, law, place, members, tokens=tokens, rng=np.random.default_rng(0))
    samples = [counted(V3, law, place, members, tokens=tokens, rng=np.random.default_rng(seed)) for seed in range(4)]
    for name in ("pairs", "to_rank", "to_node"):
        received = np.mean([getattr(sample, name).sum(axis=0) for sample in samples], axis=0)
        assert getattr(found, name).sum(axis=0) == pytest.approx(received, rel=0.05)


def test_counts_are_those_of_a_loop_over_tokens():
    model = Model("m", 12, 3, 8)
    law = popularity_of(model, skew=0.7)
    place, members = placed(law.weight, 6, redundant=6), Members.of(np.array([7, 7, 7, 2, 2, 2]))
    tokens = np.array([5, 0, 9, 3, 2, 4])
    found = counted(model, law, place, members, tokens=tokens, rng=np.random.default_rng(3))
    ranks = place.ranks_of(sampled(model, law, int(tokens.sum()), np.random.default_rng(3)))
    pairs, to_rank, to_node = np.zeros((6, 6)), np.zeros((6, 6)), np.zeros((6, 2))
    for source, row in zip(np.repeat(np.arange(6), tokens), ranks.tolist(), strict=True):
        for rank in row:
            pairs[source, rank] += 1
        for rank in set(row):
            to_rank[source, rank] += 1
        for node in {rank // 3 for rank in row}:
            to_node[source, node] += 1
    assert (found.pairs == pairs).all()
    assert (found.to_rank == to_rank).all()
    assert (found.to_node == to_node).all()


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16])
def test_parts_that_a_token_reaches_by_enumeration(parts):
    """A token of 16 experts in 8 groups takes any 2 of the 8 in 4 open groups, all 70 * 28 choices alike."""
    model = Model("m", 16, 2, 8, groups=8, group_limit=4)
    taken = [
        pair
        for groups in itertools.combinations(range(8), 4)
        for pair in itertools.combinations([expert for group in groups for expert in (2 * group, 2 * group + 1)], 2)
    ]
    assert len(taken) == 70 * 28
    reached = [len({expert * parts // 16 for expert in pair}) for pair in taken]
    assert _reached(model, parts) == pytest.approx(np.mean(reached), rel=1e-12)


def test_relays_hand_on_all_that_comes_for_their_node():
    counts = drawn(V3, 32, 4, skew=1.0)
    src, dst, tokens = counts.relayed()
    assert (counts.members.node[src] == counts.members.node[dst]).all()
    assert np.bincount(dst, tokens, 32) == pytest.approx(counts.to_rank.sum(axis=0))


@pytest.mark.parametrize("mode", MODES)
def test_combine_is_dispatch_the_other_way_with_its_own_data_type(mode):
    counts = drawn(V3, 16, 2, skew=1.0)
    there, back = (byte_matrix(counts, V3, op, mode) for op in ("dispatch", "combine"))
    payload = [message_bytes(V3, op, mode, over_network=False) for op in ("dispatch", "combine")]
    assert (there.T * payload[1] == back * payload[0]).all()
    out, home = (flows_of(counts, V3, op, mode) for op in ("dispatch", "combine"))
    for one, other in zip(out, reversed(home), strict=True):
        assert (one.src == other.dst).all()
        assert (one.dst == other.src).all()
        assert (one.messages == other.messages).all()


def test_messages_by_the_rail_of_their_target_cross_the_network_once_and_on_it():
    counts = drawn(V3, 16, 2, skew=1.0)
    (direct,), (inside, sent) = (flows_of(counts, V3, "dispatch", "low_latency", way) for way in ("direct", "rail"))
    away = counts.members.node[direct.src] != counts.members.node[direct.dst]
    assert sent.messages.sum() == pytest.approx(direct.messages[away].sum())
    assert (sent.src % 8 == sent.dst % 8).all()
    assert (counts.members.node[inside.src] == counts.members.node[inside.dst]).all()
    arriving = np.bincount(sent.dst, sent.messages, 16) + np.bincount(inside.dst, inside.messages, 16)
    passed = np.bincount(inside.dst, inside.messages, 16).sum() - direct.messages[~away].sum()
    assert arriving.sum() - passed == pytest.approx(direct.messages.sum())


def test_copies_by_the_rail_of_their_target_are_those_of_both_hops():
    """Who passes messages on takes them in and hands them out once more: the ranks differ, as experts are not alike."""
    counts = drawn(V3, 16, 2, skew=1.0)
    inside, sent = flows_of(counts, V3, "dispatch", "low_latency", "rail")
    kept = np.diag(counts.pairs)
    from_here = np.bincount(inside.src, inside.messages, 16) + np.bincount(sent.src, sent.messages, 16) + kept
    to_here = np.bincount(inside.dst, inside.messages, 16) + np.bincount(sent.dst, sent.messages, 16) + kept
    handed, taken = copies_of(counts, "low_latency", "rail")
    assert handed == pytest.approx(from_here)
    assert taken == pytest.approx(to_here)
    direct = copies_of(counts, "low_latency")
    assert handed - direct[0] == pytest.approx(taken - direct[1])
    assert np.ptp(handed - direct[0]) > 0


@pytest.mark.parametrize(("mode", "kernel"), [("normal", "auto"), ("low_latency", "mori")])
def test_what_goes_by_rails_anyway_is_not_forwarded(mode, kernel):
    with pytest.raises(InputError, match="have a way of their own"):
        simulate_moe("hgx_h100", ep=8, mode=mode, kernel=kernel, forward="rail")


def test_nodes_of_unequal_size_have_relays():
    members = Members.of(np.array([0, 0, 0, 0, 1, 1]))
    assert members.relay.tolist() == [[0, 4], [1, 5], [2, 4], [3, 5], [0, 4], [1, 5]]


def test_logical_bytes_count_what_stays():
    counts = even(V3, 16, 2)
    nodes = distinct_groups(256, 8, 2)
    assert logical_bytes(counts, V3, "dispatch", "normal")[0] == pytest.approx(4096 * nodes * 7392, rel=1e-9)
    assert logical_bytes(counts, V3, "dispatch", "low_latency")[0] == pytest.approx(4096 * 8 * 7408, rel=1e-9)


# --- Time -------------------------------------------------------------------------------------------------------------


def test_no_time_is_below_what_links_and_kernels_need():
    for law in ({}, {"skew": 1.0}, {"sigma": 1.0}):
        for mode in ("normal", "low_latency"):
            result = simulate_moe("hgx_h100", ep=16, tokens=256, mode=mode, overrides=["scale_out.nodes=2"], **law)
            for row in result.rows:
                assert row.lower_bound_s < row.load_s <= row.time_s * (1 + 1e-9)
                assert len(row.times_s) == (1 if not law else 5)


def test_skew_costs_and_copies_win_back():
    def total(**more):
        return simulate_moe("hgx_h100", ep=64, overrides=["scale_out.nodes=8"], tokens=1024, seeds=[0], **more).time_s

    even_s, skewed_s = total(), total(skew=1.0)
    mended_s = total(skew=1.0, expert_placement="balanced", redundant=64)
    assert even_s < mended_s < skewed_s


def test_what_a_node_sends_itself_needs_no_network():
    (first, *_) = simulate_moe("gb200_nvl72", ep=64).rows
    assert (first.nodes, first.network_bytes) == (1, 0)


def test_the_last_chunk_goes_at_the_rate_of_the_slowest_link():
    """The second hop moves 8 messages of 100 B in chunks of two: 200 B over 200, 25 and 50 B/s take 8 s."""
    once = np.ones(1)
    hops = [Flows(np.array([0]), np.array([1]), 800 * once, 8 * once)] * 2
    problem = SimpleNamespace(
        capacity_Bps=np.array([1.0, 100.0, 50.0, 50.0]), route_ptr=np.array([0, 1, 4]),
        route_link=np.array([0, 1, 2, 3]), route_weight=np.array([1.0, 0.5, 2.0, 1.0]),
    )  # fmt: skip
    laid = SimpleNamespace(hop=np.array([0, 1]), hops=hops)
    assert _tails(laid, problem, 2).tolist() == [8.0, 0.0]


def test_no_tokens_take_the_start_alone():
    for row in simulate_moe("hgx_h100", ep=8, tokens=0).rows:
        assert (row.time_s, row.node_bytes, row.path) == (row.load_s, 0, "none")


def test_ranks_have_numbers_of_tokens_of_their_own():
    tokens = [64] * 24 + [256] * 8
    options = {"ep": 32, "mode": "low_latency", "overrides": ["scale_out.nodes=4"], "seeds": [0]}
    uneven = simulate_moe("hgx_h100", tokens=tokens, **options).time_s
    few, many = (simulate_moe("hgx_h100", tokens=n, **options).time_s for n in (64, 256))
    assert few < uneven < many


def test_a_failed_adapter_and_a_slow_link_cost_time():
    options = {"ep": 16, "overrides": ["scale_out.nodes=2"]}
    healthy = simulate_moe("hgx_h100", **options).time_s
    assert simulate_moe("hgx_h100", fail="nic:node1/3", **options).time_s > healthy * 1.02
    assert simulate_moe("hgx_h100", degrade=["link:n0.nic2-leaf*=50%"], **options).time_s > healthy * 1.2


def test_the_library_call_is_that_of_all_to_all_v():
    result = simulate_moe("hgx_h100", None, experts=64, top_k=8, hidden=7168, ep=4, mode="all_to_all")
    assert [row.limit_kind for row in result.rows] == ["library", "library"]
    assert result.rows[0].time_s < result.rows[1].time_s


def test_equal_questions_have_equal_answers():
    options = {"ep": 32, "overrides": ["scale_out.nodes=4"], "skew": 1.0, "tokens": 256}
    assert simulate_moe("hgx_h100", **options).to_dict() == simulate_moe("hgx_h100", **options).to_dict()


def test_every_fault_of_a_question_comes_at_once():
    with pytest.raises(InputError) as caught:
        simulate_moe("hgx_h100", ep=[64, 9], skew=-1, sms=0, mode="fast", seeds=[], tokens=-3, phase="x", tolerance=2)
    where = {fault.where for fault in caught.value.faults}
    assert where == {"ep", "skew", "sms", "mode", "seeds", "tokens", "phase", "tolerance"}


# --- What once went wrong ---------------------------------------------------------------------------------------------


def test_a_slow_adapter_of_an_idle_rank_speeds_nobody_up():
    options = {"ep": 32, "mode": "low_latency", "kernel": "deepep_v1", "overrides": ["scale_out.nodes=4"], "seeds": [0]}
    tokens = [128] * 24 + [1] + [128] * 7
    healthy = simulate_moe("hgx_h100", tokens=tokens, **options).time_s
    slow = simulate_moe("hgx_h100", tokens=tokens, degrade=["nic:n3.nic0=50%"], **options).time_s
    assert slow >= healthy


def test_posting_messages_keeps_the_adapter_of_the_sender_busy():
    from collsim.moe import kernel_costs as kernels

    kernel = kernels.load_kernel("uccl_b200_efa")
    costs, model = kernel.costs["low_latency"]["dispatch"], load_model("deepseek-v3", groups=1)
    (row, _) = simulate_moe("hgx_b200", model, ep=16, tokens=128, mode="low_latency", kernel=kernel,
                            overrides=["scale_out.nodes=2"]).rows  # fmt: skip
    messages = 128 * 8 / 2
    rate_Bps = load_topology("hgx_b200").fact("nic.bandwidth").value
    sending_s = messages * (costs.message_s + 7408 / (costs.network_efficiency * rate_Bps))
    assert row.load_s == pytest.approx(costs.start_s + sending_s, rel=1e-9)


def test_a_gpu_that_lost_a_link_slows_no_other_kernel():
    options = {"model": "llama-4-maverick", "skew": 3.0, "seeds": [0]}
    healthy = simulate_moe("hgx_h100", **options)
    busiest = healthy.rows[0].hot[0].gpu
    other = next(f"gpu{i}" for i in range(8) if f"gpu{i}" != busiest and f"gpu{i}" not in str(healthy.rows[0].hot[:3]))
    damaged = simulate_moe("hgx_h100", fail=f"link:{other}-nvsw0", **options)
    assert damaged.time_s == pytest.approx(healthy.time_s, rel=1e-3)


def test_gpus_that_are_alone_on_their_nodes_have_no_second_hop():
    overrides = ["scale_out.nodes=4", "scale_out.gpus_per_node=1"]
    for row in simulate_moe("hgx_h100", overrides=overrides).rows:
        assert (row.ranks, row.nodes, row.node_bytes) == (4, 4, 0)
        assert row.time_s == pytest.approx(row.load_s)


def test_nodes_without_switches_still_reach_each_other():
    options = {"overrides": ["scale_out.nodes=2"], "load_only": True}
    healthy, cut = (simulate_moe("hgx_h100", fail=fail, **options).rows[0] for fail in (None, "switch:n0.nvsw*"))
    assert cut.time_s > healthy.time_s
    assert cut.limit_kind == "network"  # what was on the switches of the node goes by its adapters


@pytest.mark.parametrize("entry", ["--5", "99999999999999999999", "5" * 5000, "1.5", "x"])
def test_counts_are_whole_numbers_that_fit(tmp_path, entry):
    path = tmp_path / "counts.txt"
    path.write_text(f"{entry}\n" + "1\n" * 255)
    with pytest.raises(InputError, match=r"line 1: .* is not a whole number"):
        simulate_moe("hgx_h100", counts=path)


@pytest.mark.parametrize(
    ("options", "where"),
    [({"ep": 8.0}, "ep"), ({"ep": "8"}, "ep"), ({"tokens": 1.5}, "tokens"), ({"tokens": True}, "tokens"),
     ({"sms": 2.5}, "sms"), ({"sms": [24, 8]}, "sms"),
     ({"expert_placement": 3}, "expert_placement"), ({"phase": None}, "phase"), ({"mode": 3}, "mode"),
     ({"seeds": [0.5]}, "seeds"), ({"redundant": "8"}, "redundant"),
     ({"skew": "hot"}, "skew"), ({"skew": True}, "skew"), ({"sigma": "1"}, "sigma"), ({"kernel": 3}, "kernel"),
     ({"hidden": 7168.0}, "hidden"),
     ({"hidden": 10**30}, "hidden"), ({"top_k": True}, "top_k"),
     ({"mode": "all_to_all", "load_only": True}, "load_only"), ({"mode": "all_to_all", "kernel": "mori"}, "kernel"),
     ({"counts": np.full(256, 2**62)}, "counts")],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_refused(options, where):
    with pytest.raises(InputError) as caught:
        simulate_moe("hgx_h100", "deepseek-v3", **options)
    assert {fault.where for fault in caught.value.faults} == {where}


def test_whole_numbers_of_numpy_and_models_with_changes_are_taken():
    model = Model("m", 64, 2, 1024)
    one, other = (simulate_moe("hgx_h100", model, ep=np.int64(8), tokens=np.int64(64), top_k=k) for k in (2, 6))
    assert (one.model["top_k"], other.model["top_k"]) == (2, 6)
    assert one.time_s < other.time_s
    with pytest.raises(InputError, match="each token takes 99 experts"):
        simulate_moe("hgx_h100", Model("m", 64, 99, 1024))


def test_loads_of_skewed_routing_are_pooled_unless_seeds_are_given():
    """Loads alone need no sample: one answer without a seed; seeds ask for samples all the same."""
    (dispatch, _), (given, _) = (
        simulate_moe("hgx_h100", skew=1.0, load_only=True, seeds=seeds).rows for seeds in (None, [3, 4])
    )
    assert (dispatch.seed, len(dispatch.times_s)) == (None, 1)
    assert (given.seed in (3, 4), len(given.times_s)) == (True, 2)
    drawn = simulate_moe("hgx_h100", skew=1.0).rows[0]
    assert drawn.seed is not None
    assert len(drawn.times_s) == 5


def test_adapters_that_bind_carry_their_share_of_the_line_rate():
    """GPUs alone on their nodes: the start of the kernel, 30 us, and bytes at 0.926 of the line rate."""
    overrides = ["scale_out.nodes=4", "scale_out.gpus_per_node=1"]
    dispatch = simulate_moe("hgx_h100", overrides=overrides, kernel="deepep_v2").rows[0]
    assert dispatch.limit_kind == "network"
    assert dispatch.time_s == pytest.approx(30e-6 + dispatch.lower_bound_s / 0.926, rel=1e-4)
