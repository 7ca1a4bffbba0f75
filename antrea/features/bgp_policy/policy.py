"""BGPPolicies, and which of them a Node follows: the oldest one that selects it, then the first by name.

parity: pkg/agent/controller/bgp/controller.go getEffectiveBGPPolicy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.crd.bgp import BfdPeer, BgpPeer, BGPPolicy
from antrea.facts.fact import Fact, precedence
from antrea.facts.group import Requirement
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember
from antrea.features.framework.admission import Watched
from antrea.features.grouping.selector import meets, requirements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode

PATH = "/apis/crd.antrea.io/v1alpha1/bgppolicies"


class BgpPolicyRow(Fact, frozen=True):
    """A BGPPolicy; the feed of BGPPolicies writes it."""

    name: str
    uid: str
    created: str
    """RFC 3339."""
    nodes: tuple[Requirement, ...]
    """The Nodes that it selects; without any, all."""
    asn: int
    listen_port: int = 179
    confederation: int = 0
    """Identifier; 0: there is none."""
    members: tuple[int, ...] = ()
    """AS numbers of the other members of the confederation, sorted."""
    service_ips: frozenset[str] = frozenset()
    """Which addresses of Services: ClusterIP, ExternalIP, LoadBalancerIP."""
    pods: bool = False
    egresses: bool = False
    peers: tuple[BgpPeer, ...] = ()
    bfd_peers: tuple[BfdPeer, ...] = ()

    @property
    def key(self) -> str:
        return self.name


class PolicyNode(NamedTuple):
    """A Node that a policy selects."""

    name: str
    is_leaving: bool


class EffectivePolicy(Fact, frozen=True):
    """The BGPPolicy that this Node follows; derived."""

    policy: BgpPolicyRow
    shadowed: tuple[str, ...] = ()
    """Names of the others that select the Node, sorted."""
    is_draining: bool = False
    """Whether routers should use other Nodes than this one (`is_leaving`), and there is one that the policy selects."""
    nodes: tuple[PolicyNode, ...] = ()
    """Live Nodes that the policy selects, this one among them, by name."""


def policy_row(stored: BGPPolicy) -> BgpPolicyRow:
    """Make the row of an object."""
    meta, spec = stored.metadata, stored.spec
    confederation, advertised = spec.confederation, spec.advertisements
    return BgpPolicyRow(
        meta.name,
        meta.uid,
        meta.creation_timestamp,
        requirements(spec.node_selector),
        spec.local_asn,
        spec.listen_port,
        (confederation.identifier or 0) if confederation else 0,
        tuple(sorted(set(confederation.member_asns))) if confederation else (),
        frozenset(advertised.service.ip_types if advertised.service else ()),
        advertised.pod is not None,
        advertised.egress is not None,
        spec.bgp_peers,
        spec.bfd_peers,
    )


def effective_policy(facts: Facts, this: ThisNode) -> Iterator[EffectivePolicy]:
    """Yield the policy that this Node follows; none while its labels are unknown."""
    node = facts.get(AgentNode, this.name)
    if node is None:
        return
    policies = [row for row in facts.all(BgpPolicyRow) if meets(dict(node.labels), row.nodes)]
    if policies:
        first, *others = sorted(policies, key=lambda row: precedence(row.created, row.name))
        shadowed = tuple(sorted(row.name for row in others))
        nodes = tuple(_policy_nodes(facts, node, first))
        can_others = any(other.name != node.name and not other.is_leaving for other in nodes)
        leaves = is_leaving(node) or facts.get(AgentLeaving) is not None
        # the last one that is left stays, since without it nothing is reached
        yield EffectivePolicy(first, shadowed, leaves and can_others, nodes)


def is_leaving(node: AgentNode) -> bool:
    """Whether routers should use other Nodes: it is cordoned, about to be removed, or Kubernetes does not find it ready."""
    return node.cordoned or node.being_removed or node.not_ready


def _policy_nodes(facts: Facts, this: AgentNode, policy: BgpPolicyRow) -> Iterator[PolicyNode]:
    for node in sorted(facts.all(AgentNode), key=lambda row: row.name):
        if node.name == this.name or (meets(dict(node.labels), policy.nodes) and _lives(facts, node.name)):
            yield PolicyNode(node.name, is_leaving(node))


def _lives(facts: Facts, node: str) -> bool:
    member = facts.get(GossipMember, node)
    return member is None or member.alive


WATCHED = Watched(PATH, BGPPolicy, BgpPolicyRow, policy_row)
