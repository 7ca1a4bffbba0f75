"""Faults around Antrea's programs: Nodes, accounts, DNS, webhooks of others and a slow API server, each by its cause and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from doctor_cluster import account, at, changed, healthy, node, owner, rows

from antrea.antctl.doctor.cause import split
from antrea.antctl.doctor.control_plane.checks import findings
from antrea.antctl.doctor.control_plane.cluster_state import ClusterDns

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.antctl.doctor.control_plane.cluster_state import ClusterState


def refusing(why: str) -> ClusterState:
    """A cluster in which the webhook of somebody else keeps Pods of agents from being created."""
    state = changed(
        healthy(),
        "webhooks",
        lambda rows: rows.update(
            guard={
                "kind": "mutatingwebhookconfiguration",
                "webhooks": [{"name": "deny.example.com", "clientConfig": {}}],
            }
        ),
    )
    event = {"involvedObject": {"kind": "DaemonSet", "name": "antrea-agent"}, "reason": "FailedCreate"}
    return state._replace(events=[{**event, "message": why}])


@pytest.mark.parametrize(
    ("state", "row"),
    [
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[1]["status"]["conditions"].append(
                {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"}
            )),
            ("n2", "node-pressure", "kubelet reports DiskPressure, evicts Pods and starts none: kubelet has disk pressure", "kubectl describe node n2"),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[1].update(spec={})),
            ("n2", "node-addresses", "this Node has no podCIDR: its Pods get no address",
             "kubectl describe node n2  # kube-controller-manager allocates podCIDRs with --allocate-node-cidrs and --cluster-cidr"),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[0]["status"].update(addresses=nodes[1]["status"]["addresses"])),
            ("n2", "node-addresses", "address 192.0.2.2 of this Node is that of Node n1 as well: packets for one get to the other",
             "kubectl get nodes -o wide  # set another --node-ip for the kubelet of n2"),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[1].update(spec={"podCIDR": "10.10.0.0/16"})),
            ("n2", "node-addresses", "podCIDR 10.10.0.0/16 of this Node and 10.10.1.0/24 of Node n1 overlap: Pods of both have the same addresses",
             ("kubectl get nodes -o custom-columns=NAME:.metadata.name,PODCIDRS:.spec.podCIDRs  # a podCIDR cannot be changed: "
              "drain n2, delete its Node object and restart its kubelet")),
        ),
        (
            lambda: changed(healthy(), "nodes", lambda nodes: nodes[0].update(spec={"podCIDRs": ["192.0.0.0/16"]})),
            ("n1", "node-addresses", "podCIDR 192.0.0.0/16 of this Node contains address 192.0.2.1 of Node n1: Pods and Nodes have the same addresses",
             "kubectl describe node n1  # --cluster-cidr of kube-controller-manager has to be outside the Nodes' network"),
        ),
        (
            lambda: healthy()._replace(service_accounts=[account("antrea-controller")]),
            ("", "agent-account", "ServiceAccount antrea-agent is missing: kube-apiserver refuses the tokens of its Pods, and no new ones start",
             "kubectl create -f antrea.yml; kubectl -n kube-system rollout restart daemonset/antrea-agent"),
        ),
        (
            lambda: healthy()._replace(service_accounts=[account("antrea-agent"), account("antrea-controller", 60)]),
            ("n1", "controller-account", "ServiceAccount antrea-controller was created again after Pod c: kube-apiserver refuses the Pod's token",
             "kubectl -n kube-system rollout restart deployment/antrea-controller"),
        ),
        (
            lambda: healthy()._replace(latency=3.04),
            ("", "kube-apiserver", "kube-apiserver took 3.0 s for the fastest request: Pods start late, and policies and Services change late",
             "kubectl get --raw '/readyz?verbose'"),
        ),
        (
            lambda: healthy()._replace(dns=ClusterDns(True, 0, [owner("coredns") | {"spec": {"replicas": 0}}])),
            ("", "cluster-dns", ("Service kube-system/kube-dns has no Endpoint that is ready: Pods resolve no names; "
             "Deployment coredns is scaled to 0"), "kubectl -n kube-system scale deployment/coredns --replicas=2"),
        ),
        (
            lambda: healthy()._replace(dns=ClusterDns(True, 0, [owner("coredns")])),
            ("", "cluster-dns", "Service kube-system/kube-dns has no Endpoint that is ready: Pods resolve no names",
             "kubectl -n kube-system describe pods -l k8s-app=kube-dns"),
        ),
        (
            lambda: changed(refusing('admission webhook "deny.example.com" denied the request: no'), "pods", lambda pods: pods.pop(1)),
            ("n2", "agents", ("no agent Pod runs on this Node, and DaemonSet antrea-agent creates none: "
             'admission webhook "deny.example.com" denied the request: no'),
             "kubectl edit mutatingwebhookconfiguration guard  # let namespaceSelector of deny.example.com leave out Namespace kube-system"),
        ),
    ],
)  # fmt: skip
def test_a_fault_around_the_programs_is_found_by_its_cause(
    state: Callable[[], ClusterState], row: tuple[str, str, str, str]
) -> None:
    assert rows(state()) == [row]


def test_of_two_nodes_with_an_address_the_one_without_a_kubelet_is_to_be_deleted() -> None:
    def change(nodes: list[dict[str, Any]]) -> None:
        nodes[0]["status"]["addresses"] = nodes[1]["status"]["addresses"]
        nodes[0]["status"]["conditions"][0].update(status="Unknown", message="Kubelet stopped posting")

    shown, (consequence,) = split(findings(changed(healthy(), "nodes", change)))
    assert [(row.node, row.finding, row.repair) for row in shown] == [
        ("n1",
         "address 192.0.2.2 of this Node is that of Node n2 as well: packets for one get to the other; only the kubelet of n2 is ready",
         "kubectl delete node n1  # or, if it has a machine of its own, set another --node-ip for the kubelet of n1"),
    ]  # fmt: skip
    assert (consequence.node, consequence.check) == ("n1", "nodes")


def test_addresses_that_are_close_and_a_node_of_this_minute_are_no_finding() -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["spec"] = {"podCIDRs": ["10.10.0.0/25", "fd00::/64"]}
        rows[1]["spec"] = {"podCIDRs": ["10.10.0.128/25", "fd00:0:0:1::/64"]}
        rows[2]["spec"] = {}
        rows[2]["metadata"]["creationTimestamp"] = at(5)

    state = healthy()._replace(nodes=[node("n1"), node("n2"), node("n3")])
    assert [row for row in rows(changed(state, "nodes", change)) if row[1] == "node-addresses"] == []


def test_a_webhook_that_no_configuration_has_is_not_edited() -> None:
    state = changed(
        refusing('failed calling webhook "gone.example.com": no route'), "pods", lambda pods: pods.pop(1)
    )
    ((_, check, finding, repair),) = rows(state)
    assert (check, "gone.example.com" in finding) == ("agents", True)
    assert repair == "kubectl -n kube-system describe daemonset antrea-agent"
