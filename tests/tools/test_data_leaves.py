"""Numbers of data files, made others one at a time: which there are, and whether a figure that reads them moves."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = """\
schema: collsim.prices/1
gpus:
  one:
    usd: {value: 1.5, source: 'in 2025', date: 2025}
    rate: {value: 25 GB/s, note: of 2}
  other: [7, "3 us", words, 2.16.2]
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("data_leaves")


def test_numbers_with_and_without_units_are_made_others(tool, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text(TEXT)
    found = tool.leaves(file)
    assert [(".".join(leaf.keys), leaf.other) for leaf in found] == [
        ("gpus.one.usd.value", "1.65"),
        ("gpus.one.rate.value", "27 GB/s"),
        ("gpus.other.0", "8"),
        ("gpus.other.1", '"4 us"'),
    ]
    changed = [TEXT[: leaf.begin] + leaf.other + TEXT[leaf.end :] for leaf in found]
    assert changed[3] == TEXT.replace('"3 us"', '"4 us"')


def case(tool, room, command):
    (found,) = [each for each in tool.rooms([room]) if each.path.stem == room]
    return next((found, block) for block in found.blocks if block.command == command)


@pytest.mark.parametrize(
    ("file", "keys", "room", "command"),
    [
        ("collsim/moe/models.yaml", ("models", "mixtral-8x7b", "hidden"), "moe", "moe --list-models"),
        ("topologies/hgx_h100.yaml", ("link", "bandwidth", "value"), "systems", "topo show hgx_h100 --format json"),
    ],
)
def test_a_figure_sees_a_number(tool, file, keys, room, command):
    (leaf,) = [each for each in tool.leaves(ROOT / file) if each.keys == keys]
    assert tool.seen_by(leaf, [case(tool, room, command)]) is not None
    source = tool.leaves(ROOT / "collsim/prices/prices.yaml")[0]
    assert tool.seen_by(source, [case(tool, room, command)]) is None  # of another file
    tool.forget()
