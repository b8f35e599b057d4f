"""Read logs of one scale-up domain and write the compact tables in tools/data.

``python tools/collect_logs.py --folder box_a=RUNS --folder LOGS`` reads the logs that tools/data/split.csv
names: a log is called like its file without the ending, after ``NAME__`` if the folder was given as ``NAME=FOLDER``.
A folder with figures.csv has logs as figures, one with nccl.csv those of the systems in `TABLED`. Logs that an
INDEX.csv names and the split does not are a fault.
Whatever a log does not say itself (system, health, source, forced variables of a run published without them) is said in
the split, which is kept by hand; a log that no folder has keeps its rows. The logs stay where they are.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from predictors import read_csv, topology_of

from collsim.calibration import LogRow, Test, read_log
from collsim.calibration.cases import MATRIX_FILE, MATRIX_SCALE, MATRIX_SPREAD, used_time_s
from collsim.calibration.observations import SPIKE
from collsim.core.errors import CollsimError
from collsim.core.operations import operation

DATA = Path(__file__).parent / "data"
SPLIT = DATA / "split.csv"
MATRICES = DATA / "matrices"
COLUMNS = (
    "log", "system", "source", "library", "launch", "env", "nvls", "gpus_per_thread", "nodes", "ranks", "op", "dtype",
    "size_bytes", "matrix", "scale", "out_of_place_us", "in_place_us", "flag", "health",
)  # fmt: skip
CHOOSING = re.compile(r"NCCL_(ALGO|PROTO|(MIN|MAX)_(P2P_)?NCHANNELS|(MIN|MAX)_CTAS|NVLS_ENABLE)$")
UNIFORM_BYTES = 2**20
"""Size column of the uniform matrix at scale 1."""
NOT_IN_PLACE = ("all_to_all", "send_recv")
"""Operations whose in-place half has no meaning."""
MOST_ROWS, STEP = 128, 1.08
"""Of a log with more rows, those are kept whose sizes are at least this factor apart."""

TABLED = {
    ("a100_sxm", "2"): "A100-2of8x1",
    ("a100_sxm", "8"): "A100-8x1",
    ("b200_sxm", "2"): "B200-2of8x1",
    ("b200_sxm", "8"): "B200-8x1",
    ("gb200", "4"): "GB200-NVL72-4x1",
    ("h100_sxm", "8"): "H100-8x1",
    ("l40s", "2"): "L40S-2of8x1",
    ("l40s", "8"): "L40S-8x1",
    ("rtx_pro_6000_server", "2"): "RTXPRO6000-2of8x1",
    ("rtx_pro_6000_server", "8"): "RTXPRO6000-8x1",
}
"""Systems and numbers of GPUs of the tables of AIConfigurator, as names of logs begin."""

Entry = dict[str, str]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def find_logs(folders: Sequence[str]) -> dict[str, Path]:
    """Return the files of the folders by the names that the split uses."""
    found: dict[str, Path] = {}
    for given in folders:
        name, equals, folder = given.rpartition("=")
        for path in sorted(Path(folder).iterdir()):
            if path.suffix in (".log", ".txt", ".out"):
                found[f"{name}__{path.stem}" if equals else path.stem] = path
    return found


def short_source(source: str) -> str:
    """Return repository and commit of a citation, or its first words.

    >>> short_source("owner/repo: results/a.txt (commit 123abcd)")
    'owner/repo@123abcd'
    """
    commit = re.search(r"\(commit (\w+)\)$", source)
    first = source.partition(": ")[0]
    return f"{first}@{commit[1]}" if commit else first


def forced(environment: Mapping[str, str]) -> str:
    """Return the variables that change the library's choice, as words."""
    return " ".join(f"{name}={value}" for name, value in environment.items() if CHOOSING.match(name))


def library_of(test: Test) -> str:
    """Return library and version as one word, such as ``nccl-2.28.9``; empty if the log names none."""
    version = re.match(r"[\d.]+", test.run.library_version or "")
    return "-".join(word for word in ((test.run.library or "").lower(), version[0] if version else "") if word)


def better_library(said: str, read: str) -> str:
    """Return the library that the split names, or that of the log if only that names a version."""
    return read if "-" in read and "-" not in said else said or read


def launch_of(test: Test) -> str:
    """Return the world that the run belongs to; a log that does not say is a stream run, which is what the tests do."""
    return "registered" if test.run.registered else test.run.launch or "stream"


