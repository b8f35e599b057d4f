"""Broken files of every format: each change of a sound file is an error with its place and a remedy, never a guess."""

import gzip
from pathlib import Path

import pytest

import collsim
from collsim.core.errors import CollsimError, InputError, VerificationError
from collsim.importing import import_schedule
from tests.cli.conftest import collsim as collsim_command  # noqa: F401 - a fixture

EXAMPLES = Path(__file__).parents[2] / "examples/imports"

MATRIX = [
    ("GPU7\tNV18\tNV18\tNV18", "GPU7\tNV18\tNV18", "is cut: it has"),
    ("GPU3\tNV18\tNV18\tNV18\t X ", "GPU3\tNV18\tNV18\tNV18\tNV18", "GPU3 has NV18 to itself"),
    ("GPU0\t X \tNV18", "GPU0\t X \tNV12", "GPU0 to GPU1 is NV12, but GPU1 to GPU0 is NV18"),
    ("GPU0\t X \tNV18", "GPU0\t X \tNW18", '"NW18" is no cell'),
    ("GPU0\t X \tNV18", "GPU0\t X \tNV99", "NV99: no GPU has so many NVLinks"),
    ("GPU0\t X \tNV18", "GPU0\t X \tX", "X between GPU0 and GPU1"),
    ("\nGPU5\t", "\nCPU5\t", "row GPU5 is missing"),
    ("\nGPU5\t", "\nGPU4\t", "row GPU4 is there already, on line 6"),
    ("\tGPU5\tGPU6", "\tGPU6\tGPU5", "GPUs are not in order"),
    ("\tGPU7\tNIC0", "\tNIC0", "row GPU7 has no column"),
    ("NIC0\tNIC1\tNIC2", "NIC0\tNIC0\tNIC2", "column NIC0 is there twice"),
]
TOPOLOGY = [
    ("</system>", "", "not well-formed XML"),
    ("<system ", '<!DOCTYPE a [<!ENTITY b "c">]><system ', "declares a document type or entities"),
    ("0000:c0:00.0", "0000:c9:00.0", None),
    ('count="2" tclass="0x068000"/>', 'count="two" tclass="0x068000"/>', 'count="two" is not a whole number of 1'),
    (
        'target="0000:c3:00.0" count="2" tclass="0x068000"',
        'target="0000:99:00.0" count="2" tclass="0x030200"',
        "none of",
    ),
    (
        'target="0000:c3:00.0" count="2" tclass="0x068000"',
        'target="0000:01:00.0" count="2" tclass="0x030200"',
        "itself",
    ),
    (
        'target="0000:c3:00.0" count="2" tclass="0x068000"',
        'target="0000:02:00.0" count="2" tclass="0x030200"',
        "but 0 back",
    ),
    (
        'count="2" tclass="0x068000"/>',
        'count="1" tclass="0x068000"/>',
        "11 links into switches, where other GPUs have 12",
    ),
    ('<gpu dev="1"', '<gpu dev="0"', 'dev="0" is there 2 times'),
    ('busid="0000:02:00.0"', 'busid="0000:01:00.0"', "that of another GPU already, on line"),
    ('busid="0000:02:00.0"', 'busid="here"', 'busid="here" is none'),
    ('numaid="1"', 'numaid="one"', 'numaid="one"'),
    ('speed="200000"', 'speed="fast"', 'speed="fast"'),
    (' target="0000:c0:00.0"', "", 'attribute "target" is missing'),
    ('target="0000:c3:00.0" count="2"', 'target="zzz" count="2"', 'target="zzz" is no PCI address'),
]
GRAPHS = [
    ('pattern="4"', 'pattern="44"', 'pattern="44" is none of NCCL'),
    ('pattern="4"', "", 'attribute "pattern" is missing'),
    ('nchannels="2"', 'nchannels="3"', "2 channels follow"),
    ('nchannels="2"', 'nchannels="all"', 'nchannels="all"'),
    ('<gpu dev="1"/>', '<gpu dev="0"/>', "GPU 0 is 2 times in one channel"),
    ('<gpu dev="3"/>', '<gpu dev="4"/>', "where the first channel has"),
    ('<gpu dev="3"/>', '<gpu dev="-3"/>', 'dev="-3"'),
    ('typeintra="NVL"', 'typeintra="NVX"', 'typeintra="NVX" is no way'),
    ("</graphs>", "", "not well-formed XML"),
    ('id="0"', 'id="first"', 'id="first"'),
    ('  <graph id="0"', '  <graph id="0" pattern="4" nchannels="0"/>\n  <graph id="0"', "is there already, on line 2"),
]
SHOWTOPO = [
    ("GPU3   XGMI", "GPU3   XGMY", '"XGMY" is no type of link'),
    ("GPU3   XGMI", "GPU3   XXXX", '"XXXX" is no type of link'),
    ("GPU3   XGMI", "GPU3   PCIE", "XGMI one way, PCIE the other"),
    ("GPU3   XGMI         XGMI", "GPU3   XGMI", "row GPU3 has 7 of 8 cells"),
    ("GPU3   XGMI", "GPU9   XGMI", "row GPU9 has no column"),
    ("GPU3   XGMI", "GPU2   XGMI", "row GPU2 is there already"),
    ("GPU3   15", "GPU3   near", '"near" is no number'),
    (
        "GPU3   XGMI         XGMI         XGMI         0",
        "GPU3   XGMI         XGMI         XGMI         XGMI",
        "to itself",
    ),
    ("Link Type between two GPUs", "Kinds of Links", "the table of link types is missing"),
    (
        "=== Numa Nodes",
        "=== Numa Nodes ===\nERROR: GPU[1] : Cannot read: Not supported on this machine\n= Numa",
        "read everything",
    ),
    ("GPU6         GPU7", "GPU7         GPU6", "not GPU0, GPU1, ... in order"),
]
AMD_SMI = [
    ('"link_type": "XGMI"', '"link_type": "XGM"', '"XGM" is no type of link'),
    ('"link_type": "XGMI"', '"link_type": "PCIE"', "one way"),
    ('"link_type": "SELF"', '"link_type": "XGMI"', "to itself"),
    ('"weight": 15', '"weight": "heavy"', '"heavy" is no number'),
    ('"num_hops": 1', '"num_hops": 1.5', '"1.5" is no number'),
    ('"gpu": 3,\n  "bdf"', '"gpu": 7,\n  "bdf"', "numbered from 0 to 3"),
    ('"links": [', '"links": [{"gpu": 9, "link_type": "XGMI"},', '"gpu": 9 is none of the 4 GPUs'),
    ('"links": [', '"links": [3,', "is none of the 4 GPUs"),
    ('"weight": 15,', '"weight": 15,,', "not valid JSON"),
    ("\n]\n", "\n", "not valid JSON"),
    ('"link_type"', '"kind"', "the table of link types is missing"),
    ('"link_type": "XGMI",', "", "there is no cell"),
]
ASTRA = [
    ("[ Switch, Ring ]", "[ Switsh, Ring ]", 'did you mean "Switch"?'),
    ("[ Switch, Ring ]", "[ Switch ]", "lists of different lengths"),
    ("[ 4, 4 ]", "[ 4, 1 ]", '"1" is not a whole number of 2 or more'),
    ("[ 4, 4 ]", "[ 4, 4.5 ]", '"4.5" is not a whole number'),
    ("[ 4, 4 ]", "[ 4, 99999 ]", "links are more than 50,000"),
    ("[ 300.0, 25.0 ]", "[ 300.0, tbd ]", '"tbd" is not a positive number'),
    ("[ 300.0, 25.0 ]", "[ 300.0, -25.0 ]", '"-25.0" is not a positive number'),
    ("[ 500.0, 1000.0 ]", "[ 500.0, nan ]", '"nan" is not a number'),
    ("bandwidth:", "bandwith:", 'did you mean "bandwidth"?'),
    ("latency: [ 500.0, 1000.0 ]", "", 'key "latency" is missing'),
    ("[ 4, 4 ]", "{a: 4}", '"npus_count" is no list'),
    ("[ 4, 4 ]", "[ 4, 4", "not valid YAML"),
]
INFRA = [
    ("choice: xpu", "choice: xpv", 'did you mean "xpu"?'),
    ("scheme: many2many", "scheme: many2one", "is no scheme"),
    ('"nvsw[0:4]"', '"nvws[0:4]"', 'did you mean "nvsw"?'),
    ('"nvsw[0:4]"', '"nvsw[7:9]"', "selects none of 4"),
    ('"nvsw[0:4]"', '"nvsw[a:b]"', "selects none of 4"),
    ("device: server", "device: servr", 'did you mean "server"?'),
    ('"host[1]"', '"hosts[1]"', 'did you mean "host"?'),
    (
        "count: 8, description: NVIDIA H100",
        "count: many, description: NVIDIA H100",
        "is not a whole number of 1 or more",
    ),
    ("NVIDIA H100 SXM5", "Someone's accelerator", "no shipped system has them"),
    ("- {choice: xpu, name: xpu", "- {choice: custom, name: xpu", "no instance has accelerators"),
    ("gigabits_per_second: 400", "gigabits_per_second: fast", "the bandwidth is no number"),
    ('ep1: {component: "nvsw[0:4]"}, ', "", "an edge without ep1 and ep2"),
    ("\nedges:\n- {ep1", "\nedgs:\n- {ep1", "no cable from one to a switch"),
]
NETDISCOVER = [
    ("4xNDR\n[2]", "4xNDQ\n[2]", "port 1 has no width and speed"),
    ('[1]\t"H-0000000000000010"[1]', "[1]\tH-0000000000000010[1]", "is no line of a port"),
    ('[1]\t"H-0000000000000010"[1]', '[one]\t"H-0000000000000010"[1]', "is no line of a port"),
    ('Switch\t65 "S-00000000000000a0"', 'Ca\t65 "S-00000000000000a0"', None),
    ("# Topology file", '[1]\t"H-1"[1]\t# "n" lid 1 4xNDR\n# Topology file', "a port before the first switch"),
    ("H-", "S-", "no fabric: there is no switch with hosts"),
    ("\n[", "\n#[", "no fabric: there is no cable"),
    ("node1 mlx5_0", "Mellanox Technologies Aggregation Node", None),
    ('"[1](010)', '"[one](010)', "is no line of a port"),
    ("4xNDR", "NDR", "has no width and speed"),
    ("[33]\t", "[33]", "is no line of a port"),
    ("node", "Mellanox Technologies ", "no fabric"),
]
LINKINFO = [
    ("==(", "=(", "no format that is known"),
    ("Active", "Down", "no fabric"),
    ("17[  ]", "17[]", "is no line of iblinkinfo"),
    ("4X", "4Y", "is no line of iblinkinfo"),
    ('"leaf0"', "leaf0", "is no line of iblinkinfo"),
    ("25.78125 Gbps", "25.78125", "is no line of iblinkinfo"),
    ("Active/  LinkUp", "Active", "is no line of iblinkinfo"),
    (")==>       2", ")==>       two", "is no line of iblinkinfo"),
    ("           2   17", "           x   17", "is no line of iblinkinfo"),
    ("0x0000000000000010     10", "0x0000000000000010     ten", "is no line of iblinkinfo"),
]
HTSIM = [
    ("Nodes 128", "Nodes 1", "a fabric joins at least 2"),
    ("Nodes 128", "Nodes many", "no format that is known"),
    ("Tiers 2", "Tiers 3", "Tiers is 3, but 2 tiers follow"),
    ("Radix_Down 16", "Radix_Dwn 16", "Radix_Down"),
    ("Radix_Up 8", "Radix_Up eight", "is not a key with a number"),
    ("Radix_Up 8", "", "tier 0 has no radix_up"),
    ("Downlink_speed_Gbps 400", "Downlink_speed_Gbps", "is not a key with a number"),
    ("Downlink_speed_Gbps 400", "Downlink_speed_Gbps 0", "tier 0 has no downlink_speed_gbps"),
    ("Radix_Down 16", "Radix_Down 16\nRadix_Down 8", "is there twice"),
    ("Oversubscribed 2", "Overbooked 2", "unknown key"),
]
SLURM = [
    ("Nodes=node[01-04]", "Nodes=node[04-01]", "is not a range of hosts"),
    ("Nodes=node[01-04]", "Nodes=node[01-04", "is not"),
    ("Nodes=node[01-04]", "Node=node[01-04]", "did you mean nodes?"),
    ("SwitchName=leaf2", "SwitchName=leaf1", "is there already, on line 3"),
    ("Switches=leaf[1-3]", "Switches=leaf[1-4]", 'there is no switch "leaf4"'),
    ("Nodes=node[05-08]", "Nodes=node[04-08]", '"node04" is on "leaf1" already'),
    ("Nodes=node[05-08]", "Switches=spine", "is below itself"),
    ("Nodes=node[05-08]", "", "does not name one switch or block"),
    ("SwitchName=leaf2 Nodes", "SwitchName=leaf2 SwitchName=x Nodes", "comes twice"),
    ("Nodes=node[01-04]", "Nodes=node[01-99999999]", "hosts"),
]
MSCCL = [
    ('coll="allreduce"', 'coll="allredce"', 'did you mean "allreduce"?'),
    ('proto="LL128"', 'proto="LL12"', 'did you mean "LL128"?'),
    ('ngpus="4"', 'ngpus="5"', "GPUs are 0, 1, 2, 3"),
    ('ngpus="4"', 'ngpus="four"', 'ngpus="four" is not a whole number'),
    ('send="1" recv="3"', 'send="0" recv="3"', "is the GPU itself"),
    ('send="1" recv="3"', 'send="9" recv="3"', "is none of 4 GPUs"),
    ('send="1" recv="3"', 'send="-1" recv="3"', 'in a thread block with send="-1"'),
    ('type="rrc"', 'type="rrx"', "is no step"),
    ('srcbuf="i"', 'srcbuf="q"', 'srcbuf="q" is no buffer'),
    ('depid="-1" deps="-1"', 'depid="0" deps="99"', "is no step of this GPU"),
    ('s="0" type', 's="7" type', "steps count from 0"),
    ('cnt="1"', 'cnt="0"', 'cnt="0" is not a whole number of 1'),
    ('srcoff="0"', "", 'attribute "srcoff" is missing'),
    ("</algo>", "", "not well-formed XML"),
]
WRONG = [
    (
        'type="rrc" srcbuf="i" srcoff="3" dstbuf="i" dstoff="3"',
        'type="r" srcbuf="i" srcoff="3" dstbuf="i" dstoff="3"',
        "ends",
    ),
    (
        'type="rrc" srcbuf="i" srcoff="3" dstbuf="i" dstoff="3"',
        'type="rrc" srcbuf="i" srcoff="2" dstbuf="i" dstoff="3"',
        "is added to chunk",
    ),
    ('type="s" srcbuf="i" srcoff="0"', 'type="s" srcbuf="s" srcoff="0"', "where nothing has arrived yet"),
    (
        'type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0"',
        'type="nop" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0"',
        "",
    ),
]
FORMATS = {
    "topo_m.txt": MATRIX,
    "nccl_topo.xml": TOPOLOGY,
    "nccl_graph.xml": GRAPHS,
    "showtopo.txt": SHOWTOPO,
    "amd_smi.json": AMD_SMI,
    "astra_sim.yml": ASTRA,
    "infragraph.yaml": INFRA,
    "ibnetdiscover.txt": NETDISCOVER,
    "iblinkinfo.txt": LINKINFO,
    "fabric.topo": HTSIM,
    "topology.conf": SLURM,
    "msccl_ring.xml": MSCCL,
}
FABRICS = ("ibnetdiscover.txt", "iblinkinfo.txt", "fabric.topo", "topology.conf")
EVERYWHERE = {"H-", "\n[", "node", "4xNDR", "Active", "==(", '"link_type"', "choice: xpu"}
"""Changed wherever they stand; others only where they stand first."""
CASES = [(file, *case) for file, cases in FORMATS.items() for case in cases if case[2] is not None]


