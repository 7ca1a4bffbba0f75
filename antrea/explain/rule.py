"""Rules of all policies in one form, and whether one matches a packet: its peer, its ports, or both."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antrea.apis.shown import one_line
from antrea.explain.address import in_block, readable
from antrea.explain.l7 import lets_pass
from antrea.explain.packet import PORTED
from antrea.explain.world import STRETCHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.apis import networking
    from antrea.apis.crd import network_policy as crd
    from antrea.explain.l7 import Request
    from antrea.explain.packet import End, Packet
    from antrea.explain.world import Chosen, Member, World

KUBE, CLUSTER, NAMESPACED = "K8sNetworkPolicy", "AntreaClusterNetworkPolicy", "AntreaNetworkPolicy"
ADMIN, BASELINE_ADMIN = "AdminNetworkPolicy", "BaselineAdminNetworkPolicy"
TIERED = "K8sClusterNetworkPolicy"
"""ClusterNetworkPolicy of policy.networking.k8s.io."""
INGRESS, EGRESS = "Ingress", "Egress"
BASELINE = (253, 254)
"""Priorities of tiers whose rules come after Kubernetes NetworkPolicies."""
Names = tuple[tuple[str, str, int], ...]
"""Named ports of the receiver: name, protocol, number."""


class RuleRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A rule as in its policy; `index` counts from 0 among the rules of its direction."""

    type: str
    namespace: str = ""
    policy: str
    tier: str = ""
    tier_priority: int | None = None
    priority: float | None = None
    direction: str
    index: int
    name: str = ""
    action: str = "Allow"
    created: str = ""
    uid: str = ""

    @property
    def order(self) -> tuple[float | str, ...]:
        """Among rules of policies with tiers, the least goes first."""
        return (self.tier_priority or 0, self.priority or 0.0, self.index, self.created, self.uid)

    @property
    def of_policy(self) -> tuple[str, str, str]:
        """Kind, Namespace and name of its policy."""
        return (self.type, self.namespace, self.policy)

    @property
    def title(self) -> str:
        """Such as `rule 0 (web) of AntreaClusterNetworkPolicy closed`."""
        return f"{self.direction.lower()} rule {self.short} of {self.owner}"

    @property
    def short(self) -> str:
        """Its number, and its name if it has one."""
        return f"{self.index} ({one_line(self.name)})" if self.name else str(self.index)

    @property
    def owner(self) -> str:
        """Kind and name of its policy."""
        return (
            f"{self.type} {self.namespace}/{self.policy}" if self.namespace else f"{self.type} {self.policy}"
        )


class Traffic(NamedTuple):
    """One of the ports or protocols of a rule; None is any."""

    protocol: str
    """Protocol of a port by name: "" is the protocol of the port of that name."""
    port: int | str | None = None
    end: int | None = None
    source: int | None = None
    source_end: int | None = None
    icmp_type: int | None = None
    icmp_code: int | None = None


class Weighed(NamedTuple):
    """A rule for one Pod, held against a packet."""

    ref: RuleRef
    peer: bool
    """Whether the other end is one of its peers."""
    ports: bool
    """Whether its ports fit, if the other end were a peer."""
    matches: bool
    unbuilt: tuple[str, ...] = ()
    """Parts of the rule that are not enforced, or have no meaning at the receiver."""
    services: bool = False
    """Whether it is on Services, so that it is asked before kube-proxy translates the packet, and others after that."""


def weigh(
    ref: RuleRef, packet: Packet, member: Member, traffic: Sequence[Traffic], peers: Iterable[Names]
) -> Weighed:
    """`peers` has, for each way in which the other end is a peer, the ports that names stand for there."""
    peer_names = list(peers)
    if ref.direction == INGRESS:
        peer_names = [member.ports] * bool(peer_names)
    nameless = (member.ports,) if ref.direction == INGRESS else ((),)
    return Weighed(
        ref,
        peer=bool(peer_names),
        ports=any(_carries(traffic, packet, names) for names in (*peer_names, *nameless)),
        matches=any(_carries(traffic, packet, names) for names in peer_names),
        unbuilt=tuple(_unknown_names(traffic, peer_names)),
    )


def _unknown_names(traffic: Sequence[Traffic], receivers: Sequence[Names]) -> Iterator[str]:
    """Names of ports that the receiver does not have, in each way in which the other end is a peer."""
    for item in traffic if receivers else ():
        if isinstance(item.port, str) and not any(_number(item, names) for names in receivers):
            protocol = f" with protocol {item.protocol}" if item.protocol else ""
            yield f"the receiver has no port named '{one_line(item.port)}'{protocol}: the rule matches nothing by it"


