"""Queries on policies and groups, and the reports of agents on what they have realized, by resource and verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.meta import Status
from antrea.features.network_policy.controller.evaluation import evaluated
from antrea.features.network_policy.controller.group_query import associations, ip_associations, members
from antrea.features.network_policy.controller.realization import noted

if TYPE_CHECKING:
    import msgspec

    from antrea.apis import controlplane_report as report
    from antrea.engine import Facts
    from antrea.features.framework.query import Answers, Asked


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


ANSWERS: Answers = {
    ("clustergroupmembers", "", "get"): _cluster_group_members,
    ("groupmembers", "", "get"): _group_members,
    ("groupassociations", "", "get"): _groups,
    ("ipgroupassociations", "", "get"): _groups_of_ip,
    ("networkpolicyevaluation", "", "create"): _evaluation,
    ("networkpolicies", "status", "create"): _realized,
}
