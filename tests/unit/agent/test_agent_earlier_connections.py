"""Connections that began before proxyAll was turned on or off, in dumps of the switch and messages of the kernel."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from antrea.facts.node import ThisNode
from antrea.facts.service import EarlierConnection
from antrea.features.proxy.agent_part.earlier_connections import switch_connections
from antrea.outside.netlink.message import attribute
from antrea.outside.netlink.translated_connection import TranslatedConnection, parse

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))


def line(source: str, ip: str, server: str, state: str = "ESTABLISHED", port: int = 80) -> str:
    return (
        f"tcp,orig=(src={source},dst={ip},sport=40000,dport={port}),"
        f"reply=(src={server},dst={source},sport=8080,dport=40000),zone=65520,mark=19,protoinfo=(state={state})"
    )


def test_open_connections_of_the_node_and_of_hosts_outside_are_listed_and_those_of_pods_are_not() -> None:
    dump = [
        line("10.10.0.1", "10.96.0.10", "10.10.1.7"),
        line("203.0.113.7", "169.254.0.252", "10.10.0.7", port=30080),
        line("10.10.0.9", "10.96.0.10", "10.10.1.7"),
        line("203.0.113.8", "10.10.0.7", "10.10.0.7").replace("dport=80", "dport=8080"),
        line("203.0.113.9", "169.254.0.252", "10.10.0.7", "TIME_WAIT", 30080),
    ]
    assert list(switch_connections("\n".join(dump), NODE)) == [
        EarlierConnection("tcp", "10.10.0.1", 40000, "10.96.0.10", 80, True),
        EarlierConnection("tcp", "203.0.113.7", 40000, "169.254.0.252", 30080, True),
    ]


def ends(kind: int, source: str, source_port: int, ip: str, port: int) -> bytes:
    ips = attribute(3, ip_address(source).packed) + attribute(4, ip_address(ip).packed)
    ports = struct.pack(">H", source_port), struct.pack(">H", port)
    protocol = attribute(1, b"\x06") + attribute(2, ports[0]) + attribute(3, ports[1])
    return attribute(kind, attribute(1, ips) + attribute(2, protocol))


def message(*, status: int, state: int = 3, zone: int = 0, server: str = "2001:db8:9::9") -> bytes:
    body = ends(1, "2001:db8::7", 40000, "2001:db8:9::9", 80)
    body += ends(2, server, 80, "2001:db8::7", 40000) + attribute(3, struct.pack(">I", status))
    body += attribute(4, attribute(1, attribute(1, bytes([state]))))
    return bytes(4) + body + (attribute(18, struct.pack(">H", zone)) if zone else b"")


def test_a_connection_of_the_host_counts_while_it_is_open_answered_translated_and_in_no_zone() -> None:
    answered, translated = 1 << 1, 1 << 5
    here = TranslatedConnection("tcp", "2001:db8::7", 40000, "2001:db8:9::9", 80)
    assert parse(message(status=answered | translated), 6) == here
    # by IPVS, which leaves no trace but in whom answers come from
    assert parse(message(status=answered, server="fd00::2"), 6) == here
    for other in (
        message(status=answered),
        message(status=translated),
        message(status=answered | translated, state=7),
        message(status=answered | translated, zone=65510),
    ):
        assert parse(other, 6) is None
