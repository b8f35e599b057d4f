"""YAML as plain data: what is lost, or never ends, is refused."""

import pytest

from collsim.core.errors import SpecError
from collsim.core.plain_yaml import read_yaml


def test_aliases_and_merges_are_read():
    assert read_yaml("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", "f")["d"] == {"b": 1, "e": 2}
    assert read_yaml("# nothing", "f") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {b: 1,\n b: 2}\nc: 1\nc: 2", ['f:2: key "b" stands twice', 'f:4: key "c" stands twice, first on line 3']),
        ("a: &x {b: *x}", ["f:1: a value within itself"]),
        ("[" * 5000 + "]" * 5000, ["f: nested too deeply"]),
        ("a: 2020-13-45", ["f: not YAML: month must be in"]),
        ("a: \x00", ["f: not YAML"]),
        ("a: [", ["f: not YAML"]),
    ],
)
def test_what_is_lost_or_never_ends_is_refused(text, told):
    with pytest.raises(SpecError) as refused:
        read_yaml(text, "f")
    lines = [f"{fault.where}: {fault.what}" for fault in refused.value.faults]
    assert [line.startswith(each) for line, each in zip(lines, told, strict=True)] == [True] * len(told), lines
