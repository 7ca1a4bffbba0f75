"""What the API of NetworkPolicy promises, sentence by sentence: the controller's rules and `antctl explain` keep it alike.

Source: https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/network-policy-v1/ and
https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import msgspec
import pytest
from native_world import Told, row

from antrea.apis import controlplane as cp
from antrea.apis import networking
from antrea.explain.answer import answer, packet_of
from antrea.explain.objects import objects
from antrea.explain.world import World
from antrea.features.grouping.publication import Membership, PublishedPolicy
from antrea.features.network_policy.controller.kube_policy import policy_row

Spec = dict[str, Any]
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
MAPPED = 96
"""Bits before an IPv4 address in 16 bytes."""


def selector(**labels: str) -> Spec:
    return {"matchLabels": labels}


def pod(space: str, name: str, number: int, *ports: Spec, **spec: Any) -> Spec:
    """Labelled app=NAME, with an address of each family that ends in `number`."""
    return {
        "metadata": {"namespace": space, "name": name, "labels": {"app": name}},
        "spec": {"nodeName": f"n-{name}", "containers": [{"ports": list(ports)}], **spec},
        "status": {"podIPs": [{"ip": f"10.0.0.{number}"}, {"ip": f"fd00::{number}"}]},
    }


SIDECAR = {"restartPolicy": "Always", "ports": [{"name": "metrics", "containerPort": 9100}]}
PODS = [
    pod("a", "client", 11),
    pod(
        "a",
        "web",
        12,
        {"name": "http", "containerPort": 8080},
        {"name": "dns", "containerPort": 5353, "protocol": "UDP"},
        initContainers=[SIDECAR],
    ),
    pod("b", "db", 13, {"name": "http", "containerPort": 80}),
    pod("b", "client", 14),
    pod("b", "host", 15, hostNetwork=True),
]
OUTSIDE = "198.51.100.7"
WEB, CLIENT, DB = (selector(app=name) for name in ("web", "client", "db"))


class Case(NamedTuple):
    """Policies of Namespace a, and what passes: source, destination, port."""

    policies: list[Spec]
    passes: list[tuple[str, str, str]]
    closed: list[tuple[str, str, str]]


IN = ("a/client", "a/web", "8080/tcp")
OTHER_SPACE = ("b/client", "a/web", "8080/tcp")
FROM_OUTSIDE = (OUTSIDE, "a/web", "8080/tcp")
OUT = ("a/web", "b/db", "80/tcp")


def to_web(port: str, source: str = "a/client") -> tuple[str, str, str]:
    return (source, "a/web", port)


def ingress(*rules: Spec) -> list[Spec]:
    return [{"podSelector": WEB, "policyTypes": ["Ingress"], "ingress": list(rules)}]


def egress(*rules: Spec) -> list[Spec]:
    return [{"podSelector": WEB, "policyTypes": ["Egress"], "egress": list(rules)}]


CASES = {
    "a Pod that no policy selects is open": Case([{"podSelector": DB}], [IN, OUT], []),
    "policyTypes Egress has no effect on ingress, whatever ingress rules there are": Case(
        [
            {
                "podSelector": WEB,
                "policyTypes": ["Egress"],
                "egress": [{}],
                "ingress": [{"from": [{"podSelector": DB}]}],
            }
        ],
        [IN, FROM_OUTSIDE, OUT],
        [],
    ),
    "policyTypes Ingress has no effect on egress, whatever egress rules there are": Case(
        [{"podSelector": WEB, "policyTypes": ["Ingress"], "egress": [{"to": [{"podSelector": DB}]}]}],
        [OUT],
        [IN],
    ),
    "policyTypes Egress without an egress section closes egress alone": Case(egress(), [IN], [OUT]),
    "without policyTypes a policy affects ingress": Case([{"podSelector": WEB}], [OUT], [IN]),
    "without policyTypes a policy with egress rules affects both": Case(
        [{"podSelector": WEB, "egress": [{}]}], [OUT], [IN]
    ),
    "without policyTypes and with an empty egress section it affects ingress alone": Case(
        [{"podSelector": WEB, "egress": []}], [OUT], [IN]
    ),
    "an empty podSelector is all Pods of the policy's own Namespace": Case(
        [{"podSelector": {}, "policyTypes": ["Ingress"]}],
        [("a/web", "b/db", "80/tcp")],
        [IN, ("b/db", "a/client", "1/tcp")],
    ),
    "a podSelector that is left out is the empty one": Case([{"policyTypes": ["Ingress"]}], [OUT], [IN]),
    "rules of all policies together allow": Case(
        [*ingress({"from": [{"podSelector": CLIENT}]}), *ingress({"ports": [{"port": 1}]}), *ingress()],
        [IN, to_web("1/tcp", OUTSIDE)],
        [FROM_OUTSIDE],
    ),
    "an empty rule allows all": Case(ingress({}), [IN, FROM_OUTSIDE, to_web("9/udp"), to_web("icmp")], []),
    "an empty list of sources is all sources": Case(
        ingress({"from": [], "ports": [{"port": 8080}]}), [IN, FROM_OUTSIDE], [to_web("81/tcp")]
    ),
    "an empty list of ports is all ports": Case(
        ingress({"from": [{"podSelector": CLIENT}], "ports": []}),
        [to_web("9/udp"), to_web("9/sctp"), to_web("icmp")],
        [FROM_OUTSIDE],
    ),
    "traffic must match both a source and a port": Case(
        ingress({"from": [{"podSelector": CLIENT}], "ports": [{"port": 1}]}),
        [to_web("1/tcp")],
        [IN, to_web("1/tcp", OUTSIDE)],
    ),
    "ports are alternatives": Case(
        ingress({"ports": [{"port": 1}, {"port": 2, "protocol": "SCTP"}]}),
        [to_web("1/tcp"), to_web("2/sctp")],
        [to_web("2/tcp"), to_web("3/tcp")],
    ),
    "a port without a protocol is TCP": Case(
        ingress({"ports": [{"port": 53}]}), [to_web("53/tcp")], [to_web("53/udp"), to_web("53/sctp")]
    ),
    "a protocol without a port is all its ports": Case(
        ingress({"ports": [{"protocol": "UDP"}]}),
        [to_web("1/udp"), to_web("65535/udp")],
        [to_web("1/tcp"), to_web("icmp")],
    ),
    "endPort is part of the range": Case(
        ingress({"ports": [{"port": 80, "endPort": 90}]}),
        [to_web("80/tcp"), to_web("85/tcp"), to_web("90/tcp")],
        [to_web("79/tcp"), to_web("91/tcp"), to_web("85/udp")],
    ),
    "a named port has the number and the protocol of the Pod": Case(
        ingress({"ports": [{"port": "http"}, {"port": "dns"}, {"port": "dns", "protocol": "UDP"}]}),
        [IN, to_web("5353/udp")],
        [to_web("80/tcp"), to_web("5353/tcp"), to_web("8080/udp")],
    ),
    "a native sidecar names ports": Case(
        ingress({"ports": [{"port": "metrics"}]}), [to_web("9100/tcp")], [IN, to_web("9200/tcp")]
    ),
    "a named port of an egress rule is that of the destination": Case(
        egress({"ports": [{"port": "http"}]}),
        [OUT],
        [("a/web", "b/db", "8080/tcp"), ("a/web", OUTSIDE, "80/tcp")],
    ),
    "a named port has no number in a block": Case(
        egress({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "http"}]}), [], [OUT]
    ),
    "exceptions are not part of a block": Case(
        ingress({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.8/29"]}}]}),
        [("10.0.0.16", "a/web", "1/tcp")],
        [IN, FROM_OUTSIDE],
    ),
    "another peer may be what one excepts": Case(
        ingress(
            {
                "from": [
                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.8/29"]}},
                    {"podSelector": CLIENT},
                ]
            }
        ),
        [IN],
        [OTHER_SPACE],
    ),
    "a block is of one family": Case(
        ingress({"from": [{"ipBlock": {"cidr": "::/0"}}]}),
        [("2001:db8::1", "a/web", "1/tcp")],
        [FROM_OUTSIDE],
    ),
    "an empty podSelector of a peer is all Pods of the policy's own Namespace": Case(
        ingress({"from": [{"podSelector": {}}]}), [IN], [OTHER_SPACE, FROM_OUTSIDE]
    ),
    "an empty namespaceSelector is all Pods of all Namespaces, and nothing else": Case(
        ingress({"from": [{"namespaceSelector": {}}]}), [IN, OTHER_SPACE], [FROM_OUTSIDE]
    ),
    "both selectors of a peer are met at once": Case(
        ingress({"from": [{"namespaceSelector": selector(team="blue"), "podSelector": CLIENT}]}),
        [OTHER_SPACE],
        [IN, ("b/db", "a/web", "8080/tcp")],
    ),
    "two peers are alternatives": Case(
        ingress({"from": [{"namespaceSelector": selector(team="blue")}, {"podSelector": CLIENT}]}),
        [OTHER_SPACE, IN, ("b/db", "a/web", "8080/tcp")],
        [FROM_OUTSIDE],
    ),
    "a selector with all operators": Case(
        ingress(
            {
                "from": [
                    {
                        "podSelector": {
                            "matchExpressions": [
                                {"key": "app", "operator": "In", "values": ["client", "x"]},
                                {"key": "app", "operator": "NotIn", "values": ["web"]},
                                {"key": "app", "operator": "Exists"},
                                {"key": "tier", "operator": "DoesNotExist"},
                            ]
                        }
                    }
                ]
            }
        ),
        [IN],
        [OTHER_SPACE],
    ),
    "Pods of a Node's network are no Pods for selectors, and addresses for blocks": Case(
        ingress(
            {"from": [{"namespaceSelector": {}}]},
            {"from": [{"ipBlock": {"cidr": "10.0.0.15/32"}}], "ports": [{"port": 1}]},
        ),
        [("b/host", "a/web", "1/tcp"), OTHER_SPACE],
        [("b/host", "a/web", "2/tcp")],
    ),
    "a peer that has no field that is known here is nobody": Case(
        ingress({"from": [{"later": {}}]}), [], [IN, OTHER_SPACE, FROM_OUTSIDE]
    ),
}


def told(policies: list[Spec]) -> Told:
    """What the controller tells agents of these."""
    found = Told()
    found.put(*(row("Namespace", name, labels=labels) for name, labels in SPACES.items()))
    for one in PODS:
        meta = one["metadata"]
        found.put(
            row(
                "Pod",
                meta["name"],
                meta["namespace"],
                labels=meta["labels"],
                spec=one["spec"],
                status=one["status"],
            )
        )
    for one in named(policies):
        found.put(policy_row(msgspec.convert(one, networking.NetworkPolicy)))
    return found


def named(policies: list[Spec]) -> list[Spec]:
    return [
        {"metadata": {"namespace": "a", "name": f"p{number}", "uid": f"uid-{number}"}, "spec": spec}
        for number, spec in enumerate(policies)
    ]


def by_controller(found: Told, source: str, destination: str, port: str) -> bool:
    """Whether rules and groups as agents have them let a packet pass; a plain reading of them."""
    groups: dict[tuple[str, str], list[cp.GroupMember]] = {}
    for one in found.of(Membership):
        groups.setdefault(one.group, []).append(one.member)
    policies = [one.policy for one in found.of(PublishedPolicy)]
    return _open(policies, groups, "Out", source, destination, port) and _open(
        policies, groups, "In", destination, source, port
    )


def _open(policies: Any, groups: Any, direction: str, own: str, other: str, port: str) -> bool:
    mine = {
        (policy.metadata.name): member
        for policy in policies
        for name in policy.applied_to_groups
        for member in groups.get(("appliedtogroups", name), ())
        if f"{member.pod.namespace}/{member.pod.name}" == own
    }
    rules = [
        (mine[policy.metadata.name], rule)
        for policy in policies
        if policy.metadata.name in mine
        for rule in policy.rules
        if rule.direction == direction
    ]
    if not rules:
        return True
    return any(
        rule.action == "Allow" and _matches(groups, member, rule, other, port) for member, rule in rules
    )


def _matches(groups: Any, own: cp.GroupMember, rule: cp.NetworkPolicyRule, other: str, port: str) -> bool:
    peer = rule.from_ if rule.direction == "In" else rule.to
    members = [one for name in peer.address_groups for one in groups.get(("addressgroups", name), ())]
    address = address_of(other)
    ways = [one.ports for one in members if packed(address) in one.ips]
    ways += [() for block in peer.ip_blocks if _in_block(block, address)]
    if rule.direction == "In":
        ways = [own.ports] * bool(ways)
    return any(not rule.services or any(_fits(one, port, ports) for one in rule.services) for ports in ways)


def _fits(service: cp.Service, port: str, ports: Any) -> bool:
    number, _, protocol = port.rpartition("/")
    if service.protocol != protocol.upper():
        return False
    first = service.port
    if isinstance(first, str):
        first = next((one.port for one in ports if (one.name, one.protocol) == (first, service.protocol)), -1)
    return first is None or first <= int(number) <= (service.end_port or first)


def _in_block(block: cp.IPBlock, address: str) -> bool:
    def has(net: cp.IPNet) -> bool:
        ip, mapped = ip_address(net.ip), packed(address)
        bits = net.prefix_length + (MAPPED if net.ip[:12] == packed("0.0.0.0")[:12] else 0)
        same = ":" in address or bits >= MAPPED
        return same and ip_address(mapped) in ip_network(f"{ip}/{bits}", strict=False)

    return has(block.cidr) and not any(map(has, block.except_))


def packed(address: str) -> bytes:
    found = ip_address(address)
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


def address_of(end: str) -> str:
    for one in PODS:
        if f"{one['metadata']['namespace']}/{one['metadata']['name']}" == end:
            return str(one["status"]["podIPs"][0]["ip"])
    return end


def by_explain(policies: list[Spec], source: str, destination: str, port: str) -> bool:
    spaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in SPACES.items()]
    world = World(objects({"pods": PODS, "namespaces": spaces, "kube_policies": named(policies)}))
    return answer(world, packet_of(world, source, destination, port, v=0, source_port=0)).verdict == "Allow"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_controller_keeps_each_sentence_of_the_api(case: Case) -> None:
    found = told(case.policies)
    assert [one for one in case.passes if not by_controller(found, *one)] == []
    assert [one for one in case.closed if by_controller(found, *one)] == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_explain_keeps_each_sentence_of_the_api(case: Case) -> None:
    assert [one for one in case.passes if not by_explain(case.policies, *one)] == []
    assert [one for one in case.closed if by_explain(case.policies, *one)] == []
