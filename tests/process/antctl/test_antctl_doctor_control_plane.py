"""Checks of the control plane: each fault by its cause and repair, and nothing of a cluster that is well."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from doctor_cluster import (
    CREATE,
    EDIT,
    MADE,
    NOW,
    OTHER,
    RESOURCES,
    UNDO,
    at,
    changed,
    encoded,
    healthy,
    info,
    owner,
    pod,
    rows,
    status_of,
    with_pod,
)

from antrea.antctl.config_owner import ConfigOwner
from antrea.antctl.doctor.control_plane.checks import CHECKS, at_owner, findings
from antrea.antctl.doctor.control_plane.cluster_state import ClusterState, antrea_namespace, own_programs
from antrea.antctl.doctor.control_plane.release import differences
from antrea.antctl.doctor.control_plane.report import LOOK_INTERVAL, MAX_LOOKS, confirmed
from antrea.antctl.doctor.state import Finding

if TYPE_CHECKING:
    from collections.abc import Callable


def test_nothing_is_found_in_a_cluster_that_is_well() -> None:
    assert rows(healthy()) == []


WAITING = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
CRASHING = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1, "message": "first\nthe last line\n"}},
}
NO_NETWORK = {"type": "Ready", "status": "False", "message": "Network plugin not ready"}
SILENT = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}


@pytest.mark.parametrize(
    ("state", "row"),
    [
        (
            lambda: with_pod(status_of(**WAITING), generation="2"),
            ("n2", "agents", "container antrea-agent of Pod a-2 cannot start: ErrImagePull: no such image", UNDO),
        ),
        (
            lambda: with_pod(status_of(**WAITING)),
            ("n2", "agents", "container antrea-agent of Pod a-2 cannot start: ErrImagePull: no such image",
             "kubectl -n kube-system set image daemonset/antrea-agent '*=IMAGE'  # IMAGE: one that Nodes can pull"),
        ),
        (
            lambda: with_pod(status_of(**CRASHING)),
            ("n2", "agents", "container antrea-agent of Pod a-2 ends at start again and again (exit code 1): the last line",
             "kubectl -n kube-system logs a-2 -c antrea-agent -p"),
        ),
        (
            lambda: with_pod(status_of(**CRASHING))._replace(
                log_lines={"a-2/antrea-agent": "antrea-agent: antrea-agent.conf: defaultMTU: 'abc' is not a number"}
            ),
            ("n2", "agents", ("container antrea-agent of Pod a-2 ends at start again and again (exit code 1): "
             "antrea-agent: antrea-agent.conf: defaultMTU: 'abc' is not a number"), EDIT),
        ),
        (
            lambda: with_pod(status_of(state={"running": {"startedAt": at(5)}})),
            ("n2", "agent-health", "Pod a-2 is not Ready: it is starting", "kubectl -n kube-system describe pod a-2"),
        ),
        (
            lambda: changed(healthy(), "pods", lambda pods: pods.pop(1))._replace(events=[
                {"involvedObject": {"kind": "DaemonSet", "name": "antrea-agent"}, "reason": "FailedCreate", "message": "forbidden"}
            ]),
            ("n2", "agents", "no agent Pod runs on this Node, and DaemonSet antrea-agent creates none: forbidden",
             "kubectl -n kube-system describe daemonset antrea-agent"),
        ),
        (
            lambda: changed(
                changed(healthy(), "pods", lambda pods: pods.pop(1)), "nodes",
                lambda nodes: nodes[1]["spec"].update(taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            ),
            ("n2", "agents", "no agent Pod runs on this Node, and DaemonSet antrea-agent does not tolerate its taint gpu:NoSchedule",
             "kubectl -n kube-system describe daemonset antrea-agent"),
        ),
        (
            lambda: changed(healthy(), "deployments", lambda items: items[0]["spec"].update(replicas=0)),
            ("", "controller", "Deployment antrea-controller is scaled to 0: policies and Egress IPs stay as they are, and new Pods wait",
             "kubectl -n kube-system scale deployment/antrea-controller --replicas=1"),
        ),
        (lambda: healthy()._replace(deployments=[]), ("", "controller", "Deployment antrea-controller is missing", CREATE)),
        (
            lambda: changed(
                changed(healthy(), "deployments", lambda items: items[0]["status"].update(readyReplicas=0)), "pods",
                lambda pods: pods[2].update(status={"conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
                ]}),
            ),
            ("n1", "controller", "Pod c cannot be scheduled: 0/2 nodes are available", "kubectl -n kube-system describe pod c"),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[1]["status"].update(conditions=[SILENT])),
            ("n2", "nodes", "the kubelet of this Node does not report: Kubelet stopped posting node status.", "systemctl restart kubelet"),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[1]["status"].update(conditions=[NO_NETWORK])),
            ("n2", "node-network", "this Node is not Ready: Network plugin not ready", "kubectl describe node n2"),
        ),
        (
            lambda: healthy()._replace(resources=RESOURCES - {"v1beta1/tiers"}),
            ("", "definitions", ("kube-apiserver does not serve v1beta1/tiers of crd.antrea.io: CustomResourceDefinition "
             "tiers.crd.antrea.io is missing or of another release"), CREATE.replace("antrea.yml", "antrea-crds.yml")),
        ),
        (
            lambda: changed(healthy(), "api_services", lambda items: items[0]["status"].update(
                conditions=[{"type": "Available", "status": "False", "message": "connection refused"}]
            )),
            ("", "api-services", "APIService v1alpha1.stats.antrea.io is not available: connection refused",
             "kubectl describe apiservice v1alpha1.stats.antrea.io"),
        ),
        (
            lambda: changed(healthy(), "api_services", lambda items: items[0].update(
                spec={"caBundle": encoded(OTHER.certificate_pem)},
                status={"conditions": [{"type": "Available", "status": "False", "message": "x509"}]},
            )),
            ("", "api-services", ("APIService v1alpha1.stats.antrea.io is not available: x509; its caBundle is not the certificate "
             "authority in ConfigMap antrea-ca"), "kubectl -n kube-system rollout restart deployment/antrea-controller"),
        ),
        (
            lambda: changed(healthy(), "api_services", lambda items: items.pop(0)),
            ("", "api-services", "APIService v1alpha1.stats.antrea.io is missing: kubectl and antctl cannot read that API", CREATE),
        ),
        (
            lambda: changed(healthy(), "webhooks", lambda items: items.pop("crdvalidator.antrea.io")),
            ("", "webhooks", "webhook configuration crdvalidator.antrea.io is missing: objects of crd.antrea.io are stored without being checked", CREATE),
        ),
        (
            lambda: changed(healthy(), "webhooks", lambda items: items["crdvalidator.antrea.io"]["webhooks"][0].update(
                clientConfig={"caBundle": encoded(OTHER.certificate_pem)}
            )),
            ("", "webhooks", ("webhook configuration crdvalidator.antrea.io: 1 webhooks, such as w, have another certificate authority "
             "than ConfigMap antrea-ca: their calls fail"), "kubectl -n kube-system rollout restart deployment/antrea-controller"),
        ),
        (
            lambda: changed(healthy(), "agent_infos", lambda items: [
                row.update(lastHeartbeatTime=at(228), status="False", message="x") for row in items[1]["agentConditions"]
            ]),
            ("n2", "heartbeats", "the agent has not reported for 228 s: its conditions are as old",
             "kubectl -n kube-system logs a-2 -c antrea-agent --tail=20"),
        ),
        (
            lambda: changed(healthy(), "agent_infos", lambda items: items[1]["agentConditions"][2].update(
                status="False", message="no answer of ovs-vswitchd"
            )),
            ("n2", "switch", "no answer of ovs-vswitchd", "kubectl -n kube-system delete pod a-2"),
        ),
        (
            lambda: healthy()._replace(certificate=OTHER.certificate_pem),
            ("", "certificates", "the certificate in Secret antrea-controller-tls was not issued by the authority in ConfigMap antrea-ca",
             "kubectl -n kube-system delete secret antrea-controller-tls"),
        ),
        (
            lambda: healthy()._replace(config={}),
            ("", "config-map", "ConfigMap antrea-config is missing: Pods of the controller and of agents cannot start", CREATE),
        ),
        (
            lambda: changed(healthy(), "controller_info", lambda item: item["controllerConditions"][0].update(
                status="False", message="the right to read pods is missing"
            )),
            ("n1", "controller-health", "the right to read pods is missing",
             "kubectl auth reconcile -f antrea.yml  # of this release; it adds rights that are missing"),
        ),
        (
            lambda: changed(healthy(), "agent_infos", lambda items: items[1]["agentConditions"][0].update(
                status="False", message="the right to read pods is missing"
            )),
            ("n2", "agent-health", "the right to read pods is missing",
             "kubectl auth reconcile -f antrea.yml  # of this release; it adds rights that are missing"),
        ),
        (
            lambda: changed(healthy(), "agent_infos", lambda items: items[1].update(version="v0")),
            ("", "versions", "agents of Node n2 run v0, the controller v1", "kubectl -n kube-system rollout restart daemonset/antrea-agent"),
        ),
    ],
)  # fmt: skip
def test_a_fault_is_found_by_its_cause(
    state: Callable[[], ClusterState], row: tuple[str, str, str, str]
) -> None:
    assert rows(state()) == [row]


@pytest.mark.parametrize(
    ("days", "severity", "says"), [(366, "error", "has expired on"), (355, "warning", "expires in"), (-1, "error", "is not valid before")]
)  # fmt: skip
def test_the_term_of_every_certificate_is_checked(days: float, severity: str, says: str) -> None:
    infos = [{**info("n1"), "apiCABundle": encoded(MADE.certificate_pem)}]
    later = healthy()._replace(now=NOW + days * 86400, agent_infos=infos)
    found = [row for row in findings(later) if row.check == "certificates"]
    assert [(row.node, row.severity, says in row.finding) for row in found] == [
        ("", severity, True), ("", severity, True), ("n1", severity, True),
    ]  # fmt: skip
    assert found[0].repair == "kubectl -n kube-system delete secret antrea-controller-tls"
    provided = later._replace(config={"antrea-controller.conf": "selfSignedCert: false"})
    assert "--from-file=tls.crt" in next(row for row in findings(provided)).repair


def test_a_report_that_is_late_does_not_count_but_that_it_is_late() -> None:
    state = changed(
        healthy(),
        "controller_info",
        lambda item: item["controllerConditions"][0].update(lastHeartbeatTime=at(228)),
    )
    assert [row[1:3] for row in rows(state)] == [
        ("controller-heartbeat", "the controller has not reported for 228 s")
    ]


@pytest.mark.parametrize("field", ClusterState._fields)
def test_a_field_that_cannot_be_read_is_an_error_of_each_check_that_needs_it(field: str) -> None:
    users = [name for name, (_, fields) in CHECKS.items() if field in fields]
    if field in ("namespace", "log_lines", "refusals", "config_owner", "aggregator_config", "unseen"):
        assert users == []
        return
    changes: dict[str, Any] = {field: None, "unseen": {field: "forbidden"}}
    state = healthy()._replace(**changes)
    assert users
    assert [(row.check, row.severity, row.finding) for row in findings(state)] == [
        (name, "error", "cannot be checked: forbidden") for name in users
    ]


def release(files: dict[str, str]) -> dict[str, Any]:
    """The Secret in which Helm 3 keeps a release."""
    item = {"kind": "ConfigMap", "metadata": {"name": "antrea-config"}, "data": files}
    manifest = f"---\nkind: Service\n---\n# kind: ConfigMap, name: antrea-config\n{json.dumps(item)}"
    packed = gzip.compress(json.dumps({"manifest": manifest}).encode())
    data = base64.b64encode(base64.b64encode(packed)).decode()
    return {"metadata": {"name": "r", "labels": {"name": "net", "version": "3"}}, "data": {"release": data}}


def test_a_live_configuration_that_differs_from_the_rendered_one_is_named_by_its_keys() -> None:
    state = healthy()._replace(releases=[release({"antrea-agent.conf": "a: 1\nb: {c: 2}"})])
    (row,) = findings(state)
    assert (row.severity, row.check) == ("warning", "release")
    assert row.finding.endswith(
        "Helm release net (revision 3) rendered, which the next upgrade puts back: b.c (null, rendered 2)"
    )
    same = state._replace(config={"antrea-agent.conf": "b: {c: 2}\na: 1"})
    assert findings(same) == []
    # what is missing comes back by the release
    assert rows(same._replace(deployments=[]))[0][3] == "helm -n kube-system rollback net 3"


@pytest.mark.parametrize(
    ("gate", "served", "missing"),
    [
        ("ClusterNetworkPolicy", (), "v1alpha2/clusternetworkpolicies"),
        ("AdminNetworkPolicy", ("v1alpha1/adminnetworkpolicies",), "v1alpha1/baselineadminnetworkpolicies"),
        ("ClusterNetworkPolicy", ("v1alpha2/clusternetworkpolicies",), ""),
        ("Egress", (), ""),
    ],
)
def test_kinds_of_the_policy_api_are_missed_while_their_gate_is_on(
    gate: str, served: tuple[str, ...], missing: str
) -> None:
    config = {"antrea-controller.conf": f"featureGates: {{{gate}: true}}"}
    found = rows(healthy()._replace(config=config, policy_resources=frozenset(served)))
    text = (
        f"kube-apiserver does not serve {missing} of policy.networking.k8s.io, whose feature gate is on: the "
        "CustomResourceDefinition is missing or of another release"
    )
    repair = CREATE.replace("antrea.yml", "network-policy-api-crds.yml")
    assert found == ([("", "policy-definitions", text, repair)] if missing else [])


@pytest.mark.parametrize("packed", [b"", gzip.compress(b"{}", mtime=0)], ids=["no-gzip", "no-manifest"])
def test_a_release_that_cannot_be_decoded_is_not_taken_for_none(packed: bytes) -> None:
    data = base64.b64encode(base64.b64encode(packed)).decode()
    damaged = {"metadata": {"name": "r", "labels": {"name": "net"}}, "data": {"release": data}}
    (row,) = findings(healthy()._replace(releases=[damaged]))
    assert (row.severity, row.check) == ("warning", "release")
    assert row.finding.startswith(
        "Secret r of Helm release net cannot be decoded, so that ConfigMap antrea-config"
    )
    assert row.repair.startswith("helm -n kube-system status net")


@pytest.mark.parametrize(
    ("owner", "repair"),
    [
        (ConfigOwner("Helm release", "net"), "helm -n kube-system upgrade net CHART --reuse-values -f VALUES  # set defaultMTU"),
        (ConfigOwner("Flux HelmRelease", "net"), "# commit VALUES to the source of Flux HelmRelease net  # set defaultMTU"),
        (None, f"{EDIT}  # set defaultMTU"),
    ],
)  # fmt: skip
def test_a_configuration_is_repaired_where_it_is_written(owner: ConfigOwner | None, repair: str) -> None:
    row = Finding("n1", "error", "mtu", "too large", f"{EDIT}  # set defaultMTU")
    other = row._replace(repair="modprobe tun")
    state = healthy()._replace(config_owner=owner)
    assert [at_owner(state, one).repair for one in (row, other)] == [repair, "modprobe tun"]


def test_a_port_that_kube_apiserver_gets_no_answer_from_is_named_with_its_node() -> None:
    message = "failing or missing response from https://192.0.2.1:10349: context deadline exceeded"
    state = changed(
        healthy(),
        "api_services",
        lambda items: items[0]["status"].update(
            conditions=[{"type": "Available", "status": "False", "message": message}]
        ),
    )
    first, second = findings(state)
    assert (first.node, first.check, first.repair) == (
        "n1", "controller-port", "iptables -I INPUT -p tcp --dport 10349 -j ACCEPT",
    )  # fmt: skip
    assert second.check == "api-services"


def test_differences_of_a_file_that_is_not_yaml_are_the_cause() -> None:
    assert differences("a: 1", "a: {") != []


def with_switch_down() -> ClusterState:
    def change(infos: Any) -> None:
        infos[0]["agentConditions"][2].update(status="False", message="disconnected")

    return changed(healthy(), "agent_infos", change)


@pytest.mark.parametrize(
    ("looks", "pauses", "found"),
    [
        ([healthy()], 0, []),
        ([with_switch_down(), with_switch_down(), healthy()], 2, []),
        ([with_switch_down()] * MAX_LOOKS, MAX_LOOKS - 1, ["switch"]),
    ],
    ids=["healthy", "an agent that is rebuilt", "a switch that is down"],
)
def test_a_connection_that_is_up_a_moment_later_is_no_finding(
    looks: list[ClusterState], pauses: int, found: list[str]
) -> None:
    (first, *rest), paused = looks, list[float]()
    state = confirmed(first, lambda _: rest.pop(0), paused.append)
    assert [row.check for row in findings(state)] == found
    assert paused == [LOOK_INTERVAL] * pauses
    assert not rest


@pytest.mark.parametrize("known_by", ["api", "report", "name"])
def test_pods_of_other_namespaces_with_the_labels_of_agents_are_not_agents(known_by: str) -> None:
    foreign = [
        item | {"metadata": item["metadata"] | {"namespace": "a-tenant"}}
        for item in (pod("a-0", "n1"), owner("antrea-agent"))
    ]
    service = {"spec": {"service": {"namespace": "kube-system"}}}
    lists = {
        "daemon_sets": [owner("antrea-agent")] if known_by == "name" else [foreign[1], owner("antrea-agent")],
        "deployments": [owner("flow-aggregator") | {"metadata": {"name": "flow-aggregator", "namespace": where}} for where in ("a-tenant", "flow-aggregator")],
        "pods": [foreign[0], pod("a-1", "n1")],
        "api_services": [service] if known_by == "api" else None,
        "controller_info": {"podRef": {"namespace": "kube-system"}} if known_by == "report" else None,
    }  # fmt: skip
    assert antrea_namespace(lists) == "kube-system"
    own = own_programs(lists, "kube-system")
    assert own["daemon_sets"] == [owner("antrea-agent")]
    assert own["pods"] == [pod("a-1", "n1")]
    assert [item["metadata"]["namespace"] for item in own["deployments"]] == ["flow-aggregator"]
    assert own["api_services"] == lists["api_services"]
