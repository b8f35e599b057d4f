"""README.md and some pages show what the tool prints, to the letter."""

import doctest
import os
import re
import subprocess
import sys

import pytest

from .conftest import PROGRAM, ROOT

PAGES = ("README.md", "docs/clusters.md", "docs/failures.md", "docs/groups.md", "docs/output.md", "docs/validate.md")
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind):
    """Yield the blocks of a kind, each with a name."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[1] == kind:
                yield pytest.param(match[2], id=f"{page}:{text.count(chr(10), 0, match.start()) + 1}")


def commands(block):
    """Yield each command of a console block with the output below it; only the part after an installation counts."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command[:-1]}{more.removeprefix('> ').strip()}"
        last = command.rpartition("&& ")[2]
        if last.startswith("collsim "):
            yield last, shown


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a line in a shell that knows `collsim`, and return its standard output."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "collsim"
    script.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def call(line):
        found = subprocess.run(
            line, shell=True, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=environment
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    return call


@pytest.mark.parametrize("block", [*blocks("console")])
def test_console_block(shell, block):
    for command, shown in commands(block):
        assert shell(command) == shown, f"$ {command}"


@pytest.mark.parametrize("block", [*blocks("python")])
def test_python_block(block, monkeypatch):
    monkeypatch.chdir(ROOT)
    examples = doctest.DocTestParser().get_doctest(block, {}, "block", None, None)
    assert examples.examples, "write the block as a session, with >>>"
    report = []
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples, out=report.append)
    assert results.failed == 0, "".join(report)


def test_commands_of_a_block():
    block = "$ pip install .\nok\n$ pip install x && collsim topo list\na\nb\n$ collsim run \\\n  --size 1M\nc\n"
    assert list(commands(block)) == [("collsim topo list", "a\nb\n"), ("collsim run --size 1M", "c\n")]


def test_shown_error(collsim):
    shown = (
        (ROOT / "docs/output.md").read_text(encoding="utf-8").partition("```text\n$ collsim ")[2].partition("```")[0]
    )
    command, _, report = shown.partition("\n")
    assert collsim(*command.split()).err == report
