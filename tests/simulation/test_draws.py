"""Repeats over seeds of an ECMP hash: each draw is the run of that seed, the row is of the median one."""

from dataclasses import replace

import numpy as np
import pytest

import collsim
from collsim.core.errors import InputError
from collsim.simulation import plans, rows
from collsim.simulation import selection as choosing
from collsim.simulation.draws import over_draws
from collsim.simulation.request.hash_seeds import parse_seeds, seeds_text
from collsim.simulation.result import ranked
from collsim.topology import load_topology

TREE = {"nodes": 4, "fabric": "fat_tree", "radix": 16, "network": "roce"}
"""Each node has a leaf of its own, so that every message between nodes meets the hash."""


@pytest.fixture(scope="module")
def tree():
    return load_topology("hgx_h100", scale_out=TREE)


def of_seed(seed, *arguments, **options):
    seeded = load_topology("hgx_h100", scale_out={**TREE, "hash_seed": seed})
    return collsim.simulate(seeded, *arguments, **options).rows


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("all_reduce", {}),
        ("all_to_all", {"profile": "ideal", "algo": "direct", "ranks": 16}),
        ("all_reduce", {"split": "MOD 8", "library": "nccl-2.28"}),
        ("all_reduce", {"algo": "ring", "profile": "ideal", "fail": "spine:0", "ranks": 16}),
        ("all_gather", {"ranks": 16, "algo": "ring", "load": "link:n0.gpu0->n0.nic0=30%"}),
    ],
)
def test_a_draw_is_the_run_with_its_seed(tree, op, options):
    sizes, seeds = ["64K", "16M"], (1, 2, 5, 9, 11)
    drawn = collsim.simulate(tree, op, sizes, hash_seeds=seeds, **options).rows
    alone = {seed: of_seed(seed, op, sizes, **options) for seed in seeds}
    for place, row in enumerate(drawn):
        times_s = [alone[seed][place].time_s for seed in seeds]
        assert row.draw_times_s == pytest.approx(times_s, rel=1e-9)  # by either engine
        same = alone[row.hash_seed][place]
        assert row.time_s == pytest.approx(sorted(times_s)[2], rel=1e-9)
        assert (row.label, row.bound, row.lower_bound_s) == (same.label, same.bound, same.lower_bound_s)
        assert row.bottleneck[0].link == same.bottleneck[0].link
        assert (row.time_min_s, row.time_max_s) == (min(row.draw_times_s), max(row.draw_times_s))
    assert len(set(drawn[1].draw_times_s)) > 1


def test_the_median_and_the_95th_of_a_hundred_are_draws():
    row = collsim.simulate("mi300x_ubb8", "all_reduce", "1M", profile="ideal", algo="ring").rows[0]
    seeds = range(1, 101)
    shuffled = [(37 * seed) % 101 for seed in seeds]  # 1 to 100 in some order
    found = over_draws([replace(row, time_s=float(time_s)) for time_s in shuffled], seeds)
    assert (found.time_s, found.time_p95_s, found.time_min_s, found.time_max_s) == (50, 95, 1, 100)
    assert shuffled[found.hash_seed - 1] == 50
    assert found.busbw_Bps == pytest.approx(row.busbw_Bps * row.time_s / 50)
    assert ranked([3.0, 1.0], 0.5) == 1.0


def test_topology_choice_and_schedule_are_made_once(tree, monkeypatch):
    made = {"built": 0, "library_choice": 0}

    def counted(name, function):
        def call(*arguments):
            made[name] += 1
            return function(*arguments)

        return call

    for module, name in ((plans, "built"), (rows, "library_choice")):
        monkeypatch.setattr(module, name, counted(name, getattr(choosing, name)))
    collsim.simulate(tree, "all_reduce", ["1M", "4M"], hash_seeds="1-6")
    assert made == {"built": 2, "library_choice": 2}


