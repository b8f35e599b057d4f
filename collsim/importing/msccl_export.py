"""Schedules as algorithms of MSCCL in XML: thread blocks of one connection each, whose steps wait for their data.

A step waits for what was written where it reads, for what was read and written where it writes, and for what its
transfer waits for in the schedule. Adds to one place that nothing puts in order are received beside each other and
added then, so that none waits for another to arrive. What is written is read again and carried out, so that a file does
what its collective promises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collsim.core.errors import Fault, UnsupportedError, VerificationError
from collsim.importing.msccl import OPERATIONS, read_msccl
from collsim.importing.msccl_schedules import schedule_of
from collsim.schedule import EVERY, Schedule, verify
from collsim.schedule.forms import Transfers
from collsim.schedule.verifier import dependency_order

__all__ = ["schedule_xml", "unstated"]

NAMES = {op: name for name, op in OPERATIONS.items() if name != "reducescatter"}
UNEVEN = 1.01
"""Chunks whose sizes differ by more than rounding: MSCCL cuts a buffer into equal ones (chosen)."""
Place = tuple[str, int]
Step = tuple[int, int]
Key = tuple[int, str, int]
"""Of a thread block: its peer, what it does and its channel."""
ADDS = ("rrc", "re")


class _Line(NamedTuple):
    """A step: its kind, where it reads and writes, how many chunks, and the step of another block that it waits for."""

    kind: str
    source: Place
    target: Place
    chunks: int
    waits_for: Step | None


@dataclass(slots=True)
class _Gpu:
    """A GPU: blocks, numbered by peer, way and channel, with the last steps that touched each place."""

    numbers: dict[Key, int] = field(default_factory=dict)
    blocks: list[list[_Line]] = field(default_factory=list)
    written: dict[Place, Step] = field(default_factory=dict)
    read: dict[Place, set[Step]] = field(default_factory=lambda: defaultdict(set))
    scratch: dict[int, Place] = field(default_factory=dict)
    beside: int = 0
    """Places of scratch for what is received before it is added."""

    def add(
        self, key: Key, kind: str, places: tuple[list[Place], list[Place]], after: Collection[Step] = ()
    ) -> Step:  # fmt: skip
        """Add a step that reads and writes places of this GPU (none: those of another), after all that it has to."""
        number = self._number_of(key)
        lines = self.blocks[number]
        reads, writes = ([] if kind == "r" else places[0]), ([] if kind == "s" else places[1])
        waits = {self.written[place] for place in (*reads, *writes) if place in self.written} | {*after}
        waits |= {step for place in writes for step in self.read[place]}
        last: dict[int, int] = {}
        for block, step in waits:
            if block != number:
                last[block] = max(last.get(block, -1), step)
        waited = sorted(last.items())
        lines += [_Line("nop", ("i", -1), ("i", -1), 0, each) for each in waited[:-1]]
        lines.append(_Line(kind, places[0][0], places[1][0], len(places[0]), waited[-1] if waited else None))
        own = number, len(lines) - 1
        for place in reads:
            self.read[place].add(own)
        for place in writes:
            self.written[place] = own
            self.read[place] = set()
        return own

    def take(self, key: Key, places: list[Place], after: Collection[Step], *, adds: bool) -> Step:
        """Add the step that receives into places; return the one after which they hold what arrived.

        What is added where something else was added or read meanwhile goes beside it first.
        """
        if not adds:
            return self.add(key, "r", (places, places), after)
        number = self._number_of(key)
        touched = {step for place in places for step in (*self.read[place], *self._last_add(place))}
        if all(block == number for block, _ in touched):
            return self.add(key, "rrc", (places, places), after)
        beside: list[Place] = [("s", len(self.scratch) + self.beside + k) for k in range(len(places))]
        self.beside += len(beside)
        self.add(key, "r", (beside, beside), after)
        return self.add((-1, "re", key[2]), "re", (beside, places))

    def _number_of(self, key: Key) -> int:
        """Return the number of a block, which is begun if it is new."""
        if key not in self.numbers:
            self.numbers[key] = len(self.blocks)
            self.blocks.append([])
        return self.numbers[key]

    def _last_add(self, place: Place) -> Iterator[Step]:
        """Yield the step that last wrote a place, if it added."""
        if place in self.written:
            block, step = self.written[place]
            if self.blocks[block][step].kind in ADDS:
                yield block, step


def schedule_xml(schedule: Schedule) -> str:
    """Return a schedule as an algorithm of MSCCL.

    Raises
    ------
    UnsupportedError
        MSCCL has no such operation, no multicast, only equal chunks, or the schedule needs an order it cannot tell.

    Examples
    --------
    >>> from collsim.importing import import_schedule
    >>> text = schedule_xml(import_schedule("examples/imports/msccl_ring.xml", "1M"))
    >>> text.partition(" nchannels")[0]
    '<algo name="my_ring" proto="LL128"'
    """
    transfers = schedule.materialise()
    _refuse(schedule, transfers)
    layout = _Layout(schedule)
    gpus = [_Gpu() for _ in range(schedule.n_ranks)]
    if schedule.op == "all_to_all":
        for rank, gpu in enumerate(gpus):
            own = [("o", rank * layout.per_rank + k) for k in range(layout.per_rank)]
            gpu.add((-1, "cpy", 0), "cpy", ([("i", place) for _, place in own], own))
    steps = _Steps({}, {})
    for together in _by_depth(transfers):
        _add_steps(transfers, together, layout, gpus, steps)
    text = _text(schedule, layout, gpus, int(transfers.channel.max(initial=0)) + 1)
    try:
        verify(schedule_of(read_msccl(text.encode(), "written"), schedule.size_bytes))
    except VerificationError as error:
        what = f"{schedule.algo} keeps its input apart from what it works on: {error.faults[0].what}"
        raise UnsupportedError(Fault(what, "output", "write .json, or take another algorithm")) from None
    return text


class _Steps(NamedTuple):
    """Of each transfer the step that sends last, and the one after which it has arrived."""

    sent: dict[int, Step]
    taken: dict[int, Step]


def _add_steps(
    transfers: Transfers, together: Sequence[int], layout: _Layout, gpus: Sequence[_Gpu], steps: _Steps
) -> None:
    """Add the steps of transfers of which none waits for another: what is sent is read before anything arrives."""
    arriving = []
    for i in together:
        src, dst, channel = int(transfers.src[i]), int(transfers.dst[i]), int(transfers.channel[i])
        chunks = sorted(transfers.chunk[transfers.chunk_ptr[i] : transfers.chunk_ptr[i + 1]].tolist())
        before, late = _waits(transfers, i, steps.sent, steps.taken)
        for run in _runs([(layout.place(gpus[src], src, c), layout.place(gpus[dst], dst, c)) for c in chunks]):
            here, there = ([pair[side] for pair in run] for side in (0, 1))
            steps.sent[i] = gpus[src].add((dst, "send", channel), "s", (here, there), before)
            arriving.append((i, there, late))
    for i, there, late in arriving:
        key = int(transfers.src[i]), "recv", int(transfers.channel[i])
        steps.taken[i] = gpus[transfers.dst[i]].take(key, there, late, adds=bool(transfers.reduces[i]))


def _by_depth(transfers: Transfers) -> list[list[int]]:
    """Return the numbers of transfers that carry something by how long a chain of others they wait for.

    So the steps of an algorithm come out in one order, in whatever order its transfers are listed.
    """
    order, _ = dependency_order(transfers)
    ptr, deps, chunk_ptr = transfers.dep_ptr.tolist(), transfers.dep.tolist(), transfers.chunk_ptr.tolist()
    depth, found = [0] * len(order), defaultdict[int, list[int]](list)
    for i in order:
        depth[i] = 1 + max((depth[dep] for dep in deps[ptr[i] : ptr[i + 1]]), default=-1)
        if chunk_ptr[i + 1] > chunk_ptr[i]:
            found[depth[i]].append(i)
    return [found[level] for level in sorted(found)]


def unstated(schedule: Schedule, text: str) -> list[str]:
    """Return what a schedule has that its algorithm of MSCCL, *text*, does not state.

    That is channels that share a transfer, and transfers of chunks that do not lie side by side.
    """
    transfers = schedule.materialise()
    lanes, sends = int(transfers.lanes.max(initial=1)), int(np.count_nonzero(np.diff(transfers.chunk_ptr)))
    steps, told = text.count('type="s"'), []
    if lanes > 1:
        what = f"{lanes} channels share each transfer of {schedule.algo}, and a thread block of MSCCL is on one channel"
        told.append(f"{what}: run from the XML it takes longer where a channel limits")
    if steps > sends:
        what = f"{sends} transfers of {schedule.algo} are {steps} sends of MSCCL, of chunks that lie side by side"
        told.append(f"{what}: run from the XML it takes longer where messages limit")
    return told


def _refuse(schedule: Schedule, transfers: Transfers) -> None:
    """Raise what MSCCL cannot say."""
    sizes, hint = schedule.chunks.size_bytes, "write .json, or take another algorithm"
    if schedule.op not in NAMES:
        known = f"it has {', '.join(NAMES)}; write .json"
        raise UnsupportedError(Fault(f"MSCCL has no {schedule.op}", "output", known))
    if (transfers.src == EVERY).any() or (transfers.dst == EVERY).any():
        raise UnsupportedError(Fault(f"{schedule.algo} lets switches add and copy, MSCCL none", "output", hint))
    if sizes.max() > UNEVEN * sizes.min():
        what = f"chunks have {sizes.min()} to {sizes.max()} bytes, and those of MSCCL are equal"
        raise UnsupportedError(Fault(what, "output", "give a size that divides, fewer --channels or another --chunk"))


class _Layout:
    """Where each chunk stands in the buffers of each rank; MSCCL numbers chunks along the buffer."""

    def __init__(self, schedule: Schedule) -> None:
        self.op, n = schedule.op, schedule.n_ranks
        self.source, self.target = schedule.chunks.source.tolist(), schedule.chunks.target.tolist()
        owner = {"all_gather": self.source, "reduce_scatter": self.target}.get(self.op, [0] * len(self.source))
        if self.op == "all_to_all":
            owner = [a * n + b for a, b in zip(self.source, self.target, strict=True)]
        seen: dict[int, int] = defaultdict(int)
        self.within = []
        for each in owner:
            self.within.append(seen[each])
            seen[each] += 1
        self.owner, self.per_rank = owner, max(seen.values())
        if len(set(seen.values())) > 1:
            raise UnsupportedError(Fault("ranks have different numbers of chunks", "output", "write .json"))
        self.n_chunks = self.per_rank if self.op == "all_reduce" else self.per_rank * n

    def place(self, gpu: _Gpu, rank: int, chunk: int) -> Place:
        """Return where a rank has a chunk."""
        k = self.within[chunk]
        if self.op != "all_to_all":
            return ("o" if self.op == "all_gather" else "i", self.owner[chunk] * self.per_rank + k)
        if rank == self.source[chunk]:
            return "i", self.target[chunk] * self.per_rank + k
        if rank == self.target[chunk]:
            return "o", self.source[chunk] * self.per_rank + k
        return gpu.scratch.setdefault(chunk, ("s", len(gpu.scratch)))


def _waits(
    transfers: Transfers, number: int, sent: dict[int, Step], taken: dict[int, Step]
) -> tuple[set[Step], set[Step]]:
    """Return the steps for which the sender and the receiver of a transfer wait: ends of those that it depends on."""
    src, dst = transfers.src[number], transfers.dst[number]
    before, late, left = set[Step](), set[Step](), [number]
    while left:
        each = left.pop()
        for dep in transfers.dep[transfers.dep_ptr[each] : transfers.dep_ptr[each + 1]].tolist():
            if dep not in sent:  # it carries nothing
                left.append(dep)
            elif transfers.dst[dep] == src:
                before.add(taken[dep])
            elif transfers.src[dep] == src:
                before.add(sent[dep])
            elif transfers.dst[dep] == dst:
                late.add(taken[dep])
            elif transfers.src[dep] == dst:
                late.add(sent[dep])
    return before, late


def _runs(pairs: Sequence[tuple[Place, Place]]) -> Iterator[list[tuple[Place, Place]]]:
    """Yield pairs of places that follow each other on both sides."""
    run: list[tuple[Place, Place]] = []
    for pair in pairs:
        if run and any(each != (last[0], last[1] + 1) for each, last in zip(pair, run[-1], strict=True)):
            yield run
            run = []
        run.append(pair)
    yield run


def _text(schedule: Schedule, layout: _Layout, gpus: Sequence[_Gpu], channels: int) -> str:
    """Return the file."""
    in_place = int(schedule.op != "all_to_all")
    proto, n = schedule.parameters.get("proto", "Simple"), schedule.n_ranks
    lines = [
        f'<algo name="{schedule.algo}" proto="{proto}" nchannels="{channels}" nchunksperloop="{layout.n_chunks}" '
        f'ngpus="{n}" coll="{NAMES[schedule.op]}" inplace="{in_place}" outofplace="{1 - in_place}" minBytes="0">'
    ]
    for rank, gpu in enumerate(gpus):
        needed = {line.waits_for for block in gpu.blocks for line in block if line.waits_for}
        counts = f'i_chunks="{layout.n_chunks}" o_chunks="{layout.n_chunks}" s_chunks="{len(gpu.scratch) + gpu.beside}"'
        lines.append(f'  <gpu id="{rank}" {counts}>')
        for ((peer, way, channel), number), block in zip(gpu.numbers.items(), gpu.blocks, strict=True):
            send, recv = (peer if way == each else -1 for each in ("send", "recv"))
            lines.append(f'    <tb id="{number}" send="{send}" recv="{recv}" chan="{channel}">')
            for s, line in enumerate(block):
                block_id, step = line.waits_for or (-1, -1)
                lines.append(
                    f'      <step s="{s}" type="{line.kind}" srcbuf="{line.source[0]}" srcoff="{line.source[1]}" '
                    f'dstbuf="{line.target[0]}" dstoff="{line.target[1]}" cnt="{line.chunks}" depid="{block_id}" '
                    f'deps="{step}" hasdep="{int((number, s) in needed)}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])
