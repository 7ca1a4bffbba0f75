"""Sockets that programs listen at, which only a Listener takes connections from."""

from __future__ import annotations

import socket

from antrea.errors import Unavailable

BACKLOG = 4096
"""Connections that wait to be accepted. The kernel allows net.core.somaxconn of them, by default as many."""


def listen(port: int, address: str = "") -> socket.socket:
    """Return a socket that listens at one address, or at all of both families, or of IPv4 where there is no IPv6. Raises Unavailable."""
    try:
        made = bound_socket(address, port, socket.SOCK_STREAM)
    except OSError as error:
        at = f" of {address}" if address else ""
        raise Unavailable(f"port {port}{at} cannot be opened: {error.strerror}") from error
    return made


def bound_socket(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """Return a socket bound to an address, or to all of both families, or of IPv4 where there is no IPv6; of streams it listens. Raises OSError."""
    version6 = ":" in host or (not host and socket.has_dualstack_ipv6())
    made = socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if version6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(host)))
        made.bind((host, port))
        if kind == socket.SOCK_STREAM:
            made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


class SharedListener:
    """Listens at one port for servers that come one after the other: a client that connects in between waits for the next one."""

    def __init__(self) -> None:
        self._listening: tuple[int, socket.socket] | None = None
        """With the port that was asked for."""

    def listen(self, port: int, address: str = "") -> socket.socket:
        """Return a listening socket for one of them, to close at will. Raises Unavailable."""
        if self._listening is None or self._listening[0] != port:
            fresh = listen(port, address)
            self.close()
            self._listening = port, fresh
        return self._listening[1].dup()

    def close(self) -> None:
        """Close the sockets."""
        if self._listening is not None:
            self._listening[1].close()
            self._listening = None