def test_best_has_the_least_median(tree):
    asked = {"hash_seeds": "1-5", "profile": "ideal", "ranks": 16}
    every = collsim.simulate(tree, "all_to_all", "4M", algo="all", **asked).rows
    (best,) = collsim.simulate(tree, "all_to_all", "4M", algo="best", **asked).rows
    assert len(every) > 1
    assert replace(best, asked="all") == min(every, key=lambda row: row.time_s)


def test_a_slow_machine_stands_beside_the_same_draws(tree):
    asked = {"algo": "ring", "profile": "ideal"}
    row = collsim.simulate(tree, "all_reduce", "64M", hash_seeds="1-3", degrade="nic:node1/*=10%", **asked).rows[0]
    whole = [of_seed(seed, "all_reduce", "64M", **asked)[0].time_s for seed in (1, 2, 3)]
    assert row.healthy_time_s == sorted(whole)[1]
    assert row.slowdown > 2
    assert len(row.draw_times_s) == 3


def test_where_nothing_meets_the_hash_all_draws_are_one_and_said_to_be():
    rails = load_topology("hgx_h100", scale_out={"nodes": 2, "network": "roce"})
    result = collsim.simulate(rails, "all_reduce", "1M", hash_seeds="1-3")
    assert result.rows[0].draw_times_s == (result.rows[0].time_s,) * 3
    assert "16 ranks: no message goes from switch to switch, so all draws of the hash are the same" in result.warnings


@pytest.mark.parametrize(
    ("scale_out", "options", "words"),
    [
        (None, {}, "no message leaves a node"),
        ({"nodes": 2, "network": "roce"}, {"ranks": 8}, "no message leaves a node"),
        ({"nodes": 2}, {}, "infiniband routes by adaptive, without a hash"),
    ],
)
def test_no_hash_no_draws(scale_out, options, words):
    with pytest.raises(InputError, match=words):
        collsim.simulate(
            load_topology("hgx_h100", scale_out=scale_out), "all_reduce", "1M", hash_seeds="1-3", **options
        )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("7", ["1 hash seeds are no distribution"]),
        ("", ['"" is no seed']),
        ("0-3", ["hash seed 0"]),
        ("3,1,3", ["hash seed 3 is named more than once"]),
        ("9-2,x,1-99999", ["runs backwards", '"x" is no seed', "too long"]),
        ([1, 2.5, True], ["2.5 is no seed", "True is no seed"]),
        (5, ["5 names no hash seeds"]),
        ({1: 2}, ["names no hash seeds"]),
        ([10**50, 1], ["a hash seed"]),
        (range(10**12), ["10,001 hash seeds"]),
    ],
)
def test_what_is_wrong_with_seeds_is_told_at_once(value, words):
    with pytest.raises(InputError) as caught:
        parse_seeds(value)
    told = [fault.what for fault in caught.value.faults]
    for word in words:
        assert any(word in what for what in told), told


@pytest.mark.parametrize("text", ["1-100", "1,5,7-9", "3,2,1", "1-2,4-5"])
def test_seeds_are_written_as_they_are_read(text):
    assert seeds_text(parse_seeds(text)) == text
    assert parse_seeds(np.array(parse_seeds(text))) == parse_seeds(text)


def test_draws_in_batches_are_the_same(tree, monkeypatch):
    asked = {"algo": "ring", "profile": "ideal", "ranks": 16, "hash_seeds": "1-4"}
    sizes = ["64K", "1M", "4M", "3"]
    at_once = collsim.simulate(tree, ["all_reduce", "all_gather"], sizes, **asked)
    monkeypatch.setattr(rows, "MOST_TRANSFERS", 1)
    in_batches = collsim.simulate(tree, ["all_reduce", "all_gather"], sizes, **asked)
    assert in_batches.rows == at_once.rows
    assert [row.draw_times_s for row in at_once.skipped] == [()] * 2  # 3 bytes are no element
