"""The controller computes what upstream's computed of the same objects when it was recorded ($ANTREA_GOLDEN).

Members are compared for Pods of the recorded inputs; the cluster's own (CoreDNS and the like) are no part of these.
Rules made for several Namespaces, and addresses of a Node, had no order then: both are compared sorted.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from difference import (
    REASONS,
    groups_of,
    has_anothers_address,
    has_relative_rule,
    without_other_directions,
)
from recorded_world import CONTROLPLANE, GROUPS, listed, needs_recordings, rows_of, world
from recording import GOLDEN, answers, inputs, key, objects, of_kind, request, stream, table

from antrea.apis import controlplane as cp
from antrea.apis.controlplane_report import NetworkPolicyEvaluation
from antrea.apis.status import Status
from antrea.features.grouping.publication import (
    GroupHead,
    GroupSpan,
    Membership,
    Memberships,
    PublishedPolicy,
)
from antrea.features.network_policy.controller.evaluation import evaluate
from antrea.features.network_policy.controller.group_query import associations, ip_associations, members
from antrea.features.network_policy.controller.realization import REALIZED

if TYPE_CHECKING:
    from antrea.engine import Facts, Plan

pytestmark = needs_recordings


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
    wanted = {one.metadata.name: one for one in without_other_directions(recorded(), objects())}
    assert wanted
    assert {entry.policy.metadata.name: in_order(entry.policy) for entry in told[PublishedPolicy]} == {
        name: in_order(policy) for name, policy in wanted.items()
    }


def recorded() -> list[cp.NetworkPolicy]:
    """Upstream's internal policies."""
    return [
        msgspec.convert(without_time(one), cp.NetworkPolicy, strict=False)
        for one in listed("networkpolicies")
    ]


def in_order(policy: cp.NetworkPolicy) -> cp.NetworkPolicy:
    """Rules of the same priority sorted by what they say.

    Without the time when a user made it, which upstream leaves out: here it is the order of policies of equal priority.
    """
    rules = sorted(policy.rules, key=lambda rule: (rule.direction, rule.priority, repr(rule)))
    meta = msgspec.structs.replace(policy.metadata, creation_timestamp="")
    return msgspec.structs.replace(policy, metadata=meta, rules=tuple(rules))


def without_time(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "metadata": {key: value for key, value in one["metadata"].items() if value is not None}}


def watched(name: str, node: str) -> set[str] | None:
    """Names of the objects that the watch of a Node began with; None if it was not recorded."""
    found = set[str]()
    for event in stream(f"{CONTROLPLANE}/{name}?watch=true&fieldSelector=nodeName%3D{node}"):
        if event["type"] == "BOOKMARK":
            return found
        found.add(event["object"]["metadata"]["name"])
    return None


NODES = sorted({row["NAME"] for row in table("nodes", "node", "no")}) if GOLDEN.is_dir() else []


@pytest.mark.parametrize("node", NODES)
def test_a_node_gets_the_policies_that_upstream_sends_it(told: dict[type, list[Any]], node: str) -> None:
    if (wanted := watched("networkpolicies", node)) is None:
        pytest.skip(f"no watch of {node} was recorded")
    assert {entry.key for entry in told[PublishedPolicy] if node in entry.nodes} == wanted


def named(policy: cp.NetworkPolicy, resource: str) -> set[str]:
    """Groups of this kind that a policy names."""
    if resource == "appliedtogroups":
        return set(policy.applied_to_groups)
    if resource != "addressgroups":
        return set()
    return {name for rule in policy.rules for peer in (rule.from_, rule.to) for name in peer.address_groups}


