"""Effects of ExternalNode in the controller: the leader writes the ExternalEntities of its interfaces.

They are created, kept in line and deleted; those of other owners stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.core import ObjectReference
from antrea.apis.crd.external import MACHINE_KIND, ExternalEntity
from antrea.apis.generated_entity import API, ENTITIES, OWNER_API, GeneratedEntity
from antrea.errors import Refused
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.leader_only_sink import LeaderOnlySink
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.apis.core import OwnerReference
    from antrea.engine import Sink
    from antrea.features.framework.controller_part import ControllerContext
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
REASON = "ExternalEntityNotWritten"
COMPONENT = "antrea-controller"


class ExternalEntitySink:
    """Sink of GeneratedEntity."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._wanted: set[str] = set()
        """Keys, for the sweep."""
        self._reported: dict[str, str] = {}
        """Why an object was not written, by key: each reason gives one Event."""

    async def apply(self, put: Sequence[GeneratedEntity], drop: Sequence[GeneratedEntity]) -> None:
        """Raises Refused naming all that were, with the words about the first; Unavailable."""
        self._wanted.difference_update(entry.key for entry in drop)
        self._wanted.update(entry.key for entry in put)
        refused: list[GeneratedEntity] = []
        message = ""
        for entry in put:
            try:
                await self._write(entry)
            except Refused as error:
                refused.append(entry)
                message = message or error.why
                await self._record(entry, error.why)
            else:
                self._reported.pop(entry.key, None)
        # last: an interface that gets another name is never without an ExternalEntity, nor its machine without policies
        for entry in drop:
            await self._delete(entry)
        if refused:
            raise Refused(refused, message)

    async def resync(self, entries: Sequence[GeneratedEntity]) -> None:
        """Apply entries as `apply` does."""
        self._wanted.clear()
        await self.apply(entries, ())

    async def sweep(self, _category: int) -> None:
        """Delete those whose ExternalNode, or its interface, went while no controller ran. Raises Refused, Unavailable."""
        entities, _ = await self._kube.list(f"/apis/{API}/{ENTITIES}", ExternalEntity)
        for entity in entities:
            meta = entity.metadata
            if _owner(entity) is not None and f"{meta.namespace}/{meta.name}" not in self._wanted:
                await self._kube.delete(f"/apis/{API}/namespaces/{meta.namespace}/{ENTITIES}/{meta.name}")
                log.info("Deleted a stale ExternalEntity", namespace=meta.namespace, name=meta.name)

    async def _write(self, entry: GeneratedEntity) -> None:
        """Raises Refused, Unavailable."""
        held = await self._kube.get(entry.path, ExternalEntity)
        if held is not None and (owner := _owner(held)) is None:
            raise Refused(
                [entry],
                f"ExternalEntity {entry.key} exists and was not made for an ExternalNode: delete or rename it",
            )
        if held is not None and owner is not None and owner.uid != entry.uid:
            await self._kube.delete(entry.path)  # of an ExternalNode before this one
            held = None
        if held is None:
            await self._kube.create(entry.collection, _whole(entry))
            log.info("Created ExternalEntity", entity=entry.key)
        elif _values(held) != (entry.labels, entry.endpoints, entry.owner):
            await self._kube.patch(entry.path, _change(entry, held))
            log.info("Updated ExternalEntity", entity=entry.key)

    async def _delete(self, entry: GeneratedEntity) -> None:
        """Raises Refused, Unavailable."""
        held = await self._kube.get(entry.path, ExternalEntity)
        owner = _owner(held) if held is not None else None
        if owner is not None and owner.uid == entry.uid:
            await self._kube.delete(entry.path)
            log.info("Deleted ExternalEntity", entity=entry.key)

    async def _record(self, entry: GeneratedEntity, why: str) -> None:
        if self._reported.get(entry.key) == why:
            return
        self._reported[entry.key] = why
        about = ObjectReference(MACHINE_KIND, entry.owner, entry.namespace, entry.uid, OWNER_API)
        message = f"policies cannot select this machine: {why}"
        await self._kube.create_event(about, REASON, message, warning=True, component=COMPONENT)


def _owner(entity: ExternalEntity) -> OwnerReference | None:
    """The ExternalNode that it was made for."""
    first = entity.metadata.owner_references[:1]
    return next((owner for owner in first if owner.kind == MACHINE_KIND), None)


def _values(held: ExternalEntity) -> tuple[Any, ...]:
    labels = tuple(sorted(held.metadata.labels.items()))
    return (
        labels,
        tuple((endpoint.ip, endpoint.name) for endpoint in held.spec.endpoints),
        held.spec.external_node,
    )


def _spec(entry: GeneratedEntity) -> dict[str, Any]:
    endpoints = [{"ip": ip, **({"name": name} if name else {})} for ip, name in entry.endpoints]
    return {"endpoints": endpoints, "externalNode": entry.owner}


def _whole(entry: GeneratedEntity) -> dict[str, Any]:
    owner = {"apiVersion": OWNER_API, "kind": MACHINE_KIND, "name": entry.owner, "uid": entry.uid}
    return {
        "apiVersion": API,
        "kind": "ExternalEntity",
        "metadata": {
            "name": entry.name,
            "namespace": entry.namespace,
            "labels": dict(entry.labels),
            "ownerReferences": [owner],
        },
        "spec": _spec(entry),
    }


def _change(entry: GeneratedEntity, held: ExternalEntity) -> dict[str, Any]:
    """A merge patch: labels that the ExternalNode lacks go, fields of the spec that are not ours stay."""
    labels = dict.fromkeys(held.metadata.labels) | dict(entry.labels)
    version = held.metadata.resource_version
    return {"metadata": {"labels": labels, "resourceVersion": version}, "spec": _spec(entry)}


class ExternalNodePart(ControllerPart):
    """Part of all ExternalNodes."""

    def __init__(self, controller: ControllerContext) -> None:
        self._entities = LeaderOnlySink(ExternalEntitySink(controller.kube), controller.lead)

    def sinks(self) -> Mapping[type, Sink]:
        return {GeneratedEntity: self._entities}


PART = ExternalNodePart
