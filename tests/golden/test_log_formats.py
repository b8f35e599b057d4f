"""Every kind of log that is known to exist, as a specimen with made-up figures and the rows that it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collsim.calibration import read_log
from collsim.core.errors import SpecError

FOLDER = Path(__file__).parent.parent / "data" / "logs"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
READABLE = [name for name, entry in EXPECTED.items() if entry["tests"] is not None]
RUN_FIELDS = (
    "launch",
    "library",
    "library_version",
    "program",
    "program_version",
    "registered",
    "blocking",
    "average",
    "split",
    "groups",
)


def test_every_specimen_is_tested():
    assert {path.name for path in FOLDER.iterdir()} == {*EXPECTED, "expected.json"}


@pytest.mark.parametrize("name", READABLE)
def test_specimen(name):
    expected = EXPECTED[name]
    log = read_log(FOLDER / name)
    assert [(t.op, t.ranks, t.nodes) for t in log.tests] == [
        (t["op"], t["ranks"], t["nodes"]) for t in expected["tests"]
    ]
    assert log.n_dropped == expected["dropped"] == len(log.dropped), log.dropped
    tolerance = expected.get("tolerance", 1e-9)
    for test, want in zip(log.tests, expected["tests"], strict=True):
        rows = [(r.size_bytes, r.count, r.dtype) for r in test.rows]
        assert rows == [(size, count, dtype) for size, count, dtype, *_ in want["rows"]]
        for row, (_, _, _, time_us, in_place_us, wrong, in_place_wrong) in zip(test.rows, want["rows"], strict=True):
            assert row.time_s == (time_us and pytest.approx(time_us * 1e-6, rel=tolerance))
            assert row.in_place_time_s == (in_place_us and pytest.approx(in_place_us * 1e-6, rel=tolerance))
            assert (row.wrong, row.in_place_wrong) == (wrong, in_place_wrong)
        for field in RUN_FIELDS:
            if field in want:
                assert getattr(test.run, field) == want[field], field
        for key, value in want.get("environment", {}).items():
            assert test.run.environment[key] == value


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in READABLE])
def test_specimen_without_rows(name):
    with pytest.raises(SpecError, match=r"no usable row[\s\S]*needed: the table"):
        read_log(FOLDER / name)
