"""YAML as plain data: a key that stands twice, a value within itself and runaway nesting are refused, not lost."""

from __future__ import annotations

from typing import Any

from collsim.core.errors import Fault, SpecError

__all__ = ["read_yaml"]


def read_yaml(text: str, file: str, hint: str = "check the indentation") -> Any:
    """Return the data of *text*; *file* and *hint* are for the messages.

    Raises
    ------
    SpecError
        It is no YAML, is nested too deeply or within itself, or keys stand twice, of which all are told.

    Examples
    --------
    >>> read_yaml("base: {size: 1M}", "grid.yaml")
    {'base': {'size': '1M'}}
    """
    import yaml

    twice: list[Fault] = []
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _walk(node, file, twice, [])
        data = loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(Fault(f"not YAML: {' '.join(str(error).split())}", file, hint)) from None
    except RecursionError:
        raise SpecError(Fault("nested too deeply", file, "a few levels are enough")) from None
    if twice:
        raise SpecError(*twice)
    return data


def _walk(node: Any, file: str, twice: list[Fault], above: list[int], seen: set[int] | None = None) -> None:
    """Add a fault for each key that stands twice in one mapping; raise if a value holds itself."""
    seen = set() if seen is None else seen
    if id(node) in above:
        where = f"{file}:{node.start_mark.line + 1}"
        raise SpecError(Fault("a value within itself", where, "write the values out"))
    if id(node) in seen or isinstance(node.value, str):  # an alias, which was walked where its anchor stands
        return
    seen.add(id(node))
    lines: dict[Any, int] = {}
    for entry in node.value:
        key, value = entry if isinstance(entry, tuple) else (None, entry)
        if key is not None and isinstance(key.value, str):
            line = key.start_mark.line + 1
            if key.value in lines and key.value != "<<":
                what = f'key "{key.value}" stands twice, first on line {lines[key.value]}'
                twice.append(Fault(what, f"{file}:{line}", "keep one of the two"))
            lines.setdefault(key.value, line)
        _walk(value, file, twice, [*above, id(node)], seen)
