"""Environment variables that change what NCCL and RCCL choose.

A variable that would change the choice but is not modelled is refused, as is one that no library knows or whose value
it could not use; one that is not modelled, and one of anything else, is accepted with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from collsim.core.errors import Fault, InputError, did_you_mean, nearest
from collsim.library.costs.network_costs import COPY_THRESHOLD
from collsim.library.library import PROTOCOLS
from collsim.topology.peers import LEVELS

__all__ = [
    "ALGORITHMS",
    "THREADS",
    "WARP",
    "Environment",
    "example_of",
    "is_modelled",
    "read_environment",
    "threads_taken",
    "with_protocol",
    "without",
]

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""Algorithms in the order in which the library compares them; the first of equals wins."""

OPS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
"""Operations that have a choice of algorithm."""

LISTS = {"NCCL_ALGO": ALGORITHMS, "NCCL_PROTO": PROTOCOLS}
"""Variables that hold lists (NCCL src/graph/tuning.cc, parseList)."""

ALIASES = {
    "NCCL_MIN_NRINGS": "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NRINGS": "NCCL_MAX_NCHANNELS",
    "RCCL_OVERRIDE_ALGO": "NCCL_ALGO",
    "RCCL_OVERRIDE_PROTO": "NCCL_PROTO",
}

NUMBERS = (
    COPY_THRESHOLD,
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    "NCCL_BUFFSIZE",
    "NCCL_CHUNK_SIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_GRAPH_REGISTER",
    "NCCL_IB_MERGE_NICS",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_LL128_NTHREADS",
    "NCCL_LL_BUFFSIZE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MAX_P2P_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MIN_P2P_NCHANNELS",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NET_OVERHEAD",
    "NCCL_NTHREADS",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_P2P_LL_THRESHOLD",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE",
    "NCCL_P2P_PXN_LEVEL",
    "NCCL_PAT_ENABLE",
    "NCCL_PXN_DISABLE",
    "RCCL_MSCCLPP_ENABLE",
    "RCCL_MSCCL_ENABLE",
    "RCCL_WARP_SPEED_AR_THRESHOLD",
)
"""Variables that hold one number and are modelled."""

SWITCHES = {
    "NCCL_COLLNET_ENABLE": "0 or 1",
    "NCCL_GRAPH_REGISTER": "0 or 1",
    "NCCL_IB_MERGE_NICS": "0 or 1",
    "NCCL_NVLS_ENABLE": "0, 1 or 2",
    "NCCL_PAT_ENABLE": "0, 1 or 2",
    "RCCL_MSCCLPP_ENABLE": "0 or 1",
    "RCCL_MSCCL_ENABLE": "0 or 1",
}
"""Numbers that turn something on or off, with what they take (NCCL src/transport/nvls.cc and src/graph/tuning.cc)."""

BYTES = (
    "NCCL_BUFFSIZE",
    "NCCL_CHUNK_SIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE",
)
"""Buffers and the chunks that they are cut into."""
MOST_BYTES = 2**31 - 1
"""The library keeps the size of a buffer in an int (NCCL src/include/comm.h, buffSizes)."""

MOST_COPIED = 2**63
"""libfabric reads the threshold as a signed number of 64 bits."""

CHANNEL_VARIABLES = tuple(name for name in (*NUMBERS, *ALIASES) if name.endswith(("NCHANNELS", "CTAS", "NRINGS")))
"""Numbers of channels or their bounds."""
AT_LEAST_ONE = ("NCCL_MAX_NCHANNELS",)
"""Bounds that the library raises to 1 (NCCL src/graph/connect.cc, ncclMaxNchannels)."""
LEFT_IF_LOW = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NCHANNELS_PER_NET_PEER")
"""Numbers that the library leaves as they were if they are below 1 (NCCL src/init.cc, envConfigOverride)."""
THREADS = {"NCCL_NTHREADS": (64, 512), "NCCL_LL128_NTHREADS": (160, 640)}
"""Numbers of threads that the library corrects, with least and most (NCCL src/graph/tuning.cc, getNthreads)."""
WARP = 32
UNSET = -2
"""Value that the library gives a number that is not set (NCCL src/include/param.h)."""

OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
"""The same as numbers (NCCL src/graph/paths.cc, levelsOldToNew)."""
PEERS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
TRANSPORTS = (
    "NCCL_IB_DISABLE",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
)
"""Variables that change the path between nodes (`collsim.library.transports`)."""
MOST_QUEUE_PAIRS = 128
"""As the library has it (NCCL src/transport/net_ib, NCCL_IB_MAX_QPS)."""
OFI_TUNER = "OFI_NCCL_TUNER_TYPE"
OFI_TUNERS = {"INTERNAL": 0, "REGION": 1}
"""Who chooses where AWS's plug-in has a tuner: NCCL, or the plug-in (aws-ofi-nccl src/tuner)."""
DEFAULTS = {"NCCL_SHM_DISABLE": "0"}
"""Values of refused variables that change nothing (NCCL src/graph/paths.cc, src/transport/shm.cc)."""

