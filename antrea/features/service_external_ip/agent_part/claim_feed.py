"""External IPs that this Node keeps from better ones: remembered here, since the API shows what it wrote later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.egress import UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner, OwnClaims
from antrea.facts.member import AgentNode
from antrea.facts.service import Service
from antrea.features.service_external_ip.failback import next_claims

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.member import KeptAddress


class ClaimFeed:
    """Feed of OwnClaims, starting with the annotation of this Node, which an earlier agent wrote."""

    def __init__(self, node: str) -> None:
        """`node` is the name of this one."""
        self._node = node
        self._claims: dict[str, KeptAddress] | None = None

    async def run(self, facts: Facts) -> None:
        """Run until cancelled."""
        with facts.watch(ExternalIPOwner, AgentNode, UnusedAddress, Service) as news:
            while True:
                news.clear()
                self.step(facts)
                await news.wait()

    def step(self, facts: Facts) -> None:
        """Update the claims to the facts."""
        if self._claims is None:
            agent_node = facts.get(AgentNode, self._node)
            if agent_node is None:
                return
            self._claims = {claim.ip: claim for claim in agent_node.kept}
        self._claims = next_claims(facts, self._node, self._claims)
        row = OwnClaims(tuple(sorted(self._claims.values())))
        if facts.get(OwnClaims) != row:
            facts.put(row)