def matrix_of(test: Test) -> tuple[str, float | None]:
    """Return name and scale of the byte matrix of a run; the scale of a uniform one follows from the size."""
    environment = test.run.environment
    if MATRIX_FILE in environment:
        name = Path(environment[MATRIX_FILE]).stem.removeprefix("matrix_")
        return name, float(environment.get(MATRIX_SCALE, 1))
    if environment.get(MATRIX_SPREAD) and float(environment[MATRIX_SPREAD]) == 0:
        return "uniform", None
    return "", None


def spikes(times_us: Sequence[float]) -> list[bool]:
    """Return which entries are far slower than both their neighbours.

    >>> spikes([10, 30, 11, 40])
    [False, True, False, False]
    """
    inner = [
        here > SPIKE * max(before, after)
        for before, here, after in zip(times_us[:-2], times_us[1:-1], times_us[2:], strict=True)
    ]
    return [False, *inner, False][: len(times_us)]


def thinned(rows: Sequence[LogRow]) -> list[LogRow]:
    """Return the rows, or of very many those with sizes well apart."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    kept: list[LogRow] = []
    for row in rows:
        if not kept or row.size_bytes >= STEP * kept[-1].size_bytes:
            kept.append(row)
    return kept


def rows_of(entry: Entry, test: Test) -> list[dict[str, object]]:
    """Return the rows of one log."""
    matrix, scale = matrix_of(test)
    run = {
        "library": better_library(entry["library"], library_of(test)),
        "launch": entry["launch"] or launch_of(test),
        "env": entry["env"] or forced(test.run.environment),
        "gpus_per_thread": entry["gpus_per_thread"] or test.run.gpus_per_thread,
        "nodes": test.nodes if topology_of(entry["system"]).cluster else "",
        "matrix": matrix,
    }
    rows = [
        run
        | {"ranks": row.ranks, "op": row.op, "dtype": row.dtype, "size_bytes": row.size_bytes}
        | {"scale": f"{row.size_bytes / UNIFORM_BYTES if scale is None else scale:g}" if matrix else ""}
        | times_us(row.time_s * 1e6, row.in_place_time_s * 1e6 if row.in_place_time_s else None)
        for row in thinned([row for row in test.rows if row.time_s])
        if row.time_s
    ]
    return completed(entry, rows)


def times_us(out_us: float, in_us: float | None) -> dict[str, object]:
    """Return the columns of times."""
    return {"out_of_place_us": round(out_us, 3), "in_place_us": round(in_us, 3) if in_us else None}


def completed(entry: Entry, rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return rows with what the split says of their log, and with their spikes flagged."""
    said = {key: entry[key] for key in ("log", "system", "nvls", "health")}
    said["source"] = short_source(entry["source"])
    used = [used_time_s(row["out_of_place_us"], row["in_place_us"], entry["system"]) for row in rows]  # type: ignore[arg-type]
    return [row | said | {"flag": "spike" if spike else ""} for row, spike in zip(rows, spikes(used), strict=True)]


Figures = tuple[Entry, list[Entry]]
"""The entry of a log in INDEX.csv, and its rows in figures.csv."""


def find_figures(folders: Sequence[str]) -> dict[str, Figures]:
    """Return logs of which the folders have figures only, by their names."""
    found: dict[str, Figures] = {}
    for folder in (Path(given.rpartition("=")[2]) for given in folders):
        if (folder / "figures.csv").is_file():
            found |= {entry["file"]: (entry, []) for entry in read_csv(folder / "INDEX.csv")}
            for row in read_csv(folder / "figures.csv"):
                found[row["log"]][1].append(row)
    return found


def find_tables(folders: Sequence[str]) -> dict[str, Figures]:
    """Return tables of nccl-tests that AIConfigurator ships, a log for each system, number of ranks and operation.

    Each time is the median over repeated tables, out of place.
    """
    found: dict[str, Figures] = {}
    for path in (Path(given.rpartition("=")[2]) / "nccl.csv" for given in folders):
        for row in read_csv(path) if path.is_file() else ():
            if machine := TABLED.get((row["system"], row["gpus"])):
                name = f"{machine}__{row['op']}__aiconfigurator"
                index = {"op": row["op"], "ranks": row["gpus"], "datatype": row["dtype"]}
                figures = {"size_bytes": row["size_bytes"], "time_oop_us": row["time_us"], "time_ip_us": ""}
                found.setdefault(name, (index, []))[1].append(figures)
    return found


