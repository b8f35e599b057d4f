"""Carry out the cells of a notebook in this process, without Jupyter, and write what they show into it.

    python tools/run_notebook.py examples/planning.ipynb --write

A value at the end of a cell is shown as text, as a table of HTML if it has one, and pictures of matplotlib as SVG.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def carried_out(notebook: dict[str, Any]) -> list[list[Output]]:
    """Return what every cell of code shows, in order, all with one set of names.

    Raises
    ------
    Exception
        Whatever a cell raises.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [_shown("".join(cell["source"]), names, number) for number, cell in enumerate(code, start=1)]


def _shown(source: str, names: dict[str, Any], number: int) -> list[Output]:
    """Return what one cell prints, and the value of its last expression."""
    body, printed = ast.parse(source).body, io.StringIO()
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    text = printed.getvalue()
    lines = text.splitlines(keepends=True)
    shown: list[Output] = [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []
    if value is not None:
        shown.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _data(value)})
    return shown


def _data(value: Any) -> dict[str, list[str]]:
    """Return a value as text, and as HTML or a picture."""
    figure = getattr(value, "figure", None)
    if hasattr(figure, "savefig"):
        return {"text/plain": ["<a picture>"], "image/svg+xml": _svg(figure).splitlines(keepends=True)}
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


def _svg(figure: Any) -> str:
    """Return a figure as SVG that is the same each time."""
    from matplotlib import pyplot

    pyplot.switch_backend("svg")
    text = io.StringIO()
    with pyplot.rc_context({"svg.hashsalt": "collsim", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()


def texts_of(outputs: list[Output]) -> list[str]:
    """Return what a cell shows as text."""
    return ["".join(each["text"] if "text" in each else each["data"]["text/plain"]) for each in outputs]


def written(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with what its cells show."""
    shown = iter(carried_out(notebook))
    cells = [
        {**cell, "outputs": next(shown), "execution_count": None} if cell["cell_type"] == "code" else cell
        for cell in notebook["cells"]
    ]
    for number, cell in enumerate((each for each in cells if each["cell_type"] == "code"), start=1):
        cell["execution_count"] = number
    return {**notebook, "cells": cells}


def main() -> None:
    """Carry out a notebook; say which cells show something else than it holds, or write that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true", help="write what the cells show into the file")
    arguments = parser.parse_args()
    before = json.loads(arguments.notebook.read_text(encoding="utf-8"))
    after = written(before)
    if arguments.write:
        arguments.notebook.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    for old, new in zip(before["cells"], after["cells"], strict=True):
        if texts_of(old.get("outputs", [])) != texts_of(new.get("outputs", [])):
            print(f"another output: {''.join(new['source']).splitlines()[0]}")


if __name__ == "__main__":
    main()
