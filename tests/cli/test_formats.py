"""Every output format, read by something other than what wrote it."""
# ruff: noqa: E501 - a table is as wide as what it holds

import csv
import io
import json
import re

import pytest
from jsonschema import Draft202012Validator

from collsim import simulate
from collsim.core.errors import UnknownNameError
from collsim.report import FORMATS, render, schema
from collsim.report.nccl import time_text
from collsim.topology import load_topology

SMALL = ("run", "--topo", "mi300x_ubb8", "--size", "1M,64M", "--profile", "ideal", "-q")
REDUCE = (*SMALL, "--op", "all_reduce", "--algo", "all_pairs,one_shot")
"""On bare wires: a rank sends 1/8 of the size to each of 7 others twice, or the whole size once, at 64 GB/s."""

TABLE = """\
# collsim 0.1.0   topo mi300x_ubb8 (8 GPUs, 28 links)   calibrated: no
# profile ideal: raw line rates, no latency, no overhead
#
# op all_reduce   ranks 8   algo all_pairs, one_shot   model fluid
#      size      count   type redop root      algo     time   algbw   busbw    bound   eff  bound by             limited by
#       (B)     (elem)                                 (us)  (GB/s)  (GB/s)     (us)   (%)
    1048576     262144  float   sum   -1 all_pairs     4.10  256.00  448.00     4.10 100.0  egress of all ranks  gpu0->gpu1 +55 busy 100%
    1048576     262144  float   sum   -1  one_shot    16.38   64.00  112.00     4.10  25.0  egress of all ranks  gpu0->gpu1 +55 busy 100%
   67108864   16777216  float   sum   -1 all_pairs   262.14  256.00  448.00   262.14 100.0  egress of all ranks  gpu0->gpu1 +55 busy 100%
   67108864   16777216  float   sum   -1  one_shot  1048.58   64.00  112.00   262.14  25.0  egress of all ranks  gpu0->gpu1 +55 busy 100%
# Avg bus bandwidth    : all_pairs 448, one_shot 112
# fastest: all_pairs 1 MiB to 64 MiB
"""

NCCL = """\
# collsim 0.1.0: a prediction, not a measurement
# topology mi300x_ubb8, profile ideal, calibrated: no
# all_to_all on 8 ranks, algorithm direct
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.00    0.00    0.00    N/A     0.00    0.00    0.00    N/A
     1048576         32768     float    none      -1     2.05  512.00  448.00    N/A     2.05  512.00  448.00    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 224
#
"""

MARKDOWN = """\
| op | ranks | size (B) | count (elem) | type | redop | root | algo | time (us) | algbw (GB/s) | busbw (GB/s) \
| bound (us) | eff (%) | bound by | limited by |
| --- | ---: | ---: | ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| all_to_all | 8 | 1048576 | 32768 | float | none | -1 | direct | 2.05 | 512.00 | 448.00 | 2.05 | 100.0 \
| egress gpu0 | gpu0->gpu1 +55 busy 100% |

* collsim 0.1.0   topo mi300x_ubb8 (8 GPUs, 28 links)   calibrated: no
* profile ideal: raw line rates, no latency, no overhead
"""

DRAWN = (
    *("run", "--topo", "hgx_h100", "--nodes", "2", "--fabric", "fat_tree", "--network", "roce", "--profile", "ideal"),
    *("--gpus-per-node", "4"),
    *("--set", "scale_out.radix=8", "--op", "all_reduce", "--algo", "ring", "--size", "64K,1M"),
    *("--hash-seeds", "1-5"),
)
SPREAD = ("time_s", "time_min_s", "time_p95_s", "time_max_s", "hash_seed")
EXCHANGE = (*SMALL[:3], "--size", "1M", *SMALL[5:], "--op", "all_to_all", "--algo", "direct")


def test_table(collsim):
    assert collsim(*REDUCE).out == TABLE


def test_markdown(collsim):
    assert collsim(*EXCHANGE, "--format", "md").out == MARKDOWN


