"""Detection of other hosts with an Egress IP: neighbors are probed before a Node of the cluster uses it. An address that some
Node had by the status, or that is here already, is taken immediately and probed meanwhile: the cluster uses it rightly, so
another host's answer is reported and changes nothing. The previous Node is not mistaken for such a host: it is not waited
for, and does not answer any more when the probe is sent (antrea/features/external_ip_pool/agent_part/duplicate_prober.py).

An address without a pool is where its user configured it, which may be two Nodes: the holder probes, too, and probes again when
the status names another Node. Each of the two reports the other, and the one that keeps it writes itself into the status.
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
"""Type of a condition beyond upstream's."""
OWN: Final = ("antrea-egress0", "antrea-ext.")
"""Devices on which Egress IPs of pools are, or prefixes of their names."""


class RecordConflict(Act, frozen=True):
    """Event that another host has the address of an Egress."""

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
    """Yield the probes of a Node that holds the address, or is to; `dev` leads to its neighbors."""
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
    """Return the condition of the Node that holds the address, or is to; the one in the status stays until a probe remains
    unanswered.
    """
    probed = facts.get(ProbedAddress, egress.key)
    if probed is None or probed.ip != egress.ip:
        return ()
    if probed.mac:
        return (Condition(CONFLICT, "True", reason="OtherHost", message=sentence(egress.ip, probed.mac)),)
    return (Condition(CONFLICT),) if egress.conflicts else ()


def conflicts(conditions: Collection[Condition]) -> str:
    """Return the duplicate that a status names; empty if none."""
    return next(
        (condition.message or condition.status for condition in conditions if condition.type == CONFLICT), ""
    )
