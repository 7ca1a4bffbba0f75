"""Faults injected into a node: loss of power, cut cables, a machine that hangs, lost packets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from antrea.errors import Invalid
from lab import cluster, node, reference_cni, underlay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.cluster import Lab
    from lab.topology import Machine, Nic

Kind = Literal["power-off", "power-on", "cut-link", "heal-link", "pause", "resume"]
KINDS: tuple[str, ...] = get_args(Kind)


def inject(lab: Lab, name: str, kind: Kind, *, link: str | None = None) -> None:
    """Do that to the node; `link` is the card that cut-link and heal-link are about (None: all of them).

    Each is idempotent. A healed link is as it was configured: it has the loss of its configuration, whatever `lose` has
    set since. Raises Invalid for what is not a node or not a card of it.
    """
    machine = _node(lab, name)
    cards = _cards(machine, link)
    with lab.record.locked():
        match kind:
            case "power-off":
                node.power_off(lab.record, machine)
            case "power-on":
                _power_on(lab, machine)
            case "cut-link" | "heal-link":
                for nic in cards:
                    underlay.set_link(lab.record, machine, nic, up=kind == "heal-link")
                    if kind == "heal-link":
                        underlay.set_loss(lab.record, machine, nic, nic.loss)
            case "pause":
                node.freeze(lab.record, name)
            case "resume":
                node.thaw(lab.record, name)


def lose(lab: Lab, name: str, link: str, percent: float, burst: int = 1) -> None:
    """Lose that share of the packets on a machine's cable, in each direction, so many in a row; 0 ends it."""
    if not 0 <= percent <= 100:
        raise Invalid("percent", f"{percent} is not between 0 and 100")
    machine = lab.topology.machine(name)
    with lab.record.locked():
        for nic in _cards(machine, link):
            underlay.set_loss(lab.record, machine, nic, percent, burst)


def _node(lab: Lab, name: str) -> Machine:
    machine = lab.topology.machine(name)
    if machine.role != "node":
        raise Invalid("node", f"{name} is a {machine.role}, not a node")
    return machine


def _cards(machine: Machine, link: str | None) -> Sequence[Nic]:
    nics = [n for n in machine.nics if link in (None, n.name)]
    if not nics:
        raise Invalid("link", f"{link!r} is none of {', '.join(n.name for n in machine.nics)}")
    return nics


def _power_on(lab: Lab, machine: Machine) -> None:
    if machine.name in lab.record.processes():
        return
    node.plug_and_power_on(lab.record, lab.topology, machine)
    if lab.settings.cni == "reference":
        reference_cni.configure(lab.record, lab.topology, cluster.pod_cidrs(lab))
