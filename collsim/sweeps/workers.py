"""Workers: points answered in this process, in several of this machine, or on a Dask cluster, in any order."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from collsim.core.errors import Fault, InputError
from collsim.sweeps.answer import answered, lost
from collsim.sweeps.points import Point

__all__ = ["on_dask", "on_processes"]

AHEAD = 4
"""Points that wait for each process: enough to keep it busy, and few enough to stop at once."""
CONNECT_S = 10.0
DIED = "its process died, as one that runs out of memory does"


def on_processes(points: Sequence[Point], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the record of each point as it is done, on so many processes.

    A process that dies takes the others of its pool with it: their points are asked again, each alone, and one whose
    process dies then as well is recorded as failed.
    """
    if jobs == 1:
        yield from map(answered, points)
        return
    left = {point.key: point for point in points}
    suspects: list[Point] = []
    while left and not suspects:
        for record in _pooled(list(left.values()), jobs, suspects):
            del left[record["key"]]
            yield record
        while suspects:
            point = suspects.pop()
            del left[point.key]
            again: list[dict[str, Any]] = list(_pooled([point], 1, []))
            yield again[0] if again else lost(point, DIED)


def _pooled(points: Sequence[Point], jobs: int, suspects: list[Point]) -> Iterator[dict[str, Any]]:
    """Yield records until all points are done or a process dies; *suspects* then has the points under way."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")  # threads of compiled code do not survive a fork
    told, stop = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(jobs, len(points)), mp_context=context, initializer=_start, initargs=(told,))
    waiting: dict[Future[dict[str, Any]], Point] = {}
    rest = iter(points)
    try:
        while True:
            for point in rest:
                waiting[pool.submit(answered, point)] = point
                if len(waiting) >= AHEAD * jobs:
                    break
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield future.result()
                del waiting[future]
    except BrokenProcessPool:
        suspects.extend(waiting.values())
    except BaseException:  # interrupted, or nobody asks any more: what a pool has from the system is given back
        stop.close()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start(told: Connection) -> None:
    """Leave interruptions to the parent, and end when it says so by closing its end of *told*, or ends itself."""
    import multiprocessing.connection

    from collsim.core import process

    process.ours = True
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        multiprocessing.connection.wait([parent.sentinel, told])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def on_dask(points: Sequence[Point], address: str) -> Iterator[dict[str, Any]]:
    """Yield the record of each point as it is done on the workers of a Dask scheduler.

    The scheduler gives the points of a worker that is lost to others; one with which several workers were lost is
    recorded as failed.

    Raises
    ------
    ImportError
        dask.distributed is not installed.
    InputError
        No scheduler answers at the address.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ImportError("dask.distributed is not installed: pip install 'collsim[dask]'") from None
    try:
        _reach(address)
        client: Any = Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        hint = "start one with `dask scheduler`, and give its address: tcp://HOST:8786"
        what = f"no Dask scheduler answers at {address}: {' '.join(str(error).split())[:200]}"
        raise InputError(Fault(what, "dask", hint)) from None
    with client, client.as_current():
        futures = {client.submit(answered, point, key=f"collsim-{point.key}", pure=False): point for point in points}
        for future in as_completed(list(futures)):  # type: ignore[no-untyped-call]
            failure = future.exception()
            why = f"{type(failure).__name__}: {failure}"
            yield future.result() if failure is None else lost(futures[future], why)
            future.release()


def _reach(address: str) -> None:
    """Raise OSError or ValueError where nobody listens at an address over TCP.

    A client of Dask that fails while it is made is closed only when Python forgets it, for 20 s and with a traceback.
    """
    scheme, _, place = address.rpartition("://")
    if scheme not in ("", "tcp", "tls"):
        return
    parts = urlsplit(f"//{place}")
    if not parts.hostname or parts.port is None:
        raise ValueError("an address has a host and a port")
    socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()
