"""Port names in NetworkPolicies of Kubernetes that none of the concerned Pods declares; the kind has no status for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.networking import NetworkPolicyEgressRule
from antrea.apis.shown import one_line
from antrea.explain.policy import affects
from antrea.explain.selector import fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.apis.networking import NetworkPolicy, NetworkPolicyIngressRule
    from antrea.explain.world import Member, World

    Rule = NetworkPolicyIngressRule | NetworkPolicyEgressRule


def has_port_names(policy: NetworkPolicy) -> bool:
    """Whether a rule names a port in place of its number."""
    rules: tuple[Rule, ...] = (*policy.spec.ingress, *policy.spec.egress)
    return any(isinstance(port.port, str) for rule in rules for port in rule.ports)


def unknown_port_names(world: World) -> Iterator[tuple[NetworkPolicy, str]]:
    """Yield each policy with a sentence for each such name; rules that select no Pod are left out."""
    for policy in filter(has_port_names, world.objects.kube_policies):
        sides: dict[str, Sequence[Rule]] = {"ingress": policy.spec.ingress, "egress": policy.spec.egress}
        for field, rules in sides.items():
            if not affects(policy.spec, field.capitalize()):
                continue
            for number, rule in enumerate(rules):
                for text in _unknown(world, policy, rule):
                    yield policy, f"spec.{field}[{number}]: {text}"


def _unknown(world: World, policy: NetworkPolicy, rule: Rule) -> Iterator[str]:
    named = [port for port in rule.ports if isinstance(port.port, str)]
    receivers = _receivers(world, policy, rule) if named else ()
    known = {(name, protocol) for member in receivers for name, protocol, _ in member.ports}
    for port in named if receivers else ():
        if (port.port, port.protocol) not in known:
            whose = (
                "among its peers" if isinstance(rule, NetworkPolicyEgressRule) else "that the policy is for"
            )
            name = one_line(str(port.port))
            yield f"no Pod {whose} has a port named '{name}' with protocol {port.protocol}"


def _receivers(world: World, policy: NetworkPolicy, rule: Rule) -> Sequence[Member]:
    """Pods whose ports the names of a rule stand for, but for those in their Node's network."""
    home = policy.metadata.namespace
    pods = [
        member for member in world.members if member.kind == "pod" and not _has_node_network(world, member)
    ]
    if not isinstance(rule, NetworkPolicyEgressRule):
        selector = policy.spec.pod_selector
        return [pod for pod in pods if pod.namespace == home and fits(selector, pod.labels)]
    if not rule.to:
        return pods
    chosen = {
        (member.namespace, member.name)
        for peer in rule.to
        if peer.ip_block is None and peer.is_known
        for member in world.selected(home, peer.pod_selector, peer.namespace_selector)
    }
    return [pod for pod in pods if (pod.namespace, pod.name) in chosen]


def _has_node_network(world: World, member: Member) -> bool:
    return world.pods[f"{member.namespace}/{member.name}"].spec.host_network
