"""The trace of ``collsim run --perfetto``, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from collsim.core.atomic_files import check_writable, write_text
from collsim.report.run_trace import run_trace_text
from collsim.simulation.request.arguments import Arguments
from collsim.simulation.request.prepare import prepare
from collsim.simulation.traced import traced

if TYPE_CHECKING:
    import networkx as nx

    from collsim.simulation.result import Result
    from collsim.topology import Topology

__all__ = ["write_trace"]


def write_trace(
    file: str | Path,
    topo: str | Path | Topology | nx.Graph[Any],
    op: str,
    size: int | str | None = None,
    *,
    split: str | None = None,
    **asked: Unpack[Arguments],
) -> Result:
    """Predict how long one collective takes, and write every transfer and the rate of every link over time.

    Parameters
    ----------
    file : str or Path
        The trace, in the format of Chrome's trace viewer, for ui.perfetto.dev; whole or not there.
    topo, op, size, split
        As of `collsim.simulate`: one operation, one size, one algorithm or ``auto`` or ``best``.
    **asked
        Whatever else `collsim.simulate` takes.

    Returns
    -------
    Result
        That of `collsim.simulate`.

    Raises
    ------
    InputError
        Whatever is wrong with the request; it asks for more than one run, or for too long a trace; the file cannot be
        written.
    ModelError
        Ranks cannot reach each other, or the schedule deadlocks.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     result = write_trace(f"{folder}/trace.json", "hgx_h100", "all_gather", "1M", ranks=2)
    ...     Path(f"{folder}/trace.json").read_text()[:15]
    '{"traceEvents":'
    """
    check_writable(str(file))
    result, row = traced(prepare(topo, op, size, split=split, **asked))
    write_text(run_trace_text(row, str(result.topology["name"])), str(file))
    return result
