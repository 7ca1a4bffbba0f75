"""Policies as the controller sends them, in few words, and the flows that the agent makes of them."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact

CONFIG = AgentConfig()
WITHOUT = AgentConfig(feature_gates={"AntreaPolicy": False})
"""Antrea's own policies are off."""
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))


def pipeline(config: AgentConfig) -> Pipeline:
    features = (POD_CONNECTIVITY, FEATURE)
    families = Families.of(NODE.pod_cidrs)
    return Pipeline.realize(table for feature in features for table in feature.tables_of(config, families))


PIPELINE = pipeline(CONFIG)


def interface(name: str, number: int, *addresses: str) -> PodInterface:
    """A Pod of this Node in Namespace `a`; its addresses end in its port, unless they are given."""
    given = addresses or (f"10.10.0.{number}", f"fd00:10::{number:x}")
    return PodInterface(
        f"{name}-0", f"c-{name}", "a", name, f"0a:00:00:00:00:{number:02x}", given, number, f"u-{name}"
    )


def member(name: str, *addresses: str, **ports: int) -> cp.GroupMember:
    """A Pod of Namespace `a`, with named TCP ports."""
    return cp.GroupMember(
        pod=cp.PodReference(name=name, namespace="a"),
        ips=tuple(packed(address) for address in addresses),
        ports=tuple(cp.NamedPort(name=port, port=number, protocol="TCP") for port, number in ports.items()),
    )


def net(cidr: str) -> cp.IPNet:
    found = ip_network(cidr)
    return cp.IPNet(ip=packed(str(found.network_address)), prefix_length=found.prefixlen)


def block(cidr: str, *holes: str) -> cp.IPBlock:
    return cp.IPBlock(cidr=net(cidr), except_=tuple(net(hole) for hole in holes))


def peer(*groups: str, blocks: Iterable[cp.IPBlock] = ()) -> cp.NetworkPolicyPeer:
    return cp.NetworkPolicyPeer(address_groups=groups, ip_blocks=tuple(blocks))


ANY = peer(blocks=(block("0.0.0.0/0"), block("::/0")))


def port(number: int | str, last: int | None = None, protocol: str = "TCP") -> cp.Service:
    return cp.Service(protocol=protocol, port=number, end_port=last)


def rule(
    direction: str, other: cp.NetworkPolicyPeer, *services: cp.Service, **more: Any
) -> cp.NetworkPolicyRule:
    nobody = cp.NetworkPolicyPeer()
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=other if direction == "In" else nobody,
        to=other if direction == "Out" else nobody,
        services=services,
        enable_logging=False,
        **more,
    )


def policy(name: str, applied: str, *rules: cp.NetworkPolicyRule) -> SentPolicy:
    """A Kubernetes NetworkPolicy for the Pods of a group."""
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name=name, uid=name),
            rules=rules,
            applied_to_groups=(applied,),
            source_ref=cp.NetworkPolicyReference(type="K8sNetworkPolicy", namespace="a", name=name, uid=name),
        )
    )


def native(
    name: str, applied: str, *rules: cp.NetworkPolicyRule, tier: int = 250, priority: float = 5.0
) -> SentPolicy:
    """An Antrea ClusterNetworkPolicy for the Pods of a group."""
    return SentPolicy(
        cp.NetworkPolicy(
            metadata=ObjectMetadata(name=name, uid=name),
            rules=rules,
            applied_to_groups=(applied,),
            tier_priority=tier,
            priority=priority,
            source_ref=cp.NetworkPolicyReference(type="AntreaClusterNetworkPolicy", name=name, uid=name),
        )
    )


def applied(group: str, *members: cp.GroupMember) -> list[Fact]:
    return [SentAppliedMember(group, one) for one in members]


def addresses(group: str, *members: cp.GroupMember) -> list[Fact]:
    return [SentAddressMember(group, one) for one in members]


def engine_of(*rows: Fact) -> tuple[Facts, Engine]:
    """The agent's units on policies over these rows, with every row but those of the Node."""
    facts = Facts()
    for pool, low, high in FEATURE.ranks:
        facts.ids.between(pool, low, high)
    for row in (CONFIG, RealizedPipeline(PIPELINE), *rows):
        facts.put(row)
    return facts, Engine(facts, FEATURE.units)


def named(entries: Iterable[Any]) -> list[str]:
    """Flows as text, sorted."""
    return sorted(entry.named(PIPELINE) for entry in entries if isinstance(entry, Flow))


def flows(*rows: Fact, node: ThisNode = NODE) -> list[str]:
    """The flows of policies, without those that stand without any."""
    _, idle = engine_of(node)
    idle.plan()
    _, engine = engine_of(node, *rows)
    engine.plan()
    always = set(named(idle.standing().values()))
    return [line for line in named(engine.standing().values()) if line not in always]
