"""Workloads: steps written down as kernels, collectives and loops, in YAML or in Python, and simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collsim.core.errors import Fault, Faults, InputError, SpecError, did_you_mean, nearest, unknown_keys
from collsim.core.input_files import beside
from collsim.core.operations import dtype_bytes, operation
from collsim.core.plain_yaml import read_yaml
from collsim.core.progress import steps
from collsim.core.units import parse_bandwidth_Bps, parse_size_bytes, parse_time_s
from collsim.simulation.request.groups import ParallelLayout, parse_groups
from collsim.timeline.calls import Predictor
from collsim.timeline.gpus import Gpu
from collsim.timeline.graph import Node
from collsim.timeline.replay import Replay, replay
from collsim.timeline.trace import COLLECTIVE, MATMUL, MEMORY, STREAM, Call

__all__ = [
    "Graph",
    "empty_graph",
    "environment_of",
    "graph_of",
    "group_of",
    "layout_of",
    "rates_of",
    "read_workload",
    "time_graph",
]

SCHEMA = "collsim.workload/1"
HEAD = ("schema", "topo", "gpu", "ranks", "layout", "flops", "memory", "launch", "jitter", "seed", "env", "step")
KERNEL = ("kernel", "time", "flop", "bytes", "kind", "stream", "after", "slower", "full")
COLLECTIVE_KEYS = ("collective", "size", "dtype", "ranks", "group", "stream", "after", "name", "late")
LOOP = ("repeat", "do")
COMPUTE_STREAM, COMMUNICATION_STREAM = "compute", "communication"
TENSOR_FLOPS, MEMORY_BPS = 700e12, 2.8e12
"""What kernels reach if a file says FLOP and bytes: of BF16 on H100, and of its memory; the file may say others."""
MOST_NODES = 500_000
"""Kernels and collectives of a step: as many take a minute."""
MOST_BYTES = 2 << 20
"""Of a file: so much YAML takes ten seconds to read."""
ALL = "all"
"""Group of a collective that names none: all ranks."""


class Graph:
    """Graph of a workload while it grows; nodes are launched in the order in which they are added.

    Examples
    --------
    >>> graph = Graph(launch_s=5e-6)
    >>> a = graph.kernel("forward", 1e-3)
    >>> b = graph.collective(Call("all_reduce", 1 << 20, "bfloat16", "dp", 4), after=[a])
    >>> [(node.name, node.after) for node in graph.nodes]
    [('forward', ()), ('all_reduce', (0,))]
    """

    def __init__(self, launch_s: float = 0.0, jitter: float = 0.0, seed: int = 0) -> None:
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.launch_s, self.jitter = launch_s, jitter
        self.streams: list[str] = []
        self._random = random.Random(seed)
        self._last: dict[str, int] = {}
        self._launched: dict[int, int] = {}
        self._numbers: dict[Call, int] = {}

    def kernel(
        self,
        name: str,
        time_s: float,
        *,
        kind: str = MATMUL,
        stream: str = COMPUTE_STREAM,
        after: Sequence[int] = (),
        full: bool = False,
        gpu: int = 0,
    ) -> int:
        """Add work that takes *time_s* alone, and return its number.

        With *full* it is one kernel that fills the GPU, so that no collective starts beside it; else a number of them.
        """
        return self._add(Node(name, kind, 0, time_s * self._drawn(), full=full, gpu=gpu), stream, after)

    def collective(
        self,
        call: Call,
        *,
        name: str = "",
        stream: str = COMMUNICATION_STREAM,
        after: Sequence[int] = (),
        late_s: float = 0.0,
        gpu: int = 0,
    ) -> int:
        """Add a collective, whose slowest peer is late by *late_s*, and return its number."""
        if call not in self._numbers:
            self._numbers[call] = len(self.calls)
            self.calls.append(call)
        adds = operation(call.op).reduces
        node = Node(name or call.op, COLLECTIVE, 0, 0.0, late_s=late_s, adds=adds, gpu=gpu)
        node.call = self._numbers[call]
        node.work_s = self._drawn()  # of the time that the model gives it
        return self._add(node, stream, after)

    def _add(self, node: Node, stream: str, after: Sequence[int]) -> int:
        if stream not in self.streams:
            self.streams.append(stream)
        number = len(self.nodes)
        before = {*after, *([self._last[stream]] if stream in self._last else [])}
        node.stream, node.after = self.streams.index(stream), tuple(sorted(before))
        self._launched[node.gpu] = self._launched.get(node.gpu, 0) + 1  # each GPU has a host of its own
        node.earliest_s = self.launch_s * self._launched[node.gpu]
        self.nodes.append(node)
        self._last[stream] = number
        return number

    def _drawn(self) -> float:
        """Return the factor of a time: log-normal with the jitter as its width, 1 in the median."""
        return math.exp(self._random.gauss(0.0, self.jitter)) if self.jitter else 1.0


def time_graph(graph: Graph, gpu: Gpu, predictor: Predictor) -> tuple[list[Node], Replay]:
    """Give the collectives of a graph the times of the model, and replay it; return what ran, and when."""
    nodes = []
    for node in graph.nodes:
        if node.call < 0:
            nodes.append(replace(node))
            continue
        call = graph.calls[node.call]
        told = predictor.of(call)
        held = gpu.held(call.op, told.channels)
        timed = replace(node, work_s=node.work_s * told.time_s, sms=held)
        timed.spare, timed.link, timed.load = told.spare, told.kind, told.load
        nodes.append(timed)
    return nodes, replay(nodes, gpu)


def read_workload(file: str | Path, kind: str = "a trace or a workload", schema: str = SCHEMA) -> dict[str, Any]:
    """Read the data of a workload, or of a file of another *kind* and *schema* in the same language.

    Raises
    ------
    InputError
        The file cannot be read or is no YAML.
    """
    try:
        if (size := Path(file).stat().st_size) > MOST_BYTES:
            hint = "write what repeats as repeat and do, or build the step in Python (docs/timeline.md)"
            raise InputError(Fault(f"{size:,} bytes, more than {MOST_BYTES:,}", str(file), hint))
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # also a name with a zero byte, and what is no text
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Fault(f"cannot be read: {reason}", str(file), f"{beside(file)}give {kind}")) from None
    data = read_yaml(text, str(file))
    if not isinstance(data, dict):
        raise SpecError(Fault("holds no mapping", str(file), f"begin with schema: {schema}"))
    return data


def graph_of(data: Mapping[str, Any], file: str = "workload") -> Graph:
    """Return the graph of a workload's data.

    Raises
    ------
    SpecError
        All that is wrong with it.
    """
    faults = Faults(lambda where: f"{file}: {where}" if where else file)
    faults.extend(unknown_keys(data, HEAD, lambda _: ""))
    graph = empty_graph(data, faults)
    layout = faults.attempt(layout_of, data)
    if layout and "ranks" in data:
        faults.append(Fault("stands beside layout", "ranks", "leave it out: the layout says how many there are"))
    ranks = data.get("ranks", 1)
    if type(ranks) is not int or ranks < 1:
        faults.append(Fault(f"ranks {ranks!r}", "ranks", "give a whole number, 2 or more"))
    step = data.get("step")
    if not isinstance(step, list) or not step:
        faults.append(Fault("there is nothing to run", "step", "give a list of kernels, collectives and loops"))
    else:
        if (count := count_of(step)) > MOST_NODES:
            hint = "repeat less: a step that repeats takes as many times as long as one of its turns"
            raise SpecError(Fault(f"{count:,} items, more than {MOST_NODES:,}", f"{file}: step", hint))
        _Writer(graph, data, faults, layout).write(step, "step")
    faults.raise_any(SpecError)
    return graph


def count_of(items: Sequence[Any]) -> int:
    """Return how many kernels and collectives a list of items has once its loops are written out.

    >>> count_of([{"kernel": "a"}, {"repeat": 3, "do": [{"repeat": 2, "do": [{"kernel": "b"}]}]}])
    7
    """
    count = 0
    for item in items:
        if isinstance(item, dict) and "repeat" in item:
            times, inner = item["repeat"], item.get("do")
            count += times * count_of(inner) if isinstance(times, int) and isinstance(inner, list) else 0
        else:
            count += 1
    return count


def rates_of(data: Mapping[str, Any], faults: Faults) -> tuple[float, float]:
    """Return operations and bytes a second that kernels reach; what is wrong with them is added to *faults*."""
    flops = faults.attempt(figure, data.get("flops", TENSOR_FLOPS), "flops")
    if flops == 0:
        faults.append(Fault("0 operations a second", "flops", "such as 600e12"))
    told = str(data.get("memory", f"{MEMORY_BPS} B/s"))
    memory_Bps = faults.attempt(parse_bandwidth_Bps, told, "memory")
    return flops or TENSOR_FLOPS, memory_Bps or MEMORY_BPS


def layout_of(data: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the dimensions of the layout of a step and their sizes; none if the file has no layout.

    >>> layout_of({"layout": "tp=8,dp=4"})
    (('tp', 8), ('dp', 4))

    Raises
    ------
    InputError
        It is none.
    """
    if "layout" not in data:
        return ()
    hint = "such as tp=8,dp=4, the dimension first that varies fastest over ranks"
    found = None
    if isinstance(data["layout"], str | Mapping):
        try:
            found = parse_groups(data["layout"])
        except InputError as error:
            raise InputError(*(replace(fault, where="layout", hint=hint) for fault in error.faults)) from None
    if not isinstance(found, ParallelLayout):
        raise InputError(Fault(f"{data['layout']!r} is no layout", "layout", hint))
    return found.sizes


