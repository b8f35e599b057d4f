"""Facts from the lines around a table: program, versions, command, environment, devices, columns.

Every reader takes a line and the `Facts` that it adds to. This module imports only `operations` and, of the
reader, `launchers` and `printed_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from collsim.calibration.logs.launchers import NAMED, launched
from collsim.calibration.logs.printed_rows import Layout
from collsim.core.operations import ALIASES, OPERATIONS

__all__ = ["Device", "Facts", "encoded_version", "learn", "learn_debug", "op_name", "op_of_program", "read_command"]

MAX_DEVICES = 1 << 20
MAX_TEXT = 2000
MAX_SENTENCE = 200
MOST_VERSIONS = 4
"""So many versions that a log prints before one table are kept."""

_PROGRAM = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|all_?to_?all_v|broadcast|bcast|reduce|gather|scatter"
    r"|send_?recv|hypercube)(?:_bias)?_perf(?:_mpi)?\b",
    re.IGNORECASE,
)
_WORD_OP = re.compile(
    r"(?<![A-Za-z])(all[_ -]?reduce|all[_ -]?gather|reduce[_ -]?scatter|all[_ -]?to[_ -]?all[_ -]?v?|all2allv?"
    r"|send[_ -]?recv|broadcast|hypercube|allr|allg|redsct|alltoall)(?![A-Za-z])",
    re.IGNORECASE,
)
_SHORT_WORD_OP = re.compile(r"(?<![A-Za-z])(reduce|gather|scatter)(?![A-Za-z])", re.IGNORECASE)
_THREADS = re.compile(r"nThreads?:?\s+(\d+)\s+nGpus:?\s+(\d+)(?:\s+nRanks:?\s+(\d+))?")
_SETTING = re.compile(r"(warmup ?iters|agg iters|iters|validation|graph):\s*(\d+)", re.IGNORECASE)
_DEVICE = re.compile(
    r"Rank\s+(\d+)(?:\s+Group\s+(\d+))?(?:\s+Pid\s+(\d+))?\s+on\s+(\S+)\s+device\s+(\d+)(?:\s+\[([^\]]*)\])?\s*(.*)"
)
_VERSIONS = (
    (re.compile(r"\b(nccl|rccl)-tests version (\S+)"), "program"),
    (re.compile(r"\b(rccl)-tests: Version (\S+)"), "program"),
    (re.compile(r"\b(NCCL|RCCL) version\s*:?\s*(?!check)([\d.]+[^\s,]*)"), "library"),
    (re.compile(r"\b(nccl|rccl)-library=(\d+)"), "code"),
    (re.compile(r"compiled with (NCCL|RCCL) ([\d.]+)"), "compiled"),
)
_ENV = re.compile(r"\b((?:NCCL|RCCL|HSA|HIP|CUDA|ROCR|FI|UCX|OFI|GPU|MSCCL|MSCCLPP|MPICH|OMPI)_[A-Z0-9_]+)=")
_ENV_VALUE = re.compile(r"\"([^\"]*)\"|'([^']*)'|(\S*)")
_SPLIT_VALUE = re.compile(r"[\"']?((?:(?:AND|OR|MOD|DIV)\b|[&|%/])\s*(?:0[xXbB])?[0-9a-fA-F]+)[\"']?", re.IGNORECASE)
_ENV_SET = re.compile(r"\b((?:NCCL|RCCL)_[A-Z0-9_]+) set (?:by environment )?to (\S+)")
_DEBUG_OP = re.compile(r"\bNCCL INFO (AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll\w*|Gather|Scatter): ")
_COMMUNICATOR = re.compile(r"\bnRanks (\d{1,7}) nNodes (\d{1,7})\b")
"""A communicator that is ready, as NCCL prints it from 2.19 on (src/init.cc, initTransportsRank), and RCCL after it."""
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.eE+]+)")

_LONG_FLAGS = {
    "nthreads": "t", "ngpus": "g", "cudagraph": "G", "local_register": "R", "blocking": "z", "average": "a",
    "datatype": "d", "op": "o", "root": "r", "iters": "n", "warmup_iters": "w", "agg_iters": "m", "check": "c",
    "report_cputime": "C",
}  # fmt: skip
_FLAG = re.compile(r"(?<!\S)(?:-([A-Za-z])[ =]?|--([a-z_]+)[ =])([^\s-]\S*)")
_TOLD = re.compile(r"\b(\d{1,7}) (?:ranks|GPUs|gpus)\b")


@dataclass(frozen=True, slots=True)
class Device:
    """A line of the list of ranks."""

    group: int
    host: str
    name: str
    pid: int
    number: int = -1
    """Of the device on its host; -1 if the list does not say."""
    address: str = ""
    """On the PCI bus, as printed."""


@dataclass(slots=True)
class Facts:
    """Facts about the test that comes next or runs now; readers fill them in."""

    op: str | None = None
    op_source: str = ""
    op_hint: str | None = None
    program: str | None = None
    program_version: str | None = None
    library: str | None = None
    library_version: str | None = None
    compiled_version: str | None = None
    printed_versions: tuple[str, ...] = ()
    noted_library: str | None = None
    noted_version: str | None = None
    noted_line: int | None = None
    launch_known: bool = False
    graph_launches: int | None = None
    registered: int | None = None
    blocking: int | None = None
    average: int | None = None
    cpu_time: bool = False
    deviations: bool = False
    failed: bool = False
    threads: int | None = None
    gpus_per_thread: int | None = None
    ranks_per_gpu: int = 1
    iterations: int | None = None
    warmups: int | None = None
    aggregated: int | None = None
    validation: int | None = None
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    processes: int | None = None
    nodes_flag: int | None = None
    told_ranks: int | None = None
    told_nodes: int | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    devices_cut: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    command: str | None = None
    copies: int = 0
    layout: Layout | None = None
    in_place_only: bool = False
    in_place_first: bool = False
    printed_busbw: float | None = None

    def for_next(self) -> Facts:
        """Return what the next table takes over if it has no header of its own: all but what this one alone showed."""
        environment = dict(self.environment)
        return replace(self, environment=environment, copies=0, printed_busbw=None, failed=False, printed_versions=())

    @property
    def split(self) -> str | None:
        """Split of the ranks into groups as nccl-tests was told it: NCCL_TESTS_SPLIT, or the mask as ``AND mask``."""
        mask = self.environment.get("NCCL_TESTS_SPLIT_MASK")
        return self.environment.get("NCCL_TESTS_SPLIT") or (f"AND {mask}" if mask else None)


def op_name(text: str) -> str | None:
    """Return the name of an operation as `operations` spells it; hypercube, which is none of them, too.

    >>> op_name("AllReduce"), op_name("all-to-all"), op_name("alltoallv_perf"), op_name("memcpy")
    ('all_reduce', 'all_to_all', 'all_to_all_v', None)
    """
    key = re.sub(r"[^a-z0-9]", "", text.lower().removesuffix("_mpi").removesuffix("_perf"))
    return _KEYS.get(key)


_KEYS = {name.replace("_", ""): name for name in OPERATIONS} | {
    alias: name for alias, name in ALIASES.items() if len(alias) > 3
}  # fmt: skip
_KEYS |= {
    "hypercube": "hypercube", "all2all": "all_to_all", "all2allv": "all_to_all_v", "allr": "all_reduce",
    "allg": "all_gather", "redsct": "reduce_scatter",
}  # fmt: skip


def op_of_program(text: str) -> str | None:
    """Return the operation of the one program that *text* names; None for none or several."""
    found = {op_name(match[1]) for match in _PROGRAM.finditer(text)}
    return found.pop() if len(found) == 1 else None


def op_in_words(text: str) -> str | None:
    """Return the operation that a file name or a sentence names, if it is one."""
    found = {op_name(match[1]) for match in _WORD_OP.finditer(text)} - {None}
    found = found or {op_name(match[1]) for match in _SHORT_WORD_OP.finditer(text)}
    return found.pop() if len(found) == 1 else None


def encoded_version(code: int) -> str | None:
    """Return the version that NCCL_VERSION_CODE means.

    >>> encoded_version(22809), encoded_version(2408), encoded_version(7)
    ('2.28.9', '2.4.8', None)
    """
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}" if 2000 <= code < 10**7 else None


def learn(text: str, facts: Facts, sticky: dict[str, str]) -> None:
    """Add what a line that is no row says; *sticky* is the environment that outlives a test."""
    for key, reader in _READERS:
        if key in text:
            reader(text, facts)
    if "=" in text and "_" in text and _ENV.search(text):
        _read_environment(text, facts, sticky)


def learn_debug(text: str, facts: Facts) -> None:
    """Add what a line of NCCL_DEBUG says."""
    if "version" in text:
        _read_versions(text, facts)
    if " set " in text and (match := _ENV_SET.search(text)):
        facts.environment.setdefault(match[1], match[2].rstrip("."))
    if "nNodes" in text and (match := _COMMUNICATOR.search(text)):
        facts.told_ranks, facts.told_nodes = facts.told_ranks or int(match[1]), facts.told_nodes or int(match[2])
    if facts.op_hint is None and "Bytes" in text and (match := _DEBUG_OP.search(text)):
        facts.op_hint = op_name(match[1])


def read_command(command: str, facts: Facts) -> None:
    """Add what a command line says: the flags behind the program, the launcher before it."""
    match = _PROGRAM.search(command)
    if match is None:
        return
    facts.command = command.strip()[:MAX_TEXT]
    for short, long, value in _FLAG.findall(command[match.end() :]):
        _apply_flag(short or _LONG_FLAGS.get(long, ""), value, facts)
    before = command[: match.start()]
    if NAMED.search(before):
        facts.processes, facts.nodes_flag = launched(before)


def _apply_flag(flag: str, value: str, facts: Facts) -> None:
    fields = {
        "t": "threads", "g": "gpus_per_thread", "G": "graph_launches", "R": "registered", "z": "blocking",
        "a": "average", "n": "iterations", "w": "warmups", "m": "aggregated", "c": "validation",
    }  # fmt: skip
    if flag in fields and value.isdigit():
        setattr(facts, fields[flag], int(value[:9]))
    elif flag == "C":
        facts.cpu_time = value == "1"
    elif flag == "d":
        facts.dtype = value
    elif flag == "o":
        facts.redop = value


def _read_threads(text: str, facts: Facts) -> None:
    match = _THREADS.search(text)
    if match is None:
        return
    facts.threads, facts.gpus_per_thread = int(match[1][:9]), int(match[2][:9])
    facts.ranks_per_gpu = int(match[3][:9]) if match[3] else 1
    settings = {name.lower().replace(" ", ""): int(value[:9]) for name, value in _SETTING.findall(text)}
    facts.warmups, facts.iterations = settings.get("warmupiters"), settings.get("iters")
    facts.aggregated, facts.validation = settings.get("aggiters"), settings.get("validation")
    facts.graph_launches = settings.get("graph", 0)
    facts.launch_known = True


def _read_blocking(text: str, facts: Facts) -> None:
    if "no barrier" in text:
        facts.blocking = 2
    elif "Blocking Enabled" in text:
        facts.blocking = 1


def _read_device(text: str, facts: Facts) -> None:
    match = _DEVICE.search(text)
    if match is None or len(facts.devices) >= MAX_DEVICES:
        return
    rank = int(match[1][:9])
    group, pid, number = (int((text or "0")[:9]) for text in (match[2], match[3], match[5]))
    device = Device(group, match[4][:200], match[7].strip()[:80], pid, number, (match[6] or "")[:40])
    facts.devices.setdefault(rank, device)


def _read_versions(text: str, facts: Facts) -> None:
    for pattern, kind in _VERSIONS:
        match = pattern.search(text)
        if match is None:
            continue
        if kind == "program":
            facts.program, facts.program_version = f"{match[1].lower()}-tests", match[2].rstrip(",;")
        else:
            facts.library = match[1].upper()
            if kind == "compiled":
                facts.compiled_version = match[2]
                continue
            version = match[2].rstrip(".") if kind == "library" else encoded_version(int(match[2][:9]))
            if version and version not in facts.printed_versions:
                facts.printed_versions = (*facts.printed_versions, version)[:MOST_VERSIONS]
            if kind == "library" or facts.library_version is None:
                facts.library_version = version


def _read_start(text: str, facts: Facts) -> None:
    op = op_of_program(text)
    if op:
        facts.op, facts.op_source = op, "the line that starts the test"


def _read_program(text: str, facts: Facts) -> None:
    op = op_of_program(text)
    if op and "Collective test" not in text:
        facts.op, facts.op_source = op, "the command line"
        read_command(text, facts)


def _read_environment(text: str, facts: Facts, sticky: dict[str, str]) -> None:
    """Take assignments; those of a command or of an ``env:`` line hold for one test, the others until changed."""
    for match in _ENV.finditer(text):
        value = _ENV_VALUE.match(text, match.end())
        split = _SPLIT_VALUE.match(text, match.end()) if match[1] == "NCCL_TESTS_SPLIT" else None
        found = split[1] if split else next((part for part in value.groups() if part), "") if value else ""
        target = facts.environment if op_of_program(text) or "env:" in text else sticky
        if len(target) < 1000:
            target[match[1]] = found[:MAX_TEXT].rstrip(";")


def _read_average(text: str, facts: Facts) -> None:
    if match := _AVERAGE.search(text):
        try:
            facts.printed_busbw = float(match[1]) * 1e9
        except ValueError:
            facts.printed_busbw = None


def _read_sentence(text: str, facts: Facts) -> None:
    """Take the ranks of a comment that names an operation with them: ``# all_to_all on 8 ranks``."""
    bare = text.strip()
    if bare.startswith("#") and len(bare) < MAX_SENTENCE and (told := _TOLD.search(bare)) and (op := op_in_words(bare)):
        facts.op_hint, facts.told_ranks = facts.op_hint or op, facts.told_ranks or int(told[1]) or None


