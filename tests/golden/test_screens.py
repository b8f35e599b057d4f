"""Tables of every command on terminals of 80, 120 and 200 columns, letter by letter.

Figures of fitted profiles change with every fit: digits of these tables are zeros here. After a change that is meant,
``PYTHONPATH=. python tests/golden/test_screens.py`` writes the files again.
"""

import contextlib
import io
import os
import re
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "screens"
WIDTHS = (80, 120, 200)
LOG = "examples/h100_all_reduce.log"
COMMANDS = {
    "run": "run --topo mi300x_ubb8 --op all_reduce --size 1M,64M --profile ideal --algo ring",
    "run_fitted": "run --topo hgx_h100 --op all_reduce --size 1M,64M",
    "run_failure": "run --topo mi300x_ubb8 --op all_to_all --size 64M --fail link:gpu0-gpu1 --profile ideal",
    "compare": "compare mi355x_ubb8 hgx_b200 --op all_to_all --size 64M --profile ideal",
    "compare_workload": "compare hgx_h100 hgx_b200 --workload examples/training_step.yaml",
    "sweep": "sweep examples/sweep.yaml --pareto cost,time -q --jobs 1",
    "tune": "tune --topo hgx_h100 --op all_reduce --size 1M,2M",
    "explain": "explain --topo mi300x_ubb8 --op all_to_all --size 1M --no-what-ifs",
    "validate": f"validate {LOG} --topo hgx_h100",
    "diagnose": f"diagnose {LOG} --topo hgx_h100 --causes nvls_off,few_channels",
    "calibrate": f"calibrate {LOG} --topo hgx_h100",
    "moe": "moe --topo hgx_h100 --ep 4,8 --tokens 128 --load-only",
    "moe_compare": "moe --topo hgx_h100 --compare hgx_b200 --ep 8 --tokens 128 --load-only",
    "moe_models": "moe --list-models",
    "moe_kernels": "moe --list-kernels",
    "timeline": "timeline examples/training_step.yaml",
    "serve": "serve examples/serving.yaml",
    "doctor": "doctor",
    "topo_list": "topo list",
    "topo_show": "topo show hgx_h100",
    "topo_import": "topo import examples/imports/topo_m.txt --format table",
    "schedule_show": "schedule show --topo mi300x_ubb8 --op all_reduce --algo ring --size 1M --channels 1",
    "schedule_run": "schedule run examples/imports/msccl_ring.xml --topo dgx_a100 --size 1M --profile ideal",
}
BARE = (
    "run",
    "run_failure",
    "compare",
    "moe_models",
    "topo_list",
    "topo_show",
    "topo_import",
    "schedule_show",
    "schedule_run",
)
"""Commands whose figures follow from line rates and files alone."""
NO_TABLES = {"report": "HTML", "tables": "CSV and Parquet"}
KEPT_IN = Path("/home/someone/.cache/collsim/engine_0123456789abcdef0123456789abcdef01234567")
"""Where `doctor` says that kernels are kept, whatever machine this is."""
MACHINE = (
    mock.patch("collsim.engine.warmup.cache_folder", return_value=KEPT_IN),
    mock.patch("sys.executable", "/usr/bin/python3"),
    mock.patch.dict(os.environ, {"NUMBA_CACHE_DIR": str(KEPT_IN.parent)}),
)


class Terminal(io.StringIO):
    """Stream that says it is a terminal."""

    def isatty(self):
        return True


def shown(name, width):
    """What a command shows on a terminal of so many columns."""
    from collsim import cli

    screen, argv = Terminal(), sys.argv
    size = lambda *_: os.terminal_size((width, 24))  # noqa: E731
    true_size, shutil.get_terminal_size = shutil.get_terminal_size, size
    sys.argv = ["collsim", *COMMANDS[name].split()]
    try:
        with (contextlib.ExitStack() as machine, contextlib.redirect_stdout(screen), contextlib.chdir(ROOT),
              contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit)):  # fmt: skip
            for one in MACHINE if name == "doctor" else ():
                machine.enter_context(one)
            cli.main()
    finally:
        shutil.get_terminal_size, sys.argv = true_size, argv
    text = screen.getvalue()
    text = re.sub(r"(?m)^(python|numpy|scipy|numba)( +)[\w.+]+", r"\1\g<2>0.0.0", text) if name == "doctor" else text
    return text if name in BARE else re.sub(r"\d", "0", text)


