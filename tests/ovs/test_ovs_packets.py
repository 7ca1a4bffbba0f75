"""Packets come from a real switch to the agent and go back, and what is too much is counted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.openflow.fields import GENERATED_REJECT_PACKET_OUT_REG_MARK as GENERATED
from antrea.openflow.fields import PACKET_IN_OPERATION, PACKET_IN_TABLE, PacketIn
from antrea.openflow.packet import packet
from antrea.openflow.packet_out import PacketOut
from antrea.outside.vswitch.packet_channel import UNREADABLE, UNSENT, Packets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ovs_bridge import OvsBridge

    from antrea.openflow.packet_in import PacketIn as Received

CONTROLLER = "controller(id=32776,reason=no_match,userdata=01.02,max_len=65535)"
FLOWS = [
    "table=0,priority=10,in_port=1 actions=set_field:0x4400000/0xfe600000->reg0,set_field:0x1d->reg2,goto_table:3",
    f"table=3,priority=10,tcp actions={CONTROLLER}",
    "table=3,priority=10,udp actions=controller(id=32776,reason=no_match,userdata=03,max_len=65535)",
    "table=5,priority=10,reg0=0x2000/0x2000,in_port=1 actions=output:2",
]
TCP = "in_port(1),eth(src=0a:00:00:00:00:01,dst=0a:00:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=4000,dst=80),tcp_flags(syn)"
UDP = TCP.replace("proto=6", "proto=17").replace("tcp(", "udp(").replace(",tcp_flags(syn)", "")
RATE = 100


@pytest.fixture
def bridge(ovs: OvsBridge) -> OvsBridge:
    if "p1" not in ovs.vsctl("list-ports", "br-int").split():
        ovs.add_port("p1", 1)
        ovs.add_port("p2", 2)
    ovs.clear()
    ovs.add_flows(FLOWS)
    return ovs


@contextlib.asynccontextmanager
async def connected(bridge: OvsBridge, handler: Callable[[Received], None]) -> AsyncIterator[Packets]:
    packets = Packets(Path(bridge.mgmt.removeprefix("unix:")), RATE)
    packets.deliver(PacketIn.NETWORK_POLICY, handler)
    running = asyncio.create_task(packets.run())
    try:
        async with asyncio.timeout(60):
            await packets.connected.wait()
            yield packets
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def receive(bridge: OvsBridge, text: str, *more: str) -> None:
    await asyncio.to_thread(bridge.appctl, "netdev-dummy/receive", "p1", text, *more)


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 (the counters of another thread's switch)
        await asyncio.sleep(0.01)


async def test_a_packet_comes_with_what_the_pipeline_knew_of_it(bridge: OvsBridge) -> None:
    heard: list[Received] = []
    async with connected(bridge, heard.append):
        await receive(bridge, TCP)
        await until(lambda: heard)
    (found,) = heard
    assert (found.userdata, found.table, found.in_port) == (b"\x01\x02", 3, 1)
    assert (found.value(PACKET_IN_OPERATION), found.value(PACKET_IN_TABLE)) == (2, 29)
    read = packet(found.frame)
    assert (read.source, read.destination, read.protocol, read.ports) == (
        "10.0.0.1",
        "10.0.0.2",
        6,
        (4000, 80),
    )


async def test_a_packet_goes_out_of_a_port_or_with_its_mark_through_a_table(bridge: OvsBridge) -> None:
    heard: list[Received] = []
    async with connected(bridge, heard.append) as packets:
        await receive(bridge, TCP)
        await until(lambda: heard)
        frame = heard[0].frame
        packets.send(PacketOut(frame, 1, out_port=2))
        packets.send(PacketOut(frame, 1, (GENERATED,), table=5))
        packets.send(PacketOut(frame, 2, (GENERATED,), table=5))
        packets.send(PacketOut(frame, 1, (GENERATED,)))
        await until(lambda: len(heard) == 2)
    assert [found.value(GENERATED.field) for found in heard] == [0, 1]
    counts = bridge.ofctl("dump-flows", "table=5")
    assert "n_packets=1," in counts
    assert "tx pkts=2" in bridge.ofctl("dump-ports", "p2")


async def test_what_comes_too_fast_is_counted_and_what_is_for_nobody_too(bridge: OvsBridge) -> None:
    heard: list[Received] = []
    many, began = 1000, time.monotonic()
    async with connected(bridge, heard.append) as packets:
        for _ in range(8):
            await receive(bridge, TCP, *[TCP] * (many // 8 - 1))
        await receive(bridge, UDP)
        await until(lambda: packets.dropped[UNREADABLE])
        assert 2 * RATE <= len(heard) <= (2 + time.monotonic() - began) * RATE
        assert packets.dropped["NETWORK_POLICY"] > 0
        lines = packets.text().splitlines()
    assert lines[2].startswith('antrea_agent_packet_in_dropped_count{category="NETWORK_POLICY"} ')
    assert lines[4] == 'antrea_agent_packet_in_dropped_count{category="unreadable"} 1'


async def test_a_handler_that_fails_costs_one_packet(bridge: OvsBridge) -> None:
    heard: list[int] = []

    def handle(found: Received) -> None:
        heard.append(found.in_port)
        if len(heard) == 1:
            raise ZeroDivisionError

    async with connected(bridge, handle):
        await receive(bridge, TCP, TCP)
        await until(lambda: len(heard) == 2)


async def test_a_switch_that_comes_back_is_connected_to_and_what_is_sent_meanwhile_counts(
    bridge: OvsBridge,
) -> None:
    heard: list[Received] = []
    async with connected(bridge, heard.append) as packets:
        bridge.process.kill("ovs-vswitchd")
        await until(lambda: not packets.connected.is_set())
        packets.send(PacketOut(b"", 1))
        assert packets.dropped[UNSENT] == 1
        await asyncio.to_thread(bridge.process.start_switch)
        await packets.connected.wait()
        await asyncio.to_thread(bridge.add_flows, FLOWS)
        await receive(bridge, TCP)
        await until(lambda: heard)
