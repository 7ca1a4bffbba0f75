"""What a real switch tells of traced packets that a TrafficControl or an engine of L7NetworkPolicy takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from policy_switch import GATEWAY, TUNNEL
from traced_node import (
    BACK,
    DB,
    DELIVERED,
    FAR,
    PODS,
    TAG,
    TAP,
    WEB,
    Node,
    brief,
    inject,
    sent,
    sent_by,
    trace,
    traced_node,
)

from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
from antrea.host.ovs_port import Port
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import TCP
from antrea.openflow.packet_out import PacketOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    async with traced_node(ovs) as made:
        yield made


def steer(node: Node, *, redirects: bool, back: bool = False, there: bool = True) -> None:
    """What Pod web sends is mirrored to the port tap0, or redirected by it."""
    node.facts.put(SteeredNamespace("a", ()))
    for pod in PODS:
        node.facts.put(SteeredPod("a", pod.pod_name, (("app", pod.pod_name),)))
    for port in (TAP, BACK) if there else ():
        node.facts.put(port)
    selected = (("app", "=", ("web",)),)
    target, returned = Port(name=TAP.name), Port(name=BACK.name) if back else None
    node.facts.put(Steering("ids", "u", "2026", selected, None, "Egress", redirects, target, returned))


async def arrived(node: Node, before: dict[str, int], **packets: int) -> None:
    """So many packets have left by each port, and no others."""
    wanted = {name: number + packets.get(name, 0) for name, number in before.items()}
    async with asyncio.timeout(30):
        while left_by(node) != wanted:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)


def left_by(node: Node) -> dict[str, int]:
    return {port.name: sent_by(node, port) for port in (DB, TAP, TUNNEL)}


def steered(action: str) -> tuple[str, ...]:
    return ("TrafficControl", action, "ids")


def first_packet(six: bool, to: str, mac: str, **more: Any) -> Headers:
    ends: dict[str, Any] = {"source": WEB.ips[six], "source_mac": WEB.mac}
    ends |= {"destination": to, "destination_mac": mac, "source_port": 44000, "destination_port": 80}
    return Headers(**ends, protocol=TCP, **more)


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize(("to", "out"), [(DB.ips, DELIVERED), (FAR, ("Forwarding", "Forwarded", "Output", "192.0.2.2"))])  # fmt: skip
async def test_a_packet_that_is_mirrored_tells_its_way(
    node: Node, six: bool, to: tuple[str, str], out: tuple[str, ...]
) -> None:
    steer(node, redirects=False)
    found = trace(six=six, protocol="tcp", destination={"ip": to[six]})
    await node.start(found)
    before = left_by(node)
    seen = brief(node.observed(found, await inject(node, found)))
    assert seen == [sent(six), steered("Mirrored"), out]
    await arrived(node, before, **({"antrea-tun0": 1} if out != DELIVERED else {}))
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("back", [False, True], ids=["ends", "comes back"])
async def test_a_packet_that_is_redirected_tells_its_way_and_that_of_its_return(
    node: Node, six: bool, back: bool
) -> None:
    steer(node, redirects=True, back=back)
    found = trace(six=six, protocol="tcp", destination={"ip": DB.ips[six]})
    await node.start(found)
    before = left_by(node)
    out = ("Forwarding", "Forwarded" if back else "Redirected", "Output")
    seen = brief(node.observed(found, await inject(node, found)))
    assert seen == [sent(six), steered("Redirected"), out]
    await arrived(node, before, tap0=1)
    if back:
        returned = first_packet(six, DB.ips[six], DB.mac, dscp=TAG)
        node.packets.send(PacketOut(frame(returned), BACK.ofport))
        again = (await node.told(2))[1]
        assert brief(node.observed(found, again)) == [("Forwarding", "Received"), DELIVERED]
        await arrived(node, before, tap0=1)
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("redirects", [False, True], ids=["mirror", "redirect"])
async def test_live_traffic_that_is_steered_is_traced_and_goes_where_it_would(
    node: Node, six: bool, redirects: bool
) -> None:
    steer(node, redirects=redirects, back=True)
    found = trace(six=six, destination={"ip": DB.ips[six]}, liveTraffic=True)
    await node.start(found)
    before = left_by(node)
    node.packets.send(PacketOut(frame(first_packet(six, DB.ips[six], DB.mac)), WEB.ofport))
    seen = brief(node.observed(found, (await node.told())[0]))
    end = ("Forwarding", "Redirected", "Output") if redirects else DELIVERED
    assert seen == [sent(six), steered("Redirected" if redirects else "Mirrored"), end]
    await arrived(node, before, tap0=1, **({} if redirects else {DB.name: 1}))
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_live_traffic_by_the_tunnel_keeps_its_tag_and_its_copy_has_none(node: Node, six: bool) -> None:
    steer(node, redirects=False)
    found = trace(six=six, destination={"ip": FAR[six]}, liveTraffic=True)
    await node.start(found)
    before = left_by(node)
    node.packets.send(PacketOut(frame(first_packet(six, FAR[six], GATEWAY.mac)), WEB.ofport))
    assert brief(node.observed(found, (await node.told())[0]))[1] == steered("Mirrored")
    await arrived(node, before, **{"antrea-tun0": 1, "tap0": 1})
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_whose_inspection_is_not_there_tells_who_drops_it(node: Node, six: bool) -> None:
    steer(node, redirects=True, there=False)
    found = trace(six=six, protocol="tcp", destination={"ip": DB.ips[six]})
    assert brief(node.observed(found, await inject(node, found))) == [sent(six), steered("Dropped")]
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("live", [False, True], ids=["injected", "live"])
async def test_a_packet_that_an_engine_judges_is_traced_until_it_goes_there(
    node: Node, six: bool, live: bool
) -> None:
    steer(node, redirects=False)
    found = trace(six=six, protocol="tcp", destination={"ip": DB.ips[six]}, liveTraffic=live)
    await node.start(found)
    tables = node.pipeline.ids
    judged = f"ct(commit,table={tables['Output']},zone=9,exec(load:1->NXM_NX_CT_MARK[7]))"
    commit = f"table={tables['ConntrackCommit']},priority=300,{'ipv6' if six else 'ip'}"
    node.bridge.ofctl("add-flow", f"{commit},actions={judged}")
    before = left_by(node)
    if live:
        node.packets.send(PacketOut(frame(first_packet(six, DB.ips[six], DB.mac)), WEB.ofport))
        told = (await node.told())[0]
    else:
        told = await inject(node, found)
    judging = ("NetworkPolicy", "Redirected", "L7NetworkPolicy")
    seen = brief(node.observed(found, told))
    assert seen == [sent(six), judging, ("Forwarding", "Redirected", "Output")]
    # live traffic goes on by flows of other features: here those of its mirror, and no engine's
    await arrived(node, before, **({DB.name: 1, "tap0": 1} if live else {}))
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("theirs", [False, True], ids=["both mirror", "the receiver's redirects"])
async def test_of_two_for_the_ends_of_a_packet_redirect_comes_first_then_the_senders(
    node: Node, six: bool, theirs: bool
) -> None:
    steer(node, redirects=False)
    selected = (("app", "=", ("db",)),)
    node.facts.put(Steering("other", "v", "2025", selected, None, "Both", theirs, Port(name=BACK.name)))
    found = trace(six=six, protocol="tcp", destination={"ip": DB.ips[six]})
    seen = brief(node.observed(found, await inject(node, found)))
    assert seen[1] == (("TrafficControl", "Redirected", "other") if theirs else steered("Mirrored"))
    assert await node.stop() == 0
