"""Loading, overriding, converting and describing topologies."""

import dataclasses
import pathlib
import re
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

from collsim import simulate
from collsim.core.errors import InputError, SpecError, UnknownNameError
from collsim.topology import (
    STATUSES,
    Topology,
    check_file,
    describe,
    load_topology,
    parse_topology,
    remarks,
    zoo_names,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "topologies.md"
ARRAYS = (
    "node_latency_s",
    "link_src",
    "link_dst",
    "link_count",
    "link_bandwidth_Bps",
    "link_latency_s",
    "link_efficiency",
)

RING = """
schema: collsim.topology/1
builder: explicit
link: {bandwidth: 50 GB/s, latency: 1 us, efficiency: 80%}
nodes: [{name: a}, {name: b}, {name: c}, {name: s, kind: switch, latency: 300 ns}]
links:
  - {a: a, b: b}
  - {a: b, b: c, bandwidth: 25 GB/s, count: 3}
  - {a: c, b: s, latency: 2 us, duplex: false}
  - {a: s, b: a, efficiency: 1}
"""


def same_wiring(one, two):
    assert one.node_names == two.node_names
    assert one.node_kinds == two.node_kinds
    assert one.n_gpus == two.n_gpus
    assert one.coordinates.kind == two.coordinates.kind
    for name in ARRAYS:
        left, right = getattr(one, name), getattr(two, name)
        assert left.dtype == right.dtype, name
        assert np.array_equal(left, right), name
    for name in ("node", "local", "rail", "pod", "plane"):
        assert np.array_equal(getattr(one.coordinates, name), getattr(two.coordinates, name))


def test_mesh_arrays():
    wiring = load_topology("mi355x_ubb8").wiring
    assert wiring.node_names == tuple(f"gpu{rank}" for rank in range(8))
    assert wiring.n_links == 56
    assert [wiring.link_name(link) for link in (0, 7, 55)] == ["gpu0->gpu1", "gpu1->gpu0", "gpu7->gpu6"]
    assert np.all(wiring.link_bandwidth_Bps == 76.8e9)
    assert np.all(wiring.link_latency_s == 5e-7)
    assert wiring.coordinates.kind == "mesh"
    assert wiring.link_src.dtype == np.int64
    assert wiring.link_bandwidth_Bps.dtype == np.float64


def test_switched_arrays():
    wiring = load_topology("hgx_h100").wiring
    assert wiring.node_names[8:] == ("nvsw0", "nvsw1", "nvsw2", "nvsw3")
    assert wiring.n_links == 64
    assert wiring.link_name(13) == "gpu3->nvsw1"
    assert wiring.link_count[:4].tolist() == [5, 4, 4, 5]
    assert wiring.link_bandwidth_Bps[:4].tolist() == [125e9, 100e9, 100e9, 125e9]
    assert wiring.node_latency_s.tolist() == [0.0] * 8 + [2e-7] * 4
    assert wiring.coordinates.plane.tolist() == [0, 1, 2, 3]
    assert wiring.coordinates.rail.tolist() == list(range(8))


@pytest.mark.parametrize("name", zoo_names())
def test_canonical_and_read_only(name):
    wiring = load_topology(name).wiring
    key = wiring.link_src * wiring.n_nodes + wiring.link_dst
    assert np.all(np.diff(key) > 0)
    for array in (*(getattr(wiring, field) for field in ARRAYS), wiring.coordinates.local, wiring.coordinates.plane):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        wiring.n_gpus = 3


@pytest.mark.parametrize("name", zoo_names())
def test_round_trips(name):
    topology = load_topology(name)
    again = Topology.from_graph(topology.graph)
    same_wiring(topology.wiring, again.wiring)
    assert (again.name, again.title, again.source) == (topology.name, topology.title, "graph")
    assert load_topology(topology.graph).sha256 == again.sha256
    copy = parse_topology(topology.to_yaml())
    same_wiring(topology.wiring, copy.wiring)
    assert copy.name == f"{name}_copy"
    assert copy.title == topology.title
    assert copy.in_network_reduction == topology.in_network_reduction


def test_explicit():
    wiring = parse_topology(RING, "ring.yaml").wiring
    rows = {
        wiring.link_name(i): (
            float(wiring.link_bandwidth_Bps[i]),
            float(wiring.link_latency_s[i]),
            float(wiring.link_efficiency[i]),
            int(wiring.link_count[i]),
        )
        for i in range(wiring.n_links)
    }
    assert rows == {
        "a->b": (50e9, 1e-6, 0.8, 1),
        "b->a": (50e9, 1e-6, 0.8, 1),
        "b->c": (75e9, 1e-6, 0.8, 3),
        "c->b": (75e9, 1e-6, 0.8, 3),
        "c->s": (50e9, 2e-6, 0.8, 1),
        "s->a": (50e9, 1e-6, 1.0, 1),
        "a->s": (50e9, 1e-6, 1.0, 1),
    }
    assert wiring.node_latency_s.tolist() == [0, 0, 0, 3e-7]
    assert wiring.coordinates.kind == "irregular"
    assert wiring.coordinates.plane.tolist() == [-1]


def test_explicit_round_trips():
    topology = parse_topology(RING, "ring.yaml")
    assert topology.name == "ring"
    same_wiring(topology.wiring, Topology.from_graph(topology.graph).wiring)
    same_wiring(topology.wiring, parse_topology(topology.to_yaml()).wiring)


def test_regular_shapes_are_recognised_in_lists():
    text = load_topology("hgx_h100").to_yaml()
    assert parse_topology(text).wiring.coordinates.kind == "switched"
    assert parse_topology(text, "x.yaml", {"links[0].bandwidth": "20 GB/s"}).wiring.coordinates.kind == "irregular"
    assert parse_topology(text, "x.yaml", {"nodes[9].latency": "1 us"}).wiring.coordinates.kind == "switched"


def test_one_gpu():
    topology = load_topology("mi355x_ubb8", {"gpu.count": "1"})
    assert (topology.n_gpus, topology.wiring.n_links) == (1, 0)
    shown = describe(topology)
    assert (shown["per_gpu_uni_Bps"], shown["bisection_uni_Bps"], shown["physical_links"]) == (0.0, None, 0)
    same_wiring(topology.wiring, parse_topology(topology.to_yaml()).wiring)


def test_overrides():
    topology = load_topology(
        "hgx_h100",
        {"link.bandwidth": "400 Gb/s", "switch.latency": "1 us", "nic.bandwidth": "800 Gb/s", "gpu.count": "4"},
    )
    assert topology.n_gpus == 4
    assert topology.wiring.link_bandwidth_Bps[0] == 5 * 50e9
    assert topology.wiring.node_latency_s[4] == 1e-6
    fact = topology.fact("link.bandwidth")
    assert (fact.text, fact.value, fact.status) == ("400 Gb/s", 50e9, "set")
    assert fact.note == "was 25 GB/s (datasheet)"
    assert fact.where == "--set link.bandwidth"
    assert topology.fact("nic.bandwidth").value == 100e9


@pytest.mark.parametrize(
    "overrides",
    [
        {"switch.links_per_plane": "[6, 6, 3, 3]"},
        [("switch.links_per_plane", "6,6,3,3")],
        ["switch.links_per_plane=6, 6,3,3"],
    ],
)
def test_overrides_in_every_form(overrides):
    assert load_topology("hgx_h100", overrides).wiring.link_count[:4].tolist() == [6, 6, 3, 3]


def test_a_switch_less():
    topology = load_topology("gb200_nvl72", ["switch.planes=17"])
    assert describe(topology)["per_gpu_uni_Bps"] == 850e9


def test_override_of_what_the_file_lacks():
    text = """
schema: collsim.topology/1
builder: switched
gpu: {count: 2}
link: {bandwidth: 25 GB/s}
switch: {planes: 1}
"""
    topology = parse_topology(text, "x.yaml", {"nic.bandwidth": "400 Gb/s", "in_network_reduction": "SHARP"})
    assert topology.fact("nic.bandwidth").value == 50e9
    assert topology.in_network_reduction == "SHARP"
    assert topology.fact("link.bandwidth").status == "user"
    assert topology.fact("link.latency").status == "assumed"
    assert topology.fact("link.latency").where == "default"


@pytest.mark.parametrize("word", ["none", "no", "off", "false", "Off", "FALSE"])
def test_words_for_no_reduction(word):
    topology = load_topology("hgx_h100", {"in_network_reduction": word})
    assert topology.in_network_reduction is None
    assert topology.fact("in_network_reduction").text == "none"
    assert load_topology("hgx_h100", {"in_network_reduction": "nvls"}).in_network_reduction == "NVLS"


def test_no_overrides():
    assert load_topology("hgx_h100", None).sha256 == load_topology("hgx_h100").sha256


def test_remarks():
    one_way = """
schema: collsim.topology/1
builder: explicit
link: {bandwidth: 25 GB/s}
nodes: [{name: a}, {name: b}, {name: c}, {name: d}]
links: [{a: a, b: b}, {a: c, b: d}]
"""
    assert remarks(parse_topology(one_way)) == ("not all GPUs can reach each other: there is no way from a to c",)
    joined = one_way.replace("{a: c, b: d}]", "{a: c, b: d}, {a: b, b: c, duplex: false}]")
    assert remarks(parse_topology(joined)) == ("not all GPUs can reach each other: there is no way from c to a",)
    assert remarks(load_topology("pcie_gen5_8gpu")) == ()


def test_an_irregular_system_has_no_planes():
    assert describe(load_topology("pcie_gen5_8gpu"))["switches"]["planes"] == []
    assert describe(load_topology("hgx_h100"))["switches"]["planes"] != []


def test_sections_pass_their_source_on():
    text = """
schema: collsim.topology/1
builder: full_mesh
gpu: {count: 2}
link: {bandwidth: 25 GB/s, latency: {value: 1 us, status: assumed, source: guess}, status: datasheet, source: a page}
"""
    topology = parse_topology(text)
    assert (topology.fact("link.bandwidth").status, topology.fact("link.bandwidth").source) == ("datasheet", "a page")
    assert topology.fact("link.bandwidth").where == "topology.yaml:5"
    assert topology.fact("link.latency").source == "guess"
    assert topology.fact("gpu.count").status == "user"


CHILD = """
schema: collsim.topology/1
extends: hgx_h100
gpu: {count: 4, model: mine}
link: {latency: 1 us}
nic: {bandwidth: {value: 200 Gb/s, status: measured, source: a test}}
"""


def test_extends():
    base, topology = load_topology("hgx_h100"), parse_topology(CHILD, "mine.yaml")
    assert (topology.name, topology.title, topology.n_gpus) == ("mine", "mine", 4)
    assert topology.labels["extends"] == "hgx_h100"
    assert topology.labels["gpu.model"] == "mine"
    assert topology.labels["switch.model"] == "NVSwitch3"
    assert "notes" not in topology.labels
    assert topology.in_network_reduction == "NVLS"
    assert topology.wiring.node_names[4] == "nvsw0"
    assert topology.wiring.link_latency_s[0] == 1e-6
    assert topology.wiring.link_count[:4].tolist() == [5, 4, 4, 5]
    facts = {path: topology.fact(path) for path in ("gpu.count", "link.bandwidth", "link.latency", "nic.bandwidth")}
    assert {path: (fact.status, fact.where) for path, fact in facts.items()} == {
        "gpu.count": ("user", "mine.yaml:4"),
        "link.bandwidth": ("datasheet", base.fact("link.bandwidth").where),
        "link.latency": ("user", "mine.yaml:5"),
        "nic.bandwidth": ("measured", "mine.yaml:6"),
    }
    assert base.fact("link.bandwidth").where.startswith("topologies/hgx_h100.yaml:")
    assert topology.fact("link.bandwidth") == base.fact("link.bandwidth")
    assert topology.fact("nic.per_gpu") == base.fact("nic.per_gpu")


def test_extends_what_extends_and_overrides():
    text = "{schema: collsim.topology/1, extends: gb300_nvl72, gpu: {count: 36}}"
    topology = parse_topology(text, "half.yaml", {"link.bandwidth": "100 GB/s", "link.latency": "1 us"})
    assert topology.n_gpus == 36
    assert describe(topology)["per_gpu_uni_Bps"] == 1.8e12
    assert topology.fact("link.bandwidth").note == "was 50 GB/s (datasheet)"
    assert topology.fact("link.bandwidth").where == "--set link.bandwidth"
    assert topology.fact("link.latency").note == "was 160 ns (assumed)"
    assert topology.fact("switch.ports").where.startswith("topologies/gb200_nvl72.yaml:")
    assert topology.fact("switch.planes").where.startswith("topologies/gb300_nvl72.yaml:")


def test_extends_a_list():
    text = "{schema: collsim.topology/1, extends: dgx1_v100, title: slower, link: {bandwidth: 20 GB/s}}"
    topology, base = parse_topology(text), load_topology("dgx1_v100")
    assert describe(topology)["per_gpu_uni_Bps"] == 6 * 20e9
    assert topology.fact("links[0].count") == base.fact("links[0].count")
    assert topology.fact("links[0].count").status == "measured"
    assert topology.fact("links[0].count").source.startswith("nvidia-smi topo -m")
    pair = "gpu: {count: 2}, nodes: [{name: x}, {name: y}], links: [{a: x, b: y}]"
    topology = parse_topology(f"{{schema: collsim.topology/1, extends: dgx1_v100, {pair}}}")
    assert topology.wiring.node_names == ("x", "y")
    assert topology.wiring.link_bandwidth_Bps.tolist() == [25e9, 25e9]


def test_digest_of_what_is_inherited(tmp_path, monkeypatch):
    from collsim.topology import zoo

    before = parse_topology(CHILD).sha256
    assert before == parse_topology(CHILD).sha256 != parse_topology(CHILD.replace("1 us", "2 us")).sha256
    shipped = (zoo.zoo_directory() / "hgx_h100.yaml").read_text()
    (tmp_path / "hgx_h100.yaml").write_text(shipped.replace("0.824", "0.825"))
    monkeypatch.setattr(zoo, "zoo_directory", lambda: tmp_path)
    assert parse_topology(CHILD).sha256 != before


def test_section_provenance_is_inherited(tmp_path, monkeypatch):
    from collsim.topology import zoo

    (tmp_path / "base.yaml").write_text("""schema: collsim.topology/1
builder: full_mesh
gpu: {count: 4, model: x, status: datasheet, source: a page}
link:
  status: measured
  bandwidth: 25 GB/s
  latency: {value: 1 us, note: round}
  efficiency: {value: 1, status: assumed}
""")
    monkeypatch.setattr(zoo, "zoo_directory", lambda: tmp_path)
    topology = parse_topology("{schema: collsim.topology/1, extends: base, link: {bandwidth: 50 GB/s}}")
    found = {fact.path: (fact.status, fact.source, fact.note) for fact in topology.facts if fact.where != "default"}
    assert found == {
        "gpu.count": ("datasheet", "a page", ""),
        "link.bandwidth": ("user", "", ""),
        "link.latency": ("measured", "", "round"),
        "link.efficiency": ("assumed", "", ""),
    }


SERVER = """
schema: collsim.topology/1
builder: explicit
link: {bandwidth: 32 GB/s, status: datasheet, source: a page}
switch: {ports: 3, latency: 100 ns}
nodes:
  - {name: gpu0}
  - {name: gpu1}
  - {name: gpu2}
  - {name: s, kind: switch}
  - {name: cpu0, kind: cpu, latency: 300 ns}
links:
  - {a: gpu0, b: s, count: 2}
  - {a: gpu1, b: cpu0}
  - {a: gpu2, b: cpu0}
  - {a: s, b: cpu0, count: {value: 1, status: assumed}}
"""


def test_kinds_of_nodes():
    topology = parse_topology(SERVER)
    wiring = topology.wiring
    assert wiring.node_kinds == ("gpu", "gpu", "gpu", "switch", "cpu")
    assert wiring.node_latency_s.tolist() == [0, 0, 0, 1e-7, 3e-7]
    assert topology.graph.nodes["cpu0"]["kind"] == "cpu"
    for again in (Topology.from_graph(topology.graph).wiring, parse_topology(topology.to_yaml()).wiring):
        same_wiring(wiring, again)
    shown = describe(topology)
    assert shown["switches"]["count"] == 1
    assert shown["switches"]["ports_used"] == 3
    assert shown["switches"]["latency_s"] == 1e-7
    assert shown["cpus"] == 1
    text = load_topology("hgx_h100", {"in_network_reduction": "none"}).to_yaml()
    star = parse_topology(text.replace("kind: switch", "kind: cpu"))
    assert star.wiring.coordinates.kind == "irregular"
    assert describe(star)["switches"] == {}


def test_links_take_their_source_from_the_section():
    topology = parse_topology(SERVER)
    assert (topology.fact("links[0].count").status, topology.fact("links[0].count").source) == ("datasheet", "a page")
    assert (topology.fact("links[3].count").status, topology.fact("links[3].count").source) == ("assumed", "")


def test_first_gpus_of_a_list():
    wiring = parse_topology(SERVER, "t.yaml", {"gpu.count": "2"}).wiring
    assert wiring.node_names == ("gpu0", "gpu1", "s", "cpu0")
    assert {wiring.link_name(link) for link in range(wiring.n_links)} == {
        *("gpu0->s", "s->gpu0", "gpu1->cpu0", "cpu0->gpu1", "s->cpu0", "cpu0->s")
    }
    text = SERVER.replace("gpu2, b: cpu0", "gpu2, b: cpu0, count: 1")
    assert "links[2].count" in {fact.path for fact in parse_topology(text).facts}
    assert "links[2].count" not in {fact.path for fact in parse_topology(text, "t.yaml", {"gpu.count": "2"}).facts}
    for name in ("dgx1_v100", "dgx2_v100", "pcie_gen5_8gpu"):
        whole, part = load_topology(name), load_topology(name, {"gpu.count": "4"})
        assert part.wiring.n_nodes == whole.wiring.n_nodes - whole.n_gpus + 4
        same_wiring(part.wiring, Topology.from_graph(part.graph).wiring)


def test_defaults_are_listed_where_they_count():
    def defaults(text):
        return {fact.path for fact in parse_topology(text).facts if fact.where == "default"}

    head = "{schema: collsim.topology/1, gpu: {count: 2}, link: {bandwidth: 1 GB/s}, nic: {bandwidth: 1 GB/s}"
    assert defaults(head + ", builder: full_mesh}") == {
        *("link.latency", "link.efficiency", "link.per_pair", "nic.per_gpu")
    }
    assert defaults(head + ", builder: switched, switch: {planes: 1}}") == {
        *("link.latency", "link.efficiency", "switch.links_per_plane", "switch.latency", "nic.per_gpu")
    }
    assert defaults(SERVER) == {"link.latency", "link.efficiency"}
    assert defaults(SERVER.replace("{a: ", "{latency: 1 us, efficiency: 1, a: ")) == set()
    shared = head.replace("nic: {", "nic: {shared_by: 2, ") + ", builder: full_mesh}"
    assert "nic.per_gpu" not in defaults(shared)


def test_digest():
    plain, again = load_topology("hgx_h100"), load_topology("hgx_h100")
    changed = load_topology("hgx_h100", {"gpu.count": "4"})
    assert plain.sha256 == again.sha256
    assert len({plain.sha256, changed.sha256, load_topology("hgx_b200").sha256}) == 3
    assert len(changed.sha256) == 64


def test_aliases_and_quotes():
    text = """
schema: collsim.topology/1
builder: explicit
nodes: [{name: 'x'}, {name: "y"}, {name: 3}]
links: [{a: x, b: y, bandwidth: &rate 25 GB/s}, {a: y, b: 3, bandwidth: *rate}]
"""
    topology = parse_topology(text)
    assert topology.wiring.node_names == ("x", "y", "3")
    assert set(topology.wiring.link_bandwidth_Bps.tolist()) == {25e9}


def test_paths(tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text(RING)
    assert load_topology(path).name == "mine"
    assert load_topology(str(path)).source == str(path)
    assert check_file(path).n_gpus == 3
    topology = load_topology("hgx_h100")
    assert load_topology(topology) is topology


def test_unknown_names():
    with pytest.raises(UnknownNameError, match='did you mean "mi355x_ubb8"'):
        load_topology("mi355_ubb8")
    with pytest.raises(UnknownNameError, match="known: alps, dgx1_v100"):
        load_topology("zzz")
    with pytest.raises(UnknownNameError, match=r"link\.bandwidth"):
        load_topology("hgx_h100").fact("link.bandwith")
    with pytest.raises(UnknownNameError, match="gpu7"):
        load_topology("hgx_h100").rank("gpu77")
    assert load_topology("hgx_h100").rank("gpu7") == 7
    with pytest.raises(InputError, match="cannot be an int"):
        load_topology(5)
    with pytest.raises(InputError, match="overrides need"):
        load_topology(load_topology("hgx_h100"), {"gpu.count": "3"})
    with pytest.raises(InputError, match="expected a NetworkX graph"):
        Topology.from_graph("hgx_h100")


def test_describe_is_plain_data():
    import json

    for name in zoo_names():
        assert json.loads(json.dumps(describe(load_topology(name)), allow_nan=False))["name"] == name


def test_describe_irregular():
    shown = describe(parse_topology(RING))
    assert shown["bisection_uni_Bps"] is None
    assert shown["connected"]
    assert shown["physical_links"] == 1 + 3 + 1 + 1
    assert shown["link_latency_s"] == [1e-6, 2e-6]
    graph = nx.Graph()
    graph.add_edges_from([(0, 1), (2, 3)], bandwidth_Bps=1e9, latency_s=0.0)
    assert not describe(load_topology(graph))["connected"]


def test_kinds_of_links():
    shown = describe(load_topology("hgx_h100"))
    figures = {"link_bandwidth_Bps": 25e9, "latency_s": 1.5e-7, "efficiency": 0.824, "bundles": 16}
    up, down = {"from": "gpu", "to": "switch"}, {"from": "switch", "to": "gpu"}
    assert len(shown["link_kinds"]) == 4
    for way in (up, down):
        for links in (4, 5):
            assert {**way, "links": links, **figures} in shown["link_kinds"]
    assert sum(row["bundles"] for row in shown["link_kinds"]) == shown["bundles"]
    assert shown["switches"]["planes"] == [
        {"switches": 1, "links": 5},
        {"switches": 2, "links": 4},
        {"switches": 1, "links": 5},
    ]
    assert describe(load_topology("gb200_nvl72"))["switches"]["planes"] == [{"switches": 18, "links": 1}]


def test_wiring_table():
    rows = describe(parse_topology(RING))["wiring_table"]
    assert rows == [
        {"a": "a", "b": "b", "links": 1, "bandwidth_Bps": 50e9, "duplex": True},
        {"a": "a", "b": "s", "links": 1, "bandwidth_Bps": 50e9, "duplex": True},
        {"a": "b", "b": "c", "links": 3, "bandwidth_Bps": 75e9, "duplex": True},
        {"a": "c", "b": "s", "links": 1, "bandwidth_Bps": 50e9, "duplex": False},
    ]
    assert describe(load_topology("mi300x_ubb8"))["wiring_table"] == []
    big = nx.path_graph(17)
    nx.set_edge_attributes(big, 1e9, "bandwidth_Bps")
    nx.set_edge_attributes(big, 0.0, "latency_s")
    assert describe(load_topology(big))["wiring_table"] == []


class TestGraphs:
    def ring(self, n=4):
        graph = nx.cycle_graph(n)
        for edge in graph.edges:
            graph.edges[edge].update(bandwidth_Bps=50e9, latency_s=5e-7)
        return graph

    def test_undirected(self):
        topology = load_topology(self.ring())
        assert topology.name == "graph"
        assert topology.wiring.n_links == 8
        assert topology.wiring.node_names == ("gpu0", "gpu1", "gpu2", "gpu3")
        assert np.all(topology.wiring.link_efficiency == 1.0)

    def test_attributes(self):
        graph = topology = load_topology("hgx_h100").graph
        assert isinstance(topology, nx.DiGraph)
        assert graph.nodes["gpu3"] == {"kind": "gpu", "rank": 3, "latency_s": 0.0}
        assert graph.nodes["nvsw0"] == {"kind": "switch", "latency_s": 2e-7}
        assert graph.edges["gpu0", "nvsw0"] == {
            "bandwidth_Bps": 125e9,
            "latency_s": 1.5e-7,
            "efficiency": 0.824,
            "count": 5,
        }

    def test_ranks(self):
        graph = nx.relabel_nodes(self.ring(3), {0: "x", 1: "y", 2: "z"})
        nx.set_node_attributes(graph, {"x": 2, "y": 0, "z": 1}, "rank")
        assert Topology.from_graph(graph, name="named", title="A title").wiring.node_names == ("y", "z", "x")

    def test_multigraph(self):
        graph = nx.MultiGraph()
        for _ in range(3):
            graph.add_edge("a", "b", bandwidth_Bps=25e9, latency_s=1e-6)
        wiring = Topology.from_graph(graph).wiring
        assert wiring.link_count.tolist() == [3, 3]
        assert wiring.link_bandwidth_Bps.tolist() == [75e9, 75e9]
        graph.add_edge("a", "b", bandwidth_Bps=25e9, latency_s=2e-6)
        with pytest.raises(SpecError, match="parallel edges differ"):
            Topology.from_graph(graph)

    @pytest.mark.parametrize("n", [3, 4, 40])
    def test_equal_faults_are_told_once_with_their_first_places(self, n):
        graph = nx.cycle_graph(n)
        nx.set_edge_attributes(graph, "400 Gb/s", "capacity")
        graph.edges[0, 1].update(latency_s=-1.0)
        nx.set_node_attributes(graph, -2.0, "latency_s")
        with pytest.raises(SpecError) as caught:
            load_topology(graph)
        faults = caught.value.faults
        assert len({(fault.what, fault.hint) for fault in faults}) == len(faults) == 4
        told = {fault.where: fault.what for fault in faults}
        assert "latency_s must be seconds, 0 to 1e+06, not -1.0" in told["edge 0-1"]
        if n == 3:
            assert {"edge 0-1, edge 0-2, edge 1-2", "node 0, node 1, node 2"} <= set(told)
        else:
            assert {f"{n} edges, first 0-1, 0-{n - 1}, 1-2", f"{n} nodes, first 0, 1, 2"} <= set(told)
        for fault in faults:
            assert len(fault.places) in (0, n - ("latency_s must" in fault.what and "edges" in fault.where))

    def test_values_that_break_one_rule_are_told_once_and_none_is_lost(self):
        graph = nx.cycle_graph(6)
        for number, (a, b) in enumerate(graph.edges):
            graph.edges[a, b].update(bandwidth_Bps=-1.0 - number, latency_s=f"{number} us")
        with pytest.raises(SpecError) as caught:
            load_topology(graph)
        rate, latency = caught.value.faults
        assert rate.where == latency.where == "6 edges, first 0-1, 0-5, 1-2"
        assert rate.what.endswith("1 per link to 1e18, not -1.0, not -2.0, not -3.0, ...")
        assert rate.places[0] == "edge 0-1: not -1.0"
        assert [place.rpartition(": ")[2] for place in latency.places] == [f"not '{number} us'" for number in range(6)]

    def test_rates_out_of_all_bounds(self):
        for key, value in (("bandwidth_Bps", 1e308), ("bandwidth_Bps", 1e-3), ("latency_s", 1e300), ("count", 1e300)):
            graph = self.ring()
            graph.edges[0, 1][key] = value
            with pytest.raises(SpecError, match=f"edge 0-1: {key} must be .*, not ") as caught:
                load_topology(graph)
            assert len(caught.value.faults) <= 2  # a count also says what the rate of one link must be
        graph = self.ring()
        graph.edges[0, 1]["bandwidth_Bps"] = 10**400
        with pytest.raises(SpecError, match=r"bandwidth_Bps must be bytes/s, .*not of type int"):
            load_topology(graph)

    def test_an_edge_without_attributes_is_an_edge(self):
        with pytest.raises(SpecError) as caught:
            load_topology(nx.path_graph(2))
        assert [fault.where for fault in caught.value.faults] == ["edge 0-1", "edge 0-1"]
        assert "bandwidth_Bps must be bytes/s, 1 per link to 1e18, and is missing" in str(caught.value)

    def test_in_network_reduction(self):
        graph = load_topology("hgx_h100").graph.copy()
        for given, name in (("NVLS", "NVLS"), ("sharp", "SHARP"), ("off", None), (False, None), (None, None)):
            graph.graph["in_network_reduction"] = given
            assert load_topology(graph).in_network_reduction == name
        for given in ("", "FOO", True, 3, "NVSL"):
            graph.graph["in_network_reduction"] = given
            with pytest.raises(SpecError, match=r"graph: in_network_reduction: .*\n.*hint: .*NVLS"):
                load_topology(graph)
        ring = self.ring()
        ring.graph["in_network_reduction"] = "NVLS"
        with pytest.raises(SpecError, match="there is no switch that could reduce with NVLS"):
            load_topology(ring)

    def test_a_broken_link(self):
        graph = load_topology("mi355x_ubb8").graph.copy()
        graph.remove_edge("gpu0", "gpu1")
        wiring = load_topology(graph).wiring
        assert wiring.n_links == 55
        assert wiring.coordinates.kind == "irregular"

    def test_all_faults_at_once(self):
        graph = self.ring()
        graph.edges[0, 1]["bandwidth_Bps"] = -1
        graph.edges[1, 2]["latency_s"] = "1 us"
        graph.edges[2, 3].update(efficiency=2, count=1.5)
        graph.edges[3, 0]["capacity"] = graph.edges[3, 0].pop("bandwidth_Bps")
        graph.add_node(9, kind="gpuu", latency_s=-1)
        graph.add_node(10)
        graph.add_edge(1, 1, bandwidth_Bps=1e9, latency_s=0)
        with pytest.raises(SpecError) as caught:
            load_topology(graph)
        text = str(caught.value)
        for words in (
            "edge 0-1: bandwidth_Bps must be",
            "edge 1-2: latency_s must be",
            "edge 2-3: efficiency must be",
            "edge 2-3: count must be",
            'did you mean "bandwidth_Bps"',
            "kind 'gpuu' is unknown",
            "node 9: latency_s",
            "node 10: the GPU has no edge",
            "edge 1-1: the edge joins a node to itself",
        ):
            assert words in text

    def test_no_gpu(self):
        graph = nx.Graph()
        with pytest.raises(SpecError, match="there is no GPU"):
            load_topology(graph)
        graph.add_node("a", rank=1)
        with pytest.raises(SpecError, match="ranks are not 0 to 0"):
            load_topology(graph)

    def test_names_that_collide(self):
        graph = nx.Graph()
        graph.add_edge("1", 1, bandwidth_Bps=1e9, latency_s=0)
        with pytest.raises(SpecError, match="same name"):
            load_topology(graph)


def test_light_imports():
    code = "import sys, collsim.topology as t; t.zoo_names(); print([m for m in sys.modules if m in set(sys.argv[1:])])"
    heavy = ["numpy", "yaml", "pydantic", "networkx", "scipy", "numba", "click", "rich"]
    found = subprocess.run([sys.executable, "-c", code, *heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    code = "import sys, collsim.topology as t; t.load_topology('hgx_h100'); print('networkx' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


class TestDocs:
    text = DOCS.read_text(encoding="utf-8")

    @pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    def test_files(self, block):
        topology = parse_topology(block)
        assert topology.n_gpus >= 4
        assert describe(topology)["connected"]

    def test_statuses(self):
        for status, meaning in STATUSES.items():
            assert f"| `{status}` | {meaning} |" in self.text

    def test_every_key(self):
        from collsim.topology.files.overrides import known_paths

        shown = self.text.replace("`.latency`", "`links[i].latency`").replace("`.efficiency`", "`links[i].efficiency`")
        for path in known_paths():
            assert f"`{path}`" in shown, path

    def test_defaults(self):
        from collsim.topology.files.schema import Link, Switch

        link, switch = Link(), Switch()
        for path, figure in [("link.latency", link.latency), ("switch.latency", switch.latency)]:
            assert f"| `{path}` | time | {figure.value.text} |" in self.text


def test_few_links_are_found_as_many_are():
    wiring = load_topology("hgx_h100").wiring
    everyone = wiring.find_links(wiring.link_src, wiring.link_dst)
    assert everyone.tolist() == list(range(wiring.n_links))
    for link in (0, wiring.n_links // 2, wiring.n_links - 1):
        assert wiring.find_links(wiring.link_src[link], wiring.link_dst[link]) == link
    assert wiring.find_links([0, 0], [1, 0]).tolist() == [-1, -1]


SLOW_LINK = """schema: collsim.topology/1
extends: mi300x_ubb8
name: mine
changes:
  - {a: gpu0, b: gpu1, bandwidth: 32 GB/s, status: measured, source: our own test}
  - {a: gpu2, b: gpu3, present: false}
  - {a: gpu4, b: gpu5, count: 2}
"""


def test_a_file_changes_single_links_of_another():
    """64 GB/s and one link are built between any two; these pairs differ, in both directions, and no other."""
    found, base = parse_topology(SLOW_LINK, "mine.yaml"), load_topology("mi300x_ubb8")
    assert (found.wiring.n_links, base.wiring.n_links) == (54, 56)
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (6, 7)]
    src, dst = zip(*pairs, strict=True)
    links = found.wiring.find_links(src, dst)
    assert links[2:4].tolist() == [-1, -1]
    assert (found.wiring.link_bandwidth_Bps[links[[0, 1, 4, 5]]] / 1e9).tolist() == [32, 32, 128, 64]
    assert found.wiring.link_latency_s[links[0]] == base.wiring.link_latency_s[0]
    assert found.wiring.coordinates.kind == "irregular"
    fact = found.fact("changes[0].bandwidth")
    assert (fact.text, fact.status, fact.where) == ("32 GB/s", "measured", "mine.yaml:5")
    assert parse_topology(found.to_yaml("again"), "again.yaml").wiring.link_bandwidth_Bps.tolist() == (
        found.wiring.link_bandwidth_Bps.tolist()
    )
    slowed = parse_topology(SLOW_LINK.replace("  - {a: gpu2, b: gpu3, present: false}\n", ""))
    slow = simulate(slowed, "all_to_all", "64M", algo="direct", profile="ideal")
    assert slow.time_s == pytest.approx(2**26 / 8 / 32e9, rel=0.01), "an eighth over the slow pair"


def test_a_file_adds_single_links_to_another():
    """Two bridges on a box of PCIe, 50 GB/s each, with what ``link`` says of latency unless the entry says it."""
    text = """schema: collsim.topology/1
extends: pcie_gen5_8gpu
name: mine
changes:
  - {a: gpu0, b: gpu1, bandwidth: 50 GB/s, count: 2, efficiency: 1}
  - {a: gpu5, b: gpu4, bandwidth: 50 GB/s, latency: 1 us}
"""
    found, base = parse_topology(text, "mine.yaml"), load_topology("pcie_gen5_8gpu")
    assert found.wiring.n_links == base.wiring.n_links + 4
    links = found.wiring.find_links([0, 1, 4, 5], [1, 0, 5, 4])
    assert (found.wiring.link_bandwidth_Bps[links] / 1e9).tolist() == [100, 100, 50, 50]
    assert found.wiring.link_latency_s[links].tolist() == [150e-9, 150e-9, 1e-6, 1e-6]
    assert found.wiring.link_efficiency[links].tolist() == [1, 1, 0.88, 0.88]
    again = parse_topology(found.to_yaml("again"), "again.yaml").wiring
    assert again.find_links([0, 4], [1, 5]).tolist() == links[[0, 2]].tolist()
    sent = simulate(found, "send_recv", "1G", rank_list=[0, 1], profile="ideal")
    assert sent.time_s == pytest.approx(2**30 / 100e9, rel=1e-3), "over the bridge"
    with pytest.raises(SpecError, match=r"no link joins gpu0 and gpu2\s.*give it a bandwidth to add one"):
        parse_topology(text.replace("b: gpu1, bandwidth: 50 GB/s", "b: gpu2"), "mine.yaml")


def test_changes_of_links_that_are_not_there_are_told_at_once():
    wrong = SLOW_LINK.replace("b: gpu1", "b: gpu9").replace("a: gpu4, b: gpu5", "a: gpu3, b: gpu2")
    with pytest.raises(SpecError) as refused:
        parse_topology(wrong + "  - {a: gpu0, b: gpu0}\n", "mine.yaml")
    told = str(refused.value)
    missing = 'mine.yaml:5: changes[0].b: there is no node "gpu9"'
    for part in (missing, "changes[1] already", "gpu0 joined to itself"):
        assert part in told
    with pytest.raises(SpecError, match='did you mean "bandwidth"'):
        parse_topology(SLOW_LINK.replace("bandwidth", "bandwith"), "mine.yaml")


def test_a_file_with_faults_everywhere_tells_them_at_once():
    """Sections, wiring, single links, and the cluster around: what is wrong with one does not hide the others."""
    text = """schema: collsim.topology/1
name: bad
builder: explicit
gpu: {count: 3}
link: {bandwidth: 50 GB/x}
nic: {bandwidth: 400 Gb/s}
nodes: [{name: gpu0}, {name: gpu1}, {name: gpu2}]
links:
  - {a: gpu0, b: gpu1, bandwidth: 10 GB/s}
  - {a: gpu1, b: gpu0, bandwidth: 10 GB/s}
scale_out: {nodes: 7, fabric: dragonfly, rails: 5, racks: 4, gpus_per_node: 5, flows_per_pair: 900}
changes:
  - {a: gpu0, b: gpu5, bandwidth: 4 GB/s}
"""
    with pytest.raises(SpecError) as refused:
        parse_topology(text, "bad.yaml")
    told = [fault.where.partition(": ")[2] for fault in refused.value.faults]
    assert told == [
        "link.bandwidth", "nodes[2]", "links[1]", "scale_out.gpus_per_node", "scale_out.racks", "scale_out.racks",
        "scale_out.flows_per_pair", "scale_out.rails", "changes[0].b",
    ]  # fmt: skip
    mended = text.replace("GB/x", "GB/s").replace("  - {a: gpu1, b: gpu0,", "  - {a: gpu1, b: gpu2,")
    with pytest.raises(SpecError) as again:
        parse_topology(mended, "bad.yaml")
    assert [fault.where.partition(": ")[2] for fault in again.value.faults] == told[3:], "the wiring is right now"
