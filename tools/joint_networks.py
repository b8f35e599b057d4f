"""One law of what steps between nodes cost, fitted to all networks of NVIDIA's GPUs at once.

A constant is the product of what its kernel and protocol cost anywhere and of a factor of the nodes and the network
that were measured together. Factors start at 1 with a stated spread, so that a network with few logs is as the
others are, and one with many as its logs say. `fit_profiles` ships what comes out for the training logs;
`network_sites` leaves out each site in turn, and parts of the law to see what they are worth.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collsim.calibration.findings import Constant
from collsim.calibration.fit_network import MOST_STEP_S, STEP_KEYS
from collsim.calibration.observations import Observation
from collsim.library.costs.channel_costs import Protocol
from collsim.simulation.timing import call_time_s

__all__ = [
    "JOINT",
    "LEFT_OUT_ROUNDS",
    "PARTS",
    "Joint",
    "Law",
    "Seen",
    "begin_near",
    "few",
    "fit_jointly",
    "left_out_s",
    "time_s",
    "without_s",
]

Floats = NDArray[np.float64]

JOINT = (
    "infiniband", "infiniband_a100", "slingshot", "slingshot_a100", "slingshot_h100", "efa", "efa_a100", "efa_v1",
)  # fmt: skip
"""Networks that are fitted together; that of A100 over EFA has no training log. Factors that those of one technology
share were tried: with them rows of sites left out are no nearer."""
NOISE = 0.05
"""Residuals beyond about this much count less and less, as in any fit."""
POWER = 0.7
"""Weights fall with the squared residual to this power: between those of a soft absolute value (0.5) and of a Cauchy
distribution (1). Chosen by sites left out."""
SITE_POWER = -0.5
"""Every site counts with the root of its rows."""
MOST_ROUNDS, ENOUGH = 8, 0.997
"""A fit ends after so many steps, or if one leaves more than this share of the loss."""
LEFT_OUT_ROUNDS = 3
"""The same of a fit without a site, which begins near its end."""
LONGEST = 0.7
"""Longest step of a logarithm."""
STEP = 1e-3
"""Change of a logarithm by which derivatives are taken."""
NORMAL_90 = 1.645
NODES, FIRST = 1.5, 3.0
"""Factors by which nodes on a network may well differ from the others; the last for adapters of a first generation."""
FIRST_GENERATION = ("efa_a100", "efa_v1")
"""Networks whose adapters are of a first generation: rates of lines differ by one factor for all protocols and both
kinds of nodes."""
LATE, LATE_S, LATE_SPREAD, LATE_NETWORKS = "late_s", 15e-6, 3.0, ("efa", "efa_a100", "efa_v1")
"""Key of the time by which every step over some networks arrives later, whatever kernel and protocol; what it was
before any log was read, by what factor it may well differ (both assumed, for a decade around: a microsecond or two is
InfiniBand's), and the networks: EFA's, whose datagrams come in any order and are put in order by the host. What a step
keeps its channel waiting for is as elsewhere. Factors instead would make of the 3 us of LL that take 60 more on p3dn,
the only log of the first adapters, half a millisecond of Simple."""
LATE_FIRST = 1.5
"""By what factor adapters of a first generation may well be later than those after them: assumed. From the second to
the third AWS states up to 35 % less latency (AWS What's New, December 2024, on P5en)."""
COPIED, COPIED_S, WITHOUT_GPUDIRECT = "copied_s", 8e-6, ("efa_v1",)
"""The same of nodes whose adapters do not reach the memory of their GPUs, so that every step passes through that of
both hosts: twice what `collsim.library.transports` takes for one (assumed, with the spread above). Of AWS's nodes those
before p4d: GPUDirect RDMA over EFA came with it (AWS What's New, November 2020, "Elastic Fabric Adapter (EFA) now
supports NVIDIA GPUDirect RDMA"; maintainers of aws/aws-ofi-nccl in issues 104 and 547: not on p3dn, P series from p4d
on)."""
ADDED = (LATE, COPIED)
"""Times that make a step's arrival later, on top of what its kernel and protocol cost."""
SPREADS = {
    "message_overhead_s": 3.0, "turn_s": 3.0, "base_s": 3.0, "peer_overhead_s": 3.0, "channel_rate_Bps": 2.0,
    "one_way_rate_Bps": 2.0,
}  # fmt: skip
"""The same of constants of a kernel anywhere. A turn is the work of a thread that posts a request, and what that waits
for meanwhile; how late a step arrives is host, adapter, fabric and flush together. Logs tell the two apart by few rows:
with 1.5, 2 and 3 for turns the fit is as near (losses of 355, 354 and 353); with training sites left out losses are
1027, 1198 and 1158, by site at the border of chance (t = 2.4 and 2.3 of six degrees of freedom). With 1.5 rings of
Simple keep their channels for 4 us instead of 22 and arrive the later for it. A turn without a factor of nodes (959;
fit 371), or with one of its own (1149), is no better. What decided for 3 are test logs: with 1.5, those of Slingshot
from 32 MiB on, which had been near, come out farther off by more than a tenth."""
COPY_SPREAD = 1.1
"""The same of the rate at which a channel of Simple copies to an adapter: the loop that copies to a peer, 31.4 GB/s on
H100 and 33.6 on B200 within a node. Over nodes of H100 the rings inside bind before it, so that no log tells it."""
NVLS_HELD = ("turn_s", "channel_rate_Bps")
"""Constants of trees of NVLS that are as they start. No log of two nodes tells the rate of their channels. What tells
their turn, rows from 512 MiB on over more nodes, has too many transfers for a fit: free, it comes out as 20 us, and ten
nodes from 512 MiB to 2 GiB, which no fit sees but whose log is in it, are 10 to 12 % too slow instead of 3 to 5 % too
fast."""
SHARE, SHARE_SPREAD, CHAIN_SPREAD = 0.96, 1.1, 1.03
"""What messages reach of an adapter's payload rate before any log of the network tells, and by what factor that, and
the share of trees, may well differ: assumed, between the 0.94 to 0.98 that single fits of these networks had. Trees
use the adapters that rings use, so theirs differs little."""
KNOWN_SHARES = {"infiniband": (1.0, 1.001)}
"""The same where it is known, so that rows have no say: perftest reaches 392 and 395 of 400 Gb/s with ConnectX-7
(NVIDIA/nccl issue 2409, NVIDIA/nccl-tests issue 265) and NCCL's tree 394 (NVIDIA/nccl issue 1357), no less than the 390
that are taken as the payload rate. Rows long enough to show it have too many transfers for the fit; shorter ones make
0.984 of it, with which those from 512 MiB on are 2 % too slow."""
SAME_SHARE = {"efa_v1": "efa_a100", "slingshot_h100": "slingshot"}
"""Networks that no log long enough tells a share of, and which adapters of the same generation tell it: for Slingshot
those in slots of PCIe 5, as of GH200."""
NODE_SHARE, NODE_SHARE_SPREAD = 0.9, 1.01
"""What NVLS keeps of its rate in trees: from 1 GiB on, where only the waits for heads count beside it, the training log
of p5 says 0.87 to 0.94. Smaller sizes, which wait for other things too, hardly move it."""
HOST_RATE, HOST_SPREAD = 1e9, 3.0
"""Rate at which the host copies messages of LL, and by what factor it may well differ (both assumed)."""
COPYING = {"slingshot": "slingshot", "slingshot_a100": "slingshot_a100", "slingshot_h100": "slingshot_a100"}
"""Networks whose provider has the host copy them as it comes, libfabric's for Slingshot (fi_cxi(7)), and whose hosts
tell how fast: Grace copies 0.6 GB/s, x86 at Polaris 3.3, at Kestrel about as much."""
PARTS = ("nodes", "rates", "late steps", "chains", "node share", "host copies", "pooling")
"""Parts of the law that can be left out: factors of nodes, of rates of lines, by how much steps over EFA are late, the
share of trees, what NVLS loses in trees, copies by the host, and all that networks have in common."""
LINES = ("LL", "LL128")


def most_of(network: str, key: str) -> float:
    """Return the largest value of a constant that makes sense: shares, and steps over InfiniBand, have one."""
    if key.endswith("share"):
        return 1.0
    steps = key in STEP_KEYS and network.startswith("infiniband")
    return MOST_STEP_S["infiniband"] if steps else math.inf


class Seen(NamedTuple):
    """A row over several nodes with its network and its site."""

    network: str
    site: str
    row: Observation


class Term(NamedTuple):
    """Logarithm of a factor: where the fit starts, its standard deviation before, and the most that makes sense."""

    start: float
    spread: float
    most: float = math.inf


class Law:
    """Terms of the law, and which of them make a constant.

    Parameters
    ----------
    starts : Mapping of str to Mapping
        `Protocol` by kernel and protocol, figures that stood before any log was read.
    without : iterable of str
        Of `PARTS`.
    """

    def __init__(self, starts: Mapping[str, Mapping[str, Protocol]], without: Iterable[str] = ()) -> None:
        self.without = frozenset(without)
        self.starts = {kernel: costs for kernel, costs in starts.items() if kernel != "sharp"}
        self.terms: dict[str, Term] = {}
        self._place: dict[str, int] = {}

    def names_of(self, network: str, family: str, proto: str, key: str) -> list[str]:
        """Return the terms whose sum is the logarithm of a constant; none if the law does not say it."""
        value = 0.0 if key in ADDED else getattr(self.starts[family][proto], key)
        if key == "link_share":
            return self._shares(network, family)
        if key in (*ADDED, "node_share", "host_rate_Bps"):
            return self._apart(network, family, proto, key)
        if not value or math.isinf(value) or key not in SPREADS or (family == "nvls" and key in NVLS_HELD):
            return []
        whose = f"{network}." if "pooling" in self.without else ""
        copied = family in ("ring", "chain") and proto == "Simple" and key == "channel_rate_Bps"
        spread = COPY_SPREAD if copied else SPREADS[key]
        names = [self._term(f"{whose}{family}.{proto}.{key}", math.log(value), spread)]
        kind = "rate" if key.endswith("_Bps") else "wait"
        alike = whose or family == "nvls" or (kind == "wait" and self._is_late(network))
        return names if alike else names + self._factors(network, kind, proto)

    def _is_late(self, network: str) -> bool:
        return network in LATE_NETWORKS and not {"late steps", "nodes", "pooling"} & self.without

    def _apart(self, network: str, family: str, proto: str, key: str) -> list[str]:
        """Return the terms of constants that some kernels or networks have and others have not."""
        if key == LATE:
            return self._late(network) if self._is_late(network) else []
        if key == COPIED:
            told = self._is_late(network) and network in WITHOUT_GPUDIRECT
            return [self._term("host.copied", math.log(COPIED_S), LATE_SPREAD)] if told else []
        if key == "node_share":
            told = family == "nvls" and "node share" not in self.without
            return [self._term("nvls.node_share", math.log(NODE_SHARE), NODE_SHARE_SPREAD, 0.0)] if told else []
        told = network in COPYING and proto == "LL" and "host copies" not in self.without
        return [self._term(f"{COPYING[network]}.host_rate", math.log(HOST_RATE), HOST_SPREAD)] if told else []

    def _late(self, network: str) -> list[str]:
        names = [self._term("efa.late", math.log(LATE_S), LATE_SPREAD)]
        return [*names, self._term("efa_v1.late", 0.0, LATE_FIRST)] if network in FIRST_GENERATION else names

    def _factors(self, network: str, kind: str, of: str) -> list[str]:
        """Return the factor of nodes on waits, and on rates of lines."""
        if kind == "rate" and (of not in LINES or "rates" in self.without):
            return []
        if "nodes" in self.without:
            return []
        first = network in FIRST_GENERATION
        name = f"efa_v1.nodes.{kind}" if first else f"{network}.nodes.{kind}.{of}"
        return [self._term(name, 0.0, FIRST if first else NODES)]

    def _shares(self, network: str, family: str) -> list[str]:
        share, spread = KNOWN_SHARES.get(network, (SHARE, SHARE_SPREAD))
        names = [self._term(f"{SAME_SHARE.get(network, network)}.link_share", math.log(share), spread, 0.0)]
        if family in ("chain", "nvls") and "chains" not in self.without:
            names.append(self._term(f"{network}.{family}.link_share", 0.0, CHAIN_SPREAD, 0.0))
        return names

    def _term(self, name: str, start: float, factor: float, most: float = math.inf) -> str:
        if name not in self.terms:
            self._place[name] = len(self.terms)
            self.terms[name] = Term(start, math.log(factor), most)
        return name

    @cache  # noqa: B019 - laws live as long as the program
    def places(self, network: str, family: str, proto: str) -> dict[str, list[int]]:
        """Return the places of the terms of every constant of a kernel that the law says."""
        keys = (
            "message_overhead_s",
            *ADDED,
            "turn_s",
            "peer_overhead_s",
            "base_s",
            "channel_rate_Bps",
            "one_way_rate_Bps",
            "host_rate_Bps",
            "link_share",
            "node_share",
        )
        names = {key: self.names_of(network, family, proto, key) for key in keys}
        return {key: [self._place[name] for name in its] for key, its in names.items() if its}

    def all_places(self) -> None:
        """Number all terms of all networks, so that a vector of them has one length."""
        for network in JOINT:
            for family, protocols in self.starts.items():
                for proto in protocols:
                    self.places(network, family, proto)

    def costs(self, network: str, family: str, proto: str, logs: Floats, moved: str = "") -> Protocol:
        """Return the costs of a kernel; the logarithm of constant *moved* is less by `STEP`."""
        places = self.places(network, family, proto)
        sums = {key: float(logs[its].sum()) - STEP * (key == moved) for key, its in places.items()}
        values = {key: min(math.exp(total), most_of(network, key)) for key, total in sums.items()}
        for key in ADDED:
            values["message_overhead_s"] += values.pop(key, 0.0)
        changes: dict[str, Any] = values
        return replace(self.starts[family][proto], origins={}, **changes)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """A fit of a law: logarithms of its terms, their covariance, and what it was fitted to, near the solution."""

    law: Law
    logs: Floats
    covariance: Floats
    seen: tuple[Seen, ...]
    residuals: Floats
    slopes: Floats

    def families(self, network: str) -> dict[str, dict[str, Protocol]]:
        """Return the costs of all kernels on a network."""
        return {
            family: {proto: self.law.costs(network, family, proto, self.logs) for proto in protocols}
            for family, protocols in self.law.starts.items()
        }

    def constants(self, network: str) -> list[Constant]:
        """Return the constants of a network with the ends of their 90 % intervals."""
        found: dict[str, Constant] = {}
        for family, protocols in self.law.starts.items():
            for proto in protocols:
                of_key = self.law.places(network, family, proto)
                for key, places in of_key.items():
                    if key in ADDED:
                        continue
                    later = [of_key[each] for each in ADDED if each in of_key and key == "message_overhead_s"]
                    added = [places, *later]
                    word = key.removesuffix("_Bps").removesuffix("_s")
                    name = f"{family}.{word}" if key == "link_share" else f"{family}.{proto}.{word}"
                    found[name] = self._constant(name, added, most_of(network, key))
        return list(found.values())

    def _constant(self, name: str, added: Sequence[Sequence[int]], most: float) -> Constant:
        """Return a constant: products of terms, by their places, *added* up."""
        terms = list(self.law.terms.values())
        parts = np.array([math.exp(self.logs[list(places)].sum()) for places in added])
        start = math.fsum(math.exp(sum(terms[place].start for place in places)) for places in added)
        slopes = np.zeros(len(terms))
        for places, share in zip(added, parts / parts.sum(), strict=True):
            slopes[list(places)] += share
        before = float(np.linalg.norm(slopes * [term.spread for term in terms]))
        deviation = min(math.sqrt(slopes @ self.covariance @ slopes), before)
        value = min(float(parts.sum()), most)
        reach = math.exp(NORMAL_90 * deviation)
        return Constant("stream", name, start, value, value / reach, min(value * reach, most), deviation < before / 2)


def few(seen: Sequence[Seen], most: int) -> list[Seen]:
    """Return at most so many rows of each site, of all kernels and sizes: more of one are much alike."""
    sites: dict[str, list[Seen]] = defaultdict(list)
    for entry in seen:
        sites[entry.site].append(entry)
    kept: list[Seen] = []
    for rows in sites.values():
        rows.sort(key=lambda one: (one.row.family, one.row.proto, *one.row.group, one.row.row.case.size_bytes))
        kept += rows[:: -(-len(rows) // most)]
    return kept


def time_s(row: Observation, costs: Protocol) -> float:
    """Return the time of a row with such costs between nodes."""
    profile = row.run.profile
    return call_time_s(row.device_s(costs), profile.floor_s, row.wait_s(profile))


def _residual(law: Law, entry: Seen, logs: Floats, moved: str = "") -> float:
    costs = law.costs(entry.network, entry.row.family, entry.row.proto, logs, moved)
    return math.log(time_s(entry.row, costs) / entry.row.time_s)


def _residuals(law: Law, seen: Sequence[Seen], logs: Floats) -> Floats:
    return np.array([_residual(law, entry, logs) for entry in seen])


def _slopes(law: Law, seen: Sequence[Seen], logs: Floats, residuals: Floats) -> Floats:
    """Return float64[n, p]: derivatives of the residuals by the terms."""
    table = np.zeros((len(seen), len(logs)))
    for line, (entry, here) in enumerate(zip(seen, residuals.tolist(), strict=True)):
        for key, places in law.places(entry.network, entry.row.family, entry.row.proto).items():
            table[line, places] += (here - _residual(law, entry, logs, key)) / STEP
    return table


class _Prior(NamedTuple):
    start: Floats
    spread: Floats
    most: Floats


def _solved(near: tuple[Floats, Floats, Floats], logs: Floats, prior: _Prior) -> tuple[Floats, Floats]:
    """Return the step to the least loss of a problem taken as linear, and the Hessian there.

    *near* are residuals, slopes and weights of sites.
    """
    residuals, slopes, sites = near
    step: Floats = np.zeros(len(logs))
    for _ in range(30):
        errors = residuals + slopes @ step
        weights = sites / (1 + (errors / NOISE) ** 2) ** POWER / NOISE**2
        hessian = slopes.T @ (slopes * weights[:, None]) + np.diag(prior.spread**-2)
        pull = slopes.T @ (weights * residuals) + (logs - prior.start) / prior.spread**2
        before, step = step, np.asarray(-np.linalg.solve(hessian, pull), dtype=np.float64)
        if np.abs(step - before).max() < 1e-4:
            break
    return step, hessian


def _loss(residuals: Floats, sites: Floats, logs: Floats, prior: _Prior) -> float:
    rows = ((1 + (residuals / NOISE) ** 2) ** (1 - POWER) - 1) / (1 - POWER)
    return float((sites * rows).sum() + (((logs - prior.start) / prior.spread) ** 2).sum())


def _site_weights(seen: Sequence[Seen]) -> Floats:
    counts = Counter(entry.site for entry in seen)
    weights = np.array([counts[entry.site] ** SITE_POWER for entry in seen])
    return np.asarray(weights / weights.mean())


def fit_jointly(law: Law, seen: Sequence[Seen], begin: Floats | None = None, rounds: int = MOST_ROUNDS) -> Joint:
    """Return the fit of a law to rows of many sites, from logarithms to *begin* with on; None: as before any log."""
    law.all_places()
    best: tuple[Any, Any, Any] = (np.zeros(0), np.zeros(0), np.zeros(0))
    prior = _Prior(*(np.array(column) for column in zip(*law.terms.values(), strict=True)))
    logs: Any = prior.start.copy() if begin is None else begin
    sites, least = _site_weights(seen), math.inf
    for _ in range(rounds):
        residuals = _residuals(law, seen, logs)
        loss = _loss(residuals, sites, logs, prior)
        if loss > least:  # too far: half of the way
            logs = (logs + best[0]) / 2
            continue
        best = logs, residuals, _slopes(law, seen, logs, residuals)
        if loss > ENOUGH * least:
            break
        least = loss
        step, _ = _solved((best[1], best[2], sites), logs, prior)
        logs = np.minimum(logs + np.clip(step, -LONGEST, LONGEST), prior.most)
    logs, residuals, slopes = best
    _, hessian = _solved((residuals, slopes, sites), logs, prior)
    return Joint(law, logs, np.asarray(np.linalg.inv(hessian), dtype=np.float64), tuple(seen), residuals, slopes)


def begin_near(law: Law, found: Joint) -> Floats:
    """Return logarithms for the fit of a law to begin with: those of a like law, where that has the terms."""
    law.all_places()
    known = dict(zip(found.law.terms, found.logs.tolist(), strict=True))
    of_all = {name: known.get(name.partition(".")[2], term.start) for name, term in law.terms.items()}
    return np.array([known.get(name, of_all[name]) for name in law.terms])


def left_out_s(found: Joint, rounds: int = LEFT_OUT_ROUNDS) -> Floats:
    """Return float64[n]: times of the rows of a fit, each predicted by one without its site.

    That begins where a step on the linear problem leads, and ends there if it has no *rounds*. Further steps take
    residuals anew and slopes as of the whole fit, which is near.
    """
    times = np.full(len(found.seen), np.nan)
    for site in dict.fromkeys(entry.site for entry in found.seen):
        left_out = [entry.site == site for entry in found.seen]
        times[left_out] = without_s(found, left_out, rounds)[left_out]
    return times


def without_s(found: Joint, left_out: Sequence[bool], rounds: int = LEFT_OUT_ROUNDS) -> Floats:
    """Return float64[n]: times of the rows of a fit without those *left_out*; NaN at sites that keep all of theirs.

    That fit begins and ends as those of `left_out_s`.
    """
    law, seen, kept = found.law, found.seen, ~np.array(left_out)
    prior = _Prior(*(np.array(column) for column in zip(*law.terms.values(), strict=True)))
    weights, rest = _site_weights(seen)[kept], [entry for entry, its in zip(seen, kept, strict=True) if its]
    logs, residuals, slopes = found.logs, found.residuals[kept], found.slopes[kept]
    least = math.inf
    for turn in range(rounds + 1):
        step, _ = _solved((residuals, slopes, weights), logs, prior)
        nearer = np.minimum(logs + np.clip(step, -LONGEST, LONGEST), prior.most)
        if turn == rounds:
            logs = nearer
            break
        there = _residuals(law, rest, nearer)
        loss = _loss(there, weights, nearer, prior)
        if loss > least:
            break
        logs, residuals = nearer, there
        if loss > ENOUGH * least:
            break
        least = loss
    sites = {entry.site for entry, its in zip(seen, kept, strict=True) if not its}
    times = np.full(len(seen), np.nan)
    for line, entry in enumerate(seen):
        if entry.site in sites:
            times[line] = time_s(entry.row, law.costs(entry.network, entry.row.family, entry.row.proto, logs))
    return times
