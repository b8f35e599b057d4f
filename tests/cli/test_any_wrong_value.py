"""Any wrong value of any argument or option ends in an error that names it, or is a valid value; never in a raw error.

Arguments and options are read from the functions and commands themselves, so that new ones are tried as well.
"""

import inspect
import math
import shutil
import zlib
from pathlib import Path
from types import FunctionType

import click
import numpy as np
import pytest

import collsim as library
from collsim.cli import COMMANDS
from collsim.core.errors import CollsimError
from collsim.core.kinds import annotations_of

from .conftest import ROOT

LOG, STEP = str(ROOT / "examples" / "h100_all_reduce.log"), str(ROOT / "examples" / "training_step.yaml")
SERVING, IMPORTS = str(ROOT / "examples" / "serving.yaml"), ROOT / "examples" / "imports"
GRID = {"base": {"topo": "hgx_h100", "op": "all_reduce", "profile": "ideal"}, "grid": {"size": ["1M"]}}
ONE, TWO = {"topo": "hgx_h100"}, {"topos": ["hgx_h100", "hgx_b200"]}
CALL = {"op": "all_reduce", "size": "1M", "profile": "ideal"}
EXPERTS = {"model": "deepseek-v3", "ep": 8, "tokens": 16, "seeds": [1]}
TABLE = {"op": ["all_gather"], "elements": [2**20], "ranks": [8], "dtype": ["half"], "profile": "ideal"}
FUNCTIONS = {
    "simulate": ONE | CALL,
    "compare": TWO | CALL,
    "explain": ONE | CALL | {"what_ifs": False},
    "tune": ONE | {"op": "all_reduce", "size": "1M", "search_channels": False},
    "simulate_moe": ONE | EXPERTS,
    "compare_moe": TWO | EXPERTS,
    "compare_workloads": TWO | {"workload": STEP},
    "validate": ONE | {"logs": LOG},
    "diagnose": ONE | {"logs": LOG, "causes": ["nvls_off"]},
    "calibrate": ONE | {"logs": LOG},
    "sweep": {"grid": GRID, "jobs": 1},
    "simulate_timeline": {"file": STEP},
    "simulate_serving": {"file": SERVING},
    "planner_table": ONE | TABLE,
    "import_topology": {"source": str(IMPORTS / "topo_m.txt")},
    "import_schedule": {"file": str(IMPORTS / "msccl_ring.xml")},
    "load_topology": {"source": "hgx_h100"},
    "write_trace": ONE | CALL | {"file": "trace.json"},
    "write_report": {"files": LOG, "output": "report.html", "explain": False},
}
"""A small call of each function, of which one argument is replaced."""
VALUES = {
    "none": None, "true": True, "below": -1, "zero": 0, "half": 0.5, "nan": math.nan, "inf": math.inf, "huge": 10**30,
    "bytes": b"x", "empty": "", "zero_byte": "\0", "word": "x", "long": "x" * 5000, "list": [], "of_none": [None],
    "nested": [[]], "mapping": {}, "of_numbers": {1: 2}, "set": {1, 2}, "mixed": (1, "a"), "object": object(),
    "array": np.arange(3.0), "table": np.zeros((2, 2)), "float32": np.float32(3), "path": Path("no/such"),
    "directory": Path(), "log": Path("own.log"), "function": lambda *_: 1, "iterator": iter(()),
}  # fmt: skip
TEXTS = ("", "x", "-1", "0", "nan", "1e400", "\u00e9=\u00e9", "a,,b", "{", "x" * 5000)
EVERY = 24
"""One of so many pairs is tried each time; `deep` tries all."""
OTHERS = {
    ("planner_table", "elements"): "every size rounds down",
    ("simulate_timeline", "profile"): "this is a directory",
    ("calibrate", "nodes"): "more than one scale-up domain",
    ("validate", "rank_list"): "the list of ranks",
    ("diagnose", "rank_list"): "the list of ranks",
}
"""Arguments that are sound, and what they leave nothing of: those faults tell what is in the way in words."""


def _sampled(pairs):
    """Return pairs, all but some marked deep: the same at every run, others once an argument is added."""
    chosen = [zlib.crc32(repr(pair).encode()) % EVERY == 0 for pair in pairs]
    return [
        pytest.param(*pair, marks=[] if now else [pytest.mark.deep], id="-".join(map(str, pair)))
        for pair, now in zip(pairs, chosen, strict=True)
    ]


