"""Figures of every room as they were recorded; a change that is meant to move one is recorded by the tool.

What is right stands in other tests, with the arithmetic. These hold what nobody worked out by hand.
"""

import importlib
import json
import sys
from pathlib import Path

import pytest

import collsim

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
golden = importlib.import_module("golden_figures")
variations = importlib.import_module("variations")
sys.path.remove(str(ROOT / "tools"))


def case(room, block):
    deep = [pytest.mark.deep] if room.path.stem.endswith("_deep") else []
    return pytest.param(room, block, id=f"{room.path.stem}: {block.command}", marks=deep)


@pytest.mark.parametrize(("room", "block"), [case(room, block) for room in golden.rooms() for block in room.blocks])
def test_figures_are_as_recorded(room, block):
    told = golden.moved(block.lines, room.now(block))
    hint = f"if it is meant: python tools/golden_figures.py --write {room.path.stem}"
    assert not told, "\n".join([f"collsim {block.command}", *told, hint])


def test_every_data_file_is_there_a_second_time():
    (room,) = golden.rooms(["data"])
    schemas = ROOT / "collsim" / "report" / "schemas"  # rules for what is written, no figures
    files = [file for folder in ("collsim", "topologies") for file in (ROOT / folder).rglob("*.*")]
    files = [file for file in files if file.suffix in (".yaml", ".json", ".csv") and file.parent != schemas]
    told = {block.command.split('"')[1] for block in room.blocks}
    assert told == {str(file.relative_to(ROOT)) for file in files}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("time_s: 1.5 2*3", "time_s: 1.5 2*3", []),
        ("time_s: 1.5 2*3", "time_s: 1.50001 2*3", []),  # rounding
        ("time_s: 1.5 2*3", "time_s: 1.5 2*2 2.1", ["time_s: 2 -> 2.1 (value 4)"]),
        ("algo: ring tree", "algo: ring nvls", ["algo: tree -> nvls (value 2)"]),
        ("a: 1", "b: 1", ["a: gone", "b: new"]),
        ("a: 1*2", "a: 1", ["a: 2 values, now 1"]),
    ],
)
def test_what_moved_is_told(before, after, told):
    assert golden.moved([before], [after]) == told


def test_a_sum_of_many_values_tells_every_one():
    values = [float(n) for n in range(-50, 50)] + ["ring"]
    plain = golden._digest(values)
    for place in range(len(values)):
        changed = list(values)
        changed[place] = "tree" if values[place] == "ring" else values[place] * 1.001 if values[place] else 1e-9
        assert golden.moved([f"a: {plain}"], [f"a: {golden._digest(changed)}"]), place
    assert golden.moved([f"a: {plain}"], [f"a: {golden._digest(values[::-1])}"])


def test_figures_of_prose_have_their_units():
    one, two = golden.columns("time (us), busbw (GB/s)\n8 12.5 us 59%\n").values()
    assert one[1:] == ["us", "GB/s"]
    assert two[1:] == [8.0, 12.5, "us", 59.0, "%"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("8 ranks:   off by 4.25 us", True),  # numbers stand beside the words, and columns are as wide as they are
        ("8 ranks: off by 12.5 us ", True),
        ("8 rank: off by 12.5 us", False),
        ("8 ranks: of by 12.5 us", False),
        ("8 ranks, off by 12.5 us", False),
    ],
)
def test_words_of_prose_tell_every_change(text, same):
    assert (golden._words(text) == golden._words("8 ranks: off by 12.5 us")) == same


def test_rules_are_as_wide_as_they_like():
    assert golden._words("size ---- time") == golden._words("size ------- time") != golden._words("size time")


def test_what_is_said_does_not_depend_on_the_folder(monkeypatch, tmp_path):
    words = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        words.append(golden._words(f"written to {tmp_path / name}/r.html at last"))
    assert words[0] == words[1]


def test_a_function_is_asked_for_every_combination():
    assert variations.over(divmod, [7, 8], [4, 0]) == [(1, 3), "ZeroDivisionError", (2, 0), "ZeroDivisionError"]


