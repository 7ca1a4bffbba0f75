"""Addresses of Services that sockets of this Node have as their own, from IPVS's time, while new connections to them take the usual way.

In mode ipvs the Node has the addresses of Services, and a process that asks a Service has the Service's address as its source.
Such a socket can send as long as some device has the address, if it is one of IPv4; its answers reach it by a table of routes
that only packets of its connection are sent to. The local table, which all packets ask first, does not have the address any
more. No device has one of IPv6: the kernel would prefer it as the source of new connections to it (RFC 6724, rule 1).
The host tracks connections of IPVS's time, also those to external addresses, whose packets it leaves untracked with proxyAll: what has
a template of connection tracking, here that of the zone that everything has, no later rule can take out of it.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.outside.netlink.iproute2 import address_elements, ip_rows, run, run_nft
from antrea.outside.netlink.ipvs_connection import key
from antrea.outside.netlink.translated_connection import PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from antrea.outside.netlink.ipvs_connection import IpvsConnection
    from antrea.outside.netlink.translated_connection import TranslatedConnection

DEVICE: Final = "antrea-earlier0"
TABLE: Final = "antrea-earlier"
"""nftables table of held addresses."""
ROUTES: Final = 121
"""The number of the table of routes; those of Egress are below."""
PRIORITY: Final = 298
MARK: Final = 0x08000000
_BY_MARK: Final = f"priority {PRIORITY} fwmark {MARK:#x}/{MARK:#x} lookup {ROUTES}"
_TRACKED: Final = "meta l4proto . ip saddr . th sport . ip daddr . th dport @connections ct zone set 0"
_TRACKED6: Final = _TRACKED.replace("ip ", "ip6 ").replace("@connections", "@connections6")
_ELEMENT: Final = re.compile(r"(\d+) \. (\S+) \. (\d+) \. (\S+) \. (\d+)")
_RULES: Final = f"""
table inet {TABLE} {{
  set addresses {{ type ipv4_addr; }}
  set addresses6 {{ type ipv6_addr; }}
  set connections {{ type inet_proto . ipv4_addr . inet_service . ipv4_addr . inet_service; }}
  set connections6 {{ type inet_proto . ipv6_addr . inet_service . ipv6_addr . inet_service; }}
}}
flush table inet {TABLE}
table inet {TABLE} {{
  chain tracked {{
    type filter hook prerouting priority raw - 1; policy accept;
    {_TRACKED}
    {_TRACKED6}
  }}
  chain tracked-sent {{
    type filter hook output priority raw - 1; policy accept;
    {_TRACKED}
    {_TRACKED6}
  }}
  chain answers {{
    type filter hook prerouting priority dstnat + 5; policy accept;
    ct direction reply ip daddr @addresses meta mark set meta mark | {MARK:#010x}
    ct direction reply ip6 daddr @addresses6 meta mark set meta mark | {MARK:#010x}
  }}
}}
"""


def hold(addresses: Collection[str], connections: Iterable[IpvsConnection] = ()) -> None:
    """Also those that another device has, which may then go; and track these connections. Raises OSError, SubprocessError, Invalid."""
    elements = [*_connection_elements(connections)]
    if not addresses and not elements:
        return
    wanted = sorted({*addresses, *held_addresses()})
    run_nft(_RULES + "".join([*address_elements(TABLE, wanted), *elements]))
    if not _device_exists():
        run("ip", "link", "add", DEVICE, "type", "dummy")
    for version in sorted({ip_address(address).version for address in wanted}):
        lines = f"rule del {_BY_MARK}\nrule add {_BY_MARK}\n"
        run("ip", "-force", f"-{version}", "-batch", "-", given=lines, fine=True)
    run("ip", "-batch", "-", given="".join(f"{line}\n" for address in wanted for line in _ways(address)))


def hide() -> None:
    """Take the addresses out of the local table, once no other device has them. Raises as `hold`."""
    four = (address for address in held_addresses() if ":" not in address)
    lines = "".join(f"route del local {address} dev {DEVICE} table local\n" for address in four)
    run("ip", "-force", "-batch", "-", given=lines, fine=True)


def held_addresses() -> list[str]:
    """Raises as `hold`."""
    addresses: list[str] = []
    for version in ("-4", "-6"):
        # of a table that nothing was put into, iproute2 may refuse to list
        listed = run("ip", version, "route", "show", "table", str(ROUTES), fine=True)
        addresses += (line.split()[1] for line in listed.splitlines() if line.startswith("local "))
    return addresses


def goes_on(connections: Iterable[TranslatedConnection]) -> bool:
    """Whether one of these was handed over. Raises as `hold`."""
    listed = {*_ELEMENT.findall(run("nft", "-n", "list", "table", "inet", TABLE, fine=True))}
    known = {(PROTOCOLS.get(int(number), ""), *ends) for number, *ends in listed}
    return any((connection.protocol, *map(str, connection[1:])) in known for connection in connections)


def release(addresses: Collection[str]) -> None:
    """Release addresses that are held. Raises as `hold`."""
    lines = (line for address in addresses for line in _removal_commands(address))
    run("ip", "-force", "-batch", "-", given="".join(f"{line}\n" for line in lines), fine=True)


def give_up() -> None:
    """All that was made for any address or connection. Raises as `hold`."""
    run("ip", "link", "del", DEVICE, fine=True)
    for version in ("-4", "-6"):
        run("ip", version, "rule", "del", *_BY_MARK.split(), fine=True)
        run("ip", version, "route", "flush", "table", str(ROUTES), fine=True)
    run_nft(f"table inet {TABLE}\ndelete table inet {TABLE}\n")


def _connection_elements(connections: Iterable[IpvsConnection]) -> Iterator[str]:
    """In both directions."""
    elements: dict[int, set[str]] = {4: set(), 6: set()}
    for connection in connections:
        elements[connection.service[0].version].update(key(connection))
    for name, version in (("connections", 4), ("connections6", 6)):
        if elements[version]:
            yield f"add element inet {TABLE} {name} {{ {', '.join(sorted(elements[version]))} }}\n"


def _ways(address: str) -> Iterator[str]:
    if ":" not in address:
        yield f"address replace {address}/32 dev {DEVICE}"
    yield f"route replace local {address} dev lo table {ROUTES}"


def _removal_commands(address: str) -> Iterator[str]:
    yield f"route del local {address} dev lo table {ROUTES}"
    if ":" not in address:
        yield f"address del {address}/32 dev {DEVICE}"


def _device_exists() -> bool:
    return any(row.get("ifname") == DEVICE for row in ip_rows("link", "show"))
