"""The Helm chart: the manifest is made of it, Helm installs, changes and removes it in a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from build_program import load_build_program

from antrea import IMAGE, VERSION
from antrea.antctl.doctor.rights import RULES
from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.flow_aggregator.destination import COLLECTOR_FILES
from lab import artifacts, cluster, upstream_e2e_flows
from lab import control_plane as plane

if TYPE_CHECKING:
    from lab.cluster import Lab

ROOT = Path(__file__).parents[2]
CHART = ROOT / "build/charts/antrea"
CHART_RIGHTS = load_build_program("chart_rights")


@pytest.fixture(scope="session")
def helm() -> Path:
    return artifacts.helm(print)


def call(helm: Path, *words: str, lab: Lab | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(helm), *words]
    if lab:
        command = cluster.enter(lab, "control", [*command, "--kubeconfig", str(plane.kubeconfig(lab.record))])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "HELM_DRIVER": "secret"},
    )


def rendered(helm: Path, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = call(helm, "template", "antrea", str(CHART), "--namespace", "kube-system", *words)
    assert done.returncode == 0, done.stderr
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(done.stdout) if o}


def test_the_chart_passes_helms_lint(helm: Path) -> None:
    done = call(helm, "lint", "--strict", str(CHART))
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout + done.stderr


def images(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, set[str]]:
    """Of DaemonSet and Deployment."""
    return {
        kind: {
            one["image"]
            for part in ("containers", "initContainers")
            for one in found["spec"]["template"]["spec"].get(part, ())
        }
        for (kind, _), found in objects.items()
        if kind in ("DaemonSet", "Deployment")
    }


def test_one_value_names_the_image_and_others_that_of_one_program(helm: Path) -> None:
    ours = f"{IMAGE}:v{VERSION}"
    assert images(rendered(helm)) == {"DaemonSet": {ours}, "Deployment": {ours}}
    elsewhere = "image.repository=registry.example.com/team/antrea"
    moved = f"registry.example.com/team/antrea:v{VERSION}"
    assert images(rendered(helm, "--set", elsewhere)) == {"DaemonSet": {moved}, "Deployment": {moved}}
    alone = images(rendered(helm, "--set", f"{elsewhere},agentImage.tag=mine"))
    assert alone == {"DaemonSet": {"registry.example.com/team/antrea:mine"}, "Deployment": {moved}}


def test_the_manifest_is_what_the_chart_renders_after_its_definitions(helm: Path) -> None:
    text = (ROOT / "build/yamls/antrea.yml").read_text()
    assert {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text) if o} == rendered(
        helm, "--include-crds"
    ), "run `make manifests`"


def test_the_rights_that_the_doctor_asks_for_are_those_that_values_add(helm: Path) -> None:
    variants = {
        values: rendered(helm, *(("--set", values) if values else ())) for values in CHART_RIGHTS.VALUES
    }
    assert RULES.read_text() == CHART_RIGHTS.rights(variants), "run `make manifests`"


def test_values_reach_the_configuration_and_the_pods(helm: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        json.dumps(
            {
                "image": {"repository": "example/antrea", "tag": "v9"},
                "ovs": {"bridgeName": "br-x", "datapathType": "netdev"},
                "featureGates": {"Egress": True},
                "egress": {"exceptCIDRs": ["10.0.0.0/8"], "snatFullyRandomPorts": True},
                "logVerbosity": 4,
                "cni": {"plugins": {"portmap": False}, "skipBinaries": ["bandwidth", "portmap"]},
                "agent": {
                    "apiPort": 20350,
                    "dontLoadKernelModules": True,
                    "antreaAgent": {"extraEnv": {"A": "b"}},
                },
            }
        )
    )
    objects = rendered(helm, "--values", str(values))
    data = objects["ConfigMap", "antrea-config"]["data"]
    agent = parse(AgentConfig, data["antrea-agent.conf"])
    pod = objects["DaemonSet", "antrea-agent"]["spec"]["template"]["spec"]
    install, program = pod["initContainers"][0], pod["containers"][0]

    assert (agent.unknown, agent.config.ovs_bridge, agent.config.api_port) == ((), "br-x", 20350)
    assert agent.config.feature_gates == {"Egress": True}
    assert (agent.config.egress.except_cidrs, agent.config.egress.snat_fully_random_ports) == (
        ("10.0.0.0/8",),
        True,
    )
    assert [p["type"] for p in json.loads(data["antrea-cni.conflist"])["plugins"]] == ["antrea", "bandwidth"]
    assert {c["image"] for c in [install, *pod["containers"]]} == {"example/antrea:v9"}
    assert {"name": "A", "value": "b"} in program["env"]
    assert program["ports"][0]["containerPort"] == 20350
    assert "--v=4" in program["args"]
    assert {"name": "SKIP_CNI_BINARIES", "value": "bandwidth,portmap"} in install["env"]
    assert "host-lib-modules" not in {v["name"] for v in pod["volumes"]}


def test_one_value_exports_joins_and_stores_connections(helm: Path) -> None:
    """Where there is a ClickHouse server, records go there and the image is the one of all programs."""
    sized = ("--set", "flowVisibility.storage.size=20Gi")
    for server in (False, True):
        own = "flowVisibility.enable=true" + server * ",flowAggregator.config.clickHouse.enable=true"
        objects = rendered(helm, "--set", own, *sized)
        agent = yaml.safe_load(objects["ConfigMap", "antrea-config"]["data"]["antrea-agent.conf"])
        assert (agent["featureGates"]["FlowExporter"], agent["flowExporter"]["enable"]) == (True, True)
        conf = objects["ConfigMap", "flow-aggregator-configmap"]["data"]["flow-aggregator.conf"]
        stores = yaml.safe_load(conf)
        assert (stores.get("store", {}).get("enable", False), "clickHouse" in stores) == (not server, server)
        assert stores["recordContents"] == {"podNames": True}
        assert (("PersistentVolumeClaim", "flow-aggregator-store") in objects) != server
        pod = objects["Deployment", "flow-aggregator"]["spec"]["template"]["spec"]
        suffix = "" if server else "-flow-aggregator"
        assert pod["containers"][0]["image"] == f"{IMAGE}{suffix}:v{VERSION}"
        assert any(one["name"] == "store" for one in pod["volumes"]) != server


def test_pods_of_other_ends_are_not_named_where_somebody_said_so(helm: Path) -> None:
    own = "flowVisibility.enable=true,flowAggregator.config.recordContents.podNames=false,flowAggregator.config.recordContents.requests=true"
    conf = rendered(helm, "--set", own)["ConfigMap", "flow-aggregator-configmap"]["data"]
    contents = yaml.safe_load(conf["flow-aggregator.conf"])["recordContents"]
    assert contents == {"podNames": False, "requests": True}


def test_a_flow_collector_over_tls_has_its_secrets_as_files_and_uids_their_rights(helm: Path) -> None:
    to = "flowAggregator.config.flowCollector"
    tls = f"{to}.tls.caSecretName=siem-ca,{to}.tls.clientSecretName=siem-client"
    found = rendered(
        helm, "--set", f"flowAggregator.enable=true,{to}.enable=true,{to}.includeK8sUIDs=true,{tls}"
    )
    pod = found["Deployment", "flow-aggregator"]["spec"]["template"]["spec"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "flow-collector-certs"]
    secrets = [one["secret"] for one in volume["projected"]["sources"]]
    assert [(one["name"], [item["path"] for item in one["items"]]) for one in secrets] == [
        ("siem-ca", ["ca.crt"]), ("siem-client", ["tls.crt", "tls.key"]),
    ]  # fmt: skip
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["flow-collector-certs"] == str(COLLECTOR_FILES)
    [rule] = found["ClusterRole", "flow-aggregator-role"]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods", "nodes", "services"], ["list", "watch"])
    plain = rendered(helm, "--set", f"flowAggregator.enable=true,{to}.enable=true")
    assert "flow-collector-certs" not in str(plain["Deployment", "flow-aggregator"])
    events = [one for one in found["Role", "flow-aggregator-role"]["rules"] if one["resources"] == ["events"]]
    assert [one["verbs"] for one in events] == [["create"]]


def test_destinations_that_change_leave_the_flow_aggregators_pod(helm: Path) -> None:
    """It follows its ConfigMap; what else changes may take another Pod."""
    kinds = ("Deployment", "flow-aggregator"), ("ConfigMap", "flow-aggregator-configmap")
    on = "flowAggregator.enable=true"
    pods, texts = zip(*(
        [str(rendered(helm, "--set", f"{on}{more}")[kind]) for kind in kinds]
        for more in ("", ",flowAggregator.config.clickHouse.enable=true", ",flowAggregator.config.flowLogger.path=/tmp/other")
    ), strict=True)  # fmt: skip
    assert len({*texts}) == 3
    assert len({*pods}) == 1


def test_the_flow_aggregators_configmap_is_found_and_changed_as_upstreams_is(helm: Path) -> None:
    """A change of the ConfigMap turns on labels of Pods or mode Proxy, which read Pods; clusterId is read in any case."""
    objects = rendered(
        helm, "--set", "flowAggregator.enable=true,flowAggregator.config.flowLogger.enable=false"
    )
    pod = objects["Deployment", "flow-aggregator"]["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "flow-aggregator-config")
    assert "flow-aggregator.conf" in objects["ConfigMap", volume["configMap"]["name"]]["data"]
    (rule,) = objects["ClusterRole", "flow-aggregator-role"]["rules"]
    assert "pods" in rule["resources"]
    assert rule["verbs"] == ["list", "watch"]
    for name in ("flow-aggregator-cluster-role-binding", "flow-aggregator-cluster-id-reader"):
        (to,) = objects["ClusterRoleBinding", name]["subjects"]
        assert (to["name"], to["namespace"]) == ("flow-aggregator", "flow-aggregator")


def test_upstreams_flow_visibility_tests_find_the_names_that_they_look_for(helm: Path) -> None:
    assert helm.exists()
    made = {
        name: {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
        for name, text in upstream_e2e_flows.manifests("node-1", "store").items()
    }
    config = made["flow-aggregator.yml"]["ConfigMap", "flow-aggregator-configmap"]["data"][
        "flow-aggregator.conf"
    ]
    assert not yaml.safe_load(config)["flowLogger"]["enable"]
    for name in ("flow-aggregator-1", "flow-aggregator-2"):
        other = made[f"{name}.yml"]
        assert ("Namespace", name) in other
        assert other["Deployment", "flow-aggregator"]["metadata"]["namespace"] == name
        binding = other["ClusterRoleBinding", f"{name}-flow-aggregator-cluster-role-binding"]
        assert binding["subjects"][0]["namespace"] == name
        assert ("ClusterRole", binding["roleRef"]["name"]) in other
    assert made["clickhouse-operator-install-bundle.yml"].keys() == {
        ("ServiceAccount", "clickhouse-operator")
    }
    for name in ("flow-visibility.yml", "flow-visibility-tls.yml"):
        pod = made[name]["Pod", "chi-clickhouse-clickhouse-0-0-0"]
        (container,) = pod["spec"]["containers"]
        assert (pod["spec"]["nodeName"], container["name"], container["image"]) == (
            "node-1",
            "clickhouse",
            "store",
        )
        service = made[name]["Service", "clickhouse-clickhouse"]
        assert [port["port"] for port in service["spec"]["ports"]] == [8123, 8443]
        assert made[name]["Secret", "clickhouse-ca"]["data"].keys() == {"ca.crt"}
        assert {one["metadata"]["namespace"] for one in made[name].values()} == {"flow-visibility"}


def test_dashboards_are_there_when_they_are_asked_for(helm: Path) -> None:
    name = ("ConfigMap", "flow-aggregator-dashboards")
    own = "flowVisibility.enable=true,flowAggregator.config.clickHouse.enable=true"
    assert name not in rendered(helm, "--set", own)
    found = rendered(helm, "--set", f"{own},flowAggregator.grafanaDashboards=true")[name]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert yaml.safe_load(found["data"]["flows.json"])["uid"] == "antrea-flows"


def test_more_controllers_than_one_elect_a_leader_and_are_kept_apart(helm: Path) -> None:
    alone = rendered(helm)
    many = rendered(helm, "--set", "controller.replicas=3", "--set", "controller.affinity.nodeAffinity.a=b")
    one, three = (objects["Deployment", "antrea-controller"]["spec"] for objects in (alone, many))
    assert (one["replicas"], one["strategy"]) == (1, {"type": "Recreate"})
    assert (three["replicas"], three["strategy"]) == (
        3,
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    )
    words = [objects["template"]["spec"]["containers"][0]["args"] for objects in (one, three)]
    assert ["--leader-elect" in args for args in words] == [False, True]
    affinity = three["template"]["spec"]["affinity"]
    assert affinity["nodeAffinity"] == {"a": "b"}
    (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"] == three["selector"]
    budget = many["PodDisruptionBudget", "antrea-controller"]["spec"]
    assert budget == {"maxUnavailable": 1, "selector": three["selector"]}
    assert many.keys() - alone.keys() == {("PodDisruptionBudget", "antrea-controller")}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("featureGates.Egres=true", "'Egres' not allowed"),
        ("trafficEncapMode=networkPolicyOnly,trafficEncryptionMode=ipsec", "trafficEncryptionMode:"),
        ("flowVisibility.enable=true,featureGates.FlowExporter=false", "featureGates.FlowExporter: is false"),
        ("flowVisibility.enable=true,flowAggregator.config.mode=Proxy", "flowAggregator.config"),
    ],
)
def test_values_that_cannot_work_stop_the_installation(helm: Path, value: str, says: str) -> None:
    done = call(helm, "template", "antrea", str(CHART), "--set", value)
    assert done.returncode != 0
    assert says in done.stderr


DEFINITIONS = [
    f"{plural}.policy.networking.k8s.io"
    for plural in ("adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies")
]
BASELINE = """
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec: {subject: {namespaces: {}}}
"""


def test_definitions_of_the_policy_api_are_rendered_on_request_alone(helm: Path) -> None:
    assert {name for kind, name in rendered(helm, "--include-crds") if kind == "CustomResourceDefinition"} & {
        *DEFINITIONS
    } == set()
    asked = rendered(helm, "--set", "networkPolicyAPI.crds=true")
    made = [item for (kind, _), item in asked.items() if kind == "CustomResourceDefinition"]
    assert [item["metadata"]["name"] for item in made] == DEFINITIONS
    assert {item["metadata"]["annotations"]["helm.sh/resource-policy"] for item in made} == {"keep"}
    assert all("api-approved.kubernetes.io" in item["metadata"]["annotations"] for item in made)


def test_definitions_of_the_policy_api_are_added_where_they_lack_and_never_replaced_or_deleted(
    helm: Path, empty_plane: Lab
) -> None:
    """A newer copy of another program stays as it is, and so do policies of those that the release has added."""
    kubectl, release = empty_plane.api.kubectl, ("antrea", "--namespace", "helm-test")
    own, *_ = DEFINITIONS

    def versions() -> dict[str, str]:
        listed = json.loads(kubectl("get", "crd", "-o", "json"))["items"]
        return {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in listed
            if item["spec"]["group"] == "policy.networking.k8s.io"
        }

    kubectl("delete", "crd", "--ignore-not-found", *DEFINITIONS)
    (newer,) = (
        item
        for item in yaml.safe_load_all((ROOT / "build/yamls/network-policy-api-crds.yml").read_text())
        if item["metadata"]["name"] == own
    )
    newer["metadata"]["annotations"]["policy.networking.k8s.io/bundle-version"] = "v9.0.0"
    empty_plane.api.apply(yaml.safe_dump(newer))
    kubectl("wait", "--for=condition=Established", "crd", own)
    before = versions()
    value = ("--set", "networkPolicyAPI.crds=true")
    installed = call(helm, "install", *release, str(CHART), "--create-namespace", *value, lab=empty_plane)
    assert installed.returncode == 0, installed.stderr
    try:
        kubectl("wait", "--for=condition=Established", "crd", *DEFINITIONS)
        added = versions()
        assert (sorted(added), added[own]) == (DEFINITIONS, before[own])
        kubectl("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "-l", "app=antrea")
        empty_plane.api.apply(BASELINE)
        uid = kubectl("get", "banp", "default", "-o", "jsonpath={.metadata.uid}")
        for values in (value, ("--set", "defaultMTU=1300"), ("--set", "networkPolicyAPI.crds=false")):
            upgraded = call(helm, "upgrade", *release, str(CHART), *values, lab=empty_plane)
            assert upgraded.returncode == 0, upgraded.stderr
            assert versions() == added
    finally:
        removed = call(helm, "uninstall", *release, "--wait", lab=empty_plane)
    assert removed.returncode == 0, removed.stderr
    assert versions() == added
    assert kubectl("get", "banp", "default", "-o", "jsonpath={.metadata.uid}") == uid
    create = empty_plane.api.command(["create", "-f", str(ROOT / "build/yamls/network-policy-api-crds.yml")])
    again = subprocess.run(create, capture_output=True, text=True, check=False, timeout=60)
    assert again.stderr.count("AlreadyExists") == len(DEFINITIONS)
    assert versions() == added
    kubectl("delete", "crd", *DEFINITIONS)


def test_helm_installs_upgrades_and_removes_the_chart(helm: Path, empty_plane: Lab) -> None:
    release = ("antrea", "--namespace", "helm-test")
    installed = call(helm, "install", *release, str(CHART), "--create-namespace", lab=empty_plane)
    assert installed.returncode == 0, installed.stderr
    try:
        assert "daemonset/antrea-agent" in installed.stdout
        assert "antctl status --wait" in installed.stdout
        objects = empty_plane.api.kubectl(
            "-n", "helm-test", "get", "cm,ds,deploy,svc", "-l", "app=antrea", "-o", "name"
        )
        assert sorted(objects.split()) == [
            "configmap/antrea-config",
            "daemonset.apps/antrea-agent",
            "deployment.apps/antrea-controller",
            "service/antrea",
        ]
        upgraded = call(helm, "upgrade", *release, str(CHART), "--set", "defaultMTU=1300", lab=empty_plane)
        assert upgraded.returncode == 0, upgraded.stderr
        config = empty_plane.api.kubectl("-n", "helm-test", "get", "cm", "antrea-config", "-o", "yaml")
        assert "defaultMTU: 1300" in config
    finally:
        removed = call(helm, "uninstall", *release, "--wait", lab=empty_plane)
    assert removed.returncode == 0, removed.stderr
    assert (
        empty_plane.api.kubectl("get", "clusterrole,clusterrolebinding", "-l", "app=antrea", "-o", "name")
        == ""
    )
