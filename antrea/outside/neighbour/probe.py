"""Probe which host on a link has an address, without changing its neighbour caches.

Source: RFC 5227, 2.1.1 (ARP probe); RFC 4862, 5.4 (neighbour solicitation from the unspecified address); packet(7), socket(7)
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.outside.neighbour.frame import ETH_P_ARP, ETH_P_IPV6, arp_request, icmpv6
from antrea.outside.neighbour.probe_failure import is_link_down

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from ipaddress import IPv4Address, IPv6Address

TIMES: Final = 3
"""Number of probes, as RFC 5227 recommends."""
GAP_SECONDS: Final = 0.1
"""After each question; RFC 5227 waits for 1 to 2 s, which Pods would wait, too."""
STRANGERS_SECONDS: Final = 0.5
"""For all of them together."""
MAX_FRAMES: Final = 64
"""Maximum number of frames that are read before other work has its turn."""

_ATTACH_FILTER: Final = 26
_HARDWARE_ADDRESS: Final = 0x8927
"""SIOCGIFHWADDR, netdevice(7)"""
_LOAD_WORD, _LOAD_BYTE, _EQUAL, _RETURN = 0x20, 0x30, 0x15, 0x06
_ICMPV6, _ADVERTISEMENT = 58, 136
_ARP_SENDER, _ARP_SENDER_IP, _NEXT_HEADER, _ICMP_TYPE, _TARGET = 22, 28, 20, 54, 62
_ARP_TARGET_IP, _DESTINATION = 38, 38
"""Where these are in an Ethernet frame."""


async def who_has(dev: str, ip: str) -> str:
    """The MAC address of a host on the link of `dev` that answers for `ip`; empty: none within 0.3 s.

    This Node itself, by whatever card, is none. In the network namespace of the calling thread. Raises OSError without `dev`, or
    while that is down.
    """
    address = ip_address(ip)
    link = _listening(dev, address)
    try:
        own_macs = _own_macs()
        probe = question(link.getsockname()[4], address)
        for _ in range(TIMES):
            link.send(probe)
            if frame := await _answer(link, lambda frame: _sender(frame, address) not in own_macs):
                return _sender(frame, address).hex(":")
        return ""
    finally:
        # the kernel holds whoever closes a packet socket for 10 to 30 ms
        asyncio.get_running_loop().run_in_executor(None, link.close)


async def answers_as(dev: str, ip: str, mac: str, sender: str) -> bool:
    """Whether the host `ip` with this MAC address answers who asks it, and no other one, as `sender`; within 0.3 s.

    It learns `sender` at the MAC address of `dev` by that. As `who_has` else.
    """
    address, source = ip_address(ip), ip_address(sender)
    link = _listening(dev, address)
    try:
        probe = direct_question(link.getsockname()[4], bytes.fromhex(mac.replace(":", "")), source, address)
        for _ in range(TIMES):
            link.send(probe)
            if await _answer(link, lambda frame: _asker(frame, source) == source.packed):
                return True
        return False
    finally:
        asyncio.get_running_loop().run_in_executor(None, link.close)


async def answers_for_all(dev: str, mac: str, strangers: Sequence[str]) -> bool:
    """Whether that host, which answers for one address, answers for all of these, too: a router that does proxy ARP.

    Raises OSError as `who_has`.
    """
    try:
        async with asyncio.timeout(STRANGERS_SECONDS):
            return {*await asyncio.gather(*(who_has(dev, ip) for ip in strangers))} == {mac}
    except TimeoutError:
        return False


async def _answer(link: socket.socket, fits: Callable[[bytes], bool]) -> bytes:
    """The first frame that fits, of those within GAP_SECONDS; empty: none.

    One that on_readable while this process had no processor counts, however late it is read.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + GAP_SECONDS
    while True:
        left = end - loop.time()
        await _readable(link, left)
        if frame := next(filter(fits, _waiting(link)), b""):
            return frame
        if left <= 0:
            return b""


