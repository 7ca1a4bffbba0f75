"""The flows and groups of one Service, for `antctl get ovsflows -S`.

parity: pkg/agent/apiserver/handlers/ovsflows/handler.go getServiceFlows
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.node import ThisNode
from antrea.facts.service import ServiceEndpoint, ServicePort
from antrea.features.proxy.endpoint import group_id, scopes
from antrea.openflow.ct import nat_dst
from antrea.openflow.fields import SERVICE_GROUP_ID
from antrea.openflow.tables import SERVICE_LB

if TYPE_CHECKING:
    from antrea.engine import Facts

_LOAD_BALANCED = f"table={SERVICE_LB.name},"
_BETWEEN = re.compile(r"[, ]+")


class ServiceFlows(NamedTuple):
    """Numbers of the groups of a Service, and the actions and matches by which its flows are found."""

    groups: frozenset[int]
    actions: frozenset[str]
    looked_up: frozenset[str]
    """Matches of the flows by which clients keep their Endpoint."""

    def matches(self, flow: str) -> bool:
        """Whether a line of `ovs-ofctl dump-flows` is one of the Service."""
        match, _, actions = flow.partition(" actions=")
        if _LOAD_BALANCED in match and not self.looked_up.isdisjoint(_BETWEEN.split(match)):
            return True
        return not self.actions.isdisjoint(_BETWEEN.split(actions))


def service_flows(facts: Facts, service: str) -> ServiceFlows:
    """Return the flows of Service `service` (namespace/name); without groups if AntreaProxy does not serve it."""
    node = facts.get(ThisNode)
    families = node.families if node else set()
    groups, actions = set(), set()
    for port in facts.by(ServicePort, "service", service):
        groups |= {
            group_id(facts, port, ipv6=ipv6, local=local)
            for ipv6 in families
            for local in scopes(port, ipv6=ipv6)
        }
        for endpoint in facts.by(ServiceEndpoint, "behind", port.behind):
            actions.add(nat_dst(endpoint.ip, endpoint.port))
    actions |= {f"group:{number}" for number in groups}
    looked_up = frozenset(str(SERVICE_GROUP_ID(number).match) for number in groups)
    return ServiceFlows(frozenset(groups), frozenset(actions), looked_up)
