"""Where the fits of benchmarks/fit_profile.py start, and the figures that they leave alone, per system.

Times in us, rates in GB/s, sizes in bytes, under the keys of a profile. A figure that a fit leaves alone says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from collsim.library.protocols import AMD_LINES, NVIDIA_LINES, Lines

__all__ = ["SETTINGS", "Family", "Fixed", "Setting"]


class Fixed(NamedTuple):
    """A figure that is not fitted, with its status and source."""

    value: float
    status: str
    source: str


Figures = Mapping[str, float]


@dataclass(frozen=True)
class Family:
    """A family of kernels.

    Attributes
    ----------
    start : Mapping
        What is fitted, by protocol, and where the fit starts.
    fixed : Mapping
        What is not, by protocol; those under "" hold for every protocol.
    flags : tuple of str
    one_way_ratio : float or None
        Rate of a channel that only sends or only receives over `channel_rate`.
    hidden_us : Mapping
        How much of `message_overhead` slots hide from the chunks that follow along a chain, by protocol.
    like : str
        Family whose fitted figures hold where no training row tells them.
    leaves : tuple of str
        Those of its figures that do not count here.
    reduce_rates : Mapping
        Rate at which a channel adds, by data type.
    """

    start: Mapping[str, Figures]
    fixed: Mapping[str, Mapping[str, Fixed]]
    flags: tuple[str, ...] = ()
    one_way_ratio: float | None = None
    hidden_us: Mapping[str, float] = field(default_factory=dict)
    like: str = ""
    leaves: tuple[str, ...] = ()
    reduce_rates: Mapping[str, Fixed] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """How the profile of a system is fitted."""

    title: str
    floor: Fixed
    lines: Lines
    lines_source: str
    families: Mapping[str, Family]


# --- NCCL on HGX H100 ------------------------------------------------------------------------------------------------

ONE_WAY = 36.7 / 21.9
"""A channel that only sends or only receives is faster by this. Not fitted here: the two rates (GB/s) come from a fit
of another model to messages between four H100s, which did not keep the test logs apart."""


def _link_share(value: float) -> dict[str, dict[str, Fixed]]:
    """Fix the share of the link: it trades against the softness, which is fitted."""
    return {"": {"link_share": Fixed(value, "assumed", "not identified")}}


H100 = {
    "ring": Family(
        {
            "LL": {"base": 7.0, "message_overhead": 0.1, "channel_rate": 9.0, "fill_rate": 30.0},
            "LL128": {"base": 10.0, "message_overhead": 1.8, "channel_rate": 24.0, "fill_rate": 30.0},
            "Simple": {
                "base": 11.0, "message_overhead": 5.8, "small_overhead": 3.5, "slice_overhead": 1.3,
                "channel_rate": 31.0, "fill_rate": 30.0,
            },
        },
        _link_share(0.944), ("stepwise",),
    ),
    "chain": Family(
        {
            "LL": {"base": 7.0, "message_overhead": 1.3, "channel_rate": 9.0},
            "LL128": {"base": 10.0, "message_overhead": 1.6, "channel_rate": 20.0},
            "Simple": {"base": 11.0, "message_overhead": 5.4, "channel_rate": 25.0},
        },
        _link_share(0.944),
    ),
    "messages": Family(
        {
            "LL": {"base": 8.0, "message_overhead": 0.5, "channel_rate": 9.0},
            "Simple": {"base": 9.0, "message_overhead": 1.0, "channel_rate": 22.0, "fill_rate": 40.0},
        },
        _link_share(0.92), one_way_ratio=ONE_WAY,
    ),
    "rooted": Family(
        {
            "LL": {"base": 6.0, "message_overhead": 0.5, "channel_rate": 9.0},
            "LL128": {"base": 6.0, "message_overhead": 0.5, "channel_rate": 20.0},
            "Simple": {"base": 8.0, "message_overhead": 1.0, "channel_rate": 25.0},
        },
        _link_share(0.944), ("back_to_back",),
    ),
    "nvls": Family(
        {"Simple": {"base": 20.0, "message_overhead": 3.0, "channel_rate": 40.0}}, _link_share(0.75)
    ),
}  # fmt: skip

# --- RCCL on eight MI300X --------------------------------------------------------------------------------------------

TUNER = "RCCL tuning.cc, fixed cost of tree and ring; not told apart from the cost of a step by one number of steps"
SOFTNESS = Fixed(2.3, "assumed", "as on hgx_h100, where 2.2 to 2.8 was fitted; trades against channel_rate")
BOTH_WAYS = Fixed(0.727, "measured", "46.55 of 64 GB/s a link with all links busy, AMD ROCm blog on xGMI of MI300X")
ONE_WAY_LINK = Fixed(0.867, "assumed", "as fitted for messages; hardly matters where links carry bytes both ways")
MESH = {"link_share": ONE_WAY_LINK, "duplex_share": BOTH_WAYS, "softness": SOFTNESS}
PEERS = {"duplex_share": BOTH_WAYS, "softness": SOFTNESS}
LL_RATE = Fixed(3.7, "assumed", "as fitted for messages with LL; rings of the training logs carry 512 bytes at most")
SLOTS = Fixed(2**20, "derived", "two slots of NCCL_P2P_NVL_CHUNKSIZE (RCCL init.cc), one at either end")
BFLOAT16 = Fixed(
    19.2, "derived",
    "about 14 vector instructions an element (widen twice, add, round with two tests, pack: amd_hip_bfloat16.h) of "
    "2 bytes; a compute unit at 2.1 GHz issues 4 waves of 16 lanes",
)  # fmt: skip
HOP_US = {"LL": 0.8, "LL128": 0.8, "Simple": 2.1}
"""A hop over xGMI in RCCL's tuner (tuning.cc): flight time, during which a sender fills the next slot."""
ADDS = {"bfloat16": BFLOAT16}
RING = {
    "LL": {"base": Fixed(12, "constant", TUNER), "channel_rate": LL_RATE},
    "LL128": {"base": Fixed(12, "constant", TUNER)},
    "Simple": {"base": Fixed(17, "constant", TUNER)},
}

