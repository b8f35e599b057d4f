"""`collsim moe`: tables, machine formats, the picture, systems side by side, and faults at their place."""

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from jsonschema import Draft202012Validator

import collsim as collsim_of_python
from collsim.core.errors import InputError
from collsim.moe import compare_moe, simulate_moe
from collsim.report import schema
from collsim.report.moe import MOE_FORMATS

from .conftest import ROOT

SMALL = ("--experts", "32", "--topk", "4", "--hidden", "1024", "--layers", "10")
ONE = ("moe", "--topo", "hgx_h100", *SMALL, "--tokens", "64", "-q")
TWO = ("moe", "--topo", "hgx_h100", "--nodes", "2", *SMALL, "--tokens", "64", "-q")
SAMPLED = (*TWO, "--ep", "8,16", "--skew", "1.2", "--seeds", "0-2")
SVG = "{http://www.w3.org/2000/svg}"


def table(text):
    """Return the cells of each data line by (ranks, op)."""
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {(int(cells[0]), cells[2]): cells[3:] for cells in lines}


def test_table_says_what_was_asked_and_why(collsim):
    found = collsim(*SAMPLED)
    assert (found.code, found.err) == (0, "")
    for text in (
        "topo hgx_h100 (16 GPUs",
        "# model custom: 32 experts, 4 for each token; 1024 elements, dispatch fp8, combine bf16; 10 layers with",
        "# mode normal   tokens 64 per rank   routing Zipf 1.2, 3 samples   placement contiguous",
        "# kernels ",
        "# hot of 16 ranks: ",
        "with N nodes,",
        "(N-1)/N of them",
        "# time: the median of the samples",
    ):
        assert text in found.out, text
    assert max(map(len, found.out.splitlines())) <= 140
    rows = table(found.out)
    ops = ("dispatch", "combine", "sum")
    assert list(rows) == [*((8, op) for op in ops), (16, "prepare"), *((16, op) for op in ops)]
    for ranks in (8, 16):
        for place in range(5):  # time, least, most, load, bound
            parts = [float(rows[ranks, op][place]) for op in ops]
            before = 0.0 if place or ranks == 8 else float(rows[ranks, "prepare"][0])  # of time, over nodes
            if place not in (1, 2):  # the least of sums is not the sum of the least
                assert parts[2] == pytest.approx(parts[0] + parts[1] + before, abs=0.03)
        time, least, most, load, bound = map(float, rows[ranks, "dispatch"][:5])
        assert least <= time <= most
        assert bound < load <= time + 0.01


def test_table_sums_up_what_is_on_the_wire(collsim):
    rows = json.loads(collsim(*TWO, "--format", "json").out)["results"]
    line = next(line for line in collsim(*TWO).out.splitlines() if re.fullmatch(r"# +16 .* ms", line))
    node, network = (sum(row[f"{place}_bytes"] for row in rows) for place in ("node", "network"))
    assert f"{node / 1e3:.4g} kB" in line
    assert f"{network / 1e3:.4g} kB" in line
    assert f"{network / 64 / 1e3:.4g} kB" in line
    assert f"{network / 1e5:.4g} MB" in line  # ten layers
    assert line.endswith(f"{sum(row['time_s'] + row['prepare_s'] for row in rows) * 1e4:.4g} ms")
    dispatch = rows[0]  # of two nodes half of the logical bytes cross, with source, indices and weights beside them
    assert dispatch["network_bytes"] / dispatch["logical_bytes"] == pytest.approx(0.5 * 1104 / 1056)


def test_expected_loads_have_no_extremes_and_nobody_is_hot(collsim):
    text = collsim(*ONE).out
    assert "expected loads" in text
    assert "least" not in text
    assert "hot of" not in text
    assert len(table(text)[8, "sum"]) == 3


@pytest.mark.parametrize(
    ("mode", "told"), [("low-latency", "each of its experts"), ("all_to_all", "once for each rank it goes to")]
)
def test_other_modes(collsim, mode, told):
    text = collsim(*ONE, "--mode", mode).out
    assert f"mode {mode.replace('-', '_')}" in text
    assert told in text
    assert ("calls of the library, profile hgx_h100" in text) == (mode == "all_to_all")


def test_decode_has_its_usual_tokens_and_mode(collsim):
    text = collsim("moe", "--topo", "hgx_h100", "--phase", "decode", "-q").out
    assert "mode low_latency   tokens 128 per rank" in text


