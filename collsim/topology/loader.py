"""The loader, from a name, a path or a graph to a `Topology`: look-up, reading, overrides, checks, arrays."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from collsim.core.errors import Fault, InputError, SpecError, UnknownNameError, nearest, short_for
from collsim.core.input_files import beside, read_input
from collsim.core.units import with_article
from collsim.topology.assembly import assembled
from collsim.topology.cluster.scale_out import build_cluster, resolve, spec_from
from collsim.topology.model import FITTED, SIZES, Topology
from collsim.topology.zoo import cluster_names, shipped_file, shipped_path, zoo_names

if TYPE_CHECKING:
    import networkx as nx

    from collsim.topology.cluster.spec import ClusterSpec, Plan
    from collsim.topology.files.reader import Document, Path
    from collsim.topology.files.schema import ScaleOut
    from collsim.topology.files.sections import Spec

__all__ = ["check_file", "load_topology", "parse_topology", "plan_topology"]

T = TypeVar("T")
FILE_NAME = re.compile(r"\.(?:ya?ml|xml|txt|json|conf|log|csv|graphml)$", re.IGNORECASE)
"""Ends of texts that are files: no topology is called so."""
CYCLE_HINT = "write it out, or name another one"
Overrides = Mapping[str, str] | Iterable[str | tuple[str, str]]


def load_topology(
    source: str | pathlib.Path | Topology | nx.Graph[Any],
    overrides: Overrides | None = (),
    *,
    scale_out: Mapping[str, Any] | None = None,
) -> Topology:
    """Return the topology called *source*, in the file *source*, or described by the graph *source*.

    Parameters
    ----------
    source : str, Path, Topology or networkx.Graph
        A name from `zoo_names` or `cluster_names`; a path, recognised by a ``/`` or by ``.yaml`` or ``.yml`` at its
        end; a topology, which is returned as it is; or a graph with ``bandwidth_Bps``, ``latency_s`` and maybe
        ``efficiency`` and ``count`` on edges, ``kind``, ``rank`` and ``latency_s`` on nodes: see
        `collsim.topology.graph`.
    overrides : mapping or sequence
        What-ifs as ``{"link.bandwidth": "80 GB/s"}``, pairs, or ``"link.bandwidth=80 GB/s"`` texts.
    scale_out : mapping, optional
        The cluster to build of it: ``{"nodes": 16, "fabric": "rail", "network": "infiniband"}``, with the keys of
        ``scale_out`` in a file; docs/clusters.md lists them.

    Raises
    ------
    UnknownNameError
        If there is no such name; the message offers the nearest one.
    SpecError
        With every fault of the file and of the overrides.

    Examples
    --------
    >>> topology = load_topology("mi355x_ubb8", {"link.bandwidth": "80 GB/s"})
    >>> float(topology.wiring.link_bandwidth_Bps[0]), topology.fact("link.bandwidth").status
    (80000000000.0, 'set')
    >>> load_topology("hgx_h100", scale_out={"nodes": 16}).n_gpus
    128
    """
    overrides = () if overrides is None else overrides
    if isinstance(source, Topology) or hasattr(source, "nodes"):
        if overrides:
            hint = "pass a name or a file, or change the graph"
            raise InputError(Fault("overrides need a named topology or a file", "--set", hint))
        found = source if isinstance(source, Topology) else Topology.from_graph(source)  # type: ignore[arg-type]
        return _around(found, scale_out) if scale_out else found
    return _built(*_content(source), overrides, (), scale_out)


def plan_topology(
    source: str | pathlib.Path, overrides: Overrides | None = (), *, scale_out: Mapping[str, Any] | None = None
) -> tuple[Topology, ClusterSpec, Plan]:
    """Return one node, the specification and the counts of a cluster without wiring it, for any number of nodes.

    Raises
    ------
    SpecError
        Also if the topology is no cluster.

    Examples
    --------
    >>> _, _, plan = plan_topology("hgx_b200", scale_out={"nodes": 2048})
    >>> plan.leaves, plan.spines, plan.cores
    (512, 512, 256)
    """
    from collsim.topology.cluster.plan import plan_cluster

    node, section, document = _parsed(*_content(source), overrides or (), scale_out=scale_out)
    if section is None:
        hint = "write scale_out: {nodes: 16}, or give --nodes 16"
        raise SpecError(Fault(f"{node.name} is no cluster", document.file, hint))
    node, spec, _ = _specified(node, section, document)
    plan = _placed(lambda: plan_cluster(spec), document)
    return node, spec, plan


def _specified(
    node: Topology, section: ScaleOut, document: Document, above: tuple[str, ...] = ()
) -> tuple[Topology, ClusterSpec, tuple[Topology, ...]]:
    """Return the node (one for all kinds), the cluster's specification, and a node of each kind if they differ."""
    from collsim.topology.cluster.mixing import as_one

    kinds = _load_kinds(section, document, above)
    spec, facts = _placed(lambda: resolve(section, node, kinds), document)
    if kinds:
        around = [fact for fact in node.facts if fact.path.startswith("scale_out.")]
        digest = hashlib.sha256("".join([node.sha256, *(kind.sha256 for kind in kinds)]).encode()).hexdigest()
        node = replace(as_one(node, kinds, spec.mix), sha256=digest)
        facts = (*around, *facts)
    return replace(node, facts=(*node.facts, *facts)), spec, kinds


