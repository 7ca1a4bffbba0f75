"""kube-proxy's rule that drops packets which connection tracking calls invalid, beside Services that Endpoints answer directly.

kube-proxy in mode iptables has it in chain KUBE-FORWARD, unless `conntrack.tcpBeLiberal` is true; first versions of mode nftables
had it in their own table. Upstream's users have to remove it, as direct server return does not work there with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

CONDITION: Final = "InvalidPacketsDropped"
"""Reason of the Event of the Node, and the condition of the agent."""
PLACES: Final = (("filter", "KUBE-FORWARD"), ("kube-proxy", "forward"), ("kube-proxy", "filter-forward"))
"""Tables and chains that may have the rule."""
LIBERAL: Final = (
    "kubectl -n kube-system get configmap kube-proxy -o yaml | sed 's/tcpBeLiberal: .*/tcpBeLiberal: true/' | kubectl apply -f - && "
    "kubectl -n kube-system rollout restart daemonset kube-proxy"
)
"""Removes the rule, and has kube-proxy not make it again."""
TOOLS: Final = {"ip": "iptables", "ip6": "ip6tables"}


class DropRule(NamedTuple):
    """Where such a rule is."""

    family: str
    table: str
    chain: str
    tool: str = ""
    """The command of iptables that changes it, where it is not that of nft's family."""

    @property
    def removal(self) -> str:
        """The command for a root shell of the Node; the rule may have more conditions than the state."""
        if (self.table, self.chain) == PLACES[0]:
            tool = self.tool or TOOLS[self.family]
            return f"{tool} -S {self.chain} | sed -n '/INVALID.*DROP/s/^-A/{tool} -D/p' | sh"
        place = f"{self.family} {self.table} {self.chain}"
        return f"nft -a list chain {place} | sed -n 's/.*ct state invalid.*handle/nft delete rule {place} handle/p' | sh"


def drops_invalid(rule: str) -> bool:
    """Whether a rule as `nft list` prints it is one: without iptables' extensions nft names the match and not the state."""
    return "drop" in rule.split() and ("ct state invalid" in rule or 'xt match "conntrack"' in rule)


def drop_text(drops: Iterable[DropRule]) -> str:
    """Where the rules are, and what they do; empty: there are none."""
    rules = sorted(set(drops))
    if not rules:
        return ""
    places = ", ".join(f"chain {rule.chain} of table {rule.family} {rule.table}" for rule in rules)
    return (
        f"a rule of kube-proxy drops packets in state INVALID ({places}): packets of Services in load balancer mode dsr are not "
        "tracked by this Node and it drops none of them, as long as no other program removes the agent's rules of nftables; "
        f"remove it with: {' && '.join(rule.removal for rule in rules)}; while kube-proxy runs it makes the rule again, unless "
        "conntrack.tcpBeLiberal is true in its configuration"
    )
