"""TCP segments to an Egress IP whose connection this gateway does not track: they are dropped, and not answered with a reset.

Answers to a connection through a lost gateway arrive at the next one before the Pod has sent by it. The kernel would reset the
connection at the other end, as it does for any port without a process. Segments with SYN are answered as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.snat_mark import oldest_of
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import EgressMark

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


def unanswered_address(facts: Facts, mark: EgressMark) -> Iterator[NftElement]:
    """Yield the address, unless its oldest Egress resets, or it is the Node's own, whose processes are to answer."""
    node, oldest = facts.get(ThisNode), oldest_of(facts, mark.ip)
    if node is None or oldest is None or oldest.resets or mark.ip in (*node.node_ips, *node.transport_ips):
        return
    yield NftElement(set=SETS[is_ipv6(mark.ip)], value=mark.ip)
