"""Routes into the switch that connections of this Node to Services keep when kube-proxy in mode ipvs makes their addresses the Node's own.

The local table of routes, which all packets ask first, would then keep them on the Node, where no socket takes them. Packets that belong to a
connection which the host does not translate get a mark, by which they are routed before the local table is asked: the rule that leads there,
of priority 0, moves to priority 1 for the time of it. Connections that the host does not track are known by their ends, and stay untracked:
kube-proxy's rules would masquerade what it tracks from the middle on.
"""

from __future__ import annotations

from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.outside.netlink.iproute2 import address_elements, run, run_nft
from antrea.outside.netlink.ipvs_connection import tracked_ends

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from antrea.outside.netlink.ipvs_connection import Ends

TABLE: Final = "antrea-kept"
"""nftables table of kept routes."""
ROUTES: Final = 122
"""The number of the table of routes."""
MARK: Final = 0x10000000
MAX_CONNECTIONS: Final = 10_000
"""Connections to external addresses that are kept; others end."""
_BY_MARK: Final = f"priority 0 fwmark {MARK:#x}/{MARK:#x} lookup {ROUTES}"
_TO: Final = (
    f"meta l4proto . ip saddr . th sport . ip daddr . th dport @ends meta mark set meta mark | {MARK:#010x}"
)
_TO6: Final = _TO.replace("ip ", "ip6 ").replace("@ends", "@ends6")
_TO_UNTRACKED: Final = "meta l4proto . ip saddr . th sport . ip daddr . th dport @untracked notrack"
_TO_UNTRACKED6: Final = _TO_UNTRACKED.replace("ip ", "ip6 ").replace("@untracked", "@untracked6")
_RULES: Final = f"""
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  set addresses {{ type ipv4_addr; }}
  set addresses6 {{ type ipv6_addr; }}
  set ends {{ type inet_proto . ipv4_addr . inet_service . ipv4_addr . inet_service; }}
  set ends6 {{ type inet_proto . ipv6_addr . inet_service . ipv6_addr . inet_service; }}
  set untracked {{ type inet_proto . ipv4_addr . inet_service . ipv4_addr . inet_service; }}
  set untracked6 {{ type inet_proto . ipv6_addr . inet_service . ipv6_addr . inet_service; }}
  chain sent {{
    type route hook output priority mangle; policy accept;
    ct state established ct direction original ip saddr != @addresses ip daddr @addresses meta mark set meta mark | {MARK:#010x}
    ct state established ct direction original ip6 saddr != @addresses6 ip6 daddr @addresses6 meta mark set meta mark | {MARK:#010x}
    {_TO}
    {_TO6}
  }}
  chain answered {{
    type filter hook prerouting priority mangle; policy accept;
    ct direction reply ip saddr @addresses meta mark set meta mark | {MARK:#010x}
    {_TO}
    {_TO6}
    meta l4proto . ip daddr . th dport . ip saddr . th sport @ends meta mark set meta mark | {MARK:#010x}
  }}
  chain stay {{
    type filter hook prerouting priority raw; policy accept;
    {_TO_UNTRACKED}
    {_TO_UNTRACKED6}
    meta l4proto . ip daddr . th dport . ip saddr . th sport @untracked notrack
    meta l4proto . ip6 daddr . th dport . ip6 saddr . th sport @untracked6 notrack
  }}
  chain stay-sent {{
    type filter hook output priority raw; policy accept;
    {_TO_UNTRACKED}
    {_TO_UNTRACKED6}
  }}
}}
"""
"""Answers get the mark so that the kernel does not take their source for a forged one (src_valid_mark); of IPv6 it does not ask."""


def keep(gateway: str, via: Collection[str], connections: Iterable[Ends] = ()) -> None:
    """Keep the routes that lead through this device by one of these next hops, and these connections to them. Blocks.

    Raises OSError, SubprocessError, Unavailable.
    """
    hops = {address: hop for address, hop in _routes(gateway) if hop in via}
    if not hops:
        return
    lines = (
        f"route replace {address} via {hop} dev {gateway} table {ROUTES} onlink\n"
        for address, hop in hops.items()
    )
    run("ip", "-batch", "-", given="".join(lines))
    _setting(gateway).write_text("1\n")
    run_nft(_RULES + "".join([*address_elements(TABLE, hops), *_known(hops, connections)]))
    for version in _versions(hops):
        lines_ = f"rule add priority 1 lookup local\nrule del {_BY_MARK}\nrule add {_BY_MARK}\nrule del priority 0 lookup local\n"
        run("ip", "-force", f"-{version}", "-batch", "-", given=lines_, fine=True)


def may_stand(gateway: str) -> bool:
    """Whether there may be any; asks no other program."""
    setting = _setting(gateway)
    return setting.exists() and setting.read_text().strip() != "0"


def _setting(gateway: str) -> Path:
    return Path(f"/proc/sys/net/ipv4/conf/{gateway}/src_valid_mark")


def kept_addresses() -> list[str]:
    """Raises as `keep`."""
    addresses: list[str] = []
    for version in ("-4", "-6"):
        listed = run("ip", version, "route", "show", "table", str(ROUTES), fine=True)
        addresses += (line.split()[0] for line in listed.splitlines())
    return addresses


def give_up(gateway: str) -> None:
    """All of them; rules and the device are as they were. Raises as `keep`."""
    for version in ("-4", "-6"):
        # a second rule of priority 0 would stay where none was moved to priority 1
        if "lookup local" in run("ip", version, "rule", "show", "priority", "1", fine=True):
            lines = (
                f"rule add priority 0 lookup local\nrule del {_BY_MARK}\nrule del priority 1 lookup local\n"
            )
            run("ip", "-force", version, "-batch", "-", given=lines, fine=True)
        run("ip", version, "route", "flush", "table", str(ROUTES), fine=True)
    run_nft(f"table inet {TABLE}\ndelete table inet {TABLE}\n")
    if may_stand(gateway):
        _setting(gateway).write_text("0\n")


def _routes(gateway: str) -> Iterator[tuple[str, str]]:
    """Address and next hop of those to one address."""
    for version in ("-4", "-6"):
        for line in run("ip", version, "route", "show", "dev", gateway).splitlines():
            parts = line.split()
            if parts[1:2] == ["via"] and "/" not in parts[0] and parts[0] != "default":
                yield parts[0], parts[2]


def _known(addresses: Collection[str], connections: Iterable[Ends]) -> Iterator[str]:
    tracked = tracked_ends()
    for connection in islice(connections, MAX_CONNECTIONS):
        if connection[3] in addresses:
            names = ["ends"] if connection in tracked else ["ends", "untracked"]
            for name in names:
                yield f"add element inet {TABLE} {name}{'6' if ':' in connection[3] else ''} {{ {' . '.join(map(str, connection))} }}\n"


def _versions(addresses: Collection[str]) -> list[int]:
    return sorted({ip_address(address).version for address in addresses})
