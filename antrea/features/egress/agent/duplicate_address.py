"""Whether another host of the network has an Egress IP: neighbours are asked before a Node of the cluster uses it.

An address that some Node had by the status, or that is here already, is taken at once and asked for beside: the cluster
uses it rightly, so another host's answer is reported and changes nothing. The Node before is not mistaken for such a host: it
is not waited for, and answers no more when the question is asked (antrea/features/external_ip_pool/agent_part/duplicate_prober.py).

An address without a pool is where its user put it, which may be two Nodes: who has it asks, too, and asks again when the
status names another Node. Each of the two reports the other, and the one that keeps it writes itself into the status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.engine import Act
from antrea.facts.egress import ProbedAddress
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.subnet import subnet_of
from antrea.features.external_ip_pool.duplicate import (
    ProbeAddress,
    is_free,
    other_host,
    sentence,
    strangers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.facts.node import ThisNode

CONFLICT: Final = "AddressConflict"
"""Type of a condition of ours."""
OWN: Final = ("antrea-egress0", "antrea-ext.")
"""Devices on which Egress IPs of pools are, or what their names begin with."""


class RecordConflict(Act, frozen=True):
    """Report in an Event of the Egress that another host has its address."""

    egress: str
    uid: str
    node: str
    message: str


def is_new(facts: Facts, egress: Egress) -> bool:
    """Whether, by all that this Node has received, no Node had the address up to now."""
    here = facts.get(LocalAddress, egress.ip)
    held = egress.node and egress.held == egress.ip
    return not held and not (here and here.dev.startswith(OWN))


def may_use(facts: Facts, egress: Egress) -> bool:
    """Whether this Node, which is to hold the address, need not wait for answers of neighbours."""
    return not is_new(facts, egress) or is_free(facts, egress.key, egress.ip)


def probes(facts: Facts, egress: Egress, node: ThisNode, dev: str) -> Iterator[ProbeAddress | RecordConflict]:
    """Of a Node that holds the address, or is to; `dev` leads to its neighbours."""
    other = egress.node if not egress.pool and egress.node != node.name else ""
    cause, subnet = (egress.ip, dev, other), subnet_of(facts, egress)
    yield ProbeAddress(
        egress.key, cause, holder=egress.key, dev=dev, ip=egress.ip,
        before=bool(egress.pool) and is_new(facts, egress),
        strangers=strangers(facts, egress.ip, dev, subnet.network if subnet else ""),
    )  # fmt: skip
    mac = other_host(facts, egress.key, egress.ip)
    if mac and sentence(egress.ip, mac) not in egress.conflicts:  # said, perhaps before this agent started
        yield RecordConflict(
            egress.key, (egress.ip, mac), egress=egress.name, uid=egress.uid, node=node.name,
            message=sentence(egress.ip, mac),
        )  # fmt: skip


def conflict_conditions(facts: Facts, egress: Egress) -> tuple[Condition, ...]:
    """Of the Node that holds the address, or is to; what the status names stands until a probe remains without answer."""
    found = facts.get(ProbedAddress, egress.key)
    if found is None or found.ip != egress.ip:
        return ()
    if found.mac:
        return (Condition(CONFLICT, "True", reason="OtherHost", message=sentence(egress.ip, found.mac)),)
    return (Condition(CONFLICT),) if egress.conflicts else ()


def conflicts(conditions: Collection[Condition]) -> str:
    """The duplicate that a status names; empty: none."""
    return next((one.message or one.status for one in conditions if one.type == CONFLICT), "")