REFUSED = (
    "NCCL_GRAPH_FILE",
    "NCCL_SHM_DISABLE",
    "NCCL_SYM_KERNEL",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_TOPO_FILE",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_TUNER_PLUGIN",
    "RCCL_WARP_SPEED_ENABLE",
    "RCCL_WARP_SPEED_FORCE_ENABLE",
)
"""Variables that change the choice in ways that are not modelled."""

HARMLESS = (
    "NCCL_BLOCKING_WAIT",
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_CREATE_THREAD_CONTEXT",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DMABUF_ENABLE",
    "NCCL_HOSTID",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_LAUNCH_MODE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MNNVL_ENABLE",
    "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_RAS_ENABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SET_STACK_SIZE",
    "NCCL_SET_THREAD_NAME",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_WORK_ARGS_BYTES",
)
HARMLESS_PREFIXES = (
    "NCCL_IB_", "NCCL_SOCKET_", "NCCL_NET_GDR", "NCCL_TESTS_", "NCCL_OOB_", "NCCL_ASYNC_", "NCCL_GIN_",
    "NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_", "NCCL_SHIMNET_", "NCCL_DYNAMIC_CHUNK_SIZE",
)  # fmt: skip
REASONS = {
    ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"): "an adapter of 100 Gb/s carried 4 to 6 GB/s with one socket and "
    "with sixteen, and less with more in NVIDIA/nccl issues 398 and 450; --set nic.bandwidth says another rate",
    ("NCCL_CROSS_NIC",): "rings and trees keep to their rails where they can, as with 2; on a fabric where all "
    "adapters meet in one switch it decides nothing",
    ("NCCL_NET_GDR_READ",): "GPUDirect is on for sends and receives, or off for both (NCCL_NET_GDR_LEVEL=LOC)",
    ("NCCL_IB_SPLIT_DATA_ON_QPS",): "each message is dealt to all queue pairs of NCCL_IB_QPS_PER_CONNECTION",
    ("NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"): "the network is taken "
    "to lose and to delay nothing; --load slows links that others use",
    ("NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_ADAPTIVE_ROUTING"): "on, where it helps; --set nic.bus_bandwidth or "
    "scale_out.routing says otherwise",
}
"""Why variables that people often set are ignored, and what says the same here."""
OURS = ("NCCL_", "RCCL_")
ANY_SIZE = 2**62
"""More bytes than any message has."""
MISSPELT = 0.85
"""Another program's variable is less like any of these; two letters of ten swapped are more."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that matter, checked.

    Attributes
    ----------
    numbers : mapping
        Variable to value.
    allowed : mapping
        (variable, operation) to the names that it leaves; absent if it leaves all.
    warnings : tuple of str
        What was accepted and ignored.
    peer_level : str
        One of `LEVELS`, up to which GPUs reach each other's memory; empty: as the library has it.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    peer_level: str = ""

    def number(self, name: str, default: int) -> int:
        """Return the value of a variable, or *default*."""
        return self.numbers.get(name, default)

    def permits(self, variable: str, op: str, name: str) -> bool:
        """Return True if NCCL_ALGO or NCCL_PROTO leaves *name* for *op*."""
        return name in self.allowed.get((variable, op), (name,))

    def names(self, variable: str, op: str) -> frozenset[str] | None:
        """Return the names that NCCL_ALGO or NCCL_PROTO leaves for *op*, or None if it is not set."""
        return self.allowed.get((variable, op))


def read_environment(variables: Mapping[str, str | int] | Iterable[str] = ()) -> Environment:
    """Return the environment that *variables* make: a mapping, or ``NAME=VALUE`` words.

    Raises
    ------
    InputError
        All faults: unknown variables with the nearest known one, and values that the library would not take.

    Examples
    --------
    >>> read_environment(["NCCL_ALGO=^Tree", "NCCL_MAX_NCHANNELS=8"]).permits("NCCL_ALGO", "all_reduce", "tree")
    False
    """
    faults: list[Fault] = []
    pairs = variables if isinstance(variables, Mapping) else _pairs(variables, faults)
    numbers: dict[str, int] = {}
    allowed: dict[tuple[str, str], frozenset[str]] = {}
    warnings: list[str] = []
    level = _peer_level(pairs, faults)
    for given, value in pairs.items():
        name, text = ALIASES.get(given, given), str(value)
        if name in PEERS:
            continue
        if name in TRANSPORTS:
            _check_transport(name, text.strip(), faults)
            continue
        if name in NUMBERS:
            _read_number(given, name, text, numbers, faults)
        elif name in LISTS:
            _read_list(name, text, allowed, faults)
        elif name == OFI_TUNER:
            _read_tuner(text.strip(), numbers, faults)
        elif name in HARMLESS or name.startswith(HARMLESS_PREFIXES):
            reason = next((f": {why}" for names, why in REASONS.items() if name in names), "")
            warnings.append(f"{name} is not modelled and is ignored{reason}")
        elif name in REFUSED:
            if text.strip() != DEFAULTS.get(name):
                what = f"{name} changes the choice in a way that is not modelled"
                faults.append(Fault(what, "environment", "leave it out"))
        else:
            _refuse_or_ignore(name, warnings, faults)
    warnings += [note for name, number in numbers.items() if (note := _correction(name, number))]
    numbers = {name: number for name, number in numbers.items() if name not in LEFT_IF_LOW or number > 0}
    if faults:
        raise InputError(*faults)
    return Environment(numbers, allowed, tuple(warnings), level)


def _peer_level(pairs: Mapping[str, str | int], faults: list[Fault]) -> str:
    """Return how far GPUs reach each other's memory at most; to turn it off goes before a level."""
    if str(pairs.get(PEERS[0], "0")).strip() == "1":
        return LEVELS[0]
    text = str(pairs.get(PEERS[1], "")).strip()
    if text.isdecimal():
        return OLD_LEVELS[min(int(text), len(OLD_LEVELS) - 1)]
    if text and text not in LEVELS:
        near = nearest(text.upper(), LEVELS)
        hint = f'did you mean "{near}"?' if near else f"one of {', '.join(LEVELS)}"
        faults.append(Fault(f'NCCL_P2P_LEVEL: unknown level "{text}"', "environment", hint))
        return ""
    return text


