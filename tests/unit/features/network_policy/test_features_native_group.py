"""Groups and ClusterGroups: who belongs, as agents are told and as users are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from native_world import Told, node, pod, row, space

from antrea.apis.controlplane import GroupMember, IPNet, NodeReference
from antrea.apis.controlplane_report import GroupReference
from antrea.apis.status import Status
from antrea.errors import Invalid, Unavailable
from antrea.facts.cluster import ClusterService
from antrea.features.grouping.publication import GroupHead, PublishedPolicy
from antrea.features.network_policy.controller.group import ClusterGroupObject, GroupObject
from antrea.features.network_policy.controller.group_query import (
    READS,
    associations,
    ip_associations,
    members,
)

if TYPE_CHECKING:
    from antrea.engine import Facts

WEB, DB = ({"matchLabels": {"app": name}} for name in ("web", "db"))
APPLIED, ADDRESS = "appliedtogroups", "addressgroups"
V4 = bytes(10) + b"\xff\xff"


def cluster_group(name: str, **spec: Any) -> Any:
    return row("ClusterGroup", name, spec=spec)


def group(name: str, **spec: Any) -> Any:
    return row("Group", name, "ns", spec=spec)


def uses(group: str, namespace: str = "") -> Any:
    """A policy for a group, with the same group as its peer."""
    rule = {"action": "Drop", "from": [{"group": group}]}
    spec = {"priority": 1, "appliedTo": [{"group": group}], "ingress": [rule]}
    return row("NetworkPolicy" if namespace else "ClusterNetworkPolicy", "p", namespace, spec=spec)


def world(*rows: Any) -> Told:
    return Told().put(
        space("ns"),
        space("other"),
        pod("w", "ns", ip="10.0.0.1", app="web"),
        pod("d", "ns", "n2", ip="10.0.0.2", app="db"),
        pod("x", "other", "n3", ip="10.0.0.3", app="web"),
        *rows,
    )


def told(world: Told, name: str = "g") -> tuple[set[str], set[str]]:
    """Whom the policy is for, and its peers."""
    return world.members(APPLIED, name), world.members(ADDRESS, name)


def heads(world: Told) -> set[tuple[str, str, str]]:
    return {(one.resource, one.name, one.uid) for one in world.of(GroupHead)}


def test_a_group_is_told_under_its_own_name_with_its_members() -> None:
    found = world(cluster_group("g", podSelector=WEB), uses("g"))
    assert told(found) == ({"ns/w", "other/x"},) * 2
    assert heads(found) == {(APPLIED, "g", "uid-g"), (ADDRESS, "g", "uid-g")}
    assert found.nodes() == {"uid-p": ("n1", "n3"), "g": ("n1", "n3")}


def test_a_group_of_a_namespace_has_the_members_of_that() -> None:
    found = world(group("g", podSelector=WEB), uses("g", "ns"))
    assert told(found, "ns/g") == ({"ns/w"},) * 2


def test_a_group_that_comes_and_goes_takes_the_policy_along() -> None:
    found = world(uses("g"))
    assert heads(found) == set()
    assert told(found.put(cluster_group("g", podSelector=DB))) == ({"ns/d"},) * 2
    assert told(found.put(cluster_group("g", podSelector=WEB))) == ({"ns/w", "other/x"},) * 2
    found.drop(ClusterGroupObject, "g")
    assert (heads(found), found.nodes()) == (set(), {"uid-p": ()})


def test_a_group_follows_its_service() -> None:
    wanted = {"serviceReference": {"name": "s", "namespace": "ns"}}
    found = world(cluster_group("g", **wanted), uses("g"))
    assert told(found) == (set(), set())
    service = {"spec": {"selector": {"app": "db"}}}
    assert told(found.put(row("Service", "s", "ns", **service))) == ({"ns/d"},) * 2
    assert told(found.put(row("Service", "s", "ns", spec={}))) == (set(), set())
    assert told(found.drop(ClusterService, "ns/s")) == (set(), set())


def test_a_parent_has_members_and_blocks_of_its_children() -> None:
    found = world(
        cluster_group("g", childGroups=["web", "db", "ips", "none"]),
        cluster_group("web", podSelector=WEB),
        cluster_group("db", podSelector=DB),
        cluster_group("ips", ipBlocks=[{"cidr": "192.0.2.0/24"}]),
        uses("g"),
    )
    everybody = {"ns/w", "ns/d", "other/x"}
    assert told(found) == (everybody, everybody)
    (block,) = found.policy("p").rules[0].from_.ip_blocks
    assert block.cidr == IPNet(ip=V4 + bytes((192, 0, 2, 0)), prefix_length=24)
    assert told(found.drop(ClusterGroupObject, "db")) == ({"ns/w", "other/x"},) * 2
    assert told(found.drop(ClusterGroupObject, "web")) == (set(), set())
    assert (ADDRESS, "g", "uid-g") not in heads(found), "its children are blocks alone"


def test_nobody_belongs_to_a_group_whose_children_have_children() -> None:
    found = world(
        cluster_group("g", childGroups=["mid", "web"]),
        cluster_group("mid", childGroups=["web"]),
        cluster_group("web", podSelector=WEB),
        uses("g"),
    )
    assert told(found) == (set(), set())
    assert condition(found, "g") == ("False", "ChildGroupsNestingExceeded")
    assert condition(found, "mid") == ("True", "")
    found.put(cluster_group("web", childGroups=["g"]))
    assert {condition(found, name)[1] for name in ("g", "mid", "web")} == {"ChildGroupsNestingExceeded"}
    found.put(cluster_group("mid", podSelector=DB), cluster_group("web", podSelector=WEB))
    assert (told(found)[0], condition(found, "g")) == ({"ns/w", "ns/d", "other/x"}, ("True", ""))


def condition(world: Told, name: str) -> tuple[str, str]:
    (status,) = (one for one in world.of(Status) if one.path.endswith(f"groups/{name}"))
    return status.conditions[0].status, status.conditions[0].reason


def test_a_group_lacks_members_while_a_child_is_missing() -> None:
    found = world(cluster_group("g", childGroups=["web"]))
    assert condition(found, "g") == ("False", "")
    assert condition(found.put(cluster_group("web", podSelector=WEB)), "g") == ("True", "")


def test_nobody_is_protected_by_a_list_of_blocks() -> None:
    found = world(cluster_group("g", ipBlocks=[{"cidr": "192.0.2.0/24"}]), uses("g"))
    assert heads(found) == set()
    assert found.policy("p").applied_to_groups == ()


def test_a_policy_for_a_group_that_selects_strangers_goes_nowhere() -> None:
    everywhere = {"podSelector": WEB, "namespaceSelector": {}}
    found = world(group("g", **everywhere), uses("g", "ns"))
    assert told(found, "ns/g") == (set(), {"ns/w", "other/x"})
    assert found.nodes() == {"uid-p": ()}
    home = found.put(pod("x", "other", "n3", app="gone"))
    assert told(home, "ns/g") == ({"ns/w"}, {"ns/w"})
    assert home.nodes() == {"uid-p": ("n1",), "ns/g": ("n1",)}


def test_nodes_of_a_group_are_members_unless_they_are_a_childs_and_the_policy_is_for_them() -> None:
    found = world(
        cluster_group("g", nodeSelector=WEB),
        cluster_group("parent", childGroups=["g"]),
        node("n9", "172.16.0.9", app="web"),
        uses("g"),
    )
    assert told(found) == ({"node n9"},) * 2
    found.put(uses("parent"))
    assert told(found, "parent") == (set(), {"node n9"})


def known(found: Told) -> Facts:
    for kind in READS:
        found.facts.synced(kind)
    found.step()
    return found.facts


def test_members_come_in_pages_sorted_by_name() -> None:
    facts = known(
        world(
            cluster_group("g", childGroups=["web", "nodes"]),
            cluster_group("web", podSelector=WEB),
            cluster_group("nodes", nodeSelector={}),
            node("v", "172.16.0.9"),
            pod("late", "ns", ip="", app="web"),
        )
    )

    def page(number: int, limit: int) -> tuple[list[str], int, int, int]:
        found = members(facts, "", "g", {"page": str(number), "limit": str(limit)})
        assert found is not None
        assert found.effective_members is not None
        names = [
            one.pod.name if one.pod else (one.node or NodeReference()).name for one in found.effective_members
        ]
        return names, found.total_members, found.total_pages, found.current_page

    assert page(0, 0) == page(1, 0) == (["v", "w", "x"], 3, 1, 1)
    assert page(1, 2) == (["v", "w"], 3, 2, 1)
    assert page(2, 2) == (["x"], 3, 2, 2)
    assert page(3, 2) == ([], 3, 2, 3)
    assert page(0, 2) == (["v", "w", "x"], 3, 2, 0)
    for query, wrong in (
        ({"page": "-1"}, "number -1"),
        ({"limit": "x"}, "limit x"),
        ({"page": "9" * 5000}, f"number {'9' * 18}"),
    ):
        with pytest.raises(Invalid, match=f"received invalid page {wrong} for pagination"):
            members(facts, "", "g", query)
    assert members(facts, "", "none", {}) is None


def test_members_of_a_node_group_have_its_addresses() -> None:
    facts = known(world(cluster_group("g", nodeSelector=WEB), node("n", "172.16.0.9", app="web")))
    found = members(facts, "", "g", {})
    address = (V4 + bytes((172, 16, 0, 9)),)
    assert found is not None
    assert found.effective_members == (GroupMember(node=NodeReference(name="n"), ips=address),)


def test_members_of_groups_too_deep_are_refused_with_the_reason() -> None:
    facts = known(
        world(
            cluster_group("g", childGroups=["mid"]),
            cluster_group("mid", childGroups=["x"]),
        )
    )
    with pytest.raises(Invalid, match="no member can be computed for g: its childGroups must not have"):
        members(facts, "", "g", {})


def test_associations_name_groups_with_their_parents() -> None:
    entity = row("ExternalEntity", "e", "ns", labels={"app": "db"}, spec={"endpoints": [{"ip": "192.0.2.9"}]})
    facts = known(
        world(
            group("g", podSelector=DB),
            group("parent", childGroups=["g", "ips"]),
            group(
                "ips",
                ipBlocks=[{"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}, {"cidr": "fd00::/64"}],
            ),
            group("entities", externalEntitySelector=DB),
            cluster_group("nodes", nodeSelector={}),
            node("n", "172.16.0.9"),
            entity,
        )
    )

    def named(*names: str) -> tuple[GroupReference, ...]:
        return tuple(GroupReference(namespace="ns", name=name, uid=f"uid-{name}") for name in names)

    assert associations(facts, "ns", "d").associated_groups == named("g", "parent")
    assert associations(facts, "ns", "e").associated_groups == named("entities")
    assert associations(facts, "ns", "nobody").associated_groups == ()
    nodes = (GroupReference(name="nodes", uid="uid-nodes"),)
    for ip, wanted in (
        ("10.0.0.2", named("g", "parent")),
        ("192.0.2.9", named("entities", "ips", "parent")),
        ("192.0.2.200", ()),
        ("fd00::1", named("ips", "parent")),
        ("fd01::1", ()),
        ("172.16.0.9", nodes),
    ):
        assert ip_associations(facts, ip).associated_groups == wanted, ip
    with pytest.raises(Invalid, match="IP x is not a valid IP address"):
        ip_associations(facts, "x")


def test_nothing_is_said_of_groups_while_something_is_not_known() -> None:
    facts = known(world())
    facts.lost(GroupObject)
    for ask in (
        lambda: members(facts, "", "g", {}),
        lambda: associations(facts, "ns", "d"),
        lambda: ip_associations(facts, "10.0.0.2"),
    ):
        with pytest.raises(Unavailable, match="not complete yet"):
            ask()


def test_a_pod_more_in_a_group_costs_its_own_members() -> None:
    found = world(cluster_group("g", podSelector=WEB), uses("g"))
    found.put(*(pod(f"p{number}", "ns", app="web") for number in range(50)))
    found.facts.put(pod("more", "ns", app="web"))
    plan = found.engine.plan()
    assert ([one.who for one in plan.put], plan.drop) == (["ns/more"], [])
    assert not [one for one in plan.put if isinstance(one, PublishedPolicy)]