def _read_torch(text: str, facts: Facts) -> None:
    if NAMED.search(text) and not op_of_program(text):
        facts.processes, facts.nodes_flag = launched(text)


def _read_verdict(text: str, facts: Facts) -> None:
    facts.failed = "FAILED" in text


def _read_cut(text: str, facts: Facts) -> None:
    facts.devices_cut = facts.devices_cut or (bool(facts.devices) and text.strip(" #") == "...")


def _read_words(text: str, facts: Facts) -> None:
    if len(text) < MAX_SENTENCE:
        facts.op_hint = facts.op_hint or op_in_words(text)


_READERS: tuple[tuple[str, Callable[[str, Facts], None]], ...] = (
    ("_perf", _read_program),
    ("starting", _read_start),
    ("nThread", _read_threads),
    ("Blocking", _read_blocking),
    ("Rank", _read_device),
    ("ersion", _read_versions),
    ("compiled with", _read_versions),
    ("Avg bus", _read_average),
    ("Out of bounds", _read_verdict),
    ("...", _read_cut),
    (" ranks", _read_sentence),
    (" GPUs", _read_sentence),
    ("torchrun", _read_torch),
    ("torch.distributed", _read_torch),
    ("peration", _read_words),
    ("nccom-test", _read_words),
    ("hccl", _read_words),
)