def _load_kinds(section: ScaleOut, document: Document, above: tuple[str, ...]) -> tuple[Topology, ...]:
    """Return a node of each kind; files are looked for beside the document, which those of *above* led to.

    Raises
    ------
    SpecError
        What is wrong with any of them.
    """
    kinds: list[Topology] = []
    faults: list[Fault] = []
    for place, entry in enumerate(section.mix):
        where = document.where(("scale_out", "mix", place, "node"))
        beside = str(pathlib.PurePath(document.file).parent / entry.node)
        source = beside if entry.node.endswith((".yaml", ".yml")) else entry.node
        if cycle := _cycle(source, (document.file, *above)):
            faults.append(Fault(cycle, where, CYCLE_HINT))
            continue
        try:
            kind = _built(*_content(source), (), (document.file, *above))
        except InputError as error:
            faults += [replace(fault, where=where) if fault.where == "topo" else fault for fault in error.faults]
            continue
        if kind.cluster is not None:
            faults.append(Fault(f"{entry.node} is a cluster already", where, "name one of its nodes"))
        kinds.append(kind)
    if faults:
        raise SpecError(*faults)
    return tuple(kinds)


def _around(node: Topology, scale_out: Mapping[str, Any]) -> Topology:
    """Return a cluster of a topology that was not read from a file."""
    if node.cluster is not None:
        raise InputError(Fault(f"{node.name} is a cluster already", "scale_out", "pass one of its nodes"))
    section = spec_from(scale_out)
    if section.mix:
        raise InputError(Fault("a mix is described in a file", "scale_out.mix", "write scale_out: {mix: [...]} there"))
    spec, facts = resolve(section, node)
    return build_cluster(replace(node, facts=(*node.facts, *facts)), spec)


def _content(source: Any) -> tuple[bytes, str]:
    """Return the bytes of a named topology or of a file, and what it is called in messages."""
    if not isinstance(source, str | pathlib.Path):
        raise InputError(
            Fault(
                f"a topology cannot be {with_article(type(source).__name__)}", "topo", "pass a name, a path or a graph"
            )
        )
    text = str(source)
    if isinstance(source, pathlib.Path) or "/" in text or "\\" in text or FILE_NAME.search(text):
        return _read(pathlib.Path(text), text), text
    known = (*zoo_names(), *cluster_names())
    if text not in known:
        own = "; a machine of your own is a .yaml file"
        nodes = sorted(zoo_names(), key=len)  # a node before a cluster of it, and the plainest name before others
        raise UnknownNameError("topology", text[:60], known, "topo", own, near=short_for(text, nodes) or "")
    return _shipped(text), shipped_path(text)


def _shipped(name: str) -> bytes:
    path = shipped_file(name)
    return _read(path, str(path))


def check_file(path: str | pathlib.Path) -> Topology:
    """Return the topology in the file *path*, or raise `SpecError` with everything that is wrong with it."""
    return load_topology(pathlib.Path(path))


def parse_topology(content: bytes | str, file: str = "topology.yaml", overrides: Overrides = ()) -> Topology:
    """Return the topology that *content* describes; *file* is its name in messages.

    Examples
    --------
    >>> parse_topology("{schema: collsim.topology/1, builder: full_mesh, gpu: {count: 2}, link: {bandwidth: 25}}")
    Traceback (most recent call last):
    collsim.core.errors.SpecError: topology.yaml:1: link.bandwidth: "25" has no unit
      hint: write "25 GB/s" (1e9 bytes/s), "25 GiB/s" or "200 Gb/s"
    """
    return _built(content, file, overrides, ())


def _built(
    content: bytes | str,
    file: str,
    overrides: Overrides,
    above: tuple[str, ...],
    scale_out: Mapping[str, Any] | None = None,
) -> Topology:
    """Return the topology that *content* describes, or a cluster of it; *above* are the files that led to it."""
    from collsim.topology.cluster.consequences import consequences_of

    node, section, document = _parsed(content, file, overrides, above, scale_out)
    if section is None:
        return node
    whole, spec, kinds = _specified(node, section, document, above)
    cluster = _placed(lambda: build_cluster(whole, spec, kinds=kinds), document)
    own = ("scale_out",) in document.lines and ("title",) in document.lines
    titled = own and not any(path.startswith("scale_out.") for path in node.settings)  # a title tells how many nodes
    follows = consequences_of(document, node, kinds) if cluster.cluster is not None else ()
    return replace(cluster, title=whole.title if titled else cluster.title, follows=follows)


