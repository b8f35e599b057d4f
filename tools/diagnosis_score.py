"""Score of `collsim.diagnose` on planted faults: logs that the simulator makes with a cause, noise and other sizes.

``python tools/diagnosis_score.py --logs 20`` plants every cause of `PLANTS` in so many logs, each with noise of 5 % on
every row, another offset of its host and another grid of sizes, half of them by a profile whose rates were moved within
5 %, and prints how often the true cause was the first one by itself, how often it was named in the first class, and in
the first three, and how many causes its class has; causes beyond those that a class names to people count as not found.
``--healthy`` makes healthy logs instead and counts those that are called healthy. A diagnosis that takes longer than
`MOST_CPU_S` makes the exit code 1. ``--public DIR`` reads logs of other people with an
``INDEX.csv`` and prints the verdicts by what the index says of their health. What it printed of plants and healthy
logs, kept in files, ``--table FILE ...`` writes into docs/diagnose.md, with the date.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import collsim
from collsim.core.errors import CollsimError
from collsim.core.operations import operation
from collsim.diagnosis import Diagnosis, diagnose
from collsim.diagnosis.causes import Change, all_causes, changes_of
from collsim.diagnosis.curves import Bench
from collsim.library import load_profile
from collsim.topology import Topology, load_topology

NOISE = 0.05
HOST_S = 1.5e-6
"""Standard deviation of the offset of a host, the same for all rows of a log."""
FIRST, LAST = 10, 33
"""Octaves of the sizes of a log; each begins and steps elsewhere."""
MOST_CPU_S = 10.0
"""Seconds of CPU that one diagnosis may take."""
GRIDS = 5
"""Grids of sizes: few, so that logs of one machine share what is predicted for them."""


class Plant(NamedTuple):
    """A cause on a machine with some *figures*, by the number of its variant; *shape* is seconds or an exponent."""

    cause: str
    topo: str
    op: str
    variant: int = 0
    nodes: int = 1
    shape: float = 0.0
    figures: tuple[tuple[str, str], ...] = ()


THIN_SPINES = (("scale_out.radix", "16"), ("scale_out.oversubscription", "4"))
"""A leaf for each rail and a quarter of its rate above it: where rails meet in one switch, or above full uplinks,
nobody can see whether messages cross them."""
NAMED = (("scale_out.network", "infiniband"),)
"""A user who asks why a long way is slow says what network it is of; of a log that names none another network than
assumed is likelier, and the answer asks which it is."""
TWO_LEAVES = (("scale_out.fabric", "fat_tree"), ("scale_out.racks", "2"), ("scale_out.oversubscription", "4"))
"""Two nodes under each leaf, with a quarter of their rate above it."""
PLANTS = (
    Plant("nvls_off", "hgx_h100", "all_reduce"),
    Plant("algorithm", "hgx_h100", "all_reduce", 1),
    Plant("protocol", "hgx_h100", "all_gather", 0),
    Plant("few_channels", "hgx_h200", "all_gather", 1),
    Plant("one_process", "hgx_h100", "all_reduce"),
    Plant("p2p_off", "hgx_h100", "all_reduce"),
    Plant("few_links", "mi300x_ubb8", "all_reduce", 2),
    Plant("lost_plane", "hgx_h100", "all_reduce"),
    Plant("slow_gpu", "mi300x_ubb8", "all_reduce", 1),
    Plant("link_rate", "hgx_h100", "all_to_all", 1),
    Plant("slow_memory", "hgx_h100", "all_reduce", 1),
    Plant("start_skew", "hgx_h100", "all_reduce", shape=200e-6),
    Plant("sockets", "dgx_a100", "all_reduce", nodes=2),
    Plant("gdr_off", "hgx_h100", "all_to_all", nodes=2),
    Plant("slow_bus", "dgx_a100", "all_reduce", 1, nodes=2),
    Plant("slow_adapters", "hgx_h100", "all_gather", 0, nodes=2),
    Plant("adapter_down", "dgx_a100", "all_reduce", nodes=2, figures=(("nic.shared_by", "4"),)),
    Plant("one_bus", "hgx_h100", "all_reduce", nodes=2),
    Plant("pxn_off", "hgx_h100", "all_to_all", nodes=4, figures=THIN_SPINES),
    Plant("uplinks", "hgx_h100", "all_to_all", 1, nodes=4),
    Plant("rank_order", "hgx_h100", "all_gather", nodes=4, figures=TWO_LEAVES),
    Plant("window", "hgx_h100", "all_reduce", 1, nodes=2, figures=NAMED),
    Plant("partitioned", "mi300x_ubb8", "all_gather", 1),
    Plant("loss", "hgx_h100", "all_reduce", nodes=2, shape=0.5),
    Plant("dips", "hgx_h100", "all_reduce", shape=1.0),
)
HEALTHY = (
    Plant("", "hgx_h100", "all_reduce"),
    Plant("", "hgx_h100", "all_to_all"),
    Plant("", "mi300x_ubb8", "all_reduce"),
    Plant("", "hgx_h200", "all_gather"),
    Plant("", "hgx_h100", "all_reduce", nodes=2),
    Plant("", "dgx_a100", "all_gather", nodes=2),
)


def machine(plant: Plant, more: dict[str, str] | None = None) -> Topology:
    """Return the machine of a plant."""
    figures = {**dict(plant.figures), **(more or {})}
    if plant.nodes > 1:
        figures["scale_out.nodes"] = str(plant.nodes)
    return load_topology(plant.topo, figures)


def sizes_of(seed: int) -> tuple[int, ...]:
    """Return one of `GRIDS` grids of sizes: first octave, step and offset differ."""
    random = np.random.default_rng(seed % GRIDS)
    first, step = FIRST + random.uniform(0, 3), random.choice([1.0, 1.5, 2.0])
    return tuple(int(2**octave) // 2048 * 2048 for octave in np.arange(first + 2, LAST, step))


def remembered() -> None:
    """Keep what diagnoses predict: logs of one machine with the same grid of sizes ask for the same curves."""
    asked, known = Bench.ratios, {}

    def ratios(bench: Bench, case: Any, sizes: Sequence[int], healthy_s: Any, change: Change) -> Any:
        key = repr((bench.topo, bench.machine, case, tuple(sizes), sorted(healthy_s.items()), change))
        if key not in known:
            known[key] = asked(bench, case, sizes, healthy_s, change)
        return known[key]

    setattr(Bench, "ratios", ratios)  # noqa: B010


@cache
def planted(plant: Plant, sizes: tuple[int, ...], profile: Any = "auto") -> list[tuple[int, float]]:
    """Return sizes and seconds of a machine with the cause of a plant."""
    topology = machine(plant)
    cause = next((cause for cause in all_causes() if cause.name == plant.cause), None)
    change = Change()
    if cause is not None and not cause.shape:
        change = changes_of(cause, topology, topology.n_gpus, plant.nodes)[plant.variant]
    options: dict[str, Any] = {"environment": dict(change.environment), "profile": profile}
    if change.rank_list:
        options["rank_list"] = list(change.rank_list)
    if change.gpus_per_thread:
        options["gpus_per_thread"] = change.gpus_per_thread
    whole = machine(plant, dict(change.overrides))
    result = collsim.simulate(whole, plant.op, sizes, fail=change.fail, degrade=change.degrade, **options)
    times = [(row.requested_bytes, row.time_s) for row in result.rows]
    return shaped(times, plant, cause.shape if cause else "")


def shaped(times: list[tuple[int, float]], plant: Plant, shape: str) -> list[tuple[int, float]]:
    """Return times with a change that is no question to the simulator."""
    if shape == "skew":
        return [(size, time_s + plant.shape) for size, time_s in times]
    if shape == "falling":
        return [(size, time_s * max(size / 2**27, 1.0) ** plant.shape) for size, time_s in times]
    if shape == "dips":
        slow = len(times) * 2 // 3
        return [(size, time_s * (1 + plant.shape * (place == slow))) for place, (size, time_s) in enumerate(times)]
    return times


def as_log(plant: Plant, times: list[tuple[int, float]], ranks: int) -> str:
    """Return a log of nccl-tests."""
    op = operation(plant.op)
    program = {"all_to_all": "alltoall"}.get(plant.op, plant.op)
    lines = [f"# Collective test starting: {program}_perf", "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 graph: 0"]
    for rank in range(ranks):
        host, device = divmod(rank, ranks // plant.nodes)
        lines.append(f"#  Rank {rank:2d} Group  0 Pid {1000 + rank} on node{host} device {device} [0x00] GPU")
    for size, time_s in times:
        algbw = size / time_s / 1e9
        half = f"{time_s * 1e6:.2f} {algbw:.2f} {algbw * op.busbw_factor(ranks):.2f} 0"
        redop = "sum" if op.reduces else "none"
        lines.append(f"{size} {size // 4 // (ranks if op.blocked else 1)} float {redop} -1 {half} {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1"]
    return "\n".join(lines) + "\n"


def made(plant: Plant, seed: int, profile: Any = "auto") -> Diagnosis:
    """Return the diagnosis of a log with a plant and noise."""
    random = np.random.default_rng([seed, *map(ord, plant.cause + plant.topo + plant.op)])
    times = planted(plant, sizes_of(seed), profile)
    offset_s = random.normal(0, HOST_S)
    noisy = [(size, max(time_s * np.exp(random.normal(0, NOISE)) + offset_s, 2e-6)) for size, time_s in times]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{plant.op}.log"
        path.write_text(as_log(plant, noisy, machine(plant).n_gpus))
        began = time.process_time()
        found = diagnose(path, plant.topo, overrides=dict(plant.figures))
        TOOK_S.append(time.process_time() - began)
    return found


TOOK_S: list[float] = []
"""CPU of every diagnosis so far; that of the first with a grid of sizes on a machine is what a user waits for."""


def place_of(found: Diagnosis, cause: str) -> int:
    """Return the place of the first class that names a cause to people; 99 if none does."""
    places = (place for place, one in enumerate(found.findings, 1) if cause in [each.name for each in one.told])
    return next(places, 99)


def moved(plant: Plant, random: np.random.Generator) -> Any:
    """Return the profile of a machine with the rates of each kernel moved together, by 5 %, and what each call and
    message costs by 10 %: less than the intervals of most constants, which were fitted together.
    """
    profile = load_profile("auto", machine(plant))
    families = {}
    for name, protocols in profile.families.items():
        rate, time = np.exp(random.normal(0, 0.05)), np.exp(random.normal(0, 0.1))
        families[name] = {
            proto: replace(
                costs,
                channel_rate_Bps=costs.channel_rate_Bps * rate,
                link_share=costs.link_share * rate,
                message_overhead_s=costs.message_overhead_s * time,
                base_s=costs.base_s * time,
            )
            for proto, costs in protocols.items()
        }
    return replace(profile, families=families)


def score(plants: Sequence[Plant], logs: int, first_seed: int) -> tuple[int, int, int]:
    """Print the places of the true causes, and return how many were in the first class, in three, and in all."""
    totals = Counter[str]()
    for plant in plants:
        counts, others, began = Counter[str](), Counter[str](), len(TOOK_S)
        for seed in range(first_seed, first_seed + logs):
            found = made(plant, seed, moved(plant, np.random.default_rng(seed)) if seed % 2 else "auto")
            place = place_of(found, plant.cause)
            counts["alone"] += bool(found.findings) and found.findings[0].names[0] == plant.cause
            counts["first"] += place == 1
            counts["three"] += place <= 3
            counts["named"] += len(found.findings[place - 1].names) if place <= 3 else 0
            if place > 1:
                others[found.findings[0].names[0] if found.findings else found.verdict] += 1
        named, took_s = counts["named"] / max(counts["three"], 1), max(TOOK_S[began:])
        told = ", ".join(f"{name} {count}" for name, count in others.most_common())
        print(
            f"{plant.cause:14s} {plant.topo:12s} x{plant.nodes} {plant.op:11s} by itself {counts['alone']:2d}, "
            f"first {counts['first']:2d} of {logs}, in three {counts['three']:2d}, seeds {first_seed} on, "
            f"of {named:.1f} in its class, at most {took_s:.1f} s   {told}",
            flush=True,
        )
        totals.update(counts)
    return totals["first"], totals["three"], logs * len(plants)


def score_healthy(plants: Sequence[Plant], logs: int, first_seed: int) -> tuple[int, int]:
    """Print how healthy logs were called, and return how many were called healthy, of how many."""
    good = total = 0
    for plant in plants:
        verdicts = Counter[str]()
        for seed in range(first_seed, first_seed + logs):
            random = np.random.default_rng(seed)
            verdicts[made(plant, seed, moved(plant, random) if seed % 2 else "auto").verdict] += 1
        good_here, told = verdicts["healthy"] + verdicts["fast"], dict(verdicts)
        print(
            f"{'healthy':14s} {plant.topo:12s} x{plant.nodes} {plant.op:11s} by itself {good_here:2d}, "
            f"first {good_here:2d} of {logs}, in three {good_here:2d}, seeds {first_seed} on   {told}",
            flush=True,
        )
        good += verdicts["healthy"] + verdicts["fast"]
        total += logs
    return good, total


TOPOLOGIES = (
    ("Polaris", "polaris"), ("Alps", "alps"), ("B200 HGX", "hgx_b200"), ("B200 (Lambda", "hgx_b200"),
    ("GH200", None), ("GB200", "gb200_nvl72"), ("H100 PCIe", None), ("H100 SXM", "hgx_h100"), ("H20", "hgx_h20"),
    ("MI325X", "mi325x_ubb8"), ("gfx950", "mi355x_ubb8"), ("MI350X/MI355X", "mi355x_ubb8"), ("MI300X", "mi300x_ubb8"),
    ("V100-SXM2", "dgx1_v100"), ("A100-SXM4", "dgx_a100"),
)  # fmt: skip
"""Topology by what the index of the public logs calls a system."""


ADAPTERS = {
    "aws-p4d": {"nic.shared_by": "2", "nic.bandwidth": "100 Gb/s", "scale_out.network": "efa"},
    "p3dn": {"nic.shared_by": "8", "nic.bandwidth": "100 Gb/s", "scale_out.network": "efa"},
    "issue152": {"nic.shared_by": "2"},
    "a3high": {"nic.shared_by": "2", "nic.bandwidth": "200 Gb/s"},
    "a3mega": {"nic.bandwidth": "200 Gb/s"},
    "snellius": {"nic.bandwidth": "200 Gb/s"},
}
"""Adapters of the machines of some logs, by a word of the file's name, as the index describes them."""
SERVERS = ("hgx_b200", "hgx_h100", "hgx_h20", "mi325x_ubb8", "mi355x_ubb8", "mi300x_ubb8", "dgx1_v100", "dgx_a100")
"""Topologies of one host: the index says how many there were."""


