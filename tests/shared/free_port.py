"""Ports of this machine that no other test is given, though tests of several processes run at a time."""

from __future__ import annotations

import fcntl
import functools
import itertools
import os
import socket
import tempfile
from pathlib import Path

FIRST, COUNT = 20000, 10000
"""Below NodePorts and below what the kernel gives to clients: none of those takes a port before its server listens."""


def free_port() -> int:
    """A port for TCP and UDP, IPv4 and IPv6, that this process is given once, and no other one as long as it runs."""
    for port in _candidates(os.getpid()):
        try:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        if _is_free(port):
            return port
    raise RuntimeError(f"all ports from {FIRST} on are taken")


@functools.cache
def _candidates(process: int) -> itertools.chain[int]:
    """Processes that start together begin at different ports."""
    begin = FIRST + process * 61 % COUNT
    return itertools.chain(range(begin, FIRST + COUNT), range(FIRST, begin))


@functools.cache
def _locks() -> int:
    """A file whose byte N is locked, until its process ends, by the one that was given port N."""
    path = Path(tempfile.gettempdir()) / f"antrea-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _is_free(port: int) -> bool:
    """Whether nobody else on this machine has it."""
    families, kinds = (socket.AF_INET, socket.AF_INET6), (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    for family, kind in itertools.product(families, kinds):
        with socket.socket(family, kind) as tried:
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                tried.bind(("", port))
            except OSError:
                return False
    return True
