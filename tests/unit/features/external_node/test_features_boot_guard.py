"""What closes interfaces of a machine from its boot on: the text for nft, with bypass rules of both families."""

from __future__ import annotations

from antrea.config.agent_sections import BypassRule
from antrea.features.external_node.boot_guard import guard_script

RULES = (
    BypassRule(direction="ingress", protocol="tcp", cidr="192.0.2.0/24", port=22),
    BypassRule(direction="ingress", protocol="udp", cidr="2001:db8::/32", port=53),
    BypassRule(direction="ingress", protocol="icmp", cidr="0.0.0.0/0"),
    BypassRule(direction="ingress", protocol="icmp", cidr="::/0"),
    BypassRule(direction="ingress", protocol="ip", cidr="2001:db8:1::/64"),
    BypassRule(direction="egress", protocol="tcp", cidr="203.0.113.0/24", port=443),
)


def test_bypass_rules_of_ingress_let_in_and_all_else_that_is_new_is_dropped() -> None:
    lines = [line.strip() for line in guard_script(("eth0", "eth1"), RULES).splitlines()]
    assert 'set closed { type ifname; elements = { "eth0", "eth1" }; }' in lines
    first, last = lines.index("ct state established,related accept"), lines.index("drop")
    assert lines[first + 3 : last] == [
        "ip saddr 192.0.2.0/24 tcp dport 22 accept",
        "ip6 saddr 2001:db8::/32 udp dport 53 accept",
        "ip saddr 0.0.0.0/0 meta l4proto icmp accept",
        "ip6 saddr ::/0 meta l4proto icmpv6 accept",
        "ip6 saddr 2001:db8:1::/64 accept",
    ]
    assert lines[:2] == ["table inet antrea-boot", "delete table inet antrea-boot"]  # it may run again
