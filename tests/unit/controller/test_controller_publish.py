"""Groups as agents are told of them: whole at first, then member by member, to the Nodes that need them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.apis.controlplane import (
    AddressGroup,
    EgressGroup,
    GroupMember,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyRule,
    PodReference,
)
from antrea.apis.meta import ObjectMetadata
from antrea.controller.compute.metrics import controller_metrics
from antrea.controller.compute.publish_sink import PublishSink
from antrea.features.grouping.publication import (
    PUBLISHED,
    GroupHead,
    GroupSpan,
    Membership,
    Memberships,
    ProcessedPods,
    PublishedPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EGRESS, ADDRESS = "egressgroups", "addressgroups"
KINDS = (ADDRESS, EGRESS)
Batch = tuple[list[Any], list[Any]]
"""Entries to put, entries to drop."""


class Heard:
    """A publisher that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def put(
        self, _: str, resource: str, key: str, found: Any, *, span: Iterable[str], places: Sequence[str] = ()
    ) -> None:
        self.said.append(("put", resource, key, found, {*span}, [*places]))

    def change(
        self, _: str, resource: str, key: str, *, added: Iterable[Any], removed: Iterable[Any], span: Iterable[str]
    ) -> None:  # fmt: skip
        self.said.append(("change", resource, key, [*added], [*removed], {*span}))

    def drop(self, _: str, resource: str, key: str) -> None:
        self.said.append(("drop", resource, key))

    def synced(self, _: str, resource: str) -> None:
        self.said.append(("synced", resource))

    def processed(self, node: str, version: int) -> None:
        self.said.append(("processed", node, version))

    async def drained(self) -> None:
        """Everything is taken at once."""


def member(name: str) -> GroupMember:
    return GroupMember(pod=PodReference(name=name, namespace="ns"))


def belongs(name: str, node: str = "n1", group: str = "e") -> Membership:
    return Membership(EGRESS, group, f"ns/{name}", member(name), node)


def nobody_left(policy: str, nodes: Iterable[str]) -> None:
    """No agent has reported on these policies."""
    assert not [*nodes], policy


HEAD = GroupHead(EGRESS, "e", "uid")


def told(*batches: Batch) -> list[Any]:
    """What is said of the last batch."""
    heard = Heard()
    sink = PublishSink(heard, nobody_left, KINDS)  # type: ignore[arg-type]
    for put, drop in batches:
        heard.said.clear()
        asyncio.run(sink.apply(put, drop))
    return heard.said


def whole(*names: str) -> EgressGroup:
    return EgressGroup(
        metadata=ObjectMetadata(name="e", uid="uid"), group_members=tuple(member(name) for name in names)
    )


def test_a_new_group_is_told_whole_with_the_nodes_of_its_members() -> None:
    entries = [HEAD, belongs("a"), belongs("b", "n2"), belongs("c")]
    assert told((entries, [])) == [
        ("put", EGRESS, "e", whole("a", "b", "c"), {"n1", "n2"}, ["n1", "n2", "n1"])
    ]


def test_a_member_more_and_one_less_is_one_change_with_the_nodes_that_are_left() -> None:
    start: Batch = ([HEAD, belongs("a"), belongs("b", "n2")], [])
    assert told(start, ([belongs("c", "n3")], [belongs("b", "n2")])) == [
        ("change", EGRESS, "e", [(member("c"), "n3")], [(member("b"), "n2")], {"n1", "n3"})
    ]


def test_a_pod_of_the_same_name_on_another_node_is_removed_there_and_added_here() -> None:
    start: Batch = ([HEAD, belongs("a"), belongs("b")], [])
    assert told(start, ([belongs("a", "n2")], [])) == [
        ("change", EGRESS, "e", [(member("a"), "n2")], [(member("a"), "n1")], {"n1", "n2"})
    ]


def test_a_pod_is_told_to_the_groups_that_it_enters_leaves_or_changes_in_and_to_no_others() -> None:
    def pod(*groups: str, node: str = "n1") -> Memberships:
        return Memberships("ns/a", node, ((EGRESS, groups),), (member("a"),))

    def changed(group: str, added: str, removed: str) -> Any:
        places = [[(member("a"), node)] if node else [] for node in (added, removed)]
        return ("change", EGRESS, group, *places, {node for node in (added,) if node})

    start: Batch = ([*(GroupHead(EGRESS, name, name) for name in "efg"), pod("e", "f")], [])
    assert told(start, ([pod("e", "f")], [])) == []
    assert sorted(told(start, ([pod("f", "g")], []))) == [changed("e", "", "n1"), changed("g", "n1", "")]
    assert told(start, ([pod("f", "g")], []), ([], [pod("f", "g")])) == [
        changed("f", "", "n1"),
        changed("g", "", "n1"),
    ]
    assert told(start, ([pod("e", "f", node="n2")], [])) == [
        changed("e", "n2", "n1"),
        changed("f", "n2", "n1"),
    ]
    assert told(start, ([], [pod("e", "f")]), ([pod("g")], [])) == [changed("g", "n1", "")]


