"""Rule of an admin policy, read so that it never lets pass more than its author wrote.

The CRD in a cluster may be newer than this program: then a peer or a protocol arrives without any field that is known here. As
the API requires, such a rule matches nothing if it accepts, and denies if it denies or passes: its peers are everybody then, or
its ports all. The policy's status names it. Upstream lets a Pass rule match nothing in that case, and of v1alpha1 a Deny rule
as well.
parity: pkg/controller/networkpolicy/{adminnetworkpolicy,clusternetworkpolicy}.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.network_policy_api import v1alpha1, v1alpha2
from antrea.apis.network_policy_api.part import EgressPeer, Subject
from antrea.features.grouping.selector import NEVER, requirements
from antrea.features.network_policy.controller.peer import ALL, MAX_SHOWN, network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd.part import LabelSelector
    from antrea.apis.network_policy_api.part import Rule

ALLOW, DROP = "Allow", "Drop"
ACTIONS = {"Allow": ALLOW, "Accept": ALLOW, "Deny": DROP, "Pass": "Pass"}
NOBODY = cp.NetworkPolicyPeer()
UNKNOWN = "has no field that is known here: the CRD is of another version"


class ReadRule(msgspec.Struct, frozen=True):
    """A rule as sent to agents, but for the groups of its peers."""

    action: str
    peers: tuple[Subject, ...]
    """Peers that are groups."""
    rest: cp.NetworkPolicyPeer
    """Networks and names."""
    services: tuple[cp.Service, ...]
    doubts: tuple[str, ...] = ()
    """Parts that are not enforced as they are written, by field."""

    @property
    def denies_all(self) -> bool:
        """Whether its peers are everybody, since one of them is not known."""
        return self.rest is ALL


def read_rule(path: str, rule: Rule) -> ReadRule:
    """`path` is the rule's field in the policy."""
    doubts: list[str] = []
    action = ACTIONS.get(rule.action, "")
    if not action:
        doubts.append(f"{path}.action {rule.action[:MAX_SHOWN]!r} is not known: the rule denies")
        action = DROP
    services, odd_ports = _services(path, rule)
    rest, odd_peers = _rest(f"{path}.{'to' if _egress(rule) else 'from'}", rule)
    doubts += [*odd_peers, *odd_ports]
    if not (odd_peers or odd_ports):
        return ReadRule(action, rule.peers, rest, services, tuple(doubts))
    if action == ALLOW:
        known = [peer for peer in rule.peers if _is_group(peer)]
        if odd_ports and not services:
            known, rest = [], NOBODY
        return ReadRule(action, tuple(known), rest, services, tuple(doubts))
    services = () if odd_ports else services
    if odd_peers:
        return ReadRule(DROP, (), ALL, services, tuple(doubts))
    return ReadRule(DROP, rule.peers, rest, services, tuple(doubts))


def _egress(rule: Rule) -> bool:
    return isinstance(rule, v1alpha1.EgressRule | v1alpha2.EgressRule)


def _is_group(peer: Subject) -> bool:
    return peer.pods is not None or peer.namespaces is not None or _nodes(peer) is not None


def _nodes(peer: Subject) -> LabelSelector | None:
    return peer.nodes if isinstance(peer, EgressPeer) else None


def group_doubts(path: str, peer: Subject) -> Iterator[str]:
    """Yield selectors that can select nothing."""
    pods = peer.pods
    for name, selector in (
        ("pods.podSelector", pods.pod_selector if pods else None),
        ("pods.namespaceSelector", pods.namespace_selector if pods else None),
        ("namespaces", peer.namespaces),
        ("nodes", _nodes(peer)),
    ):
        if selector is not None and requirements(selector) == (NEVER,):
            yield f"{path}.{name} has a key or value that no label has: it is nobody"


def _rest(path: str, rule: Rule) -> tuple[cp.NetworkPolicyPeer, list[str]]:
    """Return networks and names, and unknown or invalid parts."""
    blocks, names, odd = list[cp.IPBlock](), list[str](), list[str]()
    for number, peer in enumerate(rule.peers):
        if _is_group(peer):
            continue
        if not isinstance(peer, EgressPeer) or not (peer.domain_names or peer.networks):
            odd.append(f"{path}[{number}] {UNKNOWN}: {_instead(rule)}")
            continue
        names += peer.domain_names
        for cidr in peer.networks:
            try:
                blocks.append(cp.IPBlock(cidr=network(cidr)))
            except ValueError:
                odd.append(f"{path}[{number}].networks: {cidr[:MAX_SHOWN]!r} is not a CIDR: {_instead(rule)}")
    return cp.NetworkPolicyPeer(ip_blocks=tuple(blocks), fqdns=tuple(names)), odd


def _instead(rule: Rule) -> str:
    if ACTIONS.get(rule.action) == ALLOW:
        return "the rule matches nothing by it"
    return "the rule denies everybody"


def _services(path: str, rule: Rule) -> tuple[tuple[cp.Service, ...], list[str]]:
    """Return ports, and unknown parts of them; none at all stand for all traffic."""
    services, odd = list[cp.Service](), list[str]()
    for number, protocol in enumerate(rule.traffic):
        if isinstance(protocol, v1alpha1.PolicyPort):
            service, field = _port_service(protocol), "ports"
        else:
            service, field = _protocol_service(protocol), "protocols"
        if service is not None:
            services.append(service)
            continue
        instead = "the rule matches nothing by it"
        if ACTIONS.get(rule.action) != ALLOW:
            instead = "the rule denies all ports"
        odd.append(f"{path}.{field}[{number}] has no port that can be read: {instead}")
    return tuple(services), odd


def _port_service(port: v1alpha1.PolicyPort) -> cp.Service | None:
    if (number := port.port_number) is not None:
        return cp.Service(protocol=number.protocol, port=number.port) if number.port else None
    if (some := port.some_ports) is not None:
        return _range(some.protocol, some.start, some.end)
    # without a protocol: each Pod says which one the port of this name has
    return cp.Service(port=port.named_port) if port.named_port else None


def _protocol_service(traffic: v1alpha2.PolicyProtocol) -> cp.Service | None:
    if traffic.destination_named_port:
        return cp.Service(port=traffic.destination_named_port)
    for protocol, ports in (("TCP", traffic.tcp), ("UDP", traffic.udp), ("SCTP", traffic.sctp)):
        if ports is None or (to := ports.destination_port) is None:
            continue
        if to.range is not None:
            return _range(protocol, to.range.start, to.range.end)
        return cp.Service(protocol=protocol, port=to.number) if to.number else None
    return None


def _range(protocol: str, start: int, end: int) -> cp.Service | None:
    return cp.Service(protocol=protocol, port=start, end_port=end) if 0 < start <= end else None
