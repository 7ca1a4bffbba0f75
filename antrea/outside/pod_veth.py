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
from typing import Any

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from antrea.errors import Refused

_IFF_UP, _IFF_NOARP = 0x1, 0x80
_IFA_F_NODAD = 0x02
_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17
_MAIN_TABLE = 254
_PROTO_BOOT = 3  # what `ip route` shows without a word, as upstream's library writes it


class PodVeth(msgspec.Struct, frozen=True, kw_only=True):
    """The pair as CNI ADD wants it."""

    netns_path: str
    """/var/run/netns/cni-..., or /proc/<pid>/ns/net"""
    host_name: str
    """See `host_interface_name`."""
    if_name: str = "eth0"
    mtu: int
    """Of both ends, octets."""
    addresses: tuple[str, ...]
    """Of the Pod's end, with prefix length, at most one per family."""
    gateways: tuple[str, ...] = ()
    """A default route each."""
    mac: str | None = None
    """Of the Pod's end; a random one if None (in a check: any)."""
    tx_off: bool = False
    """Turn transmit checksum offload off: the userspace datapath of OVS forwards frames whose checksum nobody fills in."""


def host_interface_name(pod_name: str, container_id: str, if_name: str = "eth0") -> str:
    """Name of the host's end, at most 15 characters: Pod yelb-db-84d6, container 1f.. -> "yelb-db--81d702".

    # parity: pkg/agent/util/net.go GenerateContainerHostVethName
    """
    prefix = pod_name[:8].lstrip("-") if len(pod_name) > 8 else pod_name
    key = container_id if if_name == "eth0" else container_id + if_name
    return f"{prefix}-{hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:6]}"


def random_mac() -> str:
    """A locally administered unicast address."""
    octets = bytearray(os.urandom(6))
    octets[0] = octets[0] & 0xFE | 0x02
    return octets.hex(":")


def make(veth: PodVeth, mac: str, netns: int) -> int:
    """Make the pair, the Pod's end born in the namespace of file descriptor `netns`; return the host end's index.

    The host's end answers nothing by itself (no ARP, no IPv6): its frames are the bridge's.
    """
    with IPRoute() as ip:
        try:
            _add_pair(ip, veth, mac, netns)
        except NetlinkError as e:
            if e.code != errno.EEXIST or not delete(veth.host_name):
                raise _refused(veth, f"cannot make {veth.host_name} and {veth.if_name}", e) from e
            try:
                _add_pair(ip, veth, mac, netns)
            except NetlinkError as again:
                raise _refused(veth, f"cannot make {veth.host_name} and {veth.if_name}", again) from again
        try:
            if veth.tx_off:
                _tx_checksum_off(veth.host_name)
            _write_sysctl(f"ipv6/conf/{veth.host_name}/disable_ipv6", "1")
            index = int(ip.link_lookup(ifname=veth.host_name)[0])
            ip.link("set", index=index, flags=_IFF_UP | _IFF_NOARP, change=_IFF_UP | _IFF_NOARP)
        except (NetlinkError, OSError, IndexError) as e:
            delete(veth.host_name)
            raise _refused(veth, f"cannot configure {veth.host_name}", e) from e
    return index


def configure_pod_end(veth: PodVeth) -> None:
    """Addresses, up, default routes; an IPv6 address is usable at once (no duplicate address detection)."""
    addresses = [ipaddress.ip_interface(address) for address in veth.addresses]
    try:
        with IPRoute() as ip:
            index = int(ip.link_lookup(ifname=veth.if_name)[0])
            if any(address.version == 6 for address in addresses):
                _write_sysctl(f"ipv6/conf/{veth.if_name}/disable_ipv6", "0")
                _write_sysctl(f"ipv6/conf/{veth.if_name}/accept_dad", "0")
            if veth.tx_off:
                _tx_checksum_off(veth.if_name)
            for address in addresses:
                family, flags = _family(address), {"flags": _IFA_F_NODAD} if address.version == 6 else {}
                ip.addr(
                    "add",
                    index=index,
                    family=family,
                    address=str(address.ip),
                    prefixlen=address.network.prefixlen,
                    **flags,
                )
            ip.link("set", index=index, state="up")
            for gateway in veth.gateways:
                family = _family(ipaddress.ip_address(gateway))
                ip.route(
                    "add",
                    family=family,
                    dst="default",
                    gateway=gateway,
                    oif=index,
                    proto=_PROTO_BOOT,
                    flags=["onlink"],
                )
    except (NetlinkError, OSError, IndexError) as e:
        raise _refused(veth, f"cannot configure {veth.if_name} in {veth.netns_path}", e) from e