def _check_transport(name: str, text: str, faults: list[Fault]) -> None:
    """Refuse what the library would not take; the names of networks are free, plug-ins bring their own."""
    if name == "NCCL_IB_DISABLE" and text not in ("0", "1"):
        faults.append(Fault(f'{name}: "{text}" is neither 0 nor 1', "environment", f"write {name}=1"))
    elif name == "NCCL_NET_GDR_LEVEL" and not text.isdecimal() and text not in LEVELS:
        near = nearest(text.upper(), LEVELS)
        hint = f'did you mean "{near}"?' if near else f"one of {', '.join(LEVELS)}"
        faults.append(Fault(f'{name}: unknown level "{text}"', "environment", hint))
    elif name == "NCCL_IB_QPS_PER_CONNECTION" and not (text.isdecimal() and 0 < int(text[:9]) <= MOST_QUEUE_PAIRS):
        hint = f"1 to {MOST_QUEUE_PAIRS}, such as 4"
        faults.append(Fault(f'{name}: "{text}" is no number of queue pairs', "environment", hint))


def is_modelled(name: str) -> bool:
    """Tell whether a variable can change what a library chooses here.

    >>> is_modelled("NCCL_MAX_NRINGS"), is_modelled("NCCL_IB_TC")
    (True, False)
    """
    return name in (*NUMBERS, *LISTS, *ALIASES, *PEERS, *TRANSPORTS, OFI_TUNER)


def example_of(name: str) -> str:
    """Return a variable with a value that it may have.

    >>> example_of("NCCL_BUFFSIZE"), example_of("FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD"), example_of("NCCL_PROTO")
    ('NCCL_BUFFSIZE=4194304', 'FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=16384', 'NCCL_PROTO=Simple')
    """
    known = ALIASES.get(name, name)
    if known in LISTS:
        return f"{name}={'Simple' if known == 'NCCL_PROTO' else 'Ring'}"
    if known not in NUMBERS:
        return f"{name}=VALUE"
    usual = "16384" if known == COPY_THRESHOLD else "4194304" if known in BYTES else "8"
    return f"{name}={SWITCHES.get(known, usual)}"


def with_protocol(variables: Mapping[str, str], proto: str | None) -> dict[str, str]:
    """Return *variables* with those that leave only one protocol: one for collectives, one for messages."""
    if proto is None:
        return dict(variables)
    kept = without(variables, "NCCL_PROTO")
    return {**kept, "NCCL_PROTO": proto, "NCCL_P2P_LL_THRESHOLD": str(ANY_SIZE if proto == "LL" else 0)}


