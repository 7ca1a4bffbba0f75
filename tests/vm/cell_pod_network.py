"""Runs in the virtual machine: the Pod network on the kernel datapath, with real packets between two nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from kernel_traffic import carry

if TYPE_CHECKING:
    from kernel_lab import KernelLab

SIZE = 256 * 1024
"""Of one TCP transfer, in bytes: full segments, with the checksums and the MTU of the way."""
SEEN_AS = {
    ("client", "web"): "client",
    ("client", "server"): "client",
    ("client", "node-1"): "client",
    ("client", "node-2"): "node-1",
    ("client", "outside"): "node-1",
    ("node-1", "client"): "gateway of node-1",
    ("node-1", "server"): "gateway of node-1",
    ("client", "six"): "client",
}
"""By source and target of a connection, whose address the target sees; `client` and `web` run on node-1, `server` on node-2, `six` on
node-3, which has only IPv6: that tunnel runs over IPv6."""
PINGED = [("six", 6), *((target, version) for target in ("web", "server", "outside") for version in (4, 6))]
WAYS = [(s, t, version) for s, t in SEEN_AS for version in (4, 6) if (t, version) != ("six", 4)]


@pytest.mark.wide
@pytest.mark.parametrize(("target", "version"), PINGED)
def test_a_pod_pings(kernel: KernelLab, target: str, version: int) -> None:
    address = kernel.addresses(target)[version]
    said = kernel.pods["client"].run("ping", "-q", "-c", "5", "-i", "0.2", "-W", "5", address)
    assert re.findall(r"(\d+) packets transmitted, (\d+) received", said) == [("5", "5")], said


@pytest.mark.parametrize(("source", "target", "version"), WAYS)
def test_tcp_arrives_whole_and_from_the_right_address(
    kernel: KernelLab, source: str, target: str, version: int
) -> None:
    seen = carry(kernel.netns(source), kernel.netns(target), kernel.addresses(target)[version], SIZE)
    assert seen == (kernel.addresses(SEEN_AS[source, target])[version], True)
