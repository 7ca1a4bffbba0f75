"""What is stored and not enforced does not count as realized: each field of the policies' schemas, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from native_world import Told, node, pod, row, space

from antrea.apis.controlplane_report import NetworkPolicyNodeStatus, NetworkPolicyStatus
from antrea.apis.crd.network_policy import ClusterNetworkPolicySpec, NetworkPolicySpec
from antrea.apis.crd.part import Condition
from antrea.apis.meta import ObjectMetadata
from antrea.apis.schema import schema_of
from antrea.apis.status import Status
from antrea.facts.machine import AgentMachine
from antrea.features.network_policy.controller.realization import record_report
from antrea.features.network_policy.controller.unbuilt import NO_MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterator

Spec = dict[str, Any]
WEB = {"matchLabels": {"app": "web"}}
CLUSTER, NAMESPACED = "ClusterNetworkPolicy", "NetworkPolicy"
ENFORCED = {
    "priority", "tier", "action", "name", "enableLogging", "logLabel",
    "appliedTo.podSelector", "appliedTo.namespaceSelector", "appliedTo.group", "appliedTo.nodeSelector",
    "appliedTo.service.name", "appliedTo.service.namespace",
    "appliedTo.externalEntitySelector", "appliedTo.serviceAccount.name", "appliedTo.serviceAccount.namespace",
    "ports.protocol", "ports.port", "ports.endPort", "ports.sourcePort", "ports.sourceEndPort",
    "protocols.icmp.icmpType", "protocols.icmp.icmpCode",
    "peer.podSelector", "peer.namespaceSelector", "peer.externalEntitySelector", "peer.nodeSelector", "peer.group",
    "peer.ipBlock.cidr", "peer.ipBlock.except", "peer.fqdn", "peer.namespaces.match", "peer.namespaces.sameLabels",
    "peer.serviceAccount.name", "peer.serviceAccount.namespace",
    "toServices.name", "toServices.namespace",
    "l7Protocols.http.host", "l7Protocols.http.method", "l7Protocols.http.path", "l7Protocols.tls.sni",
}  # fmt: skip
"""What `tests/ovs/test_ovs_explain.py`, test_ovs_fqdn.py, tests/host/test_host_l7_engine.py and docs/network-policy.md prove with packets."""
SELECTORS = ("matchLabels", "matchExpressions")


def ingress(**rule: Any) -> Spec:
    return {"ingress": [{"action": "Drop", "name": "r", **rule}]}


def egress(**rule: Any) -> Spec:
    return {"egress": [{"action": "Drop", "name": "r", **rule}]}


def applied(**target: Any) -> Spec:
    return {"appliedTo": [target], **ingress()}


IGMP = {"igmp": {"igmpType": 17, "groupAddress": "224.0.0.9"}}
NOWHERE = "the policy does not hold there"
NOTHING_YET = "it matches nothing"
NOTHING = f"is not built yet: {NOTHING_YET}"
HERE = "is not built yet: it matches Pods of this cluster alone"
UNBUILT: dict[str, list[tuple[Spec, str]]] = {
    "protocols.igmp": [(ingress(protocols=[IGMP]), f"spec.ingress[0].protocols[0].igmp {NOTHING}")],
    "peer.scope": [
        (ingress(**{"from": [{"podSelector": WEB, "scope": "ClusterSet"}]}), f"spec.ingress[0].from[0].scope {HERE}"),
    ],
    "toServices.scope": [
        (
            egress(toServices=[{"name": "s", "namespace": "ns", "scope": "ClusterSet"}]),
            f"spec.egress[0].toServices[0].scope {NOTHING}",
        ),
    ],
}  # fmt: skip
"""A field or what is below it; policies that have it, and what their status says."""
ODD: dict[str, tuple[Spec, str]] = {
    "a block": (
        ingress(**{"from": [{"ipBlock": {"cidr": "010.0.0.0/8"}}]}),
        "spec.ingress[0].from[0].ipBlock.cidr: '010.0.0.0/8' is not a CIDR such as 10.0.0.0/8 or fd00::/64: it is nobody",
    ),
    "a selector": (
        applied(podSelector={"matchExpressions": [{"key": "a=b", "operator": "Exists"}]}),
        "spec.appliedTo[0].podSelector has a key or value that no label has: it is nobody",
    ),
}


def leaves(schema: Spec, path: str = "") -> Iterator[str]:
    """Paths of all fields, lists passed through, selectors as a whole; both directions' peers are `peer`."""
    while "items" in schema:
        schema = schema["items"]
    below = schema.get("properties", {})
    if not below or set(SELECTORS) <= set(below):
        yield path
        return
    for name, one in below.items():
        word = "peer" if name in ("from", "to") else name
        yield from leaves(one, f"{path}.{word}" if path else word)


