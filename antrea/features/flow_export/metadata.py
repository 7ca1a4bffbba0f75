"""Metadata of a connection: Pods of its ends, its Service, the rules that decided, its Egress, and its type.

parity: pkg/agent/flowexporter/connections/connections.go, pkg/agent/flowexporter/destination.go findFlowType, fillEgressInfo
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.apis.flow import POLICY_TYPES, BiflowDirection, FlowRecord, FlowType, RuleAction
from antrea.facts.egress import EgressOwner
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.pod import LocalPod
from antrea.facts.service import Service
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.flow_export.port_local import PROTOCOLS, add_held_port, held_port
from antrea.features.flow_export.translated_source import is_translated
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule
from antrea.features.proxy.host import NODE_PORT_IPS
from antrea.host.pod_cidr import gateway_ip
from antrea.openflow.fields import (
    CONN_SOURCE_CT_MARK,
    EGRESS_RULE_CT_LABEL,
    INGRESS_RULE_CT_LABEL,
    SERVICE,
)
from antrea.openflow.tracked_connection import start_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Facts
    from antrea.openflow.tracked_connection import HostOriginal, TrackedConnection


class PodNetworks:
    """Pod CIDRs of all Nodes at the time of creation."""

    def __init__(self, facts: Facts) -> None:
        node = facts.get(ThisNode)
        cidrs = [
            *(node.pod_cidrs if node else ()),
            *(cidr for peer in facts.all(PeerNode) for cidr in peer.pod_cidrs),
        ]
        self._networks: dict[tuple[int, int], set[int]] = {}
        for cidr in cidrs:
            net = ip_network(cidr)
            shift = net.max_prefixlen - net.prefixlen
            self._networks.setdefault((net.version, shift), set()).add(int(net.network_address) >> shift)
        self._gateways = {gateway_ip(cidr) for cidr in cidrs}

    def is_gateway(self, ip: str) -> bool:
        """Whether it is a Node's gateway of Pods."""
        return ip in self._gateways

    def has(self, ip: str) -> bool:
        """Whether it is in one of the CIDRs."""
        address = ip_address(ip)
        return any(
            version == address.version and int(address) >> shift in networks
            for (version, shift), networks in self._networks.items()
        )


def flow_type(networks: PodNetworks, record: FlowRecord) -> FlowType | None:
    """Return the type of a connection; None if it is not exported, as neither end is a Pod."""
    source, destination = record.source_ip, record.destination_ip
    if networks.is_gateway(destination):
        return None
    if networks.is_gateway(source):
        return FlowType.INTER_NODE if record.destination_pod_name else None
    if not networks.has(source):
        return FlowType.FROM_EXTERNAL if networks.has(destination) else None
    if not networks.has(destination):
        # at the Node of its Egress IP the Pod is not known: the Pod's own Node exports it
        return FlowType.TO_EXTERNAL if record.source_pod_name else None
    both = record.source_pod_name and record.destination_pod_name
    return FlowType.INTRA_NODE if both else FlowType.INTER_NODE


def tracked_record(
    facts: Facts, networks: PodNetworks, connection: TrackedConnection, now: float
) -> FlowRecord | None:
    """Make the record of a connection that policies let pass; None if it is not exported."""
    if not connection.mark & CONN_SOURCE_CT_MARK.mask:
        return None  # denied by a rule that came after one that remembered it
    protocol, _, _, destination, port, _ = connection.key
    source, source_port = connection.client
    record = FlowRecord(
        source_ip=source, destination_ip=destination, source_transport_port=source_port,
        destination_transport_port=port, protocol_identifier=protocol,
        flow_start_seconds=int(start_time(connection.start) or now),
    )  # fmt: skip
    if not connection.is_direction_known:
        record.biflow_direction = int(BiflowDirection.ARBITRARY)
    if not named(facts, networks, record):
        if not is_asked_for_another(networks, connection):
            return None
        record.flow_type = int(FlowType.FROM_EXTERNAL)
    if (connection.source_seen, connection.source_port_seen) != connection.client:
        record.proxy_snat_ip, record.proxy_snat_port = connection.source_seen, connection.source_port_seen
    if connection.mark & SERVICE.mask:
        add_service(facts, record, connection.destination, connection.port)
    elif connection.host:
        _add_asked(facts, record, connection.host)
    add_allowed(facts, record, connection.label)
    return record


def is_asked_for_another(networks: PodNetworks, connection: TrackedConnection) -> bool:
    """Whether an external client used this Node for a Pod of another one, which sees this Node's gateway as the source."""
    return (
        (connection.host is not None or is_translated(connection))
        and networks.is_gateway(connection.source_seen)
        and not networks.has(connection.client[0])
        and networks.has(connection.key[3])
    )


def named(facts: Facts, networks: PodNetworks, record: FlowRecord) -> bool:
    """Add Pods of this Node, type and Egress; False if it is not exported."""
    node = facts.get(ThisNode)
    name, uid = (node.name, node.uid) if node else ("", "")
    for pod in facts.by(PodInterface, "ip", record.source_ip)[:1]:
        record.source_pod_namespace, record.source_pod_name = pod.pod_namespace, pod.pod_name
        record.source_node_name, record.source_node_uid = name, uid
        record.source_pod_uid = _uid(facts, pod.pod)
    for pod in facts.by(PodInterface, "ip", record.destination_ip)[:1]:
        record.destination_pod_namespace, record.destination_pod_name = pod.pod_namespace, pod.pod_name
        record.destination_node_name, record.destination_node_uid = name, uid
        record.destination_pod_uid = _uid(facts, pod.pod)
    if not record.source_pod_name and not record.destination_pod_name:
        return False
    kind = flow_type(networks, record)
    if kind is None:
        return False
    record.flow_type = int(kind)
    if kind is FlowType.TO_EXTERNAL:
        _add_egress(facts, record)
    return True


