"""Draw docs/architecture.svg from the imports, and write the list of files into docs/architecture.md.

``python tools/draw_architecture.py`` prints the floors and the arrows between rooms; ``--write`` writes both. Floors
come from the import contract in pyproject.toml; arrows and steps of the walk are imports that are there today: a step
that nobody imports any more is an error. What a file is for is the first line of its docstring.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape

import grimp
from pages import put_between

ROOT = Path(__file__).parent.parent
PICTURE, PAGE = ROOT / "docs" / "architecture.svg", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files -->\n\n", "\n<!-- /files -->\n"
CONTRACT = "data flows one way"
WALK = (
    ("cli.run", "simulation.request.prepare", "flags become a request, every fault of it at once"),
    ("simulation.request.prepare", "topology", "the machine, damaged as asked"),
    ("simulation.parties", "fabric.fabric", "links with capacities"),
    ("simulation.contest", "simulation.selection", "which algorithms compete"),
    ("simulation.selection", "library", "what NCCL or RCCL would run"),
    ("simulation.plans", "simulation.concurrent", "all groups at once"),
    ("simulation.lowering", "schedule", "who sends what to whom"),
    ("simulation.lowering", "fabric.routing", "over which links"),
    ("simulation.problems", "library.costs.laws", "caps and latencies"),
    ("simulation.timing", "engine", "max-min shares over time"),
    ("simulation.timing", "fabric.bounds.lower", "no answer below the bound"),
    ("simulation.rows", "simulation.result", "a row of the table, with its interval"),
    ("cli.run", "report", "the columns of nccl-tests"),
)
"""The way of ``--size`` from the flag to the table: importer, imported, and what happens there."""
WIDTH, FLOOR, TOP, LEFT, BOX = 1120, 92, 70, 24, 132
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b1f24 }
.small { font-size: 11px; fill: #57606a }
.floor { fill: #f6f8fa } .room { fill: #fff; stroke: #57606a; rx: 6px }
.arrow { stroke: #afb8c1; fill: none } .step { fill: #0969da } .number { fill: #fff; font-size: 11px }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .floor { fill: #161b22 } .room { fill: #0d1117; stroke: #9198a1 }
  .arrow { stroke: #444c56 } .step { fill: #4493f8 }
}
"""


def floors() -> list[list[str]]:
    """Rooms of each floor, the highest first, from the import contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["name"] == CONTRACT)
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def arrows(graph: grimp.ImportGraph, rooms: list[str]) -> Counter[tuple[str, str]]:
    """Imports between rooms: how many modules of one import one of the other."""
    found: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            here, there = (name.split(".")[1:2] for name in (module, imported))
            if here and there and here != there and here[0] in rooms and there[0] in rooms:
                found[here[0], there[0]] += 1
    return found


def missing_steps(graph: grimp.ImportGraph) -> list[str]:
    """Steps of the walk that are no import today."""
    return [
        f"{here} does not import {there}"
        for here, there, _ in WALK
        if f"collsim.{there}" not in graph.modules
        or not graph.direct_import_exists(importer=f"collsim.{here}", imported=f"collsim.{there}")
    ]


def drawn(levels: list[list[str]], found: Counter[tuple[str, str]]) -> str:
    """The picture as SVG: floors from top to bottom, arrows between rooms, and the walk beside them."""
    places = {}
    for level, rooms in enumerate(levels):
        first = LEFT + (660 - len(rooms) * (BOX + 24) + 24) // 2
        for number, room in enumerate(rooms):
            places[room] = (first + number * (BOX + 24), TOP + level * FLOOR + 22)
    height = TOP + len(levels) * FLOOR + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>Rooms of collsim on {len(levels)} floors; arrows are imports</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="30">Rooms import only rooms on lower floors; thicker arrows are more imports.</text>',
        f'<text x="{LEFT + 690}" y="30">The way of one request, from the flag to the table</text>',
    ]
    for level in range(len(levels)):
        top = TOP + level * FLOOR
        lines.append(f'<rect class="floor" x="{LEFT}" y="{top}" width="660" height="{FLOOR - 8}" rx="8"/>')
    for (here, there), count in sorted(found.items()):
        (x, y), (u, v) = places[here], places[there]
        start, end = (x + BOX / 2, y + 40), (u + BOX / 2, v)
        bend = f"C {start[0]:.0f} {start[1] + 40:.0f} {end[0]:.0f} {end[1] - 40:.0f}"
        width = 0.6 + min(count, 60) / 20
        lines.append(
            f'<path class="arrow" stroke-width="{width:.1f}" '
            f'd="M {start[0]:.0f} {start[1]:.0f} {bend} {end[0]:.0f} {end[1]:.0f}"/>'
        )
    for room, (x, y) in places.items():
        lines.append(f'<rect class="room" x="{x}" y="{y}" width="{BOX}" height="40"/>')
        lines.append(f'<text x="{x + BOX / 2}" y="{y + 25}" text-anchor="middle">{room}</text>')
    step_height = (height - TOP) / len(WALK)
    for number, (here, there, said) in enumerate(WALK, start=1):
        middle = TOP + (number - 0.7) * step_height
        lines.append(f'<circle class="step" cx="{LEFT + 700}" cy="{middle:.0f}" r="10"/>')
        lines.append(f'<text class="number" x="{LEFT + 700}" y="{middle + 4:.0f}" text-anchor="middle">{number}</text>')
        lines.append(f'<text x="{LEFT + 720}" y="{middle + 1:.0f}">{escape(there)}</text>')
        told = escape(f"{said}; from {here}")
        lines.append(f'<text class="small" x="{LEFT + 720}" y="{middle + 16:.0f}">{told}</text>')
    return "\n".join([*lines, "</svg>", ""])


def purpose(path: Path) -> str:
    """First line of a module's docstring, as Markdown for a cell of a table."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0].replace("|", "\\|")


def files(levels: list[list[str]]) -> str:
    """Every file of the package with its purpose, room by room from the top floor to the lowest."""
    lines = []
    for room in (room for rooms in levels for room in rooms):
        folder = ROOT / "collsim" / room
        lines += [f"### `{room}/`: {purpose(folder / '__init__.py')}", "", "| file | |", "| --- | --- |"]
        found = [path for path in folder.rglob("*.py") if path != folder / "__init__.py"]
        for path in sorted(found, key=lambda path: (len(path.parent.parts), path.parent, path.stem)):
            place = path.parent if path.stem == "__init__" else path
            name = place.relative_to(folder).as_posix() + ("/" if place.is_dir() else "")
            lines.append(f"| `{name}` | {purpose(path)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Print the floors and arrows; 1 if an arrow leads up or the walk has a step that is no import."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"draw {PICTURE.name} as well")
    asked = parser.parse_args()
    graph, levels = grimp.build_graph("collsim"), floors()
    found = arrows(graph, [room for rooms in levels for room in rooms])
    level_of = {room: level for level, rooms in enumerate(levels) for room in rooms}
    up = [f"{here} imports {there}" for here, there in found if level_of[here] >= level_of[there]]
    for level, rooms in enumerate(levels):
        print(f"floor {len(levels) - level}: {', '.join(rooms)}")
    print(f"{len(level_of)} rooms, {len(found)} arrows between rooms, {len(up)} up")
    faults = up + missing_steps(graph)
    print(*faults, sep="\n", end="\n" if faults else "")
    if asked.write and not faults:
        PICTURE.write_text(drawn(levels, found), encoding="utf-8")
        put_between(PAGE, BEGIN, END, files(levels))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