def test_a_file_is_changed_line_by_line(tmp_path, monkeypatch):
    """Of a line of one number: gone, doubled, 0, -1, x and 1000 instead, no word, 7 and a long word instead."""
    monkeypatch.chdir(tmp_path)
    Path("sound.txt").write_text("one 5\nend\n")
    seen = []
    variations.bent(lambda file: seen.append(Path(file).read_text()), "sound.txt")
    long = variations.LONG_WORD
    first = ["", "one 5\none 5\n", "one 0\n", "one -1\n", "one x\n", "one 1000\n", "one \n", "one 7\n", f"one {long}\n"]
    last = ("", "end\nend\n", "\n", "x\n", "7\n", f"{long}\n")
    assert seen == [line + "end\n" for line in first] + ["one 5\n" + each for each in last]
    told = variations.bent(lambda file: Path(file).read_text(), "sound.txt")
    assert len(set(told)) == len(told)


def test_a_word_of_a_file_is_changed(tmp_path, monkeypatch):
    """A word is gone, twice, and that of its right; a number is none, one more, ten times as large and no number."""
    monkeypatch.chdir(tmp_path)
    Path("sound.txt").write_text("one=5 a\none=6 a\none=7 a\n")
    seen = []
    variations.reworded(lambda file: seen.append(Path(file).read_text()), "sound.txt", words=2, ends=True)
    others = ["=5 a", "one one=5 a", "5=5 a", "one= a", "one=5 5 a", "one=a a", "one=0 a", "one=6 a", "one=50 a"]
    assert seen[:10] == [f"{line}\none=6 a\none=7 a\n" for line in [*others, "one=5x a"]]
    assert seen[10] == "one=5 a\none=6 a\n=7 a\n"  # the one in between differs in numbers only
    assert len(seen) == 20


def test_functions_of_one_thing_are_asked_for_each():
    found = golden.of_kinds({"Topology": [collsim.load_topology("hgx_h100")] * 2})
    assert found["topology.summary.remarks"][0] == found["topology.summary.remarks"][1]
    assert {"topology.summary.describe", "topology.export.to_yaml"} <= found.keys()
    assert not {name for name in found if name.startswith("cli.") or name.endswith("profile_for")}


def test_a_call_is_changed_in_one_place():
    """A number becomes nothing, below it, and those around the function's own; texts and lists get so long."""
    seen = []

    def asked(number, word, rows, more):
        seen.append((number, word, rows, more))
        return number < 3

    told = variations.varied(asked, (3, "xy", [1, 2], {"a": True}))
    assert {each[0] for each in seen} == {3, 0, -1, 2, 4}
    assert {each[1] for each in seen} == {"xy", "", "x", "xy0", "xyx", "xyxy", variations.LONG_WORD}
    assert [each[2] for each in seen if len(each[2]) != 2] == [[], [1], [1, 2, 1], [1, 2, 1, 2]]
    assert [each[3] for each in seen if each[3] != {"a": True}] == [{}, {"a": False}]
    assert all(sum(a != b for a, b in zip(each, seen[0], strict=True)) == 1 for each in seen[1:])
    assert told[0] != told[1] == told[2] == told[3] != told[4]


def test_a_place_of_a_file_holds_something_of_another_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sound.yaml").write_text("{one: {two: [3]}}")
    seen = []
    variations.reshaped(lambda file: seen.append(json.loads(Path(file).read_text())), "sound.yaml")
    places = [lambda each: {"one": each}, lambda each: {"one": {"two": each}}, lambda each: {"one": {"two": [each]}}]
    assert seen == [place(other) for place in places for other in variations.OF_ANY_KIND]


def test_limits_are_as_they_were_afterwards():
    name, command = "collsim.report.html.panels.MOST_ROWS", "topo list"
    assert golden.limited({name: 1}, command) == golden.recorded(command)
    assert importlib.import_module("collsim.report.html.panels").MOST_ROWS > 1