def without(variables: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return *variables* less those with one of *names*, or with another name for one."""
    return {name: value for name, value in variables.items() if ALIASES.get(name, name) not in names}


def _refuse_or_ignore(name: str, warnings: list[str], faults: list[Fault]) -> None:
    """Refuse a name that is like one of the library's; say of any other that it does nothing."""
    known = [*LISTS, *NUMBERS, *ALIASES, *PEERS, *TRANSPORTS, OFI_TUNER, *HARMLESS, *REFUSED]
    ours = name.strip().upper().startswith(OURS)
    near = nearest(name.strip().lower(), [entry.lower() for entry in known])
    if ours or (near and SequenceMatcher(None, name.lower(), near).ratio() >= MISSPELT):
        hint = f'did you mean "{near.upper()}"?' if near else "it is no variable that collsim knows"
        faults.append(Fault(f'unknown variable "{name}"', "environment", hint))
    else:
        warnings.append(f"{name} is no variable of NCCL or RCCL and is ignored")


def threads_taken(name: str, number: int) -> int:
    """Return the threads that the library makes of a positive number."""
    least, most = THREADS[name]
    return most if number % WARP else max(least, min(number, most))


def _correction(name: str, number: int) -> str | None:
    """Return a sentence on a number that the library changes or ignores; None if it takes it as it is."""
    if name in AT_LEAST_ONE and number < 1 and number != UNSET:
        return f"{name}={number} is taken as 1, as the library does"
    if name in LEFT_IF_LOW and number < 1:
        return f"{name}={number} is too low and is ignored, as the library does"
    if name not in THREADS or number <= 0:
        return None
    taken = threads_taken(name, number)
    if number % WARP:
        return f"{name}={number} is no multiple of {WARP} and is taken as {taken}, as the library does"
    return None if taken == number else f"{name}={number} is taken as {taken}, as the library does"


def _pairs(words: Iterable[str], faults: list[Fault]) -> dict[str, str]:
    """Split ``NAME=VALUE`` words."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            pairs[name.strip()] = value.strip()
        else:
            faults.append(Fault(f'"{word}" has no value', "environment", f"write {word}=VALUE"))
    return pairs


def _read_number(given: str, name: str, text: str, numbers: dict[str, int], faults: list[Fault]) -> None:
    """Read a number as the library does: decimal, or hexadecimal after 0x; refuse bytes that no buffer can have."""
    example = f"write {example_of(given)}"
    try:
        number = int(text, 0)
    except ValueError:
        faults.append(Fault(f'{given}: "{text}" is not a whole number', "environment", example))
        return
    if name in BYTES and number != UNSET and not 0 < number <= MOST_BYTES:
        what = f"{given}: {text[:20]} bytes are {'too many' if number > 0 else 'no size'}"
        faults.append(Fault(what, "environment", f"1 to {MOST_BYTES}, such as 4194304"))
        return
    if name == COPY_THRESHOLD and not 0 <= number < MOST_COPIED:
        what = f"{given}: {text[:20]} bytes are {'too many' if number > 0 else 'no size'}"
        faults.append(Fault(what, "environment", example))
        return
    if number != UNSET or name not in (*BYTES, *AT_LEAST_ONE, *LEFT_IF_LOW):
        numbers[name] = number


def _read_tuner(text: str, numbers: dict[str, int], faults: list[Fault]) -> None:
    """Read who chooses."""
    if text.upper() in OFI_TUNERS:
        numbers[OFI_TUNER] = OFI_TUNERS[text.upper()]
        return
    hint = "Internal: NCCL chooses; Region: the plug-in, as it does by default"
    faults.append(Fault(f'{OFI_TUNER}: "{text}" is no tuner that is modelled', "environment", hint))


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _read_list(variable: str, text: str, allowed: dict[tuple[str, str], frozenset[str]], faults: list[Fault]) -> None:
    """Read ``ring,tree``, ``^tree`` or ``ring;allreduce:tree``."""
    known = {_plain(name): name for name in LISTS[variable]}
    ops = {_plain(op): op for op in OPS}
    for number, entry in enumerate(text.split(";")):
        prefix, colon, rest = entry.partition(":")
        if not colon:
            prefix, rest = "", entry
        if number and not colon:
            hint = "only the first list may lack an operation"
            faults.append(Fault(f'{variable}: "{entry}" names no operation', "environment", hint))
            continue
        if colon and _plain(prefix) not in ops:
            faults.append(Fault(f'{variable}: unknown operation "{prefix}"', "environment", f"known: {', '.join(OPS)}"))
            continue
        words = [word.strip() for word in rest.lstrip("^").split(",")]
        bad = [word for word in words if _plain(word) not in known]
        if bad:
            names = list(LISTS[variable])
            faults.extend(
                Fault(
                    f'{variable}: unknown name "{word}"',
                    "environment",
                    f"{did_you_mean(word, names)}known: {', '.join(names)}",
                )
                for word in bad
            )
            continue
        named = frozenset(known[_plain(word)] for word in words)
        left = frozenset(LISTS[variable]) - named if rest.startswith("^") else named
        for op in (ops[_plain(prefix)],) if colon else OPS:
            allowed[variable, op] = left
