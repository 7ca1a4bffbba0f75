"""Keep the tunnel neighbours of ovs-vswitchd equal to the neighbour entries that the kernel resolves and verifies.

Userspace OVS has a cache of its own for that (lib/tnl-neigh-cache.c): filled from packets that OVS forwards, and empty after
15 minutes without a packet, after a restart and after a flush. The kernel already does all that such a cache needs, on
the very bridge that has the tunnel's address: it asks again when an entry gets old, notices another MAC address, and
works for both families. So this sink keeps the neighbours in use in the kernel, and copies their entries to OVS.
"""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_address
from socket import if_nametoindex
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.netlink.host_message import any_neighbour_of, get_neighbours, use_neighbour
from antrea.outside.netlink.socket import Rtnl
from antrea.outside.ovsdb.session import RpcError
from antrea.outside.vswitch.appctl import TIMEOUT, control

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from antrea.host.tunnel_neighbour import TunnelNeighbour

log = klog.logger(__name__)

PERIOD: Final = 5.0
"""Seconds between two checks while all is well: how long an external change may last."""
SOON: Final = 0.05
"""Seconds to the second look after news; it doubles up to PERIOD while an answer is missing."""
REFRESH: Final = 60.0
"""Seconds after which an entry is set in OVS again, so that it does not age: by default it would after 900."""
SILENCE: Final = 60.0
"""Seconds at most between two questions to a neighbour that does not answer: all Nodes ask one that is down."""

_VALID: Final = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80
"""NUD_VALID: what the kernel itself would send to. Source: include/net/neighbour.h"""
_FRESH: Final = 0x02 | 0x40 | 0x80
"""NUD_CONNECTED: no question is due."""


class TunnelNeighbourSink:
    """Sink of TunnelNeighbour, with a task of its own (`run`): a neighbour that does not answer delays no other."""

    def __init__(self, run_directory: Path, *, refresh: float = REFRESH) -> None:
        """`run_directory` has the control socket of ovs-vswitchd; `refresh` is in seconds."""
        self._directory = run_directory
        self._refresh = refresh
        self._wanted: dict[tuple[str, str], float] = {}
        """When the kernel may ask again, by device and address."""
        self._silent: dict[tuple[str, str], float] = {}
        """Seconds to wait after the next question that is not answered"""
        self._news = asyncio.Event()
        self._refreshed = 0.0
        self._trouble = ""

    async def apply(self, put: Sequence[TunnelNeighbour], drop: Sequence[TunnelNeighbour]) -> None:
        """Returns at once."""
        for entry in drop:
            self._wanted.pop(_key(entry), None)
            self._silent.pop(_key(entry), None)
        self._wanted |= dict.fromkeys(map(_key, put), 0.0)
        self._news.set()

    async def resync(self, entries: Sequence[TunnelNeighbour]) -> None:
        """Returns at once; OVS may have forgotten everything."""
        self._wanted.clear()
        self._silent.clear()
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: what is not refreshed goes by itself."""

    async def run(self) -> None:
        """Forever."""
        most = min(PERIOD, self._refresh)
        while True:
            self._news.clear()
            pause = SOON
            while not self._news.is_set():
                pause = most if await self._resolve() else min(pause * 2, most)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()

    async def _resolve(self) -> bool:
        """Resolve neighbours and set them in OVS; True if OVS has all that are wanted."""
        if not self._wanted:
            return True
        now = asyncio.get_running_loop().time()
        due = [key for key, at in self._wanted.items() if at <= now]
        known = await asyncio.to_thread(kernel_neighbours, {dev for dev, _ in self._wanted}, due)
        for key in due:
            if key in known:
                self._silent.pop(key, None)
            elif key in self._wanted:
                self._silent[key] = wait = min(2 * self._silent.get(key, 0.5), SILENCE)
                self._wanted[key] = now + wait
        resolved = await self._set_neighbours({key: known[key] for key in self._wanted if key in known}, now)
        return resolved and all(key in known for key in self._wanted)

    async def _set_neighbours(self, known: Mapping[tuple[str, str], str], now: float) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                if now - self._refreshed >= self._refresh:
                    shown, self._refreshed = {}, now
                else:
                    shown = parse(await ovs.call("tnl/neigh/show"))
                for (dev, ip), mac in known.items():
                    if shown.get((dev, ip)) != mac:
                        await ovs.call("tnl/neigh/set", dev, ip, mac)
                        log.v(2).info("Set a neighbour in ovs-vswitchd", dev=dev, ip=ip, mac=mac)
        except (OSError, Unavailable, RpcError) as error:
            why = str(error) or "no answer in time"
            if why != self._trouble:
                log.warning("Failed to set neighbours in ovs-vswitchd", why=why)
            self._trouble = why
            return False
        self._trouble = ""
        return True


def parse(shown: str) -> dict[tuple[str, str], str]:
    """MAC addresses by bridge and address, of what tnl/neigh/show prints: two lines of head, then IP, MAC, bridge."""
    rows = [line.split() for line in shown.splitlines()[2:]]
    return {(row[2], str(ip_address(row[0]))): row[1] for row in rows if len(row) == 3}


def kernel_neighbours(
    devices: Collection[str], wanted: Collection[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """MAC addresses by device and address, as the kernel would use them now; of those `wanted` that are not fresh it asks.

    Answers come later. A device that is missing has no neighbours.
    """
    neighbours: dict[tuple[str, str], str] = {}
    with Rtnl() as kernel:
        for dev in devices:
            try:
                index = if_nametoindex(dev)
                rows = [row for row in map(any_neighbour_of, kernel.ask(get_neighbours())) if row]
                here = {row.ip: row for row in rows if row.index == index}
                for ip in [ip for where, ip in wanted if where == dev]:
                    if ip not in here or not here[ip].state & _FRESH:
                        kernel.ask(use_neighbour(index, ip))
            except OSError:
                continue
            neighbours |= {(dev, ip): row.mac for ip, row in here.items() if row.state & _VALID and row.mac}
    return neighbours


def _key(entry: TunnelNeighbour) -> tuple[str, str]:
    return entry.dev, str(ip_address(entry.ip))
