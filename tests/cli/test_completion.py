"""Names and files that a shell completes, what `topo` lists, and errors that nobody expects, without a process."""

import click
import pytest

from collsim.cli import cli
from collsim.cli.options import complete


def test_the_last_of_several_names_is_completed():
    none, file = (complete(lambda: ("ring",), **more)["shell_complete"] for more in ({}, {"files": True}))
    assert none(None, None, "./my") == []
    assert [(item.value, item.type) for item in file(None, None, "./my")] == [("./my", "file")]
    assert [item.value for each in (none, file) for item in each(None, None, "tree,r")] == ["tree,ring"] * 2


def commands_in(group, context):
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        yield from commands_in(command, context) if isinstance(command, click.Group) else [command]


def test_files_are_completed_where_a_file_may_be_named():
    """By the word for the value in the help: NAME|FILE, or a list of topologies."""
    context, seen = click.Context(cli), {True: 0, False: 0}
    for command in commands_in(cli, context):
        for option in command.params:
            if getattr(option, "_custom_shell_complete", None) is not None:
                completed = option.shell_complete(context, "./my")
                files = any(word in option.metavar for word in ("FILE", "TOPO"))
                assert [item.type for item in completed] == ["file"] * files, (command.name, option.name)
                seen[files] += 1
    assert min(seen.values()) > 10


def test_unexpected_error_is_one_message(collsim, monkeypatch):
    monkeypatch.setattr("collsim.cli.run._simulated", lambda *_: 1 / 0)
    outcome = collsim("run", "--topo", "mi300x_ubb8", "--op", "all_to_all")
    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.err
    assert "Traceback" not in outcome.err
    assert "COLLSIM_DEBUG=1" in outcome.err
    with pytest.raises(ZeroDivisionError):
        collsim("run", "--topo", "mi300x_ubb8", "--op", "all_to_all", COLLSIM_DEBUG="1")


def test_topo_commands(collsim, tmp_path):
    listed = collsim("topo", "list").out.splitlines()
    assert any(line.startswith("mi355x_ubb8 ") and "MI355X" in line for line in listed)
    shown = collsim("topo", "show", "mi300x_ubb8", "--set", "link.bandwidth=80 GB/s").out
    assert "80 GB/s" in shown
    file = tmp_path / "copy.yaml"
    file.write_text(collsim("topo", "show", "mi300x_ubb8", "--format", "yaml").out.replace("mi300x_ubb8", "copy"))
    assert collsim("topo", "check", file).out == f"{file}: ok (8 GPUs, 56 directed bundles of links)\n"
    assert collsim("topo", "show", "mi300x_ubb8", "--format", "json").out.startswith("{\n")


def test_list_has_gpus_and_rates(collsim):
    head, *rows = collsim("topo", "list").out.splitlines()
    assert head.split()[:4] == ["#", "name", "GPUs", "GB/s"]
    figures = {row.split()[0]: row.split()[1:3] for row in rows}
    assert figures["hgx_h100"] == ["8", "450"]
    assert figures["mi355x_ubb8"] == ["8", "537.6"]
    assert figures["gb200_nvl72"] == ["72", "900"]
    assert max(map(len, rows)) <= 120
