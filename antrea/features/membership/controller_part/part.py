"""Effects of membership in the controller: the key by which agents seal their gossip is kept in a Secret."""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.apis.memberlist import KEYS, SECRET, format_keys, parse_keys
from antrea.decoding import decode_base64, decode_text
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.answer import Listed, Put
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.features.framework.controller_part import ControllerContext
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

RETRY_SECONDS = 5.0
KEY_BYTES = 32


# parity: pkg/util/memberlistkeys/secret.go
class Secret(CoreStruct, frozen=True):
    """Secret with base64 values."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class GossipKeys:
    """Gossip keys of one controller; what it read from the Secret it restores when that is lost."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._known = ""
        """Text of the Secret."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._follow()
            except (Refused, Unavailable) as error:
                # also when somebody else was faster: their key counts
                log.warning("Failed to save the gossip key in its Secret", secret=SECRET, err=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        query = {"fieldSelector": f"metadata.name={SECRET}"}
        async for change in self._kube.watch(self._secrets, Secret, query):
            if isinstance(change, Listed):
                await self._ensure(next(iter(change.objects), None))
            else:
                await self._ensure(change.object if isinstance(change, Put) else None)

    async def _ensure(self, stored: Secret | None) -> None:
        """Create or restore the Secret. Raises Refused, Unavailable."""
        if stored is not None and stored.data.get(KEYS):
            try:
                text = decode_text(decode_base64(stored.data[KEYS], KEYS), KEYS, "ascii")
                parse_keys(text)
            except (ValueError, Invalid) as error:
                # a slip of the pen must not give a working cluster another key
                log.error(
                    "The Secret holds no usable gossip keys; correct or delete it",
                    secret=SECRET,
                    err=str(error),
                )
                return
            self._known = text
            return
        restored = bool(self._known)
        self._known = self._known or format_keys([secrets.token_bytes(KEY_BYTES)])
        data = {KEYS: base64.b64encode(self._known.encode()).decode()}
        if stored is None:
            meta = {"name": SECRET, "labels": {"app": "antrea"}}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data}
            await self._kube.create_named(f"{self._secrets}/{SECRET}", body)
        else:
            version = {"resourceVersion": stored.metadata.resource_version}
            await self._kube.patch(f"{self._secrets}/{SECRET}", {"metadata": version, "data": data})
        log.info("Restored the gossip key" if restored else "Created a gossip key", secret=SECRET)


class MembershipPart(ControllerPart):
    """Part of all agents."""

    def __init__(self, controller: ControllerContext) -> None:
        self._keys = GossipKeys(controller.kube, controller.namespace)

    async def run_while_leading(self) -> None:
        await self._keys.run()


PART = MembershipPart
