"""What ovs-vswitchd answers on its control socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

import pytest
from counted_traffic import receive
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.agent.api.trace_request import Entered, packet, request_of
from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.vswitch.appctl import Tracer, counter
from antrea.outside.vswitch.conntrack import Conntrack, Tracked, Usage
from antrea.outside.vswitch.packet_channel import OVERFLOW_COUNTER

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

FIELDS = re.findall(
    r"\S+",
    "tcp udp icmp sctp ip ipv6 arp mpls in_port tun_id tun_dst metadata reg0 xxreg3 dl_src dl_type dl_vlan vlan_tci nw_src"
    " nw_proto nw_tos nw_ttl nw_frag tp_src tcp_flags icmp_type ct_state ct_mark ct_label ct_nw_src conj_id pkt_mark recirc_id"
    " packet_type actions priority table cookie mpls_label nd_target arp_op tun_metadata0 nsh_spi skb_priority nonsense",
)
VALUE = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "65535", "4294967296", "0x1/0xf", "10.0.0.1", "10.0.0.0/8", "fd00::1", "any"]
    ),
    st.sampled_from(
        ["0a:00:00:00:00:07", "trk|new", "+trk+est", "later", "controller", "(1,0x800)", "drop", "+syn"]
    ),
    st.text("0123456789abcdefx:./+|-_", max_size=12),
)
TERM = st.builds(lambda field, value: f"{field}={value}" if value else field, st.sampled_from(FIELDS), VALUE)
FLOW = st.lists(TERM, min_size=1, max_size=6).map(",".join)
PACKET = "in_port=1,dl_src=0a:00:00:00:00:07,ip,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.10.0.8"


@pytest.fixture(autouse=True)
def flows(ovs: OvsBridge) -> None:
    ovs.clear()
    if "p1" not in ovs.vsctl("list-ports", "br-int").split():
        ovs.add_port("p1", 1)
    ovs.add_flows(["table=0,priority=200,ip actions=goto_table:3", "table=3,priority=0 actions=drop"])


async def test_ovs_control_traces_a_packet_as_ovs_appctl_does(ovs: OvsBridge) -> None:
    found = await Tracer(ovs.process.directory, "br-int").trace(PACKET)
    assert found == ovs.trace(PACKET)
    assert [line for line in found.splitlines() if ". " in line[:4]] == [
        " 0. ip, priority 200",
        " 3. priority 0",
    ]


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        ("in_port=1,ipx", "Bad openflow flow syntax: in_port=1,ipx: unknown field ipx"),
        ("in_port=1,nw_src=10.0.0.1", "Bad openflow flow syntax: in_port=1,nw_src=10.0.0.1: prerequisites not met for setting nw_src"),
    ],
)  # fmt: skip
async def test_ovs_control_passes_on_why_a_packet_is_not_taken(
    ovs: OvsBridge, packet: str, words: str
) -> None:
    with pytest.raises(Refused) as no:
        await Tracer(ovs.process.directory, "br-int").trace(packet)
    assert no.value.why == words


def test_ovs_control_survives_every_packet_that_a_request_may_hold(ovs: OvsBridge) -> None:
    tracer = Tracer(ovs.process.directory, "br-int")

    @settings(deadline=None, max_examples=300)
    @given(flow=FLOW)
    def ask(flow: str) -> None:
        with contextlib.suppress(Invalid, Refused):
            request = request_of({"flow": flow})
            asyncio.run(tracer.trace(packet(request, Entered(1, "0a:00:00:00:00:07", "", "10.10.0.7"))))

    ask()
    assert ovs.trace(PACKET)


async def test_ovs_control_says_where_it_looked_for_a_switch(tmp_path: Path) -> None:
    (tmp_path / "ovs-vswitchd.1.ctl").touch()
    with pytest.raises(Unavailable, match=f"control socket of ovs-vswitchd in {tmp_path}"):
        await Tracer(tmp_path, "br-int").trace(PACKET)


async def test_ovs_control_reads_a_counter_and_says_which_there_is_not(
    ovs: OvsBridge, tmp_path: Path
) -> None:
    assert await counter(ovs.process.directory, OVERFLOW_COUNTER) >= 0
    with pytest.raises(Unavailable, match="counter nonsense of ovs-vswitchd"):
        await counter(ovs.process.directory, "nonsense")
    with pytest.raises(Unavailable, match="control socket"):
        await counter(tmp_path, OVERFLOW_COUNTER)


async def test_ovs_control_counts_the_connections_that_are_tracked(ovs: OvsBridge) -> None:
    conntrack = Conntrack(ovs.process.directory)
    ovs.appctl("dpctl/ct-set-maxconns", "4096")
    ovs.appctl("dpctl/flush-conntrack")
    ovs.add_flows(["table=0,priority=300,udp actions=ct(commit,zone=7)",
                   "table=0,priority=300,udp6 actions=ct(commit,zone=8)"])  # fmt: skip
    assert await conntrack.usage() == Usage(0, 4096)
    v4, v6 = ("10.10.0.7", "10.10.0.8"), ("fd00::7", "fd00::8")
    for ips in (v4, v4, v6):
        receive(ovs, "p1", ("0a:00:00:00:00:07", "0a:00:00:00:00:08"), ips, src=4000, dst=53)
    async with asyncio.timeout(60):
        while (found := await conntrack.usage()) != Usage(2, 4096):
            assert found.tracked <= 2
            await asyncio.sleep(0.05)


async def test_ovs_control_survives_that_connections_of_every_protocol_are_forgotten(ovs: OvsBridge) -> None:
    """ovs-vswitchd 3.1 aborts when a connection of ICMPv6 is to be removed from its own table."""
    ends = {"icmp": ("10.10.0.7", "10.10.0.8", 8), "icmpv6": ("fd74::12", "fd74::11", 128)}
    conntrack = Conntrack(ovs.process.directory)
    echoes = [
        Tracked(65510, protocol, source, destination, 0, 0, (10203, kind, 0))
        for protocol, (source, destination, kind) in ends.items()
    ]
    ports = [
        Tracked(65510, protocol, source, destination, 40000, 80, (0, 0, 0))
        for source, destination, _ in ends.values()
        for protocol in ("tcp", "udp", "sctp")
    ]
    await conntrack.forget([*echoes, *ports])
    assert await conntrack.connections(65510) == []
