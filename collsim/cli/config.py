"""Configuration files: what a run was asked, so that it can be asked again.

A configuration is a JSON document of schema ``collsim.config/1``, or any document of schema ``collsim.result/1``: both
carry the resolved request under ``config``. Reading turns it back into the texts of flags, so that it passes through
the same door as a command line, and flags and environment variables can take its place one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NoReturn

from collsim.core.errors import Fault, SpecError, unknown_keys
from collsim.core.input_files import read_input
from collsim.core.tabular import json_text
from collsim.simulation.request.fields import FIELDS
from collsim.simulation.result import Result

__all__ = ["Configuration", "as_configuration", "read_configuration"]

SCHEMA = "collsim.config/1"
READABLE = (SCHEMA, "collsim.result/1")
MAX_FILE_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file.

    Attributes
    ----------
    file : str
    flags : mapping
        Texts of flags by the name of their parameter; a list of them for a flag that may come several times.
    overrides, environment, degrade : mapping
    fail : tuple of str
    matrix_bytes : list of lists or None
    digests : mapping
        sha256 of the topology and the profile that the file was made with.
    has_rows : bool
        The file is a result, not only what was asked.
    """

    file: str
    flags: Mapping[str, str | list[str]]
    overrides: Mapping[str, str]
    environment: Mapping[str, str]
    matrix_bytes: list[list[int]] | None
    digests: Mapping[str, str]
    fail: tuple[str, ...] = ()
    degrade: Mapping[str, str] = field(default_factory=dict)
    has_rows: bool = False

    def changes(self, result: Result) -> list[str]:
        """Say whether the topology or the profile is no longer the one that the file was made with."""
        now = {"topology": result.topology, "profile": result.profile}
        return [
            f'the {noun} "{now[noun]["name"]}" has changed since {self.file} was written: rows may differ'
            for noun, digest in self.digests.items()
            if now[noun]["sha256"] != digest
        ]


def as_configuration(result: Result) -> str:
    """Return the document that reproduces *result*."""
    document = {
        "schema": SCHEMA,
        "collsim": result.version,
        "config": dict(result.config),
        "topology": {key: result.topology[key] for key in ("name", "sha256")},
        "profile": {key: result.profile[key] for key in ("name", "sha256")},
    }
    return json_text(document)


def read_configuration(file: str) -> Configuration:
    """Return the configuration in *file*.

    Raises
    ------
    SpecError
        With every fault of the file.
    """
    document = _document(file)
    config = _first_so_many(document["config"])
    faults = _unknown_keys(config, file)
    flags: dict[str, str | list[str]] = {}
    for key, entry in READ.items():
        if config.get(key) is None:
            if key in config and entry.default is not None:
                faults.append(Fault(f"null is not {entry.wanted}", f"{file}: config.{key}", f"such as {entry.default}"))
            continue
        try:
            flags.update(READERS[entry.kind](entry.name, config[key]))
        except (TypeError, ValueError, KeyError):
            hint = f"such as {json.dumps(entry.default)}" if entry.default not in (None, ()) else entry.example
            faults.append(Fault(f"{_shown(config[key])} is not {entry.wanted}", f"{file}: config.{key}", hint))
    texts = {key: config.get(key) or {} for key in ("overrides", "environment", "degrade")}
    for key, entries in texts.items():
        if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
            hint = f"such as {json.dumps(EXAMPLES[key])}"
            faults.append(Fault(f"{_shown(entries)} does not map names to texts", f"{file}: config.{key}", hint))
    fail = config.get("fail") or []
    if not isinstance(fail, list) or not all(isinstance(name, str) for name in fail):
        faults.append(Fault(f"{_shown(fail)} is not a list of names", f"{file}: config.fail", 'such as ["gpu:gpu5"]'))
    matrix = config.get("matrix_bytes")
    if matrix is not None and not _is_matrix(matrix):
        what = f"{_shown(matrix)} is not as many lists of bytes as each is long"
        faults.append(Fault(what, f"{file}: config.matrix_bytes", "such as [[0, 1024], [1024, 0]]"))
    if faults:
        raise SpecError(*faults)
    return Configuration(
        file,
        flags,
        texts["overrides"],
        texts["environment"],
        matrix,
        _digests(document),
        tuple(fail),
        texts["degrade"],
        "results" in document,
    )


