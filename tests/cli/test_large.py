"""Machines that are too large to look at one by one: refused by their counts, before memory and time are spent."""

import pytest

from tests.memory import peak_bytes

MOST_BYTES = 400 * 2**20


def explicit(n, pairs):
    nodes = "".join(f"- {{name: gpu{i}, kind: gpu}}\n" for i in range(n))
    links = "".join(f"- {{a: gpu{a}, b: gpu{b}}}\n" for a, b in pairs)
    head = "schema: collsim.topology/1\nbuilder: explicit\nlink: {bandwidth: 50 GB/s, latency: 1 us}\n"
    return f"{head}nodes:\n{nodes}links:\n{links}"


def ring(n):
    return explicit(n, ((i, (i + 1) % n) for i in range(n)))


def torus(side):
    pairs = ((i * side + j, (i + 1) % side * side + j) for i in range(side) for j in range(side))
    across = ((i * side + j, i * side + (j + 1) % side) for i in range(side) for j in range(side))
    return explicit(side * side, (*pairs, *across))


MESH = "{schema: collsim.topology/1, builder: full_mesh, gpu: {count: 4000}, link: {bandwidth: 9 GB/s, latency: 1 us}}"
MACHINES = {"ring": ring(100_000), "mesh": MESH}
COMMANDS = {
    "check": ("topo", "check", "big.yaml"),
    "draw": ("topo", "draw", "big.yaml"),
    "show": ("topo", "show", "big.yaml"),
    "run": ("run", "--topo", "big.yaml", "--op", "all_reduce", "--size", "1M"),
    "compare": ("compare", "big.yaml", "hgx_h100", "--op", "all_to_all", "--size", "1M"),
    "moe": ("moe", "--topo", "big.yaml", "--ep", "64"),
    "schedule": ("schedule", "export", "--topo", "big.yaml", "--op", "all_reduce", "--algo", "ring", "-o", "-"),
    "validate": ("validate", "07.log", "--topo", "big.yaml"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("command", COMMANDS)
def test_too_large_by_its_counts(collsim, here, machine, command):
    (here / "big.yaml").write_text(MACHINES[machine])
    (here / "07.log").write_text("# nothing\n")
    found = collsim(*COMMANDS[command])
    assert found.code == 2
    assert "50,000 entries" in found.err if machine == "ring" else "15,996,000 links are more than" in found.err
    assert "at most 1000 GPUs" in found.err or "by counts: full_mesh" in found.err


@pytest.mark.parametrize("machine", MACHINES)
def test_a_refusal_takes_little_memory(collsim, here, machine):
    (here / "big.yaml").write_text(MACHINES[machine])
    found, peak = peak_bytes(lambda: collsim(*COMMANDS["run"]))
    assert found.code == 2
    assert peak < MOST_BYTES


@pytest.mark.parametrize("algo", ["ring", "tree", "direct"])
def test_a_schedule_of_a_whole_cluster(collsim, here, algo):
    op = "all_to_all" if algo == "direct" else "all_reduce"
    asked = ("schedule", "export", "--topo", "hgx_h100", "--nodes", "2048", "--op", op, "--algo", algo, "-o", "x.json")
    found, peak = peak_bytes(lambda: collsim(*asked))
    assert found.code == 2
    assert "--ranks: the schedule of 16,384 ranks is too long to write out" in found.err or "--nodes" in found.err
    assert f"at most {128 if algo == 'direct' else 512} ranks" in found.err
    assert peak < MOST_BYTES
    assert not (here / "x.json").exists()


def test_a_drawing_of_more_than_can_be_seen(collsim, here):
    (here / "big.yaml").write_text(ring(2000))
    found = collsim("topo", "draw", "big.yaml")
    assert found.code == 2
    assert "2,000 nodes and 4,000 directed bundles of links are too many to draw" in found.err
    assert collsim("topo", "draw", "big.yaml", "--set", "gpu.count=900").code == 0


def test_few_ranks_of_a_large_torus(collsim, here):
    """Between them there are few shortest paths; past them to the rest of the machine, millions."""
    (here / "big.yaml").write_text(torus(24))
    found, peak = peak_bytes(lambda: collsim("moe", "--topo", "big.yaml", "--ep", "16", "-q"))
    assert found.code == 0, found.err
    assert peak < MOST_BYTES / 4
