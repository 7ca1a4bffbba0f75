"""Units of node policies."""

from __future__ import annotations

from antrea.engine import Unit
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.router import RouterSession
from antrea.facts.service import Service, ServicePort
from antrea.features.network_policy.agent.received import SentAddressMember, SentPolicy
from antrea.features.node_policy.chain import (
    audit_entries,
    base_entries,
    group_elements,
    group_sets,
    port_elements,
    port_sets,
    rule_entries,
)
from antrea.features.node_policy.fqdn import UNITS as NAMES
from antrea.features.node_policy.guard import (
    guard_entries,
    guarded_nodes,
    guarded_routers,
    guarded_servers,
    guarded_service,
)
from antrea.features.node_policy.guard_report import GuardedPeer, guarded_peers
from antrea.features.node_policy.rule import (
    AuditedDirection,
    NodePeerGroup,
    NodePeerPort,
    NodeRule,
    audited_directions,
    node_rules,
    peer_groups,
    peer_ports,
)
from antrea.features.node_policy.service_address import (
    TranslatedPort,
    service_address_elements,
    service_chain_entries,
    translated_ports,
)

SERVICE_CHAIN = Unit(ThisNode, service_chain_entries)
SERVICE_ELEMENTS = Unit(ServicePort, service_address_elements)
BASE = Unit(ThisNode, base_entries)
RULES = Unit(NodeRule, rule_entries)
SETS = Unit(NodePeerGroup, group_sets)
GUARD = Unit(ThisNode, guard_entries)
ELEMENTS = Unit(SentAddressMember, group_elements)
PORT_SETS = Unit(NodePeerPort, port_sets)
PORT_ELEMENTS = Unit(SentAddressMember, port_elements)
UNITS = (
    BASE,
    Unit(SentPolicy, node_rules, yields=(NodeRule,)),
    Unit(NodeRule, peer_groups, yields=(NodePeerGroup,)),
    Unit(NodeRule, peer_ports, yields=(NodePeerPort,)),
    Unit(NodeRule, audited_directions, yields=(AuditedDirection,)),
    Unit(AuditedDirection, audit_entries),
    RULES,
    SETS,
    ELEMENTS,
    PORT_SETS,
    PORT_ELEMENTS,
    GUARD,
    SERVICE_CHAIN,
    SERVICE_ELEMENTS,
    Unit(Service, translated_ports, yields=(TranslatedPort,)),
    *NAMES,
    Unit(AgentNode, guarded_nodes),
    Unit(RouterSession, guarded_routers),
    Unit(ApiServerEndpoint, guarded_servers),
    Unit(Service, guarded_service),
    Unit(SentAddressMember, guarded_peers, yields=(GuardedPeer,)),
)