def test_nccl(collsim):
    assert collsim(*EXCHANGE, "--size", "100,1M", "--format", "nccl").out == NCCL


@pytest.mark.parametrize("sizes", ["1K", "64,1M", "64,64M", "1T", "8,1T"])
@pytest.mark.parametrize("op", ["all_reduce", "send_recv", "broadcast"])
def test_columns_line_up(collsim, op, sizes):
    """Every cell ends where its head ends, whatever the sizes."""
    arguments = ("run", "--topo", "mi300x_ubb8", "--op", op, "--size", sizes, "-q", "--channels", "1", "--chunk", "1G")
    algo = {"all_reduce": "all_pairs,one_shot", "send_recv": "all", "broadcast": "tree"}[op]
    lines = collsim(*arguments, "--algo", algo).out.splitlines()
    head = next(line for line in lines if line.startswith("#") and "algbw" in line)
    ends = [word.end() for word in re.finditer(r"\w+", head)][:11]
    rows = [line for line in lines if not line.startswith("#")]
    assert rows
    for row in rows:
        assert [word.end() for word in re.finditer(r"\S+", row)][:11] == ends
        assert row[: ends[0]].strip().isdigit()


def test_preamble_fits_a_wide_terminal(collsim):
    lines = collsim("run", "--topo", "mi400_ualoe72", "--op", "send_recv", "--size", "1M", "-q").out.splitlines()
    assert max(len(line) for line in lines if re.match("# [a-z]", line)) <= 120


NCCL_ROW = re.compile(
    r"^ *(?P<size>\d+) +(?P<count>\d+) +(?P<type>\w+) +(?P<redop>\w+) +(?P<root>-?\d+)"
    r" +(?P<time>[\d.]+) +(?P<algbw>[\d.]+) +(?P<busbw>[\d.]+) +(?P<wrong>\d+|N/A)"
    r" +(?P<time2>[\d.]+) +(?P<algbw2>[\d.]+) +(?P<busbw2>[\d.]+) +(?P<wrong2>\d+|N/A)$"
)


def test_nccl_is_read_by_a_parser_of_its_logs():
    result = simulate("mi300x_ubb8", ["all_reduce", "all_gather", "broadcast"], ["8", "1M", "3M", "4G"], algo="ring")
    lines = render(result, "nccl").splitlines()
    found = [match.groupdict() for line in lines if (match := NCCL_ROW.match(line))]
    assert len(found) == sum(not line.startswith("#") for line in lines) == 12
    assert [row["size"] for row in found[4:8]] == ["0", "1048576", "3145728", "4294967296"]
    for row in found:
        assert (row["time"], row["algbw"], row["busbw"]) == (row["time2"], row["algbw2"], row["busbw2"])
        assert row["wrong"] == row["wrong2"] == "N/A"
        if row["size"] != "0":
            assert float(row["algbw"]) == pytest.approx(int(row["size"]) / float(row["time"]) / 1e3, rel=1e-2, abs=6e-3)
    averages = [float(line.split(":")[1]) for line in lines if line.startswith("# Avg bus bandwidth")]
    assert averages[0] == pytest.approx(sum(float(row["busbw"]) for row in found[:4]) / 4, abs=0.01)


def test_zero_byte_rows_appear_only_in_nccl(collsim):
    for form in sorted(set(FORMATS) - {"nccl"}):
        outcome = collsim(*SMALL[:-1], "--op", "all_to_all", "--size", "100,1M", "--format", form)
        assert "is left out at 100 bytes" in outcome.err
        if form == "json":  # its warning names the size
            assert [found["size_bytes"] for found in json.loads(outcome.out)["results"]] == [2**20]
        else:
            alone = collsim(*SMALL[:-1], "--op", "all_to_all", "--size", "1M", "--format", form)
            assert outcome.out == alone.out


def no_constant(name):
    raise AssertionError(name)