def golden(name):
    return "".join(f"===== {width} columns\n{shown(name, width)}" for width in WIDTHS)


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((80, 24)))


SLOW = ("serve", "sweep", "tune")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.deep] * (each in SLOW)) for each in COMMANDS])
def test_tables_on_terminals(plain, name):
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    for width in WIDTHS:
        found = shown(name, width)
        part = text.partition(f"===== {width} columns\n")[2].partition("===== ")[0]
        assert found == part
        assert max(map(len, found.splitlines())) <= width


WIDER = (
    "run --topo h100_rail --nodes 4 --op all_to_all,all_reduce --size 1M,16G --columns bounds,bytes,rates",
    "run --topo hgx_h100 --op all_reduce --size 64M --groups tp=2,dp=4 --over dp --algo auto,ring --degrade gpu:3=50%",
    "compare hgx_h100 hgx_b200 --op all_reduce --size 1K,16G --cost",
    "compare hgx_h100 hgx_b200 mi355x_ubb8 --op all_reduce,all_to_all --size 64M",
    "compare mi355x_ubb8 hgx_b200 gb200_nvl72 --op all_to_all --size 1G --ranks 8 --cost --profile ideal",
    "compare hgx_h100 hgx_b200 --workload examples/training_step.yaml --nodes 2",
    "tune --topo hgx_h100 --op all_reduce --size 64K --nodes 2",
    "diagnose examples/h100_doubtful.log --topo hgx_h100 --causes nvls_off",
    "moe --topo hgx_h100 --nodes 4 --ep 16,32 --tokens 4096 --load-only --skew 1.0 --seeds 0-2",
    "moe --topo hgx_h100 --nodes 2 --compare hgx_b200,mi300x_ubb8 --ep 8,16 --tokens 512 --load-only",
    "validate examples/h100_slow.log --topo hgx_h100 --nodes 2",
    "topo show h100_rail --set scale_out.nodes=4",
    "topo show gb200_nvl72",
    "schedule show --topo h100_rail --nodes 2 --op all_to_all --algo direct --size 64M",
    "explain --topo h100_rail --nodes 2 --op all_reduce --size 64M --no-what-ifs",
)
"""Commands with longer cells than those whose tables are kept."""


@pytest.mark.parametrize("command", WIDER)
def test_longer_cells_fit_too(plain, monkeypatch, command):
    monkeypatch.setitem(COMMANDS, "wider", command)
    for width in (80, 120, 200):
        found = shown("wider", width)
        assert found.count("\n") > 3
        assert [line for line in found.splitlines() if len(line) > width] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_a_sum_of_dispatch_and_combine_holds_is_shown(plain, monkeypatch, width):
    """Microseconds to two digits: prepare, dispatch and combine of four nodes add up to the sum."""
    monkeypatch.setitem(COMMANDS, "moe_of_nodes", "moe --topo hgx_h100 --nodes 4 --ep 32 --tokens 4096 --load-only")
    monkeypatch.setattr(sys.modules[__name__], "BARE", (*BARE, "moe_of_nodes"))
    rows = re.findall(r"(?m)^ .* (prepare|dispatch|combine|sum) +([\d.]+)", shown("moe_of_nodes", width))
    *parts, (last, whole) = [(name, float(time)) for name, time in rows]
    assert [*dict(parts), last] == ["prepare", "dispatch", "combine", "sum"]
    assert sum(time for _, time in parts) == pytest.approx(whole, abs=0.02)


def test_every_command_that_has_a_table_is_here():
    from collsim.cli import cli

    names = {command.split()[0] for command in COMMANDS.values()}
    assert names | set(NO_TABLES) == set(cli.list_commands(None))


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    FOLDER.mkdir(exist_ok=True)
    for each in COMMANDS:
        (FOLDER / f"{each}.txt").write_text(golden(each), encoding="utf-8")
