"""What the doctor says of policies that are stored and not enforced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web as http
from loopback import answering

from antrea.antctl.doctor.policies import MAX_FINDINGS, policies
from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Mapping

NATIVE = "/apis/crd.antrea.io/v1beta1"
ADMIN = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies"


def policy(name: str, why: str = "", **meta: str) -> dict[str, Any]:
    condition = {"type": "Realizable", "status": "False" if why else "True", "message": why}
    return {"metadata": {"name": name, **meta}, "status": {"conditions": [condition]}}


async def found(lists: Mapping[str, list[dict[str, Any]] | int]) -> list[Finding]:
    """Of a cluster with these lists; a number is the answer's status."""

    async def answer(request: http.BaseRequest) -> http.Response:
        listed = lists.get(request.path, 404)
        if isinstance(listed, int):
            return http.json_response({"kind": "Status", "message": "no"}, status=listed)
        return http.json_response({"items": listed})

    async with answering(answer) as url:
        return await asyncio.to_thread(policies, Server(Access(url=url), 60.0), "kube-system")


async def test_policies_that_are_not_enforced_as_written_are_named_with_the_field() -> None:
    listed = {
        f"{NATIVE}/clusternetworkpolicies": [policy("good"), policy("nodes", "spec.a is not built yet"), {"metadata": {"name": "new"}}],
        f"{NATIVE}/networkpolicies": [policy("own", "spec.b\nforged", namespace="ns")],
    }  # fmt: skip
    assert await found(listed) == [
        Finding(
            *("", "error", "policies"),
            "ClusterNetworkPolicy nodes is not enforced as it is written: spec.a is not built yet",
            "kubectl edit acnp nodes",
        ),
        Finding(
            *("", "error", "policies"),
            "NetworkPolicy ns/own is not enforced as it is written: spec.b\\nforged",
            "kubectl -n ns edit annp own",
        ),
    ]


async def test_policies_on_nodes_that_do_not_hold_at_addresses_of_services_are_named() -> None:
    condition = {
        "type": "NotAtServiceAddresses",
        "status": "True",
        "message": 'Nodes count 1: "node-1":"drop at 80/TCP"',
    }
    one = policy("restrict")
    one["status"]["conditions"].append(condition)
    path = f"{NATIVE}/clusternetworkpolicies"
    assert await found({path: [one]}) == [
        Finding(
            *("", "warning", "policies"),
            "ClusterNetworkPolicy restrict does not hold at addresses of Services, where packets are translated before it is asked: "
            'Nodes count 1: "node-1":"drop at 80/TCP"; '
            "set antreaProxy.proxyAll so that it does, or write policies for the Pods of these Services",
            "kubectl -n kube-system edit configmap antrea-config",
        )
    ]
    condition["status"] = "False"
    assert await found({path: [one]}) == []


async def test_kinds_that_nothing_enforces_are_named_where_there_are_some() -> None:
    assert await found({ADMIN: [{"metadata": {"name": "a"}}]}) == [
        Finding(
            "",
            "error",
            "policies",
            "AdminNetworkPolicy a is not enforced: antrea-controller has not read it",
            "antctl get featuregates",
        )
    ]


def web(name: str, port: str) -> dict[str, Any]:
    ports = [{"name": port, "containerPort": 80}]
    sidecar = {"restartPolicy": "Always", "ports": ports}
    spec = {"containers": [{}], "initContainers": [sidecar]}
    return {"metadata": {"name": name, "namespace": "ns", "labels": {"app": "web"}}, "spec": spec}


async def test_port_names_that_no_pod_has_are_named_of_policies_with_and_without_a_status() -> None:
    port = [{"ports": [{"port": "metrics"}]}]
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": port, "egress": port}
    kube = {"metadata": {"name": "metrics-only", "namespace": "ns"}, "spec": spec}
    unknown = {"type": "PortNameUnknown", "status": "True", "message": "spec.a"}
    own = {"metadata": {"name": "own", "namespace": "ns"}, "status": {"conditions": [unknown]}}
    space = {"metadata": {"name": "ns"}}
    listed: dict[str, Any] = {
        f"{NATIVE}/networkpolicies": [own],
        "/apis/networking.k8s.io/v1/networkpolicies": [kube],
        "/api/v1/namespaces": [space],
        "/api/v1/pods": [web("a", "http")],
    }
    repair = "kubectl -n ns edit networkpolicies.networking.k8s.io metrics-only"
    start = "NetworkPolicy ns/metrics-only: spec"
    port_name = "has a port named 'metrics' with protocol TCP"
    of_own = Finding("", "warning", "policies", "NetworkPolicy ns/own: spec.a", "kubectl -n ns edit annp own")
    assert await found(listed) == [
        of_own,
        Finding(
            "",
            "warning",
            "policies",
            f"{start}.ingress[0]: no Pod that the policy is for {port_name}",
            repair,
        ),
        Finding("", "warning", "policies", f"{start}.egress[0]: no Pod among its peers {port_name}", repair),
    ]
    assert await found(listed | {"/api/v1/pods": [web("a", "http"), web("b", "metrics")]}) == [of_own]
    (_, unread) = await found(listed | {"/api/v1/pods": 403})
    assert (unread.severity, unread.check) == ("error", "policies")


async def test_what_cannot_be_listed_is_a_finding_and_many_are_cut() -> None:
    (one,) = await found({f"{NATIVE}/networkpolicies": 403})
    assert (one.severity, one.check) == ("error", "policies")
    assert one.finding.startswith("NetworkPolicy: cannot be listed: ")
    many = await found(
        {f"{NATIVE}/clusternetworkpolicies": [policy(f"p{n}", "why") for n in range(MAX_FINDINGS + 5)]}
    )
    assert len(many) == MAX_FINDINGS + 1
    assert many[-1].finding == f"there are more than {MAX_FINDINGS} such policies"