def _refusal(function, **given):
    """Return the error of this package that a call raises, None if it raises none; any other error passes."""
    try:
        function(**given)
    except CollsimError as error:
        return error
    return None


ARGUMENTS = [(name, argument) for name in FUNCTIONS for argument in annotations_of(getattr(library, name))]


def test_all_public_functions_are_tried():
    functions = {name for name in library.__all__ if isinstance(getattr(library, name), FunctionType)}
    assert functions - {"systems"} == {*FUNCTIONS}  # which takes none


@pytest.mark.parametrize(
    ("function", "argument", "value"), _sampled([(*each, value) for each in ARGUMENTS for value in VALUES])
)
def test_functions(function, argument, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(LOG, "own.log")
    error = _refusal(getattr(library, function), **{**FUNCTIONS[function], argument: VALUES[value]})
    if error is not None:
        told = str(error)
        named = any(argument in f"{fault.where} {fault.what} {fault.hint}" for fault in error.faults)
        assert named or OTHERS.get((function, argument), "\0") in told, told
        assert "--" not in told.partition("collsim ")[0]
        assert max(map(len, told.splitlines())) < 2_000


@pytest.fixture(scope="module")
def results():
    """One object of each public class that is cheap to have."""
    topology = library.load_topology("hgx_h100")
    swept = library.sweep(GRID, jobs=1)
    moe = library.simulate_moe(**ONE, **EXPERTS)
    found = library.simulate(**ONE, **CALL)
    several = library.compare(**TWO, **CALL), library.validate(LOG, "hgx_h100"), library.planner_table(**ONE, **TABLE)
    made = library.import_topology(str(IMPORTS / "topo_m.txt")), library.explain(**FUNCTIONS["explain"])
    return [topology, swept, moe, found, *several, *made]


def test_methods(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(LOG, "own.log")
    tried = 0
    for result in results:
        for name, _ in inspect.getmembers_static(type(result), lambda member: isinstance(member, FunctionType)):
            method = getattr(result, name)
            if name.startswith("_") or name == "plot":  # which has tests of its own
                continue
            for argument in annotations_of(method):
                for kind, value in VALUES.items():
                    tried += 1
                    error = _refusal(method, **{argument: value})
                    told = str(error)
                    one = len(annotations_of(method)) == 1  # whose value says which it is
                    assert (
                        error is None or argument in told or (one and (str(value)[:20] in told or name == "front"))
                    ), (name, kind, told)
    assert tried > 300


BARE = {
    "run": ["--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--profile", "ideal"],
    "compare": ["hgx_h100", "hgx_b200", "--op", "all_reduce", "--size", "1M", "--profile", "ideal"],
    "explain": ["--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--no-what-ifs"],
    "moe": ["--topo", "hgx_h100", "--model", "deepseek-v3", "--ep", "8", "--tokens", "16", "--seeds", "1"],
    "validate": [LOG, "--topo", "hgx_h100"],
    "diagnose": [LOG, "--topo", "hgx_h100", "--causes", "nvls_off"],
    "calibrate": [LOG, "--topo", "hgx_h100"],
    "timeline": [STEP],
    "serve": [SERVING],
    "tables": ["--topo", "hgx_h100", "--op", "all_gather", "--elements", "1048576", "--ranks", "8"],
}


SPELLED = {}
"""All words for an option, by command and flag."""


def _options():
    """Yield each option of each command that takes a value; ``serve --output`` would serve all of its requests."""
    from importlib import import_module

    for name in BARE:
        command = getattr(import_module(f"collsim.cli.{name}"), name)
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and not option.count:
                SPELLED[name, max(option.opts, key=len)] = option.opts
                yield from [(name, max(option.opts, key=len))] * ((name, option.name) != ("serve", "output"))


OPTIONS = [*_options()]


@pytest.mark.parametrize(
    ("command", "flag", "text"),
    # Not all are tried: flags of files, beside others, name the file alone.
    [each for each in _sampled([(*each, text) for each in OPTIONS for text in range(len(TEXTS))]) if not each.marks],
)
def test_options(collsim, command, flag, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command in COMMANDS
    found = collsim(command, *BARE[command], flag, TEXTS[text])
    assert found.code in (0, 1, 2), found.err
    assert "Traceback" not in found.err
    assert "defect" not in found.err
    if found.code:
        assert any(word in found.err for word in SPELLED[command, flag]), found.err
