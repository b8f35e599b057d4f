"""Import, export and import again: what a format holds comes back, of machines and algorithms drawn at random."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collsim
from collsim.core.errors import Faults, UnsupportedError
from collsim.importing import import_schedule
from collsim.importing.exports import export_topology
from collsim.importing.msccl_export import schedule_xml
from collsim.importing.nvidia_matrix import read_nvidia_matrix
from collsim.schedule import load, save
from collsim.simulation.written import simulate_schedule
from collsim.topology import parse_topology
from tests.cli.conftest import collsim as collsim_command  # noqa: F401 - a fixture

SAME = ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency")
DEVICES = {"nvlink": ("0x1db1", "0x20b0"), "xgmi": ("0x74a1", "0x740f")}


def facts(topology):
    """What two topologies that are the same have in common."""
    wiring = topology.wiring.bundled()
    rows = sorted(zip(*(getattr(wiring, name).tolist() for name in SAME), strict=True))
    return rows, {fact.path: fact.value for fact in topology.facts if fact.path.startswith("nic.")}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Import a text."""
    folder = tmp_path_factory.mktemp("texts")

    def call(text, **asked):
        (folder / "machine").write_text(text, encoding="utf-8")
        return collsim.import_topology(folder / "machine", **asked).topology

    return call


@st.composite
def links(draw):
    """Links between GPUs that all reach each other: along a line, and some more."""
    n = draw(st.integers(2, 8))
    more = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] < pair[1])
    pairs = {(a, a + 1) for a in range(n - 1)} | draw(st.sets(more, max_size=12))
    return n, {pair: draw(st.integers(1, 3)) for pair in sorted(pairs)}


@st.composite
def adapters(draw, n):
    """GPUs that share adapters, how many these have, and the rate of each in Gb/s."""
    shared = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
    return shared, draw(st.integers(1, 3)) if shared == 1 else 1, draw(st.sampled_from([100, 200, 400]))


@st.composite
def dumps(draw):
    """A dump of NCCL or RCCL: GPUs with links to each other or into switches, adapters behind their bridges."""
    n, direct = draw(links())
    tag = draw(st.sampled_from(["nvlink", "xgmi"]))
    planes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)) if draw(st.booleans()) else []
    tag, device = ("nvlink", "0x20b0") if planes else (tag, draw(st.sampled_from(DEVICES[tag])))
    shared, each, rate = draw(adapters(n))
    lines, nic = ["<system><cpu numaid='0'>"], 0
    for gpu in range(n):
        ends = {} if planes else {a + b - gpu: count for (a, b), count in direct.items() if gpu in (a, b)}
        peers = [f"<{tag} target='{peer:04x}:01:00.0' count='{count}'/>" for peer, count in ends.items()]
        peers += [
            f"<{tag} target='{k:04x}:02:00.0' count='{count}' tclass='0x068000'/>" for k, count in enumerate(planes)
        ]
        lines += ["<pci busid='f000:00:00.0'>"] if gpu % shared == 0 else []
        lines.append(f"<pci busid='{gpu:04x}:01:00.0' class='0x030200' device='{device}'><gpu dev='{gpu}'>")
        lines.append(f"{''.join(peers)}</gpu></pci>")
        for _ in range(each if gpu % shared == shared - 1 else 0):
            lines.append(f"<pci busid='{nic:04x}:0f:00.0'><nic><net name='m{nic}' speed='{rate}000'/></nic></pci>")
            nic += 1
        lines += ["</pci>"] if gpu % shared == shared - 1 else []
    return "".join([*lines, "</cpu></system>"]), (nic, rate)


@given(dumps())
@settings(max_examples=40)
def test_a_dump_of_nccl_comes_back(imported, dump):
    text, (number, rate) = dump
    first = imported(text)
    written = export_topology(first, "nccl_topo")
    assert (written.count("<net "), written.count(f'speed="{rate}000"')) == (number, number)
    second = imported(written)
    assert facts(second) == facts(first)
    assert export_topology(second, "nccl_topo") == written


