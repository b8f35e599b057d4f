"""Algorithms of MSCCL as schedules: the program is carried out once, with names of chunks instead of data.

That proves that every buffer ends with what the collective promises, and it gives the transfers with their order.
Chunks pass steps that receive and send at once in pieces; that the kernel repeats the whole program for buffers longer
than its slots is not modelled.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collsim.core.errors import Fault, InputError, SpecError, VerificationError
from collsim.core.input_files import beside, name_of_input, narrowed, read_input_or_stdin
from collsim.core.operations import operation
from collsim.core.units import parse_size_bytes
from collsim.importing.msccl import MOST_BYTES, RECEIVES, SENDS, Block, Program, Step, read_msccl
from collsim.schedule import EVERY, ChunksBuilder, Schedule, TransfersBuilder, find_faults, split_bytes, verify
from collsim.topology.files.foreign import format_of

__all__ = ["import_schedule", "schedule_of"]

MOST_SIZE_BYTES = 1 << 50
"""Of a whole collective (chosen): far beyond the memory of any GPU."""

ADDS = ("rrc", "rrs", "rrcs")
STORES = ("r", "rcs", "rrc", "rrcs")
FUSED = ("rcs", "rrs", "rrcs")
SUMS = ("all_reduce", "reduce_scatter")
MOST_PIECES = {"Simple": 2, "LL": 8}
"""Pieces of a chunk in a step that receives and sends: two slices with Simple (NCCL src/include/collectives.h,
ALLREDUCE_SLICESTEPS and CHUNKSTEPS), line by line with LL and LL128, for which eight stand (chosen)."""
LEAST_PIECE_BYTES = 32768
"""Smaller pieces gain less than the latency of each (chosen)."""
MOST_FAULTS = 40
GRAIN_BYTES = 4
"""Chunks are not cut within an element of 4 bytes, that of nccl-tests' default type."""


def import_schedule(file: str | Path, size: str | int = "1M") -> Schedule:
    """Return the algorithm of MSCCL in a file as a schedule of one size, after proving that it is right.

    Parameters
    ----------
    file : str or Path
        ``-`` is stdin.
    size : str or int
        The size column of nccl-tests, which is rounded as there.

    Raises
    ------
    SpecError
        With every fault of the file.
    VerificationError
        The algorithm does not do what its collective promises.

    Examples
    --------
    >>> schedule = import_schedule("examples/imports/msccl_ring.xml", "1M")
    >>> schedule.op, schedule.n_ranks, schedule.n_transfers
    ('all_reduce', 4, 24)
    """
    try:
        content = narrowed(read_input_or_stdin(file, MOST_BYTES))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", str(file), f"{beside(file)}check the path")) from None
    form, name = format_of(content), name_of_input(file)
    if form is not None and form.key != "msccl":
        raise SpecError(Fault(f"this is {form.name}, no algorithm of MSCCL", name, form.hint.replace("{file}", name)))
    if not content.lstrip().startswith(b"<"):
        what = "this is no XML" if content.strip() else "the file is empty"
        raise SpecError(Fault(what, name, "give an algorithm of MSCCL: <algo ...> with a <gpu> for each rank"))
    program = read_msccl(content, name)
    size_bytes = size if isinstance(size, int) else parse_size_bytes(size, "size")
    if not 0 < size_bytes <= MOST_SIZE_BYTES:
        raise SpecError(Fault(f"a size of {size_bytes} bytes", "size", f"give 1 to {MOST_SIZE_BYTES}, such as 64M"))
    built = schedule_of(program, size_bytes)
    verify(built)
    return built


class _Cell(NamedTuple):
    """What a place of a buffer holds: a chunk, whose contributions of it, and the transfer that brought it.

    *origin* is -1 for what was there at the start, -2 for a sum.
    """

    chunk: int
    parts: frozenset[int]
    origin: int


START, SUM = -1, -2


@dataclass(slots=True)
class _Transfer:
    """A transfer under way to a schedule."""

    src: int
    dst: int
    chunks: tuple[int, ...]
    deps: set[int]
    channel: int
    reads_input: bool
    reduces: bool = False
    late: set[int] = field(default_factory=set)
    """Transfers for which the receiver waits before it takes this one."""
    meets: set[int] = field(default_factory=set)
    """Transfers for which the receiver waits before it sends something just before it takes this one."""


