"""Writes annotations of Pods, only those that are ours, by a patch of their keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.annotation import PodAnnotation
    from antrea.outside.kube.client import Kube

MAX_CONCURRENT = 8
"""Pods that are written at the same time."""


class PodAnnotationSink:
    """Sink of PodAnnotation; a withdrawn entry is forgotten. Patches the status subresource, as upstream.

    The patch names the UID: kube-apiserver refuses it for a Pod that was made anew under the name.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, put: Sequence[PodAnnotation], _drop: Sequence[PodAnnotation]) -> None:
        """Raises Refused naming all that were, with the server's words about the first; Unavailable."""
        room = asyncio.Semaphore(MAX_CONCURRENT)

        async def write(entry: PodAnnotation) -> str:
            async with room:
                try:
                    await self._write(entry)
                except Refused as error:
                    return error.why
                return ""

        answers = await asyncio.gather(*map(write, put), return_exceptions=True)
        for broken in answers:
            if isinstance(broken, BaseException):
                raise broken
        refused = [(entry, str(why)) for entry, why in zip(put, answers, strict=True) if why]
        if refused:
            raise Refused([entry for entry, _ in refused], refused[0][1])

    async def resync(self, entries: Sequence[PodAnnotation]) -> None:
        """Apply entries as `apply` does."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: an annotation that has to go is an entry with an empty value."""

    async def _write(self, entry: PodAnnotation) -> None:
        """Raises Refused, Unavailable."""
        meta = {"uid": entry.uid, "annotations": {entry.name: entry.value or None}}
        path = f"/api/v1/namespaces/{entry.namespace}/pods/{entry.pod}/status"
        await self._kube.patch(path, {"metadata": meta})
