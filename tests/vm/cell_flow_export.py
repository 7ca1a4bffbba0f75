"""Runs in the virtual machine: flow records that the kernel tracks have its counters and its times."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kernel_traffic import PORT, carry
from vm_shape import COLLECTOR_PORT

from antrea.outside.ipfix.collector import Collector
from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_lab import KernelLab

    from antrea.apis.flow import FlowRecord

SIZE = 64 * 1024
"""Of one TCP transfer, in bytes."""
CLOCK = 300
"""Seconds that the kernel's time of a connection may be away from now."""


@contextmanager
def collecting(netns: Path) -> Iterator[list[FlowRecord]]:
    """What comes to a collector there."""
    got: list[FlowRecord] = []
    loop = asyncio.new_event_loop()
    with namespace.entered(netns):
        serving = loop.create_task(
            Collector(got.append).serve("127.0.0.1", COLLECTOR_PORT, "tcp", lambda _: None)
        )
        loop.run_until_complete(asyncio.sleep(0.1))
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(asyncio.gather(serving, return_exceptions=True))
    )
    thread.start()
    try:
        yield got
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def records(kernel: KernelLab) -> Iterator[list[FlowRecord]]:
    """Of connections of node-1."""
    with collecting(kernel.netns("node-1")) as got:
        yield got


@pytest.mark.parametrize("version", [4, 6])
def test_a_record_has_the_kernels_counters_and_times(
    kernel: KernelLab, records: list[FlowRecord], version: int
) -> None:
    source, target = (kernel.addresses(name)[version] for name in ("client", "server"))
    assert carry(kernel.netns("client"), kernel.netns("server"), target, SIZE)[1]

    def whole() -> list[FlowRecord]:
        ends = [one for one in records if (one.source_ip, one.destination_ip) == (source, target)]
        return [
            one for one in ends if one.destination_transport_port == PORT and one.octet_total_count > SIZE
        ]

    kernel.nodes["node-1"].wait_for("a record of the transfer", whole, seconds=120)
    one = whole()[0]
    assert (one.source_pod_name, one.source_pod_namespace, one.source_node_name) == (
        "client",
        "default",
        "node-1",
    )
    assert one.packet_total_count > 2
    assert one.reverse_packet_total_count > 2
    assert abs(time.time() - one.flow_start_seconds) < CLOCK
    assert one.tcp_state
