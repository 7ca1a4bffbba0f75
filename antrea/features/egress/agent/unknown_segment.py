"""TCP segments to an Egress IP whose connection this gateway does not track: they are dropped, and not answered with a reset.

Answers to a connection through a lost gateway arrive at the next one before the Pod has sent by it. The kernel would reset the
connection at the other end, as it does for any port without a process. Segments with SYN are answered as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.member import PoolMembers
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.snat_mark import oldest_of
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress

CHAIN: Final = NftChain(name="egress-input", hook="type filter hook input priority filter; policy accept;")
SETS: Final = {False: "egress-unanswered", True: "egress-unanswered6"}
"""Addresses of which segments of unknown connections are not answered."""


def unknown_segments(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield the chain and one rule for each family, whichever Egress IPs there are."""
    if facts.get(AgentConfig) is None:
        return
    yield CHAIN
    for version6 in sorted(node.families):
        name, ip = SETS[version6], "ip6" if version6 else "ip"
        yield NftSet(name=name, type=f"ipv{6 if version6 else 4}_addr")
        yield NftRule(
            chain=CHAIN.name,
            name=f"no reset of connections that another gateway had, {ip}",
            text=f"{ip} daddr @{name} ct state {{ invalid, new }} tcp flags & (syn | rst) == 0x0 drop",
        )


def unanswered_address(facts: Facts, egress: Egress) -> Iterator[NftElement]:
    """Yield an address that is here, or may come with connections that survive: segments may come as soon as it does.

    None if its oldest Egress resets, or for an address of the Node itself, whose processes are to answer.
    """
    node, oldest, ip = facts.get(ThisNode), oldest_of(facts, egress.ip), egress.ip
    if node is None or oldest is None or oldest.resets or ip in (*node.node_ips, *node.transport_ips):
        return
    if facts.get(LocalAddress, ip) or (egress.survives and may_hold(facts, egress)):
        yield NftElement(set=SETS[is_ipv6(ip)], value=ip)


def may_hold(facts: Facts, egress: Egress) -> bool:
    """Whether this Node has the address of an Egress, or may take it over; any Node, if the address is of no pool."""
    node = facts.get(ThisNode)
    if not egress.pool or facts.get(LocalAddress, egress.ip):
        return True
    members = facts.get(PoolMembers, egress.pool)
    return node is not None and members is not None and node.name in members.selected
