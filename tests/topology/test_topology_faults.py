"""Bad topology files: every fault names the file, the line, the path and what to do."""

import pathlib

import pytest

from collsim.core.errors import InputError, SpecError
from collsim.topology import check_file, cluster_names, load_topology, parse_topology, zoo_names

MESH = """schema: collsim.topology/1
builder: full_mesh
gpu: {count: 4}
link: {bandwidth: 25 GB/s}
"""
SWITCHED = """schema: collsim.topology/1
builder: switched
gpu: {count: 8}
link: {bandwidth: 25 GB/s}
switch: {planes: 4, links_per_plane: [5, 4, 4, 5], ports: 64}
"""
EXPLICIT = """schema: collsim.topology/1
builder: explicit
nodes:
  - {name: gpu0}
  - {name: gpu1}
  - {name: hub, kind: switch}
links:
  - {a: gpu0, b: hub, bandwidth: 25 GB/s}
  - {a: gpu1, b: hub, bandwidth: 25 GB/s}
"""

# what is changed, into what, and words of the message, where first
CASES = {
    "unknown key": (
        MESH,
        "bandwidth:",
        "bandwith:",
        ['t.yaml:4: link: unknown key "bandwith"; did you mean "bandwidth"?'],
    ),
    "unknown top key": (MESH, "gpu:", "gpus:", ['t.yaml:3: unknown key "gpus"; did you mean "gpu"?', "valid keys"]),
    "unknown key of a figure": (
        MESH,
        "25 GB/s",
        "{value: 25 GB/s, sauce: x}",
        ['t.yaml:4: link.bandwidth: unknown key "sauce"; did you mean "source"?'],
    ),
    "no unit": (MESH, "25 GB/s", "25", ['t.yaml:4: link.bandwidth: "25" has no unit', 'write "25 GB/s" (1e9 bytes/s)']),
    "unknown unit": (MESH, "25 GB/s", "25 GB", ["t.yaml:4: link.bandwidth:", "unknown unit", "did you mean"]),
    "zero rate": (MESH, "25 GB/s", "0 GB/s", ["t.yaml:4: link.bandwidth:", "more than 0", "hint"]),
    "negative rate": (MESH, "25 GB/s", "-3 GB/s", ["t.yaml:4: link.bandwidth:", "more than 0"]),
    "nan rate": (MESH, "25 GB/s", ".nan", ["t.yaml:4: link.bandwidth:", "not a number"]),
    "list as a rate": (MESH, "25 GB/s", "[25 GB/s]", ["t.yaml:4: link.bandwidth:", "not a number"]),
    "empty rate": (MESH, "25 GB/s", "", ["t.yaml:4: link.bandwidth: has no value"]),
    "no value": (MESH, "25 GB/s", "{status: user}", ['t.yaml:4: link.bandwidth: key "value" is missing']),
    "bad status": (
        MESH,
        "25 GB/s",
        "{value: 25 GB/s, status: mesured}",
        ["t.yaml:4: link.bandwidth.status:", 'did you mean "measured"?'],
    ),
    "no rate": (MESH, "{bandwidth: 25 GB/s}", "{type: x}", ['t.yaml:4: link: key "bandwidth" is missing', "64 GB/s"]),
    "time without unit": (
        MESH,
        "25 GB/s",
        "25 GB/s, latency: 5",
        ['t.yaml:4: link.latency: "5" has no unit', '"5 ns"'],
    ),
    "efficiency": (
        MESH,
        "25 GB/s",
        "25 GB/s, efficiency: 80",
        ['t.yaml:4: link.efficiency: fraction "80" is more than 1', 'write "80%" or 0.8'],
    ),
    "efficiency of a bit more than one": (
        MESH,
        "25 GB/s",
        "25 GB/s, efficiency: 1.2",
        ['t.yaml:4: link.efficiency: fraction "1.2" is more than 1', "write at most 1, or 100%"],
    ),
    "tiny rate": (MESH, "25 GB/s", "1e-30 GB/s", ['t.yaml:4: link.bandwidth: rate "1e-30 GB/s" is less than 1 B/s']),
    "huge rate": (MESH, "25 GB/s", "1e99 GB/s", ["t.yaml:4: link.bandwidth:", "is more than 1 EB/s"]),
    "huge time": (MESH, "25 GB/s", "25 GB/s, latency: 1e99 s", ["t.yaml:4: link.latency:", "more than 1,000,000 s"]),
    "reduction without a name": (
        SWITCHED,
        "gpu:",
        'in_network_reduction: ""\ngpu:',
        ['t.yaml:3: in_network_reduction: unknown in-network reduction ""', "known: NVLS, SHARP, none"],
    ),
    "reduction of another name": (
        SWITCHED,
        "gpu:",
        "in_network_reduction: NVSL\ngpu:",
        ["t.yaml:3: in_network_reduction:", 'unknown in-network reduction "NVSL"', 'did you mean "NVLS"?'],
    ),
    "reduction in a mesh": (
        MESH,
        "gpu:",
        "in_network_reduction: SHARP\ngpu:",
        ["t.yaml:3: in_network_reduction: a full mesh has no switch that could reduce with SHARP", "write none"],
    ),
    "reduction without a switch": (
        EXPLICIT.replace("kind: switch", "kind: cpu"),
        "nodes:",
        "in_network_reduction: NVLS\nnodes:",
        ["t.yaml:3: in_network_reduction: there is no switch that could reduce with NVLS", "write none"],
    ),
    "no GPU": (MESH, "count: 4", "count: 0", ['t.yaml:3: gpu.count: count "0" must be a whole number, 1 or more']),
    "half a GPU": (MESH, "count: 4", "count: 1.5", ["t.yaml:3: gpu.count:", "whole number"]),
    "boolean count": (MESH, "count: 4", "count: true", ["t.yaml:3: gpu.count:", "whole number"]),
    "no count": (MESH, "{count: 4}", "{model: x}", ['t.yaml:3: gpu: key "count" is missing', "count: 8"]),
    "no section": (MESH, "gpu: {count: 4}\n", "", ['t.yaml: section "gpu" is missing', "gpu: {count: 8}"]),
    "no link section": (MESH, "link: {bandwidth: 25 GB/s}\n", "", ['t.yaml: section "link" is missing']),
    "too many links": (
        MESH,
        "count: 4",
        "count: 1000000",
        ["t.yaml:3: gpu.count:", "links are more than", "at most 1000 GPUs"],
    ),
    "switch in a mesh": (MESH, "gpu:", "switch: {planes: 1}\ngpu:", ["t.yaml:3: switch: a full mesh has no switch"]),
    "nodes in a mesh": (MESH, "gpu:", "nodes: []\ngpu:", ["t.yaml:3: nodes: nodes belong to the explicit builder"]),
    "section is a word": (MESH, "{count: 4}", "four", ['t.yaml:3: gpu: "four" where a mapping is needed']),
    "unknown schema": (
        MESH,
        "topology/1",
        "topology/9",
        ["t.yaml:1: schema:", "not supported", "reads collsim.topology/1"],
    ),
    "no schema": (MESH, "schema: collsim.topology/1\n", "", ['t.yaml: key "schema" is missing', "start the file with"]),
    "unknown builder": (
        MESH,
        "full_mesh",
        "fullmesh",
        ['t.yaml:2: builder: "fullmesh" is not a known value', 'did you mean "full_mesh"?'],
    ),
    "no builder": (MESH, "builder: full_mesh\n", "", ['key "builder" is missing', "full_mesh, switched or explicit"]),
    "duplicate key": (
        MESH,
        "link:",
        "gpu: {count: 2}\nlink:",
        ['t.yaml:4: key "gpu" appears twice; first on line 3', "keep one"],
    ),
    "duplicate inner key": (MESH, "{count: 4}", "{count: 4, count: 5}", ['t.yaml:3: gpu: key "count" appears twice']),
    "YAML syntax": (MESH, "{count: 4}", "{count: 4", ["t.yaml:", "not valid YAML", "hint"]),
    "tab": (MESH, "gpu: {count: 4}", "gpu:\n\tcount: 4", ["t.yaml:4: not valid YAML", "indent with spaces"]),
    "two documents": (MESH, "link:", "---\nlink:", ["t.yaml:4: more than one document"]),
    "tag": (MESH, "4", "!!python/object/apply:os.system [ls]", ["t.yaml:3: tag", "is not supported"]),
    "merge key": (MESH, "{count: 4}", "{<<: {count: 4}}", ["t.yaml:3: merge keys"]),
    "unknown alias": (MESH, "25 GB/s", "*rate", ['t.yaml:4: alias "*rate" has no anchor']),
    "recursive alias": (MESH, "{count: 4}", "&x {count: *x}", ['t.yaml:3: alias "*x" has no anchor']),
    "key is a list": (MESH, "gpu:", "[a, b]: 1\ngpu:", ["t.yaml:3: a key must be a word"]),
    "nesting": (MESH, "4", "[" * 40 + "]" * 40, ["t.yaml:3: nested more than"]),
    "name of another": (
        MESH,
        "gpu:",
        "name: hgx_h100\ngpu:",
        ["t.yaml:3: name:", "belongs to a shipped topology", '"name: t"'],
    ),
    "planes as a list": (
        SWITCHED,
        "planes: 4",
        "planes: [5, 4]",
        ["t.yaml:5: switch.planes:", "links_per_plane: [5, 4]"],
    ),
    "planes do not match": (
        SWITCHED,
        "planes: 4",
        "planes: 5",
        ["t.yaml:5: switch.links_per_plane: links_per_plane lists 4 planes, but there are 5 planes", "a list of 5"],
    ),
    "a plane without links": (SWITCHED, "[5, 4,", "[5, 0,", ["t.yaml:5: switch.links_per_plane:", '"0" must be']),
    "empty planes": (SWITCHED, "[5, 4, 4, 5]", "[]", ["t.yaml:5: switch.links_per_plane: the list is empty"]),
    "no planes": (SWITCHED, "planes: 4, ", "", ['t.yaml:5: switch: key "planes" is missing']),
    "ports": (
        SWITCHED,
        "ports: 64",
        "ports: 32",
        ["t.yaml:5: switch.ports: 8 GPUs with 5 links each need 40 ports, but a switch has 32", "at most 6 GPUs fit"],
    ),
    "no switch": (SWITCHED, "switch:", "x-switch:", ['section "switch" is missing', 'unknown key "x-switch"']),
    "per pair of a switch": (
        SWITCHED,
        "25 GB/s",
        "25 GB/s, per_pair: 2",
        ["t.yaml:4: link.per_pair:", "links_per_plane"],
    ),
    "prefix": (SWITCHED, "planes: 4", "planes: 4, prefix: 'a b'", ["t.yaml:5: switch.prefix:", "letters, digits"]),
    "dangling end": (
        EXPLICIT,
        "a: gpu1",
        "a: gpu11",
        [
            't.yaml:9: links[1].a: there is no node "gpu11"',
            'did you mean "gpu1"?',
            't.yaml:5: nodes[1]: GPU "gpu1" has no link',
        ],
    ),
    "duplicate node": (
        EXPLICIT,
        "name: hub",
        "name: gpu0",
        ['t.yaml:6: nodes[2]: node "gpu0" appears twice', "nodes[0]"],
    ),
    "self link": (EXPLICIT, "a: gpu1", "a: hub", ['t.yaml:9: links[1]: a link from "hub" to itself']),
    "duplicate link": (
        EXPLICIT,
        "a: gpu1, b: hub",
        "a: hub, b: gpu0",
        ['t.yaml:9: links[1]: "hub" and "gpu0" are already joined by links[0]', "count: 2"],
    ),
    "GPU alone": (
        EXPLICIT,
        "  - {name: hub",
        "  - {name: x}\n  - {name: hub",
        ['t.yaml:6: nodes[2]: GPU "x" has no link'],
    ),
    "GPU that cannot receive": (
        EXPLICIT,
        "a: gpu1, b: hub",
        "a: gpu1, b: hub, duplex: false",
        ['t.yaml:5: nodes[1]: GPU "gpu1" has no incoming link', "{a: ..., b: gpu1}"],
    ),
    "wrong rank": (EXPLICIT, "name: gpu0}", "name: gpu7}", ['t.yaml:4: nodes[0]: GPU "gpu7" would be rank 0']),
    "forwarding GPU": (
        EXPLICIT,
        "name: gpu0}",
        "name: gpu0, latency: 1 us}",
        ["t.yaml:4: nodes[0]:", "only a switch or a CPU forwards"],
    ),
    "kind": (EXPLICIT, "kind: switch", "kind: swich", ["t.yaml:6: nodes[2].kind:", 'did you mean "switch"?']),
    "node name": (EXPLICIT, "name: hub", "name: 'the hub'", ["t.yaml:6: nodes[2].name:", "letters, digits"]),
    "node without name": (EXPLICIT, "name: hub, ", "", ['t.yaml:6: nodes[2]: key "name" is missing']),
    "link without end": (EXPLICIT, "a: gpu1, ", "", ['t.yaml:9: links[1]: key "a" is missing', "{a: gpu0, b: gpu1}"]),
    "link without rate": (
        EXPLICIT,
        "a: gpu1, b: hub, bandwidth: 25 GB/s",
        "a: gpu1, b: hub",
        ["t.yaml:9: links[1]:", "missing"],
    ),
    "duplex": (EXPLICIT, "b: hub, ", "b: hub, duplex: maybe, ", ["t.yaml:8: links[0].duplex:", "true or false"]),
    "links are a mapping": (EXPLICIT, "links:", "links: {}\nunused:", ["t.yaml:7: links: a mapping where a list"]),
    "no nodes": (EXPLICIT, "nodes:", "nodes: []\nunused:", ["t.yaml:3: nodes: an explicit topology needs nodes"]),
    "only switches": (EXPLICIT, "{name: gpu", "{kind: switch, name: gpu", ["t.yaml:3: nodes: there is no GPU"]),
    "count differs": (
        EXPLICIT,
        "nodes:",
        "gpu: {count: 3}\nnodes:",
        ["t.yaml:3: gpu.count: gpu.count is 3, but nodes list 2"],
    ),
    "planes of a list": (EXPLICIT, "nodes:", "switch: {planes: 1}\nnodes:", ["t.yaml:3: switch.planes:"]),
    "ports of a list": (
        EXPLICIT,
        "nodes:",
        "switch: {ports: 1}\nnodes:",
        ['t.yaml:7: nodes[2]: switch "hub" has 2 links, but only 1 ports'],
    ),
    "count of a list": (
        EXPLICIT,
        "nodes:",
        "gpu: {count: 0}\nnodes:",
        ["t.yaml:3: gpu.count:", "whole number, 1 or more"],
    ),
    "adapters": (
        MESH,
        "gpu:",
        "nic: {bandwidth: 25 GB/s, per_gpu: 2, shared_by: 2}\ngpu:",
        ["t.yaml:3: nic.shared_by:", "shared by several GPUs", 'write "per_gpu: 1" beside it'],
    ),
    "no GPU shares": (
        MESH,
        "gpu:",
        "nic: {bandwidth: 25 GB/s, shared_by: 0}\ngpu:",
        ["t.yaml:3: nic.shared_by:", "whole number, 1 or more"],
    ),
    "extends a stranger": (
        MESH,
        "gpu:",
        "extends: hgx_h10\ngpu:",
        ['t.yaml:3: extends: "hgx_h10" is not a shipped topology', 'did you mean "hgx_h100"?', "known: dgx1_v100"],
    ),
    "extends a path": (MESH, "gpu:", "extends: ../x.yaml\ngpu:", ['t.yaml:3: extends: "../x.yaml" is not a shipped']),
    "extends nothing": (MESH, "gpu:", "extends:\ngpu:", ["t.yaml:3: extends: nothing is not a shipped topology"]),
    "extends a list": (MESH, "gpu:", "extends: [hgx_h100]\ngpu:", ["t.yaml:3: extends: a mapping or a list is not"]),
    "reduction": (
        MESH,
        "gpu:",
        "in_network_reduction: [NVLS]\ngpu:",
        ["t.yaml:3: in_network_reduction:", "NVLS or SHARP"],
    ),
}


