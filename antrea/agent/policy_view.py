"""What the agent shows of the policies and groups that the controller sent it.

Source: upstream pkg/agent/apiserver/handlers/{networkpolicy,addressgroup,appliedtogroup,fqdncache}. Unlike upstream's,
a domain is no regular expression: * stands for any text, and all else for itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from antrea.agent.agent_view import NotFound
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.agent.agent_view import AgentView
    from antrea.apis.agent_api import FqdnAnswer
    from antrea.apis.controlplane import AddressGroup, AppliedToGroup, NetworkPolicy

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


def network_policies(view: AgentView, query: Mapping[str, str]) -> dict[str, list[NetworkPolicy]]:
    """A list as {"items": [...]}, by `name`, or by `source`, `namespace`, `type` and `pod`. Raises Invalid."""
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

    groups = _groups_of(view, pod) if pod else None
    return {
        "items": [
            policy
            for policy in view.received().policies
            if wanted(policy) and (groups is None or not groups.isdisjoint(_applied_to(policy)))
        ]
    }


def _groups_of(view: AgentView, pod: str) -> set[str]:
    namespace, _, name = pod.partition("/")
    return {
        group.metadata.name
        for group in view.received().applied_to_groups
        for member in group.group_members
        if member.pod and (member.pod.namespace, member.pod.name) == (namespace, name)
    }


def _applied_to(policy: NetworkPolicy) -> Iterable[str]:
    yield from policy.applied_to_groups
    for rule in policy.rules:
        yield from rule.applied_to_groups


def address_groups(
    view: AgentView, query: Mapping[str, str]
) -> AddressGroup | dict[str, tuple[AddressGroup, ...]]:
    """All of them as {"items": [...]}, or the one of the query's `name`. Raises NotFound."""
    return _all_or_one(view.received().address_groups, "AddressGroup", query)


def applied_to_groups(
    view: AgentView, query: Mapping[str, str]
) -> AppliedToGroup | dict[str, tuple[AppliedToGroup, ...]]:
    """All of them as {"items": [...]}, or the one of the query's `name`. Raises NotFound."""
    return _all_or_one(view.received().applied_to_groups, "AppliedToGroup", query)


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


def fqdn_cache(view: AgentView, query: Mapping[str, str]) -> list[FqdnAnswer]:
    """Addresses of names that match the query's `domain`, such as *.antrea.io."""
    domain = query.get("domain", "").strip()
    pattern = re.compile(".*".join(map(re.escape, domain.split("*"))))
    return [row for row in view.received().fqdns if not domain or pattern.fullmatch(row.fqdn_name)]
