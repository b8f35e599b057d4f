"""What ``validate``, ``diagnose`` and ``calibrate`` ask about measured logs and the machine that they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from collsim.cli.options import OPTIONS, complete, operations, profiles, with_options, zoo
from collsim.core.errors import Faults

if TYPE_CHECKING:
    from collsim.simulation.request.prepare import Machine

__all__ = ["experts_told", "log_options", "machine_of", "measured_options", "told_of_logs"]


def _told(hosts: str = "") -> tuple[Callable[..., Any], ...]:
    """Return what logs may not say, with what the number of *hosts* does beside."""
    return (
        click.argument("logs", nargs=-1, metavar="LOG...", type=click.Path()),
        click.option("--topo", metavar="NAME|FILE", **complete(zoo, files=True), help="The system that was measured."),
        click.option("--op", metavar="OP", **complete(operations), help="The operation, whatever the logs say."),
        click.option("--ranks", metavar="N", help="The number of ranks, whatever the logs say."),
        click.option("--nodes", metavar="N", help=f"The number of hosts, whatever the logs say{hosts}."),
        click.option("--launch", metavar="NAME", help="stream or graph, whatever the logs say."),
        click.option("--library", metavar="NAME", help="Such as nccl-2.28, whatever the logs say."),
        click.option(
            "--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable beside those of the logs."
        ),
    )


TOLD = _told()
MEASURED = (
    *_told("; they make a cluster of a node"),
    click.option(
        "--profile",
        default="auto",
        show_default=True,
        metavar="NAME|FILE",
        **complete(profiles, files=True),
        help="Constants of the library; auto: calibrated for the topology, if any; ideal: bare wires.",
    ),
    *(OPTIONS[name] for name in ("rank_list", "overrides", "fail", "degrade")),
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logs, their system, and the flags that say what logs do not."""
    return with_options(command, TOLD)


def measured_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same, with the profile and what was changed on the machine."""
    return with_options(command, MEASURED)


def told_of_logs(flags: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Return what the flags of `log_options` say beside the logs, by the names of Python's arguments."""
    from collsim.cli.texts import read_number, read_settings

    def count(name: str) -> int | None:
        text = flags[name]
        return None if text is None else faults.attempt(lambda: read_number(text, name))

    return {
        **{name: flags[name] for name in ("op", "launch", "library")},
        **{name: count(name) for name in ("ranks", "nodes")},
        "environment": read_settings(flags["environment"], faults),
    }


def experts_told(flags: dict[str, Any], faults: Faults, *, form: str, causes: bool) -> tuple[str, bool] | None:
    """Return what the logs of DeepEP's tests say beside the model, and whether one is faulty; None without such logs.

    *causes* asks for what would explain those that are slow. A log of another kind beside them is a fault.
    """
    from collsim.moe.logs import is_moe_log

    if not any(map(is_moe_log, flags["logs"])):
        return None
    from collsim.core.errors import UnknownNameError
    from collsim.diagnosis.experts import expert_log
    from collsim.report.experts import EXPERT_FORMATS, render_experts

    told = told_of_logs(flags, faults)
    machine, _ = machine_of(flags, faults)
    if form not in EXPERT_FORMATS:
        faults.append(UnknownNameError("format", form, EXPERT_FORMATS, "format").faults[0])
    faults.raise_any()
    asked = {"ranks": told["ranks"], "nodes": told["nodes"], "causes": causes}
    logs = [faults.attempt(lambda log=log: expert_log(log, flags["topo"], machine, **asked)) for log in flags["logs"]]
    faults.raise_any()
    found = [log for log in logs if log is not None]
    return render_experts(found, form), any(log.verdict == "faulty" for log in found)


def machine_of(flags: dict[str, Any], faults: Faults) -> tuple[Machine, list[int] | None]:
    """Return what the flags of `measured_options` say of the machine, and which of its GPUs had ranks."""
    from collsim.cli.texts import read_overrides, read_rank_list, read_shares
    from collsim.simulation.request.prepare import Machine

    machine = Machine(
        read_overrides(flags["overrides"], faults), list(flags["fail"]), read_shares(flags["degrade"], faults)
    )
    ranks = flags["rank_list"]
    return machine, None if ranks is None else faults.attempt(read_rank_list, ranks)
