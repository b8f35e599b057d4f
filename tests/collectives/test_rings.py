import numpy as np
import pytest

from collsim.collectives.ring_search import even_rings, smallest_cut
from collsim.collectives.rings import balanced_rings, rings_for

# Links between the GPUs of a DGX-1 with V100 (nvidia-smi topo -m), and between GCDs of an MI250X node with 4 or 8
# packages (RCCL src/graph/rome_models.cc, models 73 and 56).
DGX1 = [
    {1: 1, 2: 1, 3: 2, 4: 2},
    {0: 1, 2: 2, 3: 1, 5: 2},
    {0: 1, 1: 2, 3: 2, 6: 1},
    {0: 2, 1: 1, 2: 2, 7: 1},
    {0: 2, 5: 1, 6: 1, 7: 2},
    {1: 2, 4: 1, 6: 2, 7: 1},
    {2: 1, 4: 1, 5: 2, 7: 2},
    {3: 1, 4: 2, 5: 1, 6: 2},
]
MI250X = [
    {1: 4, 2: 1, 6: 2},
    {0: 4, 3: 1, 5: 1},
    {0: 1, 3: 4, 4: 2},
    {1: 1, 2: 4, 7: 1},
    {2: 2, 5: 4, 6: 1},
    {1: 1, 4: 4, 7: 1},
    {0: 2, 4: 1, 7: 4},
    {3: 1, 5: 1, 6: 4},
]
MI250X_16 = [
    {1: 4, 2: 1, 4: 2},
    {0: 4, 2: 1, 3: 1, 5: 1},
    {0: 1, 1: 1, 3: 4, 6: 1},
    {1: 1, 2: 4, 7: 2},
    {0: 2, 5: 4, 12: 1},
    {1: 1, 4: 4, 13: 1, 14: 1},
    {2: 1, 7: 4, 13: 1, 14: 1},
    {3: 2, 6: 4, 15: 1},
    {9: 4, 10: 1, 12: 2},
    {8: 4, 10: 1, 11: 1, 13: 1},
    {8: 1, 9: 1, 11: 4, 14: 1},
    {9: 1, 10: 4, 15: 2},
    {4: 1, 8: 2, 13: 4},
    {5: 1, 6: 1, 9: 1, 12: 4},
    {5: 1, 6: 1, 10: 1, 15: 4},
    {7: 1, 11: 2, 14: 4},
]


def wiring(rows):
    links = np.zeros((len(rows), len(rows)), dtype=np.int64)
    for rank, peers in enumerate(rows):
        links[rank, list(peers)] = list(peers.values())
    assert np.array_equal(links, links.T)
    return links


def rate(rings, links):
    """Return what all rings carry together, in units of one link, if the busiest link is full."""
    assert np.all(np.sort(rings, axis=1) == np.arange(len(links)))
    use = link_use(rings, len(links))
    assert not np.any(use[links == 0])
    return len(rings) / np.max(use[links > 0] / links[links > 0])


def without(n, *pairs):
    links = mesh(n)
    for a, b in pairs:
        links[a, b] = 0
    return links


def link_use(rings, n):
    use = np.zeros((n, n), dtype=np.int64)
    for ring in rings:
        np.add.at(use, (ring, np.roll(ring, -1)), 1)
    return use


def mesh(n, count=1):
    return np.full((n, n), count) - count * np.eye(n, dtype=np.int64)


@pytest.mark.parametrize("n", range(2, 65))
def test_balanced_rings_use_every_directed_link_equally_often(n):
    rings = balanced_rings(n)
    assert np.all(np.sort(rings, axis=1) == np.arange(n))
    assert len({tuple(ring) for ring in rings.tolist()}) == len(rings)  # all start at 0: no ring twice
    times = 1 if n % 2 or n == 2 else 2
    assert np.array_equal(link_use(rings, n), mesh(n, times))
    assert len(rings) == times * (n - 1)


def test_eight_ranks_have_seven_orders_and_their_reversals():
    rings = balanced_rings(8)
    assert len(rings) == 14
    assert np.array_equal(rings[0::2, 0], rings[1::2, 0])
    assert np.array_equal(rings[0::2, 1:], rings[1::2, :0:-1])


def test_every_pair_of_rings_loads_both_directions_alike():
    for n in (4, 5, 8, 9):
        use = link_use(balanced_rings(n)[:2], n)
        assert np.array_equal(use, use.T)


def test_full_mesh_with_several_links_per_pair_takes_the_balanced_rings():
    assert np.array_equal(rings_for(mesh(8, 3)), balanced_rings(8))
    assert np.array_equal(rings_for(mesh(40)), balanced_rings(40))


def test_ranks_behind_switches_stay_in_order():
    assert rings_for(np.zeros((6, 6), dtype=np.int64)).tolist() == [[0, 1, 2, 3, 4, 5]]


def test_the_diagonal_does_not_count():
    assert rings_for(np.eye(4, dtype=np.int64)).tolist() == [[0, 1, 2, 3]]
    assert np.array_equal(rings_for(mesh(5) + 7 * np.eye(5, dtype=np.int64)), balanced_rings(5))


def test_a_plain_cycle_is_found_in_both_directions():
    cycle = [0, 3, 1, 4, 2, 5]
    links = np.zeros((6, 6), dtype=np.int64)
    links[cycle, np.roll(cycle, -1)] = links[np.roll(cycle, -1), cycle] = 1
    assert rings_for(links).tolist() == [cycle, [0, 5, 2, 4, 1, 3]]


