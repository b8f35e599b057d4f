"""Algorithms of MSCCL in XML: what every thread block sends, receives, adds and copies, step by step.

Steps are those of MSCCL (microsoft/msccl, src/include/msccl): ``s`` sends, ``r`` receives, ``rrc`` adds what arrives,
``rcs`` and ``rrs`` pass it on, ``rrcs`` does all three, ``re`` adds and ``cpy`` copies within a GPU, ``nop`` waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from collsim.core.errors import Fault, Faults, SpecError, nearest
from collsim.importing.xml_files import Element, read_xml

__all__ = ["MOST_BYTES", "RECEIVES", "SENDS", "Block", "Program", "Step", "read_msccl"]

OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all", "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
}  # fmt: skip
PROTOCOLS = ("LL", "LL128", "Simple")
RECEIVES, SENDS = ("r", "rcs", "rrc", "rrs", "rrcs"), ("s", "rcs", "rrs", "rrcs")
TYPES = (*dict.fromkeys((*RECEIVES, *SENDS)), "re", "cpy", "nop")
MOST_BYTES = 2**26
MOST_RANKS, MOST_CHUNKS = 4096, 2**20
"""No algorithm of MSCCL comes near these (chosen)."""


class Step(NamedTuple):
    """A step of a thread block; the places that it reads and writes are *stride* apart."""

    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    chunks: int
    waits_for: tuple[int, int] | None
    where: str
    stride: int = 1

    def places(self, place: tuple[str, int]) -> list[tuple[str, int]]:
        """Return the places that begin with one."""
        return [(place[0], place[1] + number * self.stride) for number in range(self.chunks)]


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: its rank, its peers (-1: none), its channel and steps."""

    rank: int
    number: int
    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """An algorithm of MSCCL as it was read."""

    name: str
    op: str
    proto: str
    n_ranks: int
    n_chunks: int
    channels: int
    in_place: bool
    blocks: tuple[Block, ...]
    least_bytes: int
    most_bytes: int | None
    file: str

    @property
    def per_rank(self) -> int:
        """Chunks of the block of one rank; of an all-reduce, of the whole buffer."""
        return self.n_chunks if self.op == "all_reduce" else self.n_chunks // self.n_ranks


def read_msccl(content: bytes, file: str) -> Program:
    """Return the algorithm in *content*; raise `SpecError` with everything that is wrong with it as a file."""
    faults = Faults()
    if len(content) > MOST_BYTES:
        raise SpecError(Fault(f"the file is larger than {MOST_BYTES >> 20} MiB", file, "no algorithm needs more"))
    root = read_xml(content, file, "algo")
    op, proto = _word(root, "coll", OPERATIONS, faults), _word(root, "proto", PROTOCOLS, faults)
    n_ranks, n_chunks = root.number("ngpus", faults, least=2), root.number("nchunksperloop", faults, least=1)
    channels = root.number("nchannels", faults, least=1)
    for name, number, limit in (("ngpus", n_ranks, MOST_RANKS), ("nchunksperloop", n_chunks, MOST_CHUNKS)):
        if number > limit:
            faults.append(Fault(f'{name}="{number}" is more than {limit:,}', root.where, "no algorithm is so large"))
    faults.raise_any(SpecError)
    if not faults and OPERATIONS[op] != "all_reduce" and n_chunks % n_ranks:
        what = f'nchunksperloop="{n_chunks}" does not cut into equal blocks of {n_ranks} ranks'
        faults.append(Fault(what, root.where, f"write a multiple of {n_ranks}"))
    blocks = _blocks(root, n_ranks, faults)
    faults.raise_any(SpecError)
    most = root.attributes.get("maxBytes", "")
    return Program(
        name=root.attributes.get("name", "msccl"),
        op=OPERATIONS[op],
        proto=proto,
        n_ranks=n_ranks,
        n_chunks=n_chunks,
        channels=channels,
        in_place=root.attributes.get("inplace", "0") == "1",
        blocks=tuple(blocks),
        least_bytes=root.number("minBytes", faults, default=0),
        most_bytes=int(most) if most.isdecimal() else None,
        file=file,
    )


def _word(root: Element, name: str, known: Iterable[str], faults: Faults) -> str:
    """Return an attribute that is one of some words."""
    text, words = root.text(name, faults), [*known]
    if name in root.attributes and text not in words:
        near = nearest(text, words)
        hint = f'did you mean "{near}"?' if near else f"known: {', '.join(words)}"
        faults.append(Fault(f'{name}="{text[:30]}" is not known', root.where, hint))
    return text if text in words else words[0]


