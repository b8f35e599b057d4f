"""Accuracy of timelines: contention, collectives at once, overlap, layers with experts, and steps from traces.

``python tools/timeline_accuracy.py`` prints predictions beside the rows of tools/data/timeline. With
``--traces FOLDER`` also steps: files called CASE__default__rank0.json.gz are traces of the cases of steps.csv with
the library's choice of channels; the steps with other numbers of channels are predicted from them alone.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from collsim.timeline.calls import Machine, Predictor
from collsim.timeline.gpus import Gpu, gpu_of
from collsim.timeline.graph import Node
from collsim.timeline.replay import replay
from collsim.timeline.simulate import simulate_timeline
from collsim.timeline.trace import MATMUL, STREAM, Call
from collsim.timeline.what_if import WhatIf
from collsim.timeline.workload import Graph

DATA = Path(__file__).parent / "data" / "timeline"
MIB = 1 << 20
NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}
LOOPS_S = 60e-3
"""For so long loops run beside each other."""
JITTER = 0.1
"""Of collectives in a loop (own runs: tenth to ninetieth percentile), so that loops do not lock into step."""
LAUNCH_BOUND = ("tp_h4096",)
"""Steps that the CPU binds: their times scatter by 20 %."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured, and what is predicted, in microseconds."""

    what: str
    measured_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        """Prediction over measurement, less 1."""
        return self.predicted_us / self.measured_us - 1


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with (DATA / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def environment(channels: str) -> dict[str, str]:
    """Return the variables of a number of channels; none: the library's choice."""
    return {"NCCL_MAX_NCHANNELS": channels, "NCCL_MAX_P2P_NCHANNELS": channels} if channels else {}


def contention() -> Iterator[Row]:
    """Yield loops beside each other; times alone are the medians of all that were measured."""
    rows = rows_of("contention")
    for row in rows:
        same_job = [r for r in rows if (r["topo"], r["job"]) == (row["topo"], row["job"])]
        key = ("topo", "collective", "channels")
        same_call = [r for r in rows if all(r[k] == row[k] for k in key)]
        job_s = median(float(r["job_alone_us"]) for r in same_job) * 1e-6
        call_s = median(float(r["collective_alone_us"]) for r in same_call) * 1e-6
        call = Call(row["collective"], 256 * MIB, "bfloat16", "all", int(row["gpus"]))
        predictor = Predictor(Machine(row["topo"], {**NVLS_OFF, **environment(row["channels"])}))
        kind = STREAM if row["job"] == "hbm_copy" else MATMUL
        gpu = gpu_of(row["topo"].replace("_", " "))
        job, collective = beside(kind, job_s, call, call_s, predictor=predictor, gpu=gpu)
        name = f"{row['topo']} x{row['gpus']} {row['channels'] or 'all'} channels: {row['job']}, {row['collective']}"
        yield Row(f"{name}: job", float(row["job_beside_us"]), job * 1e6)
        yield Row(f"{name}: collective", float(row["collective_beside_us"]), collective * 1e6)


def beside(
    kind: str, job_s: float, call: Call, call_s: float, *, predictor: Predictor, gpu: Gpu
) -> tuple[float, float]:
    """Return the time of a job and of a collective in loops beside each other."""
    graph = Graph(jitter=JITTER, seed=1)
    for _ in range(round(3 * LOOPS_S / job_s)):
        graph.kernel("job", job_s, kind=kind, full=True)
    n_jobs = len(graph.nodes)
    for _ in range(round(3 * LOOPS_S / call_s)):
        graph.collective(call)
    nodes = timed(graph, predictor, gpu, {call: call_s})
    for node in nodes[:n_jobs]:
        node.work_s = job_s
    run = replay(nodes, gpu)
    until_s = min(run.end_s[n_jobs - 1], run.end_s[-1])
    jobs = [end for end in run.end_s[:n_jobs] if end <= until_s]
    calls = [end for end in run.end_s[n_jobs:] if end <= until_s]
    return jobs[-1] / len(jobs), calls[-1] / len(calls)


def timed(graph: Graph, predictor: Predictor, gpu: Gpu, alone_s: dict[Call, float]) -> list[Node]:
    """Return the nodes of a graph with times of collectives alone that were measured."""
    nodes = graph.nodes
    for node in nodes:
        if node.call >= 0:
            call = graph.calls[node.call]
            told = predictor.of(call)
            node.work_s *= alone_s[call]
            node.sms, node.spare = gpu.held(call.op, told.channels), told.spare
            node.link, node.load = told.kind, told.load
    return nodes


def fewer_channels(least_mib: int = 64) -> Iterator[Row]:
    """Yield collectives alone with fewer channels, from their times with the library's choice."""
    rows = rows_of("channels")
    before = Predictor(Machine("hgx_h200", NVLS_OFF))
    for row in rows:
        if not row["channels"] or int(row["mib"]) * (1 + (row["collective"] == "send_recv")) < least_mib:
            continue
        if (row["collective"], row["in_place"]) == ("all_gather", "no"):
            continue  # frameworks gather in place
        same = ("collective", "in_place", "mib")
        free = next(r for r in rows if not r["channels"] and all(r[key] == row[key] for key in same))
        call = Call(row["collective"], int(row["mib"]) * MIB, "bfloat16", "a", 2)
        after = Predictor(Machine("hgx_h200", {**NVLS_OFF, **environment(row["channels"])}))
        predicted_us = before.moved_s(call, float(free["time_us"]) * 1e-6, after) * 1e6
        yield Row(f"{call.op} {row['mib']} MiB, {row['channels']} channels", float(row["time_us"]), predicted_us)


def overheads() -> dict[str, float]:
    """Return by machine what a call through PyTorch takes beyond the collective: medians of those alone, in us."""
    found: dict[str, list[float]] = {}
    predictor = Predictor(Machine("hgx_h100", NVLS_OFF))
    for row in rows_of("concurrent"):
        if row["case"].startswith("solo_"):
            call = Call(row["case"].removeprefix("solo_"), int(row["mib"]) * MIB, "bfloat16", "a", 4)
            found.setdefault(row["machine"], []).append(float(row["time_us"]) - predictor.of(call).time_s * 1e6)
    return {machine: median(each) for machine, each in found.items()}


def concurrent() -> Iterator[Row]:
    """Yield collectives at once: the model's times with shared links, and half as much overhead for a second call."""
    predictor, over = Predictor(Machine("hgx_h100", NVLS_OFF)), overheads()
    pairs = {
        "2x_all_reduce": ("all_reduce", "all_reduce"),
        "2x_all_to_all": ("all_to_all", "all_to_all"),
        "all_reduce+all_to_all": ("all_reduce", "all_to_all"),
    }
    for row in rows_of("concurrent"):
        if row["case"] not in pairs:
            continue
        graph = Graph()
        for number, op in enumerate(pairs[row["case"]]):
            call = Call(op, int(row["mib"]) * MIB, "bfloat16", str(number), 4)
            graph.collective(call, stream=str(number))
        gpu, calls = gpu_of("H100"), graph.calls
        nodes = timed(graph, predictor, gpu, {call: predictor.of(call).time_s for call in calls})
        run = replay(nodes, gpu)
        predicted_us = run.span_s * 1e6 + 1.5 * over[row["machine"]]
        yield Row(f"{row['machine']} {row['case']} {row['mib']} MiB", float(row["time_us"]), predicted_us)


def overlap() -> Iterator[Row]:
    """Yield buckets of products and the all-reduces that follow them, from the times of both alone.

    All-reduces alone are the median of all runs with as many: one of them took five times as long as its like. Of what
    calls cost the host, nothing hides the last.
    """
    rows, over = rows_of("overlap"), overheads()
    predictor, gpu = Predictor(Machine("hgx_h100", NVLS_OFF)), gpu_of("H100")
    for row in rows:
        products, buckets = int(row["products"]), int(row["buckets"])
        call = Call("all_reduce", int(row["mib"]) * MIB, "bfloat16", "a", 4)
        graph = Graph()
        for _ in range(buckets):
            for _ in range(products):
                done = graph.kernel("product", float(row["compute_us"]) * 1e-6 / products / buckets, full=True)
            graph.collective(call, after=[done])
        alike = [r for r in rows if all(r[key] == row[key] for key in ("machine", "buckets", "mib"))]
        alone_s = median(float(r["communication_us"]) for r in alike) * 1e-6 / buckets
        run = replay(timed(graph, predictor, gpu, {call: alone_s}), gpu)
        name = f"{row['machine']} {products} products, {buckets} buckets of {row['mib']} MiB"
        yield Row(name, float(row["overlapped_us"]), run.span_s * 1e6 + over[row["machine"]])


def experts(least_tokens: int = 4096) -> Iterator[Row]:
    """Yield layers with experts, from the times of their parts alone; what calls cost the host overlaps in a row."""
    over, gpu = overheads(), gpu_of("H100")
    predictor = Predictor(Machine("hgx_h100", NVLS_OFF))
    for row in rows_of("moe"):
        if int(row["tokens"]) < least_tokens:
            continue
        launch_us = over[row["machine"]]
        parts = [float(row[f"{name}_us"]) * 1e-6 - launch_us * 1e-6 for name in ("dispatch", "combine")]
        name = f"{row['machine']} {row['tokens']} tokens"
        for batches, column in ((1, "serial_us"), (2, "two_batches_us")):
            graph, alone_s = Graph(), dict[Call, float]()
            chains: list[list[int]] = [[] for _ in range(batches)]
            for step in range(3):
                for number, chain in enumerate(chains):
                    after = chain[-1:]
                    if step == 1:
                        chain.append(graph.kernel("experts", float(row["experts_us"]) * 1e-6, after=after, full=True))
                        continue
                    call = Call("all_to_all", (80 + step) * MIB, "bfloat16", str(number), 4)
                    alone_s[call] = parts[step // 2]
                    chain.append(graph.collective(call, after=after))
            run = replay(timed(graph, predictor, gpu, alone_s), gpu)
            yield Row(f"{name}, {column.removesuffix('_us')}", float(row[column]), run.span_s * 1e6 + launch_us)


def steps(folder: Path) -> Iterator[Row]:
    """Yield the replay of each trace, and steps with other numbers of channels."""
    for file in sorted(folder.glob("*__default__rank0.json.gz")):
        case = file.name.partition("__")[0]
        plain = simulate_timeline(file)
        assert plain.recorded_step_time_s is not None
        yield Row(f"{case} replay", plain.recorded_step_time_s * 1e6, plain.step_time_s * 1e6)
        for row in rows_of("steps"):
            if row["case"] == case and row["channels"]:
                found = simulate_timeline(file, WhatIf(environment={"NCCL_MAX_NCHANNELS": row["channels"]}))
                bound = " (bound by launches)" * (case in LAUNCH_BOUND)
                name = f"{case} {row['channels']} channels{bound}"
                yield Row(name, float(row["step_us"]), found.step_time_s * 1e6)


def show(title: str, rows: Sequence[Row]) -> None:
    """Print rows, and their median and worst error; what launches bind does not count."""
    print(f"\n{title}")
    for row in rows:
        print(f"  {row.what:<64} {row.measured_us:>9.1f} {row.predicted_us:>9.1f} {row.error:>+7.1%}")
    errors = [abs(row.error) for row in rows if "bound by" not in row.what and "replay" not in row.what]
    if errors:
        print(f"  {len(errors)} rows: median {median(errors):.1%}, worst {max(errors):.1%}")
    assert all(math.isfinite(each) for each in errors)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="traces of the cases of steps.csv")
    options = parser.parse_args(arguments)
    print(f"  {'':<64} {'measured':>9} {'predicted':>9}   error   (us)")
    tables = {
        "contention": contention,
        "fewer channels": fewer_channels,
        "collectives at once": concurrent,
        "overlap": overlap,
        "experts": experts,
    }
    for title, table in tables.items():
        show(title, list(table()))
    if options.traces:
        show("steps", list(steps(options.traces)))


if __name__ == "__main__":
    main()