class _Machine:
    """The program carried out once, with names of chunks instead of data."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.transfers: list[_Transfer] = []
        self.queues: dict[tuple[int, int, int], deque[tuple[int, tuple[_Cell, ...]]]] = defaultdict(deque)
        self.done: dict[tuple[int, int, int], frozenset[int]] = {}
        self.memory: list[dict[tuple[str, int], _Cell]] = [self._input(rank) for rank in range(program.n_ranks)]
        self.faults: list[Fault] = []

    def _input(self, rank: int) -> dict[tuple[str, int], _Cell]:
        """Return what a rank has at the start, by place."""
        program, size = self.program, self.program.per_rank
        own = frozenset((rank,))
        if program.op == "all_gather":
            cells = {("i", j): _Cell(rank * size + j, own, START) for j in range(size)}
        elif program.op == "all_to_all":
            first = rank * program.n_ranks * size
            cells = {("i", j): _Cell(first + j, own, START) for j in range(program.n_ranks * size)}
        else:
            cells = {("i", j): _Cell(j, own, START) for j in range(program.n_chunks)}
        return {self.place(rank, place): cell for place, cell in cells.items()}

    def place(self, rank: int, place: tuple[str, int]) -> tuple[str, int]:
        """Return the one name of a place: in place, input and output are one buffer."""
        buffer, offset = place
        if not self.program.in_place or buffer == "s":
            return place
        if self.program.op == "all_gather":
            return ("o", offset + rank * self.program.per_rank) if buffer == "i" else place
        if self.program.op == "reduce_scatter":
            return ("i", offset + rank * self.program.per_rank) if buffer == "o" else place
        return ("i", offset)

    def run(self) -> None:
        """Carry out all steps, or note where the program is stuck."""
        blocks = self.program.blocks
        counters = [0] * len(blocks)
        moved = True
        while moved and len(self.faults) < MOST_FAULTS:
            moved = False
            for index, block in enumerate(blocks):
                while counters[index] < len(block.steps) and self._step(block, counters[index]):
                    counters[index] += 1
                    moved = True
        stuck = [(block, counters[i]) for i, block in enumerate(blocks) if counters[i] < len(block.steps)]
        for block, number in stuck[:8] if not self.faults else []:
            step = block.steps[number]
            what = f"GPU {block.rank}, thread block {block.number} waits for ever at step {number} ({step.kind})"
            self.faults.append(Fault(what, step.where, "it waits for a send or a step that never comes"))

    def _step(self, block: Block, number: int) -> bool:
        """Carry out a step; return False if it has to wait."""
        step, rank = block.steps[number], block.rank
        before = self.done.get((rank, block.number, number - 1), frozenset())
        if step.waits_for is not None:
            if (rank, *step.waits_for) not in self.done:
                return False
            before |= self.done[rank, *step.waits_for]
        queue = self.queues[block.recv, rank, block.channel]
        if step.kind in RECEIVES and not queue:
            return False
        cells: tuple[_Cell, ...] = ()
        if step.kind in RECEIVES:
            transfer, cells = queue.popleft()
            if len(cells) != step.chunks:
                self._fault(
                    step, f"{step.chunks} chunks are received where {len(cells)} were sent", "the counts have to agree"
                )
                cells = (cells * step.chunks)[: step.chunks]
            self.transfers[transfer].late |= self._explicit(block, number)
            if number and block.steps[number - 1].kind in SENDS:
                for sent in self.done[rank, block.number, number - 1]:
                    self.transfers[transfer].meets |= self.transfers[sent].deps
            cells = self._received(step, rank, transfer, cells)
            before |= {transfer}
        elif step.kind in ("s", "cpy", "re"):
            cells = self._read(step, rank, step.source)
        if step.kind in ("re", "cpy"):
            self._local(step, rank, cells)
        if step.kind in SENDS and cells:
            before = frozenset((self._send(block, cells, before),))
        self.done[rank, block.number, number] = before
        return True

    def _explicit(self, block: Block, number: int) -> set[int]:
        """Return the transfers behind the waits of a step and of those before it that only wait."""
        found: set[int] = set()
        while True:
            waits = block.steps[number].waits_for
            if waits is not None:
                found |= self.done[block.rank, *waits]
            number -= 1
            if number < 0 or block.steps[number].kind != "nop":
                return found

    def _read(self, step: Step, rank: int, place: tuple[str, int]) -> tuple[_Cell, ...]:
        """Return what stands in some places; nothing, with a fault, if one is empty."""
        cells = []
        for each in step.places(place):
            cell = self.memory[rank].get(self.place(rank, each))
            if cell is None:
                what = f"GPU {rank} reads {each[0]}[{each[1]}], where nothing has arrived yet"
                self._fault(step, what, "wait for it with depid and deps")
                return ()
            cells.append(cell)
        return tuple(cells)

    def _received(self, step: Step, rank: int, transfer: int, cells: tuple[_Cell, ...]) -> tuple[_Cell, ...]:
        """Return received cells after adding what the step adds to them, stored if it stores them."""
        found = tuple(_Cell(cell.chunk, cell.parts, transfer) for cell in cells)
        if step.kind in ADDS:
            own = self._read(step, rank, step.source)
            self.transfers[transfer].reduces = True
            found = tuple(self._sum(step, a, b) for a, b in zip(found, own or found, strict=True)) if own else found
        if step.kind in STORES:
            for place, cell in zip(step.places(step.target), found, strict=True):
                self.memory[rank][self.place(rank, place)] = cell
        return found

    def _sum(self, step: Step, a: _Cell, b: _Cell) -> _Cell:
        """Return the sum of two cells; those that came as they are were meant to be added."""
        if a.chunk != b.chunk:
            self._fault(
                step, f"chunk {a.chunk} is added to chunk {b.chunk}", "both have to be of one place of the buffer"
            )
        elif a.parts & b.parts:
            twice = ", ".join(map(str, sorted(a.parts & b.parts)))
            self._fault(step, f"contributions of GPU {twice} are added twice to chunk {a.chunk}", "each counts once")
        for cell in (a, b):
            if cell.origin >= 0:
                self.transfers[cell.origin].reduces = True
        return _Cell(a.chunk, a.parts | b.parts, SUM)

    def _local(self, step: Step, rank: int, cells: tuple[_Cell, ...]) -> None:
        """Copy or add within a GPU."""
        for target, cell in zip(step.places(step.target), cells, strict=False):
            place = self.place(rank, target)
            there = self.memory[rank].get(place)
            if step.kind == "re" and there is None:
                self._fault(step, f"GPU {rank} adds to {target[0]}[{target[1]}], where nothing is", "copy first")
            self.memory[rank][place] = self._sum(step, cell, there) if step.kind == "re" and there else cell

    def _send(self, block: Block, cells: tuple[_Cell, ...], before: frozenset[int]) -> int:
        """Send cells and return the number of the transfer."""
        raw = all(cell.origin == START for cell in cells)
        chunks = tuple(cell.chunk for cell in cells)
        self.transfers.append(_Transfer(block.rank, block.send, chunks, {*before}, block.channel, raw))
        self.queues[block.rank, block.send, block.channel].append((len(self.transfers) - 1, cells))
        return len(self.transfers) - 1

    def _fault(self, step: Step, what: str, hint: str) -> None:
        self.faults.append(Fault(what, step.where, hint))

    def check(self) -> None:
        """Note every place of an output that does not hold what the collective promises."""
        program = self.program
        everyone = frozenset(range(program.n_ranks))
        for rank, memory in enumerate(self.memory):
            for offset, chunk in enumerate(self._promised(rank)):
                cell = memory.get(self.place(rank, ("o", offset)))
                what = ""
                if cell is None or cell.chunk != chunk:
                    holds = "nothing" if cell is None else f"chunk {cell.chunk}"
                    what = f"GPU {rank} ends with {holds} in o[{offset}], not with chunk {chunk}"
                elif program.op in SUMS and cell.parts != everyone:
                    lacks = ", ".join(map(str, sorted(everyone - cell.parts)))
                    what = f"GPU {rank} ends without the contributions of GPU {lacks} to chunk {chunk}"
                self.faults += [Fault(what, program.file)] * bool(what)
        for (source, target, channel), queue in self.queues.items():
            if queue:
                way = f"from GPU {source} to GPU {target} on channel {channel}"
                what = f"{len(queue)} messages {way} are never received"
                self.faults.append(Fault(what, program.file, "add a step that receives them"))

    def _promised(self, rank: int) -> list[int]:
        """Return the chunks that the output of a rank has to hold."""
        n, size = self.program.n_ranks, self.program.per_rank
        if self.program.op == "all_to_all":
            return [(source * n + rank) * size + j for source in range(n) for j in range(size)]
        if self.program.op == "reduce_scatter":
            return [rank * size + j for j in range(size)]
        return list(range(self.program.n_chunks))


def schedule_of(program: Program, size_bytes: int) -> Schedule:
    """Return an algorithm as a schedule of *size_bytes*, rounded as nccl-tests rounds them.

    Raises
    ------
    VerificationError
        The algorithm does not do what its collective promises; every place and step where it fails is named.
    InputError
        The size rounds down to nothing.
    """
    op = operation(program.op)
    rounded = op.rounded_size_bytes(size_bytes, program.n_ranks, GRAIN_BYTES)
    if rounded <= 0:
        what = f"{size_bytes} bytes round down to nothing on {program.n_ranks} ranks"
        least = next(
            size for size in itertools.count(1) if op.rounded_size_bytes(size, program.n_ranks, GRAIN_BYTES) > 0
        )
        raise InputError(Fault(what, "size", f"the smallest that works is {least}"))
    machine = _Machine(program)
    machine.run()
    if not machine.faults:
        machine.check()
    if machine.faults:
        raise VerificationError(*machine.faults[:MOST_FAULTS])
    sliced = _sliced(program, rounded)
    if sliced is not program:
        machine = _Machine(sliced)
        machine.run()
    return _scheduled(sliced, machine, rounded)


def _sliced(program: Program, size_bytes: int) -> Program:
    """Return the program with its chunks in pieces, which follow each other through steps that receive and send.

    Without such steps a step waits for whole chunks, and pieces change nothing.
    """
    fused = any(step.kind in FUSED for block in program.blocks for step in block.steps)
    most = MOST_PIECES["Simple" if program.proto == "Simple" else "LL"]
    chunk_bytes = size_bytes // (program.n_chunks * (program.n_ranks if program.op == "all_to_all" else 1))
    pieces = min(most, chunk_bytes // LEAST_PIECE_BYTES) if fused else 1
    if pieces < 2:
        return program
    blocks = tuple(replace(block, steps=tuple(_cut(block.steps, pieces))) for block in program.blocks)
    return replace(program, blocks=blocks, n_chunks=program.n_chunks * pieces)


def _cut(steps: Iterable[Step], pieces: int) -> Iterator[Step]:
    """Yield steps piece by piece: each place of a buffer becomes as many."""
    for step in steps:
        waits = None if step.waits_for is None else (step.waits_for[0], step.waits_for[1] * pieces + pieces - 1)
        for piece in range(pieces):
            ends = [(buffer, offset * pieces + piece) for buffer, offset in (step.source, step.target)]
            yield step._replace(source=ends[0], target=ends[1], waits_for=None if piece else waits, stride=pieces)


def _scheduled(program: Program, machine: _Machine, size_bytes: int) -> Schedule:
    """Return the transfers of a program as a schedule: with as little waiting as the verifier lets pass."""
    waits = ([each.deps | each.late for each in machine.transfers], [each.deps for each in machine.transfers])
    met = [each.deps | each.late | each.meets for each in machine.transfers]
    tries = [deps for deps in (*waits, met) if _is_acyclic(deps)]
    built = [_built(program, machine.transfers, deps, size_bytes) for deps in tries]
    return next((schedule for schedule in built if not find_faults(schedule)), built[0])


def _built(program: Program, transfers: list[_Transfer], deps: list[set[int]], size_bytes: int) -> Schedule:
    """Return the schedule of transfers that wait for *deps*."""
    rows = TransfersBuilder()
    for transfer, waits, round_of in zip(transfers, deps, _rounds(deps), strict=True):
        rows.add(
            transfer.src,
            transfer.dst,
            list(dict.fromkeys(transfer.chunks)),
            waits,
            channel=transfer.channel,
            step=round_of,
            reduces=transfer.reduces,
            reads_input=transfer.reads_input,
        )
    parameters: dict[str, int | str] = {"channels": program.channels, "proto": program.proto}
    chunks = _chunks(program, size_bytes).build()
    return Schedule(program.op, program.name, program.n_ranks, size_bytes, chunks, (rows.build(),), parameters)


def _is_acyclic(deps: list[set[int]]) -> bool:
    """Return True if no transfer waits for itself by way of others; *deps* is for whom each waits."""
    return -1 not in _rounds(deps)


def _rounds(deps: list[set[int]]) -> list[int]:
    """Return in which round each transfer is: how many others, one after the other, it waits for; -1 in a circle.

    Transfers of one round are at work at once, whatever the numbers of their steps in blocks of their own.

    >>> _rounds([set(), {0}, {0, 1}, {4}, {3}])
    [0, 1, 2, -1, -1]
    """
    waiting, rounds = [len(each) for each in deps], [0] * len(deps)
    after = defaultdict[int, list[int]](list)
    for number, each in enumerate(deps):
        for dep in each:
            after[dep].append(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    while ready:
        done = ready.pop()
        for number in after[done]:
            waiting[number] -= 1
            rounds[number] = max(rounds[number], rounds[done] + 1)
            if not waiting[number]:
                ready.append(number)
    return [-1 if left else number for left, number in zip(waiting, rounds, strict=True)]


def _chunks(program: Program, size_bytes: int) -> ChunksBuilder:
    """Return the chunks of a program, numbered as `_Machine` numbers them."""
    n, per_rank, chunks = program.n_ranks, program.per_rank, ChunksBuilder()
    if program.op == "all_reduce":
        chunks.add(split_bytes(size_bytes, program.n_chunks, GRAIN_BYTES), EVERY, EVERY)
        return chunks
    block = split_bytes(size_bytes // n, per_rank, GRAIN_BYTES)
    if program.op == "all_to_all":
        source = np.repeat(np.arange(n), n * per_rank)
        target = np.tile(np.repeat(np.arange(n), per_rank), n)
        chunks.add(np.tile(block, n * n), source, target)
        return chunks
    owner = np.repeat(np.arange(n), per_rank)
    ends = (owner, EVERY) if program.op == "all_gather" else (EVERY, owner)
    chunks.add(np.tile(block, n), *ends)
    return chunks