MI300X = {
    "ring": Family(
        {
            "LL": {"message_overhead": 0.8},
            "LL128": {"message_overhead": 0.8, "channel_rate": 15.0},
            "Simple": {"message_overhead": 4.0, "channel_rate": 20.0, "fill_rate": 50.0},
        },
        {"": MESH, **RING}, ("stepwise",), reduce_rates=ADDS,
    ),
    "rooted": Family(
        {}, {}, ("back_to_back", "in_turn"), like="ring", leaves=("fill_rate",), hidden_us=HOP_US, reduce_rates=ADDS,
    ),
    "chain": Family({}, {}, like="ring", leaves=("fill_rate",), reduce_rates=ADDS),
    "messages": Family(
        {
            "LL": {"base": 16.0, "message_overhead": 1.0, "channel_rate": 5.0},
            "Simple": {
                "base": 20.0, "message_overhead": 1.0, "channel_rate": 20.0, "fill_rate": 25.0, "link_share": 0.87,
            },
        },
        {"": PEERS, "LL": {"link_share": ONE_WAY_LINK}, "Simple": {"fill_limit": SLOTS}},
    ),
    "fan": Family({}, {}, like="messages", leaves=("fill_rate",)),
    "all_pairs": Family(
        {
            "LL": {"base": 16.0, "message_overhead": 2.0, "channel_rate": 3.0},
            "Simple": {"base": 16.0, "message_overhead": 4.0, "channel_rate": 5.0},
        },
        {"": MESH}, reduce_rates=ADDS,
    ),
    "direct": Family(
        {
            "LL": {"base": 14.0, "message_overhead": 1.0, "channel_rate": 3.0},
            "Simple": {"base": 16.0, "message_overhead": 4.0, "channel_rate": 5.0},
        },
        {"": MESH},
    ),
}  # fmt: skip

SETTINGS = {
    "hgx_h100": Setting(
        "NCCL on hgx_h100, stream launches",
        Fixed(9.8, "assumed", "chosen near the smallest times of the training logs, 7.5 to 10.4 us by operation"),
        NVIDIA_LINES, "NCCL device.h", H100,
    ),
    "mi300x_ubb8": Setting(
        "RCCL on eight MI300X, stream launches",
        Fixed(15.7, "assumed", "chosen near the smallest times of the training logs, 15.7 to 21.8 us by operation"),
        AMD_LINES, "RCCL device.h", MI300X,
    ),
}  # fmt: skip