EXTENDING = {
    "too many GPUs": (
        "gpu: {count: 16}",
        ["t.yaml:3: gpu.count: 16 GPUs with 5 links each need 80 ports", "at most 12 GPUs fit"],
    ),
    "unit": ("link: {bandwidth: 25}", ['t.yaml:3: link.bandwidth: "25" has no unit']),
    "key": ("link: {bandwith: 25 GB/s}", ['t.yaml:3: link: unknown key "bandwith"; did you mean "bandwidth"?']),
    "planes": (
        "switch: {planes: 5}",
        ["t.yaml:3: switch.planes: links_per_plane lists 4 planes, but there are 5", "links_per_plane: 3"],
    ),
    "section": ("gpu: four", ['t.yaml:3: gpu: "four" where a mapping is needed']),
    "empty section": ("gpu:", ["t.yaml:3: gpu: nothing where a mapping is needed"]),
    "another builder": (
        "builder: full_mesh",
        ["t.yaml:3: builder: a full mesh has no switch", "topologies/hgx_h100.yaml:"],
    ),
    "shipped name": ("name: hgx_h100", ['t.yaml:3: name: the name "hgx_h100" belongs to a shipped topology']),
    "several": ("link: {latency: 1}\nnic: {per_gpu: x}", ["t.yaml:3: link.latency", "t.yaml:4: nic.per_gpu"]),
}


