"""Policies in the controller, put together: Kubernetes' own, always on, and Antrea's by their gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.meta import Status
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.network_policy.controller import antrea_policy, kube_policy
from antrea.features.network_policy.controller.evaluation import evaluate
from antrea.features.network_policy.controller.group_query import associations, ip_associations, members
from antrea.features.network_policy.controller.realization import record_report

if TYPE_CHECKING:
    import msgspec

    from antrea.apis import controlplane_report as report
    from antrea.engine import Facts
    from antrea.features.framework.query import Answers, Query


def _cluster_group_members(facts: Facts, query: Query) -> msgspec.Struct | None:
    return members(facts, "", query.name, query.query)


def _group_members(facts: Facts, query: Query) -> msgspec.Struct | None:
    return members(facts, query.namespace, query.name, query.query)


def _groups(facts: Facts, query: Query) -> report.GroupAssociation:
    return associations(facts, query.namespace, query.name)


def _groups_of_ip(facts: Facts, query: Query) -> report.IPGroupAssociation:
    return ip_associations(facts, query.name)


def _evaluation(facts: Facts, query: Query) -> report.NetworkPolicyEvaluation:
    return evaluate(facts, query.posted)


def _realized(facts: Facts, query: Query) -> Status:
    record_report(facts, query.posted)
    return Status(status="Success", code=201)


ANSWERS: Answers = {
    ("clustergroupmembers", "", "get"): _cluster_group_members,
    ("groupmembers", "", "get"): _group_members,
    ("groupassociations", "", "get"): _groups,
    ("ipgroupassociations", "", "get"): _groups_of_ip,
    ("networkpolicyevaluation", "", "create"): _evaluation,
    ("networkpolicies", "status", "create"): _realized,
}


QUERIES = ControllerFeature(name="PolicyQueries", answers=ANSWERS)
FEATURES = (kube_policy.FEATURE, antrea_policy.FEATURE, QUERIES)
