"""Hold a port of the Node, so that no other program gets it and no NodePort or ephemeral port collides with it."""

from __future__ import annotations

import errno
import socket

IPPROTO_SCTP = 132
_KINDS = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_STREAM, IPPROTO_SCTP),
}
_NO_PROTOCOL = (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)


def hold_port(port: int, protocol: str, *, ipv6: bool) -> socket.socket | None:
    """A socket bound to the port at all addresses of one family, listening where the protocol has that.

    None for SCTP where the kernel lacks it: no program can have a port of it then.
    Raises OSError, as when another program has the port.
    # parity: pkg/agent/nodeportlocal/portcache/port_table.go OpenLocalPort
    """
    kind, number = _KINDS[protocol]
    try:
        held = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, kind, number)
    except OSError as error:
        if protocol == "sctp" and error.errno in _NO_PROTOCOL:
            return None
        raise
    try:
        if ipv6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            # of connections that are over, not of those who listen
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", port))
        if kind == socket.SOCK_STREAM:
            held.listen(0)
    except OSError:
        held.close()
        raise
    return held
