"""Connections to ports of a lab that are half open, silent or half sent, held until standard input ends; run in a network namespace.

The arguments are JSON: pairs of an address and a port, and an unused address of the namespace's network.
"""

from __future__ import annotations

import errno
import json
import resource
import socket
import struct
import sys

EACH = 1100
"""Connections of a port that are silent, and as many that send a part of a request: more than the listener keeps."""
HALF_OPEN = 300
PARTS = (
    b"\x16\x03\x01\x02\x00\x01",
    b"GET /healthz HTTP/1.1\r\nHost:",
    b"\x00\x0a\xff\xff",
    b"\x00\x0f\xff\xff\x13",
)
"""A ClientHello, headers, a message of IPFIX, a packet of gossip: none is complete."""


def main() -> None:
    targets, unused = json.loads(sys.argv[1]), sys.argv[2]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for host, port in targets:
        half_open(unused, host, port)
    held = [connected(host, port) for host, port in targets for _ in range(2 * EACH)]
    sent = 0
    for number, one in enumerate(held):
        one.settimeout(10)
        if number % 2:
            try:
                one.send(PARTS[number // 2 % len(PARTS)])
                sent += 1
            except OSError:
                # the listener dropped it for a later one
                continue
    print(json.dumps({"connections": len(held), "sent": sent}), flush=True)
    sys.stdin.read()


def connected(host: str, port: int) -> socket.socket:
    """A socket whose connection is made or is being made."""
    made = socket.socket()
    made.setblocking(False)
    found = made.connect_ex((host, port))
    assert found in (0, errno.EINPROGRESS), errno.errorcode[found]
    return made


def half_open(source: str, host: str, port: int) -> None:
    """Segments that begin connections of an address which never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for number in range(HALF_OPEN):
            ends = socket.inet_aton(source) + socket.inet_aton(host)
            tcp = struct.pack("!HHIIBBHHH", 20000 + number, port, number, 0, 5 << 4, 2, 64240, 0, 0)
            summed = checksum(ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp)) + tcp)
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + ends
            raw.sendto(ip + tcp[:16] + struct.pack("!H", summed) + tcp[18:], (host, 0))


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


if __name__ == "__main__":
    main()
