"""Cluster as policies see it: Pods by address, members of groups, and the order of tiers."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCEMENT
from antrea.errors import Invalid
from antrea.explain.address import (
    balanced_ips,
    gateway,
    has_addresses,
    internal_ips,
    ip,
    is_reachable,
    node_ips,
    pod_cidrs,
    pod_ips,
    readable_ips,
    service_ips,
    stored_ip,
)
from antrea.explain.guard import DEFAULT_PORTS, Guard
from antrea.explain.objects import name_of
from antrea.explain.packet import End, family, pod_name
from antrea.explain.path import DEFAULT_LINKS, NodeLinks
from antrea.explain.selector import fits

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from antrea.apis.core import Pod, Service
    from antrea.apis.crd.external import ExternalEntity
    from antrea.apis.crd.group import GroupSpec
    from antrea.apis.crd.network_policy import AppliedTo, Peer, PeerService
    from antrea.apis.crd.part import IPBlock, LabelSelector
    from antrea.apis.networking import IPBlock as KubeBlock
    from antrea.explain.guard import GuardPorts
    from antrea.explain.objects import Objects
    from antrea.explain.packet import Packet

ENDED = ("Succeeded", "Failed")
DEFAULT_TIER = "application"
TIERS = {
    "emergency": 50,
    "securityops": 100,
    "networkops": 150,
    "platform": 200,
    DEFAULT_TIER: 250,
    "baseline": 253,
}
"""Tiers that always exist; policies may write them in capitals."""
SYSTEM = frozenset(("Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline"))
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
"""Label of a Service that a program other than the default one serves."""
HEADLESS = "service.kubernetes.io/headless"
"""Label of a Service that no program serves."""
STRETCHED = "ClusterSet"
"""Scope of a Service of several clusters, which is not built."""


class Member(NamedTuple):
    """Object that a selector can select: a Pod, an ExternalEntity or a Node, with its addresses and named ports."""

    kind: str
    namespace: str
    name: str
    labels: dict[str, str]
    ips: frozenset[str]
    ports: tuple[tuple[str, str, int], ...]
    """Name, protocol, number."""
    account: str = ""


class Chosen(NamedTuple):
    """Members, blocks and domain names that a peer or a group means."""

    members: tuple[Member, ...] = ()
    blocks: tuple[IPBlock | KubeBlock, ...] = ()
    pattern: str = ""
    """Pattern of domain names."""


class Proxy(NamedTuple):
    """Settings of AntreaProxy, where it is on."""

    skipped: frozenset[str] = frozenset()
    """Services that are left to others, as namespace/name or by an address."""
    name: str = ""
    """serviceProxyName."""
    all_addresses: bool = False
    """Whether external IPs are served: proxyAll."""
    balanced_addresses: bool = True
    """Whether addresses that load balancers gave are: proxyLoadBalancerIPs."""
    node_hints: bool = False
    """Whether hints for Nodes count: gate PreferSameTrafficDistribution."""
    direct_default: str = ""
    """defaultLoadBalancerMode, where gate LoadBalancerModeDSR makes direct server return possible; empty: it is not."""
    tunnels: bool = True
    """Whether packets between Nodes are in tunnels."""
    node_addresses: bool = True
    """Whether external IPs that are an address of a Node are served: serveNodeExternalIPs."""


class World:
    """Objects, found by what questions ask for."""

    def __init__(
        self,
        objects: Objects,
        proxy: Proxy | None = None,
        gates: Container[str] = (),
        ports: GuardPorts = DEFAULT_PORTS,
        *,
        pods_keep_addresses: bool = False,
        links: NodeLinks = DEFAULT_LINKS,
    ) -> None:
        """Without `proxy`, packets to Services are left to kube-proxy; `gates` are those that are on in agents.

        `pods_keep_addresses`: Nodes and hosts outside see these (noSNAT).
        """
        self.objects = objects
        self.pods_keep_addresses = pods_keep_addresses
        self.links = links
        self.guard = Guard(objects, ports)
        self.proxy = proxy
        self.traffic_controls = objects.traffic_controls if "TrafficControl" in gates else ()
        self.node_policies, self.l7_policies = "NodeNetworkPolicy" in gates, "L7NetworkPolicy" in gates
        self.spaces = {namespace.metadata.name: namespace.metadata.labels for namespace in objects.namespaces}
        self.pods = {pod_name(pod): pod for pod in objects.pods if pod.status.phase not in ENDED}
        self.nodes = {node.metadata.name: node for node in objects.nodes}
        self._tiers = {tier.metadata.name: tier.spec.priority for tier in objects.tiers}
        pods = (_pod_member(pod) for pod in self.pods.values())
        entities = map(_entity_member, objects.entities)
        nodes = (
            Member("node", "", node.metadata.name, node.metadata.labels, frozenset(node_ips(node)), ())
            for node in objects.nodes
        )
        self.members = self.whole_members = (*pods, *entities, *nodes)
        self._machines = {name_of(entity) for entity in objects.entities if entity.spec.external_node}
        self._pods = {(row.namespace, row.name): row for row in self.members if row.kind == "pod"}
        self._groups = {name_of(group): group.spec for group in objects.groups}
        self._groups |= {("", group.metadata.name): group.spec for group in objects.cluster_groups}
        self.services = {name_of(service): service for service in objects.services}
        self._cluster_ips = {
            stored_ip(text): f"{space}/{name}"
            for (space, name), service in self.services.items()
            if has_addresses(service)
            for text in service.spec.cluster_ips
        }
        self._node_ips = {internal_ip for node in objects.nodes for internal_ip in internal_ips(node)}
        self._whole = self
        self._strangers: dict[tuple[str, str], bool] = {}
        self.enforces_all = False
        self._audits = {space.metadata.name: space.metadata.annotations for space in objects.namespaces}

    def all_enforced(self) -> World:
        """The same, if audited policies were enforced."""
        world = copy.copy(self)
        world.enforces_all = True
        return world

    def is_absent(self, annotations: Mapping[str, str], namespace: str, rule: str = "") -> bool:
        """Whether a policy with these annotations, or its rule of this name, is audited, so that it decides nothing."""
        if self.enforces_all:
            return False
        annotation = annotations.get(ENFORCEMENT)
        of_space = annotation is None and self._audits.get(namespace, {}).get(ENFORCEMENT) == AUDIT
        names = annotations.get(AUDITED_RULES, "").split(",") if rule else ()
        return annotation == AUDIT or of_space or rule in [name.strip() for name in names]

    def with_policies(self, objects: Objects) -> World:
        """The same Pods, groups and tiers under the policies of `objects`."""
        world = copy.copy(self)
        world.objects = objects
        return world

    def near(self, packet: Packet, node: str = "") -> World:
        """The same, with those members only that the packet is from or for, and Node `node`: no other matters to it."""
        world = copy.copy(self)
        ends = {packet.source.ip, packet.destination.ip}
        world.members = tuple(
            member
            for member in self.members
            if not ends.isdisjoint(member.ips) or (member.kind == "node" and member.name == node)
        )
        return world

    def tier(self, name: str) -> tuple[str, int]:
        """Name and priority of a policy's tier, by any of the names that policies may use."""
        known = name.lower() if name in SYSTEM else name or DEFAULT_TIER
        return known, self._tiers.get(known, TIERS.get(known, TIERS[DEFAULT_TIER]))

    # ends of packets

    def end(self, text: str, v: int) -> End:
        """The end that `namespace/pod` or an address names, in IPv4 or IPv6. Raises Invalid."""
        if "/" in text:
            pod = self.pods.get(text)
            if pod is None:
                raise Invalid(text, "there is no such Pod, or it has ended")
            addresses = [pod_ip for pod_ip in pod_ips(pod) if family(pod_ip) == v]
            if not addresses or not pod.spec.node_name:
                raise Invalid(
                    text, f"the Pod has no IPv{v} address" if pod.spec.node_name else "the Pod is on no Node"
                )
            return self._of_host(pod, addresses[0]) if pod.spec.host_network else End(addresses[0], pod)
        try:
            address = ip(text)
        except ValueError:
            raise Invalid(text, "neither <Namespace>/<Pod> nor an address") from None
        return self.owner(address)

    def machine(self, end: End) -> Member | None:
        """The interface of an ExternalNode that has the address; None: a Pod, a Node or a Service has it, or none of them."""
        if end.pod is not None or end.host or end.service:
            return None
        machines = (member for member in self.members if member.kind == "entity" and end.ip in member.ips)
        return next((each for each in machines if (each.namespace, each.name) in self._machines), None)

    def owner(self, address: str) -> End:
        """The Pod or Node of an address, if it is one's."""
        for pod in self.pods.values():
            if not pod.spec.host_network and address in pod_ips(pod):
                return End(address, pod)
        host = next((name for name, node in self.nodes.items() if address in node_ips(node)), "")
        return End(address, host=host, service=self._cluster_ips.get(address, ""))

    def families(self, text: str) -> set[int]:
        """Families in which an end has an address. Raises Invalid."""
        if "/" in text:
            pod = self.pods.get(text)
            return {family(pod_ip) for pod_ip in pod_ips(pod)} if pod else {4, 6}
        try:
            return {family(ip(text))}
        except ValueError:
            raise Invalid(text, "neither <Namespace>/<Pod> nor an address") from None

    def member(self, pod: Pod) -> Member:
        """Return the member for a Pod."""
        return self._pods[pod.metadata.namespace, pod.metadata.name]

    def _of_host(self, pod: Pod, address: str) -> End:
        return End(address, host=pod.spec.node_name)

    def gateway(self, node: str, v: int) -> str:
        """The source address of a Node's own processes towards Pods of others; empty if it has no Pods."""
        node_object = self.nodes.get(node)
        gateways = (gateway(cidr) for cidr in pod_cidrs(node_object)) if node_object else ()
        return next((address for address in gateways if family(address) == v), "")

    # whom selectors mean

    def selected(
        self,
        home: str,
        pods: LabelSelector | None = None,
        namespaces: LabelSelector | None = None,
        *,
        entities: LabelSelector | None = None,
        nodes: LabelSelector | None = None,
    ) -> tuple[Member, ...]:
        """Return the members that selectors of an object of Namespace `home` select, "" for one of the cluster, which must have one."""
        if nodes is not None:
            return tuple(row for row in self.members if row.kind == "node" and fits(nodes, row.labels))
        kind, labels = ("pod", pods) if entities is None else ("entity", entities)
        if not home and labels is None and namespaces is None:
            return ()
        return tuple(
            member
            for member in self.members
            if member.kind == kind
            and (namespaces is not None or not home or member.namespace == home)
            and self._in(member.namespace, namespaces)
            and fits(labels, member.labels)
        )

    def _in(self, space: str, wanted: LabelSelector | None) -> bool:
        if wanted is None or not (wanted.match_labels or wanted.match_expressions):
            return True
        return space in self.spaces and fits(wanted, self.spaces[space])

    def account(self, namespace: str, name: str) -> tuple[Member, ...]:
        """Pods that run as a ServiceAccount."""
        return tuple(
            member
            for member in self.members
            if member.kind == "pod" and (member.namespace, member.account) == (namespace, name)
        )

    def group(self, home: str, name: str) -> Chosen:
        """A Group, or a ClusterGroup if there is no `home`: all its children bring; no member if these have children."""
        spec = self._groups.get((home, name))
        if spec is None:
            return Chosen()
        if not spec.child_groups:
            return self._leaf(home, spec)
        children = [self._groups.get((home, child)) for child in dict.fromkeys(spec.child_groups)]
        if any(child and child.child_groups for child in children):
            return Chosen()
        leaves = [self._leaf(home, child) for child in children if child]
        return Chosen(
            tuple(member for leaf in leaves for member in leaf.members),
            tuple(block for leaf in leaves for block in leaf.blocks),
        )

    def parent(self, home: str, name: str) -> bool:
        """Whether a group has children."""
        spec = self._groups.get((home, name))
        return bool(spec and spec.child_groups)

    def _leaf(self, home: str, spec: GroupSpec) -> Chosen:
        if spec.ip_blocks:
            return Chosen(blocks=spec.ip_blocks)
        if (wanted := spec.service_reference) is not None:
            return Chosen(self._behind(wanted.namespace or home, wanted.name))
        return Chosen(
            self.selected(
                home,
                spec.pod_selector,
                spec.namespace_selector,
                entities=spec.external_entity_selector,
                nodes=None if home else spec.node_selector,
            )
        )

    def _behind(self, namespace: str, name: str) -> tuple[Member, ...]:
        service = self.services.get((namespace, name))
        if service is None or not service.spec.selector:
            return ()
        wanted = service.spec.selector.items()
        return tuple(
            member
            for member in self.members
            if member.kind == "pod" and member.namespace == namespace and wanted <= member.labels.items()
        )

    # what policies of Antrea say

    def targets(self, home: str, applied: Iterable[AppliedTo]) -> Iterator[Member]:
        """Whom a policy of Namespace `home` is for, "" for one of the cluster."""
        for subject in applied:
            if subject.group:
                chosen = self.group(home, subject.group)
                nodes = not self.parent(home, subject.group)
                yield from (member for member in chosen.members if nodes or member.kind != "node")
            elif subject.service is not None:
                continue
            elif (account := subject.service_account) is not None:
                yield from self.account(account.namespace, account.name)
            else:
                yield from self.selected(
                    home,
                    subject.pod_selector,
                    subject.namespace_selector,
                    entities=subject.external_entity_selector,
                    nodes=subject.node_selector,
                )

    def serves(self, home: str, wanted: PeerService, packet: Packet) -> bool:
        """Whether the packet is for an address and port of this Service, in a policy of Namespace `home`."""
        space = wanted.namespace or home
        service = self.services.get((space, wanted.name))
        if service is None or wanted.scope == STRETCHED or not has_addresses(service):
            return False
        if packet.service == f"{space}/{wanted.name}":
            return True
        ports = {(port.protocol, port.port) for port in service.spec.ports}
        # rules on a Node know where its connections were opened to, whoever translates them
        chosen: set[str] = set() if packet.source.host else self.proxied(service)
        return (packet.protocol, packet.port) in ports and packet.destination.ip in service_ips(
            service
        ) - chosen

    def proxied(self, service: Service) -> set[str]:
        """Addresses at which AntreaProxy serves it, unless an older Service has the same."""
        if self.proxy is None or not has_addresses(service):
            return set()
        meta, spec, everything = service.metadata, service.spec, service_ips(service)
        names = {f"{meta.namespace}/{meta.name}", *everything}
        if meta.labels.get(PROXY_NAME, "") != self.proxy.name or self.proxy.skipped & names:
            return set()
        if HEADLESS in meta.labels:
            return set()
        cluster_ips, balanced = set(readable_ips(spec.cluster_ips)), balanced_ips(service)
        external = balanced if self.proxy.balanced_addresses else set()
        if self.proxy.all_addresses:
            external |= set(readable_ips(spec.external_ips)) - balanced
        families = {family(address) for address in cluster_ips}
        taken = self._cluster_ips.keys() | self._node_ips
        return cluster_ips | {
            address
            for address in external
            if family(address) in families and address not in taken and is_reachable(address)
        }

    def serving(self, address: str) -> Sequence[Service]:
        """Return the Services that AntreaProxy serves at an address."""
        return self._whole._served.get(address, ())

    @cached_property
    def _served(self) -> dict[str, list[Service]]:
        services: dict[str, list[Service]] = {}
        for service in self.services.values():
            for address in self.proxied(service):
                services.setdefault(address, []).append(service)
        return services

    def strange(self, home: str, applied: Iterable[AppliedTo]) -> str:
        """The name of a Group that selects a member of another Namespace, which no policy of `home` can be for."""
        known = self._strangers
        for subject in applied:
            key = (home, subject.group)
            if home and subject.group and key not in known:
                # of all, not only of those near a packet
                known[key] = any(member.namespace != home for member in self._whole.group(*key).members)
            if known.get(key):
                return subject.group
        return ""

    def peers(self, home: str, peer: Peer, member: Member) -> Chosen:
        """Return the members that a peer selects in a rule for `member`."""
        if peer.ip_block is not None:
            return Chosen(blocks=(peer.ip_block,))
        if peer.group:
            return self.group(home, peer.group)
        if peer.fqdn:
            return Chosen(pattern=peer.fqdn.lower().rstrip("."))
        if (account := peer.service_account) is not None:
            return Chosen(self.account(account.namespace, account.name))
        if peer.namespaces is not None:
            return Chosen(self._related(peer, member))
        return Chosen(
            self.selected(
                home,
                peer.pod_selector,
                peer.namespace_selector,
                entities=peer.external_entity_selector,
                nodes=peer.node_selector,
            )
        )

    def _related(self, peer: Peer, member: Member) -> tuple[Member, ...]:
        """Return members of the same Namespace, or of Namespaces with the same values of labels."""
        relation = peer.namespaces
        if relation is None or member.kind == "node":
            return ()
        if relation.match == "Self":
            return self.selected(member.namespace, peer.pod_selector, entities=peer.external_entity_selector)
        keys, mine = relation.same_labels, self.spaces.get(member.namespace, {})
        if not keys or any(key not in mine for key in keys):
            return ()
        kind, labels = ("pod", peer.pod_selector)
        if peer.external_entity_selector is not None:
            kind, labels = ("entity", peer.external_entity_selector)
        return tuple(
            member
            for member in self.members
            if member.kind == kind
            and all(self.spaces.get(member.namespace, {}).get(key) == mine[key] for key in keys)
            and fits(labels, member.labels)
        )


def _entity_member(entity: ExternalEntity) -> Member:
    meta, spec = entity.metadata, entity.spec
    ports = (
        (port.name, port.protocol or "TCP", port.port)
        for port in spec.ports
        if port.name and isinstance(port.port, int)
    )
    ips = frozenset(readable_ips(end.ip for end in spec.endpoints))
    return Member("entity", meta.namespace, meta.name, meta.labels, ips, tuple(ports))


def _pod_member(pod: Pod) -> Member:
    has_own_network = not pod.spec.host_network
    return Member(
        "pod",
        pod.metadata.namespace,
        pod.metadata.name,
        pod.metadata.labels,
        frozenset(pod_ips(pod)) if has_own_network else frozenset(),
        tuple(
            (port.name, port.protocol, port.container_port)
            for container in (
                *pod.spec.containers,
                *(
                    container
                    for container in pod.spec.init_containers
                    if container.restart_policy == "Always"
                ),
            )
            for port in container.ports
            if port.name
        ),
        pod.spec.service_account_name,
    )
