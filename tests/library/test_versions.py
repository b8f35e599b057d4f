"""Every version from which, or up to which, a library does something: it decides at exactly that version.

Where a constant says *since v*, the library of version *v* answers as with *since v - 1* and not as with *since
v + 1*; where it says *until v*, as with *until v + 1* and not as with *until v - 1*; where *v alone*, as with neither.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from collsim.core.errors import CollsimError
from collsim.library import Call, Library, choose, read_environment, system_of
from collsim.library.costs.direct_pointers import with_staged_rings, writes_directly
from collsim.library.costs.profile_files import load_profile
from collsim.library.nccl.versions import FOLDER, nccl_constants, read_constants
from collsim.library.rccl.tables import EARLIER, model_across
from collsim.library.system import System
from collsim.topology import load_topology

ROOM = Path(__file__).parents[2] / "collsim" / "library"
Version = tuple[int, int]
SIZES = [4**n for n in range(5, 15)]
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


@cache
def system(topo: str, nodes: int) -> System:
    return system_of(load_topology(topo, {"scale_out.nodes": str(nodes)} if nodes > 1 else {}))


@dataclass(frozen=True)
class Asked:
    """What the library is asked: all operations and sizes on a system."""

    topo: str
    nodes: int = 1
    ranks: int = 8
    variables: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, library: Library) -> list[Any]:
        on = replace(system(self.topo, self.nodes), **self.changed)
        calls = [
            Call(op, self.ranks * self.nodes, size, n_nodes=self.nodes, **self.call) for op in OPS for size in SIZES
        ]
        return [self._choice(call, on, library) for call in calls]

    def _choice(self, call: Call, on: System, library: Library) -> Any:
        try:
            return choose(call, on, library, read_environment(self.variables))
        except CollsimError as error:
            return str(error)


def staged(library: Library) -> Any:
    return with_staged_rings(load_profile("hgx_h100"), library)


H100, AWS = "hgx_h100", {"instance": "p5"}
DECIDED: dict[str, Callable[[Library], Any]] = {
    "choice.DEALT_SINCE": Asked(H100),
    "choice.MERGED_SINCE": Asked(H100, nodes=2, changed={"nics_per_gpu": 2, "nic_GBps": 25.0}),
    "nccl.plugin_tuner.TUNER_SINCE": Asked(H100, nodes=4, changed=AWS),
    "nccl.plugin_tuner.CHUNKS_SINCE": Asked(H100, nodes=4, changed=AWS),
    "nccl.tuner.PLUGIN_LATENCY_SINCE": Asked(H100, nodes=4, changed=AWS),
    "nccl.tuner.ALGORITHM_SINCE.tree": Asked(H100, nodes=4),
    "nccl.tuner.ALGORITHM_SINCE.nvls": Asked(H100),
    "nccl.tuner.ALGORITHM_SINCE.nvls_tree": Asked(H100, nodes=4),
    "nccl.tuner.ALGORITHM_SINCE.pat": Asked(H100, nodes=4, ranks=1),
    "nccl.tuner.GATHERED_SINCE": Asked(H100),
    "nccl.tuner.NVLS_TREE_RATIO_SINCE": Asked(H100, nodes=4),
    "nccl.tuner.LL128_SINCE": Asked(H100),
    "nccl.tuner.LL128_MIXED_SINCE": Asked(H100, changed={"others": (system("hgx_b200", 1),)}),
    "nccl.tuner.LL128_C2C_SINCE": Asked(H100, nodes=2, changed={"cpu_vendor": "arm", "nic_distance": "PHB"}),
    "nccl.tuner.LL_RING_UNTIL": Asked(H100, nodes=2, ranks=1),
    "nccl.tuner.BETWEEN_AND_BACK_UNTIL": Asked(H100, nodes=4, ranks=1),
    "nccl.point_to_point.NET_RATE_SINCE": Asked(H100, nodes=4),
    "costs.direct_pointers.RINGS_SINCE": lambda library: (
        staged(library),
        Asked(H100, call={"registered": True})(library),
    ),
    "costs.direct_pointers.UNTIL.1": lambda library: writes_directly(library, one_process=True),
    "engines.symmetric.SINCE": Asked(H100, call={"symmetric": True}),
    "rccl.board.COPIES_SINCE": Asked("mi350x_ubb8"),
    "rccl.board.WARP_SPEED_SINCE": Asked("mi350x_ubb8"),
    "rccl.board.LL_UP_TO_SINCE": Asked("mi350x_ubb8"),
    "rccl.board.LL128_SINCE.gfx942": Asked("mi300x_ubb8"),
    "rccl.board.LL128_SINCE.gfx950": Asked("mi350x_ubb8"),
    "rccl.board.LL128_SINCE.gfx90a": Asked("mi250x_node", ranks=6),
    "rccl.board.MSCCL_UNTIL": Asked("mi300x_ubb8"),
    "rccl.board.MSCCLPP_SINCE": Asked("mi300x_ubb8", call={"launch": "graph"}),
    "rccl.board.DDA_SINCE": Asked("mi300x_ubb8"),
    "rccl.board.DIRECT_SINCE": Asked("mi300x_ubb8"),
    "rccl.board.LOGGED": Asked("mi350x_ubb8"),
    "rccl.across.LL128_SINCE.gfx942": Asked("mi300x_ubb8", nodes=2),
    "rccl.across.LL128_SINCE.gfx950": Asked("mi350x_ubb8", nodes=2),
    "rccl.across.LL128_SINCE.gfx90a": Asked("mi250x_node", nodes=2),
    "rccl.across.GFX950_FEWER_SINCE": Asked("mi350x_ubb8", nodes=2),
    "rccl.across.DIRECT_SINCE": Asked("mi300x_ubb8", nodes=2),
    "rccl.across.HIERARCHICAL_SINCE": Asked("mi300x_ubb8", nodes=16),
    "rccl.across.FIRST_LIMITS": Asked("mi300x_ubb8", nodes=2),
    "rccl.across.PRESENT_LIMITS": Asked("mi350x_ubb8", nodes=2),
}
"""Constants by module and name, of dicts with the key, and what is asked to see them decide."""


def constant(told: str) -> tuple[Any, str, Any]:
    """Return the module of a constant, its name and its key, None if it has none."""
    parts = told.split(".")
    depth = next(i for i in range(len(parts), 0, -1) if ROOM.joinpath(*parts[:i]).with_suffix(".py").exists())
    module = importlib.import_module(".".join(("collsim.library", *parts[:depth])))
    return module, parts[depth], parts[depth + 1] if parts[depth + 1 :] else None


def value(told: str) -> Version:
    module, name, key = constant(told)
    found: Any = getattr(module, name)
    version: Version = found if key is None else found[int(key) if key.isdigit() else key]
    return version


def put(monkeypatch: pytest.MonkeyPatch, told: str, version: Version) -> None:
    """Give a constant another value in every module that has it."""
    module, name, key = constant(told)
    before = getattr(module, name)
    now: Any = version
    if key is not None:
        now = {**before, key: version} if isinstance(before, dict) else (*before[: int(key)], version)
    for each in [each for name, each in sys.modules.items() if name.startswith("collsim.library")]:
        if getattr(each, name, None) is before:
            monkeypatch.setattr(each, name, now)


@pytest.mark.parametrize("told", DECIDED)
def test_a_version_decides_at_exactly_that_version(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version, until, alone = value(told), "UNTIL" in told, "LOGGED" in told
    library = Library("rccl" if told.startswith("rccl") else "nccl", version)
    answers = {}
    for step in (-1, 0, 1):
        with monkeypatch.context() as patched:
            put(patched, told, (version[0], version[1] + step))
            answers[step] = DECIDED[told](library)
    same, other = (1, -1) if until else (-1, 1)
    assert (answers[0] == answers[same]) is not alone
    assert answers[0] != answers[other]


ELSEWHERE = {
    "nccl/tuner.py": ["setting.version < _since(call, algo)"],
    "library.py": ["version < low", "version[0] not in (low[0], high[0])"],
    "nccl/versions.py": ["since <= version"],
    "rccl/board.py": ["library.version >= since[system.architecture]"],
    "rccl/tables.py": ["version <= last"],
    "costs/hosts.py": ["library.version >= version"],
}
"""Comparisons whose versions stand in a table, which tests below and others ask row by row."""


def compared(path: Path) -> list[str]:
    """Return the comparisons of versions in a file."""
    found = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Compare)]
    return [text for node in found if "version" in (text := ast.unparse(node)).lower()]


def test_every_version_that_decides_is_asked() -> None:
    names = {name for told in DECIDED for name in told.split(".") if name.isupper()}
    for path in sorted(ROOM.rglob("*.py")):
        file = str(path.relative_to(ROOM))
        others = [text for text in compared(path) if not names.intersection(re.findall(r"\w+", text))]
        assert set(others) == set(ELSEWHERE.get(file, ())), file


def test_tables_of_nccl_hold_from_their_version_on() -> None:
    for path in FOLDER.glob("*.yaml"):
        version = tuple(map(int, path.stem.split(".")))
        assert nccl_constants(version) == read_constants(path.read_bytes(), path.name)


def test_tables_of_rccl_hold_up_to_their_version() -> None:
    for number, rows in EARLIER.items():
        for last, model in rows:
            assert model_across(number, last) is model
            assert model_across(number, (last[0], last[1] + 1)) is not model
