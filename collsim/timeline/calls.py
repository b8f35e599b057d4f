"""Collectives of a step by the model: how long each takes as it was recorded, and as it would be elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from collsim.core.errors import CollsimError
from collsim.timeline.places import Place
from collsim.timeline.trace import Call

__all__ = ["Machine", "Prediction", "Predictor", "predict", "recorded_environment"]

ONE_CHANNEL = {
    "NCCL_MAX_NCHANNELS": "1",
    "NCCL_MAX_P2P_NCHANNELS": "1",
    "NCCL_NVLS_ENABLE": "0",
}
MOST_SPARE = 4.0
LINKS_BIND = 1.4
"""From so much spare of the channels on, they no longer bind: in the runs below they did at 16 channels (1.2), not at
24."""
CARRIED = 0.5
"""From so much of the capacity of links on, two collectives at once gain nothing: each leaves gaps that the other does
not fill. Fitted to own runs of two at once of 16 and 64 MiB on four H100, of which 8 of 12 come out within 10 %."""
IN_PLACE = {"all_gather": 0.76, "reduce_scatter": 0.83}
"""Where channels bind, what two ranks take over the model's time: frameworks gather in place, so that no rank copies
its own part as in the runs that profiles were fitted to; scattering, ranks do not either. Fitted to own runs on two
H200, tools/data/timeline/channels.csv; with more ranks, own parts are a smaller share."""
OWN_PART = 1.45
"""How many times longer a message of an all-to-all takes if the channel copies the own part too, which halves the warps
of each. Fitted to the same runs; on more ranks, the logs that profiles were fitted to hold it."""
P2P = ("all_to_all", "send_recv", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where collectives run.

    Attributes
    ----------
    topology : str
        A name of the zoo or a file.
    environment : mapping
        Variables of the library.
    options : mapping
        Further arguments of `collsim.simulation.simulate.simulate`.
    ranks : dict of int to int
        Numbers of ranks of groups that differ from those of the trace, by the latter.
    groups : mapping of str to Place
        Where groups lie that are no neighbours, by their names.
    members : mapping of str to int
        Numbers of ranks of such groups, where they differ from those of the trace.
    world : int
        Ranks of the job; 0 if that is not known.
    """

    topology: str
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    ranks: Mapping[int, int] = field(default_factory=dict)
    groups: Mapping[str, Place] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    world: int = 0

    def place_of(self, call: Call) -> Place:
        """Return where the group of a collective lies; neighbours, if that is not known."""
        return self.groups.get(call.group, Place())

    def ranks_of(self, call: Call) -> int:
        """Return how many ranks take part in a collective; in a message, two."""
        if call.group in self.members and call.op != "send_recv":
            return self.members[call.group]
        return call.ranks if call.group in self.groups else self.ranks.get(call.ranks, call.ranks)

    def but(self, **environment: str) -> Machine:
        """Return the same with other variables."""
        return replace(self, environment={**self.environment, **environment})

    def also(self, **options: Any) -> Machine:
        """Return the same with further arguments."""
        return replace(self, options={**self.options, **options})


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a collective.

    Attributes
    ----------
    time_s, lo_s, hi_s : float
        Time, and the interval of it.
    channels : int
        That the library uses.
    spare : float
        What its channels could carry over what they do: 1 if only they bind, more if links do.
    link : str
        The link that is loaded most.
    utilisation : float
        Of its capacity, over the time.
    """

    time_s: float
    channels: int
    spare: float
    algo: str
    link: str
    lo_s: float
    hi_s: float
    utilisation: float = 1.0

    @property
    def by_links(self) -> float:
        """How far links bind it: 0 if only its channels do, 1 if only links."""
        return min((self.spare - 1) / (LINKS_BIND - 1), 1.0)

    @property
    def kind(self) -> str:
        """Kind of the link that is loaded most: where it leads to, without its number."""
        return re.sub(r"\d+", "", self.link.partition("->")[2] or self.link) or "links"

    @property
    def load(self) -> float:
        """Part that it takes, alone, of what such links carry for the library: all where links bind."""
        return min(1.0, self.utilisation / CARRIED)


def predict(call: Call, machine: Machine, on_one_s: dict[Call, float] | None = None) -> Prediction:
    """Predict a collective; *on_one_s* holds what is known of times on one channel, and gets this one.

    Raises
    ------
    CollsimError
        As of `collsim.simulation.simulate.simulate`.
    """
    row = _row(call, machine)
    channels = max(int(row.channels or 1), 1)
    spare = 1.0
    if channels > 1:
        try:
            known_s = {} if on_one_s is None else on_one_s
            if call not in known_s:
                known_s[call] = float(_row(call, machine.but(**ONE_CHANNEL)).time_s)
            alone_s = known_s[call]
            ranks = machine.ranks_of(call)
            share = (ranks - 1) / ranks if call.op in P2P else 1.0
            spare = min(max(float(row.time_s) * channels * share / alone_s, 1.0), MOST_SPARE)
        except CollsimError:
            spare = 1.0
    busiest = row.bottleneck[0] if row.bottleneck else None
    link, used = (busiest.link, float(busiest.utilisation)) if busiest else ("", 1.0)
    times_s = (row.time_s, row.time_lo_s or row.time_s, row.time_hi_s or row.time_s)
    found = Prediction(float(times_s[0]), channels, spare, row.algo, link, float(times_s[1]), float(times_s[2]), used)
    share = _as_called(call, found, machine.ranks_of(call))
    return replace(found, time_s=found.time_s * share, lo_s=found.lo_s * share, hi_s=found.hi_s * share)


def _as_called(call: Call, told: Prediction, ranks: int) -> float:
    """Return what a collective takes as frameworks call it, over what it takes as benchmarks do."""
    share = 1 - (1 - IN_PLACE.get(call.op, 1.0)) * (1 - told.by_links) * 2 / max(ranks, 2)
    if call.op == "all_to_all" and ranks == 2:
        from collsim.schedule.message_parts import n_parts

        share *= OWN_PART if told.channels < 2 * n_parts(call.size_bytes // 2, 2, told.channels) else 1.0
    return share


def _row(call: Call, machine: Machine) -> Any:
    from collsim.simulation.simulate import simulate

    found = simulate(
        machine.topology,
        call.op,
        call.size_bytes,
        dtype=call.dtype or "uint8",
        environment=dict(machine.environment),
        **{**machine.options, **machine.place_of(call).options(machine.ranks_of(call))},
    )
    return found.rows[0]


class Predictor:
    """Predictions of one machine, each made once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[Call, Prediction] = {}
        self._on_one_s: dict[Call, float] = {}

    def with_channels(self, **environment: str | None) -> Predictor:
        """Return the same with other variables of those that `ONE_CHANNEL` names; None leaves one out."""
        told = {**self.machine.environment, **environment}
        kept = {name: value for name, value in told.items() if value is not None}
        found = Predictor(replace(self.machine, environment=kept))
        found._on_one_s = self._on_one_s  # on one channel both are the same
        return found

    def of(self, call: Call) -> Prediction:
        """Return the prediction of a collective; one of no bytes, or of one rank, takes no time."""
        if call.size_bytes == 0 or self.machine.ranks_of(call) == 1:
            return Prediction(0.0, 1, 1.0, "", "", 0.0, 0.0)
        if call not in self._known:
            self._known[call] = predict(call, self.machine, self._on_one_s)
        return self._known[call]

    def moved_s(self, call: Call, work_s: float, other: Predictor) -> float:
        """Return how long a collective that takes *work_s* here takes on another machine.

        That is the model's time there, times what it took here over the model's time here. Of this the half carries
        over if links bind on one of both and channels on the other: it may be due to what no longer binds.
        """
        if other.machine.ranks_of(call) == 1:
            return 0.0
        before_s, after_s = self.of(call).time_s, other.of(call).time_s
        if before_s <= 0 or after_s <= 0:
            return work_s
        carried = 1 - abs(self.of(call).by_links - other.of(call).by_links) / 2
        return after_s * float((work_s / before_s) ** carried)


def recorded_environment(machine: Machine, grids: Mapping[Call, int]) -> dict[str, str]:
    """Return the variables with which the library uses as many channels as a trace shows.

    Those are none, NVLS off, or a limit of the channels as well. Collectives count by their bytes.
    """
    if not grids:
        return {}
    largest = max(grids, key=lambda call: call.size_bytes)
    most = str(max(grids.values()))
    limit = {"NCCL_MAX_NCHANNELS": most}
    candidates: list[dict[str, str]] = [{}, {"NCCL_NVLS_ENABLE": "0"}, {"NCCL_NVLS_ENABLE": "0", **limit}]
    for environment in candidates:
        try:
            found = _row(largest, machine.but(**environment))
        except CollsimError:
            continue
        if int(found.channels or 0) == grids[largest]:
            return environment
    try:
        found = _row(largest, machine)
    except CollsimError:  # the model has no such collective
        return {}
    return {"NCCL_NVLS_ENABLE": "0"} if int(found.channels or 0) < int(most) else candidates[-1]
