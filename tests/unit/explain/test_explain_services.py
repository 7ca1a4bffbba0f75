"""What an explanation says of packets to Services: their rules first, then kube-proxy, then all others."""

from __future__ import annotations

from typing import Any

import pytest
from explain_world import Object, ask, kube, native, rule, world

CLIENT = [{"podSelector": {"matchLabels": {"app": "client"}}}]
SERVICE = "10.96.0.10"


def service(name: str, *ips: str, **more: Any) -> Object:
    spec = {"clusterIPs": list(ips), "ports": [{"port": 80, "protocol": "TCP"}], **more}
    status = {
        "loadBalancer": {"ingress": [{"ip": "198.51.100.7"}, {"ip": "198.51.100.8", "ipMode": "Proxy"}]}
    }
    return {"metadata": {"namespace": "b", "name": name}, "spec": spec, "status": status}


SERVICES = [
    service("svc", SERVICE, externalIPs=["198.51.100.9", "no address"]),
    service("twin", "10.96.0.11"),
    service("headless", "None", externalIPs=["198.51.100.10"]),
]


def by_service(name: str, action: str, *wanted: str, **more: Any) -> Object:
    refs = [{"name": one, "namespace": "b"} for one in wanted]
    return native(name, egress=[rule(action, toServices=refs)], appliedTo=CLIENT, **more)


DROP = by_service("p", "Drop", "svc", "headless")
ISOLATED = kube("closed", podSelector={"matchLabels": {"app": "client"}}, policyTypes=["Egress"])


@pytest.mark.parametrize(
    ("to", "port", "verdict"),
    [
        (SERVICE, "80/tcp", "Drop"),
        (SERVICE, "81/tcp", "Allow"),
        (SERVICE, "80/udp", "Allow"),
        (SERVICE, "icmp", "Allow"),
        ("10.96.0.11", "80/tcp", "Allow"),
        ("198.51.100.7", "80/tcp", "Drop"),
        ("198.51.100.8", "80/tcp", "Allow"),
        ("198.51.100.9", "80/tcp", "Drop"),
        ("198.51.100.10", "80/tcp", "Allow"),
        ("a/web", "80/tcp", "Allow"),
    ],
)
def test_a_service_is_its_addresses_with_its_ports(to: str, port: str, verdict: str) -> None:
    found = ask(world(services=SERVICES, cluster_policies=[DROP]), destination=to, port=port)
    assert (found.verdict, found.egress.verdict) == (verdict, verdict)
    assert found.egress.silent == ()


def test_rules_on_addresses_are_asked_of_what_kube_proxy_makes_of_a_packet() -> None:
    everything = native("all", egress=[rule("Drop")], appliedTo=CLIENT)
    found = ask(
        world(services=SERVICES, cluster_policies=[everything], kube_policies=[ISOLATED]), destination=SERVICE
    )
    assert (found.verdict, found.egress.sentence, found.ingress.sentence) == (
        "Allow",
        "No rule on Services refuses it; kube-proxy makes a packet to a Pod of Service b/svc, which all others judge.",
        "The destination 10.96.0.10 is Service b/svc: no policy is for it.",
    )
    assert [(one.rule.policy, one.why) for one in found.egress.lost] == [
        ("all", "it is asked of what kube-proxy makes of the packet: name a Pod behind the Service")
    ]
    assert ask(world(cluster_policies=[everything]), destination=SERVICE).verdict == "Drop"


def test_rules_on_services_have_their_order_and_the_baseline_is_for_pods_that_are_not_isolated() -> None:
    passes, base = by_service("passes", "Pass", "svc"), by_service("base", "Reject", "svc", tier="baseline")
    policies = [by_service("later", "Allow", "svc", priority=6), passes, base]
    found = ask(world(services=SERVICES, cluster_policies=policies), destination=SERVICE)
    assert (found.verdict, found.egress.rule and found.egress.rule.policy) == ("Reject", "base")
    assert [one.rule.policy for one in found.egress.lost] == ["passes", "later"]
    isolated = ask(
        world(services=SERVICES, cluster_policies=policies, kube_policies=[ISOLATED]), destination=SERVICE
    )
    assert (isolated.verdict, isolated.egress.reason) == ("Allow", "nothing")
    assert [one.rule.policy for one in isolated.egress.lost] == ["passes", "later", "base"]


def test_a_packet_to_an_address_outside_is_judged_by_all_rules_unless_one_on_services_decides() -> None:
    everything = native("all", egress=[rule("Drop")], appliedTo=CLIENT, priority=1)
    told = world(services=SERVICES, cluster_policies=[everything])
    assert ask(told, destination="198.51.100.9").verdict == "Drop"
    allowed = world(services=SERVICES, cluster_policies=[everything, by_service("p", "Allow", "svc")])
    assert ask(allowed, destination="198.51.100.9").verdict == "Allow"


def test_a_service_of_several_clusters_is_said_to_be_without_effect() -> None:
    refs = [{"name": "svc", "namespace": "b", "scope": "ClusterSet"}]
    policy = native("p", egress=[rule("Drop", toServices=refs)], appliedTo=CLIENT)
    found = ask(world(services=SERVICES, cluster_policies=[policy]), destination=SERVICE)
    assert found.verdict == "Allow"
    assert [one.why for one in found.egress.silent] == [
        "toServices of scope ClusterSet is not built yet: the rule matches nothing by it"
    ]


def test_the_change_that_would_turn_the_verdict_over_is_one_on_services() -> None:
    opened = ask(world(services=SERVICES), destination=SERVICE)
    (change,) = opened.changes
    assert change == (
        "Create an Antrea NetworkPolicy in Namespace a with podSelector app=client in appliedTo and an egress rule"
        " that drops toServices b/svc."
    )
    assert ask(world(services=SERVICES), destination=SERVICE, port="81/tcp").changes == ()
    closed = ask(world(services=SERVICES, cluster_policies=[DROP]), destination=SERVICE)
    assert closed.changes == ("Delete egress rule 0 (drop) of AntreaClusterNetworkPolicy p.",)


def test_a_sender_outside_learns_which_nodes_advertise_the_address() -> None:
    conditions = [
        {
            "type": "service.antrea.io/Advertised",
            "status": "True",
            "message": "advertised by BGP: n1 to 192.0.2.9",
        }
    ]
    row = service("svc", SERVICE)
    row["status"]["conditions"] = conditions
    found = world(services=[row, service("twin", "10.96.0.11")])
    said = ("Service b/svc is advertised by BGP: n1 to 192.0.2.9",)
    assert ask(found, "203.0.113.9", "198.51.100.7").advertised == said
    assert ask(found, "a/client", "198.51.100.7").advertised == ()
    assert ask(found, "203.0.113.9", "10.96.0.11").advertised == ()
