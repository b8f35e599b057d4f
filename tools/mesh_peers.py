"""Print how much bandwidth a group of 2, 4 or 8 GPUs has, on a mesh of links and behind switches.

``python tools/mesh_peers.py --write`` puts the tables into docs/tour.md, between their markers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages import put_between

import collsim
from collsim.topology import load_topology

PAGE = Path(__file__).parent.parent / "docs" / "tour.md"
BEGIN, END = "<!-- mesh-peers -->\n\n", "\n<!-- /mesh-peers -->\n"
SYSTEMS = {
    "mi300x_ubb8": "MI300X, mesh of 64 GB/s",
    "mi355x_ubb8": "MI355X, mesh of 76.8 GB/s",
    "hgx_h100": "H100, switches, 450 GB/s",
    "hgx_b200": "B200, switches, 900 GB/s",
}
RANKS = (2, 4, 8)
SIZE = "4G"
PROFILES = {
    "ideal": ("On the bare wires (`--profile ideal`):", 1),
    "default": ("With the `default` profile, which is not calibrated:", 0),
}


def rates(topo: str, op: str, algos: list[str], profile: str) -> list[float]:
    """Return the best busbw of *algos* for each group, in GB/s."""
    found = collsim.simulate(topo, op, SIZE, ranks=RANKS, algo=algos, profile=profile)
    return [max(row.busbw_Bps for row in found if row.ranks == ranks) / 1e9 for ranks in RANKS]


def cell(values: list[float], digits: int) -> str:
    """Return the rates of the groups as one cell."""
    return " / ".join(f"{value:.{digits}f}".removesuffix(".0") for value in values)


def table(profile: str) -> str:
    """Return the Markdown table of one profile."""
    title, digits = PROFILES[profile]
    groups = ", ".join(map(str, RANKS[:-1])) + f" and {RANKS[-1]}"
    lines = [
        title,
        "",
        f"| GB/s of each GPU in a group of {groups} | all-reduce (ring or all_pairs) | with NVLS | all-to-all |",
        "| --- | --- | --- | --- |",
    ]
    for topo, name in SYSTEMS.items():
        reduces = load_topology(topo).in_network_reduction is not None
        cells = [
            cell(rates(topo, "all_reduce", ["ring", "all_pairs"], profile), digits),
            cell(rates(topo, "all_reduce", ["nvls"], profile), digits) if reduces else "none",
            cell(rates(topo, "all_to_all", ["direct"], profile), digits),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables() -> str:
    """Return both tables."""
    return "\n".join(table(profile) for profile in PROFILES)


def write(text: str) -> None:
    """Replace what docs/tour.md has between the markers."""
    put_between(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bandwidth of a mesh against the number of peers.")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tour.md, do not print")
    if parser.parse_args().write:
        write(tables())
    else:
        print(tables(), end="")
