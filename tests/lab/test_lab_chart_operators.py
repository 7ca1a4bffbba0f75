"""Values of the Helm chart for operators: labels, annotations, Secrets of registries, priority, disruption, monitoring."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from prometheus_rules import DASHBOARDS, RULES
from rendered_chart import objects, template

from antrea.outside.kube import ca_publisher

WORKLOADS = {
    "agent": ("DaemonSet", "antrea-agent"),
    "controller": ("Deployment", "antrea-controller"),
    "flowAggregator": ("Deployment", "flow-aggregator"),
}
"""Workloads by the section of the values that is about them."""
ALL: dict[str, Any] = {
    "flowVisibility": {"enable": True},
    "serviceMonitor": {"enable": True},
    "prometheusRule": {"enable": True},
    "grafanaDashboards": {"enable": True},
    "controller": {"podDisruptionBudget": {"enable": True}},
}


def pod(found: dict[tuple[str, str], dict[str, Any]], section: str) -> dict[str, Any]:
    made: dict[str, Any] = found[WORKLOADS[section]]["spec"]["template"]
    return made


def test_common_labels_are_on_all_objects_and_pods_and_in_no_selector() -> None:
    storage = {"flowVisibility": {"enable": True, "storage": {"size": "1Gi"}}}
    found = objects({**ALL, **storage, "commonLabels": {"team": "net"}})
    assert [
        name for name, one in found.items()
        if one["metadata"].get("labels", {}).get("team") != "net"
    ] == []  # fmt: skip
    for section, name in WORKLOADS.items():
        assert pod(found, section)["metadata"]["labels"]["team"] == "net"
        assert "team" not in found[name]["spec"]["selector"]["matchLabels"]
    assert '"team"' not in str([one["spec"] for (kind, _), one in found.items() if kind == "Service"])


def test_a_label_of_pods_is_preferred_to_a_common_one() -> None:
    values = {section: {"podLabels": {"team": section}} for section in WORKLOADS}
    found = objects({**ALL, **values, "commonLabels": {"team": "net"}})
    for section, name in WORKLOADS.items():
        assert pod(found, section)["metadata"]["labels"]["team"] == section
        assert found[name]["metadata"]["labels"]["team"] == "net"


def test_annotations_are_on_the_workload_or_on_its_pods() -> None:
    own = {"annotations": {"a": "workload"}, "podAnnotations": {"a": "pod"}, "priorityClassName": "mine"}
    found = objects({**dict.fromkeys(WORKLOADS, own), "flowVisibility": {"enable": True}})
    for section, name in WORKLOADS.items():
        assert found[name]["metadata"]["annotations"] == {"a": "workload"}
        assert pod(found, section)["metadata"]["annotations"]["a"] == "pod"
        assert pod(found, section)["spec"]["priorityClassName"] == "mine"


def test_secrets_of_the_registry_are_those_of_every_pod() -> None:
    secrets = [{"name": "one"}, {"name": "two"}]
    found, without = objects({**ALL, "imagePullSecrets": secrets}), objects(ALL)
    for section in WORKLOADS:
        assert pod(found, section)["spec"]["imagePullSecrets"] == secrets
        assert "imagePullSecrets" not in pod(without, section)["spec"]


@pytest.mark.parametrize(
    ("budget", "replicas", "spec"),
    [
        ({}, 1, None),
        ({}, 3, {"maxUnavailable": 1}),
        ({"enable": False}, 3, None),
        ({"enable": True}, 1, {"maxUnavailable": 1}),
        ({"enable": True, "maxUnavailable": "50%"}, 1, {"maxUnavailable": "50%"}),
        ({"minAvailable": 2}, 3, {"minAvailable": 2}),
        ({"maxUnavailable": 0}, 3, {"maxUnavailable": 0}),
    ],
)
@pytest.mark.parametrize("section", ["controller", "flowAggregator"])
def test_evictions_take_as_many_pods_as_the_values_say(
    section: str, budget: dict[str, Any], replicas: int, spec: dict[str, Any] | None
) -> None:
    kind, name = WORKLOADS[section]
    values: dict[str, Any] = {"replicas": replicas, "podDisruptionBudget": budget}
    if section == "flowAggregator":
        values |= {"enable": True, "config": {"mode": "Proxy", "flowLogger": {"enable": False}}}
    found = objects({section: values})
    made = found.get(("PodDisruptionBudget", name))
    selector = {"selector": found[kind, name]["spec"]["selector"]}
    assert (made and made["spec"]) == (spec and spec | selector)


def test_service_monitors_find_every_program_that_serves_metrics() -> None:
    found = objects({
        **ALL,
        "serviceMonitor": {
            "enable": True, "interval": "15s", "labels": {"release": "prometheus"},
            "serviceAccount": {"name": "prometheus", "namespace": "monitoring"},
        },
    })  # fmt: skip
    for name in ("antrea-agent", "antrea-controller", "flow-aggregator"):
        monitor, service = found["ServiceMonitor", name], found["Service", f"{name}-metrics"]
        [workload] = [one for (kind, of), one in found.items() if of == name and kind in ("DaemonSet", "Deployment")]  # fmt: skip
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        matching = {of for (kind, of), one in found.items() if kind == "Service" and wanted <= one["metadata"]["labels"].items()}  # fmt: skip
        assert matching == {f"{name}-metrics"}
        assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"]
        assert {one["metadata"]["namespace"] for one in (monitor, service, workload)} == {
            workload["metadata"]["namespace"]
        }
        ports = workload["spec"]["template"]["spec"]["containers"][0]["ports"]
        [port] = service["spec"]["ports"]
        [endpoint] = monitor["spec"]["endpoints"]
        assert port["targetPort"] in {one["name"] for one in ports}
        assert (endpoint["port"], endpoint["scheme"], endpoint["interval"]) == (port["name"], "https", "15s")
    [endpoint] = found["ServiceMonitor", "antrea-controller"]["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {
        "serverName": "antrea.kube-system.svc",
        "ca": {"configMap": {"name": ca_publisher.CONFIG_MAP, "key": ca_publisher.KEY}},
    }
    assert found["ClusterRole", "antrea-metrics"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]  # fmt: skip
    assert found["ClusterRoleBinding", "antrea-metrics"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}
    ]


def test_there_are_service_monitors_only_where_they_are_asked_for_and_of_programs_with_metrics() -> None:
    assert [one for one in objects({}) if one[0] == "ServiceMonitor"] == []
    found = objects({"serviceMonitor": {"enable": True}, "agent": {"enablePrometheusMetrics": False}})
    assert [one for one in found if one[0] == "ServiceMonitor"] == [("ServiceMonitor", "antrea-controller")]
    assert ("ClusterRole", "antrea-metrics") not in found


def test_alerts_and_dashboards_are_objects_where_they_are_asked_for() -> None:
    rule, dashboards = ("PrometheusRule", "antrea"), ("ConfigMap", "antrea-dashboards")
    assert not {rule, dashboards} & objects({}).keys()
    labels = {"release": "prometheus"}
    found = objects(
        {"prometheusRule": {"enable": True, "labels": labels}, "grafanaDashboards": {"enable": True}}
    )
    assert found[rule]["spec"] == yaml.safe_load(RULES.read_text())
    assert found[rule]["metadata"]["labels"] == {"app": "antrea", **labels}
    assert found[dashboards]["metadata"]["labels"] == {"app": "antrea", "grafana_dashboard": "1"}
    files = {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}
    assert found[dashboards]["data"] == files


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"imagePullSecrets": ["registry"]}, "at '/imagePullSecrets/0': got string, want object"),
        ({"commonLabels": {"app": "mine"}}, "at '/commonLabels/app'"),
        ({"agent": {"podLabels": {"component": "mine"}}}, "at '/agent/podLabels/component'"),
        ({"controller": {"annotations": {"a": 1}}}, "at '/controller/annotations/a'"),
        ({"controller": {"podDisruptionBudget": {"maxUnavailable": "half"}}}, "/podDisruptionBudget/maxUnavailable"),
        ({"serviceMonitor": {"enabled": True}}, "'enabled' not allowed"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], says: str) -> None:
    done = template(values)
    assert (done.returncode != 0, says in done.stderr) == (True, True), done.stderr