def _parsed(
    content: bytes | str,
    file: str,
    overrides: Overrides,
    above: tuple[str, ...] = (),
    scale_out: Mapping[str, Any] | None = None,
) -> tuple[Topology, ScaleOut | None, Document]:
    """Return the topology inside one node, and what is said of a cluster around it."""
    from collsim.topology.files.checks import check
    from collsim.topology.files.overrides import apply_overrides, as_before, parse_path, settled
    from collsim.topology.files.reader import show_path
    from collsim.topology.files.sections import read_sections

    if not isinstance(scale_out, Mapping | None):
        raise SpecError(Fault(f"{scale_out!r:.40} is no section", "scale_out", 'pass {"nodes": 4}'))
    unmerged = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    faults: list[Fault] = []
    pairs = settled(overrides, scale_out, faults)
    unchanged, raw = _resolve(unmerged, file, faults, above, pairs)
    document = apply_overrides(unchanged, pairs, faults)
    spec = read_sections(document, faults)
    faults += check(spec, document)
    faults += _check_name(spec, document, unmerged)
    if faults:
        from collsim.topology.later_faults import later_faults

        raise SpecError(*_told([*faults, *later_faults(spec, document)], document))
    changed = json.dumps(sorted(dict(pairs).items()))  # in any order they make the same topology
    digest = hashlib.sha256(raw + b"\0" + changed.encode() if pairs else raw).hexdigest()
    try:
        node = assembled(spec, document, digest)
    except SpecError as error:
        from collsim.topology.later_faults import around_faults

        raise SpecError(*_told([*error.faults, *around_faults(spec, document)], document)) from None
    settings = {show_path(parse_path(path) or (path,)): value for path, value in pairs}
    same = as_before(spec, document, [path for path in settings if path not in SIZES])
    return replace(node, before=_before(node, unchanged), settings=settings, as_before=same), spec.scale_out, document


def _before(node: Topology, unchanged: Document) -> dict[str, float]:
    """Return the values that changed figures of a node had in the shipped file that it extends, or before overrides.

    *unchanged* is the document without overrides.
    """
    from collsim.topology.files.sections import collect_facts, read_sections

    facts = {fact.path: fact for fact in node.facts if fact.path in FITTED}
    name, around = unchanged.data.get("extends"), unchanged.data.get("scale_out")
    if name is None and isinstance(around, dict):
        name = around.get("node")
    is_shipped = unchanged.file in map(shipped_path, (*zoo_names(), *cluster_names()))
    if name in zoo_names() and not is_shipped:
        base = load_topology(name).facts
    elif any(fact.status == "set" for fact in facts.values()):
        base = collect_facts(read_sections(unchanged, []), unchanged)
    else:
        return {}
    old = {fact.path: fact.value for fact in base}
    return {path: old[path] for path, fact in facts.items() if path in old and old[path] != fact.value}


def _placed(make: Callable[[], T], document: Document) -> T:
    """Return the result of *make*; its faults, which name a figure, are placed in the file."""
    from collsim.topology.files.overrides import parse_path

    try:
        return make()
    except InputError as error:
        faults = [
            Fault(fault.what, document.where(parse_path(fault.where) or (fault.where,)), fault.hint)
            for fault in error.faults
        ]
        raise SpecError(*_told(faults, document)) from None


def _told(faults: Iterable[Fault], document: Document) -> list[Fault]:
    """Return faults as they are told: at what the user gave, in the order of the file."""
    from collsim.topology.files.blame import blamed

    return _by_line(blamed(faults, document, {shipped_path(name) for name in (*zoo_names(), *cluster_names())}))


