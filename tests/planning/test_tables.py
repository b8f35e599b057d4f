"""Tables for serving planners: columns and units of the measured ones, values of the predictions."""

import csv
import io

import pytest

import collsim
from collsim.core.errors import InputError

NCCL = [
    "framework",
    "version",
    "device",
    "op_name",
    "kernel_source",
    "nccl_dtype",
    "num_gpus",
    "message_size",
    "latency",
]
NORMAL = [
    "framework", "version", "device", "op_name", "kernel_source", "node_num", "hidden_size", "num_token", "num_topk",
    "num_experts", "dispatch_sms", "dispatch_transmit_us", "dispatch_notify_us", "combine_sms", "combine_transmit_us",
    "combine_notify_us",
]  # fmt: skip


def test_nccl_columns_and_units(invoke):
    found = invoke("tables", "--topo", "hgx_h100", "--ranks", "4,8", "--elements", "1024,1048576", "-d", "half,int8")
    rows = list(csv.DictReader(io.StringIO(found.out)))
    assert list(rows[0]) == NCCL
    assert len(rows) == 2 * 4 * 2 * 2
    for row in rows[::5]:
        op = {"alltoall": "all_to_all"}.get(row["op_name"], row["op_name"])
        width = {"half": 2, "int8": 1}[row["nccl_dtype"]]
        size, ranks = int(row["message_size"]) * width, int(row["num_gpus"])
        alone = collsim.simulate("hgx_h100", op, size, ranks=ranks, dtype=row["nccl_dtype"])
        assert float(row["latency"]) == pytest.approx(alone.time_s * 1e3)  # ms


def test_deepep_columns_and_units():
    table = collsim.planner_table("hgx_h100", "deepep", tokens=[128], sms=[20], nodes=[1, 2])
    assert [list(row) for row in table.to_records()] == [NORMAL, NORMAL]
    for row in table.rows:
        nodes = row["node_num"] if row["node_num"] > 1 else None
        asked = {"nodes": nodes, "tokens": 128, "sms": 20, "mode": "normal", "expert_groups": 1, "group_limit": 1}
        dispatch, combine = collsim.simulate_moe("hgx_h100", **asked).rows
        assert row["dispatch_transmit_us"] == pytest.approx(dispatch.time_s * 1e6)
        assert row["dispatch_notify_us"] == pytest.approx(dispatch.prepare_s * 1e6)
        assert row["combine_transmit_us"] == pytest.approx(combine.time_s * 1e6)
        assert (row["dispatch_sms"], row["num_topk"], row["num_experts"], row["hidden_size"]) == (20, 8, 256, 7168)


def test_bandwidth_of_low_latency_is_that_of_the_layout():
    (row,) = collsim.planner_table("hgx_h100", "deepep_ll", tokens=[64]).rows
    combined = 64 * 8 * 7168 * 2  # tokens, experts each, BF16
    assert row["combine_bandwidth_gbps"] == pytest.approx(combined / row["combine_avg_t_us"] / 1e3, rel=1e-3)


def test_numbers_of_gpus_by_default():
    table = collsim.planner_table("mi355x_ubb8", op=["all_reduce"], dtype=["half"], elements=[1024])
    assert [row["num_gpus"] for row in table.rows] == [2, 4, 8]
    assert {(row["device"], row["kernel_source"]) for row in table.rows} == {("Instinct MI355X", "RCCL")}


def test_a_file_of_a_cluster_keeps_its_nodes(tmp_path):
    """Two nodes of eight by its own account, unless another number is asked for; of a table that names their number."""
    file = tmp_path / "two.yaml"
    file.write_text("schema: collsim.topology/1\nname: two\nextends: hgx_h100\nscale_out: {nodes: 2}\n")
    asked = {"op": ["all_reduce"], "dtype": ["half"], "elements": [1 << 20]}
    (row,) = collsim.planner_table(str(file), ranks=[16], **asked).rows
    assert row["latency"] == pytest.approx(
        collsim.simulate(str(file), "all_reduce", 2 << 20, dtype="half").time_s * 1e3
    )
    (more,) = collsim.planner_table(str(file), ranks=[32], nodes=[4], **asked).rows
    four = collsim.simulate("hgx_h100", "all_reduce", 2 << 20, nodes=4, dtype="half")
    assert more["latency"] == pytest.approx(four.time_s * 1e3)


