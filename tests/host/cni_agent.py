"""The CNI part of an agent as a process of its own, so that a test can kill it at any step of a call.

python tests/host/cni_agent.py '{"db": ..., "socket": ..., "ipam": ...}': see `Settings`. Its log goes to stderr, and has
a line "started" once it serves.
SIGHUP makes it reconcile with a list of no Pods.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antrea.agent.cni.context import CniContext
from antrea.agent.cni.pod_port import OvsPodPorts
from antrea.agent.cni.server import CniServer
from antrea.errors import Refused, Unavailable
from antrea.facts.node import ThisNode
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.ovsdb.client import Ovsdb

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.facts.ovs import PodInterface

BRIDGE = "br-int"
log = logging.getLogger(__name__)


class Settings(msgspec.Struct):
    db: str
    mgmt: str
    socket: str
    ipam: str
    pod_cidrs: tuple[str, ...] = ("10.244.1.0/24", "fd00:10:244:1::/64")
    pods: tuple[str, ...] | None = None
    """"namespace/name" of the Pods of this Node; None is a list that is not synced."""
    die: str = ""
    """"before STEP" or "after STEP": the agent kills itself there."""
    ready: bool = True
    refuse: str = ""
    """Why no flow of a Pod is taken."""
    silent: int = 0
    """For how many ADDs antrea-controller has said nothing of the Pod."""
    stops: int = 0
    """A process that stands still from then on for half a second."""


class Mortal:
    """Passes every call on to `inner`; at the step chosen it kills the process, as kill -9 does."""

    def __init__(self, inner: Any, die: str) -> None:
        self._inner = inner
        self._die = die

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._deadly(name, found) if self._die.endswith(f" {name}") else found

    def _deadly(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            if self._die == f"before {name}":
                os.kill(os.getpid(), signal.SIGKILL)
            done = await step(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call


class MortalWiring(CniContext):
    die = ""

    @property
    def ipam(self) -> Any:
        return Mortal(super().ipam, self.die)


class Flows:
    """Connects Pods with the plainest flow there is, as the last step of ADD."""

    def __init__(self, settings: Settings) -> None:
        self._mgmt = settings.mgmt
        self._refuse = settings.refuse
        self._silent = settings.silent
        self._stops = settings.stops

    async def covered(self, pod: str, uid: str) -> None:
        self._silent -= 1
        if self._silent >= 0:
            if self._stops:
                os.kill(self._stops, signal.SIGSTOP)
                asyncio.get_running_loop().call_later(0.5, os.kill, self._stops, signal.SIGCONT)
            raise Unavailable(f"policies for Pod {pod} from antrea-controller not received within 2 s")

    async def settle(self, pod: PodInterface) -> None:
        if self._refuse:
            raise Refused([pod], self._refuse)
        flow = f"priority=10,in_port={pod.ofport},actions=NORMAL"
        words = ("ovs-ofctl", "-O", "OpenFlow15", "add-flow", f"unix:{self._mgmt}", flow)
        process = await asyncio.create_subprocess_exec(*words)
        assert await process.wait() == 0


async def main(settings: Settings) -> None:
    db = await Ovsdb.connect(settings.db)
    worker = NetnsWorker()
    node = ThisNode(name="node-1", pod_cidrs=settings.pod_cidrs, mtu=1450)
    context = MortalWiring(
        Mortal(OvsPodPorts(db, BRIDGE), settings.die),
        cast("NetnsWorker", Mortal(worker, settings.die)),
        node=lambda: node,
        settle=Mortal(Flows(settings), settings.die).settle,
        covered=Flows(settings).covered,
        ipam_directory=Path(settings.ipam),
        tx_off=True,
    )
    context.die = settings.die
    ready = asyncio.Event()
    again = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    server = CniServer(context, ready, Path(settings.socket), ready_seconds=1)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.run())
            await server.reconcile(settings.pods)
            if settings.ready:
                ready.set()
            log.info("started")
            while True:
                await again.wait()
                again.clear()
                await server.reconcile(())
                log.info("reconciled")
    finally:
        worker.close()
        await db.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Settings)))
