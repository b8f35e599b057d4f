"""`collsim compare`: formats, exit codes, and faults at their place."""
# ruff: noqa: E501 - a table is as wide as what it holds

import csv
import io
import json

import pytest
from jsonschema import Draft202012Validator

from collsim.report import COMPARISON_FORMATS, schema

ASKED = ("--size", "1G", "--profile", "ideal", "-q")
RACKS = ("compare", "mi355x_ubb8", "hgx_b200", "--op", "all_to_all", "--split", "none,MOD 4", *ASKED)
"""All-to-all of 8 at 7 x 76.8 and at 900 GB/s, of pairs at one link of 76.8: 1.674 and 11.72."""

TABLE = """\
# collsim 0.1.0   topo mi355x_ubb8 (8 GPUs, 28 links)   calibrated: no
# profile ideal: raw line rates, no latency, no overhead
# collsim 0.1.0   topo hgx_b200 (8 GPUs, 144 links)   calibrated: no
# profile ideal: raw line rates, no latency, no overhead
#
#                                     mi355x_ubb8                                    hgx_b200
# op                 ranks       size   algo    time  busbw limited by                 algo    time  busbw speedup limited by
#                                 (B)           (us) (GB/s)                                    (us) (GB/s)     (x)
  all_to_all             8 1073741824 direct 1747.63 537.60 gpu0->gpu1 +55 busy 100% direct 1043.92 900.00    1.67 gpu0->nvsw0 +31 busy 100%
  all_to_all 4 x 2 (MOD 4) 1073741824 direct 6990.51  76.80 gpu0->gpu4 +7 busy 100%  direct  596.52 900.00    11.7 gpu0->nvsw0 +31 busy 100%
# speedup: the time of mi355x_ubb8 over that of the other system
# hgx_b200 is 1.67 times as fast (all_to_all of 8 ranks, 1 GiB) to 11.7 times as fast (all_to_all of 4 x 2 (MOD
#   4) ranks, 1 GiB)
# all groups run at once: times and bandwidths are of the slowest
"""


def test_table(collsim):
    found = collsim(*RACKS)
    assert (found.code, found.out, found.err) == (0, TABLE, "")


def test_json_follows_its_schema(collsim):
    document = json.loads(collsim(*RACKS, "--format", "json").out)
    check = Draft202012Validator(schema("collsim.compare/1"))
    check.validate(document)
    assert [row["grouping"] for row in document["rows"]] == [None, "MOD 4"]
    assert [system["system"] for system in document["systems"]] == ["mi355x_ubb8", "hgx_b200"]
    assert document["rows"][0]["speedups"] == pytest.approx([1, 900 / 537.6])
    assert not check.is_valid({**document, "extra": 1})
    row = document["rows"][0]
    broken = {**row, "runs": [{**row["runs"][0], "time_s": "fast"}, row["runs"][1]]}
    assert not check.is_valid({**document, "rows": [broken]})


def test_csv_has_a_line_for_each_system(collsim):
    rows = list(csv.DictReader(io.StringIO(collsim(*RACKS, "--format", "csv").out)))
    assert [(row["system"], row["grouping"], row["ranks"]) for row in rows] == [
        ("mi355x_ubb8", "", "8"),
        ("hgx_b200", "", "8"),
        ("mi355x_ubb8", "MOD 4", "2"),
        ("hgx_b200", "MOD 4", "2"),
    ]
    assert [float(row["speedup"]) for row in rows] == pytest.approx([1, 900 / 537.6, 1, 900 / 76.8])
    assert float(rows[1]["busbw_Bps"]) == pytest.approx(900e9)


def test_markdown(collsim):
    lines = collsim(*RACKS, "--format", "md").out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4]]
    assert {len(row) for row in cells} == {12}
    assert cells[0][3] == "mi355x_ubb8 algo"
    assert cells[0][10] == "hgx_b200 speedup (x)"
    assert (cells[2][5], cells[2][9], cells[2][10]) == ("537.60", "900.00", "1.67")
    assert any(line.startswith("* hgx_b200 is 1.67 times as fast") for line in lines)


def test_a_system_that_is_as_fast_is_not_1_times_as_fast(collsim):
    found = collsim("compare", "hgx_h100", "hgx_h200", "--op", "all_gather", "--size", "64M", "--profile", "ideal")
    assert "# hgx_h200 is as fast\n" in found.out


def test_the_suffix_chooses_the_format(collsim, tmp_path):
    for suffix in ("csv", "json", "md"):
        file = tmp_path / f"out.{suffix}"
        assert collsim(*RACKS, "-o", file).code == 0
        assert file.read_text() == collsim(*RACKS, "--format", suffix).out
    assert set(COMPARISON_FORMATS) == {"table", "csv", "json", "md"}


def test_three_systems_and_a_change_of_one(collsim):
    call = ("compare", "mi355x_ubb8", "hgx_b200", "hgx_b200,link.bandwidth=100 GB/s", "--op", "all_to_all", *ASKED)
    document = json.loads(collsim(*call, "--format", "json").out)
    assert document["rows"][0]["speedups"] == pytest.approx([1, 900 / 537.6, 1800 / 537.6])
    assert document["systems"][2]["configs"][0]["overrides"] == {"link.bandwidth": "100 GB/s"}


