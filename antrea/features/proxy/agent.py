"""Services while AntreaProxy is off: packets to a ClusterIP go to the gateway, where kube-proxy answers.

parity: pkg/agent/openflow/service.go, pipeline.go serviceCIDRDNATFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort
from antrea.features.feature import AgentFeature, Families
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import OUTPUT_TO_OF_PORT_REG_MARK, TARGET_OF_PORT
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import CONNTRACK_COMMIT, DNAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Action
    from antrea.openflow.table import Table

flow = flows_of(Category.SERVICE)


def tables(config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """One table takes the place of load balancing."""
    return (DNAT,)


def handed_over(facts: Facts, node: ThisNode) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Each Service CIDR of a family in which the Node has Pods, and how packets to it get to the host."""
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or gateway is None:
        return
    families = {is_ipv6(cidr) for cidr in node.pod_cidrs}
    by_gateway = (TARGET_OF_PORT(gateway.ofport).load, OUTPUT_TO_OF_PORT_REG_MARK.load)
    for cidr in (config.service_cidr, config.service_cidr_v6):
        if cidr and is_ipv6(cidr) in families:
            yield cidr, (*by_gateway, goto(CONNTRACK_COMMIT))


def service_cidr_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Policies judge what kube-proxy makes of these packets, except for rules that name Services."""
    for cidr, then in handed_over(facts, node):
        yield flow(DNAT, Priority.NORMAL, dst(cidr), then=then)


FEATURE = AgentFeature(name="Service", tables=tables, units=(Unit(ThisNode, service_cidr_flows),))