@pytest.mark.parametrize(
    "arguments",
    [
        EXCHANGE,
        REDUCE,
        (*SMALL, "--op", "all_gather,reduce_scatter,broadcast,reduce,send_recv", "--ranks", "2,5,8", "--algo", "all"),
        (*SMALL[:5], "--op", "broadcast", "--root", "3", "--channels", "2", "--chunk", "64K", "-d", "bf16"),
        (*SMALL, "--op", "all_reduce", "--rank-list", "6,1,3", "--set", "link.bandwidth=80 GB/s", "--redop", "max"),
        ("run", "--topo", "hgx_h100", "--op", "all_to_all,all_gather", "--size", "3", "--size", "1M"),
        (*SMALL, "--op", "all_reduce", "--ranks", "4,8", "--split", "DIV 2", "--load", "link:gpu0->gpu1=30%"),
        DRAWN,
    ],
    ids=["exchange", "reduce", "many", "rooted", "what-if", "switched", "groups", "drawn"],
)
def test_json_follows_its_schema(collsim, arguments):
    text = collsim(*arguments, "--format", "json").out
    document = json.loads(text, parse_constant=no_constant)
    Draft202012Validator(schema("collsim.result/1")).validate(document)
    lines = collsim(*arguments, "--format", "jsonl").out.splitlines()
    rows = [json.loads(line, parse_constant=no_constant) for line in lines]
    for row in rows:
        Draft202012Validator(schema("collsim.row/1")).validate(row)
    assert [{key: row[key] for key in document["results"][0]} for row in rows] == document["results"]


def test_json_of_a_matrix_follows_its_schema(collsim, tmp_path):
    file = tmp_path / "bytes.txt"
    file.write_text("0 1M\n64K 0\n")
    outcome = collsim("run", "--topo", "hgx_h100", "--op", "alltoallv", "--matrix", file, "--format", "json")
    document = json.loads(outcome.out)
    Draft202012Validator(schema("collsim.result/1")).validate(document)
    assert document["config"]["matrix_bytes"] == [[0, 2**20], [2**16, 0]]
    assert document["config"]["size"] is None


@pytest.mark.parametrize("name", ["result", "row", "config", "validate", "calibrate"])
def test_schema_is_strict_and_explains_every_field(name):
    document = schema(f"collsim.{name}/1")
    Draft202012Validator.check_schema(document)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    def visit(node):
        if isinstance(node, list):
            for entry in node:
                visit(entry)
        elif isinstance(node, dict):
            if node.get("type") == "object" and "properties" in node:
                assert node["additionalProperties"] is False
                for field in node["properties"].values():
                    assert {"description", "$ref", "const", "properties", "items"} & set(field), field
            for entry in node.values():
                visit(entry)

    visit(document)


def test_schema_refuses_what_is_not_in_it(collsim):
    document = json.loads(collsim(*EXCHANGE, "--format", "json").out)
    validator = Draft202012Validator(schema())
    for change in ({"extra": 1}, {"op": "all_to_none"}, {"busbw_Bps": None}):
        broken = {**document, "results": [{**document["results"][0], **change}]}
        assert not validator.is_valid(broken)
    assert not validator.is_valid({**document, "warning": []})
    with pytest.raises(UnknownNameError, match="did you mean"):
        schema("collsim.results/1")


def test_csv_is_one_table_of_si_figures(collsim):
    text = collsim(*REDUCE, "--format", "csv", "--set", "link.bandwidth=80 GB/s").out
    rows = list(csv.DictReader(io.StringIO(text)))
    document = json.loads(collsim(*REDUCE, "--format", "json", "--set", "link.bandwidth=80 GB/s").out)
    assert len(rows) == 4
    for row, expected in zip(rows, document["results"], strict=True):
        assert float(row["time_s"]) == expected["time_s"]
        assert (row["topology"], row["profile"], row["calibrated"]) == ("mi300x_ubb8", "ideal", "false")
        assert row["overrides"] == "link.bandwidth=80 GB/s"
        assert row["bottleneck_link"] == expected["bottleneck"][0]["link"]
        assert float(row["critical_links_s"]) == expected["critical_s"]["links"]
        assert row["time_lo_s"] == ""
        assert None not in row.values()


