"""What the doctor says of annotations for Pods on Deployments and other objects that create Pods."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from loopback import answering

from antrea.antctl.doctor.metadata import MAX_FINDINGS, MAX_PAGES, METADATA, metadata
from antrea.antctl.doctor.state import Finding
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

DEPLOYMENTS = "/apis/apps/v1/deployments"


def one(name: str, value: str = "", **more: Any) -> dict[str, Any]:
    annotations = {"visibility.antrea.io/l7-export": value} if value else {}
    return {"metadata": {"name": name, "namespace": "shop", "uid": name, "annotations": annotations, **more}}


async def found(pages: dict[str, list[list[dict[str, Any]]] | int]) -> list[Finding]:
    """Of a cluster with these pages of each list; a number is the answer's status."""

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.headers["Accept"] == METADATA
        assert request.query["limit"] == "500"
        told = pages.get(request.path, [[]])
        if isinstance(told, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=told)
        at = int(request.query.get("continue") or 0)
        following = str(at + 1) if at + 1 < len(told) else ""
        return web.json_response({"metadata": {"continue": following}, "items": told[at]})

    async with answering(answer) as url:
        return await asyncio.to_thread(metadata, Server(Access(url=url), 60.0), "l7-export")


async def test_annotations_on_workloads_are_named_with_the_place_where_they_have_an_effect() -> None:
    owned = one("web-1", "both", ownerReferences=[{"kind": "Deployment", "name": "web", "uid": "web"}])
    listed: dict[str, Any] = {
        DEPLOYMENTS: [[one("db"), one("cache")], [one("web", "both")]],
        "/apis/apps/v1/replicasets": [[owned]],
        "/apis/batch/v1/cronjobs": [[one("nightly", "egress")]],
        "/apis/batch/v1/jobs": 403,
    }
    said = "has no effect on a {}: write it into the template of its Pods, {}.metadata.annotations"
    annotation = "annotation visibility.antrea.io/l7-export"
    assert await found(listed) == [
        Finding(
            *("", "warning", "l7-export"),
            f"Deployment shop/web: {annotation} {said.format('Deployment', 'spec.template')}",
            "kubectl -n shop edit deployments web",
        ),
        Finding("", "error", "l7-export", "Job: cannot be listed: request to server failed: no", ""),
        Finding(
            *("", "warning", "l7-export"),
            f"CronJob shop/nightly: {annotation} {said.format('CronJob', 'spec.jobTemplate.spec.template')}",
            "kubectl -n shop edit cronjobs nightly",
        ),
    ]


async def test_what_is_looked_at_is_bounded() -> None:
    (many,) = await found({DEPLOYMENTS: [[one("a")]] * (MAX_PAGES + 1)})
    assert (many.severity, "more than 10000" in many.finding) == ("error", True)
    annotated = await found(
        {DEPLOYMENTS: [[one(f"web-{number}", "both") for number in range(MAX_FINDINGS + 5)]]}
    )
    assert len(annotated) == MAX_FINDINGS + 1
    assert annotated[-1].finding == f"there are more than {MAX_FINDINGS} of them"


async def test_an_answer_that_is_no_list_is_a_finding() -> None:
    (odd,) = await found({DEPLOYMENTS: [[{"metadata": [1]}]]})
    assert (odd.severity, odd.finding.startswith("Deployment: cannot be listed: ")) == ("error", True)
