"""Commands that read a file and take flags say everything that is wrong with both at once."""

import pytest

RING = "examples/imports/msccl_ring.xml"
MATRIX = "examples/imports/topo_m.txt"
FORM = ("--format", "jsn")


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (
            ("schedule", "run", RING, "--topo", "dgx_a10", "--size", "0", "--dtype", "flt", "--set", "link", *FORM),
            ["--format", "--size", "NAME|--topo", "-d", "--set"],
        ),
        (("schedule", "run", "", "--topo", "dgx_a100", *FORM), ["--format", "FILE"]),
        (("schedule", "import", "", "-o", "a.html"), ["-o", "FILE"]),
        (("schedule", "import", RING, "--size", "1"), ["--size: 1 bytes", "works is 4"]),
        (("topo", "import", "", "--like", "hgx_h10", *FORM), ["--format", "FILE", "--like"]),
        (("topo", "import", MATRIX, "--like", "hgx_h10", "--kind", "nvidia"), ["--kind", "--like", "hgx_h100"]),
        (("topo", "draw", "hgx_h100", "--fail", "gpu:gpu9", "--degrade", "switch:a=5%"), ["--fail", "--degrade"]),
    ],
)
def test_every_fault_is_told(collsim, arguments, places):
    found = collsim(*arguments)
    assert (found.code, found.out) == (2, "")
    assert "defect" not in found.err
    for place in places:
        assert any(each in found.err for each in place.split("|")), found.err


def test_a_document_of_collsim_is_named(collsim, tmp_path):
    file = tmp_path / "seen.json"
    file.write_text(collsim("topo", "import", MATRIX, "--format", "json").out)
    found = collsim("topo", "import", file)
    assert found.code == 2
    assert 'a document of collsim, of schema "collsim.import/1"' in found.err
