"""Writes `spec.podCIDRs` of Nodes that have none, and reports CIDRs that are missing, shared or of another allocator.

The API server refuses to change CIDRs that a Node has, so that of two allocators the first one to write wins.
parity: third_party/ipam/nodeipam/ipam/range_allocator.go
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from antrea.apis.core import Node, ObjectReference
from antrea.errors import Refused
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
COMPONENT: Final = "antrea-controller"
NODES: Final = "/api/v1/nodes"
NOT_AVAILABLE, FAILED = "CIDRNotAvailable", "CIDRAssignmentFailed"
SHARED, SECOND_ALLOCATOR = "PodCIDRShared", "SecondPodCIDRAllocator"
MAX_WRITES: Final = 16
"""Nodes that are written at once."""


class ClaimingNode(Protocol):
    """The fields of a Node that the sink reads."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def cidrs(self) -> tuple[str, ...]: ...


class Claim(Protocol):
    """Entry of the sink: a Node, which has Pod CIDRs or is to get some."""

    @property
    def node(self) -> ClaimingNode: ...


class SharedCidr(Protocol):
    """A CIDR of a Node that others have, too."""

    cidr: str
    others: tuple[str, ...]


class Allocator(Protocol):
    """CIDRs of all Nodes."""

    def hold(self, node: str, cidrs: Sequence[str]) -> Sequence[Any]:
        """Note those that a Node has; return those that are not its alone."""

    def free(self, node: str) -> bool:
        """Free those of a Node; return whether it had any."""

    def allocate(self, node: str) -> tuple[tuple[str, ...], str]:
        """Take some for a Node; return none and the reason if there are none."""


