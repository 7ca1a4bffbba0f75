"""Answer ARP requests and neighbour solicitations for addresses that this Node has on no device.

The kernel answers for its own addresses only; with the IP on a device a Node would take packets to it as its own.
Source: RFC 826, RFC 4861 4.3, 4.4, 7.2.4, packet(7)
parity: pkg/agent/ipassigner/responder
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections import defaultdict
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog
from antrea.outside.neighbour.frame import ETH_P_ARP, ETH_P_IPV6, advertisement, arp_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.host.neighbour_response import NeighbourResponse

log = klog.logger(__name__)

REOPEN_SECONDS: Final = 0.5
"""Between two tries to listen on a device that is down or away."""
MAX_FRAMES: Final = 64
"""Maximum number of frames that are answered before other work has its turn."""
FRAME_BYTES: Final = 256
_ATTACH_FILTER: Final = 26
_LOAD_HALF, _LOAD_BYTE, _EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
_ICMPV6, _SOLICITATION, _REQUEST = 58, 135, 1
_ARP_OPERATION, _NEXT_HEADER, _HOP_LIMIT, _ICMP_TYPE = 20, 20, 21, 54
"""Where these are in an Ethernet frame."""
_TO_US: Final = frozenset((socket.PACKET_HOST, socket.PACKET_BROADCAST, socket.PACKET_MULTICAST))
"""Neither what this Node sends nor what is for a VLAN or another host."""
_UNSPECIFIED: Final = bytes(16)


class NeighbourResponder:
    """Sink of NeighbourResponse. In the network namespace of the calling thread; `close` it when done."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        """Device and version of IP -> packed addresses."""
        self._listeners: dict[tuple[str, int], _Listener] = {}

    async def apply(self, put: Sequence[NeighbourResponse], drop: Sequence[NeighbourResponse]) -> None:
        for response in put:
            self._add(response)
        for response in drop:
            self._remove(response)

    async def resync(self, entries: Sequence[NeighbourResponse]) -> None:
        """Nothing of an earlier start is left: answers end with their process."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Sweep entries as `resync` does."""

    def answers(self, ip: str) -> bool:
        """Whether this Node answers for the address."""
        address = ip_address(ip)
        return any(
            address.packed in responses
            for (_, version), responses in self._wanted.items()
            if version == address.version
        )

    def _add(self, entry: NeighbourResponse) -> None:
        address = ip_address(entry.ip)
        place = (entry.dev, address.version)
        if address.packed in self._wanted[place]:
            return
        self._wanted[place].add(address.packed)
        if place not in self._listeners:
            self._listeners[place] = _Listener(entry.dev, address.version, self._wanted[place])
        self._listeners[place].join(address.packed)
        log.info("Answering for an address", ip=entry.ip, dev=entry.dev)

    def _remove(self, entry: NeighbourResponse) -> None:
        address = ip_address(entry.ip)
        place = (entry.dev, address.version)
        if address.packed not in self._wanted.get(place, ()):
            return
        self._wanted[place].discard(address.packed)
        log.info("Answering for an address no longer", ip=entry.ip, dev=entry.dev)
        if not self._wanted[place]:
            del self._wanted[place]
            self._listeners.pop(place).close()
        else:
            self._listeners[place].leave(address.packed)

    def close(self) -> None:
        """Answer no more."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._wanted.clear()


class _Listener:
    """One socket on one device for one version of IP; it opens a new one when the device comes back."""

    def __init__(self, dev: str, version: int, wanted: set[bytes]) -> None:
        self._dev, self._version, self._wanted = dev, version, wanted
        self._loop = asyncio.get_running_loop()
        self._link: socket.socket | None = None
        self._groups: _Groups | None = None
        self._again: asyncio.TimerHandle | None = None
        self._reported = ""
        self._open()

    def join(self, address: bytes) -> None:
        if self._groups:
            self._groups.join(address)

    def leave(self, address: bytes) -> None:
        if self._groups:
            self._groups.leave(address, self._wanted)

    def close(self) -> None:
        if self._again:
            self._again.cancel()
        self._release()

    def _open(self) -> None:
        self._again = None
        try:
            self._link = _bound(self._dev, self._version)
            if self._version == 6:
                self._groups = _Groups(self._dev)
                for address in self._wanted:
                    self._groups.join(address)
        except OSError as error:
            self._retry(str(error))
            return
        self._reported = ""
        self._loop.add_reader(self._link, self._read, self._link)

    def _retry(self, why: str) -> None:
        if why != self._reported:
            self._reported = why
            log.warning("Cannot answer for addresses now", dev=self._dev, err=why)
        self._release()
        self._again = self._loop.call_later(REOPEN_SECONDS, self._open)

    def _release(self) -> None:
        if self._link:
            self._loop.remove_reader(self._link)
            # the kernel holds whoever closes a packet socket for 10 to 30 ms
            self._loop.run_in_executor(None, self._link.close)
        if self._groups:
            self._groups.close()
        self._link = self._groups = None

    def _read(self, link: socket.socket) -> None:
        mac: bytes = link.getsockname()[4]
        for _ in range(MAX_FRAMES):
            try:
                frame, sender = link.recvfrom(FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._retry(str(error))
                return
            if sender[2] not in _TO_US:
                continue
            request = (
                arp_answer(mac, frame, self._wanted)
                if self._version == 4
                else na_answer(mac, frame, self._wanted)
            )
            if request:
                with contextlib.suppress(OSError):  # whoever asked asks again
                    link.send(request)


class _Groups:
    """Groups of solicited-node addresses on a device, so that its card and switches pass what is sent to them."""

    def __init__(self, dev: str) -> None:
        self._index = socket.if_nametoindex(dev)
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._joined: set[bytes] = set()

    def join(self, address: bytes) -> None:
        """Best effort: a device on which IPv6 is off joins none, and receives what is sent to all."""
        group = solicited_node(address)
        if group not in self._joined:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self._request(group))
                self._joined.add(group)

    def leave(self, address: bytes, left: set[bytes]) -> None:
        """Unless one of those that are left needs it."""
        group = solicited_node(address)
        if group in self._joined and all(solicited_node(address) != group for address in left):
            self._joined.discard(group)
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, self._request(group))

    def close(self) -> None:
        self._socket.close()

    def _request(self, group: bytes) -> bytes:
        return group + struct.pack("@i", self._index)


def solicited_node(address: bytes) -> bytes:
    """The multicast address to which solicitations for `address` go (RFC 4291, 2.7.1)."""
    return IPv6Address("ff02::1:ff00:0").packed[:13] + address[13:]


def arp_answer(mac: bytes, frame: bytes, wanted: set[bytes]) -> bytes:
    """The whole frame; empty: nothing is asked of us. Who announces the address itself asks nothing."""
    if len(frame) < 42:
        return b""
    operation, hardware, sender, target = struct.unpack("!20xH6s4s6x4s", frame[:42])
    if operation != _REQUEST or target not in wanted or sender == target:
        return b""
    return arp_reply(mac, target, hardware, sender)


def na_answer(mac: bytes, frame: bytes, wanted: set[bytes]) -> bytes:
    """The same for IPv6; who looks for a duplicate of an address of its own is answered on the group of all nodes."""
    if len(frame) < 78 or frame[_HOP_LIMIT] != 255:
        return b""
    source, target = frame[22:38], frame[62:78]
    if target not in wanted:
        return b""
    return advertisement(mac, target, frame[6:12], source if source != _UNSPECIFIED else b"")


def _bound(dev: str, version: int) -> socket.socket:
    """A socket that receives requests only. Raises OSError, also if the device is down."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    try:
        rules = _rules(version)
        program = ctypes.create_string_buffer(rules, len(rules))
        link.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(rules) // 8, ctypes.addressof(program))
        )
        link.bind((dev, ETH_P_ARP if version == 4 else ETH_P_IPV6))
    except OSError:
        link.close()
        raise
    return link


def _rules(version: int) -> bytes:
    """A filter of classic BPF: ARP requests, or neighbour solicitations without extension headers."""
    checks = [(_LOAD_HALF, _ARP_OPERATION, _REQUEST)]
    if version == 6:
        checks = [(_LOAD_BYTE, _NEXT_HEADER, _ICMPV6), (_LOAD_BYTE, _ICMP_TYPE, _SOLICITATION)]
    lines: list[tuple[int, int, int, int]] = []
    for number, (load, where, value) in enumerate(checks):
        # whatever differs goes to the last line
        lines += [(load, 0, 0, where), (_EQUAL, 0, 2 * (len(checks) - number) - 1, value)]
    lines += [(_RETURN, 0, 0, FRAME_BYTES), (_RETURN, 0, 0, 0)]
    return b"".join(struct.pack("@HBBI", *line) for line in lines)