def test_warnings_go_to_stderr(collsim):
    call = ("compare", "mi355x_ubb8", "hgx_b200", "--op", "all_to_all", "--size", "1M")
    assert "warning: mi355x_ubb8: profile" in collsim(*call).err
    assert collsim(*call, "-q").err == ""


def test_faults_at_their_place(collsim):
    found = collsim(
        "compare", "mi355x_ubb8", "hgx_b20", "--op", "all_reduc", "--size", "1X", "--algo", "all", "--format", "nccl"
    )
    assert (found.code, found.out) == (2, "")
    for text in (
        'TOPO: unknown topology "hgx_b20"',
        'did you mean "hgx_b200"?',
        '--op: unknown operation "all_reduc"',
        '--size: size "1X"',
        "--algo: several algorithms",
        '--format: unknown format "nccl"',
    ):
        assert found.err.count(text) == 1, text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("mi355x_ubb8",), "TOPO: fewer than two systems"),
        (("mi355x_ubb8", "hgx_b200,lnk.bandwidth=3"), 'TOPO: unknown path "lnk.bandwidth"'),
        (("mi355x_ubb8", "hgx_b200", "--ranks", "16"), "--ranks: 16 ranks on 8 GPUs"),
        (("mi355x_ubb8", "hgx_b200", "--split", "none,MOD 3"), "--split: MOD 3 does not divide 8 ranks"),
        (("mi355x_ubb8", "mi300x_ubb8", "--algo", "nvls"), "mi355x_ubb8: nvls needs switches"),
    ],
)
def test_refused(collsim, arguments, told):
    found = collsim("compare", *arguments, "--op", "all_reduce", "--size", "1M")
    assert (found.code, found.out) == (2, "")
    assert told in found.err


@pytest.mark.parametrize("form", COMPARISON_FORMATS)
def test_answers_of_others_are_printed_and_the_refused_named(collsim, form):
    call = ("compare", "mi355x_ubb8", "hgx_h100", "hgx_b200", "--op", "all_reduce", "--size", "1M", "--algo", "nvls")
    found = collsim(*call, "-q", "--format", form)
    assert found.code == 4
    assert "error: mi355x_ubb8 is refused: nvls needs switches" in found.err
    assert "hgx_h100" in found.out
    if form == "json":
        document = json.loads(found.out)
        Draft202012Validator(schema("collsim.compare/1")).validate(document)
        assert [entry["system"] for entry in document["refused"]] == ["mi355x_ubb8"]
    elif form == "csv":
        assert found.out.splitlines()[-1].startswith("mi355x_ubb8,,")
        assert "nvls needs switches" in found.out.splitlines()[-1]
    else:
        assert "mi355x_ubb8 is refused: " in found.out


def test_intervals_and_verdicts_in_every_format(collsim):
    call = ("compare", "hgx_h100", "hgx_b200", "--op", "gather", "--size", "4K,1M", "--library", "nccl-2.28",
            "-q", "--format")  # fmt: skip
    document = json.loads(collsim(*call, "json").out)
    Draft202012Validator(schema("collsim.compare/1")).validate(document)
    assert [row["verdicts"] for row in document["rows"]] == [[None, "overlapping"], [None, "overlapping"]]
    ends = [document["rows"][1]["runs"][1][f"time_{end}_s"] for end in ("lo", "hi")]
    rows = list(csv.DictReader(io.StringIO(collsim(*call, "csv").out)))
    assert [row["verdict"] for row in rows] == ["", "overlapping", "", "overlapping"]
    assert [float(rows[3][f"time_{end}_s"]) for end in ("lo", "hi")] == ends
    assert {row["library"] for row in rows} == {"nccl-2.28"}
    for form in ("table", "md"):
        text = " ".join(collsim(*call, form).out.replace("\n#  ", "").split())
        assert all(f"{end * 1e6:.2f}" in text for end in ends)
        assert "whether hgx_b200 is faster is open where intervals overlap (gather of 8 ranks, " in text
        assert "algorithms as nccl-2.28 chooses" in text
    own = ("compare", "hgx_h100", "hgx_b200,link.latency=1us", *call[3:])  # nobody measured that machine
    assert [row["verdicts"] for row in json.loads(collsim(*own, "json").out)["rows"]] == [[None, "unmeasured"]] * 2
    assert "predicted: hgx_b200" in " ".join(collsim(*own, "table").out.split())


def test_a_cut_system_has_no_answer(collsim):
    cuts = [part for peer in range(1, 8) for part in ("--fail", f"link:gpu0-gpu{peer}")]
    found = collsim("compare", "mi355x_ubb8", "mi350x_ubb8", "--op", "all_reduce", "--size", "1M", *cuts)
    assert (found.code, found.out) == (3, "")
    assert "mi355x_ubb8: " in found.err


def test_no_file_that_is_read_is_replaced(collsim, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("schema: collsim.topology/1\nbuilder: full_mesh\ngpu: {count: 8}\nlink: {bandwidth: 50 GB/s}\n")
    found = collsim("compare", file, "hgx_b200", "--op", "all_reduce", "--size", "1M", "-o", file, "--format", "csv")
    assert found.code == 2
    assert "which this command reads" in found.err
