"""State of kube-proxy in mode ipvs on a Node beside chains: a device with addresses of Services, virtual servers, ipsets.

Names: kube-proxy v1.34 pkg/proxy/ipvs/ipset.go. A virtual server is kube-proxy's if its address is on kube-ipvs0, or in a set of
kube-proxy with its port, as when a removal was interrupted, or if its port is in kube-proxy's set of NodePorts; those of other programs stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.kube_proxy import handover
from antrea.decoding import guarded
from antrea.outside.netlink.ip_set import destroy_sets, set_elements, set_names
from antrea.outside.netlink.iproute2 import ip_rows, run
from antrea.outside.netlink.ipvs import PROTOCOLS, VirtualServer, virtual_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICE = "kube-ipvs0"
SETS = re.compile(
    r"KUBE-(?:6-)?(?:LOOP-BACK|CLUSTER-IP|EXTERNAL-IP(?:-LOCAL)?|LOAD-BALANCER(?:-LOCAL|-FW|-SOURCE-IP|-SOURCE-CIDR?)?"
    r"|NODE-PORT-(?:LOCAL-)?(?:TCP|UDP|SCTP-HASH?)|HEALTH-CHECK-NODE-PORT|IPVS-IPS)"
)
"""kube-proxy cuts names after 31 characters, those of two sets of IPv6."""
NODE_PORTS = re.compile(r"KUBE-(?:6-)?NODE-PORT-(TCP|UDP|SCTP)(?:-HASH)?")
SERVICES = re.compile(r"KUBE-(?:6-)?(?:CLUSTER-IP|(?:EXTERNAL-IP|LOAD-BALANCER)(?:-LOCAL)?)")
"""Have addresses of Services with their ports."""


class IpvsState(NamedTuple):
    """IPVS state that belongs to kube-proxy alone."""

    addresses: tuple[str, ...] | None = None
    """Addresses on kube-ipvs0; None if the device does not exist."""
    servers: tuple[VirtualServer, ...] = ()
    sets: tuple[str, ...] = ()


def left() -> IpvsState:
    """Read the IPVS state of this network namespace. Raises OSError, SubprocessError, ValueError, Invalid."""
    addresses, sets = _addresses(), tuple(name for name in set_names() if SETS.fullmatch(name))
    return IpvsState(addresses, tuple(_servers(frozenset(addresses or ()), sets)), sets)


def counts(state: IpvsState) -> dict[str, int]:
    """Count the state for `antctl kube-proxy node`."""
    return {
        "ipvs": state.addresses is not None,
        "ipvsAddresses": len(state.addresses or ()),
        "virtualServers": len(state.servers),
        "ipSets": len(state.sets),
    }


def hand_over(state: IpvsState) -> int:
    """Remove virtual servers and addresses and keep connections; return how many exceed the limit and end. Raises OSError, SubprocessError, Unavailable.

    Addresses go first: while the Node has them, packets that no virtual server takes would be answered with a reset.
    """

    def remove_addresses() -> None:
        if state.addresses is not None:
            run("ip", "link", "delete", DEVICE)

    return handover.hand_over(frozenset(state.servers), state.addresses or (), remove_addresses)


def remove_sets(state: IpvsState) -> None:
    """Chains that use them are gone before. Raises OSError."""
    destroy_sets(state.sets)


def _servers(addresses: frozenset[str], sets: tuple[str, ...]) -> list[VirtualServer]:
    listed = virtual_servers()
    if not listed:
        return []
    ports = {
        (named[1], element.port)
        for name in sets
        if (named := NODE_PORTS.fullmatch(name)) is not None
        for element in set_elements(name)
    }
    ends = {element for name in sets if SERVICES.fullmatch(name) for element in set_elements(name)}

    def is_of_kube_proxy(server: VirtualServer) -> bool:
        end = (PROTOCOLS[server.protocol], server.ip, server.port)
        return server.ip in addresses or (server.protocol, server.port) in ports or end in ends

    return [server for server in listed if is_of_kube_proxy(server)]


def _addresses() -> tuple[str, ...] | None:
    rows = [row for row in ip_rows("address", "show") if row.get("ifname") == DEVICE]
    return guarded("addr_info of ip address show", _global_addresses, rows[0]) if rows else None


def _global_addresses(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(address["local"] for address in row.get("addr_info", ()) if address["scope"] != "link")
