"""What functions give for arguments and files, and for others that differ from those in one place."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\d|\d)(?:\.\d+)?(?:[eE][-+]?\d+)?")
LONG_WORD = "abcdefghijklmnopqrstuvwxyz" * 10
"""Longer than what is told of a wrong word."""
OF_ANY_KIND: tuple[Any, ...] = (None, True, 0, -1, 1.5, "x", [], ["x", 1], {"x": None})
LONGEST_LIST = 100
LONGEST_TEXT = 400
MOST_NUMBERS = 16
"""Numbers that are tried in place of one."""
WORD = re.compile(r"[^\s\"'=,;|<>/\[\](){}]+")
"""What stands between blanks, quotes and brackets: a cell of a table, the name of an attribute, its value."""


def over(function: Callable[..., Any], *values: Iterable[Any]) -> list[Any]:
    """What a function gives for every combination of values of its arguments, or how it refuses them."""
    return [_outcome(function, arguments) for arguments in itertools.product(*values)]


def summed(function: Callable[..., Any], *values: Iterable[Any]) -> list[str]:
    """As `over`, of each outcome a sum."""
    return [_sum(_outcome(function, arguments)) for arguments in itertools.product(*values)]


def bent(function: Callable[[str], Any], file: str, most: int = 24) -> list[Any]:
    """What a function gives for a file in which one line is gone, doubled or has other words, for so many of its lines.

    Of what it gives, data are kept as they are, texts as sums.
    """
    lines = pathlib.Path(file).read_text("utf-8").splitlines()
    there, found = pathlib.Path("bent" + pathlib.Path(file).suffix), []
    for place in range(0, len(lines), -(-len(lines) // most)):
        line = lines[place]
        others = [NUMBER.sub(number, line, count=1) for number in ("0", "-1", "x")] + [NUMBER.sub("1000", line)]
        words = [re.sub(r"\w+(\W*)$", rf"{word}\1", line) for word in ("", "x", "7", LONG_WORD)]
        for instead in ([], [line, line], *([other] for other in dict.fromkeys([*others, *words]) if other != line)):
            there.write_text("\n".join([*lines[:place], *instead, *lines[place + 1 :]]) + "\n", "utf-8")
            found.append(_sum(_outcome(function, (str(there),))))
    return found


def of_text(function: Callable[[str], Any], name: str, text: str) -> str:
    """What a function gives for a file that holds a text, as a sum."""
    pathlib.Path(name).write_text(text, "utf-8")
    return _sum(_outcome(function, (name,)))


def reworded(
    function: Callable[[str], Any], file: str, words: int = 8, most: int = 24, ends: bool = False
) -> list[str]:
    """What a function gives for a file in which one word of one line differs, as sums.

    Of lines that differ in numbers only the first is taken, and with *ends* the last, in all *most* of them, and of
    each so many words. A word is gone, comes twice or is that of its right; a number is also none, one more, ten times
    as large and no number.
    """
    lines = pathlib.Path(file).read_text("utf-8").splitlines()
    shapes = [re.sub(r"[\d.]+", "0", line) for line in lines]
    places = [
        place
        for place, shape in enumerate(shapes)
        if shape not in shapes[:place] or (ends and shape not in shapes[place + 1 :])
    ]
    there, found = pathlib.Path("reworded" + pathlib.Path(file).suffix), []
    for place in places[:: -(-len(places) // most)]:
        told = [*WORD.finditer(lines[place])]
        for word, right in zip(told[:words], [*told[1:], None], strict=False):
            for other in _instead(word[0], right[0] if right else "x"):
                line = lines[place][: word.start()] + other + lines[place][word.end() :]
                there.write_text("\n".join([*lines[:place], line, *lines[place + 1 :]]) + "\n", "utf-8")
                found.append(_sum(_outcome(function, (str(there),))))
    return found


def _instead(word: str, right: str) -> list[str]:
    """Return what is written in place of a word."""
    number = NUMBER.fullmatch(word) is not None and "," not in word
    others = ["0", f"{float(word) + 1:g}", word + "0", word + "x"] if number else []
    return [each for each in dict.fromkeys(["", f"{word} {word}", right, *others]) if each != word]


def pruned(function: Callable[[str], Any], file: str, most: int = 16) -> list[str]:
    """What a function gives for a file of XML in which one element is gone, twice, empty, bare or of another name."""
    from xml.etree import ElementTree

    def without(element: ElementTree.Element, *, parts: bool) -> ElementTree.Element:
        bare = ElementTree.Element(element.tag, element.attrib if parts else {})
        bare.extend([] if parts else element)
        return bare

    root = ElementTree.parse(file).getroot()
    there = [(above, place) for above in root.iter() for place in range(len(above))]
    found = []
    for above, place in there[:: -(-len(there) // most)]:
        own = above[place]
        renamed = ElementTree.Element("other", own.attrib)
        renamed.extend(own)
        for instead in ([], [own, own], [without(own, parts=True)], [without(own, parts=False)], [renamed]):
            above[place : place + 1] = instead
            found.append(of_text(function, "pruned.xml", ElementTree.tostring(root, "unicode")))
            above[place : place + len(instead)] = [own]
    return found


def reshaped(function: Callable[[str], Any], file: str, most: int = 8) -> list[str]:
    """What a function gives for a file of data in which one place holds something of another kind, as sums."""
    import yaml

    path = pathlib.Path(file)
    data = json.loads(path.read_text("utf-8")) if path.suffix == ".json" else yaml.safe_load(path.read_bytes())
    there, places = pathlib.Path("reshaped" + path.suffix), [*_places(data, ())]
    found = []
    for place in places[:: -(-len(places) // most)]:
        for other in OF_ANY_KIND:
            there.write_text(json.dumps(_with(data, place, other), default=str, indent=1), "utf-8")
            found.append(_sum(_outcome(function, (str(there),))))
    return found


def _places(data: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to every place of data."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*above, key)
        yield from _places(value, (*above, key))


def _with(data: Any, place: tuple[Any, ...], other: Any) -> Any:
    """Return data with something else in one place."""
    if not place:
        return other
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    found = {key: _with(value, place[1:], other) if key == place[0] else value for key, value in pairs}
    return found if isinstance(data, dict) else [*found.values()]


def varied(function: Callable[..., Any], *calls: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
    """What a function gives for some calls, and for each with one place changed; as sums.

    A number becomes nothing, below nothing, and those at and around which the function may change: its own and those
    of constants that it names. A text is empty, shorter, longer or so long, a list empty, shorter or so long, a
    mapping lacks a key.
    """
    inner: Any = inspect.unwrap(function)
    named = [inner.__globals__.get(name) for name in inner.__code__.co_names]
    own = [each for each in (*inner.__code__.co_consts, *named) if type(each) in (int, float)]
    numbers = [*dict.fromkeys([0, -1, *(each + step for each in own for step in (0, -1, 1))])][:MOST_NUMBERS]
    every = [other for call in calls for other in (call, *_changed(call, numbers))]
    return [
        _sum(_outcome(lambda call=call: function(**call) if isinstance(call, dict) else function(*call), ()))
        for call in every
    ]


def _changed(value: Any, numbers: list[int | float]) -> Iterator[Any]:
    """Yield plain data with one place changed; of a call all of its arguments stay."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        others: list[Any] = []
        if isinstance(part, bool) or part is None:
            others = [part is None or not part]
        elif isinstance(part, int | float):
            others = [each for each in numbers if each != part]
        elif isinstance(part, str):
            lengths = [
                each for each in numbers if isinstance(each, int) and 1 < each < LONGEST_TEXT and each != len(part)
            ]
            others = ["", part[:-1], part + "0", LONG_WORD, *((part * each)[:each] for each in lengths)]
        elif isinstance(part, dict):
            others = [{name: each for name, each in part.items() if name != less} for less in part]
        elif isinstance(part, list | tuple) and part:
            longer = [each for each in numbers if isinstance(each, int) and len(part) < each < LONGEST_LIST]
            others = [part[:0], part[:-1], *(type(part)((list(part) * each)[:each]) for each in longer)]
        if isinstance(part, dict | list | tuple):
            others += _changed(part, numbers[:6])
        for other in others:
            yield (
                {**value, key: other}
                if isinstance(value, dict)
                else type(value)([*value[:key], other, *value[key + 1 :]])
            )


def _sum(value: Any) -> str:
    return f"'{zlib.crc32(json.dumps(value, default=plain).encode()) & 0xFFFF:04x}"


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        value = function(*arguments)
        return list(value) if isinstance(value, Iterator) else value
    except Exception as error:  # also for what a function was never meant to be given
        return str(error) if type(error).__module__.startswith("collsim") else type(error).__name__


def plain(value: Any) -> Any:
    """Data of what is not plain."""
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):  # which have no order
        return sorted(map(str, value))
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return list(value) if isinstance(value, Iterable) else str(value)
