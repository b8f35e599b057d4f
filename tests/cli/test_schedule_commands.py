"""`collsim schedule`: what it asks for, where it writes, and how it leaves."""

import gzip
import io
import json

import pytest

from .conftest import ROOT
from .test_bad_input import refused

RING = ("--topo", "mi300x_ubb8", "--op", "all_reduce", "--algo", "ring", "--channels", "1")


@pytest.fixture
def ring(collsim, tmp_path):
    file = tmp_path / "ring.json"
    assert collsim("schedule", "export", *RING, "-o", file).code == 0
    return file


def test_diff_leaves_with_1_only_if_schedules_differ(collsim, ring, tmp_path):
    equal = collsim("schedule", "diff", ring, ring)
    assert (equal.code, equal.out, equal.err) == (0, "", "")
    other = tmp_path / "other.json"
    collsim("schedule", "export", *RING, "--size", "2M", "-o", other)
    different = collsim("schedule", "diff", ring, other)
    assert (different.code, different.err) == (1, "")
    assert "size_bytes: 1048576 in a, 2097152 in b" in different.out
    refused(collsim("schedule", "diff", ring, tmp_path / "absent.json"), "absent.json", "No such file")


def test_diff_in_a_real_process(process, ring, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(ring.read_text().replace('"algo": "ring"', '"algo": "mine"'))
    assert process("schedule", "diff", ring, ring).code == 0
    assert process("schedule", "diff", ring, other).code == 1
    assert process("schedule", "diff", ring, "absent.json").code == 2


def test_check_names_the_file_of_every_fault(collsim, ring, tmp_path):
    assert collsim("schedule", "check", ring).out == f"{ring}: ok (all_reduce by ring, 8 ranks)\n"
    switches = tmp_path / "switches.json"
    collsim("schedule", "export", "--topo", "hgx_h100", "--op", "broadcast", "--algo", "tree", "-o", switches)
    document = json.loads(switches.read_text())
    document["parameters"].pop("root")
    switches.write_text(json.dumps(document))
    outcome = collsim("schedule", "check", switches)
    refused(outcome, f"{switches}: parameters.root: broadcast needs a root\n", code=1)


def test_export_to_stdout_and_to_files(collsim, ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = collsim("schedule", "export", *RING, "-o", "-")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == ring.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == [ring.name]
    for name in ("plain", "ring.json.gz", "ring.gz", "RING.JSON"):
        assert collsim("schedule", "export", *RING, "-o", name).code == 0
        content = (tmp_path / name).read_bytes()
        assert (gzip.decompress(content) if name.endswith("gz") else content) == ring.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topo", "draw", "hgx_h100", "-o", "x.png"), ["-o: ", '".png"', ".svg"]),
        (("topo", "draw", "hgx_h100", "-o", ""), ["-o: ", "empty"]),
        (("schedule", "export", *RING, "-o", "r.yaml"), ["-o: ", '".yaml"', ".json.gz"]),
        (("schedule", "export", *RING, "-o", "r.yaml.gz"), ["-o: ", '".yaml.gz"', ".json.gz"]),
        (("schedule", "export", *RING, "-o", ""), ["-o: ", "empty"]),
        (("schedule", "export", *RING, "-o", "no/such/r.json"), ["no/such/r.json", "no directory"]),
        (("schedule", "show", *RING, "--rows", "-1"), ["--rows: ", "-1 rows", "0 or more"]),
        (("schedule", "show", *RING, "--rows", "x"), ["--rows: ", '"x"', "whole number"]),
        (("schedule", "show", *RING, "--size", "1M,2M"), ["--size: ", "1M,2M", "--size 1M"]),
        (("schedule", "show", *RING, "--ranks", "2,4"), ["--ranks: ", "2,4", "--ranks 8"]),
        (("schedule", "show", *RING, "--op", "all_reduce,reduce"), ["--op: ", "exactly one"]),
        (("schedule", "show", *RING, "--algo", "all"), ["--algo: all is not one", "name one of ring, tree, "]),
        (("schedule", "show", *RING, "--algo", "ring,tree"), ["--algo: ring,tree is not one", "name one of ring, "]),
        (("schedule", "show", *RING[:4]), ["--algo: no algorithm is named", "name one of ring, tree, "]),
        (("schedule", "show"), ["--algo: no algorithm", "--op: no operation", "--topo: no topology"]),
        (("schedule", "show", *RING, "-b", "1M"), ['no such flag "-b"']),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusals(collsim, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    refused(collsim(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["show", "export"])
def test_help_offers_only_what_one_schedule_takes(collsim, command):
    text = collsim("schedule", command, "--help").out
    for word in ("--min-bytes", "--step-factor", "--library", "--redop", "1M to 1G", "best"):
        assert word not in text
    algo = text.partition("--algo NAME")[2].partition("\n  --")[0]
    assert "One algorithm by name" in algo
    assert "auto" not in algo
    assert "[default: 1M]" in text


def test_show_is_of_1M_unless_told(collsim):
    shown = collsim("schedule", "show", *RING, "--rows", "0")
    assert "8 ranks, 1048576 bytes" in shown.out
    assert shown.out.endswith("--rows shows more\n")
    assert collsim("schedule", "show", *RING, "--rows", "0", "--size", "2M").out != shown.out


def test_schedule_of_a_matrix(collsim, tmp_path):
    file = tmp_path / "bytes.txt"
    file.write_text("0 1K\n2K 0\n")
    flags = ("--topo", "hgx_h100", "--op", "alltoallv", "--algo", "direct", "--matrix", file)
    assert "2 ranks, 2048 bytes" in collsim("schedule", "show", *flags).out


def test_schedules_come_from_stdin(collsim, ring, monkeypatch):
    """A pipe is read once, whatever it holds; messages call it stdin."""

    def piped(text, *arguments):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return collsim("schedule", *arguments)

    file = ROOT / "examples/imports/msccl_ring.xml"
    algorithm, machine = file.read_text(), ("--topo", "dgx_a100", "--size", "1M")
    assert piped(algorithm, "import", "-", "--size", "1M").out == collsim("schedule", "import", file).out != ""
    assert piped(algorithm, "run", "-", *machine).out == collsim("schedule", "run", file, *machine).out != ""
    at_home = ("--topo", "mi300x_ubb8")
    assert piped(ring.read_text(), "run", "-", *at_home).out == collsim("schedule", "run", ring, *at_home).out != ""
    assert piped(ring.read_text(), "check", "-").out == "stdin: ok (all_reduce by ring, 8 ranks)\n"
    refused(piped("{", "run", "-", *at_home), "stdin:1: not JSON")
    refused(piped("<algo/>", "import", "-"), "stdin")
