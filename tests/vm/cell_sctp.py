"""Runs in the virtual machine: SCTP between Pods of one node and of two, and what a policy allows and drops of it."""

from __future__ import annotations

import contextlib
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kernel_traffic import TIMEOUT, family
from vm_shape import SCTP_PORTS

from lab import namespace

if TYPE_CHECKING:
    from kernel_lab import KernelLab

DROPPED_SECONDS = 8.0
"""In which its first packet goes out three times."""
JUDGED = {
    ("client", "free"): True,
    ("near", "free"): True,
    ("client", "judged"): True,
    ("near", "judged"): False,
}
"""By source and port: whether it gets through to `server`. `client` is on node-1, both others are on node-2."""


@pytest.mark.parametrize(
    ("source", "port", "version"),
    [
        # each that is dropped takes its time
        pytest.param(*way, version, marks=pytest.mark.wide if not JUDGED[way] and version == 4 else [])
        for way in JUDGED
        for version in (4, 6)
    ],
)
def test_sctp_is_judged_by_its_port_and_whom_it_comes_from(
    kernel: KernelLab, source: str, port: str, version: int
) -> None:
    through = JUDGED[source, port]
    seen = _talks(kernel, source, SCTP_PORTS[port], version, TIMEOUT if through else DROPPED_SECONDS)
    assert seen == (kernel.addresses(source)[version] if through else "")


def _talks(kernel: KernelLab, source: str, port: int, version: int, seconds: float) -> str:
    """The address that the server sees of whom it gets a line from; empty if no association comes up."""
    mine, other = kernel.addresses(source)[version], kernel.addresses("server")[version]
    with ExitStack() as both:
        listener = both.enter_context(_socket(kernel, "server", other, port))
        listener.listen()
        listener.settimeout(TIMEOUT)
        sender = both.enter_context(_socket(kernel, source, mine, 0))
        sender.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            sender.connect((other, port))
            sender.sendall(b"line")
            stream, peer = listener.accept()
            stream.settimeout(TIMEOUT)
            with stream:
                assert stream.recv(64) == b"line"
            return str(peer[0])
    return ""


def _socket(kernel: KernelLab, where: str, address: str, port: int) -> socket.socket:
    """Bound to this address alone: an association may have several."""
    with namespace.entered(kernel.netns(where)):
        made = socket.socket(family(address), socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    made.bind((address, port))
    return made
