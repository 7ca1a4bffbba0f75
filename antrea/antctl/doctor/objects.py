"""Objects whose status names a fault: the doctor of the whole cluster reads what agents and controller wrote."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.doctor.state import Finding, FindingText
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.apis.crd.packet_capture import NO_NODE, STARTED
from antrea.apis.service_address import ALLOCATED
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

MAX_FINDINGS = 20
"""Findings of a kind; the last one counts the rest."""
GATES = "antctl get featuregates"
CRD = "/apis/crd.antrea.io"


class ObjectKind(NamedTuple):
    """A kind, its plural for kubectl, and what is wrong with one of its objects: a finding without a repair is described by kubectl."""

    path: str
    name: str
    plural: str
    judge: Callable[[Mapping[str, Any]], Iterator[FindingText]]
    query: Mapping[str, str] = {}


def objects(kubernetes: Server, gated: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Findings of all kinds; that nothing acts on an object of `gated`, a kind and a name, has a line with its gate. Raises Failure."""
    for check, kind in KINDS.items():
        rows = _of_kind(kubernetes, check, kind, gated)
        found = list(islice(rows, MAX_FINDINGS + 1))
        if len(found) > MAX_FINDINGS:
            text = f"there are more than {MAX_FINDINGS} of them"
            found[MAX_FINDINGS:] = [Finding("", "warning", check, text, f"kubectl get {kind.plural} -A")]
        yield from found


def _of_kind(
    kubernetes: Server, check: str, kind: ObjectKind, gated: Collection[tuple[str, str]]
) -> Iterator[Finding]:
    """Find objects of a kind with failed conditions. A failed list is a finding; a kind that does not exist is none."""
    try:
        items: list[Any] = ask(kubernetes, kind.path, kind.query)["items"]
    except ErrorResponse as error:
        if error.status != 404:
            text = f"{kind.name}: cannot be listed: {error.format_message()}"
            yield Finding("", "error", check, text, "")
        return
    for item in items:
        meta = item["metadata"]
        space = meta.get("namespace", "")
        name = f"{space}/{meta['name']}" if space else meta["name"]
        where = f"-n {space} " if space else ""
        describe = f"kubectl {where}describe {kind.plural} {meta['name']}"
        for row in kind.judge(item):
            if row.waits and (kind.name, name) in gated:
                continue
            text = f"{kind.name} {name}: {one_line(row.finding)}"
            yield Finding("", row.severity, check, text, row.repair or describe)


def conditions_of(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of an object by their types."""
    return {one.get("type", ""): one for one in item.get("status", {}).get("conditions", ())}


def _message(condition: Mapping[str, Any]) -> str:
    return condition.get("message") or condition.get("reason") or "no reason given"


def _has(conditions: Mapping[str, Mapping[str, Any]], kind: str, status: str) -> Mapping[str, Any]:
    """The condition, if it has this status; else none."""
    found = conditions.get(kind, {})
    return found if found.get("status") == status else {}


def egress(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """Pods without a way out, or with another host that answers for their address."""
    conditions, spec = conditions_of(item), item.get("spec", {})
    several = bool(spec.get("egressIPs") or spec.get("externalIPPools"))
    if lacks := _has(conditions, "IPAllocated", "False") or _has(conditions, "IPAssigned", "False"):
        outcome = "lacks an address" if several else "its Pods get no packet out"
        yield FindingText("warning" if several else "error", f"{outcome}: {_message(lacks)}", "")
    if shared := _has(conditions, "AddressConflict", "True"):
        yield FindingText("error", f"another host has its address: {_message(shared)}", "")
    if silent := _has(conditions, "GatewayAnswers", "False"):
        yield FindingText("warning", f"the gateway of its pool is silent: {_message(silent)}", "")
    if limit := _has(conditions, "BandwidthLimited", "False"):
        yield FindingText("warning", f"its bandwidth is not limited: {_message(limit)}", "")
    if uncovered := _has(conditions, "ConnectionsSurvive", "False"):
        yield FindingText("warning", f"not all connections outlive its gateway: {_message(uncovered)}", "")


def service(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """A Service that asks for an external IP and has none."""
    if waits := _has(conditions_of(item), ALLOCATED, "False"):
        yield FindingText("error", f"has no external IP: {_message(waits)}", "")


def traceflow(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """A trace that failed, or that nothing has read."""
    status = item.get("status", {})
    phase, reason = status.get("phase", ""), status.get("reason", "")
    if phase == "Failed":
        yield FindingText("warning", f"failed: {reason}", "")
    elif not phase and not reason:
        yield FindingText(
            "warning", "nothing acts on it: antrea-controller has not read it", GATES, waits=True
        )


def packet_capture(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """A capture that cannot begin, ended early, or whose file is not at the server."""
    conditions = conditions_of(item)
    if not conditions:
        text = "nothing acts on it: no Node with the feature gate PacketCapture has its Pod"
        yield FindingText("warning", text, GATES, waits=True)
    if late := _has(conditions, STARTED, "False"):
        no_agent = late.get("reason") == NO_NODE
        yield FindingText("warning", f"has not begun: {_message(late)}", "", waits=no_agent)
    ended = _has(conditions, "PacketCaptureComplete", "True")
    if ended.get("reason") == "Failed":
        yield FindingText("warning", f"ended early: {_message(ended)}", "")
    if kept := _has(conditions, "PacketCaptureFileUploaded", "False"):
        yield FindingText("warning", f"its file is not at the file server: {_message(kept)}", "")


def support_bundle_collection(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """A collection that failed or cannot begin; one that waits for another is well."""
    conditions = conditions_of(item)
    begun = _has(conditions, "Started", "False")
    if not conditions:
        yield FindingText(
            "warning", "nothing acts on it: antrea-controller has not read it", GATES, waits=True
        )
    elif failed := _has(conditions, "CollectionFailure", "True"):
        yield FindingText("warning", f"not all bundles are at the file server: {_message(failed)}", "")
    elif begun and begun.get("reason") != "Conflict":
        yield FindingText("warning", f"cannot begin: {_message(begun)}", "")


def agent_info(item: Mapping[str, Any]) -> Iterator[FindingText]:
    """An interface of an ExternalNode that no policy protects, or another than the one that is listed."""
    for one in item.get("agentConditions", ()):
        if one.get("type") == "InterfaceNotConnected" and one.get("status") == "True":
            node = item.get("nodeRef", {})
            describe = f"kubectl -n {node.get('namespace')} describe externalnodes {node.get('name')}"
            yield FindingText("error", _message(one), describe)


KINDS = {
    "egresses": ObjectKind(f"{CRD}/v1beta1/egresses", "Egress", "egresses", egress),
    "service-external-ips": ObjectKind(
        *("/api/v1/services", "Service", "services", service), {"fieldSelector": "spec.type=LoadBalancer"}
    ),
    "traceflows": ObjectKind(f"{CRD}/v1beta1/traceflows", "Traceflow", "traceflows", traceflow),
    "captures": ObjectKind(
        f"{CRD}/v1alpha1/packetcaptures", "PacketCapture", "packetcaptures", packet_capture
    ),
    "support-bundles": ObjectKind(
        f"{CRD}/v1alpha1/supportbundlecollections",
        *("SupportBundleCollection", "supportbundlecollections", support_bundle_collection),
    ),
    "external-nodes": ObjectKind(
        f"{CRD}/v1beta1/antreaagentinfos", "AntreaAgentInfo", "antreaagentinfos", agent_info
    ),
}
"""Each check with the kind that it reads."""
