"""What Pods really sent by an Egress, here or by the tunnel, is what their agent reports, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counted_traffic import V4, V6, Reported, receive
from test_ovs_egress import (
    EXCEPTED,
    FAR_POD,
    GATEWAY,
    INSIDE,
    NEAR,
    OUT,
    OUTLYING,
    PLAIN,
    PORTS,
    REMOTE,
    SELECTIVE,
    Switch,
)

from antrea.apis.stats import TrafficStats
from antrea.features.egress.agent.flow import COUNTED

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.facts.ovs import PodInterface


async def test_packets_are_counted_once_and_through_a_replay_of_all_flows(
    ovs: OvsBridge, tmp_path: Path
) -> None:
    ovs.add_ports(PORTS)
    switch = Switch(ovs, "system", None)
    reported = Reported(ovs, switch.engine, switch.pipeline, COUNTED)

    def send(sender: PodInterface, to: dict[int, str], times: int) -> None:
        for version, ip in to.items():
            for _ in range(times):
                ips = sender.ips[version == 6], ip
                receive(ovs, sender.name, (sender.mac, GATEWAY.mac), ips, src=5353, dst=53)

    def wanted(**packets: int) -> dict[str, TrafficStats]:
        return {
            f"{name}{version}": TrafficStats(packets=number, bytes=number * size)
            for name, number in packets.items()
            for version, size in ((4, V4), (6, V6))
        }

    keep = tmp_path / "counters"
    assert await reported.sums(keep) == {}
    # the first packet of a connection, and those that follow
    send(NEAR, OUT, 3)
    send(REMOTE, OUT, 2)
    send(SELECTIVE[0], INSIDE, 1)
    for sender, to in ((PLAIN, OUT), (NEAR, EXCEPTED), (NEAR, FAR_POD), (SELECTIVE[0], OUTLYING)):
        send(sender, to, 1)
    assert await reported.sums(keep) == wanted(near=3, remote=2, selective=1)
    reported.replace_all()
    assert await reported.sums(keep) == wanted(near=3, remote=2, selective=1)
    send(NEAR, OUT, 1)
    assert await reported.sums(keep) == wanted(near=4, remote=2, selective=1)
