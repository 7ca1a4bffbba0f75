"""One AntreaAgentInfo for each Node and ExternalNode: created empty for its agent to fill, deleted with it.

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
NODES, EXTERNAL_NODES = "/api/v1/nodes", "/apis/crd.antrea.io/v1alpha1/externalnodes"
RECONCILE_SECONDS = 600.0


class Named(msgspec.Struct, frozen=True):
    """All that is read of a Node and of an AntreaAgentInfo."""

    metadata: ObjectMeta = ObjectMeta()


class AgentInfos:
    """Follows the Nodes, and ExternalNodes if they are on, and checks every `seconds` whether an object was deleted.

    ExternalNodes of one name in several Namespaces, or with the name of a Node, share one: it has no Namespace.
    """

    def __init__(
        self, kube: Kube, seconds: float = RECONCILE_SECONDS, *, external_nodes: bool = False
    ) -> None:
        self._kube = kube
        self._seconds = seconds
        self._found: dict[str, set[tuple[str, str]]] = {}
        """Namespaces and names, by the collection; of one that is not listed yet nothing is here."""
        self._collections = (NODES, EXTERNAL_NODES) if external_nodes else (NODES,)
        self._held: set[str] | None = None
        """Names of the objects that there are; None: to be listed."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path in self._collections:
                tasks.create_task(self._follow(path), name=f"names of {path}")
            tasks.create_task(self._keep(), name="AntreaAgentInfos")

    async def _follow(self, path: str) -> None:
        async for change in self._kube.watch(path, Named):
            before = self._names()
            if isinstance(change, Listed):
                self._found[path] = {_key(named) for named in change.objects}
            elif isinstance(change, Drop):
                self._found[path].discard(_key(change.object))
            else:
                self._found[path].add(_key(change.object))
            if isinstance(change, Listed) or self._names() != before:
                self._changed.set()

    def _names(self) -> frozenset[str]:
        return frozenset(name for names in self._found.values() for _, name in names)

    async def _keep(self) -> None:
        pause = Backoff(asyncio.sleep, random.uniform)
        # nothing is deleted before the Nodes are known
        while len(self._found) < len(self._collections):
            self._changed.clear()
            await self._changed.wait()
        while True:
            self._changed.clear()
            try:
                await self._align()
            except (Refused, Unavailable) as error:
                log.warning("Failed to bring AntreaAgentInfos in line with the Nodes", err=str(error))
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
            existing, _ = await self._kube.list(PATH, Named)
            self._held = {info.metadata.name for info in existing}
        nodes = self._names()
        for name in sorted(self._held - nodes):
            await self._kube.delete(f"{PATH}/{name}")
            self._held.discard(name)
            log.info("Deleted AntreaAgentInfo", node=name)
        for name in sorted(nodes - self._held):
            head = {"apiVersion": API, "kind": "AntreaAgentInfo", "metadata": {"name": name}}
            await self._kube.create(PATH, {**head, **msgspec.to_builtins(AntreaAgentInfo())})
            self._held.add(name)
            log.info("Created AntreaAgentInfo", node=name)


def _key(named: Named) -> tuple[str, str]:
    return named.metadata.namespace, named.metadata.name
