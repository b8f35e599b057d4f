import numpy as np
import pytest

from collsim.collectives.rings import balanced_rings, rings_for


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
    assert rings_for(links).tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("n", [4, 6, 8])
def test_a_mesh_with_a_missing_link_gives_rings_within_its_links(n):
    links = mesh(n)
    links[0, 1] = links[1, 0] = 0
    rings = rings_for(links)
    assert np.all(np.sort(rings, axis=1) == np.arange(n))
    assert np.all(link_use(rings, n) <= links)
    assert len(rings) >= 2


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
