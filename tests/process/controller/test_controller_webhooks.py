"""What decisions ask of the API server, and rows that follow it, against one on loopback that keeps objects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from certificate_world import api_server, until
from loopback import client_of

from antrea.apis.admission import UserInfo
from antrea.apis.crd.tier import Tier
from antrea.controller.webhook import runtime as webhooks
from antrea.controller.webhook.admission import AdmissionContext, Listing, review
from antrea.controller.webhook.review_thread import STRANGER
from antrea.controller.webhook.runtime import ApiLookup, Webhooks
from antrea.errors import Unavailable
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS

TIERS = "/apis/crd.antrea.io/v1beta1/tiers"
EVE = UserInfo("eve", "7", ("devs", "system:authenticated"), {"scopes": ("a", "b")})


class Reviewer:
    """Answers SubjectAccessReviews with this status and body; None: never."""

    def __init__(self, status: int | None, body: Any = None) -> None:
        self.status = status
        self.body = body
        self.asked: Any = None

    async def serve(self, request: web.Request) -> web.Response:
        self.asked = (request.path, json.loads(await request.read()))
        if self.status is None:
            await asyncio.Event().wait()
        return web.json_response(self.body, status=self.status or 200)

    async def ask(self) -> bool:
        async with client_of(self.serve) as kube:
            return await ApiLookup(kube).may_get_secret(EVE, "n", "s")


async def test_the_api_server_is_asked_about_all_that_it_said_of_the_user() -> None:
    reviewer = Reviewer(201, {"status": {"allowed": True}})
    assert await reviewer.ask()
    assert reviewer.asked == (
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "n", "name": "s"},
                "user": "eve",
                "groups": ["devs", "system:authenticated"],
                "uid": "7",
                "extra": {"scopes": ["a", "b"]},
            },
        },
    )


@pytest.mark.parametrize(
    "status", [{}, {"allowed": False, "reason": "no"}, {"denied": True, "allowed": False}]
)
async def test_whoever_is_not_allowed_is_refused(status: dict[str, Any]) -> None:
    assert not await Reviewer(201, {"status": status}).ask()


@pytest.mark.parametrize(
    ("reviewer", "why"),
    [
        (Reviewer(403, {"message": "we may not ask"}), "we may not ask"),
        (Reviewer(500, {"message": "etcd is away"}), "etcd is away"),
        (Reviewer(None), "no answer within 0.05 s"),
    ],
)
async def test_that_nobody_can_say_is_no_yes(
    reviewer: Reviewer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reviewer.status is None:
        monkeypatch.setattr(webhooks, "ACCESS_SECONDS", 0.05)
    with pytest.raises(Unavailable, match=why):
        await reviewer.ask()


async def test_rows_follow_the_api_server() -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"tier": "gold", "priority": 1, "ingress": []}}
    objects: dict[str, Any] = {f"{TIERS}/gold": {"spec": {"priority": 7}}}
    async with api_server(objects) as (server, kube):
        ours = Webhooks(kube, {}, namespace="kube-system", service_account="antrea-controller")
        running = asyncio.ensure_future(ours.run())
        try:
            facts = ours._facts
            await until(lambda: all(facts.feeds.has(watched.fact) for watched in WATCHED))
            server.put("/apis/crd.antrea.io/v1beta1/clusternetworkpolicies/p", policy)
            tiers, policies = (
                next(w.fact for w in WATCHED if w.path.endswith(end))
                for end in ("/tiers", "/clusternetworkpolicies")
            )
            await until(lambda: facts.by(policies, "tier", "gold"))
            assert [row.key for row in facts.by(tiers, "priority", 7)] == ["gold"]
            assert ours.trouble() == ""
        finally:
            running.cancel()


async def test_an_object_is_found_or_is_not_there() -> None:
    async with api_server({f"{TIERS}/gold": {"spec": {"priority": 7}}}) as (_, kube):
        found = [await ApiLookup(kube).find(f"{TIERS}/{name}", Tier) for name in ("gold", "silver")]
    assert [one and one.spec.priority for one in found] == [7, None]


SLY = ("../../../../api/v1/namespaces/kube-system/secrets/keys", "..", ".", "a/b", "%2e%2e", "a?x=y", "a#b", "..\\x", "a%2fb", " ", "\n", "a" * 300)  # fmt: skip


def naming(name: str) -> list[tuple[str, Any]]:
    """Reviewed objects that name others, by webhook."""
    pods: Any = {"podSelector": {}}
    return [
        ("egress", {"appliedTo": pods, "egressIP": "10.0.0.1", "externalIPPool": name}),
        ("acnp", {"priority": 1, "appliedTo": [pods], "tier": name, "ingress": []}),
        ("traceflow", {"source": {"namespace": "n", "pod": name}}),
        ("traceflow", {"source": {"namespace": name, "pod": "p"}}),
    ]


@pytest.mark.parametrize("name", SLY)
async def test_a_name_of_a_stranger_leads_nowhere_else(name: str) -> None:
    seen: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.json_response(
            {"metadata": {"name": "keys"}, "spec": {"ipRanges": [{"cidr": "10.0.0.0/8"}]}}
        )

    async with client_of(serve) as kube:
        ours = Webhooks(
            kube, {"Traceflow": True}, namespace="kube-system", service_account="antrea-controller"
        )
        for watched in WATCHED:
            ours._facts.synced(watched.fact)
        context = AdmissionContext(ours._facts, OnlyFind(kube))
        for kind, spec in naming(name):
            webhook = next(row for row in WEBHOOKS if row.path == f"/validate/{kind}")
            asked = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "x"}, "spec": spec}}
            answer = await review(webhook, context, json.dumps({"request": asked}).encode(), STRANGER)
            assert answer.status is not None, kind
            assert "exist" in answer.status.message or "not found" in answer.status.message, kind
    assert seen == []


class OnlyFind(ApiLookup):
    """A real look-up in which nothing is listed."""

    async def all(self, path: str, kind: type) -> Listing:
        return Listing()
