"""What the doctor says of SupportBundleCollections that failed or cannot begin."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from loopback import answering

from antrea.antctl.doctor.bundles import MOST, PATH, bundle_collections
from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

CHECK = ("", "warning", "support-bundles")


def collection(name: str, **conditions: tuple[str, str, str]) -> dict[str, Any]:
    """Each condition as status, reason and message."""
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    return {"metadata": {"name": name}, "status": {"conditions": listed}}


async def found(listed: list[dict[str, Any]] | int) -> list[Finding]:
    """Of a cluster with these; a number is the answer's status."""

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.path == PATH
        if isinstance(listed, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=listed)
        return web.json_response({"items": listed})

    async with answering(answer) as url:
        return await asyncio.to_thread(bundle_collections, Server(Access(url=url), 60.0))


async def test_what_failed_or_cannot_begin_is_named_with_its_reason() -> None:
    good = ("True", "", "")
    listed = [
        collection("good", Started=good, CollectionFailure=("False", "", ""), Completed=good),
        collection("queued", Started=("False", "Conflict", "another one")),
        collection("bad", Started=good, CollectionFailure=("True", "InternalError", "Failed Agent\nforged")),
        collection("stuck", Started=("False", "SecretUnavailable", "no Secret")),
        {"metadata": {"name": "new"}},
    ]
    assert await found(listed) == [
        Finding(
            *CHECK,
            "SupportBundleCollection bad: not all bundles are at the file server: Failed Agent\\nforged",
            "kubectl describe sbc bad",
        ),
        Finding(
            *CHECK, "SupportBundleCollection stuck: cannot begin: no Secret", "kubectl describe sbc stuck"
        ),
        Finding(
            *CHECK,
            "SupportBundleCollection new: nothing acts on it: antrea-controller has not read it",
            "antctl get featuregates",
        ),
    ]


async def test_what_cannot_be_listed_is_a_finding_and_many_are_cut() -> None:
    (one,) = await found(403)
    assert (one.severity, one.check) == ("unknown", "support-bundles")
    assert await found(404) == []
    many = await found([{"metadata": {"name": f"c{number}"}} for number in range(MOST + 5)])
    assert len(many) == MOST + 1
    assert many[-1].finding == f"there are more than {MOST} of them"
