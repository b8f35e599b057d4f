"""What must hold for dispatch and combine whatever the model, the routing, the placement and the machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.engine import solve
from collsim.fabric.fabric import build_fabric
from collsim.fabric.routing import find_routes
from collsim.moe import Model
from collsim.moe.counts import Members, counted, expected
from collsim.moe.expert_placement import PLACEMENTS, placed
from collsim.moe.flows import MODES, OPS, flows_of
from collsim.moe.gating import popularity_of
from collsim.moe.kernel_costs import Costs
from collsim.moe.timing import laid_on, load_of, problem_of, time_flows
from collsim.topology import load_topology

COSTS = Costs(start_s=1e-5, node_efficiency=0.7, network_work=0.5, network_efficiency=0.9, message_s=1e-7)


@st.composite
def models(draw):
    groups = draw(st.sampled_from([1, 2, 4]))
    experts = groups * draw(st.sampled_from([2, 4, 8]))
    limit = draw(st.integers(1, groups))
    top_k = draw(st.integers(1, min(8, experts // groups * limit)))
    return Model("m", experts, top_k, draw(st.integers(1, 64)), groups=groups, group_limit=limit,
                 dispatch=draw(st.sampled_from(["fp8", "bf16"])))  # fmt: skip


@st.composite
def samples(draw):
    """A model, its counts on some nodes of some ranks, not all equally many."""
    model = draw(models())
    node = np.repeat(
        np.arange(3), draw(st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(lambda s: sum(s) > 1))
    )
    n = len(node)
    law = popularity_of(model, skew=draw(st.sampled_from([0.0, 0.5, 2.0])), seed=draw(st.integers(0, 9)))
    redundant = -model.experts % n + n * draw(st.integers(0, 1))
    place = placed(law.weight, n, draw(st.sampled_from(PLACEMENTS)), redundant=redundant)
    tokens = np.array(draw(st.lists(st.integers(0, 40), min_size=n, max_size=n)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return model, counted(model, law, place, Members.of(node), tokens=tokens, rng=rng)


@settings(max_examples=150, derandomize=True)
@given(samples())
def test_counts_of_tokens_fit_together(sample):
    model, counts = sample
    assert counts.pairs.sum(axis=1) == pytest.approx(model.top_k * counts.tokens)
    assert (counts.to_rank <= counts.pairs).all()
    assert (counts.to_rank <= counts.tokens[:, None]).all()
    of_node = np.zeros_like(counts.to_node)
    np.add.at(of_node.T, counts.members.node, counts.to_rank.T)
    assert (counts.to_node <= of_node).all()
    assert (counts.to_node >= of_node / np.bincount(counts.members.node)[None, :]).all()


@settings(max_examples=100, derandomize=True)
@given(samples(), st.sampled_from(MODES))
def test_bytes_arrive_where_they_are_sent(sample, mode):
    model, counts = sample
    there, back = (flows_of(counts, model, op, mode) for op in OPS)
    for hop, other in zip(there, reversed(back), strict=True):
        assert (hop.src != hop.dst).all()
        assert (hop.size_bytes > 0).all()
        assert sorted(zip(hop.src, hop.dst, hop.messages, strict=True)) == sorted(
            zip(other.dst, other.src, other.messages, strict=True)
        )
    if mode == "normal":
        into = np.bincount(there[-1].dst, there[-1].messages, counts.members.n_ranks)
        own = {(s, d): t for s, d, t in zip(*counts.relayed(), strict=True) if s == d}
        kept = np.array([own.get((r, r), 0.0) for r in range(counts.members.n_ranks)])
        assert into + kept == pytest.approx(counts.to_rank.sum(axis=0))


@settings(max_examples=25, derandomize=True)
@given(models(), st.integers(0, 99), st.sampled_from(["normal", "low_latency"]), st.floats(0, 2))
def test_times_keep_the_laws(model, seed, mode, skew):
    nodes = 3
    fabric = build_fabric(load_topology("hgx_h100", [f"scale_out.nodes={nodes}"]), None)
    routes = find_routes(fabric)
    n = fabric.n_ranks
    law = popularity_of(model, skew=skew, seed=seed)
    place = placed(law.weight, n, redundant=-model.experts % n)
    members = Members.of(fabric.wiring.coordinates.node[fabric.rank_node])
    tokens = np.full(n, 64)
    counts = counted(model, law, place, members, tokens=tokens, rng=np.random.default_rng(seed))
    for op in OPS:
        laid = laid_on(fabric, routes, flows_of(counts, model, op, mode))
        found, load = time_flows(laid, COSTS), load_of(laid, COSTS)
        assert found.bound_s <= found.load_s == load.time_s <= found.time_s * (1 + 1e-9)
        assert (found.port_load <= 1 + 1e-9).all()
        assert (found.link_busy_s <= found.time_s * (1 + 1e-9)).all()
        assert found.time_s == pytest.approx(found.finish_s.max())
        twice = Model(**{name: getattr(model, name) for name in model.__slots__} | {"hidden": 2 * model.hidden})
        assert time_flows(laid_on(fabric, routes, flows_of(counts, twice, op, mode)), COSTS).time_s >= found.time_s


def test_expected_loads_are_solved_by_classes_as_by_transfers():
    fabric = build_fabric(load_topology("hgx_h100", ["scale_out.nodes=4"]), None)
    model, n = Model("m", 64, 4, 512), fabric.n_ranks
    members = Members.of(fabric.wiring.coordinates.node[fabric.rank_node])
    counts = expected(model, placed(np.ones(64), n), members, np.full(n, 100))
    for op in OPS:
        problem = problem_of(laid_on(fabric, find_routes(fabric), flows_of(counts, model, op, "normal")), COSTS, 1.0)
        ends = [solve(problem, engine=engine).finish_s for engine in ("reference", "kernel", "auto")]
        assert ends[1] == pytest.approx(ends[0], rel=1e-12)
        assert ends[2] == pytest.approx(ends[0], rel=1e-12)
