"""Files of other programs that describe machines, told by their content: what they are, and what to do with them."""

from __future__ import annotations

import re
from typing import NamedTuple

from collsim.core.errors import Fault

__all__ = ["foreign_fault"]

LOOKED_AT_BYTES = 1 << 16
OWN = b"collsim.topology/"
UNDERLINE = r"\x1b\[[0-9;]*m"
"""nvidia-smi prints its heads so, into files too."""
EXPLICIT = "builder: explicit, the GPUs under nodes and the links under links"
SHIPPED = "or take a shipped system that is alike (collsim topo list); docs/topologies.md has examples"


class Format(NamedTuple):
    """A format: the pattern that tells it, its name, and how to come to a topology file."""

    pattern: str
    name: str
    hint: str


FORMATS = (
    Format(
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?<system\b.*<cpu\b",
        "an NCCL topology in XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)",
        f"write a file with {EXPLICIT}: each <nvlink target count> is a link with that count, {SHIPPED}",
    ),
    Format(
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?<graphs\b.*<graph\b",
        "graphs that NCCL searched, in XML (NCCL_GRAPH_DUMP_FILE)",
        f"they hold rings and trees, no links: write a file with {EXPLICIT}, {SHIPPED}",
    ),
    Format(
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?(?:<!DOCTYPE topology.*?>\s*)?<topology\b.*<object\b",
        "a machine of hwloc in XML (lstopo)",
        f"it holds no links of GPUs: write a file with {EXPLICIT}, {SHIPPED}",
    ),
    Format(
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?<graphml\b",
        "a graph in GraphML",
        "read it with networkx.read_graphml and pass the graph to collsim.load_topology, with the attributes of "
        "docs/topologies.md",
    ),
    Format(r"^\s*<[?!]?\w", "XML", f"write a file with {EXPLICIT}, {SHIPPED}"),
    Format(
        r"(?m)^\W*GPU0\W*\s+GPU1\b.*\n(?:.*\n)*?\W*GPU0\s+X\s",
        "a matrix of nvidia-smi topo -m",
        f"write a file with {EXPLICIT}: NV4 in row GPU0 and column GPU1 is a link from gpu0 to gpu1 with count 4; "
        f"where all pairs have the same NV, GPUs may be on switches: builder: switched; {SHIPPED}",
    ),
    Format(
        r"(?m)^=+ *(?:Weight|Hops|Link Type) between two GPUs|ROCm System Management Interface",
        "tables of rocm-smi --showtopo",
        f"write a file with builder: full_mesh if every pair is joined by XGMI, else with {EXPLICIT}, {SHIPPED}",
    ),
    Format(
        r"(?m)^\s*[\"']?(?:npus[_-]count|dimensions-count|topologies-per-dim)[\"']?\s*:",
        "a network of ASTRA-sim",
        "write builder: full_mesh for FullyConnected, switched for Switch, explicit for Ring, with gpu.count and "
        "link.bandwidth (ASTRA-sim's GB/s is 2^30 bytes/s: GiB/s), and scale_out for an outer dimension; "
        "docs/topologies.md and docs/clusters.md have examples",
    ),
    Format(
        r"(?m)^\s*(?:SwitchName|BlockName)\s*=",
        "a topology.conf of Slurm",
        "it says which hosts share switches, not how they are joined: give it as --placement slurm:FILE",
    ),
    Format(
        r"(?m)^(?:Switch|Ca)\s+\d+\s+\"[SH]-",
        "a fabric that ibnetdiscover listed",
        "describe one node, and the fabric by scale_out: docs/clusters.md",
    ),
    Format(
        r"(?m)^#\s*(?:nThread\s+\d+|Collective test starting|(?:nccl|rccl)-tests version)",
        "a log of nccl-tests or rccl-tests",
        "compare it with collsim validate LOG --topo NAME, or fit it with collsim calibrate",
    ),
)


def foreign_fault(content: bytes, file: str) -> Fault | None:
    r"""Return the fault of a file in the format of another program; None if it is no such file.

    >>> foreign_fault(b"topology: [ Ring ]\nnpus_count: [ 8 ]", "ring.yml").what
    'this is a network of ASTRA-sim, which is no topology file of collsim'
    """
    if OWN in content[:LOOKED_AT_BYTES]:
        return None
    text = re.sub(UNDERLINE, "", content[:LOOKED_AT_BYTES].decode("utf-8-sig", "replace"))
    for form in FORMATS:
        if re.search(form.pattern, text):
            return Fault(f"this is {form.name}, which is no topology file of collsim", file, form.hint)
    return None
