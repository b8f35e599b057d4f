"""A specification that passed every check, put together as a topology: wiring, facts, labels."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from collsim.core.units import one_line
from collsim.topology.model import Topology

if TYPE_CHECKING:
    from collsim.topology.files.reader import Document
    from collsim.topology.files.sections import Spec
    from collsim.topology.wiring import Wiring

__all__ = ["assembled"]


def assembled(spec: Spec, document: Document, digest: str) -> Topology:
    """Return the topology that *document* specifies; *digest* is the SHA-256 of its bytes."""
    from collsim.topology.files.sections import collect_facts

    assert spec.header is not None
    labels = {f"{name}.{key}": one_line(value) for name, key, value in _label_values(spec) if value}
    labels |= {key: text.strip() for key in ("extends", "notes") if (text := getattr(spec.header, key))}
    reduction = spec.in_network_reduction
    share = spec.switch.in_network_efficiency if spec.switch else None
    name = spec.header.name or pathlib.PurePath(document.file).stem
    wiring = _wire(spec)
    if spec.changes:
        from collsim.topology.files.changed_links import with_changes

        wiring = with_changes(wiring, spec.changes, document, spec.link)
    return Topology(
        name=name,
        title=one_line(spec.header.title or name),
        source=document.file,
        facts=collect_facts(spec, document),
        wiring=wiring,
        sha256=digest,
        labels=labels,
        in_network_reduction=reduction.value.text if reduction and reduction.si else None,
        in_network_efficiency=share.si if share else 1.0,
    )


def _label_values(spec: Spec) -> list[tuple[str, str, str]]:
    return [
        ("gpu", "model", spec.gpu.model if spec.gpu else ""),
        ("link", "type", spec.link.type if spec.link else ""),
        ("switch", "model", spec.switch.model if spec.switch else ""),
        ("cpu", "model", spec.cpu.model if spec.cpu else ""),
        ("nic", "model", spec.nic.model if spec.nic else ""),
    ]


def _wire(spec: Spec) -> Wiring:
    """Return the arrays of a specification that passed every check."""
    from collsim.topology import builders
    from collsim.topology.files.checks import planes_of
    from collsim.topology.files.explicit import wire_explicit

    assert spec.header is not None
    if spec.header.builder == "explicit":
        return wire_explicit(spec)
    link, gpu = spec.link, spec.gpu
    assert link is not None
    assert gpu is not None
    assert link.bandwidth is not None
    assert gpu.count is not None
    rate, latency, efficiency = link.bandwidth.si, link.latency.si, link.efficiency.si
    n_gpus = int(gpu.count.si)
    if spec.header.builder == "full_mesh":
        per_pair = int(link.per_pair.si)
        return builders.full_mesh(
            n_gpus, per_pair=per_pair, bandwidth_Bps=rate, latency_s=latency, efficiency=efficiency
        )
    assert spec.switch
    return builders.switched(
        n_gpus,
        planes_of(spec),
        bandwidth_Bps=rate,
        latency_s=latency,
        efficiency=efficiency,
        switch_latency_s=spec.switch.latency.si,
        prefix=spec.switch.prefix,
    )