def test_tokens_of_each_rank(collsim):
    document = json.loads(collsim(*ONE, "--tokens", "32x6,8x2", "--format", "json").out)
    assert document["config"]["tokens"] == [32] * 6 + [8] * 2
    lines = collsim(*ONE, "--tokens", "32x6,8x2").out.splitlines()
    assert any("tokens 32x6,8x2" in line for line in lines)
    at = next(i for i, line in enumerate(lines) if "a token" in line)
    _, ranks, layer, unit, token, _, *_ = lines[at + 2].split()  # "#  8  205.6 kB  7.909 kB ..."
    assert (ranks, unit) == ("8", "kB")
    assert float(token) == pytest.approx(float(layer) / 26, rel=1e-3)  # six ranks with 32 tokens, two with 8


@pytest.mark.parametrize(
    "arguments",
    [ONE, SAMPLED, (*ONE, "--mode", "all-to-all"), (*ONE, "--load-only"), (*TWO, "--fail", "nic:n0.nic0"),
     (*ONE, "--tokens", "1x8", "--sigma", "1", "--expert-placement", "balanced", "--redundant", "8")],
)  # fmt: skip
def test_json_follows_its_schema(collsim, arguments):
    found = collsim(*arguments, "--format", "json")
    document = json.loads(found.out)
    check = Draft202012Validator(schema("collsim.moe/1"))
    check.validate(document)
    assert not check.is_valid({**document, "extra": 1})
    row = document["results"][0]
    assert not check.is_valid({**document, "results": [{**row, "time_s": "fast"}, *document["results"][1:]]})
    assert sum(row["node_sizes"]) == row["ranks"] == len(row["matrix_bytes"])


def test_csv_has_a_line_for_each_operation(collsim):
    rows = list(csv.DictReader(io.StringIO(collsim(*SAMPLED, "--format", "csv").out)))
    document = json.loads(collsim(*SAMPLED, "--format", "json").out)
    assert list(rows[0]) == [
        "topology", "model", "mode", "kernel", "kind", "routing", "expert_placement",
        "overrides", "fail", "degrade", "op", "ranks", "nodes", "experts",
        "time_s", "samples", "time_min_s", "time_max_s", "time_lo_s", "time_hi_s", "prepare_s", "load_s",
        "lower_bound_s",
        "logical_Bps", "node_Bps", "network_Bps", "logical_bytes", "node_bytes", "network_bytes", "imbalance",
        "limited_by", "limit_kind", "bottleneck_link", "bottleneck_utilisation", "seed", "path", "tolerance", "refused",
    ]  # fmt: skip
    assert [(row["op"], row["ranks"]) for row in rows] == [
        ("dispatch", "8"), ("combine", "8"), ("dispatch", "16"), ("combine", "16"),
    ]  # fmt: skip
    assert [float(row["time_s"]) for row in rows] == [row["time_s"] for row in document["results"]]
    assert rows[0]["samples"] == "3"


def test_markdown(collsim):
    lines = collsim(*SAMPLED, "--format", "md").out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:8]]
    assert {len(row) for row in cells} == {15}
    assert cells[0][3] == "time (us)"
    assert any(line.startswith("* logical: ") for line in lines)


def test_the_suffix_chooses_the_format(collsim, tmp_path):
    for suffix in ("csv", "json", "md"):
        file = tmp_path / f"out.{suffix}"
        assert collsim(*ONE, "-o", file).code == 0
        assert file.read_text() == collsim(*ONE, "--format", suffix).out
    assert set(MOE_FORMATS) == {"table", "csv", "json", "md"}


def test_warnings_go_to_stderr(collsim):
    call = tuple(part for part in ONE if part != "-q")
    assert "warning: times are what the busiest link" in collsim(*call, "--load-only").err
    document = json.loads(collsim(*call, "--load-only", "--format", "json").out)
    assert any("without a simulation" in told for told in document["warnings"])


