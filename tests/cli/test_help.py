"""Help of commands: which names there are stands in it, and none that there is not."""

import re

import pytest

from collsim.cli.options import dtypes, fabrics, networks, operations, reductions
from collsim.library.library import ENGINES, RANGES


def libraries():
    """Return the first and the last version of each library, and the engines."""
    ends = [f"{name}-{major}.{minor}" for name, span in RANGES.items() for major, minor in span]
    return [*ends, *ENGINES]


@pytest.fixture
def flag_help(collsim):
    """Return a function that gives what the help of ``run`` says of a flag, on one line."""
    text = collsim("run", "--help").out

    def told(flag):
        lines = re.search(rf"(?m)^ +(?:-\w, )?{flag}\b.*(?:\n {{20,}}.*)*", text)
        return " ".join(lines[0].split()).partition("[default")[0]

    return told


@pytest.mark.parametrize(
    ("flag", "names", "others"),
    [
        ("--op", operations, {"OP", "Collective", "or", "the", "spellings", "of", "nccl-tests", "work", "too"}),
        ("--dtype", dtypes, {"d", "datatype", "TYPE", "Data", "type", "or"}),
        ("--redop", reductions, {"OP", "Reduction", "operator", "or"}),
        ("--fabric", fabrics, {"NAME", "Switches", "between", "nodes", "or"}),
        ("--network", networks, {"NAME", "or"}),
        ("--library", libraries, {"NAME", "Library", "that", "auto", "follows", "to", "or"}),
    ],
)
def test_flags_of_run_name_their_values(flag_help, flag, names, others):
    words = {word.rstrip(".") for word in re.findall(r"\w[\w.-]*", flag_help(flag).replace(flag, ""))} - others
    assert words == set(names())


def test_the_first_help_names_the_operations_and_where_other_names_are(collsim):
    text = " ".join(collsim("--help").out.split())
    assert f"Operations: {', '.join(operations())}." in text
    for command in ("topo list", "run --help", "moe --list-models"):
        assert f"collsim {command}" in text
        assert collsim(*command.split()).code == 0


def test_every_algorithm_is_shown_by_all(collsim):
    assert "all: a row for each" in " ".join(collsim("run", "--help").out.split())
    table = collsim("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M", "--algo", "all", "-q").out
    assert {"ring", "tree", "chain", "nvls"} <= set(re.findall(r"\b\w+\b", table))
