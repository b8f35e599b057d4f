"""Types of what `collsim.simulate` takes beside topology, operation, size and split, for functions that pass it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from collsim.library import Profile

__all__ = ["Arguments", "OfMachine"]


class OfMachine(TypedDict, total=False):
    """What changes the machine beside its number of nodes, which some functions take several of."""

    gpus_per_node: int | None
    racks: int | None
    fabric: str | None
    network: str | None
    overrides: Mapping[str, str] | Sequence[str] | None
    fail: str | Sequence[str] | None
    degrade: Mapping[str, str | float] | Sequence[str] | None


class Arguments(OfMachine, total=False):
    """The arguments of `collsim.simulate`, each under its name; its docstring says what they mean."""

    min_bytes: int | str | None
    max_bytes: int | str | None
    step_bytes: int | str | None
    step_factor: float | str | None
    nodes: int | None
    ranks: int | Sequence[int] | None
    rank_list: Sequence[int] | None
    algo: str | Sequence[str]
    channels: int | None
    chunk: int | str | None
    dtype: str
    redop: str
    root: int
    profile: str | Profile
    proto: str | None
    library: str | None
    environment: Mapping[str, str] | None
    launch: str
    registered: bool | str
    reduce: bool
    tolerance: float | str | None
    bracket: bool
    gpus_per_thread: int
    one_process: bool
    host: str
    groups: Any
    over: str | None
    placement: str | Path | None
    load: str | Sequence[str]
    hash_seeds: str | Sequence[int] | None
    matrix: Any