@pytest.mark.parametrize("case", EXTENDING)
def test_bad_extension(case):
    text, words = EXTENDING[case]
    with pytest.raises(SpecError) as caught:
        parse_topology(f"schema: collsim.topology/1\nextends: hgx_h100\n{text}\n", "t.yaml")
    for word in words:
        assert word in str(caught.value)
    assert all(fault.hint for fault in caught.value.faults)


ON_TOP = (
    "builder: full_mesh", "builder: switched", "builder: explicit", "gpu: {count: 1000}", "gpu: {count: 3}",
    "switch: {planes: 3}", "switch: {ports: 1}", "link: {per_pair: 3}", "nic: {per_gpu: 2}", "nic: {shared_by: 3}",
    "nic: {ports: 1000}", "in_network_reduction: NVLS", "scale_out: {fabric: single_switch}", "scale_out: {tiers: 1}",
    "scale_out: {fabric: dragonfly}", "scale_out: {radix: 2}", "scale_out: {network: efa}",
)  # fmt: skip


def refused(load):
    """The places of what is wrong, if anything is; what is missing has none that was given."""
    try:
        load()
    except SpecError as error:
        return {fault.where for fault in error.faults if "missing" not in fault.what}
    return set()


@pytest.mark.parametrize("name", [*zoo_names(), *cluster_names()])
def test_whatever_is_put_on_top_of_a_shipped_file_is_to_blame(name):
    for text in ON_TOP if name in ("pcie_gen5_8gpu", "hgx_h100", "alps") else ON_TOP[::4]:
        whole = f"schema: collsim.topology/1\nname: own\nextends: {name}\n{text}\n"
        places = refused(lambda whole=whole: parse_topology(whole, "t.yaml"))
        assert {place.partition(":")[0] for place in places} <= {"t.yaml"}
        section, _, figure = text.partition(": ")
        if figure.startswith("{"):
            key, _, value = figure.strip("{}").partition(": ")
            setting = {f"{section}.{key}": value}
            places = refused(lambda setting=setting: load_topology(name, overrides=setting))
            assert places <= {f'overrides["{section}.{key}"]', f"--set {section}.{key}"}


