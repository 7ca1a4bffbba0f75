"""Whether another host of the network has an address of an Egress or a Service: neighbours are asked before a Node uses it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import islice
from typing import TYPE_CHECKING, Final

from antrea.engine import Act
from antrea.facts.egress import Egress, EgressOwner, ProbedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.node import LocalAddress, OnLink

if TYPE_CHECKING:
    from antrea.engine import Facts

STRANGERS: Final = 3
"""Addresses by which a router that answers for all is known."""
READS: Final = (Egress, EgressOwner, ExternalIPOwner, LocalAddress, ProbedAddress)
"""Kinds on which it depends what is asked."""


class ProbeAddress(Act, frozen=True):
    """Ask the neighbours on the link of `dev` who has `ip`, which this Node is to hold, and write it as `ProbedAddress`."""

    holder: str
    """Key of the Egress row, or of ExternalIPOwner."""
    dev: str
    ip: str
    before: bool
    """Whether the address waits for the answer."""
    strangers: tuple[str, ...] = ()
    """Addresses of its network; who answers for all of these answers for everybody, and has none of them."""


def is_asked_for(facts: Facts, holder: str, ip: str, node: str) -> bool:
    """Whether it is this Node's to know who else has the address: it holds it, or is to."""
    if answers := facts.get(ExternalIPOwner, holder):
        return (answers.ip, answers.node) == (ip, node)
    egress, owner = facts.get(Egress, holder), facts.get(EgressOwner, holder)
    if egress is None or egress.ip != ip:
        return False
    return bool(owner and owner.node == node) if egress.pool else facts.get(LocalAddress, ip) is not None


def other_host(facts: Facts, holder: str, ip: str) -> str:
    """MAC address of the host that has it, too; empty: none, or not probed (yet)."""
    found = facts.get(ProbedAddress, holder)
    return found.mac if found and found.ip == ip else ""


def is_free(facts: Facts, holder: str, ip: str) -> bool:
    """Whether neighbours were asked, and none has it."""
    found = facts.get(ProbedAddress, holder)
    return found is not None and found.ip == ip and not found.mac


def strangers(facts: Facts, ip: str, dev: str, subnet: str = "") -> tuple[str, ...]:
    """Far from the address and from each other, as addresses of one host seldom are; none: its network is too small.

    `subnet` is the network of the address; empty: that of `dev` which has it.
    """
    address = ip_address(ip)
    cidrs = [subnet] if subnet else [row.cidr for row in facts.all(OnLink) if row.dev == dev]
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
