"""Where an agent finds antrea-controller, by what kube-apiserver says of its Service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from loopback import client_of

from antrea.errors import Unavailable
from antrea.outside.controlplane.client import controller_access

if TYPE_CHECKING:
    from antrea.outside.kube.access import Access

NOBODY: dict[str, Any] = {
    "metadata": {"name": "antrea-6"},
    "addressType": "IPv6",
    "endpoints": None,
    "ports": None,
}
"""As the API server shows the slice of a Service, or of a family, without Pods."""
POD: dict[str, Any] = {
    "metadata": {"name": "antrea-4"},
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["192.0.2.8"], "conditions": {"ready": False}},
        {"addresses": ["192.0.2.7"], "conditions": {"ready": True}},
    ],
    "ports": [{"name": "", "port": 10349}],
}


async def access(*slices: dict[str, Any]) -> Access:
    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/endpointslices"):
            return web.json_response({"metadata": {}, "items": list(slices)})
        return web.json_response({"data": {"ca.crt": "PEM"}})

    async with client_of(answer) as kube:
        return await controller_access(kube, "kube-system", lambda many: many - 1)


async def test_a_slice_of_a_family_without_pods_does_not_hide_those_of_the_other() -> None:
    found = await access(NOBODY, POD)
    assert (found.url, found.server_name) == ("https://192.0.2.7:10349", "antrea.kube-system.svc")


async def test_without_pods_the_sentence_says_so() -> None:
    with pytest.raises(Unavailable, match="Service kube-system/antrea has no ready endpoint"):
        await access(NOBODY)
