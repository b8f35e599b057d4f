"""Shapes of pipelines: what a chunk has behind it before each hop."""

import numpy as np
import pytest

from collsim.schedule import pipelines
from collsim.schedule.pipelines import Shape


def shape_of(parent):
    """Return a tree, up to rank 0 and down again, as all-reduce runs it: rank i has a stage 2 i and one 2 i + 1."""
    rank = np.arange(1, len(parent) + 1)
    up = np.stack([rank, parent, 2 * rank, 2 * parent, np.ones_like(rank)])[:, ::-1]
    turn = np.array([[0, 0, 0, 1, 0]]).T
    down = np.stack([parent, rank, 2 * parent + 1, 2 * rank + 1, np.zeros_like(rank)])
    return Shape.of_table(np.concatenate([up, turn, down], axis=1))


@pytest.mark.parametrize("spread", [1, 4, 40])
def test_rounds_say_the_same_as_hop_by_hop(spread, monkeypatch):
    rng = np.random.default_rng(spread)
    rank = np.arange(1, 60)
    shape = shape_of(rank - np.minimum(rank, rng.integers(1, spread + 1, len(rank))))
    weight = rng.integers(0, 3, len(shape))
    arrived = dict.fromkeys(range(120), 0)
    wanted = []
    for source, target, each in zip(shape.sender.tolist(), shape.receiver.tolist(), weight.tolist(), strict=True):
        wanted.append(arrived[source])
        arrived[target] = max(arrived[target], arrived[source] + each)
    assert shape.behind(weight).tolist() == wanted
    monkeypatch.setattr(pipelines, "MOST_DEEP", 3)
    assert shape.behind(weight).tolist() == wanted


def test_a_chain_adds_up():
    place = np.arange(5)
    shape = Shape.of_table(np.stack([place, place + 1, place, place + 1, 0 * place]))
    assert shape.is_path
    assert shape.behind(np.array([3, 0, 1, 2, 5])).tolist() == [0, 3, 3, 4, 6]