def adapters_of(file: str) -> dict[str, str]:
    """Return the figures of the adapters of a log's machine."""
    return next((figures for word, figures in ADAPTERS.items() if word in file), {})


def public(folder: Path, words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield file, health by the index, and what was found, of the logs whose names hold one of *words*."""
    for entry in csv.DictReader((folder / "INDEX.csv").open()):
        topo = next((name for part, name in TOPOLOGIES if part in entry["system"]), None)
        if topo is None or (words and not any(word in entry["file"] for word in words)):
            continue
        try:
            nodes = int(entry["nodes"]) if entry["nodes"].isdigit() and topo in SERVERS else None
            changes = adapters_of(entry["file"]) if nodes and nodes > 1 else {}
            found = diagnose(folder / entry["file"], topo, nodes=nodes, overrides=changes)
        except CollsimError as error:
            yield entry["file"], entry["health"], f"refused: {error.faults[-1].what[:80]}"
            continue
        names = "; ".join("/".join(one.names) + ("" if one.fits else "?") for one in found.findings[:3])
        yield entry["file"], entry["health"], f"{found.verdict}{' unexplained' * found.unexplained} {names}"


PAGE = Path(__file__).parents[1] / "docs" / "diagnose.md"
BEGIN, END = "<!-- score -->\n", "<!-- /score -->"
LINE = re.compile(
    r"(\w+) +(\w+) +x(\d+) (\w+) +by itself +(\d+), first +(\d+) of (\d+), in three +(\d+), seeds (\d+) on"
    r"(?:, of ([\d.]+) in its class)?"
)


def table(text: str) -> list[str]:
    """Return the rows of a table in Markdown of what was printed; the last line of a plant counts."""
    found = {match.group(1, 2, 3, 4): match for match in LINE.finditer(text)}
    rows = ["| Planted | On | Nodes | Operation | By itself | First | In three | In its class | Seeds from |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for match in found.values():
        name, topo, nodes, op, alone, first, logs, three, seed, named = map(str, match.groups(""))
        what = "none, called healthy" if name == "healthy" else f"`{name}`"
        places = f"{alone if named else ''} | {first} of {logs} | {three if named else ''} | {named or ''} | {seed}"
        rows.append(f"| {what} | {topo} | {nodes} | {op} | {places} |")
    planted = [match for match in found.values() if match[1] != "healthy"]
    healthy = [match for match in found.values() if match[1] == "healthy"]
    by_itself, best, near, made_ = (sum(int(match[part]) for match in planted) for part in (5, 6, 8, 7))
    good, sound = (sum(int(match[part]) for match in healthy) for part in (6, 7))
    return [
        f"{time.strftime('%Y-%m-%d', time.gmtime())}: of {made_} planted faults {by_itself} first by themselves, "
        f"{best} in the first class and {near} in the first three; {good} of {sound} healthy logs called healthy.",
        "",
        *rows,
    ]


def write_table(files: Sequence[Path]) -> None:
    """Write the table of what *files* hold into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    rows = "\n".join(table("\n".join(file.read_text(encoding="utf-8") for file in files)))
    PAGE.write_text(f"{before}{BEGIN}{rows}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Score what the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--public", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("words", nargs="*", help="only causes, or public logs, whose names hold one of these")
    flags = parser.parse_args()
    remembered()
    if flags.table:
        write_table(flags.table)
    elif flags.public:
        for file, health, told in public(flags.public, flags.words):
            print(f"{health:8s} {file:60s} {told}", flush=True)
    elif flags.healthy:
        good, total = score_healthy(HEALTHY, flags.logs, flags.seed)
        print(f"healthy {good} of {total}: {good / total:.1%}")
    else:
        chosen = [plant for plant in PLANTS if not flags.words or plant.cause in flags.words]
        first, three, total = score(chosen, flags.logs, flags.seed)
        print(f"first {first} of {total}: {first / total:.1%}; in three {three}: {three / total:.1%}")
    sys.stdout.flush()
    if max(TOOK_S, default=0.0) > MOST_CPU_S:
        sys.exit(f"a diagnosis took {max(TOOK_S):.1f} s of CPU, more than {MOST_CPU_S:g}")


if __name__ == "__main__":
    main()
