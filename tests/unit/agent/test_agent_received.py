"""What antctl shows of the policies and groups that the controller sent is what was heard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Facts
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent_part.policies import Received, received
from antrea.outside.controlplane.client import WatchFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {}}}


class Server:
    """Tells each watcher what there is of its kind."""

    def __init__(self, **events: list[dict[str, Any]]) -> None:
        self.events = events

    async def stream(
        self, path: str, _query: Mapping[str, str], _seconds: float, _opened: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        for event in self.events.get(path.rpartition("/")[2], []):
            yield msgspec.json.encode(event)


def heard(**events: list[dict[str, Any]]) -> Received:
    facts, server = Facts(), Server(**events)
    for kind in FEATURE.watches:
        asyncio.run(WatchFeed(kind, "n1").run(server, facts, lambda: None))  # type: ignore[arg-type]
    return received(facts)


def group(name: str, *pods: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "groupMembers": [{"pod": {"name": pod}} for pod in pods]}


def members(*pods: str) -> tuple[cp.GroupMember, ...]:
    return tuple(cp.GroupMember(pod=cp.PodReference(name=pod)) for pod in pods)


def meta(name: str) -> ObjectMetadata:
    return ObjectMetadata(name=name, uid=name)


def test_groups_are_shown_also_while_they_are_empty() -> None:
    found = heard(
        addressgroups=[{"type": "ADDED", "object": group("a", "p", "q")}, BOOKMARK],
        appliedtogroups=[{"type": "ADDED", "object": group("b")}, BOOKMARK],
    )
    assert found == Received(
        address_groups=(cp.AddressGroup(metadata=meta("a"), group_members=members("p", "q")),),
        applied_to_groups=(cp.AppliedToGroup(metadata=meta("b")),),
    )


def test_a_member_that_changed_is_shown_as_it_is_now() -> None:
    before, now = {"pod": {"name": "p"}, "ips": ["AAAA"]}, {"pod": {"name": "p"}, "ips": ["BBBB"]}
    change = {"metadata": {"name": "a"}, "addedGroupMembers": [now], "removedGroupMembers": [before]}
    (found,) = heard(
        addressgroups=[
            {"type": "ADDED", "object": {"metadata": {"name": "a"}, "groupMembers": [before]}},
            BOOKMARK,
            {"type": "MODIFIED", "object": change},
        ]
    ).address_groups
    assert found.group_members == (msgspec.convert(now, cp.GroupMember),)


def test_policies_come_change_and_go_whole() -> None:
    def policy(name: str, generation: int) -> dict[str, Any]:
        found = {"metadata": {"name": name, "uid": name, "generation": generation}}
        return {**found, "sourceRef": {"name": name, "type": "K8sNetworkPolicy"}}

    events = [
        {"type": "ADDED", "object": policy("p", 1)},
        {"type": "ADDED", "object": policy("q", 1)},
        BOOKMARK,
        {"type": "MODIFIED", "object": policy("p", 2)},
        {"type": "DELETED", "object": policy("q", 1)},
    ]
    found = heard(networkpolicies=events).policies
    assert [(one.metadata.name, one.metadata.generation) for one in found] == [("p", 2)]
