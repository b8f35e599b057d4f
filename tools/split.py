"""The split of logs into those that are fitted and those that score the fits, and the rule that decides it.

The first logs were assigned by hand; their sets are as first committed and frozen: tools/data/split.sha256 is the hash
of them. Every log that comes later is assigned by the hash of its name, before anyone looks into it:
``python tools/split.py NAME...`` prints the sets of new logs, ``python tools/split.py`` checks all of
tools/data/split.csv. A log that somebody had read before it was assigned tests nothing: it is fitted, or in no set.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from predictors import DATA, read_csv

FROZEN = DATA / "split.sha256"
FIRST, BY_HASH, SEEN = "first", "hash", "seen"
"""Way in which a log got its set: by hand at the first commit, by the hash of its name, or read before it had one."""
TRAIN_ONE_IN = 4
"""Of so many new logs one is fitted, on average. Chosen."""

Entry = Mapping[str, str]


def assigned(log: str) -> str:
    """Return the set of a new log: by the hash of its name alone.

    >>> assigned("H100-8x2__all_reduce__somewhere"), assigned("H100-8x4__all_reduce__somewhere")
    ('test', 'test')
    """
    return "test" if int(hashlib.sha256(log.encode()).hexdigest(), 16) % TRAIN_ONE_IN else "train"


def set_of(log: str, system: str, health: str) -> str:
    """Return the set of a new log; one that cannot be used is in none."""
    return assigned(log) if health == "ok" and system != "none" else "none"


def frozen_hash(entries: Iterable[Entry]) -> str:
    """Return the SHA-256 of log and set of all entries that were assigned by hand, in the order of their names."""
    lines = sorted(f"{entry['log']},{entry['set']}\n" for entry in entries if entry["by"] == FIRST)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def faults(entries: Sequence[Entry], frozen: str) -> list[str]:
    """Return the faults of a split: frozen sets that changed, and new ones that are not by the rule."""
    found = [] if frozen_hash(entries) == frozen else ["sets of the first logs are not those first committed"]
    for entry in entries:
        if entry["by"] == FIRST:
            continue
        due = set_of(entry["log"], entry["system"], entry["health"])
        if entry["by"] not in (BY_HASH, SEEN):
            found.append(f'{entry["log"]}: by "{entry["by"]}", not {FIRST}, {BY_HASH} or {SEEN}')
        elif entry["by"] == SEEN and entry["set"] == "test":
            found.append(f"{entry['log']}: set test, though it was read before it was assigned")
        elif entry["by"] == BY_HASH and entry["set"] != due:
            found.append(f"{entry['log']}: set {entry['set']}, {due} by the hash of its name")
    return found


def read_frozen(path: Path = FROZEN) -> str:
    """Return the hash of the frozen sets."""
    return path.read_text(encoding="ascii").split()[0]


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", metavar="NAME", help="new logs, to print their sets")
    asked = parser.parse_args()
    for log in asked.logs:
        print(f"{log}: {assigned(log)}")
    wrong = [] if asked.logs else faults(read_csv(DATA / "split.csv"), read_frozen())
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
