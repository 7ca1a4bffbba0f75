"""`antctl upgrade api-storage` when others change things meanwhile; the lab tier has it against a real API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from loopback import answering

from antrea.antctl.failure import Failure
from antrea.antctl.request import Server
from antrea.antctl.upgrade import CHANGED, upgrade
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAME = "things.crd.antrea.io"
PATH = "/apis/crd.antrea.io/v2/things"
CRD = {
    "metadata": {"name": NAME},
    "spec": {
        "group": "crd.antrea.io",
        "names": {"plural": "things"},
        "versions": [{"name": "v1", "storage": False}, {"name": "v2", "storage": True}],
    },
    "status": {"storedVersions": ["v1", "v2"]},
}


class Api:
    """Answers like an API server with three objects on two pages; `puts` has the answers to writes, by path, in turn."""

    def __init__(self, **puts: list[int]) -> None:
        self.puts = puts
        self.written: list[tuple[str, Any]] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            status = self.puts.get(name, [200]).pop(0)
            if status == 200:
                self.written.append((request.path, await request.json()))
            return web.json_response({"kind": "Status", "message": f"{status} for {name}"}, status=status)
        if request.path.endswith("/customresourcedefinitions"):
            return web.json_response({"items": [CRD]})
        if request.path == PATH:
            first = "continue" not in request.query
            items = [{"metadata": {"name": key}} for key in (("a", "b") if first else ("c",))]
            meta = {"continue": "more"} if first else {}
            return web.json_response({"items": items, "metadata": meta})
        return web.json_response({"metadata": {"name": name}, "fresh": True})


@asynccontextmanager
async def serving(api: Api) -> AsyncIterator[Server]:
    async with answering(api.answer) as url:
        yield Server(Access(url=url), 60.0)


async def ran(api: Api) -> None:
    async with serving(api) as server:
        await asyncio.to_thread(upgrade, server, set(), dry_run=False)


async def test_all_pages_are_written_and_the_old_version_is_forgotten() -> None:
    api = Api()
    await ran(api)
    *objects, (status, crd) = api.written
    assert [path for path, _ in objects] == [f"{PATH}/{name}" for name in "abc"]
    assert status.endswith(f"/{NAME}/status")
    assert crd["status"] == {"storedVersions": ["v2"]}


async def test_an_object_that_changed_is_read_again_and_one_that_went_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = Api(a=[409, 200], b=[404])
    await ran(api)
    assert api.written[0] == (f"{PATH}/a", {"metadata": {"name": "a"}, "fresh": True})
    assert capsys.readouterr().err.splitlines() == [
        f'Upgrading 3 objects of CRD "{NAME}".',
        f'Got conflict error when upgrading object a of CRD "{NAME}", retry upgrading.',
        f'Skip upgrading object b of CRD "{NAME}" which is not found.',
        f'Successfully upgraded 3 objects of CRD "{NAME}".',
    ]


@pytest.mark.parametrize(
    ("puts", "error"),
    [
        ({"a": [409] * 5}, f'error upgrading object a of CRD "{NAME}": request to server failed: 409 for a'),
        ({"b": [403]}, f'error upgrading object b of CRD "{NAME}": request to server failed: 403 for b'),
        ({"status": [409]}, CHANGED.format(NAME)),
        ({"status": [403]}, f'error updating CRD "{NAME}" status.storedVersion: request to server failed: 403 for status'),
    ],
)  # fmt: skip
async def test_a_write_that_is_refused_ends_the_upgrade(puts: dict[str, list[int]], error: str) -> None:
    api = Api(**json.loads(json.dumps(puts)))
    with pytest.raises(Failure) as raised:
        await ran(api)
    assert raised.value.format_message() == error
    assert not any(path.endswith("/status") for path, _ in api.written)
