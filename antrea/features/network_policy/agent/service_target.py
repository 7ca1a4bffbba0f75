"""Services that policies are for: connections to their NodePorts, which AntreaProxy serves with proxyAll.

parity: pkg/agent/controller/networkpolicy/pod_reconciler.go isRuleAppliedToService, getSvcGroupIDs
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.facts.fact import Fact
from antrea.facts.service import Service, ServicePort
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.openflow.tables import NODE_PORT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentAppliedMember

PROXY_ALL_OFF = "it is for NodePorts, and antreaProxy.enable or antreaProxy.proxyAll is off in antrea-agent.conf of this Node"
OTHER_PROXY = "AntreaProxy leaves the NodePorts of Service {} to another proxy"


class ServiceTarget(Fact, frozen=True):
    """Service that is a member of an AppliedToGroup; derived."""

    group: str
    service: str
    """namespace/name"""
    indexes: ClassVar[Mapping[str, Callable[[ServiceTarget], Iterable[Hashable]]]] = {
        "group": lambda row: (row.group,),
        "service": lambda row: (row.service,),
    }

    @property
    def key(self) -> str:
        return f"{self.group} {self.service}"


def service_target(_: Facts, row: SentAppliedMember) -> Iterator[ServiceTarget]:
    """Yield the group of a member that is a Service."""
    if (service := row.member.service) is not None:
        yield ServiceTarget(row.group, f"{service.namespace}/{service.name}")


def target_services(facts: Facts, groups: Iterable[str]) -> list[str]:
    """Return namespace and name of each Service in these AppliedToGroups."""
    return [row.service for group in groups for row in facts.by(ServiceTarget, "group", group)]


def why_unserved(facts: Facts, groups: Iterable[str]) -> str:
    """Return why NodePorts of Services in these groups are not judged on this Node; empty if all are."""
    realized = facts.get(RealizedPipeline)
    if realized is None or not realized.pipeline.has(NODE_PORT_MARK):
        return PROXY_ALL_OFF
    for name in sorted(target_services(facts, groups)):
        row = facts.get(Service, name)
        if row is not None and any(row.node_ports) and not facts.by(ServicePort, "service", name):
            return OTHER_PROXY.format(name)
    return ""
