"""Connections through virtual servers of kube-proxy go over to the kernel's connection tracking, which translates them from then on.

They pause for the time of it: a packet that came between IPVS's end and the new entry would be answered with a reset. Packets
that begin a connection are dropped too, and sent again by their clients.
"""

from __future__ import annotations

import time
from heapq import nlargest
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.outside.netlink.held_address import hide, hold
from antrea.outside.netlink.iproute2 import run_nft
from antrea.outside.netlink.ipvs import (
    PROTOCOLS,
    VirtualServer,
    connection_servers,
    delete_virtual_servers,
)
from antrea.outside.netlink.ipvs_connection import ipvs_connections, key, translate_by_tracking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from antrea.outside.netlink.ipvs_connection import IpvsConnection

TABLE: Final = "antrea-takeover"
"""nftables table that exists while connections pause."""
EXPIRE: Final = Path("/proc/sys/net/ipv4/vs/expire_nodest_conn")
"""Whether IPVS forgets connections with their server; those that it kept would end ours in 15 minutes."""
CONNECTIONS: Final = Path("/proc/thread-self/net/ip_vs_conn")
SECONDS: Final = 10.0
"""In which IPVS has to have forgotten them."""
MAX_CONNECTIONS: Final = 50_000
"""Maximum number of connections that are kept; that many pause for 5 s."""
NAMES: Final = {number: name for name, number in PROTOCOLS.items()}


def hand_over(
    servers: Collection[VirtualServer], addresses: Collection[str], remove_addresses: Callable[[], object]
) -> int:
    """Delete the servers and move their connections to connection tracking; return how many exceed the limit and end.

    `addresses` are those of the Node that `remove_addresses` takes away. Raises OSError, SubprocessError, Unavailable.
    """
    if not servers:
        remove_addresses()
        return 0
    try:
        run_nft(rules(servers, ()))
        connections, ended = lasting(
            connection for connection in ipvs_connections() if is_of(connection, servers)
        )
        run_nft(rules(servers, connections))
        hold({str(connection.source[0]) for connection in connections} & set(addresses), connections)
        remove_addresses()
        hide()
        if EXPIRE.read_text().strip() != "1":
            EXPIRE.write_text("1\n")
        delete_virtual_servers(servers)
        try:
            wait_forgotten(servers)
        finally:
            translate_by_tracking(connections)
    finally:
        run_nft(f"table inet {TABLE}\ndelete table inet {TABLE}\n")
    return ended


def lasting(connections: Iterable[IpvsConnection]) -> tuple[list[IpvsConnection], int]:
    """`MAX_CONNECTIONS` of them, and how many others there are: UDP, which needs no new connection, and those that last packets were seen of long ago, end first."""
    numbers = count()
    longest = nlargest(
        MAX_CONNECTIONS, (connection for connection, _ in zip(connections, numbers, strict=False)), key=_lasts
    )
    return longest, next(numbers) - len(longest)


def _lasts(connection: IpvsConnection) -> tuple[bool, int]:
    return NAMES.get(connection.protocol) != "UDP", connection.timeout


def is_of(connection: IpvsConnection, servers: Collection[VirtualServer]) -> bool:
    """Whether it goes to one of these."""
    ip, port = connection.service
    return VirtualServer(NAMES.get(connection.protocol, ""), str(ip), port) in servers


def rules(servers: Iterable[VirtualServer], connections: Iterable[IpvsConnection]) -> str:
    """For `nft -f`."""
    begun: dict[int, list[str]] = {4: [], 6: []}
    known: dict[int, list[str]] = {4: [], 6: []}
    for server in servers:
        begun[6 if ":" in server.ip else 4].append(
            f"{PROTOCOLS[server.protocol]} . {server.ip} . {server.port}"
        )
    for connection in connections:
        known[connection.service[0].version] += key(connection)
    lines = [f"table inet {TABLE}", f"delete table inet {TABLE}", f"table inet {TABLE} {{"]
    for version in (4, 6):
        kind = f"ipv{version}_addr . inet_service"
        lines += _set(f"begun{version}", f"inet_proto . {kind}", begun[version])
        lines += _set(f"known{version}", f"inet_proto . {kind} . {kind}", known[version])
    for hook in ("prerouting", "output"):
        for stage, priority in (("known", "raw"), ("begun", "mangle")):
            lines.append(f"chain {hook}-{stage} {{ type filter hook {hook} priority {priority};")
            lines += _drops(stage)
            lines.append("}")
    return "\n".join([*lines, "}", ""])


def _set(name: str, kind: str, elements: list[str]) -> Iterator[str]:
    listed = f" elements = {{ {', '.join(sorted(set(elements)))} }};" if elements else ""
    yield f"set {name} {{ type {kind};{listed} }}"


def _drops(stage: str) -> Iterator[str]:
    for version, ip in ((4, "ip"), (6, "ip6")):
        if stage == "begun":
            yield f"ct state new meta l4proto . {ip} daddr . th dport @begun{version} drop"
        else:
            yield f"meta l4proto . {ip} saddr . th sport . {ip} daddr . th dport @known{version} drop"


def wait_forgotten(servers: Collection[VirtualServer]) -> None:
    """Wait until IPVS has no connection to these servers. Raises OSError."""
    deadline = time.monotonic() + SECONDS
    while left := remembered(CONNECTIONS.read_text(), servers):
        if time.monotonic() > deadline:
            raise OSError(f"IPVS has {left} connections of virtual servers that are gone")
        time.sleep(0.05)


def remembered(table: str, servers: Collection[VirtualServer]) -> int:
    """Connections to these in /proc/net/ip_vs_conn."""
    return sum(server in servers for server in connection_servers(table))
