"""Shipped systems as other programs would show them, imported again: their wiring comes back as it was."""

import numpy as np
import pytest

import collsim
from collsim.importing.bases import has_sockets, link_counts, switch_counts
from collsim.topology import load_topology, zoo_names

LINKED = [name for name in zoo_names() if not has_sockets(load_topology(name))]
NVIDIA = [name for name in LINKED if "MI" not in load_topology(name).labels["gpu.model"]]
SAME = ("link_src", "link_dst", "link_count", "link_bandwidth_Bps", "link_latency_s", "link_efficiency")


def xml_of(topology):
    """The dump of NCCL or RCCL on a node."""
    n, direct, into = topology.n_gpus, link_counts(topology, topology.n_gpus), switch_counts(topology)
    tag = "xgmi" if "MI" in topology.labels["gpu.model"] else "nvlink"
    lines = ['<system version="1"><cpu numaid="0">']
    for gpu in range(n):
        lines.append(f'<pci busid="{gpu:04x}:01:00.0" class="0x030200" device="0x0000"><gpu dev="{gpu}">')
        for (a, b), count in direct.items():
            if gpu in (a, b):
                lines.append(f'<{tag} target="{a + b - gpu:04x}:01:00.0" count="{count}" tclass="0x030200"/>')
        for switch, count in into[gpu].items():
            lines.append(f'<{tag} target="{switch:04x}:02:00.0" count="{count}" tclass="0x068000"/>')
        lines.append("</gpu></pci>")
    return "\n".join([*lines, "</cpu></system>"])


def matrix_of(topology):
    """The matrix of nvidia-smi topo -m on a node."""
    n, direct, into = topology.n_gpus, link_counts(topology, topology.n_gpus), switch_counts(topology)
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(n)) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(n):
        cells = []
        for b in range(n):
            shared = sum(into[a].values())
            count = direct.get((min(a, b), max(a, b)), 0) or shared
            cells.append(" X " if a == b else f"NV{count}" if count else "SYS")
        rows.append(f"GPU{a}\t" + "\t".join(cells) + "\t0-63\t0")
    return "\n".join([*rows, ""])


def same_wiring(one, two):
    return all(np.array_equal(getattr(one.wiring, name), getattr(two.wiring, name)) for name in SAME)


@pytest.mark.parametrize("name", [name for name in LINKED if load_topology(name).n_gpus <= 72])
def test_a_dump_of_nccl(tmp_path, name):
    shipped = load_topology(name)
    (tmp_path / "dump.xml").write_text(xml_of(shipped), encoding="utf-8")
    found = collsim.import_topology(tmp_path / "dump.xml", like=name)
    assert same_wiring(found.topology, shipped)
    assert found.nearest == name


@pytest.mark.parametrize("name", [name for name in NVIDIA if load_topology(name).n_gpus <= 16])
def test_a_matrix_of_nvidia_smi(tmp_path, name):
    shipped = load_topology(name)
    (tmp_path / "topo.txt").write_text(matrix_of(shipped), encoding="utf-8")
    found = collsim.import_topology(tmp_path / "topo.txt", like=name)
    assert same_wiring(found.topology, shipped)


@pytest.mark.parametrize("name", ["dgx1_v100", "dgx_a100", "hgx_h100", "hgx_h800"])
def test_a_matrix_tells_the_system_by_itself(tmp_path, name):
    (tmp_path / "topo.txt").write_text(matrix_of(load_topology(name)), encoding="utf-8")
    found = collsim.import_topology(tmp_path / "topo.txt")
    assert found.nearest == name
    assert same_wiring(found.topology, load_topology(name))
