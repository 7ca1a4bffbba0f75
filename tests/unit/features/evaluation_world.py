"""Pod `client` of Namespace a, Pod `server` of Namespace b, and the rule that decides between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from native_world import Told, pod, space

from antrea.apis.controlplane import PodReference
from antrea.apis.controlplane_report import (
    Entity,
    NetworkPolicyEvaluation,
    NetworkPolicyEvaluationRequest,
)
from antrea.apis.networking import NetworkPolicy
from antrea.facts.cluster import Namespace, Pod
from antrea.features.network_policy.controller.evaluation import evaluate
from antrea.features.network_policy.controller.kube_policy import KubePolicy, policy_row

if TYPE_CHECKING:
    from collections.abc import Iterable

TO, FROM = ({"podSelector": {"matchLabels": {"app": name}}} for name in ("server", "client"))


def kube(name: str, **spec: Any) -> KubePolicy:
    """A policy of Kubernetes for `server`."""
    meta = {"name": name, "namespace": "b", "uid": f"uid-{name}"}
    found = {"metadata": meta, "spec": {**TO, "policyTypes": ["Ingress"], **spec}}
    return policy_row(msgspec.convert(found, NetworkPolicy))


ISOLATES = kube("isolates")
ALLOWS = kube("allows", ingress=[{"from": [{**FROM, "namespaceSelector": {}}]}])


def decided(policies: Iterable[Any]) -> tuple[Any, ...]:
    """Policy, number, direction, name and action of the rule that decides on packets of `client` to `server`."""
    world = Told().put(
        space("a"), space("b"), pod("client", "a", app="client"), pod("server", "b", app="server")
    )
    for kind in (Pod, Namespace, KubePolicy):
        world.facts.synced(kind)
    world.put(*policies)
    ends = [
        Entity(pod=PodReference(namespace=namespace, name=name))
        for namespace, name in (("a", "client"), ("b", "server"))
    ]
    asked = NetworkPolicyEvaluation(
        request=NetworkPolicyEvaluationRequest(source=ends[0], destination=ends[1])
    )
    found = evaluate(world.facts, asked).response
    assert found is not None
    told = found.rule
    return found.network_policy.name, found.rule_index, told.direction, told.name, told.action
