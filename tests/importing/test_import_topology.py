"""What importers make of sound files: wiring, rates and their sources, and the nearest shipped system."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim.core.errors import Faults, InputError, UnsupportedError
from collsim.importing.bases import adapter_count
from collsim.importing.exports import export_topology
from collsim.importing.infiniband import read_iblinkinfo, read_ibnetdiscover
from collsim.importing.infragraph import _Device, _node
from collsim.importing.machine import Ask
from collsim.importing.nccl_xml import read_nccl_xml
from collsim.importing.nvidia_matrix import read_nvidia_matrix
from collsim.importing.slurm_trees import read_slurm
from collsim.topology import load_topology, parse_topology

EXAMPLES = Path(__file__).parents[2] / "examples/imports"
MATRIX = (EXAMPLES / "topo_m.txt").read_text(encoding="utf-8")
LEGEND = "".join(f"  {way:<4} = a way\n" for way in ("X", "SYS", "NODE", "PHB", "PXB", "PIX"))
FABRICS = ("ibnetdiscover.txt", "iblinkinfo.txt", "fabric.topo", "topology.conf")

READ = [
    ("topo_m.txt", "nvidia_smi", 8, "hgx_h100", 450e9),
    ("bridged_cards.txt", "nvidia_smi", 4, "dgx_a100", 12 * 25e9 + 31.5e9),
    ("nccl_topo.xml", "nccl_topo", 8, "dgx_a100", 300e9),
    ("rccl_topo.xml", "nccl_topo", 8, "mi250x_node", 3 * 50e9 + 31.5e9),
    ("showtopo.txt", "rocm_smi", 8, "mi300x_ubb8", 448e9),
    ("amd_smi.json", "amd_smi", 4, "mi300x_ubb8", 3 * 64e9),
    ("amd_smi.txt", "amd_smi", 2, "l40s_8gpu", 31.5e9),
    ("astra_sim.yml", "astra_sim", 16, "mi250x_8oam", (300 + 2 * 25) * 2**30),  # each NPU: a switch and two neighbours
    ("infragraph.yaml", "infragraph", 16, "hgx_h100", 450e9),
    ("ibnetdiscover.txt", "infiniband", 32, "hgx_h100", 450e9),
    ("iblinkinfo.txt", "iblinkinfo", 24, "hgx_h100", 450e9),
    ("fabric.topo", "htsim", 128, "hgx_h100", 450e9),
    ("topology.conf", "slurm", 96, "hgx_h100", 450e9),
]


def imported(name, like=None):
    return collsim.import_topology(EXAMPLES / name, like=like or ("hgx_h100" if name in FABRICS else None))


def gpu_rate_Bps(topology):
    """What a GPU sends in its node, in one direction."""
    wiring = (topology if topology.cluster is None else topology.cluster.node).wiring
    return wiring.link_bandwidth_Bps[wiring.link_src == 0].sum()


@pytest.mark.parametrize(("file", "kind", "gpus", "nearest", "rate_Bps"), READ)
def test_examples_of_each_format(file, kind, gpus, nearest, rate_Bps):
    found = imported(file)
    assert (found.kind, found.topology.n_gpus, found.nearest) == (kind, gpus, nearest)
    assert gpu_rate_Bps(found.topology) == pytest.approx(rate_Bps)
    assert found.read
    assert all(each.source and each.status for each in found.assumed)


@pytest.mark.parametrize("file", [row[0] for row in READ if row[0] not in (*FABRICS, "infragraph.yaml")])
def test_an_import_written_out_and_read_again_is_the_same(file):
    topology = imported(file).topology
    again = parse_topology(topology.to_yaml("again"), "again.yaml")
    for name in ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency"):
        assert np.array_equal(getattr(topology.wiring.bundled(), name), getattr(again.wiring, name)), name


@pytest.mark.parametrize(("file", "system"), [("topo_m.txt", "hgx_h100"), ("showtopo.txt", "mi300x_ubb8")])
def test_a_known_machine_is_as_fast_as_the_shipped_one(file, system):
    mine = collsim.simulate(imported(file).topology, "all_reduce", ["1M", "64M"])
    shipped = collsim.simulate(system, "all_reduce", ["1M", "64M"])
    assert [row.algo for row in mine.rows] == [row.algo for row in shipped.rows]
    assert [row.time_s for row in mine.rows] == pytest.approx([row.time_s for row in shipped.rows])


def test_what_the_links_do_not_tell_is_assumed_and_can_be_named():
    assert "Blackwell" in imported("topo_m.txt").assumed[0].source
    named = imported("topo_m.txt", like="hgx_b200")
    assert gpu_rate_Bps(named.topology) == 900e9
    assert named.nearest == "hgx_b200"
    with pytest.raises(InputError, match="dgx_a100 has 12 links of a GPU into switches, the file 18"):
        imported("topo_m.txt", like="dgx_a100")
    with pytest.raises(InputError, match="did you mean"):
        imported("topo_m.txt", like="hgx_h10")


def test_hidden_links_are_no_missing_links(tmp_path):
    file = tmp_path / "mp.txt"
    text = MATRIX.partition("\nLegend")[0].replace("NV18", "SYS")
    file.write_text(text, encoding="utf-8")
    assert collsim.import_topology(file).topology.labels["link.type"].startswith("PCIe")
    file.write_text(f"{text}\n{LEGEND}", encoding="utf-8")  # -mp: no line for NV#
    with pytest.raises(InputError, match="the file does not tell their links"):
        collsim.import_topology(file)
    assert gpu_rate_Bps(collsim.import_topology(file, like="dgx1_v100").topology) == 150e9


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1),
        lambda text: text.replace("\t", "    "),
        lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
        lambda text: "$ nvidia-smi topo -m\n" + text,
        lambda text: text.replace("NODE\tNODE", "NODENODE"),  # a lost tab
        lambda text: text.replace("SYS", "SOC"),  # an old driver
    ],
)
def test_matrices_as_people_paste_them(change):
    sound, changed = (read_nvidia_matrix(text, "m.txt", Faults()) for text in (MATRIX, change(MATRIX)))
    assert changed.links == sound.links
    assert changed.adapters == sound.adapters
    assert changed.numa == sound.numa


def test_rows_of_adapters_may_be_cut():
    cut = MATRIX[: MATRIX.index("NIC3\tNODE")]
    machine = read_nvidia_matrix(cut, "m.txt", faults := Faults())
    assert not faults
    assert [adapter.near for adapter in machine.adapters] == [(gpu,) for gpu in range(8)]
    assert "NIC3, NIC4, NIC5, NIC6, NIC7 are missing" in machine.notes[0]


WAYS = st.sampled_from(["NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS"])


@given(st.integers(2, 6).flatmap(lambda n: st.lists(WAYS, min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2)))
@settings(max_examples=60)
def test_any_matrix_is_read_as_it_was_written(ways):
    n = next(n for n in range(2, 7) if n * (n - 1) // 2 == len(ways))
    cells = dict(zip([(a, b) for a in range(n) for b in range(a + 1, n)], ways, strict=True))
    text = "\t" + "\t".join(f"GPU{i}" for i in range(n)) + "\tCPU Affinity\n"
    for a in range(n):
        row = [" X " if a == b else cells[min(a, b), max(a, b)] for b in range(n)]
        text += f"GPU{a}\t" + "\t".join(row) + "\t0-3\n"
    machine = read_nvidia_matrix(text, "m.txt", faults := Faults())
    assert not faults
    assert machine.links == {pair: int(way[2:]) for pair, way in cells.items() if way.startswith("NV")}
    assert machine.distances == {pair: way for pair, way in cells.items() if not way.startswith("NV")}


@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda p: p[0] < p[1]), st.integers(1, 4))
)
@settings(max_examples=40)
def test_any_wiring_is_read_from_xml_as_it_was_written(links):
    lines = []
    for gpu in range(6):
        ends = {a + b - gpu: count for (a, b), count in links.items() if gpu in (a, b)}
        peers = "".join(f'<xgmi target="0000:0{peer}:00.0" count="{count}"/>' for peer, count in ends.items())
        lines.append(
            f'<pci busid="0000:0{gpu}:00.0" class="0x120000" device="0x74a1"><gpu dev="{gpu}">{peers}</gpu></pci>'
        )
    text = f'<system><cpu numaid="0">{"".join(lines)}</cpu></system>'
    machine = read_nccl_xml(text.encode(), "t.xml", faults := Faults())
    assert not faults
    assert machine.links == links


def test_speeds_of_adapters_and_gpus_without_links_in_a_partial_file(tmp_path):
    text = (EXAMPLES / "nccl_topo.xml").read_text(encoding="utf-8")
    found = collsim.import_topology(EXAMPLES / "nccl_topo.xml")
    assert found.topology.fact("nic.bandwidth").text == "200 Gb/s"
    file = tmp_path / "partial.xml"
    lines = [line for line in text.splitlines() if "nvlink" not in line and "gpu" not in line]
    file.write_text("\n".join(lines), encoding="utf-8")
    partial = collsim.import_topology(file)  # the PCI device says that they are A100 on a board
    assert "leaves out links" in partial.notes[0]
    assert gpu_rate_Bps(partial.topology) == 300e9
    file.write_text("\n".join(lines).replace('device="0x20b2"', ""), encoding="utf-8")
    with pytest.raises(InputError, match="the file does not tell their links"):
        collsim.import_topology(file)


def test_kilobits_written_for_megabits(tmp_path):
    text = (EXAMPLES / "nccl_topo.xml").read_text(encoding="utf-8").replace('speed="200000"', 'speed="200000000"')
    (tmp_path / "t.xml").write_text(text, encoding="utf-8")
    found = collsim.import_topology(tmp_path / "t.xml")
    assert found.topology.fact("nic.bandwidth").text == "200 Gb/s"
    assert "kbit/s" in found.notes[0]


def test_a_network_of_astra_sim_has_binary_rates_and_no_others():
    found = imported("astra_sim.yml")
    wiring = found.topology.wiring
    into = wiring.link_bandwidth_Bps[wiring.link_src == 0].max()
    assert into == 300 * 2**30
    assert "2^30 bytes/s" in found.notes[0]
    with pytest.raises(InputError, match="has rates of its own"):
        imported("astra_sim.yml", like="hgx_h100")


def test_old_networks_of_astra_sim(tmp_path):
    text = '{"topologies-per-dim": ["AllToAll"], "dimensions-count": 1, "units-count": [4], "links-count": [6],\n'
    (tmp_path / "old.json").write_text(text + '"link-latency": [500], "link-bandwidth": [25]}', encoding="utf-8")
    topology = collsim.import_topology(tmp_path / "old.json").topology
    assert topology.wiring.link_count.tolist() == [2] * 12  # six links to three peers
    (tmp_path / "old.json").write_text('{"logical-dims": ["8","2"]}', encoding="utf-8")
    with pytest.raises(InputError, match="without kinds, rates and latencies"):
        collsim.import_topology(tmp_path / "old.json")


def test_old_networks_of_astra_sim_give_each_npu_the_links_that_they_count(tmp_path):
    """A ring has two links for each NPU, of two NPUs one; a switch has one, all pairs one to each other NPU."""
    least = {"Ring": lambda size: 1 if size == 2 else 2, "AllToAll": lambda size: size - 1, "Switch": lambda size: 1}
    file = tmp_path / "old.json"
    for kind, links_of in least.items():
        for size in (2, 3, 5):
            for times in (1, 3):
                links = times * links_of(size)
                file.write_text(
                    f'{{"topologies-per-dim": ["{kind}"], "dimensions-count": 1, "units-count": [{size}], '
                    f'"links-count": [{links}], "link-latency": [500], "link-bandwidth": [25]}}',
                    encoding="utf-8",
                )
                wiring = collsim.import_topology(file).topology.wiring
                assert wiring.link_count[wiring.link_src == 0].sum() == links, (kind, size, links)


def test_hosts_on_rails():
    text = (EXAMPLES / "ibnetdiscover.txt").read_text(encoding="utf-8")
    tree = read_ibnetdiscover(text, "f.txt", Faults())
    assert (len(tree.hosts), tree.leaves, tree.upper, tree.tiers) == (4, 2, 1, 2)
    assert tree.on_rails
    assert tree.oversubscription == 1
    cluster = imported("ibnetdiscover.txt").topology.cluster
    assert (cluster.spec.fabric, cluster.spec.nodes, cluster.spec.radix) == ("rail", 4, 64)


def test_slurm_blocks_are_domains_of_racks(tmp_path):
    file = tmp_path / "topology.conf"
    file.write_text("BlockName=b1 Nodes=n[01-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18\n", encoding="utf-8")
    assert collsim.import_topology(file, like="gb200_nvl72").topology.n_gpus == 144
    assert collsim.import_topology(file, like="hgx_h100").topology.n_gpus == 36 * 8
    blocks = read_slurm(file.read_text(), str(file), Faults())
    assert (blocks.is_blocks, blocks.leaves, blocks.tiers, blocks.parts) == (True, 2, 0, 1)
    listed = "BlockName=b1 BlockIndex=0 Nodes=n[01-18] BlockSize=16\n"
    file.write_text(listed, encoding="utf-8")  # as scontrol show topology prints it
    assert len(read_slurm(listed, str(file), Faults()).hosts) == 18


def test_slurm_yaml(tmp_path):
    text = "- topology: t\n  cluster_default: true\n  tree:\n    switches:\n"
    text += "      - switch: top\n        children: s[1-2]\n"
    text += "".join(f"      - switch: s{i}\n        nodes: n[{i}1-{i}4]\n" for i in (1, 2))
    (tmp_path / "topology.yaml").write_text(text, encoding="utf-8")
    found = collsim.import_topology(tmp_path / "topology.yaml", like="hgx_h100")
    assert found.read == ("8 hosts on 2 leaves of 4, 1 switch above, 2 tiers",)
    assert not any("left out" in note for note in found.notes)
    more = "- topology: b\n  cluster_default: false\n  block:\n    blocks:\n      - {block: b1, nodes: 'n[11-14]'}\n"
    (tmp_path / "topology.yaml").write_text(text + more + "- {topology: f, flat: true}\n", encoding="utf-8")
    several = collsim.import_topology(tmp_path / "topology.yaml", like="hgx_h100")
    assert several.read == found.read
    assert "one topology of the file is read; left out: b, f" in several.notes


def test_what_hosts_are_has_to_be_named():
    with pytest.raises(InputError, match="what the hosts are is not said"):
        collsim.import_topology(EXAMPLES / "topology.conf")
    with pytest.raises(InputError, match="no cluster of gb200_nvl72 fits: 1 node, so that there is nothing to join"):
        collsim.import_topology(EXAMPLES / "fabric.topo", like="gb200_nvl72")


def test_graphs_are_told_and_make_no_topology():
    found = imported("nccl_graph.xml")
    assert found.yaml == ""
    assert "ring, 2 channels over NVL" in found.read[0]


def test_edges_are_expanded_as_by_the_package():
    package = pytest.importorskip("infragraph")
    from infragraph.infragraph_service import InfraGraphService

    from collsim.importing.infragraph import _Infrastructure
    from collsim.topology.files.reader import read_document

    text = (EXAMPLES / "infragraph.yaml").read_text(encoding="utf-8")
    service = InfraGraphService()
    service.set_graph(package.Infrastructure().deserialize(text))
    theirs = {tuple(sorted(edge)) for edge in service.get_networkx_graph().edges}
    own = _Infrastructure(read_document(text.encode(), "i.yaml"), Faults())
    mine = set()
    for name, (device, count) in own.instances.items():
        for i in range(count):
            mine |= {tuple(sorted(f"{name}.{i}.{part}.{k}" for part, k in edge)) for edge in own.devices[device].edges}
    for ends in own.cables():
        mine.add(tuple(sorted(f"{name}.{i}.{part}.{k}" for (name, i), (part, k) in ends)))
    assert mine == theirs


def test_a_document_of_the_package_is_read_as_well():
    class Infrastructure:
        def serialize(self, _):
            return (EXAMPLES / "infragraph.yaml").read_text(encoding="utf-8")

    assert collsim.import_topology(Infrastructure()).topology.n_gpus == 16


@pytest.mark.parametrize(("cut", "ratio"), [(0, 1.0), (2, 2.0), (3, 4.0)])
def test_uplinks_that_are_missing_are_oversubscription(cut, ratio):
    """Four hosts of a leaf over what is left of its four cables to the spine; the worst leaf counts."""
    lines = (EXAMPLES / "ibnetdiscover.txt").read_text().splitlines(keepends=True)
    gone = [f"[{port}]\t" for port in range(36, 36 - cut, -1)]
    back = [f'"S-00000000000000a0"[{port}]\t' for port in range(36, 36 - cut, -1)]
    leaf0 = next(place for place, line in enumerate(lines) if "leaf1" in line)
    kept = [
        line
        for place, line in enumerate(lines)
        if not (place < leaf0 and line.startswith(tuple(gone))) and not any(end in line for end in back)
    ]
    assert len(lines) - len(kept) == 2 * cut
    tree = read_ibnetdiscover("".join(kept), "f.txt", Faults())
    assert tree.oversubscription == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("figures", "adapters"), [({}, 8), ({"nic.per_gpu": "2"}, 16), ({"nic.shared_by": "2"}, 4), ({"gpu.count": "4"}, 4)]
)
def test_adapters_of_a_node(figures, adapters):
    topology = load_topology("hgx_h100", figures)
    assert adapter_count(topology, topology.n_gpus) == adapters


@pytest.mark.parametrize(
    "rows",
    [
        ("Switch, Ring", "8, 4", "400, 50", "936.25, 1000"),
        ("Ring, Ring, Ring", "4, 4, 4", "32, 16, 16", "1, 1, 1"),
        ("FullyConnected, Switch, Ring", "3, 4, 5", "200, 100, 50", "50, 500, 2000"),
        ("Ring, FullyConnected", "5, 4", "80, 80", "700, 700"),
        ("Switch", "16", "50", "500"),
    ],
)
def test_networks_of_several_dimensions_come_back_as_they_were(tmp_path, rows):
    keys = ("topology", "npus_count", "bandwidth", "latency")
    file = tmp_path / "net.yml"
    file.write_text("".join(f"{key}: [ {row} ]\n" for key, row in zip(keys, rows, strict=True)))
    found = collsim.import_topology(file).topology
    written = re.sub(r"  #.*", "", export_topology(found, "astra_sim"))
    assert written == file.read_text()


def test_what_is_no_product_of_dimensions_is_not_exported():
    for name in ("dgx1_v100", "hgx_h100", "mi250x_8oam"):
        with pytest.raises(UnsupportedError, match=f"{name} is no product of rings, switches and full meshes"):
            export_topology(load_topology(name), "astra_sim")


def test_graphs_say_that_they_hold_no_machine():
    found = collsim.import_topology("examples/imports/nccl_graph.xml")
    with pytest.raises(collsim.CollsimError, match="they hold rings and trees, no machine"):
        found.topology.n_gpus  # noqa: B018


@pytest.mark.parametrize(("last", "told"), [(4, "8 hosts on 2 leaves of 4"), (2, "6 hosts on 2 leaves of 2 to 4")])
@pytest.mark.parametrize("form", ["tree", "block"])
def test_sizes_of_leaves_are_told_from_the_least_to_the_most(last, told, form):
    name = "SwitchName" if form == "tree" else "BlockName"
    text = f"{name}=s1 Nodes=n[1-4]\n{name}=s2 Nodes=m[1-{last}]\n"
    (line, *_) = read_slurm(text, "topology.conf", Faults()).read
    assert line.startswith(told if form == "tree" else told.replace("on 2 leaves", "in 2 blocks"))


def adapters_of(text, tmp_path, **asked):
    """What is imported of a matrix, and how many adapters the node has."""
    (tmp_path / "m.txt").write_text(text, encoding="utf-8")
    found = collsim.import_topology(tmp_path / "m.txt", **asked)
    return found, adapter_count(found.topology, found.topology.n_gpus)


def matrix(*ways, links="NV12", gpus=4):
    """A matrix of GPUs that are all linked, and adapters with their ways to each GPU."""
    names = [*(f"GPU{i}" for i in range(gpus)), *(f"NIC{i}" for i in range(len(ways)))]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(gpus):
        cells = [" X " if a == b else links for b in range(gpus)] + [way.split()[a] for way in ways]
        rows.append("\t".join((f"GPU{a}", *cells, "0-31", "0")))
    return "\n".join([*rows, ""])


@pytest.mark.parametrize(
    ("ways", "adapters", "why"),
    [
        (["SYS SYS SYS SYS"], 1, "the one adapter is beside no GPU: 1 adapter for 4 GPUs"),
        (["NODE NODE SYS SYS"] * 3, 2, "none of the 3 adapters is beside a GPU: 2 adapters for 4 GPUs"),
        (["SYS SYS PHB SYS"] * 2, 2, "2 adapters beside GPUs do not share out among 4: 2 adapters for 4 GPUs"),
        (["SYS SYS SYS SYS"] * 8, 4, None),
        ([], 4, None),
        (["PIX PIX SYS SYS", "SYS SYS PIX PIX"], 2, None),
    ],
)
def test_no_node_has_more_adapters_than_the_file_lists(tmp_path, ways, adapters, why):
    """Of as many as four A100 usually have, 4, only what is there; those of a file without any are assumed."""
    found, count = adapters_of(matrix(*ways), tmp_path)
    assert count == adapters
    assert [note for note in found.notes if "equal parts" in note] == ([f"{why} in equal parts"] if why else [])
    assert found.topology.fact("nic.bandwidth").text == "200 Gb/s"


def test_adapters_of_cards_that_no_system_has_are_taken_from_the_file(tmp_path):
    found, count = adapters_of(matrix("NODE NODE SYS SYS", "SYS SYS NODE NODE", links="SYS"), tmp_path)
    assert count == 2
    assert found.topology.fact("nic.bandwidth").status == "assumed"


def test_slow_adapters_are_none(tmp_path):
    text = (EXAMPLES / "nccl_topo.xml").read_text(encoding="utf-8").replace('speed="200000"', 'speed="1000"')
    (tmp_path / "t.xml").write_text(text, encoding="utf-8")
    (nic,) = (each for each in collsim.import_topology(tmp_path / "t.xml").assumed if each.what == "nic")
    assert nic.source.endswith("the file lists no adapter of 10 Gb/s or more")


def test_leaves_at_different_depths_are_told():
    rows = ("top Switches=mid,b", "mid Switches=a", "a Nodes=n[1-4]", "b Nodes=n[5-8]")
    text = "".join(f"SwitchName={row}\n" for row in rows)
    tree = read_slurm(text, "topology.conf", faults := Faults())
    assert not faults
    assert tree.tiers == 3
    assert "2 switches above, 2 to 3 tiers" in tree.read[0]
    assert tree.notes == ["leaves are 2 to 3 tiers deep; collsim builds them alike"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("{switch: s, children: 'a,c'}, {switch: a, nodes: 'n[1-4]'}", 't.yaml:2: there is no switch "c"'),
        ("{switch: a, nodes: 'n[1-4]'}, {switch: b, nodes: 'n4'}", '"n4" is on "a" already'),
        ("{switch: s, children: s}, {switch: a, nodes: 'n[1-4]'}", '"s" is below itself'),
        ("{switch: s}", "t.yaml:2: [0].tree.switches[0]: not a switch or block"),
    ],
)
def test_a_yaml_of_slurm_is_checked_as_its_conf_is(rows, words):
    read_slurm(f"- topology: t\n  tree: {{switches: [{rows}]}}\n", "t.yaml", faults := Faults())
    assert words in "\n".join(str(fault) for fault in faults)


def test_weights_of_nothing_are_no_weights(tmp_path):
    text = (EXAMPLES / "showtopo.txt").read_text(encoding="utf-8")
    text = re.sub(r"\b15\b", "0 ", text)
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    found = collsim.import_topology(tmp_path / "t.txt")
    assert not any(line.startswith("weight") for line in found.read)
    assert "weight 0 between all GPUs: it says nothing" in found.notes


@pytest.mark.parametrize(("signal", "data"), [("10.3125", 40), ("106.25", 400), ("212.5", 800), ("14.0625", 54.56)])
def test_iblinkinfo_tells_rates_on_the_wire(signal, data):
    text = (EXAMPLES / "iblinkinfo.txt").read_text(encoding="utf-8")
    tree = read_iblinkinfo(re.sub(r"25\.78125", signal, text), "i.txt", faults := Faults())
    assert not faults
    assert tree.rate_Bps == pytest.approx(data * 1e9 / 8)


@pytest.mark.parametrize(
    ("nics", "told"),
    [(8, (1, 1)), (16, (2, 1)), (24, (3, 1)), (4, (1, 2)), (2, (1, 4)), (1, (1, 8)), (6, ()), (12, ()), (0, ())],
)
def test_adapters_of_a_node_are_told_where_they_can_be_dealt_evenly(nics, told):
    device = _Device({"x": 8, "n": nics}, {"x": "xpu", "n": "nic"})
    text = _node(device, "hgx_h100", Ask("a.yaml", "a", None, Faults()), [])[0]
    assert tuple(map(int, re.findall(r"(?:per_gpu|shared_by): {value: (\d+)", text))) == told
