"""Runs in the virtual machine: the Pod network on the kernel datapath, with real packets between two nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kernel_lab import KernelLab


def lost(text: str) -> str:
    """What ping(8) says of losses."""
    found = re.search(r"[\d.]+% packet loss", text)
    return found[0] if found else text


@pytest.mark.parametrize(("source", "target", "version"), [("client", "server", 4), ("client", "server", 6)])
def test_pods_of_two_nodes_ping(kernel: KernelLab, source: str, target: str, version: int) -> None:
    address = kernel.pods[target].ips[version]
    ping = kernel.pods[source].run("ping", "-q", "-c", "5", "-i", "0.1", "-W", "3", address)
    assert lost(ping) == "0% packet loss"
