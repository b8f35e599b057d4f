"""A torus by its dimensions: right in every shape, all links loaded alike, and found from its links alone."""

from math import prod

import networkx as nx
import numpy as np
import pytest

import collsim
from collsim.collectives import ScheduleRequest, algorithm, dimensions_of
from collsim.core.operations import operation
from collsim.schedule.verifier import verify

OPS = ("all_reduce", "all_gather", "reduce_scatter")
SHAPES = [(2, 3), (3, 4), (2, 2, 2), (4, 4), (3, 3, 3), (2, 3, 4), (5, 3), (2, 8)]


def build(op, dims, size_bytes, **options):
    n, op = prod(dims), operation(op)
    size_bytes = op.rounded_size_bytes(size_bytes, n, 2)
    asked = ScheduleRequest(op, n, size_bytes, 2, dimensions=dims, **options)
    return algorithm(op.name, "torus").build(asked)


def torus_of(dims, bandwidth_Bps=50e9):
    """Return the graph of a torus with ranks that count up along the last dimension first."""
    grid = nx.convert_node_labels_to_integers(nx.grid_graph(dims[::-1], periodic=True))
    graph = nx.Graph(grid.edges, name="torus")
    nx.set_node_attributes(graph, {node: {"kind": "gpu", "rank": node} for node in graph})
    nx.set_edge_attributes(graph, {edge: {"bandwidth_Bps": bandwidth_Bps, "latency_s": 0.0} for edge in graph.edges})
    return graph


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("op", OPS)
def test_the_schedule_is_right_in_one_piece_and_in_many(op, dims):
    verify(build(op, dims, 9_998))
    verify(build(op, dims, 9_998, chunk_bytes=64, channels=3))
    verify(build(op, dims, 0))


@pytest.mark.parametrize("dims", SHAPES)
def test_messages_go_along_links_only_and_in_as_many_steps_as_the_dimensions_are_long(dims):
    linked = nx.to_numpy_array(torus_of(dims), nodelist=range(prod(dims)), weight=None) > 0
    rows = build("reduce_scatter", dims, 2 * 840 * prod(dims)).materialise()
    assert linked[rows.src, rows.dst].all()
    assert rows.step.max() + 1 == sum(length - 1 for length in dims)


@pytest.mark.parametrize("dims", [(4, 4), (3, 3), (3, 3, 3), (2, 2, 2)])
def test_every_link_carries_the_least_that_there_can_be(dims):
    n, block = prod(dims), 2 * 840
    schedule = build("all_gather", dims, n * block)
    rows = schedule.materialise()
    carried = np.zeros((n, n))
    np.add.at(carried, (rows.src, rows.dst), rows.size_bytes(schedule.chunks))
    links = carried[carried > 0]
    assert len(links) == n * sum(2 if length > 2 else 1 for length in dims)
    np.testing.assert_array_equal(links, (n - 1) * block * n / len(links))


@pytest.mark.parametrize(("dims", "links"), [((4, 4), 4), ((3, 3, 3), 6), ((4, 4, 4), 6), ((8, 8), 4)])
def test_an_all_reduce_takes_twice_the_data_over_all_links_of_a_gpu(dims, links):
    n, size_bytes = prod(dims), 2**24
    row = collsim.simulate(torus_of(dims), "all_reduce", size_bytes, algo="torus", profile="ideal").rows[0]
    assert row.time_s == pytest.approx(2 * size_bytes * (n - 1) / n / (links * 50e9), rel=1e-4)
    assert row.lower_bound_s <= row.time_s * (1 + 1e-12)


def test_the_best_on_a_torus_of_three_dimensions_is_its_own_algorithm():
    rows = collsim.simulate(torus_of((4, 4, 4)), "all_reduce", "16M", algo=("best", "ring"), profile="ideal").rows
    times = {row.asked: row.time_s for row in rows}
    assert times["ring"] > 5 * times["best"]
    assert {row.asked: row.algo for row in rows}["best"] == "torus"


@pytest.mark.parametrize("dims", SHAPES)
def test_dimensions_are_found_from_the_links(dims):
    links = nx.to_numpy_array(torus_of(dims), nodelist=range(prod(dims)), weight=None).astype(np.int64)
    found = dimensions_of(links)
    same = nx.to_numpy_array(torus_of(found), nodelist=range(prod(found)), weight=None) > 0
    np.testing.assert_array_equal(links > 0, same)
    cut = links.copy()
    cut[0, 1] = cut[1, 0] = 0
    assert dimensions_of(cut) == ()


@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 12])
def test_other_wiring_has_no_dimensions(n):
    assert dimensions_of(np.ones((n, n), dtype=np.int64)) == ()
    ring = np.roll(np.eye(n, dtype=np.int64), 1, axis=0)
    assert dimensions_of(ring + ring.T) == ()
    assert dimensions_of(np.zeros((n, n), dtype=np.int64)) == ()


def test_ranks_that_form_no_torus_are_refused_by_name():
    with pytest.raises(collsim.CollsimError, match="form no torus"):
        collsim.simulate("mi300x_ubb8", "all_reduce", "1M", algo="torus")


@pytest.mark.parametrize(("dims", "routes"), [((2, 3), 3), ((3, 4), 4), ((2, 2, 2), 3), ((3, 3, 3), 6)])
def test_channels_are_dealt_evenly_to_the_ways_around_and_each_has_one(dims, routes):
    for channels in range(1, 4 * routes + 2):
        schedule = build("all_gather", dims, 8 * 840, channels=channels)
        assert schedule.parameters["channels"] == max(channels // routes, 1) * routes
