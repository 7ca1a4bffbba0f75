"""Detection of other hosts with an address of an Egress or a Service: neighbors are probed before a Node uses it."""

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
"""Kinds on which the probes depend."""


class ProbeAddress(Act, frozen=True):
    """Probe of the neighbors on the link of `dev` for `ip`, which this Node is to hold; the result is a `ProbedAddress`."""

    holder: str
    """Key of the Egress row, or of ExternalIPOwner."""
    dev: str
    ip: str
    before: bool
    """Whether the address waits for the answer."""
    strangers: tuple[str, ...] = ()
    """Addresses of its network; who answers for all of these answers for everybody, and has none of them."""


def is_to_be_probed(facts: Facts, holder: str, ip: str, node: str) -> bool:
    """Whether this Node has to probe for other hosts with the address: it holds it, or is to."""
    if answers := facts.get(ExternalIPOwner, holder):
        return (answers.ip, answers.node) == (ip, node)
    egress, owner = facts.get(Egress, holder), facts.get(EgressOwner, holder)
    if egress is None or egress.ip != ip:
        return False
    return bool(owner and owner.node == node) if egress.pool else facts.get(LocalAddress, ip) is not None


def other_host(facts: Facts, holder: str, ip: str) -> str:
    """Return the MAC address of the host that has it, too; empty if none, or not probed (yet)."""
    probed = facts.get(ProbedAddress, holder)
    return probed.mac if probed and probed.ip == ip else ""


def is_free(facts: Facts, holder: str, ip: str) -> bool:
    """Whether neighbors were probed, and none has it."""
    probed = facts.get(ProbedAddress, holder)
    return probed is not None and probed.ip == ip and not probed.mac


def strangers(facts: Facts, ip: str, dev: str, subnet: str = "") -> tuple[str, ...]:
    """Far from the address and from each other, as addresses of one host seldom are; none: its network is too small.

    `subnet` is the network of the address; empty: that of `dev` which has it.
    """
    address = ip_address(ip)
    cidrs = [subnet] if subnet else [row.cidr for row in facts.all(OnLink) if row.dev == dev]
    network = next((candidate for candidate in map(ip_network, cidrs) if address in candidate), None)
    if network is None:
        return ()
    free = range(network.max_prefixlen - network.prefixlen - 1, -1, -1)
    far = (ip_address(int(address) ^ 1 << bit) for bit in free)
    ends = (network.network_address, network.broadcast_address)
    addresses = tuple(islice((str(address_far) for address_far in far if address_far not in ends), STRANGERS))
    return addresses if len(addresses) == STRANGERS else ()


def sentence(ip: str, mac: str) -> str:
    """Return the sentence that helps a user to find the host."""
    return f"another host of the network has {ip}: MAC address {mac} answers for it"
