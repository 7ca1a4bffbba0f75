"""Flows of rules that are for Services: the NodePorts of each in the conjunctions of its rules.

AntreaProxy records in registers that the destination was a NodePort, and which group has chosen the Endpoint. So a rule judges
a NodePort with all Endpoints, on whichever Node they are, and no other address of the Service.
parity: pkg/agent/openflow/pipeline.go ingressClassifierFlows; upstream's rules do not match the mark, and judge also what goes
to the ClusterIP where the Endpoint is on this Node
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.engine import Unit
from antrea.facts.node import ThisNode
from antrea.facts.service import Service, ServicePort
from antrea.features.network_policy.agent.conjunction import clause_match, merge
from antrea.features.network_policy.agent.priority import IN, has_location
from antrea.features.network_policy.agent.rule import PolicyRule, member_conjunctions
from antrea.features.network_policy.agent.service_target import ServiceTarget
from antrea.features.proxy.endpoint import group_id, scopes
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    NOT_DSR_SERVICE_REG_MARK,
    SERVICE_GROUP_ID,
    TO_NODE_PORT_ADDRESS_REG_MARK,
)
from antrea.openflow.flow import flows_of
from antrea.openflow.priority import Priority
from antrea.openflow.tables import (
    ANTREA_POLICY_INGRESS_RULE,
    DSR_SERVICE_MARK,
    INGRESS_SECURITY_CLASSIFIER,
    NODE_PORT_MARK,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.framework.agent_feature import RealizedPipeline
    from antrea.openflow.field import Match
    from antrea.openflow.flow import Flow

NO_PORTS = cp.GroupMember()
"""Member without named ports, since a Service gives no names to the ports of rules."""
TO_RULES = Priority.NORMAL + 1
"""Priority above packets that leave the Node, below those of its own processes."""
flow = flows_of(Category.NETWORK_POLICY)


def node_port_matches(facts: Facts, service: Service) -> Iterator[tuple[Match, ...]]:
    """Yield matches of connections to a NodePort of this Service, by the groups that may choose their Endpoint."""
    node = facts.get(ThisNode)
    for ipv6 in sorted(node.families) if node else ():
        for port in facts.by(ServicePort, "service", service.key):
            for local in scopes(port, ipv6=ipv6) if port.node_port else ():
                number = group_id(facts, port, ipv6=ipv6, local=local)
                yield (TO_NODE_PORT_ADDRESS_REG_MARK.match, SERVICE_GROUP_ID(number).match)


def rules_on(facts: Facts, service: Service) -> Iterator[PolicyRule]:
    """Yield the enforced rules for this Service, each once."""
    seen: set[str] = set()
    for target in facts.by(ServiceTarget, "service", service.key):
        for rule in facts.by(PolicyRule, "applied", target.group):
            if rule.name not in seen and rule.on_node_ports:
                seen.add(rule.name)
                yield rule


# units


def classified_flows(_facts: Facts, realized: RealizedPipeline) -> Iterator[Flow]:
    """Yield flows that send connections to NodePorts to rules, also if their Endpoint is on another Node, or is not a Pod.

    A packet that is forwarded untranslated, for the Endpoint to answer the client, is judged by the Node of the Endpoint.
    """
    if all(map(realized.pipeline.has, (NODE_PORT_MARK, ANTREA_POLICY_INGRESS_RULE))):
        direct = realized.pipeline.has(DSR_SERVICE_MARK)
        marks = (TO_NODE_PORT_ADDRESS_REG_MARK.match, *((NOT_DSR_SERVICE_REG_MARK.match,) if direct else ()))
        yield flow(INGRESS_SECURITY_CLASSIFIER, TO_RULES, *marks, then=[goto(ANTREA_POLICY_INGRESS_RULE)])


def node_port_flows(facts: Facts, service: Service) -> Iterator[Flow]:
    """Yield the NodePorts of a Service in the conjunctions of the rules that are for it."""
    rules = [rule for rule in rules_on(facts, service) if has_location(facts, rule)]
    matches = list(node_port_matches(facts, service)) if rules else []
    yield from merge(
        clause_match(facts, rule, conjunction, IN.target, *match)
        for rule in rules
        for conjunction in member_conjunctions(facts, rule, NO_PORTS, target=True)
        for match in matches
    )


NODE_PORTS = Unit(Service, node_port_flows)
