"""What comes by a socket is framed and read, or ends that connection, and nothing else: OpenFlow, netlink, text of OVS, CNI."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING

import pytest
from fuzzing import anything, spoilt, text, value_of
from test_wide_packets import corpus

from antrea.agent.cni.request import Failed, read_call
from antrea.apis.cni import NetworkConfig, Request
from antrea.errors import Invalid
from antrea.openflow.flow_count import flow_count
from antrea.openflow.packet_in import packet_in
from antrea.outside.netlink import message as rtnl_message
from antrea.outside.vswitch.conntrack import tracked
from antrea.outside.vswitch.message import message, next_message

if TYPE_CHECKING:
    from random import Random

    from fuzzing import Fuzz

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
NICIRA_PACKET_IN = struct.pack("!II", 0x2320, 30)
ENDS = "src=10.0.0.1,dst=10.0.0.2,sport=40000,dport=80"
CONNECTION = f"tcp,orig=({ENDS}),reply=({ENDS}),zone=65520,protoinfo=(state=ESTABLISHED)".encode()
FLOW = b"cookie=0x1, duration=1.5s, table=9, n_packets=7, n_bytes=700, priority=200,ct_label=0x1/0xffffffff,ip actions=drop"


def chunks(rnd: Random, data: bytes) -> list[bytes]:
    """In pieces, as a socket gives them."""
    flush_on_deny = sorted(rnd.randrange(len(data) + 1) for _ in range(rnd.randrange(4)))
    return [
        data[one:other] for one, other in zip([0, *flush_on_deny], [*flush_on_deny, len(data)], strict=True)
    ]


async def framed(parts: list[bytes]) -> tuple[int, int]:
    """How many messages there are in it, and how many packet-ins among these can be read."""
    reader = asyncio.StreamReader()
    for part in parts:
        reader.feed_data(part)
    reader.feed_eof()
    found = read = 0
    try:
        while True:
            _, _, body = await next_message(reader)
            found += 1
            try:
                packet_in(body[8:])
                read += 1
            except Invalid:
                continue
    except (ConnectionError, asyncio.IncompleteReadError):
        return found, read


def test_wide_fuzz_wire_openflow(fuzz: Fuzz) -> None:
    frames, found, read = corpus(), 0, 0
    for rnd in fuzz:
        bodies = [NICIRA_PACKET_IN + rnd.choice((frames[-1], spoilt(rnd, frames[-1]))) for _ in range(3)]
        stream = b"".join(
            message(rnd.choice((0, 1, 2, 4)), number, body) for number, body in enumerate(bodies)
        )
        some, more = asyncio.run(framed(chunks(rnd, spoilt(rnd, stream))))
        found, read = found + some, read + more
    print(f"{found} messages, {read} packet-ins among them read")
    assert min(found, read) > 0


def test_wide_fuzz_wire_netlink(fuzz: Fuzz) -> None:
    body = rtnl_message.link_head() + rtnl_message.string(3, "eth0") + rtnl_message.number(4, 1500)
    whole = rtnl_message.Request(16, 5, body).encode(7) * 3
    for rnd in fuzz:
        data = spoilt(rnd, whole)
        for reply in rtnl_message.replies(data):
            assert len(reply.body) <= len(data)
            assert isinstance(reply.errno, int)
            assert sum(map(len, rtnl_message.attributes(reply.body).values())) <= len(data) ** 2


def test_wide_fuzz_wire_lines_of_the_switch(fuzz: Fuzz) -> None:
    found = 0
    for rnd in fuzz:
        for whole, parse in ((CONNECTION, lambda line: tracked(65520, line)), (FLOW, flow_count)):
            found += parse(spoilt(rnd, whole, 3).decode(errors="replace")) is not None
    print(f"{found} read")
    assert found


def test_wide_fuzz_wire_requests_of_the_cni_plugin(fuzz: Fuzz) -> None:
    taken = refused = 0
    for rnd in fuzz:
        config = {"cniVersion": "1.0.0", "name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}}
        more = value_of(rnd, NetworkConfig, odd=0.05) if rnd.random() < 0.5 else {text(rnd): anything(rnd)}
        config |= more if isinstance(more, dict) else {}
        request = {
            "api": 1, "command": rnd.choice(("ADD", "DEL", "CHECK", "GC", "STATUS", text(rnd))), "containerId": "c1",
            "netns": "/n", "ifName": "eth0", "args": "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b", "path": "", "config": json.dumps(config),
        }  # fmt: skip
        if rnd.random() < 0.3:
            more = value_of(rnd, Request, odd=0.05)
            request |= more if isinstance(more, dict) else {}
        line = json.dumps(request).encode()
        if rnd.random() < 0.05:
            line = line.replace(
                b'"api"', b'"x":' + rnd.choice((b"[", b'{"a":')) * rnd.randrange(3000) + b',"api"'
            )
        try:
            read_call(line if rnd.random() < 0.5 else spoilt(rnd, line))
            taken += 1
        except Failed:
            refused += 1
    print(f"{taken} taken, {refused} refused")
    assert min(taken, refused) > 0