class ManagedFields(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of an object that one program wrote."""

    manager: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class ManagedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of `ManagedNode`."""

    managed_fields: tuple[ManagedFields, ...] = ()


class ManagedNode(msgspec.Struct, frozen=True):
    """A Node, as far as it names who wrote what."""

    metadata: ManagedMetadata = ManagedMetadata()


class PodCidrSink:
    """Sink of claims. All Nodes are listed before the first one, so that no CIDR is given twice."""

    def __init__(self, kube: Kube, empty: Callable[[], Allocator]) -> None:
        """`empty` makes an allocator in which no Node has any CIDR."""
        self._kube, self._empty = kube, empty
        self._allocator: Allocator | None = None
        self._settled: set[str] = set()
        """Nodes whose CIDRs are known and of no other allocator, or reported."""
        self._given: dict[str, tuple[str, tuple[str, ...]]] = {}
        """UID and CIDRs by the name of a Node, as written by this sink."""
        self._waiting: dict[str, Claim] = {}
        """Claims of Nodes for which there is no CIDR."""
        self._reported: dict[str, set[str]] = {}
        """Messages of Events by the name of their Node."""

    async def apply(self, put: Sequence[Claim], drop: Sequence[Claim]) -> None:
        """Raises Refused naming the claims that the API server refused; Unavailable."""
        allocator = self._allocator or await self._list()
        freed = [self._forget(allocator, entry.node.name) for entry in drop]
        without = []
        for entry in put:
            if entry.node.cidrs:
                freed.append(entry.node.name in self._waiting)
                await self._settle(allocator, entry.node, entry.node.cidrs)
            else:
                without.append(entry)
        if any(freed):
            named = {entry.node.name for entry in without}
            without += [entry for name, entry in self._waiting.items() if name not in named]
        await self._assign_all(allocator, without)

    async def resync(self, entries: Sequence[Claim]) -> None:
        """Begin anew: another replica may have led meanwhile. Raises what `apply` raises."""
        self._allocator = None
        await self.apply(entries, ())

    async def sweep(self, _category: int) -> None:
        """Nothing: Nodes keep what they have."""

    async def _list(self) -> Allocator:
        """Make an allocator with the CIDRs of all Nodes. Raises Unavailable, Refused."""
        allocator = self._empty()
        nodes, _ = await self._kube.list(NODES, Node)
        self._given.clear()
        self._waiting.clear()
        self._settled = {node.metadata.name for node in nodes if node.spec.pod_cidrs}
        for node in nodes:
            allocator.hold(node.metadata.name, node.spec.pod_cidrs)
        self._allocator = allocator
        return allocator

    def _forget(self, allocator: Allocator, name: str) -> bool:
        """Free the CIDRs of a Node that is gone; return whether there were any."""
        self._given.pop(name, None)
        self._waiting.pop(name, None)
        self._reported.pop(name, None)
        self._settled.discard(name)
        return allocator.free(name)

    async def _assign_all(self, allocator: Allocator, claims: Sequence[Claim]) -> None:
        slots, refused = asyncio.Semaphore(MAX_WRITES), list[tuple[Claim, str]]()

        async def assign(entry: Claim) -> None:
            async with slots:
                try:
                    await self._assign(allocator, entry)
                except Refused as error:
                    refused.append((entry, error.why))

        await asyncio.gather(*map(assign, claims))
        if refused:
            raise Refused([entry for entry, _ in refused], refused[0][1])

    async def _assign(self, allocator: Allocator, entry: Claim) -> None:
        """Raises Refused if the API server refuses the CIDRs, Unavailable."""
        node = entry.node
        uid, cidrs = self._given.get(node.name, ("", ()))
        if uid != node.uid:
            cidrs, lacks = allocator.allocate(node.name)
            if not cidrs:
                self._waiting[node.name] = entry
                text = f"Node {node.name} status is now: {NOT_AVAILABLE}: {lacks}"
                await self._report(node, NOT_AVAILABLE, text)
                return
            self._given[node.name] = (node.uid, cidrs)
        self._waiting.pop(node.name, None)
        body = {"metadata": {"uid": node.uid}, "spec": {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}}
        try:
            await self._kube.patch(f"{NODES}/{node.name}", body)
        except Refused as error:
            await self._refused(allocator, entry, error.why)
        else:
            self._settled.add(node.name)
            log.info("Assigned Pod CIDRs to a Node", node=node.name, cidrs=",".join(cidrs))

    async def _refused(self, allocator: Allocator, entry: Claim, why: str) -> None:
        """The Node is gone, is another one of that name, or has CIDRs of another allocator. Raises Refused otherwise."""
        node = entry.node
        held = await self._kube.get(f"{NODES}/{node.name}", Node)
        if held is None or held.metadata.uid != node.uid:
            self._forget(allocator, node.name)
            return
        if held.spec.pod_cidrs:
            await self._settle(allocator, node, held.spec.pod_cidrs)
            return
        self._given.pop(node.name, None)
        allocator.free(node.name)
        await self._report(node, FAILED, f"Node {node.name} status is now: {FAILED}: {why}")
        raise Refused([entry], why)

    async def _settle(self, allocator: Allocator, node: ClaimingNode, cidrs: tuple[str, ...]) -> None:
        """Note CIDRs that a Node has, and report those that this sink did not give it, or that others have. Raises Unavailable, Refused."""
        _, given = self._given.get(node.name, ("", cidrs if node.name in self._settled else ()))
        self._waiting.pop(node.name, None)
        self._settled.add(node.name)
        for shared in allocator.hold(node.name, cidrs):
            text = (
                f"Pod CIDR {shared.cidr} of Node {node.name} is also that of {', '.join(shared.others)}: "
                "drain the newer Node, delete its object and restart its kubelet"
            )
            await self._report(node, SHARED, text)
        if given != cidrs:
            self._given[node.name] = (node.uid, cidrs)
            writer = await self._writer(node.name)
            text = (
                f"Node {node.name} has Pod CIDRs {', '.join(cidrs)} of another allocator{writer}, while "
                "nodeIPAM.enableNodeIPAM is true in antrea-controller.conf: two allocators may give one CIDR to two Nodes; "
                "start kube-controller-manager with --allocate-node-cidrs=false"
            )
            await self._report(node, SECOND_ALLOCATOR, text)

    async def _writer(self, name: str) -> str:
        """Name the program that wrote the CIDRs of a Node; empty if that is not recorded."""
        node = await self._kube.get(f"{NODES}/{name}", ManagedNode)
        for fields in node.metadata.managed_fields if node else ():
            if {"f:podCIDR", "f:podCIDRs"} & set(fields.fields.get("f:spec", ())):
                return f" ({fields.manager})"
        return ""

    async def _report(self, node: ClaimingNode, reason: str, message: str) -> None:
        """Create the Event, once for each message. Raises Unavailable, Refused."""
        reported = self._reported.setdefault(node.name, set())
        if message in reported:
            return
        about = ObjectReference("Node", node.name, "", node.uid, "v1")
        await self._kube.create_event(about, reason, message, warning=True, component=COMPONENT)
        reported.add(message)
        log.warning("Pod CIDRs of a Node need attention", node=node.name, reason=reason, message=message)
