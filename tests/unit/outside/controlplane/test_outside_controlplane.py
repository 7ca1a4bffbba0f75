"""What an agent hears of groups becomes rows: all at once at first, then one by one, and nothing is lost in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.engine import Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressPod
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.support_bundle_collection.agent import FEATURES as BUNDLE_FEATURES
from antrea.outside.controlplane.client import ALL, NOTHING, Controlplane, WatchFeed
from antrea.outside.kube.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


(KIND,) = FEATURE.watches
(BUNDLES,) = BUNDLE_FEATURES


def pods(*names: str) -> list[dict[str, Any]]:
    return [{"pod": {"namespace": "ns", "name": name}} for name in names]


def event(kind: str, name: str, **more: Any) -> bytes:
    meta = {} if kind == "MODIFIED" else {"metadata": {"name": name}}
    return msgspec.json.encode({"type": kind, "object": {**meta, "name": name, **more}})


BOOKMARK = msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "3"}}})


class Server:
    """Sends these lines on one connection after the other."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.connections = [*connections]
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def stream(
        self, path: str, query: Mapping[str, str], _: float, opened: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        self.asked.append((path, query))
        opened()
        for line in self.connections.pop(0):
            yield line


def heard(facts: Facts, server: Server, times: int = 1) -> set[str]:
    """Keys of the rows after so many connections."""
    feed = WatchFeed(KIND, "n1")
    for _ in range(times):
        asyncio.run(feed.run(server, facts, lambda: None))  # type: ignore[arg-type]
    return {found.key for found in facts.all(EgressPod)}


def test_an_error_that_the_server_sends_ends_the_watch_and_is_no_object() -> None:
    facts = Facts()
    wrong = msgspec.json.encode({"type": "ERROR", "object": {"code": 500, "message": "too slow"}})
    with pytest.raises(Unavailable, match="too slow"):
        heard(facts, Server([event("ADDED", "g", groupMembers=pods("a")), wrong]))
    assert not facts.all(EgressPod)


def test_the_watch_asks_for_this_node() -> None:
    server = Server([BOOKMARK])
    heard(Facts(), server)
    path = "/apis/controlplane.antrea.io/v1beta2/egressgroups"
    query = {"watch": "true", "fieldSelector": "nodeName=n1", "allowWatchBookmarks": "true"}
    assert server.asked == [(path, query)]


def test_nothing_is_known_before_the_bookmark_and_everything_after_it() -> None:
    first = event("ADDED", "e", groupMembers=pods("a", "b"))
    assert heard(Facts(), Server([first])) == set()
    assert heard(Facts(), Server([first, BOOKMARK])) == {"e ns/a", "e ns/b"}


@pytest.mark.parametrize("prefix", ["a", "A"], ids=["as other groups", "as EgressGroupPatch"])
def test_members_come_and_go(prefix: str) -> None:
    names = (f"{prefix}ddedGroupMembers", "removedGroupMembers" if prefix == "a" else "RemovedGroupMembers")
    change = event("MODIFIED", "e", **{names[0]: pods("c"), names[1]: pods("a")})
    lines = [event("ADDED", "e", groupMembers=pods("a", "b")), BOOKMARK, change]
    assert heard(Facts(), Server(lines)) == {"e ns/b", "e ns/c"}


def test_a_group_that_is_told_anew_keeps_nothing_else_and_one_that_is_deleted_nothing() -> None:
    lines = [
        event("ADDED", "e", groupMembers=pods("a")),
        event("ADDED", "f", groupMembers=pods("a")),
        BOOKMARK,
    ]
    again = event("ADDED", "e", groupMembers=pods("b"))
    assert heard(Facts(), Server([*lines, again, event("DELETED", "f")])) == {"e ns/b"}


def test_what_was_known_stays_while_a_new_connection_tells_it_again() -> None:
    facts = Facts()
    first = [event("ADDED", "e", groupMembers=pods("a", "b")), BOOKMARK]
    second = [event("ADDED", "e", groupMembers=pods("b", "c"))]
    assert heard(facts, Server(first, second), 2) == {"e ns/a", "e ns/b"}
    assert heard(facts, Server([*second, BOOKMARK])) == {"e ns/b", "e ns/c"}


def test_a_policy_and_its_groups_are_known_at_one_moment_whichever_was_listed_first() -> None:
    facts = Facts()
    policies, groups, applied = feeds = [WatchFeed(kind, "n1") for kind in POLICY.watches]
    for feed in feeds:
        feed.together = feeds
    policy = event("ADDED", "p", rules=[], appliedToGroups=["g"])
    member = event("ADDED", "g", groupMembers=pods("a"))

    def hear(feed: WatchFeed, *lines: bytes) -> tuple[int, int]:
        asyncio.run(feed.run(Server([*lines]), facts, lambda: None))  # type: ignore[arg-type]
        return len(facts.all(SentPolicy)), len(facts.all(SentAppliedMember))

    assert hear(policies, policy, BOOKMARK) == (0, 0)
    assert hear(groups, BOOKMARK) == (0, 0)
    assert hear(applied, member) == (0, 0)
    assert not facts.feeds.has(SentPolicy)
    assert hear(applied, member, BOOKMARK) == (1, 1)
    assert facts.feeds.has(SentPolicy)


def test_a_policy_of_upstreams_controller_is_read_which_writes_a_null_for_no_time() -> None:
    (policies,) = (kind for kind in POLICY.watches if kind.plural == "networkpolicies")
    ours = event(
        "ADDED",
        "p",
        rules=[
            {
                "direction": "In",
                "from": {"ipBlocks": [{"cidr": {"ip": "CgAAAA=="}}]},
                "to": {},
                "enableLogging": False,
            }
        ],
    )
    theirs = ours.replace(b'"metadata":{', b'"metadata":{"creationTimestamp":null,')
    assert theirs != ours
    read = [
        policies.read(msgspec.Raw(msgspec.json.encode(msgspec.json.decode(one)["object"])))
        for one in (ours, theirs)
    ]
    assert read[0] == read[1]


def test_a_bookmark_of_later_changes_nothing() -> None:
    lines = [event("ADDED", "e", groupMembers=pods("a")), BOOKMARK, BOOKMARK]
    assert heard(Facts(), Server(lines)) == {"e ns/a"}


def processed(version: int) -> bytes:
    meta = {"annotations": {"controlplane.antrea.io/processed-pods": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": meta}})


def test_pods_are_processed_as_far_as_all_watches_say_and_wholly_where_a_controller_does_not_say() -> None:
    plane = Controlplane(None, "n1", POLICY.watches, namespace="kube-system")  # type: ignore[arg-type]
    told: list[float] = []
    plane.listeners.append(lambda: told.append(plane.processed))

    def hear(number: int, *lines: bytes) -> None:
        asyncio.run(plane._feeds[number].run(Server([*lines]), Facts(), lambda: None))  # type: ignore[arg-type]

    assert plane.processed == NOTHING
    hear(0, processed(7), processed(9))
    hear(1, processed(8))
    hear(2, processed(6), processed(9))
    assert told == [NOTHING, NOTHING, NOTHING, 6, 8]
    hear(1, BOOKMARK)
    assert plane.processed == 9
    for number in (0, 2):
        hear(number, BOOKMARK)
    assert plane.processed == ALL


async def test_a_refused_watch_of_tasks_leaves_policies_as_they_are() -> None:
    class Refuses(Server):
        """Answers policies with nothing new, and refuses the rest."""

        access = SimpleNamespace(url="")
        refused = 0

        async def stream(
            self, path: str, query: Mapping[str, str], within: float, opened: Callable[[], None]
        ) -> AsyncIterator[bytes]:
            if "supportbundle" in path:
                self.refused += 1
                raise Refused([path], f"{path}: 403 Forbidden")
            opened()
            yield BOOKMARK
            await asyncio.Event().wait()

    plane = Controlplane(None, "n1", (*POLICY.watches, *BUNDLES.watches), namespace="kube-system")  # type: ignore[arg-type]
    server = Refuses()
    pause = Backoff(asyncio.sleep, lambda low, _: low)
    following = asyncio.ensure_future(plane._watch(server, Facts(), pause))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while not (server.refused and plane.processed == ALL and plane.rows() == []):  # noqa: ASYNC110 (a plane has no event)
            await asyncio.sleep(0.01)
    assert not following.done()
    assert not plane.trouble
    assert plane.controller is not None
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_what_is_no_event_ends_the_watch_with_its_path() -> None:
    with pytest.raises(Unavailable, match="egressgroups: answer is not understood"):
        heard(Facts(), Server([b'{"type": 3}']))
