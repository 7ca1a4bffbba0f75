"""The controller computes what upstream's computed of the same objects when it was recorded ($ANTREA_GOLDEN).

Members are compared for Pods of the recorded inputs; the cluster's own (CoreDNS and the like) are no part of these.
Rules made for several Namespaces, and addresses of a Node, had no order then: both are compared sorted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from recorded_world import GOLDEN, inputs, recorded, world

from antrea.apis import controlplane as cp
from antrea.apis.controlplane_report import NetworkPolicyEvaluation
from antrea.apis.status import Status
from antrea.controller.endpoint import found as endpoint
from antrea.features.grouping.publication import (
    GroupHead,
    GroupSpan,
    Membership,
    Memberships,
    PublishedPolicy,
)
from antrea.features.network_policy.evaluation import evaluated
from antrea.features.network_policy.group_answer import associations, ip_associations, members
from antrea.features.network_policy.native_policy import ClusterPolicy, NamespacedPolicy
from antrea.features.network_policy.realization import REALIZED
from antrea.features.registry import RESOURCES
from antrea.outside.aggregated.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts, Plan

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="ANTREA_GOLDEN names no recorded answers")
KUBE = "K8sNetworkPolicy"


@pytest.fixture(scope="module")
def computed() -> tuple[Facts, Plan]:
    """All that our controller makes of the recorded objects."""
    facts, engine = world()
    return facts, engine.plan()


@pytest.fixture(scope="module")
def told(computed: tuple[Facts, Plan]) -> dict[type, list[Any]]:
    """The entries by their class."""
    found: dict[type, list[Any]] = defaultdict(list)
    for entry in computed[1].put:
        for one in entry.each() if isinstance(entry, Memberships) else (entry,):
            found[type(one)].append(one)
    return found


def test_policies_are_upstreams(told: dict[type, list[Any]]) -> None:
    wanted = {
        one["metadata"]["name"]: msgspec.convert(without_time(one), cp.NetworkPolicy, strict=False)
        for one in recorded("controlplane/networkpolicies.json")
    }
    assert len(wanted) > 20
    assert {entry.found.metadata.name: in_order(entry.found) for entry in told[PublishedPolicy]} == {
        name: in_order(policy) for name, policy in wanted.items()
    }


def in_order(policy: cp.NetworkPolicy) -> cp.NetworkPolicy:
    """Rules of the same priority sorted by what they say.

    Without the time when a user made it, which upstream leaves out: here it is the order of policies of equal priority.
    """
    rules = sorted(policy.rules, key=lambda rule: (rule.direction, rule.priority, repr(rule)))
    meta = msgspec.structs.replace(policy.metadata, creation_timestamp="")
    return msgspec.structs.replace(policy, metadata=meta, rules=tuple(rules))


def without_time(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "metadata": {key: value for key, value in one["metadata"].items() if value is not None}}


def watched(name: str) -> Iterator[dict[str, Any]]:
    """Objects that the watch of Node n1 began with."""
    for line in (GOLDEN / f"raw/watch/{name}.node-n1.jsonl").read_text().splitlines():
        if line.startswith("#"):
            continue
        event = json.loads(line)
        if event["type"] == "BOOKMARK":
            return
        yield event["object"]


def test_a_node_gets_the_policies_that_upstream_sends_it(told: dict[type, list[Any]]) -> None:
    wanted = {one["metadata"]["name"] for one in watched("networkpolicies")}
    assert wanted
    assert {entry.key for entry in told[PublishedPolicy] if "n1" in entry.nodes} == wanted


@pytest.mark.parametrize("resource", ["addressgroups", "appliedtogroups", "egressgroups"])
def test_groups_have_upstreams_names_and_members(told: dict[type, list[Any]], resource: str) -> None:
    ours = {entry.name for entry in told[GroupHead] if entry.resource == resource}
    theirs = {one["metadata"]["name"]: one for one in recorded(f"controlplane/{resource}.json")}
    assert len(ours) > 3
    assert ours == theirs.keys()
    known = {(one["metadata"].get("namespace", "default"), one["metadata"]["name"]) for one in inputs("Pod")}
    for name in sorted(ours):
        wanted = sorted(
            encoded(member)
            for member in msgspec.convert(theirs[name].get("groupMembers", []), tuple[cp.GroupMember, ...])
            if not member.pod or (member.pod.namespace, member.pod.name) in known
        )
        found = sorted(encoded(entry.member) for entry in told[Membership] if entry.group == (resource, name))
        assert found == wanted, name


def encoded(member: cp.GroupMember) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(member, ips=tuple(sorted(member.ips))))


def test_address_groups_go_to_the_nodes_of_their_policies(told: dict[type, list[Any]]) -> None:
    sent = {one["metadata"]["name"] for one in watched("addressgroups")}
    ours = {entry.name for entry in told[GroupSpan] if "n1" in entry.parts}
    assert ours
    assert ours == sent


def test_query_endpoint_answers_as_upstream() -> None:
    """Fed with all that upstream had computed.

    It named a policy twice that two of its groups are in; it missed rules whose group is a ClusterGroup, as it looked for
    that by its UID; and rules made for several Namespaces had another order when this was recorded.
    """
    stores = {}
    for row in RESOURCES:
        if row.plural in ("addressgroups", "appliedtogroups", "networkpolicies"):
            store = stores[row.group, row.plural] = Store(row)
            for one in recorded(f"controlplane/{row.plural}.json"):
                shown = msgspec.convert(without_time(one), row.struct, strict=False)
                store.put(shown.metadata.name, shown)
            store.sync()
    text = (GOLDEN / "raw/antctl-inpod/query-endpoint.db-1.json").read_text()
    (wanted,) = json.loads("".join(text.splitlines(keepends=True)[1:]))["endpoints"]
    ours = msgspec.to_builtins(endpoint(stores, "data", "db-1"))
    assert ours.keys() == wanted.keys()
    for key in ("policies", "ingresssrcrules", "egressdstrules"):
        missed = {("In", "with-groups", 0), ("Out", "with-groups", 0)}
        assert compared(ours[key]) - missed == compared(wanted[key]), key


@pytest.mark.parametrize(
    "case", ["api1-cache1", "missing", "tester-db1", "tester-web1", "web1-tester", "web1-web2"]
)
def test_evaluations_are_upstreams(case: str) -> None:
    """Without policies that name Groups, which upstream does not find by their names.

    Between api-1 and cache-1 it took the rule `same-ns` for Pods of shop for one about cache-1, which is in data; the
    next one is about it.
    """
    lines = (GOLDEN / f"raw/evaluation/{case}.json").read_text().splitlines()
    answered = json.loads("".join(line for line in lines if not line.startswith("#")))
    answered["metadata"] = {}
    wanted = msgspec.convert(answered, NetworkPolicyEvaluation)
    facts, engine = world()
    facts.drop(ClusterPolicy, "/with-groups")
    facts.drop(NamespacedPolicy, "shop/with-group")
    engine.plan()
    found = evaluated(facts, msgspec.structs.replace(wanted, response=None))
    if case == "api1-cache1":
        assert found.response is not None
        assert (found.response.network_policy.name, found.response.rule.name) == ("netops-pass-self", "rest")
    else:
        assert found == wanted


def answer_of(name: str) -> Any:
    """As JSON, without what is empty."""
    lines = (GOLDEN / f"raw/groups/{name}.json").read_text().splitlines()
    return json.loads("".join(line for line in lines if not line.startswith("#")))


MEMBERS = [
    path.name.removesuffix(".json") for path in sorted((GOLDEN / "raw/groups").glob("*members.*.json"))
]
NOT_THERE = ("cg-none", "g-none", "badpage")


@pytest.mark.parametrize("case", [one for one in MEMBERS if not one.endswith(NOT_THERE)])
def test_members_of_groups_are_upstreams(computed: tuple[Facts, Plan], case: str) -> None:
    text = (GOLDEN / f"raw/groups/{case}.json").read_text()
    query = dict(pair.split("=") for pair in text.splitlines()[0].partition("?")[2].split("&") if pair)
    wanted = answer_of(case)
    meta = wanted["metadata"]
    found = members(computed[0], meta.get("namespace", ""), meta["name"], query)
    ours, theirs = msgspec.json.decode(msgspec.json.encode(found)), dict(wanted)
    for one in (ours, theirs):
        one.pop("metadata")
        shown = one["effectiveMembers"]
        one["effectiveMembers"] = shown and sorted(shown, key=json.dumps)
    assert ours == {key: value for key, value in theirs.items() if key not in ("kind", "apiVersion")}


@pytest.mark.parametrize("pod", ["data.db-1", "lab.nobody", "lab.tester", "shop.web-1"])
def test_groups_of_a_pod_are_upstreams(computed: tuple[Facts, Plan], pod: str) -> None:
    assert same_groups(associations(computed[0], *pod.split(".")), answer_of(f"groupassociations.{pod}"))


@pytest.mark.parametrize(
    ("case", "ip"),
    [("ipblock", "198.51.100.7"), ("except", "203.0.113.70"), ("none", "8.8.8.8"), ("pod", "10.244.0.2")],
)
def test_groups_of_an_address_are_upstreams(computed: tuple[Facts, Plan], case: str, ip: str) -> None:
    assert same_groups(ip_associations(computed[0], ip), answer_of(f"ipgroupassociations.{case}"))


def same_groups(found: Any, wanted: Any) -> bool:
    ours = msgspec.to_builtins(found.associated_groups)
    return sorted(ours, key=json.dumps) == sorted(wanted["associatedGroups"], key=json.dumps)


def test_groups_say_that_their_members_are_computed(computed: tuple[Facts, Plan]) -> None:
    """Of a group with a child that is missing upstream says nothing, and we that they are not."""
    wanted = {
        (one["kind"], one["metadata"]["name"]): "True" if one.get("status") else "False"
        for name in ("clustergroups", "groups")
        for one in recorded(f"get/{name}.yaml")
    }
    assert sorted(set(wanted.values())) == ["False", "True"]
    statuses = [one for one in computed[1].put if isinstance(one, Status) and "Group" in one.kind]
    assert {(one.kind, one.path.rpartition("/")[2]): one.conditions[0].status for one in statuses} == wanted


def test_policies_want_as_many_nodes_as_upstreams(computed: tuple[Facts, Plan]) -> None:
    """DESIRED NODES and CURRENT NODES, before anybody has realised anything."""
    wanted = {}
    for name, space in (("clusternetworkpolicies", 0), ("antrea-networkpolicies", 1)):
        for one in recorded(f"get/{name}.yaml"):
            meta, status = one["metadata"], one["status"]
            key = (meta.get("namespace", "") if space else "", meta["name"])
            wanted[key] = {field: value for field, value in status.items() if field != "conditions"}
            assert [condition["type"] for condition in status["conditions"]] == ["Realizable"]
    found = {}
    for status in (one for one in computed[1].put if isinstance(one, Status) and "Policy" in one.kind):
        parts = status.path.split("/")
        fields = {field: value for field, value in status.fields if field != REALIZED}
        found["" if "namespaces" not in parts else parts[-3], parts[-1]] = fields
        assert [(one.type, one.status) for one in status.conditions if one.status] == [("Realizable", "True")]
    assert found == wanted


def compared(rows: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Direction, policy, and the number of the rule where its order is the user's."""
    found = set()
    for row in rows:
        policy = row.get("policyref", row)
        number = row.get("ruleindex", 0) if policy["type"] == KUBE else 0
        found.add((row.get("direction", ""), policy["name"], number))
    return found
