"""Interface on which the neighbors of an address are: the one with a network that has it, else the transport interface.

Upstream only uses the latter, so that routers of another network learn of a move when their old entry expires, 8 s later.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import OnLink
from antrea.host.link import EXTERNAL_DEVICE, EXTERNAL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import LocalAddress, Transport

DEVICE: Final = EXTERNAL_DEVICE
"""Device with addresses of pools, which leads nowhere."""
PREFIX: Final = EXTERNAL_PREFIX
"""Prefix of devices in the VLANs of pools."""


def on_link(facts: Facts, address: LocalAddress) -> Iterator[OnLink]:
    """Yield the network of an interface; those of pools have addresses of all kinds of networks, and none as a neighbor."""
    network = ip_network(
        f"{address.ip}/{min(address.prefix, 128 if is_ipv6(address.ip) else 32)}", strict=False
    )
    config = facts.get(AgentConfig)
    ours = (DEVICE, PREFIX, config.host_gateway if config else "")
    if network.num_addresses > 1 and not address.dev.startswith(ours):
        yield OnLink(address.dev, str(network))


def neighbours_of(facts: Facts, ip: str, link: Transport) -> str:
    """The interface on which the neighbours of an address are."""
    address, near_networks = ip_address(ip), [(ip_network(row.cidr), row.dev) for row in facts.all(OnLink)]
    near = [(network.prefixlen, dev) for network, dev in near_networks if address in network]
    return max(near)[1] if near else link.device
