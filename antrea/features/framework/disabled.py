"""Status of objects whose gate is off in the controller: their earlier status is no longer true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.part import Condition
from antrea.apis.meta import ObjectMetadata
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

MANAGER = "antrea-controller"
REASON = "FeatureGateDisabled"


class StoredObject(msgspec.Struct, frozen=True):
    """Fields that are read of an object that nothing acts on."""

    metadata: ObjectMetadata = ObjectMetadata()


class DisabledObject(Fact, frozen=True):
    """An object of a kind whose feature is off; each kind has a class of its own, as each has its own feed."""

    path: str
    """Path of the object in the API."""
    generation: int

    @property
    def key(self) -> str:
        return self.path


def watched(collection: str, fact: type[DisabledObject], *, optional: bool = False) -> Watched:
    """Watch all objects of a collection, which may be missing if it is `optional`."""
    return Watched(collection, StoredObject, fact, _row(collection, fact), optional=optional)


def _row(collection: str, fact: type[DisabledObject]) -> Callable[[StoredObject], DisabledObject]:
    root, _, plural = collection.rpartition("/")

    def row(stored: StoredObject) -> DisabledObject:
        meta = stored.metadata
        space = f"/namespaces/{meta.namespace}" if meta.namespace else ""
        return fact(f"{root}{space}/{plural}/{meta.name}", meta.generation)

    return row


def switched_off(kind: str, gate: str) -> Condition:
    """Make the condition `kind` of such an object."""
    why = f"the feature gate {gate} is off in antrea-controller.conf: nothing acts on this object"
    return Condition(kind, "False", reason=REASON, message=why)