def test_picture(collsim, tmp_path):
    file = tmp_path / "bytes.svg"
    found = collsim(
        *TWO, "--ep", "12", "--expert-placement", "round_robin", "--skew", "1", "--seeds", "0", "--svg", file
    )
    assert found.code == 0
    root = ElementTree.fromstring(file.read_text())
    shades = root.findall(f".//{SVG}path[@class='c']")
    assert sum(path.get("d").count("M") for path in shades) == 12 * 12
    assert len({path.get("fill") for path in shades}) == len(shades) > 3
    assert len(root.findall(f".//{SVG}path[@class='n']")) == 1  # eight ranks, then four
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for told in ("from rank", "to rank", "0 B"):
        assert told in texts
    assert sum(text.endswith("kB") for text in texts) == 4
    legend = [text for text in root.iter(f"{SVG}text") if text.text.endswith("B")]
    falling = [text.text.split() for text in sorted(legend, key=lambda text: float(text.get("y")))]
    assert falling[-1] == ["0", "B"]
    assert [float(number) for number, _ in falling] == sorted((float(number) for number, _ in falling), reverse=True)
    assert "custom on 12 GPUs of hgx_h100" in texts[0]


def test_systems_side_by_side(collsim):
    call = (*TWO, "--ep", "8,16", "--compare", "hgx_b200,hgx_b200,scale_out.nodes=1", "--seeds", "0")
    text = collsim(*call).out
    assert "hgx_b200, scale_out.nodes=1" in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["8"] * 3 + ["16"] * 3
    assert lines[-1].endswith("8 GPUs are too few")
    document = json.loads(collsim(*call, "--format", "json").out)
    check = Draft202012Validator(schema("collsim.moe_compare/1"))
    check.validate(document)
    assert not check.is_valid({**document, "extra": 1})
    last = document["rows"][1]
    assert last["times_s"][2] is last["speedups"][2] is None
    assert last["speedups"][1] == pytest.approx(last["times_s"][0] / last["times_s"][1])
    records = list(csv.DictReader(io.StringIO(collsim(*call, "--format", "csv").out)))
    assert [bool(record["refused"]) for record in records] == [False] * 10 + [True]
    alone = json.loads(collsim(*TWO, "--ep", "8,16", "--seeds", "0", "--format", "json").out)
    assert document["systems"][0]["result"]["results"] == alone["results"]
    assert len(collsim(*call, "--format", "md").out.splitlines()[2:8]) == 6


def test_a_list_that_begins_with_a_change_is_refused(collsim):
    told = collsim(*TWO, "--ep", "8", "--compare", "scale_out.nodes=1,hgx_b200")
    assert told.code == 2
    assert 'error: --compare: unknown topology "scale_out.nodes=1"' in told.err


def test_compared_systems_take_as_many_ranks_as_the_first_has_tokens_for(collsim):
    call = (*ONE, "--nodes", "2", "--tokens", "8x8", "--compare", "hgx_b200")
    assert json.loads(collsim(*call, "--format", "json").out)["rows"][0]["ranks"] == 8


def test_compare_from_python():
    comparison = compare_moe(
        ["hgx_h100", "hgx_b200"], None, ep=8, tokens=64, experts=32, top_k=4, hidden=1024, skew=1.2
    )
    alone = simulate_moe("hgx_b200", None, ep=8, tokens=64, experts=32, top_k=4, hidden=1024, skew=1.2)
    assert comparison.systems[1].result == alone
    assert comparison.times_s(8)[1] == alone.time_s
    with pytest.raises(InputError, match="no number of ranks"):
        compare_moe(["hgx_h100", "hgx_b200"], ep=[])
    with pytest.raises(TypeError, match="expert_count"):
        compare_moe(["hgx_h100", "hgx_b200"], expert_count=3)


def test_a_system_with_room_for_nothing(collsim):
    document = json.loads(
        collsim(*TWO, "--ep", "16", "--compare", "hgx_b200,scale_out.nodes=1", "--format", "json").out
    )
    assert document["systems"][1]["result"] is None
    assert document["rows"][0]["speedups"] == [1.0, None]


def test_a_changed_model_says_so(collsim):
    text = collsim("moe", "--topo", "hgx_h100", "--model", "mixtral-8x7b", "--hidden", "512", "-q").out
    assert "# model mixtral-8x7b (changed): 8 experts, 2 for each token; 512 elements" in text


