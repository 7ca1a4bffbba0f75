"""Addresses that nobody uses are given back, and none of an ADD that comes meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from antrea.agent.cni.context import CniContext
from antrea.agent.cni.pod_interface import PodInterfaces
from antrea.agent.cni.pod_port import StandingPort
from antrea.agent.cni.request import Failed
from antrea.agent.cni.server import ContainerLocks
from antrea.errors import Refused
from antrea.facts.node import ThisNode
from antrea.host.ovs_port import PodPort
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antrea.facts.ovs import PodInterface

NODE = ThisNode(name="node-1", pod_cidrs=("10.244.1.0/24",))


async def settle(pod: PodInterface) -> None:
    """Flows are not asked for here."""


async def covered(_: str, __: str) -> None:
    """Nor policies."""


class Ports:
    """A bridge with the port of a container that is gone, which refuses to drop it, but not before `told` lets it answer."""

    def __init__(self) -> None:
        self.asked, self.told = asyncio.Event(), asyncio.Event()
        self.containers = ["gone"]

    async def add(self, name: str, pod: PodPort) -> PodInterface:
        raise Refused([pod], f"nobody adds {name}")

    async def drop(self, names: tuple[str, ...]) -> None:
        self.asked.set()
        await self.told.wait()
        raise Refused([names], "it stays")

    async def acted(self) -> None:
        """Nothing is pending."""

    def standing(self, container_id: str = "") -> tuple[StandingPort, ...]:
        found = (one for one in self.containers if container_id in ("", one))
        return tuple(
            StandingPort(
                f"port-{one}",
                PodPort(
                    container_id=one,
                    pod_namespace="default",
                    pod_name=one,
                    mac="0a:00:00:00:00:01",
                    ips=(),
                    if_dev="eth0",
                    netns="",
                ),
                broken=False,
            )
            for one in found
        )

    async def check(self) -> None:
        """It is there."""


@pytest.fixture
def worker() -> Iterator[NetnsWorker]:
    found = NetnsWorker()
    yield found
    found.close()


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("how", ["GC", "a late list of Pods"])
async def test_an_add_that_comes_while_lost_interfaces_are_removed_keeps_its_address(
    tmp_path: Path, worker: NetnsWorker, how: str, ended: bool
) -> None:
    ports, locks = Ports(), ContainerLocks(10)
    context = CniContext(
        ports, worker, node=lambda: NODE, settle=settle, covered=covered, ipam_directory=tmp_path
    )
    pods = PodInterfaces(context)
    for lost in ("gone", "crashed"):
        await context.ipam.allocate(lost, "eth0")
    # what ADD does, whose steps would need root: its turn, its address, and at the end its port
    if how == "GC":
        collecting = asyncio.create_task(pods.keep_only(frozenset(), lambda: locks.busy))
    else:
        collecting = asyncio.create_task(pods.reconcile((), lambda: locks.busy))
    await ports.asked.wait()
    async with locks.hold("new"):
        address = (await context.ipam.allocate("new", "eth0")).ips
        if not ended:
            ports.told.set()
            with pytest.raises(Failed, match="it stays"):
                await collecting
    if ended:
        ports.containers.append("new")
        ports.told.set()
        with pytest.raises(Failed, match="it stays"):
            await collecting
    assert await context.ipam.held("new", "eth0") == address
    # what could not be removed is found again, with its address; what nobody has any more is free
    assert await context.ipam.containers() == {"gone", "new"}
    await pods.close()
