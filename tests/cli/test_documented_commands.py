"""Commands of README.md and the pages that stand in no console block: each is one that collsim takes, and most are run.

Console blocks are run by `test_readme`, letter by letter.
"""

import io
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
WRITTEN = re.compile(r"^(?:\$ |RUN .*?&& |[^#\n]*? \| )?(collsim [^\n#|]*?)(?: &&.*| +#.*| \|.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(collsim \w[^`]*)`")
MADE = {
    "run.json": "run --topo hgx_h100 --op all_reduce --size 1M,64M -o run.json -q",
    "report.html": "",
    "my_node.yaml": "topo import examples/imports/topo_m.txt -o my_node.yaml",
    "internode.log": "run --topo hgx_h100 --nodes 2 --op all_reduce --size 64M,1G --format nccl -o internode.log -q",
}
"""Files that commands before make, or others like them; nothing where the command itself writes it."""
PIPED = {"topo": "examples/imports/topo_m.txt"}
"""What stands on stdin of a command that reads ``-``, behind a pipe."""
INPUT = re.compile(r"[\w./*-]+\.(?:conf|csv|gz|json|log|matrix|txt|xml|ya?ml)$")
WRITES = ("-o", "--output", "--plot", "--svg", "--perfetto", "--save-config")
ELSEWHERE = {
    "collsim run --topo hgx_h100 --op all_to_al --size 64MB": "tests/cli/test_readme.py: the errors that it shows",
    "collsim validate two_nodes.log": "tests/cli/test_validate.py: a log of two nodes below --min-busbw",
    "collsim timeline": "tests/timeline: traces that tests write; --env, --topo, --nodes, --ranks, --fail",
    "collsim calibrate": "tests/cli/test_calibrate.py: logs of both kinds, -o, --plot",
    "collsim doctor": "tests/cli/test_doctor.py",
    "collsim sweep grid.yaml -o results.jsonl --dask": "tests/sweeps/test_sweep.py: a scheduler and two workers",
    "collsim run --topo hgx_h100 --nodes 96": "tests/simulation/request/test_placement.py: files of Slurm",
    "collsim run --topo hgx_h100 --nodes 32 --op all_to_all_v": "tests/cli/test_tolerance.py: a matrix and --bracket",
    "collsim run --topo hgx_h100 --op all_reduce --profile mine.yaml": "tests/cli/test_calibrate.py",
    "collsim run --topo h100_rail --nodes 16 --op all_reduce --profile mine.yaml": "tests/cli/test_calibrate.py",
}
"""Beginnings of commands that need a file which no page makes, or leave with an error, and who runs the like."""
NEEDED = ("topo", "op", "files", "logs", "names")
"""Parameters without which a command answers nothing, though configuration files may have them."""
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
    needs_nobody = not PLACEHOLDER.search(command) and not command.startswith(tuple(ELSEWHERE))
    return there and needs_nobody and not is_a_name(command)


def is_a_name(command):
    """True if a page only names the command, with a flag at most, and the arguments that it needs are left out."""
    words = shlex.split(command)[1:]
    if {"--help", "-h"} & {*words} or any(INPUT.match(word) for word in words):
        return False
    context = click.Context(cli, info_name="collsim")
    _, found, rest = cli.resolve_command(context, words)
    while isinstance(found, click.Group) and rest and rest[0] in found.list_commands(context):
        found, rest = found.get_command(context, rest[0]), rest[1:]
    alone = any(param.name.startswith("list_") for param in found.params if {*param.opts} & {*rest})
    needed = any(param.required or param.name in NEEDED for param in found.params)
    return needed and len(rest) < 2 and not alone


ALL = [*commands()]


def test_commands_behind_a_pipe_are_seen():
    text = "nvidia-smi topo -m | collsim topo import - -o node.yaml   # in a note\ncollsim topo list | head\n"
    assert WRITTEN.findall(text) == ["collsim topo import - -o node.yaml", "collsim topo list"]
    assert any(
        case.values[1] == "collsim topo import - -o my_node.yaml" and is_run_here(case.values[1]) for case in ALL
    )


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
    words = shlex.split(command)
    for before, word in pairwise(words):
        if MADE.get(word) and before not in WRITES:
            assert collsim(*shlex.split(MADE[word])).code == 0
    if "-" in words:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((ROOT / PIPED[words[1]]).read_bytes())))
    found = collsim(*shlex.split(command)[1:])
    assert found.code in (0, PARTLY), found.err


NAMED = [case for case in ALL if not case.values[1].startswith(tuple(ELSEWHERE)) and not is_run_here(case.values[1])]


def test_no_command_of_a_page_is_forgotten():
    """Whatever no test runs is a pattern with something to put in, or a name, whose help the next test asks for."""
    forgotten = [
        each for _, each in (case.values for case in NAMED) if not PLACEHOLDER.search(each) and not is_a_name(each)
    ]
    assert forgotten == []


@pytest.mark.parametrize(("page", "command"), [case for case in NAMED if is_a_name(case.values[1])])
def test_a_command_that_is_named_has_help(collsim, page, command):
    words = [word for word in shlex.split(command)[1:] if not word.startswith("-")]
    assert collsim(*words, "--help").code == 0
