"""/endpoint: the policies that apply to a Pod, and the rules that have it as a peer, for `antctl query endpoint`.

It reads the stores that agents watch. Upstream names a policy once for each of its groups; we name it once. Of Services upstream
shows nothing: we name those that select the Pod, with what judges connections to the Pod by them.
parity: pkg/apiserver/handlers/endpoint, pkg/controller/networkpolicy/endpoint_querier.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from antrea.apis.controlplane import (
    GROUP,
    GroupMember,
    NetworkPolicy,
    NetworkPolicyReference,
    ServiceReference,
)
from antrea.apis.core import ObjectMeta, Service
from antrea.errors import Unavailable
from antrea.features.framework.label import is_object_name
from antrea.features.network_policy.controller.peer import numbers_with
from antrea.outside.http.handlers import json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from antrea.outside.apiserver.store import Store
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.client import Kube

Stores = Mapping[tuple[str, str], "Store"]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule by its number among those of its direction, from 0."""

    policyref: NetworkPolicyReference
    direction: str
    ruleindex: int = 0


class ServiceAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Service that selects the Pod, policies for its NodePorts, and rules with `toServices` that name it."""

    namespace: str = ""
    name: str = ""
    policies: tuple[NetworkPolicyReference, ...] = ()
    egressdstrules: tuple[Rule, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Pod; what is empty is left out."""

    namespace: str = ""
    name: str = ""
    policies: tuple[NetworkPolicyReference, ...] = ()
    ingresssrcrules: tuple[Rule, ...] = ()
    egressdstrules: tuple[Rule, ...] = ()
    services: tuple[ServiceAnswer, ...] = ()


class EndpointAnswer(msgspec.Struct, frozen=True):
    """A Pod's name means one Pod at most."""

    endpoints: tuple[Endpoint, ...]


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def endpoint(kube: Kube | None, stores: Stores) -> Handler:
    """A handler of GET with the queries `pod` and `namespace`. It raises Unavailable, Refused."""

    async def handler(request: web.Request) -> web.StreamResponse:
        pod, namespace = request.query.get("pod", ""), request.query.get("namespace") or "default"
        if not pod:
            return web.Response(status=400, text="pod must be provided\n")
        if kube is None:
            raise Unavailable("there is no API server that knows the Pods")
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        named = is_object_name(namespace) and is_object_name(pod)
        there = await kube.get(path, _Pod) if named else None
        if there is None:
            return web.Response(status=404, text="could not find any endpoints matching your selection\n")
        services = await services_of(kube, namespace, there.metadata.labels)
        return json_answer(EndpointAnswer((endpoint_of(stores, namespace, pod, services),)))

    return handler


async def services_of(kube: Kube, namespace: str, labels: Mapping[str, str]) -> list[str]:
    """Names of the Services that select a Pod with these labels. Raises Unavailable, Refused."""
    listed, _ = await kube.list(f"/api/v1/namespaces/{namespace}/services", Service)
    return sorted(
        item.metadata.name
        for item in listed
        if item.spec.selector and item.spec.selector.items() <= labels.items()
    )


def endpoint_of(stores: Stores, namespace: str, pod: str, services: Iterable[str] = ()) -> Endpoint:
    """Look a Pod up in the stores, and its Services. Raises Unavailable while they are not filled."""

    def is_pod(member: GroupMember) -> bool:
        return member.pod is not None and (member.pod.name, member.pod.namespace) == (pod, namespace)

    applied = groups_of(stores, "appliedtogroups", is_pod)
    peers = groups_of(stores, "addressgroups", is_pod)
    policies = [*_all(stores, "networkpolicies")]
    return Endpoint(
        namespace,
        pod,
        tuple(_reference(policy) for policy in policies if applied & targets(policy)),
        tuple(rule for policy in policies for rule in rules_with(policy, "In", peers)),
        tuple(rule for policy in policies for rule in rules_with(policy, "Out", peers)),
        tuple(
            of_service(stores, policies, ServiceReference(name=service, namespace=namespace))
            for service in services
        ),
    )


def of_service(stores: Stores, policies: Iterable[NetworkPolicy], service: ServiceReference) -> ServiceAnswer:
    """Look a Service up among the policies and their groups."""
    applied = groups_of(stores, "appliedtogroups", lambda member: member.service == service)
    return ServiceAnswer(
        service.namespace,
        service.name,
        tuple(_reference(policy) for policy in policies if applied & targets(policy)),
        tuple(
            Rule(_reference(policy), "Out", number)
            for policy in policies
            for number, rule in enumerate(rule for rule in policy.rules if rule.direction == "Out")
            if service in rule.to.to_services
        ),
    )


def groups_of(stores: Stores, plural: str, wanted: Callable[[GroupMember], bool]) -> set[str]:
    """Names of the groups with such a member."""
    return {group.metadata.name for group in _all(stores, plural) if any(map(wanted, group.group_members))}


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
    return store.values()