@st.composite
def matrices(draw):
    """A matrix of nvidia-smi: some pairs linked so that all reach each other, adapters beside GPUs."""
    n, direct = draw(links())
    if draw(st.booleans()):
        direct = dict.fromkeys([(a, b) for a in range(n) for b in range(a + 1, n)], draw(st.sampled_from([1, 2, 12])))
    shared, each, _ = draw(adapters(n))
    homes = [first for first in range(0, n, shared) for _ in range(each)]
    rows = ["\t".join(["", *(f"GPU{i}" for i in range(n)), *(f"NIC{i}" for i in range(len(homes))), "CPU Affinity"])]
    for a in range(n):
        counts = [direct.get((min(a, b), max(a, b)), 0) for b in range(n)]
        cells = ["X" if a == b else f"NV{count}" if count else "SYS" for b, count in enumerate(counts)]
        rows.append("\t".join([f"GPU{a}", *cells, *("PIX" if h <= a < h + shared else "SYS" for h in homes), "0-9"]))
    return "\n".join([*rows, ""])


@given(matrices())
@settings(max_examples=40)
def test_a_matrix_of_nvidia_smi_comes_back(imported, text):
    first = imported(text, like="dgx1_v100" if "NV12" not in text else None)
    written = export_topology(first, "nvidia_smi")
    second = imported(written, like="dgx1_v100" if "NV12" not in text else None)
    assert facts(second) == facts(first)
    assert export_topology(second, "nvidia_smi") == written
    machines = [read_nvidia_matrix(each, "m.txt", Faults()) for each in (text, written)]
    for name in ("n_gpus", "links", "adapters"):
        assert getattr(machines[0], name) == getattr(machines[1], name), name


DIMENSION = st.tuples(st.sampled_from(["Ring", "Switch", "FullyConnected"]), st.integers(4, 6),
                      st.sampled_from([12.5, 25, 37.3, 400]), st.sampled_from([0, 1, 936.25, 2000]))  # fmt: skip


@given(st.lists(DIMENSION, min_size=1, max_size=3))
@settings(max_examples=25)
def test_a_network_of_astra_sim_comes_back(imported, dimensions):
    keys = ("topology", "npus_count", "bandwidth", "latency")
    columns = zip(keys, zip(*dimensions, strict=True), strict=True)
    text = "".join(f"{key}: [ {', '.join(f'{each}' for each in column)} ]\n" for key, column in columns)
    first = imported(text)
    written = re.sub(r"  #.*", "", export_topology(first, "astra_sim"))
    assert facts(imported(written)) == facts(first)
    assert written.partition("bandwidth")[0] == text.partition("bandwidth")[0]


@given(dumps())
@settings(max_examples=20)
def test_a_topology_file_of_an_import_comes_back(imported, dump):
    first = imported(dump[0])
    assert facts(parse_topology(first.to_yaml("again"), "again.yaml")) == facts(first)


ALGORITHMS = {
    "all_reduce": ("ring", "tree", "rabenseifner", "recursive_doubling"),
    "all_gather": ("ring", "bruck", "pat", "recursive_doubling"),
    "reduce_scatter": ("ring", "pat", "recursive_halving"),
    "all_to_all": ("direct", "pairwise"),
}
CASES = [(op, algo) for op, names in ALGORITHMS.items() for algo in names]


@pytest.mark.parametrize(("ranks", "channels", "size"), [(3, 2, 3 * 2**16), (4, 1, 2**20), (8, 2, 2**22)])
@pytest.mark.parametrize(("op", "algo"), CASES)
def test_a_schedule_comes_back_from_json_and_msccl(collsim_command, tmp_path, op, algo, ranks, channels, size):  # noqa: F811
    flags = ("--topo", "hgx_h100", "--op", op, "--algo", algo, "--ranks", ranks, "--channels", channels)
    asked = ("schedule", "export", *flags, "--size", size, "--profile", "ideal", "-o")
    assert collsim_command(*asked, tmp_path / "a.json").code == 0
    schedule = load(tmp_path / "a.json")
    save(schedule, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    if collsim_command(*asked, tmp_path / "a.xml").code:
        with pytest.raises(UnsupportedError):
            schedule_xml(schedule)
        return
    again = import_schedule(tmp_path / "a.xml", schedule.size_bytes)
    (tmp_path / "b.xml").write_text(schedule_xml(again))
    third = import_schedule(tmp_path / "b.xml", schedule.size_bytes)
    moved = [Counter(zip(*(getattr(each.materialise(), name).tolist() for name in ("src", "dst", "channel", "reduces")),
                         strict=True)) for each in (again, third)]  # fmt: skip
    assert moved[0] == moved[1]
    times_s = [simulate_schedule(each, "hgx_h100", profile="ideal").time_s for each in (schedule, again, third)]
    assert times_s == pytest.approx([times_s[0]] * 3, rel=1e-9)
