"""The reader of traces: events of torch.profiler to a `Trace`, or an error that says what is missing."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, InputError
from collsim.timeline.kineto import TraceText
from collsim.timeline.trace import COLLECTIVE, Call, HostEvent, Kernel, Trace, kind_of

__all__ = ["read_trace"]

ON_GPU = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
ON_HOST = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime"))
BLOCKING = ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize")
"""Ends of the names of calls that keep the host until the GPU is done."""
OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send_recv",
    "recv": "send_recv",
    "sendrecv": "send_recv",
}
"""Names of collectives in c10d::record_param_comms and of kernels, as `_word` has them."""
DTYPES = {
    "bfloat16": ("bfloat16", 2),
    "half": ("half", 2),
    "float": ("float", 4),
    "double": ("double", 8),
    "int": ("int32", 4),
    "long": ("int64", 8),
    "char": ("int8", 1),
    "byte": ("uint8", 1),
    "bool": ("uint8", 1),
    "float8_e4m3fn": ("f8e4m3", 1),
    "float8_e5m2": ("f8e5m2", 1),
}
"""Names of c10::ScalarType to those of nccl-tests, with bytes."""
LEAST_JUMP_S = 1.0
"""A pause between kernels may be as long; a longer one that is also longer than all the rest is a jump of the clock."""
MOST_S = 1e6
"""No kernel takes as long: such a length is damage."""
EARLY_S = 1e-3
"""A kernel may start so long before its launch: clocks of host and GPU are matched to within less."""


def read_trace(file: str | Path) -> Trace:
    """Read a trace of one rank.

    Raises
    ------
    InputError
        The file is no trace, or has no kernels of a GPU.
    """
    text = TraceText(file)
    events = _Events()
    for event in text.events():
        events.take(event)
    kernels, lost = events.kernels(text)
    if text.cut:
        lost.insert(0, f"{text.cut}; what follows {kernels[-1].name[:40]!r} is lost")
    device, told = _device_of(text.head, events.device), _mapping(text.head.get("distributedInfo"))
    calls = {k.call for k in kernels if k.call and k.call.size_bytes}
    world = _count(told.get("world_size")) or max((k.call.ranks for k in kernels if k.call), default=1)
    begin_s = min(k.start_s for k in kernels)
    if max(k.end_s for k in kernels) <= begin_s:
        raise InputError(Fault("its kernels take no time", text.file, "record steps that run kernels on the GPU"))
    has_waits = bool(events.syncs)
    if not has_waits and len({k.stream for k in kernels}) > 1:
        lost.append(
            "no cuda_sync events: what waits for what is inferred from the order of launches and from when kernels ran"
        )
    return Trace(
        file=str(file),
        gpu=str(device.get("name") or ""),
        sms=_count(device.get("numSms")),
        rank=_count(told["rank"]) if "rank" in told else -1,
        world=world,
        library=str(told.get("nccl_version", "")),
        kernels=tuple(_since(k, begin_s) for k in kernels),
        waits=tuple(sorted(events.waits(begin_s), key=lambda wait: wait.time_s)),
        records=tuple(sorted((at - begin_s, thread) for at, thread, _ in events.records)),
        marks=tuple(sorted((a - begin_s, b - begin_s) for a, b in events.marks)),
        has_waits=has_waits,
        groups=_groups(text.head, events.groups, calls),
        node_gpus=_node_gpus(text.head, world),
        lost=tuple(lost),
    )


def _mapping(value: Any) -> dict[str, Any]:
    """Return a value of the head if it is a mapping; an empty one if not."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    """Return a number of the file as a count; 0 if it is none.

    >>> _count(132), _count("x"), _count(float("inf")), _count(-3)
    (132, 0, 0, 0)
    """
    try:
        return max(int(value), 0)
    except (OverflowError, TypeError, ValueError):
        return 0


def _device_of(head: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the properties of a device; those of the first one if none has its number."""
    told = head.get("deviceProperties")
    known = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    return next((each for each in known if each.get("id") == number), next(iter(known), {}))


def _node_gpus(head: dict[str, Any], world: int) -> int:
    """Return the GPUs of a node; 0 if the program saw one, as launchers may show each rank its own, or all of them."""
    devices = head.get("deviceProperties")
    count = len(devices) if isinstance(devices, list) else 0
    return count if 1 < count < world else 0


