"""Creation and removal of Pod interfaces: address, veth pair and OVS port, in that order, and removal in reverse.

The address is reserved first and released last, and the OVS port names the container; so after a kill at any step, DEL of that
container finds all that is left, and so does `reconcile` at the next start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.agent.cni.context import CniContext, answering
from antrea.agent.cni.request import Call, Failed
from antrea.agent.cni.response import Attached
from antrea.apis.cni import Code
from antrea.errors import Refused, Unavailable
from antrea.host.ovs_port import PodPort
from antrea.outside.log import klog
from antrea.outside.neighbour.announcement import Announcer
from antrea.outside.netlink import pod_veth
from antrea.outside.netlink.netns import host_interface_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Set

    from antrea.agent.cni.pod_port import StandingPort
    from antrea.facts.node import ThisNode
    from antrea.outside.disk.ipam import Allocation

log = klog.logger(__name__)

SETTLE_SECONDS = 20.0


class PodInterfaces:
    """Interfaces of this Node's Pods. The caller serializes the calls of one container."""

    def __init__(self, context: CniContext) -> None:
        self._on = context
        self._announcer = Announcer(context.netns)
        self._added: set[str] = set()
        """Containers of which this process has answered ADD: DEL or GC ends them, not the comparison of lists."""

    async def add(self, call: Call, node: ThisNode) -> Attached:
        """Connect a Pod, or confirm that it is connected. Raises Failed, after removing what this call created."""
        if not self._on.here(call.netns).exists():
            raise Failed(Code.UNKNOWN_CONTAINER, f"Network namespace {call.netns} does not exist")
        with answering(Code.IPAM_FAILURE, unavailable=Code.IPAM_FAILURE):
            allocation = await self._on.ipam.allocate(call.container_id, call.if_name)
        if standing := await self._connected(call, allocation):
            with answering(Code.CONFIG_INTERFACE_FAILURE):
                await self._settle(call, standing.name, standing.pod)
            self._added.add(call.container_id)
            return _attached(standing.name, standing.pod.mac, allocation)
        try:
            with answering(Code.CONFIG_INTERFACE_FAILURE):
                return await self._connect(call, node, allocation)
        except Exception:
            await self._roll_back(call)
            raise

    async def delete(self, call: Call) -> None:
        """Remove what is left of a Pod interface, which may be nothing. Raises Failed."""
        ports = {port.name for port in self._ports_of(call)}
        if call.pod_name:
            ports.add(host_interface_name(call.pod_name, call.container_id, call.if_name))
        await self._remove(call.container_id, call.if_name, ports)

    async def keep_only(self, valid: Set[tuple[str, str]], busy: Callable[[], Set[str]]) -> None:
        """Remove all interfaces but those of `valid` (container id, interface) and of `busy` containers. Raises Failed."""
        skipped = busy()
        gone = [
            port
            for port in self._on.ports.standing()
            if (port.pod.container_id, port.pod.if_dev) not in valid and port.pod.container_id not in skipped
        ]
        await self._sweep(gone, {container for container, _ in valid} | skipped, busy)

    async def reconcile(self, pods: Collection[str], busy: Callable[[], Set[str]]) -> None:
        """Remove interfaces and addresses of Pods that were deleted while the agent was down; keep those with a Pod and a device.

        `pods` are all Pods of this Node that have a network of their own ("namespace/name"), from a complete list, which
        may be older than the last ADD. Raises Failed.
        """
        standing, skipped = self._on.ports.standing(), busy()
        gone = [
            port
            for port in standing
            if port.pod.container_id not in self._added | skipped
            and (port.broken or f"{port.pod.pod_namespace}/{port.pod.pod_name}" not in pods)
        ]
        await self._sweep(gone, skipped, busy)

    async def close(self) -> None:
        """End the announcements in progress."""
        await self._announcer.close()

    async def _connected(self, call: Call, allocation: Allocation) -> StandingPort | None:
        """Find the port of an earlier ADD of the same interface, if all of it is still in place."""
        for port in self._ports_of(call):
            veth = self._on.veth(call, port.name, allocation, mac=port.pod.mac, mtu=0)
            if port.broken or port.pod.ips != allocation.ips:
                continue
            try:
                await self._on.netns.check_pod_veth(veth)
            except (Refused, Unavailable):
                continue
            return port
        return None

    async def _connect(self, call: Call, node: ThisNode, allocation: Allocation) -> Attached:
        name = host_interface_name(call.pod_name, call.container_id, call.if_name)
        if stale := tuple(port.name for port in self._ports_of(call)):
            await self._on.ports.drop(stale)
            await self._on.ports.acted()
        veth = self._on.veth(call, name, allocation, mac=None, mtu=call.config.mtu or node.mtu)
        mac, _ = await self._on.netns.create_pod_veth(veth)
        pod = PodPort(
            container_id=call.container_id,
            pod_namespace=call.pod_namespace,
            pod_name=call.pod_name,
            mac=mac,
            ips=allocation.ips,
            if_dev=call.if_name,
            netns=veth.netns_path,
        )
        await self._settle(call, name, pod)
        self._added.add(call.container_id)
        self._announcer.announce(pod)
        return _attached(name, mac, allocation)

    async def _settle(self, call: Call, name: str, pod: PodPort) -> None:
        fact = await self._on.ports.add(name, pod)
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._on.settle(fact)
        except TimeoutError:
            raise Unavailable(f"flows of {name} are not in place after {SETTLE_SECONDS:g} s") from None
        await self._on.covered(call.pod, call.pod_uid)

    async def _roll_back(self, call: Call) -> None:
        """Remove what a failed ADD created; the runtime's DEL or the next start finds the rest.

        The runtime may retry immediately, for an interface of the same name.
        """
        try:
            await self.delete(call)
            with answering(Code.CONFIG_INTERFACE_FAILURE):
                await self._on.ports.acted()
        except Failed as error:
            log.error("Failed to roll back", error=error, container=call.container_id)

    async def _sweep(
        self, gone: Iterable[StandingPort], known: Collection[str], busy: Callable[[], Set[str]]
    ) -> None:
        failures: list[Failed] = []
        kept = set(known)
        for port in gone:
            try:
                await self._remove(port.pod.container_id, port.pod.if_dev, {port.name})
                log.info("Removed an unused interface", interface=port.name, container=port.pod.container_id)
            except Failed as error:
                failures.append(error)
                kept.add(port.pod.container_id)
        with answering(Code.IPAM_FAILURE):
            holders = await self._on.ipam.containers()
            # asked after that: of an ADD that began meanwhile the container is busy, or has its port by now
            kept |= busy() | {port.pod.container_id for port in self._on.ports.standing()}
            if ips := await self._on.ipam.gc(holders - kept):
                log.info("Released unused addresses", ips=ips)
        if failures:
            raise failures[0]

    async def _remove(self, container_id: str, if_name: str, host_names: Collection[str]) -> None:
        with answering(Code.CONFIG_INTERFACE_FAILURE):
            await self._on.ports.drop(tuple(sorted(host_names)))
            # Not in the worker of namespaces: the kernel takes its time, and the next ADD waits for that worker.
            for name in sorted(host_names):
                await asyncio.to_thread(pod_veth.delete, name)
        with answering(Code.IPAM_FAILURE):
            await self._on.ipam.release(container_id, if_name)
        self._added.discard(container_id)

    def _ports_of(self, call: Call) -> list[StandingPort]:
        return ports_of(self._on, call)


def ports_of(context: CniContext, call: Call) -> list[StandingPort]:
    """Return the ports of this call's container and interface; more than one only if its Pod had another name before."""
    return [port for port in context.ports.standing(call.container_id) if port.pod.if_dev == call.if_name]


def _attached(name: str, mac: str, allocation: Allocation) -> Attached:
    return Attached(host_name=name, mac=mac, addresses=allocation.addresses, gateways=allocation.gateways)