def rows_of_figures(entry: Entry, figures: Figures) -> list[dict[str, object]]:
    """Return the rows of a log that is published as figures; its nodes are as few as hold the ranks."""
    index, table = figures
    cluster, ranks = topology_of(entry["system"]).cluster, int(index["ranks"])
    run = {
        "library": entry["library"],
        "launch": entry["launch"] or "stream",
        "env": entry["env"],
        "gpus_per_thread": entry["gpus_per_thread"],
        "nodes": -(-ranks // cluster.node.n_gpus) if cluster else "",
        "ranks": ranks,
        "op": operation(index["op"]).name,
        "dtype": index["datatype"],
        "matrix": "",
        "scale": "",
    }
    one_way = operation(index["op"]).name in NOT_IN_PLACE
    rows = [
        run
        | {"size_bytes": int(row["size_bytes"])}
        | times_us(float(row["time_oop_us"]), None if one_way else float(row["time_ip_us"] or 0))
        for row in table
    ]
    return completed(entry, rows)


def unplaced(folders: Sequence[str], entries: Iterable[Entry]) -> list[str]:
    """Return the logs that an INDEX.csv of the folders names and the split does not."""
    known = {entry["log"] for entry in entries}
    indexes = [Path(given.rpartition("=")[2]) / "INDEX.csv" for given in folders]
    named = [entry["file"] for path in indexes if path.is_file() for entry in read_csv(path) if "file" in entry]
    stems = [name.removesuffix(".txt").removesuffix(".csv") for name in named]
    return [f"{stem}: not in the split" for stem in stems if stem not in known]


def write_matrices(logs: Mapping[str, Path]) -> int:
    """Write the byte matrices that lie beside the logs, and the uniform one; return how many."""
    MATRICES.mkdir(exist_ok=True)
    found = {path.stem.removeprefix("matrix_"): path for path in logs.values() if path.stem.startswith("matrix_")}
    tables = {name: path.read_text(encoding="ascii").splitlines() for name, path in found.items()}
    if not tables:
        return 0
    n = len(next(iter(tables.values())))
    tables["uniform"] = [" ".join([str(UNIFORM_BYTES // n)] * n)] * n
    for name, lines in tables.items():
        text = "".join(",".join(line.split()) + "\n" for line in lines if line.strip())
        (MATRICES / f"{name}.csv").write_text(text, encoding="ascii")
    return len(tables)


def read_rows(entry: Entry, path: Path | None, figures: Figures | None) -> list[dict[str, object]]:
    """Return the rows of a log.

    Raises
    ------
    CollsimError
        It cannot be read, or is not one test with operation and ranks.
    """
    if path is None:
        assert figures is not None
        return rows_of_figures(entry, figures)
    tests = read_log(path).tests
    if len(tests) != 1 or tests[0].ranks is None or tests[0].op is None:
        raise CollsimError(f"{len(tests)} tests, need one with operation and ranks")
    return rows_of(entry, tests[0])


def kept_rows(entry: Entry) -> list[dict[str, str]]:
    """Return the rows that the tables have of a log."""
    path = DATA / f"{entry['system']}.csv"
    return [row for row in read_csv(path) if row["log"] == entry["log"]] if path.is_file() else []


def collect(folders: Sequence[str]) -> list[str]:
    """Write the tables and return what was wrong."""
    logs, split = find_logs(folders), read_csv(SPLIT)
    figures = find_figures(folders) | find_tables(folders)
    write_matrices(logs)
    tables: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    troubles = unplaced(folders, split)
    for entry in (entry for entry in split if entry["system"] != "none"):
        name = entry["log"]
        if name not in logs and name not in figures:
            tables[entry["system"]] += kept_rows(entry)
            continue
        try:
            tables[entry["system"]] += read_rows(entry, logs.get(name), figures.get(name))
        except CollsimError as error:
            troubles.append(f"{name}: {error}")
    for system, rows in sorted(tables.items()):
        write_csv(DATA / f"{system}.csv", COLUMNS, rows)
        print(f"{system}: {len(rows)} rows of {len({row['log'] for row in rows})} logs")
    return troubles


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", action="append", required=True, metavar="[NAME=]DIR")
    troubles = collect(parser.parse_args().folder)
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
