"""Commands of README.md and the pages that stand in no console block: each is one that collsim takes, and most are run.

Console blocks are run by `test_readme`, letter by letter.
"""

import re
import shlex
import shutil
from itertools import pairwise

import click
import pytest

from collsim.cli import cli
from collsim.core.errors import PARTLY

from .conftest import ROOT

PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r"^(?:\$ |RUN .*?&& )?(collsim [^\n#]*?)(?: &&.*| +#.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(collsim \w[^`]*)`")
MADE = ("run.json", "report.html")
"""Files that commands before make."""
INPUT = re.compile(r"[\w./*-]+\.(?:conf|csv|gz|json|log|matrix|txt|xml|ya?ml)$")
WRITES = ("-o", "--output", "--plot", "--svg", "--perfetto", "--save-config")
ELSEWHERE = {
    "collsim run --topo hgx_h100 --op all_to_al --size 64MB": "tests/cli/test_readme.py: the errors that it shows",
    "collsim validate two_nodes.log": "tests/cli/test_validate.py: a log of two nodes below --min-busbw",
    "collsim timeline": "tests/timeline: traces that tests write; --env, --topo, --nodes, --ranks, --fail",
    "collsim calibrate": "tests/cli/test_calibrate.py: logs of both kinds, -o, --plot",
    "collsim doctor": "tests/cli/test_doctor.py",
    "collsim run --topo hgx_h100 --nodes 96": "tests/simulation/request/test_placement.py: files of Slurm",
    "collsim run --topo hgx_h100 --nodes 32 --op all_to_all_v": "tests/cli/test_tolerance.py: a matrix and --bracket",
    "collsim run --topo hgx_h100 --op all_reduce --profile mine.yaml": "tests/cli/test_calibrate.py",
    "collsim run --topo h100_rail --nodes 16 --op all_reduce --profile mine.yaml": "tests/cli/test_calibrate.py",
}
"""Beginnings of commands that need a file which no page makes, or leave with an error, and who runs the like."""
LONG = ("collsim run --topo mi300x_ubb8 --nodes",)
PLACEHOLDER = re.compile(r"\b(?:FILE|NAME|N|PRESET|OPERATION)\b|\||\$\w+|\.\.\.")


def commands():
    """Yield page and command, of every block that is no console block, and of running text where arguments stand."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [match[2] for match in FENCE.finditer(text) if match[1] != "console"]
        found = [match[1] for block in blocks for match in WRITTEN.finditer(block.replace("\\\n", " "))]
        found += [" ".join(match[1].split()) for match in INLINE.finditer(FENCE.sub("", text))]
        for command in dict.fromkeys(" ".join(each.split()) for each in found):
            if len(command.split()) > 2 and not command.startswith("collsim 0"):
                yield pytest.param(page.name, command, id=f"{page.name}: {command[:60]}")


def is_run_here(command):
    """True if nothing has to be put in, every file that it reads is there, and nobody else runs it."""
    words = shlex.split(command)
    read = [word for before, word in pairwise(words) if INPUT.match(word) and before not in WRITES]
    there = all(word in MADE or (ROOT / word).exists() for word in read)
    whole = len(words) > 3 or words[1:] == ["topo", "list"]
    return whole and there and not PLACEHOLDER.search(command) and not command.startswith(tuple(ELSEWHERE))


ALL = [*commands()]


def test_there_are_some():
    assert len(ALL) >= 20
    assert sum(is_run_here(case.values[1]) for case in ALL) >= 5
    for beginning, who in ELSEWHERE.items():
        assert any(case.values[1].startswith(beginning) for case in ALL), f"no page has {beginning}"
        assert (ROOT / who.partition(":")[0]).exists()


@pytest.mark.parametrize(("page", "command"), ALL)
def test_flags_exist(page, command):
    """Every flag and argument is one that the command has."""
    words = [word for word in shlex.split(command)[1:] if word != "..."]
    context = click.Context(cli, info_name="collsim")
    if words[0].startswith("-"):
        return
    _, found, rest = cli.resolve_command(context, words)
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        names = rest[0].split("|")
        assert set(names) <= set(found.list_commands(context)), f"{page}: {command}"
        found, rest = found.get_command(context, names[0]), rest[1:]
    flags = {flag for param in found.params for flag in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    typed = {word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)}
    assert typed <= flags, f"{page}: {command}"


RUN = [
    pytest.param(*case.values, id=case.id, marks=[pytest.mark.deep] * case.values[1].startswith(LONG))
    for case in ALL
    if is_run_here(case.values[1])
]


@pytest.mark.parametrize(("page", "command"), RUN)
def test_command_runs(collsim, monkeypatch, tmp_path, page, command):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    if "run.json" in command and not command.startswith("collsim run"):
        collsim("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M,64M", "-o", "run.json", "-q")
    found = collsim(*shlex.split(command)[1:])
    assert found.code in (0, PARTLY), found.err
