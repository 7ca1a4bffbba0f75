"""A gossip machine with real sockets and the real clock, in the event loop that it is run in."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from random import SystemRandom
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.facts.family import is_ipv6
from antrea.outside.gossip.machine import Machine
from antrea.outside.gossip.stream import Streams
from antrea.outside.listener.listening_socket import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.outside.gossip.message import Carried
    from antrea.outside.gossip.suspicion import Timing
    from antrea.outside.gossip.swim import Change, Origin

TICK_SECONDS = 0.05
MAX_BATCH = 64
"""Datagrams that are read before timers get their turn."""
DATAGRAM = 2048
"""Longer ones than we send are cut, and then open under no key."""
_IP_FREEBIND, _IPV6_FREEBIND = 15, 78
"""linux/in.h, linux/in6.h"""


def now() -> float:
    """Return the seconds of a clock that runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Gossip:
    """One agent's gossip at `address` and `port`, UDP and TCP."""

    def __init__(
        self,
        me: str,
        address: str,
        port: int,
        *,
        changed: Callable[[Gossip, list[Change]], None],
        timing: Timing | None = None,
    ) -> None:
        """`changed` is called after every tick, with what changed since the last."""
        self.machine = Machine(me, random=SystemRandom(), token=secrets.token_bytes, now=now(), timing=timing)
        self.address, self.port = address, port
        self.sent = self.received = self.byte_count = 0
        """Packets, and bytes of those sent."""
        self._changed = changed
        self._addresses: dict[str, str] = {}
        self._family = socket.AF_INET6 if is_ipv6(address) else socket.AF_INET
        self._socket = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._streams = Streams(self._packet, self._place, self._reached)

    def peers(self, addresses: Mapping[str, str]) -> None:
        """Every other Node and its address, of our own family."""
        self._addresses = dict(addresses)
        self.machine.peers(self._addresses.keys())

    def keys(self, keys: Sequence[bytes]) -> None:
        """Shared keys, the first one for sealing."""
        self.machine.keys(keys)

    def report_bfd(self, name: str, up: bool | None, *, unsure: bool = False) -> None:
        """BFD found a switch up or down; None: it looks there no more, or is `unsure`."""
        self.machine.report_bfd(now(), name, up, unsure=unsure)
        self._changed(self, self._flush())

    def carry(self, to: str, message: Carried) -> None:
        """Send bytes of a feature to a member."""
        self.machine.carry(now(), to, message)
        self._changed(self, self._flush())

    def leave(self) -> None:
        """Announce the leave; probes are answered until `run` ends."""
        self.machine.leave(now())
        self._changed(self, self._flush())

    async def run(self) -> None:
        """Run until cancelled. Raises Unavailable if the port is taken."""
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as last:
            last.callback(self._socket.close)
            listening = self._listen()
            tasks = await last.enter_async_context(asyncio.TaskGroup())
            streams = tasks.create_task(self._streams.serve_at(listening), name="gossip over TCP")
            last.callback(streams.cancel)
            last.push_async_callback(self._streams.close)
            loop.add_reader(self._socket, self._readable)
            last.callback(loop.remove_reader, self._socket)
            while True:
                self.machine.tick(now())
                self._changed(self, self._flush())
                await asyncio.sleep(TICK_SECONDS)

    def _listen(self) -> socket.socket:
        try:
            for each in (self._socket, listening := socket.socket(self._family, socket.SOCK_STREAM)):
                _free_bind(each, self._family)
                each.bind((self.address, self.port))
            listening.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            listening.close()
            raise Unavailable(
                f"gossip cannot listen at {self.address} port {self.port}: {error.strerror}"
            ) from error
        return listening

    def _readable(self) -> None:
        for _ in range(MAX_BATCH):
            try:
                data = self._socket.recv(DATAGRAM)
            except BlockingIOError:
                break
            except OSError:
                # what an earlier datagram met on its way, such as a port where nobody listens
                continue
            self._packet(data, None)

    def _packet(self, data: bytes, origin: Origin | None) -> bool:
        self.received += 1
        is_proof = self.machine.packet(now(), data, origin)
        self._changed(self, self._flush())
        return is_proof

    def _flush(self) -> list[Change]:
        packets, changes = self.machine.pop_output()
        for packet in packets:
            self.sent += 1
            self.byte_count += len(packet.data)
            if packet.origin is not None:
                packet.origin.send(packet.data)
            elif packet.stream:
                self._streams.send(packet.to, packet.data)
            else:
                # as good as lost on its way, and treated like that
                with contextlib.suppress(OSError, KeyError):
                    self._socket.sendto(packet.data, self._place(packet.to))
        return changes

    def _reached(self, peer: str, refused: bool) -> None:
        self.machine.reached(now(), peer, refused=refused)

    def _place(self, peer: str) -> tuple[str, int]:
        return self._addresses[peer], self.port


def _free_bind(unbound: socket.socket, family: socket.AddressFamily) -> None:
    """The address may come later, or go and come back."""
    unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(unbound.type == socket.SOCK_STREAM))
    if family == socket.AF_INET6:
        unbound.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        unbound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    else:
        unbound.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
