"""Every tool of this folder says what it does before it does anything, and refuses flags that it does not have."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

TOOLS = sorted((Path(__file__).parents[2] / "tools").glob("*.py"))
QUICK = ("config_schema", "import_graph", "refresh_columns", "refresh_pages")


def _is_script(tool):
    return '__name__ == "__main__"' in tool.read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if _is_script(tool)], ids=lambda tool: tool.stem)
def test_arguments_are_read(tool):
    called = {node.func.attr for node in ast.walk(ast.parse(tool.read_text(encoding="utf-8")))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}  # fmt: skip
    assert {"ArgumentParser", "parse_args"} <= called


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(("flag", "code"), [("--help", 0), ("--hepl", 2)])
def test_help_does_nothing_else(name, flag, code, monkeypatch, capsys):
    tool = next(tool for tool in TOOLS if tool.stem == name)
    monkeypatch.setattr(sys, "argv", [str(tool), flag])
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: pytest.fail("it writes"))
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(tool), run_name="__main__")
    assert left.value.code == code
    assert "usage: " in "".join(capsys.readouterr())
