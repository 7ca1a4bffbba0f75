"""One AntreaAgentInfo for each Node: created empty for its agent to fill, deleted with the Node.

parity: pkg/monitor/controller.go
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.apis.crd.info import AntreaAgentInfo
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.answer import Drop, Listed
from antrea.outside.kube.backoff import Backoff
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

API = "crd.antrea.io/v1beta1"
PATH = f"/apis/{API}/antreaagentinfos"
RECONCILE_SECONDS = 600.0


class Named(msgspec.Struct, frozen=True):
    """All that is read of a Node and of an AntreaAgentInfo."""

    metadata: ObjectMeta = ObjectMeta()


class AgentInfos:
    """Follows the Nodes, and checks every `seconds` whether an object was deleted."""

    def __init__(self, kube: Kube, seconds: float = RECONCILE_SECONDS) -> None:
        self._kube = kube
        self._seconds = seconds
        self._nodes: set[str] = set()
        self._held: set[str] | None = None
        """Names of the objects that there are; None: to be listed."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="names of Nodes")
            tasks.create_task(self._keep(), name="AntreaAgentInfos")

    async def _follow(self) -> None:
        async for change in self._kube.watch("/api/v1/nodes", Named):
            before = set(self._nodes)
            if isinstance(change, Listed):
                self._nodes = {node.metadata.name for node in change.objects}
            elif isinstance(change, Drop):
                self._nodes.discard(change.object.metadata.name)
            else:
                self._nodes.add(change.object.metadata.name)
            if isinstance(change, Listed) or self._nodes != before:
                self._changed.set()

    async def _keep(self) -> None:
        pause = Backoff(asyncio.sleep, random.uniform)
        # nothing is deleted before the Nodes are known
        await self._changed.wait()
        while True:
            self._changed.clear()
            try:
                await self._align()
            except (Refused, Unavailable) as why:
                log.warning("Failed to bring AntreaAgentInfos in line with the Nodes", err=str(why))
                self._held = None
                await pause.wait()
                continue
            pause.reset()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._changed.wait()
            except TimeoutError:
                self._held = None

    async def _align(self) -> None:
        """Raises Refused, Unavailable."""
        if self._held is None:
            found, _ = await self._kube.list(PATH, Named)
            self._held = {info.metadata.name for info in found}
        for name in sorted(self._held - self._nodes):
            await self._kube.delete(f"{PATH}/{name}")
            self._held.discard(name)
            log.info("Deleted AntreaAgentInfo", node=name)
        for name in sorted(self._nodes - self._held):
            head = {"apiVersion": API, "kind": "AntreaAgentInfo", "metadata": {"name": name}}
            await self._kube.create(PATH, {**head, **msgspec.to_builtins(AntreaAgentInfo())})
            self._held.add(name)
            log.info("Created AntreaAgentInfo", node=name)