@pytest.mark.parametrize(("suffix", "start"), [
    (".csv", "topology,"), (".json", "{\n"), (".jsonl", '{"schema": "collsim.row/1"'), (".md", "| op "),
    (".log", "# collsim"), (".txt", "# collsim"), (".JSON", "{\n"), ("", "# collsim"),
])  # fmt: skip
def test_suffix_chooses_the_format(collsim, tmp_path, suffix, start):
    file = tmp_path / f"result{suffix}"
    outcome = collsim(*EXCHANGE, "-o", file)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert file.read_text().startswith(start)
    assert list(tmp_path.iterdir()) == [file]


def test_format_of_a_file_without_a_telling_suffix_and_a_file_is_replaced_whole(collsim, tmp_path):
    file = tmp_path / "result.out"
    file.write_text("old")
    file.chmod(0o640)
    collsim(*EXCHANGE, "-o", file, "--format", "csv")
    assert file.read_text().startswith("topology,")
    assert file.stat().st_mode & 0o777 == 0o640


def test_output_through_a_link_and_to_a_device(collsim, tmp_path):
    link, file = tmp_path / "link.csv", tmp_path / "real.csv"
    file.write_text("")
    link.symlink_to(file)
    collsim(*EXCHANGE, "-o", link)
    assert link.is_symlink()
    assert file.read_text().startswith("topology,")
    assert collsim(*EXCHANGE, "-o", "/dev/null").code == 0
    assert collsim(*EXCHANGE, "-o", "-").out.startswith("# collsim")


def test_failed_run_leaves_the_old_file(collsim, tmp_path):
    file = tmp_path / "result.json"
    file.write_text("old")
    assert collsim(*EXCHANGE, "--algo", "x", "-o", file).code == 2
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


# --- Intervals --------------------------------------------------------------------------------------------------------

MIXED = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "64K,64M", "--algo", "auto,ring", "-q")
"""A row with an interval and one without at each size."""


def ends_us(row):
    return [f"{end * 1e6:.2f}" for end in (row.time_lo_s, row.time_hi_s)]


def test_intervals_in_every_format(collsim):
    rows = simulate("hgx_h100", "all_reduce", ["64K", "64M"], algo=["auto", "ring"]).rows
    assert [row.time_lo_s is None for row in rows] == [False, True] * 2
    found = list(csv.DictReader(io.StringIO(collsim(*MIXED, "--format", "csv").out)))
    for line, row in zip(found, rows, strict=True):
        ends = ("", "") if row.time_lo_s is None else (str(row.time_lo_s), str(row.time_hi_s))
        assert (line["time_lo_s"], line["time_hi_s"]) == ends
    document = json.loads(collsim(*MIXED, "--format", "json").out)
    Draft202012Validator(schema("collsim.result/1")).validate(document)
    assert [(row["time_lo_s"], row["time_hi_s"]) for row in document["results"]] == [
        (row.time_lo_s, row.time_hi_s) for row in rows
    ]
    cells = [line.split(" | ") for line in collsim(*MIXED, "--format", "md").out.splitlines() if "all_reduce |" in line]
    for line, row in zip(cells, rows, strict=True):
        assert [cell.strip() for cell in line[10:12]] == (["", ""] if row.time_lo_s is None else ends_us(row))


