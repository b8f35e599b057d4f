"""Files of other programs, files that lead back to themselves, and long lists."""

import time

import networkx as nx
import numpy as np
import pytest

from collsim.core.errors import SpecError
from collsim.importing import import_schedule
from collsim.topology import Topology, load_topology, parse_topology, remarks
from collsim.topology.summary import reached_from

NCCL = '<system version="1">\n <cpu numaid="0" arch="x86_64">\n  <pci busid="0"><gpu dev="0"/></pci></cpu></system>\n'
MATRIX = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\tPIX\t0-15\nGPU1\tNV18\t X \tSYS\t0-15\n"
BARE = MATRIX.replace("\x1b[4m", "").replace("\x1b[0m", "")
LOG = "# nThread 1 nGpus 8 minBytes 8 maxBytes 64\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NCCL, ["NCCL topology in XML", "collsim topo import theirs.txt"]),
        ('<?xml version="1.0"?>\n' + NCCL, ["NCCL topology in XML"]),
        ('<graphs version="1">\n<graph id="0"/></graphs>', ["graphs that NCCL searched", "NCCL_TOPO_DUMP_FILE"]),
        ('<!-- made up -->\n<algo name="a" coll="allreduce"/>', ["MSCCL", "collsim schedule import theirs.txt"]),
        ('<?xml version="1.0"?>\n<topology version="2.0">\n<object type="Machine"/></topology>', ["hwloc", "lstopo"]),
        ("<graphml><graph/></graphml>", ["GraphML", "networkx.read_graphml"]),
        ("<html></html>", ["XML"]),
        (BARE, ["nvidia-smi topo -m", "collsim topo import theirs.txt -o"]),
        (MATRIX, ["nvidia-smi topo -m"]),
        ("ACCESS TABLE:\n  0000:03:00.0\n", ["amd-smi", "collsim topo import"]),
        ('[{"gpu": 0, "bdf": "0:0", "links": []}]', ["amd-smi"]),
        ("Nodes 8\nTiers 2\n", ["htsim", "--like"]),
        ("devices:\n- name: a\n  components: []\n", ["InfraGraph", "collsim topo import"]),
        ('1 1[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==> 2 1[  ] "a" ( )\n', ["iblinkinfo", "--like"]),
        ("- topology: t\n  tree:\n    switches: []\n", ["Slurm"]),
        ("=== Weight between two GPUs ===\n GPU0 GPU1\n", ["rocm-smi"]),
        ("topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\n", ["ASTRA-sim", "collsim topo import"]),
        ('{"dimensions-count": 2, "topologies-per-dim": ["Ring", "Ring"]}'.replace(", ", ",\n"), ["ASTRA-sim"]),
        ("SwitchName=s0 Nodes=tux[0-3]\n", ["Slurm", "--placement slurm:"]),
        ('Switch 36 "S-0002c902" # x\n', ["ibnetdiscover"]),
        ("3 1 2\n2 \n2 0 400Gbps 0.0005ms 0\n2 1 400Gbps 0.0005ms 0\n", ["ns-3", "--fabric rail"]),
        ("2 0 1\n\n0 1 25Gbps 0.005ms 0\n", ["ns-3", "builder: explicit"]),
        ("10 8 1 1 9 H100\n8 9 \n0 8 2880Gbps 0.000025ms 0\n", ["SimAI", "--fabric rail"]),
        ("num_ranks 2\n\nrank 0 {\nl1: send 8b to 1 tag 0\n}\n", ["GOAL", "collsim schedule import"]),
        ("# Small\nallreduce,8,65536,tree,ll,4,2,16,-1,-1\n", ["tuner plugin", "collsim tune"]),
        ("collective,size_bytes,algorithm,protocol,channels\n", ["tuner plugin", "collsim validate"]),
        (LOG, ["log of nccl-tests", "collsim validate"]),
    ],
)
def test_formats_of_others_are_named(text, words):
    with pytest.raises(SpecError) as caught:
        parse_topology(text, "theirs.txt")
    (fault,) = caught.value.faults
    assert fault.where == "theirs.txt"
    for word in words:
        assert word in f"{fault.what} {fault.hint}"


def test_a_schedule_of_another_format_is_named(tmp_path):
    file = tmp_path / "a.goal"
    file.write_text("num_ranks 2\n\nrank 0 {\nl1: send 8b to 1 tag 0\n}\n")
    with pytest.raises(SpecError, match=r"this is a schedule of GOAL .*, no algorithm of MSCCL"):
        import_schedule(file)


