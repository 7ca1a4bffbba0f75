"""Script for nft that closes the interfaces of a machine from its boot until an agent enforces policies on them.

New connections to them, and through them, are dropped; connections of the machine, neighbor discovery, DHCPv6 and what
`policyBypassRules` allow pass. Source: nft(8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.facts.family import is_ipv6

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from antrea.config.agent_sections import BypassRule

TABLE: Final = "inet antrea-boot"
SET: Final = "closed"
NEIGHBOURS: Final = "130-136, 143"
"""ICMPv6 types of multicast listeners and of neighbour discovery, which the kernel does not track."""
DHCP_CLIENT, DHCP_SERVER = 546, 547
"""Ports of DHCPv6, whose answers come from another address than requests go to. Source: RFC 8415, 7.2"""


def guard_script(interfaces: Collection[str], rules: Sequence[BypassRule]) -> str:
    """Close these interfaces; the script may run again."""
    names = ", ".join(f'"{name}"' for name in sorted(interfaces))
    lines = [
        f"table {TABLE}",
        f"delete table {TABLE}",
        f"table {TABLE} {{",
        f"  set {SET} {{ type ifname; elements = {{ {names} }}; }}",
        "  chain input {",
        "    type filter hook input priority -10; policy accept;",
        f"    iifname != @{SET} accept",
        "    ct state established,related accept",
        f"    icmpv6 type {{ {NEIGHBOURS} }} accept",
        f"    udp sport {DHCP_SERVER} udp dport {DHCP_CLIENT} accept",
        *(f"    {_let_in(rule)} accept" for rule in rules if rule.direction == "ingress"),
        "    drop",
        "  }",
        "  chain forward {",
        "    type filter hook forward priority -10; policy accept;",
        f"    iifname @{SET} ct state new drop",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _let_in(rule: BypassRule) -> str:
    v6 = is_ipv6(rule.cidr)
    source = f"{'ip6' if v6 else 'ip'} saddr {rule.cidr}"
    if rule.protocol == "ip":
        return source
    if rule.protocol == "icmp":
        return f"{source} meta l4proto {'icmpv6' if v6 else 'icmp'}"
    return f"{source} {rule.protocol} dport {rule.port}"