async def _readable(link: socket.socket, seconds: float) -> None:
    """Returns with the first frame, or after that time."""
    loop = asyncio.get_running_loop()
    some = loop.create_future()

    def on_readable() -> None:
        if not some.done():
            some.set_result(None)

    loop.add_reader(link, on_readable)
    try:
        await asyncio.wait([some], timeout=max(seconds, 0))
    finally:
        loop.remove_reader(link)


def _waiting(link: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        for _ in range(MAX_FRAMES):
            yield link.recv(256)


def _sender(frame: bytes, address: IPv4Address | IPv6Address) -> bytes:
    """MAC address of the host that answers for this address."""
    return frame[_ARP_SENDER : _ARP_SENDER + 6] if address.version == 4 else frame[6:12]


def _asker(frame: bytes, address: IPv4Address | IPv6Address) -> bytes:
    """Address to which an answer goes, of the family of this one."""
    where = _ARP_TARGET_IP if address.version == 4 else _DESTINATION
    return frame[where : where + len(address.packed)]


def _own_macs() -> frozenset[bytes]:
    """Return the MAC addresses of all cards of this network namespace: for an address of IPv4 each of them answers."""
    macs = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        for _, name in socket.if_nameindex():
            request = struct.pack("40s", name.encode())
            try:
                macs.add(fcntl.ioctl(door, _HARDWARE_ADDRESS, request)[18:24])
            except OSError as error:
                # it has gone meanwhile
                if not is_link_down(error):
                    raise
    return frozenset(macs)


def question(mac: bytes, address: IPv4Address | IPv6Address) -> bytes:
    """The whole Ethernet frame."""
    if address.version == 4:
        return arp_request(mac, b"", b"", address.packed)
    group = bytes.fromhex("ff0200000000000000000001ff") + address.packed[-3:]
    return icmpv6(mac, bytes(16), group, struct.pack("!BBHI16s", 135, 0, 0, 0, address.packed))


def direct_question(
    mac: bytes, to: bytes, sender: IPv4Address | IPv6Address, address: IPv4Address | IPv6Address
) -> bytes:
    """The whole Ethernet frame, to one host, with the address of the asker."""
    if address.version == 4:
        return to + arp_request(mac, sender.packed, b"", address.packed)[6:]
    body = struct.pack("!BBHI16sBB6s", 135, 0, 0, 0, address.packed, 1, 1, mac)
    return to + icmpv6(mac, sender.packed, address.packed, body)[6:]


def _listening(dev: str, address: IPv4Address | IPv6Address) -> socket.socket:
    """A socket that receives answers for `address` only. Raises OSError."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    try:
        rules = _rules(address)
        program = ctypes.create_string_buffer(rules, len(rules))
        link.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(rules) // 8, ctypes.addressof(program))
        )
        link.bind((dev, ETH_P_ARP if address.version == 4 else ETH_P_IPV6))
    except OSError:
        link.close()
        raise
    return link


def _rules(address: IPv4Address | IPv6Address) -> bytes:
    """A filter of classic BPF: the sender of ARP, or the target of an advertisement, is this address."""
    parts = struct.unpack(f"!{len(address.packed) // 4}I", address.packed)
    if address.version == 4:
        checks = [(_LOAD_WORD, _ARP_SENDER_IP, parts[0])]
    else:
        checks = [(_LOAD_BYTE, _NEXT_HEADER, _ICMPV6), (_LOAD_BYTE, _ICMP_TYPE, _ADVERTISEMENT)]
        checks += [(_LOAD_WORD, _TARGET + 4 * number, word) for number, word in enumerate(parts)]
    lines: list[tuple[int, int, int, int]] = []
    for number, (load, where, value) in enumerate(checks):
        # whatever differs goes to the last line
        lines += [(load, 0, 0, where), (_EQUAL, 0, 2 * (len(checks) - number) - 1, value)]
    lines += [(_RETURN, 0, 0, 0xFFFF), (_RETURN, 0, 0, 0)]
    return b"".join(struct.pack("@HBBI", *line) for line in lines)