def test_a_node_is_told_what_is_processed_after_all_else() -> None:
    told_last = told(([ProcessedPods("n1", 7), HEAD, belongs("a")], []))
    assert told_last == [
        ("put", EGRESS, "e", whole("a"), {"n1"}, ["n1"]),
        ("processed", "n1", 7),
    ]


def test_a_member_that_comes_before_its_group_is_told_with_it() -> None:
    before: Batch = ([belongs("a")], [])
    assert told(before) == []
    assert told(before, ([HEAD], [])) == [("put", EGRESS, "e", whole("a"), {"n1"}, ["n1"])]


def test_a_group_that_goes_is_told_after_its_members() -> None:
    start: Batch = ([HEAD, belongs("a")], [])
    assert told(start, ([], [belongs("a"), HEAD])) == [
        ("change", EGRESS, "e", [], [(member("a"), "n1")], set()),
        ("drop", EGRESS, "e"),
    ]


def test_what_is_said_again_changes_nothing() -> None:
    start: Batch = ([HEAD, belongs("a")], [])
    assert told(start, ([belongs("a")], [])) == []
    assert told(start, ([], [belongs("never")])) == []


def test_a_replay_tells_all_of_it_and_a_sweep_that_it_is_all() -> None:
    heard = Heard()
    sink = PublishSink(heard, nobody_left, KINDS)  # type: ignore[arg-type]
    for _ in range(2):
        asyncio.run(sink.resync([HEAD, belongs("a")]))
    asyncio.run(sink.sweep(PUBLISHED))
    assert heard.said == [("put", EGRESS, "e", whole("a"), {"n1"}, ["n1"])] * 2 + [
        ("synced", kind) for kind in KINDS
    ]


POLICY = PublishedPolicy(NetworkPolicy(metadata=ObjectMetadata(name="p", uid="p")), ("n7",))


def test_a_group_of_addresses_goes_to_the_nodes_of_its_policies_before_these_do() -> None:
    entries = [
        POLICY,
        GroupHead(ADDRESS, "g", "g"),
        GroupSpan(ADDRESS, "g", ("n7", "n8")),
        Membership(ADDRESS, "g", "ns/a", member("a"), "n1"),
    ]
    group = AddressGroup(metadata=ObjectMetadata(name="g", uid="g"), group_members=(member("a"),))
    assert told((entries, [])) == [
        ("put", ADDRESS, "g", group, {"n7", "n8"}, ["n1"]),
        ("put", "networkpolicies", "p", POLICY.policy, {"n7"}, []),
    ]
    assert told((entries, []), ([GroupSpan(ADDRESS, "g", ("n8",))], [POLICY])) == [
        ("drop", "networkpolicies", "p"),
        ("change", ADDRESS, "g", [], [], {"n8"}),
    ]
    assert told((entries, []), ([], [GroupSpan(ADDRESS, "g", ("n7", "n8"))])) == [
        ("change", ADDRESS, "g", [], [], set())
    ]


def kube(name: str, group: str) -> PublishedPolicy:
    """A policy of Kubernetes for a group whose name is its UID, which exists as long as a policy names it."""
    rule = NetworkPolicyRule(
        direction="In",
        from_=NetworkPolicyPeer(address_groups=(group,)),
        to=NetworkPolicyPeer(),
        enable_logging=False,
    )
    return PublishedPolicy(
        NetworkPolicy(metadata=ObjectMetadata(name=name, uid=name), rules=(rule,)), ("n7",)
    )


def test_a_group_exists_from_the_first_policy_that_names_it_to_the_last() -> None:
    belongs = Membership(ADDRESS, "g", "ns/a", member("a"), "n1")
    group = AddressGroup(metadata=ObjectMetadata(name="g", uid="g"), group_members=(member("a"),))
    first, second = kube("p", "g"), kube("q", "g")

    def put(policy: PublishedPolicy) -> tuple[Any, ...]:
        return ("put", "networkpolicies", policy.key, policy.policy, {"n7"}, [])

    assert told(([belongs], [])) == []
    start: Batch = ([GroupSpan(ADDRESS, "g", ("n7",)), belongs, first], [])
    assert told(start) == [("put", ADDRESS, "g", group, {"n7"}, ["n1"]), put(first)]
    assert told(start, ([second], [])) == [put(second)]
    assert told(start, ([second], [first])) == [("drop", "networkpolicies", "p"), put(second)]
    gone = [("drop", "networkpolicies", "p"), ("drop", ADDRESS, "g")]
    assert told(start, ([], [first])) == gone
    assert told(start, ([], [first]), ([], [belongs])) == []
    anew = kube("p", "h")
    assert told(start, ([anew], [])) == [
        ("put", ADDRESS, "h", AddressGroup(metadata=ObjectMetadata(name="h", uid="h")), set(), []),
        put(anew),
        ("drop", ADDRESS, "g"),
    ]