def _first_so_many(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration in which the first GPUs that failures left, in several runs, are called 0, 1, 2."""
    groups = config.get("rank_lists")
    if not config.get("fail") or not isinstance(groups, list) or len(groups) < 2:
        return config
    lists = [group for group in groups if isinstance(group, list)]
    longest = max(lists, key=len, default=[])
    if len(lists) < len(groups) or any(group != longest[: len(group)] for group in lists):
        return config
    return {**config, "rank_lists": [list(range(len(group))) for group in lists]}


def _document(file: str) -> dict[str, Any]:
    """Return the JSON document in *file*, which has a configuration."""
    hint = "write one with: collsim run ... --save-config run.json"
    try:
        content = read_input(file, MAX_FILE_BYTES)
        if len(content) > MAX_FILE_BYTES:
            raise SpecError(Fault(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB", file, hint))
        document = json.loads(content.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SpecError(Fault(f"not JSON: {error.msg}", f"{file}:{error.lineno}:{error.colno}", hint)) from None
    except OSError as error:
        hint = f"check the path that --config names, or {hint}"
        raise SpecError(Fault(f"cannot read the configuration: {error.strerror}", file, hint)) from None
    except (ValueError, RecursionError):
        raise SpecError(Fault("not a JSON document", file, hint)) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in READABLE:
        what = "the schema is missing" if schema is None else f"the schema is {_shown(schema)}"
        raise SpecError(Fault(what, file, f"give a file of schema {' or '.join(READABLE)}"))
    if not isinstance(document.get("config"), dict):
        what = f"{_shown(document['config'])} is not an object" if "config" in document else "there is no config"
        raise SpecError(Fault(what, f"{file}: config", hint))
    return dict(document)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _unknown_keys(config: Mapping[str, Any], file: str) -> list[Fault]:
    return unknown_keys(config, [*READ, *APART], lambda _: f"{file}: config")


def _word(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, str):
        raise TypeError
    return {name: value}


def _optional(name: str, value: Any) -> dict[str, str]:
    """Return the text of a flag that may have a value: none where it was not given."""
    if isinstance(value, str):
        return {name: value}
    if not isinstance(value, bool):
        raise TypeError
    return {name: "yes"} if value else {}


def _flag(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, bool):
        raise TypeError
    return {name: str(value).lower()}


def _share(name: str, value: Any) -> dict[str, str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return {name: str(value)}


def _topo(_: str, value: Any) -> dict[str, str]:
    """Return the topology; a shipped one is called by its name, wherever its file is."""
    from collsim.topology import zoo_names

    path = PurePath(_word("topo", value)["topo"])
    shipped = path.parts[:-1] == ("topologies",) and path.stem in zoo_names() and not Path(path).exists()
    return {"topo": path.stem if shipped else value}


def _words(name: str, value: Any) -> dict[str, str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(entry, str) for entry in names):
        raise TypeError
    return {name: ",".join(names)}


def _texts(name: str, value: Any) -> dict[str, list[str]]:
    """Return the texts of a flag that may come several times."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError
    return {name: value}


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _number(name: str, value: Any) -> dict[str, str]:
    return {name: str(_whole(value))}


def _sizes(name: str, value: Any) -> dict[str, str]:
    sizes = value if isinstance(value, list) else [value]
    return {name: ",".join(size if isinstance(size, str) else str(_whole(size)) for size in sizes)}


def _rank_lists(_: str, value: Any) -> dict[str, str]:
    """Return --rank-list for one list of GPUs, --ranks for the first so many, once or several times."""
    if not isinstance(value, list) or not value:
        raise TypeError
    groups = [[_whole(rank) for rank in group] for group in value]
    if all(group == list(range(len(group))) for group in groups):
        return {"ranks": ",".join(str(len(group)) for group in groups)}
    if len(groups) > 1:
        raise ValueError
    return {"rank_list": ",".join(map(str, groups[0]))}


READERS: dict[str, Callable[[str, Any], Mapping[str, str | list[str]]]] = {
    "topo": _topo,
    "word": _word,
    "words": _words,
    "number": _number,
    "size": _number,
    "sizes": _sizes,
    "rank_lists": _rank_lists,
    "flag": _flag,
    "optional": _optional,
    "share": _share,
    "texts": _texts,
}
"""Functions from the value of a field to the text of its flag, by the kind of the field."""
READ = {entry.config_key: entry for entry in FIELDS if entry.wanted}
"""The fields whose values become texts of flags, by their keys."""
EXAMPLES = {
    "overrides": {"link.bandwidth": "80 GB/s"},
    "environment": {"NCCL_ALGO": "Ring"},
    "degrade": {"link:gpu0-gpu1": "50%"},
}
APART = ("overrides", "environment", "matrix_bytes", "fail", "degrade")
"""Keys whose values are used beside those of flags."""


def _is_matrix(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list)
        and len(row) == len(value)
        and all(isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0 for entry in row)
        for row in value
    )


def _digests(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of topology and profile, as far as the document has them."""
    found = {
        noun: document[noun].get("sha256") for noun in ("topology", "profile") if isinstance(document.get(noun), dict)
    }
    return {noun: digest for noun, digest in found.items() if isinstance(digest, str)}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."
