"""An API server for a whole agent, which lists the Pods of the Node whatever selects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certificate_world import ApiServer

if TYPE_CHECKING:
    from aiohttp import web


class PodsApi(ApiServer):
    """Its Pods are in one collection, /api/v1/pods."""

    def _list(self, path: str, request: web.Request) -> web.Response:
        return super()._list(path, request.clone(rel_url=request.rel_url.update_query(fieldSelector="")))
