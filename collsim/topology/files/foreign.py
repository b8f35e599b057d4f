"""Files of other programs that describe machines, told by their content: what they are, and what to do with them."""

from __future__ import annotations

import re
from typing import NamedTuple

from collsim.core.errors import Fault
from collsim.core.input_files import narrowed

__all__ = ["FORMATS", "Format", "foreign_fault", "format_of"]

LOOKED_AT_BYTES = 1 << 16
OWN = b"collsim.topology/"
UNDERLINE = r"\x1b\[[0-9;]*m"
"""nvidia-smi prints its heads so, into files too."""
XML = r"(?s)^\s*(?:<\?xml.*?\?>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE[^\[>]*(?:\[.*?\])?\s*>\s*)?"
EXPLICIT = "builder: explicit, the GPUs under nodes and the links under links"
SHIPPED = "or take a shipped system that is alike (collsim topo list); docs/topologies.md has examples"


class Format(NamedTuple):
    """A format: its key (empty: nothing imports it), the pattern that tells it, its name, what to do with such a file.

    ``{file}`` in *hint* is the file.
    """

    key: str
    pattern: str
    name: str
    hint: str = "import it: collsim topo import {file} -o my.yaml"


BY_RULES = (
    "collsim builds fabrics by rules around a shipped node: collsim run --topo hgx_h100 --nodes 16 --fabric rail; "
    f"for links one by one write a file with {EXPLICIT}"
)
TUNER_OPS = r"(?:allreduce|allgather|reducescatter|broadcast|reduce)"
FABRIC = "import it around a node: collsim topo import {file} --like hgx_h100 -o my.yaml"

