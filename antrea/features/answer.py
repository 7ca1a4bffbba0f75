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
from antrea.apis.system import SupportBundle
from antrea.errors import Invalid, Unavailable

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


def _evaluation(_: Facts, asked: Asked) -> report.NetworkPolicyEvaluation:
    """No policy, no rule."""
    found: report.NetworkPolicyEvaluation = asked.found
    return msgspec.structs.replace(found, response=None)


def _counted(_: Facts, asked: Asked) -> report.NodeStatsSummary:
    del asked
    return report.NodeStatsSummary()


def _noted(_: Facts, asked: Asked) -> Status:
    """The status of a policy or collection that is gone, as all are now, is not kept."""
    del asked
    return Status(status="Success", code=201)


def _only_own(asked: Asked) -> Status | None:
    name = asked.found.metadata.name if asked.found is not None else asked.name
    if name == "controller":
        return None
    return Status(
        status="Failure",
        message=f'supportbundles.system.antrea.io "{name}" is forbidden: only resource name "controller" is allowed',
        reason="Forbidden",
        code=403,
    )


def _bundle(_: Facts, asked: Asked) -> msgspec.Struct:
    return _only_own(asked) or SupportBundle(metadata=ObjectMetadata(name=asked.name), status="None")


def _collect(_: Facts, asked: Asked) -> msgspec.Struct:
    if no := _only_own(asked):
        return no
    raise Unavailable("collecting support bundles in the controller is not built yet")


def _forget(_: Facts, asked: Asked) -> msgspec.Struct:
    return _only_own(asked) or Status(status="Success")


def _download(_: Facts, asked: Asked) -> msgspec.Struct | None:
    return _only_own(asked)


ANSWERS: Mapping[tuple[str, str, str], Answer] = {
    ("clustergroupmembers", "", "get"): _none,
    ("groupmembers", "", "get"): _none,
    ("groupassociations", "", "get"): _groups,
    ("ipgroupassociations", "", "get"): _groups_of_ip,
    ("networkpolicyevaluation", "", "create"): _evaluation,
    ("nodestatssummaries", "", "create"): _counted,
    ("networkpolicies", "status", "create"): _noted,
    ("supportbundlecollections", "status", "create"): _noted,
    ("supportbundles", "", "get"): _bundle,
    ("supportbundles", "", "create"): _collect,
    ("supportbundles", "", "delete"): _forget,
    ("supportbundles", "download", "get"): _download,
}
"""By resource, subresource and verb."""
