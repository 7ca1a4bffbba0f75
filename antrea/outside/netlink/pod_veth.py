"""The pair of interfaces that connects a Pod with the bridge: made, configured, compared, removed.

Every function works in the network namespace its thread is in; `netns` brings the thread there.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import hashlib
import ipaddress
import os
import socket
import struct
from pathlib import Path

import msgspec

from antrea.errors import Refused
from antrea.outside.netlink.message import IFF_UP, get_addresses, get_link
from antrea.outside.netlink.pod_message import (
    MAIN_TABLE,
    StandingLink,
    address_of,
    delete_link,
    gateway_of,
    get_routes,
    link_of,
    new_address,
    new_default_route,
    new_veth,
    set_up,
)
from antrea.outside.netlink.socket import Rtnl

_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17


class PodVeth(msgspec.Struct, frozen=True, kw_only=True):
    """The pair as CNI ADD wants it."""

    netns_path: str
    """/var/run/netns/cni-..., or /proc/<pid>/ns/net"""
    host_name: str
    """See `host_interface_name`."""
    if_name: str = "eth0"
    mtu: int
    """MTU of both ends in bytes."""
    addresses: tuple[str, ...]
    """Addresses of the Pod's end, with prefix length, at most one per family."""
    gateways: tuple[str, ...] = ()
    """A default route each."""
    mac: str | None = None
    """MAC address of the Pod's end; a random one if None (in a check: any)."""
    tx_off: bool = False
    """Turn transmit checksum offload off: the userspace datapath of OVS forwards frames without filling in their checksum."""


def host_interface_name(pod_name: str, container_id: str, if_name: str = "eth0") -> str:
    """Name of the host's end, at most 15 characters: Pod yelb-db-84d6, container 1f.. -> "yelb-db--81d702".

    # parity: pkg/agent/util/net.go GenerateContainerHostVethName
    """
    prefix = pod_name[:8].lstrip("-") if len(pod_name) > 8 else pod_name
    key = container_id if if_name == "eth0" else container_id + if_name
    return f"{prefix}-{hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:6]}"


def random_mac() -> str:
    """A locally administered unicast address."""
    data = bytearray(os.urandom(6))
    data[0] = data[0] & 0xFE | 0x02
    return data.hex(":")


def make(veth: PodVeth, mac: str, netns: int) -> int:
    """Make the pair, the Pod's end born in the namespace of file descriptor `netns`; return the host end's index.

    The host's end answers nothing by itself (no ARP, no IPv6): its frames are the bridge's. It is up from the start,
    which spares the switch a look at all its ports; without a carrier, until the Pod's end is up, it does nothing yet.
    """
    pair = new_veth(veth.host_name, veth.if_name, mtu=veth.mtu, peer_mac=mac, netns=netns)
    with Rtnl() as kernel:
        try:
            try:
                kernel.ask(pair)
            except FileExistsError:
                if not delete(veth.host_name):
                    raise
                kernel.ask(pair)
        except OSError as error:
            raise _refused(veth, f"cannot make {veth.host_name} and {veth.if_name}", error) from error
    try:
        _write_sysctl(f"ipv6/conf/{veth.host_name}/disable_ipv6", "1")
        if veth.tx_off:
            turn_off_checksums(veth.host_name)
        return socket.if_nametoindex(veth.host_name)
    except OSError as error:
        delete(veth.host_name)
        raise _refused(veth, f"cannot configure {veth.host_name}", error) from error


def configure_pod_end(veth: PodVeth) -> None:
    """Addresses, up, default routes; an IPv6 address is usable at once (no duplicate address detection)."""
    addresses = [ipaddress.ip_interface(address) for address in veth.addresses]
    gateways = [ipaddress.ip_address(gateway) for gateway in veth.gateways]
    try:
        index = socket.if_nametoindex(veth.if_name)
        if any(address.version == 6 for address in addresses):
            _write_sysctl(f"ipv6/conf/{veth.if_name}/disable_ipv6", "0")
            _write_sysctl(f"ipv6/conf/{veth.if_name}/accept_dad", "0")
        if veth.tx_off:
            turn_off_checksums(veth.if_name)
        with Rtnl() as kernel:
            kernel.ask(
                *(new_address(index, address) for address in addresses),
                set_up(index),
                *(new_default_route(index, gateway) for gateway in gateways),
            )
    except OSError as error:
        raise _refused(veth, f"cannot configure {veth.if_name} in {veth.netns_path}", error) from error


def host_end(name: str) -> StandingLink | None:
    """The interface of that name here, None if there is none."""
    with Rtnl() as kernel:
        return _link(kernel, name)


def difference(veth: PodVeth, host_index: int) -> str | None:
    """The first difference of the Pod's end from `veth`, as the rest of a sentence; None: there is none.

    # parity: pkg/agent/cniserver/interface_configuration_linux.go checkContainerInterface
    """
    with Rtnl() as kernel:
        link = _link(kernel, veth.if_name)
        if link is None:
            return "is missing"
        if wrong := _link_difference(veth, link, host_index):
            return wrong
        addresses = {
            address for index, address in map(address_of, kernel.ask(get_addresses())) if index == link.index
        }
        gateways = {
            gateway.ip
            for gateway in filter(None, map(gateway_of, kernel.ask(get_routes())))
            if (gateway.index, gateway.table) == (link.index, MAIN_TABLE)
        }
    for address in veth.addresses:
        if ipaddress.ip_interface(address) not in addresses:
            return f"does not have address {address}"
    for gateway in veth.gateways:
        if ipaddress.ip_address(gateway) not in gateways:
            return f"has no default route via {gateway}"
    return None


def _link_difference(veth: PodVeth, link: StandingLink, host_index: int) -> str | None:
    if not link.flags & IFF_UP:
        return "is down"
    if link.peer != host_index:
        return f"is not the other end of {veth.host_name}"
    if veth.mac is not None and link.mac != veth.mac.lower():
        return f"has MAC {link.mac}, not {veth.mac.lower()}"
    return None


def delete(name: str) -> bool:
    """Remove an interface, and its peer with it. False if there was none. Raises Refused with the kernel's words."""
    with Rtnl() as kernel:
        try:
            kernel.ask(delete_link(name))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return False
            raise Refused([name], f"cannot remove {name}: {error.strerror}") from error
    return True


def _link(kernel: Rtnl, name: str) -> StandingLink | None:
    try:
        return link_of(kernel.ask(get_link(name))[0])
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


def turn_off_checksums(name: str) -> None:
    """ethtool -K NAME tx off. Source: linux/ethtool.h struct ethtool_value, ETHTOOL_STXCSUM."""
    value = array.array("B", struct.pack("II", _ETHTOOL_STXCSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        fcntl.ioctl(door, _SIOCETHTOOL, struct.pack("16sP", name.encode(), value.buffer_info()[0]))


def _write_sysctl(path: str, value: str) -> None:
    """A kernel without IPv6 has no such file, and then nothing to turn on or off."""
    with contextlib.suppress(FileNotFoundError):
        (Path("/proc/sys/net") / path).write_text(value, "ascii")


def _refused(veth: PodVeth, what: str, error: OSError) -> Refused:
    return Refused([veth], f"{what}: {error.strerror or 'the interface is gone'}")
