"""Whatever happens in whatever order, what a watcher makes of its lines is what the store has for its Node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from watch_client import Client, content, texts

from antrea.apis.controlplane import GroupMember, NetworkPolicy, PodReference
from antrea.apis.meta import ObjectMetadata
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.form import Json
from antrea.outside.apiserver.store import Store
from antrea.outside.apiserver.watcher import Selection, Watcher

if TYPE_CHECKING:
    from antrea.apis.resource import Resource

NODES = ("n1", "n2", "n3")
WATCHED = {
    row.plural: row for row in RESOURCES if "watch" in row.verbs and row.plural != "supportbundlecollections"
}
keys = st.sampled_from(["a", "b", "c"])
spans = st.frozensets(st.sampled_from(NODES))
pairs = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(NODES)), max_size=8, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, spans, pairs, st.integers(0, 2)),
        st.tuples(st.just("change"), keys, spans, pairs, pairs),
        st.tuples(st.just("drop"), keys),
        st.tuples(st.just("read"), st.integers(0, 4), st.integers(1, 400)),
        st.tuples(st.just("again"), st.integers(0, 4)),
    ),
    max_size=40,
)


def member(number: int) -> GroupMember:
    return GroupMember(pod=PodReference(name=f"p{number}"))


class World:
    """A store, and one client per Node and one of everything, each reading at its own pace."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.store = Store(resource)
        self.views: list[str | None] = [None, *NODES, "nowhere"]
        self.clients: list[Client] = [Client() for _ in self.views]
        self.watchers: list[Watcher] = [self.watch(view) for view in self.views]
        self.spans: dict[str, frozenset[str]] = {}
        self.places: dict[str, dict[tuple[GroupMember, str], None]] = {}

    def watch(self, view: str | None) -> Watcher:
        return self.store.watch(Selection(view), Json(self.resource))

    def put(self, key: str, span: frozenset[str], inside: list[tuple[int, str]], generation: int) -> None:
        meta = ObjectMetadata(name=key)
        self.spans[key] = span
        if self.resource.members:
            self.places[key] = {self.placed(n, place): None for n, place in inside}
            found = self.resource.struct(metadata=meta, group_members=tuple(m for m, _ in self.places[key]))
            self.store.put(key, found, span, tuple(place for _, place in self.places[key]))
        else:
            found = NetworkPolicy(metadata=msgspec.structs.replace(meta, generation=generation))
            self.store.put(key, found, span)

    def placed(self, number: int, place: str) -> tuple[GroupMember, str]:
        return member(number), place

    def change(
        self, key: str, span: frozenset[str], inside: list[tuple[int, str]], out: list[tuple[int, str]]
    ) -> None:
        if key not in self.places or not self.resource.members:
            return
        added, removed = ([self.placed(*pair) for pair in some] for some in (inside, out))
        self.store.change(key, added=added, removed=removed, span=span)
        self.spans[key] = span
        left = {pair: None for pair in self.places[key] if pair not in removed}
        self.places[key] = left | dict.fromkeys(added)

    def drop(self, key: str) -> None:
        self.store.drop(key)
        self.spans.pop(key, None)
        self.places.pop(key, None)

    def read(self, number: int, most: int) -> None:
        self.clients[number].feed(self.watchers[number].pop(most))

    def again(self, number: int) -> None:
        """Cut off in the middle of whatever it was reading, then watch anew."""
        self.store.forget(self.watchers[number])
        self.clients[number] = Client()
        self.watchers[number] = self.watch(self.views[number])

    def expected(self, view: str | None) -> dict[str, Any]:
        found = {}
        for shown, rest in self.store.objects():
            key = shown.metadata.name
            if view is None or view in self.spans[key]:
                found[key] = content({"kind": self.resource.kind, **json.loads(b"{" + rest)})
                if self.resource.members and self.resource.members.by_node and view is not None:
                    here = [m for m, place in self.places[key] if place == view]
                    found[key] = texts(json.loads(msgspec.json.encode(here)))
        return found


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(WATCHED)), steps)
def test_store_what_a_watcher_reconstructs_is_what_the_store_has_for_its_node(
    plural: str, happenings: list[tuple[Any, ...]]
) -> None:
    world = World(WATCHED[plural])
    for name, *arguments in happenings:
        getattr(world, name)(*arguments)
    for number, view in enumerate(world.views):
        while not world.watchers[number].idle:
            world.read(number, 97)
        assert world.clients[number].began
        assert world.clients[number].objects == world.expected(view)
