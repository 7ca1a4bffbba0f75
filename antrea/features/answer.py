"""Answers to questions that no store holds: functions over what the controller knows, by resource and verb.

They are pure but for what agents report, which is noted.

A feature that is built later puts its own answer into its row; until then nothing is selected, matched or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import Status
from antrea.features.network_policy.evaluation import evaluated
from antrea.features.network_policy.group_answer import associations, ip_associations, members
from antrea.features.network_policy.realization import noted

if TYPE_CHECKING:
    from antrea.apis import controlplane_report as report
    from antrea.engine import Facts


class Asked(msgspec.Struct, frozen=True):
    """One question: the object's name, the query and the posted object, None for get and delete."""

    namespace: str
    name: str
    query: Mapping[str, str] = {}
    found: Any = None


Answer = Callable[["Facts", Asked], "msgspec.Struct | None"]
"""None: there is no such object. Raises Invalid for what the client must change, Unavailable."""


def _cluster_group_members(facts: Facts, asked: Asked) -> msgspec.Struct | None:
    return members(facts, "", asked.name, asked.query)


def _group_members(facts: Facts, asked: Asked) -> msgspec.Struct | None:
    return members(facts, asked.namespace, asked.name, asked.query)


def _groups(facts: Facts, asked: Asked) -> report.GroupAssociation:
    return associations(facts, asked.namespace, asked.name)


def _groups_of_ip(facts: Facts, asked: Asked) -> report.IPGroupAssociation:
    return ip_associations(facts, asked.name)


def _evaluation(facts: Facts, asked: Asked) -> report.NetworkPolicyEvaluation:
    return evaluated(facts, asked.found)


def _realized(facts: Facts, asked: Asked) -> Status:
    noted(facts, asked.found)
    return Status(status="Success", code=201)


def _noted(_: Facts, asked: Asked) -> Status:
    """The status of a collection that is gone, as all are now, is not kept."""
    del asked
    return Status(status="Success", code=201)


ANSWERS: Mapping[tuple[str, str, str], Answer] = {
    ("clustergroupmembers", "", "get"): _cluster_group_members,
    ("groupmembers", "", "get"): _group_members,
    ("groupassociations", "", "get"): _groups,
    ("ipgroupassociations", "", "get"): _groups_of_ip,
    ("networkpolicyevaluation", "", "create"): _evaluation,
    ("networkpolicies", "status", "create"): _realized,
    ("supportbundlecollections", "status", "create"): _noted,
}
"""By resource, subresource and verb."""