def test_one_way_links_give_one_ring():
    links = np.zeros((5, 5), dtype=np.int64)
    links[np.arange(5), (np.arange(5) + 1) % 5] = 2
    assert rings_for(links).tolist() == [[0, 1, 2, 3, 4]]


def test_rings_of_a_dgx_1_use_every_link_once():
    links = wiring(DGX1)
    rings = rings_for(links)
    assert np.array_equal(link_use(rings, 8), links)
    assert len(rings) == 6  # 6 x 25 GB/s = 150 GB/s
    assert np.array_equal(rings[0::2, 1:], rings[1::2, :0:-1])


def test_rings_of_an_mi250x_node_are_as_good_as_can_be():
    links = wiring(MI250X)
    # Five links leave each package, but no mix of the five cycles that there are carries more than four rings.
    assert smallest_cut(links) == 5
    rings = rings_for(links)
    assert len(rings) == 4
    assert rate(rings, links) == 4


def test_rings_of_eight_mi250x_reach_the_smallest_cut():
    links = wiring(MI250X_16)
    assert smallest_cut(links) == 6
    rings = rings_for(links)
    assert len(rings) == 6
    assert rate(rings, links) == 6


@pytest.mark.parametrize("n", range(4, 17))
def test_a_mesh_with_a_missing_link_loses_one_ring_only(n):
    links = without(n, (0, 1), (1, 0))
    rings = rings_for(links)
    assert rate(rings, links) == n - 2
    assert len(rings) == (n - 2) * (1 + n % 2)


@pytest.mark.parametrize("n", [5, 8, 16])
def test_a_mesh_with_a_link_that_fails_in_one_direction(n):
    links = without(n, (2, 3))
    assert rate(rings_for(links), links) == n - 2


@pytest.mark.parametrize("n", [6, 9, 16])
def test_a_mesh_with_weak_ranks(n):
    links = without(n, (0, 1), (1, 0), (2, 3), (3, 2), (1, 3), (3, 1))
    assert rate(rings_for(links), links) == n - 3
    links[2] = links[:, 2] = 0
    links[2, :2] = links[:2, 2] = 1
    assert rate(rings_for(links), links) == 2


def test_link_counts_count_in_proportion():
    links = 3 * mesh(8)
    links[0, 1] = links[1, 0] = 1
    assert rate(rings_for(links), links) == smallest_cut(links) == 19
    assert np.array_equal(rings_for(4 * links), rings_for(links))


def test_many_links_do_not_make_many_rings():
    links = 37 * mesh(8)
    links[0, 1] = links[1, 0] = 5
    rings = rings_for(links)
    assert len(rings) <= 64
    assert rate(rings, links) > 0.9 * smallest_cut(links)


@pytest.mark.parametrize("dimension", [3, 4])
def test_hypercubes_use_all_their_links(dimension):
    n = 1 << dimension
    links = np.zeros((n, n), dtype=np.int64)
    for bit in range(dimension):
        links[np.arange(n), np.arange(n) ^ (1 << bit)] = 1
    assert rate(rings_for(links), links) == dimension


def test_rings_are_always_the_same_and_within_the_smallest_cut():
    rng = np.random.default_rng(1)
    for n in (5, 8, 12, 16):
        for symmetric in (True, False):
            links = rng.integers(0, 3, (n, n))
            links = (links + links.T if symmetric else links) * (1 - np.eye(n, dtype=np.int64))
            found = even_rings(links, both_ways=symmetric)
            assert found == even_rings(links, both_ways=symmetric)
            if found:
                assert rate(rings_for(links), links) <= smallest_cut(links)


def test_the_smallest_cut_is_that_of_the_smallest_set():
    links = 4 * mesh(6)
    links[:3, 3:] = links[3:, :3] = 1
    links[0, 3] = 0
    assert smallest_cut(links) == 8


def test_rings_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        rings_for(wiring(DGX1))[0, 0] = 1


def test_wiring_without_a_ring_in_which_every_rank_has_three_links():
    petersen = np.zeros((10, 10), dtype=np.int64)
    for i in range(5):
        for a, b in ((i, (i + 1) % 5), (i, i + 5), (i + 5, (i + 2) % 5 + 5)):
            petersen[a, b] = petersen[b, a] = 1
    assert rings_for(petersen).tolist() == [list(range(10))]


def test_wiring_without_a_cycle_keeps_the_ranks_in_order():
    star = np.zeros((16, 16), dtype=np.int64)
    star[0, 1:] = star[1:, 0] = 1
    assert rings_for(star).tolist() == [list(range(16))]


def test_the_search_ends_quickly_where_no_cycle_exists():
    halves = np.zeros((16, 16), dtype=np.int64)  # two cliques that share one rank
    halves[:9, :9] = halves[8:, 8:] = 1
    assert rings_for(halves).tolist() == [list(range(16))]


def test_large_irregular_wiring_keeps_the_ranks_in_order():
    links = mesh(17)
    links[0, 1] = 2
    assert rings_for(links).tolist() == [list(range(17))]


def test_two_ranks():
    assert rings_for(mesh(2)).tolist() == [[0, 1]]
    assert rings_for(np.array([[0, 2], [1, 0]])).tolist() == [[0, 1]]