def _uid(facts: Facts, pod: str) -> str:
    """Return the UID; empty until the Pod is known, and on a machine outside the cluster."""
    local_pod = facts.get(LocalPod, pod)
    return local_pod.uid if local_pod else ""


def _add_egress(facts: Facts, record: FlowRecord) -> None:
    ipv6, to = record.is_ipv6, ip_address(record.destination_ip)
    for version6, egress in egresses_of(facts, f"{record.source_pod_namespace}/{record.source_pod_name}"):
        if version6 != ipv6 or any(to in ip_network(cidr) for cidr in egress.excepts):
            continue
        if egress.cidrs and not any(to in ip_network(cidr) for cidr in egress.cidrs):
            continue
        owner = facts.get(EgressOwner, egress.key)
        record.egress_name, record.egress_uid, record.egress_ip = egress.name, egress.uid, egress.ip
        record.egress_node_name = owner.node if owner and owner.node else egress.node


def add_service(facts: Facts, record: FlowRecord, ip: str, port: int) -> None:
    """Add the Service of the client's destination: by its own address, or by a port of Nodes, whose address is unknown here."""
    if ip in NODE_PORT_IPS:
        _add_node_port(facts, record, "", port)
        return
    for service in (*facts.by(Service, "cluster_ip", ip), *facts.by(Service, "external_ip", ip)):
        _add_if_served(record, service, service.ports, ip, port)


def _add_asked(facts: Facts, record: FlowRecord, original: HostOriginal) -> None:
    """Add the host's translation to the Pod, with the client's destination: a port of NodePortLocal, or a Service of another
    proxy.
    """
    if held_port(facts, record) == original.port:
        add_held_port(facts, record, original.ip, original.port)
        return
    add_service(facts, record, original.ip, original.port)
    if not record.destination_service_port:
        _add_node_port(facts, record, original.ip, original.port)


def _add_node_port(facts: Facts, record: FlowRecord, ip: str, port: int) -> None:
    for service in facts.by(Service, "node_port", port):
        _add_if_served(record, service, _on_nodes(service), ip, port)


def _add_if_served(
    record: FlowRecord, service: Service, ports: Iterable[tuple[str, int]], ip: str, port: int
) -> None:
    wanted = PROTOCOLS.get(record.protocol_identifier, ""), port
    names = dict(zip(ports, service.port_names, strict=False))
    if wanted in names:
        record.destination_service_port_name = f"{service.key}:{names[wanted]}"
        record.destination_service_port, record.destination_service_uid = port, service.uid
        # parity: an external IP is in both, too
        record.destination_cluster_ip = record.destination_service_ip = ip


def _on_nodes(service: Service) -> list[tuple[str, int]]:
    """Return protocol and number on Nodes, of each of its ports."""
    return [
        (protocol, number) for (protocol, _), number in zip(service.ports, service.node_ports, strict=False)
    ]


def add_allowed(facts: Facts, record: FlowRecord, label: int) -> None:
    """Add the rules that a connection remembers to be let pass by."""
    for egress, field in ((True, EGRESS_RULE_CT_LABEL), (False, INGRESS_RULE_CT_LABEL)):
        if number := (label & field.mask) >> field.lo:
            add_rule(facts, record, number, RuleAction.ALLOW, egress=egress)


def add_rule(facts: Facts, record: FlowRecord, number: int, action: RuleAction, *, egress: bool) -> None:
    """Add the policy and the rule of a conjunction's number, and what it did; of several policies that state it the first by name."""
    known = facts.get(ConjunctionId, str(number))
    stated = (
        sorted(facts.by(StatedRule, "rule", known.rule), key=lambda stated_rule: stated_rule.key)
        if known
        else ()
    )
    for statement in stated:
        policy = facts.get(SentPolicy, statement.policy)
        if policy is None or policy.policy.source_ref is None:
            continue
        source, rule = policy.policy.source_ref, policy.policy.rules[statement.number].name
        kind = POLICY_TYPES.get(source.type, 0)
        _set_policy(record, source.name, source.namespace, kind, rule, action, egress=egress)
        setattr(record, f"{'egress' if egress else 'ingress'}_network_policy_uid", source.uid)
        return


def add_isolation(record: FlowRecord, *, egress: bool) -> None:
    """State that no rule of Kubernetes' policies allows it: no policy alone denies it."""
    kind = POLICY_TYPES["K8sNetworkPolicy"]
    _set_policy(record, "", "", kind, "", RuleAction.DROP, egress=egress)


def _set_policy(
    record: FlowRecord, name: str, namespace: str, kind: int, rule: str, action: RuleAction, *, egress: bool
) -> None:
    way = "egress" if egress else "ingress"
    setattr(record, f"{way}_network_policy_name", name)
    setattr(record, f"{way}_network_policy_namespace", namespace)
    setattr(record, f"{way}_network_policy_type", kind)
    setattr(record, f"{way}_network_policy_rule_name", rule)
    setattr(record, f"{way}_network_policy_rule_action", int(action))
