"""/endpoint: the policies that apply to a Pod, and the rules that have it as a peer, for `antctl query endpoint`.

No policy is computed yet, so that none applies to any Pod: the answer says so of every Pod that there is.
parity: pkg/apiserver/handlers/endpoint, pkg/apiserver/apis
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from aiohttp import web

from antrea.apis.core import ObjectMeta
from antrea.errors import Unavailable
from antrea.outside.serving import json_answer

if TYPE_CHECKING:
    from antrea.outside.kube import Kube
    from antrea.outside.serving import Handler


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Pod; what is empty is left out."""

    namespace: str = ""
    name: str = ""


class EndpointAnswer(msgspec.Struct, frozen=True):
    """A Pod's name means one Pod at most."""

    endpoints: tuple[Endpoint, ...]


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def endpoint(kube: Kube | None) -> Handler:
    """A handler of GET with the queries `pod` and `namespace`. It raises Unavailable, Refused."""

    async def handler(request: web.Request) -> web.StreamResponse:
        pod, namespace = (request.query.get(key, "") for key in ("pod", "namespace"))
        if not pod:
            return web.Response(status=400, text="pod must be provided\n")
        if kube is None:
            raise Unavailable("there is no API server that knows the Pods")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
        if not namespace or await kube.get(path, _Pod) is None:
            return web.Response(status=404, text="could not find any endpoints matching your selection\n")
        return json_answer(EndpointAnswer((Endpoint(namespace, pod),)))

    return handler
