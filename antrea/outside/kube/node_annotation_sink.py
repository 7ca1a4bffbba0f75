"""Writes annotations of Nodes, only those that are ours, by a patch of their keys."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.annotation import NodeAnnotation
    from antrea.outside.kube.client import Kube


class AnnotationSink:
    """Sink of NodeAnnotation. Patches the status subresource, which kubelet's own writes do not touch."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, put: Sequence[NodeAnnotation], drop: Sequence[NodeAnnotation]) -> None:
        """Raises Refused with the server's words."""
        nodes: dict[str, dict[str, str | None]] = defaultdict(dict)
        for entry in drop:
            nodes[entry.node][entry.name] = None
        for entry in put:
            nodes[entry.node][entry.name] = entry.value or None
        for node, values in nodes.items():
            try:
                await self._kube.patch(f"/api/v1/nodes/{node}/status", {"metadata": {"annotations": values}})
            except Refused as error:
                raise Refused(
                    [entry for entry in put if entry.node == node] or put or drop, error.why
                ) from error

    async def resync(self, entries: Sequence[NodeAnnotation]) -> None:
        """Writing what already stands changes nothing."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: an annotation that has to go is an entry with an empty value."""