def _groups(head: dict[str, Any], told: dict[str, tuple[int, ...]], calls: set[Call]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of groups as far as the trace has them: of its head, else of its kernels."""
    found = dict(told)
    listed = _mapping(head.get("distributedInfo")).get("pg_config")
    for group in listed if isinstance(listed, list) else ():
        ranks = _mapping(group).get("ranks")
        if isinstance(ranks, list) and ranks and all(type(rank) is int and rank >= 0 for rank in ranks):
            found[str(_mapping(group).get("pg_name"))] = tuple(ranks)
    sizes = {call.group: call.ranks for call in calls if call.op != "send_recv"}
    return {name: ranks for name, ranks in found.items() if len(set(ranks)) == sizes.get(name, len(ranks)) > 1}


def _uneven(text: Any) -> bool:
    """Return True if the parts of an all-to-all differ.

    >>> _uneven("[4, 5, ...]"), _uneven("[4, 4]"), _uneven("[]"), _uneven(None)
    (True, False, False, False)
    """
    return isinstance(text, str) and len(set(re.findall(r"\d+", text))) > 1


def _ranks_told(text: Any, count: int) -> tuple[int, ...]:
    """Return the ranks of a group; none if the trace does not say.

    >>> _ranks_told("[0, 8, 16, ...]", 4), _ranks_told("[0, 1, 5, ...]", 4), _ranks_told("[1, 3]", 2)
    ((0, 8, 16, 24), (), (1, 3))
    """
    shown = [int(word) for word in re.findall(r"\d+", text.partition("...")[0])] if isinstance(text, str) else []
    if len(shown) == count:
        return tuple(shown)
    steps = {b - a for a, b in pairwise(shown)}  # of long lists only the begin is shown
    return tuple(shown[0] + i * min(steps) for i in range(count)) if len(steps) == 1 and len(shown) < count else ()


def _since(k: Kernel, begin_s: float) -> Kernel:
    return Kernel(
        k.name, k.kind, k.stream, k.start_s - begin_s, k.end_s - begin_s, k.launch_s - begin_s, k.thread, k.ctas,
        k.full, k.call,
    )  # fmt: skip


class _Events:
    """Events of a trace, as far as they say something about the GPU; all others are counted."""

    def __init__(self) -> None:
        self.on_gpu: list[tuple[Kernel, int]] = []
        self.devices: list[int] = []
        self.device = 0
        self.launches: dict[int, tuple[float, int]] = {}
        self.names: dict[str, tuple[str, str]] = {}
        self.groups: dict[str, tuple[int, ...]] = {}
        self.marks: list[tuple[float, float]] = []
        self.syncs: dict[int, dict[str, Any]] = {}
        self.records: list[tuple[float, int, int]] = []
        self.stream_waits: list[tuple[float, int, int]] = []
        self.host_waits: list[tuple[float, float, int]] = []
        self.seen: Counter[str] = Counter()
        self.broken = self.uneven = 0

    def take(self, event: dict[str, Any]) -> None:
        """Keep what an event says."""
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str):
            return
        self.seen[category] += 1
        try:
            if category in ON_GPU:
                found = self._kernel(event)
                self.devices.append(_device_number(event))
                self.on_gpu.append(found)
            elif category in ON_HOST:
                self._take_call(event)
            elif category == "cuda_sync":
                self._take_sync(event)
            elif category == "user_annotation" and str(event.get("name", "")).startswith("ProfilerStep"):
                begin_s = float(event["ts"]) * 1e-6
                self.marks.append((begin_s, begin_s + float(event["dur"]) * 1e-6))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            self.broken += 1

    def _take_call(self, event: dict[str, Any]) -> None:
        name, args = str(event.get("name", "")), event.get("args") or {}
        begin_s, long_s = float(event["ts"]) * 1e-6, float(event.get("dur", 0)) * 1e-6
        if not math.isfinite(begin_s):
            raise ValueError
        correlation, thread = int(args.get("correlation", 0)), int(event.get("tid", 0))
        if "EventRecord" in name:
            self.records.append((begin_s, thread, correlation))
        elif name.endswith("StreamWaitEvent"):
            self.stream_waits.append((begin_s, correlation, thread))
        elif name.endswith(BLOCKING):
            self.host_waits.append((begin_s, begin_s + long_s, thread))
        else:
            self.launches[correlation] = (begin_s, thread)

    def _take_sync(self, event: dict[str, Any]) -> None:
        args = event["args"]
        if args.get("cuda_sync_kind", event.get("name")) == "Stream Wait Event":
            self.syncs[int(args["correlation"])] = args

    def waits(self, begin_s: float) -> list[HostEvent]:
        """Return the waits of streams whose stream the trace tells, and those of the host."""
        recorded = {key: at - begin_s for at, _, key in self.records}
        found = [HostEvent(at - begin_s, end - begin_s, thread, -1) for at, end, thread in self.host_waits]
        for at, key, thread in self.stream_waits:
            if (told := self.syncs.get(key)) is not None:
                time_s, record = at - begin_s, int(told.get("wait_on_cuda_event_record_corr_id", -1))
                found.append(
                    HostEvent(
                        time_s,
                        time_s,
                        thread,
                        int(told["stream"]),
                        int(told.get("wait_on_cuda_event_id", -1)),
                        recorded.get(record, math.nan),
                        int(told.get("wait_on_stream", -1)),
                    )
                )
        return found

    def kernels(self, text: TraceText) -> tuple[list[Kernel], list[str]]:
        """Return the kernels by launch, and what was lost."""
        if not self.on_gpu:
            seen = ", ".join(name for name, _ in self.seen.most_common(5)) or "nothing"
            hint = "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU of NVIDIA or AMD"
            why = f" ({text.cut})" if text.cut else ""
            raise InputError(Fault(f"has no kernels of a GPU, only {seen}{why}", text.file, hint))
        other = self._of_one_device()
        lost, kept = self._without_jumps()
        lost += other
        kernels = [self._launched(k, correlation) for k, correlation in kept]
        if self.broken:
            lost.append(f"{self.broken} events without time, length or correlation are left out")
        if self.uneven:
            lost.append(f"{self.uneven} all-to-alls have parts of different sizes: what-ifs take them as equal")
        unlaunched = sum(math.isnan(k.launch_s) for k in kernels)
        kernels = _with_the_one_before(kernels) if unlaunched else kernels
        kernels.sort(key=lambda k: k.start_s if math.isnan(k.launch_s) else min(k.launch_s, k.start_s))
        if unlaunched:
            lost.append(f"{unlaunched} of {len(kernels)} kernels have no launch: they start when their stream is free")
        early = sum(k.start_s < k.launch_s - EARLY_S for k in kernels)
        if early:
            lost.append(
                f"the clocks of host and GPU differ: {early} kernels start before their launch; launches are left out"
            )
            kernels = sorted((_unlaunched(k) for k in kernels), key=lambda k: k.start_s)
        calls = [k for k in kernels if k.kind == COLLECTIVE]
        if silent := sum(k.call is None or not k.call.size_bytes for k in calls):
            lost.append(
                f"{silent} of {len(calls)} kernels of the library do not say what they move: they keep their time; "
                "record with record_shapes=True on PyTorch 2.3 or later"
            )
        return kernels, lost

    def _of_one_device(self) -> list[str]:
        """Keep the kernels of the device that has most of them, and return what that loses."""
        counts = Counter(self.devices)
        self.device, most = counts.most_common(1)[0]
        if len(counts) == 1:
            return []
        pairs = zip(self.on_gpu, self.devices, strict=True)
        self.on_gpu = [each for each, device in pairs if device == self.device]
        return [
            f"kernels of {len(counts)} GPUs: those of GPU {self.device} are read, {most} of {counts.total()}; "
            "record a trace of each rank"
        ]

    def _without_jumps(self) -> tuple[list[str], list[tuple[Kernel, int]]]:
        """Return the kernels of the longest part between jumps of the clock."""
        ordered = sorted(self.on_gpu, key=lambda each: each[0].start_s)
        parts: list[list[tuple[Kernel, int]]] = [[]]
        busy_s = sum(k.end_s - k.start_s for k, _ in ordered)
        end_s = ordered[0][0].start_s
        for each in ordered:
            if each[0].start_s - end_s > max(LEAST_JUMP_S, 3 * busy_s):
                parts.append([])
            parts[-1].append(each)
            end_s = max(end_s, each[0].end_s)
        kept = max(parts, key=len)
        if len(parts) == 1:
            return [], kept
        jumps = f"the clock jumps {len(parts) - 1} time(s)"
        return [f"{jumps}: of {len(ordered)} kernels the longest part, {len(kept)}, is read"], kept

    def _kernel(self, event: dict[str, Any]) -> tuple[Kernel, int]:
        """Return a kernel, whose launch is not yet known, and the number that it shares with its launch."""
        args = event.get("args") or {}
        start_s, long_s = float(event["ts"]) * 1e-6, float(event["dur"]) * 1e-6
        if not (math.isfinite(start_s) and 0 <= long_s < MOST_S):
            raise ValueError
        told = str(event.get("name", ""))
        if (known := self.names.get(told)) is None:  # one text for all kernels of a name
            known = self.names[told] = (told, kind_of(told))
        name, kind = known
        grid, per_sm = args.get("grid") or [0], float(args.get("blocks per SM", 0) or 0)
        found = Kernel(
            name=name,
            kind=kind,
            stream=int(args.get("stream", event.get("tid", 0))),
            start_s=start_s,
            end_s=start_s + long_s,
            launch_s=math.nan,
            thread=-1,
            ctas=math.prod(int(n) for n in grid),
            full=kind != COLLECTIVE and per_sm >= 1,
            call=_call(name, args) if kind == COLLECTIVE else None,
        )
        if found.call is not None and found.call.group not in self.groups:
            self.groups[found.call.group] = _ranks_told(args.get("Process Group Ranks"), _count(args.get("Group size")))
        if found.call is not None and found.call.op == "all_to_all":
            self.uneven += any(_uneven(args.get(f"{side} split size")) for side in ("In", "Out"))
        return found, int(args.get("correlation", -1))

    def _launched(self, k: Kernel, correlation: int) -> Kernel:
        """Return a kernel with its launch, if the trace has it."""
        if (told := self.launches.get(correlation)) is None:
            return k
        return Kernel(k.name, k.kind, k.stream, k.start_s, k.end_s, told[0], told[1], k.ctas, k.full, k.call)


def _with_the_one_before(kernels: list[Kernel]) -> list[Kernel]:
    """Return kernels by their start; one without a launch was launched with the one before it on its stream."""
    last: dict[int, Kernel] = {}
    found = []
    for k in sorted(kernels, key=lambda k: k.start_s):
        before = last.get(k.stream)
        lost = before is not None and math.isnan(k.launch_s)
        found.append(replace(k, launch_s=before.launch_s, thread=before.thread) if before and lost else k)
        if not math.isnan(k.launch_s):
            last[k.stream] = k
    return found


def _device_number(event: dict[str, Any]) -> int:
    """Return the number of the device on which an event was."""
    told = (event.get("args") or {}).get("device")
    return _count(event.get("pid") if told is None else told)


def _unlaunched(k: Kernel) -> Kernel:
    return Kernel(k.name, k.kind, k.stream, k.start_s, k.end_s, math.nan, k.thread, k.ctas, k.full, k.call)


def _word(name: str) -> str:
    """Return the name of a collective as `OPS` has it.

    >>> _word("_allgather_base"), _word("reduce_scatter_tensor_coalesced"), _word("all_to_allv")
    ('allgather', 'reducescatter', 'alltoallv')
    """
    word = name.lower().strip("_")
    for end in ("_coalesced", "_base", "_tensor", "_into", "_single"):
        word = word.removesuffix(end)
    return word.removesuffix("_oop").replace("_", "")


def _call(name: str, args: dict[str, Any]) -> Call | None:
    """Return what a kernel of the library does; nothing if neither the event nor its name says so."""
    told = args.get("Collective name")
    kernel = name.partition("_")[2].partition("_")[0].partition("(")[0]
    op = OPS.get(_word(str(told))) if told else None
    op = op or OPS.get(_word(kernel))
    if op is None:
        return None
    dtype, element_bytes = DTYPES.get(str(args.get("dtype", "")).lower(), ("", 0))
    side = "Out msg nelems" if op == "all_gather" else "In msg nelems"
    elements = _count(args.get(side)) or _count(args.get("Out msg nelems"))
    ranks = _count(args.get("Group size"))
    if op == "send_recv":
        ranks = min(ranks, 2)  # of the group, only the two of a message take part
    return Call(op, elements * element_bytes if ranks > 1 else 0, dtype, str(args.get("Process Group Name", "")), ranks)
