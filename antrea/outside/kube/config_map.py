"""One ConfigMap by its name, now and as it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.outside.kube.answer import Drop, Listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.kube.client import Kube


class ConfigMap(msgspec.Struct, frozen=True):
    """The part that is read."""

    data: dict[str, str] = {}
    metadata: ObjectMeta = ObjectMeta()


async def contents(kube: Kube, namespace: str, name: str) -> AsyncIterator[dict[str, str]]:
    """Its data, now and whenever it changes; empty while there is no such ConfigMap."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async for change in kube.watch(path, ConfigMap, {"fieldSelector": f"metadata.name={name}"}):
        if isinstance(change, Listed):
            yield change.objects[0].data if change.objects else {}
        else:
            yield {} if isinstance(change, Drop) else change.object.data
