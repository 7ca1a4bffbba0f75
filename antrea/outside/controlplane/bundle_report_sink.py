"""Posts to antrea-controller what became of SupportBundleCollections on this Node.

parity: pkg/agent/supportbundlecollection/support_bundle_controller.go updateSupportBundleCollectionStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import GROUP, VERSION
from antrea.apis.crd.external import MACHINE_KIND
from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from antrea.outside.controlplane.report_sink import ReportClient


def _node_fields(node: str) -> dict[str, str]:
    """An ExternalNode has its Namespace before its name."""
    namespace, _, name = node.rpartition("/")
    if namespace:
        return {"nodeName": name, "nodeNamespace": namespace, "nodeType": MACHINE_KIND}
    return {"nodeName": name, "nodeType": "Node"}


class BundleReportSink:
    """Sink of BundleReport. The controller forgets when it starts: replay it then."""

    def __init__(self, connection: ReportClient) -> None:
        self._connection = connection

    async def apply(self, put: Sequence[Any], _drop: Sequence[Any]) -> None:
        """Raises Refused with the controller's words, Unavailable."""
        for entry in put:
            controller = self._connection.controller
            if controller is None:
                raise Unavailable("no connection to antrea-controller")
            body = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "SupportBundleCollectionStatus",
                "metadata": {"name": entry.name, "uid": entry.uid},
                "nodes": [{**_node_fields(entry.node), "completed": not entry.error, "error": entry.error}],
            }
            try:
                await controller.create(
                    f"/apis/{GROUP}/{VERSION}/supportbundlecollections/{entry.name}/status", body
                )
            except Refused as error:
                raise Refused([entry], error.why) from error

    async def resync(self, entries: Sequence[Any]) -> None:
        """Send everything again; without a connection this does nothing, since the next connection replays."""
        if self._connection.controller is not None:
            await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: the controller forgets collections that are over."""
