"""Answers to questions that no store holds: pure functions over what the controller knows, by resource and verb.

A feature that is built later puts its own answer into its row; until then nothing is selected, matched or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import controlplane_report as report
from antrea.apis.meta import ObjectMetadata, Status
from antrea.errors import Invalid
from antrea.features.network_policy.evaluation import evaluated

if TYPE_CHECKING:
    from antrea.engine import Facts


class Asked(msgspec.Struct, frozen=True):
    """One question: the object's name, the query and the posted object, None for get and delete."""

    namespace: str
    name: str
    query: Mapping[str, str] = {}
    found: Any = None


Answer = Callable[["Facts", Asked], "msgspec.Struct | None"]
"""None: there is no such object. Raises Invalid for what the client must change, Unavailable."""


def _none(_: Facts, asked: Asked) -> None:
    """There are no groups."""
    for key in ("page", "limit"):
        value = asked.query.get(key, "0")
        if not value.lstrip("-").isdigit() or int(value) < 0:
            raise Invalid(key, f"received invalid page number or limit for {key}: {value}")


def _groups(_: Facts, asked: Asked) -> report.GroupAssociation:
    del asked
    return report.GroupAssociation(metadata=ObjectMetadata(), associated_groups=())


def _groups_of_ip(_: Facts, asked: Asked) -> report.IPGroupAssociation:
    try:
        ip_address(asked.name)
    except ValueError as why:
        raise Invalid("name", f"IP {asked.name} is not a valid IP address") from why
    return report.IPGroupAssociation(metadata=ObjectMetadata(), associated_groups=())


def _evaluation(facts: Facts, asked: Asked) -> report.NetworkPolicyEvaluation:
    return evaluated(facts, asked.found)


def _counted(_: Facts, asked: Asked) -> report.NodeStatsSummary:
    del asked
    return report.NodeStatsSummary()


def _noted(_: Facts, asked: Asked) -> Status:
    """The status of a policy or collection that is gone, as all are now, is not kept."""
    del asked
    return Status(status="Success", code=201)


ANSWERS: Mapping[tuple[str, str, str], Answer] = {
    ("clustergroupmembers", "", "get"): _none,
    ("groupmembers", "", "get"): _none,
    ("groupassociations", "", "get"): _groups,
    ("ipgroupassociations", "", "get"): _groups_of_ip,
    ("networkpolicyevaluation", "", "create"): _evaluation,
    ("nodestatssummaries", "", "create"): _counted,
    ("networkpolicies", "status", "create"): _noted,
    ("supportbundlecollections", "status", "create"): _noted,
}
"""By resource, subresource and verb."""
