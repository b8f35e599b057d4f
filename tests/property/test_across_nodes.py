"""Every algorithm over 2 to 16 nodes of 1 to 8 GPUs does what its operation promises."""

import numpy as np
import pytest

from collsim.collectives import ALGORITHMS, NodeLayout, ScheduleRequest, algorithm, matrix_size_bytes
from collsim.core.errors import UnsupportedError
from collsim.core.operations import operation
from collsim.schedule import verify

from .depth import deep_but

ACROSS_NODES = [entry for entry in ALGORITHMS if entry.where == "nodes"]
ADDING = [
    ("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_reduce", "tree"),
    ("broadcast", "ring"), ("reduce", "ring"),
    *((op, entry.name) for entry in ACROSS_NODES for op in entry.ops if op != "all_to_all"),
]  # fmt: skip
NODES, GPUS = deep_but((2, 3, 4, 5, 7, 8, 11), range(2, 17)), range(1, 9)
FEW_GPUS = {7: (1, 2, 3), 8: (1, 3, 8), 11: (1, 2, 5)}
"""Of a node where there are many nodes: in every run; a verified schedule costs the square of its ranks."""


def built(op, algo, *, elements=7, **more):
    """Return a schedule of three channels and about two chunks for each, of a size that does not divide."""
    nodes, per_node = more.pop("nodes"), more.pop("per_node")
    n, name = nodes * per_node, operation(op)
    size_bytes = 16 * n * elements if name.blocked else 2 * (n * elements + 5)
    share = size_bytes // (3 * (n if name.blocked else 1))
    more = {"channels": 3, "chunk_bytes": max(share // (2 if name.blocked else 2 * per_node), 2), **more}
    return algorithm(op, algo).build(ScheduleRequest(name, n, size_bytes, 2, slots=2, nodes=nodes, **more))


def verify_sums_and_gathers(op, algo, nodes, gpus):
    blocks = operation(op).blocked and nodes > 6  # one chunk for each of very many blocks
    for per_node in gpus:
        verify(
            built(op, algo, nodes=nodes, per_node=per_node, **({"channels": 1, "chunk_bytes": None} if blocks else {}))
        )


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize(("op", "algo"), ADDING)
def test_sums_and_gathers(op, algo, nodes):
    verify_sums_and_gathers(op, algo, nodes, FEW_GPUS.get(nodes, GPUS))


@pytest.mark.deep
@pytest.mark.parametrize("nodes", FEW_GPUS)
@pytest.mark.parametrize(("op", "algo"), ADDING)
def test_sums_and_gathers_on_other_numbers_of_gpus(op, algo, nodes):
    verify_sums_and_gathers(op, algo, nodes, sorted({*GPUS} - {*FEW_GPUS[nodes]}))


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("algo", ["nccl_p2p", "nccl_pxn"])
def test_all_to_all(algo, nodes):
    for per_node in GPUS:
        n = nodes * per_node
        for block_bytes in (64, 300_000) if n <= 40 else (64,):
            verify(algorithm("all_to_all", algo).build(
                ScheduleRequest(operation("all_to_all"), n, n * block_bytes, 2, channels=16, nodes=nodes)
            ))  # fmt: skip


@pytest.mark.parametrize("op", ["gather", "scatter", "all_to_all_v", "send_recv"])
def test_other_messages(op):
    for nodes, per_node in ((2, 8), (3, 3), (5, 4), (4, 1)):
        n = nodes * per_node
        matrix = np.arange(n * n).reshape(n, n) % 5 * 90_000 if op == "all_to_all_v" else None
        size_bytes = n * 480_000 if matrix is None else matrix_size_bytes(matrix)
        asked = ScheduleRequest(
            operation(op), n, size_bytes, 4, root=n // 2 if op != "all_to_all_v" else 0, channels=16, nodes=nodes,
            matrix_bytes=matrix,
        )  # fmt: skip
        verify(algorithm(op, "nccl_p2p").build(asked))


@pytest.mark.parametrize("racks", [2, 3])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_three_levels(op, racks):
    for nodes, per_node in ((racks, 3), (2 * racks, 2), (4 * racks, 1), (2 * racks, 4)):
        layout = NodeLayout.blocks([per_node] * nodes, racks)
        schedule = built(op, "hierarchical_racks", nodes=nodes, per_node=per_node, layout=layout)
        verify(schedule)
        assert schedule.parameters["levels"] == 3


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_racks_whose_nodes_are_no_neighbours(op):
    layout = NodeLayout.from_nodes(
        [node for node in (3, 0, 5, 1, 4, 2) for _ in range(2)], rack_of_rank=[0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]
    )
    assert layout.racks == ((0, 2, 4), (1, 3, 5))
    verify(built(op, "hierarchical_racks", nodes=6, per_node=2, layout=layout))


@pytest.mark.parametrize("pattern", ["balanced", "split", "plain", "rail"])
def test_trees_of_every_pattern(pattern):
    for nodes in (2, 3, 5, 8, 11):
        for per_node in (1, 2, 5):
            verify(built("all_reduce", "tree", nodes=nodes, per_node=per_node, tree_pattern=pattern))


@pytest.mark.parametrize("sizes", [(3, 1), (2, 5, 4), (1, 1, 3, 8)])
@pytest.mark.parametrize("algo", ["ring", "tree", "nccl_p2p"])
def test_unequal_nodes(algo, sizes):
    op = operation("all_to_all" if algo == "nccl_p2p" else "all_reduce")
    asked = ScheduleRequest(op, sum(sizes), 96 * sum(sizes), 4, channels=4, layout=NodeLayout.blocks(sizes))
    verify(algorithm(op.name, algo).build(asked))


@pytest.mark.parametrize("algo", ["ring", "tree", "nvls_tree", "hierarchical", "collnet_direct"])
def test_ranks_that_are_dealt_to_nodes_in_turn(algo):
    layout = NodeLayout.from_nodes([rank % 3 for rank in range(12)])
    asked = ScheduleRequest(operation("all_reduce"), 12, 4800, 4, channels=4, layout=layout)
    verify(algorithm("all_reduce", algo).build(asked))


@pytest.mark.parametrize("entry", ACROSS_NODES, ids=lambda entry: entry.name)
def test_what_needs_equal_nodes_or_several_says_so(entry):
    op = operation(entry.ops[0])
    with pytest.raises(UnsupportedError, match="not on one"):
        entry.build(ScheduleRequest(op, 4, 64, 4))
    with pytest.raises(UnsupportedError, match="same number of ranks on every node"):
        entry.build(ScheduleRequest(op, 4, 64, 4, layout=NodeLayout.blocks([1, 3])))
