"""`sweep`: every point of a grid that its file does not have yet, answered and appended as it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collsim._version import __version__
from collsim.core.atomic_files import check_writable
from collsim.core.errors import Fault, Faults, InputError
from collsim.sweeps.grid import read_grid
from collsim.sweeps.journal import Journal, parquet_records, write_parquet
from collsim.sweeps.pareto import objectives_of
from collsim.sweeps.points import Point
from collsim.sweeps.records import OK
from collsim.sweeps.result import SweepResult
from collsim.sweeps.workers import on_dask, on_processes

__all__ = ["sweep"]

JSONL, PARQUET = ".jsonl", ".parquet"
FEW = 16
"""So few points are answered in this process, unless told otherwise: to start another takes a second."""


def sweep(
    grid: str | Path | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    pareto: str | Sequence[str] | None = None,
    retry_failed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Answer every point of a grid.

    Parameters
    ----------
    grid : str, path or mapping
        File, or its content: ``kind``, ``base``, ``grid``, ``zip``, ``points`` (docs/sweep.md).
    output : str or path, optional
        JSON lines (``.jsonl``) to which each point is appended as it is done, or Parquet (``.parquet``), written from
        such a file beside it once all are. What it has already is not answered again.
    jobs : int, optional
        Processes; by default one for each core, or this one for few points.
    dask : str, optional
        Address of a Dask scheduler, ``tcp://HOST:8786``, on whose workers to answer instead.
    pareto : str or sequence of str, optional
        Objectives such as ``cost,time``: `collsim.sweeps.pareto.OBJECTIVES`.
    retry_failed : bool
        Whether points that have failed before are asked again; of a point that the file then has twice, the later
        record counts.
    progress : callable, optional
        Called with the points that are done and all there are, at first and after each.

    Raises
    ------
    InputError
        Everything that is wrong with grid and arguments, at once. A point without an answer raises nothing: its record
        says why.

    Examples
    --------
    >>> import collsim
    >>> found = collsim.sweep({
    ...     "base": {"op": "all_to_all", "size": "1G", "profile": "ideal"},
    ...     "grid": {"topo": ["mi355x_ubb8", "hgx_b200"]},
    ... }, pareto="cost,time")
    >>> [f"{row['answer']['busbw_Bps'] / 1e9:.1f}" for row in found], [row["asked"]["topo"] for row in found.front()]
    (['537.6', '900.0'], ['mi355x_ubb8', 'hgx_b200'])
    """
    faults = Faults()
    points = faults.attempt(read_grid, grid)
    objectives = [] if pareto is None else faults.attempt(objectives_of, pareto)
    processes = faults.attempt(_jobs, jobs, dask, len(points or ()))
    file = faults.attempt(_output, output)
    faults.raise_any()
    assert points is not None
    assert processes is not None
    kept = _done(file)
    with Journal(_journal_file(file)) as journal:
        known = {**kept, **journal.records}
        done_before = {key for key, record in known.items() if record["status"] == OK or not retry_failed}
        left = [point for point in points if point.key not in done_before]
        tell = progress or (lambda _, __: None)
        done = len(points) - len(left)
        tell(done, len(points))
        for record in _answers(left, processes, dask):
            journal.append(record)
            done += 1
            tell(done, len(points))
        known |= journal.records
    if file is not None and Path(file).suffix.lower() == PARQUET:
        _settle(list(known.values()), file, renew=bool(left) or not kept)
    rows = tuple(known[point.key] for point in points)
    others = len(known) - len(rows)
    return SweepResult(__version__, rows, tuple(objectives or ()), len(left), len(points) - len(left), others)


def _answers(left: Sequence[Point], processes: int, dask: str | None) -> Iterator[dict[str, Any]]:
    if not left:
        return iter(())
    return on_dask(left, dask) if dask is not None else on_processes(left, min(processes, len(left)))


def _jobs(jobs: int | None, dask: str | None, points: int) -> int:
    """Return the number of processes; raise if it is none."""
    if dask is not None and jobs is not None:
        raise InputError(Fault("both jobs and dask", "jobs", "a Dask cluster has its own workers: leave jobs out"))
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise InputError(Fault(f"{jobs!r} processes", "jobs", "give 1 or more"))
    return jobs or (1 if points <= FEW else _cores())


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _output(output: str | Path | None) -> str | None:
    if output is None:
        return None
    file = os.fspath(output)
    suffix = Path(file).suffix.lower()
    if suffix not in (JSONL, PARQUET):
        hint = f"end it in {JSONL}, or in {PARQUET}"
        raise InputError(Fault(f'the suffix "{suffix}" is none that a sweep can go on with', "output", hint))
    if suffix == PARQUET:
        try:
            import polars  # noqa: F401
        except ImportError:
            hint = f"pip install 'collsim[frames]', or end it in {JSONL}"
            raise InputError(Fault("Parquet needs polars, which is not installed", "output", hint)) from None
    check_writable(file)
    return file


def _journal_file(file: str | None) -> str | None:
    """Return the file of JSON lines: the output, or what stands beside a Parquet file until all is done."""
    return f"{file}{JSONL}" if file is not None and Path(file).suffix.lower() == PARQUET else file


def _done(file: str | None) -> dict[str, dict[str, Any]]:
    """Return the records of a Parquet file that is there."""
    if file is None or Path(file).suffix.lower() != PARQUET or not Path(file).exists():
        return {}
    return {record["key"]: record for record in parquet_records(file)}


def _settle(records: list[dict[str, Any]], file: str, *, renew: bool) -> None:
    """Write all records as Parquet, and remove the lines beside it, which it holds then."""
    if renew:
        write_parquet(records, file)
    Path(f"{file}{JSONL}").unlink(missing_ok=True)
