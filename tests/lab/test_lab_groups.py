"""Agents hear which Pods Egresses and policies select, from real Pods and Namespaces, change by change."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from admission_object import crd, create
from api_client import ApiClient

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

CONTROLPLANE = "/apis/controlplane.antrea.io/v1beta2"
GROUPS = f"{CONTROLPLANE}/egressgroups"
SPACE = "grouped"


@pytest.fixture(scope="module")
def client(controller: ControllerProcess) -> Iterator[ApiClient]:
    with contextlib.closing(ApiClient(controller.lab)) as opened:
        yield opened


@pytest.fixture(scope="module")
def space(controller: ControllerProcess) -> Iterator[str]:
    """A Namespace with the account that Pods need."""
    kubectl = controller.lab.api.kubectl
    create(controller.lab, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    wait_for(
        "the default ServiceAccount",
        lambda: "default" in kubectl("get", "serviceaccounts", "-n", SPACE, "-o", "name"),
        seconds=60,
    )
    yield SPACE
    kubectl("delete", "namespace", SPACE, "--wait=false")


def pod(name: str, labels: dict[str, str], node: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}], **spec},
    }


def egress(name: str, applied: dict[str, Any]) -> dict[str, Any]:
    return crd("Egress", name, {"appliedTo": applied, "egressIP": "192.0.2.1"})


def members(client: ApiClient, name: str, plural: str) -> list[str] | None:
    """Names of the Pods in the group; None: there is no such group."""
    found = client.call("GET", f"{CONTROLPLANE}/{plural}/{name}")
    if found.status == 404:
        return None
    return sorted(member["pod"]["name"] for member in found.body.get("groupMembers", ()))


def becomes(client: ApiClient, name: str, wanted: list[str] | None, plural: str = "egressgroups") -> None:
    try:
        wait_for(
            f"the group of {name}", lambda: members(client, name, plural) == wanted, seconds=60, step=0.05
        )
    except Exception as error:
        error.add_note(f"wanted {wanted}, found {members(client, name, plural)}")
        raise


def test_the_group_of_an_egress_follows_pods_and_namespaces(
    controller: ControllerProcess, client: ApiClient, space: str
) -> None:
    kubectl = controller.lab.api.kubectl
    web, red = {"matchLabels": {"app": "web"}}, {"matchLabels": {"team": "red"}}
    objects = [
        egress("by-pod", {"podSelector": web}),
        egress("by-namespace", {"namespaceSelector": red}),
        pod("a", {"app": "web"}, "n1"),
        pod("b", {"app": "web"}, "n2"),
        pod("c", {"app": "db"}, "n2"),
        pod("h", {"app": "web"}, "n2", hostNetwork=True),
    ]
    try:
        create(controller.lab, yaml.safe_dump_all(objects))
        becomes(client, "by-pod", ["a", "b"])
        becomes(client, "by-namespace", [])
        kubectl("label", "namespace", space, "team=red")
        becomes(client, "by-namespace", ["a", "b", "c"])
        kubectl("label", "pod", "-n", space, "c", "app=web", "--overwrite")
        becomes(client, "by-pod", ["a", "b", "c"])
        kubectl("delete", "pod", "-n", space, "b", "--force", "--grace-period=0")
        becomes(client, "by-pod", ["a", "c"])
        kubectl("delete", "egress", "by-pod")
        becomes(client, "by-pod", None)
    finally:
        kubectl("delete", "egress", "by-pod", "by-namespace", "--ignore-not-found")
        kubectl("delete", "pod", "-n", space, "--all", "--force", "--grace-period=0")


def test_a_network_policy_is_told_with_its_groups_to_the_nodes_that_need_it(
    controller: ControllerProcess, client: ApiClient, space: str
) -> None:
    kubectl = controller.lab.api.kubectl
    spec = {
        "podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}], "ports": [{"port": 80}]}],
    }
    meta = {"name": "allow-db", "namespace": space}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}
    try:
        create(controller.lab, yaml.safe_dump_all([policy, pod("w", {"app": "web"}, "n1")]))

        def told() -> dict[str, Any] | None:
            items = client.call("GET", f"{CONTROLPLANE}/networkpolicies").body["items"]
            return next((one for one in items if one["sourceRef"]["name"] == "allow-db"), None)

        found = wait_for("the policy", told, seconds=60, step=0.05)
        assert found["sourceRef"]["type"] == "K8sNetworkPolicy"
        (target,), (rule,) = found["appliedToGroups"], found["rules"]
        assert rule["services"] == [{"protocol": "TCP", "port": 80}]
        # the policy was written before the Pod
        becomes(client, target, ["w"], "appliedtogroups")
        table = [line.split() for line in kubectl("get", "addressgroups.controlplane.antrea.io").splitlines()]
        assert rule["from"]["addressGroups"][0] in {row[0] for row in table}
    finally:
        kubectl("delete", "networkpolicy", "-n", space, "allow-db", "--ignore-not-found")
        kubectl("delete", "pod", "-n", space, "--all", "--force", "--grace-period=0")
    wait_for("its end", lambda: told() is None, seconds=60, step=0.05)


def report(uid: str) -> dict[str, Any]:
    """What an agent posts."""
    return {
        "apiVersion": "controlplane.antrea.io/v1beta2",
        "kind": "NetworkPolicyStatus",
        "metadata": {"name": uid},
        "nodes": [{"nodeName": "n1", "generation": 1}],
    }


def wanted(phase: str, realized: int) -> dict[str, Any]:
    """The status of a policy for one Node."""
    numbers = {"currentNodesRealized": realized, "desiredNodesRealized": 1, "observedGeneration": 1}
    return {"phase": phase, "Realizable": "True", **numbers}


def test_a_policy_of_antrea_says_how_many_nodes_have_realized_it(
    controller: ControllerProcess, client: ApiClient, space: str
) -> None:
    """The test reports what the agent of n1 would."""
    lab, kubectl = controller.lab, controller.lab.api.kubectl
    web = {"podSelector": {"matchLabels": {"app": "web"}}}
    rule = {"action": "Drop", "name": "r", "from": [{"group": "webs"}]}
    spec = {"priority": 5, "tier": "platform", "appliedTo": [{"group": "webs"}], "ingress": [rule]}
    objects = [
        crd("ClusterGroup", "webs", web),
        crd("ClusterNetworkPolicy", "counted", spec),
        pod("w", {"app": "web"}, "n1"),
    ]

    def status(kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(kubectl("get", kind, name, "-o", "json")).get("status", {})
        conditions = {one["type"]: one["status"] for one in found.pop("conditions", ())}
        return {**found, **conditions}

    def becomes_status(expected: dict[str, Any]) -> None:
        """At least this: whether it was realized once, on no Node, before the Pod was heard of is chance."""
        wait_for("the status", lambda: expected.items() <= status("acnp", "counted").items(), seconds=60)

    try:
        said = create(lab, yaml.safe_dump_all(objects))
        assert "counted created" in said, said
        becomes_status(wanted("Realizing", 0))
        computed = {"GroupMembersComputed": "True"}
        wait_for("that of the group", lambda: status("clustergroup", "webs") == computed, seconds=60)
        (found,) = (
            one
            for one in client.call("GET", f"{CONTROLPLANE}/networkpolicies").body["items"]
            if one["sourceRef"]["name"] == "counted"
        )
        assert (found["appliedToGroups"], found["tierPriority"]) == (["webs"], 200)
        assert found["rules"][0]["from"] == {"addressGroups": ["webs"]}
        uid = found["metadata"]["name"]
        assert client.call("POST", f"{CONTROLPLANE}/networkpolicies/{uid}/status", report(uid)).status == 201
        becomes_status({**wanted("Realized", 1), "realizedGeneration": 1})
        kubectl("patch", "acnp", "counted", "--type=merge", "-p", '{"spec": {"priority": 6}}')
        becomes_status({**wanted("Realizing", 0), "observedGeneration": 2, "realizedGeneration": 1})
        group = client.call("GET", f"{CONTROLPLANE}/namespaces/{space}/groupassociations/w").body
        assert group["associatedGroups"] == []  # it has no address yet
        assert client.call("GET", f"{CONTROLPLANE}/clustergroupmembers/webs").body["totalMembers"] == 0
    finally:
        kubectl("delete", "acnp,clustergroup", "counted", "webs", "--ignore-not-found")
        kubectl("delete", "pod", "-n", space, "--all", "--force", "--grace-period=0")


def test_a_node_hears_of_its_own_members_alone(controller: ControllerProcess, space: str) -> None:
    """The watch that an agent has: the group, a bookmark, then what comes and goes on its Node."""
    kubectl = controller.lab.api.kubectl
    create(controller.lab, egress("watched", {"podSelector": {"matchLabels": {"app": "far"}}}))
    create(controller.lab, pod("near", {"app": "far"}, "n1"))
    watch = f"{GROUPS}?watch=true&fieldSelector=nodeName%3Dn1"
    with subprocess.Popen(
        controller.lab.api.command(["get", "--raw", watch]), stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        lines = (json.loads(line) for line in agent.stdout)
        seen = [event for event in (next(lines), next(lines)) if event["type"] != "BOOKMARK"]
        create(controller.lab, pod("elsewhere", {"app": "far"}, "n2"))
        create(controller.lab, pod("here", {"app": "far"}, "n1"))
        while len(seen) < 2 or "here" not in json.dumps(seen[-1]):
            seen.append(next(lines))
        agent.terminate()
    kubectl("delete", "egress", "watched")
    kubectl("delete", "pod", "-n", space, "--all", "--force", "--grace-period=0")
    told = json.dumps(seen)
    assert "near" in told
    assert "elsewhere" not in told