@pytest.mark.parametrize("function", [simulate_moe, lambda topo, *model, **asked: compare_moe([topo], *model, **asked)])
def test_figures_without_a_model_are_one_of_its_own_in_python_as_on_the_command_line(collsim, function):
    asked = collsim("moe", "--topo", "hgx_h100", "--topk", "4", "--load-only")
    with pytest.raises(InputError) as found:
        function("hgx_h100", top_k=4, load_only=True)
    told = [fault.replace("--", "") for fault in asked.err.replace("error: ", "").splitlines()]
    assert (asked.code, str(found.value).splitlines()) == (2, told)
    usual = function("hgx_h100", layers=3, load_only=True).to_dict()
    assert usual == function("hgx_h100", "deepseek-v3", layers=3, load_only=True).to_dict()


def test_starting_imports_no_experts():
    code = "import sys, collsim.cli; print(*(name for name in sys.modules if name.startswith('collsim.moe')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.split() == []


def test_models_and_kernels(collsim):
    assert "deepseek-v3           256     8   7168" in collsim("moe", "--list-models").out
    assert "\ndefault " in collsim("moe", "--list-kernels").out


def test_every_fault_at_once(collsim, tmp_path):
    found = collsim(
        "moe", "--topo", "hgx_h10", "--model", "deepsek-v3", "--experts", "0", "--skew", "-1", "--sigma", "2",
        "--mode", "low-latenci", "--phase", "prefil", "--kernel", "defaul", "--expert-placement", "ballanced",
        "--redundant", "-1", "--ep", "8,1", "--tokens", "4x0", "--seeds", "1,x", "--sms", "0", "--tolerance", "2",
        "--counts", tmp_path / "none", "--profile", "hgx_h10", "--compare", "hgx_b20", "--format", "nccl",
        "-o", tmp_path / "no" / "x.csv",
    )  # fmt: skip
    assert (found.code, found.out) == (2, "")
    assert "Traceback" not in found.err
    for text in (
        '--topo: unknown topology "hgx_h10"\n  hint: did you mean "hgx_h100"?',
        '--model: unknown model "deepsek-v3"\n  hint: did you mean "deepseek-v3"?',
        "--experts: 0 is less than 1",
        "--skew: -1.0 is not between 0 and 10",
        "--skew: skew and sigma and counts are given together\n  hint: give one of them",
        '--mode: unknown mode "low_latenci"\n  hint: did you mean "low_latency"?',
        '--phase: unknown phase "prefil"\n  hint: did you mean "prefill"?',
        '--kernel: unknown kernel "defaul"\n  hint: did you mean "default"?',
        '--expert-placement: unknown placement "ballanced"\n  hint: did you mean "balanced"?',
        "--redundant: -1 is negative",
        "--ep: 1 ranks exchange nothing",
        '--tokens: "4x0" is of 0 ranks',
        '--seeds: "x" is not a whole number\n  hint: write seeds and ranges of seeds: 0-9',
        "--sms: 0 SMs\n  hint: give 1 to 1024",
        "--tolerance: ",
        "none: cannot be read",
        '--profile: unknown profile "hgx_h10"',
        '--compare: unknown topology "hgx_b20"\n  hint: did you mean "hgx_b200"?',
        '--format: unknown format "nccl"',
        "there is no directory",
    ):
        assert found.err.count(text) == 1, text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--ep", "6"), "--ep: 256 experts do not spread evenly over 6 ranks\n"
         "  hint: add --redundant 2, give a divisor of 256, such as 4 or "
         "place them with --expert-placement round_robin"),
        (("--experts", "4"), "--topk: not given, and no model is named\n  hint: give it, or name a model: deepseek-v3"),
        (("--model", "mixtral-8x7b", "--topk", "9"), "--topk: each token takes 9 experts, but there are 8\n"
         "  hint: give at most 8"),
        (("--model", "deepseek-v3", "--expert-groups", "7"), "--expert-groups: 256 experts do not make 7 equal groups\n"
         "  hint: give a divisor of 256, such as 4"),
        (("--ep", "8,16"), "--ep: 16 ranks, hgx_h100 has 8 GPUs\n  hint: add --nodes, or give 2 to 8"),
        (("--tokens", "256x4,64x3", "--ep", "8"), "--tokens: tokens are given for 7 ranks, not 8\n"
         "  hint: give 8 numbers, or one"),
        (("--tokens", "-4"), "--tokens: -4 tokens"),
        (("--seeds", "5-1"), '--seeds: range "5-1" runs backwards\n  hint: write 1-5'),
        (("--skew", "much"), '--skew: "much" is not a number'),
        (("--skew", "nan"), "--skew: nan is not between 0 and 10"),
        (("--dispatch", "fp4"), '--dispatch: "fp4" is no data type of tokens\n  hint: did you mean "nvfp4"?'),
        (("--redundant", "1000000000"), "--redundant: 1000000000 more copies"),
        (("--ep", "4,8", "--svg", "-"), "--svg: 2 numbers of ranks make several drawings"),
        (("--nodes", "64", "--ep", "512", "--redundant", "256", "--svg", "-", "-o", "x.csv"),
         "--svg: 512 ranks are too many to draw\n  hint: give at most 256, such as --ep 256"),
        (("--fail", "nic:n0.nic9"), "--fail: "),
        (("--set", "lnk.bandwidth=3"), '--set lnk.bandwidth: unknown path "lnk.bandwidth"'),
    ],
)  # fmt: skip
def test_refused(collsim, arguments, told):
    found = collsim("moe", "--topo", "hgx_h100", *arguments)
    assert (found.code, found.out) == (2, "")
    assert told in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1 2 3\n", "--counts: the shape is (3,)\n  hint: give (32,) for tokens of each expert, or (tokens, 4)"),
        ("1 2 3 4\n1 2 3\n", "rows have different lengths"),
        ("1 2 x 4\n", 'line 1: "x" is not a whole number'),
        ("1 2 3 99\n1 2 3 4\n", "--counts: there is no expert 99\n  hint: experts are 0 to 31"),
    ],
)
def test_counts_of_the_wrong_shape(collsim, tmp_path, content, told):
    file = tmp_path / "counts.txt"
    file.write_text(content)
    found = collsim(*ONE, "--counts", file)
    assert found.code == 2
    assert told in found.err


