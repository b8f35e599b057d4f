"""Functions as Python calls them: the same arguments as flags, and messages that name them."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import collsim
from collsim.core.errors import ArgumentError, Fault, InputError
from collsim.core.kinds import annotations_of
from collsim.moe.arguments import Arguments as MoeArguments
from collsim.simulation.request.arguments import Arguments
from collsim.simulation.request.callers import in_python
from collsim.simulation.request.fields import BY_NAME, SCALE_OUT

SIX = ("simulate", "compare", "simulate_moe", "simulate_timeline", "validate", "systems")


def test_typed_dictionaries_are_the_arguments_of_the_functions():
    beside = {"topo", "op", "size", "split"}
    assert set(Arguments.__annotations__) == set(inspect.signature(collsim.simulate).parameters) - beside
    of_experts = inspect.signature(collsim.simulate_moe).parameters
    assert set(MoeArguments.__annotations__) == set(of_experts) - {"topo", "model", "ep"}
    for name, annotation in Arguments.__annotations__.items():
        assert annotation.__forward_arg__ == collsim.simulate.__annotations__[name], name


@pytest.mark.parametrize("flags", ["collsim.cli.options:EXPERT_OPTIONS", "collsim.cli.options:OPTIONS"])
def test_what_the_command_line_can_ask_python_can(flags):
    from collsim.cli import options

    of = {"EXPERT_OPTIONS": collsim.simulate_moe, "OPTIONS": collsim.simulate}[flags.partition(":")[2]]
    asked = set(getattr(options, flags.partition(":")[2])) - {"compare"}  # that is `compare_moe`
    assert asked - set(inspect.signature(of).parameters) == set()


def test_a_cluster_is_asked_for_as_on_the_command_line():
    asked = {"nodes": 2, "fabric": "single_switch", "network": "roce"}
    named = collsim.simulate("hgx_h100", "all_gather", "64M", profile="ideal", **asked)
    overrides = {f"scale_out.{name}": str(value) for name, value in asked.items()}
    by_path = collsim.simulate("hgx_h100", "all_gather", "64M", profile="ideal", overrides=overrides)
    assert named.rows == by_path.rows
    assert named.config == by_path.config
    assert named.rows[0].ranks == 16
    two = collsim.compare(["hgx_h100", "hgx_b200,scale_out.nodes=4"], "all_gather", "64M", nodes=2, profile="ideal")
    assert [system.topology["ranks"] for system in two.systems] == [16, 32]
    node = collsim.load_topology("hgx_h100")
    assert collsim.simulate(node, "all_gather", "64M", profile="ideal", **asked).rows == named.rows


def test_a_range_of_sizes():
    result = collsim.simulate("hgx_h100", "all_gather", min_bytes="1M", max_bytes="4M", step_factor=2, profile="ideal")
    assert [row.requested_bytes >> 20 for row in result] == [1, 2, 4]


def test_a_matrix_may_be_a_file(tmp_path):
    (tmp_path / "bytes.txt").write_text("0 64K\n64K 0\n")
    result = collsim.simulate("hgx_h100", "all_to_all_v", matrix=tmp_path / "bytes.txt", profile="ideal")
    assert result.rows[0].size_bytes == 65536
    with pytest.raises(InputError, match=r"none\.txt"):
        collsim.simulate("hgx_h100", "all_to_all_v", matrix="none.txt")


def test_all_unknown_arguments_at_once():
    with pytest.raises(ArgumentError) as caught:
        collsim.simulate("hgx_h100", "all_reduce", "1M", node=4, env={}, whatever=1)
    assert [fault.where for fault in caught.value.faults] == ["node", "env", "whatever"]
    hints = [fault.hint for fault in caught.value.faults]
    assert hints[:2] == ['did you mean "nodes"?', 'did you mean "environment"?']
    assert hints[2].startswith("it has topo, op, size,")
    assert isinstance(caught.value, TypeError)
    with pytest.raises(ArgumentError, match='did you mean "experts"'):
        collsim.simulate_moe("hgx_h100", expertz=4)


def _messages():
    """Constant texts with a flag in them of all rooms below the command line."""
    for path in sorted(Path(collsim.__file__).parent.rglob("*.py")):
        if "cli" in path.parts or path.name == "fields.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") != "Fault":
                continue
            for argument in call.args:
                text = ast.unparse(argument)
                if "--" in text and "collsim " not in text:
                    yield text


def test_no_flag_is_left_in_a_message():
    texts = list(_messages())
    assert len(texts) > 10
    known = [*BY_NAME, *annotations_of(collsim.simulate_moe), *annotations_of(collsim.simulate_timeline)]
    known += annotations_of(collsim.import_topology)
    for text in texts:
        fault = in_python(Fault(text.strip("'\""), "", ""), known)
        left = [flag for flag in re.findall(r"--([a-z-]+)", fault.what) if flag.replace("-", "_") not in SCALE_OUT]
        of_others = ("format", "showtopo", "showtoponuma", "set", "rows")
        assert not [flag for flag in left if flag not in of_others], (text, fault.what)


def test_help_starts_with_the_six_functions():
    told = collsim.__doc__
    places = [told.index(f"\n{name}(") for name in SIX]
    assert places == sorted(places)
    assert told.count("\n", 0, places[-1]) < 20
    assert set(SIX) <= set(collsim.__all__)


def test_systems_are_those_of_the_zoo():
    from collsim.topology import cluster_names, zoo_names

    found = collsim.systems()
    assert [each["name"] for each in found] == [*zoo_names(), *cluster_names()]
    by_name = {each["name"]: each for each in found}
    assert by_name["hgx_h100"]["gpu_Bps"] == 450e9  # 18 links of 25 GB/s
    assert by_name["hgx_h100"]["gpus"] == 8
    assert all(each["gpus"] >= each["nodes"] for each in found)
