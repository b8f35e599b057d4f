"""``collsim topo``: list, show, draw, check and import topologies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from collsim.cli.options import OPTIONS, complete, scale_out_options, scale_out_place, zoo
from collsim.cli.output import check_sources, check_suffix, check_targets, named_files, write, write_page
from collsim.core.errors import Faults, UnknownNameError
from collsim.core.units import format_count

if TYPE_CHECKING:
    from collsim.topology import Topology

__all__ = ["topo"]


@click.group()
def topo() -> None:
    """List, show, draw, check and import topologies.

    \b
    Examples:
      collsim topo list
      collsim topo show gb200_nvl72
      collsim topo draw dgx1_v100 -o dgx1.svg
      collsim topo check my_cluster.yaml
      collsim topo import topo_m.txt -o my_node.yaml

    A machine of your own is a file that extends a system like it, and says what differs by the paths that `topo
    show` lists; "changes" are of single links. Then collsim run --topo my_node.yaml takes it:

    \b
      schema: collsim.topology/1
      extends: pcie_gen5_8gpu
      gpu: {count: 4}
      nic: {shared_by: 2, bandwidth: 200 Gb/s}
      changes:
        - {a: gpu0, b: gpu1, bandwidth: 300 GB/s, latency: 250 ns}

    Adapters: "nic: {per_gpu: 2}" gives every GPU two, "nic: {shared_by: 4}" four GPUs one, which makes two of a node
    of eight. `topo show NAME --format yaml` writes out every node and link, for what is like none of them.

    \b
    In Python a NetworkX graph will do, for a torus nx.grid_graph([4, 4, 4],
    periodic=True). Nodes are GPUs unless their kind is switch, nic or cpu:
      graph.add_node("sw0", kind="switch", latency_s=2e-7)
      graph.add_edge("gpu0", "sw0", bandwidth_Bps=50e9, latency_s=5e-7)
    Every edge has both, bytes/s one way and seconds. More: docs/topologies.md
    """  # noqa: D301 - \b keeps the lines that follow it as they are


def check_choice(form: str, forms: Sequence[str], faults: Faults | None = None) -> None:
    """Refuse a format that is none of *forms*: at once, or with other *faults*."""
    if form not in forms:
        error = UnknownNameError("format", form, forms, "--format")
        if faults is None:
            raise error
        faults.extend(error.faults)


@topo.command("list")
@click.option("--format", "form", default="table", show_default=True, metavar="FORMAT", help="table or json.")
def topo_list(form: str) -> None:
    """List the systems that come with collsim: GPUs, rate of a GPU in each direction, title; then the clusters."""
    from collsim.core.tabular import json_text
    from collsim.topology import systems

    check_choice(form, ("table", "json"))
    found = systems()
    if form == "json":
        write(json_text({"schema": "collsim.systems/1", "systems": found}), None)
        return
    lines = [f"{'# name':<16} {'GPUs':>4} {'GB/s':>6}  per GPU and direction; the least where GPUs differ"]
    lines += [
        f"{each['name']:<16} {each['gpus']:>4} {each['gpu_Bps'] / 1e9:>6.5g}  {each['title']}"
        for each in found
        if each["kind"] == "domain"
    ]
    lines += ["#", f"{'# cluster':<16} {'GPUs':>6} {'GB/s':>4}  per GPU and direction to other nodes"]
    lines += [
        f"{each['name']:<16} {each['gpus']:>6} {each['gpu_Bps'] / 1e9:>4.4g}  {each['title']}"
        for each in found
        if each["kind"] == "cluster"
    ]
    write_page("".join(f"{line}\n" for line in lines))


@topo.command("show")
@click.argument("name", metavar="NAME|FILE", **complete(zoo, files=True))
@scale_out_options
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure.")
@click.option(
    "--format", "form", default="table", show_default=True, metavar="FORMAT",
    help="table, json, yaml; nccl_topo, nvidia_smi or astra_sim, as other programs have a node.",
)  # fmt: skip
def topo_show(name: str, overrides: tuple[str, ...], form: str, **scale_out: str | None) -> None:
    """Show links, totals per GPU, switches, and where every figure comes from.

    \b
    Examples:
      collsim topo show hgx_h100
      collsim topo show mi355x_ubb8 --set link.bandwidth="80 GB/s" --format yaml
      collsim topo show hgx_h100 --nodes 16 --fabric rail --network infiniband
      collsim topo show hgx_h100 --format nccl_topo
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.importing.exports import EXPORTS, export_topology
    from collsim.report.topology import topology_text

    faults = Faults(lambda where: "--format" if where == "form" else _place(where))
    check_choice(form, ("table", "json", "yaml", *EXPORTS), faults)
    shown = _loaded(name, overrides, scale_out, faults)
    text = faults.attempt(export_topology if form in EXPORTS else topology_text, shown, form)
    faults.raise_any()
    (write_page if form == "table" else write)(str(text), None)


