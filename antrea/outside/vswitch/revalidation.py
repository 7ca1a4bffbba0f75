"""When the cache of a switch's datapath agrees with its flows.

What ovs-vswitchd has decided on one packet the datapath does with all that are like it, often whole networks of them. After a change
of flows ovs-vswitchd goes through that cache, and until then a packet may meet what was decided before. `revalidator/wait` is answered
at the end of a pass, which may have begun before the change: the change holds for all packets once two passes have ended after it.
Passes are made after changes, else twice a second. The deletion of a flow that there is not is a change, too.
Source: ovs-vswitchd(8); openvswitch, ofproto/ofproto-dpif-upcall.c (udpif_revalidator) and ofproto/ofproto.c (handle_flow_mod__)
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.openflow.flow_mod import no_deletion
from antrea.outside.ovsdb.session import RpcError
from antrea.outside.vswitch.appctl import control
from antrea.outside.vswitch.flow_bundle import commit
from antrea.outside.vswitch.message import RETRY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antrea.outside.ovsdb.session import Session

PASSES: Final = 2
"""Number of passes after a change until all packets meet it."""
ROUND: Final = 0.01
"""Seconds that a pass takes in which little is cached, and the time until the next one may begin."""
TIMEOUT: Final = 1.5
"""Seconds until they are given up."""


class Revalidation:
    """Counts passes over the cache while anybody waits for them."""

    def __init__(self, socket: Path, patience: float = TIMEOUT) -> None:
        """`socket` is the bridge's management socket; the control socket of ovs-vswitchd is beside it."""
        self._socket, self._patience = socket, patience
        self._passes = 0
        self._watchers = 0
        self._watched = asyncio.Event()
        self._waiting: dict[asyncio.Future[Unavailable | None], int] = {}
        """Futures that are set when so many passes have ended."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Count passes meanwhile. From before a change on, so that the pass that this causes is not missed."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    async def completed(self) -> None:
        """Return once packets meet all flows that there are at the call. Raises Unavailable."""
        done: asyncio.Future[Unavailable | None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = self._passes + PASSES
        try:
            async with asyncio.timeout(self._patience):
                await self._cause()
                failed = await self._awoken(done)
        except TimeoutError:
            raise Unavailable(
                f"ovs-vswitchd did not revalidate its cache {PASSES} times within {self._patience} s"
            ) from None
        finally:
            del self._waiting[done]
        if failed:
            raise failed

    async def _awoken(self, done: asyncio.Future[Unavailable | None]) -> Unavailable | None:
        """Wake ovs-vswitchd while it takes long: a pass that ends during a round of its main loop is answered in the next one."""
        pause = ROUND
        while not (await asyncio.wait({done}, timeout=pause))[0]:
            await commit(self._socket, ())
            pause *= 2
        return done.result()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._watched.wait()
            try:
                async with control(self._socket.parent) as ovs:
                    await self._count(ovs)
            except (Unavailable, RpcError) as error:
                self._finish(
                    *self._waiting,
                    failed=Unavailable(f"revalidations of ovs-vswitchd cannot be counted: {error}"),
                )
                await asyncio.sleep(RETRY)

    async def _count(self, ovs: Session) -> None:
        while self._watchers:
            # asked before it is caused, so that its end is not missed
            causes = [self._cause()] if self._waiting else []
            await asyncio.gather(ovs.call("revalidator/wait"), *causes)
            self._passes += 1
            self._finish(*(done for done, number in self._waiting.items() if number <= self._passes))

    @staticmethod
    def _finish(*waiting: asyncio.Future[Unavailable | None], failed: Unavailable | None = None) -> None:
        for done in waiting:
            if not done.done():
                done.set_result(failed)

    async def _cause(self) -> None:
        """Have a pass begin."""
        await commit(self._socket, [no_deletion()])
