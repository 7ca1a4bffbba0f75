"""Asks ovs-vswitchd through its control socket, as ovs-appctl does, without a process in between.

Source: ovs-vswitchd(8) "RUNTIME MANAGEMENT COMMANDS"; the protocol is JSON-RPC, lib/unixctl.c.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from antrea.errors import Refused, Unavailable
from antrea.outside.ovsdb.session import RpcError, Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TIMEOUT: Final = 10.0
"""Seconds that ovs-vswitchd may take to answer."""


class Tracer:
    """Traces what the bridge would do with a packet, without sending it."""

    def __init__(self, run_directory: Path, bridge: str) -> None:
        """`run_directory` has the control socket of ovs-vswitchd."""
        self._directory = run_directory
        self._bridge = bridge

    async def trace(self, flow: str) -> str:
        """Return the output of ofproto/trace for a packet such as `in_port=3,ip,nw_dst=10.10.0.7`.

        Raises Refused with the words of OVS if it does not take the packet, Unavailable.
        """
        try:
            async with asyncio.timeout(TIMEOUT), control(self._directory) as ovs:
                text = str(await ovs.call("ofproto/trace", self._bridge, flow))
        except RpcError as error:
            raise Refused([flow], str(error).strip()) from error
        except TimeoutError:
            raise Unavailable(f"no answer of ovs-vswitchd within {TIMEOUT:.0f} s") from None
        return text.removesuffix("\n") + "\n"  # OVS 3.5 leaves it to ovs-appctl to end the last line


async def counter(directory: Path, name: str) -> int:
    """One of those that coverage/show prints, since ovs-vswitchd started. Raises Unavailable."""
    try:
        async with asyncio.timeout(TIMEOUT), control(directory) as ovs:
            return int(await ovs.call("coverage/read-counter", name))
    except (RpcError, ValueError) as error:
        raise Unavailable(f"counter {name} of ovs-vswitchd cannot be read: {error}") from error
    except TimeoutError:
        raise Unavailable(f"no answer of ovs-vswitchd within {TIMEOUT:.0f} s") from None


@contextlib.asynccontextmanager
async def control(directory: Path) -> AsyncIterator[Session]:
    """A connection to the control socket of ovs-vswitchd. Raises Unavailable."""
    for path in sockets(directory):
        with contextlib.suppress(OSError):
            session = await Session.open(str(path))
            break
    else:
        raise Unavailable(f"no control socket of ovs-vswitchd in {directory}: ovs-vswitchd does not run")
    reading = asyncio.create_task(session.run(), name="control socket of ovs-vswitchd")
    try:
        yield session
    finally:
        session.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def sockets(directory: Path) -> list[Path]:
    """Newest first: the name has a pid of another pid namespace in it, and a crash leaves the socket behind.

    ovs-appctl, when it is not given the socket's path, looks for that pid here and takes the pid file for a dead process's.
    """
    return sorted(directory.glob("ovs-vswitchd*.ctl"), key=lambda path: path.lstat().st_mtime, reverse=True)
