"""Status of Antrea's own policies and groups, by what the Nodes' agents report.

parity: pkg/controller/networkpolicy/status_controller.go syncHandler, {group,clustergroup}.go syncInternalGroup
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import controlplane_report as report
from antrea.apis.crd.part import Condition
from antrea.apis.network_policy_api.place import PLACES
from antrea.apis.policy_report import AT_SERVICES, ON_NODE
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.features.network_policy.controller.admin_status import admin_status, realized
from antrea.features.network_policy.controller.group import WholeGroup
from antrea.features.network_policy.controller.named_port import (
    REASON,
    joined_ports,
    unknown_port_event,
)
from antrea.features.network_policy.tier import CRD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.framework.event import RecordEvent

MANAGER = "antrea-controller"
MAX_LENGTH = 256
"""Maximum number of characters of a message about failures."""
MAX_PARTS = 3
"""Maximum number of parts that are not enforced in a condition."""
PREVENTED = "LockoutPrevented"
"""Type of the condition of a policy that would cut Nodes off from essential connections."""
TRANSLATED = "NotAtServiceAddresses"
"""Type of the condition of a policy on Nodes where another program than AntreaProxy translates packets to Services first."""
AUDITED = "Audited"
"""Type of the condition of a policy that drops nothing, or some rules of which do not."""
UNKNOWN_PORTS = REASON
"""Type of the condition about port names that no concerned Pod declares."""
UNAWARE = "its agent has no support for policies on Nodes, or another version"
REALIZED = "realizedGeneration"
NESTED = "ChildGroupsNestingExceeded"


class NodeReport(Fact, frozen=True):
    """Last report of a Node's agent on a policy; kept while the policy is for that Node."""

    policy: str
    """UID of the policy."""
    node: str
    generation: int
    failure: bool = False
    message: str = ""
    indexes: ClassVar[Mapping[str, Callable[[NodeReport], Iterable[Hashable]]]] = {
        "policy": lambda row: (row.policy,)
    }

    @property
    def key(self) -> str:
        return report_key(self.policy, self.node)

    @property
    def kept(self) -> str:
        """Connections that the policy would have cut, and the Node keeps."""
        return "" if self.failure else self.message.partition(AT_SERVICES)[0]

    @property
    def translated(self) -> str:
        """Rules on the Node that are not enforced at addresses of Services there."""
        return "" if self.failure else self.message.partition(AT_SERVICES)[2]


class PolicySpan(Fact, frozen=True):
    """Nodes that one of Antrea's own policies, or an admin policy, is for; derived."""

    source: cp.NetworkPolicyReference
    generation: int
    nodes: tuple[str, ...]
    stranger: str = ""
    """Name of a group that no policy can be for."""
    unheld: tuple[str, ...] = ()
    """Parts of the policy that no switch enforces; no Node has it meanwhile."""
    audited: str = ""
    """Description of the audited parts; empty if all is enforced."""
    on_nodes: tuple[str, ...] = ()
    """Nodes that are themselves targets, beside their Pods."""
    unknown_ports: tuple[str, ...] = ()
    """A sentence for each port name that no concerned Pod declares."""

    @property
    def key(self) -> str:
        return self.source.uid


def report_key(policy: str, node: str) -> str:
    """Return the key of a report."""
    return f"{policy} {node}"


def record_report(facts: Facts, status: report.NetworkPolicyStatus) -> None:
    """Record the report of an agent; one on a policy that is not for its Node is dropped."""
    span = facts.get(PolicySpan, status.metadata.name)
    for node_status in status.nodes:
        if span is not None and node_status.node_name in span.nodes:
            facts.put(
                NodeReport(
                    span.key,
                    node_status.node_name,
                    node_status.generation,
                    node_status.realization_failure,
                    node_status.message,
                )
            )


def policy_status(facts: Facts, span: PolicySpan) -> Iterator[Status]:
    """Yield phase, numbers of Nodes and conditions; reports on other generations do not count.

    `realizedGeneration` (an addition to upstream) is written when a generation is realized, and stays while a later one is in
    progress.
    """
    source, nodes = span.source, frozenset(span.nodes)
    reports = [
        _known(span, node_report)
        for node_report in facts.by(NodeReport, "policy", span.key)
        if node_report.node in nodes and node_report.generation == span.generation
    ]
    failed = sorted(
        f'"{node_report.node}":"{node_report.message}"' for node_report in reports if node_report.failure
    )
    current = 0 if span.unheld else len(reports) - len(failed)
    if (place := PLACES.get(source.type)) is not None:
        conditions = (
            *(_realizable(span), realized(current, len(span.nodes))),
            *(_failure(failed), _audited(span), _unknown_ports(span)),
        )
        yield admin_status(f"{place.collection}/{source.name}", place.kind, span.generation, conditions)
        return
    phase = _phase(span, current, len(failed))
    collection = (
        f"namespaces/{source.namespace}/networkpolicies" if source.namespace else "clusternetworkpolicies"
    )
    yield Status(
        path=f"{CRD}/{collection}/{source.name}",
        kind="NetworkPolicy" if source.namespace else "ClusterNetworkPolicy",
        manager=MANAGER,
        fields=(
            ("phase", phase),
            ("observedGeneration", span.generation),
            ("currentNodesRealized", current),
            ("desiredNodesRealized", len(span.nodes)),
            *(((REALIZED, span.generation),) if phase == "Realized" else ()),
        ),
        keeps=(REALIZED,),
        conditions=(
            _realizable(span),
            _failure(failed),
            _prevented(reports),
            _audited(span),
            _unknown_ports(span),
            _translated(reports),
        ),
    )


