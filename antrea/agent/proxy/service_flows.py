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

if TYPE_CHECKING:
    from antrea.engine import Facts

_BETWEEN = re.compile(r"[, ]+")


class ServiceFlows(NamedTuple):
    """Numbers of the groups of a Service, and the actions by which its flows are found."""

    groups: frozenset[int]
    actions: frozenset[str]

    def matches(self, flow: str) -> bool:
        """Whether a line of `ovs-ofctl dump-flows` is one of the Service."""
        return not self.actions.isdisjoint(_BETWEEN.split(flow.partition(" actions=")[2]))


def service_flows(facts: Facts, service: str) -> ServiceFlows:
    """Of Service `service` (namespace/name); no groups: AntreaProxy does not serve it."""
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
    return ServiceFlows(frozenset(groups), frozenset(actions))
