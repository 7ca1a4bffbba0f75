"""Rules that drop packets in state INVALID, as nft prints them, and what is told of them."""

from __future__ import annotations

import pytest

from antrea.host.invalid_drop import DropRule, drop_text, drops_invalid


@pytest.mark.parametrize(
    ("rule", "drops"),
    [
        ("ct state invalid counter drop", True),
        (
            'xt match "conntrack" counter packets 0 bytes 0 drop',
            True,
        ),  # where iptables' extensions are missing
        ('xt match "conntrack" xt match "nfacct" counter drop', True),
        ("ct state invalid drop", True),
        ("ct state established,related counter accept", False),
        ('xt match "conntrack" counter accept', False),
        ("tcp dport 25 drop", False),
        ("}", False),
    ],
)
def test_a_rule_that_drops_invalid_packets_is_known_with_and_without_iptables(rule: str, drops: bool) -> None:
    assert drops_invalid(rule) is drops


def test_each_rule_is_named_with_the_command_that_removes_it() -> None:
    assert drop_text([]) == ""
    told = drop_text([DropRule("ip6", "kube-proxy", "forward"), DropRule("ip", "filter", "KUBE-FORWARD")])
    assert "(chain KUBE-FORWARD of table ip filter, chain forward of table ip6 kube-proxy)" in told
    assert (
        "remove it with: iptables -S KUBE-FORWARD | sed -n '/INVALID.*DROP/s/^-A/iptables -D/p' | sh && "
        "nft -a list chain ip6 kube-proxy forward | sed -n "
        "'s/.*ct state invalid.*handle/nft delete rule ip6 kube-proxy forward handle/p' | sh; while"
    ) in told
