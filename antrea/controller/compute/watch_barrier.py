"""Wait until our watches have caught up with everything kube-apiserver held about the given Pods at the time of the call.

Watches are not ordered among each other, and a quiet one does not show how far it is. A list made now contains all that was
written before, and versions of one kind are ordered: a watch that has delivered the newest object of that list has delivered all.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ ("Most Recent" without resourceVersion), KEP-5504
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.apis.core import OnlyMetadata
from antrea.outside.kube.answer import NoCollection
from antrea.outside.kube.client import METADATA_LIST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from antrea.features.framework.admission import Watched
    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.resource_feed import ResourceFeed

CONCURRENT_LISTS = 8
"""Concurrent lists."""
FEW = 32
"""Superfluous objects in a list that cost no more than another list."""


class WatchBarrier:
    """Over the feeds of all kinds that may restrict a Pod."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._feeds: list[tuple[Watched, ResourceFeed[Any]]] = []

    def watch(self, watched: Watched, feed: ResourceFeed[Any]) -> None:
        """Add this feed, if its objects may have to be received before a Pod starts."""
        if watched.guards:
            self._feeds.append((watched, feed))

    async def wait(self, namespaces: Collection[str]) -> None:
        """Wait until feeds have written everything that existed, at this call, for Pods of these Namespaces.

        Waits for ever while a watch is interrupted. Raises Unavailable, Refused.
        """
        room = asyncio.Semaphore(CONCURRENT_LISTS)

        async def reach(
            watched: Watched, feed: ResourceFeed[Any], path: str, query: Mapping[str, str]
        ) -> None:
            async with room:
                try:
                    objects, _ = await self._kube.list(path, OnlyMetadata, query, METADATA_LIST)
                except NoCollection:
                    if watched.optional:
                        return
                    raise
            await feed.reaches(max((int(each.metadata.resource_version) for each in objects), default=0))

        requested = [
            asyncio.ensure_future(reach(watched, feed, path, query))
            for watched, feed in self._feeds
            for path, query in _places(watched, namespaces, feed.size)
        ]
        try:
            await asyncio.gather(*requested)
        finally:
            for task in requested:
                task.cancel()


def _places(
    watched: Watched, namespaces: Collection[str], size: int
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Path and query of each list; `size` is the number of objects there are."""
    if watched.guards == "all" or size <= FEW * len(namespaces):
        yield watched.path, {}
        return
    above, _, plural = watched.path.rpartition("/")
    for name in namespaces:
        if watched.guards == "its own":
            yield f"{above}/namespaces/{name}/{plural}", {}
        else:
            yield watched.path, {"fieldSelector": f"metadata.name={name}"}