def _known(span: PolicySpan, node_report: NodeReport) -> NodeReport:
    """Return the report, or a failure where a policy for the Node itself is reported without ON_NODE and without what is kept."""
    if node_report.failure or node_report.node not in span.on_nodes:
        return node_report
    if not node_report.message:
        return msgspec.structs.replace(node_report, failure=True, message=UNAWARE)
    return msgspec.structs.replace(node_report, message=node_report.message.removeprefix(ON_NODE))


def _phase(span: PolicySpan, current: int, failed: int) -> str:
    if span.stranger:
        return "Pending"
    if span.unheld:
        return "Failed"
    if current == len(span.nodes):
        return "Realized"
    return "Failed" if current + failed == len(span.nodes) else "Realizing"


def _realizable(span: PolicySpan) -> Condition:
    if span.stranger:
        why = f"Group {span.stranger} with Pods in other Namespaces can not be used as AppliedTo"
        return Condition("Realizable", "False", reason="NetworkPolicyAppliedToUnsupportedGroup", message=why)
    if span.unheld:
        parts = list(span.unheld[:MAX_PARTS])
        more = ["and more"] if len(span.unheld) > MAX_PARTS else []
        why = "; ".join([*parts, *more])
        return Condition("Realizable", "False", reason="NetworkPolicyPartNotEnforced", message=why)
    return Condition("Realizable", "True")


def _failure(failed: list[str]) -> Condition:
    """Make the condition on failures; without a status if there is none."""
    return _of_nodes(
        "RealizationFailure", "NetworkPolicyRealizationFailedOnNode", failed, "Failed Nodes count"
    )


def _prevented(reports: list[NodeReport]) -> Condition:
    """Make the condition on prevented lockouts; without a status if there is none."""
    kept = sorted(f'"{node_report.node}":"{node_report.kept}"' for node_report in reports if node_report.kept)
    return _of_nodes(PREVENTED, "NodePolicyWouldCutNode", kept)


def _translated(reports: list[NodeReport]) -> Condition:
    """Make the condition on addresses of Services; without a status if the policy is enforced at all of them, or is for no
    Node.
    """
    rows = sorted(
        f'"{node_report.node}":"{node_report.translated}"'
        for node_report in reports
        if node_report.translated
    )
    return _of_nodes(TRANSLATED, "ServicesTranslatedBefore", rows)


def _of_nodes(kind: str, reason: str, rows: list[str], count: str = "Nodes count") -> Condition:
    """Make a condition with a row for each Node, cut to MAX_LENGTH; without a status if there is none."""
    if not rows:
        return Condition(kind)
    text = f"{count} {len(rows)}: {', '.join(rows)}"
    text = text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}..."
    return Condition(kind, "True", reason=reason, message=text)


def _audited(span: PolicySpan) -> Condition:
    """Make the condition on auditing; without a status if all is enforced."""
    if not span.audited:
        return Condition(AUDITED)
    return Condition(AUDITED, "True", reason="NetworkPolicyAudited", message=span.audited)


def _unknown_ports(span: PolicySpan) -> Condition:
    """Make the condition on unknown port names; without a status if there is none."""
    if not span.unknown_ports:
        return Condition(UNKNOWN_PORTS)
    return Condition(
        UNKNOWN_PORTS, "True", reason="NoPodHasPortName", message=joined_ports(span.unknown_ports)
    )


def port_events(facts: Facts, span: PolicySpan) -> Iterator[RecordEvent]:
    """Yield the Event on port names that no concerned Pod declares."""
    yield from unknown_port_event(facts, span.source, span.unknown_ports)


def group_status(_: Facts, group: WholeGroup) -> Iterator[Status]:
    """Yield whether members are computed: not if a child is missing (which upstream does not report) or has children."""
    kind = "Group" if group.namespace else "ClusterGroup"
    collection = f"namespaces/{group.namespace}/groups" if group.namespace else "clustergroups"
    reason = message = ""
    if group.nested:
        reason = NESTED
        message = (
            f"The childGroups of this {kind} must not have childGroups of their own. Its members cannot be"
            " computed and it is not realized: fix its definition, or the definition of one of its childGroups."
        )
    done = "True" if group.computed else "False"
    yield Status(
        path=f"{CRD}/{collection}/{group.name}",
        kind=kind,
        manager=MANAGER,
        conditions=(Condition("GroupMembersComputed", done, reason=reason, message=message),),
    )


UNITS = (Unit(PolicySpan, policy_status), Unit(PolicySpan, port_events), Unit(WholeGroup, group_status))
