"""Finding of `antctl doctor`: interfaces of ExternalNodes that no policy protects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.doctor import CRD, ObjectCheck, ObjectFinding, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def machine_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield each interface that the agent of an ExternalNode reports as not connected."""
    for condition in item.get("agentConditions", ()):
        if condition.get("type") == "InterfaceNotConnected" and condition.get("status") == "True":
            node = item.get("nodeRef", {})
            describe = f"kubectl -n {node.get('namespace')} describe externalnodes {node.get('name')}"
            yield ObjectFinding("error", message_of(condition), describe)


OBJECT_CHECKS = (
    ObjectCheck(
        "external-nodes",
        f"{CRD}/v1beta1/antreaagentinfos",
        "AntreaAgentInfo",
        "antreaagentinfos",
        machine_findings,
    ),
)
