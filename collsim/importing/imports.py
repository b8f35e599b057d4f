"""`import_topology`: from a file of another program to a topology, with all that was read and assumed."""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collsim.core.errors import Fault, Faults, SpecError, UnknownNameError
from collsim.core.input_files import beside, name_of_input, narrowed, read_input_or_stdin
from collsim.core.kinds import shown
from collsim.core.methods import telling_arguments
from collsim.importing.machine import Ask, Assumption, Machine
from collsim.topology.files.foreign import FORMATS, Format, format_of
from collsim.topology.loader import parse_topology
from collsim.topology.zoo import cluster_names, zoo_names

if TYPE_CHECKING:
    from collsim.topology.model import Topology

__all__ = ["KINDS", "ImportedTopology", "import_topology"]

MOST_BYTES = 2**24
SCHEMA = "collsim.import/1"
KINDS = tuple(dict.fromkeys(form.key for form in FORMATS if form.key and form.key != "msccl"))
"""Formats that are imported as topologies, as ``--kind`` names them."""
NAME = re.compile(r"[^A-Za-z0-9_.-]+")
OURS = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(collsim\.(?!topology/)[a-z_]+/[0-9]+)"')
"""How a document of a command begins."""


@telling_arguments
@dataclass(frozen=True)
class ImportedTopology:
    """What was made of a file of another program.

    Attributes
    ----------
    file, kind, format : str
        The file, its format as ``--kind`` names it, and that format in words.
    read : tuple of str
        What the file says.
    assumed : tuple of Assumption
        What it does not say, with value, status and source.
    notes : tuple of str
        What deserves a second look.
    nearest, difference : str
        The shipped system most like it, and how they differ; empty where there is no topology.
    yaml : str
        A topology file, ready for `load_topology`; empty of a file that holds no machine.
    """

    file: str
    kind: str
    format: str
    read: tuple[str, ...]
    assumed: tuple[Assumption, ...]
    notes: tuple[str, ...]
    nearest: str
    difference: str
    yaml: str

    @cached_property
    def topology(self) -> Topology:
        """The topology that the file describes, with what was assumed.

        Raises
        ------
        SpecError
            The file holds no machine, such as the graphs that NCCL searched.
        """
        if not self.yaml:
            hint = "`read` says what they are; import what NCCL_TOPO_DUMP_FILE wrote on that machine"
            raise SpecError(Fault(f"{self.format}: they hold rings and trees, no machine", self.file, hint))
        return parse_topology(self.yaml, f"{self.file} (imported)")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, schema ``collsim.import/1``."""
        own = {name: getattr(self, name) for name in ("file", "kind", "format", "nearest", "difference", "yaml")}
        assumed = [{key: getattr(each, key) for key in ("what", "value", "status", "source")} for each in self.assumed]
        return {"schema": SCHEMA, **own, "read": [*self.read], "assumed": assumed, "notes": [*self.notes]}


def import_topology(source: Any, *, kind: str | None = None, like: str | None = None) -> ImportedTopology:
    """Return the machine that a file of another program describes, as a topology.

    Parameters
    ----------
    source : str or Path
        The file, ``-`` for stdin; what it is, is told by its content. Or an ``Infrastructure`` of the package
        ``infragraph``.
    kind : str, optional
        One of `KINDS`, where the content does not tell.
    like : str, optional
        The shipped system whose figures to take, instead of a guess; for a fabric, the node that its hosts are.

    Raises
    ------
    SpecError
        With every fault of the file.

    Examples
    --------
    >>> import collsim
    >>> found = collsim.import_topology("examples/imports/topo_m.txt")
    >>> found.kind, found.nearest, found.topology.n_gpus
    ('nvidia_smi', 'hgx_h100', 8)
    >>> found.assumed[0].what, found.assumed[0].value, found.assumed[0].status
    ('gpu.model', 'H100 SXM5', 'assumed')
    """
    content, file = _content(source)
    form = _format(content, file, kind)
    faults = Faults()
    made = _made(form.key, content, Ask(file, name_of(file), like, faults))
    faults.raise_any(SpecError)
    assert made is not None
    return _checked(made, form)


@dataclass(slots=True)
class Made:
    """What a reader made of a file, before it is loaded and compared."""

    file: str
    yaml: str
    read: list[str]
    assumed: list[Assumption]
    notes: list[str]
    like: str | None = None
    """The node of a cluster, whose wiring is not built to be compared."""


def _made(kind: str, content: bytes, ask: Ask) -> Made | None:
    """Return what the reader of a format made of a file, None if its faults say why not."""
    if kind in SOURCES:
        return _node(kind, content, ask)
    if kind == "nccl_graph":
        from collsim.importing.nccl_graphs import read_nccl_graphs

        return Made(ask.file, "", read_nccl_graphs(content, ask.file, ask.faults), [], [])
    if kind == "astra_sim":
        from collsim.importing.astra_sim import read_astra_sim

        if ask.like is not None:
            ask.fault("a network of ASTRA-sim has rates of its own", "leave it out", "like")
        written, read, notes = read_astra_sim(content, ask.file, ask.name, ask.faults)
        return Made(ask.file, written.yaml, read, written.assumed, notes)
    if kind == "infragraph":
        from collsim.importing.infragraph import read_infragraph

        found = read_infragraph(content, ask)
    else:
        from collsim.importing.fabrics import read_fabric

        found = read_fabric(kind, content, ask)
    if found is None:
        return None
    yaml, read, assumed, notes = found
    node = next((each.value for each in assumed if each.what == "scale_out.node"), None)
    return Made(ask.file, yaml, read, assumed, notes, node)


def _node(kind: str, content: bytes, ask: Ask) -> Made | None:
    """Return what was made of a file that describes one node."""
    from collsim.importing.bases import base_of
    from collsim.importing.writer import write_machine

    machine = _machine(kind, content, ask.file, ask.faults)
    base = None if ask.faults else base_of(machine, ask)
    if base is None:
        return None
    written = write_machine(machine, base, ask.name, SOURCES[kind])
    return Made(ask.file, written.yaml, machine.read, written.assumed, machine.notes)


SOURCES = {
    "nvidia_smi": "nvidia-smi topo -m",
    "rocm_smi": "rocm-smi --showtopo",
    "amd_smi": "amd-smi topology",
    "nccl_topo": "a topology of NCCL",
}


def _machine(kind: str, content: bytes, file: str, faults: Faults) -> Machine:
    """Return the machine in a file that describes one node."""
    if kind == "nccl_topo":
        from collsim.importing.nccl_xml import read_nccl_xml

        return read_nccl_xml(content, file, faults)
    text = content.decode("utf-8-sig", "replace")
    if kind == "nvidia_smi":
        from collsim.importing.nvidia_matrix import read_nvidia_matrix

        machine = read_nvidia_matrix(text, file, faults)
        _through_switches(machine)
        return machine
    from collsim.importing.amd_tables import read_amd_smi, read_rocm_smi

    return (read_rocm_smi if kind == "rocm_smi" else read_amd_smi)(text, file, faults)


def _through_switches(machine: Machine) -> None:
    """Turn links between all pairs, more than a GPU has, into links to switches: the matrix shows both alike."""
    from collsim.importing.bases import MOST_DIRECT

    each = machine.even
    if each and (each * (machine.n_gpus - 1) > MOST_DIRECT or each >= MOST_DIRECT):
        machine.uplinks, machine.links = each, {}


def _checked(made: Made, form: Format) -> ImportedTopology:
    """Return the import with its nearest system; what collsim wrote itself has to load."""
    from collsim.importing.likeness import nearest_system

    near, difference = "", ""
    if made.like is not None:
        near, difference = made.like, "the node that it is made of"
    elif made.yaml:
        near, difference = nearest_system(parse_topology(made.yaml, f"{made.file} (imported)"))
    return ImportedTopology(
        file=made.file,
        kind=form.key,
        format=form.name,
        read=tuple(made.read),
        assumed=tuple(made.assumed),
        notes=tuple(made.notes),
        nearest=near,
        difference=difference,
        yaml=made.yaml,
    )


def name_of(file: str) -> str:
    """Return the name of the topology: that of the file, unless a shipped system is called so."""
    stem = NAME.sub("_", pathlib.PurePath(file).stem).strip("_.-") or "imported"
    return f"{stem}_imported" if stem in (*zoo_names(), *cluster_names()) else stem


def _content(source: Any) -> tuple[bytes, str]:
    """Return the bytes of a file, or of a document of InfraGraph, and what they are called in messages."""
    if hasattr(source, "serialize"):
        return str(source.serialize("yaml")).encode(), "infrastructure"
    if not isinstance(source, str | pathlib.Path) or not str(source):
        raise SpecError(Fault(f"{shown(source)} is not a path", "file", "pass the path of a file"))
    try:
        content = read_input_or_stdin(source, MOST_BYTES)
    except FileNotFoundError:
        raise SpecError(Fault("no such file", str(source), f"{beside(source)}check the path")) from None
    except IsADirectoryError:
        raise SpecError(Fault("this is a directory, not a file", str(source), "name a file in it")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", str(source), "check the path")) from None
    name = name_of_input(source)
    return narrowed(_whole(content, name)), name


def _whole(content: bytes, file: str) -> bytes:
    """Return the bytes of a file, unless it is too large."""
    if len(content) > MOST_BYTES:
        raise SpecError(Fault(f"the file is larger than {MOST_BYTES >> 20} MiB", file, "no such file needs more"))
    return content


def _format(content: bytes, file: str, kind: str | None) -> Format:
    """Return the format of a file, as the content or the user says."""
    if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
        raise SpecError(*UnknownNameError("format", f"{kind!s:.40}", KINDS, "kind").faults)
    if not content.strip():
        raise SpecError(Fault("the file is empty", file, f"formats: {', '.join(KINDS)}"))
    found = format_of(content)
    if kind is not None:
        if found is None or found.key != kind:
            named = next(form for form in FORMATS if form.key == kind)
            is_it = "of no format that is known" if found is None else found.name
            what = f"this does not look like {named.name}, but is {is_it}"
            raise SpecError(Fault(what, file, "leave out --kind, or give another file"))
        return found
    if found is None:
        if ours := OURS.match(content):
            what = f'this is a document of collsim, of schema "{ours[1].decode()}"'
            raise SpecError(Fault(what, file, "give the file that it was made of"))
        if b"collsim.topology/" in content:
            raise SpecError(Fault("this is a topology file of collsim already", file, "use it as it is: --topo FILE"))
        what = "the content is of no format that is known"
        raise SpecError(Fault(what, file, f"known: {', '.join(KINDS)}; schedules of MSCCL: collsim schedule import"))
    if found.key not in KINDS:
        raise SpecError(Fault(f"this is {found.name}", file, found.hint.replace("{file}", file)))
    return found
