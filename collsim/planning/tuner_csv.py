"""Rules of NCCL's example tuner plugin as CSV: written, and read back as the plugin does.

The format is that of plugins/tuner/example in NVIDIA/nccl (README.md and nccl_tuner.conf): a rule per line, fields
``collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff``, the last two optional,
-1 for any or for the library's own, ``#`` for comments. Both sizes belong to the range, and the first rule that matches
wins. RCCL's plugin (ext-tuner/example in ROCm/rccl) reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collsim.core.errors import Fault, Faults, SpecError, did_you_mean

__all__ = ["ALGORITHMS", "COLLECTIVES", "PROTOCOLS", "Rule", "first_match", "read_rules", "write_rules"]

COLLECTIVES = {
    "broadcast": "broadcast", "reduce": "reduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}  # fmt: skip
"""Words of the format for operations."""
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
FIELDS = ("collective_type", "min_bytes", "max_bytes", "algorithm", "protocol", "channels", "nNodes", "nRanks",
          "numPipeOps", "regBuff")  # fmt: skip
LEAST_FIELDS = 8
MOST_LINE = 255
"""Characters that the plugin reads of a line."""
ANY = -1


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule: for messages of *collective* from *min_bytes* to *max_bytes* take this algorithm, protocol and channels."""

    collective: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int = ANY
    nodes: int = ANY
    ranks: int = ANY
    pipe_ops: int = ANY
    registered: int = ANY

    def __str__(self) -> str:
        return ",".join(
            str(value)
            for value in (
                self.collective, self.min_bytes, self.max_bytes, self.algorithm, self.protocol, self.channels,
                self.nodes, self.ranks, self.pipe_ops, self.registered,
            )
        )  # fmt: skip

    def matches(self, collective: str, size_bytes: int, nodes: int, ranks: int, registered: int) -> bool:
        """Return True if the plugin takes the rule for such a call."""
        return (
            collective == self.collective
            and self.min_bytes <= size_bytes <= self.max_bytes
            and self.nodes in (ANY, nodes)
            and self.ranks in (ANY, ranks)
            and self.registered in (ANY, registered)
        )


def first_match(
    rules: Iterable[Rule], collective: str, size_bytes: int, *, nodes: int, ranks: int, registered: int = 0
) -> Rule | None:  # fmt: skip
    """Return the rule that the plugin takes for a call; None leaves it to the library."""
    return next((rule for rule in rules if rule.matches(collective, size_bytes, nodes, ranks, registered)), None)


def write_rules(rules: Iterable[tuple[Rule, str]], comments: Iterable[str]) -> str:
    """Return the file of rules, each with a comment above it."""
    lines = [f"# {line}"[:MOST_LINE] for line in (*comments, f"Format: {','.join(FIELDS)}")]
    for rule, comment in rules:
        lines += [f"# {comment}"[:MOST_LINE], str(rule)]
    return "\n".join(lines) + "\n"


def read_rules(text: str, name: str = "rules") -> list[Rule]:
    r"""Return the rules of a file.

    Raises
    ------
    SpecError
        Every line that is none, with its number; the plugin skips such lines or reads them as something else.

    Examples
    --------
    >>> read_rules("# small\nallreduce,0,65536,tree,ll,-1,1,8\n")[0].algorithm
    'tree'
    """
    faults = Faults()
    rules = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        rule = _rule(line, f"{name}:{number}", faults)
        rules += [rule] if rule else []
    faults.raise_any(SpecError)
    return rules


def _rule(line: str, where: str, faults: Faults) -> Rule | None:
    fields = [field.strip() for field in line.partition("#")[0].split(",")]
    if not LEAST_FIELDS <= len(fields) <= len(FIELDS) or len(line) > MOST_LINE:
        faults.append(Fault(f"{len(fields)} fields", where, f"write {','.join(FIELDS)}"))
        return None
    known = {0: tuple(COLLECTIVES.values()), 3: ALGORITHMS, 4: PROTOCOLS}
    before = len(faults)
    for place, names in known.items():
        if fields[place] not in names:
            hint = f"{did_you_mean(fields[place], names)}known: {', '.join(names)}"
            faults.append(Fault(f'unknown {FIELDS[place]} "{fields[place]}"', where, hint))
    numbers = {place: _number(text) for place, text in enumerate(fields) if place not in known}
    for place, value in numbers.items():
        if value is None or value < (0 if place in (1, 2) else ANY):
            faults.append(Fault(f'{FIELDS[place]} "{fields[place]}" is no number', where, "-1 stands for any"))
    if len(faults) > before:
        return None
    low, high, *rest = (value or 0 for value in numbers.values())
    if low > high:
        faults.append(Fault(f"{low} to {high} is no range", where, "write the smaller size first"))
    return Rule(fields[0], low, high, fields[3], fields[4], *rest)


def _number(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() else None
