"""/endpoint: the policies that apply to a Pod, and the rules that have it as a peer, for `antctl query endpoint`.

It reads the stores that agents watch. Upstream names a policy once for each of its groups; we name it once.
parity: pkg/apiserver/handlers/endpoint, pkg/controller/networkpolicy/endpoint_querier.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from antrea.apis.controlplane import GROUP, NetworkPolicy, NetworkPolicyReference
from antrea.apis.core import ObjectMeta
from antrea.errors import Unavailable
from antrea.features.framework.label import is_object_name
from antrea.features.network_policy.controller.peer import numbers_with
from antrea.outside.http.handlers import json_answer

if TYPE_CHECKING:
    from antrea.outside.apiserver.store import Store
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.client import Kube

Stores = Mapping[tuple[str, str], "Store"]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule by its number among those of its direction, from 0."""

    policyref: NetworkPolicyReference
    direction: str
    ruleindex: int = 0


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Pod; what is empty is left out."""

    namespace: str = ""
    name: str = ""
    policies: tuple[NetworkPolicyReference, ...] = ()
    ingresssrcrules: tuple[Rule, ...] = ()
    egressdstrules: tuple[Rule, ...] = ()


class EndpointAnswer(msgspec.Struct, frozen=True):
    """A Pod's name means one Pod at most."""

    endpoints: tuple[Endpoint, ...]


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def endpoint(kube: Kube | None, stores: Stores) -> Handler:
    """A handler of GET with the queries `pod` and `namespace`. It raises Unavailable, Refused."""

    async def handler(request: web.Request) -> web.StreamResponse:
        pod, namespace = (request.query.get(key, "") for key in ("pod", "namespace"))
        if not pod:
            return web.Response(status=400, text="pod must be provided\n")
        if kube is None:
            raise Unavailable("there is no API server that knows the Pods")
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        named = is_object_name(namespace) and is_object_name(pod)
        if not named or await kube.get(path, _Pod) is None:
            return web.Response(status=404, text="could not find any endpoints matching your selection\n")
        return json_answer(EndpointAnswer((found(stores, namespace, pod),)))

    return handler


def found(stores: Stores, namespace: str, pod: str) -> Endpoint:
    """Look a Pod up in the stores. Raises Unavailable while they are not filled."""
    applied = groups_of(stores, "appliedtogroups", namespace, pod)
    peers = groups_of(stores, "addressgroups", namespace, pod)
    policies = [*_all(stores, "networkpolicies")]
    return Endpoint(
        namespace,
        pod,
        tuple(_reference(policy) for policy in policies if applied & targets(policy)),
        tuple(rule for policy in policies for rule in rules_with(policy, "In", peers)),
        tuple(rule for policy in policies for rule in rules_with(policy, "Out", peers)),
    )


def groups_of(stores: Stores, plural: str, namespace: str, pod: str) -> set[str]:
    """Names of the groups that the Pod is a member of."""
    return {
        group.metadata.name
        for group in _all(stores, plural)
        if any(
            member.pod and (member.pod.name, member.pod.namespace) == (pod, namespace)
            for member in group.group_members
        )
    }


def targets(policy: NetworkPolicy) -> set[str]:
    """Names of the groups that the policy or one of its rules is for."""
    return {*policy.applied_to_groups, *(name for rule in policy.rules for name in rule.applied_to_groups)}


def rules_with(policy: NetworkPolicy, direction: str, peers: set[str]) -> Iterator[Rule]:
    """Rules of the policy that have one of these groups on the other side."""
    for number in numbers_with(policy.rules, direction, peers):
        yield Rule(_reference(policy), direction, number)


def _reference(policy: NetworkPolicy) -> NetworkPolicyReference:
    return policy.source_ref or NetworkPolicyReference(uid=policy.metadata.uid)


def _all(stores: Stores, plural: str) -> Iterator[Any]:
    store = stores[GROUP, plural]
    if not store.synced:
        raise Unavailable(f"{plural} are not computed yet, try again")
    return store.found()
