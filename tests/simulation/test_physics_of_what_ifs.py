"""What-ifs under the profiles that systems have: how many times as long, by physics that was written down beforehand.

The bounds are those of bytes over links and of what the library does, not of what was predicted.
"""

from typing import Any, NamedTuple

import pytest

import collsim
from collsim.core.errors import CollsimError


class WhatIf(NamedTuple):
    """A question on a system, what changes, and between which factors its time then lies."""

    system: str
    op: str
    size: str
    asked: dict[str, Any]
    change: dict[str, Any]
    least: float
    most: float


RING, WHOLE = {"algo": "ring"}, (0.99, 1.01)
RING_BY_VARIABLE = {"NCCL_ALGO": "Ring"}
HALF_UP = {"link:gpu0->nvsw*": "50%"}
CASES = {
    "one of four switch planes, 5 of 18 links": WhatIf(
        "hgx_h100", "all_to_all", "1G", {}, {"fail": ["switch:nvsw0"]}, 1.15, 18 / 13 * 1.02
    ),
    "half of one GPU's way out": WhatIf("hgx_h100", "all_to_all", "1G", {}, {"degrade": HALF_UP}, 1.5, 2.05),
    "half of one GPU's way out, ring": WhatIf("hgx_h100", "all_reduce", "1G", RING, {"degrade": HALF_UP}, 1.3, 2.05),
    "half of a GPU that takes no part": WhatIf(
        "hgx_h100", "all_reduce", "1G", {"rank_list": range(1, 8)}, {"degrade": HALF_UP}, *WHOLE
    ),
    "a link of a mesh": WhatIf("mi300x_ubb8", "all_to_all", "256M", {}, {"fail": ["link:gpu0-gpu1"]}, 1.05, 4),
    "an adapter of sixteen": WhatIf(
        "hgx_h100", "all_reduce", "1G", {"nodes": 2, **RING}, {"fail": ["nic:node1/3"]}, 1.0, 2.05
    ),
    "links of half the rate": WhatIf(
        "mi355x_ubb8", "all_gather", "1G", {}, {"overrides": {"link.bandwidth": "38.4 GB/s"}}, 1.6, 2.05
    ),
    "links of twice the rate": WhatIf(
        "dgx_a100", "all_reduce", "1G", {}, {"overrides": {"link.bandwidth": "50 GB/s"}}, 0.49, 1.0
    ),
    "eight GPUs a thread, little": WhatIf("hgx_h100", "all_reduce", "1K", {}, {"gpus_per_thread": 8}, 1.2, 6),
    "eight GPUs a thread, much": WhatIf("hgx_h100", "all_reduce", "1G", {}, {"gpus_per_thread": 8}, *WHOLE),
    "a virtual host, much": WhatIf("hgx_h100", "all_reduce", "1G", {}, {"host": "virtual"}, *WHOLE),
    "a graph, little": WhatIf("hgx_h100", "all_reduce", "1K", {}, {"launch": "graph"}, 0.2, 1.0),
    "half of the links taken by others": WhatIf(
        "hgx_h100", "all_reduce", "1G", {}, {"load": "link:gpu0->nvsw*=50%"}, 1.2, 2.05
    ),
    "groups on rails of their own": WhatIf(
        "hgx_h100", "all_reduce", "1G", {"nodes": 4, "gpus_per_node": 1, **RING},
        {"gpus_per_node": 8, "split": "MOD 8"}, 0.95, 1.1,
    ),
    "groups on nodes of their own": WhatIf(
        "hgx_h100", "all_reduce", "1G", RING, {"nodes": 4, "split": "DIV 8"}, *WHOLE
    ),
    "groups on links of their own": WhatIf(
        "mi300x_ubb8", "all_reduce", "1G", {"ranks": 4, **RING}, {"ranks": 8, "split": "DIV 4"}, 0.99, 1.5
    ),
    "a ring where switches could add": WhatIf(
        "hgx_h100", "all_reduce", "1G", {}, {"environment": RING_BY_VARIABLE}, 1.1, 1.6
    ),
    "four channels for twenty-four": WhatIf(
        "hgx_h100", "all_reduce", "1G", {"environment": RING_BY_VARIABLE},
        {"environment": {**RING_BY_VARIABLE, "NCCL_MAX_NCHANNELS": "4"}}, 2.0, 6.1,
    ),
    "eight nodes for two, ring": WhatIf("hgx_h100", "all_reduce", "1G", {"nodes": 2, **RING}, {"nodes": 8}, 1.0, 1.3),
    "bytes of another type": WhatIf("hgx_h100", "all_reduce", "1G", RING, {"dtype": "bfloat16"}, 0.98, 1.02),
    "float maxima, which no switch computes": WhatIf("hgx_h100", "all_reduce", "1G", {}, {"redop": "max"}, 1.1, 1.6),
    "another root": WhatIf("dgx_a100", "broadcast", "64M", {}, {"root": 5}, *WHOLE),
    "ranks in another order": WhatIf(
        "hgx_b200", "all_reduce", "1G", {}, {"rank_list": [3, 1, 7, 0, 2, 6, 5, 4]}, *WHOLE
    ),
    "ranks dealt to nodes in turn": WhatIf(
        "hgx_h100", "all_to_all", "1G", {"nodes": 2}, {"placement": "cyclic"}, 0.95, 1.05
    ),
    "slow switches, little": WhatIf(
        "hgx_h100", "all_reduce", "1K", {}, {"overrides": {"switch.latency": "5 us"}}, 1.2, 20
    ),
    "slow switches, much": WhatIf(
        "hgx_h100", "all_reduce", "1G", RING, {"overrides": {"switch.latency": "5 us"}}, 1.0, 1.1
    ),
    "slow memory": WhatIf(
        "hgx_h100", "all_reduce", "1G", {}, {"overrides": {"gpu.memory_bandwidth": "500 GB/s"}}, 1.2, 6
    ),
    "sockets": WhatIf(
        "hgx_h100", "all_reduce", "1G", {"nodes": 2}, {"environment": {"NCCL_IB_DISABLE": "1"}}, 3, 40
    ),
    "one switch for rails": WhatIf("hgx_h100", "all_to_all", "1G", {"nodes": 4}, {"fabric": "single_switch"}, *WHOLE),
    "adapters of half the rate": WhatIf(
        "hgx_h100", "all_to_all", "1G", {"nodes": 2}, {"overrides": {"nic.bandwidth": "200 Gb/s"}}, 1.7, 2.05
    ),
    "rails without relays between them": WhatIf(
        "hgx_h100", "send_recv", "1M", {"nodes": 2}, {"environment": {"NCCL_PXN_DISABLE": "1"}}, 0.95, 1.2
    ),
    "seven GPUs of a mesh for eight": WhatIf(
        "mi300x_ubb8", "all_reduce", "1G", {"nodes": 2, **RING}, {"gpus_per_node": 7}, 1.0, 2.5
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_time_follows_physics(name):
    case = CASES[name]
    before, after = (
        collsim.simulate(case.system, case.op, case.size, **asked).rows[0].time_s
        for asked in (case.asked, {**case.asked, **case.change})
    )
    assert case.least * 0.999 <= after / before <= case.most * 1.001


@pytest.mark.parametrize(
    ("system", "change", "told"),
    [
        ("hgx_h100", {"library": "rccl-2.22"}, "does not run on hopper"),
        ("hgx_h100", {"ranks": 1}, "1 ranks"),
        ("hgx_h100", {"degrade": {"link:gpu0->nvsw*": "0%"}}, "no part of a rate"),
        ("hgx_h100", {"nodes": 2, "fail": ["nic:node0/*"]}, "cut off from each other"),
        ("gb200_nvl72", {"nodes": 900}, "do not fit"),
        ("hgx_h100", {"overrides": {"nic.bandwidth": "800"}}, "no unit"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(system, change, told):
    with pytest.raises(CollsimError, match=told):
        collsim.simulate(system, "all_reduce", "1M", **change)
