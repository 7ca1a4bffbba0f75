"""The ExternalEntity that the controller writes for an interface of an ExternalNode."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank

ENTITIES = "externalentities"
API = "crd.antrea.io/v1alpha2"
OWNER_API = "crd.antrea.io/v1alpha1"


class GeneratedEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entry: the object exists with these values; withdrawing it deletes the object."""

    namespace: str
    name: str
    owner: str
    """Name of the ExternalNode."""
    uid: str
    """UID of the ExternalNode."""
    labels: tuple[tuple[str, str], ...] = ()
    endpoints: tuple[tuple[str, str], ...] = ()
    """Address, and name of the interface."""

    rank: ClassVar[int] = Rank.REPORT
    """A refusal concerns this object alone."""
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def collection(self) -> str:
        """Path of the collection that it is in."""
        return f"/apis/{API}/namespaces/{self.namespace}/{ENTITIES}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"
