"""`collsim timeline`: what it prints, draws and writes, and what it says of bad input."""

import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import jsonschema
import pytest

from collsim.report.json_schemas import schema
from collsim.report.timeline import _slices
from collsim.timeline.result import Event

STEP = """\
schema: collsim.workload/1
topo: hgx_h100
ranks: 8
step:
  - {kernel: forward, time: 4 ms}
  - repeat: 4
    do:
      - {kernel: backward, time: 2 ms}
      - {collective: all_reduce, size: 256M, after: backward}
"""


@pytest.fixture
def step(tmp_path):
    file = tmp_path / "step.yaml"
    file.write_text(STEP)
    return file


def test_the_table_says_what_a_step_is_made_of(collsim, step):
    found = collsim("timeline", step, "-q")
    assert (found.code, found.err) == (0, "")
    for part in ("# step ", "exposed (", "stream", "all_reduce 268435456", "critical path:", "what would help:"):
        assert part in found.out, part
    assert all(line.startswith(("#", "  ")) for line in found.out.splitlines())


def test_json_has_what_it_promises(collsim, step):
    found = json.loads(collsim("timeline", step, "-q", "--format", "json").out)
    jsonschema.validate(found, schema("collsim.timeline/1"))
    assert found["low_s"] <= found["step_time_s"] <= found["high_s"]
    assert (found["low_s"], found["high_s"]) == (found["time_lo_s"], found["time_hi_s"])
    assert found["recorded_step_time_s"] is None
    assert 0 < found["exposed_s"] < found["communication_s"]
    assert sum(part["time_s"] for part in found["path"]) == pytest.approx(found["step_time_s"], rel=1e-9)
    assert found["calls"][0]["count"] == 4


def test_flags_change_the_machine(collsim, step):
    def step_s(*flags):
        return json.loads(collsim("timeline", step, "-q", "--format", "json", *flags).out)["step_time_s"]

    plain = step_s()
    assert step_s("--compute-scale", "2") > 1.8 * plain
    assert step_s("--env", "NCCL_MAX_NCHANNELS=1", "--env", "NCCL_NVLS_ENABLE=0") > 2 * plain
    assert step_s("--nodes", "2") > plain
    assert step_s("--topo", "hgx_b200") < plain


def test_perfetto_gets_a_trace_of_chromes_format(collsim, step, tmp_path):
    file = tmp_path / "shown.json"
    assert collsim("timeline", step, "-q", "--perfetto", file).code == 0
    events = json.loads(file.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert {"ph", "pid", "tid", "name", "cat", "ts", "dur"} <= set(slices[0])
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"compute", "communication"}
    for track in {event["tid"] for event in slices}:  # slices of a track nest or follow each other
        open_until = []
        spans = ((round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in slices if e["tid"] == track)
        for begin_ns, end_ns in sorted(spans, key=lambda span: (span[0], -span[1])):  # Perfetto counts nanoseconds
            while open_until and open_until[-1] <= begin_ns:
                open_until.pop()
            assert not open_until or end_ns <= open_until[-1]
            open_until.append(end_ns)
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"links to nvsw"}
    full = [event["args"]["percent"] for event in counters]
    assert full[0] < 50 < full[-2] <= 100  # beside kernels its channels carry less
    assert full[1::2] == [0.0] * 4
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)


def test_slices_that_follow_each_other_touch_to_the_nanosecond():
    bounds_s = [i * 338.4613160332e-6 for i in range(100)]
    for begin_s, end_s in pairwise(bounds_s):
        (piece,) = _slices(Event("a", "matmul", "0", begin_s, begin_s, end_s), 1)
        assert round((piece["ts"] + piece["dur"]) * 1e3) == round(end_s * 1e9)


def test_the_picture_has_a_row_for_each_stream(collsim, step, tmp_path):
    file = tmp_path / "step.svg"
    assert collsim("timeline", step, "-q", "--svg", file).code == 0
    root = ET.fromstring(file.read_text())
    space = {"s": "http://www.w3.org/2000/svg"}
    texts = [element.text for element in root.findall(".//s:text", space)]
    assert {"compute", "communication", "collectives", "tensor cores"} <= set(texts)
    boxes = root.findall(".//s:rect[s:title]", space)
    assert len(boxes) == 9
    left = min(float(box.get("x")) for box in boxes)
    names = [element for element in root.findall(".//s:text", space) if element.get("text-anchor") == "end"]
    assert all(len(name.text) * 7.5 < float(name.get("x")) < left for name in names)  # 12 px letters, none cut off
    assert all(float(box.get("x")) + float(box.get("width")) <= 1200 for box in boxes)


def test_bad_flags_are_all_named_at_once(collsim, step):
    found = collsim(
        "timeline", step, "--nodes", "0", "--steps", "x", "--env", "FOO", "--compute-scale", "fast", "--svg", "a.png"
    )
    assert found.code == 2
    for flag in ("--nodes", "--steps", "--env", "--compute-scale", "--svg"):
        assert f"error: {flag}: " in found.err, flag


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "holds no"),
        ("a.json", '{"traceEvents": []}', "no kernels of a GPU"),
        ("a.yaml", "schema: collsim.workload/1\nstep: []\n", "there is nothing to run"),
        ("a.yaml", "- 1\n", "holds no mapping"),
        ("a.et", "", "is an execution trace (Chakra)"),
        ("a.json", '{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "is an execution trace (Chakra)"),
        ("a.nsys-rep", "", "is a report of Nsight Systems"),
    ],
)
def test_bad_files_give_exit_code_2(collsim, tmp_path, name, text, message):
    file = tmp_path / name
    file.write_text(text)
    found = collsim("timeline", file)
    assert found.code == 2
    assert found.out == ""
    assert message in found.err
    assert "Traceback" not in found.err


def test_flags_of_traces_are_no_flags_of_workloads(collsim, step):
    found = collsim("timeline", step, "--steps", "2", "--recorded-on", "hgx_h100")
    assert found.code == 2
    assert "--steps: goes with a trace" in found.err
    assert "--recorded-on: goes with a trace" in found.err


def test_where_a_trace_was_recorded_has_a_flag_of_its_own(collsim, tmp_path):
    file = tmp_path / "a.json"
    file.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nvjet", "ts": 5, "dur": 10, "args": {"stream": 7}}]}'
    )
    assert "error: --recorded-on: unknown topology" in collsim("timeline", file, "--recorded-on", "hgx_h2000").err


def test_what_a_trace_lost_is_a_warning(collsim, tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "nvjet", "ts": 5, "dur": 10, "args": {"stream": 7, "device": 0}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": [kernel]}))
    found = collsim("timeline", file)
    assert found.code == 0
    assert "warning: 1 of 1 kernels have no launch" in found.err
    assert "note: 1 of 1 kernels have no launch" in found.out
