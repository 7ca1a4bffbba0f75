"""What flows differ for policies of policy.networking.k8s.io: named ports of any protocol, Pass in the last tier."""

from __future__ import annotations

from policy_world import ANY, addresses, applied, flows, interface, member, native, peer, rule

from antrea.apis import controlplane as cp
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.deciding_rule import reference
from antrea.features.network_policy.agent.rule import resolved

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
PORTS = (
    cp.NamedPort(name="dns", port=53, protocol="UDP"),
    cp.NamedPort(name="dns", port=54, protocol="TCP"),
    cp.NamedPort(name="web", port=80, protocol="TCP"),
)


def test_a_named_port_without_a_protocol_is_the_first_of_its_name_with_its_protocol() -> None:
    found = resolved((cp.Service(port="dns"), cp.Service(port="web"), cp.Service(port="other")), PORTS)
    assert found == (cp.Service(protocol="UDP", port=53), cp.Service(protocol="TCP", port=80))
    assert resolved((cp.Service(protocol="TCP", port="dns"),), PORTS) == (
        cp.Service(protocol="TCP", port=54),
    )
    assert resolved((cp.Service(protocol="SCTP", port="dns"),), PORTS) is None


def test_a_named_port_of_a_rule_is_matched_in_the_protocol_of_the_pod() -> None:
    pod = cp.GroupMember(pod=cp.PodReference(name="web", namespace="a"), ports=PORTS)
    found = flows(
        WEB,
        native("p", "g", rule("In", ANY, cp.Service(port="dns"), action="Drop"), tier=220),
        *applied("g", pod),
        node=V4,
    )
    ports = [line for line in found if "tp_dst" in line]
    assert len(ports) == 1
    assert "udp,tp_dst=53 actions=conjunction" in ports[0]


def test_pass_in_the_last_tier_leaves_nothing_to_ask() -> None:
    given = native("p", "g", rule("In", peer("far"), action="Pass"), tier=254)
    found = flows(
        WEB, given, *applied("g", member("web")), *addresses("far", member("x", "10.10.1.5")), node=V4
    )
    (verdict,) = (line for line in found if "conj_id" in line)
    assert verdict.startswith("table=IngressDefaultRule,")
    assert verdict.endswith(",goto_table:IngressMetric")


def test_policies_of_the_cluster_are_logged_without_a_namespace() -> None:
    for kind, name in (
        ("K8sClusterNetworkPolicy", "K8sClusterNetworkPolicy:p"),
        ("AdminNetworkPolicy", "AdminNetworkPolicy:/p"),
    ):
        source = cp.NetworkPolicyReference(type=kind, name="p", uid="p")
        assert reference(source) == name