def read(path):
    """Import a file, whatever it is."""
    if path.name.startswith("msccl"):
        return import_schedule(path)
    return collsim.import_topology(path, like="hgx_h100" if path.name in FABRICS else None)


def broken(folder, file, old, new):
    """Write an example with a part of it changed."""
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    assert old in text, f"{old!r} is not in {file}"
    path = folder / file
    path.write_text(text.replace(old, new) if old in EVERYWHERE else text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(("file", "old", "new", "words"), CASES)
def test_a_broken_file_is_an_error_with_its_place(tmp_path, file, old, new, words):
    path = broken(tmp_path, file, old, new)
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert words in text
    for fault in caught.value.faults:
        assert fault.where == "like" or str(path) in fault.where
        assert fault.hint, fault


@pytest.mark.parametrize("file", FORMATS)
def test_ten_faults_of_each_format_are_tried(file):
    assert sum(case[0] == file for case in CASES) >= 10


@pytest.mark.parametrize(("old", "new", "words"), WRONG)
def test_an_algorithm_that_is_wrong_is_told_step_by_step(tmp_path, old, new, words):
    with pytest.raises(VerificationError) as caught:
        read(broken(tmp_path, "msccl_ring.xml", old, new))
    assert words in str(caught.value)


def test_every_fault_of_a_file_at_once(tmp_path):
    text = (EXAMPLES / "topo_m.txt").read_text(encoding="utf-8").replace("NV18", "NW18").replace("PIX", "PIXX")
    (tmp_path / "many.txt").write_text(text, encoding="utf-8")
    with pytest.raises(CollsimError) as caught:
        collsim.import_topology(tmp_path / "many.txt")
    assert len(caught.value.faults) == 16  # a row is read up to its first fault


def test_an_entity_bomb_is_refused_before_it_opens(tmp_path):
    lines = ['<!ENTITY a0 "x">', *(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))]
    bomb = f"<?xml version='1.0'?>\n<!DOCTYPE system [{''.join(lines)}]>\n<system><cpu numaid='&a11;'/></system>\n"
    (tmp_path / "bomb.xml").write_text(bomb, encoding="utf-8")
    with pytest.raises(InputError, match="declares a document type or entities"):
        collsim.import_topology(tmp_path / "bomb.xml")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("topo_m.txt", "\tGPU7\tNIC0", "\tGPU99999999999\tNIC0", "missing"),
        ("msccl_ring.xml", 'ngpus="4"', 'ngpus="99999999999"', "is more than 4,096"),
        ("msccl_ring.xml", 'nchunksperloop="4"', 'nchunksperloop="99999999999"', "is more than 1,048,576"),
        ("msccl_ring.xml", 'cnt="1"', 'cnt="99999999999"', "is more than 1,048,576"),
        ("fabric.topo", "Nodes 128", "Nodes 99999999999", "a fabric joins at least 2"),
        ("infragraph.yaml", "name: port, count: 16", "name: port, count: 99999999999", "not a whole number"),
        ("infragraph.yaml", "name: asic, count: 1}", "name: asic, count: 99999}", None),
        ("astra_sim.yml", "[ 4, 4 ]", "[ 99999999999, 4 ]", "links are more than 50,000"),
    ],
)
def test_absurd_numbers_are_refused_at_once(tmp_path, file, old, new, words):
    path = broken(tmp_path, file, old, new)
    if words is None:
        assert read(path).topology.n_gpus == 16
        return
    with pytest.raises(InputError) as caught:
        read(path)
    assert words in str(caught.value)