def test_a_group_that_is_named_again_has_the_members_that_it_had() -> None:
    """Nothing is put for a member that stands while the last policy goes and another comes."""
    belongs = Membership(ADDRESS, "g", "ns/a", member("a"), "n1")
    group = AddressGroup(metadata=ObjectMetadata(name="g", uid="g"), group_members=(member("a"),))
    again = told(([belongs, kube("p", "g")], []), ([], [kube("p", "g")]), ([kube("q", "g")], []))
    assert again[0] == ("put", ADDRESS, "g", group, set(), ["n1"])


def test_a_group_with_a_head_that_a_policy_names_as_well_goes_with_the_later_of_both() -> None:
    policy, head = kube("p", "g"), GroupHead(ADDRESS, "g", "g")
    start: Batch = ([head, policy], [])
    assert told(start, ([], [head])) == []
    assert told(start, ([], [policy])) == [("drop", "networkpolicies", "p")]
    assert told(start, ([], [head]), ([], [policy]))[-1] == ("drop", ADDRESS, "g")
    assert told(start, ([], [policy]), ([], [head])) == [("drop", ADDRESS, "g")]
    sink = PublishSink(Heard(), nobody_left, KINDS)  # type: ignore[arg-type]
    for put, drop in (start, ([], [head, policy])):
        asyncio.run(sink.apply(put, drop))
    assert (sink.counts(), sink._published) == ({}, {})


def test_what_stands_is_counted_by_kind() -> None:
    sink = PublishSink(Heard(), nobody_left, KINDS)  # type: ignore[arg-type]
    asyncio.run(sink.apply([HEAD, POLICY, GroupHead(ADDRESS, "g", "g"), GroupHead(ADDRESS, "h", "h")], []))
    assert sink.counts() == {EGRESS: 1, ADDRESS: 2, "networkpolicies": 1}
    asyncio.run(sink.apply([], [HEAD, POLICY]))
    assert sink.counts() == {ADDRESS: 2}


def test_what_was_told_or_withdrawn_is_counted_once_a_batch_by_its_kind() -> None:
    sink = PublishSink(Heard(), nobody_left, KINDS)  # type: ignore[arg-type]
    policy = PublishedPolicy(NetworkPolicy(metadata=ObjectMetadata(name="p", uid="p")), ("n1",))
    address = GroupHead("addressgroups", "a", "a")
    pods = [Membership("addressgroups", "a", f"ns/{name}", member(name)) for name in "xy"]

    async def work() -> None:
        await sink.apply([address, GroupHead("appliedtogroups", "t", "t"), *pods, policy], [])
        await sink.apply([policy], pods)
        await sink.apply([], [policy, address])

    asyncio.run(work())
    assert sink.processed == {"networkpolicies": 3, "addressgroups": 3, "appliedtogroups": 1}
    counted = {**sink.processed, "Egress": 2}
    lines = controller_metrics(counted, {}).splitlines()
    assert [line for line in lines if line.partition(" ")[0].endswith(("_processed", "_updates"))] == [
        "antrea_controller_acnp_status_updates 0",
        "antrea_controller_address_group_processed 3",
        "antrea_controller_annp_status_updates 0",
        "antrea_controller_applied_to_group_processed 1",
        "antrea_controller_eg_status_updates 2",
        "antrea_controller_eip_status_updates 0",
        "antrea_controller_network_policy_processed 3",
    ]


def test_nodes_that_a_policy_leaves_are_named_where_agents_report_on_it() -> None:
    left: list[tuple[str, list[str]]] = []

    def note(policy: str, nodes: Iterable[str]) -> None:
        left.append((policy, [*nodes]))

    def policy(*nodes: str, priority: float | None = 5.0) -> PublishedPolicy:
        found = NetworkPolicy(metadata=ObjectMetadata(name="p", uid="p"), priority=priority)
        return PublishedPolicy(found, nodes)

    async def work() -> None:
        sink = PublishSink(Heard(), note, KINDS)  # type: ignore[arg-type]
        for nodes in (("n1", "n2", "n3"), ("n2", "n3", "n4"), ("n2", "n3", "n4"), ("n4",)):
            await sink.apply([policy(*nodes)], [])
        await sink.apply([], [policy("n4")])
        await sink.apply([policy("n1", priority=None)], [])
        await sink.apply([], [policy("n1", priority=None)])

    asyncio.run(work())
    assert [one for one in left if one[1]] == [("p", ["n1"]), ("p", ["n2", "n3"]), ("p", ["n4"])]