def test_draws_in_every_format(collsim):
    result = simulate(
        load_topology(
            "hgx_h100", scale_out={"nodes": 2, "gpus_per_node": 4, "fabric": "fat_tree", "network": "roce", "radix": 8}
        ),
        *("all_reduce", ["64K", "1M"]),
        algo="ring",
        profile="ideal",
        hash_seeds="1-5",
    )
    cells = [[time_text(t) for t in (r.time_s, r.time_min_s, r.time_p95_s, r.time_max_s)] for r in result]
    said = "time: median of 5 draws of the ECMP hash, seeds 1-5"
    for form, start in (("table", 6), ("md", 8)):
        out = collsim(*DRAWN, "--format", form).out
        lines = [line.replace("|", "").split() for line in out.splitlines() if re.match(r"\| all_reduce| +\d", line)]
        assert [line[start : start + 4] for line in lines] == cells
        assert said in out
    nccl = collsim(*DRAWN, "--format", "nccl").out
    assert said in nccl
    for row, (median, low, high, most) in zip(result, cells, strict=True):
        assert f"# {row.size_bytes} B: min {low}, p95 {high}, max {most} us\n" in nccl
        assert re.search(rf"^ +{row.size_bytes} .* -1 +{median} ", nccl, re.MULTILINE)
    found = list(csv.DictReader(io.StringIO(collsim(*DRAWN, "--format", "csv").out)))
    spread = [{name: str(getattr(row, name)) for name in SPREAD} for row in result]
    assert [{name: line[name] for name in SPREAD} for line in found] == spread
    document = json.loads(collsim(*DRAWN, "--format", "json").out)
    assert [row["draw_times_s"] for row in document["results"]] == [list(row.draw_times_s) for row in result]
    assert document["config"]["hash_seeds"] == "1-5"


def test_columns_of_intervals_line_up(collsim):
    lines = collsim(*MIXED).out.splitlines()
    head = next(line for line in lines if line.startswith("#") and "algbw" in line)
    ends = {word[0]: word.end() for word in re.finditer(r"\w+", head)}
    rows = [line for line in lines if not line.startswith("#")]
    assert len(rows) == 4
    for row, expected in zip(
        rows, simulate("hgx_h100", "all_reduce", ["64K", "64M"], algo=["auto", "ring"]), strict=True
    ):
        low, high = (row[: ends[name]].split(" ")[-1] for name in ("low", "high"))
        assert [low, high] == (["", ""] if expected.time_lo_s is None else ends_us(expected))
    assert any(line.startswith("# low to high: 90 % of measured times lie there") for line in lines)


def test_no_interval_no_columns(collsim):
    out = collsim(*MIXED, "--algo", "ring").out
    assert "low" not in out.partition("busbw")[0].rpartition("\n")[2]
    assert "low to high" not in out


def test_groups_are_blocks_of_their_own_with_a_total(collsim):
    """MI300X: pairs have 64 GB/s of their own; four of them 256 in total."""
    flags = [*SMALL, "--op", "send_recv", "--ranks", "4,8", "--size", "1G", "--algo", "neighbour"]
    flags += ["--split", "DIV 2", "--load", "link:gpu0-gpu7=30%"]
    table = collsim(*flags).out
    assert "# background traffic, taken off the rate of the links: link:gpu0-gpu7=30%\n" in table
    for groups in (2, 4):
        block = table.partition(f"groups {groups} x 2 ranks (DIV 2)")[2]
        row = next(line for line in block.splitlines() if line.startswith(" 1073741824"))
        assert row.split()[7:10] == ["64.00", "64.00", f"{64 * groups}.00"]
    assert "# send_recv on 4 groups of 2 ranks, algorithm neighbour" in collsim(*flags, "--format", "nccl").out
    assert "| send_recv | 4 x 2 | 1073741824 |" in collsim(*flags, "--format", "md").out
    values = list(csv.DictReader(collsim(*flags, "--format", "csv").out.splitlines()))[1]
    assert (values["groups"], float(values["total_busbw_Bps"])) == ("4", pytest.approx(256e9))
    rows = [json.loads(line) for line in collsim(*flags, "--format", "jsonl").out.splitlines()]
    assert [group["gpus"] for group in rows[1]["group_times"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_one_group_shows_neither_groups_nor_a_total(collsim):
    table = collsim(*EXCHANGE).out
    assert "groups" not in table
    assert "total" not in table