def _resolve(
    raw: bytes, file: str, faults: list[Fault], above: tuple[str, ...], overrides: Sequence[tuple[str, str]] = ()
) -> tuple[Document, bytes]:
    """Return the document with everything that it inherits, and the bytes of all files that it is made of.

    *above* are the files that extend this one. A cluster inherits from its node, of several kinds from the first.
    """
    from collsim.topology.cluster.mixing import own_section_faults
    from collsim.topology.files.foreign import foreign_fault
    from collsim.topology.files.reader import read_document

    if foreign := foreign_fault(raw, file):
        raise SpecError(*faults, foreign)
    document = read_document(raw, file)
    around = document.data.get("scale_out")
    path: Path = ("extends",)
    name = document.data.get("extends")
    mixed = _first_of_mix(around)
    if mixed is not None:
        faults += own_section_faults(document, overrides)
    if name is None and isinstance(around, dict) and ("node" in around or mixed is not None):
        path, name = (("scale_out", "mix", 0, "node"), mixed) if mixed else (("scale_out", "node"), around["node"])
        if isinstance(name, str) and name.endswith((".yaml", ".yml")):
            beside = str(pathlib.PurePath(file).parent / name)
            if cycle := _cycle(beside, (file, *above)):
                raise SpecError(*faults, Fault(cycle, document.where(path), CYCLE_HINT))
            return _inherit((document, raw), (beside, _read(pathlib.Path(beside), beside)), faults, above)
    elif "extends" not in document.data:
        return document, raw
    where, known = document.where(path), (*zoo_names(), *cluster_names())
    if name not in known:
        near = nearest(name, known) if isinstance(name, str) else None
        hint = f'did you mean "{near}"? ' if near else ""
        what = f"{_shown(name)} is not a shipped topology"
        raise SpecError(*faults, Fault(what, where, f"{hint}known: {', '.join(zoo_names())}"))
    if cycle := _cycle(shipped_path(name), (file, *above)):
        raise SpecError(*faults, Fault(cycle, where, CYCLE_HINT))
    return _inherit((document, raw), (shipped_path(name), _shipped(name)), faults, above)


def _cycle(file: str, above: tuple[str, ...]) -> str:
    """Return in words the cycle that a file closes, by whatever way it is named; empty if it closes none.

    *above* are the files that led to it, the last one first.
    """
    real = [os.path.realpath(each) for each in above]
    if os.path.realpath(file) not in real:
        return ""
    round_trip = above[: real.index(os.path.realpath(file)) + 1]
    names = [pathlib.PurePath(os.path.normpath(each)).name for each in (*reversed(round_trip), file)]
    return f"a topology cannot extend itself: {' -> '.join(names)}"


def _first_of_mix(around: Any) -> str | None:
    """Return the name of the first kind of nodes; None if there is no mix, or none that can be read."""
    entries = around.get("mix") if isinstance(around, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    name = first.get("node") if isinstance(first, dict) else None
    return name if isinstance(name, str) and name else None


def _inherit(
    heir: tuple[Document, bytes], source: tuple[str, bytes], faults: list[Fault], above: tuple[str, ...]
) -> tuple[Document, bytes]:
    """Return a document, and its bytes, with what it inherits from a file: its name and its bytes."""
    from collsim.topology.files.extending import merge

    (document, raw), (base, content) = heir, source
    found, inherited = _resolve(content, base, faults, (document.file, *above))
    return merge(document, found), raw + b"\0" + inherited


def _shown(value: Any) -> str:
    """Return a short description of what should have been a name."""
    if isinstance(value, str | int):
        return f'"{str(value)[:40]}"'
    return "nothing" if value is None else "a mapping or a list"


def _check_name(spec: Spec, document: Document, content: bytes) -> Iterable[Fault]:
    """Yield a fault if a file calls itself, or is called, by the name of a shipped topology and is not that one."""
    stem = pathlib.PurePath(document.file).stem
    name = (spec.header.name if spec.header else None) or stem
    if name in (*zoo_names(), *cluster_names()) and (name != stem or content != _shipped(name)):
        own = stem if name != stem else f"my_{stem}"
        hint = f'write "name: {own}": results of a changed copy must not pass for those of {name}'
        yield Fault(f'the name "{name}" belongs to a shipped topology', document.where(("name",)), hint)


def _by_line(faults: list[Fault]) -> list[Fault]:
    """Return faults in the order of the file; those that have no line come first."""

    def line(fault: Fault) -> int:
        found = re.search(r":(\d+)(?::|$)", fault.where)
        return int(found[1]) if found else 0

    return sorted(faults, key=line)


def _read(path: pathlib.Path, shown: str) -> bytes:
    from collsim.topology.files.reader import MAX_FILE_BYTES

    try:
        return read_input(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        if path.is_symlink():
            hint = "repair the link, or name the file itself"
            raise SpecError(Fault(f'the link leads to "{path.readlink()}", which is not there', shown, hint)) from None
        raise SpecError(Fault("no such file", shown, _similar(path))) from None
    except IsADirectoryError:
        raise SpecError(Fault("this is a directory, not a file", shown, "name the YAML file in it")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(Fault(f"cannot be read: {reason}", shown, "check the path")) from None


def _similar(path: pathlib.Path) -> str:
    """Return a hint for a file that is not there: a file like it, or a shipped topology of that name."""
    if str(path) in zoo_names():
        return f'"{path}" is a shipped topology, not a file: give its name as text, or see collsim topo show {path}'
    if path.stem in zoo_names():
        return f'"{path.stem}" is a shipped topology: leave out the directory and ".yaml"'
    return beside(path).rstrip() or f"shipped topologies: {', '.join(zoo_names())}"