def host_end(name: str) -> Any | None:
    """The link message of an interface here, None if there is none."""
    with IPRoute() as ip:
        return _link(ip, name)


def difference(veth: PodVeth, host_index: int) -> str | None:
    """What of the Pod's end is not as `veth` says, as the rest of a sentence; None if all is.

    # parity: pkg/agent/cniserver/interface_configuration_linux.go checkContainerInterface
    """
    with IPRoute() as ip:
        link = _link(ip, veth.if_name)
        if link is None:
            return "is missing"
        if not link["flags"] & _IFF_UP:
            return "is down"
        if link.get_attr("IFLA_LINK") != host_index:
            return f"is not the other end of {veth.host_name}"
        if veth.mac is not None and link.get_attr("IFLA_ADDRESS") != veth.mac.lower():
            return f"has MAC {link.get_attr('IFLA_ADDRESS')}, not {veth.mac.lower()}"
        standing = {
            ipaddress.ip_interface(
                f"{row.get_attr('IFA_LOCAL') or row.get_attr('IFA_ADDRESS')}/{row['prefixlen']}"
            )
            for row in ip.get_addr(index=link["index"])
        }
        routes = {
            ipaddress.ip_address(row.get_attr("RTA_GATEWAY"))
            for row in ip.get_routes(table=_MAIN_TABLE, oif=link["index"])
            if row["dst_len"] == 0 and row.get_attr("RTA_GATEWAY")
        }
    for address in veth.addresses:
        if ipaddress.ip_interface(address) not in standing:
            return f"does not have address {address}"
    for gateway in veth.gateways:
        if ipaddress.ip_address(gateway) not in routes:
            return f"has no default route via {gateway}"
    return None


def delete(name: str) -> bool:
    """Remove an interface, and its peer with it. False if there was none. Raises Refused with the kernel's words."""
    with IPRoute() as ip:
        try:
            ip.link("del", ifname=name)
        except NetlinkError as e:
            if e.code == errno.ENODEV:
                return False
            raise Refused([name], f"cannot remove {name}: {os.strerror(e.code)}") from e
    return True


def _add_pair(ip: Any, veth: PodVeth, mac: str, netns: int) -> None:
    peer = {"ifname": veth.if_name, "mtu": veth.mtu, "address": mac, "net_ns_fd": netns}
    ip.link("add", ifname=veth.host_name, kind="veth", mtu=veth.mtu, peer=peer)


def _link(ip: Any, name: str) -> Any | None:
    try:
        return next(iter(ip.link("get", ifname=name)), None)
    except NetlinkError as e:
        if e.code == errno.ENODEV:
            return None
        raise


def _family(address: Any) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _tx_checksum_off(name: str) -> None:
    """ethtool -K NAME tx off. Source: linux/ethtool.h struct ethtool_value, ETHTOOL_STXCSUM."""
    value = array.array("B", struct.pack("II", _ETHTOOL_STXCSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        fcntl.ioctl(door, _SIOCETHTOOL, struct.pack("16sP", name.encode(), value.buffer_info()[0]))


def _write_sysctl(path: str, value: str) -> None:
    """A kernel without IPv6 has no such file, and then nothing to turn on or off."""
    with contextlib.suppress(FileNotFoundError):
        (Path("/proc/sys/net") / path).write_text(value, "ascii")


def _refused(veth: PodVeth, what: str, error: Exception) -> Refused:
    match error:
        case NetlinkError():
            why = os.strerror(error.code)
        case OSError():
            why = error.strerror or str(error)
        case _:
            why = "the interface is gone"
    return Refused([veth], f"{what}: {why}")
