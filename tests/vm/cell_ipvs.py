"""Runs in the virtual machine, whose kernel has IPVS: virtual servers are listed and deleted, and none but those that are named."""

from __future__ import annotations

import socket
import struct
import sys
from ipaddress import ip_address

import pytest

from antrea.outside.netlink.ipvs import (
    PROTOCOLS,
    TABLE,
    VirtualServer,
    delete_virtual_servers,
    virtual_servers,
)
from antrea.outside.netlink.message import ASK, Request, attribute, attributes, string
from antrea.outside.netlink.socket import Rtnl
from lab.process import run

SERVERS = {
    VirtualServer("TCP", "10.96.0.1", 443),
    VirtualServer("UDP", "10.96.0.10", 53),
    VirtualServer("SCTP", "10.96.0.7", 7001),
    VirtualServer("TCP", "fd00:10:96::1", 443),
}
OTHER = VirtualServer("TCP", "192.0.2.1", 30080)
_GENERIC, _CONTROL = 16, 0x10


@pytest.mark.parametrize("scheduler", ["rr", "lc", "sh"])
def test_virtual_servers_are_deleted_and_others_stay(scheduler: str) -> None:
    """Of each scheduler that kube-proxy is commonly given, with affinity of clients too."""
    run(["modprobe", "-a", "ip_vs", f"ip_vs_{scheduler}"])
    assert virtual_servers() == []
    for server in (*SERVERS, OTHER):
        _add(server, scheduler, persistent=server.port == 443)
    assert TABLE.read_text().count(f" {scheduler} ") == len(SERVERS) + 1
    try:
        assert set(virtual_servers()) == {*SERVERS, OTHER}
        delete_virtual_servers(SERVERS)
        assert virtual_servers() == [OTHER]
    finally:
        delete_virtual_servers(virtual_servers())


def _add(server: VirtualServer, scheduler: str, *, persistent: bool) -> None:
    """As ipvsadm -A does (linux/ip_vs.h); this machine has no such program."""
    ip = ip_address(server.ip)
    family, bits = (socket.AF_INET, 0xFFFFFFFF) if ip.version == 4 else (socket.AF_INET6, 128)
    body = attribute(1, struct.pack("=H", family)) + attribute(
        2, struct.pack("=H", PROTOCOLS[server.protocol])
    )
    body += attribute(3, ip.packed.ljust(16, b"\0")) + attribute(4, server.port.to_bytes(2, "big"))
    body += string(6, scheduler) + attribute(7, struct.pack("=II", int(persistent), 0xFFFFFFFF))
    body += attribute(8, struct.pack("=I", 10800 * persistent)) + attribute(9, struct.pack("=I", bits))
    with Rtnl(_GENERIC) as kernel:
        (about,) = kernel.ask(Request(_CONTROL, ASK, struct.pack("=BBH", 3, 1, 0) + string(2, "IPVS")))
        number = int.from_bytes(attributes(about.body[4:])[1], sys.byteorder)
        kernel.ask(Request(number, ASK, struct.pack("=BBH", 1, 1, 0) + attribute(1 | 1 << 15, body)))
