"""UIDs of objects by their names, also of one that is gone for a while: its last records come after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.apis.core import OnlyMetadata
from antrea.outside.kube.answer import Drop, Listed

if TYPE_CHECKING:
    from antrea.apis.core import ObjectMeta
    from antrea.apis.flow import FlowRecord
    from antrea.outside.kube.client import Kube

KEPT_SECONDS: Final = 300.0
_NODES: Final = [(f"{side}_node_name", f"{side}_node_uid") for side in ("source", "destination", "egress")]


class ObjectUids:
    """Follows a collection, by the metadata of its objects alone."""

    def __init__(self, path: str) -> None:
        """`path` such as /api/v1/nodes."""
        self._path = path
        self._uids: dict[str, str] = {}
        self.listed = asyncio.Event()
        """Set once all objects are known."""

    def get(self, name: str) -> str:
        """Return the UID of the object with this name, namespace/name where there are Namespaces; empty if it does not exist."""
        return self._uids.get(name, "")

    async def run(self, kube: Kube) -> None:
        """Run until cancelled."""
        async for change in kube.watch(self._path, OnlyMetadata, metadata_only=True):
            if isinstance(change, Listed):
                before = self._uids
                self._uids = {_key(changed.metadata): changed.metadata.uid for changed in change.objects}
                for name in before.keys() - self._uids.keys():
                    self._uids[name] = before[name]
                    self._forget_later(name)
                self.listed.set()
            elif isinstance(change, Drop):
                self._forget_later(_key(change.object.metadata))
            else:
                self._uids[_key(change.object.metadata)] = change.object.metadata.uid

    def _forget_later(self, name: str) -> None:
        gone = self._uids.get(name)

        def forget() -> None:
            # another object may have the name by then
            if self._uids.get(name) == gone:
                self._uids.pop(name, None)

        asyncio.get_running_loop().call_later(KEPT_SECONDS, forget)


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def add_uids(record: FlowRecord, nodes: ObjectUids, services: ObjectUids) -> None:
    """Fill in those that the agent did not have: of the other end's Node, of the Egress's, of all by IPFIX.

    parity: pkg/flowaggregator/flowaggregator.go fillServiceUID, fillEgressNodeUID
    """
    for name, uid in _NODES:
        if (node := getattr(record, name)) and not getattr(record, uid):
            setattr(record, uid, nodes.get(node))
    if (port := record.destination_service_port_name) and not record.destination_service_uid:
        record.destination_service_uid = services.get(port.partition(":")[0])