@pytest.mark.parametrize("resource", GROUPS)
def test_groups_have_upstreams_names_and_members(told: dict[type, list[Any]], resource: str) -> None:
    ours = {entry.name for entry in told[GroupHead] if entry.resource == resource}
    ours |= {name for entry in told[PublishedPolicy] for name in named(entry.policy, resource)}
    theirs = {one["metadata"]["name"]: one for one in listed(resource)}
    assert ours
    kept = groups_of(without_other_directions(recorded(), objects()), resource)
    unused = groups_of(recorded(), resource) - kept
    assert ours == theirs.keys() - unused
    filled = {one["metadata"]["name"] for one in of_kind("Egress") if has_anothers_address(one)}
    known = {(one["metadata"].get("namespace", "default"), one["metadata"]["name"]) for one in inputs("Pod")}
    for name in sorted(ours):
        wanted = sorted(
            encoded(member)
            for member in msgspec.convert(theirs[name].get("groupMembers", []), tuple[cp.GroupMember, ...])
            if not member.pod or (member.pod.namespace, member.pod.name) in known
        )
        found = sorted(encoded(entry.member) for entry in told[Membership] if entry.group == (resource, name))
        if resource == "egressgroups" and name in filled:
            assert wanted == [], f"{name}: {REASONS['EgressGroup']}"
        else:
            assert found == wanted, name


def encoded(member: cp.GroupMember) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(member, ips=tuple(sorted(member.ips))))


@pytest.mark.parametrize("node", NODES)
def test_address_groups_go_to_the_nodes_of_their_policies(told: dict[type, list[Any]], node: str) -> None:
    if (wanted := watched("addressgroups", node)) is None:
        pytest.skip(f"no watch of {node} was recorded")
    assert {entry.name for entry in told[GroupSpan] if node in entry.parts} == wanted


ANOTHER_RULE = {("shop/api-1", "data/cache-1"): ("netops-pass-self", "rest")}
"""Between these Pods upstream took the rule of a Pod's own Namespace for one about the other's; the next one is about it."""
POLICIES = ("ClusterNetworkPolicy", "NetworkPolicy")


def questions() -> list[Any]:
    """Source, destination and answer of each recorded evaluation, but of Pods in the network of their Node.

    Those are in no group, so that no rule has them as its peer; upstream's answers as if they were.
    """
    outside = {"/".join(key(one)) for one in inputs("Pod") if one["spec"].get("hostNetwork")}
    found = []
    for one in answers("evaluation"):
        asked = request(one.words)
        if asked is None or not one.body.startswith("{"):
            continue
        ends = [asked.body["request"][end]["pod"] for end in ("source", "destination")]
        names = [f"{pod['namespace']}/{pod['name']}" for pod in ends]
        if outside.isdisjoint(names):
            found.append(pytest.param(*names, json.loads(one.body), id=one.name))
    return found


def resources(folder: str, resource: str) -> list[Any]:
    """Namespace, name, query and answer of each GET of an object of this resource that was answered."""
    path = re.compile(f"{CONTROLPLANE}/(?:namespaces/([^/]+)/)?{resource}/([^/?]+)(?:\\?(.*))?")
    found = []
    for one in answers(folder):
        asked = request(one.words)
        matching = path.fullmatch(asked.path) if asked else None
        if matching and one.body.startswith("{"):
            query = dict(pair.split("=") for pair in (matching[3] or "").split("&") if pair)
            found.append(
                pytest.param(matching[1] or "", matching[2], query, json.loads(one.body), id=one.name)
            )
    return found


@pytest.mark.parametrize(("source", "destination", "wanted"), questions())
def test_evaluations_are_upstreams(source: str, destination: str, wanted: dict[str, Any]) -> None:
    """Without policies that name Groups, which upstream does not find by their names."""
    facts, engine = world()
    for one in (*of_kind("ClusterNetworkPolicy"), *of_kind("NetworkPolicy")):
        if '"group":' in json.dumps(one["spec"]):
            for row in rows_of(one):
                facts.drop(type(row), row.key)
    engine.plan()
    asked = msgspec.convert({**wanted, "metadata": {}}, NetworkPolicyEvaluation)
    found = evaluate(facts, msgspec.structs.replace(asked, response=None))
    if (source, destination) in ANOTHER_RULE:
        assert found.response is not None
        rule = found.response.network_policy.name, found.response.rule.name
        assert rule == ANOTHER_RULE[source, destination]
    if found != asked:
        policies = [one for kind in POLICIES for one in of_kind(kind)]
        assert has_relative_rule(msgspec.to_builtins(found), policies), REASONS["relative rule"]


