"""Stores: what a put is for each watcher, and what slow watchers cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from watch_client import lines, read

from antrea.apis.controlplane import (
    AddressGroup,
    AppliedToGroup,
    EgressGroup,
    GroupMember,
    NetworkPolicy,
    NetworkPolicyReference,
    PodReference,
)
from antrea.apis.meta import ObjectMetadata
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.form import Json, Metadata, Table
from antrea.outside.apiserver.store import Store
from antrea.outside.apiserver.watcher import EVENTS, MAX_EVENTS, TIMEOUT_SECONDS, Selection, Watcher

if TYPE_CHECKING:
    from antrea.apis.resource import Resource


def resource(plural: str) -> Resource:
    return next(row for row in RESOURCES if row.plural == plural and row.group == "controlplane.antrea.io")


def policy(name: str, generation: int = 1) -> NetworkPolicy:
    meta = ObjectMetadata(name=name, uid=f"uid-{name}", generation=generation)
    return NetworkPolicy(metadata=meta, source_ref=NetworkPolicyReference(name=name))


def member(name: str) -> GroupMember:
    return GroupMember(pod=PodReference(name=name, namespace="shop"))


def pod(name: str) -> dict[str, Any]:
    return {"pod": {"name": name, "namespace": "shop"}}


META = ObjectMetadata(name="g", uid="u")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(store: Store, node: str | None = None, **more: Any) -> Watcher:
    return store.watch(Selection(node, **more), Json(store.resource))


def test_store_a_watch_begins_with_what_its_node_needs_and_a_bookmark() -> None:
    store = Store(resource("networkpolicies"))
    store.put("a", policy("a"), frozenset({"n1"}))
    store.put("b", policy("b"), frozenset({"n2"}))
    watcher = watch(store, "n1")
    envelope = {"kind": "NetworkPolicy", "apiVersion": "controlplane.antrea.io/v1beta2"}
    assert lines(watcher) == [
        (
            "ADDED",
            {
                **envelope,
                "metadata": {"name": "a", "uid": "uid-a", "generation": 1},
                "sourceRef": {"name": "a"},
            },
        ),
        ("BOOKMARK", {**envelope, "metadata": {"resourceVersion": "2"}}),
    ]
    assert [kind for kind, _ in lines(watch(store))] == ["ADDED", "ADDED", "BOOKMARK"]
    only = watch(store, key="b")
    assert [found["metadata"].get("name") for _, found in lines(only)] == ["b", None]


def test_store_only_who_asks_for_it_is_told_that_initial_events_end() -> None:
    store = Store(resource("networkpolicies"))
    watcher = store.watch(Selection(), Json(store.resource), mark_end=True)
    assert lines(watcher)[-1][1]["metadata"] == {
        "resourceVersion": "0",
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


def test_store_who_watches_for_a_node_and_asks_is_told_how_far_its_pods_are_processed() -> None:
    store = Store(resource("networkpolicies"))
    store.processed("n1", 7)
    asks = {node: store.watch(Selection(node), Json(store.resource), bookmarks=True) for node in ("n1", "n2")}
    everything = store.watch(Selection(), Json(store.resource), bookmarks=True)
    silent = watch(store, "n1")
    store.put("a", policy("a"), frozenset({"n1"}))
    store.processed("n1", 9)

    def notes(watcher: Watcher) -> list[tuple[str, Any]]:
        return [(kind, found["metadata"].get("annotations")) for kind, found in lines(watcher)]

    def until(version: int) -> dict[str, str]:
        return {"controlplane.antrea.io/processed-pods": str(version)}

    assert notes(asks["n1"]) == [("BOOKMARK", until(7)), ("ADDED", None), ("BOOKMARK", until(9))]
    assert notes(asks["n2"]) == [("BOOKMARK", until(0))]
    assert notes(silent) == notes(everything) == [("BOOKMARK", None), ("ADDED", None)]


def test_store_a_change_of_span_is_added_for_one_node_and_deleted_for_another_and_nothing_for_a_third() -> (
    None
):
    store = Store(resource("networkpolicies"))
    store.put("a", policy("a"), frozenset({"n1", "n2"}))
    watchers = {node: watch(store, node) for node in ("n1", "n2", "n3")}
    everything = watch(store)
    for watcher in (*watchers.values(), everything):
        lines(watcher)
    store.put("a", policy("a"), frozenset({"n2", "n3"}))
    seen = {node: lines(watcher) for node, watcher in watchers.items()}
    assert [kind for kind, _ in seen["n3"]] == ["ADDED"]
    assert seen["n2"] == []
    assert seen["n1"] == [
        (
            "DELETED",
            {
                "kind": "NetworkPolicy",
                "apiVersion": "controlplane.antrea.io/v1beta2",
                "metadata": {"name": "a", "uid": "uid-a", "generation": 1},
                "sourceRef": {"name": "a"},
            },
        )
    ]
    assert lines(everything) == []
    store.put("a", policy("a", 2), frozenset({"n2", "n3"}))
    assert [(kind, found["metadata"]["generation"]) for kind, found in lines(watchers["n2"])] == [
        ("MODIFIED", 2)
    ]
    assert lines(watchers["n1"]) == []


def test_store_an_applied_to_group_shows_each_node_its_own_members() -> None:
    store = Store(resource("appliedtogroups"))
    both = frozenset({"n1", "n2"})
    group = AppliedToGroup(metadata=META, group_members=(member("a"), member("b")))
    store.put("g", group, both, ("n1", "n2"))
    one, other, everything = watch(store, "n1"), watch(store, "n2"), watch(store)
    assert lines(one)[0][1]["groupMembers"] == [pod("a")]
    assert lines(other)[0][1]["groupMembers"] == [pod("b")]
    assert lines(everything)[0][1]["groupMembers"] == [pod("a"), pod("b")]
    store.put(
        "g", AppliedToGroup(metadata=META, group_members=(member("a"), member("c"))), both, ("n1", "n2")
    )
    assert lines(one) == []
    patch = {
        "kind": "AppliedToGroupPatch",
        "apiVersion": "controlplane.antrea.io/v1beta2",
        "metadata": {"name": "g", "uid": "u"},
        "addedGroupMembers": [pod("c")],
        "removedGroupMembers": [pod("b")],
    }
    assert lines(other) == [("MODIFIED", patch)]
    assert lines(everything) == [("MODIFIED", patch)]
    assert store.get("g") is not None
    assert store.objects()[0][0].group_members == (member("a"), member("c"))


def test_store_members_can_be_changed_one_by_one() -> None:
    store = Store(resource("appliedtogroups"))
    store.put("g", AppliedToGroup(metadata=META, group_members=(member("a"),)), frozenset({"n1"}), ("n1",))
    one, two, everything = watch(store, "n1"), watch(store, "n2"), watch(store)
    for watcher in (one, two, everything):
        lines(watcher)
    store.change("g", added=[(member("b"), "n2"), (member("a"), "n1")], span=frozenset({"n1", "n2"}))
    assert lines(one) == []
    assert [(kind, found["groupMembers"]) for kind, found in lines(two)] == [("ADDED", [pod("b")])]
    assert [found["addedGroupMembers"] for _, found in lines(everything)] == [[pod("b")]]
    store.change("g", added=[(member("a"), "n2")], removed=[(member("a"), "n1"), (member("x"), "n1")])
    assert [found["removedGroupMembers"] for _, found in lines(one)] == [[pod("a")]]
    assert [found["addedGroupMembers"] for _, found in lines(two)] == [[pod("a")]]
    assert lines(everything) == []
    store.drop("g")
    store.drop("g")
    assert store.version == 4
    assert [(kind, found["metadata"]) for kind, found in lines(one)] == [
        ("DELETED", {"name": "g", "uid": "u"})
    ]


def test_store_a_member_may_be_on_several_nodes() -> None:
    store = Store(resource("appliedtogroups"))
    both = frozenset({"n1", "n2"})
    service = member("s")
    group = AppliedToGroup(metadata=META, group_members=(service, service))
    store.put("g", group, both, ("n1", "n2"))
    one, two, everything = watch(store, "n1"), watch(store, "n2"), watch(store)
    assert [lines(watcher)[0][1]["groupMembers"] for watcher in (one, two, everything)] == [[pod("s")]] * 3
    store.change("g", added=(), removed=[(service, "n1")])
    assert [found["removedGroupMembers"] for _, found in lines(one)] == [[pod("s")]]
    assert lines(two) == lines(everything) == []
    store.put("g", AppliedToGroup(metadata=META), both)
    assert lines(one) == []
    for watcher in (two, everything):
        assert [found["removedGroupMembers"] for _, found in lines(watcher)] == [[pod("s")]]


def test_store_an_address_group_is_the_same_for_all_and_an_egress_patch_has_upstreams_odd_form() -> None:
    addresses = Store(resource("addressgroups"))
    addresses.put("g", AddressGroup(metadata=META), frozenset({"n1"}))
    watcher = watch(addresses, "n1")
    lines(watcher)
    addresses.change("g", added=[(member("a"), "")])
    assert lines(watcher)[0][1]["addedGroupMembers"] == [pod("a")]
    egress = Store(resource("egressgroups"))
    egress.put("g", EgressGroup(metadata=META), frozenset({"n1"}))
    watcher = watch(egress, "n1")
    lines(watcher)
    egress.change("g", added=[(member("a"), "n1")])
    assert lines(watcher) == [
        (
            "MODIFIED",
            {
                "kind": "EgressGroupPatch",
                "apiVersion": "controlplane.antrea.io/v1beta2",
                "name": "g",
                "uid": "u",
                "AddedGroupMembers": [pod("a")],
                "RemovedGroupMembers": None,
            },
        )
    ]


def test_store_one_object_is_encoded_once_for_all_watchers() -> None:
    store = Store(resource("networkpolicies"))
    watchers = [watch(store, f"n{n}") for n in range(20)]
    for watcher in watchers:
        lines(watcher)
    store.put("a", policy("a"), frozenset(f"n{n}" for n in range(20)))
    queued = {id(watcher._queue[0]) for watcher in watchers}
    assert len(queued) == 1
    # and what a new watch begins with is the same bytes
    late = watch(store, "n0")
    assert late._first[0][2] is watchers[0]._queue[0][2]


def test_store_a_watcher_that_does_not_keep_up_is_cut_off_and_holds_nothing() -> None:
    clock = Clock()
    store = Store(resource("networkpolicies"), clock)
    woken = []
    slow, quick = watch(store, "n1"), watch(store, "n1")
    slow.wake = lambda: woken.append(1)
    span = frozenset({"n1"})
    for number in range(EVENTS + 10):
        store.put("a", policy("a", number), span)
        read(quick)
    clock.now += TIMEOUT_SECONDS + 1
    before = len(woken)
    store.put("a", policy("a", -1), span)
    assert slow.cut == "it does not keep up"
    assert len(woken) == before + 1
    assert read(slow) == b""
    for number in range(MAX_EVENTS + 1):
        store.put("a", policy("a", number), span)
    assert quick.cut == "too much waits for it"
    store.forget(slow)
    store.forget(quick)
    assert store.watchers() == []


def test_store_what_is_taken_is_never_more_than_asked_for() -> None:
    store = Store(resource("networkpolicies"))
    for number in range(9):
        store.put(f"p{number}", policy(f"p{number}"))
    pieces = []
    watcher = watch(store)
    while not watcher.idle:
        pieces.append(watcher.pop(100))
    assert max(map(len, pieces)) == 100
    assert b"".join(pieces) == read(watch(store))


def test_store_a_table_names_its_columns_once() -> None:
    store = Store(resource("appliedtogroups"))
    store.put("g", AppliedToGroup(metadata=META))
    watcher = store.watch(Selection(), Table(store.resource))
    store.change("g", added=[(member("a"), "n1")])
    events = lines(watcher)
    assert [(kind, table["rows"][0]["cells"][0]) for kind, table in events] == [
        ("ADDED", "g"),
        ("BOOKMARK", ""),
        ("MODIFIED", "g"),
    ]
    assert [column["name"] for column in events[0][1]["columnDefinitions"]] == ["Name", "Created At"]
    assert [table["columnDefinitions"] for _, table in events[1:]] == [None, None]
    assert events[2][1]["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "g", "uid": "u"},
    }
    short = store.watch(Selection(), Metadata())
    assert lines(short)[0][1]["kind"] == "PartialObjectMetadata"


def test_store_who_waits_for_the_first_pass_is_told_once() -> None:
    store = Store(resource("networkpolicies"))
    told: list[str] = []
    store.when_synced(lambda: told.append("early"))
    assert told == []
    store.sync()
    store.sync()
    store.when_synced(lambda: told.append("late"))
    assert told == ["early", "late"]


def test_store_members_of_what_is_no_group_are_refused() -> None:
    store = Store(resource("networkpolicies"))
    store.put("a", policy("a"))
    with pytest.raises(TypeError, match="networkpolicies are not groups"):
        store.change("a", added=())
