"""Whether packets get to an address, and by which interface they leave."""

from __future__ import annotations

import asyncio
import errno
import subprocess

from antrea.decoding import guarded
from antrea.outside.netlink.iproute2 import rows_of

CONNECT_SECONDS = 2.0
COMMAND_SECONDS = 10


async def unreachable(address: str, port: int, seconds: float = CONNECT_SECONDS) -> str:
    """Why no packet of TCP comes back from `port` of `address`; empty if one does. A refusal is an answer."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(address, port)
        writer.close()
    except TimeoutError:
        return f"no answer within {seconds:g} s, as if a firewall dropped it"
    except OSError as error:
        # nobody listens there: what matters here is that the question came through
        return "" if error.errno == errno.ECONNREFUSED else error.strerror or str(error)
    return ""


def device_to(address: str) -> str:
    """The interface by which the kernel sends to `address`; empty: it has no route.

    Raises OSError, subprocess.SubprocessError; Invalid for output that cannot be decoded.
    """
    command = ("ip", "-json", "route", "get", address)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)
    rows = guarded("output of ip route get", rows_of, done.stdout) if done.returncode == 0 else []
    return str(rows[0].get("dev", "")) if rows else ""
