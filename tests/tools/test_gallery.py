"""The gallery shows every system as it is drawn today, and measured logs where there are any."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from draw_gallery import PAGE, PICTURES, is_unseen, measured_on, page  # noqa: E402
from predictors import measured_rows  # noqa: E402

from collsim.report.svg.drawing import topology_svg  # noqa: E402
from collsim.topology import load_topology, systems  # noqa: E402

NAMES = [each["name"] for each in systems()]
CURVES = {name for name in NAMES if (PICTURES / f"{name}_busbw.svg").exists()}


def test_the_page_is_what_the_tool_writes():
    assert PAGE.read_text(encoding="utf-8") == page(systems(), CURVES)
    known = {f"{name}{kind}.svg" for name in NAMES for kind in ("", "_busbw")}
    assert {file.name for file in PICTURES.iterdir()} <= known


@pytest.mark.parametrize("name", NAMES)
def test_the_wiring_is_as_it_is_drawn(name):
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == topology_svg(load_topology(name))


def test_measured_rows_are_alike_healthy_and_of_the_system():
    rows = measured_rows()
    assert len(CURVES) > 10
    for name in CURVES:
        shown = dict(measured_on(name, rows))
        assert shown
        for op, found in shown.items():
            assert {(row.case.system, row.case.op, row.health) for row in found} == {(name, op, "ok")}
            assert len({row.case.ranks for row in found}) == 1
        said = "".join(ElementTree.parse(PICTURES / f"{name}_busbw.svg").getroot().itertext())
        for op, found in shown.items():
            if op in said:
                assert f"{op}, {found[0].case.ranks} ranks" in said
                assert is_unseen(found) or "logs also of the fit" in said
