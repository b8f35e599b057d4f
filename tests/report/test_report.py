"""Reports of results that no simulation needs to make."""

import re
from dataclasses import replace

import pytest

from collsim.core.errors import InputError, UnknownNameError
from collsim.report import FORMATS, SUFFIXES, check_writable, render, write_text
from collsim.report.html.marks import card, table, time_words
from collsim.report.nccl import time_text
from collsim.simulation.method import Method
from collsim.simulation.result import Limit, LinkLoad, Result, Row


def row(algo="ring", size=2**20, **changes):
    values = {
        "op": "all_to_all", "algo": algo, "proto": None, "channels": 2, "ranks": 8, "groups": 1, "dtype": "float",
        "redop": "none", "root": -1, "count": size // 32, "requested_bytes": size, "size_bytes": size, "time_s": 1e-5,
        "lower_bound_s": 4e-6, "bound": "egress gpu0", "bottleneck": (LinkLoad("a->b", 0.75),), "bottleneck_links": 1,
        "critical_s": {}, "method": Method("transfers", "reference"), "classes": 16,
    }  # fmt: skip
    return Row(**{**values, **changes})


def result(*rows, skipped=(), algo=("auto",), doubtful=()):
    return Result(
        version="1.2.3",
        config={"op": ["all_to_all"], "algo": list(algo), "overrides": {}},
        topology={"name": "one|two", "ranks": 8, "links": 56, "follows": [], "not_datasheet": list(doubtful)},
        profile={"name": "mine", "calibrated": True, "constants": "none at all"},
        rows=rows,
        skipped=tuple(skipped),
    )


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0, "0.00"), (1.234e-6, "1.23"), (9.99999e-3, "9999.99"), (9.999996e-3, "10000.0"), (0.0999999, "99999.9"),
     (0.09999996, "100000"), (21.5, "21500000")],
)  # fmt: skip
def test_time_text(time_s, text):
    assert time_text(time_s) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(2.5e-6, "2.500 us"), (9.994e-4, "999.4 us"), (1e-3, "1.000 ms"), (0.25, "250.0 ms"), (1.0, "1.000 s"),
     (2.5, "2.500 s"), (4321.0, "4321. s")],
)  # fmt: skip
def test_times_as_people_say_them(time_s, text):
    assert time_words(time_s) == text


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_ends_in_one_newline_and_has_no_blanks_at_line_ends(form):
    text = render(result(row(), row(size=2**40, time_s=30.0)), form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not re.search(r"[ \t]$", text, re.MULTILINE)


def test_unknown_format():
    with pytest.raises(UnknownNameError, match='did you mean "json"'):
        render(result(row()), "jsom")
    assert set(SUFFIXES.values()) - {"svg"} == set(FORMATS)


def test_the_most_that_any_time_was_raised_is_told():
    exact_end, raised = row(tolerance=0.02), row(size=2**21, tolerance=0.02, raised_s=0.03 * 1e-5)
    text = render(result(exact_end, raised), "table")
    assert "~: raised by up to 3%, to the time that the busiest link needs" in text


def test_no_time_is_told_to_be_raised_that_has_no_mark():
    text = render(result(row(raised_s=0.03 * 1e-5)), "table")
    assert "~" not in text


NEAR = Method("classes", "kernel", nearly_alike=True)
DOUBT = replace(NEAR, doubt_share=0.2)
DELAY = replace(NEAR, part_delay=True)


@pytest.mark.parametrize(
    ("methods", "plain", "doubtful"),
    [((NEAR,), 1, 0), ((DOUBT,), 0, 1), ((NEAR, replace(DOUBT, pace_share=0.02), NEAR), 2, 1), ((DELAY, DOUBT), 1, 1)],
)  # fmt: skip
def test_notes_on_what_is_nearly_alike_each_count_their_own_rows(methods, plain, doubtful):
    """With ``--bracket`` exact and nearly alike rows have times on both sides as well, which are no doubt."""
    rows = [row(size=2 ** (20 + i), method=method) for i, method in enumerate(methods)]
    rows = [
        replace(each, bracket_lo_s=each.time_s, bracket_hi_s=each.time_s * (1 + each.method.doubt_share))
        for each in rows
    ]
    notes = " ".join(render(result(*rows), "table").replace("\n#  ", "").split())
    assert ("so times are a little off" in notes) == (plain > 0)
    assert ("telling apart less" in notes) == (doubtful > 0)
    for count, what in ((plain, "so times are a little off"), (doubtful, "may be off by 20% at most (from, to)")):
        said = re.findall(rf"(\d+) rows?: what is only nearly alike was taken as alike[^:]*?{re.escape(what)}", notes)
        assert said == [str(count)] * (count > 0)


def test_table_averages_each_algorithm_of_a_size_on_its_own():
    auto = render(result(row("ring"), row("tree", 2**21)))
    assert "# Avg bus bandwidth    : 137.6\n" in auto
    several = render(result(row("ring"), row("tree"), row("ring", 2**21), row("tree", 2**21), algo=["all"]))
    assert "# Avg bus bandwidth    : ring 137.6, tree 137.6\n" in several


def test_table_grows_with_long_names():
    lines = render(result(row("hierarchical_all_to_all"), row("ring", 2**45, time_s=3e5))).splitlines()
    head = next(line for line in lines if "algbw" in line)
    rows = [line for line in lines if not line.startswith("#")]
    end = head.index(" algo") + len(" algo")
    assert len(rows) == 2
    assert all(line[:end].endswith(("hierarchical_all_to_all", " ring")) for line in rows)


def test_table_wraps_a_long_list_of_doubtful_figures():
    doubtful = [{"path": f"section.figure{i}", "value": "1 us", "status": "assumed"} for i in range(20)]
    lines = render(result(row(), doubtful=doubtful)).splitlines()
    assert max(map(len, lines)) <= 112
    assert sum(line.count("section.figure") for line in lines) == 20
    assert all(line.startswith("#") for line in lines if "assumed" in line)


def test_table_counts_the_figures_of_a_file_of_ones_own():
    facts = [{"path": f"links[{i}].bandwidth", "value": "9 GB/s", "status": "user"} for i in range(900)]
    facts += [{"path": f"f{i}", "value": "1", "status": "set"} for i in range(25)]
    text = render(result(row(), doubtful=facts)).replace("\n#  ", "")
    assert "f19 1 (set), and 5 more, 900 of the file's own without a status\n" in text


def test_markdown_escapes_its_rule():
    text = render(result(row(limits=(Limit("wire", "a|b", 9e-6, links=1, utilisation=0.9),))), "md")
    assert "a\\|b busy 90%" in text
    assert "topo one\\|two" in text
    assert {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")} == {16}


def test_nccl_gives_each_algorithm_a_run_with_the_zero_rows():
    zero = row("none", 0, requested_bytes=8, time_s=0.0, lower_bound_s=0.0, bottleneck=())
    for algo in (["all"], ["ring", "tree"]):
        text = render(result(row("ring"), row("tree"), skipped=[zero], algo=algo), "nccl")
        assert text.count("# all_to_all on 8 ranks, algorithm ") == 2
        assert text.count("\n           0             0     float") == 2
        assert text.count("out-of-place") == 2
    auto = render(result(row("ring"), row("tree", 2**21), skipped=[zero]), "nccl")
    assert "algorithm ring, tree\n" in auto


def test_file_is_whole_or_not_there(tmp_path, monkeypatch):
    file = tmp_path / "result.csv"
    write_text("one", str(file))
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(InputError, match="No space left"):
        write_text("two", str(file))
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]


def test_places_that_cannot_be_written(tmp_path):
    check_writable(str(tmp_path / "new.csv"))
    for place, word in ((tmp_path, "directory"), (tmp_path / "no" / "x.csv", "no directory")):
        with pytest.raises(InputError, match=word):
            check_writable(str(place))
    with pytest.raises(InputError, match="cannot be written"):
        write_text("x", str(tmp_path / ("long" * 100)))


def test_experts_compared_have_the_ratios_of_their_own_system():
    from collsim.report.html.answers import _experts_compared

    row = {"ranks": 8, "times_s": [11e-6, 22e-6, 33e-6], "speedups": [1.0, 0.5, 0.25]}
    page = "".join(_experts_compared({"systems": [{"system": name} for name in "abc"], "rows": [row]}))
    heads, cells = (re.findall(rf"<{tag}[^>]*>([^<]*)</{tag}>", page) for tag in ("th", "td"))
    found = dict(zip(heads, cells, strict=True))
    assert {head: float(cell) for head, cell in found.items()} == {
        "ranks": 8, "a (us)": 11, "b (us)": 22, "c (us)": 33, "b: times as fast": 0.5, "c: times as fast": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize(("length", "words", "long"), [(1, 0, 0), (16, 0, 0), (17, 1, 0), (24, 1, 0), (25, 1, 1)])
def test_long_text_of_a_page_has_a_look_of_its_own_from_its_length_on(length, words, long):
    assert ('class="words"' in card("t", "x" * length)) == words
    assert ("long" in table(["h"], [["x" * length]], words=[0])) == long