FORMATS = (
    Format("nccl_topo", rf"{XML}<system\b.*<cpu\b", "an NCCL topology in XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)"),
    Format(
        "nccl_graph",
        rf"{XML}<graphs\b.*<graph\b",
        "graphs that NCCL searched, in XML (NCCL_GRAPH_DUMP_FILE)",
        "they hold rings and trees, no links: see them with collsim topo import {file}, and import the file of "
        "NCCL_TOPO_DUMP_FILE",
    ),
    Format(
        "msccl",
        rf"{XML}<algo\b",
        "an algorithm of MSCCL in XML",
        "it is a schedule, not a machine: collsim schedule import {file} -o my.json",
    ),
    Format(
        "",
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?(?:<!DOCTYPE topology.*?>\s*)?<topology\b.*<object\b",
        "a machine of hwloc in XML (lstopo)",
        "its parts and distances are not read: import nvidia-smi topo -m, what NCCL_TOPO_DUMP_FILE writes, or "
        f"rocm-smi --showtopo of that machine, write a file with {EXPLICIT}, {SHIPPED}",
    ),
    Format(
        "",
        r"(?s)^\s*(?:<\?xml.*?\?>\s*)?<graphml\b",
        "a graph in GraphML",
        "read it with networkx.read_graphml and pass the graph to collsim.load_topology, with the attributes of "
        "docs/topologies.md",
    ),
    Format("", r"^\s*<[?!]?\w", "XML", f"write a file with {EXPLICIT}, {SHIPPED}"),
    Format(
        "nvidia_smi",
        r"(?m)^\W*GPU0\b(?:.*\n)+?\W*GPU0\s+X(?:\s|$)",
        "a matrix of nvidia-smi topo -m",
    ),
    Format(
        "rocm_smi",
        r"(?m)^=+ *(?:Weight between|Hops between|Link Type between|Numa Nodes)|ROCm System Management Interface",
        "tables of rocm-smi --showtopo",
    ),
    Format(
        "amd_smi",
        r"(?m)^(?:ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE:|\"gpu\"\s*:[^{}\[\]]*\"(?:bdf|links?|link_\w+)\"\s*:",
        "tables of amd-smi topology",
    ),
    Format(
        "astra_sim",
        r"(?m)^\W*(?:npus[_-]count|dimensions-count|topologies-per-dim|logical-dims|num-npus)[\"']?\s*:",
        "a network of ASTRA-sim",
    ),
    Format("htsim", r"(?mi)^nodes\s+\d+\s*\n\s*tiers\s+\d+", "a topology of htsim", FABRIC),
    Format(
        "infragraph",
        r"(?ms)^\W*(?:devices?|infrastructure)[\"']?\s*:.*\b(?:components|connections|instances)[\"']?\s*:",
        "a machine or cluster of InfraGraph",
    ),
    Format(
        "slurm",
        r"(?m)^\s*(?:SwitchName|BlockName)\s*=|^\s*-?\s*topology:\s*\w+\s*\n(?:.*\n)*?\s+(?:tree|block|flat|ring)\b",
        "a topology of Slurm",
        f"{FABRIC}; where ranks go: --placement slurm:FILE",
    ),
    Format("infiniband", r"(?m)^(?:Switch|Ca)\s+\d+\s+\"[SH]-", "a fabric that ibnetdiscover listed", FABRIC),
    Format("iblinkinfo", r"==\([^()]*\)==>", "links that iblinkinfo listed", FABRIC),
    Format(
        "",
        r"^\s*\d+ \d+ \d+ \d+ \d+ \S+\s*\n(?:\d+ *)*\n(?:\d+ \d+ \d+\w?bps )",
        "a topology of SimAI",
        BY_RULES,
    ),
    Format(
        "",
        r"(?i)^\s*\d+ \d+ \d+\s*\n(?:\d+ *)*\n(?:\d+ \d+ [\d.]+ ?\w?bps )",
        "a topology of ns-3",
        BY_RULES,
    ),
    Format(
        "",
        r"(?m)^\s*num_ranks\s+\d+\s*\n(?:.*\n)*?\s*rank\s+\d+\s*\{",
        "a schedule of GOAL (LogGOPSim, ATLAHS)",
        "it is no machine and is not read: algorithms are imported from MSCCL's XML (collsim schedule import), steps "
        "from traces of PyTorch (collsim timeline)",
    ),
    Format(
        "",
        rf"(?mi)^\s*{TUNER_OPS}\s*,\s*\d+\s*,\s*\d+\s*,\s*\w+\s*,\s*\w+\s*,|^#.*collective_type,min_bytes,max_bytes",
        "rules of NCCL's example tuner plugin, in CSV",
        "they choose algorithms and describe no machine: collsim tune writes such a file, and collsim run takes what "
        "they say by --algo, --proto and --channels",
    ),
    Format(
        "",
        r"(?mi)^collective,size_bytes,algorithm,protocol,",
        "measured times for NCCL's example tuner plugin, in CSV",
        "they describe no machine: compare a log of nccl-tests with collsim validate LOG --topo NAME",
    ),
    Format(
        "",
        r"(?m)^#\s*(?:nThread\s+\d+|Collective test starting|(?:nccl|rccl)-tests version)",
        "a log of nccl-tests or rccl-tests",
        "compare it with collsim validate LOG --topo NAME, or fit it with collsim calibrate",
    ),
)


def format_of(content: bytes) -> Format | None:
    r"""Return the format of a file of another program; None if it is of none that is known.

    >>> format_of(b"topology: [ Ring ]\nnpus_count: [ 8 ]").key
    'astra_sim'
    """
    if OWN in content[:LOOKED_AT_BYTES]:
        return None
    text = re.sub(UNDERLINE, "", content[:LOOKED_AT_BYTES].decode("utf-8-sig", "replace"))
    return next((form for form in FORMATS if re.search(form.pattern, text)), None)


def foreign_fault(content: bytes, file: str) -> Fault | None:
    r"""Return the fault of a file in the format of another program; None if it is no such file.

    >>> print(foreign_fault(b"topology: [ Ring ]\nnpus_count: [ 8 ]", "ring.yml"))
    ring.yml: this is a network of ASTRA-sim, which is no topology file of collsim
      hint: import it: collsim topo import ring.yml -o my.yaml
    """
    form = format_of(narrowed(content))
    if form is None:
        return None
    what = f"this is {form.name}, which is no topology file of collsim"
    from shlex import quote

    return Fault(what, file, form.hint.replace("{file}", quote(file)))
