"""The controller's units over facts, what agents have been told by them, and objects as users write them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import core
from antrea.apis.crd import group as crd_group
from antrea.apis.crd.external import ExternalEntity
from antrea.apis.crd.network_policy import ClusterNetworkPolicy, NetworkPolicy
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.features.grouping.publication import GroupSpan, Membership, Memberships, PublishedPolicy
from antrea.features.grouping.row import entity_row, namespace_row, node_row, pod_row, service_row
from antrea.features.network_policy.controller.antrea_internal_policy import cluster_policy_row, policy_row
from antrea.features.network_policy.controller.group import cluster_group_row, group_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact

Spec = dict[str, Any]
CONVERSIONS: dict[str, tuple[type, Any]] = {
    "Pod": (core.Pod, pod_row),
    "Namespace": (core.Namespace, namespace_row),
    "Node": (core.Node, node_row),
    "Service": (core.Service, service_row),
    "ExternalEntity": (ExternalEntity, entity_row),
    "ClusterGroup": (crd_group.ClusterGroup, cluster_group_row),
    "Group": (crd_group.Group, group_row),
    "ClusterNetworkPolicy": (ClusterNetworkPolicy, cluster_policy_row),
    "NetworkPolicy": (NetworkPolicy, policy_row),
}


def named(selector: str) -> str:
    """The name of the group of a selector."""
    return str(uuid.uuid5(uuid.UUID("e4f24a48-ca1f-4d5b-819c-ea7632b22115"), selector))


def row(kind: str, name: str, namespace: str = "", **more: Any) -> Fact:
    """The row of an object; `labels` and `annotations` are its metadata's, all else is at its top."""
    return converted(*CONVERSIONS[kind], name, namespace, **more)


def converted(struct: type, convert: Any, name: str, namespace: str = "", **more: Any) -> Fact:
    """As `row`, of an object of any kind."""
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1}
    meta |= {"labels": more.pop("labels", {}), "annotations": more.pop("annotations", {})}
    meta["ownerReferences"] = more.pop("ownerReferences", [])
    found = convert(msgspec.convert({"metadata": meta, **more}, struct))
    assert found is not None
    result: Fact = found
    return result


def space(name: str, **labels: str) -> Fact:
    return row("Namespace", name, labels={"kubernetes.io/metadata.name": name, **labels})


def pod(name: str, namespace: str, node: str = "n1", ip: str = "10.0.0.7", **labels: str) -> Fact:
    account = {"serviceAccountName": labels.pop("account", "default")}
    status = {"podIPs": [{"ip": ip}] if ip else []}
    return row("Pod", name, namespace, labels=labels, spec={"nodeName": node, **account}, status=status)


def node(name: str, *ips: str, **labels: str) -> Fact:
    addresses = [{"type": "InternalIP", "address": ip} for ip in ips]
    return row("Node", name, labels=labels, status={"addresses": addresses})


def each(entry: Any) -> Iterable[Any]:
    """All that one entry says."""
    return entry.each() if isinstance(entry, Memberships) else (entry,)


class Told:
    """What agents have been told after each step."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units])
        self.standing: dict[Any, Any] = {}

    def put(self, *rows: Any) -> Told:
        for one in rows:
            self.facts.put(one)
        return self.step()

    def drop(self, kind: type[Any], key: str) -> Told:
        self.facts.drop(kind, key)
        return self.step()

    def step(self) -> Told:
        plan = self.engine.plan()
        assert not self.engine.errors.standing
        self.standing.update({(type(entry), entry.key): entry for entry in plan.put})
        for entry in plan.drop:
            del self.standing[type(entry), entry.key]
        return self

    def of(self, kind: type[Any]) -> list[Any]:
        """Entries of this kind; with those of a Pod one by one."""
        entries = [one for entry in self.standing.values() for one in each(entry)]
        return [entry for entry in entries if type(entry) is kind]

    def nodes(self) -> dict[str, tuple[str, ...]]:
        """Nodes of each policy, and of each group of addresses."""
        spans = {entry.name: entry.parts for entry in self.of(GroupSpan)}
        return {**{entry.key: entry.nodes for entry in self.of(PublishedPolicy)}, **spans}

    def policy(self, name: str) -> Any:
        """The one of this name, as agents are told."""
        (found,) = (one.policy for one in self.of(PublishedPolicy) if one.policy.source_ref.name == name)
        return found

    def members(self, resource: str, name: str) -> set[str]:
        """Who belongs to a group."""
        return {one.who for one in self.of(Membership) if one.group == (resource, name)}
