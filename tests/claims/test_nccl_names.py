"""The claim on what NCCL offers: three protocols and seven algorithms; SemiAnalysis, MI300X against H100 and H200."""

import pytest

import collsim
from collsim.core.errors import InputError
from collsim.library import read_environment
from collsim.topology import load_topology

SEVEN = {
    # as NCCL_ALGO takes it: the algorithm here, an operation of it, nodes, and what else has to be on
    "NVLS": ("nvls", "all_reduce", 1, {}),
    "NVLSTree": ("nvls_tree", "all_reduce", 4, {}),
    "Ring": ("ring", "all_reduce", 1, {}),
    "Tree": ("tree", "all_reduce", 4, {}),
    "CollnetDirect": ("collnet_direct", "all_reduce", 4, {"NCCL_COLLNET_ENABLE": "1"}),
    "CollnetChain": ("collnet_chain", "all_reduce", 4, {"NCCL_COLLNET_ENABLE": "1"}),
    "PAT": ("pat", "all_gather", 4, {}),
}


@pytest.mark.parametrize("name", SEVEN)
def test_C042_seven_algorithms(name):
    """Each of them is chosen if NCCL_ALGO leaves no other, built, and timed."""
    algo, op, nodes, others = SEVEN[name]
    gpus = {"gpus_per_node": 1} if name == "PAT" else {}
    topology = load_topology("hgx_h100", scale_out={"nodes": nodes, **gpus}) if nodes > 1 else "hgx_h100"
    asked = {"library": "nccl-2.28", "environment": {"NCCL_ALGO": name, **others}}
    (row,) = collsim.simulate(topology, op, "16M", **asked).rows
    assert row.algo == algo
    assert row.time_s > row.lower_bound_s


@pytest.mark.parametrize("proto", ["LL", "LL128", "Simple"])
def test_C042_three_protocols(proto):
    """Each of them is what a ring runs if NCCL_PROTO leaves no other."""
    asked = {"library": "nccl-2.28", "environment": {"NCCL_ALGO": "Ring", "NCCL_PROTO": proto}}
    (row,) = collsim.simulate("hgx_h100", "all_reduce", "1M", **asked).rows
    assert (row.algo, row.proto) == ("ring", proto)


def test_C042_and_no_more():
    """An eighth algorithm or a fourth protocol is refused, with the names that there are."""
    for variable, count in (("NCCL_ALGO", len(SEVEN)), ("NCCL_PROTO", 3)):
        with pytest.raises(InputError, match="unknown name") as refused:
            read_environment({variable: "Star"})
        assert str(refused.value).partition("known: ")[2].count(",") == count - 1