def test_counts_from_a_file(collsim, tmp_path):
    file = tmp_path / "counts.txt"
    file.write_text("\n".join(str(100 * (32 - place)) for place in range(32)))
    assert "routing given counts" in collsim(*ONE, "--counts", file, "--seeds", "0").out
    found = collsim(*ONE, "--counts", file, "--svg", file)
    assert "which this command reads" in found.err


def test_ranks_that_cannot_reach_each_other(collsim):
    cuts = [part for peer in range(1, 8) for part in ("--fail", f"link:gpu0-gpu{peer}")]
    found = collsim("moe", "--topo", "mi355x_ubb8", *SMALL, *cuts)
    assert (found.code, found.out) == (3, "")
    assert "mi355x_ubb8: " in found.err


def test_a_drawing_is_not_called_a_picture_of_another_format(collsim, tmp_path):
    outcome = collsim("moe", "--topo", "hgx_h100", "--svg", tmp_path / "bytes.png")
    assert outcome.code == 2
    assert 'error: --svg: the suffix ".png" names no format' in outcome.err
    assert not (tmp_path / "bytes.png").exists()


def test_names_of_before_still_answer_and_say_what_they_are_called_now(collsim, tmp_path):
    asked = ("moe", "--topo", "hgx_h100", "--skew", "1", "--seeds", "0", "--load-only", "--format", "json")
    now = collsim(*asked, "--expert-placement", "balanced", "--expert-groups", "4")
    before = collsim(*asked, "--placement", "balanced", "--groups=4")
    assert (now.code, now.out) == (0, before.out)
    added = before.err.removesuffix(now.err).splitlines()
    assert added == [
        "warning: --placement is now --expert-placement; the old name goes in 0.2",
        "warning: --groups is now --expert-groups; the old name goes in 0.2",
    ]
    with pytest.warns(DeprecationWarning, match="placement is now expert_placement") as told:
        result = collsim_of_python.simulate_moe("hgx_h100", placement="balanced", load_only=True, seeds=[0])
    assert told[0].filename == __file__
    assert result.expert_placement == "balanced"
    row = result.rows[0]
    for old, new in {"limit": "limit_kind", "bound_s": "lower_bound_s", "low_s": "time_lo_s"}.items():
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            assert getattr(row, old) == getattr(row, new)
    grid = tmp_path / "grid.yaml"
    base = "schema: collsim.sweep/1\nkind: moe\nbase: {topo: hgx_h100, load_only: true}\n"
    grid.write_text(base + "grid: {placement: [contiguous, balanced]}\n")
    swept = collsim("sweep", grid, "-o", tmp_path / "points.jsonl", "-q")
    assert swept.code == 0
    assert "warning: placement is now expert_placement; the old name goes in 0.2" in swept.err