@pytest.mark.parametrize("spec", [ClusterNetworkPolicySpec, NetworkPolicySpec])
def test_each_field_of_a_policy_is_enforced_or_known_not_to_be(spec: type) -> None:
    found = set()
    for leaf in leaves(schema_of(spec)):
        found.add(leaf.removeprefix("ingress.").removeprefix("egress."))
    unbuilt = {leaf for leaf in found for path in UNBUILT if leaf == path or leaf.startswith(f"{path}.")}
    assert not unbuilt & ENFORCED
    assert found - ENFORCED == unbuilt


def status(told: Told) -> tuple[str, int, int, Condition]:
    """Phase, current and desired Nodes, whether it can be realized; all Nodes say that they have it."""
    report = tuple(NetworkPolicyNodeStatus(node_name=name, generation=1) for name in ("n1", "n2"))
    record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=report))
    told.step()
    (found,) = (one for one in told.of(Status) if one.path.endswith("policies/p"))
    fields = dict(found.fields)
    conditions = {one.type: one for one in found.conditions}
    return (
        fields["phase"],
        fields["currentNodesRealized"],
        fields["desiredNodesRealized"],
        conditions["Realizable"],
    )


def world(spec: Spec, kind: str = CLUSTER, **group: Any) -> Told:
    target = (
        {}
        if "appliedTo" in spec or any("appliedTo" in one for one in spec.get("ingress", ()))
        else {"appliedTo": [{"podSelector": WEB}]}
    )
    groups = [row("ClusterGroup", "g", spec=group)] if group else []
    namespace = "ns" if kind == NAMESPACED else ""
    return Told().put(
        space("ns"), pod("w", "ns", "n1", app="web"), pod("x", "ns", "n2", app="web"),
        node("n1", "192.168.0.1"), node("n2", "192.168.0.2"),
        row("ExternalEntity", "e", "ns", spec={"endpoints": [{"ip": "192.0.2.1"}], "externalNode": "n1"}),
        *groups, row(kind, "p", namespace, spec={"priority": 5, **target, **spec}),
    )  # fmt: skip


def unrealizable(message: str) -> Condition:
    return Condition("Realizable", "False", reason="NetworkPolicyPartNotEnforced", message=message)


@pytest.mark.parametrize(("spec", "message"), [one for rows in UNBUILT.values() for one in rows])
@pytest.mark.parametrize("kind", [CLUSTER, NAMESPACED])
def test_a_policy_with_a_part_that_is_not_built_is_realized_by_no_node(
    kind: str, spec: Spec, message: str
) -> None:
    phase, current, _, realizable = status(world(spec, kind))
    assert (phase, current, realizable) == ("Failed", 0, unrealizable(message))


SERVICE = {"name": "s", "namespace": "ns"}
ON_SERVICES: dict[str, tuple[Spec, str]] = {
    "a peer that is no block": (
        {"appliedTo": [{"service": SERVICE}], **ingress(**{"from": [{"podSelector": WEB}]})},
        f"spec.ingress[0].from[0] is not an ipBlock, which a rule on Services requires: {NOWHERE}",
    ),
    "an egress rule": (
        egress(appliedTo=[{"service": SERVICE}]),
        f"spec.egress[0] is on what Services send, which is nothing: {NOWHERE}",
    ),
    "a port by name": (
        {"appliedTo": [{"service": SERVICE}], **ingress(ports=[{"port": "http"}])},
        f"spec.ingress[0].ports[0].port is a name, and Services give ports of rules none: {NOTHING_YET}",
    ),
}


@pytest.mark.parametrize(("spec", "message"), ON_SERVICES.values(), ids=ON_SERVICES)
def test_nor_is_one_for_a_service_with_what_is_not_judged_there(spec: Spec, message: str) -> None:
    spec = spec if "appliedTo" in spec else {"appliedTo": [], **spec}
    phase, current, _, realizable = status(world(spec))
    assert (phase, current, realizable) == ("Failed", 0, unrealizable(message))


def test_a_policy_for_a_service_is_realized_unless_it_is_one_of_a_namespace() -> None:
    spec = applied(service=SERVICE)
    assert status(world(spec)) == ("Realized", 2, 2, Condition("Realizable", "True"))
    phase, _, nodes, realizable = status(world(spec, NAMESPACED))
    foreign = f"spec.appliedTo[0].service is for policies of the cluster alone: {NOWHERE}"
    assert (phase, nodes, realizable) == ("Failed", 0, unrealizable(foreign))


