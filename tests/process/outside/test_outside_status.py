"""Statuses, as an API server on loopback hears of them."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web
from loopback import client_of

from antrea.apis.crd.part import Condition
from antrea.apis.status import Items, Status
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.status_sink import StatusSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

EGRESSES = "/apis/crd.antrea.io/v1beta1/egresses"
ASSIGNED = Condition("IPAssigned", "True", reason="Assigned")


class Server:
    """Holds objects by path; a patch replaces `status` whole, as no test shares its fields."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[str, dict[str, str], Any]] = []
        self.before_patch: Callable[[dict[str, Any]], None] = lambda _: None
        self.broken = False
        self.forbidden = ""
        """Name of an object whose status nobody may write."""
        self.undeclared = ""
        """A field that the schema lacks."""

    def has(self, name: str, **status: Any) -> dict[str, Any]:
        metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": "1"}
        self.objects[f"{EGRESSES}/{name}"] = {"metadata": metadata, "status": status}
        return self.objects[f"{EGRESSES}/{name}"]

    async def answer(self, request: web.Request) -> web.Response:
        found = self.objects.get(request.path.removesuffix("/status"))
        if self.broken:
            return web.json_response({"message": "etcd is away"}, status=500)
        if found is None:
            return web.json_response({"message": "none"}, status=404)
        if request.method == "GET":
            return web.json_response(found)
        if found["metadata"]["name"] == self.forbidden:
            return web.json_response({"message": "you may not"}, status=403)
        body = json.loads(await request.read())
        assert request.content_type == "application/apply-patch+yaml"
        self.patches.append((request.path, dict(request.query), body))
        if self.undeclared in body["status"]:
            why = f"failed to create typed patch object: .status.{self.undeclared}: field not declared in schema"
            return web.json_response({"message": why}, status=500)
        self.before_patch(found)
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return web.json_response({"message": "please read it again"}, status=409)
        changed(found, **body["status"])
        return web.json_response(found)


def changed(found: dict[str, Any], **status: Any) -> None:
    found["status"] |= status
    found["metadata"]["resourceVersion"] += "1"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[StatusSink, Server]]:
    server = Server()
    async with client_of(server.answer) as kube:
        yield StatusSink(kube, now=lambda: "2026-01-01T00:00:00Z"), server


def egress(name: str, node: str, *conditions: Condition) -> Status:
    return Status(
        path=f"{EGRESSES}/{name}",
        kind="Egress",
        manager=f"antrea-agent-{node}",
        fields=(("egressNode", node), ("usage.total", 0)),
        conditions=conditions,
    )


