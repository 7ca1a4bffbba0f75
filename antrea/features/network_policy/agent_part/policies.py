"""Policies and groups from the controller, as the agent shows them.

Source: upstream pkg/agent/apiserver/handlers/{networkpolicy,addressgroup,appliedtogroup,fqdncache}. Unlike upstream's, a domain
is not a regular expression: * stands for any text, and everything else for itself.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from antrea.apis.controlplane import AddressGroup, AppliedToGroup, NetworkPolicy
from antrea.apis.crd.info import NetworkPolicyControllerInfo
from antrea.apis.meta import ObjectMetadata
from antrea.errors import Invalid
from antrea.features.framework.agent_part import NotFound
from antrea.features.network_policy.agent.received import (
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
    SentGroup,
    SentMember,
    SentPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.agent_api import FqdnAnswer
    from antrea.apis.controlplane import GroupMember
    from antrea.engine import Facts

    Group = TypeVar("Group", AddressGroup, AppliedToGroup)

TYPES = {
    "ACNP": "AntreaClusterNetworkPolicy",
    "ANNP": "AntreaNetworkPolicy",
    "ANP": "AdminNetworkPolicy",
    "BANP": "BaselineAdminNetworkPolicy",
    "K8SCNP": "K8sClusterNetworkPolicy",
    "K8SNP": "K8sNetworkPolicy",
}
"""Short names of the kinds of policies, in capitals."""


class Received(NamedTuple):
    """Policies and groups that the controller sent for this Node."""

    policies: tuple[NetworkPolicy, ...] = ()
    address_groups: tuple[AddressGroup, ...] = ()
    applied_to_groups: tuple[AppliedToGroup, ...] = ()


def received(facts: Facts) -> Received:
    """Collect policies and groups received from the controller so far."""
    return Received(
        policies=tuple(row.policy for row in facts.all(SentPolicy)),
        address_groups=tuple(
            AddressGroup(metadata=ObjectMetadata(name=name, uid=name), group_members=members)
            for name, members in _groups(facts, SentAddressGroup, SentAddressMember)
        ),
        applied_to_groups=tuple(
            AppliedToGroup(metadata=ObjectMetadata(name=name, uid=name), group_members=members)
            for name, members in _groups(facts, SentAppliedGroup, SentAppliedMember)
        ),
    )


def counts(facts: Facts) -> NetworkPolicyControllerInfo:
    """Count policies and groups received from the controller so far."""
    return NetworkPolicyControllerInfo(
        network_policy_num=len(facts.all(SentPolicy)),
        address_group_num=len(facts.all(SentAddressGroup)),
        applied_to_group_num=len(facts.all(SentAppliedGroup)),
    )


def _groups(
    facts: Facts, head: type[SentGroup], member: type[SentMember]
) -> Iterator[tuple[str, tuple[GroupMember, ...]]]:
    for group in facts.all(head):
        rows = (row.member for row in facts.by(member, "group", group.name))
        yield group.name, tuple(sorted(rows, key=msgspec.json.encode))


def network_policies(state: Received, query: Mapping[str, str]) -> dict[str, list[NetworkPolicy]]:
    """Return a list as {"items": [...]}, by `name`, or by `source`, `namespace`, `type` and `pod`. Raises Invalid."""
    name, source, namespace, pod = (query.get(key, "") for key in ("name", "source", "namespace", "pod"))
    kind = query.get("type", "").upper()
    if pod.count("/") != 1 and pod:
        raise Invalid("pod", "invalid pod option format. Expected format is podNamespace/podName")
    if pod and namespace:
        raise Invalid("namespace", "namespace option should not be used with pod option")
    if kind and kind not in TYPES:
        raise Invalid("type", f"unknown policy type. Valid types are [{' '.join(TYPES)}]")
    if name and (source or namespace or pod or kind):
        raise Invalid("name", "with a policy name, none of the other options should be set")

    def wanted(policy: NetworkPolicy) -> bool:
        origin = policy.source_ref
        if name or origin is None:
            return policy.metadata.name == name or not name
        return (
            source in ("", origin.name)
            and namespace in ("", origin.namespace)
            and TYPES.get(kind, origin.type) == origin.type
        )

    groups = _groups_of(state, pod) if pod else None
    return {
        "items": [
            policy
            for policy in state.policies
            if wanted(policy) and (groups is None or not groups.isdisjoint(_applied_to(policy)))
        ]
    }


def _groups_of(state: Received, pod: str) -> set[str]:
    namespace, _, name = pod.partition("/")
    return {
        group.metadata.name
        for group in state.applied_to_groups
        for member in group.group_members
        if member.pod and (member.pod.namespace, member.pod.name) == (namespace, name)
    }


def _applied_to(policy: NetworkPolicy) -> Iterable[str]:
    yield from policy.applied_to_groups
    for rule in policy.rules:
        yield from rule.applied_to_groups


def address_groups(
    state: Received, query: Mapping[str, str]
) -> AddressGroup | dict[str, tuple[AddressGroup, ...]]:
    """Return all groups as {"items": [...]}, or the one of the query's `name`. Raises NotFound."""
    return _all_or_one(state.address_groups, "AddressGroup", query)


def applied_to_groups(
    state: Received, query: Mapping[str, str]
) -> AppliedToGroup | dict[str, tuple[AppliedToGroup, ...]]:
    """Return all groups as {"items": [...]}, or the one of the query's `name`. Raises NotFound."""
    return _all_or_one(state.applied_to_groups, "AppliedToGroup", query)


def _all_or_one(
    groups: tuple[Group, ...], kind: str, query: Mapping[str, str]
) -> Group | dict[str, tuple[Group, ...]]:
    name = query.get("name", "")
    if not name:
        return {"items": groups}
    for group in groups:
        if group.metadata.name == name:
            return group
    raise NotFound(f"{kind} {name} was not sent to this agent")


def fqdn_cache(answers: Iterable[FqdnAnswer], query: Mapping[str, str]) -> list[FqdnAnswer]:
    """Return addresses of names that match the query's `domain`, such as *.antrea.io."""
    domain = query.get("domain", "").strip().lower()
    pattern = re.compile(fnmatch.translate(glob.escape(domain).replace("[*]", "*")))
    return [row for row in answers if not domain or pattern.fullmatch(row.fqdn_name)]
