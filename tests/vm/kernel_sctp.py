"""SCTP between network namespaces inside the virtual machine, whose kernel has it."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kernel_traffic import accept_each, family

from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def bound(netns: Path, address: str, port: int = 0) -> socket.socket:
    """To this address alone: an association may have several."""
    with namespace.entered(netns):
        made = socket.socket(family(address), socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    made.bind((address, port))
    return made


@contextmanager
def associating(
    netns: Path, address: str, port: int, handle: Callable[[socket.socket], object]
) -> Iterator[None]:
    """Each association is handled, one after the other."""
    listener = bound(netns, address, port)
    listener.listen()
    threading.Thread(target=accept_each, args=(listener, handle), daemon=True).start()
    try:
        yield
    finally:
        with suppress(OSError):  # not every kernel can end a listener of SCTP
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