def group_of(layout: Sequence[tuple[str, int]], group: str) -> tuple[int, ...]:
    """Return the first ranks of a layout that differ in the dimensions of a group only; none if it has no such.

    >>> group_of((("tp", 2), ("cp", 2), ("dp", 2)), "cp,dp")
    (0, 2, 4, 6)
    """
    sizes = dict(layout)
    over = list(sizes) if group == ALL else [name.strip() for name in group.split(",")]
    if not set(over) <= set(sizes) or not over:
        return ()
    ranks, stride = [0], 1
    for name, size in layout:
        if name in over:
            ranks = [rank + stride * i for i in range(size) for rank in ranks]
        stride *= size
    return tuple(ranks)


def empty_graph(data: Mapping[str, Any], faults: Faults) -> Graph:
    """Return a graph with what the head of a file says of launches and jitter; what is wrong is added to *faults*."""
    if data.get("schema") != SCHEMA:
        faults.append(Fault(f'schema is "{data.get("schema")}"', "schema", f"write schema: {SCHEMA}"))
    launch_s = faults.attempt(_time, data.get("launch", "0 us"), "launch") or 0.0
    jitter = data.get("jitter", 0.0)
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter < 1:
        faults.append(Fault(f"jitter {jitter!r} is no share", "jitter", "give 0 to 1, such as 0.05"))
        jitter = 0.0
    seed = data.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        faults.append(Fault(f"seed {seed!r} is no count", "seed", "give a whole number, 0 or more"))
        seed = 0
    faults.attempt(environment_of, data)
    return Graph(launch_s, float(jitter), seed)