def test_of_several_figures_the_name_of_the_shipped_file_stands_for_all():
    text = "schema: collsim.topology/1\nextends: frontier\nscale_out: {fabric: rail}\nnic: {ports: 900}\n"
    with pytest.raises(SpecError, match="slingshot has no switch") as caught:
        parse_topology(text, "t.yaml")
    assert {fault.where for fault in caught.value.faults} == {"t.yaml:2: extends"}


def test_what_to_write_beside_a_figure_that_an_inherited_one_contradicts():
    text = "schema: collsim.topology/1\nname: own\nextends: pcie_gen5_8gpu\nnic: {per_gpu: 2%s}\n"
    with pytest.raises(SpecError) as caught:
        parse_topology(text % "", "t.yaml")
    (fault,) = caught.value.faults
    assert fault.where == "t.yaml:4: nic.per_gpu"
    assert fault.hint.startswith('write "shared_by: 1" beside it; it stands at topologies/pcie_gen5_8gpu.yaml:')
    assert parse_topology(text % ", shared_by: 1", "t.yaml").n_gpus == 8


def test_a_topology_cannot_extend_itself(tmp_path, monkeypatch):
    from collsim.topology import zoo

    (tmp_path / "me.yaml").write_text("{schema: collsim.topology/1, extends: me}")
    (tmp_path / "you.yaml").write_text("{schema: collsim.topology/1, extends: me}")
    monkeypatch.setattr(zoo, "zoo_directory", lambda: tmp_path)
    with pytest.raises(SpecError, match="cannot extend itself"):
        load_topology("me")
    (tmp_path / "me.yaml").write_text("{schema: collsim.topology/1, extends: you}")
    with pytest.raises(SpecError, match="cannot extend itself"):
        load_topology("me")


