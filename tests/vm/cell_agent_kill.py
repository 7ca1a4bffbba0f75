"""Runs in the virtual machine: what crosses the kernel datapath while agents, or OVSDB, are killed and start again."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from kernel_egress import addresses, egress_node
from kernel_lab import OUTSIDE
from kernel_traffic import PORT, Arrived, Stream

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
ON_THE_WAY = ("node-1", "node-2")
MIN_NUMBERS = 100
"""Numbers that have to be under way before anything is killed, while it is away, and when it is back."""


def test_no_packet_is_lost_over_a_kill_of_the_agents(kernel: KernelLab) -> None:
    """Between Pods, and of a Pod whose Egress IP is in a VLAN of the other Node; the controller is killed before."""
    nodes = [kernel.nodes[name] for name in ON_THE_WAY]
    egress_node(kernel)
    before = [node.rounds() for node in nodes]
    heard = [_connections(node) for node in nodes]
    with _crossing(kernel, ("client", "server"), ("vlan", OUTSIDE)) as more:
        kernel.restart_controller()
        for node, times in zip(nodes, heard, strict=True):
            node.wait_for("the new controller", partial(_found, node, times))
        for node in nodes:
            node.kill_agent()
        more()
        for node in nodes:
            node.start_agent()
        for node, old in zip(nodes, before, strict=True):
            node.wait_for("flows of the new agent alone", partial(_replaced, node, old))


def test_no_connection_ends_over_an_image_roll_of_the_egress_node(kernel: KernelLab) -> None:
    """The address stays, and no packet of this Node's Pods is lost nor of another Node's, which come by the tunnel."""
    node, other = egress_node(kernel), kernel.nodes["node-1"]
    before, stood = node.rounds(), addresses(node)
    with _crossing(kernel, ("near", OUTSIDE), ("vlan", OUTSIDE)) as more:
        node.end_pod()
        more()
        node.start_pod()
        node.wait_for("flows of the new agent alone", partial(_replaced, node, before))
        node.wait_for("a switch that forwards by them", partial(_forwards, node))
        more()
        assert addresses(node) == stood
    said = other.log("agent", lines=10_000)
    assert '"Member announced a short restart" node="node-2"' in said
    assert '"Member is dead" node="node-2"' not in said


def test_no_packet_is_lost_over_a_kill_of_ovsdb(kernel: KernelLab) -> None:
    """The kernel forwards; the agents go on with what they know until OVSDB, which comes back without MACs, has them again."""
    nodes = [kernel.nodes[name] for name in ON_THE_WAY]
    flows = [sorted(node.flows().splitlines()) for node in nodes]
    with _crossing(kernel, ("client", "server")) as more:
        for node in nodes:
            node.run("sh", "-c", "kill -9 $(cat /run/openvswitch/ovsdb-server.pid)")
        more()
        for node in nodes:
            node.wait_for("MAC of the gateway", partial(_mac, node))
    assert [sorted(node.flows().splitlines()) for node in nodes] == flows


def test_no_packet_is_lost_while_links_of_a_node_change(kernel: KernelLab) -> None:
    """As a changed MTU and new Pods change them; userspace OVS may lose one at each (docs/datapaths.md)."""
    nodes = [kernel.nodes[name] for name in ON_THE_WAY]
    before = [_mtu(node) for node in nodes]
    with _crossing(kernel, ("client", "server")) as more:
        for mtu in (1300, 1310, *before[:1]):
            for node in nodes:
                node.run("ovs-vsctl", "set", "Interface", "antrea-gw0", f"mtu_request={mtu}")
                node.run("ip", "link", "add", "passing", "type", "veth", "peer", "name", "by")
                node.run("ip", "link", "set", "passing", "up")
                node.run("ip", "link", "del", "passing")
                node.wait_for(f"MTU {mtu}", partial(_has_mtu, node, mtu))
            more()
    assert [_mtu(node) for node in nodes] == before


@contextmanager
def _crossing(kernel: KernelLab, *ways: tuple[str, str]) -> Iterator[Callable[[], None]]:
    """Datagrams and a connection of each way in each family, before, in and after the block; it is given what waits for more of them."""
    with ExitStack() as ends:
        streams = [
            ends.enter_context(
                Stream(
                    kernel.netns(source),
                    kernel.netns(target),
                    kernel.addresses(target)[version],
                    PORT + number,
                )
            )
            for number, (source, target) in enumerate(ways)
            for version in (4, 6)
        ]
        _more(streams)
        yield partial(_more, streams)
        _more(streams)

    for stream in streams:
        sent = stream.arrived.sent
        assert stream.arrived == Arrived(sent, sent, sent)


def _mtu(node: KernelNode) -> int:
    return int(json.loads(node.run("ip", "-j", "link", "show", "antrea-gw0"))[0]["mtu"])


def _has_mtu(node: KernelNode, mtu: int) -> bool:
    return _mtu(node) == mtu


def _mac(node: KernelNode) -> bool:
    """Whether OVSDB is there, and ovs-vswitchd connected to it again."""
    try:
        return bool(
            node.run(
                "ovs-vsctl", "--timeout=5", "--bare", "get", "Interface", "antrea-gw0", "mac_in_use"
            ).strip("[]\n")
        )
    except Unavailable:
        return False


def _connections(node: KernelNode) -> int:
    """How often the node's agents have found a controller."""
    return node.log("agent", lines=10_000).count("Connected to antrea-controller")


def _found(node: KernelNode, before: int) -> bool:
    return _connections(node) > before


def _replaced(node: KernelNode, before: set[int]) -> bool:
    try:
        now = node.rounds()
    except Unavailable:  # ovs-vswitchd is busy
        return False
    return len(now) == 1 and not now & before


def _forwards(node: KernelNode) -> bool:
    """Whether it let go of what its datapath had from before."""
    try:
        return "flow-restore-wait" not in node.run("ovs-vsctl", "get", "Open_vSwitch", ".", "other_config")
    except Unavailable:
        return False


def _more(streams: list[Stream]) -> None:
    until = [stream.arrived.sent + MIN_NUMBERS for stream in streams]
    wait_for(
        "more packets",
        lambda: all(stream.arrived.sent >= sent for stream, sent in zip(streams, until, strict=True)),
        seconds=120,
    )
