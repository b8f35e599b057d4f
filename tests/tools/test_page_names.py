"""Pages name no module, file or schema that is not there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
DOTTED = re.compile(r"(?<![\w/.-])collsim(?:\.[a-zA-Z_]\w*)+(?:/\d+)?")
FOLDERS = "collsim|tools|tests|examples|topologies|benchmarks|docs"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./*-]*\w")
FILE = re.compile(r"`(\w+\.py)`")
PLACEHOLDERS = ("NAME", "ROOM")
"""What the reader puts in."""
SCHEMAS = {name for path in ROOT.glob("collsim/**/*.py") for name in re.findall(r"collsim\.\w+/\d+", path.read_text())}
OWN = ("architecture.md", "contributing.md")
"""Pages that are about files of this project alone; others name those of other projects, too."""


def exists(dotted):
    """Whether a dotted name can be imported, or read from what can."""
    found, parts = importlib.import_module("collsim"), dotted.split(".")
    for end in range(2, len(parts) + 1):
        try:
            found = getattr(found, parts[end - 1])
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return False
    return True


def there(path):
    """Whether a path leads to something, with anything for its placeholders."""
    for word in PLACEHOLDERS:
        path = path.replace(word, "*")
    return any(True for _ in ROOT.glob(path))


def missing(text, *, is_own=True):
    """What a page names that is not there."""
    for name in dict.fromkeys(DOTTED.findall(text)):
        if name not in SCHEMAS if "/" in name else not exists(name):
            yield name
    yield from (path for path in dict.fromkeys(PATH.findall(text)) if not there(path))
    files = dict.fromkeys(FILE.findall(text)) if is_own else ()
    yield from (name for name in files if not any(True for _ in ROOT.glob(f"*/**/{name}")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page):
    assert list(missing(page.read_text(encoding="utf-8"), is_own=page.name in OWN)) == []


def test_names_of_nothing_are_found():
    text = (
        "see collsim.simulate, collsim.nothing, `collsim/engine/run.py`, `collsim/engine/walk.py`, collsim.result/1, "
    )
    text += "collsim.resultat/1, topologies/NAME.yaml, topologies/none/NAME.yaml, `writer.py` and `painter.py`"
    expected = [
        "collsim.nothing",
        "collsim.resultat/1",
        "collsim/engine/walk.py",
        "topologies/none/NAME.yaml",
        "painter.py",
    ]
    assert list(missing(text)) == expected
