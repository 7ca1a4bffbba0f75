"""Whether another host of the network has an Egress IP: neighbours are asked before a Node of the cluster uses it.

An address that some Node had by the status, or that is here already, is taken at once and asked for beside: the cluster
uses it rightly, so another host's answer is reported and changes nothing. The Node before is not mistaken for such a host: it
is not waited for, and answers no more when the question is asked (antrea/agent/egress/duplicate_prober.py).

An address without a pool is where its user put it, which may be two Nodes: who has it asks, too, and asks again when the
status names another Node. Each of the two reports the other, and the one that keeps it writes itself into the status.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import islice
from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.engine import Act
from antrea.facts.egress import Egress, EgressOwner, ProbedAddress
from antrea.facts.node import LocalAddress, OnLink
from antrea.features.egress.subnet import subnet_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode

CONFLICT: Final = "AddressConflict"
"""Type of a condition of ours."""
OWN: Final = ("antrea-egress0", "antrea-ext.")
"""Devices on which Egress IPs of pools are, or what their names begin with."""
STRANGERS: Final = 3
"""Addresses by which a router that answers for all is known."""


class ProbeAddress(Act, frozen=True):
    """Ask the neighbours on the link of `dev` who has `ip`, which this Node is to hold, and write it as `ProbedAddress`."""

    egress: str
    dev: str
    ip: str
    before: bool
    """Whether the address waits for the answer."""
    strangers: tuple[str, ...] = ()
    """Addresses of its network; who answers for all of these answers for everybody, and has none of them."""


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


def is_asked_for(facts: Facts, key: str, ip: str, node: str) -> bool:
    """Whether it is this Node's to know who else has the address of an Egress row: it holds it, or is to."""
    egress, owner = facts.get(Egress, key), facts.get(EgressOwner, key)
    if egress is None or egress.ip != ip:
        return False
    return bool(owner and owner.node == node) if egress.pool else facts.get(LocalAddress, ip) is not None


def other_host(facts: Facts, egress: Egress) -> str:
    """MAC address of the host that has it, too; empty: none, or not probed (yet)."""
    found = facts.get(ProbedAddress, egress.key)
    return found.mac if found and found.ip == egress.ip else ""


def may_use(facts: Facts, egress: Egress) -> bool:
    """Whether this Node, which is to hold the address, need not wait for answers of neighbours."""
    found = facts.get(ProbedAddress, egress.key)
    return not is_new(facts, egress) or (found is not None and found.ip == egress.ip and not found.mac)


def probes(facts: Facts, egress: Egress, node: ThisNode, dev: str) -> Iterator[ProbeAddress | RecordConflict]:
    """Of a Node that holds the address, or is to; `dev` leads to its neighbours."""
    other = egress.node if not egress.pool and egress.node != node.name else ""
    cause = (egress.ip, dev, other)
    yield ProbeAddress(
        egress.key, cause, egress=egress.key, dev=dev, ip=egress.ip,
        before=bool(egress.pool) and is_new(facts, egress), strangers=strangers(facts, egress, dev),
    )  # fmt: skip
    mac = other_host(facts, egress)
    if mac and sentence(egress.ip, mac) not in egress.conflicts:  # said, perhaps before this agent started
        yield RecordConflict(
            egress.key, (egress.ip, mac), egress=egress.name, uid=egress.uid, node=node.name,
            message=sentence(egress.ip, mac),
        )  # fmt: skip


def strangers(facts: Facts, egress: Egress, dev: str) -> tuple[str, ...]:
    """Far from the address and from each other, as addresses of one host seldom are; none: its network is too small."""
    address, subnet = ip_address(egress.ip), subnet_of(facts, egress)
    cidrs = [subnet.network] if subnet else [row.cidr for row in facts.all(OnLink) if row.dev == dev]
    network = next((found for found in map(ip_network, cidrs) if address in found), None)
    if network is None:
        return ()
    free = range(network.max_prefixlen - network.prefixlen - 1, -1, -1)
    far = (ip_address(int(address) ^ 1 << bit) for bit in free)
    ends = (network.network_address, network.broadcast_address)
    found = tuple(islice((str(one) for one in far if one not in ends), STRANGERS))
    return found if len(found) == STRANGERS else ()


def sentence(ip: str, mac: str) -> str:
    """What a user has to know to find the host."""
    return f"another host of the network has {ip}: MAC address {mac} answers for it"


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
