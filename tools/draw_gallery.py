"""Draw every system that comes with collsim, and measured bus bandwidth beside the prediction, for docs/gallery.md.

    python tools/draw_gallery.py

The wiring is that of ``collsim topo draw``. Measured points are healthy logs of tools/data, of the operation and the
largest number of ranks that most of them have: logs that no fit has seen where there are any, which the title says.
A test compares page and drawings with what this makes.
"""

from __future__ import annotations

import argparse
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot

from matplotlib import pyplot
from predictors import TableCase, TableRow, measured_rows, simulate

from collsim.core.errors import CollsimError
from collsim.core.operations import operation
from collsim.report.svg.drawing import topology_svg
from collsim.simulation.busbw_plot import curves_of, draw
from collsim.topology import load_topology, systems

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURES = DOCS / "gallery.md", DOCS / "pictures"
OPS = ("all_reduce", "all_to_all")
FEWEST_SIZES = 4
"""A log of fewer sizes is no curve."""
STYLE: Any = {
    "svg.hashsalt": "collsim", "svg.fonttype": "none", "savefig.transparent": True, "font.size": 9.0,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#808894"),
}  # fmt: skip
"""Grey that reads on white and on black, and the same file every time."""
HEAD = """# Gallery

Every system that comes with collsim: its wiring as `collsim topo draw` shows it and, where logs were measured on it,
bus bandwidth over size: a point for each measured row, the prediction as a line, the band in which 90 % of measured
times lie, and the bound of the wires as dashes. `result.plot(measured=...)` draws the same for logs of yours.
"""


def measured_on(name: str, rows: Sequence[TableRow]) -> Iterator[tuple[str, list[TableRow]]]:
    """Yield operations, and the healthy rows of each that are alike: of most ranks, and unseen if there are such."""
    for op in OPS:
        alike: dict[TableCase, list[TableRow]] = defaultdict(list)
        for row in rows:
            case = row.case
            if case.system == name and case.op == op and case.launch == "stream" and row.health == "ok":
                alike[case._replace(size_bytes=0, dtype="float", host="auto")].append(row)
        curves = [rows for rows in alike.values() if len({row.case.size_bytes for row in rows}) >= FEWEST_SIZES]
        if curves:
            yield (
                op,
                max(curves, key=lambda rows: (rows[0].case.ranks, is_unseen(rows), not rows[0].case.env, len(rows))),
            )


def worth(rows: Sequence[TableRow]) -> tuple[int, bool, bool, int]:
    """Return how much rows are worth showing, to be compared."""
    return rows[0].case.ranks, is_unseen(rows), not rows[0].case.env, len(rows)


def is_unseen(rows: Sequence[TableRow]) -> bool:
    """Say whether no fit has seen the rows."""
    return all(row.set == "test" for row in rows)


def busbw_svg(measured: Mapping[str, Sequence[TableRow]]) -> str | None:
    """Return a picture with a panel for each operation; None where the model has no answer."""
    panels = {}
    for op, rows in measured.items():
        cases = {row.case.size_bytes: row.case for row in rows}
        try:
            panels[op] = [simulate(case) for case in cases.values()]
        except CollsimError:
            continue
    if not panels:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            1, len(panels), figsize=(5 * len(panels), 3.2), layout="constrained", squeeze=False
        )
        for ax, (op, predicted) in zip(axes[0], panels.items(), strict=True):
            rows = measured[op]
            case, unseen = rows[0].case, "in no fit" if is_unseen(rows) else "also of the fit"
            factor = operation(op).busbw_factor(case.ranks)
            points = sorted((row.case.size_bytes, row.case.size_bytes * factor / row.time_s) for row in rows)
            over = f" on {case.nodes} nodes" if case.nodes > 1 else ""
            draw(curves_of(predicted), points, f"{op}, {case.ranks} ranks{over}; logs {unseen}", ax)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def page(found: Sequence[Mapping[str, Any]], curves: set[str]) -> str:
    """Return the page: a part for each system."""
    parts = [HEAD]
    for each in found:
        name, rate = each["name"], each["gpu_Bps"] / 1e9
        size = f"{each['gpus']:,} GPUs" + f" in {each['nodes']:,} nodes" * (each["kind"] == "cluster")
        towards = "to other nodes" if each["kind"] == "cluster" else "to its domain"
        parts.append(f"## {name}\n\n{each['title']}. {size}; {rate:.4g} GB/s from each GPU {towards}.\n")
        parts.append(f"![wiring of {name}](pictures/{name}.svg)\n")
        if name in curves:
            parts.append(f"![bus bandwidth on {name}](pictures/{name}_busbw.svg)\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page and its pictures."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    PICTURES.mkdir(exist_ok=True)
    rows, curves, found = measured_rows(), set(), systems()
    for each in found:
        name = each["name"]
        (PICTURES / f"{name}.svg").write_text(topology_svg(load_topology(name)), encoding="utf-8")
        picture = busbw_svg(dict(measured_on(name, rows)))
        if picture:
            curves.add(name)
            (PICTURES / f"{name}_busbw.svg").write_text(picture, encoding="utf-8")
    PAGE.write_text(page(found, curves), encoding="utf-8")


if __name__ == "__main__":
    main()
