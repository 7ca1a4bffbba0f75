"""build/yamls/antrea.yml says what the programs read, and nothing that they do not know."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_program import load_build_program

from antrea import IMAGE, VERSION
from antrea.antctl.doctor.rights import IN_USE
from antrea.antctl.explain.source import CONFIG_MAP
from antrea.antctl.remote import DAEMON_SETS
from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import parse
from antrea.explain.objects import KINDS as EXPLAINED
from antrea.features.framework.config_validation import accept_agent, accept_controller
from antrea.features.l7_flow_export.workload import WORKLOADS as WORKLOAD_KINDS
from antrea.features.network_policy.tier import DEFAULT_TIERS
from antrea.features.registry.api_resources import RESOURCES
from antrea.flow_aggregator import user_questions
from antrea.outside.kube.ca_publisher import KINDS

ROOT = Path(__file__).parents[2]
CHART = load_build_program("chart")
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    (item["kind"], item["metadata"]["name"]): item
    for item in yaml.load_all((ROOT / "build/yamls/antrea.yml").read_text(), yaml.CSafeLoader)
}
DATA: dict[str, str] = OBJECTS["ConfigMap", "antrea-config"]["data"]
WORKLOADS = [OBJECTS["Deployment", "antrea-controller"], OBJECTS["DaemonSet", "antrea-agent"]]
PODS: list[dict[str, Any]] = [item["spec"]["template"]["spec"] for item in WORKLOADS]
CONTAINERS: list[dict[str, Any]] = [
    container for pod in PODS for container in [*pod.get("initContainers", []), *pod["containers"]]
]


def roles_of(template: str) -> dict[str, dict[str, Any]]:
    """ClusterRoles of a template of the chart by their names; they have no values but common labels."""
    text = (ROOT / "build/charts/antrea/templates" / template).read_text()
    parts = text.replace(f"{CHART.COMMON_LABELS}\n", "").split("---\n")
    found = [yaml.safe_load(part) for part in parts if "kind: ClusterRole\nmetadata" in part]
    return {one["metadata"]["name"]: one for one in found}


def test_the_role_for_viewers_of_the_page_covers_what_each_view_reads_and_reads_alone() -> None:
    rules = roles_of("flow-aggregator/flow-aggregator.yaml")["antrea-flow-page-viewer"]["rules"]
    granted = {
        (group, resource, verb, *rule.get("resourceNames", ()))
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip
    paths = [kind.path for kind in EXPLAINED] + [user_questions.NODES, user_questions.AGENTS, DAEMON_SETS]
    read = {
        (path.split("/")[2] if path.startswith("/apis/") else "", path.split("/")[-1], "list")
        for path in paths
    }
    assert granted == {*read, ("flow.antrea.io", "flows", "list"), ("", "configmaps", "get", CONFIG_MAP)}
    bound = (ROOT / "lab/flow_visibility.yaml").read_text()
    assert "kind: ClusterRole, name: antrea-flow-page-viewer}" in bound


def test_the_manifests_objects_are_those_of_upstream_that_exist_here() -> None:
    found: dict[str, list[str]] = {}
    for kind, name in sorted(OBJECTS):
        found.setdefault(kind, []).append(name)
    definitions = found.pop("CustomResourceDefinition")
    # several programs install those of policy.networking.k8s.io, and kubectl delete -f would delete everybody's policies
    assert [name for name in definitions if not name.endswith(".crd.antrea.io")] == []
    assert len(definitions) == 20
    assert found == {
        "APIService": [
            "v1alpha1.stats.antrea.io",
            "v1beta1.system.antrea.io",
            "v1beta2.controlplane.antrea.io",
        ],
        "ClusterRole": [
            "aggregate-antrea-clustergroups-edit",
            "aggregate-antrea-clustergroups-view",
            "aggregate-antrea-policies-edit",
            "aggregate-antrea-policies-view",
            "aggregate-traceflows-edit",
            "aggregate-traceflows-view",
            "antctl",
            "antrea-agent",
            "antrea-cluster-identity-reader",
            "antrea-controller",
        ],
        "ClusterRoleBinding": ["antctl", "antrea-agent", "antrea-controller"],
        "ConfigMap": ["antrea-config"],
        "DaemonSet": ["antrea-agent"],
        "Deployment": ["antrea-controller"],
        "MutatingWebhookConfiguration": ["crdmutator.antrea.io"],
        "Role": ["antrea-agent", "antrea-controller"],
        "RoleBinding": [
            "antrea-agent",
            "antrea-agent-authentication-reader",
            "antrea-controller",
            "antrea-controller-authentication-reader",
        ],
        "Secret": ["antctl-service-account-token", "antrea-agent-service-account-token"],
        "Service": ["antrea"],
        "ServiceAccount": ["antctl", "antrea-agent", "antrea-controller"],
        "ValidatingWebhookConfiguration": ["crdvalidator.antrea.io"],
    }


def test_the_manifests_api_services_are_the_groups_that_are_served() -> None:
    assert {name for kind, name in OBJECTS if kind == "APIService"} == {
        f"{row.version}.{row.group}" for row in RESOURCES
    }


def test_the_generated_parts_of_the_chart_are_current() -> None:
    assert {path.name: path.read_text() for path in CHART.generated()} == {
        path.name: text for path, text in CHART.generated().items()
    }


def test_the_rights_that_the_doctor_asks_for_are_those_of_the_manifest() -> None:
    rows = json.loads(CHART.RIGHTS.read_text())
    made = json.loads(CHART.rights({"": OBJECTS}))
    assert [row for row in rows if not row["values"]] == made, "run `make manifests`"
    assert list(dict.fromkeys(row["values"] for row in rows)) == list(CHART.VALUES) == list(IN_USE)


def test_the_doctor_asks_for_the_rights_of_every_value_that_adds_some() -> None:
    known = {setting.partition("=")[0] for values in CHART.VALUES for setting in values.split(",")}
    conditions = [
        condition
        for program in ("agent", "controller")
        for name in ("clusterrole.yaml", "role.yaml")
        for condition in re.findall(
            r"{{-? *if (.*?)}}", (ROOT / "build/charts/antrea/templates" / program / name).read_text()
        )
    ]
    keys = {
        f"featureGates.{gate[1]}" if (gate := re.match(r'dig "(\w+)"', text)) else text.partition(".Values.")[2].split()[0].rstrip(")")
        for text in conditions
    }  # fmt: skip
    assert len(keys) > 3
    assert keys <= known


def test_the_manifests_configuration_is_the_default_one_and_accepted() -> None:
    agent, controller = (
        parse(AgentConfig, DATA["antrea-agent.conf"]),
        parse(ControllerConfig, DATA["antrea-controller.conf"]),
    )
    assert (agent.unknown, controller.unknown) == ((), ())
    assert agent.config == AgentConfig()
    assert controller.config == ControllerConfig()
    accept_agent(agent.config)
    accept_controller(controller.config)


def test_the_manifests_cni_configuration_chains_the_plugins_of_upstream() -> None:
    plugins = json.loads(DATA["antrea-cni.conflist"])["plugins"]
    assert [plugin["type"] for plugin in plugins] == ["antrea", "portmap", "bandwidth"]


def test_pods_of_the_manifest_do_not_roll_when_their_configuration_changes() -> None:
    annotations = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"].get("annotations", {})
        for item in WORKLOADS
    }
    sums = {
        name: [key for key in found if key.startswith("checksum/")] for name, found in annotations.items()
    }
    assert sums == {"antrea-controller": [], "antrea-agent": ["checksum/cni"]}


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_a_container_of_the_manifest_runs_a_command_of_our_image(container: dict[str, Any]) -> None:
    builder = (ROOT / "build/image.py").read_text()
    assert container["image"] == f"{IMAGE}:v{VERSION}"
    (command,) = container["command"]
    commands = re.search(r"COMMANDS = \(([^)]*)\)", builder)
    assert commands is not None
    assert f'"{command}"' in commands[1] or (ROOT / "build/image" / command).exists()


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["serviceAccountName"])
def test_every_mount_of_the_manifest_has_its_volume_and_every_volume_its_mount(pod: dict[str, Any]) -> None:
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def written_by(role: str, resource: str) -> set[str]:
    """Names of the objects that a role may make or change; `*`: all of them."""
    rules = [
        one for kind in ("ClusterRole", "Role") for one in OBJECTS.get((kind, role), {}).get("rules", [])
    ]
    return {
        name
        for rule in rules
        if resource in rule["resources"] and {"create", "patch", "update", "delete"} & set(rule["verbs"])
        for name in rule.get("resourceNames", ["*"])
    }


def test_the_manifests_controller_changes_only_what_is_its_own() -> None:
    labelled = {
        (kind, name)
        for (kind, name), item in OBJECTS.items()
        if item["metadata"].get("labels", {}).get("served-by") == "antrea-controller"
    }
    kinds = {
        "apiservices": "APIService",
        "customresourcedefinitions": "CustomResourceDefinition",
        "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
        "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    }
    optional = {"labelsmutator.antrea.io"}  # webhooks.labelsMutator.enable
    published = {kind.path.rpartition("/")[2]: set(kind.names) - optional for kind in KINDS}
    for plural, kind in kinds.items():
        ours = {name for one, name in labelled if one == kind}
        assert written_by("antrea-controller", plural) == published[plural] == ours != set()
    assert {kind for kind, _ in labelled} == set(kinds.values())
    assert written_by("antrea-controller", "secrets") == {"antrea-controller-tls", "antrea-memberlist-keys"}
    assert written_by("antrea-controller", "configmaps") == {"antrea-ca", "antrea-cluster-identity"}
    assert written_by("antrea-controller", "tiers") == {tier.metadata.name for tier in DEFAULT_TIERS}
    assert written_by("antrea-controller", "antreacontrollerinfos") == {"antrea-controller"}
    for resource in ("secrets", "configmaps", *kinds):
        assert written_by("antrea-agent", resource) == set()


def test_the_manifests_programs_end_before_they_take_all_memory_of_their_node() -> None:
    limits = {one["name"]: one["resources"].get("limits", {}).get("memory") for one in CONTAINERS}
    # without its switch a Node has no network: that one is not ended
    assert limits == {
        "install-cni": None, "antrea-agent": "2Gi", "antrea-ovs": None, "antrea-controller": "4Gi",
    }  # fmt: skip


def test_the_chart_limits_the_memory_of_the_flow_aggregator() -> None:
    values = yaml.safe_load((ROOT / "build/charts/antrea/values.yaml").read_text())
    assert values["flowAggregator"]["resources"]["limits"] == {"memory": "2Gi"}


def test_the_controller_of_the_manifest_has_no_power_over_its_node() -> None:
    pod = OBJECTS["Deployment", "antrea-controller"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], container["securityContext"]) == (
        True,
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    )
    assert [volume for volume in pod["volumes"] if "hostPath" in volume] == []


def test_containers_of_the_agents_pod_have_the_capabilities_they_need_and_no_more() -> None:
    pod = OBJECTS["DaemonSet", "antrea-agent"]["spec"]["template"]["spec"]
    given = {c["name"]: c["securityContext"] for c in [*pod["initContainers"], *pod["containers"]]}
    assert given == {
        "install-cni": {"capabilities": {"drop": ["ALL"], "add": ["SYS_MODULE", "DAC_OVERRIDE"]}},
        "antrea-agent": {"privileged": True},
        "antrea-ovs": {
            "capabilities": {
                "drop": ["ALL"],
                "add": ["SYS_NICE", "NET_ADMIN", "SYS_ADMIN", "IPC_LOCK", "NET_RAW", "MKNOD"],
            }
        },
    }


def test_the_manifests_probes_ask_the_port_that_the_configuration_serves() -> None:
    ports = {c["name"]: c["ports"][0]["containerPort"] for c in CONTAINERS if "ports" in c}
    assert ports == {
        "antrea-agent": AgentConfig().api_port,
        "antrea-controller": ControllerConfig().api_port,
    }


def test_the_chart_and_the_image_have_the_version_and_name_of_the_programs() -> None:
    chart = yaml.safe_load((ROOT / "build/charts/antrea/Chart.yaml").read_text())
    values = yaml.safe_load((ROOT / "build/charts/antrea/values.yaml").read_text())
    assert (str(chart["appVersion"]), values["image"]["repository"]) == (VERSION, IMAGE)


def test_nothing_that_a_user_applies_names_an_image_of_upstream() -> None:
    shipped = [
        ROOT / "build/yamls/antrea.yml",
        *(ROOT / "build/charts").rglob("*.yaml"),
        ROOT / "build/image.py",
    ]
    assert [file for file in shipped if "-ubuntu" in file.read_text()] == []


def test_the_rights_of_flow_export_are_those_to_read_workloads() -> None:
    role, binding = yaml.safe_load_all((ROOT / "build/yamls/antrea-l7-flow-export-rights.yml").read_text())
    granted = {
        f"/apis/{rule['apiGroups'][0]}/v1/{one}" for rule in role["rules"] for one in rule["resources"]
    }
    assert granted == {kind.path() for kind in WORKLOAD_KINDS}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert binding["subjects"][0] == {
        "kind": "ServiceAccount",
        "name": OBJECTS["ServiceAccount", "antrea-controller"]["metadata"]["name"],
        "namespace": OBJECTS["ServiceAccount", "antrea-controller"]["metadata"]["namespace"],
    }