@topo.command("draw")
@click.argument("name", metavar="NAME|FILE", **complete(zoo, files=True))
@scale_out_options
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a figure.")
@OPTIONS["fail"]
@OPTIONS["degrade"]
@click.option("-o", "--output", metavar="FILE.svg", help="Write there instead of to stdout.")
def topo_draw(
    name: str,
    overrides: tuple[str, ...],
    fail: tuple[str, ...],
    degrade: tuple[str, ...],
    output: str | None,
    **scale_out: str | None,
) -> None:
    """Draw GPUs, switch planes and links with their rates as SVG, for light and dark pages.

    \b
    Examples:
      collsim topo draw hgx_h100 -o hgx_h100.svg
      collsim topo draw mi300x_ubb8 --fail link:gpu0-gpu1 -o broken.svg
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.cli.texts import read_shares
    from collsim.report.svg.drawing import topology_svg
    from collsim.topology.failures.degrade import damaged

    faults = Faults(_place)
    check_targets({"output": output}, faults, named_files(name))
    faults.attempt(lambda: check_suffix(output, (".svg",), "end it in .svg: a drawing is SVG"))
    slower = read_shares(degrade, faults)
    whole = _loaded(name, overrides, scale_out, faults)
    topology = faults.attempt(damaged, whole, fail, slower)
    faults.raise_any()
    assert topology is not None
    write(topology_svg(topology), output)


def _place(where: str) -> str:
    """Return where the user wrote what *where* names."""
    if (flag := scale_out_place(where)) != where:
        return f"--{flag.replace('_', '-')}"
    own = {"topo": "NAME", "overrides": "--set", "output": "-o", "fail": "--fail", "degrade": "--degrade"}
    return own.get(where, where)


def _loaded(name: str, overrides: tuple[str, ...], scale_out: Mapping[str, str | None], faults: Faults) -> Topology:
    """Return the topology with its overrides, or raise everything that is wrong."""
    from collsim.cli.texts import read_overrides
    from collsim.topology import load_topology

    changed = read_overrides(overrides, faults)
    topology = faults.attempt(lambda: load_topology(name, changed, scale_out=scale_out))
    faults.raise_any()
    assert topology is not None
    return topology


@topo.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def topo_check(files: tuple[str, ...]) -> None:
    """Check topology files; report every fault of every file.

    \b
    Example:
      collsim topo check cluster_a.yaml cluster_b.yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.topology import check_file, remarks

    faults = Faults()
    for file in files:
        found = faults.attempt(check_file, file)
        if found is not None:
            click.echo(
                f"{file}: ok ({format_count(found.n_gpus, 'GPU')}, {found.wiring.n_links} directed bundles of links)"
            )
            for note in remarks(found):
                click.echo(f"{file}: note: {note}")
    faults.raise_any()


def _kinds() -> Sequence[str]:
    from collsim.importing import KINDS

    return KINDS


@topo.command("import")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("-o", "--output", metavar="FILE.yaml", help="Write the topology there; without it YAML goes to stdout.")
@click.option("--kind", metavar="KIND", **complete(_kinds), help="Format of FILE.  [default: told by its content]")
@click.option(
    "--like", metavar="NAME", **complete(zoo), help="Take rates from this system; for a fabric, what its hosts are."
)
@click.option(
    "--format", "form", default=None, metavar="FORMAT", help="Show only what was read and assumed: table or json."
)
def topo_import(file: str, output: str | None, kind: str | None, like: str | None, form: str | None) -> None:
    """Make a topology file of what another program says of a machine; print what was read and what was assumed.

    Read are nvidia-smi topo -m, NCCL's and RCCL's topology in XML, rocm-smi --showtopo, amd-smi topology, networks of
    ASTRA-sim and htsim, InfraGraph, ibnetdiscover, iblinkinfo and Slurm's topology.conf. Most hold no rates: those of
    shipped systems are taken, and listed with their source. docs/importing.md has an example of each.

    \b
    Examples:
      nvidia-smi topo -m | collsim topo import - -o my_node.yaml
      collsim topo import topo.txt --like hgx_b200 -o my_node.yaml
      collsim topo import fabric.txt --like hgx_h100 -o my_cluster.yaml
    """  # noqa: D301 - \b keeps the lines that follow it as they are
    from collsim.core.tabular import json_text
    from collsim.importing import import_topology
    from collsim.report.imports import import_text
    from collsim.topology.zoo import zoo_names

    faults = Faults(lambda where: {"kind": "--kind", "like": "--like", "output": "-o"}.get(where, where))
    check_choice(form or "table", ("table", "json"), faults)
    check_sources([file], faults)
    check_targets({"output": output}, faults, [file])
    if like is not None and like not in zoo_names():
        faults.extend(UnknownNameError("topology", like[:60], zoo_names(), "like").faults)
    hint = "end it in .yaml: a topology file is YAML"
    faults.attempt(lambda: check_suffix(output, (".yaml", ".yml"), hint))
    found = faults.attempt(lambda: import_topology(file, kind=kind, like=like)) if file else None
    faults.raise_any()
    assert found is not None
    if output not in (None, "-") and found.yaml:
        write(found.yaml, output)
    written = found.to_dict()
    shown = json_text(written) if form == "json" else import_text(written, output if output != "-" else None)
    if output in (None, "-") and found.yaml and (form is None or output == "-"):
        click.echo(shown, err=True, nl=False)  # stdout is for the topology
        write(found.yaml, None)
    else:
        (write if form == "json" else write_page)(shown, None)
