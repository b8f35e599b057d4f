"""Drawings: well-formed, every node named, every link drawn or spoken for, nothing outside the picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from collsim.report.svg.drawing import topology_svg
from collsim.topology import Topology, load_topology, zoo_names

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
