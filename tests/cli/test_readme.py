"""README.md and some pages show what the tool prints, to the letter."""

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys

import pytest

from .conftest import GUARD_S, PROGRAM, ROOT

spec = importlib.util.spec_from_file_location("refresh_pages", ROOT / "tools/refresh_pages.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)
SESSIONS = [page.name for page in pages.CANDIDATES if "\n>>> " in page.read_text(encoding="utf-8")]


def blocks():
    """Yield the blocks of commands with what they print, each with a name."""
    for page in pages.PAGES:
        text = page.read_text(encoding="utf-8")
        for match in pages.BLOCK.finditer(text):
            yield pytest.param(match[1], id=f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}")


def printed(collsim, line):
    """What a line prints: collsim runs in this process, and what stands behind a pipe reads its output in a shell."""
    command, piped, reader = line.partition(" | ")
    outcome = collsim(*shlex.split(command)[1:])
    assert outcome.code in pages.ANSWERED, outcome.err
    if not piped:
        return outcome.out
    return subprocess.run(reader, shell=True, input=outcome.out, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("block", [*blocks()])
def test_console_block(collsim, monkeypatch, block):
    monkeypatch.chdir(ROOT)
    for _, command, shown in pages.commands(block):
        if command.startswith("collsim "):
            assert printed(collsim, command) == shown, f"$ {command}"


@pytest.mark.parametrize("page", ["README.md", "moe.md"])
def test_first_block_in_a_shell(tmp_path, page):
    script = tmp_path / "collsim"
    script.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    first = next(block.values[0] for block in blocks() if block.id.startswith(page))
    lines = [(command, shown) for _, command, shown in pages.commands(first) if command.startswith("collsim ")]
    assert lines
    for command, shown in lines:
        found = subprocess.run(
            command, shell=True, capture_output=True, text=True, check=True, timeout=GUARD_S, cwd=ROOT, env=environment
        )
        assert found.stdout == shown, f"$ {command}"


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_of_a_page(name, monkeypatch):
    """Blocks of Python are sessions with >>>, each block of a page with the names of those before it."""
    monkeypatch.chdir(ROOT)
    page = next(page for page in pages.CANDIDATES if page.name == name)
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("page", pages.CANDIDATES, ids=lambda page: page.name)
def test_blocks_of_python_are_sessions(page):
    found = re.findall(r"^```(?:python|pycon)\n(.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert all(first.startswith(">>> ") for first in found)


def test_commands_of_a_block():
    block = "$ pip install x && collsim topo list\na\nb\n$ collsim run \\\n  --size 1M\nc\n"
    (first, listing, output), (second, run, figures) = pages.commands(block)
    assert (listing, output) == ("collsim topo list", "a\nb\n")
    assert (run.split(), figures) == (["collsim", "run", "--size", "1M"], "c\n")
    assert f"$ {first}{output}$ {second}{figures}" == block


def test_shown_error(collsim):
    shown = (
        (ROOT / "docs/output.md").read_text(encoding="utf-8").partition("```text\n$ collsim ")[2].partition("```")[0]
    )
    command, _, report = shown.partition("\n")
    assert collsim(*command.split()).err == report


def test_readme_is_read_in_ten_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
