"""Whatever a file or an override holds, the answer is a topology or an input error, never anything else."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.core.errors import InputError
from collsim.topology import Topology, load_topology, parse_topology, zoo_names
from collsim.topology.zoo import zoo_directory

# without its name, which belongs to the shipped file
ZOO = {
    name: (zoo_directory() / f"{name}.yaml").read_bytes().replace(f"name: {name}\n".encode(), b"")
    for name in zoo_names()
}
LIST = load_topology("hgx_h100", {"gpu.count": "3"}).to_yaml("three").encode()
BASES = [*ZOO.values(), LIST]
SNIPPETS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b"-",
    b"*a",
    b"&a ",
    b"!!x ",
    b"\n",
    b"  ",
    b"\t",
    b"0",
    b"-1",
    b"null",
    b"? ",
    b"|",
    b"'",
    b'"',
]
SNIPPETS += [
    b"GB/s",
    b"value",
    b"links:",
    b"extends: hgx_h100\n",
    b"nodes:",
    b"count",
    b"true",
    b"1e999",
    b"\xff",
    b"\x00",
    "é".encode(),
    b"---",
    b"#",
    b"<<",
]
FUZZ = settings(max_examples=150)


def is_answered(content, overrides=()):
    topology, faults = None, ()
    try:
        topology = parse_topology(content, "fuzz.yaml", overrides)
    except InputError as caught:
        faults = caught.faults
    assert (topology is None) == bool(faults)
    assert all(fault.what and len(str(fault)) < 5000 for fault in faults)
    if topology is not None:
        wiring = topology.wiring
        assert wiring.n_gpus >= 1
        assert np.all(wiring.link_bandwidth_Bps > 0)
        assert np.all(wiring.link_src != wiring.link_dst)


@FUZZ
@given(st.binary(max_size=300))
def test_bytes(content):
    is_answered(content)


@FUZZ
@given(st.text(max_size=300))
def test_text(content):
    is_answered(content)


@FUZZ
@given(
    st.sampled_from(BASES),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(SNIPPETS)), max_size=4),
)
def test_mutations(base, edits):
    for at, cut, put in edits:
        place = int(at * len(base))
        base = base[:place] + put + base[place + cut :]
    is_answered(base)


@FUZZ
@given(st.sampled_from(BASES), st.data())
def test_lines_lost_and_doubled(base, data):
    lines = base.split(b"\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at : at + 1] = data.draw(st.sampled_from([[], [lines[at]] * 2, [b" " + lines[at]]]))
        lines = lines or [b""]
    is_answered(b"\n".join(lines))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = ["gpu", "link", "switch", "nic", "nodes", "links", "in_network_reduction", "title", "name", "builder", "extends"]


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.sampled_from(["full_mesh", "switched", "explicit"]))
def test_any_value_anywhere(extra, builder):
    import json

    base = {"schema": "collsim.topology/1", "builder": builder, "gpu": {"count": 2}, "link": {"bandwidth": "1 GB/s"}}
    is_answered(json.dumps(base | extra).encode())


PATHS = [
    "link.bandwidth",
    "gpu.count",
    "switch.planes",
    "switch.links_per_plane",
    "builder",
    "nic.bandwidth",
    "links[0].a",
    "title",
    "nic.shared_by",
    "nodes[0].kind",
]


@FUZZ
@given(
    st.sampled_from(sorted(ZOO)),
    st.dictionaries(
        st.sampled_from(PATHS) | st.text(max_size=20),
        st.sampled_from(["8", "1 GB/s", "[1,2]", "explicit"]) | st.text(max_size=20),
    ),
)
def test_overrides(name, overrides):
    is_answered(ZOO[name], overrides)


@st.composite
def explicit(draw):
    gpus, switches = draw(st.integers(2, 5)), draw(st.integers(0, 2))
    names = [f"gpu{i}" for i in range(gpus)] + [f"s{i}" for i in range(switches)]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    ring = [(names[i], names[(i + 1) % gpus]) for i in range(gpus if gpus > 2 else 1)]
    more = [
        pair
        for pair in draw(st.lists(st.sampled_from(pairs), unique=True))
        if pair not in ring and pair[::-1] not in ring
    ]
    lines = ["schema: collsim.topology/1", "builder: explicit", "nodes:"]
    lines += [f"  - {{name: {name}, kind: {'gpu' if i < gpus else 'switch'}}}" for i, name in enumerate(names)]
    lines += ["links:"]
    for a, b in ring + more:
        rate, delay = draw(st.floats(1e3, 1e13)), draw(st.floats(0, 1e-3))
        efficiency, count = draw(st.floats(0.01, 1.0)), draw(st.integers(1, 20))
        duplex = "true" if (a, b) in ring else draw(st.sampled_from(["true", "false"]))
        figures = f"bandwidth: {rate!r} B/s, latency: {delay!r} s, efficiency: {efficiency!r}, count: {count}"
        lines.append(f"  - {{a: {a}, b: {b}, {figures}, duplex: {duplex}}}")
    return "\n".join(lines)


@FUZZ
@given(st.sampled_from(sorted(ZOO)), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_change_of_a_shipped_file(name, changes):
    import json

    is_answered(json.dumps({"schema": "collsim.topology/1"} | changes | {"extends": name}).encode())


@FUZZ
@given(st.sampled_from(sorted(ZOO)), st.integers(1, 300))
def test_any_number_of_gpus(name, gpus):
    is_answered(ZOO[name], {"gpu.count": str(gpus)})


@settings(max_examples=50)
@given(explicit())
def test_round_trips_are_exact(text):
    topology = parse_topology(text)
    for again in (Topology.from_graph(topology.graph), parse_topology(topology.to_yaml())):
        assert again.wiring.node_names == topology.wiring.node_names
        assert again.wiring.coordinates.kind == topology.wiring.coordinates.kind
        for name in ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency"):
            assert np.array_equal(getattr(again.wiring, name), getattr(topology.wiring, name)), name