def environment_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of the library that the data of a workload set.

    >>> environment_of({"env": {"NCCL_MAX_NCHANNELS": 8}})
    {'NCCL_MAX_NCHANNELS': '8'}

    Raises
    ------
    InputError
        They are no mapping.
    """
    told = data.get("env") or {}
    if not isinstance(told, Mapping):
        raise InputError(Fault(f"{told!r} is no mapping", "env", "such as env: {NCCL_MAX_NCHANNELS: 8}"))
    return {str(name): str(value) for name, value in told.items()}


class _Writer:
    """What writes items of a file into a graph; names stand for what was added last under them."""

    def __init__(
        self, graph: Graph, data: Mapping[str, Any], faults: Faults, layout: Sequence[tuple[str, int]] | None
    ) -> None:  # fmt: skip
        self.graph, self.data, self.faults, self.layout = graph, data, faults, layout
        self.names: dict[str, int] = {}
        self.rates = rates_of(data, faults)

    def write(self, items: Sequence[Any], place: str) -> None:
        """Write a list of items."""
        for number, item in enumerate(items):
            where = f"{place}[{number}]"
            kinds = [kind for kind in ("kernel", "collective", "repeat") if isinstance(item, dict) and kind in item]
            if len(kinds) != 1:
                self.faults.append(Fault("is no item", where, "give kernel, collective or repeat"))
                continue
            try:
                {"kernel": self._kernel, "collective": self._collective, "repeat": self._loop}[kinds[0]](item, where)
            except InputError as error:
                self.faults.extend(replace(fault, where=fault.where or where) for fault in error.faults)
            if self.faults and len(self.faults) > 50:
                return

    def _kernel(self, item: Mapping[str, Any], where: str) -> None:
        self.faults.extend(unknown_keys(item, KERNEL, lambda _: where))
        kind = str(item.get("kind", MATMUL))
        if kind not in (MATMUL, MEMORY, STREAM):
            raise InputError(Fault(f'unknown kind "{kind}"', f"{where}.kind", f"give {MATMUL}, {MEMORY} or {STREAM}"))
        if "time" in item:
            time_s = _time(item["time"], f"{where}.time")
            if beside := [key for key in ("flop", "bytes") if key in item]:
                hint = "give the time, or flop and bytes, from which it follows"
                self.faults.extend(Fault("stands beside time", f"{where}.{key}", hint) for key in beside)
        else:
            flop = figure(item.get("flop", 0), f"{where}.flop")
            moved = parse_size_bytes(item.get("bytes", 0), f"{where}.bytes")
            time_s = max(flop / self.rates[0], moved / self.rates[1])
            if time_s == 0:
                raise InputError(Fault("takes no time", where, "give time, or flop and bytes"))
        slower = figure(item.get("slower", 1), f"{where}.slower")
        if slower == 0:
            raise InputError(Fault("0 times as long", f"{where}.slower", "give a positive number, such as 1.2"))
        time_s *= slower
        name, stream = _name(item, "kernel", "", where), _name(item, "stream", COMPUTE_STREAM, where)
        full = item.get("full", False)
        if not isinstance(full, bool):
            raise InputError(Fault(f"{full!r} is neither true nor false", f"{where}.full", "give true or false"))
        after = self._after(item, where)
        self.names[name] = self.graph.kernel(name, time_s, kind=kind, stream=stream, after=after, full=full)

    def _collective(self, item: Mapping[str, Any], where: str) -> None:
        self.faults.extend(unknown_keys(item, COLLECTIVE_KEYS, lambda _: where))
        op = operation(str(item["collective"])).name
        if op == "all_to_all_v":
            hint = "give all_to_all, with the size of the busiest rank"
            raise InputError(Fault("all_to_all_v needs a matrix of bytes", f"{where}.collective", hint))
        dtype, element_bytes = dtype_bytes(str(item.get("dtype", "bfloat16")))
        if "size" not in item:
            raise InputError(Fault("has no size", f"{where}.size", "such as size: 64M, as in nccl-tests"))
        size_bytes = parse_size_bytes(item["size"], f"{where}.size")
        if 0 < size_bytes < element_bytes:
            hint = f"give {element_bytes} or more, or 0 for none"
            raise InputError(Fault(f"{size_bytes} bytes are no element of {dtype}", f"{where}.size", hint))
        group = _name(item, "group", ALL, where)
        ranks = self._ranks(item, group, where)
        call = Call(op, size_bytes // element_bytes * element_bytes, dtype, group, ranks)
        name, stream = _name(item, "name", op, where), _name(item, "stream", COMMUNICATION_STREAM, where)
        after, late_s = self._after(item, where), _time(item.get("late", "0 us"), f"{where}.late")
        self.names[name] = self.graph.collective(call, name=name, stream=stream, after=after, late_s=late_s)

    def _ranks(self, item: Mapping[str, Any], group: str, where: str) -> int:
        """Return how many ranks a collective has: of its group in the layout, else as the item or the file says."""
        if self.layout is None:  # which is a fault of its own
            return 2
        if members := group_of(self.layout, group):
            if "ranks" in item:
                what, hint = f"group {group} of the layout has {len(members)} ranks", "leave ranks out"
                raise InputError(Fault(what, f"{where}.ranks", hint))
            return len(members)
        if self.layout and "ranks" not in item:
            names = [name for name, _ in self.layout]
            hint = f"{did_you_mean(group, names)}the layout has {', '.join(names)}; or give ranks, of neighbours"
            raise InputError(Fault(f'the layout has no "{group}"', f"{where}.group", hint))
        ranks = item.get("ranks", self.data.get("ranks"))
        if type(ranks) is not int or ranks < 2:
            place = f"{where}.ranks" if "ranks" in item or "ranks" not in self.data else "ranks"
            hint = "give a whole number, 2 or more, here or for the file"
            fault = Fault(f"ranks {ranks!r}", place, hint)
            raise InputError(*([] if place in {each.where for each in self.faults} else [fault]))
        return ranks

    def _loop(self, item: Mapping[str, Any], where: str) -> None:
        self.faults.extend(unknown_keys(item, LOOP, lambda _: where))
        times, inner = item["repeat"], item.get("do")
        if not isinstance(times, int) or isinstance(times, bool) or times < 0:
            raise InputError(Fault(f"repeat {times!r} is no count", f"{where}.repeat", "give a whole number"))
        if not isinstance(inner, list):
            raise InputError(Fault("has no list", f"{where}.do", "give what is to be repeated"))
        for _ in steps(range(times), "turns"):
            before = len(self.graph.nodes)
            self.write(inner, f"{where}.do")
            if self.faults or len(self.graph.nodes) == before:  # however often: nothing stays nothing
                return

    def _after(self, item: Mapping[str, Any], where: str) -> list[int]:
        told = item.get("after", [])
        names = told if isinstance(told, list) else [told]
        if unknown := [name for name in map(str, names) if name not in self.names]:
            near = nearest(unknown[0], list(self.names))
            hint = f'did you mean "{near}"?' if near else "name what stands before it"
            raise InputError(Fault(f'nothing before it is called "{unknown[0]}"', f"{where}.after", hint))
        return [self.names[str(name)] for name in names]


def _name(item: Mapping[str, Any], key: str, default: str, where: str) -> str:
    """Return a name of an item: a text, or a number."""
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(Fault(f"{value!r} is no name", f"{where}.{key}", "give a text"))
    return str(value)


def _time(value: Any, where: str) -> float:
    return parse_time_s(str(value), where)


def figure(value: Any, where: str) -> float:
    """Return a number of 0 or more, which YAML may have read as a text, such as 1e12.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(Fault(f"{value!r} is no number of 0 or more", where, "such as 1.5e12"))
    return number
