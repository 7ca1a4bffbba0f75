"""What ovs-vswitchd answers on its control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antrea.errors import Refused, Unavailable
from antrea.outside.ovs_control import Tracer

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

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


async def test_ovs_control_says_where_it_looked_for_a_switch(tmp_path: Path) -> None:
    (tmp_path / "ovs-vswitchd.1.ctl").touch()
    with pytest.raises(Unavailable, match=f"control socket of ovs-vswitchd in {tmp_path}"):
        await Tracer(tmp_path, "br-int").trace(PACKET)
