"""Forty wrong calls from Python and forty on the command line: each names the argument or flag, and what is right."""

import pytest

import collsim as library
from collsim.core.errors import CollsimError

from .conftest import ROOT

LOG = str(ROOT / "examples" / "h100_all_reduce.log")
STEP = str(ROOT / "examples" / "training_step.yaml")
RUN = ("hgx_h100", "all_reduce", "1M")
ALL_PAIRS = (("hgx_h100", "hgx_b200"), "all_reduce", "1M")
PYTHON = (
    ("simulate", ("hgx_h10", "all_reduce"), {}, "topo", 'did you mean "hgx_h100"?'),
    ("simulate", ("hgx_h100", "all_reduc"), {}, "op", 'did you mean "all_reduce"?'),
    ("simulate", ("hgx_h100", "all_reduce", "64MB"), {}, "size", "write 64MiB"),
    ("simulate", ("hgx_h100", "all_reduce", "64Q"), {}, "size", '"64M" (64 MiB)'),
    ("simulate", ("hgx_h100", "all_reduce", []), {}, "size", "such as 64M"),
    ("simulate", RUN[:2], {"min_bytes": "2M", "max_bytes": "1M"}, "max_bytes", "swap min_bytes and max_bytes"),
    ("simulate", RUN[:2], {"min_bytes": "1M", "step_factor": 0.5}, "step_factor", "a factor above 1, such as 2"),
    ("simulate", RUN, {"max_bytes": "1M"}, "size", "give one of the two"),
    ("simulate", RUN, {"nodes": 0}, "nodes", "1 or more"),
    ("simulate", RUN, {"nodes": 2, "gpus_per_node": 9}, "gpus_per_node", "at most 8"),
    ("simulate", RUN, {"nodes": 2, "racks": 3}, "racks", "one of 1, 2"),
    ("simulate", RUN, {"nodes": 2, "fabric": "rails"}, "fabric", 'did you mean "rail"?'),
    ("simulate", RUN, {"nodes": 2, "network": "infinband"}, "network", 'did you mean "infiniband"?'),
    ("simulate", RUN, {"fabric": "rail"}, "nodes", "give nodes=16"),
    ("simulate", RUN, {"ranks": 9}, "ranks", "takes 2 to 8"),
    ("simulate", RUN, {"rank_list": [0, 8]}, "rank_list", "GPUs 0 to 7"),
    ("simulate", RUN, {"algo": "rign"}, "algo", 'did you mean "ring"?'),
    ("simulate", RUN, {"channels": 0}, "channels", "between 1 and 128"),
    ("simulate", RUN, {"chunk": "4KB"}, "chunk", "write 4KiB"),
    ("simulate", RUN, {"dtype": "flot"}, "dtype", 'did you mean "float"?'),
    ("simulate", RUN, {"redop": "sun"}, "redop", 'did you mean "sum"?'),
    ("simulate", ("hgx_h100", "broadcast"), {"root": 8}, "root", "0 to 7"),
    ("simulate", RUN, {"profile": "hgx_h10"}, "profile", 'did you mean "hgx_h100"?'),
    ("simulate", RUN, {"proto": "LL12"}, "proto", 'did you mean "LL128"?'),
    ("simulate", RUN, {"library": "nxcl-2.28"}, "library", "nccl-2.28"),
    ("simulate", RUN, {"environment": {"NCCL_ALG": "Ring"}}, "environment", 'did you mean "NCCL_ALGO"?'),
    ("simulate", RUN, {"environment": {"NCCL_ALGO": "Rign"}}, "environment", 'did you mean "ring"?'),
    ("simulate", RUN, {"launch": "graf"}, "launch", 'did you mean "graph"?'),
    ("simulate", RUN, {"registered": "yes"}, "registered", "pass True, False or"),
    ("simulate", RUN, {"split": "MODD 2"}, "split", '"MOD 8"'),
    ("simulate", RUN, {"groups": "tp=4,dp=2", "over": "ddp"}, "over", 'did you mean "dp"?'),
    ("simulate", RUN, {"over": "dp"}, "over", 'groups="tp=8,dp=16" over="dp"'),
    ("simulate", RUN, {"placement": "cylic"}, "placement", 'did you mean "cyclic"?'),
    ("simulate", RUN, {"overrides": {"link.bandwith": "1 GB/s"}}, "overrides", 'did you mean "link.bandwidth"?'),
    ("simulate", RUN, {"fail": "lnk:gpu0-nvsw0"}, "fail", 'did you mean "link:gpu0-nvsw0"'),
    ("simulate", RUN, {"degrade": {"link:gpu0-nvsw0": "0%"}}, "degrade", 'write fail="link:gpu0-nvsw0"'),
    ("simulate", RUN, {"node": 4}, "node", 'did you mean "nodes"?'),
    ("simulate", RUN, {"env": {}}, "env", 'did you mean "environment"?'),
    ("compare", (["hgx_h100", "hgx_b20"], "all_reduce"), {}, "topos", 'did you mean "hgx_b200"?'),
    ("compare", ALL_PAIRS, {"netwrk": "roce"}, "netwrk", 'did you mean "network"?'),
    ("simulate_moe", ("hgx_h100", "deepseek-v33"), {}, "model", 'did you mean "deepseek-v3"?'),
    ("simulate_moe", ("hgx_h100",), {"ep": 9}, "ep", "add nodes, or give 2 to 8"),
    ("simulate_moe", ("hgx_h100",), {"phase": "prefil"}, "phase", 'did you mean "prefill"?'),
    ("simulate_moe", ("hgx_h100",), {"top_kk": 4}, "top_kk", 'did you mean "top_k"?'),
    ("compare_moe", (["hgx_h100", "hgx_b20"],), {"ep": 8}, "topos", 'did you mean "hgx_b200"?'),
    ("simulate_timeline", ("x.json",), {"topology": "hgx_h100"}, "topology", 'did you mean "topo"?'),
    ("validate", (LOG, "hgx_h10"), {}, "topo", 'did you mean "hgx_h100"?'),
    ("validate", (LOG, "hgx_h100"), {"margn": 0.1}, "margn", 'did you mean "margin"?'),
    ("validate", (LOG, "hgx_h100"), {"rank_list": [0]}, "rank_list", "list 8 GPUs"),
    ("tune", ("hgx_h100", "all_reduce", "1M"), {"band": 2}, "band", "0.1 for 10 %"),
    ("load_topology", ("hgx_h10",), {}, "source", 'did you mean "hgx_h100"?'),
    ("calibrate", (LOG, "hgx_h100"), {"op": "all_reduc"}, "op", 'did you mean "all_reduce"?'),
)
ON = "run --topo hgx_h100 --op all_reduce --size 1M"
COMMANDS = (
    ("run --topo hgx_h10 --op all_reduce", "--topo", 'did you mean "hgx_h100"?'),
    ("run --topo hgx_h100 --op all_reduc", "--op", 'did you mean "all_reduce"?'),
    ("run --topo hgx_h100 --op all_reduce --size 64MB", "--size", "write 64MiB"),
    ("run --topo hgx_h100 --op all_reduce -b 2M -e 1M", "-e", "swap -b and -e"),
    ("run --topo hgx_h100 --op all_reduce -b 1M -f 0.5", "-f", "a factor above 1, such as 2"),
    (f"{ON} -e 1M", "--size", "give one of the two"),
    (f"{ON} --nodes 0", "--nodes", "1 or more"),
    (f"{ON} --nodes 4 --oversubscription 2", "", '"--set scale_out.oversubscription=VALUE"?'),
    (f"{ON} --set nodes=4", "--set nodes", 'did you mean "scale_out.nodes"?'),
    (f"{ON} --nodes 2 --gpus-per-node 9", "--gpus-per-node", "at most 8"),
    (f"{ON} --nodes 2 --racks 3", "--racks", "one of 1, 2"),
    (f"{ON} --nodes 2 --fabric rails", "--fabric", 'did you mean "rail"?'),
    (f"{ON} --nodes 2 --network infinband", "--network", 'did you mean "infiniband"?'),
    (f"{ON} --fabric rail", "--nodes", "give --nodes 16"),
    (f"{ON} --ranks 9", "--ranks", "takes 2 to 8"),
    (f"{ON} --ranks 8,x", "--ranks", "2,4,8"),
    (f"{ON} --rank-list 0,8", "--rank-list", "GPUs 0 to 7"),
    (f"{ON} --rank-list 3-1", "--rank-list", "write 1-3"),
    (f"{ON} --algo rign", "--algo", 'did you mean "ring"?'),
    (f"{ON} --channels 0", "--channels", "between 1 and 128"),
    (f"{ON} --channels two", "--channels", "such as 8"),
    (f"{ON} --chunk 4KB", "--chunk", "write 4KiB"),
    (f"{ON} -d flot", "-d", 'did you mean "float"?'),
    (f"{ON} --redop sun", "--redop", 'did you mean "sum"?'),
    ("run --topo hgx_h100 --op broadcast -r 8", "-r", "0 to 7"),
    (f"{ON} --profile hgx_h10", "--profile", 'did you mean "hgx_h100"?'),
    (f"{ON} --proto LL12", "--proto", 'did you mean "LL128"?'),
    (f"{ON} --library nxcl-2.28", "--library", "nccl-2.28"),
    (f"{ON} --env NCCL_ALG=Ring", "--env", 'did you mean "NCCL_ALGO"?'),
    (f"{ON} --env NCCL_ALGO=Rign", "--env", 'did you mean "ring"?'),
    (f"{ON} --launch graf", "--launch", 'did you mean "graph"?'),
    (f"{ON} --groups tp=4,dp=2 --over ddp", "--over", 'did you mean "dp"?'),
    (f"{ON} --over dp", "--over", "write --groups tp=8,dp=16 --over dp"),
    (f"{ON} --placement cylic", "--placement", 'did you mean "cyclic"?'),
    (f"{ON} --set link.bandwith=1GB/s", "--set link.bandwith", 'did you mean "link.bandwidth"?'),
    (f"{ON} --set link.bandwidth=25", "--set link.bandwidth", '"25 GB/s"'),
    (f"{ON} --fail lnk:gpu0-nvsw0", "--fail", 'did you mean "link:gpu0-nvsw0"'),
    (f"{ON} --degrade link:gpu0-nvsw0=0%", "--degrade", 'write --fail "link:gpu0-nvsw0"'),
    (f"{ON} --format cvs", "--format", 'did you mean "csv"?'),
    (f"{ON} --node 2", "", 'did you mean "--nodes"?'),
    (f"{ON} --fabrics rail", "", 'did you mean "--fabric"?'),
    ("rn --topo hgx_h100", "", "--help lists what there is"),
    ("compare hgx_h100 hgx_b20 --op all_reduce", "TOPO", 'did you mean "hgx_b200"?'),
    ("moe --topo hgx_h100 --model deepseek-v33", "--model", 'did you mean "deepseek-v3"?'),
    ("moe --topo hgx_h100 --ep 9", "--ep", "add --nodes, or give 2 to 8"),
    ("moe --topo hgx_h100 --phase prefil", "--phase", 'did you mean "prefill"?'),
    (f"validate {LOG} --topo hgx_h10", "--topo", 'did you mean "hgx_h100"?'),
    (f"validate {LOG} --topo hgx_h100 --rank-list 0", "--rank-list", "list 8 GPUs"),
    (f"diagnose {LOG} --topo hgx_h100 --rank-list 0", "--rank-list", "list 8 GPUs"),
    (f"{ON} -o {'x' * 5000}", "-o", "check the path"),
    (f"{ON} -o /no/such/run.json", "-o", "make it, or write elsewhere"),
    (f"{ON} --save-config {'x' * 5000}", "--save-config", "check the path"),
    (f"compare hgx_h100 hgx_b200 --op all_reduce --workload {STEP}", "--op", "--nodes, --env, --compute-scale"),
    ("compare hgx_h100 hgx_b200 --workload no/such.yaml", "--workload", "give a trace or a workload"),
    ("run --config no/such.json", "", "check the path that --config names"),
    ("topo show hgx_h10", "NAME", 'did you mean "hgx_h100"?'),
    ("topo list --format jsn", "--format", 'did you mean "json"?'),
)


def test_there_are_forty_of_each():
    assert len(PYTHON) >= 40
    assert len(COMMANDS) >= 40


@pytest.mark.parametrize(("function", "given", "named", "where", "right"), PYTHON)
def test_from_python(function, given, named, where, right):
    with pytest.raises(CollsimError) as caught:
        getattr(library, function)(*given, **named)
    assert caught.value.exit_code == 2
    (fault,) = [fault for fault in caught.value.faults if fault.where.partition("[")[0] == where]
    assert right in fault.hint or right in fault.what
    assert "--" not in str(caught.value)
    assert str(fault) in str(caught.value)


@pytest.mark.parametrize(("command", "where", "right"), COMMANDS)
def test_on_the_command_line(collsim, command, where, right):
    found = collsim(*command.split())
    assert (found.code, found.out) == (2, "")
    assert f"error: {where}: " in found.err if where else "error: " in found.err
    assert right in found.err
    assert "Traceback" not in found.err