@pytest.mark.parametrize(("spec", "message"), ODD.values(), ids=ODD)
def test_nor_is_one_that_names_what_cannot_be(spec: Spec, message: str) -> None:
    phase, current, _, realizable = status(world(spec))
    assert (phase, current, realizable) == ("Failed", 0, unrealizable(message))


MACHINES: dict[str, tuple[Spec, Spec]] = {
    "selected": (applied(externalEntitySelector={}), {}),
    "in a group": (applied(group="g"), {"externalEntitySelector": {}}),
}


@pytest.mark.parametrize(("spec", "group"), MACHINES.values(), ids=MACHINES)
def test_nor_is_one_for_an_external_entity_without_an_agent_until_it_has_an_external_node(
    spec: Spec, group: Spec
) -> None:
    told = world(spec, **group)
    phase, current, _, realizable = status(told)
    assert (phase, current, realizable) == ("Failed", 0, unrealizable(f"ExternalEntity ns/e {NO_MACHINE}"))
    owner = {"kind": "ExternalNode", "name": "vm", "uid": "u"}
    entity = {"endpoints": [{"ip": "192.0.2.1"}], "externalNode": "vm"}
    told.put(AgentMachine("ns", "vm"), row("ExternalEntity", "e", "ns", spec=entity, ownerReferences=[owner]))
    # no agent has reported yet
    assert status(told) == ("Realizing", 0, 1, Condition("Realizable", "True"))
    report = (NetworkPolicyNodeStatus(node_name="ns/vm", generation=1),)
    record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=report))
    assert status(told) == ("Realized", 1, 1, Condition("Realizable", "True"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            egress(toServices=[{"name": "s", "namespace": "ns"}]),
            f"spec.egress[0].toServices is not built for ExternalNodes yet: {NOTHING_YET}",
        ),
        (
            ingress(ports=[{"port": "http"}]),
            f"spec.ingress[0].ports[0].port is a name, and ports of ExternalNodes have none: {NOTHING_YET}",
        ),
    ],
)
@pytest.mark.parametrize(("target", "group"), MACHINES.values(), ids=MACHINES)
def test_what_holds_for_pods_and_not_for_machines_is_named(
    spec: Spec, message: str, target: Spec, group: Spec
) -> None:
    *_, realizable = status(world({"appliedTo": target["appliedTo"], **spec}, **group))
    assert realizable.message.startswith(message)


def test_three_parts_are_named() -> None:
    many = world(
        egress(toServices=[{"name": name, "namespace": "a", "scope": "ClusterSet"} for name in "abcd"])
    )
    *_, realizable = status(many)
    parts = "; ".join(f"spec.egress[0].toServices[{number}].scope {NOTHING}" for number in range(3))
    assert realizable == unrealizable(f"{parts}; and more")


def test_a_policy_of_enforced_parts_is_realized() -> None:
    into = {
        "from": [
            {"podSelector": WEB},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9"]}},
            {"nodeSelector": {}},
        ]
    }
    assert status(world(ingress(**into))) == ("Realized", 2, 2, Condition("Realizable", "True"))


ON_NODES: Spec = {"appliedTo": [{"nodeSelector": {}}]}


@pytest.mark.parametrize(
    "spec",
    [
        egress(toServices=[{"name": "s", "namespace": "ns"}]),
        egress(ports=[{"port": "http"}], to=[{"podSelector": WEB}]),
    ],
)
def test_services_and_ports_by_name_of_receivers_hold_for_nodes(spec: Spec) -> None:
    *_, realizable = status(world({**ON_NODES, **spec}))
    assert realizable == Condition("Realizable", "True")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            ingress(ports=[{"port": "http"}]),
            f"spec.ingress[0].ports[0].port is a name, and ports of Nodes have none: {NOTHING_YET}",
        ),
    ],
)
@pytest.mark.parametrize("by_group", [False, True])
def test_what_holds_for_pods_and_not_for_nodes_is_named(spec: Spec, message: str, *, by_group: bool) -> None:
    target: Spec = {"appliedTo": [{"group": "g"}]} if by_group else ON_NODES
    group: Spec = {"nodeSelector": {}} if by_group else {}
    told = world({**target, **spec}, **group)
    phase, current, _, realizable = status(told)
    assert (phase, current, realizable) == ("Failed", 0, unrealizable(message))
