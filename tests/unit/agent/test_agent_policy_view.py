"""Policies and groups as the agent shows them, by what is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.agent_api import FqdnAnswer
from antrea.apis.controlplane import AddressGroup, AppliedToGroup, NetworkPolicy
from antrea.errors import Invalid
from antrea.features.framework.agent_part import NotFound
from antrea.features.network_policy.agent_part.policies import (
    Received,
    address_groups,
    applied_to_groups,
    fqdn_cache,
    network_policies,
)

RULE = {"direction": "In", "from": {}, "to": {}, "enableLogging": False}
POLICIES: list[dict[str, Any]] = [
    {"metadata": {"name": "p1"}, "appliedToGroups": ["web"], "sourceRef": {"type": "K8sNetworkPolicy", "namespace": "shop", "name": "allow"}},
    {"metadata": {"name": "p2"}, "rules": [{**RULE, "appliedToGroups": ["web"]}], "sourceRef": {"type": "AntreaClusterNetworkPolicy", "name": "allow"}},
    {"metadata": {"name": "p3"}, "appliedToGroups": ["db"], "sourceRef": {"type": "AntreaNetworkPolicy", "namespace": "shop", "name": "deny"}},
]  # fmt: skip
GROUPS: list[dict[str, Any]] = [
    {"metadata": {"name": "web"}, "groupMembers": [{"pod": {"namespace": "shop", "name": "web-0"}}]},
    {"metadata": {"name": "db"}, "groupMembers": [{"pod": {"namespace": "shop", "name": "db-0"}}, {"node": {"name": "n1"}}]},
]  # fmt: skip
FQDNS = [
    FqdnAnswer(name, "10.1.2.3", "2026-01-02T15:04:05Z") for name in ("a.antrea.io", "antrea.io", "axantrea.io")
]  # fmt: skip


@pytest.fixture
def found() -> Received:
    return Received(
        msgspec.convert(POLICIES, tuple[NetworkPolicy, ...]),
        msgspec.convert(GROUPS[:1], tuple[AddressGroup, ...]),
        msgspec.convert(GROUPS, tuple[AppliedToGroup, ...]),
    )


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["p1", "p2", "p3"]),
        ({"name": "p2"}, ["p2"]),
        ({"name": "none"}, []),
        ({"source": "allow"}, ["p1", "p2"]),
        ({"source": "allow", "namespace": "shop"}, ["p1"]),
        ({"type": "acnp"}, ["p2"]),
        ({"type": "K8sNP", "source": "deny"}, []),
        ({"pod": "shop/web-0"}, ["p1", "p2"]),
        ({"pod": "shop/web-0", "type": "ACNP"}, ["p2"]),
        ({"pod": "shop/other"}, []),
    ],
)
def test_policy_view_shows_the_policies_that_are_asked_for(
    found: Received, query: dict[str, str], names: list[str]
) -> None:
    assert [policy.metadata.name for policy in network_policies(found, query)["items"]] == names


@pytest.mark.parametrize(
    ("query", "field", "why"),
    [
        ({"pod": "web-0"}, "pod", "invalid pod option format. Expected format is podNamespace/podName"),
        ({"pod": "shop/web-0", "namespace": "shop"}, "namespace", "namespace option should not be used with pod option"),
        ({"type": "XYZ"}, "type", "unknown policy type. Valid types are [ACNP ANNP ANP BANP K8SCNP K8SNP]"),
        ({"name": "p1", "type": "ACNP"}, "name", "with a policy name, none of the other options should be set"),
    ],
)  # fmt: skip
def test_policy_view_refuses_options_in_upstreams_words(
    found: Received, query: dict[str, str], field: str, why: str
) -> None:
    with pytest.raises(Invalid) as no:
        network_policies(found, query)
    assert (no.value.path, no.value.why) == (field, why)


def test_policy_view_shows_groups_all_or_one(found: Received) -> None:
    assert applied_to_groups(found, {}) == {"items": found.applied_to_groups}
    assert applied_to_groups(found, {"name": "db"}) == found.applied_to_groups[1]
    assert address_groups(found, {"name": "web"}) == found.address_groups[0]
    with pytest.raises(NotFound, match="AddressGroup db was not sent to this agent"):
        address_groups(found, {"name": "db"})


@pytest.mark.parametrize(
    ("domain", "names"),
    [
        ("", ["a.antrea.io", "antrea.io", "axantrea.io"]),
        (" antrea.io ", ["antrea.io"]),
        ("*.antrea.io", ["a.antrea.io"]),
        ("*antrea*", ["a.antrea.io", "antrea.io", "axantrea.io"]),
        ("[", []),
    ],
)
def test_policy_view_shows_names_that_match_a_domain(domain: str, names: list[str]) -> None:
    assert [row.fqdn_name for row in fqdn_cache(FQDNS, {"domain": domain})] == names
