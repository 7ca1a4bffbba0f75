"""Services in the agent: AntreaProxy chooses Endpoints in OVS; without it, packets to a ClusterIP go to kube-proxy.

Rows come from `service`; flows of every Node are in `pipeline`, Services in `load_balancer`, their Endpoints in `endpoint`.
parity: pkg/agent/openflow/service.go, pipeline.go serviceCIDRDNATFlows, pkg/agent/proxy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import (
    EarlierConnection,
    EndpointStates,
    HealthCheck,
    ListeningPorts,
    Service,
    ServiceEndpoint,
    ServicePort,
)
from antrea.features.framework.agent_feature import AgentFeature, Families
from antrea.features.proxy import udp_binding
from antrea.features.proxy.dsr import FEATURE as DSR
from antrea.features.proxy.dsr_no_tunnel import FEATURE as DSR_NO_TUNNEL
from antrea.features.proxy.dsr_node_port import FEATURE as DSR_NODE_PORT
from antrea.features.proxy.earlier_connection import earlier_connection, earlier_host_entries
from antrea.features.proxy.endpoint import GROUPS, endpoint_entries, endpoint_states, hairpin_flows
from antrea.features.proxy.external_address import lost_claims, refused_addresses, unusable_addresses
from antrea.features.proxy.health_check import health_check
from antrea.features.proxy.host import (
    host_entries,
    node_port_address,
    node_port_element,
    service_routes,
    virtual_address_flows,
)
from antrea.features.proxy.load_balancer import service_entries
from antrea.features.proxy.own_address import (
    NUMBERS,
    needed_addresses,
    own_address_elements,
    own_address_tables,
)
from antrea.features.proxy.pipeline import service_pipeline_flows, unserved_port_flows
from antrea.features.proxy.service import ENDPOINT_SLICE_WATCH, PORTS, SERVICE_WATCH, service_ports
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import OUTPUT_TO_OF_PORT_REG_MARK, TARGET_OF_PORT
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group_tree import MAX_NUMBER
from antrea.openflow.match import dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import (
    CONNTRACK_COMMIT,
    DNAT,
    ENDPOINT_DNAT,
    NODE_PORT_MARK,
    PRE_ROUTING_CLASSIFIER,
    SERVICE_LB,
    SESSION_AFFINITY,
    SNAT,
    SNAT_MARK,
    UN_SNAT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Action
    from antrea.openflow.table import Table

GATE = "AntreaProxy"
flow = flows_of(Category.SERVICE)


def tables(config: AgentConfig, _families: Families) -> tuple[Table, ...]:
    """Return the tables that choose an Endpoint and translate to it, and those that translate sources."""
    chosen = (PRE_ROUTING_CLASSIFIER, SESSION_AFFINITY, SERVICE_LB, ENDPOINT_DNAT)
    node_ports = (NODE_PORT_MARK,) if config.antrea_proxy.proxy_all else ()
    return (*chosen, *node_ports, UN_SNAT, SNAT_MARK, SNAT)


def handed_over(facts: Facts, node: ThisNode) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Each Service CIDR of a family in which the Node has Pods, and how packets to it get to the host."""
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or gateway is None:
        return
    families = node.families
    by_gateway = (TARGET_OF_PORT(gateway.ofport).load, OUTPUT_TO_OF_PORT_REG_MARK.load)
    for cidr in (config.service_cidr, config.service_cidr_v6):
        if cidr and is_ipv6(cidr) in families:
            yield cidr, (*by_gateway, goto(CONNTRACK_COMMIT))


def service_cidr_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Policies judge what kube-proxy makes of these packets, except for rules that name Services."""
    for cidr, then in handed_over(facts, node):
        yield flow(DNAT, Priority.NORMAL, dst(cidr), then=then)


KUBE_PROXY = AgentFeature(
    name="Service", tables=(DNAT,), units=(Unit(ThisNode, service_cidr_flows),), unless=GATE
)
"""Tables without AntreaProxy; one takes the place of load balancing."""
FEATURE = AgentFeature(
    name="AntreaProxy",
    tables=tables,
    gate=GATE,
    units=(
        Unit(ThisNode, service_pipeline_flows),
        Unit(ThisNode, unserved_port_flows),
        Unit(Service, service_ports, yields=(ServicePort,)),
        Unit(ServiceEndpoint, endpoint_states, yields=(EndpointStates,)),
        Unit(ServicePort, service_entries, measured_as=(GATE,)),
        Unit(ServiceEndpoint, endpoint_entries, measured_as=(GATE,)),
        Unit(PodInterface, hairpin_flows),
        Unit(ThisNode, host_entries),
        Unit(ThisNode, virtual_address_flows),
        Unit(ThisNode, earlier_host_entries),
        Unit(EarlierConnection, earlier_connection),
        Unit(LocalAddress, node_port_address),
        Unit(ServicePort, node_port_element),
        Unit(ServicePort, service_routes),
        Unit(Service, refused_addresses),
        Unit(Service, unusable_addresses),
        Unit(ServicePort, lost_claims),
        Unit(ThisNode, own_address_tables),
        Unit(ServicePort, own_address_elements),
        Unit(Service, needed_addresses),
        Unit(Service, health_check, yields=(HealthCheck,)),
    ),
    limits=((GROUPS, MAX_NUMBER), (NUMBERS, PORTS[-1])),
    watched=(SERVICE_WATCH, ENDPOINT_SLICE_WATCH),
    category=Category.SERVICE,
    sweep_after=(Service, ServiceEndpoint, LocalAddress, EarlierConnection, ListeningPorts),
    replay_after=(Service, ServiceEndpoint, EarlierConnection),
)
STALE_UDP = AgentFeature(
    name=udp_binding.GATE,
    gate=GATE,
    within=udp_binding.GATE,
    units=(Unit(ServiceEndpoint, udp_binding.udp_bindings),),
)
FEATURES = (FEATURE, DSR, DSR_NODE_PORT, DSR_NO_TUNNEL, KUBE_PROXY, STALE_UDP)
