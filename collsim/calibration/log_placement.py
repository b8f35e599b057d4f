"""Placement of the ranks of a log: on the devices that it lists, else the first GPUs of a domain or of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from collsim.calibration.cases import MeasuredCase
from collsim.core.units import format_count
from collsim.library.costs.hosts import in_a_row
from collsim.topology import Cluster, Topology

if TYPE_CHECKING:
    from collsim.library import Profile
    from collsim.simulation.result import Result

__all__ = ["MOST_GPUS_OF_A_HOST", "gpus_of", "mapping", "misfit", "nodes_of", "on_one_domain", "predicted"]

MOST_GPUS_OF_A_HOST = 16
"""No server has more GPUs (DGX-2 and MI250 boards have 16): the hosts of a larger domain share it."""
MOST_SHOWN = 16


def gpus_of(case: MeasuredCase, topology: Topology) -> list[int]:
    """Return the GPU of each rank: as the log lists them, else the same number on every node, in blocks.

    >>> from collsim.topology import load_topology
    >>> gpus_of(MeasuredCase("all_reduce", 4, 1024, nodes=2), load_topology("h100_rail"))
    [0, 1, 8, 9]
    >>> gpus_of(MeasuredCase("all_reduce", 2, 1024, seats=((0, 4), (0, 7))), load_topology("dgx1_v100"))
    [4, 7]
    """
    ranks = case.all_ranks
    if listed := _listed(case, topology):
        return listed
    if topology.cluster is None or not case.nodes:
        return list(range(ranks))
    each = ranks // case.nodes
    return [node * topology.cluster.node.n_gpus + gpu for node in range(case.nodes) for gpu in range(each)]


def _listed(case: MeasuredCase, topology: Topology) -> list[int]:
    """Return the GPU of each rank by its host and device; nothing where a domain or rack is that of several hosts."""
    cluster, hosts = topology.cluster, 1 + max((host for host, _ in case.seats), default=0)
    each = topology.n_gpus if cluster is None else cluster.node.n_gpus
    most = 1 if cluster is None or each > MOST_GPUS_OF_A_HOST or len(cluster.kinds) > 1 else cluster.spec.nodes
    if hosts > most or case.nodes not in (None, hosts) or any(device >= each for _, device in case.seats):
        return []
    return [host * each + device for host, device in case.seats]


def nodes_of(case: MeasuredCase, topology: Topology) -> int:
    """Return over how many nodes of a cluster a test ran; if the log does not say, as few as its ranks fill.

    >>> from collsim.topology import load_topology
    >>> nodes_of(MeasuredCase("all_reduce", 16, 1024), load_topology("h100_rail"))
    2
    """
    if topology.cluster is None:
        return 1
    return case.nodes or -(-case.all_ranks // topology.cluster.node.n_gpus)


def misfit(case: MeasuredCase, topology: Topology) -> str | None:
    """Return why a test cannot have run on the topology."""
    nodes, name, cluster = case.nodes or 1, topology.name, topology.cluster
    if cluster is None and nodes > 1 and topology.n_gpus <= MOST_GPUS_OF_A_HOST:
        return f"the test ran on {nodes} nodes: {name} is one; give a cluster, or the number of nodes"
    if case.all_ranks > topology.n_gpus:
        return f"the test has {case.all_ranks} ranks, {name} has {format_count(topology.n_gpus, 'GPU')}"
    if cluster is None or case.nodes is None or _listed(case, topology):
        return None
    return _misfit_of_nodes(case, nodes, cluster)


def on_one_domain(case: MeasuredCase, topology: Topology) -> bool:
    """Return True if a test ran inside one scale-up domain, which several hosts may share."""
    return misfit(case, topology) is None and nodes_of(case, topology) == 1


def _misfit_of_nodes(case: MeasuredCase, nodes: int, cluster: Cluster) -> str | None:
    if len(cluster.kinds) > 1:
        return "the nodes of the cluster differ, and a log does not say which of them it ran on"
    each, there = divmod(case.all_ranks, nodes), cluster.node.n_gpus
    if nodes > cluster.spec.nodes:
        return f"the test ran on {nodes} nodes, the cluster has {cluster.spec.nodes}"
    if each[1]:
        return f"the {case.all_ranks} ranks of the test are no equal share for each of {nodes} nodes"
    return (
        f"the test has {each[0]} ranks on a node, the cluster has {format_count(there, 'GPU')} there"
        if each[0] > there
        else None
    )


def mapping(case: MeasuredCase, hosts: tuple[str, ...], topology: Topology) -> str:
    """Return in words where the ranks are taken to be."""
    ranks, nodes = case.all_ranks, case.nodes or len(hosts)
    if listed := _listed(case, topology):
        on = f" on {nodes} nodes" if nodes > 1 else ""
        host = f", host {hosts[0]}" if len(hosts) == 1 else ""
        return f"ranks 0-{ranks - 1} on GPUs {_numbers(listed)} of {topology.name}{on}{host}, as the log lists them"
    if topology.cluster is not None and case.nodes:
        each = "the first GPU" if ranks == nodes else f"the first {ranks // nodes} GPUs"
        return f"ranks 0-{ranks - 1} on {each} of {nodes} nodes of {topology.name}"
    gpus = f"ranks 0-{ranks - 1} on GPUs 0-{ranks - 1} of {topology.name}"
    if nodes > 1:
        return f"{gpus}, its {nodes} hosts in one domain"
    return f"{gpus}, host {hosts[0]}" if hosts else gpus


def _numbers(gpus: Sequence[int]) -> str:
    """Return numbers of GPUs in words, the middle of a long list left out."""
    shown = [str(gpu) for gpu in gpus]
    return ",".join(shown if len(shown) <= MOST_SHOWN else [*shown[: MOST_SHOWN - 1], "...", shown[-1]])


def predicted(
    call: MeasuredCase,
    sizes: Sequence[int],
    topology: Topology,
    profile: Profile,
    *,
    one_of_many: bool = False,
    node_order: Sequence[int] = (),
) -> Result:
    """Return the predictions of the model for a kind of call at some sizes, on its GPUs; raises as `simulate` does.

    With *one_of_many*, more such questions follow, which the compiled engine answers sooner. With *node_order*, ranks
    take the nodes of a cluster in that order.
    """
    from collsim.simulation.request.prepare import prepare
    from collsim.simulation.simulate import predict

    options: dict[str, Any] = {
        "library": call.library,
        "environment": dict(call.environment),
        "root": call.root,
        "launch": call.launch,
        "registered": "symmetric" if call.registered > 1 else bool(call.registered),
        "gpus_per_thread": call.gpus_per_thread or 1,
        "one_process": call.one_process,
        "host": call.host,
        "groups": call.groups,
    }
    if call.matrix is not None:
        options["matrix"] = [list(row) for row in call.matrix]
    else:
        options |= {"size": sizes, "dtype": call.dtype, "redop": call.redop}
    gpus = gpus_of(call, topology)
    if node_order:
        gpus = [gpu for node in node_order for gpu in gpus if topology.wiring.coordinates.node[gpu] == node]
    profile = in_a_row(profile, call.library or profile.library, call.calls, call.launch, call.replays)
    asked = prepare(topology, call.op, rank_list=gpus, profile=profile, **options)
    return predict(*asked._replace(question=replace(asked.question, of_log=True, one_of_many=one_of_many)))
