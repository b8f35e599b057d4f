"""Round trips, readable files, and faults: all of them, each with its place, and never a traceback."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collsim.collectives import algorithm
from collsim.collectives.algorithm import ScheduleRequest
from collsim.core.errors import InputError, SpecError, VerificationError
from collsim.core.operations import operation
from collsim.schedule import (
    Chunks,
    Circles,
    Orbits,
    Schedule,
    Transfers,
    TransfersBuilder,
    diff,
    find_faults,
    load,
    save,
    verify,
)
from collsim.schedule.json_files import MAX_FAULTS
from collsim.schedule.packed_files import MOST_PACKED, _unpacked

from ..memory import peak_bytes

DOCS = Path(__file__).parents[2] / "docs" / "schedules.md"


def unrolled(schedule):
    """Return a schedule with a row for each step of circles."""
    phases = (phase.orbits() if isinstance(phase, Circles) else phase for phase in schedule.phases)
    return replace(schedule, phases=tuple(phases))


def build(name, op, n, **more):
    return unrolled(algorithm(op, name).build(ScheduleRequest(operation(op), n, n * 48, **more)))


def same(a, b):
    """Equal in every array, dtype and form."""
    assert (a.op, a.algo, a.n_ranks, a.size_bytes) == (b.op, b.algo, b.n_ranks, b.size_bytes)
    assert dict(a.parameters) == dict(b.parameters)
    for left, right in zip((a.chunks, *a.phases), (b.chunks, *b.phases), strict=True):
        assert type(left) is type(right)
        for name in left.__slots__:
            x, y = getattr(left, name), getattr(right, name)
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            assert np.array_equal(x, y)
            assert not y.flags.writeable


CASES = [
    ("ring", "all_reduce", {"channels": 3}),
    ("ring", "all_gather", {"channels": 2, "rings": np.array([[0, 1, 2, 3], [3, 1, 0, 2]])}),
    ("all_pairs", "all_reduce", {}),
    ("one_shot", "all_reduce", {"channels": 4}),
    ("direct", "all_to_all", {}),
]


@pytest.mark.parametrize(("name", "op", "more"), CASES)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
@pytest.mark.parametrize("form", ["as built", "merged", "transfers"])
def test_round_trip(tmp_path, name, op, more, suffix, form):
    schedule = build(name, op, 4, **more)
    if form == "merged":
        schedule = schedule.merged()
    if form == "transfers":
        schedule = replace(schedule, phases=(schedule.materialise(),))
    path = tmp_path / f"schedule.{suffix}"
    save(schedule, path)
    again = load(path)
    same(schedule, again)
    assert diff(schedule, again) == []
    before = path.read_bytes()
    save(again, str(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@given(st.data())
@settings(max_examples=40)
def test_any_transfers_survive(data):
    import tempfile

    n, big = data.draw(st.integers(2, 5)), st.integers(0, 2**40)
    sizes = data.draw(st.lists(big, min_size=1, max_size=5))
    ends = st.lists(st.integers(-1, n - 1), min_size=len(sizes), max_size=len(sizes))
    rows = TransfersBuilder()
    for row in range(data.draw(st.integers(0, 6))):
        src = data.draw(st.integers(0, n - 1))
        rows.add(
            src,
            (src + data.draw(st.integers(1, n - 1))) % n,
            data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True)),
            data.draw(st.lists(st.integers(0, row - 1))) if row else (),
            channel=data.draw(big),
            step=data.draw(big),
            reduces=data.draw(st.booleans()),
            reads_input=data.draw(st.booleans()),
            lanes=data.draw(st.integers(1, 9)),
        )
    chunks = Chunks(sizes, data.draw(ends), data.draw(ends))
    names = st.text("abc_", min_size=1)
    parameters = data.draw(st.dictionaries(names, st.one_of(names, st.integers(-9, 9))))
    schedule = Schedule("all_reduce", "random", n, sum(sizes), chunks, (rows.build(),), parameters)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        save(schedule, path)
        same(schedule, load(path))


def test_one_row_per_line(tmp_path):
    save(build("ring", "all_reduce", 3), tmp_path / "s.json")
    lines = (tmp_path / "s.json").read_text().splitlines()
    assert '  "n_ranks": 3,' in lines
    assert "      [48, -1, -1]," in lines
    assert "        [1, 0, 0, true, false, 1, 1, [[0, -1]], []]," in lines
    assert "        [0, 1, 2]" in lines


def test_the_example_of_the_page(tmp_path):
    (text,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    path = tmp_path / "example.json"
    path.write_text(text)
    schedule = load(path)
    verify(schedule)
    assert isinstance(schedule.phases[0], Orbits)
    assert schedule.phases[0].lanes.tolist() == [1, 1]
    assert len(schedule.materialise()) == 6


def test_short_tables_have_defaults(tmp_path):
    path = tmp_path / "s.json"
    data = document()
    data["phases"] = [{"form": "transfers", "columns": ["chunks", "dst", "src"], "rows": [[[0], 1, 0], [[1], 0, 1]]}]
    path.write_text(json.dumps(data))
    phase = load(path).phases[0]
    assert isinstance(phase, Transfers)
    assert (phase.src.tolist(), phase.dst.tolist()) == ([0, 1], [1, 0])
    assert (phase.lanes.tolist(), phase.copies.tolist(), phase.reduces.tolist()) == ([1, 1], [1, 1], [False, False])


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "s.json"
    save(build("ring", "all_reduce", 3), path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="cannot write: No space left"):
        save(build("ring", "all_reduce", 4), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.json"]


def test_saving_where_there_is_no_folder(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        save(build("ring", "all_reduce", 3), tmp_path / "none" / "s.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        save(build("ring", "all_reduce", 3), tmp_path / "file" / "s.json")


@pytest.mark.parametrize(("name", "more"), [("ring", {"channels": 3}), ("tree", {"channels": 2})])
def test_circles_and_pipelines_are_written_out(tmp_path, name, more):
    schedule = algorithm("all_reduce", name).build(ScheduleRequest(operation("all_reduce"), 4, 192, **more))
    for number, form in enumerate((schedule, schedule.merged())):
        save(form, tmp_path / f"{number}.json")
        again = load(tmp_path / f"{number}.json")
        assert again.n_transfers == form.n_transfers
        assert diff(form, again) == []


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    schedule = build("ring", "all_reduce", 3)
    with pytest.raises(VerificationError, match="the source of chunk 0 is rank 9"):
        save(replace(schedule, chunks=Chunks([48] * 3, [9, -1, -1], [-1] * 3)), tmp_path / "s.json")
    with pytest.raises(VerificationError, match="unknown operation"):
        save(replace(schedule, op="sum"), tmp_path / "s.json")
    with pytest.raises(VerificationError, match=re.escape("parameters.x: expected an integer, not 1.5")):
        save(replace(schedule, parameters={"x": 1.5}), tmp_path / "s.json")
    far = replace(schedule.phases[0], dep_shift=schedule.phases[0].dep_shift - 2**62)
    with pytest.raises(VerificationError, match="dep_shift has a number beyond"):
        save(replace(schedule, phases=(far,)), tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []


def document():
    """A small right schedule as plain data."""
    return {
        "schema": "collsim.schedule/1",
        "op": "all_gather",
        "algo": "by_hand",
        "n_ranks": 2,
        "size_bytes": 16,
        "parameters": {"channels": 1},
        "chunks": {"columns": ["size_bytes", "source", "target"], "rows": [[8, 0, -1], [8, 1, -1]]},
        "phases": [
            {
                "form": "transfers",
                "columns": ["src", "dst", "reduces", "chunks", "deps"],
                "rows": [[0, 1, False, [0], []], [1, 0, False, [1], []]],
            },
            {
                "form": "orbits",
                "order": [[0, 1]],
                "columns": ["shift", "step", "chunks", "deps"],
                "rows": [[1, 0, [[0, 0]], []], [1, 1, [[0, 0]], [[0, 1]]]],
            },
        ],
    }


def faults(tmp_path, data):
    path = tmp_path / "s.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(SpecError) as caught:
        load(path)
    return [str(fault).replace(str(path), "FILE") for fault in caught.value.faults]


def put(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    if value is KeyError:
        del data[last]
    else:
        data[last] = value


ROWS, ORBITS = ("phases", 0, "rows"), ("phases", 1, "rows")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "collsim.schedule/2", 'FILE: schema: the schema is "collsim.schedule/2"'),
        (("schema",), KeyError, "FILE: schema: the schema is missing"),
        (("op",), "allgather", 'FILE: op: unknown operation "allgather"\n  hint: did you mean "all_gather"?'),
        (("op",), 3, "FILE: op: expected a name, not 3"),
        (("algo",), "\ud800", 'FILE: algo: expected a name, not "\\ud800"'),
        (("n_ranks",), 0, "FILE: n_ranks: 0 is out of range\n  hint: nearest valid value: 1"),
        (("n_ranks",), 2.0, "FILE: n_ranks: expected an integer, not 2.0"),
        (("n_ranks",), True, "FILE: n_ranks: expected an integer, not true"),
        (("n_ranks",), KeyError, 'FILE: the key "n_ranks" is missing'),
        (("size_bytes",), -1, "FILE: size_bytes: -1 is out of range\n  hint: nearest valid value: 0"),
        (("size_bytes",), 10**100, "FILE: size_bytes: 1000000000000000000000000000000000000... is out of range"),
        (("parameters",), [], "FILE: parameters: expected an object, not list"),
        (("parameters", "x"), 1.5, "FILE: parameters.x: expected an integer, not 1.5"),
        (("chunks",), [], "FILE: chunks: expected an object, not list"),
        (("chunks", "rows", 1), [8, 1], "FILE: chunks.rows[1]: expected a list of 3 values"),
        (("chunks", "rows", 1, 0), -8, "FILE: chunks.rows[1].size_bytes: chunk 1 has -8 bytes"),
        (("chunks", "rows", 1, 1), 2, "FILE: chunks.rows[1].source: the source of chunk 1 is rank 2"),
        (("chunks", "columns", 0), "bytes", 'FILE: chunks.columns: unknown column "bytes"'),
        (("phases",), [], "FILE: phases: the list of phases is empty"),
        (("phases", 0), 5, "FILE: phases[0].form: the form is 5"),
        (("phases", 0, "form"), "transfer", 'FILE: phases[0].form: the form is "transfer"'),
        (("phases", 0, "order"), [[0, 1]], 'FILE: phases[0]: unknown key "order"'),
        (("phases", 0, "rows"), KeyError, "FILE: phases[0].rows: expected a list of rows, not null"),
        (("phases", 0, "columns"), 1, "FILE: phases[0].columns: expected a list of names, not 1"),
        (("phases", 0, "columns", 4), "dep", 'unknown column "dep"\n  hint: did you mean "deps"?'),
        (("phases", 0, "columns", 4), "src", 'FILE: phases[0].columns: the column "src" appears twice'),
        (("phases", 0, "columns", 0), "lanes", 'FILE: phases[0].columns: the column "src" is missing'),
        ((*ROWS, 1), {}, "FILE: phases[0].rows[1]: expected a list of 5 values"),
        ((*ROWS, 1, 0), "1", 'FILE: phases[0].rows[1].src: expected an integer, not "1"'),
        ((*ROWS, 1, 0), 2, "FILE: phases[0].rows[1].src: 2 -> 0 (channel 0, step 0) names rank 2"),
        ((*ROWS, 1, 1), 1, "FILE: phases[0].rows[1]: rank 1 sends to itself"),
        ((*ROWS, 1, 2), 1, "FILE: phases[0].rows[1].reduces: expected true or false, not 1"),
        ((*ROWS, 1, 3), 1, "FILE: phases[0].rows[1].chunks: expected a list, not 1"),
        ((*ROWS, 1, 3), [2], "FILE: phases[0].rows[1].chunks: 1 -> 0 (channel 0, step 0) carries chunk 2"),
        ((*ROWS, 1, 3), [None], "FILE: phases[0].rows[1].chunks: expected an integer, not null"),
        ((*ROWS, 1, 4), [1], "FILE: phases[0].rows[1].deps: row 1 waits for itself"),
        ((*ROWS, 1, 4), [2**63], "FILE: phases[0].rows[1].deps: 9223372036854775808 is out of range"),
        (("phases", 1, "order"), [[0, 0]], "FILE: phases[1].order[0]: an order must name every rank once"),
        (("phases", 1, "order"), [[0]], "FILE: phases[1].order[0]: an order must name every rank once"),
        (("phases", 1, "order"), [[0, 2]], "FILE: phases[1].order[0][1]: 2 is out of range"),
        (("phases", 1, "order"), 0, "FILE: phases[1].order: expected a list of orders, not 0"),
        ((*ORBITS, 1, 0), 2, "FILE: phases[1].rows[1].shift: every rank sends to itself"),
        ((*ORBITS, 1, 2), [0], "FILE: phases[1].rows[1].chunks: expected a list of pairs of integers"),
        ((*ORBITS, 1, 2), [[1, 0]], "FILE: phases[1].rows[1].chunks: row 1 carries chunk family 1"),
        ((*ORBITS, 1, 3), [[1, 2]], "FILE: phases[1].rows[1].deps: row 1 waits for itself"),
    ],
)
def test_faults_have_a_place(tmp_path, path, value, message):
    data = document()
    put(data, path, value)
    found = faults(tmp_path, data)
    assert any(message in fault for fault in found), found


def test_the_plain_document_is_fine(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document()))
    assert len(load(path).phases) == 2
    kinds = [fault.what.split(":")[0] for fault in find_faults(load(path))]
    assert kinds == ["two writes in no order"] * 2 + ["duplicate delivery"] * 4


def test_all_faults_at_once(tmp_path):
    data = document()
    data["op"], data["colour"] = "all_gahter", 1
    data["size_bytes"] = -3
    data["chunks"]["rows"][0][1] = 5
    data["phases"][0]["rows"][0][0] = 7
    data["phases"][0]["rows"][1][0] = 0.5
    data["phases"][1]["rows"][0][0] = None
    found = "\n".join(faults(tmp_path, data))
    for place in (
        "op: ",
        "colour",
        "size_bytes",
        "chunks.rows[0].source",
        "phases[0].rows[0].src",
        "phases[0].rows[1].src",
    ):
        assert place in found
    assert found.count("FILE: ") == 7


def test_many_faults_are_counted(tmp_path):
    data = document()
    data["phases"][0]["rows"] = [[9, 1, False, [0], []]] * (MAX_FAULTS + 5)
    found = faults(tmp_path, data)
    assert len(found) == MAX_FAULTS + 1
    assert found[-1] == "FILE: ... and 5 more faults"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\x00\x01\xff\xfe", "not UTF-8 text"),
        (b"[1, 2", ":1: not JSON"),
        (b"[1, 2]", "expected an object, not list"),
        (b"null", "expected an object, not null"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" * 5000, "thousands of digits"),
        (b'{"schema": NaN}', "NaN is no number"),
        (b'{"a": 1, "a": 2}', 'the key "a" appears twice'),
        (b"\x1f\x8b", "damaged or cut off"),
        (b"\x1f\x8bjunk and more junk", "cannot read"),
        (gzip.compress(b"{" * 1000, mtime=0)[:-9], "damaged or cut off"),
        (gzip.compress(b"\xff\xff", mtime=0), "not UTF-8 text"),
    ],
)
def test_junk(tmp_path, content, message):
    path = tmp_path / "junk.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=re.escape(message)):
        load(path)


def test_unreadable(tmp_path):
    for path in (tmp_path, tmp_path / "none.json", tmp_path / ("x" * 5000)):
        with pytest.raises(SpecError, match="cannot read"):
            load(path)


@given(st.binary(max_size=200))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_bytes_make_it_crash(tmp_path, content):
    path = tmp_path / "junk.json"
    path.write_bytes(content)
    with pytest.raises(SpecError):
        load(path)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**40)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def places(data, path=()):
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_damage_makes_it_crash(tmp_path, data):
    plain = document()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(plain) if path]))
        put(plain, path, data.draw(st.one_of(JSON, st.just(KeyError))))
    path = tmp_path / "s.json"
    path.write_text(json.dumps(plain))
    try:
        schedule = load(path)
    except SpecError:
        return
    find_faults(schedule)
    save(schedule, path)
    same(schedule, load(path))


@pytest.mark.parametrize(("packed", "word"), [(b" " * 2**27, "unpacks"), (b" " * 2**20, "not JSON")])
def test_packed_file_that_grows_without_end(tmp_path, packed, word):
    path = tmp_path / "s.json.gz"
    path.write_bytes(gzip.compress(packed, 9))
    with pytest.raises(SpecError, match=word):
        load(path)


def test_little_is_unpacked_of_a_file_that_grows_without_end():
    content = gzip.compress(b" " * 2**27, 9)

    def refused():
        with pytest.raises(SpecError, match=f"unpacks {len(content)} bytes to more than {MOST_PACKED * len(content)}"):
            _unpacked(content, "s.json.gz")

    assert peak_bytes(refused)[1] < 2**27


@pytest.mark.parametrize("name", ["s.json", "s.json.gz", "s.json.GZ"])
def test_saved_through_a_link_and_to_a_device(tmp_path, name):
    (tmp_path / "link").mkdir()
    target, link = tmp_path / name, tmp_path / "link" / name
    target.write_text("old")
    link.symlink_to(target)
    save(build("ring", "all_reduce", 4), link)
    assert link.is_symlink()
    assert load(target).n_ranks == 4
    assert (target.read_bytes()[:2] == b"\x1f\x8b") == ("gz" in name.lower())
    save(build("ring", "all_reduce", 4), "/dev/null")
    assert not Path("/dev/null").is_file()


def test_hints_name_nothing_that_is_not_installed(tmp_path):
    for text in ("{", "[" * 100_000):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(SpecError) as caught:
            load(tmp_path / "s.json")
        assert "schedule export" in str(caught.value)
        assert "docs/" not in str(caught.value)