@pytest.mark.parametrize(
    ("namespace", "name", "query", "wanted"),
    [*resources("groups", "clustergroupmembers"), *resources("groups", "groupmembers")],
)
def test_members_of_groups_are_upstreams(
    computed: tuple[Facts, Plan], namespace: str, name: str, query: dict[str, str], wanted: dict[str, Any]
) -> None:
    found = members(computed[0], namespace, name, query)
    ours, theirs = msgspec.json.decode(msgspec.json.encode(found)), dict(wanted)
    for one in (ours, theirs):
        one.pop("metadata")
        shown = one["effectiveMembers"]
        one["effectiveMembers"] = shown and sorted(shown, key=json.dumps)
    assert ours == {key: value for key, value in theirs.items() if key not in ("kind", "apiVersion")}


@pytest.mark.parametrize(("namespace", "name", "_", "wanted"), resources("groups", "groupassociations"))
def test_groups_of_a_pod_are_upstreams(
    computed: tuple[Facts, Plan], namespace: str, name: str, _: Any, wanted: dict[str, Any]
) -> None:
    assert same_groups(associations(computed[0], namespace, name), wanted)


@pytest.mark.parametrize(("_space", "ip", "_query", "wanted"), resources("groups", "ipgroupassociations"))
def test_groups_of_an_address_are_upstreams(
    computed: tuple[Facts, Plan], _space: str, ip: str, _query: Any, wanted: dict[str, Any]
) -> None:
    assert same_groups(ip_associations(computed[0], ip), wanted)


def same_groups(found: Any, wanted: Any) -> bool:
    ours = msgspec.to_builtins(found.associated_groups)
    return sorted(ours, key=json.dumps) == sorted(wanted["associatedGroups"] or (), key=json.dumps)


def test_groups_say_that_their_members_are_computed(computed: tuple[Facts, Plan]) -> None:
    """Of a group with a child that is missing upstream says nothing, and we that they are not."""
    wanted = {
        (one["kind"], one["metadata"]["name"]): "True" if one.get("status") else "False"
        for kind in ("ClusterGroup", "Group")
        for one in of_kind(kind)
    }
    statuses = [one for one in computed[1].put if isinstance(one, Status) and "Group" in one.kind]
    assert {(one.kind, one.path.rpartition("/")[2]): one.conditions[0].status for one in statuses} == wanted


def test_policies_want_as_many_nodes_as_upstreams(computed: tuple[Facts, Plan]) -> None:
    """DESIRED NODES and CURRENT NODES, before anybody has realized anything."""
    wanted = {}
    for one in (*of_kind("ClusterNetworkPolicy"), *of_kind("NetworkPolicy")):
        meta, status = one["metadata"], one["status"]
        wanted[meta.get("namespace", ""), meta["name"]] = {
            field: value for field, value in status.items() if field != "conditions"
        }
        assert [condition["type"] for condition in status["conditions"]] == ["Realizable"]
    found = {}
    for status in (one for one in computed[1].put if isinstance(one, Status) and "Policy" in one.kind):
        parts = status.path.split("/")
        key = ("" if "namespaces" not in parts else parts[-3], parts[-1])
        fields = {field: value for field, value in status.fields if field != REALIZED}
        found[key] = fields
        told = [(one.type, one.status) for one in status.conditions if one.status]
        realizable = next((one for one in told if one[0] == "Realizable"), None)
        # what is not built yet is told of as such, where upstream has realized it
        held = fields["phase"] != "Failed"
        assert realizable == ("Realizable", "True" if held else "False")
        if not held:
            fields["phase"] = wanted[key]["phase"]
    assert found == wanted
