"""Ports for the servers of tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import free_port

OTHER = "import free_port; free_port._candidates = lambda _: iter(range({0}, {0} + 40)); print(free_port.free_port())"


def given_to_another(first: int) -> int:
    """What another process is given of the ports from this one on."""
    folder = Path(free_port.__file__).parent
    return int(subprocess.check_output([sys.executable, "-c", OTHER.format(first)], cwd=folder))


def test_a_port_is_given_once_among_all_processes_and_none_that_is_taken() -> None:
    first, second = free_port.free_port(), free_port.free_port()
    assert free_port.FIRST <= first < free_port.FIRST + free_port.COUNT
    assert first != second
    assert given_to_another(first) not in (first, second)


def test_a_port_that_a_server_or_a_client_has_is_not_given() -> None:
    port = free_port.free_port()
    with socket.create_server(("127.0.0.1", port), family=socket.AF_INET):
        assert not free_port._is_free(port)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as bound:
        bound.bind(("::1", port))
        assert not free_port._is_free(port)
    assert free_port._is_free(port)
