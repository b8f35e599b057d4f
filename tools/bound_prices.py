"""Write down the prices of the linear programmes that bound shipped systems, so that a run of these needs no solver.

``python tools/bound_prices.py --write`` solves those of all systems of one node with every operation and writes
collsim/fabric/bounds/prices.json; without it, the systems and operations that the file lacks are printed, exit code 1.
Prices are hints: the bound that follows from them holds whatever they are (collsim/fabric/bounds/flow_bounds.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from collsim import simulate
from collsim.core.operations import OPERATIONS
from collsim.fabric.bounds import flow_bounds
from collsim.topology import load_topology, zoo_names


def solved() -> dict[str, tuple[list[int], list[float]]]:
    """Return the prices above zero of every programme, by its key."""
    found: dict[str, tuple[list[int], list[float]]] = {}

    def noted(*programme: Any) -> Any:
        key = flow_bounds.digest_of(*programme)
        if key not in found:
            price = flow_bounds.solved_prices(*programme)
            index = np.flatnonzero(price)
            found[key] = index.tolist(), price[index].tolist()
        price = np.zeros(len(programme[1]))
        price[found[key][0]] = found[key][1]
        return price

    flow_bounds._prices = noted  # type: ignore[assignment]
    for name in zoo_names():
        topology = load_topology(name)
        if topology.cluster is None and topology.wiring.coordinates.kind == "irregular":
            for op in OPERATIONS:
                if op != "all_to_all_v":
                    simulate(topology, op, "1M")
    return found


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the file")
    asked, found = parser.parse_args(), solved()
    if asked.write:
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found))
        flow_bounds.ON_FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        return 0
    known = json.loads(flow_bounds.ON_FILE.read_text(encoding="utf-8"))
    print(f"{len(found)} programmes, {len(found.keys() - known.keys())} not on file")
    return int(bool(found.keys() - known.keys()))


if __name__ == "__main__":
    sys.exit(main())
