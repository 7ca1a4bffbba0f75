"""TCP connections whose gateway is lost: the next one takes them over, or resets them.

Taken over, a connection continues where the other end finds it under the same address and port; a firewall on the way may drop
it silently. So its Pod may have it reset immediately instead, with the first packet that it sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.annotation import LOST_CONNECTIONS
from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress
from antrea.features.egress.agent.allocated import why_unallocated
from antrea.features.egress.agent.snat_mark import POOL
from antrea.features.egress.preference import RESET
from antrea.host.nft import NftElement, NftRule, NftSet
from antrea.openflow.fields import SNAT_PKT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.engine import Facts
    from antrea.facts.egress import EgressMark
    from antrea.facts.node import ThisNode

SET: Final = "egress-reset"
BEFORE_FORWARD: Final = 50


def resets(annotations: Mapping[str, str]) -> bool:
    """Whether connections that this gateway does not know are ended."""
    return annotations.get(LOST_CONNECTIONS, "").strip() == RESET


def lost_rule(facts: Facts, _node: ThisNode) -> Iterator[NftSet | NftRule]:
    """Yield a rule that resets a packet from the middle of a connection that is new to this host."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    gateway, mask = f'"{config.host_gateway}"', f"{SNAT_PKT_MARK.mask:#010x}"
    yield NftSet(name=SET, type="mark")
    yield NftRule(
        chain="forward",
        name="an end to connections through a lost gateway",
        text=(
            f"iifname {gateway} oifname != {gateway} ct state new tcp flags & (syn | rst) == 0x0"
            f" meta mark & {mask} @{SET} reject with tcp reset"
        ),
        order=BEFORE_FORWARD,
    )


def lost_elements(facts: Facts, mark: EgressMark) -> Iterator[NftElement]:
    """Yield the marks of addresses whose oldest Egress, then the first by name, resets."""
    rows = (row for row in facts.by(Egress, "ip", mark.ip) if not why_unallocated(facts, row))
    oldest = min(rows, key=lambda row: row.precedence, default=None)
    if oldest and oldest.resets:
        yield NftElement(set=SET, value=f"{facts.id(POOL, mark.ip):#010x}")