def test_own_files_are_never_foreign():
    text = "schema: collsim.topology/1\nnotes: npus_count of <system> GPU0 GPU1\nbuilder: full_mesh\n"
    assert parse_topology(text + "gpu: {count: 2}\nlink: {bandwidth: 1 GB/s}\n").n_gpus == 2


def test_a_name_with_the_end_of_a_file_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.xml").write_text(NCCL)
    with pytest.raises(SpecError, match="NCCL topology"):
        load_topology("node.xml")


def _lead_on(folder, files):
    for name, node in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"schema: collsim.topology/1\nscale_out: {node}\n")


@pytest.mark.parametrize("first", ["a.yaml", "sub/b.yaml", "c.yaml"])
def test_a_cycle_across_folders_is_named(tmp_path, first):
    nodes = {"a.yaml": "sub/b.yaml", "sub/b.yaml": "../c.yaml", "c.yaml": "a.yaml"}
    _lead_on(tmp_path, {name: f"{{node: {node}, nodes: 2}}" for name, node in nodes.items()})
    with pytest.raises(SpecError) as caught:
        load_topology(tmp_path / first)
    (fault,) = caught.value.faults
    ring = ["a.yaml", "b.yaml", "c.yaml"] * 2
    start = ring.index(first.rpartition("/")[2])
    assert fault.what == f"a topology cannot extend itself: {' -> '.join([*ring[start : start + 3], ring[start]])}"


def test_a_cycle_of_mixes_is_named(tmp_path):
    kinds = "{{mix: [{{node: hgx_h100, nodes: 1}}, {{node: {}, nodes: 1}}]}}"
    _lead_on(tmp_path, {"m.yaml": kinds.format("sub/n.yaml"), "sub/n.yaml": kinds.format("../m.yaml")})
    with pytest.raises(SpecError, match=r"m\.yaml -> n\.yaml -> m\.yaml"):
        load_topology(tmp_path / "m.yaml")


def _ring(n, ends=lambda i: i):
    nodes = "".join(f"  - {{name: gpu{i}}}\n" for i in range(n))
    links = "".join(f"  - {{a: gpu{i}, b: gpu{ends((i + 1) % n)}}}\n" for i in range(n))
    head = "schema: collsim.topology/1\nbuilder: explicit\nlink: {bandwidth: 50 GB/s, latency: 1 us}\n"
    return f"{head}nodes:\n{nodes}links:\n{links}"


def test_a_long_list_takes_as_long_as_it_is():
    """It was quadratic: 8,000 links took nine seconds, and 16 times as many 256 times as long."""
    spent = []
    for n in (500, 4000):
        text = _ring(n)
        began = time.process_time()
        assert remarks(parse_topology(text)) == ()
        spent.append(time.process_time() - began)
    assert spent[1] < 30 * spent[0]


def test_a_long_list_of_wrong_names():
    with pytest.raises(SpecError) as caught:
        parse_topology(_ring(4000, ends=lambda i: i + 90_000))
    wrong = [fault for fault in caught.value.faults if fault.what.startswith("there is no node")]
    assert len(wrong) == 4000
    assert "did you mean" in wrong[0].hint


@pytest.mark.parametrize("seed", range(5))
def test_where_links_lead(seed):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 30, (2, 35))
    reached = {0}
    while more := {int(b) for a, b in zip(src, dst, strict=True) if int(a) in reached} - reached:
        reached |= more
    assert set(np.flatnonzero(reached_from(30, src, dst)).tolist()) == reached


@pytest.mark.parametrize("rename", [lambda i: (i // 2, i % 2), lambda i: f"box {i}", lambda i: ("host", i), float])
def test_graphs_with_any_names_load_again(rename):
    graph = nx.relabel_nodes(nx.cycle_graph(4), rename)
    for a, b in graph.edges:
        graph.edges[a, b].update(bandwidth_Bps=50e9, latency_s=1e-6)
    topology = Topology.from_graph(graph)
    again = parse_topology(topology.to_yaml())
    assert again.wiring.node_names == topology.wiring.node_names
    assert len(set(again.wiring.node_names)) == 4
    assert again.wiring.link_bandwidth_Bps.tolist() == topology.wiring.link_bandwidth_Bps.tolist()


def test_titles_stand_on_one_line():
    text = 'schema: collsim.topology/1\ntitle: "a\\nb \\e[31mred"\nbuilder: full_mesh\n'
    found = parse_topology(text + 'gpu: {count: 2, model: "x\\ny"}\nlink: {bandwidth: 1 GB/s}\n')
    assert found.title == "a b [31mred"
    assert found.labels["gpu.model"] == "x y"