def _number(traffic: Traffic, names: Names) -> int:
    """Return the number of a named port: of ports with the same name the first counts; 0 if it does not exist."""
    return next(
        (
            port
            for name, protocol, port in names
            if name == traffic.port and traffic.protocol in ("", protocol)
        ),
        0,
    )


def _carries(traffic: Sequence[Traffic], packet: Packet, names: Names) -> bool:
    return not traffic or any(_fits(item, packet, names) for item in traffic)


def _fits(traffic: Traffic, packet: Packet, names: Names) -> bool:
    if not traffic.protocol:
        protocol = next((protocol for name, protocol, _ in names if name == traffic.port), "")
        return bool(protocol) and _fits(traffic._replace(protocol=protocol), packet, names)
    if traffic.protocol != packet.protocol:
        return False
    if traffic.protocol not in PORTED:
        return traffic.icmp_type in (None, packet.icmp_type) and traffic.icmp_code in (None, packet.icmp_code)
    is_named = isinstance(traffic.port, str)
    first = (_number(traffic, names) or -1) if isinstance(traffic.port, str) else traffic.port
    return _within(packet.port, first, None if is_named else traffic.end) and _within(
        packet.source_port, traffic.source, traffic.source_end
    )


def _within(port: int | None, first: int | None, last: int | None) -> bool:
    """No number, and 0, is every port."""
    return not first or (port is not None and first <= port <= max(first, last or 0))


def ways(chosen: Chosen, other: End) -> Iterator[Names]:
    """For each member, block and name that is the other end, its named ports; blocks and names have none."""
    for member in chosen.members:
        if other.ip in member.ips:
            yield member.ports
    for block in chosen.blocks:
        if in_block(other.ip, block):
            yield ()
    if any(fnmatchcase(name, chosen.pattern) for name in other.names):
        yield ()


def names_of_any_kind(world: World, other: End) -> Iterator[Names]:
    """The other end, of any kind."""
    yield ()
    for member in world.members:
        if member.kind == "pod" and other.ip in member.ips:
            yield member.ports


def kube_traffic(ports: Iterable[networking.NetworkPolicyPort]) -> tuple[Traffic, ...]:
    """Ports of a rule of Kubernetes."""
    return tuple(Traffic(port.protocol, port.port, port.end_port) for port in ports)


def native_traffic(rule: crd.Rule) -> tuple[Traffic, ...]:
    """Ports and protocols of a rule of Antrea's own."""
    traffic = [
        Traffic(port.protocol or "TCP", port.port, port.end_port, port.source_port, port.source_end_port)
        for port in rule.ports
    ]
    for protocol in rule.protocols:
        if (icmp := protocol.icmp) is not None:
            traffic.append(Traffic("ICMP", icmp_type=icmp.icmp_type, icmp_code=icmp.icmp_code))
        else:
            traffic.append(Traffic("IGMP"))
    return tuple(traffic)


def unbuilt(
    world: World, rule: crd.Rule, request: Request | None = None, *, names_are_known: bool = False
) -> Iterator[str]:
    """Yield the parts of the rule that packets alone do not decide, or that no switch supports yet."""
    if rule.l7_protocols and world.l7_policies and request:
        verb = "allow" if lets_pass(rule.l7_protocols, request) else "do not allow"
        yield f"l7Protocols {verb} {one_line(request.description)}; while the L7 engine is not running, nothing passes"
    elif rule.l7_protocols and world.l7_policies:
        yield "l7Protocols let single requests pass: the L7 engine resets connections with others, and all while it is not running"
    elif rule.l7_protocols:
        yield "l7Protocols: the feature gate L7NetworkPolicy is off: all that the rule names is dropped"
    if any(to_service.scope == STRETCHED for to_service in rule.to_services):
        yield "toServices of scope ClusterSet is not built yet: the rule matches nothing by it"
    if any(peer.fqdn for peer in rule.to) and not names_are_known:
        yield "fqdn matches by the names of --name alone: which names DNS gave this address to is not asked"
    if any(peer.scope == STRETCHED for peer in (*rule.from_, *rule.to)):
        yield "scope ClusterSet is not built yet: the rule matches Pods of this cluster alone"
    if any(peer.ip_block is not None and not readable(peer.ip_block) for peer in (*rule.from_, *rule.to)):
        yield "an ipBlock of it cannot be read: it is nobody"
    if any(protocol.igmp is not None for protocol in rule.protocols):
        yield "igmp is not built yet: the rule matches nothing by it"