def _blocks(root: Element, n_ranks: int, faults: Faults) -> list[Block]:
    """Return the thread blocks of all GPUs."""
    blocks: list[Block] = []
    gpus = [child for child in root.children if child.tag == "gpu"]
    numbers = [gpu.number("id", faults) for gpu in gpus]
    if sorted(numbers) != list(range(n_ranks)):
        listed = ", ".join(map(str, numbers[:16])) or "none"
        faults.append(
            Fault(f"GPUs are {listed}", root.where, f'ngpus="{n_ranks}" needs one <gpu> for each of 0 to {n_ranks - 1}')
        )
    for rank, gpu in zip(numbers, gpus, strict=True):
        found = [child for child in gpu.children if child.tag == "tb"]
        sizes = {each.number("id", faults): sum(step.tag == "step" for step in each.children) for each in found}
        if len(sizes) < len(found):
            faults.append(Fault("two thread blocks have one id", gpu.where, "each has its own"))
        blocks += [_block(each, rank, n_ranks, sizes, faults) for each in found]
    users = Counter((block.rank, way, peer, block.channel) for block in blocks for way, peer in _ends(block))
    for block, element in zip(blocks, (each for gpu in gpus for each in gpu.children if each.tag == "tb"), strict=True):
        for way, peer in _ends(block):
            if users[block.rank, way, peer, block.channel] > 1:
                what = f"several thread blocks of GPU {block.rank} {way} GPU {peer} on channel {block.channel}"
                faults.append(
                    Fault(what, element.where, "each connection of a channel has one: give them other channels")
                )
    return blocks


def _ends(block: Block) -> list[tuple[str, int]]:
    ends = [("send to", block.send), ("receive from", block.recv)]
    return [(way, peer) for way, peer in ends if peer >= 0]


def _block(tb: Element, rank: int, n_ranks: int, sizes: dict[int, int], faults: Faults) -> Block:
    """Return a thread block."""
    peers = {name: tb.number(name, faults, least=-1) for name in ("send", "recv")}
    for name, peer in peers.items():
        if peer == rank or peer >= n_ranks:
            what = f'{name}="{peer}"' + (" is the GPU itself" if peer == rank else f" is none of {n_ranks} GPUs")
            faults.append(Fault(what, tb.where, f"0 to {n_ranks - 1}, or -1 for none"))
    number, channel = tb.number("id", faults), tb.number("chan", faults)
    steps = []
    for place, step in enumerate(child for child in tb.children if child.tag == "step"):
        if step.number("s", faults) != place:
            faults.append(
                Fault(f's="{step.attributes.get("s", "")[:20]}"', step.where, f'steps count from 0: write s="{place}"')
            )
        steps.append(_step(step, peers, sizes, faults))
    return Block(rank, number, peers["send"], peers["recv"], channel, tuple(steps))


def _step(step: Element, peers: dict[str, int], sizes: dict[int, int], faults: Faults) -> Step:
    """Return a step."""
    kind = step.text("type", faults)
    if kind not in TYPES:
        near = nearest(kind, TYPES)
        hint = f'did you mean "{near}"?' if near else f"known: {', '.join(TYPES)}"
        faults.append(Fault(f'type="{kind[:20]}" is no step', step.where, hint))
    for name, kinds in (("send", SENDS), ("recv", RECEIVES)):
        if kind in kinds and peers[name] < 0:
            faults.append(
                Fault(
                    f'a step of type "{kind}" in a thread block with {name}="-1"',
                    step.where,
                    f"name its peer in {name}",
                )
            )
    ends = []
    for side in ("src", "dst"):
        buffer = step.text(f"{side}buf", faults)
        if buffer not in ("i", "o", "s"):
            faults.append(
                Fault(f'{side}buf="{buffer[:20]}" is no buffer', step.where, "i (input), o (output) or s (scratch)")
            )
        ends.append((buffer, step.number(f"{side}off", faults, least=-1)))
    waits = (step.number("depid", faults, least=-1, default=-1), step.number("deps", faults, least=-1, default=-1))
    if waits[0] >= 0 and waits[1] >= sizes.get(waits[0], 0):
        what = f'depid="{waits[0]}" deps="{waits[1]}" is no step of this GPU'
        hint = (
            f"thread blocks are {min(sizes)} to {max(sizes)}"
            if waits[0] not in sizes
            else f"it has {sizes[waits[0]]} steps"
        )
        faults.append(Fault(what, step.where, hint))
    count = step.number("cnt", faults, least=0 if kind == "nop" else 1)
    if count > MOST_CHUNKS:
        faults.append(Fault(f'cnt="{count}" is more than {MOST_CHUNKS:,}', step.where, "it counts chunks"))
    return Step(kind, ends[0], ends[1], count, waits if waits[0] >= 0 else None, step.where)