def test_what_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "deep.xml").write_text(f"<system><cpu/>{'<pci>' * 100}{'</pci>' * 100}</system>", encoding="utf-8")
    with pytest.raises(InputError, match="nested more than 64 levels deep"):
        collsim.import_topology(tmp_path / "deep.xml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "no format that is known"),
        (b"schema: collsim.topology/1\nbuilder: full_mesh\n", "a topology file of collsim already"),
        (b"<graphml><graph/></graphml>", "a graph in GraphML"),
        (b"\xff\xfe\x00\x01", "no format that is known"),
    ],
)
def test_files_of_no_format_are_told(tmp_path, content, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=words):
        collsim.import_topology(tmp_path / "file")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        collsim.import_topology(tmp_path / "none.txt")
    with pytest.raises(InputError, match="this is a directory"):
        collsim.import_topology(tmp_path)
    with pytest.raises(InputError, match="source: 3 is not a path"):
        collsim.import_topology(3)


def damaged(content):
    """What befalls files on their way, by name."""
    half = len(content) // 2
    return {
        "empty": b"",
        "blank": b" \n\t\n",
        "binary": bytes(range(256)) * 8,
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(200),
        "packed": gzip.compress(content),
        "first line": content.partition(b"\n")[0] + b"\n",
        "cut": content[:half],
        "huge": content * (2**26 // len(content) + 1),
        "another format": b"# nThread 1 nGpus 8 minBytes 8\n" + content[:20],
        "own document": b'{"schema": "collsim.result/1", "results": []}',
    }


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.iterdir()))
def test_damaged_files_of_every_format_end_with_an_error(collsim_command, tmp_path, file):  # noqa: F811
    command = ("schedule", "import") if file == "msccl_ring.xml" else ("topo", "import")
    for name, content in damaged((EXAMPLES / file).read_bytes()).items():
        (tmp_path / file).write_bytes(content)
        found = collsim_command(*command, tmp_path / file)
        assert (found.code, found.out) == (2, ""), name
        assert found.err.startswith(f"error: {tmp_path / file}"), name
        assert "\n  hint: " in found.err, name


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
@pytest.mark.parametrize("file", ["topo_m.txt", "nccl_topo.xml", "astra_sim.yml", "amd_smi.json", "msccl_ring.xml"])
def test_what_powershell_writes_is_read(collsim_command, tmp_path, file, encoding):  # noqa: F811
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    head = f'<?xml version="1.0" encoding="{encoding}"?>' if file == "nccl_topo.xml" and "utf-8" not in encoding else ""
    (tmp_path / file).write_bytes((head + text).encode(encoding))
    if file == "msccl_ring.xml":
        assert import_schedule(tmp_path / file).n_transfers == import_schedule(EXAMPLES / file).n_transfers
    else:
        found, plain = collsim.import_topology(tmp_path / file), collsim.import_topology(EXAMPLES / file)
        assert (found.yaml, found.read) == (plain.yaml, plain.read)
    told = collsim_command("run", "--topo", tmp_path / file, "--op", "all_reduce", "--size", "1M")
    assert told.code == 2
    assert "which is no topology file of collsim" in told.err


def test_a_table_of_which_only_the_head_is_left_is_no_table(tmp_path):
    text = (EXAMPLES / "showtopo.txt").read_text(encoding="utf-8")
    head, _, rest = text.partition("GPU0")
    (tmp_path / "t.txt").write_text(f"{head}GPU0\n", encoding="utf-8")
    with pytest.raises(InputError, match="row GPU0 is missing from the table of"):
        collsim.import_topology(tmp_path / "t.txt")
    assert rest