@pytest.mark.parametrize("case", CASES)
def test_bad_file(case, tmp_path):
    text, old, new, words = CASES[case]
    assert old in text
    path = tmp_path / "t.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(SpecError) as caught:
        check_file(path)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    for word in words:
        assert word in message, message
    for fault in caught.value.faults:
        assert fault.where.startswith(str(path))
        assert fault.hint


CONTENT = {
    "empty": (b"", "the file is empty"),
    "only comments": (b"# nothing\n", "the file is empty"),
    "a list": (b"- 1\n- 2\n", "holds a list, not a mapping"),
    "a word": (b"hello\n", "holds a single value, not a mapping"),
    "binary": (b"\x7fELF\x00\x01", "not a text file"),
    "not UTF-8": (b"schema: x\nname: \xff\xfe\n", "t.yaml:2: not a text file in UTF-8"),
    "control character": (b"schema: \x07\n", "U+0007"),
    "too large": (b"#" * (8 * 2**20 + 1), "larger than 8 MiB"),
    "byte order": ("schema: 1".encode("utf-16"), "not a text file"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_bad_content(case):
    content, words = CONTENT[case]
    with pytest.raises(SpecError) as caught:
        parse_topology(content, "t.yaml")
    assert words in str(caught.value)
    assert caught.value.faults[0].hint


def test_byte_order_mark_is_fine():
    assert parse_topology(b"\xef\xbb\xbf" + MESH.encode()).n_gpus == 4


def test_all_faults_at_once_in_order():
    text = """schema: collsim.topology/1
builder: explicit
gpu: {memory_bandwidth: 5}
link: {bandwith: 25 GB/s, latency: 1 us}
nodes:
  - {name: a}
  - {name: a, kind: gpuu}
  - {nam: b}
links:
  - {a: a, b: a, bandwidth: 64}
  - {a: a, b: z, bandwidth: 0 GB/s, cuont: 2}
  - {a: a, b: a, bandwidth: 1 GB/s}
"""
    with pytest.raises(SpecError) as caught:
        parse_topology(text, "t.yaml", ["nic.bandwidth=5", "link.latenzy=1 us"])
    where = [fault.where for fault in caught.value.faults]
    lines = [int(place.split(":")[1]) for place in where if place.startswith("t.yaml")]
    assert lines == sorted(lines)
    assert {3, 4, 7, 8, 10, 11, 12} <= set(lines)
    assert where[0].startswith("--set")
    assert len(caught.value.faults) >= 11


OVERRIDES = {
    "unknown path": (["link.bandwith=1 GB/s"], ["--set link.bandwith", 'did you mean "link.bandwidth"?']),
    "unknown section": (["spine.count=1"], ["--set spine.count: unknown path", "known: title"]),
    "adapters of a node": (["nic.count=4"], ['unknown path "nic.count"', "nic.shared_by=2 is 4 adapters for 8 GPUs"]),
    "a variable": (["net.qps_per_connection=1"], ["--env NCCL_IB_QPS_PER_CONNECTION=4"]),
    "no value": (["link.bandwidth"], ["--set", "is not PATH=VALUE", "80 GB/s"]),
    "no path": (["=5"], ["is not PATH=VALUE"]),
    "no unit": ([("link.bandwidth", "80")], ['--set link.bandwidth: "80" has no unit']),
    "zero": ({"gpu.count": "0"}, ['--set gpu.count: count "0" must be']),
    "too many": ({"gpu.count": "16"}, ["16 GPUs with 5 links each need 80 ports, but a switch has 64"]),
    "no such link": (["links[3].bandwidth=1 GB/s"], ["there is no links[3]", "the file has 0 links"]),
    "not a path": (["link..bandwidth=1 GB/s"], ["unknown path"]),
    "provenance": (["link.status=measured"], ["unknown path"]),
    "builder": (["builder=mesh"], ["--set builder:", "is not a known value"]),
    "reduction": ({"in_network_reduction": "FOO"}, ['unknown in-network reduction "FOO"', "known: NVLS, SHARP, none"]),
    "a number": (3, ["--set: overrides cannot be of type int", 'write {"link.bandwidth": "80 GB/s"}']),
    "numbers": ([3, b"x=1"], ["--set: an override of type int is no pair", "of type bytes"]),
    "half a pair": ([("link.bandwidth",)], ["--set: an override of type tuple is no pair"]),
    "several": (["link.bandwidth=1", "gpu.count=x", "nic.foo=1"], ["link.bandwidth", "gpu.count", "nic.foo"]),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_bad_override(case):
    overrides, words = OVERRIDES[case]
    with pytest.raises(InputError) as caught:
        load_topology("hgx_h100", overrides)
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value)
    assert all(fault.hint for fault in caught.value.faults)


def test_bad_paths(tmp_path):
    (tmp_path / "mine.yaml").write_text(MESH)
    cases = {
        str(tmp_path / "mien.yaml"): "did you mean",
        str(tmp_path): "is a directory",
        "no/such/dir/x.yaml": "shipped topologies: dgx1_v100",
        "topologies/../nowhere/hgx_h100.yaml": '"hgx_h100" is a shipped topology',
        "a\0b.yaml": "cannot be read",
        "x" * 5000 + ".yaml": "cannot be read",
    }
    for path, words in cases.items():
        with pytest.raises(SpecError) as caught:
            load_topology(path)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 2000


def test_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "mine.yaml").symlink_to("gone.yaml")
    with pytest.raises(SpecError) as caught:
        check_file(tmp_path / "mine.yaml")
    assert 'mine.yaml: the link leads to "gone.yaml", which is not there' in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_a_name_is_not_a_file():
    with pytest.raises(SpecError) as caught:
        check_file("hgx_h100")
    assert "leave out" not in str(caught.value)
    assert '"hgx_h100" is a shipped topology, not a file' in caught.value.faults[0].hint


def test_a_device_that_never_ends():
    if pathlib.Path("/dev/zero").exists():
        with pytest.raises(SpecError, match="larger than"):
            load_topology("/dev/zero")


def test_aliases_cannot_explode():
    lines = [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)]
    text = "\n".join(
        ["x0: &x0 [1]", *lines, "gpu: *x29", "switch: {planes: *x29}", MESH.replace("gpu: {count: 4}\n", "")]
    )
    with pytest.raises(SpecError) as caught:
        parse_topology(text)
    assert len(str(caught.value)) < 20_000


def test_line_numbers_of_long_files():
    nodes = "".join(f"  - name: gpu{i}\n" for i in range(500))
    links = "".join(
        f"  - a: gpu{i}\n    b: gpu{(i + 1) % 500}\n    bandwidth: {'25 GB/s' if i != 400 else 25}\n"
        for i in range(500)
    )
    text = f"schema: collsim.topology/1\nbuilder: explicit\nnodes:\n{nodes}links:\n{links}"
    with pytest.raises(SpecError) as caught:
        parse_topology(text, "t.yaml")
    assert [fault.where for fault in caught.value.faults] == [f"t.yaml:{504 + 3 * 400 + 3}: links[400].bandwidth"]
