"""Sizes of packets that the way to an address carries, by echo requests that no router may fragment.

Source: ip(7) IP_MTU_DISCOVER, ipv6(7) IPV6_MTU_DISCOVER; RFC 4821 (probes instead of messages of routers, which firewalls drop).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from antrea.outside.icmp.echo import EchoReply, EchoSocket

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECONDS: Final = 1.0
"""For the answers to one round of requests."""
TRIES: Final = 3
"""Requests of each size, since one may be lost."""
SMALL: Final = 100
"""Bytes of an IP packet that every way carries."""
STEP: Final = 10
"""Bytes between two sizes that are tried."""
MIN_SIZE: Final = 576
HEADERS: Final = {False: 28, True: 48}
"""Bytes of the headers of IP and ICMP by whether it is IPv6."""


async def largest_sizes(addresses: Iterable[str], size: int) -> dict[str, int]:
    """Return the largest size that came back from each address, in bytes of IP packets: `size`, or a smaller one if that is lost.

    An address that answers nothing is left out: a firewall may drop echo requests. Raises OSError.
    """
    first = await _answered(dict.fromkeys(addresses, (SMALL, size)))
    lost = [address for address, sizes in first.items() if size not in sizes]
    second = await _answered({address: range(MIN_SIZE, size, STEP) for address in lost}) if lost else {}
    return {address: max(sizes | second.get(address, set())) for address, sizes in first.items() if sizes}


async def _answered(wanted: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
    """Return the sizes that came back by address."""
    answered: dict[str, set[int]] = {address: set() for address in wanted}
    waiting = sum(len(tuple(sizes)) for sizes in wanted.values())
    everything = asyncio.Event()

    def receive(reply: EchoReply) -> None:
        if reply.ip in answered:
            answered[reply.ip].add(reply.sequence)
        if sum(map(len, answered.values())) == waiting:
            everything.set()

    identifier = secrets.randbelow(1 << 16)
    families = {":" in address for address in wanted}
    sockets = {ipv6: EchoSocket(identifier, receive, ipv6=ipv6, fragments=False) for ipv6 in families}
    try:
        for _ in range(TRIES):
            for address, sizes in wanted.items():
                for size in sizes:
                    _send(sockets[":" in address], address, size)
            await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            await everything.wait()
    except TimeoutError:
        pass
    finally:
        for echo in sockets.values():
            echo.close()
    return answered


def _send(echo: EchoSocket, address: str, size: int) -> None:
    """Send a packet of `size` bytes, which is the sequence number as well; the card may refuse it, which is as if it was lost."""
    try:
        echo.send(address, size, bytes(size - HEADERS[":" in address]))
    except OSError:
        return
