"""Who names a port that no Pod has which the rule is about is told: an Event, and a condition where there is a status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from named_port_world import DB, REASON, WEB, condition, events, pod, said
from native_world import Told, row, space

from antrea.apis import networking
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.publication import GroupHead, Membership
from antrea.features.network_policy.controller.kube_policy import policy_row


def kube(**spec: Any) -> Any:
    meta = {"name": "p", "namespace": "ns", "uid": "uid-p", "generation": 1}
    return policy_row(
        msgspec.convert({"metadata": meta, "spec": {"podSelector": WEB, **spec}}, networking.NetworkPolicy)
    )


def native(kind: str = "NetworkPolicy", **spec: Any) -> Any:
    given = {"priority": 5, "appliedTo": [{"podSelector": WEB}], **spec}
    return row(kind, "p", "ns" if kind == "NetworkPolicy" else "", spec=given)


IN = (
    "spec.ingress[0]: no Pod that the policy is for has a port named 'metrics' with protocol TCP:"
    " the rule matches nothing by it"
)
OUT = "spec.egress[1]: no Pod among its peers has a port named 'dns' with protocol UDP: the rule matches nothing by it"
METRICS = [{"ports": [{"port": "metrics"}]}]
DNS = [{}, {"to": [{"podSelector": DB}], "ports": [{"port": "dns", "protocol": "UDP"}, {"port": 1}]}]


def test_a_name_that_no_pod_has_gives_an_event_on_a_networkpolicy() -> None:
    (event,) = events(kube(ingress=METRICS), pod("w", "web", "http"))
    assert event == RecordEvent(
        "uid-p ports", IN, "networking.k8s.io/v1", "NetworkPolicy", "p", "uid-p", REASON, IN,
        warning=True, namespace="ns",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([pod("w", "web", "metrics")], []),
        ([pod("w", "web"), pod("x", "web", "metrics")], []),
        ([pod("w", "web", "metrics", protocol="UDP")], [IN]),
        ([pod("w", "web", "metrics", hostNetwork=True)], []),
        ([pod("w", "web", "metrics", hostNetwork=True), pod("x", "web")], [IN]),
        ([pod("d", "db", "http")], []),
        (
            [
                pod(
                    "w",
                    "web",
                    initContainers=[
                        {"restartPolicy": "Always", "ports": [{"name": "metrics", "containerPort": 9100}]}
                    ],
                )
            ],
            [],
        ),
    ],
    ids=[
        "a Pod has it",
        "one of two has it",
        "another protocol",
        "a Pod of the Node's network alone",
        "beside a Pod of the Node's network",
        "no Pod is selected",
        "a sidecar has it",
    ],
)
def test_the_pods_decide_which_names_are_known(rows: list[Any], wanted: list[str]) -> None:
    assert said(kube(ingress=METRICS), *rows) == wanted
    assert said(native(ingress=[{"action": "Drop", **METRICS[0]}]), *rows) == wanted


def test_names_of_egress_rules_are_those_of_peers() -> None:
    pods = [pod("w", "web", "dns", protocol="UDP"), pod("d", "db", "dns")]
    assert said(kube(egress=DNS), *pods) == [OUT]
    assert said(kube(egress=DNS), pod("w", "web"), pod("e", "db", "dns", protocol="UDP")) == []
    everybody = [{"ports": [{"port": "dns", "protocol": "UDP"}]}]
    assert said(kube(egress=everybody), *pods) == []
    assert len(said(kube(egress=[{"ports": [{"port": "none"}]}]), *pods)) == 1
    block = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "dns"}]}]
    assert len(said(kube(egress=block), *pods)) == 1


def test_a_policy_with_a_status_says_it_there_too() -> None:
    ingress = [{"action": "Drop", **METRICS[0]}]
    assert condition(native(ingress=ingress), pod("w", "web", "http")) == ("True", IN)
    assert condition(native(ingress=ingress), pod("w", "web", "metrics")) == ("", "")
    (event,) = events(native(ingress=ingress), pod("w", "web"))
    assert (event.api_version, event.kind, event.namespace) == (
        "crd.antrea.io/v1beta1",
        "NetworkPolicy",
        "ns",
    )
    (event,) = events(native("ClusterNetworkPolicy", ingress=ingress), pod("w", "web"))
    assert (event.api_version, event.kind, event.namespace) == (
        "crd.antrea.io/v1beta1",
        "ClusterNetworkPolicy",
        "",
    )


def test_groups_and_peers_in_relation_to_namespaces_are_looked_through() -> None:
    group = row("ClusterGroup", "webs", spec={"podSelector": WEB})
    ingress = [{"action": "Drop", **METRICS[0]}]
    by_group = native("ClusterNetworkPolicy", appliedTo=[{"group": "webs"}], ingress=ingress)
    assert said(by_group, group, pod("w", "web")) == [IN]
    assert said(by_group, group, pod("w", "web", "metrics")) == []
    assert not [
        one
        for one in Told().put(by_group, group, pod("w", "web")).of(GroupHead)
        if one.resource == "namedports"
    ]
    peers = {"action": "Allow", "to": [{"namespaces": {"match": "Self"}}], "ports": [{"port": "dns"}]}
    relative = native("ClusterNetworkPolicy", egress=[peers])
    assert len(said(relative, pod("w", "web"))) == 1
    assert said(relative, pod("w", "web"), pod("d", "db", "dns")) == []


def test_more_than_three_names_are_counted_no_further() -> None:
    ports = [{"port": f"p{number}"} for number in range(9)]
    (message,) = said(kube(ingress=[{"ports": ports}]), pod("w", "web"))
    assert message.count("no Pod") == 3
    assert message.endswith("; and more")


def test_only_groups_of_rules_with_names_collect_ports_and_nobody_is_sent_them() -> None:
    told = Told().put(space("ns"), kube(ingress=METRICS), pod("w", "web", "http"))
    assert {one.resource for one in told.of(Membership)} == {"appliedtogroups"}
    told.drop(type(kube()), "ns/p").drop(type(pod("w", "web")), "ns/w").drop(type(space("ns")), "ns")
    assert told.standing == {}
    assert told.facts.empty
