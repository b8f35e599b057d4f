"""Compares the library's choice with what NCCL's debug lines say it did.

    python tools/choices.py --folder DIR

DIR holds outputs of nccl-tests. Debug lines (``NCCL_DEBUG=INFO``, ``NCCL_DEBUG_SUBSYS=INIT,TUNING,GRAPH``) are compared
line by line: algorithm, protocol and channels of every size, the table of costs, the channels of the search and of the
communicator. A log of point to point without such lines shows its choice in its rates: where the model cuts messages
into more parts, the measured rate should jump. What forces a choice must be honoured.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from collsim.core.operations import operation
from collsim.library import Call, Environment, System, choose, load_library, read_environment, system_of
from collsim.library.nccl.graphs import nccl_graphs
from collsim.library.nccl.tuner import Setting, bandwidth_GBps, latency_us
from collsim.library.nccl.versions import nccl_constants
from collsim.topology import load_topology

DEVICES = {"H100": "hgx_h100", "H200": "hgx_h200", "A100": "dgx_a100", "B200": "hgx_b200", "V100": "dgx2_v100"}
CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
COUNTS = re.compile(r"(\d+) coll channels, .*?(\d+) nvls channels, (\d+) p2p channels, (\d+) p2p channels per peer")
GRAPH = re.compile(r"Pattern 4, crossNic \d, nChannels (\d+), bw ([\d.]+)/")
COST = re.compile(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce) \|(.*)")
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)", re.MULTILINE)
JUMP = 1.10
"""A rate that grows by this factor from one size to the next is a jump."""
LARGE_BYTES = 64 * 2**20
"""Rates below this size jump for other reasons too."""


@dataclass(frozen=True)
class Log:
    """Facts of the header of a log, with its whole text."""

    op: str
    n_ranks: int
    library: str
    device: str
    environment: Environment
    text: str


@dataclass
class Score:
    """Counts of comparisons, and of those that agree."""

    compared: int = 0
    agreed: int = 0

    def add(self, agrees: bool) -> None:
        """Count one comparison."""
        self.compared += 1
        self.agreed += agrees

    def __str__(self) -> str:
        return f"{self.agreed}/{self.compared}" if self.compared else "-"


def read(path: Path) -> Log | None:
    """Return the log, or None if it is none of a single group on a device that has a topology."""
    text = path.read_text(errors="replace")
    command = re.search(r"(\w+)_perf", text)
    version = re.search(r"nccl-library=(\d)(\d\d)(\d\d)", text)
    device = next((name for name in DEVICES if name in text), None)
    ranks = set(re.findall(r"# +Rank +(\d+) +Group +(\d+)", text))
    if not (command and version and device and ranks):
        return None
    words = re.search(r"^# env:(.*)$", text, re.MULTILINE)
    variables = re.findall(r"([NR]CCL_\w+)=(.*?)(?= [NR]CCL_|$)", words[1].strip() if words else "")
    library = f"nccl-{version[1]}.{int(version[2])}"
    name = operation(command[1]).name
    return Log(name, len(ranks), library, DEVICES[device], read_environment(dict(variables)), text)


def system_for(log: Log) -> System:
    """Return the system; NVLS is on only if the log says that it has channels."""
    counts = COUNTS.search(log.text)
    return system_of(load_topology(log.device), nvls=bool(counts and int(counts[2])))


def choices(log: Log, system: System) -> tuple[Score, Score]:
    """Compare every size: algorithm with protocol, and channels."""
    picked, channels = Score(), Score()
    seen = {(op, int(size), *rest) for op, size, *rest in CHOICE.findall(log.text)}
    for op, per_rank, algo, proto, low, high in sorted(seen):
        name = operation(op).name
        factor = log.n_ranks if operation(op).blocked else 1
        choice = choose(Call(name, log.n_ranks, per_rank * factor), system, log.library, log.environment)
        picked.add((choice.library_algo, choice.proto.upper()) == (algo, proto.upper()))
        channels.add(choice.channels == int(high) - int(low) + 1)
    return picked, channels


def costs(log: Log, system: System) -> Score:
    """Compare the printed table of latencies and bandwidths, rounded as there."""
    score = Score()
    rows: dict[str, list[str]] = {}
    for name, cells in COST.findall(log.text):
        rows.setdefault(name, []).append(cells)
    for name, blocks in rows.items():
        call = Call(operation(name).name, log.n_ranks, 2**20)
        version = load_library(log.library).version
        setting = Setting(call, system, nccl_constants(version), log.environment, nccl_graphs(call, system), version)
        cells = re.findall(r"([\d.]+)/ *([\d.]+)", blocks[0])[:6]
        for place, (latency, bandwidth) in enumerate(cells):
            algo, proto = ("tree", "ring")[place // 3], place % 3
            if float(bandwidth):
                score.add(abs(latency_us(setting, algo, proto) - float(latency)) < 0.0501)
                score.add(abs(bandwidth_GBps(setting, algo, proto) - float(bandwidth)) < 0.0501)
    return score


def counts(log: Log, system: System) -> Score:
    """Compare the channels of the search, of the communicator and of point to point."""
    score = Score()
    call = Call("all_to_all", log.n_ranks, 2**20 * log.n_ranks)
    choice = choose(call, system, log.library, log.environment)
    if graph := GRAPH.search(log.text):
        score.add((choice.search_channels, choice.channel_GBps) == (int(graph[1]), float(graph[2])))
    if found := COUNTS.search(log.text):
        shape = choice.point_to_point
        score.add(choice.communicator_channels == int(found[1]))
        score.add(bool(shape and (shape.channels, shape.channels_per_peer) == (int(found[3]), int(found[4]))))
    return score


def jumps(log: Log, system: System) -> tuple[Score, str]:
    """Compare where messages get more parts with where the measured rate jumps, among large sizes."""
    rates = [(int(size), int(size) / float(time)) for size, time in ROW.findall(log.text) if float(time)]
    score, notes = Score(), []
    shapes = [choose(Call(log.op, log.n_ranks, size), system, log.library, log.environment) for size, _ in rates]
    parts = [choice.point_to_point.parts if choice.point_to_point else 0 for choice in shapes]
    for (before, now), (small, large) in zip(pairwise(parts), pairwise(rates), strict=True):
        more, faster = now > before, large[1] / small[1]
        if large[0] > LARGE_BYTES and (more or faster > JUMP):
            score.add(more and faster > JUMP)
            notes.append(f"{large[0] / 2**20:.1f} MiB: {before} to {now} parts, rate x{faster:.2f}")
    return score, "; ".join(notes)


def honoured(log: Log, system: System) -> Score:
    """Count the sizes at which what the environment asks for is what the model takes."""
    score = Score()
    for size, _ in ROW.findall(log.text):
        choice = choose(Call(log.op, log.n_ranks, int(size)), system, log.library, log.environment)
        algos, protos = (log.environment.names(name, log.op) for name in ("NCCL_ALGO", "NCCL_PROTO"))
        plain = replace(choice, algo=choice.library_algo.lower())
        score.add((algos is None or plain.algo in algos) and (protos is None or plain.proto in protos))
    return score


def report(folder: Path) -> Iterator[str]:
    """Yield one line per log and the totals."""
    totals = [Score() for _ in range(4)]
    yield f"{'log':52} {'algo+proto':>10} {'channels':>9} {'costs':>7} {'counts':>7}"
    for path in sorted(folder.glob("*.log")):
        log = read(path)
        if log is None:
            continue
        system = system_for(log)
        if "-> Algo" in log.text or COUNTS.search(log.text):
            scores = [*choices(log, system), costs(log, system), counts(log, system)]
            for total, score in zip(totals, scores, strict=True):
                total.compared, total.agreed = total.compared + score.compared, total.agreed + score.agreed
            yield f"{path.stem:52} {scores[0]!s:>10} {scores[1]!s:>9} {scores[2]!s:>7} {scores[3]!s:>7}"
        elif path.stem.startswith("fine__"):
            score, notes = jumps(log, system)
            yield f"{path.stem:52} jumps {score}: {notes}"
        elif log.environment.allowed:
            yield f"{path.stem:52} honoured {honoured(log, system)}"
    yield f"{'all':52} {totals[0]!s:>10} {totals[1]!s:>9} {totals[2]!s:>7} {totals[3]!s:>7}"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Compare choices with NCCL's debug lines.")
    parser.add_argument("--folder", type=Path, required=True)
    for line in report(parser.parse_args().folder):
        print(line)


if __name__ == "__main__":
    main()
