"""Answers in part: what can be had is printed, what is refused stands as a row with the reason, exit code 4."""

import csv
import io
import json

import pytest
from jsonschema import Draft202012Validator

from collsim.report import schema

CUT = [part for peer in range(7) for part in ("--fail", f"link:gpu7-gpu{peer}")]
SIZES = ("run", "--topo", "mi355x_ubb8", "--op", "all_reduce", "--size", "1M,1T,2M", "--algo", "ring", "-q")
RANKS = (
    "run",
    "--topo",
    "mi355x_ubb8",
    "--op",
    "broadcast",
    "--size",
    "1M",
    "--ranks",
    "4,8",
    "--profile",
    "ideal",
    "-q",
)
EXPERTS = ("moe", "--topo", "hgx_h100", "--ep", "2,3,8", "--tokens", "64", "--load-only", "-q")


def document_of(collsim, name, *arguments):
    found = collsim(*arguments, "--format", "json")
    document = json.loads(found.out)
    Draft202012Validator(schema(f"collsim.{name}/1")).validate(document)
    assert found.code == 4
    return document


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_refused_size_is_a_row_in_its_place(collsim, form):
    found = collsim(*SIZES, "--format", form)
    assert found.code == 4
    rows = [line.replace("|", " ").split() for line in found.out.splitlines() if line[:1] in " |1"]
    rows = [row for row in rows if any(cell.isdigit() and int(cell) >= 2**20 for cell in row)]
    assert [("refused" in row, str(2**40) in row) for row in rows] == [(False, False), (False, False), (True, True)]
    assert " ".join(rows[-1]).endswith("are too many to simulate")
    assert "error: ring is refused for all_reduce of 8 ranks at 1 TiB: " in found.err


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (SIZES, [("1048576", ""), ("2097152", ""), (str(2**40), "are too many to simulate")]),
        ((*RANKS, *CUT), [("1048576", ""), ("1048576", "are cut off from each other by the loss of")]),
        (EXPERTS, [*[("", "")] * 4, ("", "256 experts do not spread evenly over 3 ranks")]),
    ],
)  # fmt: skip
def test_what_is_refused_is_a_line_of_the_sheet_with_its_reason(collsim, call, told):
    found = collsim(*call, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(found.out)))
    assert found.code == 4
    assert len(rows) == len(told)
    for row, (size, why) in zip(rows, told, strict=True):
        assert row.get("requested_bytes", "") == size
        assert (why in row["refused"]) if why else not row["refused"]
        assert bool(row["time_s"]) != bool(why)


def test_ranks_that_are_cut_off_cost_the_others_nothing(collsim):
    document = document_of(collsim, "result", *RANKS, *CUT)
    assert [row["ranks"] for row in document["results"]] == [4]
    ((ranks, what),) = {(each["ranks"], each["what"]) for each in document["refused"]}
    assert ranks == 8
    assert "are cut off from each other by the loss of" in what
    alone = collsim(*RANKS[:8], "8", *RANKS[9:], *CUT)
    assert (alone.code, alone.out) == (3, "")  # nothing is left to answer


def test_experts_that_do_not_spread_over_some_ranks(collsim):
    document = document_of(collsim, "moe", *EXPERTS)
    assert [row["ranks"] for row in document["results"]] == [2, 2, 8, 8]
    (refused,) = document["refused"]
    assert (refused["ranks"], refused["what"]) == (3, "256 experts do not spread evenly over 3 ranks")
    table = collsim(*EXPERTS)
    (row,) = [line for line in table.out.splitlines() if "refused" in line]
    assert row.split()[:2] == ["3", "refused"]
    assert row.endswith(refused["what"])
    assert f"error: 3 ranks: {refused['what']}\n  hint: " in table.err
    alone = collsim(*EXPERTS[:4], "3", *EXPERTS[5:])
    assert (alone.code, alone.out) == (2, "")


def test_systems_with_too_few_gpus(collsim):
    both = ("moe", "--topo", "hgx_h100", "--nodes", "2", "--ep", "16", "--compare", "hgx_b200,scale_out.nodes=1",
            "--tokens", "64", "--load-only", "-q")  # fmt: skip
    document = document_of(collsim, "moe_compare", *both)
    (refused,) = document["refused"]
    assert (refused["system"], refused["ranks"]) == ("hgx_b200, scale_out.nodes=1", 16)
    assert refused["what"] == "8 GPUs are too few"


def test_rows_of_a_log_that_the_model_cannot_answer(collsim, tmp_path):
    log = tmp_path / "all_to_all.log"
    log.write_text(
        "# op=all_to_all ranks=8\n28 7 float none -1 9.00 0.00 0.00 0\n"
        "1048576 32768 float none -1 30.00 34.95 30.58 0\n"
    )
    document = document_of(collsim, "validate", "validate", log, "--topo", "hgx_h100", "-q")
    assert [row["size_bytes"] for row in document["rows"]] == [2**20]
    assert [(each["size_bytes"], each["measured_s"]) for each in document["refused"]] == [(28, 9e-6)]
    assert document["summary"]["refused"] == 1
    table = collsim("validate", log, "--topo", "hgx_h100", "-q")
    (row,) = [line for line in table.out.splitlines() if " refused " in line and line[0] != "#"]
    assert row.split()[:3] == ["28", "9.00", "refused"]
    strict = collsim("validate", log, "--topo", "hgx_h100", "-q", "--strict")
    outside = any(row["verdict"] != "inside" for row in document["rows"])
    assert strict.code == (1 if outside else 4)  # a check that failed says more