async def test_a_status_is_applied_by_its_manager_to_the_object_that_was_read() -> None:
    async with served() as (sink, server):
        server.has("web")
        await sink.apply([egress("web", "n1", ASSIGNED)], [])
    assert server.patches == [
        (
            f"{EGRESSES}/web/status",
            {"fieldManager": "antrea-agent-n1", "force": "true"},
            {
                "apiVersion": "crd.antrea.io/v1beta1",
                "kind": "Egress",
                "metadata": {"name": "web", "uid": "u-web", "resourceVersion": "1"},
                "status": {
                    "egressNode": "n1",
                    "usage": {"total": 0},
                    "conditions": [
                        {
                            "type": "IPAssigned",
                            "status": "True",
                            "reason": "Assigned",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ],
                },
            },
        )
    ]


async def test_what_stands_as_wanted_is_not_written_again() -> None:
    async with served() as (sink, server):
        server.has("web")
        await sink.apply([egress("web", "n1", ASSIGNED)], [])
        await sink.resync([egress("web", "n1", ASSIGNED)])
        await sink.sweep(0)
    assert len(server.patches) == 1


async def test_a_withdrawn_status_is_left_as_it_is() -> None:
    async with served() as (sink, server):
        server.has("web", egressNode="n1")
        await sink.apply([], [egress("web", "n1")])
    assert server.patches == []
    assert Status.forgets


async def test_conditions_of_others_stay_and_ours_keeps_its_time_until_its_status_changes() -> None:
    allocated = {"type": "IPAllocated", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    ours = {"type": "IPAssigned", "status": "True", "lastTransitionTime": "2020-01-02T00:00:00Z"}
    async with served() as (sink, server):
        held = server.has("web", conditions=[ours, allocated])
        await sink.apply([egress("web", "n1", ASSIGNED)], [])
        assert held["status"]["conditions"] == [ours | {"reason": "Assigned"}, allocated]
        await sink.apply([egress("web", "n1", Condition("IPAssigned", "False"))], [])
        now = {"type": "IPAssigned", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        assert held["status"]["conditions"] == [now, allocated]
        await sink.apply([egress("web", "n1", Condition("IPAssigned"))], [])
        assert held["status"]["conditions"] == [allocated]


async def test_new_conditions_that_are_to_stand_ahead_come_before_those_of_others() -> None:
    allocated = {"type": "IPAllocated", "status": "True"}
    first = msgspec.structs.replace(egress("web", "n1", ASSIGNED), ahead=True)
    async with served() as (sink, server):
        held = server.has("web", conditions=[allocated])
        await sink.apply([first], [])
        assert [row["type"] for row in held["status"]["conditions"]] == ["IPAssigned", "IPAllocated"]
        changed(held, conditions=[*reversed(held["status"]["conditions"])])
        await sink.apply([first], [])
    assert [row["type"] for row in held["status"]["conditions"]] == ["IPAllocated", "IPAssigned"]
    assert len(server.patches) == 1


async def test_what_another_wrote_meanwhile_is_read_before_the_next_try() -> None:
    allocated = {"type": "IPAllocated", "status": "True"}
    others = [allocated]

    def another_comes_first(found: dict[str, Any]) -> None:
        if others:
            changed(found, conditions=[others.pop()])

    async with served() as (sink, server):
        held = server.has("web")
        server.before_patch = another_comes_first
        await sink.apply([egress("web", "n1", ASSIGNED)], [])
    assert [row["type"] for row in held["status"]["conditions"]] == ["IPAllocated", "IPAssigned"]
    assert len(server.patches) == 2


async def test_an_object_that_was_deleted_has_no_status_and_that_is_no_error() -> None:
    async with served() as (sink, server):
        held = server.has("web")
        await sink.apply([egress("gone", "n1"), egress("web", "n1")], [])
        server.broken = True
        with pytest.raises(Unavailable, match="etcd is away"):
            await sink.apply([egress("web", "n2")], [])
    assert held["status"]["egressNode"] == "n1"


async def test_what_may_not_be_written_is_a_refusal_of_that_status_and_the_others_are_written() -> None:
    async with served() as (sink, server):
        server.has("secret")
        held = server.has("web")
        server.forbidden = "secret"
        secret = egress("secret", "n1")
        with pytest.raises(Refused, match="you may not") as no:
            await sink.apply([secret, egress("web", "n1")], [])
    assert no.value.entries == (secret,)
    assert held["status"]["egressNode"] == "n1"


async def test_items_of_a_list_stand_beside_those_of_other_managers_in_its_order() -> None:
    def at(*pairs: tuple[str, str]) -> list[dict[str, str]]:
        return [{"egressIP": ip, "egressNode": node} for ip, node in pairs]

    async with served() as (sink, server):
        server.has("web", addresses=at(("::1", "n2"), ("10.0.0.9", "n3"), ("10.0.0.1", "n1")))
        ours = Items("addresses", "egressIP", ((("egressIP", "10.0.0.1"), ("egressNode", "n4")),), KNOWN)
        entry = Status(path=f"{EGRESSES}/web", kind="Egress", manager="antrea-agent-n4", items=ours)
        await sink.apply([entry], [])
        await sink.apply([entry], [])
    ((_, _, body),) = server.patches
    assert body["status"] == {"addresses": at(("10.0.0.1", "n4"), ("::1", "n2"))}


async def test_an_item_with_a_list_is_written_once() -> None:
    item = (("pod", "shop/web"), ("firstPort", 1024), ("podIPs", ("10.10.0.7", "fd00:10::7")))
    items = Items("portBlocks", "pod", (item,), ("shop/web",))
    entry = Status(path=f"{EGRESSES}/web", kind="Egress", manager="antrea-controller-ports", items=items)
    async with served() as (sink, server):
        server.has("web")
        await sink.apply([entry], [])
        await sink.apply([entry], [])
    ((_, _, body),) = server.patches
    block = {"pod": "shop/web", "firstPort": 1024, "podIPs": ["10.10.0.7", "fd00:10::7"]}
    assert body["status"] == {"portBlocks": [block]}


KNOWN = ("10.0.0.1", "10.0.0.2", "::1")


def progress(name: str, *, done: int | None = None, left: int = 0) -> Status:
    """What is done stays said when nothing is said of it."""
    fields = (("left", left), *((("done", done),) if done is not None else ()))
    return Status(path=f"{EGRESSES}/{name}", kind="Egress", manager="m", fields=fields, keeps=("done",))


async def test_a_field_that_is_kept_is_written_along_while_nothing_else_is_said_of_it() -> None:
    async with served() as (sink, server):
        server.has("web")
        await sink.apply([progress("web", left=2)], [])
        await sink.apply([progress("web", done=1)], [])
        await sink.apply([progress("web", left=1)], [])
        await sink.apply([progress("web", left=1)], [])
        await sink.apply([progress("web", done=2)], [])
    assert [body["status"] for _, _, body in server.patches] == [
        {"left": 2},
        {"done": 1, "left": 0},
        {"done": 1, "left": 1},
        {"done": 2, "left": 0},
    ]


async def test_a_field_that_is_kept_is_left_out_where_the_crd_does_not_have_it() -> None:
    async with served() as (sink, server):
        held, other = server.has("web"), server.has("other")
        server.undeclared = "done"
        await sink.apply([progress("web", done=1)], [])
        await sink.apply([progress("other", done=1)], [])
        assert (held["status"], other["status"], len(server.patches)) == ({"left": 0}, {"left": 0}, 3)
        server.undeclared = "left"
        with pytest.raises(Unavailable, match="field not declared in schema"):
            await sink.apply([progress("web", left=1)], [])


async def test_conditions_that_are_a_map_are_written_without_those_of_others() -> None:
    other = {"type": "IPAllocated", "status": "True"}
    keyed = msgspec.structs.replace(egress("web", "n1", ASSIGNED), keyed=True)
    async with served() as (sink, server):
        held = server.has("web", conditions=[other])
        await sink.apply([keyed], [])
        (_, _, body) = server.patches[-1]
        ours = body["status"]["conditions"]
        assert [row["type"] for row in ours] == ["IPAssigned"]
        # kube-apiserver merges such a list by type
        changed(held, conditions=[other, *ours])
        await sink.apply([keyed], [])
        assert len(server.patches) == 1
        await sink.apply([msgspec.structs.replace(keyed, conditions=(Condition("IPAssigned"),))], [])
        assert server.patches[-1][2]["status"]["conditions"] == []
