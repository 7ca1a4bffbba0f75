"""What our programs may do in the API and what they do are the same: no right is missing, and none is unused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from agent_node import wait_ready
from config_map import ConfigMap

from antrea.errors import Unavailable
from lab import control_plane as plane
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ONLY_WHEN = {
    ("antrea-agent", "get", "pods"): "antctl traces a packet to a Pod of another Node",
    ("antrea-agent", "get", "services"): "antctl traces a packet to a Service",
    ("antrea-agent", "create", "subjectaccessreviews.authorization.k8s.io"): "somebody calls the agent's API",
    ("antrea-agent", "get", "egresses.crd.antrea.io"): "a Node has the address of an Egress",
    ("antrea-agent", "patch", "egresses/status.crd.antrea.io"): "a Node has the address of an Egress",
    (
        "antrea-agent",
        "create",
        "networkpolicies/status.controlplane.antrea.io",
    ): "it realized a policy of Antrea's own; asked of the controller itself",
    (
        "antrea-agent",
        "create",
        "nodestatssummaries.controlplane.antrea.io",
    ): "a policy matched something; asked of the controller itself",
    ("antrea-agent", "patch", "pods/status"): "a Pod has ports of its Node, by NodePortLocal",
    ("antrea-agent", "list", "nodelatencymonitors.crd.antrea.io"): "the gate NodeLatencyMonitor is on",
    ("antrea-agent", "watch", "nodelatencymonitors.crd.antrea.io"): "the gate NodeLatencyMonitor is on",
    ("antrea-agent", "list", "flowexporterdestinations.crd.antrea.io"): "the gate FlowExporter is on",
    ("antrea-agent", "watch", "flowexporterdestinations.crd.antrea.io"): "the gate FlowExporter is on",
    ("antrea-agent", "list", "bgppolicies.crd.antrea.io"): "the gate BGPPolicy is on",
    ("antrea-agent", "watch", "bgppolicies.crd.antrea.io"): "the gate BGPPolicy is on",
    (
        "antrea-agent",
        "create",
        "nodebgpsummaries.controlplane.antrea.io",
    ): "the gate BGPPolicy is on; asked of the controller itself",
    ("antrea-controller", "get", "bgppolicies.crd.antrea.io"): "there is a BGPPolicy",
    ("antrea-controller", "patch", "bgppolicies/status.crd.antrea.io"): "there is a BGPPolicy",
    ("antrea-agent", "list", "trafficcontrols.crd.antrea.io"): "the gate TrafficControl is on",
    ("antrea-agent", "watch", "trafficcontrols.crd.antrea.io"): "the gate TrafficControl is on",
    ("antrea-agent", "list", "namespaces"): "the gate TrafficControl is on",
    ("antrea-agent", "watch", "namespaces"): "the gate TrafficControl is on",
    **{
        ("antrea-agent", verb, "nodelatencystats.stats.antrea.io"): "asked of the controller itself"
        for verb in ("create", "delete")
    },
    **{
        ("antrea-agent", verb, what): "the gate PacketCapture is on, and one is for a Pod of the Node"
        for verbs, what in (
            (("get", "list", "watch"), "packetcaptures.crd.antrea.io"),
            (("patch",), "packetcaptures/status.crd.antrea.io"),
            (("get",), "secrets/antrea-packetcapture-fileserver-auth"),
        )
        for verb in verbs
    },
    ("antrea-agent", "create", "tokenreviews.authentication.k8s.io"): "a caller shows a token to the agent",
    ("antrea-controller", "patch", "secrets/antrea-controller-tls"): "the certificate is exchanged",
    ("antrea-controller", "patch", "secrets/antrea-memberlist-keys"): "somebody took the key out of it",
    ("antrea-controller", "patch", "configmaps/antrea-cluster-identity"): "somebody emptied it",
    ("antrea-controller", "create", "tokenreviews.authentication.k8s.io"): "a caller shows a token",
    ("antrea-controller", "delete", "antreaagentinfos.crd.antrea.io"): "a Node goes",
    ("antrea-controller", "get", "configmaps/antrea-config"): "somebody asks for feature gates",
    ("antrea-controller", "patch", "configmaps/antrea-ca"): "the CA is another one",
    ("antrea-controller", "create", "events"): "there is something to say of its configuration",
    ("antrea-controller", "get", "nodes"): "an Egress prefers some",
    ("antrea-controller", "patch", "nodes"): "nodeIPAM.enableNodeIPAM is set",
    ("antrea-controller", "get", "pods"): "a Traceflow names its Pod",
    **{
        (account, verb, what): "there is a Traceflow, or antctl in a container starts one"
        for account in ("antrea-agent", "antrea-controller")
        for verb, what in (
            *((verb, "traceflows.crd.antrea.io") for verb in ("get", "create", "delete")),
            ("patch", "traceflows/status.crd.antrea.io"),
        )
    },
    **{
        ("antrea-controller", verb, f"{plural}.crd.antrea.io"): "the gate ExternalNode is on"
        for plural, verbs in (
            ("externalnodes", ("list", "watch")),
            ("externalentities", ("get", "create", "patch", "delete")),
        )
        for verb in verbs
    },
    ("antrea-controller", "get", "secrets/antrea-controller-tls"): "the Secret changes under us",
    ("antrea-controller", "get", "egresses.crd.antrea.io"): "an Egress is given an address",
    ("antrea-controller", "patch", "egresses.crd.antrea.io"): "an Egress is given an address",
    ("antrea-controller", "patch", "egresses/status.crd.antrea.io"): "an Egress has a pool",
    ("antrea-controller", "get", "externalippools.crd.antrea.io"): "there is a pool",
    (
        "antrea-controller",
        "get",
        "antreacontrollerinfos.crd.antrea.io/antrea-controller",
    ): "somebody asks for feature gates",
    **{
        (
            "antrea-controller",
            verb,
            f"{plural}{part}.policy.networking.k8s.io",
        ): "a gate is on and there is one"
        for plural in ("adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies")
        for verb, part in (("get", ""), ("patch", "/status"))
    },
    **{
        ("antrea-controller", verb, f"supportbundlecollections{part}.crd.antrea.io"): "there is one"
        for verb, part in (("get", ""), ("patch", "/status"))
    },
    (
        "antrea-agent",
        "create",
        "supportbundlecollections/status.controlplane.antrea.io",
    ): "a collection is for the Node; asked of the controller itself",
    (
        "antrea-controller",
        "get",
        "packetcaptures.crd.antrea.io",
    ): "a PacketCapture names a Pod that is not there",
    (
        "antrea-controller",
        "patch",
        "packetcaptures/status.crd.antrea.io",
    ): "a PacketCapture names a Pod that is not there",
    ("antrea-controller", "get", "services"): "the address of a Service is refused",
    ("antrea-controller", "patch", "services/status"): "a Service is given an address",
    ("antrea-controller", "patch", "externalippools/status.crd.antrea.io"): "there is a pool",
    **{
        ("antrea-controller", verb, f"{plural}{part}.crd.antrea.io"): "there is one, whose status is written"
        for plural in ("clustergroups", "clusternetworkpolicies", "groups", "networkpolicies")
        for verb, part in (("get", ""), ("patch", "/status"))
    },
    **{
        (
            "antrea-agent",
            "watch",
            f"{plural}.controlplane.antrea.io",
        ): "asked of the controller itself, which has it reviewed"
        for plural in (
            *("addressgroups", "appliedtogroups", "egressgroups", "networkpolicies"),
            "supportbundlecollections",
        )
    },
}
"""Rights that a quiet cluster does not need, and when it does; tests of those cases are in test_lab_admission.py."""


class Right(NamedTuple):
    account: str
    verb: str
    what: str


def granted(lab: Lab) -> Iterator[Right]:
    """Every verb of every rule that our accounts have."""
    shown = lab.api.kubectl("get", "clusterrolebindings,rolebindings", "-A", "-o", "json")
    for binding in json.loads(shown)["items"]:
        accounts = {s["name"] for s in binding.get("subjects", []) if s["kind"] == "ServiceAccount"} & set(
            plane.AUDITED
        )
        ours = binding["metadata"].get("labels", {}).get("app") == "antrea"
        reference = binding["roleRef"]
        if not accounts or not ours or reference["name"].startswith("extension-"):
            continue
        words = ("get", reference["kind"], reference["name"], "-o", "json")
        role = json.loads(
            lab.api.kubectl(*words, *(("-n", "kube-system") if reference["kind"] == "Role" else ()))
        )
        for account in accounts:
            for rule in role["rules"]:
                yield from (Right(account, verb, what) for verb in rule["verbs"] for what in things(rule))


def things(rule: dict[str, Any]) -> Iterator[str]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            full = f"{resource}.{group}" if group else resource
            yield from (
                (f"{full}/{name}" for name in rule.get("resourceNames", []))
                if "resourceNames" in rule
                else (full,)
            )


def requests(lab: Lab) -> Iterator[tuple[dict[str, Any], frozenset[Right]]]:
    """Each request of our accounts, and the rights any of which allows it."""
    for line in plane.audit_log(lab.record).read_text().splitlines():
        event = json.loads(line)
        about = event.get("objectRef", {})
        if "resource" not in about:
            continue
        account = event["user"]["username"].rpartition(":")[2]
        resource = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
        full = f"{resource}.{about['apiGroup']}" if about.get("apiGroup") else resource
        names = {about.get("name", "")}
        if "metadata.name%3D" in event["requestURI"]:
            names.add(event["requestURI"].split("metadata.name%3D")[1].split("&")[0])
        whats = {full, *(f"{full}/{name}" for name in names if name)}
        # a server-side apply of what is not there needs the right to make it, too
        made = event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201
        verbs = (event["verb"], *(("create",) if made else ()))
        yield event, frozenset(Right(account, verb, what) for verb in verbs for what in whats)


@pytest.fixture
def exercised(lab: Lab) -> Lab:
    """A cluster in which an agent had something to tell about its configuration."""
    config = ConfigMap(lab)
    config.change(rightsTest=True)
    try:
        wait_for(
            "an Event of the unknown key", lambda: said(lab, "UnknownConfigKey", "rightsTest"), seconds=60
        )
    finally:
        config.write(config.text)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    return lab


def said(lab: Lab, reason: str, word: str) -> bool:
    try:
        shown = lab.api.kubectl("get", "events", f"--field-selector=reason={reason}", "-o", "json")
    except Unavailable:
        return False
    return any(word in event["message"] for event in json.loads(shown)["items"])


def test_every_right_is_used_and_no_request_is_refused(exercised: Lab) -> None:
    may = set(granted(exercised))
    asked = list(requests(exercised))
    refused = {
        (event["user"]["username"], event["verb"], event["requestURI"])
        for event, _ in asked
        if event.get("responseStatus", {}).get("code") == 403
    }
    used = {right for _, rights in asked for right in rights}
    unused = {right for right in may - used if tuple(right) not in ONLY_WHEN}

    assert refused == set()
    assert unused == set()
    assert set(ONLY_WHEN) <= {tuple(right) for right in may}
