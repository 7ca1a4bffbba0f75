"""Tells when all has been heard that the API server held about Pods at some moment.

Watches have no order among each other, and a quiet one does not say how far it is. A list that is asked for now has all that
was written before now, and versions of one kind have an order: once its watch has told the newest of that list, it has told all.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ ("Most Recent" without resourceVersion), KEP-5504
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.core import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from antrea.features.admission import Watched
    from antrea.outside.kube import Kube
    from antrea.outside.kube_feed import KindFeed

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
AT_ONCE = 8
"""Lists that are asked for at the same time."""
FEW = 32
"""Objects too many in a list are no dearer than one more list."""


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Abreast:
    """Of the feeds of what can guard a Pod."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._feeds: list[tuple[Watched, KindFeed[Any]]] = []

    def watch(self, watched: Watched, feed: KindFeed[Any]) -> None:
        """This feed counts, if there can be something that has to be known before a Pod starts."""
        if watched.guards:
            self._feeds.append((watched, feed))

    async def of(self, namespaces: Collection[str]) -> None:
        """Returns when feeds have written all that was there, at this call, about Pods of these Namespaces.

        Waits for ever while a watch is interrupted. Raises Unavailable, Refused.
        """
        room = asyncio.Semaphore(AT_ONCE)

        async def reach(feed: KindFeed[Any], path: str, query: Mapping[str, str]) -> None:
            async with room:
                found, _ = await self._kube.list(path, _Head, query, METADATA)
            await feed.reaches(max((int(one.metadata.resource_version) for one in found), default=0))

        asked = [
            asyncio.ensure_future(reach(feed, path, query))
            for watched, feed in self._feeds
            for path, query in _places(watched, namespaces, feed.size)
        ]
        try:
            await asyncio.gather(*asked)
        finally:
            for task in asked:
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
