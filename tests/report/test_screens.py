"""Tables on terminals: as wide as these are, with what there was no room for, and colours only there."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import collsim
from collsim.report import Screen, render, render_comparison, render_validation
from collsim.report.moe import render_moe

ROOT = Path(__file__).parents[2]
LOG = ROOT / "examples" / "h100_all_reduce.log"
MADE = {
    "run": lambda: (render, collsim.simulate("mi300x_ubb8", "all_reduce", ["1M", "64M"])),
    "run_all": lambda: (render, collsim.simulate("mi300x_ubb8", "all_reduce", "1M", algo="all")),
    "compare": lambda: (render_comparison, collsim.compare(["mi355x_ubb8", "hgx_b200"], "all_to_all", "64M")),
    "moe": lambda: (render_moe, collsim.simulate_moe("hgx_h100", ep=[4, 8], tokens=128, load_only=True)),
    "validate": lambda: (render_validation, collsim.validate(LOG, topo="hgx_h100")),
}
STYLE = re.compile(r"\x1b\[\d+m")


@pytest.fixture(scope="module", params=MADE)
def made(request):
    return MADE[request.param]()


@pytest.mark.parametrize("width", [80, 120, 160, 200])
def test_tables_fit_and_say_what_they_leave_out(made, width):
    show, result = made
    whole, text = show(result), show(result, "table", Screen(width))
    assert max(map(len, text.splitlines())) <= width
    told = " ".join(text.replace("\n#  ", "").split())
    lost = {each.strip() for each in told.partition("# no room for ")[2].partition(":")[0].split(",")} - {""}
    there, all_of_them = ({name for name in COLUMNS if re.search(rf"(?m)^#.* {name}( |$)", t)} for t in (text, whole))
    assert all_of_them - there <= lost
    assert {"high", "low"} & lost in ({"high", "low"}, set())  # an interval with one end is none
    if width == 200:
        assert "--wide shows all" not in text or max(map(len, whole.splitlines())) > 200


@pytest.mark.parametrize("width", [None, 60, 80, 120, 200])
def test_a_note_on_intervals_stands_where_they_do(made, width):
    """Also in a comparison of experts, whose warnings speak of intervals."""
    experts = collsim.compare_moe(["hgx_h100", "hgx_b200"], ep=8)
    for show, result in (made, (render_moe, experts)):
        text = show(result, "table", Screen(width))
        heads = {
            word for line in text.splitlines() if line.startswith("#") and " time" in line for word in line.split()
        }
        heads |= {word for line in text.splitlines() if line.startswith("# ranks") for word in line.split()}
        said = "# low to high: " in text or "# low, high: " in text
        if isinstance(result, collsim.Validation):
            continue
        assert said is ({"low", "high"} <= heads)
    assert "low" in render_moe(experts)
    assert "low" in render_moe(experts, "md")


def test_costs_keep_the_verdict_longer_than_the_energy():
    found = collsim.compare(["hgx_h100", "hgx_b200"], "all_reduce", "64M", cost=True)
    gone = []
    for width in range(220, 60, -1):
        text = render_comparison(found, "table", Screen(width))
        (head,) = [line for line in text.splitlines() if line.startswith("# op ") and "system" in line]
        gone += [name for name in ("energy", "low", "verdict") if name not in head.split() and name not in gone]
    assert gone == ["energy", "low", "verdict"]


COLUMNS = ("count", "redop", "root", "low", "high", "algbw", "busbw", "logical", "imbalance", "verdict")


EXPERTS = {"nodes": 2, "ep": [8, 16], "tokens": 512, "load_only": True}


@pytest.mark.parametrize("more", [{}, {"skew": 1.0, "seeds": [0, 1, 2]}], ids=["expected", "drawn"])
@pytest.mark.parametrize("width", [None, 40, 80, 120, 200])
def test_what_a_table_of_experts_shows_adds_up_to_its_sum(more, width):
    found = collsim.simulate_moe("hgx_h100", **EXPERTS, **more)
    assert any(row.prepare_s for row in found.rows)
    text = render_moe(found, "table", Screen(width))
    head = next(line for line in text.splitlines() if line.startswith("# ranks"))
    parts = 0.0
    for line in (line for line in text.splitlines() if line.startswith("  ")):
        named = [name for name in ("time", "least", "most") if name in head]
        figures = {name: line[: head.index(name) + len(name)].split()[-1] for name in named}
        if " sum " not in line:
            parts += float(figures["time"])
            continue
        assert float(figures["time"]) == pytest.approx(parts, abs=0.021)
        assert float(figures.get("least", 0)) <= float(figures["time"]) <= float(figures.get("most", "inf"))
        parts = 0.0


@pytest.mark.parametrize("width", [None, 60, 80, 120])
def test_what_a_comparison_of_experts_shows_adds_up_to_its_sum(width):
    found = collsim.compare_moe(["hgx_h100", "hgx_b200"], **EXPERTS)
    text = render_moe(found, "table", Screen(width))
    head = next(line for line in text.splitlines() if line.startswith("# ranks"))
    ends = {name: head.index(name) + len(name) for name in ("prepare", "dispatch", "combine", "sum")}
    for line in (line for line in text.splitlines() if line.startswith("  ")):
        prepare, *others = (line[: ends[name]].split(" ")[-1] for name in ends)
        dispatch, combine, whole = map(float, others)
        assert whole == pytest.approx(float(prepare or 0) + dispatch + combine, abs=0.021)


def test_everything_in_a_file(made):
    show, result = made
    assert show(result) == show(result, "table", Screen())
    assert not STYLE.search(show(result))


def test_three_lines_above_a_table(made):
    show, result = made
    whole, brief = show(result), show(result, "table", Screen(100, brief=True))
    above = brief.partition("\n#\n")[0].splitlines()
    if len(whole.partition("\n#\n")[0].splitlines()) > 4:
        assert len(above) == 3
        assert above[-1].endswith("more about this model and its figures: -v")
    assert max(map(len, above)) <= 100


def test_colours_change_nothing_else(made):
    show, result = made
    plain, coloured = (show(result, "table", Screen(120, colour=on)) for on in (False, True))
    assert STYLE.search(coloured)
    assert [line.rstrip() for line in STYLE.sub("", coloured).splitlines()] == plain.splitlines()


def test_a_refused_row_is_cut_to_the_screen_and_red():
    result = collsim.simulate("mi355x_ubb8", "all_reduce", ["1M", "1T"], algo="ring")
    text = render(result, "table", Screen(80, colour=True))
    (row,) = [line for line in text.splitlines() if "refused" in line]
    assert "\x1b[31m" in row
    assert len(STYLE.sub("", row)) <= 80


def test_a_terminal_is_asked_how_wide_it_is():
    ours, theirs = pty.openpty()
    code = "from collsim.cli import main; main()"
    arguments = ("run", "--topo", "mi300x_ubb8", "--op", "all_reduce", "--size", "1M", "-q")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "90", "TERM": "xterm", "NO_COLOR": ""}
    subprocess.run([sys.executable, "-c", code, *arguments], stdout=theirs, check=True, env=environment, timeout=300)
    os.close(theirs)
    text = ""
    while True:
        try:
            part = os.read(ours, 65536).decode()
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    assert STYLE.search(text)
    lines = STYLE.sub("", text).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 90
    assert "--wide shows all" in " ".join(line.strip("# ") for line in lines)


def test_what_a_terminal_gets(monkeypatch):
    from collsim.cli.output import screen_of

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen_of(None, wide=False, verbose=False) == Screen(77, brief=True, colour=True)
    assert screen_of("-", wide=True, verbose=True) == Screen(None, brief=False, colour=True)
    assert screen_of("rows.txt", wide=False, verbose=False) == Screen()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen_of(None, wide=False, verbose=False).colour
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert screen_of(None, wide=False, verbose=False) == Screen()
