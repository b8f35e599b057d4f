"""What is wrong with a document of a command that somebody edited, by its JSON schema.

Only what is there is checked: keys that a document lacks or has besides do no harm by themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from collsim.core.errors import Fault, SpecError, did_you_mean
from collsim.core.units import with_article
from collsim.report.json_schemas import schema

__all__ = ["check_document"]

LARGEST = 1e30
"""No time, rate or size of a document is larger (chosen), so that no figure made of two of them overflows."""
MOST_FAULTS = 20
TYPES: dict[str, Any] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "number": (int, float), "integer": (int, float),
}  # fmt: skip

Found = tuple[str, str, str]
"""Where, what is wrong there, and a hint."""


def check_document(document: Mapping[str, Any], file: str) -> None:
    """Refuse a document with values that its schema does not allow.

    Raises
    ------
    SpecError
        With every such value, its place in the document and what is allowed there.
    """
    rules = _schema(str(document["schema"]))
    found = list(_wrong(document, rules, rules, ""))
    faults = [Fault(what, f"{file}: {where.lstrip('.')}", hint) for where, what, hint in found[:MOST_FAULTS]]
    if found[MOST_FAULTS:]:
        faults.append(
            Fault(f"{len(found) - MOST_FAULTS} more values are wrong", file, "let the command write it again")
        )
    if faults:
        raise SpecError(*faults)


@cache
def _schema(name: str) -> dict[str, Any]:
    return schema(name)


def _wrong(value: Any, rules: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Iterator[Found]:
    """Yield what *rules*, a part of the schema *root*, do not allow of a value and of all that is in it."""
    if "$ref" in rules:
        rules, root = _referred(rules["$ref"], root)
        yield from _wrong(value, rules, root, where)
        return
    if "anyOf" in rules:
        tried = [list(_wrong(value, each, root, where)) for each in rules["anyOf"]]
        yield from min(tried, key=len)
    if trouble := _of_kind(value, rules) or _of_size(value, rules):
        yield where, *trouble
    elif isinstance(value, dict):
        known, others = rules.get("properties", {}), rules.get("additionalProperties")
        for key, each in value.items():
            below = known.get(key, others)
            if isinstance(below, dict):
                yield from _wrong(each, below, root, f"{where}.{key}")
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from _wrong(each, rules.get("items", {}), root, f"{where}[{i}]")


def _referred(name: str, root: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the rules that a reference names, and the schema that they are part of."""
    file, _, path = name.partition("#")
    if file:
        root = _schema(f"collsim.{file.removeprefix('collsim:').removesuffix('.json').replace('-', '/')}")
    rules = root
    for key in filter(None, path.split("/")):
        rules = rules[key]
    return rules, root


def _of_kind(value: Any, rules: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with the type of a value, or with one that has to be one of a few."""
    kinds = [rules["type"]] if isinstance(rules.get("type"), str) else rules.get("type", [])
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{_shown(value)} is no {' or '.join(kinds)}", f"write {' or '.join(_article(kind) for kind in kinds)}"
    known = [rules["const"]] if "const" in rules else rules.get("enum")
    if known is not None and value not in known:
        names = [each for each in known if isinstance(each, str)]
        near = did_you_mean(value, names) if isinstance(value, str) else ""
        return f"{_shown(value)} is not known", f"{near}known: {', '.join(map(_shown, known))}"
    return None


def _of_size(value: Any, rules: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with how much, how many or how long a value is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_amount(value, rules)
    if isinstance(value, list) and len(value) < rules.get("minItems", 0):
        return f"{len(value)} entries", f"write {rules['minItems']} or more"
    if isinstance(value, str) and len(value) < rules.get("minLength", 0):
        return "an empty text", "write one"
    if isinstance(value, str) and "pattern" in rules and not re.search(rules["pattern"], value):
        return f"{_shown(value)} is not of the form {rules['pattern']}", "let the command write it again"
    return None


def _of_amount(value: float, rules: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with a number."""
    least, above, most = (rules.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if not abs(value) <= LARGEST:
        return f"{_shown(value)} is no figure", f"write at most {LARGEST:g}"
    if least is not None and value < least:
        return f"{_shown(value)} is too little", f"write {least:g} or more"
    if above is not None and value <= above:
        return f"{_shown(value)} is too little", f"write more than {above:g}"
    if most is not None and value > most:
        return f"{_shown(value)} is too much", f"write at most {most:g}"
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind]) and (kind != "integer" or math.isinf(value) or value == int(value))


def _article(kind: str) -> str:
    return kind if kind == "null" else with_article(kind)


def _shown(value: Any) -> str:
    """Return a value in short, as it stands in JSON."""
    import json

    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
