"""Traces made by code: a small data-parallel step, as torch.profiler would export it."""

import gzip
import json

import pytest

START_US = 1e9
LAUNCH_US, WAIT_US = 10.0, 5.0


class Made:
    """A trace while it grows: times in microseconds from the first launch."""

    def __init__(self, gpu="NVIDIA H200", world=2, syncs=True):
        self.events, self.host, self.correlation, self.syncs = [], 0.0, 0, syncs
        self.free, self.marks = {}, []
        self.head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": gpu, "numSms": 132}],
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": world, "nccl_version": "2.28.9"},
        }

    def call(self, name, dur=2.0, **args):
        self.correlation += 1
        self.events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": START_US + self.host, "dur": dur,
             "args": {"correlation": self.correlation, **args}}
        )  # fmt: skip
        self.host += LAUNCH_US
        return self.correlation

    def kernel(self, name, dur, stream=7, after=0.0, grid=132, per_sm=1.0, **args):
        """Launch a kernel; it starts when its stream is free, and not before *after*; return when it ends."""
        launched = self.host
        number = self.call("cudaLaunchKernel")
        start = max(self.free.get(stream, 0.0), launched + WAIT_US, after)
        self.free[stream] = start + dur
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": START_US + start, "dur": dur,
             "args": {"correlation": number, "stream": stream, "grid": [grid, 1, 1], "blocks per SM": per_sm, **args}}
        )  # fmt: skip
        return start + dur

    def all_reduce(self, dur, elements, after=0.0, stream=17, ranks=2, **args):
        told = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                "Group size": ranks, "dtype": "BFloat16", "Process Group Name": "0"}  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        grid = args.pop("channels", 24)
        return self.kernel(name, dur, stream, after, grid=grid, per_sm=0.2, **{**told, **args})

    def wait(self, stream, event):
        self.call("cudaEventRecordWithFlags")
        number = self.call("cudaStreamWaitEvent")
        if self.syncs:
            self.events.append(
                {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": stream,
                 "ts": START_US + self.host, "dur": 1.0,
                 "args": {"correlation": number, "stream": stream, "cuda_sync_kind": "Stream Wait Event",
                          "wait_on_cuda_event_id": event, "wait_on_stream": -1}}
            )  # fmt: skip

    def mark(self, begin, end, number):
        self.events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
             "ts": START_US + begin, "dur": end - begin, "args": {}}
        )  # fmt: skip

    def text(self):
        return json.dumps({**self.head, "traceEvents": self.events}, indent=1)

    def write(self, path, text=None):
        data = (self.text() if text is None else text).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def ddp(made, steps=2, layers=4, compute=1000.0, comm=300.0, elements=33_554_432, **args):
    """Steps of forward and backward kernels; each gradient is reduced on a stream of its own."""
    event = 0
    for _ in range(steps):
        for layer in range(layers):
            made.kernel(f"nvjet_forward_{layer}", compute)
        for layer in range(layers):
            done = made.kernel(f"nvjet_backward_{layer}", compute)
            event += 1
            made.wait(17, event)
            reduced = made.all_reduce(comm, elements, after=done, **args)
        event += 1
        made.wait(7, event)
        made.kernel("elementwise_optimizer", 50.0, after=reduced)
    return made


@pytest.fixture
def made():
    return Made


@pytest.fixture
def ddp_trace(tmp_path):
    """Return a function that writes such a trace and returns its file."""

    def write(name="rank0.json.gz", *, gpu="NVIDIA H200", syncs=True, world=2, group=None, **settings):
        made = Made(gpu, world, syncs)
        if group:
            made.head["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": group}]
        return ddp(made, **settings).write(tmp_path / name)

    return write
