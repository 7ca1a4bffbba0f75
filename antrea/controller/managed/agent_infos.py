"""One AntreaAgentInfo for each Node and ExternalNode: created empty for its agent to fill, deleted with it.

parity: pkg/monitor/controller.go
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import core
from antrea.apis.core import ObjectMeta
from antrea.apis.crd.external import MACHINES, ExternalNode
from antrea.apis.crd.info import AntreaAgentInfo
from antrea.errors import Refused, Unavailable
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.backoff import Backoff
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.features.framework.controller_part import ControllerContext

log = klog.logger(__name__)

API = "crd.antrea.io/v1beta1"
PATH = f"/apis/{API}/antreaagentinfos"
NODES = "/api/v1/nodes"
RECONCILE_SECONDS = 600.0


class NodeWithInfo(Fact, frozen=True):
    """A Node, which has an AntreaAgentInfo of its name."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class MachineWithInfo(Fact, frozen=True):
    """An ExternalNode, which has an AntreaAgentInfo of its name."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def node_row(node: core.Node) -> NodeWithInfo:
    """Make the row of a Node."""
    return NodeWithInfo(node.metadata.name)


def machine_row(machine: ExternalNode) -> MachineWithInfo:
    """Make the row of an ExternalNode."""
    return MachineWithInfo(machine.metadata.namespace, machine.metadata.name)


class Named(msgspec.Struct, frozen=True):
    """All that is read of an object in a list."""

    metadata: ObjectMeta = ObjectMeta()


class AgentInfos(ControllerPart):
    """Follows the Nodes, and ExternalNodes if they are on, and checks every `seconds` whether an object was deleted.

    ExternalNodes of one name in several Namespaces, or with the name of a Node, share one: it has no Namespace.
    """

    def __init__(self, controller: ControllerContext, seconds: float = RECONCILE_SECONDS) -> None:
        self._kube, self._facts = controller.kube, controller.facts
        self._seconds = seconds
        watched = [Watched(NODES, core.Node, NodeWithInfo, node_row)]
        if "ExternalNode" in controller.gates:
            watched.append(Watched(MACHINES, ExternalNode, MachineWithInfo, machine_row))
        self._watched = tuple(watched)
        self._held: set[str] | None = None
        """Names of the objects that exist; None: to be listed."""

    def watched(self) -> tuple[Watched, ...]:
        return self._watched

    def _names(self) -> set[str]:
        nodes = {row.name for row in self._facts.all(NodeWithInfo)}
        return nodes | {row.name for row in self._facts.all(MachineWithInfo)}

    async def run_while_leading(self) -> None:
        self._held = None
        pause = Backoff(asyncio.sleep, random.uniform)
        kinds = [watched.fact for watched in self._watched]
        with self._facts.watch(*kinds) as changed:
            # nothing is deleted before the Nodes are known
            while not all(self._facts.feeds.has(kind) for kind in kinds):
                changed.clear()
                await changed.wait()
            while True:
                changed.clear()
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
                        await changed.wait()
                except TimeoutError:
                    self._held = None

    async def _align(self) -> None:
        """Raises Refused, Unavailable."""
        if self._held is None:
            existing, _ = await self._kube.list(PATH, Named)
            self._held = {info.metadata.name for info in existing}
        nodes = self._names()
        for name in sorted(self._held - nodes):
            if await self._exists(name):
                # this replica's watch lags behind the one of the previous leader, which created the object
                continue
            await self._kube.delete(f"{PATH}/{name}")
            self._held.discard(name)
            log.info("Deleted AntreaAgentInfo", node=name)
        for name in sorted(nodes - self._held):
            head = {"apiVersion": API, "kind": "AntreaAgentInfo", "metadata": {"name": name}}
            await self._kube.create(PATH, {**head, **msgspec.to_builtins(AntreaAgentInfo())})
            self._held.add(name)
            log.info("Created AntreaAgentInfo", node=name)

    async def _exists(self, name: str) -> bool:
        """Whether the API server has a Node or an ExternalNode of this name. Raises Refused, Unavailable."""
        query = {"fieldSelector": f"metadata.name={name}"}
        listed = [await self._kube.list(watched.path, Named, query) for watched in self._watched]
        return any(objects for objects, _ in listed)