def test_counts_by_default_are_powers_of_two():
    """Of tokens from 1 to 131072 (normal) and to 1024 (low latency), of elements from 256 to half a billion."""
    from collsim.planning.tables import ELEMENTS, TOKENS

    assert [*TOKENS["deepep"]] == [2**power for power in range(18)]
    assert [*TOKENS["deepep_ll"]] == [2**power for power in range(11)]
    assert [*ELEMENTS] == [2**power for power in range(8, 30)]


def test_parquet_holds_the_same(invoke, tmp_path):
    import polars

    asked = ("tables", "--topo", "hgx_b200", "--ranks", "8", "--elements", "1024,4096", "--op", "all_reduce")
    invoke(*asked, "-o", tmp_path / "nccl_perf.parquet")
    text = invoke(*asked).out
    assert (
        polars.read_parquet(tmp_path / "nccl_perf.parquet").write_csv()
        == polars.read_csv(io.StringIO(text)).with_columns(polars.col("version").cast(polars.String)).write_csv()
    )


def test_what_has_no_answer_is_told_and_the_rest_is_there(invoke):
    found = invoke(
        "tables", "--topo", "hgx_h100", "--ranks", "8,16", "--elements", "64", "--op", "all_reduce", "-d", "half"
    )
    assert found.code == 4
    assert len(found.out.splitlines()) == 2
    assert "16 ranks on 8 GPUs" in found.err


def test_every_fault_at_once(invoke):
    found = invoke("tables", "--topo", "hgx_h10", "--kind", "ncl", "--op", "broadcast", "--ranks", "0", "-o", "a.xls")
    assert found.code == 2
    for part in ('"hgx_h100"', 'did you mean "nccl"', "no broadcast", "0 is no count", ".parquet"):
        assert part in found.err
    with pytest.raises(InputError, match="unknown data type"):
        collsim.planner_table("hgx_h100", dtype=["hlf"])


def test_what_a_kind_does_not_have_and_ranks_that_cannot_be_are_told_at_once():
    with pytest.raises(InputError) as refused:
        collsim.planner_table("hgx_h100", dtype=["quux"], ranks=[0, 1], elements=[True], tokens=[5], model=["foo"])
    assert [fault.where for fault in refused.value.faults] == [
        "model", "tokens", "dtype", "model", "elements", "ranks", "ranks",
    ]  # fmt: skip
    with pytest.raises(InputError, match="4 ranks do not reach 2 nodes"):  # rows of two nodes would be of one
        collsim.planner_table("hgx_h100", "deepep_ll", tokens=[128], nodes=[1, 2], ranks=[4])


def test_values_that_are_told_twice_are_one_row():
    table = collsim.planner_table("hgx_h100", op="all_reduce", dtype="half", elements=[256, 256], ranks=[8, 8])
    assert len(table.rows) == 1


def test_no_kernel_runs_on_more_multiprocessors_than_the_gpu_has(invoke):
    """An H100 has 132: what fewer ask for is answered, and alone the number is a fault of the request."""
    asked = ("tables", "--topo", "hgx_h100", "--kind", "deepep", "--tokens", "128", "--sms")
    found = invoke(*asked, "24,133")
    assert (found.code, len(found.out.splitlines())) == (4, 2)
    assert "133 SMs: 133 SMs, H100 SXM5 has 132 (give 1 to 132)" in found.err
    refused = invoke(*asked, "133")
    assert (refused.code, refused.out) == (2, "")
    assert "--sms: 133 SMs, H100 SXM5 has 132" in refused.err
    assert invoke(*asked, "132").code == 0
    assert invoke("moe", "--topo", "hgx_h100", "--model", "deepseek-v3", "--sms", "133").code == 2
