"""Drawings: well-formed, every node named, every link drawn or spoken for, nothing outside the picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import networkx as nx
import pytest

from collsim.report.svg.drawing import topology_svg
from collsim.topology import Topology, load_topology, zoo_names
from collsim.topology.failures.degrade import damaged

SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> tuple[Topology, ElementTree.Element]:
    topology = load_topology(name)
    return topology, ElementTree.fromstring(topology_svg(topology))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", zoo_names())
def test_every_system_is_drawn_inside_the_picture(name: str):
    topology, root = drawn(name)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert 0 <= x <= width - float(box.attrib["width"])
        assert 0 <= y <= height - float(box.attrib["height"])
    assert topology.title in texts(root)
    boxes = [box for box in root.iter(f"{SVG}rect") if box.attrib["class"] in ("box", "switch")]
    assert len(boxes) == topology.wiring.n_nodes


@pytest.mark.parametrize("name", ["mi355x_ubb8", "dgx1_v100", "mi250x_node", "hgx_h100", "pcie_gen5_8gpu"])
def test_one_line_per_wired_pair_and_a_tag_where_links_run_side_by_side(name: str):
    topology, root = drawn(name)
    wiring = topology.wiring
    counts = {}
    for a, b, count in zip(wiring.link_src, wiring.link_dst, wiring.link_count, strict=True):
        counts[min(a, b), max(a, b)] = int(count)
    assert len(list(root.iter(f"{SVG}path"))) == len(counts)
    tags = sorted(text for text in texts(root) if re.fullmatch(r"\d+x", text))
    if topology.wiring.coordinates.kind != "switched":
        assert tags == sorted(f"{count}x" for count in counts.values() if count > 1)


def test_a_rack_draws_one_gpu_for_all_and_says_so():
    _, root = drawn("gb200_nvl72")
    assert len(list(root.iter(f"{SVG}path"))) == 18
    assert "only the links of gpu0 are drawn; every GPU has the same" in texts(root)
    assert "1 link from every GPU to each of 18 switches" in texts(root)


def test_planes_with_different_numbers_of_links():
    _, root = drawn("hgx_h100")
    assert [text for text in texts(root) if "from every GPU" in text] == [
        f"{count} links from every GPU" for count in (5, 4, 4, 5)
    ]


def test_gpus_that_differ_are_given_as_a_range():
    _, root = drawn("mi250x_node")
    assert any("300 GB/s to 350 GB/s in one direction" in text for text in texts(root))


def test_rates_stand_in_the_legend_and_light_and_dark_are_both_styled():
    topology, root = drawn("pcie_gen5_8gpu")
    legend = " ".join(texts(root))
    assert "63 GB/s per direction" in legend
    assert "64 GB/s per direction" in legend
    assert "prefers-color-scheme: dark" in topology_svg(topology)


def damaged_picture(name: str, fail: list[str], degrade: list[str]) -> ElementTree.Element:
    return ElementTree.fromstring(topology_svg(damaged(load_topology(name), fail, degrade)))


def looks(root: ElementTree.Element, kind: str, look: str) -> int:
    return sum(look in each.attrib.get("class", "").split() for each in root.iter(f"{SVG}{kind}"))


@pytest.mark.parametrize(
    ("name", "fail", "degrade", "lost", "weak", "gone"),
    [
        ("mi300x_ubb8", ["link:gpu0-gpu1"], ["link:gpu2-gpu5=50%"], 1, 1, 0),
        ("mi300x_ubb8", ["gpu:gpu3"], [], 7, 0, 1),
        ("hgx_h100", ["switch:nvsw2", "gpu:gpu5"], [], 8 + 3, 0, 2),
        ("gb200_nvl72", [], ["link:gpu7-nvsw3=50%"], 0, 1, 0),
        ("dgx1_v100", ["link:gpu0-gpu3:1"], [], 0, 1, 0),
    ],
)
def test_what_has_failed_is_drawn_where_it_was(name, fail, degrade, lost, weak, gone):
    whole, root = load_topology(name), damaged_picture(name, fail, degrade)
    assert (looks(root, "path", "lost"), looks(root, "path", "weak"), looks(root, "rect", "gone")) == (lost, weak, gone)
    boxes = looks(root, "rect", "box") + looks(root, "rect", "switch")
    assert boxes == whole.wiring.n_nodes
    assert any("failed" in text or " at 50%" in text for text in texts(root))
    assert looks(ElementTree.fromstring(topology_svg(whole)), "path", "lost") == 0


@pytest.mark.parametrize("fail", ["switch:leaf0", "nic:n1.nic7", "gpu:n0.gpu0", "link:n0.gpu0-n0.nvsw*"])
@pytest.mark.parametrize("nodes", [2, 64])
def test_damage_of_a_cluster_is_told_whatever_its_size(fail, nodes):
    whole = load_topology("h100_rail", scale_out={"nodes": str(nodes)})
    root = ElementTree.fromstring(topology_svg(damaged(whole, [fail], [])))
    assert any("failed: " in text for text in texts(root))
    assert looks(root, "rect", "gone") == (fail == "switch:leaf0")
    assert (looks(root, "path", "lost") > 0) == (fail == "switch:leaf0")


def test_a_cluster_of_another_size_is_not_called_as_the_file_is():
    whole = load_topology("h100_rail")
    assert whole.title.startswith("NVIDIA H100, 64 nodes")
    assert load_topology("h100_rail", scale_out={"nodes": "2"}).title.startswith("2 nodes of ")


@pytest.mark.parametrize(("dims", "rows", "columns"), [((3, 4), 3, 4), ((2, 3, 4), 3, 8), ((4, 4, 4), 8, 8)])
def test_a_torus_is_drawn_as_a_grid(dims, rows, columns):
    graph = nx.grid_graph(dims[::-1], periodic=True)
    nx.set_edge_attributes(graph, {edge: {"bandwidth_Bps": 50e9, "latency_s": 4e-7} for edge in graph.edges})
    root = ElementTree.fromstring(topology_svg(load_topology(graph)))
    boxes = [box.attrib for box in root.iter(f"{SVG}rect") if box.attrib["class"] == "box"]
    assert len({(box["x"], box["y"]) for box in boxes}) == len(boxes) == graph.number_of_nodes()
    assert (len({box["y"] for box in boxes}), len({box["x"] for box in boxes})) == (rows, columns)
